//! What all pictures have in common: a figure with its words and its data, a frame with its axes.

use maud::{Markup, html};

use super::scale::{Scale, Tick};

/// Width of every picture in its own units, in which letters are 11 high. Small, so that they can
/// be read on a telephone, where a picture is not much wider than that.
pub(super) const WIDTH: f64 = 420.0;
/// Places of the left and right ends of what is drawn in a frame.
pub(super) const SIDES: [f64; 2] = [46.0, WIDTH - 10.0];

/// A picture, what it shows in words, and its numbers.
#[derive(Debug)]
pub(super) struct Figure {
    /// Unique on the page.
    pub(super) id: String,
    /// What is drawn.
    pub(super) title: String,
    /// What is to be seen, for those who see it and those who do not.
    pub(super) summary: String,
    /// Height in units of [`WIDTH`].
    pub(super) height: f64,
    /// The picture.
    pub(super) drawing: Markup,
    /// What the marks mean.
    pub(super) legend: Markup,
    /// The numbers, if no table near by has them.
    pub(super) data: Option<Markup>,
}

impl Figure {
    /// Returns the figure.
    pub(super) fn render(&self) -> Markup {
        let Self { id, title, summary, height, drawing, legend, data } = self;
        let (title_id, text_id) = (format!("{id}-title"), format!("{id}-text"));
        let view = format!("0 0 {WIDTH} {height}");
        html! {
            figure id=(id) {
                figcaption { (title) }
                (legend)
                svg viewBox=(view) role="img" aria-labelledby=(title_id) aria-describedby=(text_id) {
                    title id=(title_id) { (title) }
                    desc id=(text_id) { (summary) }
                    (drawing)
                }
                p.seen aria-hidden="true" { (summary) }
                @if let Some(data) = data {
                    details.data { summary { "Numbers of this picture" } (data) }
                }
            }
        }
    }
}

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
        path.push_str(&at(x));
        path.push(' ');
        path.push_str(&at(y));
    }
    path
}

/// Returns names with the marks they have in a picture.
pub(super) fn legend<'a>(entries: impl IntoIterator<Item = (Markup, &'a str)>) -> Markup {
    html! {
        ul.legend {
            @for (mark, name) in entries {
                li { svg.mark viewBox="0 0 22 10" aria-hidden="true" { (mark) } (name) }
            }
        }
    }
}
