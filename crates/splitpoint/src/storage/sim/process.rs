//! `Process`: the part of a simulated process that the kernel of this machine plays.
//!
//! The locks of handles are those of the real kernel, so that what a handle asks of its neighbours
//! runs here as it does on a file. They lie on a file of their own, of which each handle has
//! descriptions as it has of a store. That file also has the page of the reader table, which the
//! page cache of the simulated machine shows in its place, and which each process maps for itself.
//! Everything else is in the memory of the simulated machine.
//!
//! Nothing waits: a lock is tried, and all handles are of one thread.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::NamedTempFile;

use super::lock;
use crate::format::{HEADER_BYTES, READER_TABLE_BYTES, READER_TABLE_OFFSET};
use crate::storage::anon::Memory;
use crate::storage::neighbours::Neighbours;
use crate::storage::own_file::OwnFile;
use crate::storage::reader_table::ReaderTable;
use crate::storage::reservation::{Part, Protection, Reservation};

/// The file on which the handles of a machine have their locks, with the page of the reader table.
#[derive(Debug)]
pub(super) struct LockFile(NamedTempFile);

impl LockFile {
    pub(super) fn new() -> io::Result<Self> {
        // In memory if possible. It has a name, since a handle refuses a file without one.
        let file = NamedTempFile::new_in("/dev/shm").or_else(|_| NamedTempFile::new())?;
        file.as_file().set_len(HEADER_BYTES)?;
        Ok(Self(file))
    }

    fn table(&self) -> Part<'_> {
        let protection = Protection::ReadWrite;
        Part { file: self.0.as_file(), offset: READER_TABLE_OFFSET, protection }
    }

    /// Shows the page of the reader table in the view of a page cache.
    pub(super) fn show_table(&self, view: &Memory) -> io::Result<()> {
        view.show(READER_TABLE_OFFSET, READER_TABLE_BYTES, self.table())
    }
}

/// Ends [`LockFile::show_table`].
pub(super) fn hide_table(view: &Memory) -> io::Result<()> {
    view.hide(READER_TABLE_OFFSET, READER_TABLE_BYTES)
}

/// The process that has one handle: what ends with it.
#[derive(Debug)]
pub(in crate::storage) struct Process {
    is_killed: AtomicBool,
    /// A descriptor of each description that the handle has opened.
    descriptions: Mutex<Vec<File>>,
    table: Arc<Reservation>,
}

impl Process {
    /// Starts a process that opens the file.
    pub(super) fn start(file: &LockFile) -> io::Result<(Arc<Self>, Neighbours)> {
        let table = Arc::new(Reservation::of_file(READER_TABLE_BYTES, file.table())?);
        let process = Arc::new(Self {
            is_killed: AtomicBool::new(false),
            descriptions: Mutex::default(),
            table: table.clone(),
        });
        let path: &Path = file.0.path();
        let own = File::options().read(true).write(true).open(path)?;
        let own = Arc::new(OwnFile::of_process(own, &process)?);
        let neighbours = Neighbours::new(own, Arc::default());
        neighbours.set_table(ReaderTable::within(table, 0));
        Ok((process, neighbours))
    }

    /// Notes a description that the process has opened.
    pub(in crate::storage) fn note_description(&self, file: &File) -> io::Result<()> {
        let again = file.try_clone()?;
        lock(&self.descriptions).push(again);
        Ok(())
    }

    pub(in crate::storage) fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed)
    }

    /// Kills it. Its locks end, and the code of its handle, which a test still runs to drop the
    /// handle, can neither lock nor store to what others see.
    pub(super) fn kill(&self) {
        self.is_killed.store(true, Ordering::Relaxed);
        for description in lock(&self.descriptions).drain(..) {
            Neighbours::unlock(&description);
        }
        let span = self.table.span();
        let found = super::copy_from(span, 0, span.bytes);
        self.table.map_zeros(0, span.bytes).expect("the page was mapped there");
        super::copy_to(span, 0, &found);
    }
}
