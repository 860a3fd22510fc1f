//! How it was measured, and with what.

use maud::{Markup, html};

use super::number::{counted, grouped, moment};
use super::plain::shown;
use super::table::facts;
use crate::study::Study;

/// Returns the section.
pub(super) fn section(study: &Study) -> Markup {
    let (program, machine) = (&study.program, &study.machine);
    let test_count: u64 = study.reports.iter().map(|report| u64::from(report.test_count)).sum();
    let mut list = vec![
        ("program", html! { "splitpoint " (shown(&program.version)) }),
        ("called as", html! { code { "splitpoint " (command_line(&program.arguments)) } }),
        ("started", html! { (moment(program.started_unix_s)) }),
    ];
    if !machine.processor.is_empty() {
        let cores = counted(machine.core_count, "core");
        list.push(("processor", html! { (shown(&machine.processor)) ", " (cores) " used" }));
    }
    if !machine.system.is_empty() {
        list.push(("system", html! { (shown(&machine.system)) }));
    }
    list.push(("tables", html! { (grouped(study.reports.len() as u64)) }));
    list.push(("tests", html! { (grouped(test_count)) }));
    list.push(("schema", html! { (study.schema) }));
    html! {
        (facts(list))
        dl.terms {
            dt { "ideal" }
            dd {
                "What the same number of keys come to if each picks its bucket independently and \
                 by chance: Poisson or binomial sizes; under linear hashing the mixture of divided \
                 and whole buckets."
            }
            dt { "cost" }
            dd {
                "Keys looked at to find every key once, in units of what an ideal hash needs: \
                 1 is ideal. Also known as the quality score of the Red Dragon book."
            }
            dt { "p" }
            dd {
                "The probability that an ideal hash gives as much or more. With many tests small \
                 values come up by chance: of " (grouped(test_count)) " tests the smallest is \
                 about " (super::number::probability(1.0 / test_count.max(1) as f64)) ". A table is \
                 called worse only below 2^-20, about one in a million."
            }
            dt { "fits, structured, worse" }
            dd {
                "Not to be told from an ideal hash; more even than chance by over 4 standard \
                 deviations of chi-square, from keys of a regular kind; less even, or with a \
                 fuller bucket, than chance allows."
            }
            dt { "2 standard deviations" }
            dd {
                "Of the number of buckets of a size under an ideal hash, given the number of keys. \
                 About 1 in 20 is outside by chance."
            }
        }
    }
}

fn command_line(arguments: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    let word = |argument: &String| {
        if !argument.is_empty() && argument.chars().all(is_plain) {
            argument.clone()
        } else {
            shown(&format!("'{}'", argument.replace('\'', r"'\''")))
        }
    };
    arguments.iter().map(word).collect::<Vec<_>>().join(" ")
}
