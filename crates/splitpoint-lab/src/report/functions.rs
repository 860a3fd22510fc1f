//! The league table: one row for each function and reduction, best first.

use std::collections::BTreeMap;

use super::entry::{Entry, Place, latencies, places, sizes};
use super::method;
use super::number::{expected, fixed, grouped, probability, ratio};
use crate::document::{Block, Cell, Line, Table};
use crate::measure::Grade;
use crate::study::Study;

/// Sizes that have a place in the chart of letters.
const CHART_MAX: usize = 18;

/// Costs from which the chart of letters shows `x` and `X`.
pub(super) const COST_HIGH: f64 = 1.1;
pub(super) const COST_VERY_HIGH: f64 = 2.0;

/// Returns the table, and what its words mean.
pub(super) fn section<'a>(entries: &[Entry<'a>], study: &'a Study) -> Vec<Block> {
    let has_several = entries.iter().any(|entry| entry.reports.len() > 1);
    let has_chart = entries.iter().any(|entry| entry.by_size().len() > 1);
    let columns = Columns {
        has_several,
        has_seeds: entries.iter().any(|entry| entry.reports.len() > entry.by_size().len()),
        sizes: sizes(&study.reports).into_iter().take(CHART_MAX).filter(|_| has_chart).collect(),
        latencies: latencies(&study.timings),
        places: places(study, entries),
    };
    let caption = if has_several {
        "Functions and reductions, best first; each by its worst size and seed"
    } else {
        "Functions and reductions, best first"
    };
    let columns = columns.list();
    let mut table = Table::new(caption).sortable();
    for column in &columns {
        let heading = [column.heading];
        table = if column.is_number { table.numbers(heading) } else { table.words(heading) };
        table = if column.is_wide { table.wide() } else { table };
    }
    for entry in entries {
        table.push(columns.iter().map(|column| (column.cell)(entry)));
    }
    let is_used = |word: &str| {
        ["cost", "p"].contains(&word)
            || word == "by size" && has_chart
            || ["ns", "place"].contains(&word) && !study.timings.is_empty()
            || entries.iter().any(|entry| entry.grade().word() == word)
    };
    let terms = method::terms().into_iter().filter(|(word, _)| is_used(word)).collect();
    vec![Block::Table(table), Block::Facts(terms)]
}

/// A column of the table.
struct Column<'a> {
    heading: &'static str,
    is_number: bool,
    /// Text, which is narrow, omits it.
    is_wide: bool,
    cell: Box<dyn Fn(&Entry<'_>) -> Cell + 'a>,
}

impl<'a> Column<'a> {
    fn words(heading: &'static str, cell: impl Fn(&Entry<'_>) -> Cell + 'a) -> Self {
        Self { heading, is_number: false, is_wide: false, cell: Box::new(cell) }
    }

    fn numbers(heading: &'static str, cell: impl Fn(&Entry<'_>) -> Cell + 'a) -> Self {
        Self { is_number: true, ..Self::words(heading, cell) }
    }

    fn wide_if(self, is_wide: bool) -> Self {
        Self { is_wide, ..self }
    }
}

/// Which columns the table has.
struct Columns<'a> {
    /// Some functions were measured in several tables.
    has_several: bool,
    has_seeds: bool,
    /// Sizes in the chart, or none.
    sizes: Vec<u64>,
    latencies: BTreeMap<&'a str, f64>,
    places: BTreeMap<&'a str, Place>,
}

impl Columns<'_> {
    /// Returns the columns, from left to right.
    fn list(&self) -> Vec<Column<'_>> {
        let mut columns = vec![
            Column::words("function", |entry| entry.hash.into()),
            Column::words("verdict", |entry| {
                Cell::ordered(f64::from(entry.grade() as u8), entry.grade())
            }),
            Column::numbers("cost", |entry| {
                let cost = entry.worst().cost_ratio;
                Cell::ordered(cost, ratio(cost))
            }),
            Column::words("reduction", |entry| short(entry.reduction).into()),
        ];
        if !self.latencies.is_empty() {
            columns.push(Column::numbers("ns", |entry| match self.latencies.get(entry.hash) {
                Some(&latency) => Cell::ordered(latency, fixed(latency, 1)),
                None => Cell::ordered(f64::MAX, "-"),
            }));
            columns.push(Column::words("place", |entry| match self.places.get(entry.hash) {
                Some(place) if entry.grade() == Grade::Fits => {
                    let tie = if place.is_shared { "=" } else { "" };
                    Cell::ordered(place.number as f64, format!("{}{tie}", place.number))
                }
                _ => Cell::ordered(f64::MAX, "-"),
            }));
        }
        if self.has_several {
            columns.extend(over_tables());
        }
        columns.extend(self.of_worst());
        if self.has_seeds {
            columns.push(Column::numbers("seed", |entry| entry.worst().seed.to_string().into()));
        }
        if !self.sizes.is_empty() {
            columns.push(Column::words("by size", |entry| chart(&self.sizes, entry)));
        }
        columns
    }

    /// Returns the columns of the worst size and seed.
    fn of_worst(&self) -> [Column<'_>; 5] {
        let is_full = self.has_several || !self.latencies.is_empty();
        let size = if self.sizes.is_empty() { grouped } else { size_in_words };
        [
            Column::numbers("buckets", move |entry| {
                let bucket_count = entry.worst().bucket_count;
                Cell::ordered(bucket_count as f64, size(bucket_count))
            }),
            Column::numbers("buckets used", |entry| {
                let used = entry.worst().utilization;
                Cell::ordered(used, format!("{} %", fixed(100.0 * used, 1)))
            })
            .wide_if(true),
            Column::numbers("fullest", |entry| entry.worst().longest.into()).wide_if(is_full),
            Column::numbers("ideal", |entry| {
                let ideal = entry.worst().longest_ideal;
                Cell::ordered(ideal, expected(ideal))
            })
            .wide_if(is_full),
            Column::numbers("p", |entry| {
                let p = entry.worst().spread_p.min(entry.worst().longest_p);
                Cell::ordered(p, probability(p))
            })
            .wide_if(true),
        ]
    }
}

/// Returns the columns of all the tables that a function was measured in.
fn over_tables() -> [Column<'static>; 2] {
    [
        Column::numbers("median cost", |entry| {
            let median = entry.median_cost();
            Cell::ordered(median, fixed(median, 3))
        })
        .wide_if(true),
        Column::words("of its tables", |entry| {
            let of = entry.count(entry.grade());
            Cell::ordered(of as f64, format!("{of} of {}", entry.reports.len()))
        })
        .wide_if(true),
    ]
}

/// Returns a letter for each size; a size that the reduction cannot address has a blank.
fn chart(sizes: &[u64], entry: &Entry<'_>) -> Cell {
    let by_size = entry.by_size();
    let mark = |size| {
        by_size.get(size).map_or('\u{a0}', |report| mark(report.verdict.grade(), report.cost_ratio))
    };
    Line::code(sizes.iter().map(mark).collect::<String>()).into()
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

/// Returns the letter of a verdict in the chart.
fn mark(grade: Grade, cost_ratio: f64) -> char {
    match grade {
        Grade::Fits => '.',
        Grade::Structured => '~',
        _ if cost_ratio >= COST_VERY_HIGH => 'X',
        _ if cost_ratio >= COST_HIGH => 'x',
        _ => '+',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_grows_with_the_cost_of_what_is_worse() {
        for (cost_ratio, letter) in
            [(1.0, '+'), (1.0999, '+'), (1.1, 'x'), (1.9999, 'x'), (2.0, 'X'), (50.0, 'X')]
        {
            assert_eq!(mark(Grade::Worse, cost_ratio), letter, "{cost_ratio}");
            assert_eq!(mark(Grade::Fits, cost_ratio), '.');
            assert_eq!(mark(Grade::Structured, cost_ratio), '~');
        }
    }
}
