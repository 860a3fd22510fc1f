//! Descriptors as a program sees them: with its flags, and perhaps closed under us.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use libc::{O_ACCMODE, O_CLOEXEC, O_RDONLY, c_int, mode_t};
use rustix::io::{DupFlags, FdFlags, dup3, fcntl_setfd};

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
    /// `None` only while it is dropped.
    file: Option<File>,
    device: u64,
    inode: u64,
}

impl Descriptor {
    /// Takes a file; a program that is executed has its descriptor too, unless `flags` say otherwise.
    pub(crate) fn new(file: File, flags: Flags) -> io::Result<Self> {
        let on_exec = if flags.has(O_CLOEXEC) { FdFlags::CLOEXEC } else { FdFlags::empty() };
        fcntl_setfd(&file, on_exec)?;
        let metadata = file.metadata()?;
        Ok(Self { file: Some(file), device: metadata.dev(), inode: metadata.ino() })
    }

    /// Opens the file at `path`, which may be anything.
    pub(crate) fn open(path: &Path, flags: Flags) -> io::Result<Self> {
        Self::new(flags.existing().custom_flags(libc::O_NONBLOCK).open(path)?, flags)
    }

    pub(crate) fn number(&self) -> RawFd {
        self.file.as_ref().map_or(-1, File::as_raw_fd)
    }

    /// Gives the number of this descriptor to another file: a program that has it has the new file.
    pub(crate) fn lead_to(&mut self, file: File, flags: Flags) -> io::Result<()> {
        let new = Self::new(file, flags)?;
        let on_exec = if flags.has(O_CLOEXEC) { DupFlags::CLOEXEC } else { DupFlags::empty() };
        let Some(old) = self.file.take() else { return Ok(()) };
        let mut number = OwnedFd::from(old);
        let given = new.file.as_ref().map(|file| dup3(file, &mut number, on_exec));
        self.file = Some(number.into());
        (self.device, self.inode) = (new.device, new.inode);
        given.transpose()?;
        Ok(())
    }

    fn is_ours(&self, file: &File) -> bool {
        let same = |it: std::fs::Metadata| (it.dev(), it.ino()) == (self.device, self.inode);
        file.metadata().is_ok_and(same)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if !self.is_ours(&file) {
            // The program has closed it, and the number may be another file's.
            let _ = file.into_raw_fd();
        }
    }
}
