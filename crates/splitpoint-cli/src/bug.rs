//! How this program reports its bugs to the user: on one line, without a backtrace.

use std::panic::{self, PanicHookInfo};

use crate::console;
use crate::failure::Exit;

/// Makes every panic end the process with one line on standard error.
///
/// The process ends at once, as if it had been killed. A store is built for that, and keeps every
/// acknowledged change.
pub(crate) fn report_on_one_line() {
    panic::set_hook(Box::new(|info| {
        console::report_error(
            &message(info),
            Some(
                "this is a bug in splitpoint, please report it; the store keeps every \
                 acknowledged change",
            ),
        );
        std::process::exit(Exit::Bug as i32);
    }));
}

fn message(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let what = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    match info.location() {
        Some(place) => format!("internal error at {}:{}: {what}", place.file(), place.line()),
        None => format!("internal error: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    const CHILD: &str = "SPLITPOINT_TEST_BUG";

    /// Runs itself in a child process, which panics with a message of two lines.
    #[test]
    fn a_bug_is_one_line_and_exit_code_70() {
        if std::env::var_os(CHILD).is_some() {
            super::report_on_one_line();
            panic!("assertion failed\n  left: {}", 1);
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "bug::tests::a_bug_is_one_line_and_exit_code_70", "--nocapture"])
            .env(CHILD, "1")
            .env("RUST_BACKTRACE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(70), "{said}");
        assert_eq!(said.lines().count(), 2, "{said}");
        assert!(said.starts_with("splitpoint: error: internal error at "), "{said}");
        assert!(said.contains("bug.rs"), "{said}");
        assert!(said.contains("assertion failed\\n  left: 1\nhint: this is a bug"), "{said}");
    }
}
