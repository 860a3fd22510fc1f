//! `splitpoint rehash`.

use std::os::unix::fs::PermissionsExt;

use crate::sandbox::{Outcome, Sandbox};

/// Returns the names in the directory of a sandbox.
fn names(sandbox: &Sandbox) -> Vec<String> {
    let entries = std::fs::read_dir(sandbox.path("")).expect("the sandbox");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<_> =
        entries.map(|entry| name(entry).into_string().expect("a name of ours")).collect();
    names.sort();
    names
}

fn hash_of(sandbox: &Sandbox, file: &str) -> String {
    let stat = sandbox.run(&["stat", file, "--json"]).json();
    stat["hash"].as_str().expect("a name").to_string()
}

#[test]
fn a_rehash_names_both_functions_and_keeps_every_record() {
    let sandbox = Sandbox::with_awkward();
    let before = sandbox.run(&["dump", "awkward.spt"]).text();
    sandbox.run(&["rehash", "awkward.spt", "--hash", "siphash-1-3"]).check(
        0,
        "",
        "splitpoint: moved 7 records of `awkward.spt` in [..] from rapidhash-v3 to siphash-1-3\n",
    );
    assert_eq!(sandbox.run(&["dump", "awkward.spt"]).text(), before);
    assert_eq!(hash_of(&sandbox, "awkward.spt"), "siphash-1-3");
    assert_eq!(sandbox.run(&["check", "-q", "awkward.spt"]).exit, 0);
    assert_eq!(names(&sandbox), ["awkward.spt"]);
    let quiet = ["rehash", "-q", "awkward.spt", "--hash", "xxh3-64", "--json"];
    let report = sandbox.run(&quiet).json();
    assert_eq!(
        (&report["old_hash"], &report["new_hash"]),
        (&"siphash-1-3".into(), &"xxh3-64".into())
    );
    assert_eq!((&report["records"], &report["store"]), (&7.into(), &"awkward.spt".into()));
    let bytes = std::fs::metadata(sandbox.path("awkward.spt")).expect("it is there").len();
    assert_eq!(report["new_bytes"], bytes);
}

/// The seed of a keyed function is what an attacker lacks: no message shows it.
#[test]
fn without_a_function_there_is_a_new_seed_which_is_not_shown() {
    let sandbox = Sandbox::with_words();
    let seed = || sandbox.read("words.spt")[56..64].to_vec();
    let first = seed();
    sandbox.run(&["rehash", "words.spt"]).check(
        0,
        "",
        "splitpoint: moved 3 records of `words.spt` in [..] to a new seed of rapidhash-v3\n",
    );
    assert_ne!(seed(), first);
    let args = ["rehash", "words.spt", "--hash", "siphash-1-3", "--seed", "0x5eed5eed", "--json"];
    let outcome = sandbox.run(&args);
    assert_eq!((outcome.exit, seed()), (0, 0x5eed_5eed_u64.to_le_bytes().to_vec()));
    let said = outcome.text() + &outcome.stderr;
    assert!(!said.contains("5eed5eed") && !said.contains("1592614637"), "{said}");
    assert_eq!(sandbox.run(&["rehash", "words.spt", "--seed", "seven"]).exit, 2);
    assert_eq!(sandbox.run(&["rehash", "words.spt", "--hash", "md5"]).exit, 2);
}

#[test]
fn a_function_without_a_seed_cannot_get_a_new_one() {
    let sandbox = Sandbox::new();
    sandbox.run(&["create", "-q", "a.spt", "--hash", "x33"]).check(0, "", "");
    let outcome = sandbox.run(&["rehash", "a.spt"]);
    let note = "splitpoint: x33 takes no seed, so the chains are unchanged; choose another \
                function with --hash\n";
    assert!(outcome.exit == 0 && outcome.stderr.ends_with(note), "{}", outcome.stderr);
    assert_eq!(hash_of(&sandbox, "a.spt"), "x33");
}

#[test]
fn a_rehash_tells_its_progress_in_json() {
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run(&["rehash", "-q", "words.spt", "--progress", "json"]);
    let lines = outcome.stderr.lines();
    let lines: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let done = lines.iter().filter(|line| line["done"] == true);
    let phases: Vec<_> =
        done.map(|line| (line["phase"].clone(), line["records"].clone())).collect();
    let expected = [("index", 0), ("copy", 3), ("sync", 3)];
    assert_eq!(phases, expected.map(|(phase, records)| (phase.into(), records.into())));
}

#[test]
fn what_cannot_be_moved_is_refused_with_what_to_do() {
    let sandbox = Sandbox::with_words();
    sandbox.write("notes", b"just a text file\n");
    sandbox
        .run(&["rehash", "none.spt"])
        .check_error(3, "cannot open `none.spt`: No such file or directory (os error 2)");
    let text = sandbox.run(&["rehash", "notes"]);
    text.check_error(3, "`notes` is not a splitpoint store: found text");
    sandbox.run(&["rehash", "db185:words.db"]).check(
        3,
        "",
        "splitpoint: error: `db185:words.db` is not the path of a store\n\
         hint: convert it to a store: splitpoint convert db185:words.db NEW.spt\n",
    );
    let before = sandbox.read("words.spt");
    std::fs::hard_link(sandbox.path("words.spt"), sandbox.path("b.spt")).expect("a link");
    let linked = sandbox.run(&["rehash", "words.spt"]);
    let hint = "\nhint: remove the other links; to find them: find / -xdev -samefile words.spt\n";
    assert!(linked.exit == 3 && linked.stderr.contains("has 2 names (hard links)"));
    assert!(linked.stderr.ends_with(hint), "{}", linked.stderr);
    assert!(sandbox.read("words.spt") == before, "the store has changed");
    assert_eq!(names(&sandbox), ["b.spt", "notes", "words", "words.spt"]);
}

#[test]
fn a_damaged_store_stays_as_it_is() {
    let sandbox = Sandbox::with_words();
    let mut bytes = sandbox.read("words.spt");
    let at = bytes.windows(6).position(|window| window == b"banana").expect("it is there");
    bytes[at] ^= 1;
    sandbox.write("words.spt", &bytes);
    let outcome = sandbox.run(&["rehash", "words.spt", "--hash", "siphash-1-3"]);
    assert_eq!(outcome.exit, 4, "{}", outcome.stderr);
    let hint = "save what can be read: splitpoint repair words.spt -o NEW.spt\n";
    assert!(outcome.stderr.ends_with(hint), "{}", outcome.stderr);
    assert!(sandbox.read("words.spt") == bytes, "the store has changed");
    assert_eq!(names(&sandbox), ["words", "words.spt"]);
}

/// A limit on the size of files stands for a full disk: the new store finds no room.
#[test]
fn a_rehash_without_room_leaves_the_store_and_nothing_else() {
    let sandbox = Sandbox::with_words();
    let before = sandbox.read("words.spt");
    let program = sandbox.program(&[]).get_program().to_string_lossy().into_owned();
    // Blocks of 512 bytes: room for the header, and not for the log.
    let script = format!("ulimit -f 40; exec '{program}' rehash words.spt");
    let mut command = sandbox.command(std::path::Path::new("/bin/sh"), &["-c", &script]);
    let outcome = Outcome::of(&command.output().expect("a shell can be run"));
    let store = std::fs::canonicalize(sandbox.path("words.spt")).expect("it is there");
    outcome.check(
        5,
        "",
        &format!(
            "splitpoint: error: cannot extend `{}.rehash-in-progress`: File too large \
             (os error 27)\n\
             hint: the limit on file sizes is too low: see `ulimit -f`; everything stored \
             before is safe\n",
            store.display()
        ),
    );
    assert!(sandbox.read("words.spt") == before, "the store has changed");
    assert_eq!(names(&sandbox), ["words", "words.spt"]);
}

/// Its temporary name, too, is one that a file system takes.
#[test]
fn a_store_with_the_longest_name_can_be_rehashed_copied_and_converted() {
    let sandbox = Sandbox::with_words();
    // Names that differ only where the temporary names are cut.
    let [one, two, three] = ["1", "2", "3"].map(|end| format!("{}{end}.spt", "n".repeat(250)));
    let rename = |from: &str, to: &str| {
        std::fs::rename(sandbox.path(from), sandbox.path(to)).expect("the name is free");
    };
    rename("words.spt", &one);
    for args in [
        &["rehash", "-q", &one][..],
        &["backup", "-q", &one, &two],
        &["repair", "-q", &one, "-o", &three],
    ] {
        sandbox.run(args).check(0, "", "");
    }
    assert_eq!(names(&sandbox), [one.as_str(), &two, &three, "words"]);
    std::fs::remove_file(sandbox.path(&three)).expect("it is there");
    sandbox.run(&["convert", "-q", &one, &three]).check(0, "", "");
    assert_eq!(names(&sandbox), [one.as_str(), &two, &three, "words"]);
}

/// Root may write everywhere, so that the test ends early for root.
#[test]
fn a_store_in_a_directory_that_cannot_be_written_stays_as_it_is() {
    use std::io::Write as _;

    let sandbox = Sandbox::with_words();
    let before = sandbox.read("words.spt");
    let set = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(sandbox.path(""), permissions).expect("it is ours");
    };
    set(0o500);
    let is_refused = std::fs::File::create(sandbox.path("probe")).is_err();
    let outcome = is_refused.then(|| sandbox.run(&["rehash", "words.spt"]));
    set(0o700);
    let Some(outcome) = outcome else {
        let _ = writeln!(std::io::stderr(), "skipped: this user may write everywhere");
        return;
    };
    assert!(outcome.exit == 5 && outcome.stderr.contains("cannot create"), "{}", outcome.stderr);
    assert!(outcome.stderr.ends_with("to create the new store beside it\n"), "{}", outcome.stderr);
    assert!(sandbox.read("words.spt") == before, "the store has changed");
}
