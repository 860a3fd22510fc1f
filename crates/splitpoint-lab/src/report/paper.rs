//! A paper, number by number.

use super::kernel_tables::page;
use crate::document::{Block, Document, Line, Table, cells};
use crate::golden::Slip;
use crate::paper::{Finding, Mark, PaperReport};

/// The marks, in the order of their counts.
const MARKS: [Mark; 4] = [Mark::Exact, Mark::InShape, Mark::DidNotHold, Mark::NotReproducible];

/// Returns the document of `lab paper`.
pub fn paper(report: &PaperReport) -> Document {
    let counts: Vec<String> = MARKS
        .iter()
        .map(|&mark| (report.count(mark), mark.words()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    let lead = Line::from(format!("{} numbers: {}.", report.findings.len(), counts.join(", ")));
    let mut blocks = vec![Block::Lead(lead)];
    for part in report.findings.chunk_by(|one, other| one.part == other.part) {
        blocks.push(Block::Table(findings_table(part)));
        let notes = notes(part);
        if !notes.is_empty() {
            blocks.push(Block::List("", notes));
        }
    }
    let mut sections = vec![("numbers", "Numbers", blocks)];
    if !report.slips.is_empty() {
        sections.push(("slips", "Mistakes in the text", vec![slips_list(&report.slips)]));
    }
    page(report.paper, format!("beside {}", report.subject), sections)
}

/// Returns mistakes with their arithmetic.
pub(super) fn slips_list(slips: &[Slip]) -> Block {
    let slip = |it: &Slip| Line::strong(&*it.printed).then(format!(": {}", it.evidence));
    Block::List("", slips.iter().map(slip).collect())
}

/// Returns the numbers of one part.
pub(super) fn findings_table(findings: &[Finding]) -> Table {
    let mut table = Table::new(findings[0].part).words(["number of", "published", "here", "mark"]);
    for it in findings {
        let mark = match it.mark {
            Mark::DidNotHold => Line::alarm(it.mark.words()),
            mark => mark.words().into(),
        };
        table.push(cells![it.item.as_str(), it.published.as_str(), it.ours.as_str(), mark]);
    }
    table
}

/// Returns each note once, with the numbers that it is about.
pub(super) fn notes(part: &[Finding]) -> Vec<Line> {
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for it in part.iter().filter(|it| !it.note.is_empty()) {
        match notes.iter_mut().find(|(note, _)| *note == it.note) {
            Some((_, items)) => items.push(&it.item),
            None => notes.push((&it.note, vec![&it.item])),
        }
    }
    notes.into_iter().map(|(note, items)| format!("{}: {note}", items.join("; ")).into()).collect()
}
