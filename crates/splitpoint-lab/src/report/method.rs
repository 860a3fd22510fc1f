//! How it was measured, and with what.

use super::number::{counted, grouped, moment, probability};
use crate::document::{Block, Line, shown};
use crate::measure::FAILURE_BITS;
use crate::study::Study;

/// Returns the section.
pub(super) fn section(study: &Study) -> Vec<Block> {
    let (program, machine) = (&study.program, &study.machine);
    let test_count: u64 = study.reports.iter().map(|report| u64::from(report.test_count)).sum();
    let command = format!("splitpoint {}", command_line(&program.arguments));
    let mut facts: Vec<(&str, Line)> = vec![
        ("program", format!("splitpoint {}", shown(&program.version)).into()),
        ("called as", Line::code(command)),
        ("started", moment(program.started_unix_s).into()),
    ];
    if !machine.processor.is_empty() {
        let cores = counted(machine.core_count, "core");
        let processor = format!("{}, {cores} used", shown(&machine.processor));
        facts.push(("processor", processor.into()));
    }
    if !machine.system.is_empty() {
        facts.push(("system", shown(&machine.system).into()));
    }
    facts.push(("tables", grouped(study.reports.len() as u64).into()));
    facts.push(("tests", grouped(test_count).into()));
    facts.push(("schema", study.schema.to_string().into()));
    let p = format!(
        "The probability that an ideal hash gives as much or more. With many tests small values \
         come up by chance: of {} tests the smallest is about {}. A table is called worse only \
         below 2^-{FAILURE_BITS}, about one in a million.",
        grouped(test_count),
        probability(1.0 / test_count.max(1) as f64)
    );
    let terms = [
        (
            "ideal",
            "What the same number of keys come to if each picks its bucket independently and by \
             chance: Poisson or binomial sizes; under linear hashing the mixture of divided and \
             whole buckets.",
        ),
        (
            "cost",
            "Keys looked at to find every key once, in units of what an ideal hash needs: 1 is \
             ideal. Also known as the quality score of the Red Dragon book.",
        ),
        (
            "dupes",
            "Keys that are not the first of their bucket, as Bacik counted them: keys less buckets \
             used.",
        ),
        ("p", &p),
        (
            "fits, structured, slight, worse",
            "Not to be told from an ideal hash; more even than chance by over 4 standard deviations \
             of chi-square, from keys of a regular kind; less even, or with a fuller bucket, than \
             chance allows, but with a hit that costs less than 1.05 times the ideal; the same, \
             and a hit costs more.",
        ),
        (
            "sd: standard deviations",
            "Of the number of buckets of a size under an ideal hash, given the number of keys. \
             About 1 in 20 is more than 2 of them away by chance.",
        ),
    ];
    let terms = terms.map(|(word, meaning)| (word, meaning.to_string())).to_vec();
    vec![Block::Facts(facts), Block::Terms(terms)]
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
