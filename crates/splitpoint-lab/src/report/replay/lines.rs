//! Pictures of lines with marks: what a replay shows over sizes, over time and by era.

use maud::{Markup, html};

use crate::document::Figure;
use crate::report::chart::{Axis, SIDES, at, frame, polyline};
use crate::report::cost::{STYLES, mark};
use crate::report::scale::{Scale, Tick};

/// Points under a name, in order.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<[f64; 2]>,
    /// Drawn faint, as the ideal is.
    pub(super) is_ideal: bool,
}

/// What the axes count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes<'a> {
    pub(super) x_title: &'a str,
    pub(super) y_title: &'a str,
    /// Values of the x axis are whole, such as binary logarithms.
    pub(super) is_whole: bool,
}

/// Returns a picture of some lines.
pub(super) fn figure(
    id: String,
    title: &str,
    summary: String,
    series: &[Series],
    axes: Axes<'_>,
) -> Figure {
    let drawing = drawing(series, axes);
    Figure { height: 292.0, legend: legend(series), ..Figure::new(id, title, summary, drawing) }
}

fn drawing(series: &[Series], axes: Axes<'_>) -> Markup {
    let points = || series.iter().flat_map(|it| &it.points);
    let ends = |axis: usize| {
        let values = || points().map(|point| point[axis]);
        [values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max)]
    };
    let ([from, to], [least, most]) = (ends(0), ends(1));
    let [left, right] = SIDES;
    let x_scale = Scale::linear([from, to], [left + 12.0, right - 12.0]);
    // Over sizes, equal distances to the ideal are equal ratios.
    let spread = if axes.is_whole { 3.0 } else { 20.0 };
    let y_scale = if most > spread * least.max(1e-9) {
        Scale::log([(least * 0.9).max(most * 1e-5).max(1e-6), most * 1.1], [246.0, 24.0])
    } else {
        Scale::linear([0.0, most * 1.06], [246.0, 24.0])
    };
    let mut x = Axis::new(x_scale, 6, axes.x_title);
    if axes.is_whole {
        let whole = (from as i64..=to as i64)
            .map(|value| Tick { at: x_scale.at(value as f64), label: value.to_string() });
        x.ticks = whole.collect();
    }
    // The line below the axis runs from side to side, beyond the first and the last value.
    let base =
        Axis { scale: Scale::linear([0.0, 1.0], SIDES), ticks: x.ticks, title: axes.x_title };
    let y = Axis::new(y_scale, 5, axes.y_title);
    let place = |point: &[f64; 2]| [x_scale.at(point[0]), y_scale.at(point[1])];
    html! {
        (frame(&base, &y))
        @for one in series.iter().filter(|one| one.is_ideal) {
            path.line-ideal d=(polyline(one.points.iter().map(place))) {}
        }
        @for (style, one) in series.iter().filter(|one| !one.is_ideal).enumerate() {
            g class={ "s" (style % STYLES) } {
                path.line d=(polyline(one.points.iter().map(place))) {}
                @for point in &one.points {
                    @let [x, y] = place(point);
                    path.mark d=(mark(style % STYLES, x, y)) {
                        title { (one.name) ": " (at(point[0])) ", " (format!("{:.3}", point[1])) }
                    }
                }
            }
        }
    }
}

fn legend(series: &[Series]) -> Vec<(Markup, String)> {
    let measured = series.iter().filter(|one| !one.is_ideal).enumerate().map(|(style, one)| {
        let mark = html! {
            g class={ "s" (style % STYLES) } {
                path.line d="M0 5H22" {}
                path.mark d=(mark(style % STYLES, 11.0, 5.0)) {}
            }
        };
        (mark, one.name.clone())
    });
    let mut legend: Vec<_> = measured.collect();
    if series.iter().any(|one| one.is_ideal) {
        legend.push((html! { path.line-ideal d="M0 5H22" {} }, "ideal".to_owned()));
    }
    legend
}

/// A mark in a group: which line of the legend it belongs to, its value, and its ideal if it has one.
#[derive(Clone, Debug)]
pub(super) struct Dot {
    pub(super) style: usize,
    pub(super) value: f64,
    pub(super) ideal: Option<f64>,
}

/// Returns a picture of groups of marks side by side, on a log scale.
pub(super) fn dots(
    id: String,
    title: &str,
    summary: String,
    names: &[String],
    groups: &[(String, Vec<Dot>)],
    y_title: &str,
) -> Figure {
    let values = || groups.iter().flat_map(|(_, dots)| dots).map(|dot| dot.value);
    let most = values().fold(2.0, f64::max);
    let y = Axis::new(Scale::log([1.0, most * 1.25], [246.0, 24.0]), 5, y_title);
    let [left, right] = SIDES;
    let width = (right - left) / groups.len().max(1) as f64;
    let place = |group: usize, style: usize| {
        let within = (style as f64 + 0.5) / names.len().max(1) as f64;
        left + width * (group as f64 + 0.1 + 0.8 * within)
    };
    let ticks = groups.iter().enumerate().map(|(index, (name, _))| Tick {
        at: left + width * (index as f64 + 0.5),
        label: name.clone(),
    });
    let x = Axis { scale: Scale::linear([0.0, 1.0], SIDES), ticks: ticks.collect(), title: "" };
    let bottom = y.scale.at(1.0);
    let drawing = html! {
        (frame(&x, &y))
        @for (index, (group, dots)) in groups.iter().enumerate() {
            @for dot in dots {
                @let (x, top) = (place(index, dot.style), y.scale.at(dot.value));
                g class={ "s" (dot.style % STYLES) } {
                    path.line d={ "M" (at(x)) " " (at(bottom)) "V" (at(top)) } {}
                    path.mark d=(mark(dot.style % STYLES, x, top)) {
                        title { (group) ", " (names[dot.style]) ": " (format!("{:.2}", dot.value)) }
                    }
                }
                @if let Some(ideal) = dot.ideal {
                    path.ideal d={ "M" (at(x - 6.0)) " " (at(y.scale.at(ideal))) "h12" } {}
                }
            }
        }
    };
    let all =
        names.iter().map(|name| Series { name: name.clone(), points: Vec::new(), is_ideal: false });
    let mut legend = legend(&all.collect::<Vec<_>>());
    legend.push((html! { path.ideal d="M3 5H19" {} }, "ideal".to_owned()));
    Figure { height: 270.0, legend, ..Figure::new(id, title, summary, drawing) }
}
