//! The first change of an old database: it becomes a store, and the old files are kept beside it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use libc::{EEXIST, EINVAL, EIO};
use splitpoint::{Create, Db};
use splitpoint_ffi::errno_of;

use crate::database::{Database, Failure};
use crate::descriptor::{Descriptor, Flags};
use crate::names::beside;
use crate::opening::{code_of, is_own_dir, make_dir, options, reopen, write_dir};
use crate::table::Table;

/// What the names of the old files end with.
const KEPT: &str = ".before-splitpoint";
/// What the names of the new files end with until they are complete.
const NEW: &str = ".splitpoint-new";

impl Database {
    /// Writes the pairs of an old database to a store, which takes its name.
    ///
    /// A crash at any moment leaves the old database or the new one: `NAME.pag` alone decides.
    pub(crate) fn convert(&mut self) -> Result<(), Failure> {
        let pag = fs::canonicalize(&self.names.pag).map_err(|error| code_of(&error))?;
        if fs::symlink_metadata(beside(&pag, KEPT)).is_ok() {
            return Err(EEXIST);
        }
        let new = beside(&pag, NEW);
        self.copy_to(&new)?;
        self.replace_files(&pag, &new).map_err(|error| code_of(&error))?;
        let (db, claim) = reopen(&self.names.pag, self.flags, false).map_err(|it| errno_of(&it))?;
        let shown = claim.file().try_clone().map_err(|error| code_of(&error))?;
        self.pag.lead_to(shown, self.flags).map_err(|error| code_of(&error))?;
        let dir = File::options().read(true).write(true).open(&self.names.dir);
        let dir = dir.map_err(|error| code_of(&error))?;
        let led = match &mut self.dir {
            Some(old) => old.lead_to(dir, self.flags),
            none => Descriptor::new(dir, self.flags).map(|new| *none = Some(new)),
        };
        led.map_err(|error| code_of(&error))?;
        self.table = Some(Table::native(db));
        self.claim = Some(claim);
        self.may_convert = false;
        Ok(())
    }

    /// Copies every pair to a store at `new`, durably.
    fn copy_to(&self, new: &Path) -> Result<(), Failure> {
        // Of a conversion that was killed.
        let _ = fs::remove_file(new);
        let options = options(false).create(Create::New).file_mode(0o600);
        let db: Db = options.open(new).map_err(|error| errno_of(&error))?;
        let table = self.table.as_ref().ok_or(EIO)?;
        let copied = table.for_each(|key, value| db.put(key, value));
        copied.and_then(|()| db.close().map(drop)).map_err(|error| errno_of(&error))
    }

    /// Keeps the old files under other names, and gives theirs to the new ones.
    fn replace_files(&self, pag: &Path, new: &Path) -> io::Result<()> {
        let old = fs::metadata(pag)?;
        // As far as this process may.
        let _ = chown(new, Some(old.uid()), Some(old.gid()));
        fs::set_permissions(new, Permissions::from_mode(old.mode() & 0o7777))?;
        fs::hard_link(pag, beside(pag, KEPT))?;
        let dir = fs::canonicalize(&self.names.dir).ok().filter(|dir| !is_own_dir(dir));
        if let Some(dir) = &dir {
            fs::hard_link(dir, beside(dir, KEPT))?;
        }
        sync_directory(pag)?;
        fs::rename(new, pag)?;
        if let Some(dir) = &dir {
            let new = beside(dir, NEW);
            let _ = fs::remove_file(&new);
            write_dir(File::create_new(&new)?)?;
            fs::set_permissions(&new, Permissions::from_mode(old.mode() & 0o777))?;
            fs::rename(&new, dir)?;
        } else {
            make_dir(&self.names, Flags { mode: old.mode() & 0o777, ..self.flags })?;
        }
        sync_directory(pag)
    }
}

/// Makes the names in the directory of a file durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().ok_or_else(|| io::Error::from_raw_os_error(EINVAL))?;
    File::open(parent)?.sync_all()
}
