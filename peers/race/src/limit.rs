//! A process that may not run for ever.

use std::io;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Outcome;

/// Between two looks whether the process has ended. Looking takes microseconds, so that it does not
/// disturb what is measured.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs a command to its end, and returns what it has printed and whether it was killed because
/// `limit` was over. What it prints has to fit into a pipe, which is 64 KiB.
pub fn output(command: &mut Command, limit: Duration) -> Outcome<(Output, bool)> {
    let failed = |cause: io::Error| cause.to_string();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let start = Instant::now();
    let mut is_late = false;
    while child.try_wait().map_err(failed)?.is_none() {
        if start.elapsed() >= limit {
            is_late = true;
            child.kill().map_err(failed)?;
            break;
        }
        sleep(PAUSE);
    }
    Ok((child.wait_with_output().map_err(failed)?, is_late))
}
