//! `NewFile`: a file that gets its name only when it is complete and durable.
//!
//! It is written beside its destination under the name `NAME.backup-in-progress`, or of `repair` or
//! `rehash`, and renamed at the end. A process killed before then leaves that file; the next one
//! overwrites it. Of a long `NAME` the end gives way to a hash.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags, XattrFlags};

use super::Identity;
use super::failure::io_error;
use super::holders::{locked, locked_by_all};
use super::mapped::Mapped;
use super::neighbours::Neighbours;
use super::open::{is_named, refuse_network, sync_directory};
use super::regular::{
    open_and_look, open_regular, open_regular_with, refuse_dangling_link, refuse_special,
};
use super::shared_file::OtherFile;
use super::status::Status;
use crate::error::{Error, ErrorKind, Result, Unsupported};
use crate::hash::HashFunction;

/// Longest name that the file systems of Linux take, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Permissions of a file without an original, before the umask.
const MODE: u32 = 0o666;
/// Permissions of a file until it gets those of its original.
const PRIVATE_MODE: u32 = 0o600;
/// Largest extended attribute, and largest list of their names, that Linux has, in bytes.
const ATTRIBUTE_BYTES_MAX: usize = 65_536;
/// Number of times that a file which other processes keep creating and renaming is opened before it
/// counts as locked.
const OPENINGS_MAX: u32 = 100;

/// A file that is being written; dropping it before [`publish`](Self::publish) removes it.
#[derive(Debug)]
pub(crate) struct NewFile {
    /// Locked, so that two processes do not write it at once.
    file: File,
    partial: PathBuf,
    /// The name as the caller gave it, for messages.
    path: PathBuf,
    /// The file to which the name leads, if it exists.
    target: PathBuf,
    is_replacing: bool,
    /// The existing file, locked so that it is not replaced under a program that has it open.
    replaced: Option<OtherFile>,
    /// The store that this file is made from and replaces; the caller has it locked.
    original: Option<Identity>,
    is_published: bool,
}

impl NewFile {
    /// Begins the file at `path`, which must not be `original`, with the permissions of
    /// `original_path`. It replaces an existing file only if `is_replacing`.
    pub(crate) fn begin(
        path: &Path,
        is_replacing: bool,
        original: Identity,
        original_path: Option<&Path>,
    ) -> Result<Self> {
        let (target, replaced) = examine(path, is_replacing, Some(original))?;
        let mode = original_path.map_or(MODE, |path| mode_like([path]));
        Self::open(path, target, "backup", mode, is_replacing, replaced)
    }

    /// Begins the file at `path`, which must not exist, with the permissions of `original_path`.
    /// `work` names the operation, for the name that the file has until it is complete.
    pub(crate) fn begin_first(path: &Path, work: &str, original_path: &Path) -> Result<Self> {
        let (target, replaced) = examine(path, false, None)?;
        Self::open(path, target, work, mode_like([original_path]), false, replaced)
    }

    /// Begins the file that replaces the store at `path`, which the caller has locked and
    /// `original` identifies. A symbolic link stays, and the file that it leads to is replaced.
    ///
    /// The file is private until it gets its name. Then it gets the owner, permissions and access
    /// list of the store, as far as this process may set them.
    pub(crate) fn begin_over(path: &Path, original: Identity, work: &str) -> Result<Self> {
        let target = fs::canonicalize(path).map_err(|source| io_error("find", path, source))?;
        expect_original(&target, original)?;
        let partial = partial_of(&target, work);
        let file = make_partial(&partial)?;
        let new = Self {
            file,
            // An error of a write or an extension concerns this file, not the store.
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
        replaced: Option<OtherFile>,
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

    /// Makes the file `bytes` long; the unwritten part is a hole and reads as zeros.
    pub(crate) fn set_bytes(&self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes).map_err(|source| io_error("extend", &self.path, source))
    }

    /// Returns a storage over the file.
    pub(crate) fn storage(&self) -> Result<Mapped> {
        // Open the file again: dropping a storage over a clone would release our lock.
        let file = open_regular(&self.partial, OpenOptions::new().read(true).write(true))?;
        Mapped::new(file, self.path.clone(), true)
            .map_err(|source| io_error("map", &self.path, source))
    }

    /// Makes the file durable and gives it its name; the name is durable when this returns. After an error the
    /// file is gone, unless it has replaced another.
    ///
    /// The lock is held until then, because a process that opens the file by its new name and syncs
    /// a change must not lose the change with the name.
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
        sync_directory(&self.target).inspect_err(|_| self.take_back())
    }

    /// Removes a new file whose name may not be durable: nobody is told that it is complete, and the next attempt
    /// must not find it in its way. One that has replaced another stays, because the other one is gone.
    fn take_back(&self) {
        let is_ours = || is_named(&self.file, &self.target).is_ok_and(|is_named| is_named);
        if !self.is_replacing && is_ours() {
            // Only the first error counts.
            let _ = fs::remove_file(&self.target);
        }
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
            // For a file system without that flag: a link to an existing name is refused, too.
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
            // Only the first error counts.
            let _ = fs::remove_file(&self.partial);
        }
        // A program that another thread is just starting has these files open until it runs.
        for file in std::iter::once(&self.file).chain(self.replaced.as_deref()) {
            let _ = file.unlock();
        }
    }
}

/// Returns the name of the unfinished file of `target`, beside it.
///
/// If the name with its ending is longer than file systems take, its end gives way to a hash of the
/// whole. If `target` itself is too long, so is this: the file cannot be created, and no work is lost.
#[doc(hidden)]
pub fn partial_of(target: &Path, work: &str) -> PathBuf {
    let ending = format!(".{work}-in-progress");
    let name = target.file_name().unwrap_or_default().as_bytes();
    if name.len() > NAME_BYTES_MAX || name.len() + ending.len() <= NAME_BYTES_MAX {
        let mut partial = target.as_os_str().to_owned();
        partial.push(ending);
        return PathBuf::from(partial);
    }
    let hash = HashFunction::rapidhash_v3().hash(name, 0);
    let ending = format!(".{hash:016x}{ending}");
    let room = NAME_BYTES_MAX - ending.len();
    // Some file systems take only UTF-8, which a cut may break.
    let kept = name[..room].utf8_chunks().next().map_or("", |chunk| chunk.valid());
    target.with_file_name(format!("{kept}{ending}"))
}

/// Checks that the file at `target` is still the store `original`, and that it has no other name.
fn expect_original(target: &Path, original: Identity) -> Result<()> {
    let named = fs::metadata(target).map_err(|source| io_error("find", target, source))?;
    let refused =
        |feature, reason| Err(Error::Unsupported { path: target.to_path_buf(), feature, reason });
    if (named.dev(), named.ino()) != (original.device, original.inode) {
        let reason = "another program has replaced it".to_string();
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

/// Creates and locks a file that only this user may read. A leftover is removed and not truncated,
/// because its owner, or a process that has it open, must not see the new contents.
fn make_partial(partial: &Path) -> Result<File> {
    match fs::remove_file(partial) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("remove", partial, source));
        }
        _ => {}
    }
    let file = create_partial(partial, PRIVATE_MODE).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: partial.to_path_buf() },
        _ => io_error("create", partial, source),
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Locked { path: partial.to_path_buf(), holders: Vec::new() })
        }
        Err(TryLockError::Error(source)) => {
            let _ = fs::remove_file(partial);
            Err(io_error("lock", partial, source))
        }
    }
}

/// Creates a file where there is none. So it is a regular file, and this process's own.
fn create_partial(partial: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(partial)
}

/// Returns the permissions of a file that holds what the files at `originals` hold, before the umask: those
/// that all of them have, as `cp` would give them, and the owner may read and write.
#[doc(hidden)]
pub fn mode_like<'a>(originals: impl IntoIterator<Item = &'a Path>) -> u32 {
    let modes = originals.into_iter().map(|path| fs::metadata(path).map_or(0, |it| it.mode()));
    modes.fold(0o777, |all, mode| all & mode) | PRIVATE_MODE
}

/// Gives `file` the owner, the permissions and the access list of the file at `original`.
///
/// If this process may not set the group or the list, the group gets no permission that others do
/// not have. So nobody can read the new file who could not read the old one.
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
    // Set them last: changing the owner or the list changes the permissions.
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Copies the user's attributes and the security label; returns whether the access list is that of
/// the original.
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
    // The new file may have inherited a list from its directory, which the original does not have.
    let _ = rustix::fs::fremovexattr(file, ACCESS_LIST);
    true
}

/// Returns the names of the extended attributes of a file, if it has any.
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

/// Returns the file to which `path` leads, and the existing file, locked.
fn examine(
    path: &Path,
    is_replacing: bool,
    original: Option<Identity>,
) -> Result<(PathBuf, Option<OtherFile>)> {
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
    refuse_special(Status::of_metadata(&metadata).kind, path)?;
    if !is_replacing {
        return Err(exists());
    }
    let target = fs::canonicalize(path).map_err(|source| io_error("find", path, source))?;
    // A file that may not be read may still be replaced.
    let flags = OFlags::empty();
    let file = match open_and_look(&target, OpenOptions::new().read(true), flags) {
        Ok((file, status)) => OtherFile::new(file, &status),
        Err(Error::Io { .. }) => return Ok((target, None)),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(locked(path, &file)),
        Ok(()) if Neighbours::is_in_use(&file) => {
            let _ = file.unlock();
            Err(locked_by_all(path, &file))
        }
        Ok(()) | Err(TryLockError::Error(_)) => Ok((target, Some(file))),
    }
}

/// Creates and locks the unfinished file, or truncates a leftover.
fn open_partial(partial: &Path, path: &Path, mode: u32) -> Result<File> {
    let failed = |source| io_error("create", path, source);
    let mut existing = OpenOptions::new();
    existing.read(true).write(true);
    for _ in 0..OPENINGS_MAX {
        let (file, is_new) = match create_partial(partial, mode) {
            Ok(file) => (file, true),
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
                match open_regular_with(partial, &existing, OFlags::NOFOLLOW) {
                    // Another process has just removed it.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(Error::Io { source, .. }) => return Err(failed(source)),
                    opened => (opened?, false),
                }
            }
            Err(source) => return Err(failed(source)),
        };
        match claim_partial(&file, partial, path, is_new)? {
            Claim::Ours => return Ok(file),
            Claim::Renamed => {}
            Claim::Locked => break,
        }
    }
    Err(Error::Locked { path: partial.to_path_buf(), holders: Vec::new() })
}

/// Whose an unfinished file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// This process's, and empty.
    Ours,
    /// Nobody's: the process that had it locked until now has renamed or removed it.
    Renamed,
    /// That of a process which writes it.
    Locked,
}

/// Locks and empties an unfinished file. After an error there is none, unless it may be that of another process.
fn claim_partial(file: &File, partial: &Path, path: &Path, is_new: bool) -> Result<Claim> {
    let failed = |source| io_error("create", path, source);
    let mut is_ours = is_new;
    let mut claim = || match file.try_lock() {
        Ok(()) if is_named(file, partial)? => {
            is_ours = true;
            file.set_len(0).map_err(failed)?;
            Ok(Claim::Ours)
        }
        Ok(()) => Ok(Claim::Renamed),
        Err(TryLockError::WouldBlock) => Ok(Claim::Locked),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    };
    let claimed = claim();
    if claimed.is_err() && is_ours {
        // Only the first error counts.
        let _ = fs::remove_file(partial);
    }
    claimed
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn names(dir: &Path) -> usize {
        fs::read_dir(dir).expect("it is a directory").count()
    }

    #[test]
    fn a_new_file_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let abandoned = NewFile::begin_first(&path, "test", &path).unwrap();
        abandoned.write_at(0, b"half").unwrap();
        assert!(dir.path().join("new.test-in-progress").exists() && !path.exists());
        drop(abandoned);
        assert_eq!(names(dir.path()), 0);

        let first = NewFile::begin_first(&path, "test", &path).unwrap();
        first.write_at(0, b"first").unwrap();
        assert!(!path.exists());
        first.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(dir.path()), 1);
        assert!(matches!(NewFile::begin_first(&path, "test", &path), Err(Error::Exists { .. })));
    }

    #[test]
    fn an_unfinished_file_has_a_name_that_file_systems_take() {
        let partial = |name: &str| partial_of(&Path::new("dir").join(name), "test");
        let ending = ".test-in-progress";
        for (letter, bytes_max) in [("n", 255), ("\u{e4}", 254), ("\u{20ac}", 255)] {
            let mut seen = Vec::new();
            for bytes in (1..=bytes_max).filter(|bytes| bytes % letter.len() == 0) {
                let name = letter.repeat(bytes / letter.len());
                let partial = partial(&name);
                let found =
                    partial.file_name().unwrap().to_str().expect("it is not cut in a letter");
                assert!(found.len() <= NAME_BYTES_MAX && found.ends_with(ending), "{found}");
                assert_eq!(found == format!("{name}{ending}"), bytes + ending.len() <= 255);
                assert!(partial.starts_with("dir") && !seen.contains(&partial), "{found}");
                seen.push(partial);
            }
        }
        let too_long = "n".repeat(256);
        assert_eq!(partial(&too_long), Path::new("dir").join(format!("{too_long}{ending}")));
        let bytes = OsStr::from_bytes(&[0xff; 255]);
        assert!(partial_of(Path::new(bytes), "test").as_os_str().len() <= NAME_BYTES_MAX);
    }

    #[test]
    fn what_a_killed_process_has_left_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        fs::write(dir.path().join("new.test-in-progress"), b"left half-way").unwrap();
        let new = NewFile::begin_first(&path, "test", &path).unwrap();
        new.write_at(0, b"whole").unwrap();
        new.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(dir.path()), 1);
    }

    #[test]
    fn a_new_file_whose_name_is_not_durable_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let new = NewFile::begin_first(&path, "test", &path).unwrap();
        new.rename().unwrap();
        new.take_back();
        assert_eq!(names(dir.path()), 0);
        let new = NewFile::begin_first(&path, "test", &path).unwrap();
        new.rename().unwrap();
        // Another program has put its own in the place.
        fs::write(dir.path().join("other"), b"other").unwrap();
        fs::rename(dir.path().join("other"), &path).unwrap();
        new.take_back();
        assert_eq!(fs::read(&path).unwrap(), b"other");
    }

    #[test]
    fn an_unfinished_file_that_cannot_be_emptied_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, partial) = (dir.path().join("new"), dir.path().join("new.test-in-progress"));
        fs::write(&partial, b"left half-way").unwrap();
        // Of another process, which has it locked.
        let writing = File::options().read(true).write(true).open(&partial).unwrap();
        writing.try_lock().unwrap();
        // Opened so that it cannot be cut.
        let reading = File::open(&partial).unwrap();
        let claimed = claim_partial(&reading, &partial, &path, false).unwrap();
        assert_eq!((claimed, partial.exists()), (Claim::Locked, true));
        writing.unlock().unwrap();
        claim_partial(&reading, &partial, &path, false).unwrap_err();
        assert!(!partial.exists());
        reading.unlock().unwrap();
        assert_eq!(claim_partial(&reading, &partial, &path, false).unwrap(), Claim::Renamed);
    }

    #[test]
    fn a_new_file_does_not_replace_one_that_was_faster() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let late = NewFile::begin_first(&path, "test", &path).unwrap();
        late.write_at(0, b"late").unwrap();
        fs::write(&path, b"faster").unwrap();
        assert!(matches!(late.publish(), Err(Error::Exists { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"faster");
        assert_eq!(names(dir.path()), 1);
    }
}
