//! A file behind FUSE that records every write and every flush in order.
//!
//! A loop device on it, in direct mode, passes on what the block layer sends to a device: each
//! request as one write, each flush as an fsync. The process that serves the file is this test
//! binary, started again with an environment variable. It must not be the process that waits for
//! the file system on the device, or neither could end.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};

/// Name of the file in the directory where it is served.
pub(super) const FILE_NAME: &str = "device";

/// The offset of a flush in the log.
const FLUSH: u64 = u64::MAX;
const HEADER_BYTES: usize = 16;
/// How long the kernel may cache the attributes, which never change.
const FOREVER: Duration = Duration::from_secs(1 << 20);

/// A request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    Write { offset: u64, bytes: &'a [u8] },
    Flush,
}

/// The log after reading it. A position in it is a number of bytes.
#[derive(Debug)]
pub(super) struct Log(Vec<u8>);

impl Log {
    pub(super) fn read(path: &Path) -> Self {
        Self(fs::read(path).expect("the log is ours"))
    }

    /// Returns the events with the positions at which each ends, in order.
    pub(super) fn events(&self) -> impl Iterator<Item = (Event<'_>, u64)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let header = self.0.get(at..at + HEADER_BYTES)?;
            let [offset, len] =
                [0, 8].map(|at| u64::from_le_bytes(*header[at..].first_chunk().expect("8 bytes")));
            at += HEADER_BYTES;
            let bytes = &self.0[at..at + len as usize];
            at += bytes.len();
            let event = if offset == FLUSH { Event::Flush } else { Event::Write { offset, bytes } };
            Some((event, at as u64))
        })
    }
}

/// The one file, served to the kernel.
#[derive(Debug)]
struct LoggedFile {
    /// The contents, for reads.
    content: File,
    log: Mutex<File>,
    bytes: u64,
}

impl LoggedFile {
    /// Adds an event to the log before acknowledging it.
    fn add(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        let len = bytes.len() as u64;
        let event = [&offset.to_le_bytes()[..], &len.to_le_bytes(), bytes].concat();
        self.log.lock().unwrap_or_else(PoisonError::into_inner).write_all(&event)
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_root = inode == INodeNo::ROOT;
        FileAttr {
            ino: inode,
            size: if is_root { 0 } else { self.bytes },
            blocks: self.bytes / 512,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: 0o700,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for LoggedFile {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == FILE_NAME {
            reply.entry(&FOREVER, &self.attributes(INodeNo(2)), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = u64::from(size).min(self.bytes.saturating_sub(offset));
        let mut bytes = vec![0; size as usize];
        match self.content.read_exact_at(&mut bytes, offset) {
            Ok(()) => reply.data(&bytes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.add(offset, bytes).and_then(|()| self.content.write_all_at(bytes, offset)) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.add(FLUSH, &[]) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }
}

/// Serves the file `content` under `directory` until that is unmounted, and writes a log.
pub(super) fn serve(directory: &Path, content: &Path, log: &Path) -> std::io::Result<()> {
    let content = OpenOptions::new().read(true).write(true).open(content)?;
    let bytes = content.metadata()?.len();
    let log = Mutex::new(File::create(log)?);
    fuser::mount(LoggedFile { content, log, bytes }, directory, &Config::default())
}
