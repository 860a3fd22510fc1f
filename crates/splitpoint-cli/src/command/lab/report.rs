//! `splitpoint lab report`: a saved study as an HTML page, Markdown or text.

use std::path::PathBuf;

use super::saving::{self, Loaded, Output};
use crate::console::Console;
use crate::failure::Result;

/// Render a saved study as a page
///
/// The page is one self-contained file with charts, tables and the verdict in words. It works in
/// any browser, on paper and with a screen reader. It depends only on the study, so it equals the
/// page that --html would have written at the time of the measurement. --markdown writes the same
/// content as Markdown; with neither option, prints it as text.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab table words.txt --hash fnv1a-32 --json words.json
  splitpoint lab report words.json --html words.html
  splitpoint lab report words.json --markdown words.md
  splitpoint lab report words.json")]
pub(super) struct Args {
    /// A study saved with --json FILE
    study: PathBuf,

    #[command(flatten)]
    output: Output,
}

/// Renders the study.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.output.check()?;
    match saving::load_any(&args.study)? {
        Loaded::Keys(study) => args.output.deliver(&*study, console),
        #[cfg(feature = "studies")]
        Loaded::Replays(study) => args.output.deliver(&*study, console),
    }
}
