//! The tables of machines: by the rules of an era, and of the kernel that runs.

use super::number::{bytes, expected, fixed, grouped, percent};
use crate::document::{Block, Cell, Document, Line, Section, Table, cells, shown};
use crate::live_kernel::{KernelTableState, LiveKernel};
use crate::replay::{TableSize, TableSizes};

/// Returns the document of `lab tables`.
pub fn table_sizes(sizes: &TableSizes) -> Document {
    let mut table = Table::new("Buckets and memory of the hash tables").sortable();
    table = table.words(["memory", "kernel", "table"]).numbers(["buckets", "table bytes", "of it"]);
    if sizes.object_count.is_some() {
        table = table.numbers(["load", "fullest, ideal"]);
    }
    for it in &sizes.tables {
        table.push(size_row(it));
    }
    let mut blocks = vec![Block::Table(table)];
    let fixed = sizes.tables.iter().any(|it| it.is_fixed);
    let mut notes: Vec<Line> = Vec::new();
    if fixed {
        notes.push("A table marked * has this size whatever the memory.".into());
    }
    if sizes.tables.iter().any(|it| it.table_bytes == 2 << 20 && it.era.starts_with("2.")) {
        notes.push(
            "No table of 2.2 and 2.4 is larger than 2 MiB, the largest allocation of pages: a machine \
             that could not give it as many halved the table."
                .into(),
        );
    }
    if sizes.tables.iter().any(|it| it.era == "6.x") {
        notes.push("Linux 6.x has no table of pages or buffers: they are in trees.".into());
    }
    blocks.push(Block::List("", notes));
    let subtitle = match sizes.object_count {
        Some(count) => format!("with {} objects in each", grouped(count)),
        None => "by the rules of each kernel".to_owned(),
    };
    let mut sections = vec![("sizes", "Sizes", blocks)];
    if !sizes.task_tables.is_empty() {
        sections.push(("tasks", "Tables of tasks", task_tables(sizes)));
    }
    page("Hash tables of the kernel", subtitle, sections)
}

/// Returns the tables of pids and uids, some of whose buckets nothing can reach.
fn task_tables(sizes: &TableSizes) -> Vec<Block> {
    let mut table = Table::new("Tables of Linux 2.2.5 that follow from its number of tasks")
        .words(["table"])
        .numbers(["tasks", "buckets", "reachable", "of it"]);
    for it in &sizes.task_tables {
        let share = it.reachable_count as f64 / it.bucket_count as f64;
        table.push(cells![
            it.table,
            it.task_count,
            it.bucket_count,
            it.reachable_count,
            percent(share)
        ]);
    }
    let words = "Their functions are (id >> 8 ^ id) & (buckets - 1). All of Lever's kernels were built \
                 for 4000 tasks: then the mask is no row of ones, and three buckets of four stay \
                 empty whatever the ids are. Today a table of 128 buckets has the uids, and a tree \
                 the pids.";
    vec![Block::Table(table), Block::Prose(words.into())]
}

fn size_row(it: &TableSize) -> Vec<Cell> {
    let mark = if it.is_fixed { "*" } else { "" };
    let share = it.table_bytes as f64 / it.memory_bytes.max(1) as f64;
    let mut cells = cells![
        Cell::ordered(it.memory_bytes as f64, bytes(it.memory_bytes)),
        it.era,
        it.table,
        Cell::ordered(it.bucket_count as f64, format!("{}{mark}", grouped(it.bucket_count))),
        Cell::ordered(it.table_bytes as f64, bytes(it.table_bytes)),
        Cell::ordered(share, percent(share)),
    ]
    .to_vec();
    if let (Some(load), Some(longest)) = (it.load_factor, it.longest_ideal) {
        cells.push(Cell::ordered(load, fixed(load, 3)));
        cells.push(Cell::ordered(longest, fixed(longest, 1)));
    }
    cells
}

/// Returns the document of `lab live`.
pub fn live_kernel(live: &LiveKernel) -> Document {
    let release = live.release.as_deref().unwrap_or("of unknown version");
    let memory = live.memory_bytes.map_or("unknown memory".to_owned(), bytes);
    let mut blocks = Vec::new();
    if live.tables.is_empty() {
        let words = "No file tells how large the tables are: see below what could not be read.";
        blocks.push(Block::Warning(words.into()));
    } else {
        blocks.push(Block::Table(live_table(&live.tables)));
        let words = "No kernel tells how long its chains are unless it is debugged. Steps and the \
                     fullest bucket are those of an ideal hash with as many objects. The counts \
                     include objects that are not in the table, such as pipes and sockets.";
        blocks.push(Block::Prose(words.into()));
        blocks.push(Block::List("", live.tables.iter().filter_map(saving).collect()));
    }
    let mut sections = vec![("live", "This machine", blocks)];
    let chains: Vec<Table> = live.tables.iter().filter_map(chains).collect();
    if !chains.is_empty() {
        sections.push(("ideal", "Chains of an ideal hash", vec![Block::Pair(chains)]));
    }
    if !live.unread.is_empty() {
        let line = |it: &crate::live_kernel::Unread| {
            Line::code(it.what).then(format!(": {}; instead: {}", shown(&it.reason), it.instead))
        };
        let lines = live.unread.iter().map(line).collect();
        sections.push(("unread", "What could not be read", vec![Block::List("", lines)]));
    }
    let subtitle = format!("Linux {}, {memory}", shown(release));
    page("Hash tables of this machine's kernel", subtitle, sections)
}

fn live_table(tables: &[KernelTableState]) -> Table {
    let mut table = Table::new("Tables of the kernel, beside an ideal hash")
        .words(["table"])
        .numbers(["buckets", "bytes", "objects", "load", "empty", "hit", "miss", "fullest"])
        .words(["buckets from", "objects from"])
        .wide();
    for it in tables {
        let of = |number: Option<f64>, decimals| {
            number.map_or(Cell::from("?"), |it| Cell::ordered(it, fixed(it, decimals)))
        };
        let ideal = it.ideal.as_ref();
        table.push(cells![
            it.table,
            it.bucket_count,
            bytes(it.table_bytes),
            it.object_count.map_or("?".to_owned(), grouped),
            of(ideal.map(|it| it.load_factor), 3),
            ideal.map_or("?".to_owned(), |it| percent(it.empty_share)),
            of(ideal.map(|it| it.hit_steps), 3),
            of(ideal.map(|it| it.miss_steps), 3),
            of(ideal.map(|it| it.longest), 1),
            it.bucket_origin.words(),
            it.object_origin.map_or("?", super::super::live_kernel::Origin::words),
        ]);
    }
    table
}

/// Returns what a smaller table would save.
fn saving(it: &KernelTableState) -> Option<Line> {
    let ideal = it.ideal.as_ref()?;
    let enough = grouped(ideal.enough_count);
    Some(Line::from(if ideal.saved_bytes == 0 {
        format!("{}: {enough} buckets would have one object each; it has no more.", it.table)
    } else {
        format!(
            "{}: {enough} buckets would do for a load of 1 at most, and save {} of {}.",
            it.table,
            bytes(ideal.saved_bytes),
            bytes(it.table_bytes)
        )
    }))
}

fn chains(it: &KernelTableState) -> Option<Table> {
    let ideal = it.ideal.as_ref()?;
    let caption = format!("{}: buckets by their objects", it.table);
    let mut table = Table::new(caption).words(["objects"]).numbers(["buckets", "share"]);
    let last = ideal.chains.len().saturating_sub(1);
    for (index, row) in ideal.chains.iter().enumerate().filter(|(_, row)| row.bucket_count >= 0.5) {
        let size = if index == last {
            format!("{} or more", row.objects)
        } else {
            row.objects.to_string()
        };
        let share = row.bucket_count / it.bucket_count as f64;
        table.push(cells![size, expected(row.bucket_count), percent(share)]);
    }
    Some(table)
}

/// Returns a document of these sections.
pub(super) fn page(
    title: impl Into<Line>,
    subtitle: impl Into<Line>,
    sections: Vec<(&'static str, &'static str, Vec<Block>)>,
) -> Document {
    let section = |(id, title, blocks)| Section { id, title, is_appendix: false, blocks };
    Document {
        title: title.into(),
        subtitle: subtitle.into(),
        sections: sections.into_iter().map(section).collect(),
    }
}
