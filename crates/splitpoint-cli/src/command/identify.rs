//! `splitpoint identify`: identify files by their content.

use std::io::Write;
use std::path::{Path, PathBuf};

use splitpoint::{Error, FileKind, Options};

use crate::console::{self, Console};
use crate::failure::{self, Exit, Failure, Result};

/// Identify files by their content
///
/// Recognizes stores, the files of db 1.85, Kerberos, Berkeley DB, gdbm, dbm, ndbm, sdbm, cdb and
/// Python's dbm.dumb, and names those of SQLite, LMDB, tdb, redb and Kyoto Cabinet with the tool that
/// reads them. File names do not matter, except that a table in several files (`.dir` and `.pag`, or
/// `.dir`, `.dat` and `.bak`) may be given by each of its names or by their common stem. The exit
/// code is 1 if a file is not recognized, and 3 if one cannot be read; the others are still
/// identified.
#[expect(clippy::doc_markdown, reason = "the help shows code marks as they are")]
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint identify aliases.db
  splitpoint identify old/* --json")]
pub(crate) struct Args {
    /// The files
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Print one JSON object per file
    #[arg(long)]
    json: bool,
}

/// Identifies files.
pub(super) fn run(args: &Args, _console: Console) -> Result<()> {
    let mut out = console::data();
    let (mut unknown, mut unread) = (None, None);
    for file in &args.files {
        let name = file.display().to_string();
        let mut tool = None;
        let (found, words) = match splitpoint_legacy::identify(file) {
            Ok(Some(identity)) => {
                let words = identity.to_string();
                (Some(identity), words)
            }
            Ok(None) => {
                let kind = other(file);
                tool = failure::tool_of(&kind, file);
                (None, kind.to_string())
            }
            Err(Error::NotAStore { found, .. }) => (None, found.to_string()),
            Err(error) => {
                out.flush().map_err(|error| Failure::output(&error))?;
                let failure = Failure::opening(file, &error);
                if let Some(earlier) = unread.replace(failure) {
                    console::report_failure(&earlier);
                }
                continue;
            }
        };
        let is_readable = found.as_ref().is_some_and(|identity| identity.format.is_readable());
        if found.is_none() && tool.is_none() {
            unknown.get_or_insert(name.clone());
        }
        let written = if args.json {
            let object = serde_json::json!({
                "file": name,
                "format": found.as_ref().map(|identity| identity.format.name()),
                "what": words,
                "is_readable": is_readable,
                "tool": tool,
            });
            writeln!(out, "{object}")
        } else {
            let note = match &tool {
                Some(tool) => format!(" (not read; {tool})"),
                None if found.is_some() && !is_readable => " (not read)".to_string(),
                None => String::new(),
            };
            writeln!(out, "{name}: {words}{note}")
        };
        written.map_err(|error| Failure::output(&error))?;
    }
    out.flush().map_err(|error| Failure::output(&error))?;
    match (unread, unknown) {
        (None, None) => Ok(()),
        // The last of these errors; the loop has reported the others.
        (Some(failure), _) => Err(failure),
        (None, Some(name)) => {
            Err(Failure::new(Exit::No, format!("`{name}` is not a known hash file")))
        }
    }
}

/// Names a file that is not a hash file, as far as an attempt to open it as a store can tell.
fn other(path: &Path) -> FileKind {
    match Options::new().read_only().open(path) {
        Err(Error::NotAStore { found, .. }) => found,
        _ => FileKind::Other,
    }
}
