//! Limits that were set, and whether they hold.

use super::number::grouped;
use crate::document::{Block, Line, Table, cells};
use crate::study::{Bound, Gate};

/// Returns how many hold, and a table for each measurement.
pub(super) fn section(gates: &[Gate]) -> Vec<Block> {
    let missed = gates.iter().filter(|gate| !gate.is_met).count();
    let lead = match missed {
        0 => format!("Limits that hold: {0} of {0}.", gates.len()),
        _ => format!("Limits that are missed: {missed} of {}.", gates.len()),
    };
    let mut blocks = vec![Block::Lead(lead.into())];
    for gates in gates.chunk_by(|one, other| one.subject == other.subject) {
        let mut table = Table::new(gates[0].subject.as_str())
            .words(["limit", "figure"])
            .numbers(["measured"])
            .words(["asked for"]);
        for Gate { figure, bound, limit, measured, is_met, .. } in gates {
            let word = if *is_met { Line::from("met") } else { Line::strong("MISSED") };
            let bound = match bound {
                Bound::AtMost => "at most",
                Bound::AtLeast => "at least",
            };
            let limit = format!("{bound} {}", shown(*limit));
            table.push(cells![word, figure.as_str(), shown(*measured), limit]);
        }
        blocks.push(Block::Table(table));
    }
    blocks
}

/// Shows counts as such, shares and ratios with what matters of them.
fn shown(figure: f64) -> String {
    if figure.fract() == 0.0 && (0.0..1e15).contains(&figure) {
        grouped(figure as u64)
    } else if figure >= 0.001 {
        format!("{figure:.4}")
    } else {
        format!("{figure:.0e}")
    }
}
