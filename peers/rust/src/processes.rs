//! Processes that read and write one table beside each other.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::data::{Block, pick};
use crate::{Beside, Config, End, Engine, Outcome, Runner, claim};

/// Operations that are prepared together.
const PREPARED: u64 = 256;

/// This program with one phase, as a process of its own.
struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Process {
    fn new(config: &Config, phase: &str) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--dir").arg(&config.dir);
        command.args(["--records", &config.record_count.to_string()]);
        command.args(["--key-bytes", &config.key_bytes.to_string()]);
        command.args(["--value-bytes", &config.value_bytes.to_string()]);
        command.args(["--cache-bytes", &config.cache_bytes.to_string()]);
        let mut child = command.arg(phase).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().expect("it was asked for"));
        Ok(Self { child, said })
    }

    /// Has it begin.
    fn start(&mut self) {
        self.child.stdin = None;
    }

    /// Waits for what it says next; nothing if it has ended.
    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.start();
        // It ends by itself.
        let _ = self.child.wait();
    }
}

/// The record that a process writes as its j-th.
fn written(process: u64, j: u64, record_count: u64) -> u64 {
    pick(j ^ (process + 1) << 40, record_count)
}

impl<E: Engine> Runner<E> {
    /// Processes that read, and one or more that write, for so long; each is this program with the
    /// phase `process`. The figure is the time of a lookup or of a change, all processes together.
    pub(crate) fn processes(
        &mut self,
        (reader_count, writer_count): (u64, u64),
        milliseconds: u64,
        counted: Beside,
    ) -> Outcome<End> {
        let Some(engine) = E::open_beside(&self.config, Beside::Reads)? else {
            return Ok(End::Unsupported("no processes beside each other"));
        };
        engine.close()?;
        let writing = if counted == Beside::WritesByTurns { "turns" } else { "writes" };
        let start = |i| {
            let role = if i < reader_count { "reads" } else { writing };
            Process::new(&self.config, &format!("process:{role}:{i}:{milliseconds}"))
        };
        let processes = (0..reader_count + writer_count).map(start);
        let mut processes = processes.collect::<Outcome<Vec<_>>>()?;
        for process in &mut processes {
            claim(process.line()? == "ready", "a process has failed")?;
        }
        processes.iter_mut().for_each(Process::start);
        let (mut get_count, mut put_count, mut longest) = (0, 0, 0);
        for (i, process) in (0..).zip(&mut processes) {
            let line = process.line()?;
            let figures = line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>();
            let Ok([count, ns, worst_ns]) = figures.as_deref() else {
                return Err("a process has failed".into());
            };
            longest = longest.max(*ns);
            if (i < reader_count) == (counted == Beside::Reads) {
                self.tally.worst = self.tally.worst.max(Duration::from_nanos(*worst_ns));
            }
            if i < reader_count {
                get_count += count;
                continue;
            }
            put_count += count;
            for j in 0..*count {
                self.overwritten[written(i, j, self.config.record_count) as usize] = true;
            }
        }
        self.tally.time += Duration::from_nanos(longest);
        self.tally.operation_count += if counted == Beside::Reads { get_count } else { put_count };
        write!(self.tally.extra, ",\"gets\":{get_count},\"puts\":{put_count}")?;
        Ok(End::Done)
    }

    /// Such a process: opens the table, says so, begins when it is told, and says how much it has done.
    pub(crate) fn process(&mut self, role: &str, number: u64, milliseconds: u64) -> Outcome<()> {
        let beside = match role {
            "reads" => Beside::Reads,
            "turns" => Beside::WritesByTurns,
            _ => Beside::WritesAlone,
        };
        let record_count = self.config.record_count;
        let mut engine = E::open_beside(&self.config, beside)?.ok_or("it cannot be opened")?;
        println!("ready");
        std::io::stdout().flush()?;
        std::io::stdin().read_to_end(&mut Vec::new())?;
        let (start, time) = (Instant::now(), Duration::from_millis(milliseconds));
        let (mut before, mut worst, mut count) = (start, Duration::ZERO, 0);
        let (mut newer, mut older) = (Block::default(), Block::default());
        while before - start < time {
            newer.clear();
            older.clear();
            for j in count..count + PREPARED {
                if beside == Beside::Reads {
                    let index = pick(j ^ (number + 1) << 32, record_count);
                    newer.add(&self.data, index, 1, true);
                    older.add(&self.data, index, 0, true);
                } else {
                    newer.add(&self.data, written(number, j, record_count), 1, true);
                }
            }
            let mut old_items = older.all().items();
            before = Instant::now();
            for item in newer.all().items() {
                if before - start >= time {
                    break;
                }
                if let Some(old) = old_items.next() {
                    let mut is_right = false;
                    engine.get(item.key, |value| {
                        is_right = value == item.value || value == old.value;
                    })?;
                    claim(is_right, "a wrong answer while one writes")?;
                } else {
                    engine.put(item.key, item.value)?;
                }
                let after = Instant::now();
                worst = worst.max(after - before);
                before = after;
                count += 1;
            }
        }
        println!("{count} {} {}", start.elapsed().as_nanos(), worst.as_nanos());
        std::io::stdout().flush()?;
        engine.close()?;
        std::process::exit(0)
    }
}
