//! Input that is wrong: one clear error, the remedy, the right exit code.

use crate::old_files::with_samples;
use crate::sandbox::Sandbox;

/// Every command that opens an existing store, with arguments after the file.
const OPENING: [&[&str]; 8] = [
    &["get", "FILE", "key"],
    &["delete", "FILE", "key"],
    &["count", "FILE"],
    &["list", "FILE"],
    &["dump", "FILE"],
    &["stat", "FILE"],
    &["check", "FILE"],
    &["list", "FILE", "--json"],
];

/// Runs every command of [`OPENING`] on `file` and checks its outcome.
#[track_caller]
fn check_all(sandbox: &Sandbox, file: &str, exit: i32, stderr: &str) {
    for args in OPENING {
        let args: Vec<&str> =
            args.iter().map(|arg| if *arg == "FILE" { file } else { *arg }).collect();
        sandbox.run(&args).check(exit, "", stderr);
    }
}

#[test]
fn a_missing_file_is_not_made() {
    let sandbox = Sandbox::new();
    check_all(
        &sandbox,
        "none.spt",
        3,
        "splitpoint: error: cannot open `none.spt`: No such file or directory (os error 2)\n\
         hint: check the path\n",
    );
    assert!(!sandbox.path("none.spt").exists());
    sandbox.run(&["put", "no/dir/a.spt", "k", "v"]).check(
        3,
        "",
        "splitpoint: error: cannot open `no/dir/a.spt`: No such file or directory (os error 2)\n\
         hint: the directory does not exist; create it first, or correct the path\n",
    );
}

#[test]
fn a_file_that_is_no_store_is_left_alone() {
    let sandbox = Sandbox::new();
    let text = b"just a text file, longer than a few bytes\n".repeat(1000);
    sandbox.write("notes.txt", &text);
    for args in
        [&["count", "notes.txt"][..], &["put", "notes.txt", "k", "v"], &["check", "notes.txt"]]
    {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.exit, 3, "{args:?}: {}", outcome.stderr);
        assert!(
            outcome
                .stderr
                .starts_with("splitpoint: error: `notes.txt` is not a splitpoint store: found "),
            "{args:?}: {}",
            outcome.stderr
        );
        assert!(outcome.stderr.contains("\nhint: "), "{args:?}: {}", outcome.stderr);
        assert!(sandbox.read("notes.txt") == text, "{args:?} changed the file");
    }
}

#[test]
fn a_directory_is_no_store() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("dir")).unwrap();
    for args in [&["count", "dir"][..], &["put", "dir", "k", "v"], &["create", "dir"]] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.exit, 3, "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.starts_with("splitpoint: error: "), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("`dir`"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("\nhint: "), "{args:?}: {}", outcome.stderr);
    }
}

#[test]
fn a_hint_names_what_helps_with_the_file_that_was_found() {
    let sandbox = with_samples(&["bdb53-be-4096-big.bdb53"]);
    let mut encrypted = sandbox.read("bdb53-be-4096-big.bdb53");
    encrypted[24] = 1;
    sandbox.write("encrypted.db", &encrypted);
    sandbox.write("words.tdb", b"TDB file\n");
    sandbox.run(&["put", "-q", "words.spt", "key", "value"]).check(0, "", "");
    for (args, hint) in [
        (
            &["dump", "encrypted.db"][..],
            "decrypt it with its own program: db5.3_dump -P PASSWORD encrypted.db | splitpoint load \
             NEW.spt",
        ),
        (&["dump", "words.tdb"], "check the path; to read it: tdbdump words.tdb"),
        (
            &["salvage", "words.spt", "-o", "new"],
            "save what it still holds: splitpoint repair words.spt -o NEW.spt",
        ),
        (&["get", "none.spt", "key"], "check the path"),
    ] {
        let outcome = sandbox.run(args);
        let found = outcome.stderr.lines().nth(1).and_then(|line| line.strip_prefix("hint: "));
        assert_eq!((outcome.exit, found), (3, Some(hint)), "{args:?}: {}", outcome.stderr);
    }
}

/// `get` once said to create it, and `create` that it exists.
#[test]
fn a_link_that_leads_nowhere_is_told_with_where_it_leads() {
    let sandbox = Sandbox::with_words();
    std::os::unix::fs::symlink("gone.spt", sandbox.path("link")).unwrap();
    let what = "`link` is a symbolic link to `gone.spt`, which does not exist";
    check_all(
        &sandbox,
        "link",
        3,
        &format!(
            "splitpoint: error: {what}\nhint: correct the link, or create a store at its target: \
             splitpoint create gone.spt\n"
        ),
    );
    for args in [
        &["create", "link"][..],
        &["create", "db185:link"],
        &["put", "link", "k", "v"],
        &["put", "db185:link", "k", "v"],
        &["load", "link", "words"],
        &["backup", "link", "new"],
        &["backup", "words.spt", "link"],
        &["backup", "words.spt", "link", "--force"],
        &["repair", "link", "-o", "new"],
        &["repair", "words.spt", "-o", "link"],
        &["convert", "link", "new"],
        &["convert", "words.spt", "link"],
        &["convert", "words.spt", "db185:link"],
        &["salvage", "link", "-o", "new"],
        &["lab", "table", "link", "--keys", "store", "--hash", "fnv1a-32"],
    ] {
        let outcome = sandbox.run(args);
        outcome.check_error(3, what);
        let hint = outcome.stderr.lines().nth(1).unwrap_or_default();
        let is_about_the_link = ["link", "name"].iter().any(|word| hint.contains(word));
        assert!(is_about_the_link, "{args:?}: {}", outcome.stderr);
    }
    sandbox.run(&["identify", "link"]).check(
        1,
        "link: a symbolic link to `gone.spt`, which does not exist\n",
        "splitpoint: error: `link` is not a known hash file\n",
    );
    assert!(!sandbox.path("gone.spt").exists() && !sandbox.path("new").exists());
    // What the hint says, works.
    sandbox.run(&["create", "-q", "gone.spt"]).check(0, "", "");
    sandbox.run(&["put", "link", "key", "value"]).check(0, "", "");
    sandbox.run(&["get", "gone.spt", "key"]).check(0, "value", "");
}

/// A user without permission; root has every permission, so there the program is run as nobody.
#[test]
fn no_permission_is_told_as_such() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use crate::sandbox::Outcome;

    const NOBODY: u32 = 65534;
    let sandbox = Sandbox::with_words();
    let permit = |name: &str, mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(sandbox.path(name), permissions).unwrap();
    };
    let program = sandbox.path("splitpoint");
    // Copied by another process: a program that another test starts meanwhile would inherit the
    // copy open for writing for a moment, and so long it cannot be run ("Text file busy").
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_splitpoint")).arg(&program).status();
    assert!(copied.unwrap().success());
    permit("", 0o755);
    permit("splitpoint", 0o755);
    permit("words.spt", 0o000);
    let is_root = std::fs::metadata(sandbox.path("words.spt")).unwrap().uid() == 0;
    let run = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(args).current_dir(sandbox.path(""));
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        Outcome::of(&command.output().expect("the program can be run"))
    };
    let denied = "splitpoint: error: cannot open `words.spt`: Permission denied (os error 13)\n\
                  hint: check the permissions of the file and its directory\n";
    run(&["count", "words.spt"]).check(3, "", denied);
    run(&["put", "words.spt", "k", "v"]).check(3, "", denied);
    permit("words.spt", 0o444);
    run(&["count", "words.spt"]).check(0, "3\n", "");
    run(&["put", "words.spt", "k", "v"]).check(3, "", denied);
}

#[test]
fn a_truncated_store_is_an_error_at_any_length() {
    let sandbox = Sandbox::with_words();
    let whole = sandbox.read("words.spt");
    let mut len = 0;
    while len < whole.len() {
        sandbox.write("cut.spt", &whole[..len]);
        for args in [&["count", "cut.spt"][..], &["list", "cut.spt"], &["check", "cut.spt"]] {
            let outcome = sandbox.run(args);
            let said = &outcome.stderr;
            assert!((0..=5).contains(&outcome.exit), "{args:?} at {len}: {} {said}", outcome.exit);
            let is_told = outcome.exit == 0 || said.starts_with("splitpoint: error: ");
            assert!(is_told, "{args:?} at {len}: {said}");
            assert!(said.lines().count() <= 3, "{args:?} at {len}: {said}");
        }
        len = if len < 64 { len + 7 } else { len + whole.len() / 40 + 1 };
    }
}

/// A store of a program with a hash function of its own, which this program does not have.
///
/// A process of its own makes it: the lock of a store that this process had open could be held
/// for a moment longer by a program that another test has just started.
#[test]
fn a_store_with_a_foreign_hash_function_names_it() {
    use splitpoint::Options;
    use splitpoint::hash::{HashFunction, HashId};

    const CHILD: &str = "SPLITPOINT_TEST_FOREIGN_HASH";
    if std::env::var_os(CHILD).is_some() {
        let hash = HashFunction::user(HashId::USER_MIN, "their-own", |key, _| key.len() as u64);
        let db = Options::new().hash(hash.unwrap()).open("a.spt").unwrap();
        db.put(b"key", b"value").unwrap();
        db.close().unwrap();
        return;
    }
    let sandbox = Sandbox::new();
    let this_test = "errors::a_store_with_a_foreign_hash_function_names_it";
    let mut child = sandbox.command(&std::env::current_exe().unwrap(), &["--exact", this_test]);
    assert!(child.env(CHILD, "1").output().unwrap().status.success());
    for args in [&["get", "a.spt", "key"][..], &["put", "a.spt", "key", "v"], &["check", "a.spt"]] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.exit, 3, "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("hash function their-own"), "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains("\nhint: open it with the program that created it"),
            "{}",
            outcome.stderr
        );
    }
}

/// Keeps a reader waiting on a pipe that nobody empties.
#[test]
fn readers_share_a_store_and_keep_nobody_out() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;

    let sandbox = Sandbox::new();
    let input: String = (0..50_000).fold(String::new(), |input, i| input + &format!("word {i}\n"));
    sandbox.run_with(&["load", "-q", "a.spt"], input.as_bytes()).check(0, "", "");
    let mut reader = sandbox.program(&["list", "a.spt"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = BufReader::new(reader.stdout.take().unwrap());
    pipe.read_line(&mut String::new()).unwrap();

    sandbox.run(&["count", "a.spt"]).check(0, "50000\n", "");
    sandbox.run(&["put", "a.spt", "k", "v", "--lock-timeout", "0"]).check(0, "", "");
    sandbox.run(&["get", "a.spt", "k"]).check(0, "v", "");
    sandbox.run(&["rehash", "a.spt", "--lock-timeout", "0"]).check(
        3,
        "",
        "splitpoint: error: `a.spt` is locked by another handle\n\
         hint: rehash needs the store for itself; --lock-timeout waits longer for those who write \
         or read it\n",
    );

    let mut rest = String::new();
    pipe.read_to_string(&mut rest).unwrap();
    assert!(reader.wait().unwrap().success());
    // The scan has every key that was there when it began, and may have the one that came.
    assert!((49_999..=50_000).contains(&rest.lines().count()), "{}", rest.lines().count());
    sandbox.run(&["count", "a.spt"]).check(0, "50001\n", "");
    assert_eq!(sandbox.run(&["rehash", "-q", "a.spt", "--lock-timeout", "0"]).exit, 0);
}

/// A file system that is full: needs root to make one, so elsewhere it is left out.
#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    use std::io::Write as _;
    use std::process::Command;

    let sandbox = Sandbox::new();
    let disk = sandbox.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
        .arg(&disk)
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        let _ = writeln!(std::io::stderr(), "skipped: a small file system needs root to mount");
        return;
    }
    let input: String = (0..200_000).fold(String::new(), |input, i| input + &format!("{i}\t{i}\n"));
    let load = sandbox.run_with(&["load", "-q", "disk/a.spt"], input.as_bytes());
    let count = sandbox.run(&["count", "disk/a.spt"]);
    let check = sandbox.run(&["check", "-q", "disk/a.spt"]);
    let put = sandbox.run_with(&["put", "disk/a.spt", "big"], &vec![b'v'; 8 << 20]);
    let first = sandbox.run(&["get", "disk/a.spt", "0"]);
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());

    // What was loaded is said exactly, is there, and is sound.
    let said = load
        .stderr
        .strip_prefix("splitpoint: error: loaded ")
        .and_then(|rest| rest.split_once(" records before the error: "))
        .map(|(said, _)| said.replace(',', ""))
        .unwrap_or_default();
    assert_eq!((load.exit, count.text()), (5, format!("{said}\n")), "{}", load.stderr);
    assert!(load.stderr.contains("No space left on device"), "{}", load.stderr);
    assert!(load.stderr.contains("\nhint: free some space"), "{}", load.stderr);
    check.check(0, "", "");
    assert_eq!(put.exit, 5, "{}", put.stderr);
    first.check(0, "0", "");
}

/// Flips bytes all over a store: whatever happens is told in words, with an exit code of ours.
#[test]
fn a_flipped_byte_never_ends_in_a_panic_or_a_signal() {
    let sandbox = Sandbox::with_awkward();
    let whole = sandbox.read("awkward.spt");
    let interesting = whole.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at);
    let step = (interesting.clone().count() / 60).max(1);
    for at in interesting.step_by(step) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x81;
        sandbox.write("flipped.spt", &bytes);
        for args in
            [&["dump", "flipped.spt"][..], &["stat", "flipped.spt"], &["check", "flipped.spt"]]
        {
            let outcome = sandbox.run(args);
            let said = &outcome.stderr;
            assert!((0..=5).contains(&outcome.exit), "{args:?} at {at}: {} {said}", outcome.exit);
        }
    }
}

#[test]
fn an_argument_that_is_no_number_is_told_what_it_should_be() {
    let sandbox = Sandbox::with_words();
    for (args, said) in [
        (
            &["get", "words.spt", "apple", "--lock-timeout", "0.5"][..],
            "invalid value '0.5' for '--lock-timeout <SECONDS>': expected a whole number, not negative",
        ),
        (
            &["get", "words.spt", "apple", "--lock-timeout", "-1"],
            "invalid value '-1' for '--lock-timeout <SECONDS>': expected a whole number, not negative",
        ),
        (
            &["create", "a.spt", "--expected-records", "99999999999999999999"],
            "invalid value '99999999999999999999' for '--expected-records <RECORDS>': the number is \
             too large",
        ),
        (
            &["create", "a.spt", "--fill-factor", "much"],
            "invalid value 'much' for '--fill-factor <KEYS>': expected a number",
        ),
        (&["bench", "--runs", "0"], "invalid value '0' for '--runs <RUNS>': expected at least 1"),
        (
            &["stat", "words.spt", "--watch", "0"],
            "invalid value '0' for '--watch <SECONDS>': expected at least 1",
        ),
        (
            &["lab", "avalanche", "words", "--sample", "0"],
            "invalid value '0' for '--sample <N>': expected 1 to 1048576",
        ),
    ] {
        let outcome = sandbox.run(args);
        let first = outcome.stderr.lines().next().unwrap_or_default();
        assert_eq!((outcome.exit, first), (2, &*format!("error: {said}")), "{args:?}");
    }
}
