//! Is today's Linux fine? The answer, on every trace, and what breaks it.

use super::lines::{Axes, Dot, Series, dots, figure};
use super::tables::{range, visits};
use crate::document::{Block, Cell, Figure, Fold, Line, Table, cells, shown};
use crate::number::bytes;
use crate::replay::{
    KernelTable, NameAttack, ReplayStudy, SuperblockReplay, TodayReplay, TraceReplay,
};
use crate::report::number::{fixed, grouped, percent, significant};

/// Cost in units of the ideal from which a table is not fine.
const RATIO_MAX: f64 = 1.1;

/// Returns the section, empty if nothing of it was asked.
pub(super) fn section(study: &ReplayStudy) -> Vec<Block> {
    let traces: Vec<&TraceReplay> =
        study.traces.iter().filter(|trace| !trace.today.is_empty()).collect();
    if traces.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![Block::Lead(answer(&traces).into())];
    blocks.push(Block::List("What breaks it", breaks(&traces, &study.attacks)));
    blocks.push(Block::List("What would mend it", mends(&traces, &study.attacks)));
    let mut figures: Vec<Figure> = then_and_now(&traces);
    figures.extend(superblocks(&traces));
    blocks.push(Block::Figures(figures));
    let caption = "Nodes visited by a lookup, in 2.2.5 and today at the sizes of 24 GiB";
    blocks.push(Block::Table(at_sizes(caption, &traces, |row, rows| {
        row.era != "6.x" || is_real(row, rows)
    })));
    let all = at_sizes("Nodes visited by a lookup at every size", &traces, |_, _| true);
    blocks.push(Fold::closed(
        "The same at a 16th and a 256th of the size, and at 2^10",
        Block::Table(all),
    ));
    blocks.extend(superblock_table(&traces));
    if !study.attacks.is_empty() {
        let (made, listed): (Vec<&NameAttack>, Vec<&NameAttack>) =
            study.attacks.iter().partition(|attack| attack.salt != "nothing");
        blocks.push(Block::Table(attacks("Names made to collide, in one directory", &made)));
        let listed = attacks("The names a0 to a999999 in one directory, at every size", &listed);
        blocks.push(Fold::closed(
            "Bacik's names, which broke Linux 3.10, at every size",
            Block::Table(listed),
        ));
    }
    blocks
}

/// Returns pictures of the nodes that a lookup visits in 2.2.5 and today, for each trace.
fn then_and_now(traces: &[&TraceReplay]) -> Vec<Figure> {
    let names = ["2.2.5", "6.x, 24 GiB"].map(str::to_owned);
    let picture = |kind: KernelTable| {
        let group = |trace: &&TraceReplay| {
            let rows = trace.today.iter().filter(|row| row.table == kind);
            let dot = |row: &TodayReplay| {
                let style = usize::from(row.era == "6.x");
                let is_shown = style == 0 || is_real(row, &trace.today);
                // A log scale has no zero: one more, the line of the bucket.
                let [value, ideal] = [row.visited.mean, row.visited_ideal.mean].map(|it| 1.0 + it);
                is_shown.then_some(Dot { style, value, ideal: Some(ideal) })
            };
            (shown(&trace.name), rows.filter_map(dot).collect::<Vec<Dot>>())
        };
        let groups: Vec<_> = traces.iter().map(group).collect();
        let title = format!("The {} table: what a lookup looks at", kind.name());
        let summary =
            "Counts the bucket and the nodes of its chain, on a log scale. The tables of each \
                       kernel have the sizes of its time."
                .to_owned();
        let id = format!("today-{}", kind.name());
        dots(id, &title, summary, &names, &groups, "bucket and nodes")
    };
    [KernelTable::Dentry, KernelTable::Inode].map(picture).into()
}

/// A row at its real size: the largest of its table.
fn is_real(row: &TodayReplay, rows: &[TodayReplay]) -> bool {
    let same = rows.iter().filter(|it| it.table == row.table && it.era == row.era);
    row.era == "6.x" && same.map(|it| it.bucket_count).max() == Some(row.bucket_count)
}

/// The cost in units of the ideal's mean; 1 inside the range of the ideal's draws, and where hardly any
/// lookup visits a node, of which a fraction says nothing.
fn excess(row: &TodayReplay) -> f64 {
    let ideal = row.visited_ideal;
    let is_by_chance = row.visited.mean <= ideal.max || row.visited.mean - ideal.mean < 0.01;
    if is_by_chance { 1.0 } else { row.visited.mean / ideal.mean.max(1e-12) }
}

fn answer(traces: &[&TraceReplay]) -> String {
    let real = || {
        traces.iter().flat_map(|trace| trace.today.iter().filter(|row| is_real(row, &trace.today)))
    };
    let worst = real().map(excess).fold(1.0, f64::max);
    let of = |kind: KernelTable| {
        let rows = real().filter(move |row| row.table == kind);
        rows.map(|row| row.visited.mean).fold(0.0, f64::max)
    };
    let count = match traces.len() {
        1 => "this trace".to_owned(),
        count => format!("all {count} traces"),
    };
    if worst < RATIO_MAX {
        format!(
            "Yes, on {count}: at the sizes of a machine of 24 GiB a lookup visits at most {} dentries \
             and {} inodes on average, as with an ideal hash. But the tables pay for that with size, \
             and there are addresses and names that break it.",
            visits(of(KernelTable::Dentry)),
            visits(of(KernelTable::Inode))
        )
    } else {
        format!(
            "No, not on {count}: at the sizes of a machine of 24 GiB a lookup costs up to {} times what \
             it does with an ideal hash.",
            fixed(worst, 2)
        )
    }
}

fn breaks(traces: &[&TraceReplay], attacks: &[NameAttack]) -> Vec<Line> {
    let mut lines = Vec::new();
    lines.extend(oversized(traces));
    let all =
        || traces.iter().flat_map(|trace| trace.superblocks.iter().map(move |it| (trace, it)));
    let worst =
        all().max_by(|one, other| one.1.ratio_awkward.max.total_cmp(&other.1.ratio_awkward.max));
    if let Some((trace, it)) = worst {
        lines.push(Line::strong("Awkward superblock addresses: ").then(format!(
            "where the address of the superblock is 0x800 or -0x800 modulo 2^17, the product of the \
             inode function is a shift by 11 that meets its second term, a shift by 6. With the inodes \
             of {} and {} buckets, the table of a machine of {}, finding an inode then costs up to {} \
             times the ideal: {} inodes in the fullest bucket, where {} are ideal. Nobody sees it at boot.",
            shown(&trace.name),
            grouped(it.bucket_count),
            bytes(it.memory_bytes),
            fixed(it.ratio_awkward.max, 1),
            grouped(it.largest_awkward),
            fixed(it.largest_ideal, 1),
        )));
    }
    let share = all().max_by(|one, other| one.1.share_over_1_1.total_cmp(&other.1.share_over_1_1));
    if let Some((trace, it)) = share.filter(|it| it.1.share_over_1_1 > 0.0) {
        lines.push(Line::strong("How rare they are: ").then(format!(
            "of {} random addresses, {} cost over 1.1 times the ideal and {} over 1.5 times, at worst \
             {} times, with the inodes of {} and {} buckets. At no other size is the first share larger.",
            grouped(it.address_count),
            percent(it.share_over_1_1),
            percent(it.share_over_1_5),
            fixed(it.ratio.max, 2),
            shown(&trace.name),
            grouped(it.bucket_count),
        )));
    }
    let known = attacks.iter().find(|attack| attack.salt == "the salt");
    if let Some(attack) = known {
        lines.push(Line::strong("A salt that is known: ").then(format!(
            "{} names of 24 bytes, made in no time from the address of their directory, are all in one \
             bucket of {}: {} nodes a lookup. Every step of the mixing can be undone, so that all 32 \
             bits of the hashes are equal and no size helps. The address of the directory is a secret \
             of the kernel: that is the whole defense.",
            grouped(attack.name_count),
            grouped(attack.bucket_count),
            visits(attack.visited.max),
        )));
    }
    lines
}

/// Says how much larger the tables are than their objects need.
fn oversized(traces: &[&TraceReplay]) -> Option<Line> {
    let rows = traces.iter().flat_map(|trace| {
        trace.today.iter().filter(|row| is_real(row, &trace.today)).map(move |row| {
            let stream = trace.streams.iter().find(|stream| stream.table == row.table);
            (row, stream.map_or(0, |stream| stream.counts.object_count_max))
        })
    });
    let (row, objects) = rows.max_by_key(|(_, objects)| *objects)?;
    let loads = row.bucket_count as f64 / objects.max(1) as f64;
    let text = format!(
        "the {} table of a machine of 24 GiB has {} buckets ({}), {} times as many as the most objects \
         that any of these traces needs at a time ({}). Most buckets that are looked at are then in \
         lines that no other lookup has brought into the cache.",
        row.table.name(),
        grouped(row.bucket_count),
        bytes(row.table_bytes),
        significant(loads),
        grouped(objects)
    );
    Some(Line::strong("Oversized tables: ").then(text))
}

fn mends(traces: &[&TraceReplay], attacks: &[NameAttack]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mended = traces.iter().flat_map(|trace| &trace.superblocks);
    if let Some(most) = mended.map(|it| it.ratio_mended.max).max_by(f64::total_cmp) {
        lines.push(Line::strong("Inodes: ").then(format!(
            "multiply the sum of address and inode number by the golden ratio's constant and keep the \
             top bits, as the kernel's own hash_64 does. At the same awkward addresses and all sizes, \
             the worst is {} times the ideal.",
            fixed(most, 2)
        )));
    }
    let keyed = attacks.iter().find(|attack| attack.hash.starts_with("siphash"));
    if let Some(attack) = keyed {
        lines.push(Line::strong("Names: ").then(format!(
            "a keyed function. With {} the names made for the salt visit {} nodes ({} ideal), \
             whatever is known of addresses.",
            attack.hash,
            visits(attack.visited.max),
            visits(attack.visited_ideal)
        )));
    }
    lines.push(Line::strong("Sizes: ").then(
        "tables that grow with their objects instead of with memory, as the kernel's rhashtable does: \
         the rows at 1/16 and 1/256 of the size show what a lookup would visit.",
    ));
    lines
}

fn at_sizes(
    caption: &str,
    traces: &[&TraceReplay],
    is_shown: impl Fn(&TodayReplay, &[TodayReplay]) -> bool,
) -> Table {
    let mut table = Table::new(caption)
        .words(["trace, table"])
        .words(["kernel"])
        .numbers(["buckets"])
        .numbers(["bytes"])
        .wide()
        .numbers(["up to memory"])
        .wide()
        .numbers(["mean", "worst"])
        .numbers(["of seed"])
        .wide()
        .numbers(["ideal"])
        .numbers(["ideal, range"])
        .wide()
        .numbers(["z", "lines"]);
    for trace in traces {
        for row in trace.today.iter().filter(|row| is_shown(row, &trace.today)) {
            let is_bad = excess(row) > RATIO_MAX;
            let mean = visits(row.visited.mean);
            table.push(cells![
                format!("{} {}", shown(&trace.name), row.table.name()),
                row.era.clone(),
                row.bucket_count,
                bytes(row.table_bytes),
                row.memory_bytes.map_or_else(|| "fixed".to_owned(), bytes),
                Cell::ordered(
                    row.visited.mean,
                    if is_bad { Line::alarm(mean) } else { mean.into() }
                ),
                visits(row.visited.max),
                format!("{} of {}", row.visited.max_at, row.seed_count),
                visits(row.visited_ideal.mean),
                range(row.visited_ideal),
                row.z.map_or_else(|| "-".to_owned(), |z| significant(z.mean)),
                fixed(row.lines_per_lookup, 2),
            ]);
        }
    }
    table
}

/// Returns what addresses of superblocks do to the trace with the most inodes.
fn superblocks(traces: &[&TraceReplay]) -> Option<Figure> {
    let inodes = |trace: &&&TraceReplay| {
        let stream = trace.streams.iter().find(|stream| stream.table == KernelTable::Inode);
        stream.map_or(0, |stream| stream.counts.object_count_max)
    };
    let most = traces.iter().filter(|trace| !trace.superblocks.is_empty()).max_by_key(inodes)?;
    let bits = |it: &SuperblockReplay| f64::from(it.bucket_count.ilog2());
    let series = |name: &str, is_ideal, of: &dyn Fn(&SuperblockReplay) -> f64| Series {
        name: name.to_owned(),
        points: most.superblocks.iter().map(|it| [bits(it), of(it)]).collect(),
        is_ideal,
    };
    let lines = [
        series("awkward address, worst", false, &|it| it.ratio_awkward.max),
        series("random address, worst", false, &|it| it.ratio.max),
        series("mended function, worst", false, &|it| it.ratio_mended.max),
        series("ideal", true, &|_| 1.0),
    ];
    let axes = Axes {
        x_title: "table bits: logarithm of the number of buckets",
        y_title: "cost to find an inode, 1 = ideal",
        is_whole: true,
    };
    let title = format!("Addresses of superblocks, with the inodes of {}", shown(&most.name));
    let worst =
        most.superblocks.iter().max_by(|one, other| one.ratio.max.total_cmp(&other.ratio.max))?;
    let summary = format!(
        "The address alone decides: of {} random ones, the worst costs {} times the ideal at 2^{} buckets.",
        grouped(worst.address_count),
        fixed(worst.ratio.max, 2),
        worst.bucket_count.ilog2()
    );
    Some(figure("superblocks".to_owned(), &title, summary, &lines, axes))
}

/// Returns what addresses of superblocks do, on each trace with enough inode lookups.
fn superblock_table(traces: &[&TraceReplay]) -> Option<Block> {
    let rows = traces.iter().flat_map(|trace| trace.superblocks.iter().map(move |it| (trace, it)));
    let mut table =
        Table::new("Cost to find an inode in units of the ideal, by the superblock's address")
            .words(["trace"])
            .numbers([
                "buckets",
                "addresses",
                "over 1.1",
                "over 1.5",
                "worst",
                "awkward",
                "mended",
            ]);
    for (trace, it) in rows {
        table.push(cells![
            shown(&trace.name),
            it.bucket_count,
            it.address_count,
            percent(it.share_over_1_1),
            percent(it.share_over_1_5),
            fixed(it.ratio.max, 3),
            fixed(it.ratio_awkward.max, 3),
            fixed(it.ratio_mended.max, 3),
        ]);
    }
    let summary = "Addresses of superblocks at every size";
    (!table.is_empty()).then(|| Fold::closed(summary, Block::Table(table)))
}

fn attacks(caption: &str, attacks: &[&NameAttack]) -> Table {
    let mut table = Table::new(caption)
        .words(["names", "known to their maker"])
        .words(["function"])
        .numbers(["buckets", "visited", "ideal", "fullest"])
        .numbers(["ideal"])
        .wide();
    for attack in attacks {
        let visited = visits(attack.visited.max);
        let is_bad = attack.visited.max > RATIO_MAX * attack.visited_ideal;
        table.push(cells![
            attack.names.clone(),
            attack.salt.clone(),
            Line::code(attack.hash.clone()),
            attack.bucket_count,
            Cell::ordered(
                attack.visited.max,
                if is_bad { Line::alarm(visited) } else { visited.into() }
            ),
            visits(attack.visited_ideal),
            attack.largest,
            fixed(attack.largest_ideal, 1),
        ]);
    }
    table
}
