use super::*;

fn plot(scale: Scale, points: Vec<(f64, f64)>) -> String {
    let series = Series::new("<reads> & \"writes\"", Shape::Bars, points);
    let plot = Plot {
        title: "a < b".into(),
        x: Axis::new("time, s", scale),
        y: Axis::new("reads\u{1}", scale),
        series: vec![series.clone(), series],
        note: "a & b".into(),
        labels: vec![(1.0, 1.0, "<3>".into())],
    };
    plot.svg()
}

#[test]
fn names_are_escaped() {
    let svg = plot(Scale::Linear, vec![(0.0, 1.0)]);
    assert!(svg.contains(">a &lt; b<"));
    assert!(svg.contains("&lt;reads&gt; &amp; &quot;writes&quot;"));
    assert!(svg.contains(">reads\u{fffd}<"));
}

#[test]
fn equal_series_can_all_be_seen() {
    let points = vec![(0.0, 1.0), (1.0, 3.0), (2.0, 2.0)];
    for shape in [Shape::Line, Shape::Points, Shape::Steps] {
        let series = (0..6).map(|place| Series::new(format!("s{place}"), shape, points.clone()));
        let plot = Plot {
            title: "six".into(),
            x: Axis::new("x", Scale::Linear),
            y: Axis::new("y", Scale::Linear),
            series: series.collect(),
            note: String::new(),
            labels: Vec::new(),
        };
        let svg = plot.svg();
        // Each has marks in the drawing, besides that in the legend, and a line of its own kind.
        for look in &LOOKS {
            let marks = svg
                .lines()
                .filter(|line| line.contains("class=\"mark\"") && line.contains(look.colour));
            assert!(marks.count() > 1, "{shape:?}: {svg}");
        }
        let lines = svg
            .lines()
            .filter(|line| line.contains("stroke-dasharray"))
            .count();
        assert_eq!(
            lines,
            if shape == Shape::Points { 0 } else { 10 },
            "{shape:?}: {svg}"
        );
    }
    let looks = || LOOKS.iter().map(|look| (look.dashes, look.width));
    assert!(looks().all(|look| looks().filter(|&other| other == look).count() == 1));
    assert!(
        LOOKS.windows(2).all(|pair| pair[0].width > pair[1].width),
        "the later ones lie on top"
    );
}

#[test]
fn points_are_not_joined_and_a_gap_breaks_a_line() {
    let svg = |shape, points: Vec<(f64, f64)>| {
        let plot = Plot {
            title: String::new(),
            x: Axis::new("x", Scale::Linear),
            y: Axis::new("y", Scale::Linear),
            series: vec![Series::new("s", shape, points)],
            note: String::new(),
            labels: Vec::new(),
        };
        plot.svg()
    };
    let is_line = |line: &&str| line.contains("stroke-width=\"1.5\"");
    let points = svg(Shape::Points, vec![(0.0, 1.0), (1.0, 3.0)]);
    assert_eq!(
        (
            points.lines().filter(is_line).count(),
            points.matches("class=\"mark\"").count()
        ),
        (0, 2)
    );
    let broken = svg(
        Shape::Steps,
        vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 1.0), (3.0, 0.5)],
    );
    let line = broken.lines().find(is_line).expect("a line");
    // The step lasts until the gap begins.
    assert!(
        line.contains("d=\"M80 60L283.3 60M486.7 60L690 60L690 200\""),
        "{line}"
    );
}

#[test]
fn a_legend_has_as_many_lines_as_it_needs() {
    let series = (0..6).map(|place| {
        Series::new(
            format!("a rather long name {place}"),
            Shape::Line,
            vec![(0.0, 1.0)],
        )
    });
    let plot = Plot {
        title: "names".into(),
        x: Axis::new("x", Scale::Linear),
        y: Axis::new("y", Scale::Linear),
        series: series.collect(),
        note: "a note".into(),
        labels: Vec::new(),
    };
    let svg = plot.svg();
    assert_eq!(svg.matches(">a rather long name").count(), 6, "{svg}");
    assert!(
        svg.contains("height=\"454\"") && svg.contains("y=\"98.0\""),
        "{svg}"
    );
}

#[test]
fn ticks_are_round_numbers() {
    let says = |range: Range| {
        range
            .ticks()
            .into_iter()
            .map(|(_, says)| says)
            .collect::<Vec<String>>()
    };
    let linear = |max| says(Range::of(Scale::Linear, [max].into_iter(), (0.0, 1.0)));
    assert_eq!(
        linear(0.3),
        ["0.00", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30"]
    );
    assert_eq!(linear(11.0), ["0", "2", "4", "6", "8", "10", "12"]);
    let log = Range::of(Scale::Log, [0.2, 300.0].into_iter(), (0.0, 1.0));
    assert_eq!(says(log), ["0.1", "1", "10", "100", "1000"]);
}

#[test]
fn what_cannot_be_drawn_is_left_out() {
    let odd = [
        f64::NAN,
        f64::INFINITY,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        -1.0,
        0.0,
    ];
    for scale in [Scale::Linear, Scale::Log] {
        for (at, height) in odd.iter().flat_map(|&at| odd.map(|height| (at, height))) {
            let svg = plot(scale, vec![(at, height), (1.0, 2.0)]);
            assert!(
                !svg.contains("NaN") && !svg.contains("inf"),
                "{at} {height}: {svg}"
            );
            assert!(svg.len() < 10_000, "{at} {height}");
        }
    }
    assert!(plot(Scale::Log, Vec::new()).contains("nothing to show"));
}

#[test]
fn an_axis_of_names_has_them_at_equal_distances_and_on_two_lines_if_they_are_long() {
    let plot = |names: Vec<String>| Plot {
        title: "t".into(),
        x: Axis::of_names("level", names.clone()),
        y: Axis::new("ms", Scale::Linear),
        series: vec![Series::new(
            "a",
            Shape::Points,
            (1..=names.len()).map(|place| (place as f64, 1.0)).collect(),
        )],
        note: String::new(),
        labels: Vec::new(),
    };
    let short = plot(vec!["one".into(), "all".into()]).svg();
    // Half a place from each end of 80 to 690.
    for tick in ["x=\"232.5\" y=\"360.0\"", "x=\"537.5\" y=\"360.0\""] {
        assert!(short.contains(tick), "{short}");
    }
    assert!(
        short.contains(">one<") && short.contains(">all<") && !short.contains("y=\"373.0\""),
        "{short}"
    );
    let long = plot(vec!["a name of thirty characters <&>".into(); 4]).svg();
    assert!(
        long.contains("y=\"373.0\"") && long.contains("&lt;&amp;&gt;"),
        "{long}"
    );
}
