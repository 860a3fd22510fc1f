//! The header of a file: its layout, encoding, decoding and validation.

use std::path::Path;

use splitpoint::{Error, FileKind, Result, Unsupported};

use super::addresses::{BITMAP_PAGES_MAX, POSITION_MASK, SPLIT_POINTS, Shape, clog2};
use crate::ByteOrder::{self, Big};

const MAGIC: u32 = 0x0006_1561;
/// The version that the library writes; it reads 1 too.
const VERSION: u32 = 2;
const LITTLE: u32 = 1234;
const BIG: u32 = 4321;

/// Smallest page that the library reads, in bytes.
const PAGE_BYTES_MIN: u32 = 16;
/// Largest page, in bytes. An offset of 65536 does not fit a slot.
pub(super) const PAGE_BYTES_MAX: u32 = 32768;

/// The fill factor that the first overflowing bucket decides.
pub(super) const FILL_FACTOR_UNDECIDED: u32 = 65536;

/// Found behind the header while a sync changes buckets that were there before: see `flush`.
const INTERRUPTED: u32 = 0x5350_5421;

/// The header of a file.
///
/// | offset | bytes | what |
/// |---|---|---|
/// | 0 | 4 | magic 0x00061561 |
/// | 4 | 4 | version: 2, or 1 |
/// | 8 | 4 | byte order of pages and bitmaps: 1234 or 4321 |
/// | 12 | 4 | bytes of a page, a power of two |
/// | 16 | 4 | log2 of that |
/// | 20 | 4 | size of the original's directory in memory |
/// | 24 | 4 | size of its segments in memory: 256 |
/// | 28 | 4 | log2 of that |
/// | 32 | 4 | split point at which overflow pages are allocated |
/// | 36 | 4 | bit at which to look for a free overflow page |
/// | 40 | 4 | highest bucket |
/// | 44 | 4 | mask of a hash for the round that has begun |
/// | 48 | 4 | mask for the buckets that it has not yet divided |
/// | 52 | 4 | fill factor; 65536: decide at the first overflow |
/// | 56 | 4 | number of keys; not reliable |
/// | 60 | 4 | pages of the header |
/// | 64 | 4 | hash of the probe key |
/// | 68 | 128 | overflow pages up to and including each of 32 split points |
/// | 196 | 64 | overflow addresses of 32 bitmaps, 2 bytes each |
/// | 260 | 4 | ours, ignored by others: 0x53505421 while a sync changes old buckets, else 0 |
///
/// All numbers are big-endian, whatever the byte order of the pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) byte_order: ByteOrder,
    pub(super) last_freed: u32,
    pub(super) fill_factor: u32,
    pub(super) record_count: u32,
    pub(super) probe_hash: u32,
    pub(super) is_interrupted: bool,
    pub(super) shape: Shape,
}

impl Header {
    /// Bytes to read and write: the header and the word behind it.
    pub(super) const BYTES: usize = 264;

    /// Returns the number of pages that a header takes in a new file.
    pub(super) fn pages(page_bytes: u32) -> u32 {
        512_u32.div_ceil(page_bytes)
    }

    /// Returns the bytes of this header.
    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let shape = &self.shape;
        let buckets = u64::from(shape.max_bucket) + 1;
        let directory = buckets.div_ceil(256).next_power_of_two().max(256);
        let words = [
            MAGIC,
            VERSION,
            if self.byte_order == Big { BIG } else { LITTLE },
            shape.page_bytes,
            shape.page_bytes.ilog2(),
            u32::try_from(directory).unwrap_or(u32::MAX),
            256,
            8,
            shape.split_point,
            self.last_freed,
            shape.max_bucket,
            shape.high_mask,
            shape.low_mask,
            self.fill_factor,
            self.record_count,
            shape.header_pages,
            self.probe_hash,
        ];
        let spares = shape.spares.iter().copied();
        let words = words.into_iter().chain(spares).flat_map(|word| Big.bytes_of_u32(word));
        let halves = shape.bitmaps.iter().flat_map(|&addr| Big.bytes_of_u16(addr));
        let mark = if self.is_interrupted { INTERRUPTED } else { 0 };
        let mut bytes = [0; Self::BYTES];
        let encoded = words.chain(halves).chain(Big.bytes_of_u32(mark));
        for (to, from) in bytes.iter_mut().zip(encoded) {
            *to = from;
        }
        bytes
    }

    /// Decodes and validates the first bytes of the file at `path`.
    ///
    /// # Errors
    ///
    /// [`Error::NotAStore`], [`Error::Version`], [`Error::Unsupported`] or [`Error::Corrupt`].
    pub(super) fn decode(bytes: &[u8; Self::BYTES], path: &Path) -> Result<Self> {
        let word = |offset: usize| Big.u32([0, 1, 2, 3].map(|i| bytes[offset + i]));
        let path = path.to_path_buf();
        if word(0) != MAGIC {
            // Zeros stand for the missing bytes of a shorter file.
            let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            let found = FileKind::of_content(&bytes[..end], end as u64);
            return Err(Error::NotAStore { path, found });
        }
        match word(4) {
            1 | 2 => {}
            3 => {
                let reason = "it is a hash file of krb5's libdb2, which this library only \
                              reads: convert it";
                let (feature, reason) = (Unsupported::Format, reason.to_string());
                return Err(Error::Unsupported { path, feature, reason });
            }
            found => return Err(Error::Version { path, expected: VERSION, found }),
        }
        let byte_order = match word(8) {
            LITTLE => ByteOrder::Little,
            BIG => Big,
            found => return Err(corrupt("byte order", 8, LITTLE, found)),
        };
        let page_bytes = word(12);
        if page_bytes == 2 * PAGE_BYTES_MAX {
            let reason = "it has pages of 65536 bytes, for which the format has no offsets";
            let (feature, reason) = (Unsupported::Format, reason.to_string());
            return Err(Error::Unsupported { path, feature, reason });
        }
        let shape = Shape {
            page_bytes,
            header_pages: word(60),
            max_bucket: word(40),
            low_mask: word(48),
            high_mask: word(44),
            split_point: word(32),
            spares: std::array::from_fn(|i| word(68 + 4 * i)),
            bitmaps: std::array::from_fn(|i| Big.u16([bytes[196 + 2 * i], bytes[197 + 2 * i]])),
        };
        validate(&shape, word(16))?;
        Ok(Self {
            byte_order,
            last_freed: word(36),
            fill_factor: word(52),
            record_count: word(56),
            probe_hash: word(64),
            is_interrupted: shape.header_pages * page_bytes >= Self::BYTES as u32
                && word(260) == INTERRUPTED,
            shape,
        })
    }
}

/// Checks every field that could lead to a wrong address.
fn validate(shape: &Shape, page_bits: u32) -> Result<()> {
    let page_bytes = shape.page_bytes;
    if !page_bytes.is_power_of_two() || !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes) {
        return Err(corrupt("page size", 12, PAGE_BYTES_MAX, page_bytes));
    }
    if page_bits != page_bytes.ilog2() {
        return Err(corrupt(
            "binary logarithm of the page size",
            16,
            page_bytes.ilog2(),
            page_bits,
        ));
    }
    let split_point = shape.split_point;
    if split_point as usize >= SPLIT_POINTS {
        return Err(corrupt("split point", 32, SPLIT_POINTS as u32 - 1, split_point));
    }
    let (low_mask, high_mask) = (shape.low_mask, shape.high_mask);
    if high_mask.checked_add(1).is_some_and(|next| !next.is_power_of_two()) || high_mask == 0 {
        return Err(corrupt("high mask", 44, low_mask << 1 | 1, high_mask));
    }
    if low_mask != high_mask >> 1 {
        return Err(corrupt("low mask", 48, high_mask >> 1, low_mask));
    }
    if !(low_mask..=high_mask).contains(&shape.max_bucket) {
        return Err(corrupt("highest bucket", 40, high_mask, shape.max_bucket));
    }
    if clog2(u64::from(shape.max_bucket) + 1) > split_point {
        let expected = clog2(u64::from(shape.max_bucket) + 1);
        return Err(corrupt("split point", 32, expected, split_point));
    }
    let header_pages = Header::pages(page_bytes);
    if shape.header_pages != header_pages {
        return Err(corrupt("pages of the header", 60, header_pages, shape.header_pages));
    }
    match flaw_of_spares(shape) {
        Some(Flaw { index, expected, found }) => {
            Err(corrupt("count of overflow pages", 68 + 4 * index, expected, found))
        }
        None => Ok(()),
    }
}

/// An impossible count of overflow pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) index: u64,
    pub(crate) expected: u32,
    pub(crate) found: u32,
}

/// Returns the first of the counts of overflow pages up to the split point, which is one that a
/// header has room for, that an address cannot express.
pub(crate) fn flaw_of_spares(shape: &Shape) -> Option<Flaw> {
    let mut before = 0;
    for (index, &found) in (0..).zip(&shape.spares[..=shape.split_point as usize]) {
        if !(before..=before + POSITION_MASK).contains(&found) {
            return Some(Flaw { index, expected: before, found });
        }
        before = found;
    }
    let (bits_max, found) = (shape.bitmap_bits() * BITMAP_PAGES_MAX, shape.overflow_count());
    let flaw = Flaw { index: shape.split_point.into(), expected: bits_max, found };
    (found > bits_max).then_some(flaw)
}

fn corrupt(what: &'static str, offset: u64, expected: u32, found: u32) -> Error {
    Error::Corrupt { what, offset, expected: expected.into(), found: found.into() }
}

#[cfg(test)]
mod tests {
    use splitpoint::ErrorKind;

    use super::*;

    fn header() -> Header {
        let mut shape = Shape::new(512, Header::pages(512), 9);
        for _ in 0..20 {
            shape.grow();
            shape.extend();
        }
        Header {
            byte_order: ByteOrder::Little,
            last_freed: 2,
            fill_factor: 8,
            record_count: 77,
            probe_hash: 0x956e_7de3,
            is_interrupted: true,
            shape,
        }
    }

    fn decode(bytes: &[u8; Header::BYTES]) -> Result<Header> {
        Header::decode(bytes, Path::new("a.db"))
    }

    #[test]
    fn a_header_comes_back_as_it_was() {
        for byte_order in ByteOrder::ALL {
            let header = Header { byte_order, ..header() };
            assert_eq!(decode(&header.encode()).unwrap(), header);
        }
    }

    #[test]
    fn a_word_that_cannot_be_is_refused_with_its_place() {
        for (offset, word, what) in [
            (8, 1235, "byte order"),
            (12, 500, "page size"),
            (12, 8, "page size"),
            (12, 1 << 31, "page size"),
            (16, 10, "binary logarithm"),
            (32, 32, "split point"),
            (32, 0, "split point"),
            (32, u32::MAX, "split point"),
            (40, 64, "highest bucket"),
            (40, 3, "highest bucket"),
            (44, 62, "high mask"),
            (44, 0, "high mask"),
            (44, u32::MAX - 1, "high mask"),
            (48, 63, "low mask"),
            (60, 0, "pages of the header"),
            (60, u32::MAX, "pages of the header"),
            (68, u32::MAX, "count of overflow pages"),
            (68 + 4 * 5, 1 << 20, "count of overflow pages"),
        ] {
            let mut bytes = header().encode();
            bytes[offset..offset + 4].copy_from_slice(&Big.bytes_of_u32(word));
            let error = decode(&bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{offset} {error}");
            assert!(error.to_string().starts_with(&format!("corrupt {what}")), "{error}");
        }
    }

    #[test]
    fn other_kinds_of_file_are_told_apart() {
        for (offset, word, kind) in [
            (0, 0x0005_3162, ErrorKind::NotAStore),
            (4, 3, ErrorKind::Unsupported),
            (4, 4, ErrorKind::Version),
            (12, 65536, ErrorKind::Unsupported),
        ] {
            let mut bytes = header().encode();
            bytes[offset..offset + 4].copy_from_slice(&Big.bytes_of_u32(word));
            assert_eq!(decode(&bytes).unwrap_err().kind(), kind);
        }
        let mut bytes = header().encode();
        bytes[4..8].copy_from_slice(&Big.bytes_of_u32(1));
        assert_eq!(decode(&bytes).unwrap(), header());
    }
}
