//! Berkeley DB 3.1 to 18: what its hash and its btree have in common.
//!
//! ```text
//! page 0   | header of every database | of a hash: buckets, masks, spares | of a btree: root |
//! page     | lsn | number | previous | next | items | end of the free bytes | level | type |
//!          | offsets ... | free bytes | items |
//!          | a checksum is between them and the offsets, if the database has checksums
//! ```
//!
//! The values of one key may be in a tree of their own, whose leaves hold nothing else: sorted, or
//! in the order in which they came.
//!
//! # Source
//!
//! Published descriptions of the format, for readers of RPM's databases; files of Berkeley DB 5.3.
//! Written from the layout.

mod btree;
mod hash;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use splitpoint::{Error, Result, Unsupported};

pub(crate) use self::btree::BtreeFile;
pub(crate) use self::hash::HashFile;
use crate::Source;
use crate::byte_order::ByteOrder;
use crate::chain::Pages;
use crate::identity::Identity;
use crate::reader::{Budget, Fault, Further, Loose, Parameter, Piece, Unit, or_fault};

const HEADER_BYTES: usize = 512;

/// Where the checksum of the header is, and that of a page.
const HEADER_CHECKSUM_AT: usize = 492;
const PAGE_CHECKSUM_AT: usize = 28;

/// Where a page states its number, the next one, its items and its type.
const NUMBER_AT: usize = 8;
const PREVIOUS_AT: usize = 12;
const NEXT_AT: usize = 16;
const ITEMS_AT: usize = 20;
/// Where a page states the end of its free bytes, at which the lowest of its items begins. Of an
/// overflow page, its bytes.
const FREE_END_AT: usize = 22;
const TYPE_AT: usize = 25;

/// Types of pages.
mod page_type {
    pub(super) const NONE: u8 = 0;
    pub(super) const HASH_UNSORTED: u8 = 2;
    pub(super) const INTERNAL: u8 = 3;
    pub(super) const INTERNAL_RECNO: u8 = 4;
    pub(super) const LEAF: u8 = 5;
    pub(super) const LEAF_RECNO: u8 = 6;
    pub(super) const OVERFLOW: u8 = 7;
    pub(super) const LEAF_DUPLICATES: u8 = 12;
    pub(super) const HASH: u8 = 13;
}

/// Types of items of a tree: its own bytes, a tree of duplicates, and overflow pages.
mod leaf_item {
    pub(super) const HERE: u8 = 1;
    pub(super) const DUPLICATE_TREE: u8 = 2;
    pub(super) const OVERFLOW: u8 = 3;
    /// A deleted item has this bit too.
    pub(super) const DELETED: u8 = 0x80;
}

/// Where the key of an item of an internal page is.
const SEPARATOR_AT: usize = 12;

/// More levels than any tree has.
const LEVELS_MAX: u32 = 32;

/// A kind of database: where its pages have their pairs.
trait PairPages {
    /// Types of the pages that hold pairs.
    const TYPES: &'static [u8];

    fn database(&self) -> &Database;

    /// Reads the pairs in the first `present` bytes of a page.
    fn pairs_of(
        &self,
        page: (&[u8], usize),
        number: u64,
        unit: &mut Unit,
        budget: &Budget,
    ) -> Result<()>;
}

impl<F: PairPages> Loose for F {
    fn page_behind(&self, number: u64, budget: &Budget) -> Result<Unit> {
        let mut unit = Unit::default();
        let read = self.database().pages.read(number, budget);
        let Ok(page) = or_fault(read)? else { return Ok(unit) };
        if Self::TYPES.contains(&page[TYPE_AT]) {
            self.pairs_of((&page, page.len()), number, &mut unit, budget)?;
        }
        Ok(unit)
    }

    fn loose_units(
        &self,
        budget: &Budget,
        visit: &mut dyn FnMut(Unit) -> Result<()>,
    ) -> Result<()> {
        self.database().pages.each(1, budget, |number, page, present| {
            let mut unit = Unit::default();
            if Self::TYPES.contains(&page[TYPE_AT]) {
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
        self.database().overflow_bytes(first, bytes, budget)
    }

    fn values_of_leaf(
        &self,
        leaf: u64,
        budget: &Budget,
        values: &mut Vec<Piece>,
    ) -> Result<Option<u64>> {
        self.database().values_of_leaf(leaf, budget, values)
    }
}

/// The pages of a database, by the fields of its header that all kinds have.
#[derive(Debug)]
struct Database {
    pages: Pages,
    order: ByteOrder,
    version: u32,
    flags: u32,
    /// Where the offsets of a page begin: after its header, and a checksum if pages have one.
    page_header_bytes: usize,
    has_checksums: bool,
    /// What the header states of its last page.
    last_page: u64,
    faults: Vec<Fault>,
}

impl Database {
    /// Reads the header of the database that `identity` names, which must be of one of `versions`.
    fn open(
        source: Source,
        identity: &Identity,
        versions: RangeInclusive<u32>,
    ) -> Result<(Self, [u8; HEADER_BYTES])> {
        const CHECKSUM: u8 = 1;
        let mut head = [0; HEADER_BYTES];
        source.read_at(0, &mut head)?;
        let order = identity.byte_order.unwrap_or(ByteOrder::Little);
        let field = |at| order.u32_at(&head, at);
        let version = field(16);
        let path = identity.path.clone();
        if !versions.contains(&version) {
            return Err(Error::Version { path, expected: *versions.end(), found: version });
        }
        if head[24] != 0 {
            let reason = "its pages are encrypted".to_string();
            return Err(Error::Unsupported { path, feature: Unsupported::Encryption, reason });
        }
        if head[26] & !CHECKSUM != 0 {
            let reason = "it is one of several partitions of a database".to_string();
            return Err(Error::Unsupported { path, feature: Unsupported::Other, reason });
        }
        let page_bytes = field(20);
        if !page_bytes.is_power_of_two() || !(512..=1 << 16).contains(&page_bytes) {
            return Err(Fault::new("page size", 20, 4096, u64::from(page_bytes)).into());
        }
        let has_checksums = head[26] & CHECKSUM != 0;
        let wrong = has_checksums.then(|| wrong_checksum(order, &head, HEADER_CHECKSUM_AT));
        let database = Self {
            pages: Pages { source, page_bytes: page_bytes as usize },
            order,
            version,
            flags: field(48),
            page_header_bytes: if has_checksums { 32 } else { 26 },
            has_checksums,
            last_page: u64::from(field(32)),
            faults: Vec::from_iter(wrong.flatten()),
        };
        Ok((database, head))
    }

    /// Returns the fault in the checksum of a page. A page that was never written has none.
    fn wrong_checksum(&self, page: &[u8], number: u64) -> Option<Fault> {
        if !self.has_checksums || page.iter().all(|&byte| byte == 0) {
            return None;
        }
        let fault = wrong_checksum(self.order, page, PAGE_CHECKSUM_AT)?;
        Some(Fault { offset: self.pages.offset_of(number) + fault.offset, ..fault })
    }

    /// Returns the fault of a page that states another number than its own.
    fn wrong_number(&self, page: &[u8], number: u64) -> Option<Fault> {
        let found = u64::from(self.order.u32_at(page, NUMBER_AT));
        let at = self.pages.offset_of(number) + NUMBER_AT as u64;
        (found != number).then(|| Fault::new("number of a page", at, number, found))
    }

    fn wrong_type(&self, page: u64, expected: u8, found: u8) -> Error {
        let at = self.pages.offset_of(page) + TYPE_AT as u64;
        Fault::new("type of a page", at, u64::from(expected), u64::from(found)).into()
    }

    fn next_of(&self, page: &[u8]) -> Option<u64> {
        let next = self.order.u32_at(page, NEXT_AT);
        (next != 0).then_some(u64::from(next))
    }

    /// Returns the offset of item `index` of a page.
    fn start_of(&self, page: &[u8], index: usize) -> usize {
        usize::from(self.order.u16_at(page, self.page_header_bytes + 2 * index))
    }

    /// Returns the number of items that have an offset on the page, which come in groups of
    /// `group`, and the fault if the page states another.
    fn item_count(&self, page: &[u8], number: u64, group: usize) -> (usize, Option<Fault>) {
        let room = (page.len() - self.page_header_bytes) / 2;
        let stated = usize::from(self.order.u16_at(page, ITEMS_AT));
        let count = stated.min(room) / group * group;
        let at = self.pages.offset_of(number) + ITEMS_AT as u64;
        let fault = Fault::new("items of a page", at, count as u64, stated as u64);
        (count, (count != stated).then_some(fault))
    }

    /// Returns where the items of a page of a tree begin. The faults are those of the page as a
    /// whole; an item that is not on the page is a fault of its own.
    fn item_starts(&self, page: &[u8], number: u64, group: usize) -> (Starts, Vec<Fault>) {
        let (count, fault) = self.item_count(page, number, group);
        let offsets_end = self.page_header_bytes + 2 * count;
        let place = |index| {
            let at = self.start_of(page, index);
            if (offsets_end..page.len()).contains(&at) {
                return Ok(at);
            }
            let offset = self.pages.offset_of(number) + (self.page_header_bytes + 2 * index) as u64;
            Err(Fault::new("offset in a page", offset, page.len() as u64, at as u64))
        };
        let starts: Starts = (0..count).map(place).collect();
        let mut faults = Vec::from_iter(fault);
        // Several pairs may have one key.
        let distinct: Result<BTreeSet<usize>, Fault> = starts.iter().copied().collect();
        if let Ok(distinct) = distinct {
            let used: Option<usize> =
                distinct.into_iter().map(|at| self.item_bytes(page, at)).sum();
            let end = used.map(|used| page.len().saturating_sub(used));
            faults.extend(end.and_then(|end| self.wrong_free_end(page, number, end)));
        }
        (starts, faults)
    }

    /// Returns the bytes that the item at `at` of a page of a tree takes, deleted or not, if its
    /// type is known.
    fn item_bytes(&self, page: &[u8], at: usize) -> Option<usize> {
        const ALIGNMENT: usize = 4;
        let bytes = usize::from(self.order.u16_at(page, at));
        let kind = page.get(at + 2).copied().unwrap_or_default() & !leaf_item::DELETED;
        let bytes = match (page[TYPE_AT], kind) {
            (page_type::INTERNAL, _) => SEPARATOR_AT + bytes,
            (_, leaf_item::HERE) => 3 + bytes,
            (_, leaf_item::DUPLICATE_TREE | leaf_item::OVERFLOW) => 12,
            _ => return None,
        };
        Some(bytes.next_multiple_of(ALIGNMENT))
    }

    /// Returns the fault if the free bytes of a page do not end at `expected`, where its items would
    /// begin if it had those that it lists: items have no gaps between them.
    fn wrong_free_end(&self, page: &[u8], number: u64, expected: usize) -> Option<Fault> {
        let found = self.order.u16_at(page, FREE_END_AT);
        let at = self.pages.offset_of(number) + FREE_END_AT as u64;
        let fault = Fault::new("start of the items of a page", at, expected as u64, found.into());
        // 65,536 is stated as 0.
        (expected as u16 != found).then_some(fault)
    }

    /// Returns the overflow pages that an item names.
    fn overflow(&self, item: &[u8]) -> Piece {
        let page = u64::from(self.order.u32_at(item, 4));
        Piece::Pages { page, bytes: Some(u64::from(self.order.u32_at(item, 8))) }
    }

    /// Returns the bytes of the item at `at` of a leaf, or where they are.
    fn leaf_piece(&self, page: &[u8], number: u64, at: usize) -> Result<Piece, Fault> {
        let item = page.get(at..).unwrap_or_default();
        let kind = item.get(2).copied().unwrap_or_default() & !leaf_item::DELETED;
        let offset = self.pages.offset_of(number) + at as u64;
        match kind {
            leaf_item::HERE => {
                let bytes = usize::from(self.order.u16_at(item, 0));
                let run = item.get(3..3 + bytes).map(|run| Piece::Here(run.to_vec()));
                let (most, found) = (item.len().saturating_sub(3), bytes);
                run.ok_or(Fault::new("bytes of an item", offset, most as u64, found as u64))
            }
            leaf_item::OVERFLOW if item.len() >= 12 => Ok(self.overflow(item)),
            other => Err(Fault { offset, ..unknown_item(other) }),
        }
    }

    /// Returns whether the item at `at` of a leaf is deleted. Its place may still hold a key.
    fn is_deleted(page: &[u8], at: usize) -> bool {
        page.get(at + 2).is_some_and(|kind| kind & leaf_item::DELETED != 0)
    }

    /// Reads the bytes of an overflow chain, which must be `bytes`.
    fn overflow_bytes(&self, first: u64, bytes: Option<u64>, budget: &Budget) -> Result<Vec<u8>> {
        let expected = bytes.unwrap_or_default();
        let wrong_length = |found: usize| {
            let at = self.pages.offset_of(first);
            Fault::new("bytes of overflow pages", at, expected, found as u64)
        };
        let mut run = Vec::new();
        self.pages.walk(first, budget, |number, page| {
            if page[TYPE_AT] != page_type::OVERFLOW {
                return Err(self.wrong_type(number, page_type::OVERFLOW, page[TYPE_AT]));
            }
            if let Some(fault) = self.wrong_checksum(page, number) {
                return Err(fault.into());
            }
            let end = self.page_header_bytes + usize::from(self.order.u16_at(page, FREE_END_AT));
            let Some(part) = page.get(self.page_header_bytes..end) else {
                let (at, most) = (self.pages.offset_of(number), page.len() as u64);
                let at = at + FREE_END_AT as u64;
                return Err(Fault::new("bytes of an overflow page", at, most, end as u64).into());
            };
            run.extend_from_slice(part);
            if run.len() as u64 > expected {
                return Err(wrong_length(run.len()).into());
            }
            Ok(self.next_of(page))
        })?;
        if (run.len() as u64) < expected {
            return Err(wrong_length(run.len()).into());
        }
        Ok(run)
    }

    /// Returns the first value of a tree of duplicates, and where the further ones are.
    fn tree(&self, root: u64, budget: &Budget) -> Result<(Piece, Further)> {
        let first = self.leaf_of_tree(root, Edge::First, budget)?;
        let last = self.leaf_of_tree(root, Edge::Last, budget)?;
        let mut value = None;
        self.pages.walk(first, budget, |number, page| {
            // The first leaves may hold nothing but deleted values.
            value = self.values_on(page, number)?.into_iter().next();
            Ok(self.next_of(page).filter(|_| value.is_none()))
        })?;
        let missing = Fault::new("tree of duplicates", self.pages.offset_of(first), 1, 0);
        let page_bytes = self.pages.page_bytes as u64;
        Ok((value.ok_or(missing)?, Further::Leaves { first, last, page_bytes }))
    }

    /// Returns the first or the last leaf of a tree of duplicates.
    fn leaf_of_tree(&self, root: u64, edge: Edge, budget: &Budget) -> Result<u64> {
        let mut number = root;
        for _ in 0..LEVELS_MAX {
            let page = self.pages.read(number, budget)?;
            let (count, _) = self.item_count(&page, number, 1);
            let index = if edge == Edge::First { 0 } else { count.saturating_sub(1) };
            let item = self.start_of(&page, index);
            number = match page[TYPE_AT] {
                page_type::LEAF_DUPLICATES | page_type::LEAF_RECNO => return Ok(number),
                page_type::INTERNAL => u64::from(self.order.u32_at(&page, item + 4)),
                page_type::INTERNAL_RECNO => u64::from(self.order.u32_at(&page, item)),
                other => return Err(self.wrong_type(number, page_type::LEAF_DUPLICATES, other)),
            };
        }
        let (at, levels) = (self.pages.offset_of(root), u64::from(LEVELS_MAX));
        Err(Fault::new("tree of duplicates", at, levels, levels + 1).into())
    }

    /// Reads a leaf of a tree of duplicates, and returns its successor.
    fn values_of_leaf(
        &self,
        leaf: u64,
        budget: &Budget,
        values: &mut Vec<Piece>,
    ) -> Result<Option<u64>> {
        let page = self.pages.read(leaf, budget)?;
        values.append(&mut self.values_on(&page, leaf)?);
        Ok(self.next_of(&page))
    }

    /// Returns the values on a leaf of a tree of duplicates. One that is unreadable is a fault, as
    /// is the end of a page that has values that it does not list.
    fn values_on(&self, page: &[u8], number: u64) -> Result<Vec<Piece>> {
        if !matches!(page[TYPE_AT], page_type::LEAF_DUPLICATES | page_type::LEAF_RECNO) {
            return Err(self.wrong_type(number, page_type::LEAF_DUPLICATES, page[TYPE_AT]));
        }
        if let Some(fault) = self.wrong_checksum(page, number) {
            return Err(fault.into());
        }
        let (starts, faults) = self.item_starts(page, number, 1);
        let (mut values, mut room) = (Vec::new(), self.room_of(page, number));
        for start in starts {
            if start.is_ok_and(|at| Self::is_deleted(page, at)) {
                continue;
            }
            let value = start.and_then(|at| self.leaf_piece(page, number, at));
            let value = value.unwrap_or_else(Piece::Fault);
            if let Err(fault) = room.take(&value) {
                values.push(Piece::Fault(fault));
                break;
            }
            values.push(value);
        }
        values.extend(faults.into_iter().map(Piece::Fault));
        Ok(values)
    }

    fn room_of(&self, page: &[u8], number: u64) -> Room {
        Room { page: self.pages.offset_of(number), page_bytes: page.len(), used: 0 }
    }

    /// Returns the parameters that all kinds have, by the names that `db_dump` prints.
    fn parameters(&self) -> Vec<Parameter> {
        const DUPLICATES: u32 = 1;
        let mut parameters = vec![
            Parameter::new("version", self.version),
            Parameter::new("db_pagesize", self.pages.page_bytes),
            Parameter::new("db_lorder", if self.order == ByteOrder::Little { 1234 } else { 4321 }),
        ];
        if self.flags & DUPLICATES != 0 {
            parameters.push(Parameter::new("duplicates", 1));
        }
        parameters
    }
}

/// Where the items of a page begin.
type Starts = Vec<Result<usize, Fault>>;

/// An end of the leaves of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    First,
    Last,
}

/// The room for the items of a page. Those that overlap need more than there is, and would take
/// memory many times over.
#[derive(Debug)]
struct Room {
    /// Offset of the page.
    page: u64,
    page_bytes: usize,
    used: usize,
}

impl Room {
    /// Takes the bytes of an item.
    fn take(&mut self, item: &Piece) -> Result<(), Fault> {
        self.take_bytes(match item {
            Piece::Here(bytes) => 3 + bytes.len(),
            _ => 0,
        })
    }

    fn take_bytes(&mut self, bytes: usize) -> Result<(), Fault> {
        self.used += bytes;
        let (most, found) = (self.page_bytes as u64, self.used as u64);
        let fault = Fault::new("sum of the items of a page", self.page, most, found);
        if self.is_spent() { Err(fault) } else { Ok(()) }
    }

    fn is_spent(&self) -> bool {
        self.used > self.page_bytes
    }
}

/// Compares the checksum at `at` with that of the bytes, whose checksum field counts as 0.
fn wrong_checksum(order: ByteOrder, bytes: &[u8], at: usize) -> Option<Fault> {
    let found = order.u32_at(bytes, at);
    let mut sound = bytes.to_vec();
    sound[at..at + 4].fill(0);
    let expected = splitpoint::hash::x33(&sound);
    let fault = Fault::new("checksum", at as u64, u64::from(expected), u64::from(found));
    (expected != found).then_some(fault)
}

fn unknown_item(found: u8) -> Fault {
    Fault::new("type of an item", 0, u64::from(leaf_item::HERE), u64::from(found))
}
