//! An access method that another crate registers: every command that works on tables reaches it.

use std::env;
use std::process;

use splitpoint::{
    Capabilities, Db, Durability, Entries, Options, PutMode, Result, Table, Value, stats::Stats,
};

use crate::sandbox::{Outcome, Sandbox, feed};

/// Holds the arguments of the command, a line each, in the process that registers.
const ARGUMENTS: &str = "SPLITPOINT_TEST_ARGUMENTS";

/// A store that no command can take for one.
#[derive(Debug)]
struct Foreign(Db);

impl Table for Foreign {
    fn capabilities(&self) -> Capabilities {
        Table::capabilities(&self.0)
    }

    fn get_bytes(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.0.get_bytes(key)
    }

    fn put_bytes(
        &self,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        durability: Option<Durability>,
    ) -> Result<bool> {
        self.0.put_bytes(key, value, mode, durability)
    }

    fn delete_bytes(&self, key: &[u8], durability: Option<Durability>) -> Result<bool> {
        self.0.delete_bytes(key, durability)
    }

    fn scan(&self) -> Result<Entries<'_>> {
        Table::scan(&self.0)
    }

    fn len(&self) -> Result<u64> {
        Table::len(&self.0)
    }

    fn sync(&self) -> Result<()> {
        Table::sync(&self.0)
    }

    fn stats(&self) -> Result<Stats> {
        Table::stats(&self.0)
    }
}

fn open_foreign(path: &str, options: &Options) -> Result<Box<dyn Table>> {
    Ok(Box::new(Foreign(options.open(path)?)))
}

/// Not a test by itself: the command in a process that has registered an access method.
#[test]
fn process_with_another_access_method() {
    let Some(arguments) = env::var_os(ARGUMENTS) else { return };
    splitpoint::register("test", open_foreign).unwrap();
    let arguments = arguments.into_string().expect("text");
    let arguments = arguments.lines().map(Into::into);
    process::exit(splitpoint_cli::main_with(arguments).into());
}

/// Runs the command where `test:` is registered.
fn run(sandbox: &Sandbox, arguments: &[&str], stdin: &[u8]) -> Outcome {
    let program = env::current_exe().expect("the program of the tests");
    let this = "access_methods::process_with_another_access_method";
    // With one thread the harness would write the name of the test first.
    let mut command =
        sandbox.command(&program, &["--exact", this, "--nocapture", "--test-threads=2"]);
    command.env(ARGUMENTS, [&["splitpoint"], arguments].concat().join("\n"));
    let mut outcome = Outcome::of(&feed(&mut command, stdin));
    let head = b"\nrunning 1 test\n";
    assert!(outcome.stdout.starts_with(head), "{}", outcome.text());
    outcome.stdout.drain(..head.len());
    outcome
}

#[test]
fn every_command_on_tables_reaches_an_access_method_that_is_registered() {
    let sandbox = Sandbox::new();
    let run = |arguments: &[&str]| run(&sandbox, arguments, b"b\t2\nc\t3\n");
    run(&["put", "test:a.spt", "a", "1"]).check(0, "", "splitpoint: created `test:a.spt`\n");
    run(&["load", "test:a.spt", "--format", "tsv"]).check(
        0,
        "",
        "splitpoint: loaded 2 records in [..] from standard input (tsv) into `test:a.spt`: 2 new\n",
    );
    run(&["get", "test:a.spt", "a", "b"]).check(0, "1\n2\n", "");
    run(&["count", "test:a.spt"]).check(0, "3\n", "");
    run(&["exists", "test:a.spt", "a", "c"]).check(0, "", "");
    run(&["delete", "test:a.spt", "a"]).check(0, "", "");
    run(&["exists", "test:a.spt", "a"]).check(1, "", "");
    run(&["check", "test:a.spt"]).check(0, "`test:a.spt` is sound: 2 records verified\n", "");
    assert_eq!(run(&["stat", "test:a.spt", "--json"]).json()["records"], 2);
    let mut keys: Vec<u8> = run(&["list", "test:a.spt"]).stdout;
    keys.sort_unstable();
    assert_eq!(keys, b"\n\nbc");
    // The same command on the file itself.
    let dump = sandbox.run(&["dump", "a.spt"]);
    run(&["dump", "test:a.spt"]).check(0, &dump.stdout, "");
    run(&["get", "test:none.spt", "a"]).check(
        3,
        "",
        "splitpoint: error: cannot open `none.spt`: No such file or directory (os error 2)\n\
         hint: check the path\n",
    );
}

#[test]
fn a_name_that_only_looks_like_a_url_is_a_path() {
    let sandbox = Sandbox::new();
    sandbox.run(&["put", "test:a.spt", "a", "1"]).check(
        0,
        "",
        "splitpoint: created `test:a.spt`\n",
    );
    assert!(sandbox.path("test:a.spt").exists());
    for name in ["test:a.spt", "./test:a.spt", "file:./test:a.spt"] {
        sandbox.run(&["get", name, "a"]).check(0, "1", "");
    }
    sandbox
        .run(&["get", "test:b.spt", "a"])
        .check_error(3, "cannot open `./test:b.spt`: No such file or directory (os error 2)");
}

#[test]
fn a_table_that_ends_with_the_command_is_not_written() {
    let sandbox = Sandbox::new();
    for args in [&["put", "mem:", "a", "1"][..], &["create", "mem:"], &["load", "db185:"]] {
        let outcome = sandbox.run_with(args, b"hash\n");
        assert_eq!(outcome.exit, 2, "{args:?}: {}", outcome.stderr);
    }
    assert_eq!(std::fs::read_dir(sandbox.path("")).expect("a directory").count(), 0);
}
