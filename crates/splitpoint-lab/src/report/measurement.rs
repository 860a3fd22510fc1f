//! One measurement in depth: the picture of the buckets, the costs, the statistics.

use super::entry::Entry;
use super::number::{counted, expected, fixed, grouped, percent, probability, significant};
use super::verdict::blame_and_advice;
use super::{bars, curve, strip};
use crate::document::{Block, Cell, Fold, Line, Table, cells, shown};
use crate::measure::Report;
use crate::probing::Method;

/// Measurements that are shown in depth.
const REPORTS_MAX: usize = 80;

/// Returns the section: for each entry its worst measurement, the worst first.
pub(super) fn section(entries: &[Entry<'_>], report_count: usize) -> Vec<Block> {
    let mut worst_first: Vec<&Report> = entries.iter().rev().map(Entry::worst).collect();
    worst_first.truncate(REPORTS_MAX);
    if let (1, [report]) = (report_count, worst_first.as_slice()) {
        // The verdict has its picture.
        return body("r0", report, false);
    }
    let mut blocks = Vec::new();
    if worst_first.len() < report_count {
        let note = format!(
            "Of {} measurements these are {}: of each function and reduction the one by which it \
             is judged. The saved study has the others.",
            grouped(report_count as u64),
            worst_first.len()
        );
        blocks.push(Block::Prose(note.into()));
    }
    blocks.extend(worst_first.into_iter().enumerate().map(|(index, report)| {
        let words = &report.words;
        let mut blocks = Vec::new();
        if !words.verdict.is_empty() {
            blocks.push(Block::Prose(Line::sentence(&words.verdict)));
        }
        blocks.extend(blame_and_advice(words));
        blocks.extend(body(&format!("r{index}"), report, true));
        Block::Fold(Fold { summary: heading(report), is_headed: true, is_open: index == 0, blocks })
    }));
    blocks
}

fn heading(report: &Report) -> Line {
    let measured = format!(
        "{}, seed {}, cost {} ",
        counted(report.bucket_count, "bucket"),
        report.seed,
        fixed(report.cost_ratio, 3)
    );
    Line::from(format!("{}, {} ", report.hash, report.reduction))
        .then(Line::faint(measured))
        .then(report.verdict.grade())
}

fn body(id: &str, report: &Report, has_sizes: bool) -> Vec<Block> {
    let facts = vec![
        ("hash", format!("{} (seed {})", report.hash, report.seed).into()),
        ("reduction", report.reduction.as_str().into()),
        (
            "buckets",
            format!(
                "{}, {} used ({})",
                grouped(report.bucket_count),
                grouped(report.used_count),
                percent(report.utilization)
            )
            .into(),
        ),
    ];
    let figures = [
        has_sizes.then(|| bars::figure(id, report)),
        curve::figure(id, report),
        strip::figure(id, report),
    ];
    let tables = [
        equal_hashes(report),
        alternatives(report),
        probing(report),
        pages(report),
        lookups(report),
    ];
    let mut blocks = vec![
        Block::Facts(facts),
        Block::Figures(figures.into_iter().flatten().collect()),
        Block::Pair(vec![costs(report), percentiles(report)]),
        Block::Table(statistics(report)),
    ];
    blocks.extend(shared_hashes(report));
    blocks.extend(bits(report));
    blocks.extend(tables.into_iter().filter(|table| !table.is_empty()).map(Block::Table));
    blocks.extend(probing_notes(report));
    blocks
}

/// The same hashes in other tables of about the size.
fn alternatives(report: &Report) -> Table {
    let mut table = Table::new("The same hashes by other reductions");
    table = table.words(["reduction"]).numbers(["buckets", "cost"]).words(["verdict"]);
    for other in &report.alternatives {
        table.push(cells![
            other.reduction.as_str(),
            other.bucket_count,
            fixed(other.cost_ratio, 3),
            other.verdict.grade(),
        ]);
    }
    table
}

/// Open addressing with the real keys.
fn probing(report: &Report) -> Table {
    let mut table = Table::new("Open addressing: slots or groups looked at")
        .words(["method"])
        .numbers(["hit", "ideal", "miss", "ideal", "slots", "load"]);
    for found in &report.probing {
        let means = |means: [f64; 4]| means.map(|mean| Cell::from(fixed(mean, 3)));
        let load = found.inserted_count as f64 / found.slot_count as f64;
        let row = [Cell::from(probing_name(found.method))]
            .into_iter()
            .chain(means([found.hit, found.hit_ideal, found.miss, found.miss_ideal]))
            .chain(cells![found.slot_count, fixed(load, 3)]);
        table.push(row);
        if let Some(tags) = found.false_tags.filter(|_| has_tags(report)) {
            let row = [Cell::from("  equal tags of other keys")]
                .into_iter()
                .chain(means([tags.hit, tags.hit_ideal, tags.miss, tags.miss_ideal]))
                .chain(cells!["", ""]);
            table.push(row);
        }
    }
    table
}

fn probing_name(method: Method) -> &'static str {
    match method {
        Method::Linear => "linear probing",
        Method::Double => "double hashing",
        Method::Group => "groups of 16 slots",
    }
}

/// Returns whether the hash reaches the tags of hashbrown, the top 7 of 64 bits.
fn has_tags(report: &Report) -> bool {
    report.width_bits > 64 - 7
}

/// Notes on open addressing: methods that gave up, tags that are all alike.
fn probing_notes(report: &Report) -> Option<Block> {
    let unfinished = report.probing.iter().filter(|found| found.inserted_count < report.key_count);
    let mut notes: Vec<Line> = unfinished
        .map(|found| {
            let inserted = counted(found.inserted_count, "key");
            let name = probing_name(found.method);
            format!("{name}: given up after {inserted}; all of them would cost more still").into()
        })
        .collect();
    if !has_tags(report) && report.probing.iter().any(|found| found.false_tags.is_some()) {
        notes.push(
            format!(
                "Groups of 16 slots take a tag from the top 7 of 64 bits, as in hashbrown, and a \
                 hash of {} bits leaves all tags alike: mix it to 64 bits before you use it there.",
                report.width_bits
            )
            .into(),
        );
    }
    (!notes.is_empty()).then_some(Block::List("", notes))
}

/// Page reads per lookup if each bucket is a page.
fn pages(report: &Report) -> Table {
    let mut table = Table::new("Buckets as pages: reads per lookup").numbers([
        "slots of a page",
        "hit",
        "ideal",
        "miss",
        "ideal",
        "overflow",
        "ideal",
    ]);
    for page in &report.pages {
        let reads = [page.reads_hit, page.reads_hit_ideal, page.reads_miss, page.reads_miss_ideal];
        let shares = [page.overflow_share, page.overflow_share_ideal];
        let cells = reads.map(|reads| fixed(reads, 3)).into_iter().chain(shares.map(percent));
        table.push([Cell::from(page.slots)].into_iter().chain(cells.map(Cell::from)));
    }
    table
}

/// The lookups of a trace.
fn lookups(report: &Report) -> Table {
    let Some(cost) = report.lookups else { return Table::new("") };
    let caption = format!(
        "Lookups of the trace: {} of keys that are there, {} of others",
        grouped(cost.hit_count),
        grouped(cost.miss_count)
    );
    let mut table = Table::new(caption).words([""]).numbers(["measured", "ideal"]);
    for (name, measured, ideal) in [
        ("keys looked at, hit", cost.probes_hit, cost.probes_hit_ideal),
        ("keys looked at, miss", cost.probes_miss, cost.probes_miss_ideal),
        ("keys looked at, all", cost.probes, cost.probes_ideal),
        ("cost", cost.cost_ratio, 1.0),
    ] {
        table.push(cells![name, fixed(measured, 3), fixed(ideal, 3)]);
    }
    for (name, keys) in [
        ("keys of a lookup's bucket, p50", cost.percentiles.p50),
        ("keys of a lookup's bucket, p90", cost.percentiles.p90),
        ("keys of a lookup's bucket, p99", cost.percentiles.p99),
    ] {
        table.push(cells![name, keys, "-"]);
    }
    table
}

/// Lookups, the fullest bucket and the buckets used, beside the ideal.
fn costs(report: &Report) -> Table {
    let mut table = Table::new("What it costs, beside the ideal")
        .words([""])
        .numbers(["measured", "ideal", "ratio"]);
    let (keys, used) = (report.key_count as f64, report.used_count as f64);
    for (name, measured, ideal, decimals) in [
        ("keys looked at, hit", report.probes_hit, report.probes_hit_ideal, 3),
        ("keys looked at, miss", report.probes_miss, report.probes_miss_ideal, 3),
        ("keys in the fullest bucket", report.longest as f64, report.longest_ideal, 0),
        ("buckets used", used, report.used_ideal, 0),
        ("dupes: keys not the first of a bucket", keys - used, keys - report.used_ideal, 0),
    ] {
        let ratio = if ideal > 0.0 { fixed(measured / ideal, 3) } else { "-".to_string() };
        let ideal = if decimals == 0 { expected(ideal) } else { fixed(ideal, decimals) };
        table.push(cells![name, fixed(measured, decimals), ideal, ratio]);
    }
    table
}

/// Keys per bucket at percentiles, counted by bucket and by key.
fn percentiles(report: &Report) -> Table {
    let mut table = Table::new("Keys per bucket at percentiles, by nearest rank")
        .words(["each counts once"])
        .numbers(["p50", "p90", "p99"]);
    for (name, found) in
        [("bucket that holds a key", report.bucket_percentiles), ("key", report.item_percentiles)]
    {
        table.push(cells![name, found.p50, found.p90, found.p99]);
    }
    table
}

/// The tests, and how likely their results are with an ideal hash.
fn statistics(report: &Report) -> Table {
    let caption = format!(
        "{} on this table; p is the probability of as much or more with an ideal hash",
        counted(report.test_count.into(), "test")
    );
    let mut table = Table::new(caption).words(["test", "found"]).numbers(["p"]);
    let mut push = |test: &str, found: String, p: f64| {
        table.push(cells![test, found, Cell::ordered(p, probability(p))]);
    };
    let chi_square = report.chi_square.map_or("too few keys or buckets".to_string(), |test| {
        format!("{}, {} degrees, z {:+.2}", expected(test.value), expected(test.dof), test.z)
    });
    push("spread: chi-square", chi_square, report.spread_p);
    push("evenness", "the other side of chi-square".to_string(), report.even_p);
    if let Some(test) = report.fit {
        let found = format!("{}, {} degrees", significant(test.value), fixed(test.dof, 0));
        push("sizes: fit to the ideal", found, test.p);
    }
    let longest = counted(report.longest, "key");
    let found = format!("{longest}, ideal {}", fixed(report.longest_ideal, 1));
    push("fullest bucket", found, report.longest_p);
    for collisions in &report.collisions {
        let pairs = counted(collisions.pair_count, "pair");
        let mut found = format!("{pairs}, ideal {}", significant(collisions.pair_count_ideal));
        if collisions.sampling > 0 {
            let stands_for = grouped(1 << collisions.sampling.min(63));
            found =
                format!("{found}; each stands for {stands_for}, as so many hashes were sampled");
        }
        let name = format!("equal hashes, {} bits", collisions.window);
        push(&name, found, collisions.p);
    }
    if let Some(pair) = report.worst_pair {
        let [low, high] = pair.bits;
        let found = format!("bits {low} and {high}, correlation {:+.4}", pair.phi);
        push("worst pair of bits", found, pair.p);
    }
    if let Some(bit) = report.worst_bit {
        let found = format!("bit {}, set in {} of the hashes", bit.bit, percent(bit.ones));
        push("worst bit", found, bit.p);
    }
    table
}

/// Examples of keys that share a hash.
fn equal_hashes(report: &Report) -> Table {
    let mut table = Table::new("Keys with equal hashes, the lowest hashes first")
        .words(["hash", "some of its keys"]);
    for equal in report.collisions.iter().flat_map(|collisions| &collisions.examples) {
        let key = |(index, key): (usize, &String)| {
            Line::from(if index == 0 { "" } else { ", " }).then(Line::code(shown(key)))
        };
        let keys = equal.keys.iter().enumerate().map(key).fold(Line::default(), Line::then);
        table.push(cells![format!("{:#x}", equal.hash), keys]);
    }
    table
}

/// Hashes that keys share, where no keys are known as examples. A row of the tests has no room for them.
fn shared_hashes(report: &Report) -> impl Iterator<Item = Block> {
    let found = report.collisions.iter();
    found.filter(|it| !it.shared.is_empty() && it.examples.is_empty()).map(|collisions| {
        let shared: Vec<String> =
            collisions.shared.iter().map(|value| format!("{value:#x}")).collect();
        let words = format!("Hashes that keys share, {} bits: ", collisions.window);
        Block::Prose(Line::from(words).then(Line::code(shared.join(", "))))
    })
}

/// Bits that no key or every key sets.
fn bits(report: &Report) -> impl Iterator<Item = Block> {
    let found = [("never", report.bits_never_set), ("always", report.bits_always_set)];
    found.into_iter().filter(|(_, bits)| *bits != 0).map(|(name, bits)| {
        let count = counted(bits.count_ones().into(), "bit");
        let words = format!("{count} of the hash {name} set: ");
        Block::Prose(Line::from(words).then(Line::code(format!("{bits:#x}"))))
    })
}
