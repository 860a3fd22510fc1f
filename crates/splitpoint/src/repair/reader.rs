//! `Reader`: the damaged file, block by block where the disk cannot read all of it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::RepairProgress;
use crate::error::{Error, Result};
use crate::format::{FILE_BYTES_MAX, GRANULE_BYTES};
use crate::storage::raw::ReadAt;

/// The damaged file, and the caller's function that hears how far the work is.
pub(super) struct Reader<'a> {
    pub(super) source: &'a dyn ReadAt,
    watch: &'a mut dyn FnMut(RepairProgress) -> ControlFlow<()>,
    /// What was reported last.
    progress: RepairProgress,
    /// Blocks that could not be read.
    pub(super) unreadable: BTreeSet<u64>,
    pub(super) verified_bytes: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        source: &'a dyn ReadAt,
        watch: &'a mut dyn FnMut(RepairProgress) -> ControlFlow<()>,
    ) -> Self {
        let bytes_total = source.file_bytes().min(FILE_BYTES_MAX);
        let progress = RepairProgress { phase: "search", records: 0, bytes: 0, bytes_total };
        Self { source, watch, progress, unreadable: BTreeSet::new(), verified_bytes: 0 }
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.source.file_bytes().min(FILE_BYTES_MAX)
    }

    /// Reads `bytes` of the file, all inside it, into `buf`. What the disk cannot read is zero.
    pub(super) fn read(&mut self, offset: u64, bytes: u64, buf: &mut Vec<u8>) {
        buf.clear();
        buf.resize(bytes as usize, 0);
        if bytes == 0 || self.source.read_exact_at(offset, buf).is_ok() {
            return;
        }
        let mut at = offset;
        while at < offset + bytes {
            let end = (at / GRANULE_BYTES * GRANULE_BYTES + GRANULE_BYTES).min(offset + bytes);
            let block = &mut buf[(at - offset) as usize..(end - offset) as usize];
            if self.source.read_exact_at(at, block).is_err() {
                block.fill(0);
                self.unreadable.insert(at / GRANULE_BYTES);
            }
            at = end;
        }
    }

    /// Tells how far the work is.
    pub(super) fn advance(&mut self, phase: &'static str, records: u64, bytes: u64) -> Result<()> {
        let bytes_total = self.file_bytes();
        let bytes = bytes.min(bytes_total);
        self.progress = RepairProgress { phase, records, bytes, bytes_total };
        self.ask()
    }

    /// Tells again how far the work is, which has nothing new to say, and asks whether to go on.
    pub(super) fn ask(&mut self) -> Result<()> {
        match (self.watch)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Io {
                action: "finish the repair of",
                path: self.source.path().to_path_buf(),
                source: std::io::ErrorKind::Interrupted.into(),
            }),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ops::Range;
    use std::path::Path;

    use super::*;
    use crate::repair::repair_in_memory;
    use crate::{Options, SimDisk};

    /// A file with blocks that the disk cannot read.
    #[derive(Debug)]
    struct Failing {
        bytes: Vec<u8>,
        unreadable: Range<u64>,
    }

    impl ReadAt for Failing {
        fn path(&self) -> &Path {
            self.bytes.path()
        }

        fn file_bytes(&self) -> u64 {
            self.bytes.file_bytes()
        }

        fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
            let end = offset + buf.len() as u64;
            if offset < self.unreadable.end && self.unreadable.start < end {
                return Err(std::io::Error::from_raw_os_error(5));
            }
            self.bytes.read_exact_at(offset, buf)
        }
    }

    #[test]
    fn a_block_that_cannot_be_read_costs_what_is_in_it() {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new()).unwrap();
        for i in 0..500_u32 {
            db.put(&i.to_le_bytes(), &[7; 92]).unwrap();
        }
        db.close().unwrap();
        let unreadable = 65_536 + 8192..65_536 + 12_288;
        let source = Failing { bytes: disk.file(), unreadable };
        let (db, report) = repair_in_memory(&source, &Options::new()).unwrap();
        // Records of 104 bytes: 4096 bytes are at least a part of 40 and at most of 41.
        assert!((500 - 41..=500 - 40).contains(&db.len()), "{report:?}");
        assert_eq!((report.unreadable_count, report.damaged_count), (1, 1), "{report:?}");
        assert!(!report.is_whole() && report.is_end_known, "{report:?}");
    }
}
