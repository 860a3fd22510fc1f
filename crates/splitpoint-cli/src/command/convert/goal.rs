//! What a conversion creates, and where.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use splitpoint_legacy::db185;

use crate::command::convert::Args;
use crate::command::duplicates::{Duplicates, Keep};
use crate::command::target::Format;
use crate::failure::{Exit, Failure, Result};
use crate::new_file::with_ending;

/// A format that `convert` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetFormat {
    /// A store
    Splitpoint,
    /// A db 1.85 hash file, for programs that need one
    Db185,
    /// A cdb file, which holds several values of a key
    Cdb,
}

/// What to create, and where.
#[derive(Debug)]
pub(super) struct Goal {
    /// The file to read.
    pub(super) source: PathBuf,
    pub(super) path: PathBuf,
    pub(super) format: Format,
}

impl Goal {
    pub(super) fn of(args: &Args) -> Result<Self> {
        let source = db185_of(&args.source)?;
        let source = source.map_or_else(|| args.source.clone(), |(file, _)| file);
        let dest = args.dest.clone().unwrap_or_else(|| with_ending(&source, ".new"));
        let (path, format) = match (db185_of(&dest)?, args.format) {
            (Some(_), Some(other @ (TargetFormat::Splitpoint | TargetFormat::Cdb))) => {
                let wanted = if other == TargetFormat::Cdb { "cdb" } else { "store" };
                let message = format!("`{}` is not a {wanted}", dest.display());
                return Err(Failure::new(Exit::Usage, message).hint("omit --format or `db185:`"));
            }
            (Some((path, options)), _) => (path, Format::Db185(options)),
            (None, Some(TargetFormat::Db185)) => (dest, Format::Db185(db185_options())),
            (None, Some(TargetFormat::Cdb)) => (dest, Format::Cdb),
            (None, _) => (dest, Format::Store { has_gdbm_mark: false }),
        };
        Ok(Self { source, path, format })
    }

    /// Has a store in place of a file of gdbm or ndbm begin as these programs expect.
    pub(super) fn mark_like(&mut self, source: splitpoint_legacy::Format) {
        use splitpoint_legacy::Format as Old;
        if let Format::Store { has_gdbm_mark } = &mut self.format {
            *has_gdbm_mark = matches!(source, Old::Gdbm | Old::Dbm);
        }
    }

    /// Returns which records to make of a key with several values.
    pub(super) fn keep(&self, args: &Args) -> Keep {
        match args.duplicates {
            Some(Duplicates::Last) => Keep::Last,
            Some(Duplicates::AllAsN) => Keep::Numbered,
            None if matches!(self.format, Format::Cdb) => Keep::Every,
            Some(Duplicates::First | Duplicates::Fail) | None => Keep::First,
        }
    }
}

/// Returns the parameters of a file of the 1991 package where nothing else is asked: a conversion
/// has the memory for a larger cache than the package's own.
fn db185_options() -> db185::Options {
    db185::Options::new().cache_bytes(64 << 20)
}

/// Returns path and parameters of a file given as `db185:PATH?NAME=VALUE`.
fn db185_of(path: &Path) -> Result<Option<(PathBuf, db185::Options)>> {
    let Some(url) = path.to_str().and_then(|text| text.strip_prefix("db185:")) else {
        return Ok(None);
    };
    let (file, options) = db185_options()
        .and_url(url)
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    if file.as_os_str().is_empty() {
        let message = format!("`{}` names no file", path.display());
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(Some((file, options)))
}
