//! `NewFile`: a file that has its name only once it is whole and durable.
//!
//! It is written under the name `NAME.backup-in-progress`, or of `repair` or `rehash`, beside where
//! it belongs, and renamed at the end. A process that is killed before leaves that file, which the
//! next one writes anew.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags, XattrFlags};

use super::Identity;
use super::mapped::Mapped;
use super::open::{io_error, is_named, refuse_network, sync_directory, writer_pid};
use super::regular::{open_regular, open_regular_with, refuse_dangling_link, refuse_special};
use crate::error::{Error, Result, Unsupported};

/// Permissions of a file whose original has none, before the process's mask.
const MODE: u32 = 0o666;
/// Permissions of a file that has not those of its original yet.
const PRIVATE_MODE: u32 = 0o600;
/// Longest value of an extended attribute, and list of their names, that Linux has, in bytes.
const ATTRIBUTE_BYTES_MAX: usize = 65_536;
/// How often a file that other processes create and rename is opened again before it counts as
/// locked.
const OPENINGS_MAX: u32 = 100;

/// A file that is being written; it is removed when this is dropped before
/// [`publish`](Self::publish).
#[derive(Debug)]
pub(crate) struct NewFile {
    /// Locked, so that two processes do not write it at once.
    file: File,
    partial: PathBuf,
    /// The name as it was given, for messages.
    path: PathBuf,
    /// Where it leads, if a file is there already.
    target: PathBuf,
    is_replacing: bool,
    /// What is there already, locked so that it is not replaced under a program that has it open.
    replaced: Option<File>,
    /// The store that this file is made from and replaces; the caller has it locked.
    original: Option<Identity>,
    is_published: bool,
}

impl NewFile {
    /// Begins the file at `path`, which is not to be the one of `original`; its permissions are
    /// those of `original_path`. An existing file is replaced only if `is_replacing`.
    pub(crate) fn begin(
        path: &Path,
        is_replacing: bool,
        original: Identity,
        original_path: Option<&Path>,
    ) -> Result<Self> {
        let (target, replaced) = examine(path, is_replacing, Some(original))?;
        let mode = original_path.and_then(|path| fs::metadata(path).ok());
        let mode = mode.map_or(MODE, |metadata| metadata.mode() & 0o777 | 0o600);
        Self::open(path, target, "backup", mode, is_replacing, replaced)
    }

    /// Begins the file at `path`, where there must be none. `work` is what makes it, for the name
    /// that it has until it is whole.
    pub(crate) fn begin_first(path: &Path, work: &str) -> Result<Self> {
        let (target, replaced) = examine(path, false, None)?;
        Self::open(path, target, work, MODE, false, replaced)
    }

    /// Begins the file that replaces the store at `path`, which the caller has locked; `original`
    /// identifies it. A symbolic link stays, and the file that it leads to is replaced.
    ///
    /// Until it has its name the file is private; it is then given owner, permissions and access
    /// list of the store, as far as this process may.
    pub(crate) fn begin_over(path: &Path, original: Identity, work: &str) -> Result<Self> {
        let target = fs::canonicalize(path).map_err(|source| io_error("find", path, source))?;
        expect_original(&target, original)?;
        let partial = partial_of(&target, work);
        let file = make_partial(&partial)?;
        let new = Self {
            file,
            // What cannot be written or extended is this one, and not the store.
            path: partial.clone(),
            partial,
            target,
            is_replacing: true,
            replaced: None,
            original: Some(original),
            is_published: false,
        };
        refuse_network(&new.file, path)?;
        Ok(new)
    }

    fn open(
        path: &Path,
        target: PathBuf,
        work: &str,
        mode: u32,
        is_replacing: bool,
        replaced: Option<File>,
    ) -> Result<Self> {
        let partial = partial_of(&target, work);
        let file = open_partial(&partial, path, mode)?;
        let new = Self {
            file,
            partial,
            path: path.to_path_buf(),
            target,
            is_replacing,
            replaced,
            original: None,
            is_published: false,
        };
        refuse_network(&new.file, path)?;
        Ok(new)
    }

    /// Writes bytes.
    pub(crate) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|source| io_error("write", &self.path, source))
    }

    /// Makes the file `bytes` long: what is not written is a hole and reads as zeros.
    pub(crate) fn set_bytes(&self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes).map_err(|source| io_error("extend", &self.path, source))
    }

    /// Returns a storage over the file.
    pub(crate) fn storage(&self) -> Result<Mapped> {
        // Opened anew: with a clone, the storage would take our lock away when it is dropped.
        let file = open_regular(&self.partial, OpenOptions::new().read(true).write(true))?;
        Mapped::new(file, self.path.clone(), true)
            .map_err(|source| io_error("map", &self.path, source))
    }

    /// Gives the file its name; it is whole and durable before, and the name when this returns.
    ///
    /// The lock is held until then: who opens the file by its new name and syncs a change must not
    /// lose it because the name is lost.
    pub(crate) fn publish(mut self) -> Result<()> {
        if self.original.is_some() {
            let resembling = resemble(&self.file, &self.target);
            resembling.map_err(|source| io_error("set the permissions of", &self.path, source))?;
        }
        self.file.sync_all().map_err(|source| io_error("sync", &self.path, source))?;
        if let Some(original) = self.original {
            expect_original(&self.target, original)?;
        }
        self.rename()?;
        self.is_published = true;
        sync_directory(&self.target)
    }

    fn rename(&self) -> Result<()> {
        let failed = |source| io_error("rename a new file to", &self.path, source);
        if self.is_replacing {
            return fs::rename(&self.partial, &self.target).map_err(failed);
        }
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(CWD, &self.partial, CWD, &self.target, flags) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::EXIST) => Err(Error::Exists { path: self.path.clone() }),
            // A file system that cannot exclude it: a link to an existing name is refused too.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                match fs::hard_link(&self.partial, &self.target) {
                    Ok(()) => fs::remove_file(&self.partial).map_err(failed),
                    Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
                        Err(Error::Exists { path: self.path.clone() })
                    }
                    Err(source) => Err(failed(source)),
                }
            }
            Err(source) => Err(failed(source.into())),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_published {
            // The error that led here is the one to tell.
            let _ = fs::remove_file(&self.partial);
        }
        // A program that another thread is just starting has these files until it runs.
        for file in std::iter::once(&self.file).chain(&self.replaced) {
            let _ = file.unlock();
        }
    }
}

fn partial_of(target: &Path, work: &str) -> PathBuf {
    let mut partial = target.as_os_str().to_owned();
    partial.push(format!(".{work}-in-progress"));
    PathBuf::from(partial)
}

/// Checks that the file at `target` is still the store `original`, and that it has no other name.
fn expect_original(target: &Path, original: Identity) -> Result<()> {
    let named = fs::metadata(target).map_err(|source| io_error("find", target, source))?;
    let refused =
        |feature, reason| Err(Error::Unsupported { path: target.to_path_buf(), feature, reason });
    if (named.dev(), named.ino()) != (original.device, original.inode) {
        let reason = "another program has put another file in its place".to_string();
        return refused(Unsupported::Other, reason);
    }
    if named.nlink() > 1 {
        let reason = format!(
            "it has {} names (hard links), and the others would keep the old store",
            named.nlink()
        );
        return refused(Unsupported::HardLinks, reason);
    }
    Ok(())
}

/// Makes and locks a file that only this user may read. What was left behind is removed and not
/// emptied: whoever has it open, or owns it, must not get at what is written now.
fn make_partial(partial: &Path) -> Result<File> {
    match fs::remove_file(partial) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("remove", partial, source));
        }
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(PRIVATE_MODE);
    let file = match open_regular_with(partial, &options, OFlags::NOFOLLOW) {
        Err(Error::Io { source, .. }) => return Err(io_error("create", partial, source)),
        opened => opened?,
    };
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Locked { path: partial.to_path_buf(), pid: None })
        }
        Err(TryLockError::Error(source)) => Err(io_error("lock", partial, source)),
    }
}

/// Gives `file` the owner, the permissions and the access list of the file at `original`.
///
/// Where this process may not give it the same group or list, it takes from the group what
/// others do not have: nobody can read the new file who could not read the old one.
fn resemble(file: &File, original: &Path) -> io::Result<()> {
    let (wanted, own) = (fs::metadata(original)?, file.metadata()?);
    let (uid, gid) = (wanted.uid(), wanted.gid());
    let is_same_owner = (uid, gid) == (own.uid(), own.gid());
    let is_group_kept = is_same_owner
        || fchown(file, Some(uid), Some(gid)).is_ok()
        || gid == own.gid()
        || fchown(file, None, Some(gid)).is_ok();
    let is_list_kept = copy_attributes(file, original);
    let mut mode = wanted.mode() & 0o777;
    if !is_group_kept || !is_list_kept {
        mode &= 0o707 | (mode & 0o007) << 3;
    }
    // Last: a change of the owner or of the list changes the permissions.
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Copies the attributes that a user has set, and the label; returns whether the access list is
/// that of the original.
fn copy_attributes(file: &File, original: &Path) -> bool {
    const ACCESS_LIST: &str = "system.posix_acl_access";
    let names = attribute_names(original);
    let is_copied = |name: &str| {
        let Some(value) = attribute(original, name) else { return false };
        rustix::fs::fsetxattr(file, name, &value, XattrFlags::empty()).is_ok()
    };
    for name in names.iter().filter(|name| name.starts_with("user.") || *name == "security.selinux")
    {
        is_copied(name);
    }
    if names.iter().any(|name| name == ACCESS_LIST) {
        return is_copied(ACCESS_LIST);
    }
    // It may have inherited one from its directory, which the original does not have any more.
    let _ = rustix::fs::fremovexattr(file, ACCESS_LIST);
    true
}

/// Returns the names of the extended attributes of a file; none where there are none.
fn attribute_names(path: &Path) -> Vec<String> {
    let mut names = vec![0; ATTRIBUTE_BYTES_MAX];
    let Ok(bytes) = rustix::fs::listxattr(path, &mut names[..]) else { return Vec::new() };
    let names = names[..bytes].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names.filter_map(|name| String::from_utf8(name.to_vec()).ok()).collect()
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
    let bytes = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(bytes);
    Some(value)
}

/// Looks at what is at `path`, and returns where it leads and what is there, locked.
fn examine(
    path: &Path,
    is_replacing: bool,
    original: Option<Identity>,
) -> Result<(PathBuf, Option<File>)> {
    let exists = || Error::Exists { path: path.to_path_buf() };
    let Ok(metadata) = fs::metadata(path) else {
        refuse_dangling_link(path)?;
        return Ok((path.to_path_buf(), None));
    };
    let is_original =
        |original: Identity| (metadata.dev(), metadata.ino()) == (original.device, original.inode);
    if original.is_some_and(is_original) {
        let reason = format!("`{}` is the store itself", path.display());
        return Err(Error::Invalid { what: "destination", reason });
    }
    refuse_special(metadata.file_type(), path)?;
    if !is_replacing {
        return Err(exists());
    }
    let target = fs::canonicalize(path).map_err(|source| io_error("find", path, source))?;
    // What may not be read may be replaced all the same.
    let file = match open_regular(&target, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(Error::Io { .. }) => return Ok((target, None)),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err(Error::Locked { path: path.to_path_buf(), pid: writer_pid(&file) })
        }
        Ok(()) | Err(TryLockError::Error(_)) => Ok((target, Some(file))),
    }
}

/// Makes and locks the file that is not whole yet, or empties one that was left behind.
fn open_partial(partial: &Path, path: &Path, mode: u32) -> Result<File> {
    let failed = |source| io_error("create", path, source);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(mode);
    for _ in 0..OPENINGS_MAX {
        let file = match open_regular_with(partial, &options, OFlags::NOFOLLOW) {
            Err(Error::Io { source, .. }) => return Err(failed(source)),
            opened => opened?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => break,
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // Who had it locked until now may have given it its final name, or removed it.
        if is_named(&file, partial)? {
            file.set_len(0).map_err(failed)?;
            return Ok(file);
        }
    }
    Err(Error::Locked { path: partial.to_path_buf(), pid: None })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn names(dir: &Path) -> usize {
        fs::read_dir(dir).expect("it is a directory").count()
    }

    #[test]
    fn a_new_file_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let abandoned = NewFile::begin_first(&path, "test").unwrap();
        abandoned.write_at(0, b"half").unwrap();
        assert!(dir.path().join("new.test-in-progress").exists() && !path.exists());
        drop(abandoned);
        assert_eq!(names(dir.path()), 0);

        let first = NewFile::begin_first(&path, "test").unwrap();
        first.write_at(0, b"first").unwrap();
        assert!(!path.exists());
        first.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(dir.path()), 1);
        assert!(matches!(NewFile::begin_first(&path, "test"), Err(Error::Exists { .. })));
    }

    #[test]
    fn what_a_killed_process_has_left_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        fs::write(dir.path().join("new.test-in-progress"), b"left half-way").unwrap();
        let new = NewFile::begin_first(&path, "test").unwrap();
        new.write_at(0, b"whole").unwrap();
        new.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(dir.path()), 1);
    }

    #[test]
    fn a_new_file_does_not_replace_one_that_was_faster() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let late = NewFile::begin_first(&path, "test").unwrap();
        late.write_at(0, b"late").unwrap();
        fs::write(&path, b"faster").unwrap();
        assert!(matches!(late.publish(), Err(Error::Exists { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"faster");
        assert_eq!(names(dir.path()), 1);
    }
}
