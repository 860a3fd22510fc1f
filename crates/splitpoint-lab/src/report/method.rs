//! How it was measured, and with what.

use super::functions::{COST_HIGH, COST_VERY_HIGH};
use super::number::{counted, grouped, moment};
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
    vec![Block::Facts(facts), Block::Facts(terms())]
}

/// Returns the words of the lab with their meanings.
pub(super) fn terms() -> Vec<(&'static str, Line)> {
    let p = format!(
        "The probability that an ideal hash gives as much or more. With many tests small values \
         come up by chance; chance is ruled out below 2^-{FAILURE_BITS}, about one in a million."
    );
    let by_size = format!(
        "The verdict at each size, the smallest first: . fits, ~ structured, + worse; x and X \
         where a hit costs {COST_HIGH} and {COST_VERY_HIGH} times the ideal, or more."
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
        ("dupes", "Keys that are not the first of their bucket, as Bacik counted them."),
        ("p", &p),
        ("fits", "Indistinguishable from an ideal hash."),
        (
            "structured",
            "Not random, but no worse, and mostly more even: the keys are regular, and the hash keeps \
             that. Other keys may fare worse.",
        ),
        ("slight", "Less even than chance allows, but a hit costs less than 1.05 times the ideal."),
        ("worse", "Less even, or with a fuller bucket, than chance allows."),
        (
            "ns",
            "Nanoseconds to hash one of these keys, if each hash waits for the one before: the \
             median of several runs.",
        ),
        (
            "place",
            "Rank by time among those that fit, whose costs differ only by chance. = is a tie: less \
             than 5 % apart; or no more than chance explains, by the ranks of the runs, and the \
             fastest runs less than a quarter apart.",
        ),
        ("by size", &by_size),
        (
            "sd",
            "Standard deviations of the number of buckets of a size under an ideal hash, given the \
             number of keys. About 1 in 20 is more than 2 of them away by chance.",
        ),
    ];
    terms.map(|(word, meaning)| (word, Line::from(meaning))).to_vec()
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
