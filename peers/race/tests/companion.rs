//! The processes beside the engines: the race starts its own program as them.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Ticks of the processor that a process has used.
fn ticks(child: &Child) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let field = |i: usize| after_name.split_whitespace().nth(i).and_then(|word| word.parse().ok());
    field(11).unwrap_or(0_u64) + field(12).unwrap_or(0_u64)
}

/// Waits until something is so, or half a minute has passed; returns whether it is.
fn becomes_so(mut is_so: impl FnMut() -> bool) -> bool {
    (0..3000).any(|_| {
        let is_so = is_so();
        if !is_so {
            sleep(Duration::from_millis(10));
        }
        is_so
    })
}

#[test]
fn a_companion_keeps_a_processor_busy_until_its_race_has_ended() {
    for kind in ["spin", "copy"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_race"));
        command.args(["--companion", kind]).stdin(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let is_busy = becomes_so(|| ticks(&child) >= 5);
        // However the race ends, its end of the pipe is closed then.
        drop(child.stdin.take());
        let has_ended = becomes_so(|| child.try_wait().is_ok_and(|status| status.is_some()));
        if !has_ended {
            child.kill().expect("it is killed");
        }
        assert!(is_busy && has_ended, "{kind}: busy {is_busy}, ended {has_ended}");
    }
}

#[test]
fn there_is_no_companion_for_a_quiet_machine() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_race"));
    let output = command.args(["--companion", "quiet"]).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error.trim(), "error: there is no `quiet`; there are: spin, copy");
    assert_eq!(output.status.code(), Some(1));
}
