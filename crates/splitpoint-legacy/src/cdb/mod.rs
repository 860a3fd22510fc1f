//! cdb, Bernstein's constant database.
//!
//! ```text
//! 256 times  | start of table | slots |         numbers of four bytes, lowest first
//! record     | key bytes | value bytes | key | value |
//! table      | hash | place of the record, or 0 |  one after the other
//! ```
//!
//! The lowest 8 bits of a hash name the table. The others, modulo its slots, name the slot with
//! which a lookup begins; it ends at an empty one. A key may have several records.
//!
//! # Source
//!
//! D. J. Bernstein, "cdb: structure", <https://cr.yp.to/cdb/cdb.txt>.

mod reader;
mod writer;

pub(crate) use self::reader::{CdbFile, is_cdb};
pub use self::writer::CdbWriter;

const TABLES: usize = 256;
/// Bytes of a place and a length, of a slot, and of what precedes the key of a record.
const PAIR_BYTES: u64 = 8;
const HEAD_BYTES: usize = TABLES * PAIR_BYTES as usize;

/// The hash function: from 5381, times 33, exclusive or the byte.
fn hash(key: &[u8]) -> u32 {
    key.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33) ^ u32::from(byte))
}

/// Returns the two numbers in 8 bytes.
fn pair_of(bytes: [u8; PAIR_BYTES as usize]) -> (u32, u32) {
    let number = u64::from_le_bytes(bytes);
    (number as u32, (number >> 32) as u32)
}

/// Returns the 8 bytes of two numbers.
fn bytes_of(first: u32, second: u32) -> [u8; PAIR_BYTES as usize] {
    (u64::from(first) | u64::from(second) << 32).to_le_bytes()
}

/// Returns where a lookup begins in a table.
fn first_slot(hash: u32, slots: u64) -> u64 {
    u64::from(hash >> 8) % slots.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes by tinycdb, from the slots of the files that it made.
    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(hash(b""), 5381);
        assert_eq!(hash(b"a"), 177_604);
        assert_eq!(bytes_of(1, 2), [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(pair_of(bytes_of(u32::MAX, 7)), (u32::MAX, 7));
    }
}
