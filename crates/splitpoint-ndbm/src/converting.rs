//! The first change of an old database: it becomes a store, and the old files are kept beside it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use libc::EIO;
use splitpoint::{Create, Db, SharedFile, open_regular};
use splitpoint_ffi::{Identity, Predecessor, errno_of};

use crate::database::{Database, Failure};
use crate::descriptor::Descriptor;
use crate::opening::{code_of, is_own_dir, make_dir, options, write_dir};

impl Database {
    /// Writes the pairs of an old database to a store, which takes its name.
    ///
    /// A crash at any moment leaves the old database or the new one: `NAME.pag` alone decides.
    pub(crate) fn convert(&mut self) -> Result<(), Failure> {
        if self.is_inherited() {
            self.claim = Some(self.claim_anew(|file, path| SharedFile::for_writer(file, path))?);
            self.process = std::process::id();
        }
        let pag = Predecessor::new(&self.names.pag, self.pag.identity());
        let pag = pag.map_err(|error| code_of(&error))?;
        let dir = self.old_dir().map_err(|error| code_of(&error))?;
        for old in [Some(&pag), dir.as_ref()].into_iter().flatten() {
            old.require_keepable().map_err(|error| code_of(&error))?;
        }
        let new = pag.place_of_successor();
        let replaced = self.copy_to(&new).and_then(|(db, claim)| {
            replace_pag(&pag, dir.as_ref(), &new).map_err(|error| code_of(&error))?;
            Ok((db, claim))
        });
        let (db, claim) = replaced.inspect_err(|_| drop(fs::remove_file(&new)))?;
        // From here on it is a store, whatever fails.
        self.move_to(db, claim.clone());
        self.may_convert = false;
        self.pag.lead_to(claim.file(), self.flags).map_err(|error| code_of(&error))?;
        self.watch = self.pag.watch();
        self.replace_dir(dir.as_ref()).map_err(|error| code_of(&error))?;
        pag.sync().map_err(|error| code_of(&error))
    }

    /// Returns `NAME.dir`, if it is one of an old database.
    fn old_dir(&self) -> io::Result<Option<Predecessor>> {
        match fs::metadata(&self.names.dir) {
            Ok(found) if !is_own_dir(&self.names.dir) => {
                Predecessor::new(&self.names.dir, Identity::of(&found)).map(Some)
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(None),
        }
    }

    /// Copies every pair to a store at `new`, durably, and opens it.
    fn copy_to(&self, new: &Path) -> Result<(Db, SharedFile), Failure> {
        // Of a conversion that was killed.
        let _ = fs::remove_file(new);
        let create = options(false).create(Create::New).file_mode(0o600);
        let db: Db = create.open(new).map_err(|error| errno_of(&error))?;
        let table = self.table.as_ref().ok_or(EIO)?;
        let copied = table.for_each(|key, value| db.put(key, value));
        copied.and_then(|()| db.close().map(drop)).map_err(|error| errno_of(&error))?;
        let file = open_regular(new, &self.flags.existing()).map_err(|error| errno_of(&error))?;
        let claim =
            SharedFile::by_turns(file, &self.names.pag).map_err(|error| errno_of(&error))?;
        let db = options(false).open_shared(&claim).map_err(|error| errno_of(&error))?;
        Ok((db, claim))
    }

    /// Makes `NAME.dir` what it is beside a store, and has its descriptor lead there.
    fn replace_dir(&mut self, old: Option<&Predecessor>) -> io::Result<()> {
        if let Some(old) = old {
            let mode = fs::metadata(&self.names.pag)?.mode() & 0o777;
            let new = old.place_of_successor();
            let _ = fs::remove_file(&new);
            write_dir(File::create_new(&new)?)?;
            fs::set_permissions(&new, Permissions::from_mode(mode))?;
            old.replace(&new)?;
        } else {
            make_dir(&self.names, self.flags)?;
        }
        let dir = File::options().read(true).write(true).open(&self.names.dir)?;
        match &mut self.dir {
            Some(shown) => shown.lead_to(&dir, self.flags),
            none => Descriptor::new(dir, self.flags).map(|new| *none = Some(new)),
        }
    }
}

/// Keeps the old files under other names, and gives that of `NAME.pag` to the new one.
fn replace_pag(pag: &Predecessor, dir: Option<&Predecessor>, new: &Path) -> io::Result<()> {
    pag.pass_on_access(new)?;
    pag.keep()?;
    dir.map_or(Ok(()), Predecessor::keep)?;
    pag.replace(new)
}
