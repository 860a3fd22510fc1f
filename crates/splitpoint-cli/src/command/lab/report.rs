//! `splitpoint lab report`: a saved study as a page, as Markdown, or in words.

use std::path::PathBuf;

use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::Result;

/// Make a page of a saved study
///
/// The page is one file that needs no other: pictures, tables and the verdict in words, to be read
/// in any browser, on paper, or by a screen reader. It is made of the study alone, so that it is
/// the same page that --html would have made when the study was measured. --markdown writes the
/// same as Markdown; without either it is printed as text.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab table words.txt --hash fnv1a-32 --json words.json
  splitpoint lab report words.json --html words.html
  splitpoint lab report words.json --markdown words.md
  splitpoint lab report words.json")]
pub(super) struct Args {
    /// The study, as --json FILE saved it
    study: PathBuf,

    #[command(flatten)]
    output: Output,
}

/// Makes the page.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.output.check()?;
    let study = saving::load(&args.study)?;
    args.output.deliver(&study, console)
}
