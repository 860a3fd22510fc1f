//! Programs that call every function, with the original and with ours: the same lines.

use crate::support::{Program, Whose, assert_bound_to_ours, original, skip};

/// Lines that differ, of the original and of ours, and why.
const DIFFERENT: [(&str, &str); 11] = [
    // It opens the folder, and fails to read it.
    (
        "open a folder to read: 0, gdbm_errno 6, errno set",
        "open a folder to read: 0, gdbm_errno 3, errno set",
    ),
    // It says that it keeps free blocks in the header, where a store has no blocks.
    ("centfree 1", "centfree 0"),
    // It reads on where the call before it stopped.
    (
        "fd_open of text, closed on error: 0, gdbm_errno 25",
        "fd_open of text, closed on error: 0, gdbm_errno 7",
    ),
    // It has no number for a file that is no dump.
    ("import text: -1, gdbm_errno 6, errno 0", "import text: -1, gdbm_errno 7"),
    ("centfree is 1: get: 0, gdbm_errno 0", "centfree is 0: get: 0, gdbm_errno 0"),
    // It takes either type when the size is set.
    ("cache size is -7: get: -1, gdbm_errno 20", "cache size is 256: get: 0, gdbm_errno 0"),
    // It writes nothing to a stream that is open to write, and says so.
    ("export_to_file: -1, gdbm_errno 4, errno 0", "export_to_file: 2, gdbm_errno 0"),
    ("import_from_file: -1, gdbm_errno 6, errno 0", "import_from_file: 2, gdbm_errno 0"),
    ("dump_to_file, no format: 22, gdbm_errno 23", "dump_to_file, no format: -1, gdbm_errno 23"),
    // The line that is wrong is the ninth.
    ("line 10", "line 9"),
    // It leaves the name out, though it has chosen one.
    ("numbers far apart: 4, none", "numbers far apart: 4, odd"),
];

#[test]
fn every_call_returns_what_the_original_returns() {
    let program = Program::compile("calls");
    assert_bound_to_ours(program.command(Whose::Ours), "gdbm_open");
    let ours = lines_agree("calls");
    assert!(ours.lines().count() > 120, "{ours}");
    assert!(ours.contains("insert again: 1, gdbm_errno 17"), "{ours}");
    assert!(ours.contains("\n1.23.0, GDBM version 1.23\n"), "{ours}");
}

#[test]
fn options_flags_texts_and_snapshots_are_those_of_the_original() {
    let ours = lines_agree("options");
    assert!(ours.lines().count() > 450, "{ours}");
    assert!(ours.contains("\n15 Item not found\n"), "{ours}");
}

#[test]
fn wrong_calls_and_unusable_handles_fail_as_with_the_original() {
    let ours = lines_agree("states");
    assert!(ours.lines().count() > 150, "{ours}");
    assert!(ours.contains("\nno name: 0, gdbm_errno 3, errno 14\n"), "{ours}");
}

/// Returns whether two lines are of a failure with which the original alone leaves `errno` as it is.
fn is_silent_failure(expected: &str, found: &str) -> bool {
    let (expected, found) = (expected.rsplit_once(", errno "), found.rsplit_once(", errno "));
    let (Some((expected, "0")), Some((found, _))) = (expected, found) else { return false };
    expected == found && !expected.ends_with("gdbm_errno 0")
}

/// Runs a program with both libraries, and returns what it prints with ours.
fn lines_agree(name: &str) -> String {
    let ours = Program::compile(name).run::<&str>(Whose::Ours, &[]);
    if original().is_none() {
        skip("the original is not installed");
        return ours;
    }
    let original = Program::compile(name).run::<&str>(Whose::Original, &[]);
    for (expected, found) in original.lines().zip(ours.lines()) {
        let is_known = DIFFERENT.contains(&(expected, found)) || is_silent_failure(expected, found);
        assert!(expected == found || is_known, "expected {expected:?}, found {found:?}");
    }
    assert_eq!(original.lines().count(), ours.lines().count(), "{ours}");
    ours
}
