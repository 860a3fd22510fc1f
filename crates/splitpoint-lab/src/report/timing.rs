//! How long the functions take on these keys.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::chart::{Axis, at, frame, legend};
use super::number::{fixed, grouped, significant};
use super::scale::{Scale, Tick};
use crate::document::{Block, Cell, Figure, Table};
use crate::study::{Spread, Timing};

/// Functions that one picture holds.
const DRAWN_MAX: usize = 40;
/// Height of the line of a function.
const LINE: f64 = 16.0;

/// Returns the picture of the lengths that most keys have, and the table of all.
pub(super) fn section(timings: &[Timing]) -> Vec<Block> {
    let commonest = timings.iter().max_by_key(|timing| timing.key_count);
    let lengths = commonest.map_or((0, 0), |timing| (timing.bytes_min, timing.bytes_max));
    let mut drawn: Vec<&Timing> =
        timings.iter().filter(|one| (one.bytes_min, one.bytes_max) == lengths).collect();
    drawn.sort_by(|one, other| one.latency_ns.median.total_cmp(&other.latency_ns.median));
    let left_out = drawn.len().saturating_sub(DRAWN_MAX);
    drawn.truncate(DRAWN_MAX);
    let words = "The mark is the median of several runs, the line has the middle half of them; the \
                 first run, which warms the caches, is listed apart. Latency counts where the \
                 next hash waits for this one, as lookups that follow each other do; throughput \
                 where many are computed at once.";
    vec![
        Block::Prose(words.into()),
        Block::Figures(vec![figure(&drawn, left_out)]),
        Block::Table(table(timings)),
    ]
}

fn figure(drawn: &[&Timing], left_out: usize) -> Figure {
    let height = 60.0 + LINE * drawn.len() as f64;
    let range = drawn.first().map_or_else(String::new, |timing| lengths(timing));
    let summary = match (drawn.first(), drawn.last()) {
        (Some(first), Some(last)) => format!(
            "Shortest latency: {}, {} ns; longest of those drawn: {}, {} ns.{}",
            first.hash,
            significant(first.latency_ns.median),
            last.hash,
            significant(last.latency_ns.median),
            if left_out > 0 {
                format!(" {left_out} slower ones are in the table.")
            } else {
                String::new()
            },
        ),
        _ => String::new(),
    };
    let latency = html! { path.range d="M1 5H21" {} circle.measured cx="11" cy="5" r="4" {} };
    let throughput = html! { path.range d="M1 5H21" {} path.hollow d="M11 1L15 5L11 9L7 5Z" {} };
    let legend = legend([(latency, "latency"), (throughput, "throughput")]);
    let title = format!("Time per key of {range}");
    Figure { height, legend, ..Figure::new("timings", title, summary, drawing(drawn, height)) }
}

fn lengths(timing: &Timing) -> String {
    if timing.bytes_min == timing.bytes_max {
        format!("{} bytes", grouped(timing.bytes_min))
    } else {
        format!("{} to {} bytes", grouped(timing.bytes_min), grouped(timing.bytes_max))
    }
}

fn drawing(drawn: &[&Timing], height: f64) -> Markup {
    let longest = drawn.iter().map(|timing| timing.hash.chars().count()).max().unwrap_or(0);
    let ends = [(6.6 * longest as f64 + 14.0).clamp(60.0, 220.0), 408.0];
    let spreads = || drawn.iter().flat_map(|timing| [&timing.latency_ns, &timing.throughput_ns]);
    let halves = || spreads().map(middle_half);
    let least = halves().map(|[first, _]| first).filter(|&ns| ns > 0.0).fold(1e9, f64::min);
    let most = halves().map(|[_, last]| last).fold(least, f64::max);
    let x = Scale::log([least * 0.9, most * 1.1], ends);
    let bottom = height - 36.0;
    let y = Axis { scale: Scale::linear([0.0, 1.0], [bottom, 14.0]), ticks: Vec::new(), title: "" };
    let ticks: Vec<Tick> = x.ticks(5);
    let lines: Vec<Tick> = ticks.clone();
    let x_axis = Axis { scale: x, ticks, title: "ns per key (log scale)" };
    html! {
        g.axis { @for tick in &lines {
            line x1=(at(tick.at)) x2=(at(tick.at)) y1="14" y2=(at(bottom)) {}
        } }
        (frame(&x_axis, &y))
        @for (index, timing) in drawn.iter().enumerate() {
            @let middle = 14.0 + LINE * (index as f64 + 0.5);
            g.axis { text.e x=(at(ends[0] - 6.0)) y=(at(middle + 3.5)) { (timing.hash) } }
            (spread(&timing.throughput_ns, x, middle, false))
            (spread(&timing.latency_ns, x, middle, true))
        }
    }
}

/// Returns the ends of the middle half of the runs, or of all if there are few. A run during which
/// another program had the processor can take a hundred times as long; the axis must not follow it.
fn middle_half(spread: &Spread) -> [f64; 2] {
    let mut runs = spread.runs.clone();
    runs.sort_by(f64::total_cmp);
    let quarter = runs.len() / 4;
    match runs.get(quarter..runs.len() - quarter) {
        Some([first, .., last]) => [*first, *last],
        _ => [spread.min, spread.max],
    }
}

fn spread(spread: &Spread, x: Scale, y: f64, is_latency: bool) -> Markup {
    let [first, last] = middle_half(spread).map(|ns| x.at(ns));
    let median = x.at(spread.median);
    html! {
        path.range d={ "M" (at(first)) " " (at(y)) "H" (at(last)) } {}
        @if is_latency { circle.measured cx=(at(median)) cy=(at(y)) r="4" {} }
        @else {
            path.hollow d={ "M" (at(median)) " " (at(y - 4.0)) "l4 4l-4 4l-4 -4Z" } {}
        }
    }
}

fn table(timings: &[Timing]) -> Table {
    let ranges: BTreeSet<(u64, u64)> =
        timings.iter().map(|timing| (timing.bytes_min, timing.bytes_max)).collect();
    let mut table =
        Table::new("Nanoseconds per key: median, and fastest to slowest run").sortable();
    table = table.words(["function"]);
    if ranges.len() > 1 {
        table = table.numbers(["bytes"]);
    }
    table =
        table.numbers(["latency", "runs of it", "first run", "throughput", "runs of that", "runs"]);
    for timing in timings {
        let (latency, throughput) = (&timing.latency_ns, &timing.throughput_ns);
        let ns = |ns: f64| Cell::ordered(ns, fixed(ns, 2));
        let range = |spread: &Spread| {
            let range = format!("{} - {}", fixed(spread.min, 2), fixed(spread.max, 2));
            Cell::ordered(spread.min, range)
        };
        let mut cells = vec![Cell::from(timing.hash.as_str())];
        if ranges.len() > 1 {
            cells.push(Cell::ordered(timing.bytes_min as f64, lengths(timing)));
        }
        cells.extend([
            ns(latency.median),
            range(latency),
            ns(latency.first),
            ns(throughput.median),
            range(throughput),
            latency.run_count.into(),
        ]);
        table.push(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_interrupted_does_not_stretch_the_line() {
        let runs: Vec<f64> = (1..15).map(f64::from).chain([1e3]).collect();
        let spread = Spread { runs, min: 1.0, max: 1e3, ..Spread::default() };
        let ends = |spread: &Spread| middle_half(spread).map(|ns| fixed(ns, 0));
        assert_eq!(ends(&spread), ["4", "12"]);
        let spread = Spread { runs: Vec::new(), ..spread };
        assert_eq!(ends(&spread), ["1", "1,000"], "a study of an earlier version");
    }
}
