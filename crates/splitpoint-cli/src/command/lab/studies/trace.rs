//! `splitpoint lab trace`: captures of strace and of tracefs, made into traces.

use std::io::{self, BufReader, IsTerminal as _, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use splitpoint_lab::capture::files::{FilesBelow, PathMap};
use splitpoint_lab::capture::{CaptureError, TraceWriter, strace, tracefs};
use splitpoint_lab::zstd;

use super::super::saving::may_replace_if;
use super::super::saving::replace;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::files::{open_stream, read_whole};
use crate::number::{count, counted};
use crate::progress::{Progress, ProgressMode, Total};

/// Make a trace of kernel cache lookups from a capture
///
/// The trace has the lookups of names, pages and buffers that programs asked of the kernel; `lab
/// replay` replays it on the tables of any era. The capture may be made on another machine. Nothing
/// of what files contain is kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab trace strace run.st --output make.kct
  splitpoint lab trace tracefs trace.txt --stats stats0 --stats stats1
Captures:
  strace -f -y -ttt -s 0 -e trace=%file,%process,%desc -o run.st make")]
pub(crate) struct Args {
    #[command(subcommand)]
    source: Source,
}

#[derive(Debug, Subcommand)]
enum Source {
    Strace(StraceArgs),
    Tracefs(TracefsArgs),
}

/// Where the trace goes.
#[derive(Debug, clap::Args)]
struct TraceOutput {
    /// Write the trace to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The name of the trace [default: that of the capture]
    #[arg(long, value_parser = one_line)]
    name: Option<String>,

    /// When to show progress
    #[arg(long, value_enum, default_value_t)]
    progress: ProgressMode,
}

/// Make a trace of names and pages from the output of strace
///
/// Walks every path of every system call over a model of the tree of names: links are followed, calls
/// that created, renamed or removed names are known from then on, and the inodes are those that files
/// have now. A file that is gone gets a number of its own. Reads and writes of regular files become
/// lookups of pages; pages of mapped files are not to be seen in system calls.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab trace strace run.st --output run.kct
  splitpoint lab trace strace run.st --map /u/me=/srv --name build
  splitpoint lab trace strace run.st.zst --root /mnt/other-machine")]
struct StraceArgs {
    /// The output of `strace -f -y -ttt -s 0`; may be zstd; - reads standard input
    file: PathBuf,

    /// Look for files below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// Call what is below OLD otherwise in the trace; repeat it for more
    #[arg(long, value_name = "OLD=NEW")]
    map: Vec<PathMap>,

    /// Where the first process started, if strace does not say
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,

    #[command(flatten)]
    output: TraceOutput,
}

/// Make a trace of pages and buffers from the text of tracefs
///
/// Reads events of filemap, of ext4 and the two of buffers, from `trace` or `trace_pipe`. A capture that
/// lost events is refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab trace tracefs trace.txt --output pages.kct
  splitpoint lab trace tracefs trace.txt --device 8:1 --stats stats0")]
struct TracefsArgs {
    /// The text of `trace` or `trace_pipe`; may be zstd; - reads standard input
    file: PathBuf,

    /// Take events of this device only; repeat it for more
    #[arg(long, value_name = "MAJOR:MINOR", value_parser = device)]
    device: Vec<String>,

    /// A copy of `per_cpu/cpuN/stats`, refused if it counts lost events; repeat it for every CPU
    #[arg(long, value_name = "FILE")]
    stats: Vec<PathBuf>,

    #[command(flatten)]
    output: TraceOutput,
}

fn one_line(text: &str) -> Result<String, String> {
    let is_plain = !text.is_empty() && !text.chars().any(char::is_control);
    is_plain.then(|| text.to_owned()).ok_or_else(|| "a name is one line of text".to_owned())
}

fn device(text: &str) -> Result<String, String> {
    let error = "a device has two numbers, as in 8:1";
    tracefs::is_device(text).then(|| text.to_owned()).ok_or_else(|| error.to_owned())
}

/// Makes the trace.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    match &args.source {
        Source::Strace(args) => run_strace(args, console),
        Source::Tracefs(args) => run_tracefs(args, console),
    }
}

fn run_strace(args: &StraceArgs, console: Console) -> Result<()> {
    args.output.check()?;
    let files = FilesBelow::new(&args.root, &args.map);
    let directory = args.cwd.as_ref().map(|path| path.as_os_str().as_bytes().to_vec());
    let options = strace::Options { maps: args.map.clone(), directory };
    let import = with_input(&args.file, &args.output, console, |input, progress| {
        strace::import(input, files, options, progress)
    })
    .map_err(|failure| match args.cwd {
        None => failure.hint("capture with -f -y -ttt -s 0; --cwd DIR says where it started"),
        Some(_) => failure.hint("capture with -f -y -ttt -s 0"),
    })?;
    if import.content_count > 0 {
        console.warn(format_args!(
            "{} with what files contain, of which the trace has nothing; capture with -s 0",
            counted(import.content_count, "call")
        ));
    }
    if import.unknown_count > 0 {
        let files = counted(import.unknown_count, "file");
        console.note(format_args!("{files} not there any more: the trace numbers them itself"));
    }
    let calls = counted(import.call_count, "system call");
    args.output.write(import.writer, &args.file, &format!("strace, {calls}"), console)
}

fn run_tracefs(args: &TracefsArgs, console: Console) -> Result<()> {
    args.output.check()?;
    for path in &args.stats {
        let text = String::from_utf8_lossy(&read_whole(path)?).into_owned();
        let shown = path.display();
        let lost = tracefs::lost(&text)
            .map_err(|reason| Failure::new(Exit::Usage, format!("`{shown}`: {reason}")))?;
        if lost > 0 {
            let message =
                format!("`{shown}`: {} lost, so the trace would miss them", counted(lost, "event"));
            return Err(Failure::new(Exit::Usage, message)
                .hint("capture again with a larger buffer_size_kb for each CPU"));
        }
    }
    let import = with_input(&args.file, &args.output, console, |input, progress| {
        tracefs::import(input, &args.device, progress)
    })?;
    for (number, what) in
        [(import.other_count, "of other kinds"), (import.left_out_count, "of other devices")]
    {
        if number > 0 {
            console.note(format_args!("left out {} {what}", counted(number, "event")));
        }
    }
    if args.stats.is_empty() {
        console.note("without --stats, only the text itself can say that events were lost");
    }
    let events = counted(import.event_count, "event");
    args.output.write(import.writer, &args.file, &format!("tracefs, {events}"), console)
}

/// Reads a capture, with progress by its lines.
fn with_input<T>(
    path: &Path,
    output: &TraceOutput,
    console: Console,
    import: impl FnOnce(&mut dyn io::BufRead, &mut dyn FnMut(u64)) -> Result<T, CaptureError>,
) -> Result<T> {
    let shown = path.display();
    let stream: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(open_stream(path)?)
    };
    let mut input = zstd::reader(BufReader::new(stream))
        .map_err(|error| Failure::reading(format_args!("`{shown}`"), &error))?;
    let mut progress = Progress::start(output.progress, console, "import", Total::Unknown);
    let mut last = 0;
    let mut tell = |lines: u64| {
        last = lines;
        progress.update(lines, 0);
    };
    let result = import(&mut input, &mut tell);
    progress.finish(last, 0);
    result.map_err(|error| Failure::new(Exit::Usage, format!("`{shown}`: {error}")))
}

impl TraceOutput {
    /// Refuses to replace anything except a trace.
    fn check(&self) -> Result<()> {
        let start = splitpoint_lab::replay::trace::FIRST_LINE.as_bytes();
        let is_trace = |old: BufReader<std::fs::File>| {
            let mut found = Vec::new();
            let read = old.take(count(start.len())).read_to_end(&mut found);
            read.is_ok() && found == start
        };
        let path = self.output.as_deref();
        path.map_or(Ok(()), |path| may_replace_if(path, "--output", "trace", is_trace))
    }

    fn write(
        &self,
        writer: TraceWriter,
        capture: &Path,
        source: &str,
        console: Console,
    ) -> Result<()> {
        let stem = capture.file_name().map_or("capture".into(), |name| name.to_string_lossy());
        let stem = stem.split('.').next().filter(|stem| !stem.is_empty() && *stem != "-");
        let name = self.name.clone().unwrap_or_else(|| {
            let plain = |letter: &char| !letter.is_control();
            stem.unwrap_or("capture").chars().filter(plain).collect()
        });
        let counts: Vec<String> =
            writer.counts().iter().map(|(letter, count)| format!("{letter} {count}")).collect();
        let counts = counts.join(", ");
        let failed = |error: io::Error| Failure::output(&error);
        if let Some(path) = &self.output {
            let mut text = Vec::new();
            writer.write(&name, source, &mut text).map_err(failed)?;
            self.check()?;
            replace(path, &text)?;
            console.note(format_args!("wrote the trace `{}`: {counts}", path.display()));
            return Ok(());
        }
        writer.write(&name, source, console::data()).map_err(failed)?;
        if !io::stdout().is_terminal() {
            console.note(format_args!("wrote the trace: {counts}"));
        }
        Ok(())
    }
}
