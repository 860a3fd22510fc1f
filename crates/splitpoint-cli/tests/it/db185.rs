//! Files of db 1.85, written as they are: `db185:FILE` with every command that changes.

use std::collections::BTreeSet;

use crate::old_files::{SAMPLES, lines, with_samples};
use crate::sandbox::{AWKWARD, Sandbox, hex, tool};

#[test]
fn a_file_is_made_written_and_read_with_every_command() {
    let sandbox = Sandbox::new();
    let url = "db185:a.db?bsize=512&ffactor=4&lorder=4321";
    sandbox.run(&["create", url]).check(
        0,
        "",
        "splitpoint: created `db185:a.db?bsize=512&ffactor=4&lorder=4321`, a file of db 1.85: \
         pages of 512 bytes, byte order 4321\n",
    );
    sandbox.run(&["create", url]).check_error(3, "`a.db` already exists");
    sandbox.run(&["count", "db185:a.db"]).check(0, "0\n", "");
    for (key, value) in AWKWARD {
        let args = ["put", "db185:a.db", "--hex", &hex(key), &hex(value)];
        sandbox.run(&args).check(0, "", "");
        let value = format!("{}\n", hex(value));
        sandbox.run(&["get", "db185:a.db", "--hex", &hex(key)]).check(0, value, "");
    }
    sandbox
        .run(&["put", "db185:a.db", "--new", "plain", "other"])
        .check_error(1, "key `plain` already exists in `db185:a.db`");
    sandbox.run(&["delete", "db185:a.db", "plain", "tab\there"]).check(0, "", "");
    sandbox
        .run(&["delete", "db185:a.db", "plain"])
        .check_error(1, "no key `plain` in `db185:a.db`");

    let input = (0..2000).fold(String::new(), |text, number| text + &format!("word {number}\n"));
    let loaded = sandbox.run_with(&["load", "db185:a.db", "--format", "lines"], input.as_bytes());
    assert_eq!(loaded.exit, 0, "{}", loaded.stderr);
    assert!(loaded.stderr.contains("2,000 new"), "{}", loaded.stderr);
    sandbox.run(&["count", "a.db"]).check(0, "2005\n", "");
    sandbox.run(&["count", "db185:a.db"]).check(0, "2005\n", "");
    let check = sandbox.run(&["check", "db185:a.db"]);
    assert_eq!((check.exit, check.stderr.as_str()), (0, ""));
    let stat = sandbox.run(&["stat", "db185:a.db", "--json"]).json();
    assert_eq!(stat["records"], 2005);
    assert_eq!(stat["parameters"]["bsize"], "512");
    let buckets = stat["buckets"].as_array().expect("a histogram");
    assert!(buckets.iter().all(|row| row["ideal"].as_f64().is_some()), "{stat}");

    let ours = lines(&sandbox.run(&["dump", "db185:a.db"]).stdout);
    if let Some(theirs) = dump_of_original(&sandbox, "a.db") {
        assert!(theirs == ours, "the original program reads other pairs");
    }
}

/// Returns the lines that `dump` prints for what the program of the original package reads from
/// `file`, or `None` where that program may be missing.
pub(crate) fn dump_of_original(sandbox: &Sandbox, file: &str) -> Option<BTreeSet<String>> {
    let dump185 = tool("db_dump185", "libdb1-compat")?;
    let dump = sandbox.command(&dump185, &[file]).output().expect("it can be run");
    assert!(dump.status.success(), "{file}: {}", dump.status);
    let dump = String::from_utf8(dump.stdout).expect("hex");
    let (_, pairs) = dump.split_once("HEADER=END\n").expect("a header");
    let mut pairs = pairs.lines().map(|hex| if hex.is_empty() { "-" } else { hex });
    let mut lines = BTreeSet::new();
    while let Some(key) = pairs.next() {
        let value = pairs.next().expect("a value for each key");
        assert!(lines.insert(format!("{key} {value}")), "{file}: {key} twice");
    }
    Some(lines)
}

#[test]
fn a_missing_file_is_made_by_put_and_load_and_said() {
    let sandbox = Sandbox::new();
    let note = "splitpoint: created `db185:new.db`\n";
    sandbox.run(&["put", "db185:new.db", "key", "value"]).check(0, "", note);
    sandbox.run(&["put", "db185:new.db", "key", "value"]).check(0, "", "");
    sandbox.run(&["get", "new.db", "key"]).check(0, "value", "");
    for args in [&["delete", "db185:none.db", "key"][..], &["get", "db185:none.db", "key"]] {
        assert_eq!(sandbox.run(args).exit, 3, "{args:?}");
    }
    assert!(!sandbox.path("none.db").exists());
    for args in [
        &["create", "db185:b.db", "--fill-factor", "3"][..],
        &["create", "db185:b.db?bsize=many"],
        &["put", "db185:b.db?size=1", "key", "value"],
        &["put", "db185:", "key", "value"],
    ] {
        assert_eq!(sandbox.run(args).exit, 2, "{args:?}");
    }
    assert!(!sandbox.path("b.db").exists());
}

/// Every command that changes, on a file of every format.
#[test]
fn a_command_that_would_change_says_which_one_converts() {
    for (given, name, files) in SAMPLES {
        let sandbox = with_samples(files);
        sandbox.write("input", b"key\tvalue\n");
        let before: Vec<Vec<u8>> = files.iter().map(|file| sandbox.read(file)).collect();
        // A pair by what the names begin with, ndbm's `.db` without it; other endings are none.
        let is_short = [".pag", ".db"].iter().any(|end| files[0] == format!("{name}{end}"));
        let short_name = if is_short { name } else { files[0] };
        for given in [given, files[0], short_name] {
            for args in [
                &["put", given, "key", "value"][..],
                &["delete", given, "key"],
                &["load", given, "input"],
                &["create", given],
            ] {
                let outcome = sandbox.run(args);
                let is_there = sandbox.path(given).exists();
                assert_eq!(outcome.exit, 3, "{args:?}: {}", outcome.stderr);
                // `create` says that there is such a file.
                if args[0] != "create" || !is_there {
                    let hint = outcome.stderr.lines().nth(1).unwrap_or_default();
                    assert!(hint.contains("splitpoint convert "), "{args:?}: {}", outcome.stderr);
                    assert_eq!(hint.contains("db185:"), name.starts_with("db185"), "{hint}");
                }
            }
        }
        let after: Vec<Vec<u8>> = files.iter().map(|file| sandbox.read(file)).collect();
        assert!(before == after, "{name} was written");
        let found: BTreeSet<_> = std::fs::read_dir(sandbox.path("."))
            .expect("the sandbox")
            .map(|entry| entry.expect("a file").file_name().into_string().expect("a name"))
            .collect();
        assert_eq!(found.len(), files.len() + 1, "{name}: {found:?}");
    }
}

#[test]
fn a_file_of_another_format_is_not_taken_for_one_of_db_185() {
    let sandbox = with_samples(&["gdbm-std-bin.gdbm"]);
    let before = sandbox.read("gdbm-std-bin.gdbm");
    for args in [
        &["get", "db185:gdbm-std-bin.gdbm", "key"][..],
        &["put", "db185:gdbm-std-bin.gdbm", "key", "value"],
        &["check", "db185:gdbm-std-bin.gdbm"],
    ] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.exit, 3, "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("splitpoint convert "), "{args:?}: {}", outcome.stderr);
    }
    assert!(sandbox.read("gdbm-std-bin.gdbm") == before);
}
