//! The verdict in words: what to do, before any number.

use std::collections::BTreeSet;

use super::bars;
use super::entry::{self, Entry};
use super::evidence;
use super::number::{counted, fixed, grouped, percent};
use crate::document::{Block, Line, shown};
use crate::measure::{FAILURE_BITS, Grade, Report, Words};
use crate::study::Study;

/// Names that are listed before the rest are counted.
const NAMES_MAX: usize = 6;

/// Returns the verdict on a study.
pub(super) fn section(study: &Study, entries: &[Entry<'_>]) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(interruption) = &study.interruption {
        blocks.push(Block::Warning(Line::strong("Stopped before its end. ").then(format!(
            "{} had been counted. Missing: {}",
            counted(interruption.key_count, "key"),
            shown(&interruption.missing)
        ))));
    }
    if let Some(choice) = study.recommended() {
        let why = if choice.is_sound() {
            ", the cheapest that fits at every size and seed tried"
        } else {
            ", the cheapest, though none fits at every size and seed tried"
        };
        let mut lead = Line::from("Take ")
            .then(Line::strong(choice.hash.as_str()))
            .then(" with the reduction ")
            .then(Line::strong(choice.reduction.as_str()))
            .then(why)
            .then(format!(
                ": a lookup takes about {} ns on this machine, {} ns of them for the hash.",
                fixed(choice.lookup_ns, 1),
                fixed(choice.hash_ns, 1)
            ));
        if !choice.caution.is_empty() {
            lead = lead.then(format!(" But note: {}.", shown(&choice.caution)));
        }
        blocks.push(Block::Lead(lead));
    }
    match entries {
        [] => {}
        [entry] => of_one(entry, &mut blocks),
        // What was compared comes to more than this.
        _ if !study.differences.is_empty() => {}
        _ => {
            let words = words_of_several(study, entries);
            blocks.push(Block::Beside(words, Box::new(evidence::figure(entries))));
        }
    }
    let has_too_few = study.reports.iter().all(Report::has_too_few_keys);
    let most = study.reports.iter().max_by_key(|report| report.key_count);
    if let Some(most) = most.filter(|_| has_too_few) {
        blocks.push(Block::Warning(Line::from(format!(
            "{} in {} cannot show that a function is bad: even if all were in one bucket, chance \
             would explain it. Measure more keys.",
            counted(most.key_count, "key"),
            counted(most.bucket_count, "bucket")
        ))));
    }
    let count = study.keys.carriage_return_count;
    if count > 0 {
        blocks.push(Block::Warning(Line::from(format!(
            "{} ended in a carriage return, as lines of DOS files do, and it was hashed with the \
             rest. If your program strips it, strip it here too and measure again.",
            counted(count, "key")
        ))));
    }
    blocks
}

/// What is to blame and what to do.
pub(super) fn blame_and_advice(words: &Words) -> impl Iterator<Item = Block> {
    let parts = [("To blame", &words.blame), ("What to do", &words.advice)];
    parts.into_iter().filter(|(_, sentences)| !sentences.is_empty()).map(|(title, sentences)| {
        Block::List(title, sentences.iter().map(|words| Line::sentence(words)).collect())
    })
}

/// The words on one function. If it was measured in one table, the sizes of its buckets beside them.
fn of_one(entry: &Entry<'_>, blocks: &mut Vec<Block>) {
    let words = words_of_one(entry);
    match entry.reports.as_slice() {
        [report] => blocks.push(Block::Beside(words, Box::new(bars::figure("r0", report)))),
        _ => blocks.extend(words),
    }
}

fn words_of_one(entry: &Entry<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let (worst, grade, total) = (entry.worst(), entry.grade(), entry.reports.len());
    let says = match grade {
        Grade::Fits => "fits these keys.",
        Grade::Structured if worst.is_too_even() => {
            "spreads these keys more evenly than chance. Do not rely on it."
        }
        Grade::Structured => {
            "is no worse than random on these keys, but not random. Do not rely on it."
        }
        Grade::Slight => "is worse than random on these keys, but not by much.",
        Grade::Worse => "does not fit these keys. Use another.",
    };
    let name = Line::strong(entry.name());
    blocks.push(Block::Lead(Line::from(grade).then(": ").then(name).then(format!(" {says}"))));
    if total > 1 {
        blocks.push(Block::Prose(Line::from(format!(
            "It is judged by the worst of {total} tables, and {} of them have this verdict.",
            entry.count(grade)
        ))));
    }
    let words = worst.put_into_words();
    let verdict = words.verdict.trim_start_matches("fits: ");
    blocks.push(Block::Prose(Line::sentence(verdict).then(format!(
        " Below p = 2^-{FAILURE_BITS}, about one in a million, chance is ruled out."
    ))));
    if worst.reachable_count < worst.bucket_count {
        blocks.push(Block::Warning(Line::from(format!(
            "Whatever the keys, this reduction of {} bits reaches {} of {} buckets ({}).",
            worst.width_bits,
            grouped(worst.reachable_count),
            grouped(worst.bucket_count),
            percent(worst.reachable_count as f64 / worst.bucket_count as f64)
        ))));
    }
    blocks.extend(blame_and_advice(&words));
    blocks
}

fn words_of_several(study: &Study, entries: &[Entry<'_>]) -> Vec<Block> {
    let mut blocks = Vec::new();
    if study.choices.is_empty() {
        blocks.push(Block::Lead(headline(entries).into()));
    }
    let mut groups = Vec::new();
    let fits_count = entries.iter().filter(|entry| entry.grade() == Grade::Fits).count();
    let by_speed = if fits_count > 1 { by_speed(study, entries) } else { String::new() };
    for (grade, words, advice) in [
        (Grade::Fits, format!("these keys {}:", tables(entries)), by_speed),
        (
            Grade::Structured,
            "no worse than chance, but not random:".to_string(),
            "A structure of the keys shows in the hashes; other keys may fare worse.".to_string(),
        ),
        (
            Grade::Slight,
            "worse than chance allows, but a hit hardly costs more:".to_string(),
            "Other keys may fare worse.".to_string(),
        ),
        (
            Grade::Worse,
            "worse than chance allows, and a hit costs more:".to_string(),
            "Use another for these keys.".to_string(),
        ),
    ] {
        let of_grade = entries.iter().filter(|entry| entry.grade() == grade);
        let mut names: Vec<String> = of_grade.map(|entry| name(entry, grade)).collect();
        if grade.is_worse() {
            names.reverse();
        }
        if !names.is_empty() {
            let verb = match (grade, names.len()) {
                (Grade::Fits, 1) => "fits",
                (Grade::Fits, _) => "fit",
                (_, 1) => "is",
                _ => "are",
            };
            let count = Line::strong(format!("{} of {}", names.len(), entries.len()));
            let count = count.then(format!(" {verb} "));
            let mut line = count.then(words).then(" ").then(Line::faint(listed(&names)));
            if !advice.is_empty() {
                line = line.then(format!(". {advice}"));
            }
            groups.push((grade, line));
        }
    }
    blocks.push(Block::Grades(groups));
    blocks.push(Block::Prose(threshold(study.reports.len() as u64).into()));
    blocks
}

/// Says by what the words are given, and how often chance alone gives another than fits.
fn threshold(table_count: u64) -> String {
    let one_in = 2_f64.powf(FAILURE_BITS) / (2.0 * table_count.max(1) as f64);
    format!(
        "A verdict other than fits means p < 2^-{FAILURE_BITS}, about one in a million: chance is \
         ruled out. With {}, an ideal hash still gets such a verdict in 1 of {} runs.",
        counted(table_count, "table"),
        grouped(one_in as u64)
    )
}

/// Says which of those that fit are the fastest, if they were timed.
fn by_speed(study: &Study, entries: &[Entry<'_>]) -> String {
    let places = entry::places(study, entries);
    let first = places.iter().filter(|(_, place)| place.number == 1);
    let mut names: Vec<&str> = first.map(|(hash, _)| *hash).collect();
    names.sort_unstable();
    match names.as_slice() {
        [] => "Choose by speed.".to_string(),
        [only] => format!("The fastest here is {only}."),
        _ => format!("The fastest here, equally fast, are {}.", names.join(", ")),
    }
}

fn name(entry: &Entry<'_>, grade: Grade) -> String {
    if grade.is_worse() {
        format!("{} (x{})", entry.name(), fixed(entry.worst().cost_ratio, 2))
    } else {
        entry.name()
    }
}

/// Says of which tables the verdicts are: no function may have been measured at all sizes.
fn tables(entries: &[Entry<'_>]) -> String {
    let most = |count: fn(&Entry<'_>) -> usize| entries.iter().map(count).max().unwrap_or(0);
    let sizes = most(|entry| entry.by_size().len());
    let seeds = most(|entry| entry.reports.len() / entry.by_size().len().max(1));
    let all: BTreeSet<u64> = entries.iter().flat_map(|entry| entry.by_size().into_keys()).collect();
    match (sizes, seeds) {
        (..=1, ..=1) if all.len() > 1 => "in tables of the size that each needs".to_string(),
        (..=1, ..=1) => "in this table".to_string(),
        (_, ..=1) => "at every size tried".to_string(),
        (..=1, _) => format!("with all of {seeds} seeds"),
        _ => format!("at every size tried, with all of {seeds} seeds"),
    }
}

fn headline(entries: &[Entry<'_>]) -> String {
    let fits = entries.iter().filter(|entry| entry.grade() == Grade::Fits).count();
    match (fits, entries.len()) {
        (0, _) => "None of these fits the keys at every size and seed.".to_string(),
        (fits, total) if fits == total => {
            "All of these fit the keys: each is indistinguishable from an ideal hash.".to_string()
        }
        (fits, total) => {
            let verb = if fits == 1 { "fits" } else { "fit" };
            let others = if total - fits == 1 { "1 does" } else { &format!("{} do", total - fits) };
            format!("{fits} of {total} {verb} the keys, and {others} not.")
        }
    }
}

fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMES_MAX)].join("; ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}
