//! Results as Markdown.

use std::fmt::Write as _;

use crate::busy::{self, Busy};
use crate::picture::Picture;
use crate::plan::Place;
use crate::rows::{
    EVERYTHING, Row, Rows, Unit, case_key, entrants, heading, is_of_no_engine, number,
};
use crate::saved::{Saved, SavedCase, SavedEngine};
use crate::targets::{self, Target};

/// A table: its heads, and the cells of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub heads: Vec<String>,
    pub lines: Vec<Vec<String>>,
}

impl Table {
    /// Whether all cells of a column are figures, which are aligned at the right.
    pub fn has_figures(&self, column: usize) -> bool {
        let is_figure = |cell: &String| {
            let figure = cell.trim_start_matches(['*', '>', ' ']);
            figure == "-" || figure.starts_with(|first: char| first.is_ascii_digit())
        };
        column > 0 && self.lines.iter().all(|line| is_figure(&line[column]))
    }

    pub fn to_markdown(&self) -> String {
        let mut out = format!("| {} |\n|", self.heads.join(" | "));
        for column in 0..self.heads.len() {
            out.push_str(if self.has_figures(column) { "--:|" } else { "---|" });
        }
        out.push('\n');
        for line in &self.lines {
            let _ = writeln!(out, "| {} |", line.join(" | "));
        }
        out
    }
}

/// Returns the tables of all cases, for the terminal.
pub fn summary(saved: &Saved) -> String {
    let rows = Rows::of(saved);
    let mut out = String::new();
    for case in &saved.cases {
        for place in [Place::Disk, Place::Memory] {
            if let Some(table) = times(saved, &rows, case, place) {
                let _ = writeln!(out, "{}\n\n{}", heading(case, place), table.to_markdown());
            }
        }
    }
    for missing in &saved.missing {
        let _ = writeln!(out, "skipped: {}: {}", missing.engine, missing.reason);
    }
    for failed in &saved.failures {
        let _ = writeln!(
            out,
            "FAILED: {} {}, {}, run {}: {}",
            failed.workload,
            failed.case,
            failed.engine,
            failed.run + 1,
            failed.reason
        );
    }
    out
}

/// Median times: a line for each engine, a column for each phase. The best of a column is bold.
pub fn times(saved: &Saved, rows: &Rows, case: &SavedCase, place: Place) -> Option<Table> {
    let key = case_key(&case.workload, &case.name);
    let engines = entrants(saved, rows, &key, place);
    if engines.is_empty() {
        return None;
    }
    let labels: Vec<String> = rows
        .labels(&key)
        .into_iter()
        .filter(|label| {
            engines.iter().any(|engine| rows.find_begun(&key, label, &engine.name).is_some())
        })
        .collect();
    let mut heads = vec!["engine".to_owned()];
    let mut columns = Vec::new();
    for label in &labels {
        let cells: Vec<Option<&Row>> =
            engines.iter().map(|engine| rows.find_begun(&key, label, &engine.name)).collect();
        let ops = cells.iter().flatten().map(|row| row.ops).max().unwrap_or(0);
        let unit = Unit::of(label, ops);
        heads.push(format!("{label}, {}", unit.word()));
        let finished = cells.iter().flatten().filter(|row| !row.is_unfinished);
        let best = finished.map(|row| row.median_ns).min_by(f64::total_cmp);
        let best = best.filter(|_| !is_of_no_engine(label));
        let show = |row: &Row| {
            let text = unit.show(row.median_ns);
            match row.is_unfinished {
                true => format!("> {text}"),
                false if Some(row.median_ns) == best => format!("**{text}**"),
                false => text,
            }
        };
        columns
            .push(cells.iter().map(|cell| cell.map_or("-".to_owned(), show)).collect::<Vec<_>>());
    }
    let lines = engines.iter().enumerate().map(|(i, engine)| {
        let mut line = vec![engine.title.clone()];
        line.extend(columns.iter().map(|column| column[i].clone()));
        line
    });
    Some(Table { heads, lines: lines.collect() })
}

/// What was measured beside the time: space, memory, worst operations, and what else ran.
pub fn beside(saved: &Saved, rows: &Rows, case: &SavedCase, place: Place) -> Option<Table> {
    let key = case_key(&case.workload, &case.name);
    let engines = entrants(saved, rows, &key, place);
    if engines.is_empty() {
        return None;
    }
    let records = case.records as f64;
    let worst = labels_with(rows, &key, |row| row.ops > 1 && row.worst_ns > 0);
    let mut heads = vec!["engine".to_owned(), "version".to_owned(), "runs".to_owned()];
    heads.push(match place {
        Place::Disk => "disk, bytes a record".to_owned(),
        Place::Memory => "memory, bytes a record".to_owned(),
    });
    heads.push("peak memory, MiB".to_owned());
    heads.extend(worst.iter().map(|label| format!("worst {label}, ms")));
    let slow = labels_with(rows, &key, |row| row.p999_ns.is_some());
    heads.extend(slow.iter().map(|label| format!("{label}: 99 and 99.9 %, us")));
    let written = labels_with(rows, &key, |row| row.puts_per_second.is_some());
    heads.extend(written.iter().map(|label| format!("{label}: puts a second")));
    let read = labels_with(rows, &key, |row| row.read_bytes_per_operation() >= 1.0);
    heads.extend(read.iter().map(|label| format!("{label}: bytes read from the device")));
    heads.push("spread of create, %".to_owned());
    heads.push("processors of others".to_owned());
    let line = |engine: &&SavedEngine| {
        let of_engine: Vec<&Row> =
            rows.of_case(&key).filter(|row| row.engine == engine.name).collect();
        let of_label = |label: &str| rows.find(&key, label, &engine.name);
        let loaded = match place {
            Place::Disk => {
                of_label("close").and_then(|row| row.disk_bytes).map(|bytes| bytes as f64)
            }
            Place::Memory => of_label("create").map(|row| {
                let before = of_label("open").map_or(0, |row| row.rss_bytes);
                row.rss_bytes.saturating_sub(before) as f64
            }),
        };
        let peak = of_engine.iter().map(|row| row.peak_rss_bytes).max().unwrap_or(0);
        let create = of_label("create");
        let spread = create
            .filter(|row| row.run_count > 1)
            .map(|row| (row.max_ns - row.min_ns) / row.median_ns * 100.0);
        let run_count = of_engine.iter().map(|row| row.run_count).max().unwrap_or(0);
        let version = of_engine.first().map_or_else(String::new, |row| row.version.clone());
        let mut cells = vec![engine.title.clone(), version, run_count.to_string()];
        cells.push(loaded.map_or("-".to_owned(), |bytes| number(bytes / records)));
        // An engine that was killed in its first phase has no peak.
        let peak = (peak > 0).then(|| number(peak as f64 / f64::from(1 << 20)));
        cells.push(peak.unwrap_or_else(|| "-".to_owned()));
        cells.extend(worst.iter().map(|label| {
            of_label(label).map_or("-".to_owned(), |row| number(row.worst_ns as f64 / 1e6))
        }));
        cells.extend(slow.iter().map(|label| {
            let parts = of_label(label).and_then(|row| row.p99_ns.zip(row.p999_ns));
            let us = |ns: u64| number(ns as f64 / 1e3);
            parts.map_or("-".to_owned(), |(p99, p999)| format!("{}, {}", us(p99), us(p999)))
        }));
        cells.extend(written.iter().map(|label| {
            let puts = of_label(label).and_then(|row| row.puts_per_second);
            puts.map_or("-".to_owned(), number)
        }));
        cells.extend(read.iter().map(|label| {
            of_label(label).map_or("-".to_owned(), |row| number(row.read_bytes_per_operation()))
        }));
        cells.push(spread.map_or("-".to_owned(), |percent| format!("{percent:.0}")));
        cells.push(format!("{:.2}", others_cpus(&of_engine)));
        cells
    };
    Some(Table { heads, lines: engines.iter().map(line).collect() })
}

/// How many processors others kept busy during all phases of an engine, on average.
fn others_cpus(rows: &[&Row]) -> f64 {
    // The total would count its phases twice.
    let phases = || rows.iter().filter(|row| row.label != EVERYTHING);
    let time: f64 = phases().map(|row| row.median_ns * row.ops as f64).sum();
    let others = phases().map(|row| row.others_cpus * row.median_ns * row.ops as f64);
    others.sum::<f64>() / time.max(1.0)
}

/// The labels of a case of which some row has something.
fn labels_with(rows: &Rows, case: &str, has: impl Fn(&Row) -> bool) -> Vec<String> {
    let mut labels = rows.labels(case);
    labels.retain(|label| rows.of_case(case).any(|row| row.label == *label && has(row)));
    labels
}

/// Our targets beside what was measured.
pub fn target_table(saved: &Saved, rows: &Rows, targets: &[Target]) -> Table {
    let heads = ["work", "target", "found", "ours", "peer", ""].map(str::to_owned).to_vec();
    let lines = targets.iter().map(|target| {
        if let Some(verdict) = targets::judge(target, saved, rows) {
            let unit = verdict.unit;
            let other = verdict.other.map_or("-".to_owned(), |(name, figure)| {
                format!("{} {unit} ({name})", number(figure))
            });
            let mut ours = format!("{} {unit}", number(verdict.ours));
            if !verdict.is_ratio && !verdict.is_met && verdict.wanted.ends_with(&ours) {
                // Rounded, it would look met.
                ours = format!("{:.1} {unit}", verdict.ours);
            }
            let word = if verdict.is_met { "met" } else { "**missed**" };
            let found =
                if verdict.is_ratio { format!("{:.2}x", verdict.found) } else { ours.clone() };
            vec![verdict.work, verdict.wanted, found, ours, other, word.to_owned()]
        } else {
            let mut line = vec![target.work.clone(), "-".to_owned(), "-".to_owned()];
            line.extend(["-".to_owned(), "-".to_owned(), "not measured".to_owned()]);
            line
        }
    });
    Table { heads, lines: lines.collect() }
}

/// What bounds the figures whose targets are missed: one line for each.
pub fn bounds(saved: &Saved, rows: &Rows, targets: &[Target]) -> Vec<String> {
    let is_missed = |target: &&Target| {
        targets::judge(target, saved, rows).is_some_and(|verdict| !verdict.is_met)
    };
    let missed = targets.iter().filter(is_missed);
    let line = |target: &Target| {
        let bound = target.bound.as_deref().unwrap_or("not explained yet");
        format!("**{}**: {}", target.work, one_line(bound))
    };
    missed.map(line).collect()
}

/// Says that a race was a quick one.
const QUICK: &str =
    "**A quick race with a twentieth of the records: it shows that the harness works.**";

/// What precedes the results: the machine, and whether any part of the race was a quick one.
pub fn introduction(saved: &Saved) -> String {
    let machine = &saved.machine;
    let mut out = format!(
        "{}, {} processors, {:.0} GiB of memory.",
        machine.processor,
        machine.processor_count,
        machine.memory_bytes as f64 / f64::from(1 << 30)
    );
    if parts(saved).any(|part| part.is_quick) {
        let _ = write!(out, " {QUICK}");
    }
    out
}

fn parts(saved: &Saved) -> impl Iterator<Item = &Saved> {
    std::iter::once(saved).chain(&saved.later)
}

/// The title of the section about the runs.
pub const RUNS: &str = "The runs";

/// Introduces the table of the parts of the race.
pub const RUNS_IN_TURN: &str = "The engines ran in turn. If two of these races measured the same engine and \
                                case, the later one is shown.";

/// The parts of the race: when, of which version, and by which command.
pub fn runs(saved: &Saved) -> Table {
    let heads = ["date", "commit", "command", "runs of each engine", "kernel", "stores on"];
    let line = |part: &Saved| {
        vec![
            part.date.clone(),
            part.commit.clone(),
            format!("`cargo xtask race {}`", part.command.join(" ")),
            part.run_count.to_string(),
            part.machine.kernel.clone(),
            part.machine.file_system.clone(),
        ]
    };
    Table { heads: heads.map(str::to_owned).to_vec(), lines: parts(saved).map(line).collect() }
}

/// The engines and cases without a result, each with the reason.
pub fn without_result(saved: &Saved) -> Vec<String> {
    let skipped = saved
        .missing
        .iter()
        .map(|missing| format!("skipped: {}: {}", missing.engine, one_line(&missing.reason)));
    let failed = saved.failures.iter().map(|failed| {
        let name = format!("{} {}", failed.workload, failed.case);
        let (run, reason) = (failed.run + 1, one_line(&failed.reason));
        format!("failed: {name}, {}, run {run}: {reason}", failed.engine)
    });
    skipped.chain(failed).collect()
}

/// Introduces the explanations of missed targets.
pub const MISSED: &str = "For each missed target, what limits it and what we tried:";

/// Precedes the name of the machine in the head of a page.
const MACHINE: &str = "# Results on ";

/// Returns the machine that a page is about, if it says so.
pub fn machine_of_page(page: &str) -> Option<&str> {
    page.lines().next()?.strip_prefix(MACHINE)
}

/// All of `docs/bench/results.md`, or of the page of another machine. `up` leads from its directory to
/// `docs/bench/`: nothing, or `../`.
pub fn page(
    saved: &Saved,
    targets: &[Target],
    pictures: &[Picture],
    files: &str,
    up: &str,
) -> String {
    let rows = Rows::of(saved);
    let mut body = format!(
        "\n## Targets\n\n\"Found\" is our result divided by the peer's; for times, the median of the \
         per-run ratios. Without a peer it is our result. [results.csv](results.csv) has every figure \
         of the tables below, with the minimum and the maximum of all runs.\n\n{}",
        target_table(saved, &rows, targets).to_markdown()
    );
    let missed = bounds(saved, &rows, targets);
    if !missed.is_empty() {
        let _ = write!(body, "\n{MISSED}\n\n- {}\n", linked(&missed.join("\n- "), up));
    }
    body.push_str(&busy_section(saved, &rows));
    for case in &saved.cases {
        for place in [Place::Disk, Place::Memory] {
            body.extend(section(saved, &rows, case, place, pictures));
        }
    }
    let _ = write!(body, "\n## Settings of each engine\n\n{}", tuning(saved).to_markdown());
    let _ = write!(body, "\n## {RUNS}\n\n{RUNS_IN_TURN}\n\n{}", runs(saved).to_markdown());
    let without_result = without_result(saved);
    if !without_result.is_empty() {
        let _ = write!(body, "\n- {}\n", without_result.join("\n- "));
    }
    let headings: Vec<String> =
        body.lines().filter_map(|line| line.strip_prefix("## ")).map(link_to).collect();
    format!(
        "{MACHINE}{}\n\n<!-- Generated by `cargo xtask race --report {files}`; do not edit. -->\n\n{} \
         [METHODOLOGY.md]({up}METHODOLOGY.md) describes the measurements, and [BIAS.md]({up}BIAS.md) \
         lists where the workloads favor us.\n\n- {}\n{body}",
        saved.machine.name(),
        introduction(saved),
        headings.join("\n- "),
    )
}

/// Returns a link to the section of this page with a heading.
fn link_to(heading: &str) -> String {
    let letters = heading.to_lowercase();
    let anchor: String = letters
        .chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect();
    format!("[{heading}](#{anchor})")
}

/// The tables about busy machines, if some case was run on one.
fn busy_section(saved: &Saved, rows: &Rows) -> String {
    let all = busy::all(saved, rows);
    if all.is_empty() {
        return String::new();
    }
    let mut out = format!("\n## Busy machines\n\n{}\n", busy::INTRODUCTION);
    for Busy { heading, beside_best, beside_quiet } in all {
        let tables = [beside_best.to_markdown(), beside_quiet.to_markdown()];
        let _ = write!(out, "\n### {heading}, busy\n\n{}", tables.join("\n"));
    }
    out
}

/// The tables and pictures of a case in a place, if an engine has a result there.
fn section(
    saved: &Saved,
    rows: &Rows,
    case: &SavedCase,
    place: Place,
    pictures: &[Picture],
) -> Option<String> {
    let table = times(saved, rows, case, place)?;
    let mut out = format!("\n## {}\n\n{}", heading(case, place), table.to_markdown());
    for picture in pictures.iter().filter(|picture| picture.is_of(case, place)) {
        let _ = write!(out, "\n![{}]({})\n", picture.title, picture.file);
    }
    if let Some(table) = beside(saved, rows, case, place) {
        let _ = write!(out, "\n{}", table.to_markdown());
    }
    Some(out)
}

/// Returns `text` with links to the records and documents that it names.
fn linked(text: &str, up: &str) -> String {
    let link = |word: &str| {
        let name = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let target = match name.strip_prefix("record/") {
            Some(record) => format!("{up}../../record/{record}/README.md"),
            None if name == "METHODOLOGY.md" => format!("{up}{name}"),
            None => return word.to_owned(),
        };
        word.replace(name, &format!("[{name}]({target})"))
    };
    text.split(' ').map(link).collect::<Vec<_>>().join(" ")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn tuning(saved: &Saved) -> Table {
    let heads = ["engine", "kind", "version", "settings", "source of the advice"]
        .map(str::to_owned)
        .to_vec();
    let line = |engine: &SavedEngine| {
        let engine = engine.clone();
        vec![engine.title, engine.kind, engine.version, engine.tuning, engine.manual]
    };
    Table { heads, lines: saved.engines.iter().map(line).collect() }
}
