//! What to use, and what speaks against it.

use maud::{Markup, html};

use super::number::{fixed, grouped};
use super::plain::shown;
use super::table::{Cell, Table};
use crate::study::Choice;

/// Returns the table of what to choose from.
pub(super) fn section(choices: &[Choice]) -> Markup {
    let mut table = Table::new("What a lookup costs, cheapest first")
        .sortable()
        .words("function")
        .words("reduction")
        .numbers("lookup, ns")
        .numbers("hash, ns")
        .numbers("table lines")
        .numbers("line, ns")
        .numbers("cost")
        .numbers("buckets")
        .words("caution");
    for choice in choices {
        table.push([
            Cell::from(choice.hash.as_str()),
            Cell::from(choice.reduction.as_str()),
            Cell::ordered(choice.lookup_ns, fixed(choice.lookup_ns, 1)),
            Cell::ordered(choice.hash_ns, fixed(choice.hash_ns, 2)),
            Cell::ordered(choice.line_count, fixed(choice.line_count, 3)),
            Cell::ordered(choice.line_ns, fixed(choice.line_ns, 1)),
            Cell::ordered(choice.cost_ratio, fixed(choice.cost_ratio, 3)),
            Cell::ordered(choice.bucket_count as f64, grouped(choice.bucket_count)),
            Cell::from(shown(&choice.caution)),
        ]);
    }
    html! {
        p {
            "A lookup computes the hash and loads the lines of the table that it has to look at: "
            code { "lookup = hash + lines x time of a line" } ". The cost is that of the \
            distribution, 1 is ideal, at the worst size and seed."
        }
        (table.render())
    }
}
