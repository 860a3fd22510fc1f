//! What an open, one call and a close ask of the system: counted by `strace`, where there is one.
//!
//! The counted process is this test binary, started again with an environment variable.

use std::process::{Command, Stdio};

use splitpoint::{Db, Durability, Options, Sharing};

use crate::support::end_with_parent;

const CHILD_ENV: &str = "SPLITPOINT_TEST_OPENS";
const ROUNDS: usize = 8;

/// Opens a store, puts or gets one pair, and closes it, a few times; a call that does nothing and that
/// nothing else makes is between the rounds.
fn open_and_close(job: &str) {
    let [path, sharing, is_put] = job.split('|').collect::<Vec<_>>()[..] else { panic!("{job}") };
    let sharing = match sharing {
        "Shared" => Sharing::Shared,
        "PerCall" => Sharing::PerCall,
        _ => Sharing::OneWriter,
    };
    let options = Options::new().sharing(sharing).durability(Durability::Buffered);
    for i in 0..ROUNDS {
        let _ = std::os::unix::process::parent_id();
        let db = options.open(path).unwrap();
        if is_put == "true" {
            db.put(i.to_string(), "value").unwrap();
        } else {
            assert!(db.get("key").unwrap().is_some());
        }
        db.close().unwrap();
    }
    let _ = std::os::unix::process::parent_id();
}

/// Returns the calls of the last round but one, or `None` without `strace`.
fn calls(sharing: Sharing, is_put: bool) -> Option<Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let (path, log) = (dir.path().join("a.spt"), dir.path().join("calls"));
    Db::open(&path).unwrap().put("key", "value").unwrap();
    let name = "opens::a_small_store_is_opened_and_closed_with_few_calls";
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(&log).arg(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--test-threads=1"]).stdout(Stdio::null());
    command.env(CHILD_ENV, format!("{}|{sharing:?}|{is_put}", path.display()));
    let is_traced = command.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let rounds: Vec<&str> = text.split("getppid()").collect();
    if !is_traced || rounds.len() != ROUNDS + 2 {
        return None;
    }
    let of_round = rounds[ROUNDS - 1].lines().skip(1);
    Some(of_round.filter_map(|line| Some(line.split_once(' ')?.1.trim().to_owned())).collect())
}

/// The bounds are what was counted, and a few more.
#[test]
fn a_small_store_is_opened_and_closed_with_few_calls() {
    if let Ok(job) = std::env::var(CHILD_ENV) {
        end_with_parent();
        return open_and_close(&job);
    }
    for (sharing, is_put, bound) in [
        (Sharing::Shared, true, 85),
        (Sharing::Shared, false, 80),
        (Sharing::PerCall, true, 85),
        (Sharing::OneWriter, false, 55),
    ] {
        let Some(calls) = calls(sharing, is_put) else {
            println!("skipped: no strace, or it may not trace");
            return;
        };
        let count = calls.len();
        println!("{sharing:?}, put: {is_put}: {count} calls");
        assert!(count <= bound, "{sharing:?}, put: {is_put}: {count} calls\n{}", calls.join("\n"));
        let of = |name: &str| calls.iter().filter(|call| call.starts_with(name)).count();
        assert!(of("openat(") <= 2, "the file, and its description for pins");
        assert!(of("clone") == 0, "one change needs no thread");
        let is_flushed = of("msync(") + of("fsync(") + of("fdatasync(") > 0;
        assert!(!is_flushed, "nobody asked for it");
    }
}
