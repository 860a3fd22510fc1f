//! The limits of `lab gate`, and which of them are met.

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
            .words(["result", "figure"])
            .numbers(["measured"])
            .words(["limit"]);
        for Gate { figure, bound, limit, measured, is_met, .. } in gates {
            let word = if *is_met { Line::from("met") } else { Line::strong("MISSED") };
            let bound = match bound {
                Bound::AtMost => "at most",
                Bound::AtLeast => "at least",
            };
            let [measured, limit] = shown_apart(*measured, *limit);
            table.push(cells![word, figure.as_str(), measured, format!("{bound} {limit}")]);
        }
        blocks.push(Block::Table(table));
    }
    blocks
}

/// Shows two figures with as many digits as it takes to tell them apart.
#[expect(clippy::float_cmp, reason = "only equal numbers may look equal")]
fn shown_apart(measured: f64, limit: f64) -> [String; 2] {
    if measured == limit {
        return [shown(measured, 0), shown(limit, 0)];
    }
    let value = |figure, more_digits| rounded(figure, more_digits).parse::<f64>();
    let is_apart = |&more: &usize| value(measured, more) != value(limit, more);
    match (0..=MORE_DIGITS_MAX).find(is_apart) {
        Some(more_digits) => [measured, limit].map(|figure| shown(figure, more_digits)),
        // The shortest text that reads back as the same number.
        None => [measured, limit].map(|figure| figure.to_string()),
    }
}

/// Digits that [`shown_apart`] adds at most.
const MORE_DIGITS_MAX: usize = 11;

/// Shows counts as such, shares and ratios rounded.
fn shown(figure: f64, more_digits: usize) -> String {
    if figure.fract() == 0.0 && (0.0..1e15).contains(&figure) {
        grouped(figure as u64)
    } else {
        rounded(figure, more_digits)
    }
}

/// Rounds to 4 decimals, or to 1 digit where 4 decimals show too little of it.
fn rounded(figure: f64, more_digits: usize) -> String {
    if figure >= 0.001 {
        format!("{figure:.0$}", 4 + more_digits)
    } else {
        format!("{figure:.more_digits$e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_never_shows_the_limit_as_measured() {
        for (measured, limit, expected) in [
            (1.2, 1.05, ["1.2000", "1.0500"]),
            (1.050_04, 1.05, ["1.05004", "1.05000"]),
            (1.000_000_4, 1.0, ["1.0000004", "1"]),
            (0.000_14, 0.0001, ["1.4e-4", "1.0e-4"]),
            (0.000_999_9, 0.001, ["9.999e-4", "0.0010000"]),
            (39_000.0, 0.0, ["39,000", "0"]),
            (1.05, 1.05, ["1.0500", "1.0500"]),
            (1.05_f64.next_up(), 1.05, ["1.0500000000000003", "1.05"]),
            (5e-324, 0.0, ["5e-324", "0"]),
        ] {
            assert_eq!(shown_apart(measured, limit), expected, "{measured:e} {limit:e}");
        }
    }
}
