//! One program that calls every function, with the original and with ours: the same lines.

use crate::support::{Program, Whose, assert_bound_to_ours, original, skip};

/// Lines that differ, of the original and of ours, and why.
const DIFFERENT: [(&str, &str); 4] = [
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
];

#[test]
fn every_call_returns_what_the_original_returns() {
    let program = Program::compile("calls");
    assert_bound_to_ours(program.command(Whose::Ours), "gdbm_open");
    let ours = Program::compile("calls").run::<&str>(Whose::Ours, &[]);
    assert!(ours.lines().count() > 120, "{ours}");
    assert!(ours.contains("insert again: 1, gdbm_errno 17"), "{ours}");
    assert!(ours.contains("\n1.23.0, GDBM version 1.23\n"), "{ours}");
    if original().is_none() {
        return skip("the original is not installed");
    }
    let original = Program::compile("calls").run::<&str>(Whose::Original, &[]);
    assert_eq!(original.lines().count(), ours.lines().count(), "{ours}");
    for (expected, found) in original.lines().zip(ours.lines()) {
        let is_known = DIFFERENT.contains(&(expected, found));
        assert!(expected == found || is_known, "expected {expected:?}, found {found:?}");
    }
}
