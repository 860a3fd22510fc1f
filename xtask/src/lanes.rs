//! Layers of tests that run at the same time, in two lanes.
//!
//! ```text
//! first    format  clippy  ...  the tests of the crates  ...     on the terminal
//! beside   drop-ins  race  ...  loom  miri  ...                  each into a file, shown at its end
//! ```
//!
//! In most layers one thread works for long while the other cores wait: the link of a library with
//! optimization, a program under valgrind, Miri. The lane beside has what builds into directories of its
//! own, because Cargo lets only one command at a time build into one.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::layers::Outcome;
use crate::{Failure, console};

type Run<'a> = Box<dyn FnOnce() -> Result<Outcome, Failure> + Send + 'a>;

/// One layer: its name and what it does.
pub(crate) struct Layer<'a> {
    pub(crate) name: &'static str,
    is_beside: bool,
    run: Run<'a>,
}

impl<'a> Layer<'a> {
    /// A layer of the first lane.
    pub(crate) fn new(name: &'static str, run: Run<'a>) -> Self {
        Self { name, is_beside: false, run }
    }

    /// A layer that may run beside those of the first lane. Its name is that of a file too.
    pub(crate) fn beside(name: &'static str, run: Run<'a>) -> Self {
        Self { name, is_beside: true, run }
    }

    fn run(self) -> Line {
        console::say(&format!("\n== {}", self.name));
        let start = Instant::now();
        let outcome = (self.run)();
        let time = start.elapsed();
        console::say(&format!("== {}: {}", self.name, seconds(time)));
        Line { name: self.name, time, outcome }
    }

    /// Runs it with its words in a file, which are shown when it has ended.
    fn run_into(self, log: &Path) -> Line {
        console::say(&format!(
            "== {} runs beside; its output is in `{}`",
            self.name,
            log.display()
        ));
        let (name, cannot) =
            (self.name, |cause| format!("cannot write `{}`: {cause}", log.display()));
        let mut line = match File::options().create(true).append(true).open(log) {
            Ok(file) => {
                console::write_into(Some(file));
                let line = self.run();
                console::write_into(None);
                line
            }
            Err(cause) => Line { name, time: Duration::ZERO, outcome: Err(cannot(cause)) },
        };
        match fs::read(log) {
            Ok(words) => console::say(String::from_utf8_lossy(&words).trim_end()),
            Err(cause) => line.outcome = line.outcome.and_then(|_| Err(cannot(cause))),
        }
        line
    }
}

/// One line of the summary.
#[derive(Debug)]
struct Line {
    name: &'static str,
    time: Duration,
    outcome: Result<Outcome, Failure>,
}

/// Runs layers until one fails, in two lanes if there are two cores, then prints one line for each. `logs` is a
/// directory for what the lane beside says.
pub(crate) fn climb(layers: Vec<Layer<'_>>, logs: &Path) -> Result<(), Failure> {
    let start = Instant::now();
    let names: Vec<&str> = layers.iter().map(|layer| layer.name).collect();
    let has_two_cores = thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    // What would be beside nothing is on the terminal.
    let has_two_lanes = has_two_cores && layers.iter().any(|layer| !layer.is_beside);
    let (beside, first): (Vec<_>, Vec<_>) =
        layers.into_iter().partition(|layer| layer.is_beside && has_two_lanes);
    let lines = run_lanes(first, beside, logs)?;
    console::say("\n== summary");
    for name in names {
        match lines.iter().find(|line| line.name == name) {
            Some(line) => console::say(&summary(line)),
            None => console::say(&format!("{name:<24} not run")),
        }
    }
    let processors = processor_time().map(|time| format!("; {} of processors", seconds(time)));
    let processors = processors.unwrap_or_default();
    console::say(&format!("{:<24} {:>8}{processors}", "all", seconds(start.elapsed())));
    let failed = lines.into_iter().find_map(|line| Some((line.name, line.outcome.err()?)));
    failed.map_or(Ok(()), |(name, failure)| Err(format!("{name}: {failure}")))
}

/// Runs the layers of each lane in order. When one fails, both lanes end with the layer that they are at.
fn run_lanes(
    first: Vec<Layer<'_>>,
    beside: Vec<Layer<'_>>,
    logs: &Path,
) -> Result<Vec<Line>, Failure> {
    let has_failed = &AtomicBool::new(false);
    if beside.is_empty() {
        return Ok(run_lane(first, None, has_failed));
    }
    let cannot = |cause| format!("cannot make `{}` anew: {cause}", logs.display());
    if logs.exists() {
        fs::remove_dir_all(logs).map_err(cannot)?;
    }
    fs::create_dir_all(logs).map_err(cannot)?;
    thread::scope(|scope| {
        let beside = scope.spawn(|| run_lane(beside, Some(logs), has_failed));
        let mut lines = run_lane(first, None, has_failed);
        if !beside.is_finished() {
            console::say("\n== the first lane has ended; the lane beside goes on");
        }
        lines.extend(beside.join().map_err(|_| "the lane beside has panicked".to_owned())?);
        Ok(lines)
    })
}

/// Runs layers until one fails in this lane or the other, each with its words in a file of `logs` if there is one.
fn run_lane(layers: Vec<Layer<'_>>, logs: Option<&Path>, has_failed: &AtomicBool) -> Vec<Line> {
    let mut lines = Vec::new();
    for layer in layers {
        if has_failed.load(Ordering::Relaxed) {
            break;
        }
        let line = match logs {
            Some(logs) => {
                let log = logs.join(format!("{}.log", layer.name));
                layer.run_into(&log)
            }
            None => layer.run(),
        };
        if let Err(failure) = &line.outcome {
            has_failed.store(true, Ordering::Relaxed);
            console::say(&format!("== {} FAILED: {failure}", line.name));
        }
        lines.push(line);
    }
    lines
}

fn summary(line: &Line) -> String {
    let outcome = match &line.outcome {
        Ok(Outcome::Done) => "ok".to_owned(),
        Ok(Outcome::Passed(count)) => format!("ok, {count} tests"),
        Ok(Outcome::Skipped(reason)) => format!("skipped: {reason}"),
        Err(_) => "FAILED".to_owned(),
    };
    format!("{:<24} {:>8}  {outcome}", line.name, seconds(line.time))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Returns how long processors worked for the programs that have ended, where the system tells. Unlike the time
/// on the clock, it hardly depends on what else the machine does.
fn processor_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may have spaces. See proc(5): `cutime` and `cstime`.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<u64>);
    let sum = ticks.next()?.ok()? + ticks.next()?.ok()?;
    // The kernel shows hundredths of a second, on every machine.
    Some(Duration::from_millis(sum * 10))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::process::{command, run, run_tests};

    /// A directory that is removed in the end.
    fn logs(name: &str) -> std::path::PathBuf {
        let name = format!("splitpoint-lanes-{name}-{}", std::process::id());
        std::env::temp_dir().join(name)
    }

    fn shell(script: &str) -> std::process::Command {
        command(Path::new("."), "sh", &["-c", script])
    }

    #[test]
    fn layers_stop_at_the_first_that_fails() {
        let ran = Mutex::new(Vec::new());
        let layer = |name: &'static str, outcome: Result<Outcome, Failure>| {
            let ran = &ran;
            let run = move || {
                ran.lock().expect("no layer panics").push(name);
                outcome
            };
            Layer::new(name, Box::new(run))
        };
        let layers = vec![
            layer("one", Ok(Outcome::Passed(3))),
            layer("two", Ok(Outcome::Skipped("no".to_owned()))),
            layer("three", Err("broken".to_owned())),
            layer("four", Ok(Outcome::Done)),
        ];
        assert_eq!(climb(layers, &logs("stop")), Err("three: broken".to_owned()));
        assert_eq!(*ran.lock().expect("no layer panics"), ["one", "two", "three"]);
        assert_eq!(climb(vec![layer("one", Ok(Outcome::Done))], &logs("stop")), Ok(()));
    }

    /// The first layer of each lane waits for a word of the other's: one after the other, both would fail.
    #[test]
    fn two_lanes_run_at_the_same_time_and_a_failure_in_one_ends_both() {
        let logs = logs("two");
        let ((say_first, hear_first), (say_beside, hear_beside)) = (channel(), channel());
        let meet = |say: Sender<()>, hear: Receiver<()>, outcome: Result<Outcome, Failure>| {
            let run = move || {
                say.send(()).map_err(|_| "the other lane has ended".to_owned())?;
                let minute = Duration::from_secs(60);
                hear.recv_timeout(minute).map_err(|_| "the other lane waits".to_owned())?;
                outcome
            };
            Box::new(run) as Run<'_>
        };
        let one = Layer::new("one", meet(say_first, hear_beside, Ok(Outcome::Done)));
        let two = Layer::beside("two", meet(say_beside, hear_first, Err("wrong".to_owned())));
        let three = Layer::beside("three", Box::new(|| Ok(Outcome::Done)));
        let lines = run_lanes(vec![one], vec![two, three], &logs).expect("there is room for logs");
        let outcomes: Vec<_> = lines.into_iter().map(|line| (line.name, line.outcome)).collect();
        assert_eq!(outcomes, [("one", Ok(Outcome::Done)), ("two", Err("wrong".to_owned()))]);
        fs::remove_dir_all(&logs).expect("it is there");
    }

    /// All that a layer says and runs is in its file, and nothing of it elsewhere.
    #[test]
    fn a_layer_beside_writes_into_a_file() {
        let logs = logs("words");
        let talk: Run<'_> = Box::new(|| {
            console::say("by itself");
            run(&mut shell("echo by a program; echo on stderr >&2"))?;
            let tests = "echo 'test result: ok. 2 passed; 0 failed'; echo of tests >&2";
            run_tests(&mut shell(tests)).map(Outcome::Passed)
        });
        let lines = run_lanes(Vec::new(), vec![Layer::beside("talk", talk)], &logs);
        assert_eq!(lines.expect("there is room")[0].outcome, Ok(Outcome::Passed(2)));
        let words = fs::read_to_string(logs.join("talk.log")).expect("it was written");
        for word in
            ["== talk\n", "by itself\n", "by a program\n", "on stderr\n", "of tests\n", "2 passed"]
        {
            assert!(words.contains(word), "{word}: {words}");
        }
        fs::remove_dir_all(&logs).expect("it is there");
    }

    #[test]
    fn every_outcome_has_its_line() {
        let time = Duration::from_millis(1500);
        for (outcome, expected) in [
            (Ok(Outcome::Done), "loom                        1.5 s  ok"),
            (Ok(Outcome::Passed(7)), "loom                        1.5 s  ok, 7 tests"),
            (Ok(Outcome::Skipped("no".into())), "loom                        1.5 s  skipped: no"),
            (Err("why".into()), "loom                        1.5 s  FAILED"),
        ] {
            assert_eq!(summary(&Line { name: "loom", time, outcome }), expected);
        }
    }
}
