//! Recognizes a file that is not a store by its first bytes, to name it in the error message.

use crate::file_kind::FileKind;
use crate::format::{LIVE_MAGIC, LIVE_OFFSET};

impl FileKind {
    /// Returns the kind of a regular file of `file_bytes` that begins with `head`.
    ///
    /// A `head` of 16 KiB is enough; a shorter one may not suffice to recognize the file. It does
    /// not recognize stores.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint::FileKind;
    ///
    /// assert_eq!(FileKind::of_content(b"SQLite format 3\0", 4096), FileKind::Sqlite);
    /// ```
    pub fn of_content(head: &[u8], file_bytes: u64) -> Self {
        let magic_at = |offset: usize, magic: &[u8]| {
            head.get(offset..).is_some_and(|rest| rest.starts_with(magic))
        };
        let known: [(usize, &[u8], Self); 13] = [
            (0, b"SQLite format 3\0", Self::Sqlite),
            // The mark of gdbm: a damaged store, since this recognizes no others.
            (0, &crate::format::GDBM_MAGIC, Self::Other),
            (0, &[0xce, 0x9a, 0x57, 0x13], Self::Gdbm),
            (0, &[0xcf, 0x9a, 0x57, 0x13], Self::Gdbm),
            (0, &[0x13, 0x57, 0x9a, 0xce], Self::Gdbm),
            (12, &[0x61, 0x15, 0x06, 0x00], Self::BerkeleyDbHash),
            (12, &[0x62, 0x31, 0x05, 0x00], Self::BerkeleyDbBtree),
            (0, &[0x61, 0x15, 0x06, 0x00], Self::Db185Hash),
            (0, &[0x00, 0x06, 0x15, 0x61], Self::Db185Hash),
            (0, b"TDB file\n", Self::Tdb),
            (16, &[0xde, 0xc0, 0xef, 0xbe], Self::Lmdb),
            (0, b"redb", Self::Redb),
            (0, b"KC\n", Self::KyotoCabinet),
        ];
        if file_bytes == 0 {
            return Self::Empty;
        }
        if let Some((_, _, kind)) =
            known.into_iter().find(|(offset, magic, _)| magic_at(*offset, magic))
        {
            return kind;
        }
        let (zeros, rest) = head.split_at(head.len().min(LIVE_OFFSET as usize));
        if zeros.iter().all(|&byte| byte == 0) && rest.starts_with(&LIVE_MAGIC.to_le_bytes()) {
            return Self::UnfinishedStore;
        }
        if is_cdb(head, file_bytes) {
            return Self::Cdb;
        }
        if head.iter().all(|&byte| byte == 0) {
            return Self::BeginsWithZeros;
        }
        if std::str::from_utf8(head).is_ok_and(|text| !text.contains('\0')) {
            return Self::Text;
        }
        Self::Other
    }
}

/// Returns whether this is a cdb file, which has no magic number: 256 tables behind the records, each
/// where the one before ends, and the last ends with the file.
fn is_cdb(head: &[u8], file_bytes: u64) -> bool {
    const TABLES: usize = 256;
    const SLOT_BYTES: u64 = 8;
    let (words, _) = head.as_chunks::<4>();
    let mut tables = words.as_chunks::<2>().0.iter().take(TABLES).map(|pair| {
        let [start, slots] = pair.map(|word| u64::from(u32::from_le_bytes(word)));
        (start, start + SLOT_BYTES * slots)
    });
    let Some((first, mut end)) = tables.next() else { return false };
    let is_chain = tables.len() == TABLES - 1
        && tables.all(|(start, next)| start == std::mem::replace(&mut end, next));
    is_chain && first >= TABLES as u64 * SLOT_BYTES && end == file_bytes
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn well_known_files_are_named() {
        let name = |head: &[u8], file_bytes| FileKind::of_content(head, file_bytes).to_string();
        assert_eq!(name(b"SQLite format 3\0...", 100), "an SQLite file");
        assert_eq!(name(b"#!/bin/sh\n", 10), "text");
        assert_eq!(name(&[0; 64], 64), "a file that begins with zeros");
        assert_eq!(name(&[], 0), "an empty file");
        assert_eq!(name(&[1, 0, 255], 3), "other data");
        // An empty cdb: all tables are behind the 2,048 bytes of their addresses, and have no slots.
        let cdb = [0, 8, 0, 0, 0, 0, 0, 0].repeat(256);
        assert_eq!(name(&cdb, 2048), "a cdb file");
        assert_eq!(name(&cdb, 2049), "other data");
        let mut unfinished = vec![0; 16_384];
        unfinished[LIVE_OFFSET as usize..][..8].copy_from_slice(&LIVE_MAGIC.to_le_bytes());
        assert_eq!(name(&unfinished, 20_480), "a store whose creation was interrupted");
    }
}
