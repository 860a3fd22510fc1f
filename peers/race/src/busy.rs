//! What a busy machine does to the results: the cases that were run under several conditions.

use crate::condition::Condition;
use crate::markdown::Table;
use crate::plan::Place;
use crate::rows::{Row, Rows, case_key, entrants, is_of_no_engine};
use crate::saved::{Saved, SavedCase};
use crate::targets;

/// The tables of one case in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Of the case and the place.
    pub heading: String,
    /// Our times divided by those of the best other engine under the same condition.
    pub beside_best: Table,
    /// The times of each engine divided by its own on the quiet machine.
    pub beside_quiet: Table,
}

/// Introduces the tables.
pub const INTRODUCTION: &str = "\
The same cases with all other processors busy with a loop, beside a process that copies memory, and \
with one processor for the engine. A section of its own has the times of each. \"Beside the best \
other\" divides our time by that of the best other engine under the same condition, as the targets \
do; \"beside the quiet machine\" divides an engine's time by its own when nothing else runs.";

/// Returns the tables of every case that was run under more than one condition.
pub fn all(saved: &Saved, rows: &Rows) -> Vec<Busy> {
    let quiet = saved.cases.iter().filter(|case| case.condition == Condition::Quiet);
    quiet
        .flat_map(|case| [Place::Disk, Place::Memory].map(|place| (case, place)))
        .filter_map(|(case, place)| one(saved, rows, case, place))
        .collect()
}

fn one(saved: &Saved, rows: &Rows, quiet: &SavedCase, place: Place) -> Option<Busy> {
    let is_same = |case: &&SavedCase| {
        (&case.workload, case.quiet_name()) == (&quiet.workload, quiet.name.as_str())
    };
    let cases: Vec<&SavedCase> = saved.cases.iter().filter(is_same).collect();
    let quiet_key = case_key(&quiet.workload, &quiet.name);
    if cases.len() < 2 || entrants(saved, rows, &quiet_key, place).is_empty() {
        return None;
    }
    // What is over in one call is a matter of the disk, not of the processors.
    let mut labels = rows.labels(&quiet_key);
    labels.retain(|label| rows.of_case(&quiet_key).any(|row| row.label == *label && row.ops > 1));
    let heads = |first: &str, labels: &[String]| {
        let first = std::iter::once(first.to_owned());
        first.chain(labels.iter().cloned()).collect::<Vec<_>>()
    };
    let of_engines: Vec<String> =
        labels.iter().filter(|label| !is_of_no_engine(label)).cloned().collect();
    let beside_best = Table {
        heads: heads("beside the best other", &of_engines),
        lines: cases.iter().map(|case| ratios(saved, rows, case, place, &of_engines)).collect(),
    };
    let busy = cases.iter().filter(|case| case.condition != Condition::Quiet);
    let beside_quiet = Table {
        heads: heads("beside the quiet machine", &labels),
        lines: busy
            .flat_map(|case| slowdowns(saved, rows, case, &quiet_key, place, &labels))
            .collect(),
    };
    let heading = crate::rows::heading(quiet, place);
    Some(Busy { heading, beside_best, beside_quiet })
}

/// Our line: a ratio for each phase, and who the other is.
fn ratios(
    saved: &Saved,
    rows: &Rows,
    case: &SavedCase,
    place: Place,
    labels: &[String],
) -> Vec<String> {
    let key = case_key(&case.workload, &case.name);
    let ours = match place {
        Place::Disk => "splitpoint",
        Place::Memory => "splitpoint_memory",
    };
    let cell = |label: &String| {
        let ours = rows.find(&key, label, ours)?;
        let others = entrants(saved, rows, &key, place);
        let (title, other) = others
            .into_iter()
            .filter(|engine| !engine.name.starts_with("splitpoint"))
            .filter_map(|engine| Some((&engine.title, rows.find(&key, label, &engine.name)?)))
            .min_by(|a, b| a.1.median_ns.total_cmp(&b.1.median_ns))?;
        Some(format!("{:.2}x {title}", ratio(ours, other)))
    };
    let cells = labels.iter().map(|label| cell(label).unwrap_or_else(|| "-".to_owned()));
    std::iter::once(case.condition.title().to_owned()).chain(cells).collect()
}

/// The lines of all engines under one condition.
fn slowdowns(
    saved: &Saved,
    rows: &Rows,
    case: &SavedCase,
    quiet_key: &str,
    place: Place,
    labels: &[String],
) -> Vec<Vec<String>> {
    let key = case_key(&case.workload, &case.name);
    let line = |name: &str, title: &str| {
        let cell = |label: &String| {
            let busy = rows.find(&key, label, name)?;
            Some(format!("{:.2}x", busy.median_ns / rows.find(quiet_key, label, name)?.median_ns))
        };
        let first = format!("{title}, {}", case.condition.title());
        let cells = labels.iter().map(|label| cell(label).unwrap_or_else(|| "-".to_owned()));
        std::iter::once(first).chain(cells).collect()
    };
    let engines = entrants(saved, rows, &key, place);
    engines.iter().map(|engine| line(&engine.name, &engine.title)).collect()
}

/// The median over the runs that both have; that of the medians, if there are none.
fn ratio(ours: &Row, other: &Row) -> f64 {
    targets::ratio_of_runs(ours, other).unwrap_or(ours.median_ns / other.median_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved::Sample;
    use crate::tests::race;
    use crate::{html, markdown};

    /// The same case with other processors busy: ours takes twice as long, the other three times.
    fn busy_race() -> Saved {
        let mut saved = race();
        let name = Condition::Spin.case_name("small");
        let quiet = saved.cases[0].clone();
        saved.cases.push(SavedCase { name: name.clone(), condition: Condition::Spin, ..quiet });
        let slower = |sample: &Sample| {
            let mut sample = Sample { case: name.clone(), ..sample.clone() };
            sample.figures.ns *= if sample.engine == "splitpoint" { 2 } else { 3 };
            sample
        };
        let busy: Vec<Sample> = saved.samples.iter().map(slower).collect();
        saved.samples.extend(busy);
        saved
    }

    #[test]
    fn busy_machines_are_compared_with_the_quiet_one_and_with_the_best_other() {
        let saved = busy_race();
        let all = all(&saved, &Rows::of(&saved));
        assert_eq!(all.len(), 1, "no engine is in memory");
        assert_eq!(
            all[0].beside_best.to_markdown(),
            "| beside the best other | create |\n|---|--:|\n| quiet | 0.25x OTHER |\n\
             | other processors busy | 0.17x OTHER |\n"
        );
        assert_eq!(
            all[0].beside_quiet.to_markdown(),
            "| beside the quiet machine | create |\n|---|--:|\n\
             | SPLITPOINT, other processors busy | 2.00x |\n\
             | OTHER, other processors busy | 3.00x |\n"
        );
    }

    #[test]
    fn both_pages_show_busy_machines_if_there_are_any() {
        let saved = busy_race();
        let page = markdown::page(&saved, &[], &[], "race.json", "");
        assert!(page.contains("\n## Busy machines\n"), "{page}");
        assert!(page.contains("\n## W2, small, other processors busy, 100 records, on disk\n"));
        assert!(html::page(&saved, &[], &[]).contains("<h2>Busy machines</h2>"));
        assert!(!markdown::page(&race(), &[], &[], "race.json", "").contains("Busy"));
    }
}
