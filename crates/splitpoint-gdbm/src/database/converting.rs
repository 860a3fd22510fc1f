//! The first change of an old file: it becomes a store, and the old one is kept beside it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use splitpoint::{Create, Durability, PutMode};
use splitpoint_ffi::Predecessor;

use super::{Database, native_options};
use crate::code::{Code, Failure, Outcome};
use crate::table::Table;

impl Database {
    /// Writes the pairs of an old file to a store, which takes its name.
    ///
    /// A crash at any moment leaves the old file or the new one under the name.
    pub(super) fn convert_old(&mut self) -> Outcome<()> {
        let kept = |error: io::Error| Failure::of_io(Code::BACKUP_FAILED, &error);
        if self.is_inherited() {
            let shared = self.claim_anew()?;
            self.own(shared);
        }
        let old = self.predecessor()?;
        old.require_keepable().map_err(kept)?;
        let new = old.place_of_successor();
        let installed = self
            .copy_to(&new)
            .and_then(|()| old.keep().map_err(kept))
            .and_then(|()| self.install(&old, &new));
        if installed.is_err() {
            // It is not there if the failure came later.
            let _ = fs::remove_file(&new);
        }
        installed
    }

    /// Returns what is replaced when another file takes the name of the database.
    pub(super) fn predecessor(&self) -> Outcome<Predecessor> {
        self.open_file()?;
        let old = Predecessor::new(&self.path, self.identity);
        old.map_err(|error| Failure::of_io(Code::ERR_REALPATH, &error))
    }

    /// Copies every pair of an old file to a new store, durably.
    fn copy_to(&self, new: &Path) -> Outcome<()> {
        // Of a conversion that was killed.
        let _ = fs::remove_file(new);
        let metadata = self.open_file()?.metadata();
        let metadata = metadata.map_err(|error| Failure::of_io(Code::FILE_STAT_ERROR, &error))?;
        let options = native_options(true)
            .create(Create::New)
            .file_mode(metadata.mode() & 0o600)
            .application_data(self.head.encode());
        let db = options.open(new).map_err(|error| Failure::of_write(&error))?;
        let mut table = Table::native(db);
        self.table()?.for_each(|key, value| {
            table.put(key, value, PutMode::Replace, Durability::Buffered).map(drop)
        })?;
        if let Table::Native { db, .. } = table {
            db.close().map_err(|error| Failure::of_sync(&error))?;
        }
        Ok(())
    }
}
