//! A process that is killed has lost no store whose call had returned.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::{Program, Whose, bind};

/// Kills a writer after so many stores, and reads what it had acknowledged.
fn kill_after(store_count: u32, args: &[&str]) {
    let [writer, reader] = ["crash", "read"].map(Program::compile);
    let path = writer.folder.path().join("a.db");
    let mut command = std::process::Command::new(writer.folder.path().join("crash.bin"));
    bind(&mut command, Whose::Ours);
    let mut child =
        command.arg(&path).args(args).stdout(Stdio::piped()).spawn().expect("it can be run");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let last = lines.take(store_count as usize).last().expect("it stores").expect("a line");
    // It is somewhere in a store, or waits for its output to be read.
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    assert_eq!(last, (store_count - 1).to_string());
    let count = reader.run(Whose::Ours, &[path.as_os_str(), store_count.to_string().as_ref()]);
    let count: u32 = count.trim().parse().expect("a number");
    assert!(count >= store_count, "{count}");
}

#[test]
fn a_killed_writer_has_lost_nothing_that_it_stored() {
    for store_count in [1, 10, 1000, 20_000] {
        kill_after(store_count, &[]);
    }
    kill_after(50, &["sync"]);
}

#[test]
fn a_recovery_keeps_its_locks_and_the_limits_of_the_program() {
    assert_eq!(Program::compile("recover").run::<&str>(Whose::Ours, &[]), "done\n");
}
