//! The league table: one row for each function and reduction, best first.

use std::collections::BTreeMap;

use super::entry::{Entry, latencies, sizes};
use super::method;
use super::number::{expected, fixed, grouped, probability, ratio};
use crate::document::{Block, Cell, Line, Table};
use crate::measure::{Grade, Report};
use crate::study::Study;

/// Sizes that have a place in the chart of letters.
const CHART_MAX: usize = 18;

/// Which columns the table has.
struct Shape<'a> {
    /// Some functions were measured in several tables.
    has_several: bool,
    has_seeds: bool,
    /// Sizes in the chart, or none.
    sizes: Vec<u64>,
    latencies: BTreeMap<&'a str, f64>,
}

/// Returns the table, and what its words mean.
pub(super) fn section(entries: &[Entry<'_>], study: &Study) -> Vec<Block> {
    let has_several = entries.iter().any(|entry| entry.reports.len() > 1);
    let has_chart = entries.iter().any(|entry| entry.by_size().len() > 1);
    let shape = Shape {
        has_several,
        has_seeds: entries.iter().any(|entry| entry.reports.len() > entry.by_size().len()),
        sizes: sizes(&study.reports).into_iter().take(CHART_MAX).filter(|_| has_chart).collect(),
        latencies: latencies(&study.timings),
    };
    let caption = if has_several {
        "Functions and reductions, best first; each by its worst size and seed"
    } else {
        "Functions and reductions, best first"
    };
    let mut table = shape.columns(Table::new(caption).sortable());
    for entry in entries {
        table.push(shape.row(entry));
    }
    let is_used = |word: &str| {
        ["cost", "p"].contains(&word)
            || word == "by size" && has_chart
            || entries.iter().any(|entry| entry.grade().word() == word)
    };
    let terms = method::terms().into_iter().filter(|(word, _)| is_used(word)).collect();
    vec![Block::Table(table), Block::Facts(terms)]
}

impl Shape<'_> {
    fn columns(&self, table: Table) -> Table {
        let mut table = table.words(["function", "verdict"]).numbers(["cost"]);
        table = table.words(["reduction"]);
        if self.has_several {
            table = table.numbers(["median cost"]).wide().words(["of its tables"]).wide();
        }
        table = table.numbers(["buckets", "buckets used"]).wide().numbers(["fullest"]);
        if self.has_several {
            table = table.wide();
        }
        table = table.numbers(["ideal"]);
        if self.has_several {
            table = table.wide();
        }
        table = table.numbers(["p"]).wide();
        if self.has_seeds {
            table = table.numbers(["seed"]);
        }
        if !self.sizes.is_empty() {
            table = table.words(["by size"]);
        }
        if self.latencies.is_empty() { table } else { table.numbers(["ns"]) }
    }

    fn row(&self, entry: &Entry<'_>) -> Vec<Cell> {
        let (worst, grade) = (entry.worst(), entry.grade());
        let mut cells = vec![
            Cell::from(entry.hash),
            Cell::ordered(f64::from(grade as u8), grade),
            Cell::ordered(worst.cost_ratio, ratio(worst.cost_ratio)),
            Cell::from(short(entry.reduction)),
        ];
        if self.has_several {
            let (median, of) = (entry.median_cost(), entry.count(grade));
            cells.push(Cell::ordered(median, fixed(median, 3)));
            cells.push(Cell::ordered(of as f64, format!("{of} of {}", entry.reports.len())));
        }
        let p = worst.spread_p.min(worst.longest_p);
        let in_words = if self.sizes.is_empty() { grouped } else { size_in_words };
        let buckets = in_words(worst.bucket_count);
        cells.extend([
            Cell::ordered(worst.bucket_count as f64, buckets),
            Cell::ordered(worst.utilization, format!("{} %", fixed(100.0 * worst.utilization, 1))),
            Cell::from(worst.longest),
            Cell::ordered(worst.longest_ideal, expected(worst.longest_ideal)),
            Cell::ordered(p, probability(p)),
        ]);
        if self.has_seeds {
            cells.push(worst.seed.to_string().into());
        }
        if !self.sizes.is_empty() {
            // The chart has a place for every size; a reduction that cannot address it leaves it
            // empty.
            let by_size = entry.by_size();
            let of_size = |size: &u64| by_size.get(size).map_or('\u{a0}', |report| mark(report));
            cells.push(Line::code(self.sizes.iter().map(of_size).collect::<String>()).into());
        }
        if !self.latencies.is_empty() {
            cells.push(match self.latencies.get(entry.hash) {
                Some(&latency) => Cell::ordered(latency, fixed(latency, 1)),
                None => Cell::ordered(f64::MAX, "-"),
            });
        }
        cells
    }
}

/// Returns a reduction without its constants, which `lab list` has: they would widen the column.
fn short(reduction: &str) -> &str {
    match reduction.split_once(':') {
        Some((name, _)) if name != "shift" => name,
        _ => reduction,
    }
}

/// Returns a number of buckets, as a power where it is one.
pub(super) fn size_in_words(size: u64) -> String {
    if size.is_power_of_two() { format!("2^{}", size.ilog2()) } else { grouped(size) }
}

fn mark(report: &Report) -> char {
    match report.verdict.grade() {
        Grade::Fits => '.',
        Grade::Structured => '~',
        _ if report.cost_ratio >= 2.0 => 'X',
        _ if report.cost_ratio >= 1.1 => 'x',
        _ => '+',
    }
}
