//! One record: its bytes, its size and its checksum.

use crate::checksum::{crc32c, crc32c_append_words, crc32c_padded};
use crate::error::{Error, Result};
use crate::format::{Addr, u64_at};

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// `key` has `value`.
    Put = 1,
    /// The record at `prev` is deleted; the value is the 8-byte hash of its key.
    Delete = 2,
    /// The batch before this record is whole; the value is the number of its records and a checksum
    /// over theirs.
    Commit = 3,
    /// Compaction moved records. Reserved.
    Relocate = 4,
    /// The log goes on in another segment; the value is its offset and its salt.
    Link = 5,
    /// Bytes to skip. Reserved.
    Pad = 6,
    /// As `Put`, with the record in a segment of its own; the value is its offset and its size.
    BigPut = 7,
    /// The record of a big segment, named by a `BigPut`.
    Big = 8,
}

/// First 8 bytes of a record, and the optional words that may follow.
///
/// ```text
/// offset  size  field
///      0     4  crc32c of key, value and padding, then of bytes 4.. up to the key, then of the
///               segment's salt and the record's file offset, 8 bytes each
///      4     1  kind (bits 0-3): 1 put, 2 delete, 3 commit, 4 relocate, 5 link, 6 pad,
///               7 big put, 8 big; flags (bits 4-7): 4 has prev, 5 has salt, 6 in a transaction,
///               7 long
///      5     1  key length in bytes, 255 if long
///      6     2  value length in bytes, 65535 if long
///      8     8  prev, if flagged: address of the record that this one replaces
///      -     8  salt, if flagged: that of the segment with the big record (big put), or the crc32c
///               over the checksums of the copies, 4 bytes each (relocate); all but those of earlier
///               builds
///      -    16  long lengths, if flagged: key length (8 bytes), value length (8 bytes)
///      -     -  key, value, zeros up to a multiple of 8
/// ```
///
/// The payload comes first in the checksum so that it can be computed while the bucket line is
/// still on its way from memory; `prev` is known only after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) is_in_transaction: bool,
    pub(crate) prev: Option<Addr>,
    pub(crate) salt: Option<u64>,
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
}

const HAS_PREV: u8 = 1 << 4;
const HAS_SALT: u8 = 1 << 5;
const IN_TRANSACTION: u8 = 1 << 6;
const LONG: u8 = 1 << 7;

/// Size in bytes of the largest header.
pub(crate) const HEADER_BYTES_MAX: usize = 8 + 8 + 8 + 16;
/// Size in bytes of a LINK record, for which every segment keeps room.
pub(crate) const LINK_BYTES: u64 = 8 + 16;

impl RecordHeader {
    /// Returns the header of a record without optional words.
    pub(crate) fn new(kind: RecordKind, key_bytes: u64, value_bytes: u64) -> Self {
        Self { kind, is_in_transaction: false, prev: None, salt: None, key_bytes, value_bytes }
    }

    #[inline]
    fn is_long(&self) -> bool {
        self.key_bytes >= 255 || self.value_bytes >= 65535
    }

    /// Returns the size of the header in bytes: where the key begins.
    #[inline]
    pub(crate) fn header_bytes(&self) -> u64 {
        8 + if self.prev.is_some() { 8 } else { 0 }
            + if self.salt.is_some() { 8 } else { 0 }
            + if self.is_long() { 16 } else { 0 }
    }

    /// Returns the size of the whole record in bytes, a multiple of 8.
    #[inline(always)]
    pub(crate) fn record_bytes(&self) -> u64 {
        (self.header_bytes() + self.key_bytes + self.value_bytes).next_multiple_of(8)
    }

    /// Writes the header with a checksum of zero and returns its bytes in use.
    #[inline]
    pub(crate) fn encode(&self, out: &mut [u8; HEADER_BYTES_MAX]) -> usize {
        debug_assert!(u32::try_from(self.key_bytes).is_ok());
        debug_assert!(u32::try_from(self.value_bytes).is_ok());
        debug_assert!(self.prev.is_none_or(|prev| prev.0 != 0 && prev.0 >> Addr::BITS == 0));
        let is_long = self.is_long();
        let mut flags = self.kind as u8;
        let mut at = 8;
        let mut word = |value: u64| {
            out[at..at + 8].copy_from_slice(&value.to_le_bytes());
            at += 8;
        };
        if let Some(prev) = self.prev {
            flags |= HAS_PREV;
            word(prev.0);
        }
        if let Some(salt) = self.salt {
            flags |= HAS_SALT;
            word(salt);
        }
        if is_long {
            flags |= LONG;
            word(self.key_bytes);
            word(self.value_bytes);
        }
        if self.is_in_transaction {
            flags |= IN_TRANSACTION;
        }
        let (key, value) = if is_long { (255, 65535) } else { (self.key_bytes, self.value_bytes) };
        debug_assert_eq!(at as u64, self.header_bytes());
        let first = u64::from(flags) << 32 | key << 40 | value << 48;
        out[..8].copy_from_slice(&first.to_le_bytes());
        at
    }

    /// Returns the size of the header that begins with the word `first`, in bytes.
    #[inline]
    pub(crate) fn bytes_of_first(first: u64) -> u64 {
        let flags = (first >> 32) as u8;
        let words = (flags & (HAS_PREV | HAS_SALT)).count_ones() + 2 * u32::from(flags >> 7);
        8 + 8 * u64::from(words)
    }

    /// Decodes the header at `offset`, from all of its bytes; nothing has vouched for them. The
    /// record it announces has at most `room` bytes.
    #[inline]
    pub(crate) fn decode(bytes: &[u8], room: u64, offset: u64) -> Result<Self> {
        let Some(first) = bytes.first_chunk() else {
            return Err(corrupt("record header", offset, 8, bytes.len() as u64));
        };
        let first = u64::from_le_bytes(*first);
        let flags = (first >> 32) as u8;
        let kind = match flags & 0xf {
            1 => RecordKind::Put,
            2 => RecordKind::Delete,
            3 => RecordKind::Commit,
            4 => RecordKind::Relocate,
            5 => RecordKind::Link,
            6 => RecordKind::Pad,
            7 => RecordKind::BigPut,
            8 => RecordKind::Big,
            other => return Err(corrupt("record kind", offset + 4, 1, other.into())),
        };
        let mut header = Self {
            kind,
            is_in_transaction: flags & IN_TRANSACTION != 0,
            prev: None,
            salt: None,
            key_bytes: first >> 40 & 0xff,
            value_bytes: first >> 48,
        };
        if flags & (HAS_PREV | HAS_SALT | LONG) != 0 {
            header.decode_words(bytes, flags, offset)?;
        } else if header.is_long() {
            return Err(corrupt("record lengths", offset + 5, LONG.into(), flags.into()));
        }
        if header.record_bytes() > room {
            return Err(corrupt("record size", offset + 5, room, header.record_bytes()));
        }
        debug_assert_eq!(header.header_bytes(), Self::bytes_of_first(first));
        Ok(header)
    }

    fn decode_words(&mut self, bytes: &[u8], flags: u8, offset: u64) -> Result<()> {
        let mut words = bytes.chunks_exact(8).skip(1).map(|word| u64_at(word, 0));
        let mut word =
            || words.next().ok_or(corrupt("record header", offset, 40, bytes.len() as u64));
        if flags & HAS_PREV != 0 {
            let prev = word()?;
            if prev == 0 || prev >> Addr::BITS != 0 {
                return Err(corrupt("record prev", offset + 8, 1 << Addr::BITS, prev));
            }
            self.prev = Some(Addr(prev));
        }
        if flags & HAS_SALT != 0 {
            self.salt = Some(word()?);
        }
        if flags & LONG != 0 {
            (self.key_bytes, self.value_bytes) = (word()?, word()?);
            let most = u64::from(u32::MAX);
            if !self.is_long() || self.key_bytes > most || self.value_bytes > most {
                let found = self.key_bytes.max(self.value_bytes);
                return Err(corrupt("record lengths", offset + 5, most, found));
            }
        } else if self.is_long() {
            return Err(corrupt("record lengths", offset + 5, LONG.into(), flags.into()));
        }
        Ok(())
    }
}

/// The sizes of a record that says nothing but a key and a value, perhaps with `prev`: nearly all
/// of them, read from its first word alone.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "units last")]
pub(crate) struct ShortPut {
    pub(crate) header_bytes: u64,
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
}

impl ShortPut {
    /// Returns the sizes of the record that begins with the word `first`, if it is such a record.
    #[inline]
    pub(crate) fn of_first(first: u64) -> Option<Self> {
        let flags = (first >> 32) as u8;
        let (key_bytes, value_bytes) = (first >> 40 & 0xff, first >> 48);
        let is_short = flags & !(HAS_PREV | IN_TRANSACTION) == RecordKind::Put as u8
            && key_bytes != 255
            && value_bytes != 65535;
        let header_bytes = 8 + u64::from(flags & HAS_PREV) / 2;
        is_short.then_some(Self { header_bytes, key_bytes, value_bytes })
    }

    /// Returns the size of the whole record in bytes.
    #[inline]
    pub(crate) fn record_bytes(self) -> u64 {
        (self.header_bytes + self.key_bytes + self.value_bytes).next_multiple_of(8)
    }
}

const _: () = assert!(HAS_PREV / 2 == 8);

/// A key and its value in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

fn corrupt(what: &'static str, offset: u64, expected: u64, found: u64) -> Error {
    Error::Corrupt { what, offset, expected, found }
}

/// Begins the checksum of a record with its key, its value and its padding, as long as it is whatever the
/// header: that has whole words.
#[inline]
pub(crate) fn payload_crc(key: &[u8], value: &[u8]) -> u32 {
    crc32c_padded(key, value)
}

/// Ends the checksum of a record: header without its first 4 bytes, salt, file offset.
#[inline]
pub(crate) fn finish_crc(payload: u32, header: &[u8], salt: u64, offset: u64) -> u32 {
    debug_assert!(header.len() <= HEADER_BYTES_MAX && header.len().is_multiple_of(8));
    crc32c_append_words(payload, &header[4..], [salt, offset])
}

/// A record whose header has been decoded and whose bytes lie within its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) header: RecordHeader,
    /// Exactly the bytes of the record.
    pub(crate) bytes: &'a [u8],
    /// Where it is in the file.
    pub(crate) offset: u64,
}

impl<'a> Record<'a> {
    /// Returns the address.
    #[inline]
    pub(crate) fn addr(&self) -> Addr {
        Addr::of_offset(self.offset)
    }

    /// Returns the key.
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        debug_assert_eq!(self.bytes.len() as u64, self.header.record_bytes());
        let start = self.header.header_bytes() as usize;
        &self.bytes[start..start + self.header.key_bytes as usize]
    }

    /// Returns the value.
    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        debug_assert_eq!(self.bytes.len() as u64, self.header.record_bytes());
        let start = (self.header.header_bytes() + self.header.key_bytes) as usize;
        &self.bytes[start..start + self.header.value_bytes as usize]
    }

    /// Returns the checksum that the record states.
    #[inline]
    pub(crate) fn crc(&self) -> u32 {
        crate::format::u32_at(self.bytes, 0)
    }

    /// Checks the checksum under the salt of the record's segment.
    #[inline]
    pub(crate) fn verify(&self, salt: u64) -> Result<()> {
        debug_assert!(self.offset.is_multiple_of(8), "a record begins at a multiple of 8");
        let start = self.header.header_bytes() as usize;
        let payload = crc32c(&self.bytes[start..]);
        let expected = finish_crc(payload, &self.bytes[..start], salt, self.offset);
        let found = self.crc();
        if expected == found {
            return Ok(());
        }
        Err(corrupt("record checksum", self.offset, expected.into(), found.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a record as the log does, for an `offset` of 64 and a salt of 7.
    fn write(header: RecordHeader, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut head = [0; HEADER_BYTES_MAX];
        let len = header.encode(&mut head);
        let mut bytes = [&head[..len], key, value].concat();
        let pad = header.record_bytes() as usize - bytes.len();
        bytes.resize(bytes.len() + pad, 0);
        let crc = finish_crc(payload_crc(key, value), &head[..len], 7, 64);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Record<'_>> {
        let header = RecordHeader::decode(bytes, bytes.len() as u64, 64)?;
        Ok(Record { header, bytes: &bytes[..header.record_bytes() as usize], offset: 64 })
    }

    fn round_trip(prev: Option<Addr>, salt: Option<u64>, key_bytes: usize, value_bytes: usize) {
        let (key, value) = (vec![b'k'; key_bytes], vec![b'v'; value_bytes]);
        let header = RecordHeader {
            prev,
            salt,
            ..RecordHeader::new(RecordKind::Put, key_bytes as u64, value_bytes as u64)
        };
        let bytes = write(header, &key, &value);
        let record = decode(&bytes).unwrap();
        assert_eq!(record.header, header);
        assert_eq!((record.key(), record.value()), (&key[..], &value[..]));
        record.verify(7).unwrap();
        assert!(record.verify(8).is_err(), "another segment's salt");
    }

    #[test]
    fn every_shape_of_record_survives_the_round_trip() {
        for prev in [None, Some(Addr(9)), Some(Addr((1 << 40) - 1))] {
            for salt in [None, Some(8)] {
                for key_bytes in [0, 1, 7, 8, 254, 255, 256, 70_000] {
                    for value_bytes in [0, 1, 8, 100, 65_534, 65_535, 65_536] {
                        round_trip(prev, salt, key_bytes, value_bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_noticed() {
        let header =
            RecordHeader { prev: Some(Addr(77)), ..RecordHeader::new(RecordKind::Put, 3, 5) };
        let bytes = write(header, b"key", b"value");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            flipped.resize(flipped.len() + 512, 0); // A longer record may fit its segment.
            let verified = decode(&flipped).and_then(|record| record.verify(7));
            assert!(verified.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn short_puts_are_read_from_their_first_word() {
        for (prev, key_bytes, value_bytes) in
            [(None, 0, 0), (None, 254, 65_534), (Some(Addr(5)), 16, 100), (Some(Addr(5)), 3, 0)]
        {
            let header =
                RecordHeader { prev, ..RecordHeader::new(RecordKind::Put, key_bytes, value_bytes) };
            let mut head = [0; HEADER_BYTES_MAX];
            header.encode(&mut head);
            let short = ShortPut::of_first(u64_at(&head, 0)).expect("a short put");
            assert_eq!(short.header_bytes, header.header_bytes());
            assert_eq!(short.record_bytes(), header.record_bytes());
            assert_eq!((short.key_bytes, short.value_bytes), (key_bytes, value_bytes));
        }
        for header in [
            RecordHeader::new(RecordKind::Put, 255, 0),
            RecordHeader::new(RecordKind::Put, 0, 65_535),
            RecordHeader::new(RecordKind::Big, 1, 1),
            RecordHeader::new(RecordKind::Delete, 0, 8),
            RecordHeader { salt: Some(8), ..RecordHeader::new(RecordKind::Put, 1, 1) },
        ] {
            let mut head = [0; HEADER_BYTES_MAX];
            header.encode(&mut head);
            assert!(ShortPut::of_first(u64_at(&head, 0)).is_none(), "{header:?}");
        }
    }

    #[test]
    fn a_small_new_pair_costs_eight_bytes_of_header() {
        assert_eq!(RecordHeader::new(RecordKind::Put, 8, 8).record_bytes(), 24);
        assert_eq!(RecordHeader::new(RecordKind::Link, 0, 16).record_bytes(), LINK_BYTES);
    }

    #[test]
    fn arbitrary_bytes_never_announce_a_record_outside_them() {
        let mut state = 1_u64;
        for _ in 0..100_000 {
            let mut bytes = [0; 48];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            if let Ok(record) = decode(&bytes) {
                assert!(record.bytes.len() <= bytes.len());
                let _ = (record.key(), record.value());
            }
        }
    }
}
