//! Berkeley DB's hash: versions 7 to 10.
//!
//! ```text
//! item     | 1 | bytes |              a key or a value
//!          | 2 | length, value, length ... |   the values of one key
//!          | 3 | page, length |       on its overflow pages
//!          | 4 | page |               the values of one key, in their tree
//! ```

use splitpoint::Result;
use splitpoint::hash;
use splitpoint::linear::Geometry;

use super::{Database, PairPages, TYPE_AT, page_type, unknown_item};
use crate::Source;
use crate::chain::ceil_log2;
use crate::identity::Identity;
use crate::reader::{
    Budget, Fault, Further, Homes, Item, Parameter, Piece, Reader, Unit, or_fault,
};
use crate::stated::{Counted, Extent, Stated, StatedBy};

/// Versions whose pages are as described.
const VERSIONS: std::ops::RangeInclusive<u32> = 7..=10;

/// Types of items.
mod item_type {
    pub(super) const HERE: u8 = 1;
    pub(super) const DUPLICATES: u8 = 2;
    pub(super) const OVERFLOW: u8 = 3;
    pub(super) const DUPLICATE_TREE: u8 = 4;
}

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
pub(crate) struct HashFile {
    identity: Identity,
    database: Database,
    geometry: Geometry,
    fill_factor: u32,
    spares: [u32; 32],
    function: Function,
    stated: Stated,
}

impl HashFile {
    pub(crate) fn open(source: Source, identity: Identity) -> Result<Self> {
        let (database, head) = Database::open(source, &identity, VERSIONS)?;
        let field = |at| database.order.u32_at(&head, at);
        let geometry = Geometry::with_bucket_count(u64::from(field(72)) + 1);
        let mut spares = [0; 32];
        for (index, spare) in spares.iter_mut().enumerate() {
            *spare = field(96 + 4 * index);
        }
        let (fill_factor, function) = (field(84), Function::of_probe(field(92)));
        // Earlier versions lack it.
        let last_page = (database.version >= 8).then_some(database.last_page);
        let stated = Stated::default();
        let mut file = Self { identity, database, geometry, fill_factor, spares, function, stated };
        file.stated.extent = Some(file.extent(last_page));
        Ok(file)
    }

    /// Computes the length that the file must have. Every bucket has its page, because Berkeley DB
    /// creates those of a complete doubling at once.
    fn extent(&self, last_page: Option<u64>) -> Extent {
        let needed = self.page_of_bucket(self.geometry.bucket_count() - 1) + 1;
        let known = last_page.map(|last_page| needed.max(last_page + 1));
        let found = self.database.pages.whole_count();
        Extent {
            counted: Counted::Pages,
            stated_by: StatedBy::Header,
            at: 72,
            unit_bytes: self.database.pages.page_bytes as u64,
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

    fn key(&self, item: &[u8]) -> Result<Piece, Fault> {
        match item {
            [item_type::HERE, bytes @ ..] => Ok(Piece::Here(bytes.to_vec())),
            [item_type::OVERFLOW, ..] if item.len() >= 12 => Ok(self.database.overflow(item)),
            _ => Err(unknown_item(item.first().copied().unwrap_or_default())),
        }
    }

    /// Decodes the item at `offset` of the file, which is the value of a key, or all of its values.
    fn values(&self, item: &[u8], offset: u64, budget: &Budget) -> Result<(Piece, Further)> {
        let value = match item {
            [item_type::HERE, bytes @ ..] => Piece::Here(bytes.to_vec()),
            [item_type::OVERFLOW, ..] if item.len() >= 12 => self.database.overflow(item),
            [item_type::DUPLICATES, values @ ..] => {
                return Ok(self.duplicates(values, offset));
            }
            [item_type::DUPLICATE_TREE, ..] if item.len() >= 8 => {
                let root = u64::from(self.database.order.u32_at(item, 4));
                match or_fault(self.database.tree(root, budget))? {
                    Ok(values) => return Ok(values),
                    Err(fault) => Piece::Fault(fault),
                }
            }
            _ => {
                let found = item.first().copied().unwrap_or_default();
                Piece::Fault(Fault { offset, ..unknown_item(found) })
            }
        };
        Ok((value, Further::default()))
    }

    /// Returns the first of several values in a row, each between two copies of its length, and
    /// the further ones. What follows a wrong length is unreadable.
    fn duplicates(&self, values: &[u8], offset: u64) -> (Piece, Further) {
        let order = self.database.order;
        let (mut pieces, mut at) = (Vec::new(), 0);
        while at < values.len() {
            let bytes = usize::from(order.u16_at(values, at));
            let end = at + 2 + bytes;
            if end + 2 > values.len() || usize::from(order.u16_at(values, end)) != bytes {
                let (most, found) = (values.len() as u64, end as u64 + 2);
                pieces.push(Piece::Fault(Fault::new("duplicate value", offset, most, found)));
                break;
            }
            pieces.push(Piece::Here(values[at + 2..end].to_vec()));
            at = end + 2;
        }
        let mut pieces = pieces.into_iter();
        let none = Piece::Fault(Fault::new("duplicate value", offset, 1, 0));
        (pieces.next().unwrap_or(none), Further::Row(pieces.collect()))
    }
}

impl PairPages for HashFile {
    const TYPES: &'static [u8] = &[page_type::HASH, page_type::HASH_UNSORTED];

    fn database(&self) -> &Database {
        &self.database
    }

    /// Reads the pairs in the first `present` bytes of a page.
    fn pairs_of(
        &self,
        (page, present): (&[u8], usize),
        number: u64,
        unit: &mut Unit,
        budget: &Budget,
    ) -> Result<()> {
        let database = &self.database;
        let offset = database.pages.offset_of(number);
        let (item_count, fault) = database.item_count(page, number, 2);
        unit.faults.extend(fault);
        let mut end = page.len();
        for index in (0..item_count).step_by(2) {
            let at = (database.page_header_bytes + 2 * index) as u64;
            let (key, value) = (database.start_of(page, index), database.start_of(page, index + 1));
            let least = database.page_header_bytes + 2 * item_count;
            if key >= end || value >= key || value < least {
                let fault = Fault::new("offset in a page", offset + at, end as u64, key as u64);
                unit.faults.push(fault);
                return Ok(());
            }
            if end <= present {
                let (key_at, value_at) = (offset + key as u64, offset + value as u64);
                match self.key(&page[key..end]) {
                    Ok(bytes) => {
                        let values = self.values(&page[value..key], value_at, budget)?;
                        unit.items.push(Item { key: bytes, value: values.0, further: values.1 });
                    }
                    Err(fault) => unit.faults.push(Fault { offset: key_at, ..fault }),
                }
            }
            end = value;
        }
        if end <= present {
            unit.faults.extend(database.wrong_free_end(page, number, end));
        }
        Ok(())
    }
}

impl Reader for HashFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn source(&self) -> &Source {
        &self.database.pages.source
    }

    fn unit_count(&self) -> u64 {
        self.geometry.bucket_count().min(self.database.pages.count())
    }

    fn faults(&self) -> &[Fault] {
        &self.database.faults
    }

    fn stated(&self) -> Stated {
        self.stated
    }

    fn unit(&self, index: u64, budget: &Budget) -> Result<Unit> {
        let first = self.page_of_bucket(index);
        if let Some(absent) = self.database.pages.absent(first) {
            return Ok(absent);
        }
        let mut unit = Unit { is_in_use: true, ..Unit::default() };
        let mut is_first = true;
        let walked = self.database.pages.walk(first, budget, |number, page| {
            match page[TYPE_AT] {
                // Created with its doubling, and not used since.
                page_type::NONE if is_first && page.iter().all(|&byte| byte == 0) => {
                    return Ok(None);
                }
                page_type::HASH | page_type::HASH_UNSORTED => {}
                other => return Err(self.database.wrong_type(number, page_type::HASH, other)),
            }
            unit.faults.extend(self.database.wrong_number(page, number));
            unit.overflow_pages += u64::from(!is_first);
            is_first = false;
            // Only a salvage reads a page with a wrong checksum.
            match self.database.wrong_checksum(page, number) {
                Some(fault) => unit.faults.push(fault),
                None => self.pairs_of((page, page.len()), number, &mut unit, budget)?,
            }
            Ok(self.database.next_of(page))
        });
        unit.faults.extend(or_fault(walked)?.err());
        Ok(unit)
    }

    fn homes(&self, key: &[u8]) -> Homes {
        let Some(hash) = self.function.hash(key) else { return Homes::UNKNOWN };
        let bucket = self.geometry.bucket_of(u64::from(hash)).0;
        Homes::of(bucket, bucket)
    }

    fn parameters(&self) -> Vec<Parameter> {
        let hash = match self.function {
            Function::Fnv => "default",
            Function::X33 => "x33",
            Function::Unknown => "another",
        };
        let mut parameters = self.database.parameters();
        parameters.extend([
            Parameter::new("h_ffactor", self.fill_factor),
            Parameter::new("max_bucket", self.geometry.bucket_count() - 1),
            Parameter::new("hash", hash),
        ]);
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
        (self.function != Function::Unknown && bucket_count <= self.database.pages.count())
            .then_some(bucket_count)
    }
}
