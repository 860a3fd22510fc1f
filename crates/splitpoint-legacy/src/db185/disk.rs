//! Access to the file of a table through the operating system.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::OFlags;
use splitpoint::{Create, Error, Result, SharedFile};

/// A file of pages.
pub(super) trait Disk: fmt::Debug + Send {
    /// Returns the path of the file.
    fn path(&self) -> &Path;

    /// Returns the length of the file.
    fn file_bytes(&self) -> u64;

    /// Reads `bytes.len()` bytes at `offset`; those beyond the end of the file are 0.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Writes `bytes` at `offset`.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes what was written durable.
    fn sync(&mut self) -> Result<()>;
}

/// A file that keeps other handles out as long as it is open.
#[derive(Debug)]
pub(super) struct FileDisk {
    file: Descriptor,
    path: PathBuf,
    file_bytes: u64,
}

/// `EBADF`, on every system.
const BAD_DESCRIPTOR: i32 = 9;

/// The descriptor of a file, which a program may close: it is read, written, unlocked and closed only as long
/// as it leads to this file.
#[derive(Debug)]
struct Descriptor {
    holder: Holder,
    inode: (u64, u64),
    /// When the inode was made, if the file system knows and we may write: it gives that of a file without a name
    /// to the next one once nobody has the first open. Under a descriptor that only reads, a layered file system
    /// puts a younger copy with the same inode as soon as somebody else opens the file to write.
    born: Option<SystemTime>,
    /// Whether it may have a name.
    has_name: bool,
}

#[derive(Debug)]
enum Holder {
    /// Locked with `flock`; there until the drop.
    Own(Option<File>),
    /// Claimed by the program, which locks it as it likes.
    Shared(SharedFile),
}

impl Descriptor {
    fn new(holder: Holder, found: &Metadata, has_name: bool) -> Self {
        let inode = (found.dev(), found.ino());
        let mut descriptor = Self { holder, inode, born: None, has_name };
        let flags = rustix::fs::fcntl_getfl(descriptor.file());
        if flags.is_ok_and(|flags| flags.intersection(OFlags::RWMODE) != OFlags::RDONLY) {
            descriptor.born = found.created().ok();
        }
        descriptor
    }

    fn file(&self) -> &File {
        match &self.holder {
            Holder::Own(file) => file.as_ref().expect("it is there until the drop"),
            Holder::Shared(file) => file.file(),
        }
    }

    /// Returns the file, if it is still the one that was opened.
    fn checked(&self) -> io::Result<&File> {
        let file = self.file();
        let found = file.metadata()?;
        let is_own = (found.dev(), found.ino()) == self.inode
            && self.born.is_none_or(|born| found.created().is_ok_and(|found| found == born))
            && (self.has_name || found.nlink() == 0);
        if is_own { Ok(file) } else { Err(io::Error::from_raw_os_error(BAD_DESCRIPTOR)) }
    }
}

impl Drop for Descriptor {
    /// Releases the lock explicitly, because a child forked meanwhile has the file open too, and
    /// would hold the lock until it runs another program.
    fn drop(&mut self) {
        let is_closed = self.checked().is_err();
        let Holder::Own(file) = &mut self.holder else { return };
        let Some(file) = file.take() else { return };
        if is_closed {
            // The number may be a stranger's.
            let _ = file.into_raw_fd();
        } else {
            let _ = file.unlock();
            SharedFile::close_other(file);
        }
    }
}

impl FileDisk {
    /// Opens or creates the file at `path`.
    ///
    /// The lock excludes other handles of this library. The original neither takes nor respects it.
    pub(super) fn open(path: &Path, create: Create, is_read_only: bool, mode: u32) -> Result<Self> {
        let failed = |source| Error::Io { action: "open", path: path.to_path_buf(), source };
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(!is_read_only)
            .create(!is_read_only && create == Create::IfMissing)
            .create_new(!is_read_only && create == Create::New);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        let file = splitpoint::open_regular(path, &options)?;
        let locked = if is_read_only { file.try_lock_shared() } else { file.try_lock() };
        let refused = match locked {
            Ok(()) => None,
            Err(TryLockError::WouldBlock) => {
                Some(Error::Locked { path: path.to_path_buf(), holders: Vec::new() })
            }
            // Some network file systems have no locks; the original had none anywhere.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(TryLockError::Error(error)) => Some(failed(error)),
        };
        if let Some(error) = refused {
            // This process may be the one that has claimed it.
            SharedFile::close_other(file);
            return Err(error);
        }
        let found = file.metadata().map_err(failed)?;
        Ok(Self::new(Holder::Own(Some(file)), path.to_path_buf(), &found))
    }

    /// Takes a file that the program shares.
    pub(super) fn share(file: &SharedFile) -> Result<Self> {
        let path = file.path().to_path_buf();
        let failed = |source| Error::Io { action: "open", path: path.clone(), source };
        let found = file.file().metadata().map_err(failed)?;
        Ok(Self::new(Holder::Shared(file.clone()), path, &found))
    }

    fn new(holder: Holder, path: PathBuf, found: &Metadata) -> Self {
        let file = Descriptor::new(holder, found, true);
        Self { file, path, file_bytes: found.len() }
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Io { action, path: self.path.clone(), source }
    }
}

impl Disk for FileDisk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let filled = self.file.checked().and_then(|file| read_fully(file, offset, bytes));
        let filled = filled.map_err(|source| self.failed("read", source))?;
        bytes[filled..].fill(0);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.file.checked().and_then(|file| file.write_all_at(bytes, offset));
        written.map_err(|source| self.failed("write", source))?;
        self.file_bytes = self.file_bytes.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let synced = self.file.checked().and_then(File::sync_data);
        synced.map_err(|source| self.failed("sync", source))
    }
}

/// Reads to the end of `bytes` or of the file, and returns the number of bytes.
fn read_fully(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Changed pages that the cache has no room for: a temporary file without a name.
#[derive(Debug)]
pub(super) struct Spill {
    file: Descriptor,
    directory: PathBuf,
    page_bytes: usize,
    free: Vec<u64>,
    slot_count: u64,
}

impl Spill {
    /// Creates the file in `directory`, or else in the directory for temporary files.
    pub(super) fn new(directory: Option<&Path>, page_bytes: usize) -> Result<Self> {
        let temporary = std::env::temp_dir();
        let beside = directory.and_then(|directory| unnamed_file(directory).ok());
        let directory = directory.filter(|_| beside.is_some()).unwrap_or(&temporary);
        let file = match beside {
            Some(file) => Ok(file),
            None => unnamed_file(&temporary),
        };
        let failed = |source| Error::Io {
            action: "make a temporary file in",
            path: directory.to_path_buf(),
            source,
        };
        let file = file.and_then(|file| {
            let found = file.metadata()?;
            Ok(Descriptor::new(Holder::Own(Some(file)), &found, false))
        });
        let file = file.map_err(failed)?;
        let directory = directory.to_path_buf();
        Ok(Self { file, directory, page_bytes, free: Vec::new(), slot_count: 0 })
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Io { action, path: self.directory.clone(), source }
    }

    /// Stores a page and returns its slot.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<u64> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slot_count += 1;
            self.slot_count - 1
        });
        let offset = slot * self.page_bytes as u64;
        match self.file.checked().and_then(|file| file.write_all_at(bytes, offset)) {
            Ok(()) => Ok(slot),
            Err(source) => {
                self.free.push(slot);
                Err(self.failed("write a temporary file in", source))
            }
        }
    }

    /// Reads the page in `slot`.
    pub(super) fn read(&self, slot: u64, bytes: &mut [u8]) -> Result<()> {
        let offset = slot * self.page_bytes as u64;
        // What a stranger's file has there is no page of the table.
        let read = self.file.checked().and_then(|file| file.read_exact_at(bytes, offset));
        read.map_err(|source| self.failed("read a temporary file in", source))
    }

    /// Frees `slot`.
    pub(super) fn release(&mut self, slot: u64) {
        self.free.push(slot);
    }
}

/// Creates a file that only this process can reach and that disappears when it is closed.
fn unnamed_file(directory: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".splitpoint-{}-{count}.tmp", std::process::id()));
        let mut options = OpenOptions::new();
        match options.read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, OwnedFd};
    use std::process::Command;

    use super::*;

    #[test]
    fn who_opens_a_file_that_this_process_has_claimed_leaves_the_claim() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        splitpoint::Db::open(&path).unwrap().close().unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let claim = SharedFile::for_writer(open(), &path).unwrap();
        let is_claimed = || {
            let other = splitpoint::Db::open(&path).map(drop).map_err(|error| error.kind());
            other == Err(splitpoint::ErrorKind::Locked)
        };
        let disk = || FileDisk::open(&path, Create::Never, false, 0o600);
        drop(disk().unwrap());
        assert!(is_claimed());
        claim.file().lock().unwrap();
        assert!(matches!(disk(), Err(Error::Locked { .. })));
        claim.file().unlock().unwrap();
        assert!(is_claimed());
    }

    /// Closes the number, as a program may, and makes a file that gets it, and perhaps the inode.
    fn take_number(descriptor: &mut Descriptor, path: &Path) {
        let Holder::Own(own) = &mut descriptor.holder else { panic!("it is its own") };
        let mut number = OwnedFd::from(own.take().unwrap());
        rustix::io::dup2(File::open("/dev/null").unwrap(), &mut number).unwrap();
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        rustix::io::dup2(file, &mut number).unwrap();
        *own = Some(number.into());
    }

    fn is_bad(error: &Error) -> bool {
        matches!(error, Error::Io { source, .. } if source.raw_os_error() == Some(BAD_DESCRIPTOR))
    }

    #[test]
    fn a_number_that_leads_to_another_file_is_neither_written_read_nor_closed() {
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join("own.log");
        let mut spill = Spill::new(Some(folder.path()), 512).unwrap();
        let slot = spill.put(&[7; 512]).unwrap();
        let mut page = [0; 512];
        spill.read(slot, &mut page).unwrap();
        assert_eq!(page, [7; 512]);
        take_number(&mut spill.file, &theirs);
        assert!(is_bad(&spill.put(&[8; 512]).unwrap_err()));
        assert!(is_bad(&spill.read(slot, &mut page).unwrap_err()));
        assert_eq!(std::fs::metadata(&theirs).unwrap().len(), 0);
        let number = spill.file.file().as_raw_fd();
        drop(spill);
        assert!(Path::new(&format!("/proc/self/fd/{number}")).exists());
    }

    #[test]
    fn the_file_of_a_table_is_read_and_written_by_no_number_that_leads_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, theirs] = ["a.db", "own.log"].map(|name| folder.path().join(name));
        let mut disk = FileDisk::open(&ours, Create::New, false, 0o600).unwrap();
        disk.write_at(0, b"page").unwrap();
        // It is still the table's without a name.
        std::fs::remove_file(&ours).unwrap();
        disk.write_at(4, b"page").unwrap();
        // Times of birth are as fine as the kernel's ticks, before Linux 6.13.
        std::thread::sleep(std::time::Duration::from_millis(30));
        take_number(&mut disk.file, &theirs);
        assert!(is_bad(&disk.write_at(0, b"page").unwrap_err()));
        assert!(is_bad(&disk.read_at(0, &mut [0; 4]).unwrap_err()));
        assert!(is_bad(&disk.sync().unwrap_err()));
        assert_eq!(std::fs::metadata(&theirs).unwrap().len(), 0);
    }

    /// The mounts of a test that runs itself once more, in a namespace of its own: `$0` is a folder, `$@` the test.
    const LAYERED: &str = "mount -t tmpfs tmpfs $0 && cd $0 && mkdir lower upper work all &&
        echo a page of a table >lower/a.db && sleep 0.1 &&
        mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay all || exit 77
        TABLE=$0/all/a.db exec \"$@\"";

    /// Whoever opens the file to write, or changes its mode, makes a copy of it: a younger one.
    #[test]
    fn a_reader_goes_on_when_a_layered_file_system_copies_its_file() {
        if let Some(table) = std::env::var_os("TABLE").map(PathBuf::from) {
            use std::os::unix::fs::PermissionsExt as _;
            let disk = FileDisk::open(&table, Create::Never, true, 0).unwrap();
            std::fs::set_permissions(&table, std::fs::Permissions::from_mode(0o600)).unwrap();
            return disk.read_at(0, &mut [0; 4]).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let mut layered = Command::new("unshare");
        layered.args(["--map-root-user", "--mount", "sh", "-c", LAYERED]).arg(folder.path());
        layered.arg(std::env::current_exe().unwrap());
        layered.arg("a_reader_goes_on_when_a_layered_file_system");
        let Ok(output) = layered.output() else {
            println!("skipped: `unshare` is not installed");
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => assert!(said.contains("1 passed"), "{said}"),
            Some(1 | 77) => println!("skipped: no file system can be mounted here"),
            other => panic!("{other:?}: {said}"),
        }
    }
}
