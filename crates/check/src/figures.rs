//! Plots of what a single number does not show: the distributions of Gamma and staleness, and when a trace was inconsistent.
//!
//! - `gamma`: how many values have which positive Gamma, the distribution that McKenzie, Fan and Golab (2015) show as boxes.
//! - `staleness`: of the stale reads, the share that was stale for at most the time on the axis.
//! - `visibility`: for each time t, of the reads that began t after the last write before them was over, the share that returned that write
//!   or a newer one ([`crate::visibility`]).
//! - `inconsistency`: the proportion of inconsistent operations in each of about sixty equal spans of the trace, by when operations
//!   began. The operations of the values that must be removed count ([`Zones::removal`]). If several sets of values have the same number of
//!   operations, the times depend on which of them was chosen.
//!
//! The last two are drawn from the report. The number of points is bounded for a trace of any length. O(n log n).
use crate::{
    Axis, History, Moment, Order, Plot, Report, Scale, Series, Shape, Visibility, Zones, each_stale_read,
    plot::{Unit, steps},
};

/// How many bars a histogram has.
const BARS: usize = 24;
/// How many points a distribution has at most.
const QUANTILES: usize = 200;
/// The ratio of the greatest to the least number from which the scale is logarithmic.
const FAR_APART: f64 = 50.0;

/// The plots of a trace, with names for their files.
pub fn figures(history: &History, report: &Report) -> Vec<(&'static str, Plot)> {
    vec![
        ("gamma", gamma(&Zones::of(history))),
        ("staleness", staleness(history)),
        ("visibility", visibility(&report.t_visibility)),
        ("inconsistency", inconsistency(&report.over_time)),
    ]
}

fn gamma(zones: &[Zones]) -> Plot {
    let gammas = zones.iter().flat_map(Zones::gammas).filter(|&gamma| gamma > 0);
    let mut gammas: Vec<f64> = gammas.map(|gamma| gamma as f64).collect();
    gammas.sort_by(f64::total_cmp);
    let unit = Unit::of(median(&gammas));
    let scale = scale(&gammas);
    let edges = steps(scale, &gammas, BARS);
    let count = |pair: &[f64]| {
        let up_to = |edge: f64| gammas.partition_point(|&gamma| gamma < edge);
        (
            pair[0] / unit.nanoseconds(),
            (up_to(pair[1]) - up_to(pair[0])) as f64,
        )
    };
    let mut points: Vec<(f64, f64)> = edges.windows(2).map(count).collect();
    // Where the last bar ends.
    points.extend(edges.last().map(|edge| (edge / unit.nanoseconds(), 0.0)));
    Plot {
        title: format!("Gamma of the {} values that are in conflict", gammas.len()),
        x: Axis::new(format!("Gamma, {}", unit.name()), scale),
        y: Axis::new("values", Scale::Linear),
        series: vec![Series::new("values", Shape::Bars, points)],
        note: String::new(),
        labels: Vec::new(),
    }
}

fn staleness(history: &History) -> Plot {
    let mut stale = Vec::new();
    each_stale_read(history, &Order::of(history), |_, ns| stale.push(ns as f64));
    stale.sort_by(f64::total_cmp);
    let unit = Unit::of(median(&stale));
    let points = (1..=QUANTILES.min(stale.len())).map(|step| {
        let share = step as f64 / QUANTILES.min(stale.len()) as f64;
        let place = (share * stale.len() as f64).round() as usize;
        (stale[place.clamp(1, stale.len()) - 1] / unit.nanoseconds(), share)
    });
    let points: Vec<(f64, f64)> = points.collect();
    // Before the least nothing is.
    let points = points
        .first()
        .map(|&(x, _)| (x, 0.0))
        .into_iter()
        .chain(points.clone());
    Plot {
        title: format!("Staleness of the {} stale reads", stale.len()),
        x: Axis::new(format!("staleness, {}", unit.name()), scale(&stale)),
        y: Axis::new(
            "share of stale reads that were stale for at most this time",
            Scale::Linear,
        ),
        series: vec![Series::new("reads", Shape::Steps, points.collect())],
        note: String::new(),
        labels: Vec::new(),
    }
}

fn visibility(curve: &[Visibility]) -> Plot {
    let middle = curve.get(curve.len() / 2);
    let unit = Unit::of(middle.map_or(0.0, |bucket| bucket.from_ns as f64));
    let (unit, name) = (unit.nanoseconds(), unit.name());
    // A span without reads is a gap.
    let share = |bucket: &Visibility| bucket.fresh as f64 / bucket.reads as f64;
    let mut points: Vec<(f64, f64)> = curve
        .iter()
        .map(|bucket| (bucket.from_ns as f64 / unit, share(bucket)))
        .collect();
    // The last share holds to the end of its bucket.
    points.extend(curve.last().map(|last| (last.to_ns as f64 / unit, share(last))));
    let known = curve.iter().filter(|bucket| bucket.reads > 0);
    let labels = known.map(|bucket| {
        let middle = (bucket.from_ns as f64 * bucket.to_ns as f64).sqrt();
        (middle / unit, share(bucket), short(bucket.reads))
    });
    let reads: u64 = curve.iter().map(|bucket| bucket.reads).sum();
    Plot {
        title: "Reads that returned the last write before them".into(),
        x: Axis::new(format!("since that write was over, {name}"), Scale::Log),
        y: Axis::new("share of reads", Scale::Linear),
        series: vec![Series::new("reads", Shape::Steps, points)],
        note: format!("{reads} reads; above each step how many began in its span"),
        labels: labels.collect(),
    }
}

/// At most four characters.
fn short(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}M", count / 1_000_000),
    }
}

fn inconsistency(moments: &[Moment]) -> Plot {
    let first = moments.first().map_or(0, |moment| i128::from(moment.from_ns));
    let since = |moment: &Moment| (i128::from(moment.from_ns) - first) as f64;
    // All are equally long; the last ends where another would begin.
    let span = moments.get(1).map_or(1.0, since);
    let length = span * moments.len() as f64;
    let unit = Unit::of(length / 10.0);
    let percent = |moment: &Moment| 100.0 * moment.removed as f64 / moment.operations.max(1) as f64;
    let bars = moments.iter();
    let removed: u64 = bars.clone().map(|moment| moment.removed).sum();
    let operations: u64 = bars.clone().map(|moment| moment.operations).sum();
    let mut points: Vec<(f64, f64)> = bars
        .map(|moment| (since(moment) / unit.nanoseconds(), percent(moment)))
        .collect();
    if !points.is_empty() {
        points.push((length / unit.nanoseconds(), 0.0));
    }
    Plot {
        title: "Inconsistent operations over time".into(),
        x: Axis::new(format!("since the trace began, {}", unit.name()), Scale::Linear),
        y: Axis::new("inconsistent operations, %", Scale::Linear),
        series: vec![Series::new("operations", Shape::Bars, points)],
        note: format!("{removed} of {operations} operations"),
        labels: Vec::new(),
    }
}

/// The median of sorted numbers.
fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn scale(sorted: &[f64]) -> Scale {
    match (sorted.first(), sorted.last()) {
        (Some(min), Some(max)) if *min > 0.0 && max / min > FAR_APART => Scale::Log,
        _ => Scale::Linear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_visibility_plot_says_how_many_reads_each_share_is_of() {
        let bucket = |from_ns: i64, reads, fresh| Visibility {
            from_ns,
            to_ns: 2 * from_ns,
            reads,
            fresh,
        };
        let plot = visibility(&[
            bucket(1_000_000, 4, 1),
            bucket(2_000_000, 0, 0),
            bucket(4_000_000, 12_345, 12_345),
        ]);
        let said: Vec<&str> = plot.labels.iter().map(|(_, _, says)| says.as_str()).collect();
        assert_eq!(said, ["4", "12k"]);
        assert!(plot.note.starts_with("12349 reads"), "{}", plot.note);
        // Where there are no reads, there is no line.
        assert!(plot.series[0].points[1].1.is_nan());
        let svg = plot.svg();
        assert!(svg.contains(">12k<") && !svg.contains("NaN"), "{svg}");
    }
}
