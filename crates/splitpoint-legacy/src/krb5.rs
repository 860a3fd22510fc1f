//! Kerberos 5's libdb2 hash files, version 3: the "Berkeley DB 2.0-ALPHA" that was never released.
//!
//! They have the magic number of db 1.85 but another format, in which each page has a header with
//! its number, the next page and a type.
//!
//! ```text
//! page     | number | next | pairs | type | free | key, value offsets ... | ... values and keys |
//! big page | number | next | pairs | type | free | key bytes, value bytes | key | value |
//! ```
//!
//! # Source
//!
//! Facts about the format, and sample files.

use splitpoint::hash;
use splitpoint::linear::Geometry;
use splitpoint::{Error, Result};

use crate::Source;
use crate::byte_order::ByteOrder;
use crate::chain::{Pages, ceil_log2};
use crate::db185::{Shape, extent_of, flaw_of_spares, records_of};
use crate::identity::Identity;
use crate::reader::{Budget, Fault, Homes, Item, Loose, Parameter, Piece, Reader, Unit, or_fault};
use crate::stated::Stated;

const HEADER_BYTES: usize = 248;
const PAGE_HEADER_BYTES: usize = 14;
/// Offset of keys and values on a big page.
const BIG_HEADER_BYTES: usize = 18;
/// The next page of the last page of a chain.
const NO_PAGE: u32 = u32::MAX;
/// Types of pages.
const BUCKET: u8 = 2;
const BIG: u8 = 3;
const OVERFLOW: u8 = 4;
/// Hash of the probe by the default function.
const PROBE_HASH: u32 = 0x956e_7de3;

/// An open file.
#[derive(Debug)]
pub(crate) struct Krb5File {
    identity: Identity,
    pages: Pages,
    order: ByteOrder,
    header_pages: u64,
    geometry: Geometry,
    fill_factor: u32,
    key_count: u32,
    spares: [u32; 32],
    is_hash_known: bool,
    faults: Vec<Fault>,
    stated: Stated,
}

impl Krb5File {
    pub(crate) fn open(source: Source, identity: Identity) -> Result<Self> {
        let mut head = [0; HEADER_BYTES];
        source.read_at(0, &mut head)?;
        // The header is big-endian, whatever the order of the pages.
        let field = |at| ByteOrder::Big.u32_at(&head, at);
        let order = match field(8) {
            1234 => ByteOrder::Little,
            4321 => ByteOrder::Big,
            other => return Err(Fault::new("byte order", 8, 1234, u64::from(other)).into()),
        };
        let page_bytes = field(12);
        if !page_bytes.is_power_of_two() || !(64..=1 << 16).contains(&page_bytes) {
            return Err(Fault::new("page size", 12, 4096, u64::from(page_bytes)).into());
        }
        let max_bucket = u64::from(field(28));
        let geometry = Geometry::with_bucket_count(max_bucket + 1);
        let mut faults = Vec::new();
        let masks = [(32, "high mask", geometry.level() + 1), (36, "low mask", geometry.level())];
        for (at, what, bits) in masks {
            // A table with a power of two of buckets may be at the end of one doubling or at the
            // start of the next.
            let expected = (1_u64 << bits) - 1;
            let found = u64::from(field(at));
            if found != expected && !(geometry.split() == 0 && found == expected >> 1) {
                faults.push(Fault::new(what, at as u64, expected, found));
            }
        }
        let mut spares = [0; 32];
        for (index, spare) in spares.iter_mut().enumerate() {
            *spare = field(56 + 4 * index);
        }
        let key_count = field(44);
        let shape = Shape {
            page_bytes,
            header_pages: field(48),
            max_bucket: field(28),
            low_mask: field(36),
            high_mask: field(32),
            split_point: field(20),
            spares,
            bitmaps: std::array::from_fn(|index| ByteOrder::Big.u16_at(&head, 184 + 2 * index)),
        };
        let extent = match flaw_of(&shape) {
            None => Some(extent_of(&source, &shape, order, 28)?),
            Some(flaw) => {
                faults.push(flaw);
                None
            }
        };
        Ok(Self {
            identity,
            order,
            pages: Pages { source, page_bytes: page_bytes as usize },
            header_pages: u64::from(shape.header_pages),
            geometry,
            fill_factor: field(40),
            key_count,
            spares,
            is_hash_known: field(52) == PROBE_HASH,
            faults,
            stated: Stated { records: records_of(key_count), extent },
        })
    }

    fn page_of_bucket(&self, bucket: u64) -> u64 {
        let before = match bucket {
            0 => 0,
            _ => u64::from(self.spares[(ceil_log2(bucket + 1) - 1).min(31) as usize]),
        };
        bucket + self.header_pages + before
    }

    /// Returns the page of an overflow address, which has the split point in the high bits and the
    /// number of the page in the low bits.
    fn page_of_address(&self, address: u64) -> u64 {
        let (split_point, number) = (address >> 11, address & 0x7ff);
        self.page_of_bucket((1 << split_point.min(32)) - 1) + number
    }

    fn next_of(&self, page: &[u8]) -> Option<u64> {
        let next = self.order.u32_at(page, 4);
        (next != NO_PAGE).then_some(u64::from(next))
    }

    /// Reads the pairs in the first `present` bytes of the page at `offset` in the file.
    fn pairs_of(&self, page: &[u8], offset: u64, present: usize, unit: &mut Unit) {
        let mut end = page.len();
        let pair_count = usize::from(self.order.u16_at(page, 8));
        for index in 0..pair_count {
            let at = PAGE_HEADER_BYTES + 4 * index;
            if at + 4 > page.len() {
                let most = (page.len() - PAGE_HEADER_BYTES) / 4;
                let fault =
                    Fault::new("pairs of a page", offset + 8, most as u64, pair_count as u64);
                return unit.faults.push(fault);
            }
            let key = usize::from(self.order.u16_at(page, at));
            let value = usize::from(self.order.u16_at(page, at + 2));
            if key == 0 {
                let first = Piece::Pages { page: self.page_of_address(value as u64), bytes: None };
                unit.items.push(Item::of(first.clone(), first));
                continue;
            }
            if key > end || value > key || value < at + 4 {
                let fault =
                    Fault::new("offset in a page", offset + at as u64, end as u64, key as u64);
                return unit.faults.push(fault);
            }
            if end <= present {
                unit.items.push(Item::of(
                    Piece::Here(page[key..end].to_vec()),
                    Piece::Here(page[value..key].to_vec()),
                ));
            }
            end = value;
        }
    }
}

impl Reader for Krb5File {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn source(&self) -> &Source {
        &self.pages.source
    }

    /// The pages of further buckets would be beyond the end of the file.
    fn unit_count(&self) -> u64 {
        self.geometry.bucket_count().min(self.pages.count())
    }

    fn faults(&self) -> &[Fault] {
        &self.faults
    }

    fn stated(&self) -> Stated {
        self.stated
    }

    fn unit(&self, index: u64, budget: &Budget) -> Result<Unit> {
        let first = self.page_of_bucket(index);
        if let Some(absent) = self.pages.absent(first) {
            return Ok(absent);
        }
        let mut unit = Unit { is_in_use: true, ..Unit::default() };
        let mut is_first = true;
        let walked = self.pages.walk(first, budget, |number, page| {
            let offset = self.pages.offset_of(number);
            if page[10] == 0 && is_first {
                // A hole, where nothing was ever written. Only the first page of a chain can be
                // one.
                return Ok(None);
            }
            if page[10] != BUCKET && page[10] != OVERFLOW {
                return Err(wrong_type(offset, BUCKET, page[10]));
            }
            unit.overflow_pages += u64::from(!is_first);
            is_first = false;
            self.pairs_of(page, offset, page.len(), &mut unit);
            Ok(self.next_of(page))
        });
        unit.faults.extend(or_fault(walked)?.err());
        Ok(unit)
    }

    fn homes(&self, key: &[u8]) -> Homes {
        if !self.is_hash_known {
            return Homes::UNKNOWN;
        }
        let bucket = self.geometry.bucket_of(u64::from(hash::x33(key))).0;
        Homes::of(bucket, bucket)
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter::new("bsize", self.pages.page_bytes),
            Parameter::new("lorder", if self.order == ByteOrder::Little { 1234 } else { 4321 }),
            Parameter::new("ffactor", self.fill_factor),
            Parameter::new("max_bucket", self.geometry.bucket_count() - 1),
            Parameter::new("nkeys", self.key_count),
            Parameter::new("hash", if self.is_hash_known { "default" } else { "another" }),
        ]
    }

    fn hash_name(&self) -> &'static str {
        if self.is_hash_known { "x33" } else { "" }
    }

    fn hash_of(&self, key: &[u8]) -> Option<u64> {
        self.is_hash_known.then(|| u64::from(hash::x33(key)))
    }

    fn linear_bucket_count(&self) -> Option<u64> {
        self.is_hash_known.then(|| self.geometry.bucket_count())
    }
}

impl Loose for Krb5File {
    fn page_behind(&self, number: u64, budget: &Budget) -> Result<Unit> {
        let mut unit = Unit::default();
        let Ok(page) = or_fault(self.pages.read(number, budget))? else { return Ok(unit) };
        match page[10] {
            BUCKET | OVERFLOW => {
                self.pairs_of(&page, self.pages.offset_of(number), page.len(), &mut unit);
            }
            BIG => unit.overflow_pages = 1,
            _ => {}
        }
        Ok(unit)
    }

    fn loose_units(
        &self,
        budget: &Budget,
        visit: &mut dyn FnMut(Unit) -> Result<()>,
    ) -> Result<()> {
        self.pages.each(self.header_pages, budget, |number, page, present| {
            let mut unit = Unit::default();
            if page[10] == BUCKET || page[10] == OVERFLOW {
                self.pairs_of(page, self.pages.offset_of(number), present, &mut unit);
            }
            visit(unit)
        })
    }

    fn pages(
        &self,
        first: u64,
        _bytes: Option<u64>,
        is_key: bool,
        budget: &Budget,
    ) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.pages.walk(first, budget, |number, page| {
            let offset = self.pages.offset_of(number);
            if page[10] != BIG {
                return Err(wrong_type(offset, BIG, page[10]));
            }
            let key_end = BIG_HEADER_BYTES + usize::from(self.order.u16_at(page, 14));
            let value_end = key_end + usize::from(self.order.u16_at(page, 16));
            if value_end > page.len() {
                let (expected, found) = (page.len() as u64, value_end as u64);
                return Err(Fault::new("end of a pair", offset + 14, expected, found).into());
            }
            let part = if is_key { BIG_HEADER_BYTES..key_end } else { key_end..value_end };
            bytes.extend_from_slice(&page[part]);
            // The value begins where the key ends.
            let is_complete = is_key && value_end > key_end;
            Ok(self.next_of(page).filter(|_| !is_complete))
        })?;
        Ok(bytes)
    }
}

/// Returns the fault in the counts of overflow pages, which give the places of pages.
fn flaw_of(shape: &Shape) -> Option<Fault> {
    let rounds = ceil_log2(u64::from(shape.max_bucket) + 1);
    if !(rounds..32).contains(&shape.split_point) {
        return Some(Fault::new("split point", 20, rounds.into(), shape.split_point.into()));
    }
    let flaw = flaw_of_spares(shape)?;
    let (expected, found) = (flaw.expected.into(), flaw.found.into());
    Some(Fault::new("count of overflow pages", 56 + 4 * flaw.index, expected, found))
}

fn wrong_type(page_offset: u64, expected: u8, found: u8) -> Error {
    Fault::new("type of a page", page_offset + 10, u64::from(expected), u64::from(found)).into()
}
