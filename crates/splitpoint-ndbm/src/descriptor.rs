//! Descriptors as a program sees them: with its flags, and perhaps closed under us.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use libc::{O_ACCMODE, O_CLOEXEC, O_RDONLY, c_int, mode_t};
use splitpoint::Status;
use splitpoint_ffi::{CutWatch, Identity, close_descriptor, replace_descriptor, set_close_on_exec};

/// What a program asks for when it opens a database: flags and mode of open(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flags {
    pub(crate) bits: c_int,
    pub(crate) mode: mode_t,
}

impl Flags {
    pub(crate) fn has(self, flag: c_int) -> bool {
        self.bits & flag == flag
    }

    /// Returns whether changes are allowed. To only write, as a program may ask, is to do both.
    pub(crate) fn may_write(self) -> bool {
        self.bits & O_ACCMODE != O_RDONLY
    }

    /// Returns how an existing file is opened.
    pub(crate) fn existing(self) -> OpenOptions {
        let mut options = File::options();
        options.read(true).write(self.may_write()).mode(self.mode & 0o7777);
        options
    }

    /// Returns how a new file is created.
    pub(crate) fn new_file(self) -> OpenOptions {
        let mut options = self.existing();
        options.write(true).create_new(true);
        options
    }
}

/// A file whose descriptor the program may have, use, and close.
#[derive(Debug)]
pub(crate) struct Descriptor {
    /// `None` while it is dropped, and after its number could not be given to another file.
    file: Option<File>,
    identity: Identity,
}

impl Descriptor {
    /// Takes a file; a program that is executed has its descriptor too, unless `flags` say otherwise.
    pub(crate) fn new(file: File, flags: Flags) -> io::Result<Self> {
        set_close_on_exec(file.as_raw_fd(), flags.has(O_CLOEXEC));
        let identity = Identity::of_file(&file)?;
        Ok(Self { file: Some(file), identity })
    }

    /// Opens the file at `path`, which may be anything.
    pub(crate) fn open(path: &Path, flags: Flags) -> io::Result<Self> {
        Self::new(flags.existing().custom_flags(libc::O_NONBLOCK).open(path)?, flags)
    }

    pub(crate) fn number(&self) -> RawFd {
        self.file.as_ref().map_or(-1, File::as_raw_fd)
    }

    /// Returns which file it is.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the size of the file, or `EBADF` if the program has closed this descriptor.
    pub(crate) fn file_bytes(&self) -> io::Result<u64> {
        let closed = || io::Error::from_raw_os_error(libc::EBADF);
        Ok(Status::of(self.identity.checked(self.file.as_ref().ok_or_else(closed)?)?)?.bytes)
    }

    /// Remembers which store the file holds.
    pub(crate) fn watch(&self) -> CutWatch {
        CutWatch::of(self.file.as_ref())
    }

    /// Returns whether a stranger has cut the file of a store.
    pub(crate) fn is_cut(&self, watch: &CutWatch) -> bool {
        watch.is_cut(self.file.as_ref(), self.identity)
    }

    /// Does the same once in a tick of the clock.
    pub(crate) fn sees_cut(&self, watch: &mut CutWatch) -> bool {
        watch.sees_cut(self.file.as_ref(), self.identity)
    }

    /// Returns another descriptor of the file, or `EBADF` if the program has closed this one.
    pub(crate) fn try_clone(&self) -> io::Result<File> {
        let closed = || io::Error::from_raw_os_error(libc::EBADF);
        self.identity.checked(self.file.as_ref().ok_or_else(closed)?)?.try_clone()
    }

    /// Gives the number of this descriptor to another file: a program that has it has the new file.
    pub(crate) fn lead_to(&mut self, file: &File, flags: Flags) -> io::Result<()> {
        let identity = Identity::of_file(file)?;
        let was = std::mem::replace(&mut self.identity, identity);
        let file = match self.file.take() {
            Some(old) => replace_descriptor(old, was, file)?,
            None => file.try_clone()?,
        };
        set_close_on_exec(file.as_raw_fd(), flags.has(O_CLOEXEC));
        self.file = Some(file);
        Ok(())
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            let _ = close_descriptor(file, self.identity);
        }
    }
}
