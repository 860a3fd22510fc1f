//! The page of a study, as text; what browsers make of it is tested with the command.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use splitpoint_lab::document::Look;
use splitpoint_lab::{Reduction, Report, Setup, Specimen, Study, Verdict, report};

/// Returns a study of keys on which nothing was measured.
fn bare() -> Study {
    let study = json!({
        "schema": splitpoint_lab::study::SCHEMA,
        "program": {"version": "0.1.0", "arguments": ["lab", "hash", "ids"], "started_unix_s": 0},
        "machine": {"processor": "", "core_count": 1, "system": ""},
        "keys": {
            "source": "ids", "format": "lines", "key_count": 3000, "key_bytes": 21000,
            "lengths": [{"bytes_min": 7, "bytes_max": 7, "key_count": 3000}],
            "duplicate_count": 0, "duplicates": {"kind": "removed"},
            "blank_count": 0, "carriage_return_count": 0, "examples": ["a000000"],
        },
    });
    serde_json::from_value(study).expect("all other fields have defaults")
}

fn measured(hash: &str, reduction: Reduction, bucket_count: u64) -> Report {
    let keys: Vec<String> = (0..3000).map(|n| format!("a{n:06}")).collect();
    let specimen = Specimen::by_name(hash).expect("a function");
    let setup = Setup::new(specimen, 0, reduction, bucket_count).expect("a size that suits");
    Report::new(&setup.count(keys.iter().map(String::as_bytes)))
}

/// Returns a study with several functions and sizes, and every other section.
fn full() -> Study {
    let text = include_str!("../golden/page.json");
    serde_json::from_str(text).expect("the golden study can be read")
}

fn page_of(study: &Study) -> String {
    report::document(study).html()
}

fn json_of(study: &Study) -> Value {
    serde_json::to_value(study).expect("a study can be saved")
}

#[test]
fn the_golden_study_has_the_golden_page() {
    let page = page_of(&full());
    let golden = include_str!("../golden/page.html");
    if page != golden {
        let found = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.html");
        std::fs::write(&found, &page).expect("the target directory can be written");
        let start = page.bytes().zip(golden.bytes()).take_while(|(one, other)| one == other);
        panic!(
            "byte {} differs; look at {} in a browser, and if it is right copy it to \
             tests/golden/page.html",
            start.count(),
            found.display()
        );
    }
}

#[test]
fn a_page_made_later_is_the_page_made_at_once() {
    let mut study = bare();
    for hash in ["fnv1a-32", "netbsd-byte-sum", "siphash-1-3"] {
        for bucket_count in [512, 1000, 4096] {
            study.reports.push(measured(hash, Reduction::Modulus, bucket_count));
        }
    }
    let text = serde_json::to_string(&study).expect("a study can be saved");
    let saved: Study = serde_json::from_str(&text).expect("and read");
    assert_eq!(saved, study);
    assert_eq!(page_of(&saved), page_of(&study));
}

/// Every text in the study is replaced by one that closes what is open and brings a script along.
#[test]
fn hostile_text_is_shown_and_not_obeyed() {
    const HOSTILE: &str =
        "\"'></title></style></script><script>alert(1)</script>\u{1b}[31m\u{202e}\0";
    fn poison(value: &mut Value) {
        match value {
            Value::String(text) => *text = HOSTILE.to_string(),
            Value::Array(values) => values.iter_mut().for_each(poison),
            // Names of variants are not free: those of verdicts, methods, manners and bounds.
            Value::Object(fields) => {
                fields
                    .iter_mut()
                    .filter(|(name, _)| !["kind", "method", "manner", "bound"].contains(&&***name))
                    .for_each(|(_, v)| poison(v));
            }
            _ => {}
        }
    }
    let mut value = json_of(&full());
    poison(&mut value);
    let study: Study = serde_json::from_value(value).expect("texts are free");
    let page = page_of(&study);
    assert_eq!(page.matches("<script").count(), 1, "the page's own");
    assert_eq!(page.matches("</script").count(), 1);
    assert_eq!(page.matches("</style").count(), 1);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;\\u{1b}[31m\\u{202e}\\u{0}"));
    let is_hidden = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert_eq!(page.find(is_hidden), None);
}

#[test]
fn a_page_names_no_address() {
    let page = page_of(&full());
    for word in ["http:", "https:", "src=\"", "url(", "@import", "fetch", "//cdn"] {
        assert!(!page.contains(word), "the page has `{word}`");
    }
    for target in page.split("href=\"").skip(1) {
        assert!(target.starts_with('#') || target.starts_with("data:,\""), "{}", &target[..40]);
    }
}

#[test]
fn every_mark_is_unique_and_every_link_has_one() {
    let page = page_of(&full());
    let values = |name: &str| -> Vec<String> {
        let start = format!("{name}=\"");
        let parts = page.split(&start).skip(1);
        parts.map(|part| part.split('"').next().unwrap_or("").to_string()).collect()
    };
    let marks = values(" id");
    let unique: BTreeSet<&String> = marks.iter().collect();
    assert_eq!(unique.len(), marks.len());
    let targets = values("aria-labelledby").into_iter().chain(values("aria-describedby"));
    let links =
        values("href").into_iter().filter_map(|it| it.strip_prefix('#').map(str::to_string));
    for target in targets.chain(links) {
        assert!(unique.contains(&target), "nothing is called `{target}`");
    }
}

#[test]
fn sections_without_data_are_absent() {
    let page = page_of(&bare());
    for id in
        ["gates", "choices", "league", "cost", "chains", "depth", "avalanche", "timing", "slots"]
    {
        assert!(!page.contains(&format!("id=\"{id}\"")), "{id}");
        assert!(page_of(&full()).contains(&format!("<section id=\"{id}\"")), "{id}");
    }
    let mut study = bare();
    study.reports.push(measured("fnv1a-32", Reduction::LowMask, 1024));
    let page = page_of(&study);
    assert!(page.contains("id=\"depth\"") && !page.contains("id=\"league\""));
}

/// Every function was measured once, at a size that its reduction can address.
#[test]
fn functions_of_one_size_each_are_not_said_to_be_measured_at_all_sizes() {
    let mut study = bare();
    study.reports.push(measured("siphash-1-3", Reduction::LowMask, 4096));
    study.reports.push(measured("xxh3-64", Reduction::PrimeModulus, 3001));
    study.reports.push(measured("rapidhash-v3", Reduction::Split, 3000));
    let page = page_of(&study);
    assert!(page.contains("in tables of the size that each needs"));
    assert!(!page.contains("at all of") && !page.contains("id=\"cost\""), "a plot of single dots");
    study.reports.push(measured("rapidhash-v3", Reduction::Split, 3500));
    assert!(page_of(&study).contains("id=\"cost\""));
}

#[test]
fn every_test_of_a_table_has_its_row() {
    let text_of = |study: &Study| report::document(study).text(&Look::plain(80));
    for keys in [3000, 2] {
        let keys: Vec<String> = (0..keys).map(|n| format!("a{n:06}")).collect();
        let specimen = Specimen::by_name("fnv1a-64").expect("a function");
        let setup = Setup::new(specimen, 0, Reduction::LowMask, 4096).expect("a size that suits");
        let mut study = bare();
        study.reports.push(Report::new(&setup.count(keys.iter().map(String::as_bytes))));
        let text = text_of(&study);
        let (_, table) = text.split_once(" tests on this table;").expect("the table");
        let (_, rows) = table.split_once("\ntest ").expect("its heading");
        let rows = rows.lines().skip(1).take_while(|line| !line.is_empty()).count();
        assert_eq!(rows, study.reports[0].test_count as usize, "{text}");
    }
}

#[test]
fn a_verdict_has_one_word_in_a_league_and_in_depth() {
    let mut slight = measured("fnv1a-32", Reduction::LowMask, 4096);
    slight.verdict = Verdict::Worse { cost_ratio: 1.01 };
    slight.cost_ratio = 1.01;
    let mut one = bare();
    one.reports.push(slight.clone());
    let mut several = bare();
    several.reports.extend([measured("siphash-1-3", Reduction::LowMask, 4096), slight]);
    for study in [one, several] {
        let document = report::document(&study);
        let text = document.text(&Look::plain(80));
        assert!(text.contains("slight"), "{text}");
        assert!(document.html().contains("class=\"badge slight\">slight</span>"));
    }
    assert!(slight_of(1.01).starts_with("slight: ") && slight_of(1.2).starts_with("worse: "));
}

fn slight_of(cost_ratio: f64) -> String {
    Verdict::Worse { cost_ratio }.to_string()
}

#[test]
fn functions_that_fit_are_in_the_order_of_their_time_or_name() {
    let mut study = bare();
    for (hash, cost_ratio) in [("siphash-1-3", 0.999), ("fnv1a-64", 1.001), ("xxh3-64", 1.0)] {
        let report = measured(hash, Reduction::LowMask, 4096);
        study.reports.push(Report { verdict: Verdict::Fits, cost_ratio, ..report });
    }
    let structured = measured("sdbm", Reduction::LowMask, 4096);
    let verdict = Verdict::Structured;
    study.reports.push(Report { verdict, cost_ratio: 0.8, ..structured });
    let order = |study: &Study| -> Vec<String> {
        let text = report::document(study).text(&Look::plain(80));
        let rows = text.lines().filter(|line| line.contains(" low "));
        rows.filter_map(|row| row.split(' ').next().map(str::to_string)).collect()
    };
    assert_eq!(order(&study), ["fnv1a-64", "siphash-1-3", "xxh3-64", "sdbm"]);
    study.timings = full().timings;
    for (timing, (hash, ns)) in
        study.timings.iter_mut().zip([("siphash-1-3", 9.0), ("xxh3-64", 1.0)])
    {
        timing.hash = hash.to_string();
        timing.latency_ns.median = ns;
    }
    study.timings.truncate(2);
    assert_eq!(order(&study), ["xxh3-64", "siphash-1-3", "fnv1a-64", "sdbm"]);
}

#[test]
fn an_interrupted_study_says_so_first() {
    let mut study = bare();
    assert!(!page_of(&study).contains("Stopped before its end"));
    let missing = "2 of 5 sizes".to_string();
    study.interruption = Some(splitpoint_lab::study::Interruption { key_count: 17, missing });
    let page = page_of(&study);
    let verdict = page.find("id=\"verdict\"").expect("a verdict");
    let alert = page[verdict..].find("Stopped before its end").expect("a warning");
    assert!(alert < 300, "{alert} bytes after the heading");
    assert!(page.contains("17 keys had been counted. Missing: 2 of 5 sizes"));
}

/// Sixty functions with three reductions, at twenty sizes with three seeds.
#[test]
fn a_large_study_has_a_page_of_a_few_megabytes() {
    let mut study = bare();
    let report = measured("netbsd-byte-sum", Reduction::LowMask, 4096);
    for function in 0..60 {
        for reduction in ["low", "high", "range"] {
            for bits in 4..24 {
                for seed in 0..3 {
                    study.reports.push(Report {
                        hash: format!("function-{function}").into(),
                        reduction: reduction.to_string(),
                        seed,
                        bucket_count: 1 << bits,
                        ..report.clone()
                    });
                }
            }
        }
    }
    let page = page_of(&study);
    assert!(page.len() < 5 << 20, "{} bytes", page.len());
    assert!(page.contains("Of 10,800 measurements these are 80"));
}

#[test]
fn keys_at_the_edge_have_pages_without_wrong_numbers() {
    let one_key = vec![b"key".to_vec()];
    let equal = vec![b"key".to_vec(); 500];
    for keys in [Vec::new(), one_key, equal] {
        for bucket_count in [1, 2, 1 << 16] {
            let specimen = Specimen::by_name("fnv1a-32").expect("a function");
            let setup =
                Setup::new(specimen, 0, Reduction::LowMask, bucket_count).expect("it suits");
            let mut study = bare();
            study.reports.push(Report::new(&setup.count(keys.iter().map(Vec::as_slice))));
            study.reports.push(Report { bucket_count: 4, ..study.reports[0].clone() });
            let page = page_of(&study);
            for word in ["NaN", "inf<", "inf ", "-inf"] {
                let at = page.find(word).map(|at| &page[at.saturating_sub(200)..at + 20]);
                assert_eq!(at, None, "{} keys, {bucket_count} buckets", keys.len());
            }
        }
    }
}
