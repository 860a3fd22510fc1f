use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::condition::Condition;
use crate::machine::Machine;
use crate::plan::{self, Driver, Place};
use crate::rows::{Rows, Unit, number};
use crate::saved::{Figures, Sample, Saved, SavedCase, SavedEngine, VERSION};
use crate::{drop_ins, html, limit, markdown, pages_dir, parse, picture, rows, runs, targets};

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .and_then(Path::parent)
        .expect("peers/race is two levels down")
}

#[test]
fn every_engine_workload_and_target_is_read_and_fits_the_others() {
    let peers = root().join("peers");
    let engines = plan::engines(&peers).expect("engines.toml");
    let workloads = plan::workloads(&peers).expect("workloads/");
    let is_engine = |name: &String| engines.iter().any(|engine| engine.name == *name);
    for target in targets::read(&peers).expect("targets.toml") {
        let limits = [target.at_most, target.at_least].iter().flatten().count();
        assert_eq!(limits, 1, "{}: one limit", target.work);
        if let Some(name) = target.case.strip_prefix("drop-ins/") {
            let library = drop_ins::LIBRARIES.iter().find(|library| library.name == name);
            let library = library.unwrap_or_else(|| panic!("{}: no library {name}", target.work));
            assert!(library.labels.contains(&target.label.as_str()), "{}", target.work);
            assert_eq!(target.ours, library.engine(true), "{}", target.work);
            assert!(
                target.than.is_none_or(|than| than == library.engine(false)),
                "{}",
                target.work
            );
            continue;
        }
        let case = workloads
            .iter()
            .flat_map(|workload| workload.cases.iter().map(move |case| (workload, case)))
            .find(|(workload, case)| format!("{}/{}", workload.name, case.name) == target.case);
        let (_, case) = case.unwrap_or_else(|| panic!("{}: no case {}", target.work, target.case));
        let has = |label: &String| {
            label == "everything" && case.has_total
                || case.steps.iter().any(|step| {
                    step.phases(Place::Disk, 1).iter().any(|phase| {
                        phase.label == *label || format!("{}: {}", step.name, phase.label) == *label
                    })
                })
        };
        assert!(has(&target.label), "{}: no phase {}", target.work, target.label);
        assert!(target.than_label.as_ref().is_none_or(has), "{}", target.work);
        assert!(is_engine(&target.ours), "{}: no engine {}", target.work, target.ours);
    }
    for case in workloads.iter().flat_map(|workload| &workload.cases) {
        assert!(case.engines.iter().flatten().all(is_engine), "{}: {:?}", case.name, case.engines);
    }
    for engine in &engines {
        let source = engine.source.as_ref().map(|source| peers.join("cpp").join(source));
        assert!(source.is_none_or(|path| path.exists()), "{}", engine.name);
        assert!(engine.tuning.len() > 10 && engine.manual.len() > 10, "{}", engine.name);
    }
}

#[test]
fn counts_are_scaled_and_labels_leave_them_out() {
    let step = plan::Step {
        name: String::new(),
        files: plan::Files::New,
        phases: ["open", "create", "close", "reopen=open", "hit:4000", "get_many:640:32", "=scan"]
            .map(str::to_owned)
            .to_vec(),
    };
    let shown = |place, divisor| -> Vec<String> {
        let phases = step.phases(place, divisor);
        phases.iter().map(|phase| format!("{} {}", phase.label, phase.text)).collect()
    };
    assert_eq!(
        shown(Place::Disk, 20),
        [
            "open open",
            "create create",
            "close close",
            "reopen open",
            "hit hit:200",
            "get_many:32 get_many:32:32",
            " scan"
        ]
    );
    assert_eq!(
        shown(Place::Memory, 1),
        ["open open", "create create", "hit hit:4000", "get_many:32 get_many:640:32", " scan"]
    );
}

#[test]
fn wrong_options_are_refused_with_what_there_is() {
    let parsed = |line: &str| parse(line.split_whitespace().map(str::to_owned));
    for line in [
        "--fast",
        "--runs 0",
        "--runs",
        "--engines --quick",
        "W2",
        "--drivers loose",
        "--conditions quiet,loud",
        "--machine a/b",
        "--machine --quick",
        "--drop-ins",
    ] {
        assert!(parsed(line).is_err(), "{line}");
    }
    let options = parsed("--quick --engines a,b --runs 5").expect("they are right");
    assert!(options.is_quick);
    assert_eq!(options.engines, Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(options.runs, Some(5));
    let options = parsed("--drivers dependent,dependent --conditions copy,quiet --machine rack-7");
    let options = options.expect("they are right");
    assert_eq!(options.drivers(), [Driver::Dependent]);
    assert_eq!(options.conditions(), [Condition::Copy, Condition::Quiet]);
    assert_eq!(options.machine.as_deref(), Some("rack-7"));
    assert_eq!(parsed("").expect("nothing is right").conditions(), [Condition::Quiet]);
    let failure = parsed("--drivers fast").expect_err("there is no such driver");
    assert_eq!(failure, "there is no `fast`; there are: tight, dependent");
    let names = ["W9".to_owned()];
    let workloads = plan::workloads(&root().join("peers")).expect("they are read");
    let workloads: Vec<_> =
        workloads.into_iter().filter(|workload| workload.name != "W9").collect();
    let failure = plan::chosen(workloads, Some(&names), |workload| &workload.name)
        .expect_err("there is none of that name");
    assert!(failure.starts_with("there is no `W9`; there are: W1, W2"), "{failure}");
}

pub fn sample(engine: &str, label: &str, run: usize, ops: u64, ns: u64) -> Sample {
    Sample {
        workload: "W2".into(),
        case: "small".into(),
        step: String::new(),
        label: label.into(),
        engine: engine.into(),
        run,
        part: 0,
        version: String::new(),
        figures: Figures {
            ops,
            ns,
            worst_ns: ns / 2,
            disk_bytes: Some(4096),
            ..Figures::default()
        },
    }
}

pub fn race() -> Saved {
    let engine = |name: &str, place| SavedEngine {
        name: name.into(),
        title: name.to_uppercase(),
        place,
        kind: "hash".into(),
        version: "1".into(),
        tuning: "none".into(),
        manual: "none".into(),
    };
    let mut samples = Vec::new();
    for (run, ns) in [3000, 1000, 2000].into_iter().enumerate() {
        samples.push(sample("splitpoint", "create", run, 100, ns));
        samples.push(sample("other", "create", run, 100, ns * 4));
        samples.push(sample("splitpoint", "close", run, 1, 5_000_000));
    }
    let mut none = sample("other", "get_many:32", 0, 0, 0);
    none.figures.unsupported = Some("no call for many keys".into());
    samples.push(none);
    Saved {
        version: VERSION,
        date: "2026-11-21 12:00 UTC".into(),
        command: vec!["--quick".into()],
        commit: "abc".into(),
        is_quick: false,
        run_count: 3,
        machine: Machine::default(),
        engines: vec![engine("splitpoint", Place::Disk), engine("other", Place::Disk)],
        missing: vec![crate::saved::Missing { engine: "third".into(), reason: "no <a.h>".into() }],
        cases: vec![SavedCase {
            workload: "W2".into(),
            name: "small".into(),
            title: "few".into(),
            records: 100,
            key_bytes: 16,
            value_bytes: 100,
            has_total: true,
            total_of: Vec::new(),
            driver: Driver::Tight,
            condition: Condition::Quiet,
        }],
        samples,
        failures: Vec::new(),
        later: Vec::new(),
    }
}

#[test]
fn what_takes_too_long_is_killed_and_what_does_not_is_left_alone() {
    let mut sleeping = Command::new("sleep");
    let (output, is_late) =
        limit::output(sleeping.arg("600"), Duration::from_millis(50)).expect("it starts");
    assert!(is_late && !output.status.success(), "{output:?}");
    let mut quick = Command::new("sh");
    quick.args(["-c", "echo out; echo err >&2"]);
    let (output, is_late) = limit::output(&mut quick, Duration::from_secs(60)).expect("it starts");
    assert!(!is_late && output.status.success(), "{output:?}");
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"out\n"[..], &b"err\n"[..])
    );
    let none = limit::output(&mut Command::new("/no/such/program"), Duration::from_secs(60));
    assert!(none.is_err(), "{none:?}");
}

#[test]
fn an_engine_three_times_slower_at_the_same_phases_is_not_run_again() {
    let mut saved = race();
    let slow = |saved: &Saved| Vec::from_iter(runs::slow_engines(saved, "W2", "small"));
    // Four times slower at the phase that both have; nobody else has `close`.
    assert_eq!(slow(&saved), ["other"]);
    assert_eq!(Vec::from_iter(runs::slow_engines(&saved, "W2", "large")), [""; 0]);
    // As fast in the first run, which decides.
    for sample in saved.samples.iter_mut().filter(|sample| sample.run == 0) {
        sample.figures.ns = 3000;
    }
    assert_eq!(slow(&saved), [""; 0]);
    // One that has none of the long phases sets no pace for those that have them.
    for sample in saved.samples.iter_mut().filter(|sample| sample.engine == "splitpoint") {
        sample.figures.ns = 1_000_000_000;
    }
    assert_eq!(slow(&saved), [""; 0]);
    // Nor does one in another place.
    let mut saved = race();
    saved.engines[1].place = Place::Memory;
    assert_eq!(slow(&saved), [""; 0]);
}

#[test]
fn a_case_has_as_many_runs_as_it_says() {
    let workloads = plan::workloads(&root().join("peers")).expect("they are read");
    let runs = |name: &str, others| {
        let workload = workloads.iter().find(|workload| workload.name == name);
        workload.expect("it is there").cases[0].run_count(others)
    };
    assert_eq!((runs("W1", 3), runs("W2", 3), runs("W7", 3), runs("W8", 1)), (9, 3, 1, 1));
}

#[test]
fn rows_have_the_median_the_extremes_and_the_total() {
    let rows = Rows::of(&race());
    let row = rows.find("W2/small", "create", "splitpoint").expect("it was measured");
    assert_eq!((row.median_ns, row.min_ns, row.max_ns, row.run_count), (20.0, 10.0, 30.0, 3));
    assert_eq!(row.worst_ns, 1500);
    let total = rows.find("W2/small", "everything", "splitpoint").expect("it is summed up");
    assert_eq!((total.median_ns, total.ops), (5_002_000.0, 1));
    assert_eq!(rows.find("W2/small", "get_many:32", "other"), None);
    assert_eq!(rows.labels("W2/small"), ["create", "close", "everything"]);
}

#[test]
fn tables_have_the_best_in_bold_and_a_dash_for_what_is_not_there() {
    let saved = race();
    let table = markdown::times(&saved, &Rows::of(&saved), &saved.cases[0], Place::Disk);
    assert_eq!(
        table.expect("two engines").to_markdown(),
        "| engine | create, ns | close, ms | everything, ms |\n|---|--:|--:|--:|\n\
         | SPLITPOINT | **20.0** | **5.00** | **5.00** |\n| OTHER | 80.0 | - | - |\n"
    );
    assert!(
        markdown::times(&saved, &Rows::of(&saved), &saved.cases[0], Place::Memory).is_none(),
        "no engine is in memory"
    );
}

#[test]
fn targets_are_compared_with_the_best_other_or_by_themselves() {
    let saved = race();
    let rows = Rows::of(&saved);
    let target = |more: &str| -> targets::Target {
        toml::from_str(&format!("work = \"w\"\ncase = \"W2/small\"\nlabel = \"create\"\n{more}"))
            .expect("a target")
    };
    let verdict = |more: &str| targets::judge(&target(more), &saved, &rows);
    let best = verdict("place = \"disk\"\nat_most = 0.25").expect("both were measured");
    assert_eq!((best.found, best.is_met), (0.25, true));
    assert_eq!(best.other, Some(("OTHER".to_owned(), 80.0)));
    let than = verdict("than = \"other\"\nat_most = 0.2").expect("both were measured");
    assert_eq!((than.found, than.is_met), (0.25, false));
    let bytes = verdict("measure = \"disk_bytes_per_record\"\nat_most = 40.0").expect("measured");
    assert_eq!((bytes.found, bytes.is_met), (40.96, false));
    let label = verdict("than_label = \"close\"\nat_least = 1e-6").expect("both were measured");
    assert!(label.is_met);
    assert_eq!(verdict("than = \"third\"\nat_most = 0.2"), None);
}

/// The total of W2 leaves out what comes after the scan, and an engine without a phase has none.
#[test]
fn a_total_sums_up_the_phases_that_its_case_names() {
    let mut saved = race();
    saved.cases[0].total_of = vec!["create".into()];
    let total = |saved: &Saved, engine: &str| {
        Rows::of(saved).find("W2/small", "everything", engine).map(|row| row.median_ns)
    };
    assert_eq!((total(&saved, "splitpoint"), total(&saved, "other")), (Some(2000.0), Some(8000.0)));
    saved.cases[0].total_of.push("close".into());
    assert_eq!((total(&saved, "splitpoint"), total(&saved, "other")), (Some(5_002_000.0), None));
}

#[test]
fn races_of_two_machines_or_of_two_sizes_are_not_one_report() {
    let mut other = race();
    other.machine.processor_count = 64;
    let failure = Saved::merged([race(), other]).expect_err("they are of two machines");
    assert!(
        failure.contains("different machines: `unknown-0core` and `unknown-64core`"),
        "{failure}"
    );
    let mut smaller = race();
    smaller.cases[0].records = 5;
    let failure = Saved::merged([race(), smaller]).expect_err("they are of two sizes");
    assert!(
        failure.starts_with("W2 small has 100 records in one race and 5 in another"),
        "{failure}"
    );
}

#[test]
fn the_pages_of_a_second_machine_have_a_directory_of_their_own() {
    let dir = std::env::temp_dir().join(format!("race-pages-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("it is made");
    assert_eq!(pages_dir(&dir, "unknown-0core"), dir, "there is no page yet");
    let page = markdown::page(&race(), &[], &[], "race.json", "");
    std::fs::write(dir.join("results.md"), &page).expect("it is written");
    assert_eq!(pages_dir(&dir, "unknown-0core"), dir);
    assert_eq!(pages_dir(&dir, "rack-7"), dir.join("rack-7"));
    std::fs::remove_dir_all(&dir).expect("it is removed");
    let page = markdown::page(&race(), &[], &[], "race.json", "../");
    assert!(page.starts_with("# Results on unknown-0core\n"), "{page}");
    assert!(page.contains("(../METHODOLOGY.md)"), "{page}");
}

/// What was killed took longer than its time: others are at least so much better.
#[test]
fn what_was_killed_is_shown_as_more_and_counts_against_another_but_not_for_us() {
    let mut saved = race();
    for sample in saved.samples.iter_mut().filter(|sample| sample.label == "create") {
        sample.figures.is_unfinished = sample.engine == "other";
    }
    let rows = Rows::of(&saved);
    assert!(rows.find("W2/small", "create", "other").is_none(), "it has no time");
    let table = markdown::times(&saved, &rows, &saved.cases[0], Place::Disk).expect("rows");
    assert_eq!(table.lines[1][1], "> 80.0");
    let text =
        "work = \"w\"\ncase = \"W2/small\"\nlabel = \"create\"\nthan = \"other\"\nat_most = 0.25";
    let mut target: targets::Target = toml::from_str(text).expect("a target");
    assert!(targets::judge(&target, &saved, &rows).expect("both were begun").is_met);
    (target.ours, target.than) = ("other".into(), Some("splitpoint".into()));
    assert_eq!(targets::judge(&target, &saved, &rows), None, "ours has no time");
    let line = rows::line(&saved.samples[1..2]);
    assert_eq!(line, "create > 120 ns");
}

#[test]
fn the_operations_of_a_phase_are_known_before_it() {
    let count = |text: &str| plan::Phase { label: String::new(), text: text.into() }.op_count(7);
    assert_eq!((count("create"), count("hit:5")), (Some(7), Some(5)));
    assert_eq!((count("scan"), count("close"), count("hit")), (None, None, None));
}

#[test]
fn a_time_is_divided_by_the_others_of_the_same_run() {
    let mut saved = race();
    for sample in saved.samples.iter_mut().filter(|sample| sample.engine == "other") {
        sample.figures.ns = [2_500, 10_000, 1_000][sample.run];
    }
    let text =
        "work = \"w\"\ncase = \"W2/small\"\nlabel = \"create\"\nplace = \"disk\"\nat_most = 1";
    let target: targets::Target = toml::from_str(text).expect("a target");
    let verdict = targets::judge(&target, &saved, &Rows::of(&saved)).expect("both were measured");
    // 3,000, 1,000 and 2,000 by those; the medians alone would give 0.8.
    assert_eq!((verdict.found, verdict.is_met), (1.2, false));
    assert_eq!((verdict.ours, verdict.other), (20.0, Some(("OTHER".to_owned(), 25.0))));
}

#[test]
fn a_missed_target_is_explained_and_a_met_one_is_not() {
    let saved = race();
    let rows = Rows::of(&saved);
    let target = |work: &str, at_most: f64, bound: &str| -> targets::Target {
        let text = format!(
            "work = \"{work}\"\ncase = \"W2/small\"\nlabel = \"create\"\nthan = \"other\"\n\
             at_most = {at_most}\n{bound}"
        );
        toml::from_str(&text).expect("a target")
    };
    let bound = "bound = \"\"\"\nthe memory:\nA and B were tried\"\"\"";
    let all = [target("met", 0.5, bound), target("far", 0.1, bound), target("new", 0.1, "")];
    let lines = ["**far**: the memory: A and B were tried", "**new**: not explained yet"];
    assert_eq!(markdown::bounds(&saved, &rows, &all), lines);
    let page = markdown::page(&saved, &all, &[], "race.json", "");
    assert!(page.contains(&format!("{}\n\n- {}\n", markdown::MISSED, lines.join("\n- "))));
    let page = html::page(&saved, &all, &[]);
    assert!(page.contains("<li><b>far</b>: the memory: A and B were tried</li>"), "{page}");
}

#[test]
fn bounds_link_the_records_and_documents_that_they_name() {
    let target: targets::Target = toml::from_str(
        "work = \"far\"\ncase = \"W2/small\"\nlabel = \"create\"\nthan = \"other\"\nat_most = 0.1\n\
         bound = \"(no gain; record/2026-01-02-x). See METHODOLOGY.md; records/y is no record.\"",
    )
    .expect("a target");
    let page = markdown::page(&race(), &[target], &[], "record/z/race.json", "");
    let line = "- **far**: (no gain; [record/2026-01-02-x](../../record/2026-01-02-x/README.md)). See \
                [METHODOLOGY.md](METHODOLOGY.md); records/y is no record.\n";
    assert!(page.contains(line), "{page}");
    assert!(page.contains("--report record/z/race.json`"), "{page}");
}

#[test]
fn pages_name_skipped_engines_and_hold_every_picture() {
    let saved = race();
    let pictures = picture::all(&saved);
    assert_eq!(pictures.len(), 1);
    assert_eq!(pictures[0].file, "w2-small-disk.svg");
    let page = markdown::page(&saved, &[], &pictures, "record/x/race.json", "");
    assert!(page.contains("- skipped: third: no <a.h>"), "{page}");
    assert!(page.contains("(w2-small-disk.svg)"), "{page}");
    let page = html::page(&saved, &[], &pictures);
    assert!(page.contains("skipped: third: no &lt;a.h&gt;"), "{page}");
    assert_eq!(page.matches("<svg").count(), 1);
    assert!(page.contains("<b>20.0</b>"), "{page}");
}

#[test]
fn parts_of_a_race_are_one_report_and_what_two_of_them_did_is_that_of_the_later_one() {
    let first = Saved { is_quick: true, ..race() };
    let mut later = race();
    (later.date, later.commit) = ("2026-11-22 09:00 UTC".into(), "def".into());
    later.command = vec!["--workloads".into(), "W3".into()];
    later.engines[0].version = "2".into();
    later.engines[1].name = "fourth".into();
    later.cases[0].workload = "W3".into();
    for sample in &mut later.samples {
        sample.workload = "W3".into();
        if sample.engine == "other" {
            sample.engine = "fourth".into();
        }
    }
    let both = Saved::merged([first.clone(), later]).expect("there are two");
    let rows = Rows::of(&both);
    assert!(rows.find("W2/small", "create", "other").is_some());
    assert!(rows.find("W3/small", "create", "fourth").is_some());
    let engines: Vec<_> =
        both.engines.iter().map(|engine| (engine.name.as_str(), engine.version.as_str())).collect();
    assert_eq!(engines, [("splitpoint", "1, 2"), ("other", "1"), ("fourth", "1")]);
    assert_eq!(both.missing.len(), 1, "the same engine is missing in both");
    let page = markdown::page(&both, &[], &picture::all(&both), "a.json,b.json", "");
    let runs = [
        ["2026-11-21 12:00 UTC", "abc", "`cargo xtask race --quick`"],
        ["2026-11-22 09:00 UTC", "def", "`cargo xtask race --workloads W3`"],
    ];
    let html = html::page(&both, &[], &[]);
    for run in runs {
        assert!(page.contains(&run.join(" | ")), "{page}");
        assert!(html.contains(&format!("<td>{}</td>", run.join("</td><td>"))), "{html}");
    }
    let warning = "it shows that the harness works";
    assert!(page.contains(warning) && html.contains(warning), "one part was quick");
    assert!(
        page.contains("\n- [W3, small, 100 records, on disk](#w3-small-100-records-on-disk)\n")
    );
    assert!(page.contains("## W2, small") && page.contains("## W3, small"), "{page}");
    // The one engine again, in half the time.
    let mut again = first.clone();
    again.samples.retain(|sample| sample.engine == "splitpoint");
    again.engines[0].version = "2".into();
    for sample in &mut again.samples {
        sample.figures.ns /= 2;
    }
    let twice = Saved::merged([first.clone(), again]).expect("there are two");
    assert_eq!((twice.cases.len(), twice.samples.len()), (first.cases.len(), first.samples.len()));
    let rows = Rows::of(&twice);
    let create = |engine| rows.find("W2/small", "create", engine).expect("it was run").median_ns;
    assert_eq!((create("splitpoint"), create("other")), (10.0, 80.0));
    // Their runs were not by turns: the medians are compared.
    let text =
        "work = \"w\"\ncase = \"W2/small\"\nlabel = \"create\"\nplace = \"disk\"\nat_most = 1";
    let target: targets::Target = toml::from_str(text).expect("a target");
    let verdict = targets::judge(&target, &twice, &rows).expect("both were measured");
    assert!((verdict.found - 0.125).abs() < 1e-9, "{verdict:?}");
    let versions = ["splitpoint", "other"]
        .map(|engine| rows.find("W2/small", "create", engine).map(|row| row.version.as_str()));
    assert_eq!(versions, [Some("2"), Some("1")]);
    assert!(Saved::merged([]).is_err(), "there is nothing to report");
}

/// Three sizes are one picture with a line for each engine, and no bars.
#[test]
fn the_cases_of_the_curve_are_one_picture() {
    let mut saved = race();
    let (case, samples) = (saved.cases.remove(0), std::mem::take(&mut saved.samples));
    for records in [100, 1000, 10_000] {
        let name = records.to_string();
        let workload = "curve".to_owned();
        for sample in samples.iter().filter(|sample| sample.label == "create") {
            let (workload, case) = (workload.clone(), name.clone());
            saved.samples.push(Sample { workload, case, ..sample.clone() });
        }
        saved.cases.push(SavedCase { workload, name, records, has_total: false, ..case.clone() });
    }
    let pictures = picture::all(&saved);
    assert_eq!(pictures.len(), 1);
    assert_eq!(pictures[0].file, "curve.svg");
    assert_eq!(pictures[0].svg.matches("<polyline").count(), 2);
    let page = markdown::page(&saved, &[], &pictures, "race.json", "");
    assert_eq!(page.matches("(curve.svg)").count(), 1, "with the last case");
}

#[test]
fn every_row_is_a_line_of_the_csv_with_as_many_fields_as_heads() {
    let mut saved = race();
    saved.engines[0].version = "1,2 \"x\"".into();
    let saved = Saved::merged([saved]).expect("there is one");
    let page = crate::csv::page(&saved);
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines.len(), 1 + Rows::of(&saved).0.len());
    let create = "W2/small,create,splitpoint,\"1,2 \"\"x\"\"\",3,100,20.0,10.0,30.0,1500,";
    assert!(lines[1].starts_with(create), "{}", lines[1]);
    let commas = |line: &str| line.matches(',').count();
    assert!(lines[2..].iter().all(|line| commas(&line.replace("1,2", "")) == commas(lines[0])));
}

#[test]
fn numbers_have_three_digits_and_times_their_unit() {
    let shown: Vec<String> = [0.0, 0.1234, 1.234, 12.34, 123.4, 12345.6].map(number).to_vec();
    assert_eq!(shown, ["0", "0.123", "1.23", "12.3", "123", "12,346"]);
    assert_eq!(Unit::of("durable:8", 2000).show(116_386.0), "116");
    assert_eq!(Unit::of("close", 1).show(1_500_000.0), "1.50");
}
