//! In how full a bucket the keys are: measured and ideal, as shares of the keys.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::chart::{Axis, SIDES, at, frame, legend};
use super::number::{counted, fixed, grouped, percent, significant};
use super::scale::Scale;
use super::sizes::is_seen;
use crate::document::{Figure, Table, cells};
use crate::measure::Report;

/// Sizes beyond which the axis is one of ratios.
const LINEAR_MAX: u64 = 40;
/// Rows of the table of the picture.
const ROWS_MAX: usize = 24;

/// A step: the size, and the share of the keys in buckets of at most that size.
#[derive(Clone, Copy, Debug)]
struct Step {
    size: u64,
    measured: f64,
    ideal: f64,
}

/// Returns the picture, or `None` without keys.
pub(super) fn figure(id: &str, report: &Report) -> Option<Figure> {
    let steps = steps(report);
    let last = steps.last()?.size;
    let title = "Share of the keys by how many share their bucket";
    let summary = in_words(report, &steps);
    let legend = legend([
        (html! { path.line-measured d="M1 5H21" {} }, "measured"),
        (html! { path.line-ideal d="M1 5H21" {} }, "ideal"),
    ]);
    let figure = Figure::new(format!("{id}-curve"), title, summary, drawing(&steps, last));
    Some(Figure { height: 260.0, legend, data: Some(data(&steps)), ..figure })
}

fn steps(report: &Report) -> Vec<Step> {
    let n = report.key_count as f64;
    let mut ideal = 0.0;
    let mut steps = Vec::new();
    for row in report.rows.iter().filter(|row| row.size > 0 && is_seen(row)) {
        ideal += row.size as f64 * row.ideal_bucket_count / n;
        let measured = row.cumulative_percent / 100.0;
        steps.push(Step { size: row.size, measured, ideal: ideal.min(1.0) });
    }
    steps
}

fn in_words(report: &Report, steps: &[Step]) -> String {
    let ideal = |share: f64| {
        steps.iter().find(|step| step.ideal >= share).map_or(report.longest, |step| step.size)
    };
    let found = report.item_percentiles;
    format!(
        "Half of the keys are in buckets of at most {} (ideal {}), 90 % of at most {} (ideal \
         {}), 99 % of at most {} (ideal {}).",
        counted(found.p50, "key"),
        grouped(ideal(0.5)),
        grouped(found.p90),
        grouped(ideal(0.9)),
        grouped(found.p99),
        grouped(ideal(0.99)),
    )
}

fn drawing(steps: &[Step], last: u64) -> Markup {
    let end = last as f64 + 1.0;
    let x_scale = if last > LINEAR_MAX {
        Scale::log([1.0, end], SIDES)
    } else {
        Scale::linear([0.0, end], SIDES)
    };
    let title = "keys in the key's bucket, at most";
    let mut x = Axis::new(x_scale, 6, title);
    // There is no half key.
    x.ticks.retain(|tick| !tick.label.contains('.') || tick.label.ends_with(char::is_alphabetic));
    let mut y = Axis::new(Scale::linear([0.0, 100.0], [214.0, 24.0]), 4, "share of the keys in %");
    y.ticks = y.scale.ticks(5);
    let line = |share: fn(&Step) -> f64| {
        let [start, end] = x.scale.ends();
        let mut path = format!("M{} {}", at(start), at(y.scale.at(0.0)));
        for step in steps {
            let place = [x.scale.at(step.size as f64), y.scale.at(100.0 * share(step))];
            let _ = write!(path, "H{}V{}", at(place[0]), at(place[1]));
        }
        path + &format!("H{}", at(end))
    };
    html! {
        (frame(&x, &y))
        path.line-measured d=(line(|step| step.measured)) {}
        path.line-ideal d=(line(|step| step.ideal)) {}
    }
}

fn data(steps: &[Step]) -> Table {
    let caption = "Share of the keys in buckets of at most so many keys";
    let mut table =
        Table::new(caption).numbers(["keys, at most", "measured", "ideal", "difference"]);
    let apart = steps.len().div_ceil(ROWS_MAX).max(1);
    let is_shown = |index: usize| index.is_multiple_of(apart) || index + 1 == steps.len();
    for (_, step) in steps.iter().enumerate().filter(|(index, _)| is_shown(*index)) {
        let points = 100.0 * (step.measured - step.ideal);
        let points = if points.abs() < 1.0 { significant(points) } else { fixed(points, 1) };
        let [measured, ideal] = [step.measured, step.ideal].map(percent);
        table.push(cells![step.size, measured, ideal, format!("{points} points")]);
    }
    table
}
