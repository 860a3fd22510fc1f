//! What all pictures have in common: a frame with its axes, columns, and what their marks mean.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::scale::{Scale, Tick};
use crate::document::WIDTH;

/// Places of the left and right ends of what is drawn in a frame.
pub(super) const SIDES: [f64; 2] = [46.0, WIDTH - 10.0];

/// One axis of a frame.
#[derive(Debug)]
pub(super) struct Axis<'a> {
    pub(super) scale: Scale,
    pub(super) ticks: Vec<Tick>,
    /// What it counts, with its unit.
    pub(super) title: &'a str,
}

impl<'a> Axis<'a> {
    /// Makes an axis with about `count` ticks.
    pub(super) fn new(scale: Scale, count: usize, title: &'a str) -> Self {
        Self { scale, ticks: scale.ticks(count), title }
    }
}

/// Returns lines across at the ticks of `y`, and the ticks of both.
///
/// The title of `y` stands level above it: turned letters are hard to read.
pub(super) fn frame(x: &Axis<'_>, y: &Axis<'_>) -> Markup {
    let ([left, right], [bottom, top]) = (x.scale.ends(), y.scale.ends());
    html! {
        g.axis {
            text x="2" y=(at(top - 9.0)) { (y.title) }
            @for tick in &y.ticks {
                line x1=(at(left)) x2=(at(right)) y1=(at(tick.at)) y2=(at(tick.at)) {}
                text.e x=(at(left - 5.0)) y=(at(tick.at + 3.5)) { (tick.label) }
            }
            line.base x1=(at(left)) x2=(at(right)) y1=(at(bottom)) y2=(at(bottom)) {}
            @for tick in &x.ticks {
                text.m x=(at(tick.at)) y=(at(bottom + 14.0)) { (tick.label) }
            }
            text.m x=(at(f64::midpoint(left, right))) y=(at(bottom + 29.0)) { (x.title) }
        }
    }
}

/// A column, what it is of and what to say of it.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) title: String,
}

/// Draws columns side by side up to a height of `most`, with some of their names, and a line across
/// at `mean`.
pub(super) fn columns(
    columns: &[Column],
    most: f64,
    mean: Option<f64>,
    [x_title, y_title]: [&str; 2],
) -> Markup {
    let [left, right] = SIDES;
    let step = (right - left) / columns.len().max(1) as f64;
    let middle = |index: usize| left + step * (index as f64 + 0.5);
    let longest = columns.iter().map(|column| column.name.len()).max().unwrap_or(1) as f64;
    let apart = ((longest * 6.6 + 6.0) / step).ceil().max(1.0) as usize;
    let named = columns.iter().enumerate().step_by(apart);
    let x = Axis {
        scale: Scale::linear([0.0, 1.0], SIDES),
        ticks: named.map(|(i, it)| Tick { at: middle(i), label: it.name.clone() }).collect(),
        title: x_title,
    };
    let y = Axis::new(Scale::linear([0.0, most], [174.0, 24.0]), 4, y_title);
    let width = (step * 0.72).clamp(1.0, 36.0);
    html! {
        (frame(&x, &y))
        @for (index, Column { value, title, .. }) in columns.iter().enumerate() {
            @let top = y.scale.at(*value);
            rect.measured x=(at(middle(index) - width / 2.0)) y=(at(top)) width=(at(width))
                height=(at(174.0 - top)) { title { (title) } }
        }
        @if let Some(mean) = mean {
            path.ideal d={ "M" (at(left)) " " (at(y.scale.at(mean))) "H" (at(right)) } {}
        }
    }
}

/// Returns a coordinate in tenths, which no eye tells from exact ones.
pub(super) fn at(value: f64) -> String {
    let tenths = format!("{value:.1}");
    let short = tenths.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_string() } else { short.to_string() }
}

/// Returns the data of a path through points.
pub(super) fn polyline(points: impl IntoIterator<Item = [f64; 2]>) -> String {
    let mut path = String::new();
    for [x, y] in points {
        path.push(if path.is_empty() { 'M' } else { 'L' });
        path.extend([&at(x), " ", &at(y)]);
    }
    path
}

/// Returns names with the marks they have in a picture.
pub(super) fn legend<'a>(
    entries: impl IntoIterator<Item = (Markup, &'a str)>,
) -> Vec<(Markup, String)> {
    entries.into_iter().map(|(mark, name)| (mark, name.to_string())).collect()
}

/// Returns names with their shades.
pub(super) fn shades(entries: [(&str, u8, &str); 5]) -> Vec<(Markup, String)> {
    legend(entries.map(|(side, level, name)| {
        let class = format!("{side} d{level}");
        (html! { rect class=(class) x="4" y="0" width="14" height="10" {} }, name)
    }))
}

/// Returns cells in rows of so many columns as one path for each shade: strokes one unit high.
pub(super) fn shaded(cells: &[i8], columns: usize) -> Markup {
    let runs = |shade: i8| -> String {
        let mut path = String::new();
        for (row, cells) in cells.chunks(columns.max(1)).enumerate() {
            let mut column = 0;
            for run in cells.chunk_by(|one, other| one == other) {
                if run[0] == shade {
                    let _ = write!(path, "M{column} {row}h{}v1H{column}Z", run.len());
                }
                column += run.len();
            }
        }
        path
    };
    html! {
        @for level in 1..=4 {
            @for (side, sign) in [("low", -1), ("high", 1)] {
                @let path = runs(level * sign);
                @if !path.is_empty() { path class={ (side) " d" (level) } d=(path) {} }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_cells_are_one_stroke() {
        let drawn = shaded(&[0, 4, 4, 4, 0, 4, 0, 0, 0, 4], 5).into_string();
        assert_eq!(
            drawn,
            "<path class=\"high d4\" d=\"M1 0h3v1H1ZM0 1h1v1H0ZM4 1h1v1H4Z\"></path>"
        );
    }
}
