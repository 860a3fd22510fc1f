//! NFS file handles under NetBSD's functions.

use super::kernel_tables::page;
use super::number::{fixed, grouped, percent, ratio};
use crate::document::{Block, Cell, Document, Line, Table, cells, shown};
use crate::handles::{HandleReport, HandleTable};

/// Returns the document of `lab nfs`.
pub fn handles(report: &HandleReport) -> Document {
    let mut table = Table::new("vmstat's columns, and what they do not say")
        .words(["function", "generations"])
        .numbers(["buckets", "used", "util %", "items", "average", "maximum"])
        .numbers(["used, ideal"])
        .wide()
        .numbers(["max, ideal"])
        .wide()
        .numbers(["cost"])
        .wide()
        .words(["verdict"]);
    for it in &report.tables {
        table.push(row(it));
    }
    for (function, row) in PAPER {
        let dash = || Cell::from("");
        let [used, util, items, average, maximum] = row;
        table.push(cells![
            format!("{function}, 2001"),
            "the paper's",
            65_536,
            used,
            util,
            items,
            average,
            maximum,
            dash(),
            dash(),
            dash(),
            dash(),
        ]);
    }
    let subtitle = format!(
        "{} handles of {} bytes, {} with a generation",
        grouped(report.handle_count),
        crate::handles::HANDLE_BYTES,
        grouped(report.generation_count)
    );
    let title = Line::from("File handles of ").then(Line::code(shown(&report.source)));
    let blocks = vec![Block::Table(table), Block::List("", findings(report))];
    page(title, subtitle, vec![("handles", "Handles in a table", blocks)])
}

/// Mewburn's two lines: used buckets, utilization, items, average and maximum chain.
const PAPER: [(&str, [&str; 5]); 2] = [
    ("byte sum", ["1,000", "1.53", "34,688", "34", "105"]),
    ("FNV", ["27,054", "41.28", "34,867", "1", "6"]),
];

fn row(it: &HandleTable) -> Vec<Cell> {
    let generations = if it.is_drawn { "drawn" } else { "as found" };
    cells![
        it.hash,
        generations,
        it.bucket_count,
        it.used_count,
        Cell::ordered(it.utilization, fixed(100.0 * it.utilization, 2)),
        it.item_count,
        it.average_chain,
        it.longest,
        fixed(it.used_ideal, 0),
        fixed(it.longest_ideal, 1),
        ratio(it.cost_ratio),
        it.verdict,
    ]
    .to_vec()
}

fn findings(report: &HandleReport) -> Vec<Line> {
    let mut lines = Vec::new();
    if report.generation_count == 0 {
        lines.push(Line::from(
            "Every generation is 0, as file systems leave them that count how often an inode was used \
             again. Those of the BSDs draw them at random, and drawn ones give the paper's lines.",
        ));
    }
    let structured: Vec<&str> =
        report.tables.iter().filter(|it| it.verdict == "structured").map(|it| it.hash).collect();
    if !structured.is_empty() {
        lines.push(Line::from(format!(
            "More even than chance: {}. Inodes that follow each other keep that order in the hash, which \
             other handles will not.",
            structured.join(", ")
        )));
    }
    let worst =
        report.tables.iter().max_by(|one, other| one.cost_ratio.total_cmp(&other.cost_ratio));
    if let Some(it) = worst.filter(|it| it.verdict == "worse") {
        let share = percent(it.used_count as f64 / it.used_ideal.max(1.0));
        lines.push(Line::from(format!(
            "{} uses {share} of the buckets that an ideal hash would use; a hit costs {} times as much.",
            it.hash,
            fixed(it.cost_ratio, 1)
        )));
    }
    lines
}
