//! Exchange of dumps with the tools of other stores, both ways.

use std::collections::BTreeSet;
use std::path::Path;

use crate::sandbox::{Outcome, Sandbox, feed, tool};

fn records(sandbox: &Sandbox, file: &str) -> BTreeSet<String> {
    sandbox.run(&["dump", file]).text().lines().map(str::to_string).collect()
}

#[track_caller]
fn run(sandbox: &Sandbox, program: &Path, args: &[&str], stdin: &[u8]) -> Vec<u8> {
    let outcome = Outcome::of(&feed(&mut sandbox.command(program, args), stdin));
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""), "{}", program.display());
    outcome.stdout
}

fn sorted_lines(dump: &[u8]) -> Vec<String> {
    let lines = dump.split(|byte| *byte == b'\n').map(|line| line.escape_ascii().to_string());
    let mut lines: Vec<String> = lines.filter(|line| !line.starts_with("h_nelem=")).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn berkeley_db_loads_what_we_dump_and_we_load_what_it_dumps() {
    let Some(db_load) = tool("db5.3_load", "db5.3-util") else { return };
    let Some(db_dump) = tool("db5.3_dump", "db5.3-util") else { return };
    let sandbox = Sandbox::with_awkward();
    for (format, dump_args) in [("bytevalue", &["there.db"][..]), ("print", &["-p", "there.db"])] {
        let ours = sandbox.run(&["dump", "awkward.spt", "--format", format]).stdout;
        let _ = std::fs::remove_file(sandbox.path("there.db"));
        run(&sandbox, &db_load, &["there.db"], &ours);
        let theirs = run(&sandbox, &db_dump, dump_args, b"");

        // Theirs to the byte, but for the order of the records, which is each store's own, and
        // for `h_nelem`, which db_load adds to the number of records.
        assert_eq!(sorted_lines(&ours), sorted_lines(&theirs), "{format}");

        let file = format!("back-{format}.spt");
        sandbox.run_with(&["load", "-q", &file], &theirs).check(0, "", "");
        assert_eq!(records(&sandbox, &file), records(&sandbox, "awkward.spt"), "{format}");
    }
}

#[test]
fn cdb_loads_what_we_dump_and_we_load_what_it_dumps() {
    let Some(cdb) = tool("cdb", "tinycdb") else { return };
    let sandbox = Sandbox::with_awkward();
    let ours = sandbox.run(&["dump", "awkward.spt", "--format", "cdb"]).stdout;
    run(&sandbox, &cdb, &["-c", "there.cdb"], &ours);
    let theirs = run(&sandbox, &cdb, &["-d", "there.cdb"], b"");
    assert!(ours == theirs, "the dumps differ");
    sandbox.run_with(&["load", "-q", "back.spt"], &theirs).check(0, "", "");
    assert_eq!(records(&sandbox, "back.spt"), records(&sandbox, "awkward.spt"));
}
