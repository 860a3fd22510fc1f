//! Replays as a document: what the traces do, then and now, and whether today's Linux is fine.

mod lines;
mod tables;
mod today;

use self::tables::{cost_over_size, cost_over_time, histograms, then_and_now};
use super::number::{counted, grouped};
use crate::document::{Block, Document, Fold, Line, Section, Table, cells, shown};
use crate::replay::{ReplayStudy, TraceReplay};

/// Returns the document of replays.
///
/// # Cost
///
/// Time and memory in proportion to the study: some kilobytes for each table.
pub fn replay(study: &ReplayStudy) -> Document {
    let title = match study.traces.as_slice() {
        [only] => Line::from("Replay of ").then(Line::code(shown(&only.name))),
        traces => format!("Replay of {}", counted(traces.len() as u64, "trace")).into(),
    };
    let subtitle = format!(
        "The kernel's tables under real lookups, beside an ideal hash. Addresses are modeled: {}.",
        counted(study.seed_count, "seed")
    );
    Document { title, subtitle: subtitle.into(), sections: sections(study) }
}

fn sections(study: &ReplayStudy) -> Vec<Section> {
    let mut sections = Vec::new();
    let mut add = |id, title, is_appendix, blocks: Vec<Block>| {
        if !blocks.is_empty() {
            sections.push(Section { id, title, is_appendix, blocks });
        }
    };
    add("today", "Is today's Linux fine?", false, today::section(study));
    add("streams", "What the traces do", false, vec![streams(study)]);
    match study.traces.as_slice() {
        [only] => {
            let [now, combined, trees, sizes, time, histograms] = parts(only, "t0");
            add("now", "Then and now", false, now);
            add("combined", "Lever's kernels", false, combined);
            add("trees", "Pages and buffers in trees", false, trees);
            add("histograms", "Histograms", false, histograms);
            add("size", "Cost over the size of the table", false, sizes);
            add("time", "Cost over time", false, time);
        }
        traces => add("now", "Then and now", false, folds(traces)),
    }
    add("method", "Method", true, method(study));
    sections
}

/// Returns the parts of a trace's report; `id` is unique to it.
fn parts(trace: &TraceReplay, id: &str) -> [Vec<Block>; 6] {
    [
        then_and_now(trace, id),
        tables::combined(trace),
        tables::trees(trace),
        cost_over_size(trace, id),
        cost_over_time(trace, id),
        histograms(trace, id),
    ]
}

/// Returns a part that can be opened for each trace, the first of them open.
fn folds(traces: &[TraceReplay]) -> Vec<Block> {
    let fold = |(index, trace): (usize, &TraceReplay)| {
        let lookups: u64 = trace.streams.iter().map(|it| it.counts.lookup_count).sum();
        let summary = Line::code(shown(&trace.name))
            .then(Line::faint(format!(" {}", counted(lookups, "lookup"))));
        let blocks = parts(trace, &format!("t{index}")).into_iter().flatten().collect();
        Block::Fold(Fold { summary, is_headed: true, is_open: true, blocks })
    };
    traces.iter().enumerate().map(fold).collect()
}

fn streams(study: &ReplayStudy) -> Block {
    let is_one = study.traces.len() == 1;
    let mut table = Table::new("Events of each table, whatever its function and size")
        .words([if is_one { "table" } else { "trace, table" }])
        .numbers(["lookups", "hits", "misses", "added", "removed", "at end", "peak"]);
    for trace in &study.traces {
        for stream in &trace.streams {
            let c = &stream.counts;
            let name = if is_one {
                stream.table.name().to_owned()
            } else {
                format!("{} {}", shown(&trace.name), stream.table.name())
            };
            table.push(cells![
                name,
                c.lookup_count,
                c.hit_count,
                c.miss_count,
                c.insert_count,
                c.remove_count,
                c.object_count,
                c.object_count_max
            ]);
        }
    }
    Block::Table(table)
}

fn method(study: &ReplayStudy) -> Vec<Block> {
    let traces = study.traces.iter().map(|trace| {
        let TraceReplay { name, line_count, root_count, stale_count, shrink, .. } = trace;
        Line::from(format!(
            "{}: {} lines, {}, {} whose inode had changed, shrunk: {shrink}",
            shown(name),
            grouped(*line_count),
            counted(*root_count, "root dentry").replace("dentrys", "dentries"),
            counted(*stale_count, "hit")
        ))
    });
    vec![
        Block::Prose(Line::from(format!(
            "A trace is read once into four streams of hits, misses, insertions and removals, which do \
             not depend on the hash function. Each function, size and seed is then measured on them: a \
             bucket is a list, a new object goes to its head, and a hit moves nothing. Visited are the \
             nodes that a lookup looks at, the match included; skipped are those without the match, \
             Lever's iterations, also in thousandths of a lookup. Ideal is the same stream with every \
             object in a bucket drawn at random: the mean and the range of {}. Most lookups go to few \
             names, whose positions in their chains decide, so that an ideal hash varies too.",
            counted(study.draw_count, "draw")
        ))),
        Block::Prose(
            "Old functions hash the addresses of kernel objects, which no trace has. They come from a \
             model of each kernel's allocator, drawn from a seed: chunks of pages at random frames, \
             objects in the order in which the allocator handed them out, freed ones reused last in, \
             first out. The model leaves out that caches take over each other's pages, and that memory \
             ages."
                .into(),
        ),
        Block::Prose(
            "Lines are distinct cache lines, by the layouts of the nodes: one of the bucket, those of \
             each node passed, and those of the match. They are arithmetic, not a measurement of time."
                .into(),
        ),
        Block::List("Traces", traces.collect()),
        Block::List(
            "Program",
            vec![
                Line::code(format!("splitpoint {}", study.program.arguments.join(" "))),
                format!("version {}", study.program.version).into(),
            ],
        ),
    ]
}
