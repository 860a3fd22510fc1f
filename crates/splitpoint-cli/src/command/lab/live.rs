//! `splitpoint lab live`: the hash tables of the kernel that runs, or a store in use.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use splitpoint_lab::live_kernel::{LiveKernel, Reading, Readings};

use super::saving::PageOutput;
use crate::chains;
use crate::command::watch::{self, Form};
use crate::console::Console;
use crate::failure::Result;

/// Show a store in use, or the hash tables of this machine's kernel, beside an ideal hash
///
/// With a store: looks at a sample of its chains, twice, while any process uses it, and shows what the
/// lookups in between have cost, in all processes that count them (`Options::instrument`). With
/// --watch, goes on and prints a line for each interval.
///
/// Without a file, shows the tables of the kernel: reads the sizes of the tables of dentries and inodes from the boot log,
/// or computes them from the memory, and the number of objects from /proc. It lists what it cannot
/// read; root can read more.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab live words.spt
  splitpoint lab live words.spt --seconds 10 --html live.html
  splitpoint lab live words.spt --watch 5
  splitpoint lab live
  splitpoint lab live --html live.html
  splitpoint lab live --root /mnt/captured --json")]
pub(crate) struct Args {
    /// A store in use, or the URL of another table; none for the kernel
    #[arg(value_name = "FILE_OR_URL")]
    table: Option<PathBuf>,

    /// Count lookups for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1, conflicts_with = "watch",
          value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    /// Print a line every so many seconds, until Ctrl-C
    #[arg(long, value_name = "SECONDS", requires = "table",
          value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,

    /// Read proc/meminfo and the other files below this directory, as copied from another machine
    #[arg(long, value_name = "DIR", default_value = "/", conflicts_with = "table")]
    root: PathBuf,

    #[command(flatten)]
    output: PageOutput,
}

/// Most bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Where the messages of the boot are kept.
const BOOT_LOGS: [&str; 3] = ["var/log/dmesg", "var/log/kern.log", "var/log/messages"];
/// What a message about the tables has.
const MESSAGE: &str = "hash table entries: ";

/// Reads and shows.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.output.check()?;
    if let Some(table) = &args.table {
        return run_on(table, args, console);
    }
    let of = |name: &str| read(&args.root.join(name));
    let live = LiveKernel::of(&Readings {
        release: of("proc/sys/kernel/osrelease"),
        boot_log: boot_log(&args.root),
        command_line: of("proc/cmdline"),
        meminfo: of("proc/meminfo"),
        dentry_state: of("proc/sys/fs/dentry-state"),
        inode_nr: of("proc/sys/fs/inode-nr"),
        slabinfo: of("proc/slabinfo"),
    });
    args.output.deliver(&live, console)
}

/// Shows a table in use.
fn run_on(table: &Path, args: &Args, console: Console) -> Result<()> {
    let Some(seconds) = args.watch else {
        let live = watch::look_once(table, Duration::from_secs(args.seconds), console)?;
        return args.output.deliver(&live, console);
    };
    let is_json = args.output.is_json_of_several()?;
    let form = if is_json { Form::Json } else { Form::Text(chains::Form::Full) };
    watch::watch(table, Duration::from_secs(seconds), form, console)
}

fn read(path: &Path) -> Reading {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the messages of the boot from where they are kept, or else from the kernel.
fn boot_log(root: &Path) -> Reading {
    let mut reason = "not found".to_owned();
    for name in BOOT_LOGS {
        match read(&root.join(name)) {
            Ok(text) if text.contains(MESSAGE) => return Ok(text),
            Ok(_) => reason = format!("{name} no longer has the boot"),
            Err(_) => {}
        }
    }
    if root != Path::new("/") {
        return Err(reason);
    }
    let output = Command::new("dmesg").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{reason}; dmesg cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains(MESSAGE) {
        return Ok(text.into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().lines().next().unwrap_or_default();
    Err(match said {
        "" => format!("{reason}; dmesg no longer has the boot"),
        said => format!("{reason}; {said}"),
    })
}
