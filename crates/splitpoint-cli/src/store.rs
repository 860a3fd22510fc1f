//! Opening stores the way the commands want them.

use std::path::Path;

use splitpoint::{Create, Db, Durability, Error, Options, Recovery};

use crate::console::Console;
use crate::failure::{Failure, Result};
use crate::report::rebuilt_from;

/// How soon a change survives a power loss
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DurabilityName {
    /// Not synced until the store is closed
    Buffered,
    /// Synced in the background within 1 s, and when the store is closed
    #[default]
    Async,
    /// Synced before each step is reported as done
    Sync,
}

impl From<DurabilityName> for Durability {
    fn from(name: DurabilityName) -> Self {
        match name {
            DurabilityName::Buffered => Self::Buffered,
            DurabilityName::Async => Self::Async,
            DurabilityName::Sync => Self::Sync,
        }
    }
}

/// Opens an existing store for reading, and says so if that took a pass over its log.
pub(crate) fn open_to_read(path: &Path, console: Console) -> Result<Db> {
    let db = open_untouched(path).map_err(|error| Failure::opening(path, &error))?;
    if let Recovery::Replayed { checkpoint_keys, records, .. } = db.recovery() {
        console.note(format_args!(
            "`{}` was not closed: index rebuilt from {}; the next write keeps the result",
            path.display(),
            rebuilt_from(checkpoint_keys, records)
        ));
    }
    Ok(db)
}

/// Opens an existing store for reading, or says what is wrong with it, without changing it.
pub(crate) fn open_untouched(path: &Path) -> Result<Db, Error> {
    Options::new().read_only().open(path)
}

/// Opens an existing store for writing.
pub(crate) fn open_to_write(path: &Path, options: &Options) -> Result<Db> {
    options.clone().create(Create::Never).open(path).map_err(|error| Failure::opening(path, &error))
}

/// Opens a store for writing; makes it where there is none, and says so. An empty file, and one
/// whose creation was interrupted, is none yet.
pub(crate) fn open_or_create(path: &Path, options: &Options, console: Console) -> Result<Db> {
    let opened = options.clone().create(Create::IfMissing).open(path);
    let db = opened.map_err(|error| Failure::opening(path, &error))?;
    if db.recovery() == Recovery::Created {
        console.note(format_args!("created `{}`", path.display()));
    }
    Ok(db)
}

/// Closes a store that was written, which makes its changes durable.
pub(crate) fn close(db: Db, path: &Path) -> Result<()> {
    db.close().map_err(|error| Failure::using(path, &error))
}
