//! The programs around the engines: the two harnesses of the tight driver, and the dependent driver.

use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::plan::{self, Driver};
use crate::programs::{self, Program, Programs};
use crate::saved::Figures;
use crate::tests::root;

/// Engines that need no package, one in each language and one that lacks calls.
const ENGINES: [&str; 3] = ["std_unordered_map", "std_hash_map", "hsearch"];

/// Builds them once for all tests, which would otherwise write programs that others run; nothing
/// without a compiler for C++.
fn built() -> Option<&'static Programs> {
    static BUILT: OnceLock<Option<Programs>> = OnceLock::new();
    let build = || {
        if Command::new("g++").arg("--version").output().is_err() {
            println!("left out: there is no g++ for the harness in C++");
            return None;
        }
        let mut engines = plan::engines(&root().join("peers")).expect("they are read");
        engines.retain(|engine| ENGINES.contains(&engine.name.as_str()));
        let programs = Programs::build(root(), &engines, &Driver::ALL);
        assert!(programs.missing.is_empty(), "{:?}", programs.missing);
        Some(programs)
    };
    BUILT.get_or_init(build).as_ref()
}

/// Returns the program of an engine in a driver.
fn program(engine: &str, driver: Driver) -> Option<&'static Program> {
    let mut programs = built()?.built.iter();
    programs.find(|program| program.engine.name == engine && program.driver == driver)
}

/// Returns the programs of the map in C++ and of that in Rust, in each of these drivers.
fn both_languages(drivers: &[Driver]) -> Option<Vec<&'static Program>> {
    let of_driver =
        |&driver: &Driver| ENGINES[..2].iter().map(move |engine| program(engine, driver));
    drivers.iter().flat_map(of_driver).collect()
}

/// Runs a program with records of this size.
fn run(program: &Program, records: &str, bytes: (&str, &str), more: &[&str]) -> Output {
    let mut command = Command::new(&program.path);
    command.args(["--checksum", "--records", records, "--key-bytes", bytes.0]);
    command.arg("--dir").arg(programs::target(root())).args(["--value-bytes", bytes.1]);
    command.args(more).output().expect("it starts")
}

fn figures(program: &Program, output: &Output) -> Vec<Figures> {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", program.engine.name);
    let lines = String::from_utf8_lossy(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).expect("a phase")).collect()
}

/// What was asked and answered in a phase.
fn asked(figures: Vec<Figures>) -> Vec<(String, u64, String)> {
    let of_phase =
        |figures: Figures| (figures.phase, figures.ops, figures.checksum.expect("a checksum"));
    figures.into_iter().map(of_phase).collect()
}

/// Two harnesses that ask for other work could not be compared. Both run all phases on each kind of
/// data; what they asked for and were answered adds up to the same checksums.
#[test]
fn the_two_harnesses_do_the_same_work() {
    let Some(programs) = both_languages(&[Driver::Tight]) else { return };
    let words = programs::target(root()).join("words-of-test");
    let list: Vec<String> = (0..5003).map(|i| format!("word {}\n", i * i)).collect();
    std::fs::write(&words, list.concat()).expect("it is written");
    let words = words.to_str().expect("it is text");
    for (key_bytes, value_bytes) in [("16", "100"), ("8", "8"), ("0", "0"), ("16", "70001")] {
        let records = if value_bytes == "70001" { "307" } else { "5003" };
        let mut phases = vec!["open", "create", "hit:2000", "read", "verify", "scan", "flush:20"];
        if key_bytes != "0" {
            phases.extend([
                "miss:1000",
                "overwrite:200",
                "churn:300:skewed",
                "delete:100",
                "audit",
            ]);
        }
        let more = [&["--words", words], &phases[..]].concat();
        let outputs = programs.iter().map(|program| {
            asked(figures(program, &run(program, records, (key_bytes, value_bytes), &more)))
        });
        let [cpp, rust] = &outputs.collect::<Vec<_>>()[..] else { panic!("two programs") };
        assert_eq!(cpp, rust, "{key_bytes} + {value_bytes}");
        assert_eq!(cpp.len(), phases.len());
        // An empty sum would agree with anything.
        assert!(cpp.iter().skip(1).all(|(_, _, sum)| sum != "0000000000000000"), "{cpp:?}");
    }
}

/// Through the interface in C an engine in C++ and one in Rust are asked the same, and all but the
/// hits are those of the tight driver. The keys of hits come from the values of the hits before.
#[test]
fn the_dependent_driver_does_the_same_work_in_c_as_the_harnesses_and_chains_its_hits() {
    let Some(programs) = both_languages(&Driver::ALL) else { return };
    let phases = [
        "open",
        "create",
        "hit:2000",
        "miss:1000",
        "scan",
        "overwrite:200",
        "delete:100",
        "audit",
        "scan",
        "close",
    ];
    for bytes in [("16", "100"), ("8", "8"), ("16", "3"), ("8", "70001")] {
        let records = if bytes.1 == "70001" { "307" } else { "5003" };
        let outputs = programs.iter().map(|program| {
            (program.driver, asked(figures(program, &run(program, records, bytes, &phases))))
        });
        let mut tight = Vec::new();
        let mut dependent = Vec::new();
        for (driver, asked) in outputs {
            assert_eq!(asked.len(), phases.len(), "{bytes:?}");
            if driver == Driver::Tight { tight.push(asked) } else { dependent.push(asked) }
        }
        assert_eq!((tight.len(), dependent.len()), (2, 2));
        assert_eq!(dependent[0], dependent[1], "{bytes:?}");
        for (ours, theirs) in dependent[0].iter().zip(&tight[0]) {
            let is_chained = ours.0 == "hit:2000";
            assert_eq!(ours == theirs, !is_chained, "{bytes:?}: {ours:?} {theirs:?}");
        }
    }
}

/// `hsearch_r` has neither a scan nor a delete; the rest of its work goes on.
#[test]
fn the_dependent_driver_skips_what_an_engine_cannot_do() {
    let Some(program) = program("hsearch", Driver::Dependent) else { return };
    let phases = ["open", "create", "scan", "delete:10", "audit", "hit:100"];
    let figures = figures(program, &run(program, "1000", ("16", "100"), &phases));
    let why: Vec<_> = figures.iter().map(|figures| figures.unsupported.as_deref()).collect();
    let (scan, delete) = (Some("no call to scan"), Some("no call to delete"));
    assert_eq!(why, [None, None, scan, delete, None, None]);
    assert_eq!(figures[5].ops, 100);
}

/// Both kinds of pages give a time, or the reason why this machine cannot measure it.
#[test]
fn two_loads_new_memory_and_the_driver_alone_are_measured() {
    let Some(program) = program("std_unordered_map", Driver::Dependent) else { return };
    let phases = ["loads:1000:small", "loads:1000:huge", "open", "driver:1000", "memory:3"];
    let figures = figures(program, &run(program, "100000", ("16", "100"), &phases));
    for phase in [&figures[0], &figures[1], &figures[3]] {
        let is_measured = phase.ops == 1000 && phase.ns > 0;
        assert!(is_measured || phase.unsupported.is_some(), "{phase:?}");
    }
    assert_eq!(figures[3].unsupported, None);
    let new = &figures[4];
    assert!(new.ops == 3 && new.worst_ns <= new.ns && new.ns <= 3 * new.worst_ns, "{new:?}");
    // The memory of the loads is not this process's.
    let data_bytes = 100_000 * (16 + 100);
    assert!(figures[1].peak_rss_bytes < data_bytes, "{:?}", figures[1]);
}

#[test]
fn the_dependent_driver_refuses_what_it_does_not_know() {
    let Some(program) = program("std_unordered_map", Driver::Dependent) else { return };
    for (bytes, phases, error) in [
        (("16", "100"), &["open", "churn:5"][..], "the dependent driver has no phase `churn:5`"),
        (("16", "100"), &["hit:5"], "a phase `open` has to come first"),
        (("0", "0"), &["open"], "the dependent driver has keys of 8 or 16 bytes"),
        (("16", "100"), &["loads:5:medium"], "loads: the pages are `small` or `huge`"),
        (("16", "100"), &["--fast", "1"], "there is no option `--fast`"),
    ] {
        let output = run(program, "1000", bytes, phases);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), text.trim()), (Some(1), &*format!("error: {error}")));
    }
}
