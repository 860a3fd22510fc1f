//! The paper's kinds of picture: lines with their names at the end, and stacked bars in pairs.

use maud::{Markup, html};

use crate::document::{Figure, WIDTH};
use crate::report::chart::{Axis, SIDES, at, frame, legend, polyline};
use crate::report::cost::{STYLES, mark};
use crate::report::number::short;
use crate::report::scale::{Scale, Tick};

/// Top and bottom of what is drawn.
const HEIGHTS: [f64; 2] = [246.0, 24.0];
/// Least distance of two names at the ends of lines.
const APART: f64 = 11.0;
/// Ratio of the largest and the smallest value from which the axis is one of ratios.
const SPREAD: f64 = 30.0;

/// A line: its name, and the place on the axis and the value of each point.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(usize, f64)>,
}

/// What is below and beside a picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Titles<'a> {
    pub(super) x: &'a str,
    pub(super) y: &'a str,
}

/// Returns a picture of lines, each with its name at its end.
pub(super) fn lines(
    id: &str,
    title: &str,
    summary: String,
    curves: &[Curve],
    places: &[String],
    titles: Titles<'_>,
) -> Figure {
    let longest = curves.iter().map(|curve| curve.name.len()).max().unwrap_or(0) as f64;
    let right = WIDTH - 14.0 - 6.2 * longest;
    let [left, _] = SIDES;
    let step = (right - left - 16.0) / (places.len().max(2) - 1) as f64;
    let x_of = |place: usize| left + 8.0 + step * place as f64;
    let values = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
    let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let scale = if least > 0.0 && most > SPREAD * least {
        Scale::log([least * 0.9, most * 1.1], HEIGHTS)
    } else {
        Scale::linear([0.0, most.max(f64::MIN_POSITIVE) * 1.06], HEIGHTS)
    };
    let tick = |(place, name): (usize, &String)| Tick { at: x_of(place), label: name.clone() };
    let x = Axis {
        scale: Scale::linear([0.0, 1.0], [left, right]),
        ticks: places.iter().enumerate().map(tick).collect(),
        title: titles.x,
    };
    let y = Axis::new(scale, 5, titles.y);
    let heights = label_heights(curves, scale);
    let drawing = html! {
        (frame(&x, &y))
        @for (style, (curve, height)) in curves.iter().zip(heights).enumerate() {
            @let place = |&(place, value): &(usize, f64)| [x_of(place), scale.at(value)];
            g class={ "s" (style % STYLES) } {
                path.line d=(polyline(curve.points.iter().map(place))) {}
                @for point in &curve.points {
                    @let [x, y] = place(point);
                    path.mark d=(mark(style % STYLES, x, y)) {
                        title { (curve.name) ", " (places[point.0]) ": " (short(point.1)) }
                    }
                }
                @if let Some(last) = curve.points.last() {
                    // In the middle of the picture it stands above the other lines.
                    @let height = if last.0 + 1 < places.len() { height - 9.0 } else { height };
                    text x=(at(x_of(last.0) + 7.0)) y=(at(height + 3.5)) { (curve.name) }
                }
            }
        }
    };
    Figure { height: 292.0, ..Figure::new(id, title, summary, drawing) }
}

/// Returns where the names of the lines stand: at their ends, but not on each other nor on the axis.
fn label_heights(curves: &[Curve], scale: Scale) -> Vec<f64> {
    let mut heights = vec![0.0; curves.len()];
    let mut ends: Vec<(usize, usize, f64)> = Vec::new();
    for (index, curve) in curves.iter().enumerate() {
        ends.extend(curve.points.last().map(|&(place, value)| (place, index, scale.at(value))));
    }
    ends.sort_by(|one, other| one.0.cmp(&other.0).then(one.2.total_cmp(&other.2)));
    for column in ends.chunk_by_mut(|one, other| one.0 == other.0) {
        let mut last = f64::MIN;
        for (_, _, height) in column.iter_mut() {
            *height = height.max(last + APART);
            last = *height;
        }
        // What was pushed onto the axis comes back up.
        let mut next = HEIGHTS[0] - 3.0;
        for (_, index, height) in column.iter_mut().rev() {
            *height = height.min(next);
            next = *height - APART;
            heights[*index] = *height;
        }
    }
    heights
}

/// A stacked bar: user, system and the rest of the elapsed time.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) parts: [f64; 3],
}

const CLASSES: [&str; 3] = ["bar-user", "bar-system", "bar-rest"];

/// Returns a picture of bars in sets, stacked.
pub(super) fn bars(
    id: &str,
    title: &str,
    summary: String,
    sets: &[(String, Vec<Bar>)],
    titles: Titles<'_>,
) -> Figure {
    let [left, right] = SIDES;
    let width = (right - left) / sets.len().max(1) as f64;
    let most = sets.iter().flat_map(|(_, bars)| bars).map(|bar| bar.parts.iter().sum::<f64>());
    let y = Axis::new(
        Scale::linear([0.0, most.fold(f64::MIN_POSITIVE, f64::max) * 1.06], HEIGHTS),
        5,
        titles.y,
    );
    let middle = |set: usize| left + width * (set as f64 + 0.5);
    let tick = |(set, (name, _)): (usize, &(String, Vec<Bar>))| Tick {
        at: middle(set),
        label: name.clone(),
    };
    let x = Axis {
        scale: Scale::linear([0.0, 1.0], SIDES),
        ticks: sets.iter().enumerate().map(tick).collect(),
        title: titles.x,
    };
    let bar_width = (width * 0.36).min(34.0);
    let drawing = html! {
        (frame(&x, &y))
        @for (set, (_, bars)) in sets.iter().enumerate() {
            @for (index, bar) in bars.iter().enumerate() {
                @let start = middle(set) + bar_width * (index as f64 - bars.len() as f64 / 2.0);
                (stack(bar, start + 1.0, bar_width - 2.0, y.scale))
            }
        }
    };
    let entry = |class: &str| html! { rect class=(class) x="4" y="0" width="14" height="10" {} };
    let names = ["user", "system", "rest of elapsed"];
    let legend = legend(CLASSES.into_iter().map(entry).zip(names));
    Figure { height: 292.0, legend, ..Figure::new(id, title, summary, drawing) }
}

fn stack(bar: &Bar, x: f64, width: f64, scale: Scale) -> Markup {
    let mut below = 0.0;
    let parts = bar.parts.iter().zip(CLASSES).map(|(&part, class)| {
        let (bottom, top) = (scale.at(below), scale.at(below + part));
        below += part;
        (class, top, bottom - top, part)
    });
    let parts: Vec<_> = parts.collect();
    html! {
        @for (class, top, height, part) in parts {
            rect class=(class) x=(at(x)) y=(at(top)) width=(at(width)) height=(at(height)) {
                title { (bar.name) ": " (short(part)) " ms" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_the_ends_of_lines_do_not_cover_each_other() {
        let curve = |value: f64| Curve { name: String::new(), points: vec![(0, value)] };
        let scale = Scale::linear([0.0, 10.0], HEIGHTS);
        let curves: Vec<Curve> = [0.0, 0.1, 5.0, 0.2, 0.0].map(curve).to_vec();
        let mut heights = label_heights(&curves, scale);
        assert!(heights[2] < heights[0] - 50.0);
        heights.sort_by(f64::total_cmp);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= APART - 1e-9), "{heights:?}");
        assert!(heights.iter().all(|&height| height <= HEIGHTS[0] - 3.0));
    }
}
