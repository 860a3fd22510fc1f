//! The league table: one row for each function and reduction, best first.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::entry::{Entry, Kind};
use super::number::{expected, fixed, grouped, probability};
use super::table::{Cell, Table};
use crate::study::{Study, Timing};

/// Returns the table.
pub(super) fn table(entries: &[Entry<'_>], study: &Study) -> Markup {
    let has_several = entries.iter().any(|entry| entry.reports.len() > 1);
    let latencies = latencies(&study.timings);
    let caption = if has_several {
        "Functions and reductions, best first; each by its worst size and seed"
    } else {
        "Functions and reductions, best first"
    };
    let mut table = Table::new(caption).sortable().words("function").words("reduction");
    table = table.words("verdict").numbers("cost");
    if has_several {
        table = table.numbers("median cost").numbers("tables measured");
    }
    table = table
        .numbers("buckets")
        .numbers("buckets used")
        .numbers("fullest")
        .numbers("fullest, ideal")
        .numbers("p");
    if !latencies.is_empty() {
        table = table.numbers("ns per key");
    }
    for entry in entries {
        let mut cells = row(entry, has_several);
        if !latencies.is_empty() {
            cells.push(match latencies.get(entry.hash) {
                Some(&latency) => Cell::ordered(latency, fixed(latency, 1)),
                None => Cell::ordered(f64::MAX, "not timed"),
            });
        }
        table.push(cells);
    }
    table.render()
}

fn row(entry: &Entry<'_>, has_several: bool) -> Vec<Cell> {
    let worst = entry.worst();
    let mut cells = vec![
        Cell::from(entry.hash),
        Cell::from(entry.reduction),
        Cell::ordered(rank(entry.kind()), verdict(entry)),
        Cell::ordered(worst.cost_ratio, fixed(worst.cost_ratio, 3)),
    ];
    if has_several {
        let (median, count) = (entry.median_cost(), entry.reports.len() as u64);
        cells.push(Cell::ordered(median, fixed(median, 3)));
        cells.push(Cell::ordered(count as f64, grouped(count)));
    }
    let p = worst.spread_p.min(worst.longest_p);
    let used = format!("{} %", fixed(100.0 * worst.utilization, 1));
    cells.extend([
        Cell::ordered(worst.bucket_count as f64, grouped(worst.bucket_count)),
        Cell::ordered(worst.utilization, used),
        Cell::ordered(worst.longest as f64, grouped(worst.longest)),
        Cell::ordered(worst.longest_ideal, expected(worst.longest_ideal)),
        Cell::ordered(p, probability(p)),
    ]);
    cells
}

fn rank(kind: Kind) -> f64 {
    f64::from(u8::from(kind == Kind::Structured) + 2 * u8::from(kind == Kind::Worse))
}

/// Returns the verdict as a badge, with how many tables it is of if not all.
pub(super) fn verdict(entry: &Entry<'_>) -> Markup {
    let (kind, total) = (entry.kind(), entry.reports.len());
    let count = entry.count(kind);
    html! {
        (badge(kind))
        @if entry.worst().verdict.is_slight() { " " span.of { "slightly" } }
        @if count < total { " " span.of { "at " (count) " of " (total) } }
    }
}

/// Returns the word for a verdict, with a border that says the same.
pub(super) fn badge(kind: Kind) -> Markup {
    html! { span class={ "badge " (kind.word()) } { (kind.word()) } }
}

/// Returns the latency of each function: that of the keys whose lengths most keys have.
fn latencies(timings: &[Timing]) -> BTreeMap<&str, f64> {
    let mut found: BTreeMap<&str, &Timing> = BTreeMap::new();
    for timing in timings {
        let best = found.entry(&timing.hash).or_insert(timing);
        if timing.key_count > best.key_count {
            *best = timing;
        }
    }
    found.into_iter().map(|(hash, timing)| (hash, timing.latency_ns.median)).collect()
}
