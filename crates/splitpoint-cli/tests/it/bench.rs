//! `splitpoint bench`.

use crate::sandbox::Sandbox;

#[test]
fn bench_measures_every_phase_and_cleans_up() {
    let sandbox = Sandbox::new();
    sandbox.write("words", b"apple\nbanana\napple\n");
    let report =
        sandbox.run(&["bench", "--words", "words", "--runs", "3", "--json", "--dir", "."]).json();
    assert_eq!((&report["words"], &report["runs"]), (&2.into(), &3.into()));
    let phases = report["phases"].as_array().expect("phases");
    let names: Vec<&str> = phases.iter().filter_map(|phase| phase["name"].as_str()).collect();
    assert_eq!(names, ["create", "sync", "read", "verify", "scan", "close", "total"]);
    for phase in phases {
        assert_eq!(phase["samples_ns"].as_array().map(Vec::len), Some(3));
        assert!(phase["min_ns"].as_u64() <= phase["median_ns"].as_u64());
        assert!(phase["median_ns"].as_u64() <= phase["max_ns"].as_u64());
    }
    let left: Vec<_> = std::fs::read_dir(sandbox.path("")).unwrap().collect();
    assert_eq!(left.len(), 1, "only the word list is left: {left:?}");
}

#[test]
fn bench_prints_a_table() {
    let sandbox = Sandbox::new();
    sandbox.write("words", b"apple\nbanana\n");
    for extra in [&[][..], &["--memory"]] {
        let args = [&["bench", "-q", "--words", "words", "--runs", "1"][..], extra].concat();
        let outcome = sandbox.run(&args);
        assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
        let text = outcome.text();
        assert!(text.starts_with("2 words, 1 run, in "), "{text}");
        for phase in ["create", "sync", "read", "verify", "scan", "close", "total"] {
            assert!(text.contains(&format!("\n  {phase} ")), "no {phase} in\n{text}");
        }
    }
}

#[test]
fn bench_refuses_a_list_without_words() {
    let sandbox = Sandbox::new();
    sandbox.write("empty", b"");
    sandbox.run(&["bench", "--words", "empty"]).check_error(2, "`empty` holds no words");
    sandbox
        .run(&["bench", "--words", "none"])
        .check_error(3, "cannot read `none`: No such file or directory (os error 2)");
    assert_eq!(sandbox.run(&["bench", "--runs", "0"]).exit, 2);
}

#[test]
fn bench_names_the_directory_in_which_it_can_make_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("words", b"apple\n");
    sandbox.run(&["bench", "--words", "words", "--dir", "none"]).check_error(
        5,
        "cannot create a directory in `none`: No such file or directory (os error 2)",
    );
}
