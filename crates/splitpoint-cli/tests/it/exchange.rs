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

/// `gdbm_load` 1.23 refuses an empty key or value, also in a dump of `gdbm_dump`, so dumps go there
/// without them.
#[test]
fn gdbm_loads_what_we_dump_and_we_load_what_it_dumps() {
    let Some(gdbm_load) = tool("gdbm_load", "gdbmtool") else { return };
    let Some(gdbm_dump) = tool("gdbm_dump", "gdbmtool") else { return };
    let sandbox = Sandbox::with_awkward();
    for key in ["", &crate::sandbox::hex(b"the empty value")] {
        sandbox.run(&["delete", "-q", "awkward.spt", "--hex", key]).check(0, "", "");
    }
    for (format, option) in [("gdbm-binary", "--format=binary"), ("gdbm-ascii", "--format=ascii")] {
        let ours = sandbox.run(&["dump", "awkward.spt", "--format", format]).stdout;
        sandbox.write("ours", &ours);
        let there = format!("{format}.gdbm");
        run(&sandbox, &gdbm_load, &["ours", &there], b"");
        run(&sandbox, &gdbm_dump, &[option, &there, "theirs"], b"");
        let back = format!("{format}.spt");
        sandbox.run(&["load", "-q", &back, "theirs"]).check(0, "", "");
        assert_eq!(records(&sandbox, &back), records(&sandbox, "awkward.spt"), "{format}");
        // And its file itself.
        assert_eq!(records(&sandbox, &there), records(&sandbox, "awkward.spt"), "{format}");
    }
}

#[test]
fn lmdb_loads_what_we_dump_and_we_load_what_it_dumps() {
    let Some(mdb_load) = tool("mdb_load", "lmdb-utils") else { return };
    let Some(mdb_dump) = tool("mdb_dump", "lmdb-utils") else { return };
    let sandbox = Sandbox::with_awkward();
    // LMDB has no empty key, and `mdb_dump -p` writes a backslash as if it began an escape.
    for key in ["", "00ff5c0a0920"] {
        sandbox.run(&["delete", "-q", "awkward.spt", "--hex", key]).check(0, "", "");
    }
    let ours = sandbox.run(&["dump", "awkward.spt", "--format", "mdb"]).stdout;
    run(&sandbox, &mdb_load, &["-n", "there.mdb"], &ours);
    for (format, options) in [("bytevalue", &["-n"][..]), ("print", &["-n", "-p"])] {
        let theirs = run(&sandbox, &mdb_dump, &[options, &["there.mdb"]].concat(), b"");
        let back = format!("mdb-{format}.spt");
        sandbox.run_with(&["load", "-q", &back], &theirs).check(0, "", "");
        assert_eq!(records(&sandbox, &back), records(&sandbox, "awkward.spt"), "{format}");
    }
}
