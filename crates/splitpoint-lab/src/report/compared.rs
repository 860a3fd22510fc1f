//! The differences between two functions, or between two studies.

use super::number::{counted, fixed, probability, ratio};
use crate::compare::CHANCE_P;
use crate::document::{Block, Cell, Line, Table, cells};
use crate::measure::{FAILURE_BITS, Report};
use crate::study::{Difference, Study};

/// Returns the conclusion from the differences, and a table of them for each subject.
pub(super) fn section(study: &Study) -> Vec<Block> {
    let names: Vec<&str> = study.reports.iter().map(|report| &*report.hash).collect();
    let differences = &study.differences;
    let is_of_two = differences.first().is_some_and(|first| first.subject.is_empty());
    let mut blocks = Vec::new();
    let sides = match names.as_slice() {
        [left, right] if is_of_two => {
            blocks.push(Block::List("", conclusion(left, right, differences)));
            let measured = ["first", "second"].into_iter().zip(&study.reports);
            blocks.push(Block::Facts(measured.map(|(side, it)| (side, in_words(it))).collect()));
            [*left, *right]
        }
        _ => {
            blocks.push(Block::Lead(changes(differences).into()));
            ["older", "newer"]
        }
    };
    let all: Vec<&Difference> =
        differences.iter().filter(|one| is_of_two || one.differs()).collect();
    for group in all.chunk_by(|one, other| one.subject == other.subject) {
        blocks.push(Block::Table(table(sides, group)));
    }
    if !all.is_empty() {
        let words = format!(
            "p: how often chance makes so large a difference. A star: below 2^-{FAILURE_BITS}, as in \
             all verdicts; of times, which are tested by the ranks of their runs, below {CHANCE_P}."
        );
        blocks.push(Block::Prose(words.into()));
    }
    blocks
}

fn in_words(report: &Report) -> Line {
    let Report { hash, reduction, bucket_count, seed, verdict, .. } = report;
    let buckets = counted(*bucket_count, "bucket");
    Line::from(format!("{hash}, {reduction}, {buckets}, seed {seed}: ")).then(verdict.grade())
}

fn changes(differences: &[Difference]) -> String {
    let changed = differences.iter().filter(|one| one.differs()).count();
    let beyond = differences.iter().filter(|one| one.is_beyond_chance()).count();
    match (changed, differences.len()) {
        (0, all) => format!("No figure differs, of {all}."),
        (changed, all) => {
            format!("{changed} of {all} figures differ, {beyond} by more than chance.")
        }
    }
}

/// Says which of the two is the better one, and in what.
fn conclusion(left: &str, right: &str, differences: &[Difference]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (what, figure) in [("distribution", "cost of a hit"), ("time", "latency, ns")] {
        let Some(found) = differences.iter().find(|one| one.figure == figure) else { continue };
        if !found.is_beyond_chance() {
            lines.push(format!("{what}: no difference that chance does not explain").into());
            continue;
        }
        let (name, better, worse) = if found.left < found.right {
            (left, found.left, found.right)
        } else {
            (right, found.right, found.left)
        };
        let times = if better > found.resolution() {
            format!(", x{:.2}", worse / better)
        } else {
            String::new()
        };
        let line = Line::from(format!("{what}: ")).then(Line::strong(name));
        let threshold = if found.resolution() > 0.0 {
            CHANCE_P.to_string()
        } else {
            format!("2^-{FAILURE_BITS}")
        };
        lines.push(line.then(format!(" is better{times} (p below {threshold})")));
    }
    lines
}

/// Returns the differences with a column for each side.
fn table(sides: [&str; 2], differences: &[&Difference]) -> Table {
    let subject = differences[0].subject.as_str();
    let subject = if subject.is_empty() { "In the table" } else { subject };
    let mut table = Table::new(subject)
        .words(["figure"])
        .numbers(sides.map(str::to_string))
        .numbers(["ideal", "ratio", "p"]);
    for difference in differences {
        let Difference { figure, left, right, ideal, p, .. } = *difference;
        let star = if difference.is_beyond_chance() { "*" } else { "\u{a0}" };
        let resolution = difference.resolution();
        let side = |side: f64| {
            if resolution > 0.0 && side < resolution {
                format!("< {resolution}")
            } else {
                shown(side)
            }
        };
        let is_told = left.min(*right) > resolution;
        let times = if is_told { ratio(right / left) } else { "-".to_string() };
        table.push(cells![
            figure.as_str(),
            side(*left),
            side(*right),
            ideal.map_or_else(|| "-".to_owned(), shown),
            times,
            p.map_or_else(|| Cell::from("-\u{a0}"), |p| format!("{}{star}", probability(p)).into()),
        ]);
    }
    table
}

fn shown(figure: f64) -> String {
    fixed(figure, if figure.abs() >= 1000.0 { 0 } else { 3 })
}
