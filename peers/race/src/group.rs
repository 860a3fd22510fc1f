//! A bound on a process's memory, page cache included: a control group of Linux.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;

/// A control group, removed when it is dropped.
#[derive(Debug)]
pub struct Group(PathBuf);

/// Where the groups are, and what the file with the limit is called there.
const VERSIONS: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

impl Group {
    /// Makes a group whose processes may use that much.
    pub fn new(bytes: u64) -> Outcome<Self> {
        let mut reason = String::new();
        for (root, file) in VERSIONS {
            let dir = Path::new(root).join(format!("race-{}", std::process::id()));
            let made = fs::create_dir(&dir).and_then(|()| {
                let group = Self(dir.clone());
                // In version 2 without this controller there is no such file.
                fs::OpenOptions::new().write(true).open(dir.join(file))?;
                fs::write(dir.join(file), bytes.to_string())?;
                Ok(group)
            });
            match made {
                Ok(group) => return Ok(group),
                Err(cause) => reason = format!("cannot make a group in `{root}`: {cause}"),
            }
        }
        Err(reason)
    }

    /// Says why memory cannot be bounded here.
    pub fn can_be_made() -> Outcome<()> {
        Self::new(1 << 30).map(drop)
    }

    /// Returns the command that runs `command` as a member of the group.
    pub fn inside(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        // The shell joins, and becomes the program.
        shell.args(["-c", "echo $$ >\"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.0);
        shell.arg(command.get_program()).args(command.get_args());
        shell
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // If it stays, it is empty and harms nobody.
        let _ = fs::remove_dir(&self.0);
    }
}
