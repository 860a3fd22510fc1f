//! Layouts of nodes: the cache lines that a step reads, and what it takes.

use super::kernel_tables::page;
use super::number::{bytes, fixed, grouped, p_is};
use crate::document::{Block, Cell, Document, Line, Table, cells};
use crate::replay::walk::{NodeOrder, WalkTime};
use crate::replay::{LayoutReport, LayoutRow};

/// Returns the document of `lab layout`.
pub fn layouts(report: &LayoutReport) -> Document {
    let sizes: Vec<u32> = report
        .layouts
        .first()
        .map_or(Vec::new(), |row| row.lines.iter().map(|it| it.line_bytes).collect());
    let words = "A lookup that passes a node reads its link and the fields that it compares, up to the \
                 first that differs; of the node that matches it reads all. The lines are counted over \
                 every place of a slab; nothing is measured.";
    let mut blocks = vec![Block::Prose(words.into()), Block::Table(lines(report, &sizes, false))];
    blocks.push(Block::Table(lines(report, &sizes, true)));
    let fields = Block::Table(fields(&report.layouts));
    blocks.push(crate::document::Fold::closed("The fields and their places", fields));
    blocks.push(Block::List("", findings(&report.layouts)));
    let mut sections = vec![("lines", "Cache lines", blocks)];
    if !report.times.is_empty() {
        sections.push(("times", "Time of a step on this machine", times(&report.times)));
    }
    page("Nodes of hash chains", "in cache lines", sections)
}

fn lines(report: &LayoutReport, sizes: &[u32], is_match: bool) -> Table {
    let caption = if is_match { "Lines of the node that matches" } else { "Lines of a step" };
    let mut table = Table::new(caption)
        .words(["node"])
        .numbers(sizes.iter().map(|size| format!("{size} B")))
        .numbers(["bytes", "apart", "first"]);
    if !is_match {
        table = table.words(["what it is"]).wide();
    }
    for LayoutRow { layout, lines } in &report.layouts {
        let count = |lines: f64| Cell::ordered(lines, fixed(lines, 3));
        let mut cells = vec![Cell::from(layout.name)];
        cells.extend(lines.iter().map(|it| count(if is_match { it.matched } else { it.step })));
        let first = match layout.color_count {
            1 => layout.first_bytes.to_string(),
            colors => format!("{}+32*0..{}", layout.first_bytes, colors - 1),
        };
        cells.extend(cells![u64::from(layout.node_bytes), u64::from(layout.stride_bytes), first]);
        if !is_match {
            cells.push(layout.title.into());
        }
        table.push(cells);
    }
    table
}

fn fields(rows: &[LayoutRow]) -> Table {
    let mut table = Table::new("Fields that lookups read").words([
        "node",
        "passing it",
        "and where it matches",
    ]);
    for LayoutRow { layout, .. } in rows {
        let list = |fields: &[crate::replay::Field]| {
            let field = |it: &crate::replay::Field| format!("{} {}", it.name, it.offset);
            fields.iter().map(field).collect::<Vec<String>>().join(", ")
        };
        table.push(cells![layout.name, list(layout.passed), list(layout.matched)]);
    }
    table
}

/// What the table says of Dumazet's text, where the rows are there that say it.
fn findings(rows: &[LayoutRow]) -> Vec<Line> {
    let of_32 = |name: &str| {
        let row = rows.iter().find(|row| row.layout.name == name)?;
        row.lines.iter().find(|it| it.line_bytes == 32).map(|it| it.step)
    };
    let mut findings = Vec::new();
    if let (Some(before), Some(after)) = (of_32("dentry-2.6.13"), of_32("dentry-2.6.14")) {
        let one = 2.0 - after;
        findings.push(Line::from(format!(
            "Dumazet 2005: \"one cache line is needed instead of two\". With his lines of 32 bytes it \
             is {} instead of {}: {} % of the dentries need one line, the others two.",
            fixed(after, 3),
            fixed(before, 3),
            fixed(100.0 * one, 0)
        )));
    }
    if let (Some(whole), Some(half), Some(now)) =
        (of_32("dentry-2.6.14-160"), of_32("dentry-2.6.14-144"), of_32("dentry-2.6.14"))
    {
        findings.push(Line::from(format!(
            "His remark that a size of whole lines or of half a line over would be better: right for \
             whole lines ({}), hardly for half a line ({} against {}).",
            fixed(whole, 3),
            fixed(half, 3),
            fixed(now, 3)
        )));
    }
    if let Some(aligned) = of_32("dentry-2.2.5") {
        findings.push(Line::from(format!(
            "The dentry of 2.2 was aligned to 128 bytes and needed {} lines of 32 all the same.",
            fixed(aligned, 3)
        )));
    }
    findings
}

fn times(times: &[WalkTime]) -> Vec<Block> {
    let words = "Each lookup waits for the one before. Median of seven runs and their standard \
                 deviation; p is Welch's, against the first layout measured in the same way. Lines are \
                 of 64 bytes; the first node of a chain costs a line of the table besides.";
    let mut blocks = vec![Block::Prose(words.into())];
    for same in times.chunk_by(|one, other| manner(one) == manner(other)) {
        blocks.push(Block::Table(time_table(same)));
        if let Some(words) = dumazet(same) {
            blocks.push(Block::Prose(words.into()));
        }
    }
    blocks
}

/// What the times say of Dumazet's change, where both layouts were measured.
fn dumazet(times: &[WalkTime]) -> Option<String> {
    let of = |name: &str| times.iter().find(|it| it.layout == name);
    let (before, after) = (of("dentry-2.6.13")?, of("dentry-2.6.14")?);
    let p = after.p?;
    let is_faster = after.lookup_ns.mean < before.lookup_ns.mean;
    Some(match (is_faster, p < 0.05) {
        (true, true) => format!("Dumazet's change is faster here, {}.", p_is(p)),
        (false, true) => format!("Dumazet's change did not hold here: it is slower, {}.", p_is(p)),
        (_, false) => format!("Dumazet's change did not hold here: no difference, {}.", p_is(p)),
    })
}

fn manner(it: &WalkTime) -> (NodeOrder, bool, bool) {
    (it.order, it.is_present, it.memory_bytes < 4 << 20)
}

fn time_table(times: &[WalkTime]) -> Table {
    let order = match times[0].order {
        NodeOrder::Slab => "nodes in the order of their slabs",
        NodeOrder::Shuffled => "nodes shuffled",
    };
    let keys = if times[0].is_present { "keys that are there" } else { "absent keys" };
    let memory = bytes(times[0].memory_bytes);
    let mut table = Table::new(format!("{keys}, {order}, in {memory}"))
        .words(["node"])
        .numbers(["lookup, ns", "sd", "steps", "step, ns", "lines", "line, ns"])
        .words(["p"])
        .numbers(["keys"])
        .wide();
    for it in times {
        let ns = |ns: f64| Cell::ordered(ns, fixed(ns, 1));
        table.push(cells![
            it.layout,
            ns(it.lookup_ns.median),
            ns(it.lookup_ns.deviation),
            Cell::ordered(it.step_count, fixed(it.step_count, 2)),
            ns(it.step_ns()),
            Cell::ordered(it.line_count, fixed(it.line_count, 2)),
            ns(it.line_ns()),
            it.p.map_or("first".to_owned(), p_is),
            grouped(it.key_count),
        ]);
    }
    table
}
