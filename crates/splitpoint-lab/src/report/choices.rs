//! The choices, with the arguments against each.

use std::collections::HashSet;

use super::number::{fixed, grouped, ratio};
use crate::document::{Block, Cell, Fold, Line, Table, cells, shown};
use crate::study::{Choice, Study};

/// Functions that are shown at once.
const SHOWN: usize = 16;

/// Returns why to take one, and the table of what to choose from.
pub(super) fn section(study: &Study) -> Vec<Block> {
    let mut seen = HashSet::new();
    let best: Vec<&Choice> =
        study.choices.iter().filter(|choice| seen.insert(&choice.hash)).collect();
    let (first, rest) = best.split_at(best.len().min(SHOWN));
    let caption = "What a lookup costs: those that fit, cheapest first, then the others; each \
                   function by its best reduction";
    let mut blocks = vec![
        Block::List("", study.reasons().iter().map(|words| Line::sentence(words)).collect()),
        Block::Table(table(caption, first)),
        Block::Prose(
            Line::from(
                "A lookup computes the hash and loads the lines of the table that it has \
                        to look at: ",
            )
            .then(Line::code("lookup = hash + lines x time of a line"))
            .then(
                ". The cost is that of the distribution, 1 is ideal, at the worst size and \
                       seed.",
            ),
        ),
    ];
    if best.len() < study.choices.len() || !rest.is_empty() {
        let all: Vec<&Choice> = study.choices.iter().collect();
        let summary = format!("All {} functions with every reduction", best.len());
        let all =
            table("What a lookup costs: those that fit, cheapest first, then the others", &all);
        blocks.push(Fold::closed(summary, Block::Table(all)));
    }
    blocks
}

fn table(caption: &str, choices: &[&Choice]) -> Table {
    let mut table = Table::new(caption)
        .sortable()
        .words(["function", "reduction"])
        .numbers(["lookup, ns", "hash, ns", "lines", "line, ns"])
        .wide()
        .numbers(["cost", "buckets"])
        .wide()
        .words(["verdict", "caution"])
        .wide();
    for choice in choices {
        table.push(cells![
            choice.hash.as_str(),
            choice.reduction.as_str(),
            Cell::ordered(choice.lookup_ns, fixed(choice.lookup_ns, 1)),
            if choice.is_timed {
                Cell::ordered(choice.hash_ns, fixed(choice.hash_ns, 2))
            } else {
                Cell::ordered(f64::MAX, "?")
            },
            Cell::ordered(choice.line_count, fixed(choice.line_count, 3)),
            Cell::ordered(choice.line_ns, fixed(choice.line_ns, 1)),
            Cell::ordered(choice.cost_ratio, ratio(choice.cost_ratio)),
            Cell::ordered(choice.bucket_count as f64, grouped(choice.bucket_count)),
            Line::from(choice.grade()),
            shown(&choice.caution),
        ]);
    }
    table
}
