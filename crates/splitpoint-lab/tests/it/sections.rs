//! Sections that the golden study does not have, in all three forms: text, page and Markdown.

use splitpoint_lab::document::Look;
use splitpoint_lab::study::{
    Bound, Duplicates, Gate, KeyFacts, LengthRow, Machine, Program, Spread,
};
use splitpoint_lab::{LiveTable, Lookups, Reduction, Report, Setup, Specimen, Study};
use splitpoint_lab::{compare, report};

/// The renderings of a study.
struct Forms {
    text: String,
    page: String,
    markdown: String,
}

impl Forms {
    fn of(study: &Study) -> Self {
        let document = report::document(study);
        let text = document.text(&Look { is_whole: true, ..Look::plain(120) });
        Self { text, page: document.html(), markdown: document.markdown() }
    }

    /// Requires that all forms have all of the words, whatever their marks.
    #[track_caller]
    fn check(&self, needles: &[&str]) {
        check_form(&self.text, needles);
        self.check_appendix(needles);
    }

    /// The same for an appendix, which the text does not have.
    #[track_caller]
    fn check_appendix(&self, needles: &[&str]) {
        check_form(&without_tags(&self.page), needles);
        check_form(&self.markdown.replace(['*', '|', '\\'], ""), needles);
    }
}

#[track_caller]
fn check_form(form: &str, needles: &[&str]) {
    let form = form.split_whitespace().collect::<Vec<_>>().join(" ");
    for needle in needles {
        assert!(form.contains(needle), "no `{needle}` in\n{form}");
    }
}

fn without_tags(page: &str) -> String {
    let body = page.split_once("<main>").expect("a page has a main part").1;
    let mut text = String::new();
    for part in body.split('<') {
        text.push_str(part.split_once('>').map_or(part, |(_, text)| text));
    }
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace('\u{a0}', " ")
}

fn bare() -> Study {
    let keys = KeyFacts { source: "ids".to_owned(), key_count: 3000, ..KeyFacts::default() };
    Study::new(Program::default(), Machine::default(), keys)
}

fn keys() -> Vec<String> {
    (0..3000).map(|n| format!("a{n:06}")).collect()
}

fn counted(hash: &str, bucket_count: u64) -> (Setup, Report) {
    let specimen = Specimen::by_name(hash).expect("a function");
    let setup = Setup::new(specimen, 0, Reduction::LowMask, bucket_count).expect("a power of two");
    (setup, Report::new(&setup.count(keys().iter().map(String::as_bytes))))
}

fn timing(hash: &str, ns: f64) -> splitpoint_lab::study::Timing {
    let runs: Vec<f64> = (0..16_i32).map(|run| ns + f64::from(run) / 1000.0).collect();
    let spread = Spread::of(&runs);
    splitpoint_lab::study::Timing {
        hash: hash.to_owned(),
        bytes_min: 7,
        bytes_max: 7,
        key_count: 3000,
        is_mixed: true,
        sample_count: 1000,
        throughput_ns: spread.clone(),
        latency_ns: spread,
        throughput_overhead_ns: 0.5,
        latency_overhead_ns: 0.5,
    }
}

#[test]
fn two_functions_are_compared_by_distribution_and_time() {
    let (good, bad) = (counted("xxh3-64", 4096).1, counted("netbsd-byte-sum", 4096).1);
    let mut study = bare();
    study.differences = compare::reports("", &good, &bad);
    study.differences.extend(compare::timings("", &timing("x", 9.0), &timing("y", 0.01)));
    study.reports = vec![good, bad];
    let forms = Forms::of(&study);
    forms.check(&[
        "distribution: xxh3-64 is better, x",
        "time: netbsd-byte-sum is better (p below 0.001)",
        "xxh3-64, low, 4,096 buckets, seed 0: fits",
        "netbsd-byte-sum, low, 4,096 buckets, seed 0: worse",
        "< 0.1",
        "A star: below 2^-20, as in all verdicts; of times,",
    ]);
    // The two columns are named by their functions, and equal figures have no star.
    assert!(forms.text.contains("xxh3-64  netbsd-byte-sum"), "{}", forms.text);
    let (left, right) = (counted("xxh3-64", 4096).1, counted("rapidhash-v3", 4096).1);
    let mut study = bare();
    study.differences = compare::reports("", &left, &right);
    study.reports = vec![left, right];
    let forms = Forms::of(&study);
    forms.check(&["distribution: no difference that chance does not explain"]);
    assert!(!forms.text.contains('*'), "{}", forms.text);
}

#[test]
fn two_studies_are_compared_by_the_figures_that_changed() {
    let study_of = |hash: &str, key_count: usize| {
        let specimen = Specimen::by_name(hash).expect("a function");
        let setup = Setup::new(specimen, 0, Reduction::LowMask, 1024).expect("a power of two");
        let keys = keys();
        let counts = setup.count(keys[..key_count].iter().map(String::as_bytes));
        Study { reports: vec![Report::new(&counts)], ..bare() }
    };
    let older = study_of("sdbm", 3000);
    let compared = |newer: &Study| {
        let differences = compare::studies(&older, newer).differences;
        Forms::of(&Study { differences, ..bare() })
    };
    compared(&older).check(&["No figure differs, of "]);
    let forms = compared(&study_of("sdbm", 2000));
    forms.check(&[" figures differ, ", "sdbm, low, 1024 buckets, seed 0", "older", "newer"]);
}

#[test]
fn the_facts_of_the_keys_name_what_is_unusual_about_them() {
    let facts = |facts: KeyFacts| Forms::of(&Study { keys: facts, ..bare() });
    let keys = KeyFacts {
        source: "ids".to_owned(),
        key_count: 30,
        key_bytes: 300,
        lengths: vec![
            LengthRow { bytes_min: 3, bytes_max: 3, key_count: 10 },
            LengthRow { bytes_min: 4, bytes_max: 40, key_count: 20 },
        ],
        blank_count: 2,
        carriage_return_count: 1,
        nul_count: 5,
        ..KeyFacts::default()
    };
    facts(keys.clone()).check_appendix(&[
        "3 to 40 bytes, mean 10",
        "kept, if there are any",
        "2 empty lines",
        "1 key with a carriage return at the end",
        "5 keys with a NUL byte",
        "Most keys of one length: 20 of 4-40 bytes.",
    ]);
    for (duplicates, expected) in [
        (Duplicates::Kept, "7, counted like other keys"),
        (Duplicates::Unchecked, "not looked for"),
        (Duplicates::Removed, "compared exactly"),
        (Duplicates::RemovedByFingerprint { wrong_p: 1e-20 }, "at most 1e-20"),
    ] {
        facts(KeyFacts { duplicate_count: 7, duplicates, ..keys.clone() })
            .check_appendix(&[expected]);
    }
}

#[test]
fn a_limit_of_either_side_is_shown_with_its_figure() {
    let gate = |figure: &str, bound: Bound, limit: f64, measured: f64, is_met: bool| Gate {
        subject: "sdbm".to_owned(),
        figure: figure.to_owned(),
        bound,
        limit,
        measured,
        is_met,
    };
    let mut study = bare();
    study.gates = vec![gate("share of buckets used", Bound::AtLeast, 0.5, 0.6, true)];
    Forms::of(&study).check(&["Limits that hold: 1 of 1.", "at least 0.5", "0.6"]);
    study.gates.push(gate("p of the spread", Bound::AtLeast, 1e-9, 1e-12, false));
    Forms::of(&study).check(&["Limits that are missed: 1 of 2.", "MISSED", "1e-12", "1e-9"]);
}

#[test]
fn the_lookups_of_a_trace_are_shown_beside_the_ideal() {
    let (setup, mut report) = counted("sdbm", 1024);
    let keys = keys();
    let stats = setup.count(keys.iter().map(String::as_bytes));
    let mut lookups = Lookups::count(&stats, keys[..100].iter().map(|key| (key.as_bytes(), true)));
    lookups.merge(&Lookups::count(&stats, [(&b"absent"[..], false)]));
    report.add_lookups(&stats, &lookups);
    let mut study = bare();
    study.reports.push(report);
    Forms::of(&study).check(&[
        "Lookups of the trace: 100 of keys that are there, 1 of others",
        "keys of a lookup's bucket, p99",
    ]);
}

#[test]
fn long_chains_of_a_store_share_a_row_and_raise_a_warning() {
    // 40 buckets, of 1 to 40 keys.
    let row = |size: u64| splitpoint::stats::ChainRow {
        size,
        bucket_count: 1,
        item_count: size,
        cumulative_percent: 100.0 * (size * (size + 1) / 2) as f64 / 820.0,
        ideal_bucket_count: 1.0,
    };
    let live = LiveTable {
        hash: "netbsd-byte-sum".to_owned(),
        bucket_count: 40,
        key_count: 820,
        chains: splitpoint::stats::ChainHistogram {
            rows: (1..=40).map(row).collect(),
            probes_hit: 9.0,
            probes_hit_ideal: 1.1,
            probes_miss: 2.0,
            probes_miss_ideal: 1.0,
            longest: 40,
            longest_ideal: 5.0,
            longest_p: 0.0,
            longest_by_chance: 17,
            beyond_chance_count: 2,
        },
    };
    let chains = live.chains.clone();
    let forms = Forms::of(&Study { live_table: Some(live), ..bare() });
    forms.check(&[
        "netbsd-byte-sum, 40 buckets, 820 keys, as they are in the file of the store.",
        "2 buckets have more than 17 keys, which is not by chance",
        "not by chance: see below",
    ]);
    // The last row has the buckets, the keys and the ideal of all sizes from 33 on.
    let alone = report::chains(&chains).text(&Look::plain(120));
    let shared = alone.lines().find(|line| line.contains("+ ")).expect("a shared row");
    let cells: Vec<&str> = shared.split_whitespace().collect();
    assert!(cells.starts_with(&["33+", "8", "292", "100.00", "8.0"]), "{alone}");
    let calm =
        splitpoint::stats::ChainHistogram { beyond_chance_count: 0, longest_p: 0.25, ..chains };
    assert!(report::chains(&calm).text(&Look::plain(120)).contains("p = 0.25"));
}

/// Elements are closed in the order in which they were opened, and no table is empty.
#[test]
fn a_page_is_well_formed_and_has_no_empty_table() {
    const VOID: [&str; 4] = ["meta", "br", "link", "input"];
    let golden = include_str!("../golden/page.html");
    let mut open: Vec<&str> = Vec::new();
    let mut rest = golden.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    let mut row_counts: Vec<usize> = Vec::new();
    let mut table_count = 0;
    while let Some((_, tag)) = rest.split_once('<') {
        let (tag, after) = tag.split_once('>').expect("a tag ends");
        rest = after;
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or("");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "before {rest:.80}");
        } else if !tag.starts_with('!') && !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        match (tag.starts_with('/'), name) {
            (false, "table") => row_counts.push(0),
            (false, "td") => *row_counts.last_mut().expect("cells are in tables") += 1,
            (true, "table") => {
                table_count += 1;
                assert!(row_counts.pop().is_some_and(|count| count > 0), "before {rest:.80}");
            }
            // Their content is not markup.
            (false, "script" | "style") => {
                rest = &rest[rest.find(&format!("</{name}>")).expect("it ends")..];
            }
            _ => {}
        }
    }
    assert!(open.is_empty() && table_count > 20, "{open:?}, {table_count} tables");
}
