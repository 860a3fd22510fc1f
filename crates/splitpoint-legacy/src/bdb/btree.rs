//! Berkeley DB's btree: versions 8 to 10.
//!
//! ```text
//! header   root at byte 88
//! internal | bytes, type, page, records | key |   the least key of that page; of the first, none
//! leaf     key, value, key, value ...
//! item     | bytes, type 1 | bytes |      a key or a value
//!          | type 3 | page, length |      on its overflow pages
//!          | type 2 | page |              the values of one key, in their tree
//! ```
//!
//! A key with a few values has as many pairs of offsets, all of which lead to the same key.
//!
//! The units are the leaves in the order of their keys, as the internal pages list them. Each leaf
//! names the next one, which shows whether the internal pages list them all.

use std::collections::HashSet;
use std::sync::Arc;

use splitpoint::{Error, Result, Unsupported};

use super::{
    Database, HEADER_BYTES, LEVELS_MAX, NEXT_AT, PREVIOUS_AT, PairPages, SEPARATOR_AT, TYPE_AT,
    leaf_item, page_type, unknown_item,
};
use crate::Source;
use crate::identity::Identity;
use crate::reader::{
    Budget, Fault, Further, Homes, Item, Parameter, Piece, Reader, Unit, or_fault,
};
use crate::stated::{Counted, Extent, Stated, StatedBy};

/// Versions whose pages are as described.
const VERSIONS: std::ops::RangeInclusive<u32> = 8..=10;

/// Where the header names the root.
const ROOT_AT: usize = 88;

/// Flags of the header.
mod flag {
    pub(super) const DUPLICATES: u32 = 0x01;
    pub(super) const SUBDATABASES: u32 = 0x20;
    pub(super) const SORTED_DUPLICATES: u32 = 0x40;
    pub(super) const COMPRESSED: u32 = 0x80;
}

/// A leaf, and the least key that belongs on it.
#[derive(Debug)]
struct Leaf {
    page: u64,
    least: Arc<[u8]>,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct BtreeFile {
    identity: Identity,
    database: Database,
    min_key: u32,
    leaves: Vec<Leaf>,
    /// Whether the keys of the internal pages rise byte by byte, as they do unless the program that
    /// made the file compares keys in a way of its own.
    is_bytewise: bool,
    internal_pages: u64,
    stated: Stated,
}

impl BtreeFile {
    pub(crate) fn open(source: Source, identity: Identity) -> Result<Self> {
        let (database, head) = Database::open(source, &identity, VERSIONS)?;
        let refusal = |feature, reason: &str| {
            let path = identity.path.clone();
            Err(Error::Unsupported { path, feature, reason: reason.to_string() })
        };
        if database.flags & flag::COMPRESSED != 0 {
            return refusal(Unsupported::Other, "its keys and values are compressed");
        }
        if database.flags & flag::SUBDATABASES != 0 {
            return refusal(Unsupported::Other, "it holds several databases by name");
        }
        let mut file = Self {
            min_key: database.order.u32_at(&head, 76),
            identity,
            database,
            leaves: Vec::new(),
            is_bytewise: true,
            internal_pages: 0,
            stated: Stated::default(),
        };
        let needed = file.read_internal_pages(&head)?;
        file.is_bytewise = file.leaves.is_sorted_by(|one, next| one.least <= next.least);
        file.stated.extent = Some(file.extent(needed));
        Ok(file)
    }

    /// Lists the leaves in their order, and returns the number of pages that a file must have that
    /// has all of them.
    fn read_internal_pages(&mut self, head: &[u8; HEADER_BYTES]) -> Result<u64> {
        let root = u64::from(self.database.order.u32_at(head, ROOT_AT));
        if root == 0 {
            return Err(Fault::new("root of a tree", ROOT_AT as u64, 1, 0).into());
        }
        let page_count = self.database.pages.count();
        let budget = Budget::new(&self.database.pages.source);
        let mut seen = HashSet::new();
        let mut needed = root + 1;
        // The next page is the last.
        let mut stack = vec![(Leaf { page: root, least: Arc::default() }, 0)];
        while let Some((leaf, level)) = stack.pop() {
            needed = needed.max(leaf.page + 1);
            if leaf.page >= page_count {
                // The file ends before it: what would be below it counts as one leaf.
                self.leaves.push(leaf);
                continue;
            }
            if level >= LEVELS_MAX || !seen.insert(leaf.page) {
                let at = self.database.pages.offset_of(leaf.page);
                self.database.faults.push(Fault::new("page of a tree", at, 1, 2));
                continue;
            }
            let page = or_fault(self.database.pages.read(leaf.page, &budget))?;
            // The walk over the leaves reports a page that is damaged or none of either kind.
            let Some(page) = page.ok().filter(|page| self.is_internal(page, leaf.page)) else {
                self.leaves.push(leaf);
                continue;
            };
            self.internal_pages += 1;
            let below = self.children(&page, &leaf, &budget)?;
            stack.extend(below.into_iter().rev().map(|leaf| (leaf, level + 1)));
        }
        Ok(needed)
    }

    fn is_internal(&self, page: &[u8], number: u64) -> bool {
        page[TYPE_AT] == page_type::INTERNAL && self.database.wrong_checksum(page, number).is_none()
    }

    /// Returns the pages below an internal page. The least key of the first is that of the page.
    fn children(&mut self, page: &[u8], parent: &Leaf, budget: &Budget) -> Result<Vec<Leaf>> {
        let (starts, faults) = self.database.item_starts(page, parent.page, 1);
        self.database.faults.extend(faults);
        if starts.is_empty() {
            let at = self.database.pages.offset_of(parent.page);
            self.database.faults.push(Fault::new("items of an internal page", at, 1, 0));
        }
        let (mut below, mut room) = (Vec::new(), self.database.room_of(page, parent.page));
        for (index, start) in starts.into_iter().enumerate() {
            let bytes = |at| SEPARATOR_AT + usize::from(self.database.order.u16_at(page, at));
            let taken = start.and_then(|at| room.take_bytes(bytes(at)).map(|()| at));
            let at = match taken {
                Ok(at) => at,
                Err(fault) => {
                    self.database.faults.push(fault);
                    continue;
                }
            };
            let child = u64::from(self.database.order.u32_at(page, at + 4));
            let least = if index == 0 {
                Ok(Arc::clone(&parent.least))
            } else {
                or_fault(self.separator(page, parent.page, at, budget))?.map(Arc::from)
            };
            let least = least.unwrap_or_else(|fault| {
                self.database.faults.push(fault);
                Arc::default()
            });
            below.push(Leaf { page: child, least });
        }
        Ok(below)
    }

    /// Reads the key of an item of an internal page.
    fn separator(&self, page: &[u8], number: u64, at: usize, budget: &Budget) -> Result<Vec<u8>> {
        let offset = self.database.pages.offset_of(number) + at as u64;
        let item = page.get(at..).unwrap_or_default();
        let bytes = usize::from(self.database.order.u16_at(item, 0));
        let key = item.get(SEPARATOR_AT..SEPARATOR_AT + bytes);
        let key =
            key.ok_or(Fault::new("bytes of an item", offset, item.len() as u64, bytes as u64));
        match item.get(2).copied().unwrap_or_default() {
            leaf_item::HERE => Ok(key?.to_vec()),
            leaf_item::OVERFLOW => match self.database.overflow(key?) {
                Piece::Pages { page, bytes } => self.database.overflow_bytes(page, bytes, budget),
                _ => Ok(Vec::new()),
            },
            other => Err(Fault { offset, ..unknown_item(other) }.into()),
        }
    }

    fn extent(&self, needed: u64) -> Extent {
        let known = needed.max(self.database.last_page + 1);
        let found = self.database.pages.whole_count();
        Extent {
            counted: Counted::Pages,
            stated_by: StatedBy::Header,
            at: ROOT_AT as u64,
            unit_bytes: self.database.pages.page_bytes as u64,
            needed,
            stated: known,
            known: Some(known),
            found,
            has_more: known < found,
        }
    }

    /// Decodes the item at `start` of a leaf, which is a value of a key, or all of its values.
    fn values(
        &self,
        page: &[u8],
        number: u64,
        start: Result<usize, Fault>,
        budget: &Budget,
    ) -> Result<(Piece, Further)> {
        let database = &self.database;
        if let Ok(at) = start
            && page.get(at + 2) == Some(&leaf_item::DUPLICATE_TREE)
        {
            let root = u64::from(database.order.u32_at(page, at + 4));
            let values = or_fault(database.tree(root, budget))?;
            return Ok(values.unwrap_or_else(|fault| (Piece::Fault(fault), Further::default())));
        }
        let value = start.and_then(|at| database.leaf_piece(page, number, at));
        Ok((value.unwrap_or_else(Piece::Fault), Further::default()))
    }

    /// Returns the faults of a leaf that names other neighbours than the internal pages do: they
    /// miss leaves, or list wrong ones.
    fn wrong_neighbours(&self, page: &[u8], index: usize) -> impl Iterator<Item = Fault> {
        let offset = self.database.pages.offset_of(self.leaves[index].page);
        let next = self.leaves.get(index + 1).map_or(0, |leaf| leaf.page);
        let wrong = |what, at: usize, expected: u64| {
            let found = u64::from(self.database.order.u32_at(page, at));
            (expected != found).then(|| Fault::new(what, offset + at as u64, expected, found))
        };
        let before = || wrong("leaf before the first", PREVIOUS_AT, 0);
        let before = (index == 0).then(before).flatten();
        before.into_iter().chain(wrong("next leaf", NEXT_AT, next))
    }

    /// Returns whether the keys of some leaf do not rise byte by byte.
    fn is_unsorted(&self, budget: &Budget) -> Result<bool> {
        for index in 0..self.unit_count() {
            let unit = self.unit(index, budget)?;
            let keys = unit.items.iter().filter_map(|item| match &item.key {
                Piece::Here(key) => Some(key),
                _ => None,
            });
            if !keys.is_sorted() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl PairPages for BtreeFile {
    const TYPES: &'static [u8] = &[page_type::LEAF];

    fn database(&self) -> &Database {
        &self.database
    }

    /// Reads the pairs in the first `present` bytes of a leaf. An item behind them is left out: the
    /// file ends before it.
    fn pairs_of(
        &self,
        (page, present): (&[u8], usize),
        number: u64,
        unit: &mut Unit,
        budget: &Budget,
    ) -> Result<()> {
        let database = &self.database;
        let (starts, faults) = database.item_starts(page, number, 2);
        unit.faults.extend(faults);
        let page = &page[..present];
        let (mut last_key_at, mut room) = (None, database.room_of(page, number));
        for &[key_at, value_at] in starts.as_chunks::<2>().0 {
            let is_cut = |start: Result<usize, Fault>| start.is_ok_and(|at| at >= present);
            let is_deleted = value_at.is_ok_and(|at| Database::is_deleted(page, at));
            if is_cut(key_at) || is_cut(value_at) || is_deleted {
                continue;
            }
            let (value, further) = self.values(page, number, value_at, budget)?;
            let item = match unit.items.last_mut() {
                Some(Item { further: Further::Row(row), .. }) if last_key_at == Some(key_at) => {
                    room.take(&value).map(|()| row.push(value))
                }
                _ => key_at.and_then(|at| database.leaf_piece(page, number, at)).and_then(|key| {
                    room.take(&key)?;
                    // The first value of a tree is on another page.
                    if further.is_empty() {
                        room.take(&value)?;
                    }
                    last_key_at = Some(key_at);
                    unit.items.push(Item { key, value, further });
                    Ok(())
                }),
            };
            if let Err(fault) = item {
                unit.faults.push(fault);
                if room.is_spent() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Reader for BtreeFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn source(&self) -> &Source {
        &self.database.pages.source
    }

    fn unit_count(&self) -> u64 {
        self.leaves.len() as u64
    }

    fn faults(&self) -> &[Fault] {
        &self.database.faults
    }

    fn stated(&self) -> Stated {
        self.stated
    }

    fn unit(&self, index: u64, budget: &Budget) -> Result<Unit> {
        let Some(leaf) = self.leaves.get(index as usize) else { return Ok(Unit::default()) };
        let number = leaf.page;
        if let Some(absent) = self.database.pages.absent(number) {
            return Ok(absent);
        }
        let mut unit = Unit { is_in_use: true, ..Unit::default() };
        let page = match or_fault(self.database.pages.read(number, budget))? {
            Ok(page) => page,
            Err(fault) => {
                unit.faults.push(fault);
                return Ok(unit);
            }
        };
        if let Some(fault) = self.database.wrong_checksum(&page, number) {
            // Only a salvage reads it.
            unit.faults.push(fault);
            return Ok(unit);
        }
        if page[TYPE_AT] != page_type::LEAF {
            let wrong = self.database.wrong_type(number, page_type::LEAF, page[TYPE_AT]);
            unit.faults.extend(or_fault::<()>(Err(wrong))?.err());
            return Ok(unit);
        }
        unit.faults.extend(self.database.wrong_number(&page, number));
        unit.faults.extend(self.wrong_neighbours(&page, index as usize));
        self.pairs_of((&page, page.len()), number, &mut unit, budget)?;
        Ok(unit)
    }

    fn is_hashed(&self) -> bool {
        false
    }

    fn has_own_order(&self, budget: &Budget) -> Result<bool> {
        Ok(!self.is_bytewise || self.is_unsorted(budget)?)
    }

    fn homes(&self, key: &[u8]) -> Homes {
        if !self.is_bytewise {
            return Homes::UNKNOWN;
        }
        let behind = self.leaves.partition_point(|leaf| &*leaf.least <= key);
        let home = behind.saturating_sub(1) as u64;
        Homes::of(home, home)
    }

    fn parameters(&self) -> Vec<Parameter> {
        let budget = Budget::new(self.source());
        let has_own_order = self.has_own_order(&budget).unwrap_or(false);
        let mut parameters = self.database.parameters();
        parameters.extend([
            Parameter::new("bt_minkey", self.min_key),
            Parameter::new("internal pages", self.internal_pages),
            Parameter::new("leaves", self.leaves.len()),
            Parameter::new("order", if has_own_order { "another" } else { "by bytes" }),
        ]);
        if self.database.flags & (flag::DUPLICATES | flag::SORTED_DUPLICATES) > flag::DUPLICATES {
            parameters.push(Parameter::new("dupsort", 1));
        }
        parameters
    }

    fn hash_name(&self) -> &'static str {
        ""
    }

    fn hash_of(&self, _key: &[u8]) -> Option<u64> {
        None
    }
}
