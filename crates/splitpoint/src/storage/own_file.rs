//! `OwnFile`: a file whose descriptor the program may close behind the back of its owner.
//!
//! Daemons close all descriptors from 3 up, and then open files of their own, which get the same
//! numbers. A write through such a number goes to an unrelated file, and a close closes that file.
//!
//! `fstat` tells which file a descriptor has. But it costs as much as a lock, of which a turn has
//! three. So a description that nobody else uses can be *marked*: its file position, which no call
//! here uses, is set to a random number of terabytes. A descriptor with that position is this one;
//! any other position proves nothing.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

#[cfg(all(test, not(miri)))]
use super::sim::Process;
use super::status::Status;
use super::writer_byte::Inode;
use crate::testing::mutant::{self, Mutant};

/// The least position that is a mark; all are below twice as much.
const MARK_MIN: u64 = 1 << 40;

/// An open file that notices when its descriptor leads elsewhere.
#[derive(Debug)]
pub(super) struct OwnFile {
    /// There until the drop.
    file: Option<File>,
    inode: Inode,
    /// Whether it never has a name: the next file gets the inode of one without, once that is closed.
    is_unnamed: bool,
    /// Whether the program may have closed the descriptor since.
    is_watched: AtomicBool,
    /// The position of the description, or 0 if it is not marked.
    mark: AtomicU64,
    /// The simulated process that has it, if one has.
    #[cfg(all(test, not(miri)))]
    process: Option<std::sync::Arc<Process>>,
}

impl OwnFile {
    /// Takes an open file.
    pub(super) fn new(file: File) -> io::Result<Self> {
        let status = Status::of(&file)?;
        Ok(Self::known(file, status.device, status.inode))
    }

    /// Takes an open file of which the caller has asked the device and the inode.
    pub(super) fn known(file: File, device: u64, inode: u64) -> Self {
        Self {
            file: Some(file),
            inode: Inode { device, number: inode },
            is_unnamed: false,
            is_watched: AtomicBool::new(true),
            mark: AtomicU64::new(0),
            #[cfg(all(test, not(miri)))]
            process: None,
        }
    }

    /// Takes an open file for a simulated process, with which its locks end.
    #[cfg(all(test, not(miri)))]
    pub(super) fn of_process(file: File, process: &std::sync::Arc<Process>) -> io::Result<Self> {
        process.note_description(&file)?;
        let mut own = Self::new(file)?;
        own.process = Some(process.clone());
        Ok(own)
    }

    /// Takes another description of the file, for the process that has this one.
    #[cfg_attr(
        not(all(test, not(miri))),
        expect(clippy::unused_self, reason = "only a simulated process is known to its files")
    )]
    pub(super) fn again(&self, file: File) -> io::Result<Self> {
        #[cfg(all(test, not(miri)))]
        if let Some(process) = &self.process {
            return Self::of_process(file, process);
        }
        Self::new(file)
    }

    /// Takes an open file that has no name.
    pub(super) fn unnamed(file: File) -> io::Result<Self> {
        let mut own = Self::new(file)?;
        // A network file system may keep a name for a file that was deleted while it is open.
        own.is_unnamed = Status::of(&own)?.link_count == 0;
        Ok(own)
    }

    /// Returns whose claims end when a descriptor of the file is closed.
    pub(super) fn inode(&self) -> Inode {
        self.inode
    }

    /// Returns whether the file is the one that `other` was when that was opened.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.inode == other.inode
    }

    /// Takes the descriptor for its own without a look, until [`watch`](Self::watch): while one call of the
    /// program opens the handle, up to where that takes long. In so short a time another thread may close it
    /// behind a look just as well.
    pub(super) fn trust(&self) {
        self.is_watched.store(false, Ordering::Relaxed);
    }

    /// Ends [`trust`](Self::trust): the call returns to the program, or takes long.
    pub(super) fn watch(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// Marks the description, which no other handle may have, nor the program, so that a look at it is cheap.
    /// Returns its position then; `None` if it cannot be marked.
    pub(super) fn mark(&self) -> Option<u64> {
        // Without one each look asks whose the file is.
        let random = getrandom::u64().ok()?;
        let random = if mutant::is_made(Mutant::SharesMarks) { 0 } else { random };
        let mark = MARK_MIN | random & (MARK_MIN - 1);
        // A file system with smaller files refuses it.
        if rustix::fs::seek(&**self, SeekFrom::Start(mark)) != Ok(mark) {
            return None;
        }
        self.mark.store(mark, Ordering::Relaxed);
        Some(mark)
    }

    #[inline]
    fn is_marked(&self) -> bool {
        let mark = self.mark.load(Ordering::Relaxed);
        mark != 0 && rustix::fs::tell(&**self) == Ok(mark)
    }

    /// Returns the file to write to it, or an error if its descriptor leads elsewhere.
    pub(super) fn checked(&self) -> io::Result<&File> {
        #[cfg(all(test, not(miri)))]
        if self.process.as_ref().is_some_and(|process| process.is_killed()) {
            return Err(Errno::BADF.into());
        }
        let is_trusted = !self.is_watched.load(Ordering::Relaxed);
        if is_trusted || self.is_marked() || self.is_own() {
            Ok(self)
        } else {
            Err(Errno::BADF.into())
        }
    }

    /// Returns the file, wherever its descriptor leads.
    pub(super) fn into_file(mut self) -> Option<File> {
        self.file.take()
    }

    fn is_own(&self) -> bool {
        match self.file.as_ref().map(Status::of) {
            Some(Ok(found)) => {
                Inode::of(&found) == self.inode && !(self.is_unnamed && found.link_count > 0)
            }
            None => false,
            // Or its file system has failed, which the call itself will say.
            Some(Err(error)) => Errno::from_io_error(&error) != Some(Errno::BADF),
        }
    }
}

impl Deref for OwnFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.file.as_ref().expect("it is there until the drop")
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        #[cfg(all(test, not(miri)))]
        drop(self.process.take());
        let is_own = self.file.is_some() && self.checked().is_ok();
        let Some(file) = self.file.take() else { return };
        if is_own {
            self.inode.close(|| drop(file));
        } else {
            // The number may be a stranger's. The claims have ended when the program closed it.
            let _ = file.into_raw_fd();
            self.inode.renew();
        }
    }
}

/// Makes all descriptors of this process for the file at `path` refer to `stranger`, and returns
/// how many there are: as if the program had closed them and opened that file.
#[cfg(all(test, not(loom), not(miri)))]
pub(crate) fn replace_descriptors(path: &std::path::Path, stranger: &File) -> usize {
    use std::os::fd::{FromRawFd as _, OwnedFd};

    let path = path.canonicalize().expect("the file is there");
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/fd").expect("it is mounted").flatten() {
        if !std::fs::read_link(entry.path()).is_ok_and(|target| target == path) {
            continue;
        }
        let number = entry.file_name().into_string().ok().and_then(|name| name.parse().ok());
        let number = number.expect("a descriptor has a number");
        // SAFETY: the descriptor is open, and this value is never dropped.
        let mut place = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        rustix::io::dup2(stranger, &mut place).expect("nothing fails");
        count += 1;
    }
    count
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::collections::BTreeSet;
    use std::mem::ManuallyDrop;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
    use std::path::Path;
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::storage::open::open_and_lock;
    use crate::storage::waiting::Waiting;
    use crate::{ErrorKind, Options};

    /// The descriptor gets a stranger's file, as after a close and an open by the program.
    #[test]
    fn a_descriptor_that_leads_elsewhere_is_neither_written_nor_closed() {
        let own = OwnFile::new(tempfile::tempfile().unwrap()).unwrap();
        assert!(own.checked().is_ok());
        let stranger = tempfile::tempfile().unwrap();
        let number = own.as_raw_fd();
        // SAFETY: the descriptor is open, and this value is never dropped.
        let place = unsafe { OwnedFd::from_raw_fd(number) };
        let mut place = std::mem::ManuallyDrop::new(place);
        rustix::io::dup2(&stranger, &mut place).unwrap();
        assert_eq!(own.checked().unwrap_err().raw_os_error(), Some(libc::EBADF));
        own.trust();
        assert!(own.checked().is_ok(), "nobody looks within the call that opens a handle");
        own.watch();
        assert_eq!(own.checked().unwrap_err().raw_os_error(), Some(libc::EBADF));
        drop(own);
        // SAFETY: the descriptor is still open, or the next line fails.
        let number = unsafe { BorrowedFd::borrow_raw(number) };
        assert!(rustix::fs::fstat(number.as_fd()).is_ok(), "it was not closed");
    }

    fn marked() -> OwnFile {
        let own =
            OwnFile::new(tempfile::tempfile().expect("nothing fails")).expect("nothing fails");
        assert!(own.mark().is_some());
        own
    }

    /// Returns whether a marked descriptor that leads to the file of another handle counts as its own.
    fn is_taken_for_another() -> bool {
        let (own, other) = (marked(), marked());
        assert!(own.checked().is_ok() && own.is_marked());
        // SAFETY: the descriptor is open, and this value is never dropped.
        let place = unsafe { OwnedFd::from_raw_fd(own.as_raw_fd()) };
        let mut place = std::mem::ManuallyDrop::new(place);
        rustix::io::dup2(&*other, &mut place).expect("nothing fails");
        own.checked().is_ok()
    }

    #[test]
    fn a_mark_is_that_of_one_description() {
        assert!(!is_taken_for_another());
        assert!(mutant::with(Mutant::SharesMarks, is_taken_for_another));
    }

    #[test]
    fn a_file_whose_mark_has_gone_is_known_all_the_same() {
        let own = marked();
        rustix::fs::seek(&*own, SeekFrom::Start(5)).unwrap();
        assert!(!own.is_marked() && own.checked().is_ok());
    }

    /// Returns the numbers of the process that lead to a name.
    fn numbers_of(path: &Path) -> BTreeSet<RawFd> {
        let numbers = std::fs::read_dir("/proc/self/fd").expect("Linux has it").flatten();
        let leads = |at: &Path| std::fs::read_link(at).is_ok_and(|to| to == path);
        let leading = numbers.filter(|entry| leads(&entry.path()));
        leading.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    #[test]
    fn an_open_that_waits_does_not_use_a_number_that_the_program_has_given_to_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("a");
        let options = Options::new();
        let _writer = open_and_lock(&path, &options, &mut Waiting::new(&options)).unwrap();
        let (of_writer, of_wait) = (numbers_of(&path), path.clone());
        let other = File::create(dir.path().join("b")).unwrap();
        let mut looks = 0;
        let looks = Mutex::new(move || {
            looks += 1;
            let number = *numbers_of(&of_wait).difference(&of_writer).next().expect("it waits");
            if looks == 1 {
                // SAFETY: the number is open, and stays it.
                let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
                rustix::io::dup2(&other, &mut place).unwrap();
            }
            looks == 2
        });
        let options = Options::new().lock_timeout(Duration::MAX);
        let options = options.stop_waiting(move || looks.lock().unwrap()());
        let refused = open_and_lock(&path, &options, &mut Waiting::new(&options)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Locked);
        let of_other = numbers_of(&path.with_file_name("b"));
        assert_eq!(of_other.len(), 2, "the number of the other file was not closed");
    }
}
