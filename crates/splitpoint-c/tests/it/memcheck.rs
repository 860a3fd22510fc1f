//! What valgrind has to say of a program, for the tests of all C libraries.

/// Returns what valgrind has found, on standard error. It does not know the calls for the write hint of a file, nor
/// `cachestat`, which new blocks are claimed with on a file system like tmpfs, and says so.
pub(crate) fn found_by_valgrind(stderr: &[u8]) -> String {
    let lines = std::str::from_utf8(stderr).expect("the programs print ASCII").lines();
    let unknown = [
        "unimplemented fcntl command: 1035",
        "unimplemented fcntl command: 1036",
        "-linux syscall: 451",
        // What it says of every unknown call.
        "You may be able to write your own handler.",
        "Read the file README_MISSING_SYSCALL_OR_IOCTL.",
        "Nevertheless we consider this a bug.  Please report",
        "it at http://valgrind.org/support/bug_reports.html.",
    ];
    lines.filter(|line| !unknown.iter().any(|words| line.ends_with(words))).collect()
}
