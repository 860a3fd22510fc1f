//! How busy the machine is while the engines run.

use std::fs;
use std::hint::black_box;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::programs::output;

/// What else the machine does, or how much of it the engines get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Nothing, as far as the race can tell.
    #[default]
    Quiet,
    /// All processors but one run a loop of another process.
    Spin,
    /// Another process copies memory, more than fits into a cache.
    Copy,
    /// The engine has one processor.
    OneCore,
}

impl Condition {
    pub const ALL: [Self; 4] = [Self::Quiet, Self::Spin, Self::Copy, Self::OneCore];

    /// The word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Spin => "spin",
            Self::Copy => "copy",
            Self::OneCore => "one-core",
        }
    }

    /// What the pages call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Spin => "other processors busy",
            Self::Copy => "beside a copy of memory",
            Self::OneCore => "on one processor",
        }
    }

    /// Returns the name of a case under this condition: its own on a quiet machine.
    pub fn case_name(self, case: &str) -> String {
        match self {
            Self::Quiet => case.to_owned(),
            _ => format!("{case}, {}", self.title()),
        }
    }

    /// Says why the condition cannot be made here.
    pub fn can_be_made(self) -> Outcome<()> {
        if self == Self::OneCore {
            output(Command::new("taskset").arg("--version"))
                .map_err(|cause| format!("{cause}; `apt-get install util-linux` has it"))?;
            last_processor()?;
        }
        Ok(())
    }

    /// Returns the command that runs `command` under this condition.
    pub fn apply(self, command: Command) -> Outcome<Command> {
        if self != Self::OneCore {
            return Ok(command);
        }
        let mut bound = Command::new("taskset");
        bound.arg("--cpu-list").arg(last_processor()?.to_string());
        bound.arg(command.get_program()).args(command.get_args());
        bound.stdin(Stdio::null());
        Ok(bound)
    }

    /// Starts the other processes, if the condition has any.
    pub fn companions(self) -> Outcome<Companions> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let count = match self {
            Self::Quiet | Self::OneCore => 0,
            Self::Spin => processors.saturating_sub(1).max(1),
            Self::Copy => 1,
        };
        let mut companions = Companions(Vec::new());
        for _ in 0..count {
            companions.0.push(started(self)?);
        }
        Ok(companions)
    }
}

/// The processes beside the engines. They end when this is dropped, or when this process does.
#[derive(Debug)]
pub struct Companions(Vec<Child>);

impl Companions {
    /// Says if one of them has ended by itself: then the machine was not as busy as it should be.
    pub fn still_run(&mut self) -> Outcome<()> {
        for child in &mut self.0 {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("a process beside the engines has ended: {status}"));
            }
        }
        Ok(())
    }
}

impl Drop for Companions {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already is only waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts this program again, as [`companion`].
fn started(condition: Condition) -> Outcome<Child> {
    let failed = |cause: std::io::Error| format!("cannot start a process beside: {cause}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["--companion", condition.word()]);
    // The other end of the pipe closes with this process, however that ends.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map_err(failed)
}

/// Bytes that the copying process copies at a time: more than the caches of any processor here hold.
const COPY_BYTES: usize = 256 << 20;

/// What a process beside does, until its standard input ends.
pub fn companion(condition: Condition) -> ! {
    thread::spawn(|| {
        let mut byte = [0];
        let _ = std::io::stdin().read(&mut byte);
        std::process::exit(0)
    });
    if condition == Condition::Copy {
        let (from, mut to) = (vec![1_u8; COPY_BYTES], vec![2_u8; COPY_BYTES]);
        loop {
            to.copy_from_slice(black_box(&from));
            black_box(&to);
        }
    }
    // Work, not `spin_loop`, which leaves the processor to its other thread.
    let mut count = 0_u64;
    loop {
        count = black_box(count.wrapping_add(1));
    }
}

/// Returns the last processor that this process may use: the first often has the interrupts.
fn last_processor() -> Outcome<usize> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    last_of_list(list.unwrap_or("").trim()).ok_or("cannot read which processors there are".into())
}

/// Returns the last number of a list like `0-3,8`.
fn last_of_list(list: &str) -> Option<usize> {
    list.rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_processor_of_a_list_is_found() {
        for (list, last) in [("0-1", Some(1)), ("0", Some(0)), ("0-3,8", Some(8)), ("", None)] {
            assert_eq!(last_of_list(list), last, "{list}");
        }
    }

    #[test]
    fn one_core_binds_the_command_and_the_others_leave_it_as_it_is() {
        let words = |condition: Condition| {
            let mut command = Command::new("program");
            command.args(["--dir", "x"]);
            let command = condition.apply(command).expect("there is a processor");
            let args = command.get_args().map(|word| word.to_string_lossy().into_owned());
            let program = command.get_program().to_string_lossy().into_owned();
            (program, args.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(words(Condition::Spin), ("program".into(), "--dir x".into()));
        let last = last_processor().expect("there is one");
        let bound = format!("--cpu-list {last} program --dir x");
        assert_eq!(words(Condition::OneCore), ("taskset".into(), bound));
    }

    /// A test cannot start this program again as itself, so it looks only at what needs no companion.
    #[test]
    fn a_quiet_machine_and_one_processor_need_no_other_process() {
        for condition in [Condition::Quiet, Condition::OneCore] {
            assert!(condition.companions().expect("there is none to start").0.is_empty());
        }
    }

    #[test]
    fn a_case_is_named_by_its_condition_unless_the_machine_is_quiet() {
        let names = Condition::ALL.map(|condition| condition.case_name("16 + 100"));
        assert_eq!(names[0], "16 + 100");
        assert_eq!(names[1], "16 + 100, other processors busy");
        let mut distinct = names.to_vec();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len());
    }
}
