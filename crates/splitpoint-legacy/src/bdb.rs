//! Berkeley DB 3.1 to 18, hash: versions 7 to 10.
//!
//! ```text
//! page 0   | header of every database | buckets, masks, spares |
//! page     | lsn | number | previous | next | pairs | free | level | type | offsets ... | items |
//!          | a checksum is between them and the offsets, if the database has checksums
//! item     | 1 | bytes |              a key or a value
//!          | 2 | length, value, length ... |   the values of one key
//!          | 3 | page, length |       on its overflow pages
//!          | 4 | page |               the values of one key, in their tree
//! ```
//!
//! # Source
//!
//! Published descriptions of the format, for readers of RPM's databases; files of Berkeley DB 5.3.
//! Written from the layout.

use splitpoint::hash;
use splitpoint::linear::Geometry;
use splitpoint::{Error, Result, Unsupported};

use crate::Source;
use crate::byte_order::ByteOrder;
use crate::chain::{Pages, ceil_log2};
use crate::identity::Identity;
use crate::reader::{Budget, Fault, Homes, Item, Parameter, Piece, Reader, Unit, or_fault};
use crate::stated::{Counted, Extent, Stated, StatedBy};

const HEADER_BYTES: usize = 512;

/// Where the checksum of the header is, and that of a page.
const HEADER_CHECKSUM_AT: usize = 492;
const PAGE_CHECKSUM_AT: usize = 28;

/// Versions whose pages are as described above.
const VERSIONS: std::ops::RangeInclusive<u32> = 7..=10;

/// Types of pages.
mod page_type {
    pub(super) const NONE: u8 = 0;
    pub(super) const HASH_UNSORTED: u8 = 2;
    pub(super) const INTERNAL: u8 = 3;
    pub(super) const INTERNAL_RECNO: u8 = 4;
    pub(super) const LEAF_RECNO: u8 = 6;
    pub(super) const OVERFLOW: u8 = 7;
    pub(super) const LEAF_DUPLICATES: u8 = 12;
    pub(super) const HASH: u8 = 13;
}

/// Types of items.
mod item_type {
    pub(super) const HERE: u8 = 1;
    pub(super) const DUPLICATES: u8 = 2;
    pub(super) const OVERFLOW: u8 = 3;
    pub(super) const DUPLICATE_TREE: u8 = 4;
}

/// A deleted item of a leaf has this bit in its type.
const DELETED: u8 = 0x80;

/// More levels than any tree of duplicates has.
const LEVELS_MAX: u32 = 32;

/// The hash function of a file, identified by its hash of the probe key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    /// FNV without its start value: the default since version 5.
    Fnv,
    /// The default before.
    X33,
    Unknown,
}

impl Function {
    fn of_probe(found: u32) -> Self {
        let fits = |function: &Self| function.hash(hash::PROBE_KEY) == Some(found);
        [Self::Fnv, Self::X33].into_iter().find(fits).unwrap_or(Self::Unknown)
    }

    fn hash(self, key: &[u8]) -> Option<u32> {
        match self {
            Self::Fnv => Some(fnv(key)),
            Self::X33 => Some(hash::x33(key)),
            Self::Unknown => None,
        }
    }
}

/// FNV-1, 32 bits, from 0.
fn fnv(key: &[u8]) -> u32 {
    const PRIME: u32 = 16_777_619;
    key.iter().fold(0, |hash: u32, &byte| hash.wrapping_mul(PRIME) ^ u32::from(byte))
}

/// An open file.
#[derive(Debug)]
pub(crate) struct BdbFile {
    identity: Identity,
    pages: Pages,
    order: ByteOrder,
    version: u32,
    /// Where the offsets of a page begin: after its header, and a checksum if pages have one.
    page_header_bytes: usize,
    has_checksums: bool,
    geometry: Geometry,
    fill_factor: u32,
    flags: u32,
    spares: [u32; 32],
    function: Function,
    faults: Vec<Fault>,
    stated: Stated,
}

impl BdbFile {
    pub(crate) fn open(source: Source, identity: Identity) -> Result<Self> {
        const CHECKSUM: u8 = 1;
        let mut head = [0; HEADER_BYTES];
        source.read_at(0, &mut head)?;
        let order = identity.byte_order.unwrap_or(ByteOrder::Little);
        let field = |at| order.u32_at(&head, at);
        let found = field(16);
        if !VERSIONS.contains(&found) {
            let (path, expected) = (identity.path, *VERSIONS.end());
            return Err(Error::Version { path, expected, found });
        }
        if head[24] != 0 {
            let reason = "its pages are encrypted".to_string();
            let feature = Unsupported::Encryption;
            return Err(Error::Unsupported { path: identity.path, feature, reason });
        }
        if head[26] & !CHECKSUM != 0 {
            let reason = "it is one of several partitions of a database".to_string();
            let feature = Unsupported::Other;
            return Err(Error::Unsupported { path: identity.path, feature, reason });
        }
        let page_bytes = field(20);
        if !page_bytes.is_power_of_two() || !(512..=1 << 16).contains(&page_bytes) {
            return Err(Fault::new("page size", 20, 4096, u64::from(page_bytes)).into());
        }
        let has_checksums = head[26] & CHECKSUM != 0;
        let mut faults = Vec::new();
        if has_checksums {
            faults.extend(wrong_checksum(order, &head, HEADER_CHECKSUM_AT));
        }
        let geometry = Geometry::with_bucket_count(u64::from(field(72)) + 1);
        let mut spares = [0; 32];
        for (index, spare) in spares.iter_mut().enumerate() {
            *spare = field(96 + 4 * index);
        }
        let mut file = Self {
            identity,
            pages: Pages { source, page_bytes: page_bytes as usize },
            order,
            version: found,
            page_header_bytes: if has_checksums { 32 } else { 26 },
            has_checksums,
            geometry,
            fill_factor: field(84),
            flags: field(48),
            spares,
            function: Function::of_probe(field(92)),
            faults,
            stated: Stated::default(),
        };
        // Earlier versions lack it.
        let last_page = (found >= 8).then(|| u64::from(field(32)));
        file.stated.extent = Some(file.extent(last_page));
        Ok(file)
    }

    /// Computes the length that the file must have. Every bucket has its page, because Berkeley DB
    /// creates those of a complete doubling at once.
    fn extent(&self, last_page: Option<u64>) -> Extent {
        let needed = self.page_of_bucket(self.geometry.bucket_count() - 1) + 1;
        let known = last_page.map(|last_page| needed.max(last_page + 1));
        let found = self.pages.whole_count();
        Extent {
            counted: Counted::Pages,
            stated_by: StatedBy::Header,
            at: 72,
            unit_bytes: self.pages.page_bytes as u64,
            needed,
            stated: known.unwrap_or(needed),
            known,
            found,
            has_more: known.is_some_and(|known| known < found),
        }
    }

    fn page_of_bucket(&self, bucket: u64) -> u64 {
        bucket + u64::from(self.spares[ceil_log2(bucket + 1).min(31) as usize])
    }

    /// Returns the fault in the checksum of a page. A page that was never written has none.
    fn wrong_checksum(&self, page: &[u8], number: u64) -> Option<Fault> {
        if !self.has_checksums || page.iter().all(|&byte| byte == 0) {
            return None;
        }
        let fault = wrong_checksum(self.order, page, PAGE_CHECKSUM_AT)?;
        Some(Fault { offset: self.pages.offset_of(number) + fault.offset, ..fault })
    }

    fn next_of(&self, page: &[u8]) -> Option<u64> {
        let next = self.order.u32_at(page, 16);
        (next != 0).then_some(u64::from(next))
    }

    /// Returns the offset of item `index` of a page.
    fn start_of(&self, page: &[u8], index: usize) -> usize {
        usize::from(self.order.u16_at(page, self.page_header_bytes + 2 * index))
    }

    /// Returns the number of items that have an offset on the page.
    fn item_count(&self, page: &[u8]) -> usize {
        let room = (page.len() - self.page_header_bytes) / 2;
        usize::from(self.order.u16_at(page, 20)).min(room)
    }

    /// Reads the pairs in the first `present` bytes of a page.
    fn pairs_of(
        &self,
        (page, present): (&[u8], usize),
        number: u64,
        unit: &mut Unit,
        budget: &Budget,
    ) -> Result<()> {
        let offset = self.pages.offset_of(number);
        let item_count = self.item_count(page);
        if item_count != usize::from(self.order.u16_at(page, 20)) || item_count % 2 == 1 {
            let found = u64::from(self.order.u16_at(page, 20));
            unit.faults.push(Fault::new("items of a page", offset + 20, item_count as u64, found));
        }
        let mut end = page.len();
        for index in (0..item_count & !1).step_by(2) {
            let at = (self.page_header_bytes + 2 * index) as u64;
            let (key, value) = (self.start_of(page, index), self.start_of(page, index + 1));
            let least = self.page_header_bytes + 2 * item_count;
            if key >= end || value >= key || value < least {
                let fault = Fault::new("offset in a page", offset + at, end as u64, key as u64);
                unit.faults.push(fault);
                return Ok(());
            }
            if end <= present {
                let at = offset + value as u64;
                match self.pair(&page[key..end], &page[value..key], budget)? {
                    Ok(item) => unit.items.push(item),
                    Err(fault) => unit.faults.push(Fault { offset: at, ..fault }),
                }
            }
            end = value;
        }
        Ok(())
    }

    /// Decodes the two items of a pair.
    fn pair(&self, key: &[u8], value: &[u8], budget: &Budget) -> Result<Result<Item, Fault>> {
        let key = match key {
            [item_type::HERE, bytes @ ..] => Piece::Here(bytes.to_vec()),
            [item_type::OVERFLOW, ..] if key.len() >= 12 => self.overflow(key),
            [other, ..] => return Ok(Err(unknown_item(*other))),
            [] => return Ok(Err(unknown_item(0))),
        };
        let (value, further_values) = match value {
            [item_type::HERE, bytes @ ..] => (Piece::Here(bytes.to_vec()), 0),
            [item_type::OVERFLOW, ..] if value.len() >= 12 => (self.overflow(value), 0),
            [item_type::DUPLICATES, values @ ..] => match self.duplicates(values) {
                Ok((first, further)) => (Piece::Here(first), further),
                Err(fault) => return Ok(Err(fault)),
            },
            [item_type::DUPLICATE_TREE, ..] if value.len() >= 8 => {
                let root = u64::from(self.order.u32_at(value, 4));
                match or_fault(self.tree(root, budget))? {
                    Ok((first, further)) => (first, further),
                    Err(fault) => return Ok(Err(fault)),
                }
            }
            [other, ..] => return Ok(Err(unknown_item(*other))),
            [] => return Ok(Err(unknown_item(0))),
        };
        Ok(Ok(Item { key, value, further_values }))
    }

    fn overflow(&self, item: &[u8]) -> Piece {
        let page = u64::from(self.order.u32_at(item, 4));
        Piece::Pages { page, bytes: Some(u64::from(self.order.u32_at(item, 8))) }
    }

    /// Returns the first of several values in a row, each between two copies of its length, and
    /// the number of further ones.
    fn duplicates(&self, values: &[u8]) -> Result<(Vec<u8>, u64), Fault> {
        let (mut first, mut count, mut at) = (None, 0, 0);
        while at < values.len() {
            let bytes = usize::from(self.order.u16_at(values, at));
            let Some(value) = values.get(at + 2..at + 2 + bytes) else {
                let (expected, found) = (values.len() as u64, (at + 2 + bytes) as u64);
                return Err(Fault::new("duplicate value", 0, expected, found));
            };
            first.get_or_insert_with(|| value.to_vec());
            count += 1;
            at += 4 + bytes;
        }
        let first = first.ok_or(Fault::new("duplicate value", 0, 1, 0))?;
        Ok((first, count - 1))
    }

    /// Returns the first value of a tree of duplicates, and the number of further ones.
    fn tree(&self, root: u64, budget: &Budget) -> Result<(Piece, u64)> {
        let mut number = root;
        for _ in 0..LEVELS_MAX {
            let page = self.pages.read(number, budget)?;
            let item = self.start_of(&page, 0);
            number = match page[25] {
                page_type::LEAF_DUPLICATES | page_type::LEAF_RECNO => {
                    return self.leaves(number, budget);
                }
                page_type::INTERNAL => u64::from(self.order.u32_at(&page, item + 4)),
                page_type::INTERNAL_RECNO => u64::from(self.order.u32_at(&page, item)),
                other => return Err(self.wrong_type(number, page_type::LEAF_DUPLICATES, other)),
            };
        }
        let (at, levels) = (self.pages.offset_of(root), u64::from(LEVELS_MAX));
        Err(Fault::new("tree of duplicates", at, levels, levels + 1).into())
    }

    fn leaves(&self, first: u64, budget: &Budget) -> Result<(Piece, u64)> {
        let (mut value, mut count) = (None, 0_u64);
        self.pages.walk(first, budget, |number, page| {
            for index in 0..self.item_count(page) {
                let at = self.start_of(page, index);
                let (bytes, kind) = (self.order.u16_at(page, at), page.get(at + 2).copied());
                let Some(kind) = kind.filter(|kind| kind & DELETED == 0) else { continue };
                count += 1;
                if value.is_some() {
                    continue;
                }
                let offset = self.pages.offset_of(number) + at as u64;
                value = Some(if kind == item_type::OVERFLOW {
                    self.overflow(page.get(at..).unwrap_or_default())
                } else {
                    let run = page.get(at + 3..at + 3 + usize::from(bytes));
                    let fault = Fault::new("duplicate value", offset, 0, u64::from(bytes));
                    Piece::Here(run.ok_or(fault)?.to_vec())
                });
            }
            Ok(self.next_of(page))
        })?;
        let missing = Fault::new("tree of duplicates", self.pages.offset_of(first), 1, 0);
        Ok((value.ok_or(missing)?, count - 1))
    }

    fn wrong_type(&self, page: u64, expected: u8, found: u8) -> Error {
        let at = self.pages.offset_of(page) + 25;
        Fault::new("type of a page", at, u64::from(expected), u64::from(found)).into()
    }
}

/// Compares the checksum at `at` with that of the bytes, whose checksum field counts as 0.
fn wrong_checksum(order: ByteOrder, bytes: &[u8], at: usize) -> Option<Fault> {
    let found = order.u32_at(bytes, at);
    let mut sound = bytes.to_vec();
    sound[at..at + 4].fill(0);
    let expected = hash::x33(&sound);
    let fault = Fault::new("checksum", at as u64, u64::from(expected), u64::from(found));
    (expected != found).then_some(fault)
}

fn unknown_item(found: u8) -> Fault {
    Fault::new("type of an item", 0, u64::from(item_type::HERE), u64::from(found))
}

impl Reader for BdbFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn source(&self) -> &Source {
        &self.pages.source
    }

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
            match page[25] {
                // Created with its doubling, and not used since.
                page_type::NONE if is_first && page.iter().all(|&byte| byte == 0) => {
                    return Ok(None);
                }
                page_type::HASH | page_type::HASH_UNSORTED => {}
                other => return Err(self.wrong_type(number, page_type::HASH, other)),
            }
            let found = u64::from(self.order.u32_at(page, 8));
            if found != number {
                let at = self.pages.offset_of(number) + 8;
                unit.faults.push(Fault::new("number of a page", at, number, found));
            }
            unit.overflow_pages += u64::from(!is_first);
            is_first = false;
            // Only a salvage reads a page with a wrong checksum.
            match self.wrong_checksum(page, number) {
                Some(fault) => unit.faults.push(fault),
                None => self.pairs_of((page, page.len()), number, &mut unit, budget)?,
            }
            Ok(self.next_of(page))
        });
        unit.faults.extend(or_fault(walked)?.err());
        Ok(unit)
    }

    fn page_behind(&self, number: u64, budget: &Budget) -> Result<Unit> {
        let mut unit = Unit::default();
        let Ok(page) = or_fault(self.pages.read(number, budget))? else { return Ok(unit) };
        if matches!(page[25], page_type::HASH | page_type::HASH_UNSORTED) {
            self.pairs_of((&page, page.len()), number, &mut unit, budget)?;
        }
        Ok(unit)
    }

    fn loose_units(
        &self,
        budget: &Budget,
        visit: &mut dyn FnMut(Unit) -> Result<()>,
    ) -> Result<()> {
        self.pages.each(1, budget, |number, page, present| {
            let mut unit = Unit::default();
            if matches!(page[25], page_type::HASH | page_type::HASH_UNSORTED) {
                self.pairs_of((page, present), number, &mut unit, budget)?;
            }
            visit(unit)
        })
    }

    fn pages(
        &self,
        first: u64,
        bytes: Option<u64>,
        _is_key: bool,
        budget: &Budget,
    ) -> Result<Vec<u8>> {
        let expected = bytes.unwrap_or_default();
        let mut run = Vec::new();
        self.pages.walk(first, budget, |number, page| {
            if page[25] != page_type::OVERFLOW {
                return Err(self.wrong_type(number, page_type::OVERFLOW, page[25]));
            }
            if let Some(fault) = self.wrong_checksum(page, number) {
                return Err(fault.into());
            }
            let end = self.page_header_bytes + usize::from(self.order.u16_at(page, 22));
            let Some(part) = page.get(self.page_header_bytes..end) else {
                let (at, most) = (self.pages.offset_of(number) + 22, page.len() as u64);
                return Err(Fault::new("bytes of an overflow page", at, most, end as u64).into());
            };
            run.extend_from_slice(part);
            Ok(self.next_of(page))
        })?;
        if run.len() as u64 != expected {
            let (at, found) = (self.pages.offset_of(first), run.len() as u64);
            return Err(Fault::new("bytes of overflow pages", at, expected, found).into());
        }
        Ok(run)
    }

    fn homes(&self, key: &[u8]) -> Homes {
        let Some(hash) = self.function.hash(key) else { return Homes::UNKNOWN };
        let bucket = self.geometry.bucket_of(u64::from(hash)).0;
        Homes::of(bucket, bucket)
    }

    fn parameters(&self) -> Vec<Parameter> {
        const DUPLICATES: u32 = 1;
        let hash = match self.function {
            Function::Fnv => "default",
            Function::X33 => "x33",
            Function::Unknown => "another",
        };
        let mut parameters = vec![
            Parameter::new("version", self.version),
            Parameter::new("db_pagesize", self.pages.page_bytes),
            Parameter::new("db_lorder", if self.order == ByteOrder::Little { 1234 } else { 4321 }),
            Parameter::new("h_ffactor", self.fill_factor),
            Parameter::new("max_bucket", self.geometry.bucket_count() - 1),
            Parameter::new("hash", hash),
        ];
        if self.flags & DUPLICATES != 0 {
            parameters.push(Parameter::new("duplicates", 1));
        }
        parameters
    }

    fn hash_name(&self) -> &'static str {
        match self.function {
            Function::Fnv => "fnv1-32 from 0",
            Function::X33 => "x33",
            Function::Unknown => "",
        }
    }

    fn hash_of(&self, key: &[u8]) -> Option<u64> {
        self.function.hash(key).map(u64::from)
    }

    fn linear_bucket_count(&self) -> Option<u64> {
        // In a sound file every bucket has a page.
        let bucket_count = self.geometry.bucket_count();
        (self.function != Function::Unknown && bucket_count <= self.pages.count())
            .then_some(bucket_count)
    }
}
