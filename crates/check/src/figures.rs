//! What a single number hides, as plots: how Gamma and staleness are spread, and when a trace was inconsistent.
//!
//! - `gamma`: how many values have which positive Gamma, the distribution that McKenzie, Fan and Golab (2015) show as boxes.
//! - `staleness`: of the stale reads, the share that was stale by no more than so much.
//! - `visibility`: of the reads that began so long after the last write before them was over, the share that returned that write
//!   or a newer one ([`crate::visibility`]).
//! - `inconsistency`: the proportion of inconsistent operations of each of some sixty equal spans of the trace, by when operations
//!   began. What counts are the operations of the values that have to go ([`Zones::removal`]); where several choices weigh the
//!   same, when they fall is a matter of choice.
//!
//! The last two are drawn from what the report says. Points are bounded however long a trace is. O(n log n).
use crate::{
    Axis, History, Moment, Order, Plot, Report, Scale, Series, Shape, Visibility, Zones, each_stale_read,
    plot::{Unit, steps},
};

/// How many bars a histogram has.
const BARS: usize = 24;
/// How many points a distribution has at most.
const QUANTILES: usize = 200;
/// From where on the least and the greatest are so far apart that only a logarithmic scale shows both.
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
        y: Axis::new("share of stale reads that were no staler", Scale::Linear),
        series: vec![Series::new("reads", Shape::Steps, points.collect())],
    }
}

fn visibility(curve: &[Visibility]) -> Plot {
    let middle = curve.get(curve.len() / 2);
    let unit = Unit::of(middle.map_or(0.0, |bucket| bucket.from_ns as f64));
    let point = |bucket: &Visibility| {
        let share = bucket.fresh as f64 / bucket.reads as f64;
        (bucket.from_ns as f64 / unit.nanoseconds(), share)
    };
    let known = curve.iter().filter(|bucket| bucket.reads > 0);
    let mut points: Vec<(f64, f64)> = known.map(point).collect();
    // The last share holds to the end of its bucket.
    if let (Some(end), Some(&(_, share))) = (curve.last(), points.last()) {
        points.push((end.to_ns as f64 / unit.nanoseconds(), share));
    }
    Plot {
        title: "Reads that returned the last write before them".into(),
        x: Axis::new(format!("since that write was over, {}", unit.name()), Scale::Log),
        y: Axis::new("share of reads", Scale::Linear),
        series: vec![Series::new("reads", Shape::Steps, points)],
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
    }
}

/// Of numbers in order.
fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn scale(sorted: &[f64]) -> Scale {
    match (sorted.first(), sorted.last()) {
        (Some(min), Some(max)) if *min > 0.0 && max / min > FAR_APART => Scale::Log,
        _ => Scale::Linear,
    }
}
