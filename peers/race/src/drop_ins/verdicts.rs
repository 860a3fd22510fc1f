//! What a race of the drop-ins says: each call beside the original's, the goal, and whether it is met.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{LIBRARIES, Library, WORKLOAD};
use crate::Outcome;
use crate::rows::{Row, Rows, case_key, median, number};
use crate::saved::Saved;
use crate::targets::{self, Measure, Target, Verdict};

/// The start of a program may take so much longer than with the original.
const START_MORE_NS_MAX: f64 = 1e6;

/// The file beside `race.json`. Folders of the record have a `drop-ins.md` that somebody has written.
pub const FILE: &str = "race-drop-ins.md";

/// Returns the table, in Markdown.
pub fn table(saved: &Saved, targets: &[Target]) -> String {
    let mut out = format!(
        "# {}: the drop-ins beside the machine's libraries, on {}\n\nCommit {}, runs of each by turns: {}, files on \
         {}. Microseconds a call, of the run in the middle; a ratio is the median of those of the runs.\n\n",
        saved.date,
        saved.machine.name(),
        saved.commit,
        saved.run_count,
        saved.machine.file_system,
    );
    out += "| library | call | original | ours | ratio | goal | |\n|---|---|--:|--:|--:|--:|---|\n";
    let rows = Rows::of(saved);
    for library in &LIBRARIES {
        let case = case_key(WORKLOAD, library.name);
        for &label in library.labels {
            line(&mut out, library, &case, label, &rows, targets, saved);
        }
        let others = targets.iter().filter(|it| it.case == case && it.than.is_none());
        for target in others {
            let verdict = targets::judge(target, saved, &rows);
            let ours = verdict.as_ref().map_or("-".to_owned(), |it| cell(it.ours, it.unit));
            let is_met = word(verdict.map(|it| it.is_met));
            let goal =
                target.at_most.map_or("-".to_owned(), |most| cell(most, target.measure.unit()));
            let _ = writeln!(
                out,
                "| {} | {} | - | {ours} | - | {goal} | {is_met} |",
                library.name, target.work
            );
        }
    }
    for missing in &saved.missing {
        let _ = writeln!(out, "\nLeft out: {}: {}", missing.engine, missing.reason);
    }
    for failed in &saved.failures {
        let _ = writeln!(
            out,
            "\n**Failed**: {}, run {}: {}",
            failed.engine,
            failed.run + 1,
            failed.reason
        );
    }
    out
}

/// Writes the table beside what was saved.
pub fn write(saved: &Saved, targets: &[Target], dir: &Path) -> Outcome<String> {
    let text = table(saved, targets);
    let path = dir.join(FILE);
    fs::write(&path, &text)
        .map_err(|cause| format!("cannot write `{}`: {cause}", path.display()))?;
    Ok(text)
}

fn line(
    out: &mut String,
    library: &Library,
    case: &str,
    label: &str,
    rows: &Rows,
    targets: &[Target],
    saved: &Saved,
) {
    let [original, ours] =
        [false, true].map(|is_ours| rows.find(case, label, &library.engine(is_ours)));
    let time = |row: Option<&Row>| row.map_or("-".to_owned(), |row| number(row.median_ns / 1e3));
    let ratio =
        original.zip(ours).and_then(|(original, ours)| targets::ratio_of_runs(ours, original));
    let is_it = |target: &&Target| {
        target.case == case && target.label == label && target.measure == Measure::NsPerOperation
    };
    let target = targets.iter().find(is_it);
    let (goal, is_met) = match target {
        _ if label == "start" => {
            let more = original.zip(ours).map(|(original, ours)| more_ns(ours, original));
            let more_text = more.map_or("?".to_owned(), |more| number(more / 1e3));
            let goal = format!("{} more, at most {}", more_text, number(START_MORE_NS_MAX / 1e3));
            (goal, Some(more.map(|more| more <= START_MORE_NS_MAX)))
        }
        Some(target) => {
            let verdict: Option<Verdict> = targets::judge(target, saved, rows);
            let goal = target.at_most.map_or("-".to_owned(), |most| format!("at most {most}"));
            (goal, Some(verdict.map(|it| it.is_met)))
        }
        None => ("-".to_owned(), None),
    };
    let _ = writeln!(
        out,
        "| {} | {label} | {} | {} | {} | {goal} | {} |",
        library.name,
        time(original),
        time(ours),
        ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        is_met.map_or("", word),
    );
}

/// Returns the median of what ours took longer in a run.
fn more_ns(ours: &Row, original: &Row) -> f64 {
    let more = |(run, ns): (&_, &f64)| Some(ns - original.ns_of_runs.get(run)?);
    let mut found: Vec<f64> = ours.ns_of_runs.iter().filter_map(more).collect();
    found.sort_by(f64::total_cmp);
    if found.is_empty() { ours.median_ns - original.median_ns } else { median(&found) }
}

fn word(is_met: Option<bool>) -> &'static str {
    match is_met {
        Some(true) => "met",
        Some(false) => "**missed**",
        None => "not measured",
    }
}

fn cell(value: f64, unit: &str) -> String {
    format!("{} {unit}", number(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Driver, Place};
    use crate::saved::{SavedCase, SavedEngine};
    use crate::tests::{race, root, sample};

    /// A race of gdbm and hsearch, in which ours takes `ours_ns` a call and the original 100.
    fn saved(ours_ns: u64) -> Saved {
        let mut saved = race();
        saved.samples.clear();
        saved.cases.clear();
        saved.engines.clear();
        for library in LIBRARIES.iter().filter(|it| ["gdbm", "hsearch"].contains(&it.name)) {
            let case = saved_case(library);
            saved.cases.push(case);
            for is_ours in [false, true] {
                saved.engines.push(SavedEngine {
                    place: Place::Disk,
                    ..library.saved_engine(is_ours, "1".to_owned())
                });
                for label in library.labels {
                    let ns = if is_ours { ours_ns } else { 100 };
                    let mut one = sample(&library.engine(is_ours), label, 0, 1, ns);
                    one.workload = WORKLOAD.to_owned();
                    one.case = library.name.to_owned();
                    saved.samples.push(one);
                }
            }
        }
        saved
    }

    fn saved_case(library: &Library) -> SavedCase {
        SavedCase {
            workload: WORKLOAD.to_owned(),
            name: library.name.to_owned(),
            title: String::new(),
            records: 1,
            key_bytes: 16,
            value_bytes: 16,
            has_total: false,
            total_of: Vec::new(),
            driver: Driver::Tight,
            condition: crate::condition::Condition::Quiet,
        }
    }

    #[test]
    fn each_call_has_its_ratio_and_each_goal_its_verdict() {
        let targets = targets::read(&root().join("peers")).expect("targets.toml");
        let text = table(&saved(10), &targets);
        assert!(
            text.contains("| gdbm | store | 0.100 | 0.010 | 0.10 | at most 0.2 | met |"),
            "{text}"
        );
        assert!(text.contains("| gdbm | walk | 0.100 | 0.010 | 0.10 | - |  |"), "{text}");
        assert!(text.contains("| ndbm | store | - | - | - | - |  |"), "{text}");
        assert!(text.contains("at most 1,000 | met |") && text.contains("longest 64"), "{text}");
        assert!(!text.contains("missed"), "{text}");
        let text = table(&saved(5_000_000), &targets);
        assert_eq!(text.matches("**missed**").count(), 6, "{text}");
    }
}
