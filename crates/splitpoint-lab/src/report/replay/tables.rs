//! The tables of one trace: then and now, Lever's kernels, trees, and their pictures.

use std::collections::BTreeMap;

use super::lines::{Axes, Dot, Series, dots, figure};
use crate::document::{Block, Cell, Figure, Fold, Line, Table, cells};
use crate::replay::{Across, KernelTable, Moment, TableReplay, TraceReplay};
use crate::report::bars;
use crate::report::number::{bytes, fixed, grouped, significant};
use crate::report::sizes::SizeClass;

/// Bytes of a cache line of today, on which all eras are compared.
const LINE_BYTES: u32 = 64;

/// Fewest lookups of which parts are compared.
const TIMED_LOOKUPS: u64 = 1000;

/// Returns a name for a table: its kernel, or its function and size.
fn name_of(table: &TableReplay) -> String {
    match table.kernel.as_str() {
        "" => table.hash.clone(),
        kernel => kernel.to_owned(),
    }
}

/// Returns the tables of a trace by what they cache, in the order of the four.
fn by_kind(trace: &TraceReplay) -> BTreeMap<KernelTable, Vec<&TableReplay>> {
    let mut by_kind: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for table in &trace.tables {
        by_kind.entry(table.table).or_default().push(table);
    }
    by_kind
}

/// Returns the tables beside each other, and the picture of their lines.
pub(super) fn then_and_now(trace: &TraceReplay, id: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = lines_by_era(trace, id).into_iter().collect();
    for (kind, tables) in by_kind(trace) {
        blocks.push(Block::Table(compared(kind, &tables)));
    }
    blocks
}

fn compared(kind: KernelTable, tables: &[&TableReplay]) -> Table {
    let caption = format!("The {} table: nodes visited by a lookup", kind.name());
    let mut table = Table::new(caption)
        .words(["kernel"])
        .words(["function"])
        .wide()
        .numbers(["buckets", "seed 1", "mean"])
        .numbers(["min"])
        .wide()
        .numbers(["max", "ideal"])
        .numbers(["ideal, range"])
        .wide()
        .numbers(["skipped"])
        .numbers(["fullest", "ideal"])
        .wide()
        .numbers(["z"])
        .wide()
        .numbers(["bytes"])
        .wide()
        .numbers(["lines"]);
    for it in tables {
        table.push(cells![
            name_of(it),
            Line::code(it.hash.clone()),
            it.bucket_count,
            visits(it.reading.visited_per_lookup()),
            visits(it.visited.mean),
            visits(it.visited.min),
            worst(it),
            visits(it.visited_ideal.mean),
            range(it.visited_ideal),
            per_thousand(it.reading.skipped, it.reading.lookup_count),
            it.reading.largest,
            fixed(it.largest_ideal, 1),
            it.z.map_or_else(|| "-".to_owned(), |z| significant(z.mean)),
            bytes(it.table_bytes),
            lines(it).map_or_else(|| "-".to_owned(), |[measured, _]| fixed(measured, 2)),
        ]);
    }
    table
}

/// The most over the seeds, with a mark where no draw of the ideal is as bad by far.
fn worst(it: &TableReplay) -> Cell {
    let most = it.visited.max;
    let is_bad = most > 1.2 * it.visited_ideal.max && most - it.visited_ideal.max > 0.05;
    let shown = visits(most);
    Cell::ordered(most, if is_bad { Line::alarm(shown) } else { shown.into() })
}

/// Returns nodes a lookup with three decimals, of which large numbers need fewer.
pub(super) fn visits(value: f64) -> String {
    fixed(value, if value < 100.0 { 3 } else { 1 })
}

pub(super) fn range(across: Across) -> String {
    format!("{} - {}", visits(across.min), visits(across.max))
}

/// Returns his form of a mean: thousandths, cut.
fn per_thousand(count: u64, lookups: u64) -> String {
    let thousandths = u128::from(count) * 1000 / u128::from(lookups.max(1));
    format!("{}/1000", grouped(thousandths as u64))
}

/// Returns the lines of today's size that a lookup reads, measured and ideal.
fn lines(it: &TableReplay) -> Option<[f64; 2]> {
    let cost = it.lines.iter().find(|cost| cost.line_bytes == LINE_BYTES)?;
    Some([cost.per_lookup, cost.per_lookup_ideal])
}

/// Returns the picture of lines by era, if there are eras.
fn lines_by_era(trace: &TraceReplay, id: &str) -> Option<Block> {
    let mut eras: Vec<String> = Vec::new();
    for table in trace.tables.iter().filter(|it| !it.kernel.is_empty()) {
        if !eras.contains(&table.kernel) {
            eras.push(table.kernel.clone());
        }
    }
    if eras.len() < 2 {
        return None;
    }
    let style = |kernel: &str| eras.iter().position(|era| era == kernel);
    let mut groups: Vec<(String, Vec<Dot>)> = Vec::new();
    for (kind, tables) in by_kind(trace) {
        let dot = |it: &&TableReplay| {
            let [value, ideal] = lines(it)?;
            Some(Dot { style: style(&it.kernel)?, value, ideal: Some(ideal) })
        };
        let mut dots: Vec<Dot> = tables.iter().filter_map(dot).collect();
        let tree = trace.trees.iter().find(|tree| tree.table == kind && tree.tree != "red-black");
        if let (Some(tree), Some(style)) = (tree, style("6.x")) {
            dots.push(Dot { style, value: tree.lines_per_lookup(), ideal: None });
        }
        groups.push((kind.name().to_owned(), dots));
    }
    let title = "Cache lines that a lookup reads, by kernel";
    let summary = format!(
        "Lines of {LINE_BYTES} bytes on a log scale, the tables of each kernel at the sizes of its time. {}",
        in_words(&groups, &eras)
    );
    let picture = dots(format!("{id}-lines"), title, summary, &eras, &groups, "cache lines");
    Some(Block::Figures(vec![picture]))
}

fn in_words(groups: &[(String, Vec<Dot>)], eras: &[String]) -> String {
    let changes = groups.iter().filter_map(|(name, dots)| {
        let (first, last) = (dots.first()?, dots.last()?);
        (first.style != last.style).then(|| {
            let [then, now] = [first.value, last.value].map(significant);
            format!("{name}: {then} in {}, {now} in {}", eras[first.style], eras[last.style])
        })
    });
    let changes: Vec<String> = changes.collect();
    if changes.is_empty() { String::new() } else { format!("{}.", changes.join("; ")) }
}

/// Returns Lever's kernels, and how far his own figures tell them apart.
pub(super) fn combined(trace: &TraceReplay) -> Vec<Block> {
    let mut table = Table::new("Nodes skipped by a lookup of each table, and lines of 32 bytes")
        .words(["kernel"])
        .numbers(["dentry", "inode", "page", "buffer", "lines", "ideal"])
        .numbers(["his scripts/hour"]);
    for kernel in &trace.combinations {
        let skipped = |kind: KernelTable| {
            let of_kind = kernel.tables.iter().find(|it| it.table == kind);
            of_kind.map_or_else(|| "-".to_owned(), |it| visits(it.skipped.mean))
        };
        let [dentry, inode, page, buffer] = KernelTable::ALL.map(skipped);
        table.push(cells![
            kernel.name.clone(),
            dentry,
            inode,
            page,
            buffer,
            fixed(kernel.lines_per_lookup, 3),
            fixed(kernel.lines_per_lookup_ideal, 3),
            published(&kernel.name),
        ]);
    }
    if table.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![
        Block::Table(table),
        Block::Prose(
            "Lines are the sum over the four tables, weighted by their lookups, and stand here for his \
             throughput, which needs his machine. The inode function of A to D is \"slightly modified\" \
             in the paper, which does not say how: it is 2.2.5's here, with 11 bits."
                .into(),
        ),
    ];
    if trace.combinations.len() > 1 {
        blocks.push(Block::List("What his own Table 6 tells apart", separated()));
    }
    blocks
}

/// Table 6 of Lever's paper: kernel, mean of the scripts an hour and their standard deviation, over ten
/// runs each.
const TABLE_6: [(&str, f64, f64); 5] = [
    ("ref", 4300.7, 15.73),
    ("A", 4582.9, 12.55),
    ("B", 4577.9, 16.22),
    ("C", 4596.2, 22.30),
    ("D", 4591.3, 10.98),
];
const RUNS: f64 = 10.0;
/// Student's t beyond which 5 of 100 pairs of equal kernels lie, at 16 degrees of freedom.
const T_CRITICAL: f64 = 2.12;

fn published(name: &str) -> String {
    let row = TABLE_6.iter().find(|row| row.0 == name);
    row.map_or_else(|| "-".to_owned(), |row| fixed(row.1, 1))
}

/// Returns Welch's t for each pair of his kernels.
fn separated() -> Vec<Line> {
    let mut lines = Vec::new();
    for (index, (one, mean, deviation)) in TABLE_6.iter().enumerate() {
        for (other, other_mean, other_deviation) in &TABLE_6[index + 1..] {
            let error =
                (deviation * deviation / RUNS + other_deviation * other_deviation / RUNS).sqrt();
            let t = (other_mean - mean) / error;
            let verdict = if t.abs() > T_CRITICAL { "differ" } else { "may be equal" };
            lines.push(format!("{one} and {other}: t = {}, they {verdict}", fixed(t, 2)).into());
        }
    }
    lines
}

/// Returns the trees of pages and buffers beside their hash tables.
pub(super) fn trees(trace: &TraceReplay) -> Vec<Block> {
    let mut table = Table::new("Nodes and lines of 64 bytes that a lookup reads")
        .words(["structure"])
        .numbers(["nodes", "deepest", "lines"]);
    for tree in &trace.trees {
        table.push(cells![
            format!("{}: {}", tree.table.name(), tree.tree),
            fixed(tree.visited_per_lookup(), 3),
            tree.deepest,
            fixed(tree.lines_per_lookup(), 2),
        ]);
    }
    let is_any = !table.is_empty();
    let has_tree = |kind| trace.trees.iter().any(|tree| tree.table == kind);
    for it in trace.tables.iter().filter(|it| has_tree(it.table)) {
        table.push(cells![
            format!("{}: {}, {} buckets", it.table.name(), name_of(it), grouped(it.bucket_count)),
            visits(it.reading.visited_per_lookup()),
            it.reading.largest,
            lines(it).map_or_else(|| "-".to_owned(), |[lines, _]| fixed(lines, 2)),
        ]);
    }
    if is_any { vec![Block::Table(table)] } else { Vec::new() }
}

/// Returns the sizes of the buckets of each table, and its fullest buckets.
pub(super) fn histograms(trace: &TraceReplay, id: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (kind, tables) in by_kind(trace) {
        let figures = tables.iter().enumerate().map(|(index, it)| {
            let title = format!(
                "{}, {}, {} buckets: sizes beside the ideal",
                kind.name(),
                name_of(it),
                grouped(it.bucket_count)
            );
            let id = format!("{id}-{}-{index}-sizes", kind.name());
            bars::figure_of(id, &title, "object", &SizeClass::of_rows(&it.rows))
        });
        let figures: Vec<Figure> = figures.collect();
        let summary = format!("Histograms of the {} table", kind.name());
        let is_open = tables.len() == 1 && trace.tables.len() <= 2;
        let mut inner = vec![Block::Figures(figures)];
        inner.extend(tables.iter().filter_map(|it| fullest(it)));
        if is_open {
            blocks.extend(inner);
        } else {
            let fold = Fold { summary: summary.into(), is_headed: false, is_open, blocks: inner };
            blocks.push(Block::Fold(fold));
        }
    }
    blocks
}

fn fullest(it: &TableReplay) -> Option<Block> {
    if it.fullest.is_empty() {
        return None;
    }
    let caption = format!("The fullest buckets, {} {}", it.table.name(), name_of(it));
    let mut table = Table::new(caption).numbers(["bucket", "objects"]).words(["the first of them"]);
    for bucket in &it.fullest {
        table.push(cells![
            bucket.bucket.to_string(),
            bucket.object_count,
            Line::code(bucket.objects.join(" ")),
        ]);
    }
    Some(Block::Table(table))
}

/// Returns a picture of the cost of each function over the size of its table.
pub(super) fn cost_over_size(trace: &TraceReplay, id: &str) -> Vec<Block> {
    let mut by_kind: BTreeMap<KernelTable, Vec<Series>> = BTreeMap::new();
    let mut ideals: BTreeMap<KernelTable, BTreeMap<u32, f64>> = BTreeMap::new();
    for curve in &trace.curves {
        let points = curve.points.iter().map(|point| [f64::from(point.bits), point.visited]);
        let (name, points) = (curve.hash.clone(), points.collect());
        by_kind.entry(curve.table).or_default().push(Series { name, points, is_ideal: false });
        let ideal = ideals.entry(curve.table).or_default();
        ideal.extend(curve.points.iter().map(|point| (point.bits, point.visited_ideal)));
    }
    let picture = |(kind, mut series): (KernelTable, Vec<Series>)| {
        let of_ideal = ideals[&kind].iter().map(|(&bits, &visited)| [f64::from(bits), visited]);
        let worst = worst_curve(&series, &ideals[&kind]);
        series.push(Series { name: "ideal".into(), points: of_ideal.collect(), is_ideal: true });
        let axes = Axes {
            x_title: "table bits: logarithm of the number of buckets",
            y_title: "nodes visited by a lookup",
            is_whole: true,
        };
        let title = format!("The {} table: cost over its size", kind.name());
        let data = size_data(&series);
        let figure = figure(format!("{id}-{}-bits", kind.name()), &title, worst, &series, axes);
        Figure { data: Some(data), ..figure }
    };
    let figures: Vec<Figure> = by_kind.into_iter().map(picture).collect();
    if figures.is_empty() { Vec::new() } else { vec![Block::Figures(figures)] }
}

fn worst_curve(series: &[Series], ideal: &BTreeMap<u32, f64>) -> String {
    let ratios = series.iter().flat_map(|one| {
        one.points.iter().filter_map(move |&[bits, visited]| {
            let ideal = *ideal.get(&(bits as u32))?;
            (ideal > 0.0).then(|| (visited / ideal, bits as u32, &one.name))
        })
    });
    match ratios.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((ratio, bits, name)) => format!(
            "Farthest from the ideal: {name} at 2^{bits} buckets, {} times its cost.",
            fixed(ratio, 2)
        ),
        None => "There are no lookups.".to_owned(),
    }
}

fn size_data(series: &[Series]) -> Table {
    let mut bits: Vec<u32> =
        series.iter().flat_map(|one| &one.points).map(|point| point[0] as u32).collect();
    bits.sort_unstable();
    bits.dedup();
    let caption = "Nodes visited by a lookup at each size";
    let mut table = Table::new(caption)
        .words(["function"])
        .numbers(bits.iter().map(|bits| format!("2^{bits}")));
    for one in series {
        let cost = |bits: &u32| {
            let point = one.points.iter().find(|point| point[0] as u32 == *bits);
            Cell::from(point.map_or_else(String::new, |point| visits(point[1])))
        };
        table.push([Cell::from(one.name.clone())].into_iter().chain(bits.iter().map(cost)));
    }
    table
}

/// Returns a picture of the cost between one moment and the next.
pub(super) fn cost_over_time(trace: &TraceReplay, id: &str) -> Vec<Block> {
    let picture = |(kind, tables): (KernelTable, Vec<&TableReplay>)| {
        let measured = |it: &&TableReplay| Series {
            name: name_of(it),
            points: between(&it.moments, |moment| moment.reading),
            is_ideal: false,
        };
        let ideal = |it: &&TableReplay| Series {
            name: format!("{}, ideal", name_of(it)),
            points: between(&it.moments, |moment| moment.ideal),
            is_ideal: true,
        };
        let series: Vec<Series> =
            tables.iter().map(measured).chain(tables.iter().map(ideal)).collect();
        let axes = Axes {
            x_title: "lookups so far, in thousands",
            y_title: "nodes visited by a lookup since the mark before",
            is_whole: false,
        };
        let title = format!("The {} table: cost over time", kind.name());
        let objects = tables.first().map_or(0, |it| it.reading.object_count);
        let summary = format!("The table ends with {} objects.", grouped(objects));
        let data = time_data(&tables);
        let figure = figure(format!("{id}-{}-time", kind.name()), &title, summary, &series, axes);
        Figure { data: Some(data), ..figure }
    };
    let by_kind = by_kind(trace).into_iter();
    let is_drawn =
        |it: &&TableReplay| it.moments.len() > 1 && it.reading.lookup_count >= TIMED_LOOKUPS;
    let figures: Vec<Figure> =
        by_kind.filter(|(_, tables)| tables.iter().any(is_drawn)).map(picture).collect();
    if figures.is_empty() { Vec::new() } else { vec![Block::Figures(figures)] }
}

/// Returns the cost of the lookups between moments.
fn between(moments: &[Moment], of: impl Fn(&Moment) -> crate::replay::Reading) -> Vec<[f64; 2]> {
    let mut before = crate::replay::Reading::default();
    let point = |moment: &Moment| {
        let now = of(moment);
        let lookups = (now.lookup_count - before.lookup_count).max(1) as f64;
        let visited = (now.visited - before.visited) as f64;
        before = now;
        [now.lookup_count as f64 / 1000.0, visited / lookups]
    };
    moments.iter().map(point).collect()
}

fn time_data(tables: &[&TableReplay]) -> Table {
    let mut table = Table::new("Readings with seed 1")
        .words(["kernel"])
        .numbers(["lookups", "hits", "visited", "skipped", "objects", "fullest"]);
    for it in tables {
        for Moment { reading, .. } in &it.moments {
            table.push(cells![
                name_of(it),
                reading.lookup_count,
                reading.hit_count,
                visits(reading.visited_per_lookup()),
                per_thousand(reading.skipped, reading.lookup_count),
                reading.object_count,
                reading.largest,
            ]);
        }
    }
    table
}
