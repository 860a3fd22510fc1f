//! `splitpoint repair`.

use std::io::Write as _;
use std::process::Stdio;

use crate::sandbox::Sandbox;

/// Flips a bit of `what`, which `file` holds.
fn flip(sandbox: &Sandbox, file: &str, what: &[u8]) {
    let mut bytes = sandbox.read(file);
    let at = bytes.windows(what.len()).position(|window| window == what);
    bytes[at.expect("it is in the file")] ^= 1;
    sandbox.write(file, &bytes);
}

#[test]
fn repair_of_a_sound_store_gives_an_equal_one() {
    let sandbox = Sandbox::with_awkward();
    let before = sandbox.read("awkward.spt");
    sandbox.run(&["repair", "awkward.spt", "-o", "saved.spt"]).check(
        0,
        "saved 7 keys of `awkward.spt` to `saved.spt`, from 7 log records (160 B)\n",
        "",
    );
    let dump = |file: &str| {
        let text = sandbox.run(&["dump", file]).text();
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        lines.sort();
        lines
    };
    assert_eq!(dump("awkward.spt"), dump("saved.spt"));
    assert!(sandbox.read("awkward.spt") == before, "repair changed the file");
    sandbox.run(&["repair", "awkward.spt", "-o", "quiet.spt", "--quiet"]).check(0, "", "");
    assert_eq!(sandbox.run(&["check", "saved.spt"]).exit, 0);
}

#[test]
fn repair_without_superblocks_says_what_it_does_not_know() {
    let sandbox = Sandbox::with_words();
    let mut bytes = sandbox.read("words.spt");
    bytes[..12_288].fill(0xff);
    sandbox.write("words.spt", &bytes);
    assert_eq!(sandbox.run(&["count", "words.spt"]).exit, 3);
    sandbox.run(&["repair", "words.spt", "-o", "saved.spt"]).check(
        0,
        "note: no superblock is valid, so the new store has default parameters\n\
         note: the live header is damaged or out of date, and nothing else shows where the log \
         ends\n\
         saved 3 keys of `words.spt` to `saved.spt`, from 3 log records (48 B)\n",
        "",
    );
    sandbox.run(&["get", "saved.spt", "banana"]).check(0, "2", "");
}

/// The check points to the repair, and the repair says what it could not save.
#[test]
fn repair_says_what_it_could_not_save() {
    let sandbox = Sandbox::with_words();
    flip(&sandbox, "words.spt", b"banana");
    let check = sandbox.run(&["check", "words.spt"]);
    let hint = "\nhint: restore the file from a backup, or save what can be read: \
                splitpoint repair words.spt -o NEW.spt\n";
    assert!(check.exit == 1 && check.stderr.ends_with(hint), "{}", check.stderr);
    let dump = sandbox.run(&["dump", "words.spt"]);
    let hint = "splitpoint repair words.spt -o NEW.spt\n";
    assert!(dump.exit == 4 && dump.stderr.ends_with(hint), "{}", dump.stderr);

    sandbox.run(&["repair", "words.spt", "-o", "saved.spt"]).check(
        1,
        "damage: 16 bytes of the log at byte 20560\n\
         saved 2 keys of `words.spt` to `saved.spt`, from 2 log records (32 B)\n",
        "splitpoint: error: `words.spt` has lost 16 B of its log: up to 2 keys are missing, out \
         of date, or back after a delete\n\
         hint: compare with a backup if you have one: splitpoint dump saved.spt | sort\n",
    );
    sandbox.run(&["count", "saved.spt"]).check(0, "2\n", "");
    let outcome = sandbox.run(&["repair", "words.spt", "-o", "again.spt", "--json"]);
    let report = outcome.json();
    assert_eq!((outcome.exit, &report["is_whole"]), (1, &false.into()));
    assert_eq!((&report["keys"], &report["superblocks"]), (&2.into(), &2.into()));
    assert_eq!(report["damaged"][0]["offset"], 20560);
    assert_eq!(report["missing_bytes"], 16);
}

#[test]
fn a_corrupt_store_that_does_not_open_points_to_repair() {
    let sandbox = Sandbox::with_words();
    let mut bytes = sandbox.read("words.spt");
    bytes[20] ^= 1;
    bytes[4116] ^= 1;
    sandbox.write("words.spt", &bytes);
    let outcome = sandbox.run(&["get", "words.spt", "apple"]);
    assert_eq!(outcome.exit, 4, "{}", outcome.stderr);
    let hint = "save what can be read: splitpoint repair words.spt -o NEW.spt\n";
    assert!(outcome.stderr.ends_with(hint), "{}", outcome.stderr);
    assert_eq!(sandbox.run(&["repair", "words.spt", "-o", "saved.spt"]).exit, 0);
    sandbox.run(&["get", "saved.spt", "apple"]).check(0, "1", "");
}

#[test]
fn repair_replaces_no_file() {
    let sandbox = Sandbox::with_words();
    sandbox.write("other.spt", b"precious");
    sandbox.run(&["repair", "words.spt", "-o", "other.spt"]).check(
        3,
        "",
        "splitpoint: error: `other.spt` already exists\n\
         hint: give the name of a new file, or remove it first: rm other.spt\n",
    );
    assert_eq!(sandbox.read("other.spt"), b"precious");
    assert_eq!(sandbox.run(&["repair", "words.spt"]).exit, 2);
}

/// Whoever follows the hint must not lose the file that he wants to save.
#[test]
fn nobody_is_advised_to_remove_the_file_that_is_read() {
    let sandbox = Sandbox::with_words();
    let made = sandbox.run(&["convert", "-q", "words.spt", "old.db", "--format", "db185"]);
    assert_eq!(made.exit, 0, "{}", made.stderr);
    std::os::unix::fs::symlink("words.spt", sandbox.path("link")).expect("a link can be made");
    for (args, what) in [
        (
            &["repair", "words.spt", "-o", "words.spt"][..],
            "`words.spt` is the damaged store itself",
        ),
        (&["repair", "words.spt", "-o", "link"], "`link` is the damaged store itself"),
        (&["convert", "words.spt", "./words.spt"], "`./words.spt` is the file to convert itself"),
        (&["convert", "link", "words.spt"], "`words.spt` is the file to convert itself"),
        (&["salvage", "old.db", "-o", "old.db"], "`old.db` is the file to salvage itself"),
    ] {
        let expected = format!("splitpoint: error: {what}\nhint: give the name of a new file\n");
        sandbox.run(args).check(3, "", &expected);
    }
    sandbox.run(&["count", "words.spt"]).check(0, "3\n", "");
}

#[test]
fn repair_of_what_is_no_store_names_it_and_makes_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("notes.txt", b"just a text file\n");
    sandbox.write("empty", b"");
    for (file, found) in [("notes.txt", "text"), ("empty", "an empty file")] {
        let outcome = sandbox.run(&["repair", file, "-o", "saved.spt"]);
        outcome.check_error(3, &format!("`{file}` is not a splitpoint store: found {found}"));
        assert!(!sandbox.path("saved.spt").exists());
    }
    let outcome = sandbox.run(&["repair", "none.spt", "-o", "saved.spt"]);
    outcome.check_error(3, "cannot open `none.spt`: No such file or directory (os error 2)");
}

#[test]
fn repair_tells_its_progress_in_json() {
    let sandbox = Sandbox::with_words();
    let args = ["repair", "words.spt", "-o", "saved.spt", "--progress", "json"];
    let outcome = sandbox.run(&args);
    let phases: Vec<String> = outcome
        .stderr
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON"))
        .filter(|line| line["done"] == true)
        .map(|line| line["phase"].as_str().expect("a phase has a name").to_string())
        .collect();
    assert_eq!(phases, ["search", "verify", "save"]);
}

/// A store that another process is writing is refused: what is saved is to be of one moment.
#[test]
fn repair_of_a_store_that_is_being_written_is_refused() {
    let sandbox = Sandbox::with_words();
    let mut writer = sandbox
        .program(&["load", "words.spt", "--format", "tsv"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    // It opens the store when it has seen the beginning of its input.
    let mut stdin = writer.stdin.take().expect("standard input is piped");
    stdin.write_all(b"key\tvalue\n").expect("the input is taken");
    // A writer that has the lock names itself in the live header. To try the lock would be to take
    // it, perhaps before the writer.
    let writer_id = writer.id().to_le_bytes();
    while sandbox.read("words.spt")[8192 + 56..][..4] != writer_id {
        assert!(writer.try_wait().expect("the program can be waited for").is_none());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let args = ["repair", "words.spt", "-o", "saved.spt", "--lock-timeout", "0"];
    let outcome = sandbox.run(&args);
    let locked = format!("`words.spt` is locked by process {} (writer)", writer.id());
    outcome.check_error(3, &locked);
    assert!(!sandbox.path("saved.spt").exists());
    drop(stdin);
    assert!(writer.wait().expect("the program ends").success());
}

/// The log of a compacted store does not have all, so its missing bytes say nothing of what is lost.
#[test]
fn repair_of_a_compacted_store_that_was_cut_does_not_count_what_is_missing() {
    let sandbox = Sandbox::new();
    let lines: Vec<String> = (0..20_000).map(|i| format!("key {i}\tvalue")).collect();
    let lines = lines.join("\n") + "\n";
    sandbox.write("a.tsv", lines.as_bytes());
    sandbox.run(&["load", "-q", "a.spt", "a.tsv"]).check(0, "", "");
    let keys: Vec<String> = (0..10_000).map(|i| format!("key {i}")).collect();
    let keys = keys.join("\n") + "\n";
    sandbox.run_with(&["delete", "-q", "a.spt", "--stdin"], keys.as_bytes()).check(0, "", "");
    sandbox.run(&["compact", "-q", "a.spt"]).check(0, "", "");
    let whole = sandbox.read("a.spt");
    sandbox.write("cut.spt", &whole[..whole.len() / 2]);
    let repair = sandbox.run(&["repair", "cut.spt", "-o", "saved.spt"]);
    assert_eq!(repair.exit, 1, "{}", repair.stderr);
    let message = "splitpoint: error: `cut.spt` has lost its index and its checkpoint: nothing says \
                   how many keys are missing, and any key may be out of date, or back after a \
                   delete\nhint: compare with a backup";
    assert!(repair.stderr.starts_with(message), "{}", repair.stderr);
}

#[test]
fn repair_of_a_file_that_was_no_store_does_not_advise_to_repair_it() {
    let sandbox = Sandbox::new();
    for (name, bytes) in [("zeros", vec![0; 40_000]), ("other", vec![0xb5; 40_000])] {
        sandbox.write(name, &bytes);
        let repair = sandbox.run(&["repair", name, "-o", "saved.spt"]);
        assert_eq!((repair.exit, repair.text().as_str()), (3, ""));
        assert!(repair.stderr.contains("so there is nothing to save"), "{}", repair.stderr);
        assert!(!repair.stderr.contains("splitpoint repair"), "{}", repair.stderr);
    }
}
