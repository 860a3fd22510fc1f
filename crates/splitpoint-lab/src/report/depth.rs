//! One measurement in depth: the histogram, the pictures, the costs, the statistics.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::entry::{Entry, Kind};
use super::league::badge;
use super::number::{counted, expected, fixed, grouped, percent, probability, significant};
use super::plain::{shown, shown_whole};
use super::sizes::{SizeRow, size_rows};
use super::table::Table;
use super::verdict::blame_and_advice;
use super::{bars, curve, strip};
use crate::measure::Report;
use crate::probing::Method;

/// Rows of the histogram that are shown one by one; those between are added up.
const ROWS_MAX: usize = 48;
/// Measurements that are shown in depth.
const REPORTS_MAX: usize = 80;

/// Returns the section: for each entry its worst measurement, the worst first.
pub(super) fn section(entries: &[Entry<'_>], report_count: usize) -> Markup {
    let mut worst_first: Vec<&Entry<'_>> = entries.iter().rev().collect();
    worst_first.sort_by_key(|entry| std::cmp::Reverse(entry.kind() == Kind::Worse));
    let shown = worst_first.len().min(REPORTS_MAX);
    let is_alone = report_count == 1;
    html! {
        @if shown < report_count {
            p {
                "Of " (grouped(report_count as u64)) " measurements these are " (shown)
                ": of each function and reduction the one by which it is judged. The saved study \
                 has the others."
            }
        }
        @for (index, entry) in worst_first.into_iter().take(REPORTS_MAX).enumerate() {
            @let report = entry.worst();
            @if is_alone {
                (body(&format!("r{index}"), report))
            } @else {
                details.depth open[index == 0] {
                    summary { h3 { (heading(report)) } }
                    (words(report))
                    (body(&format!("r{index}"), report))
                }
            }
        }
    }
}

fn heading(report: &Report) -> Markup {
    html! {
        (report.hash) ", " (report.reduction) " "
        small {
            (counted(report.bucket_count, "bucket")) ", seed " (report.seed) ", cost "
            (fixed(report.cost_ratio, 3)) " "
        }
        (badge(Kind::of(&report.verdict)))
    }
}

fn body(id: &str, report: &Report) -> Markup {
    html! {
        div.charts {
            (bars::figure(id, report).render())
            @if let Some(curve) = curve::figure(id, report) { (curve.render()) }
            @if let Some(strip) = strip::figure(id, report) { (strip.render()) }
        }
        (histogram(report))
        div.pair {
            (costs(report).render())
            (percentiles(report).render())
        }
        (statistics(report).render())
        (equal_hashes(report))
        (bits(report))
        @if !report.alternatives.is_empty() { (alternatives(report).render()) }
        @if !report.probing.is_empty() { (probing(report).render()) }
        @if !report.pages.is_empty() { (pages(report).render()) }
    }
}

/// What the study itself says.
fn words(report: &Report) -> Markup {
    let words = &report.words;
    html! {
        @if !words.verdict.is_empty() { p { (shown_whole(&words.verdict)) } }
        (blame_and_advice(words))
    }
}

/// The same hashes in other tables of about the size.
fn alternatives(report: &Report) -> Table {
    let mut table = Table::new("The same hashes by other reductions").words("reduction");
    table = table.numbers("buckets").numbers("cost").words("verdict");
    for other in &report.alternatives {
        table.push([
            other.reduction.as_str().into(),
            grouped(other.bucket_count).into(),
            fixed(other.cost_ratio, 3).into(),
            badge(Kind::of(&other.verdict)).into(),
        ]);
    }
    table
}

/// Open addressing with the real keys.
fn probing(report: &Report) -> Table {
    let mut table = Table::new("Open addressing: slots or groups looked at").words("method");
    for name in ["slots", "hit", "hit, ideal", "miss", "miss, ideal"] {
        table = table.numbers(name);
    }
    for probing in &report.probing {
        let partly = if probing.inserted_count < report.key_count {
            format!(", only {} keys inserted", grouped(probing.inserted_count))
        } else {
            String::new()
        };
        let [hit, hit_ideal, miss, miss_ideal] =
            [probing.hit, probing.hit_ideal, probing.miss, probing.miss_ideal]
                .map(|mean| fixed(mean, 3).into());
        let method = match probing.method {
            Method::Linear => "linear",
            Method::Double => "double hashing",
            Method::Group => "groups of 16",
        };
        let method = format!("{method}, {}{partly}", probing.reduction);
        let slots = grouped(probing.slot_count).into();
        table.push([method.into(), slots, hit, hit_ideal, miss, miss_ideal]);
    }
    table
}

/// Buckets as pages.
fn pages(report: &Report) -> Table {
    let mut table = Table::new("Buckets as pages: reads per lookup").numbers("slots of a page");
    for name in ["hit", "hit, ideal", "miss", "miss, ideal", "overflow", "overflow, ideal"] {
        table = table.numbers(name);
    }
    for page in &report.pages {
        let reads = [page.reads_hit, page.reads_hit_ideal, page.reads_miss, page.reads_miss_ideal];
        let shares = [page.overflow_share, page.overflow_share_ideal];
        let cells = reads.map(|reads| fixed(reads, 3)).into_iter().chain(shares.map(percent));
        table.push([grouped(page.slots).into()].into_iter().chain(cells.map(Into::into)));
    }
    table
}

/// Lever's columns, and the ideal's.
fn histogram(report: &Report) -> Markup {
    let mut table = Table::new("Histogram in Lever's columns, and the ideal")
        .numbers("size")
        .numbers("buckets")
        .numbers("keys")
        .numbers("sum-pct")
        .numbers("ideal buckets");
    let rows: Vec<SizeRow> = size_rows(report).filter(|row| row.is_seen()).collect();
    for rows in joined(&rows) {
        let (first, last) = (rows[0], rows[rows.len() - 1]);
        let size = if first.size == last.size {
            grouped(first.size)
        } else {
            format!("{}-{}", grouped(first.size), grouped(last.size))
        };
        let sum = |part: fn(&SizeRow) -> u64| grouped(rows.iter().map(part).sum());
        table.push([
            size.into(),
            sum(|row| row.bucket_count).into(),
            sum(|row| row.key_count).into(),
            fixed(last.cumulative_percent, 2).into(),
            expected(rows.iter().map(|row| row.ideal).sum()).into(),
        ]);
    }
    table.render()
}

/// Joins rows where there are many, the middle ones before the first and the last.
fn joined(rows: &[SizeRow]) -> Vec<&[SizeRow]> {
    if rows.len() <= ROWS_MAX {
        return rows.chunks(1).collect();
    }
    let (start, rest) = rows.split_at(ROWS_MAX / 2);
    let (middle, end) = rest.split_at(rest.len() - ROWS_MAX / 8);
    let apart = middle.len().div_ceil(ROWS_MAX / 4);
    start.chunks(1).chain(middle.chunks(apart)).chain(end.chunks(1)).collect()
}

fn costs(report: &Report) -> Table {
    let mut table = Table::new("What it costs, beside the ideal")
        .words("")
        .numbers("measured")
        .numbers("ideal")
        .numbers("ratio");
    for (name, measured, ideal, decimals) in [
        ("keys looked at, hit", report.probes_hit, report.probes_hit_ideal, 3),
        ("keys looked at, miss", report.probes_miss, report.probes_miss_ideal, 3),
        ("keys in the fullest bucket", report.longest as f64, report.longest_ideal, 0),
        ("buckets used", report.used_count as f64, report.used_ideal, 0),
    ] {
        let ratio = if ideal > 0.0 { fixed(measured / ideal, 3) } else { "-".to_string() };
        let ideal = if decimals == 0 { expected(ideal) } else { fixed(ideal, decimals) };
        table.push([name.into(), fixed(measured, decimals).into(), ideal.into(), ratio.into()]);
    }
    table
}

fn percentiles(report: &Report) -> Table {
    let mut table = Table::new("Keys per bucket at percentiles, by nearest rank")
        .words("each counts once")
        .numbers("p50")
        .numbers("p90")
        .numbers("p99");
    for (name, found) in
        [("bucket that holds a key", report.bucket_percentiles), ("key", report.item_percentiles)]
    {
        let [p50, p90, p99] = [found.p50, found.p90, found.p99].map(|p| grouped(p).into());
        table.push([name.into(), p50, p90, p99]);
    }
    table
}

fn statistics(report: &Report) -> Table {
    let caption = format!(
        "{} on this table; p is the probability of as much or more with an ideal hash",
        counted(report.test_count.into(), "test")
    );
    let mut table = Table::new(caption).words("test").words("found").numbers("p");
    if let Some(test) = report.chi_square {
        let found = format!(
            "{} of {} degrees, {} standard deviations",
            expected(test.value),
            expected(test.dof),
            fixed(test.z, 2)
        );
        table.push([
            "spread: chi-square".into(),
            found.into(),
            probability(report.spread_p).into(),
        ]);
    }
    if let Some(test) = report.fit {
        let found = format!("{} of {} degrees", significant(test.value), fixed(test.dof, 0));
        table.push(["sizes: fit to the ideal".into(), found.into(), probability(test.p).into()]);
    }
    let found =
        format!("{} keys, ideal {}", grouped(report.longest), fixed(report.longest_ideal, 1));
    table.push(["fullest bucket".into(), found.into(), probability(report.longest_p).into()]);
    for collisions in &report.collisions {
        let pairs = counted(collisions.pair_count, "pair");
        let mut found = format!("{pairs}, ideal {}", significant(collisions.pair_count_ideal));
        if !collisions.shared.is_empty() && collisions.examples.is_empty() {
            let shared: Vec<String> =
                collisions.shared.iter().map(|value| format!("{value:#x}")).collect();
            let _ = write!(found, "; hashes that keys share: {}", shared.join(", "));
        }
        let name = format!("equal hashes: {} bits ({})", collisions.width_bits, collisions.window);
        table.push([name.into(), found.into(), probability(collisions.p).into()]);
    }
    if let Some(bit) = report.worst_bit {
        let found = format!("bit {} is set in {} of the hashes", bit.bit, percent(bit.ones));
        table.push(["worst bit".into(), found.into(), probability(bit.p).into()]);
    }
    table
}

fn equal_hashes(report: &Report) -> Markup {
    let examples = || report.collisions.iter().flat_map(|collisions| &collisions.examples);
    if examples().next().is_none() {
        return html! {};
    }
    let mut table = Table::new("Keys with equal hashes, the lowest hashes first");
    table = table.words("hash").words("some of its keys");
    for equal in examples() {
        let keys = html! {
            @for key in &equal.keys { code.key { (shown(key)) } " " }
        };
        table.push([format!("{:#x}", equal.hash).into(), keys.into()]);
    }
    table.render()
}

fn bits(report: &Report) -> Markup {
    html! {
        @if report.reachable_count < report.bucket_count {
            p.warn {
                "Whatever the keys, this reduction of " (report.width_bits) " bits reaches "
                (grouped(report.reachable_count)) " of " (grouped(report.bucket_count))
                " buckets (" (percent(report.reachable_count as f64 / report.bucket_count as f64))
                ")."
            }
        }
        @for (name, bits) in
            [("never", report.bits_never_set), ("always", report.bits_always_set)] {
            @if bits != 0 {
                p {
                    (counted(bits.count_ones().into(), "bit")) " of the hash " (name) " set: "
                    code { (format!("{bits:#x}")) }
                }
            }
        }
    }
}
