//! `splitpoint create`.

use crate::sandbox::Sandbox;

#[test]
fn create_makes_an_empty_store_and_says_so() {
    let sandbox = Sandbox::new();
    sandbox.run(&["create", "a.spt"]).check(
        0,
        "",
        "splitpoint: created `a.spt` with hash function rapidhash-v3, 4.5 keys per bucket\n",
    );
    sandbox.run(&["count", "a.spt"]).check(0, "0\n", "");
}

#[test]
fn create_takes_every_parameter() {
    let sandbox = Sandbox::new();
    let args = [
        "create",
        "a.spt",
        "--hash",
        "siphash-1-3",
        "--seed",
        "0xfeed",
        "--fill-factor",
        "3",
        "--expected-records",
        "1000",
    ];
    sandbox.run(&args).check(
        0,
        "",
        "splitpoint: created `a.spt` with hash function siphash-1-3, 3 keys per bucket\n",
    );
    let stat = sandbox.run(&["stat", "a.spt", "--json"]).json();
    assert_eq!(stat["hash"], "siphash-1-3");
    assert_eq!(stat["fill_factor"], 3.0);
    assert!(stat["buckets"].as_u64() >= Some(1000 / 3), "{stat}");
}

#[test]
fn create_leaves_an_existing_file_alone() {
    let sandbox = Sandbox::with_words();
    let before = sandbox.read("words.spt");
    sandbox.run(&["create", "words.spt"]).check(
        3,
        "",
        "splitpoint: error: `words.spt` already exists\n\
         hint: `splitpoint load words.spt` adds to it; to start over, remove the file first\n",
    );
    assert_eq!(sandbox.read("words.spt"), before);
}

#[test]
fn create_refuses_parameters_that_make_no_sense() {
    let sandbox = Sandbox::new();
    for args in [
        &["create", "a.spt", "--hash", "md5"][..],
        &["create", "a.spt", "--seed", "0xno"],
        &["create", "a.spt", "--fill-factor", "0.5"],
        &["create", "a.spt", "--fill-factor", "many"],
        &["create"],
    ] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.exit, 2, "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("error:"), "{args:?}: {}", outcome.stderr);
        assert!(!sandbox.path("a.spt").exists(), "{args:?} made a file");
    }
}
