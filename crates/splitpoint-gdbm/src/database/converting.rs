//! The first change of an old file: it becomes a store, and the old one is kept beside it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use splitpoint::{Create, Durability, PutMode};

use super::recovering::{beside, sync_directory};
use super::{Database, native_options};
use crate::code::{Code, Failure, Outcome};
use crate::table::Table;

/// What the name of the old file ends with.
const KEPT: &str = ".before-splitpoint";

impl Database {
    /// Writes the pairs of an old file to a store, which takes its name.
    ///
    /// A crash at any moment leaves the old file or the new one under the name.
    pub(super) fn convert_old(&mut self) -> Outcome<()> {
        let failed = |code| move |error: std::io::Error| Failure::of_io(code, &error);
        let path = fs::canonicalize(&self.path).map_err(failed(Code::ERR_REALPATH))?;
        let kept = beside(&path, KEPT);
        if fs::symlink_metadata(&kept).is_ok() {
            return Err(Failure::new(Code::BACKUP_FAILED, libc::EEXIST));
        }
        let new = beside(&path, ".splitpoint-converting");
        // Of a conversion that was killed.
        let _ = fs::remove_file(&new);
        let metadata = self.open_file()?.metadata().map_err(failed(Code::FILE_STAT_ERROR))?;
        let options = native_options(true)
            .create(Create::New)
            .file_mode(metadata.mode() & 0o600)
            .application_data(self.head.encode());
        let db = options.open(&new).map_err(|error| Failure::of_write(&error))?;
        let mut table = Table::native(db);
        self.table()?.for_each(|key, value| {
            table.put(key, value, PutMode::Replace, Durability::Buffered).map(drop)
        })?;
        if let Table::Native { db, .. } = table {
            db.close().map_err(|error| Failure::of_sync(&error))?;
        }
        // As far as this process may.
        let _ = chown(&new, Some(metadata.uid()), Some(metadata.gid()));
        let mode = fs::Permissions::from_mode(metadata.mode() & 0o7777);
        fs::set_permissions(&new, mode).map_err(failed(Code::ERR_FILE_MODE))?;
        fs::hard_link(&path, &kept).map_err(failed(Code::BACKUP_FAILED))?;
        sync_directory(&path).map_err(failed(Code::FILE_SYNC_ERROR))?;
        let old = self.table.take();
        let installed = self.install(&new);
        if installed.is_err() && self.table.is_none() {
            self.table = old;
        }
        installed
    }
}
