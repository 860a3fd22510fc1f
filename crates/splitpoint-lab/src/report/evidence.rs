//! How far each of several functions is from chance, and what it costs: the picture that proves
//! their verdicts.

use maud::{Markup, html};

use super::chart::{Axis, SIDES, at, frame};
use super::cost::mark;
use super::entry::Entry;
use super::number::{fixed, short};
use super::scale::{Scale, Tick};
use crate::document::Figure;
use crate::measure::{FAILURE_BITS, Grade};

/// Bits at which the picture ends; more stand at its side.
const BITS_SHOWN: f64 = 100.0;
const BITS_APART: f64 = 20.0;
/// Each verdict with its color and mark.
const LOOKS: [(Grade, &str, usize); 4] = [
    (Grade::Fits, "s3", 0),
    (Grade::Structured, "s4", 1),
    (Grade::Slight, "s4", 2),
    (Grade::Worse, "s0", 3),
];

/// Returns the picture of all entries, each by the table that it is judged by.
pub(super) fn figure(entries: &[Entry<'_>]) -> Figure {
    let title = "How far from chance, and what it costs";
    let legend = LOOKS.iter().filter_map(|&(grade, class, style)| {
        let count = entries.iter().filter(|entry| entry.grade() == grade).count();
        let mark = html! { g class=(class) { path.mark d=(mark(style, 11.0, 5.0)) {} } };
        (count > 0).then(|| (mark, format!("{}: {count}", grade.word())))
    });
    let ideal = (html! { path.ideal d="M0 5H22" {} }, "ideal cost; where chance ends".to_string());
    let legend = legend.chain([ideal]).collect();
    Figure {
        height: 300.0,
        legend,
        ..Figure::new("evidence", title, in_words(entries), drawing(entries))
    }
}

fn in_words(entries: &[Entry<'_>]) -> String {
    let beyond = || entries.iter().filter(|entry| bits(entry) > FAILURE_BITS);
    let cost = |entry: &Entry<'_>| entry.worst().cost_ratio;
    match beyond().max_by(|one, other| cost(one).total_cmp(&cost(other))) {
        None => format!(
            "All of {} stand left of {FAILURE_BITS} bits, where chance explains them.",
            entries.len()
        ),
        Some(dearest) => format!(
            "{} of {} stand right of {FAILURE_BITS} bits, where chance does not explain them. The \
             dearest of these is {}: {} bits, and a hit costs x{}.",
            beyond().count(),
            entries.len(),
            dearest.name(),
            shown(bits(dearest)),
            fixed(cost(dearest), 2)
        ),
    }
}

/// Returns the binary logarithm of one in how many ideal hashes would be as far from chance.
fn bits(entry: &Entry<'_>) -> f64 {
    let evidence = entry.worst().evidence();
    -evidence.worse_p.min(evidence.structured_p).log2()
}

fn shown(bits: f64) -> String {
    if bits >= BITS_SHOWN { format!("over {BITS_SHOWN}") } else { fixed(bits.max(0.0), 0) }
}

fn drawing(entries: &[Entry<'_>]) -> Markup {
    let [left, right] = SIDES;
    let of_bits = Scale::linear([0.0, BITS_SHOWN], [left + 8.0, right - 12.0]);
    let of_cost = of_cost(entries);
    let ticks = (0..).map(|step| f64::from(step) * BITS_APART).take_while(|&at| at <= BITS_SHOWN);
    let label = |bits: f64| if bits < BITS_SHOWN { short(bits) } else { format!("{bits}+") };
    let x = Axis {
        scale: Scale::linear([0.0, 1.0], SIDES),
        ticks: ticks.map(|bits| Tick { at: of_bits.at(bits), label: label(bits) }).collect(),
        title: "bits: an ideal hash goes as far once in 2^bits",
    };
    let y = Axis::new(of_cost, 5, "cost of a hit, 1 = ideal (log scale)");
    let ([bottom, top], ideal, end) = (of_cost.ends(), of_cost.at(1.0), of_bits.at(FAILURE_BITS));
    html! {
        (frame(&x, &y))
        path.ideal d={ "M" (at(left)) " " (at(ideal)) "H" (at(right)) } {}
        path.ideal d={ "M" (at(end)) " " (at(bottom)) "V" (at(top)) } {}
        @for entry in entries {
            @let cost = entry.worst().cost_ratio;
            @let (_, class, style) = look(entry.grade());
            g class=(class) {
                path.mark d=(mark(style, of_bits.at(bits(entry)), of_cost.at(cost))) {
                    title {
                        (entry.name()) ": " (shown(bits(entry))) " bits, cost " (fixed(cost, 3))
                    }
                }
            }
        }
    }
}

fn look(grade: Grade) -> (Grade, &'static str, usize) {
    LOOKS.into_iter().find(|&(of, ..)| of == grade).unwrap_or(LOOKS[0])
}

/// Returns where costs stand: some room around the ideal, whatever they are.
fn of_cost(entries: &[Entry<'_>]) -> Scale {
    let costs = || entries.iter().map(|entry| entry.worst().cost_ratio);
    let (least, most) = (costs().fold(0.9, f64::min), costs().fold(1.2, f64::max));
    Scale::log([least.max(1e-3), most * 1.03], [254.0, 24.0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{KeyFacts, Machine, Program};
    use crate::{Reduction, Report, Setup, Specimen, Study};

    #[test]
    fn functions_stand_right_of_the_line_exactly_if_chance_does_not_explain_them() {
        let keys: Vec<String> = (0..20_000).map(|n| format!("key{n}")).collect();
        let mut study = Study::new(Program::default(), Machine::default(), KeyFacts::default());
        for name in ["xxh3-64", "siphash-1-3", "netbsd-byte-sum", "identity-64", "sdbm"] {
            let setup =
                Setup::new(Specimen::by_name(name).unwrap(), 0, Reduction::LowMask, 8192).unwrap();
            study.reports.push(Report::new(&setup.count(keys.iter().map(String::as_bytes))));
        }
        let entries = Entry::all(&study);
        for entry in &entries {
            let is_beyond = bits(entry) > FAILURE_BITS;
            assert_eq!(is_beyond, entry.grade() != Grade::Fits, "{}", entry.name());
        }
        let figure = figure(&entries);
        let fits = entries.iter().filter(|entry| entry.grade() == Grade::Fits).count();
        assert!(fits > 0 && fits < entries.len());
        assert!(figure.summary.starts_with(&format!("{} of 5 stand right", 5 - fits)));
        assert!(figure.summary.contains(": over 100 bits, and a hit costs x"));
        assert_eq!(figure.drawing.into_string().matches("<title>").count(), 5);
    }
}
