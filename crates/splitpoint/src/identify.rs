//! What a file is, by its first bytes: for the message that says it is not a store.

use crate::format::{LIVE_MAGIC, LIVE_OFFSET};

/// Returns a name for what begins with `head`, the first bytes of a file of `file_bytes`.
pub(crate) fn identify(head: &[u8], file_bytes: u64) -> &'static str {
    let magic_at = |offset: usize, magic: &[u8]| {
        head.get(offset..).is_some_and(|rest| rest.starts_with(magic))
    };
    let known: [(usize, &[u8], &'static str); 12] = [
        (0, b"SQLite format 3\0", "an SQLite file"),
        (0, &[0xce, 0x9a, 0x57, 0x13], "a gdbm file"),
        (0, &[0xcf, 0x9a, 0x57, 0x13], "a gdbm file"),
        (0, &[0x13, 0x57, 0x9a, 0xce], "a gdbm file"),
        (12, &[0x61, 0x15, 0x06, 0x00], "a Berkeley DB hash file"),
        (12, &[0x62, 0x31, 0x05, 0x00], "a Berkeley DB btree file"),
        (0, &[0x61, 0x15, 0x06, 0x00], "a db 1.85 hash file"),
        (0, &[0x00, 0x06, 0x15, 0x61], "a db 1.85 hash file"),
        (0, b"TDB file\n", "a tdb file"),
        (16, &[0xde, 0xc0, 0xef, 0xbe], "an LMDB file"),
        (0, b"redb", "a redb file"),
        (0, b"KC\n", "a Kyoto Cabinet file"),
    ];
    if file_bytes == 0 {
        return "an empty file";
    }
    if let Some((_, _, name)) =
        known.into_iter().find(|(offset, magic, _)| magic_at(*offset, magic))
    {
        return name;
    }
    let (zeros, rest) = head.split_at(head.len().min(LIVE_OFFSET as usize));
    if zeros.iter().all(|&byte| byte == 0) && rest.starts_with(&LIVE_MAGIC.to_le_bytes()) {
        return "a store whose creation was interrupted";
    }
    if head.iter().all(|&byte| byte == 0) {
        return "a file that begins with zeros";
    }
    if std::str::from_utf8(head).is_ok_and(|text| !text.contains('\0')) {
        return "text";
    }
    "other data"
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn well_known_files_are_named() {
        assert_eq!(identify(b"SQLite format 3\0...", 100), "an SQLite file");
        assert_eq!(identify(b"#!/bin/sh\n", 10), "text");
        assert_eq!(identify(&[0; 64], 64), "a file that begins with zeros");
        assert_eq!(identify(&[], 0), "an empty file");
        assert_eq!(identify(&[1, 0, 255], 3), "other data");
        let mut unfinished = vec![0; 16_384];
        unfinished[LIVE_OFFSET as usize..][..8].copy_from_slice(&LIVE_MAGIC.to_le_bytes());
        assert_eq!(identify(&unfinished, 20_480), "a store whose creation was interrupted");
    }
}
