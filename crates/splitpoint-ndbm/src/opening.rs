//! Opens a database: which of its files are there, what they are, and what may be done with them.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use libc::{
    EAGAIN, EEXIST, EINVAL, ENOENT, EROFS, ESTALE, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC,
};
use libc::{c_int, mode_t};
use splitpoint::{Create, Db, Durability, Error, ErrorKind, Options, SharedFile, open_regular};
use splitpoint_ffi::{CutWatch, beside, converts_old_files, errno_of, open_by_turns};
use splitpoint_legacy::{COMPAT_DIR, Format, db185};

use crate::database::{Database, Failure};
use crate::descriptor::{Descriptor, Flags};
use crate::names::Names;
use crate::table::Table;

/// The database that a program asks for.
#[derive(Clone, Debug)]
pub struct Request {
    name: PathBuf,
    flags: Flags,
}

impl Request {
    /// Returns a request with flags and mode of open(2): `O_RDONLY` or not, `O_CREAT`, `O_EXCL`,
    /// `O_TRUNC`, `O_CLOEXEC`.
    pub fn new(name: impl Into<PathBuf>, flags: c_int, mode: mode_t) -> Self {
        Self { name: name.into(), flags: Flags { bits: flags, mode } }
    }

    /// Returns a request for a database to read and write, which is created if it is missing.
    pub fn create(name: impl Into<PathBuf>) -> Self {
        Self::new(name, O_RDWR | O_CREAT, 0o666)
    }

    /// Returns a request for an existing database, to read and write.
    pub fn existing(name: impl Into<PathBuf>) -> Self {
        Self::new(name, O_RDWR, 0)
    }

    /// Returns a request for an existing database, to read.
    pub fn read_only(name: impl Into<PathBuf>) -> Self {
        Self::new(name, O_RDONLY, 0)
    }

    /// Returns whether both files of the database are there, whatever they hold.
    pub fn has_both_files(&self) -> bool {
        let Names { pag, dir, .. } = Names::of(&self.name);
        pag.exists() && dir.exists()
    }
}

impl Database {
    /// Opens a database.
    ///
    /// A new one is a store. An old one of dbm, ndbm, sdbm or gdbm is read in place; opened for
    /// writing it is refused with `EROFS`, or converted by the first change, as `SPLITPOINT_OLD_FILES`
    /// says. `NAME.db` of the BSDs is read and written in place, if there is no `NAME.pag`.
    ///
    /// # Errors
    ///
    /// The code of the failure: `ENOENT`, `EEXIST`, `EAGAIN` if somebody else has it open who takes no turns,
    /// `EINVAL` if it is no database.
    pub fn open(request: &Request) -> Result<Self, Failure> {
        let names = Names::of(&request.name).absolute().map_err(|error| code_of(&error))?;
        let flags = request.flags;
        if !is_there(&names.pag) && !flags.has(O_TRUNC) && names.db.is_file() {
            if flags.has(O_CREAT | O_EXCL) && is_database(&names.db) {
                return Err(EEXIST);
            }
            if let Some(database) = open_db(&names, flags)? {
                return Ok(database);
            }
        }
        open_pag(names, flags)
    }
}

/// Returns whether something has the name; a link that leads nowhere has not.
fn is_there(path: &Path) -> bool {
    fs::metadata(path).is_ok()
}

fn is_database(path: &Path) -> bool {
    matches!(splitpoint_legacy::identify(path), Ok(Some(_)))
}

/// Opens `NAME.db`, or returns `None` if it is no database.
fn open_db(names: &Names, flags: Flags) -> Result<Option<Database>, Failure> {
    let Ok(Some(identity)) = splitpoint_legacy::identify(&names.db) else { return Ok(None) };
    let table: Box<dyn splitpoint::Table> = if !flags.may_write() {
        Box::new(splitpoint_legacy::open(&names.db).map_err(|error| errno_of(&error))?)
    } else if identity.format == Format::Db185Hash {
        let options = db185::Options::new().create(Create::Never);
        Box::new(options.open(&names.db).map_err(|error| errno_of(&error))?)
    } else {
        return Err(EROFS);
    };
    let descriptor = || Descriptor::open(&names.db, flags).map_err(|error| code_of(&error));
    Ok(Some(Database {
        table: Some(Table::old(table)),
        names: names.clone(),
        flags,
        is_read_only: !flags.may_write(),
        may_convert: false,
        is_unmade: false,
        process: std::process::id(),
        claim: None,
        pag: descriptor()?,
        watch: CutWatch::default(),
        dir: Some(descriptor()?),
    }))
}

/// Opens or creates `NAME.pag`.
fn open_pag(names: Names, flags: Flags) -> Result<Database, Failure> {
    let opened = open_file(&names.pag, flags).map_err(|error| errno_of(&error))?;
    let Store { table, claim, file, may_convert } = store_in(&names, opened, flags)?;
    let is_unmade = table.is_native() && claim.is_none();
    // That of an old database stays as it is; one that is only read may lack it.
    let is_made = table.is_native() && (flags.may_write() || flags.has(O_CREAT));
    let has_own = is_made && make_dir(&names, flags).map_err(|error| code_of(&error))?;
    let dir = match Descriptor::open(&names.dir, flags) {
        Err(error) if has_own => return Err(code_of(&error)),
        opened => opened.ok(),
    };
    Ok(Database {
        table: Some(table),
        names,
        flags,
        is_read_only: !flags.may_write(),
        may_convert,
        is_unmade,
        process: std::process::id(),
        claim,
        watch: file.watch(),
        pag: file,
        dir,
    })
}

/// Returns whether a file could not be made because its folder may not be written: then the database is used
/// without it, or with it as it is.
fn is_of_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Opens the file with the pairs, creates it if the flags say so, and returns whether it did.
fn open_file(path: &Path, flags: Flags) -> splitpoint::Result<(File, bool)> {
    let existing = || open_regular(path, &flags.existing()).map(|file| (file, false));
    if !flags.has(O_CREAT) {
        return existing();
    }
    // A program may ask to create, and to read only.
    match open_regular(path, &flags.new_file()) {
        Err(Error::Exists { .. }) if !flags.has(O_EXCL) => existing(),
        created => created.map(|file| (file, true)),
    }
}

/// What the file with the pairs turned out to be.
struct Store {
    table: Table,
    claim: Option<SharedFile>,
    file: Descriptor,
    may_convert: bool,
}

/// Opens the store in a file, or reads an old database in place.
fn store_in(names: &Names, (file, is_new): (File, bool), flags: Flags) -> Result<Store, Failure> {
    let code = |error: &Error| errno_of(error);
    let is_empty = file.metadata().map_err(|error| code_of(&error))?.len() == 0;
    let is_only_read = !flags.may_write() && !is_new;
    if is_empty && is_only_read {
        // It becomes a database when somebody writes.
        let table = Table::native(Db::in_memory().map_err(|error| code(&error))?);
        let file = Descriptor::new(file, flags).map_err(|error| code_of(&error))?;
        return Ok(Store { table, claim: None, file, may_convert: false });
    }
    let shown = file.try_clone().map_err(|error| code_of(&error))?;
    let claim = SharedFile::by_turns(file, &names.pag).map_err(|error| code(&error))?;
    let shown = Descriptor::new(shown, flags).map_err(|error| code_of(&error))?;
    let truncates = flags.has(O_TRUNC) && flags.may_write();
    match open_by_turns(&claim, &options(is_only_read), truncates) {
        Ok(db) => {
            let table = Table::native(db);
            Ok(Store { table, claim: Some(claim), file: shown, may_convert: false })
        }
        Err(error) if error.kind() == ErrorKind::NotAStore => {
            // What opens the file by its name and closes it ends the lock of a claim: it comes before.
            drop(claim);
            let table = splitpoint_legacy::open(&names.pag).map_err(|_| code(&error))?;
            let may_convert = !is_only_read;
            if may_convert && !converts_old_files() {
                return Err(EROFS);
            }
            // Two processes do not convert it at once.
            let claim = if may_convert {
                let file = shown.try_clone().map_err(|error| code_of(&error))?;
                Some(SharedFile::for_writer(file, &names.pag).map_err(|error| code(&error))?)
            } else {
                None
            };
            if !shown.identity().has_name(&names.pag) {
                return Err(ESTALE);
            }
            Ok(Store { table: Table::old(Box::new(table)), claim, file: shown, may_convert })
        }
        Err(error) => Err(code(&error)),
    }
}

/// Options of a handle. What a program does not sync is durable when it closes.
pub(crate) fn options(is_read_only: bool) -> Options {
    let options = Options::new().durability(Durability::Buffered).gdbm_mark(true);
    if is_read_only { options.read_only() } else { options }
}

/// Makes `NAME.dir` if it is missing, empty, or another name of `NAME.pag`, as it was once. Returns whether there
/// is one of this library now: not if its folder may not be written.
pub(crate) fn make_dir(names: &Names, flags: Flags) -> io::Result<bool> {
    let pag = fs::metadata(&names.pag)?;
    let made = match fs::metadata(&names.dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => new_dir(&names.dir, &pag, flags),
        Err(error) => return Err(error),
        Ok(dir) if (dir.dev(), dir.ino()) == (pag.dev(), pag.ino()) => {
            replace_dir(names, &pag, flags)
        }
        Ok(dir) if dir.len() == 0 => {
            return write_dir(File::options().write(true).open(&names.dir)?).map(|()| true);
        }
        Ok(_) => Ok(()),
    };
    match made {
        Err(error) if is_of_folder(&error) => Ok(false),
        made => made.map(|()| true),
    }
}

/// Puts a new `NAME.dir` in the place of one that is another name of `NAME.pag`.
fn replace_dir(names: &Names, pag: &Metadata, flags: Flags) -> io::Result<()> {
    let new = beside(&names.dir, ".splitpoint-new");
    // One that another user has left in a folder where each may remove only his own (S_ISVTX).
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => new_dir(&new, pag, flags)?,
    }
    fs::rename(&new, &names.dir).inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Creates a `NAME.dir` with the permissions of `NAME.pag`: whoever may open that has to open this too, and the
/// program has given no mode if it did not ask to create the database.
fn new_dir(path: &Path, pag: &Metadata, flags: Flags) -> io::Result<()> {
    let mode = pag.mode() & 0o777;
    let file = Flags { mode, ..flags }.new_file().open(path)?;
    if file.metadata()?.mode() & 0o777 != mode {
        // The umask has taken something away.
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    write_dir(file)
}

/// Writes what a `NAME.dir` holds.
pub(crate) fn write_dir(mut file: File) -> io::Result<()> {
    file.write_all(&COMPAT_DIR)
}

/// Returns whether a file is a `NAME.dir` of this library or the original. It may be another name of `NAME.pag`,
/// which this process has claimed: the claim stays.
pub(crate) fn is_own_dir(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let mut bytes = [0; 4];
    let read = file.read_exact(&mut bytes);
    SharedFile::close_other(file);
    read.is_ok() && bytes == COMPAT_DIR[..4]
}

/// Returns the code of an error of the system.
pub(crate) fn code_of(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::NotFound => ENOENT,
        io::ErrorKind::WouldBlock => EAGAIN,
        _ => EINVAL,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_a_name_of_a_file_that_this_process_has_claimed_leaves_the_claim() {
        let dir = tempfile::tempdir().unwrap();
        let [pag, dir_file] = ["a.pag", "a.dir"].map(|name| dir.path().join(name));
        Db::open(&pag).unwrap().close().unwrap();
        fs::hard_link(&pag, &dir_file).unwrap();
        let file = File::options().read(true).write(true).open(&pag).unwrap();
        let _claim = SharedFile::for_writer(file, &pag).unwrap();
        assert!(!is_own_dir(&dir_file));
        let other = Db::open(&pag).map(drop).map_err(|error| error.kind());
        assert_eq!(other, Err(ErrorKind::Locked));
    }
}
