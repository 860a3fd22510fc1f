//! What handles in several processes that change one file by turns do together, and how long they wait.
//!
//! ```sh
//! cargo bench -p splitpoint --bench turns -- [DIRECTORY] [--seconds N] [--writers N]
//! ```
//!
//! First one process: puts of a handle of the default kind, and of one that takes turns. Then `--writers`
//! processes (4) for `--seconds` (3) on one file: changes of one pair, and turns of 64 pairs (`put_many`).
//! For each kind the changes a second of all together, and how long one call took at worst, and all but
//! one in 1,000. The other processes are this program, started again. At last two handles of one process
//! that change a pair one after the other, so that each change takes over from the other handle.

#![expect(clippy::print_stdout, reason = "a program that prints its measurements")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use splitpoint::{Durability, Options, Sharing};

type Run<T = ()> = Result<T, Box<dyn std::error::Error>>;

const CHILD: &str = "SPLITPOINT_BENCH_TURNS";
/// Pairs of a turn of many.
const MANY: u32 = 64;
const KEYS: u32 = 100_000;

fn options(sharing: Sharing) -> Options {
    Options::new().sharing(sharing).durability(Durability::Buffered)
}

/// What a process has done.
struct Done {
    changes: u64,
    calls_ns: Vec<u64>,
}

/// Changes pairs for a while, `many` in each call.
fn work(path: &Path, sharing: Sharing, many: u32, time: Duration, seed: u32) -> Run<Done> {
    let db = options(sharing).open(path)?;
    let mut calls_ns = Vec::new();
    let mut random = seed.wrapping_mul(2_654_435_761).max(1);
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        (random % KEYS).to_le_bytes()
    };
    let (begun, mut changes) = (Instant::now(), 0);
    let mut now = begun;
    while now.duration_since(begun) < time {
        if many == 1 {
            db.put(next(), [7; 40])?;
        } else {
            db.put_many((0..many).map(|_| (next(), [7; 40])))?;
        }
        changes += u64::from(many);
        let then = std::mem::replace(&mut now, Instant::now());
        calls_ns.push(now.duration_since(then).as_nanos() as u64);
    }
    db.close()?;
    Ok(Done { changes, calls_ns })
}

/// Changes a pair through each of two handles in turn.
fn take_over(path: &Path, sharing: Sharing, time: Duration) -> Run<Done> {
    let handles = [options(sharing).open(path)?, options(sharing).open(path)?];
    // As many segments as after some work.
    for i in 0..20 * KEYS {
        handles[0].put((i % KEYS).to_le_bytes(), [7; 40])?;
    }
    let (mut calls_ns, begun) = (Vec::new(), Instant::now());
    let mut now = begun;
    while now.duration_since(begun) < time {
        let changes = calls_ns.len();
        handles[changes % 2].put((changes as u32 % KEYS).to_le_bytes(), [7; 40])?;
        let then = std::mem::replace(&mut now, Instant::now());
        calls_ns.push(now.duration_since(then).as_nanos() as u64);
    }
    Ok(Done { changes: calls_ns.len() as u64, calls_ns })
}

fn child(job: &str) -> Run {
    let [path, sharing, many, millis, seed] = job.split('|').collect::<Vec<_>>()[..] else {
        return Err("not five words".into());
    };
    let sharing = if sharing == "Shared" { Sharing::Shared } else { Sharing::PerCall };
    let time = Duration::from_millis(millis.parse()?);
    let done = work(Path::new(path), sharing, many.parse()?, time, seed.parse()?)?;
    let worst = worst(&done.calls_ns);
    println!("{} {} {}", done.changes, worst.0, worst.1);
    Ok(())
}

/// The longest call, and the longest of all but one in 1,000.
fn worst(calls_ns: &[u64]) -> (u64, u64) {
    let mut sorted = calls_ns.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(0);
    (at(last), at(last - last / 1000))
}

fn together(
    path: &Path,
    sharing: Sharing,
    many: u32,
    writers: u32,
    time: Duration,
) -> Run<[u64; 3]> {
    let children: Vec<_> = (1..=writers)
        .map(|seed| {
            let (path, millis) = (path.display(), time.as_millis());
            let job = format!("{path}|{sharing:?}|{many}|{millis}|{seed}");
            let mut command = Command::new(std::env::current_exe()?);
            command.env(CHILD, job).stdout(Stdio::piped()).spawn()
        })
        .collect::<Result<_, _>>()?;
    let mut all = [0; 3];
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let words: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [changes, worst, most] = words[..] else { return Err("a process has failed".into()) };
        all = [all[0] + changes, all[1].max(worst), all[2].max(most)];
    }
    Ok(all)
}

fn main() -> Run {
    if let Ok(job) = std::env::var(CHILD) {
        return child(&job);
    }
    let (mut seconds, mut writers) = (3.0, 4);
    let mut directory: Option<PathBuf> = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => seconds = arguments.next().ok_or("--seconds takes a number")?.parse()?,
            "--writers" => writers = arguments.next().ok_or("--writers takes a number")?.parse()?,
            "--bench" => {}
            path => directory = Some(path.into()),
        }
    }
    let temporary = tempfile::tempdir()?;
    let path = directory.as_deref().unwrap_or(temporary.path()).join("turns.spt");
    let time = Duration::from_secs_f64(seconds);
    println!("{:34} {:>12} {:>10} {:>10}", "", "changes/s", "worst us", "99.9 % us");
    let report = |name: &str, [changes, worst, most]: [u64; 3]| {
        let rate = changes as f64 / seconds;
        println!("{name:34} {rate:12.0} {:10.0} {:10.0}", worst as f64 / 1e3, most as f64 / 1e3);
    };
    for many in [1, MANY] {
        for sharing in [Sharing::OneWriter, Sharing::Shared, Sharing::PerCall] {
            let done = work(&path, sharing, many, time, 1)?;
            let (worst, most) = worst(&done.calls_ns);
            let name = format!("1 process, {sharing:?}, turns of {many}");
            report(&name, [done.changes, worst, most]);
            std::fs::remove_file(&path)?;
        }
        for sharing in [Sharing::Shared, Sharing::PerCall] {
            options(sharing).open(&path)?.close()?;
            let name = format!("{writers} processes, {sharing:?}, turns of {many}");
            report(&name, together(&path, sharing, many, writers, time)?);
            std::fs::remove_file(&path)?;
        }
    }
    for sharing in [Sharing::Shared, Sharing::PerCall] {
        let done = take_over(&path, sharing, time)?;
        let (worst, most) = worst(&done.calls_ns);
        report(&format!("take-overs, {sharing:?}"), [done.changes, worst, most]);
        std::fs::remove_file(&path)?;
    }
    Ok(())
}
