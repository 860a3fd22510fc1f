//! Commands beside a process that writes: those that read see each change, those that write wait.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use splitpoint::{Change, Db, Durability, Options, Sharing, TableExt as _};

use crate::sandbox::{Sandbox, end_of, without_ages};

/// How long a test waits between two looks at what another process does.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A load whose input is not at its end.
struct Loading {
    child: Child,
    input: ChildStdin,
    loaded_count: u64,
}

impl Loading {
    /// Starts a load of `a.spt`, and returns when it has stored `count` records.
    fn start(sandbox: &Sandbox, count: u64) -> Self {
        let mut program = sandbox.program(&["load", "-q", "a.spt", "--format", "tsv"]);
        let mut child =
            program.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let input = child.stdin.take().expect("a pipe");
        let mut loading = Self { child, input, loaded_count: 0 };
        loading.load(sandbox, count);
        loading
    }

    /// Has it store `count` more records, and waits until a reader sees them.
    fn load(&mut self, sandbox: &Sandbox, count: u64) {
        let next = self.loaded_count + count;
        for i in self.loaded_count..next {
            writeln!(self.input, "{i}\tvalue of {i}").expect("the load reads");
        }
        self.loaded_count = next;
        let expected = format!("{next}\n");
        while sandbox.run(&["count", "a.spt"]).text() != expected {
            let exit = self.child.try_wait().expect("a child");
            assert!(exit.is_none(), "the load has ended");
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn finish(self) {
        drop(self.input);
        assert_eq!(end_of(self.child, "a load").exit, 0);
    }
}

#[test]
fn commands_that_read_see_what_a_running_load_has_stored() {
    let sandbox = Sandbox::new();
    let mut loading = Loading::start(&sandbox, 1_000);
    for _ in 0..3 {
        loading.load(&sandbox, 20_000);
        let count = loading.loaded_count;
        let last = count - 1;
        let value = format!("value of {last}");
        sandbox.run(&["get", "a.spt", &last.to_string()]).check(0, &value, "");
        sandbox.run(&["exists", "a.spt", &last.to_string()]).check(0, "", "");
        assert_eq!(sandbox.run(&["exists", "a.spt", &count.to_string()]).exit, 1);
        let mut listed: Vec<u64> = sandbox
            .run(&["list", "a.spt"])
            .text()
            .lines()
            .map(|key| key.parse().unwrap())
            .collect();
        listed.sort_unstable();
        assert!(listed.iter().copied().eq(0..count), "{} keys", listed.len());
        let dump = sandbox.run(&["dump", "a.spt", "--format", "tsv"]);
        let note = "splitpoint: not verified first: another process writes to `a.spt`\n";
        assert_eq!((dump.exit, dump.stderr.as_str()), (0, note));
        let dump = dump.text();
        assert_eq!(dump.lines().count() as u64, count);
        assert!(dump.lines().any(|line| line == format!("{last}\t{value}")));
        assert_eq!(sandbox.run(&["stat", "a.spt", "--json"]).json()["records"], count);
    }
    loading.finish();
    assert_eq!(sandbox.run(&["check", "-q", "a.spt"]).exit, 0);
}

/// One process after the other writes, and readers come and go meanwhile.
#[test]
fn readers_and_writers_that_follow_each_other_never_fail() {
    const PUTS: u32 = 40;
    let sandbox = Sandbox::with_words();
    std::thread::scope(|threads| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let sandbox = &sandbox;
                threads.spawn(move || {
                    for i in 0..PUTS {
                        let (key, value) = (format!("{writer} {i}"), i.to_string());
                        let args =
                            ["put", "-q", "words.spt", &key, &value, "--lock-timeout", "900"];
                        sandbox.run(&args).check(0, "", "");
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            sandbox.run(&["get", "words.spt", "banana"]).check(0, "2", "");
            let stat = sandbox.run(&["stat", "words.spt", "--json"]);
            assert_eq!((stat.exit, stat.stderr.as_str()), (0, ""));
        }
    });
    sandbox.run(&["count", "words.spt"]).check(0, format!("{}\n", 2 * PUTS + 3), "");
    assert_eq!(sandbox.run(&["check", "-q", "words.spt"]).exit, 0);
}

/// Stores a number under two keys, together.
fn put_both(db: &Db, number: u32) {
    let value = number.to_string();
    let changes =
        ["a", "b"].map(|key| Change::Put { key: key.as_bytes(), value: value.as_bytes() });
    db.apply(&changes).expect("changes both");
}

/// Tells another thread that a test is over, also when an assertion fails: the scope waits for it.
struct TellsWhenOver<'a>(&'a AtomicBool);

impl Drop for TellsWhenOver<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Another thread changes two keys together, again and again.
#[test]
fn get_list_and_dump_are_of_one_moment() {
    let sandbox = Sandbox::new();
    let db = Options::new().sharing(Sharing::Shared).open(sandbox.path("a.spt")).expect("opens");
    let is_over = AtomicBool::new(false);
    put_both(&db, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                put_both(&db, number);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let _tells = TellsWhenOver(&is_over);
        for _ in 0..50 {
            let got = sandbox.run(&["get", "a.spt", "a", "b"]).stdout;
            let values: Vec<&[u8]> = got.split(|byte| *byte == b'\n').collect();
            assert!(matches!(values[..], [a, b, b""] if a == b), "{values:?}");
            let both = [
                &["list", "a.spt", "--values", "--json"][..],
                &["dump", "a.spt", "--format", "jsonl"],
            ];
            for args in both {
                let shown = sandbox.run(args).stdout;
                let shown = String::from_utf8(shown).expect("JSON");
                let lines = shown.lines().map(|line| serde_json::from_str(line).expect("JSON"));
                let pairs: Vec<serde_json::Value> =
                    lines.filter(|line: &serde_json::Value| line["key"].is_string()).collect();
                assert_eq!(pairs.len(), 2, "{shown}");
                assert_eq!(pairs[0]["value"], pairs[1]["value"], "{shown}");
            }
        }
    });
}

#[test]
fn get_of_keys_that_come_one_by_one_is_of_one_moment() {
    let sandbox = Sandbox::new();
    let db = Options::new().sharing(Sharing::Shared).open(sandbox.path("a.spt")).expect("opens");
    put_both(&db, 0);
    let mut get = sandbox.program(&["get", "a.spt", "--stdin"]);
    let mut get = get.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = get.stdin.take().unwrap();
    let mut values = BufReader::new(get.stdout.take().unwrap()).lines();
    keys.write_all(b"a\n").unwrap();
    assert_eq!(values.next().unwrap().unwrap(), "0");
    put_both(&db, 1);
    keys.write_all(b"b\n").unwrap();
    assert_eq!(values.next().unwrap().unwrap(), "0");
    drop(keys);
    assert!(get.wait().unwrap().success());
}

#[test]
fn a_command_that_writes_waits_its_turn_and_says_for_whom() {
    let sandbox = Sandbox::new();
    let loading = Loading::start(&sandbox, 10);
    let pid = loading.child.id();
    let mut put = sandbox.program(&["put", "a.spt", "one", "more", "--lock-timeout", "900"]);
    let mut put = put.stderr(Stdio::piped()).spawn().unwrap();
    let mut messages = BufReader::new(put.stderr.take().unwrap());
    let mut line = String::new();
    messages.read_line(&mut line).unwrap();
    let expected = format!(
        "splitpoint: waiting for `a.spt`, locked by process {pid} (writer); giving up after 900 s\n"
    );
    assert_eq!(without_ages(&line), expected);
    loading.finish();
    assert_eq!(end_of(put, "a put that waits its turn").exit, 0);
    let mut rest = String::new();
    messages.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    sandbox.run(&["get", "a.spt", "one"]).check(0, "more", "");
}

#[test]
fn a_command_that_reads_waits_for_whoever_keeps_it_out() {
    let sandbox = Sandbox::with_words();
    let id = std::process::id();
    // What keeps each of them out, and what it prints then.
    let commands: [(&[&str], Sharing, &str); 8] = [
        (&["get", "words.spt", "banana"], Sharing::Exclusive, "2"),
        (&["exists", "words.spt", "banana"], Sharing::Exclusive, ""),
        (&["count", "words.spt"], Sharing::Exclusive, "3\n"),
        (&["list", "words.spt"], Sharing::Exclusive, ""),
        (&["stat", "words.spt"], Sharing::Exclusive, ""),
        (&["check", "words.spt"], Sharing::OneWriter, "`words.spt` is sound"),
        (&["repair", "words.spt", "-o", "saved"], Sharing::OneWriter, "saved 3 keys"),
        (&["convert", "words.spt", "words.cdb", "--format", "cdb"], Sharing::OneWriter, ""),
    ];
    for (args, sharing, printed) in commands {
        let db = Options::new().sharing(sharing).open(sandbox.path("words.spt")).unwrap();
        let refused = sandbox.run(&[args, &["--lock-timeout", "0"]].concat());
        assert_eq!(refused.exit, 3, "{args:?}");
        let mut command = sandbox.program(&[args, &["--lock-timeout", "900"]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = command.spawn().unwrap();
        let mut messages = BufReader::new(command.stderr.take().unwrap());
        let mut line = String::new();
        messages.read_line(&mut line).unwrap();
        let expected = format!(
            "splitpoint: waiting for `words.spt`, locked by process {id} (writer); giving up after \
             900 s\n"
        );
        assert_eq!(without_ages(&line), expected, "{args:?}");
        db.close().unwrap();
        let outcome = end_of(command, "a command that waits");
        assert_eq!(outcome.exit, 0, "{args:?}");
        assert!(outcome.text().starts_with(printed), "{args:?}: {}", outcome.text());
    }
}

/// Nobody sees more of the others than that they come and go.
#[test]
fn commands_of_every_kind_wait_for_each_other() {
    let sandbox = Sandbox::with_words();
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let sandbox = &sandbox;
            threads.spawn(move || {
                let (key, copy) = (format!("key {thread}"), format!("copy {thread}"));
                let saved = format!("saved {thread}");
                let seed = thread.to_string();
                let commands: [&[&str]; 9] = [
                    &["put", "-q", "words.spt", &key, "value"],
                    &["rehash", "-q", "words.spt", "--seed", &seed],
                    &["get", "words.spt", &key],
                    &["check", "-q", "words.spt"],
                    &["backup", "-q", "words.spt", &copy],
                    &["repair", "-q", "words.spt", "-o", &saved],
                    &["compact", "-q", "words.spt"],
                    &["dump", "words.spt", "--progress", "never"],
                    &["delete", "-q", "words.spt", &key],
                ];
                for args in commands {
                    let wait: &[&str] =
                        if args[0] == "backup" { &[] } else { &["--lock-timeout", "900"] };
                    let outcome = sandbox.run(&[args, wait].concat());
                    assert_eq!(outcome.exit, 0, "{args:?}: {}", outcome.stderr);
                }
            });
        }
    });
    sandbox.run(&["count", "words.spt"]).check(0, "3\n", "");
    assert_eq!(sandbox.run(&["check", "-q", "words.spt"]).exit, 0);
}

#[test]
fn a_command_waits_for_the_creator_of_a_file_of_db_1_85() {
    let sandbox = Sandbox::new();
    let creator = splitpoint_legacy::db185::Options::new().open(sandbox.path("new.db")).unwrap();
    creator.put("key", "value").unwrap();
    let args = ["get", "db185:new.db", "key", "--lock-timeout"];
    let refused = sandbox.run(&[&args[..], &["0"]].concat());
    refused.check_error(3, "`new.db` is locked by another handle");
    let mut get = sandbox.program(&[&args[..], &["900"]].concat());
    let mut get = get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut messages = BufReader::new(get.stderr.take().unwrap());
    let mut line = String::new();
    messages.read_line(&mut line).unwrap();
    assert_eq!(
        line,
        "splitpoint: waiting for `new.db`, locked by another handle; giving up after 900 s\n"
    );
    drop(creator);
    let outcome = end_of(get, "a get that waits");
    assert_eq!((outcome.exit, outcome.text()), (0, "value".to_string()));
}

#[test]
fn a_signal_ends_the_wait() {
    let sandbox = Sandbox::new();
    let loading = Loading::start(&sandbox, 10);
    let mut put = sandbox.program(&["put", "a.spt", "one", "more", "--lock-timeout", "900"]);
    let mut put = put.stderr(Stdio::piped()).spawn().unwrap();
    let mut messages = BufReader::new(put.stderr.take().unwrap());
    messages.read_line(&mut String::new()).unwrap();
    let id = put.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
    assert_eq!(end_of(put, "a put that waits, after a signal").exit, 143);
    let mut rest = String::new();
    messages.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "splitpoint: error: interrupted\n");
    loading.finish();
    sandbox.run(&["count", "a.spt"]).check(0, "10\n", "");
}

/// These would remove a file of theirs, and say what is left.
#[test]
fn a_signal_ends_the_wait_of_a_command_that_makes_a_file() {
    let sandbox = Sandbox::new();
    let loading = Loading::start(&sandbox, 10);
    for (args, said) in [
        (
            &["repair", "a.spt", "-o", "saved"][..],
            "no store was created\nhint: the damaged file is unchanged; run the repair again\n",
        ),
        (&["rehash", "a.spt"], "`a.spt` is unchanged\nhint: run the rehash again\n"),
    ] {
        let mut command = sandbox.program(&[args, &["--lock-timeout", "900"]].concat());
        let mut command = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(command.stderr.take().unwrap());
        messages.read_line(&mut String::new()).unwrap();
        let id = command.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
        assert_eq!(end_of(command, "a command that waits, after a signal").exit, 143, "{args:?}");
        let mut rest = String::new();
        messages.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, format!("splitpoint: error: interrupted: {said}"), "{args:?}");
    }
    assert!(!sandbox.path("saved").exists());
    loading.finish();
    sandbox.run(&["count", "a.spt"]).check(0, "10\n", "");
}

/// Keeps a reader waiting on a pipe that nobody empties, beside a load.
#[test]
fn stat_lists_the_readers_beside_a_writer() {
    let sandbox = Sandbox::new();
    let loading = Loading::start(&sandbox, 50_000);
    assert_eq!(sandbox.run(&["stat", "a.spt", "--json"]).json()["readers"], serde_json::json!([]));
    assert!(!sandbox.run(&["stat", "a.spt"]).text().contains("readers"));

    let mut reader = sandbox.program(&["list", "a.spt"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = BufReader::new(reader.stdout.take().unwrap());
    pipe.read_line(&mut String::new()).unwrap();
    let readers = sandbox.run(&["stat", "a.spt", "--json"]).json()["readers"].clone();
    let [found] = &readers.as_array().unwrap()[..] else { panic!("{readers}") };
    assert_eq!(found["pid"], reader.id());
    assert!(found["place"].as_u64().unwrap() >= 1 && found["age_ms"].is_u64(), "{readers}");
    assert_eq!(found["holds_space"], true, "a scan does");

    let text = sandbox.run(&["stat", "a.spt"]).text();
    let row = text.lines().skip_while(|line| !line.starts_with("readers ")).nth(1).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((words[0], words[2]), ("place", &*reader.id().to_string()), "{text}");
    assert!(row.ends_with("  holds space back"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");

    drop(pipe);
    reader.wait().unwrap();
    assert_eq!(sandbox.run(&["stat", "a.spt", "--json"]).json()["readers"], serde_json::json!([]));
    loading.finish();
}

#[test]
fn stat_watches_a_store_beside_a_writer() {
    let sandbox = Sandbox::new();
    let mut loading = Loading::start(&sandbox, 1_000);
    let mut command = sandbox.program(&["stat", "a.spt", "--watch", "1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("records"));
    assert!(lines.next().unwrap().trim_start().starts_with("1,000 "));
    loading.load(&sandbox, 500);
    assert!(lines.any(|line| line.trim_start().starts_with("1,500 ")));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
    let ended = end_of(child, "a watch after a signal");
    assert_eq!(ended.exit, 143);
    let note = "splitpoint: nobody counts the lookups: ";
    assert!(
        ended.stderr.starts_with(note) && ended.stderr.lines().count() == 1,
        "{}",
        ended.stderr
    );
    loading.finish();
}

#[test]
fn commands_that_write_take_turns_with_processes_that_do() {
    let sandbox = Sandbox::new();
    let by_turns = Options::new().sharing(Sharing::Shared);
    let db = by_turns.open(sandbox.path("a.spt")).unwrap();
    db.put("one", "1").unwrap();
    sandbox.run(&["put", "a.spt", "two", "2", "--lock-timeout", "0"]).check(0, "", "");
    assert_eq!(db.get("two").unwrap().unwrap(), "2");
    db.put("three", "3").unwrap();
    sandbox.run(&["delete", "a.spt", "one"]).check(0, "", "");
    let input = b"four\t4\nfive\t5\n";
    let load = ["load", "-q", "a.spt", "--format", "tsv"];
    let buffered = [&load[..], &["--durability", "buffered"]].concat();
    sandbox.run_with(&buffered, input).check(0, "", "");
    assert_eq!(db.len(), 4);
    // A command that has ended is durable, whoever else has the store open.
    let stats = db.stats().unwrap();
    assert_eq!(stats.durable_bytes, stats.log_bytes);
    assert!(db.get("one").unwrap().is_none());
    sandbox.run(&["get", "a.spt", "three"]).check(0, "3", "");
    sandbox.run(&["count", "a.spt"]).check(0, "4\n", "");
    db.close().unwrap();
    assert_eq!(sandbox.run(&["check", "-q", "a.spt"]).exit, 0);
}

#[test]
fn a_compaction_takes_turns_with_processes_that_write_by_turns() {
    let sandbox = Sandbox::new();
    let by_turns = Options::new().sharing(Sharing::Shared).durability(Durability::Buffered);
    let db = by_turns.keep_dead_records().open(sandbox.path("a.spt")).unwrap();
    let value = |round: u32| [round as u8; 200];
    for round in 0..4 {
        for key in 0..20_000_u32 {
            db.put(key.to_le_bytes(), value(round)).unwrap();
        }
    }
    (2_500..20_000_u32).for_each(|key| assert!(db.delete(key.to_le_bytes()).unwrap()));
    let mut compaction = sandbox.program(&["compact", "-q", "a.spt", "--json"]);
    let mut compaction = compaction.stdout(Stdio::piped()).spawn().unwrap();
    // It waits for nobody, and nobody for it.
    let mut rounds = 4;
    while compaction.try_wait().unwrap().is_none() {
        for key in 0..100_u32 {
            db.put(key.to_le_bytes(), value(rounds)).unwrap();
        }
        rounds += 1;
    }
    assert!(rounds > 4, "no change was made beside it");
    let ended = end_of(compaction, "a compaction");
    assert_eq!(ended.exit, 0, "{}", ended.stderr);
    let report = ended.json();
    let number = |field: &str| report[field].as_u64().unwrap();
    assert!(number("moved_bytes") > 0, "{report}");
    // Nearly all was dead. How many blocks go back depends on how many turns of the other come between. What these
    // have replaced may be dead: of each change less than 256 bytes.
    let beside_bytes = u64::from(rounds - 4) * 100 * 256;
    assert!(number("dead_bytes") < number("old_disk_bytes") / 2 + beside_bytes, "{report}");
    for key in 0..2_500_u32 {
        let round = if key < 100 { rounds - 1 } else { 3 };
        assert_eq!(db.get(key.to_le_bytes()).unwrap().unwrap(), value(round));
    }
    assert_eq!(db.len(), 2_500);
    db.close().unwrap();
    assert_eq!(sandbox.run(&["check", "-q", "a.spt"]).exit, 0);
}

#[test]
fn a_change_by_turns_that_is_blocked_says_for_whom_it_waits() {
    let sandbox = Sandbox::new();
    let db = Options::new().sharing(Sharing::Shared).open(sandbox.path("a.spt")).unwrap();
    db.put("one", "1").unwrap();
    let mut put = sandbox.program(&["put", "a.spt", "two", "2", "--lock-timeout", "900"]);
    put.stderr(Stdio::piped());
    let mut running = None;
    let updated = db.update("one", |_| {
        // This is its turn.
        let mut put = put.spawn().unwrap();
        let mut messages = BufReader::new(put.stderr.take().unwrap());
        let mut line = String::new();
        messages.read_line(&mut line).unwrap();
        let pid = std::process::id();
        let expected = format!(
            "splitpoint: waiting for `a.spt`, locked by process {pid} (writer by turns); \
             giving up after 900 s\n"
        );
        assert_eq!(without_ages(&line), expected);
        running = Some((put, messages));
        Some("2")
    });
    updated.unwrap();
    let (put, mut messages) = running.unwrap();
    assert_eq!(end_of(put, "a put that waits for a turn").exit, 0);
    let mut rest = String::new();
    messages.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert_eq!(db.get("two").unwrap().unwrap(), "2");
}

/// The first holder closes the store, and others come that change it by turns.
#[test]
fn a_command_that_waits_for_a_session_takes_turns_with_those_who_come_after_it() {
    let sandbox = Sandbox::new();
    let session = Options::new().open(sandbox.path("a.spt")).unwrap();
    session.put("one", "1").unwrap();
    let mut put = sandbox.program(&["put", "a.spt", "two", "2", "--lock-timeout", "900"]);
    let mut put = put.stderr(Stdio::piped()).spawn().unwrap();
    let mut messages = BufReader::new(put.stderr.take().unwrap());
    messages.read_line(&mut String::new()).unwrap();
    session.close().unwrap();
    // Whichever is faster: this one stays.
    let by_turns = Options::new().sharing(Sharing::Shared).lock_timeout(Duration::from_secs(900));
    let db = by_turns.open(sandbox.path("a.spt")).unwrap();
    assert_eq!(end_of(put, "a put beside writers by turns").exit, 0);
    assert_eq!(db.get("two").unwrap().unwrap(), "2");
}

/// A user who may read the file and not write it sees what a writer has stored.
#[test]
fn a_user_without_permission_to_write_reads_beside_a_writer() {
    let sandbox = Sandbox::new();
    let mut loading = Loading::start(&sandbox, 1_000);
    let file = sandbox.path("a.spt");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    for count in [1_000, 21_000] {
        loading.load(&sandbox, count - loading.loaded_count);
        for args in [&["get", "a.spt", "7"][..], &["list", "a.spt"], &["dump", "a.spt"]] {
            let mut program = sandbox.program(args);
            if is_root {
                let directory = file.parent().unwrap();
                let open = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(directory, open).unwrap();
                program.uid(65_534).gid(65_534);
            }
            let output = program.output().unwrap();
            assert!(output.status.success(), "{args:?}: {output:?}");
            assert!(!output.stdout.is_empty(), "{args:?}");
        }
    }
    loading.finish();
}
