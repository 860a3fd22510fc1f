//! `splitpoint man`: the manual pages.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use crate::console::{self, Console};
use crate::failure::{Failure, Result};
use crate::files::write_regular;
use crate::manual;
use crate::number::{count, counted};

/// Print the manual page, or write a page for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint man | man -l -
  splitpoint man ~/.local/share/man/man1          # a page for each command")]
pub(crate) struct Args {
    /// The directory for the pages; without it, print splitpoint.1
    dir: Option<PathBuf>,

    /// Print docs/cli.md
    #[arg(long, hide = true, conflicts_with = "dir")]
    markdown: bool,
}

/// Prints or writes the manual pages.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let Some(dir) = &args.dir else {
        let text = if args.markdown { manual::markdown().into_bytes() } else { main_page()? };
        let mut out = console::data();
        return out
            .write_all(&text)
            .and_then(|()| out.flush())
            .map_err(|error| Failure::output(&error));
    };
    let shown = dir.display();
    fs::create_dir_all(dir)
        .map_err(|error| Failure::io(format!("create directory `{shown}`"), &error))?;
    let pages = manual::pages().map_err(|error| Failure::io("render the manual", &error))?;
    for (name, page) in &pages {
        write_regular(&dir.join(name), page)?;
    }
    console.note(format_args!("wrote {} to `{shown}`", counted(count(pages.len()), "page")));
    Ok(())
}

fn main_page() -> Result<Vec<u8>> {
    let pages = manual::pages().map_err(|error| Failure::io("render the manual", &error))?;
    Ok(pages.into_iter().next().map(|(_, page)| page).unwrap_or_default())
}
