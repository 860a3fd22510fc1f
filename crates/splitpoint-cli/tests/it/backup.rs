//! `splitpoint backup`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::sandbox::Sandbox;

#[test]
fn a_copy_has_the_records_of_its_store_and_stands_alone() {
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run(&["backup", "words.spt", "copy.spt"]);
    let said = "splitpoint: copied 3 records (112 B) of `words.spt` to `copy.spt` in ";
    assert_eq!((outcome.exit, outcome.stdout.len()), (0, 0), "{}", outcome.stderr);
    assert!(outcome.stderr.starts_with(said), "{}", outcome.stderr);
    sandbox.run(&["put", "-q", "words.spt", "date", "4"]).check(0, "", "");
    sandbox.run(&["count", "copy.spt"]).check(0, "3\n", "");
    sandbox.run(&["get", "copy.spt", "cherry"]).check(0, "3", "");
    assert_eq!(sandbox.run(&["check", "-q", "copy.spt"]).exit, 0);
    let report = sandbox.run(&["backup", "-q", "words.spt", "b.spt", "--json"]).json();
    assert_eq!((&report["records"], &report["backup"]), (&4.into(), &"b.spt".into()));
    assert_eq!(report["file_bytes"], std::fs::metadata(sandbox.path("b.spt")).unwrap().len());
}

#[test]
fn a_copy_on_standard_output_is_a_store() {
    let sandbox = Sandbox::with_words();
    for args in [&["backup", "-q", "words.spt"][..], &["backup", "-q", "words.spt", "-"]] {
        let outcome = sandbox.run(args);
        assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
        sandbox.write("copy.spt", &outcome.stdout);
        sandbox.run(&["count", "-q", "copy.spt"]).check(0, "3\n", "");
        sandbox.run(&["put", "-q", "copy.spt", "date", "4"]).check(0, "", "");
        assert_eq!(sandbox.run(&["check", "-q", "copy.spt"]).exit, 0);
    }
    let both = sandbox.run(&["backup", "words.spt", "-", "--json"]);
    both.check_error(2, "--json and the copy cannot both go to standard output");
}

#[test]
fn a_file_that_is_there_is_replaced_only_when_told() {
    let sandbox = Sandbox::with_words();
    sandbox.write("copy.spt", b"mine");
    sandbox.run(&["backup", "words.spt", "copy.spt"]).check(
        3,
        "",
        "splitpoint: error: `copy.spt` already exists\n\
         hint: --force replaces it once the copy is complete\n",
    );
    assert_eq!(sandbox.read("copy.spt"), b"mine");
    assert_eq!(sandbox.run(&["backup", "-q", "words.spt", "copy.spt", "--force"]).exit, 0);
    sandbox.run(&["count", "copy.spt"]).check(0, "3\n", "");
    let same = sandbox.run(&["backup", "words.spt", "./words.spt", "--force"]);
    same.check_error(2, "invalid destination: `./words.spt` is the store itself");
    sandbox.run(&["backup", "none.spt", "b.spt"]).check(
        3,
        "",
        "splitpoint: error: cannot open `none.spt`: No such file or directory (os error 2)\n\
         hint: check the path\n",
    );
    sandbox.run(&["backup", "words.spt", "no/dir/b.spt"]).check(
        3,
        "",
        "splitpoint: error: cannot create `no/dir/b.spt`: No such file or directory (os error 2)\n\
         hint: the directory does not exist; create it first, or correct the path\n",
    );
    assert!(!sandbox.path("b.spt").exists());
}

#[test]
fn a_damaged_store_is_not_copied() {
    let sandbox = Sandbox::with_words();
    let mut bytes = sandbox.read("words.spt");
    let at = bytes.windows(6).position(|window| window == b"banana").expect("the key is there");
    bytes[at] ^= 1;
    sandbox.write("words.spt", &bytes);
    for dest in ["copy.spt", "-"] {
        let outcome = sandbox.run(&["backup", "words.spt", dest]);
        assert_eq!((outcome.exit, outcome.stdout.len()), (4, 0), "{}", outcome.stderr);
        let error = "splitpoint: error: `words.spt`: corrupt record checksum at byte ";
        assert!(outcome.stderr.starts_with(error), "{}", outcome.stderr);
        assert!(
            outcome.stderr.ends_with("splitpoint repair words.spt -o NEW\n"),
            "{}",
            outcome.stderr
        );
    }
    assert!(!sandbox.path("copy.spt").exists());
}

/// Starts to load records that do not end, and returns when many have been stored.
fn start_load(sandbox: &Sandbox) -> (Child, ChildStdin) {
    let mut child = sandbox
        .program(&["load", "a.spt", "--format", "tsv"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let mut stderr = BufReader::new(child.stderr.take().expect("standard error is piped"));
    let input: String =
        (0..100_000).fold(String::new(), |input, i| input + &format!("{i}\tvalue\n"));
    stdin.write_all(input.as_bytes()).expect("the input is taken");
    stderr.read_line(&mut String::new()).expect("a line can be read");
    (child, stdin)
}

#[test]
fn a_store_that_another_process_writes_to_is_copied() {
    let sandbox = Sandbox::new();
    let (mut child, mut stdin) = start_load(&sandbox);
    let locked = format!("`a.spt` is locked by process {} (writer)", child.id());
    sandbox.run(&["put", "a.spt", "k", "v", "--lock-timeout", "0"]).check_error(3, &locked);
    let count = |file: &str| sandbox.run(&["count", "-q", file]).text().trim().parse::<u64>();
    for round in 0..3 {
        let copy = format!("{round}.spt");
        assert_eq!(sandbox.run(&["backup", "-q", "a.spt", &copy]).exit, 0);
        assert_eq!(sandbox.run(&["check", "-q", &copy]).exit, 0);
        let copied = count(&copy).expect("a number");
        assert!((1..=130_000).contains(&copied), "{copied}");
        // The keys are loaded in their order: the copy has the first of them.
        let last = (copied - 1).to_string();
        assert_eq!(sandbox.run(&["get", &copy, &last]).exit, 0);
        for i in 0..10_000 {
            writeln!(stdin, "{}\tvalue", 100_000 + round * 10_000 + i).expect("the input is taken");
        }
    }
    drop(stdin);
    assert!(child.wait().expect("the program ends").success());
    assert_eq!(count("a.spt"), Ok(130_000));
}

/// A file system that is full: needs root to make one, so elsewhere it is left out.
#[test]
fn a_full_disk_is_told_and_nothing_is_left_on_it() {
    let sandbox = Sandbox::new();
    let input: String = (0..100_000).fold(String::new(), |input, i| input + &format!("{i}\t{i}\n"));
    assert_eq!(sandbox.run_with(&["load", "-q", "a.spt"], input.as_bytes()).exit, 0);
    let disk = sandbox.path("disk");
    std::fs::create_dir(&disk).unwrap();
    // Too small for the log, then for the index, then large enough.
    for (size, exit) in [("1m", 5), ("3m", 5), ("64m", 0)] {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&disk)
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            let _ = writeln!(std::io::stderr(), "skipped: a small file system needs root to mount");
            return;
        }
        let outcome = sandbox.run(&["backup", "-q", "a.spt", "disk/copy.spt"]);
        let names: Vec<_> =
            std::fs::read_dir(&disk).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(Command::new("umount").arg(&disk).status().unwrap().success());
        assert_eq!(outcome.exit, exit, "{size}: {}", outcome.stderr);
        if exit == 0 {
            assert_eq!(names, ["copy.spt"]);
            continue;
        }
        assert_eq!(names.len(), 0, "{size}: {names:?}");
        assert!(outcome.stderr.contains("No space left on device"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("\nhint: free some space"), "{}", outcome.stderr);
    }
}
