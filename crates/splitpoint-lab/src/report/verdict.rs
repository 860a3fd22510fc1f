//! The verdict in words: what to do, before any number.

use maud::{Markup, html};

use super::entry::{Entry, Kind, seed_count, sizes};
use super::number::{counted, fixed, grouped};
use super::plain::{shown, shown_whole};
use crate::measure::Words;
use crate::study::Study;

/// Names that are listed before the rest are counted.
const NAMES_MAX: usize = 6;

/// Returns the verdict on a study.
pub(super) fn section(study: &Study, entries: &[Entry<'_>]) -> Markup {
    html! {
        @if let Some(interruption) = &study.interruption {
            div.alert role="note" {
                p {
                    strong { "Stopped before its end. " }
                    (counted(interruption.key_count, "key")) " had been counted. Missing: "
                    (shown(&interruption.missing))
                }
            }
        }
        @if let Some(choice) = study.choices.first() {
            p.lead {
                "Use " strong { (choice.hash) } " with the reduction "
                strong { (choice.reduction) } ": a lookup takes about "
                (fixed(choice.lookup_ns, 1)) " ns on this machine, " (fixed(choice.hash_ns, 1))
                " ns of them for the hash."
                @if !choice.caution.is_empty() { " But note: " (shown(&choice.caution)) }
            }
        }
        @if let [entry] = entries {
            (of_one(entry))
            (blame_and_advice(&entry.worst().words))
        }
        @else if !entries.is_empty() { (of_several(study, entries)) }
        (of_keys(study))
    }
}

/// What is to blame and what to do.
pub(super) fn blame_and_advice(words: &Words) -> Markup {
    let parts = [("To blame", &words.blame), ("What to do", &words.advice)];
    html! {
        @for (title, sentences) in parts.into_iter().filter(|(_, sentences)| !sentences.is_empty()) {
            p { strong { (title) } }
            ul { @for text in sentences { li { (sentence(text)) } } }
        }
    }
}

/// Makes a sentence of a line of words, in which backticks enclose what is typed.
fn sentence(text: &str) -> Markup {
    let text = shown_whole(text);
    let mut first = text.chars();
    let text: String = first.next().into_iter().flat_map(char::to_uppercase).chain(first).collect();
    html! {
        @for (number, part) in text.split('`').enumerate() {
            @if number % 2 == 1 { code { (part) } } @else { (part) }
        }
        "."
    }
}

fn of_one(entry: &Entry<'_>) -> Markup {
    let (worst, total) = (entry.worst(), entry.reports.len());
    let of = if total == 1 {
        format!("In a table of {}", counted(worst.bucket_count, "bucket"))
    } else {
        let count = entry.count(entry.kind());
        format!(
            "In {count} of {total} tables, at worst with {} buckets,",
            grouped(worst.bucket_count)
        )
    };
    let costs = format!(
        "a hit looks at {} keys, where an ideal hash needs {}",
        fixed(worst.probes_hit, 2),
        fixed(worst.probes_hit_ideal, 2)
    );
    let fullest = format!(
        "the fullest bucket holds {}, ideal is {}",
        grouped(worst.longest),
        fixed(worst.longest_ideal, 1)
    );
    match entry.kind() {
        Kind::Fits => html! {
            p.lead { strong { (entry.name()) } " fits these keys." }
            p { (of) " it cannot be told from an ideal hash: " (costs) "; " (fullest) "." }
        },
        Kind::Structured => html! {
            p.lead {
                strong { (entry.name()) } " is "
                (if worst.is_too_even() { "better than random" } else { "no worse than random" })
                " on these keys, but not random. Do not rely on it."
            }
            p {
                (of)
                @if worst.is_too_even() { " it spreads the keys more evenly than chance does: " }
                @else { " the sizes of the buckets are not those of chance: " }
                (costs) "; " (fullest)
                ". The keys have a structure that the hash keeps; it will not survive other keys."
            }
        },
        Kind::Worse if worst.verdict.is_slight() => html! {
            p.lead { strong { (entry.name()) } " is worse than random on these keys, but not by much." }
            p {
                (of) " a hit costs " (fixed(100.0 * (worst.cost_ratio - 1.0), 1)) " % more than \
                 with an ideal hash, which is not by chance: " (costs) "; " (fullest)
                ". The next keys of this kind may do worse."
            }
            (unreachable(entry))
        },
        Kind::Worse => html! {
            p.lead { strong { (entry.name()) } " does not fit these keys. Use another." }
            p { (of) " it is worse than chance allows: " (costs) "; " (fullest) "." }
            (unreachable(entry))
        },
    }
}

fn unreachable(entry: &Entry<'_>) -> Markup {
    let worst = entry.worst();
    html! {
        @if worst.reachable_count < worst.bucket_count {
            p {
                "The keys are not to blame: the reduction reaches only "
                (grouped(worst.reachable_count)) " of the " (grouped(worst.bucket_count))
                " buckets, whatever the keys."
            }
        }
    }
}

fn of_several(study: &Study, entries: &[Entry<'_>]) -> Markup {
    let (size_count, seed_count) = (sizes(&study.reports).len(), seed_count(&study.reports));
    let tables = match (size_count, seed_count) {
        (1, 1) => "in this table".to_string(),
        (_, 1) => format!("at all of {size_count} sizes"),
        (1, _) => format!("with all of {seed_count} seeds"),
        _ => format!("at all of {size_count} sizes and with all of {seed_count} seeds"),
    };
    let of = |kind: Kind| entries.iter().filter(move |entry| entry.kind() == kind);
    let worse = of(Kind::Worse)
        .rev()
        .map(|entry| format!("{} (x{})", entry.name(), fixed(entry.worst().cost_ratio, 2)));
    let groups = [
        (
            Kind::Fits,
            format!("fit these keys {tables}: choose among them by speed."),
            of(Kind::Fits).map(Entry::name).collect::<Vec<_>>(),
        ),
        (
            Kind::Structured,
            "are not random somewhere, though worse nowhere: the keys have a structure that they \
             keep. It will not survive other keys."
                .to_string(),
            of(Kind::Structured).map(Entry::name).collect(),
        ),
        (
            Kind::Worse,
            "are worse than chance allows: do not use them for these keys. By the cost of a hit:"
                .to_string(),
            worse.collect(),
        ),
    ];
    let total = entries.len();
    html! {
        @if study.choices.is_empty() { (headline(entries)) }
        ul.verdicts {
            @for (kind, words, names) in &groups {
                @if !names.is_empty() {
                    li class=(kind.word()) {
                        strong { (names.len()) " of " (total) } " " (words) " "
                        span.names { (listed(names)) }
                    }
                }
            }
        }
    }
}

fn headline(entries: &[Entry<'_>]) -> Markup {
    let fits = entries.iter().filter(|entry| entry.kind() == Kind::Fits).count();
    let words = match (fits, entries.len()) {
        (0, _) => "None of these fits the keys at every size and seed.".to_string(),
        (fits, total) if fits == total => {
            "All of these fit the keys: none can be told from an ideal hash.".to_string()
        }
        (fits, total) => format!("{fits} of {total} fit the keys, and {} do not.", total - fits),
    };
    html! { p.lead { (words) } }
}

fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMES_MAX)].join("; ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

fn of_keys(study: &Study) -> Markup {
    let keys = &study.keys;
    html! {
        @if keys.carriage_return_count > 0 {
            p.warn {
                (counted(keys.carriage_return_count, "key"))
                " ended in a carriage return, as lines of DOS files do, and it was hashed with the \
                 rest. If your program strips it, strip it here too and measure again."
            }
        }
    }
}
