//! `splitpoint lab merge`: the counts of parts of the keys, together.

use std::path::PathBuf;

use super::super::saving::Output;
use super::part::{self, Part};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::{count, counted};

/// Merge counts of parts of the keys, and report on all of them
///
/// Reads files of `splitpoint lab partial`, or of `splitpoint.lab.Partial` in Python, that were written
/// with the same options. With --output it writes the merged counts to a file of the same kind, and
/// reports only where --json, --html or --markdown asks for it. The report lacks what needs the keys
/// themselves, and estimates how many of them are repetitions.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab merge monday.splp tuesday.splp
  splitpoint lab merge part-*.splp -o all.splp
  splitpoint lab merge part-*.splp --html page.html")]
pub(crate) struct Args {
    /// The files
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Write the merged counts to a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    report: Output,
}

/// Merges the counts.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.report.check()?;
    args.output.iter().try_for_each(|path| part::may_write(path))?;
    let (first, rest) = args.files.split_first().expect("clap requires one");
    let mut whole = Part::read(first)?;
    for path in rest {
        whole.merge(&Part::read(path)?).map_err(|error| {
            let message = format!("`{}` and `{}`: {error}", first.display(), path.display());
            Failure::new(Exit::Usage, message).hint("count all parts with the same options")
        })?;
    }
    if let Some(path) = &args.output {
        whole.write(path)?;
        let keys = counted(whole.key_count(), "key");
        console.note(format_args!("wrote the counts of {keys} to `{}`", path.display()));
        if !args.report.is_asked_for() {
            return Ok(());
        }
    }
    if whole.key_count() == 0 {
        return Err(Failure::new(Exit::No, "no keys were counted"));
    }
    let source = match rest {
        [] => first.display().to_string(),
        _ => counted(count(args.files.len()), "part"),
    };
    args.report.deliver(&whole.study(source), console)
}
