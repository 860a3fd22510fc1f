//! A db 1.85 file as an old file whose units are its buckets.

use std::path::Path;

use splitpoint::stats::Stats;
use splitpoint::{Error, Result, Table as _};

use super::extent::{extent_of, records_of};
use super::open::Options;
use super::overflow::Bits;
use super::salvage;
use super::store::Store;
use super::table::{Db185, UNWRITTEN_MAX};
use crate::ByteOrder;
use crate::Source;
use crate::identity::{Format, Identity};
use crate::reader::{Budget, Fault, Homes, Item, Loose, Parameter, Piece, Reader, Unit, or_fault};
use crate::stated::Stated;

/// A read-only db 1.85 file.
#[derive(Debug)]
pub(crate) struct Db185File {
    identity: Identity,
    source: Source,
    table: Db185,
    /// All buckets, with those that have no page in the file.
    bucket_count: u64,
    faults: Vec<Fault>,
    stated: Stated,
    hash_name: String,
    has_addresses: bool,
}

impl Db185File {
    /// Opens the file that `identity` names, even if its hash function is unknown.
    pub(crate) fn open(identity: Identity, options: &Options) -> Result<Self> {
        let table = match options.clone().read_only().open(&identity.path) {
            Err(Error::HashMismatch { .. }) => options.clone().any_hash().open(&identity.path),
            opened => opened,
        }?;
        Self::of_table(identity, table, Vec::new(), true)
    }

    /// Opens the file that `identity` names, and trusts its pages more than its header. Returns
    /// `None` if the pages show nothing.
    pub(crate) fn open_damaged(identity: Identity) -> Result<Option<Self>> {
        let source = Source::open(&identity.path)?;
        let Some(found) = salvage::examine(&source)? else { return Ok(None) };
        let order = found.header.byte_order;
        let store = Options::new().open_with_header(&identity.path, found.header, found.hash)?;
        let identity = Identity { byte_order: Some(order), ..identity };
        let is_rebuilt = !found.faults.is_empty();
        let table = Db185::new(store);
        let mut file = Self::of_table(identity, table, found.faults, found.has_addresses)?;
        if is_rebuilt {
            // The pages themselves are no statement to compare the pages with.
            file.stated = Stated::default();
        }
        Ok(Some(file))
    }

    /// Opens the file at `path` if its pages identify it, although its first bytes do not.
    pub(crate) fn open_unmarked(path: &Path) -> Result<Option<Self>> {
        let details = vec!["known by its pages".to_string()];
        let (format, path) = (Format::Db185Hash, path.to_path_buf());
        let identity = Identity { details, ..Identity::new(format, &path) };
        Self::open_damaged(identity)
    }

    fn of_table(
        identity: Identity,
        table: Db185,
        faults: Vec<Fault>,
        has_addresses: bool,
    ) -> Result<Self> {
        let source = Source::open(&identity.path)?;
        let (bucket_count, hash_name, stated) = {
            let store = table.store();
            let name = store.hash.as_ref().map(|hash| hash.name().to_string());
            let (all, written) = (u64::from(store.shape.max_bucket) + 1, store.bucket_end());
            // Do not count more buckets without a page than this.
            let bucket_count = if all - written > UNWRITTEN_MAX { written } else { all };
            let extent = extent_of(&source, &store.shape, store.order, 40)?;
            let stated = Stated { records: records_of(store.key_estimate), extent: Some(extent) };
            (bucket_count, name.unwrap_or_default(), stated)
        };
        Ok(Self { identity, source, table, bucket_count, faults, stated, hash_name, has_addresses })
    }
}

impl Reader for Db185File {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn source(&self) -> &Source {
        &self.source
    }

    fn unit_count(&self) -> u64 {
        self.bucket_count
    }

    fn faults(&self) -> &[Fault] {
        &self.faults
    }

    fn stated(&self) -> Stated {
        self.stated
    }

    fn unit(&self, index: u64, budget: &Budget) -> Result<Unit> {
        let mut unit = Unit { is_in_use: true, ..Unit::default() };
        let mut store = self.table.store();
        if index >= store.bucket_end() {
            let page_bytes = u64::from(store.shape.page_bytes);
            let page = store.shape.bucket_page(u32::try_from(index).unwrap_or(u32::MAX));
            return Ok(Unit::absent(page * page_bytes, page_bytes, self.source.file_bytes()));
        }
        let mut steps = store.steps();
        let steps_max = steps.left;
        let (pairs, result) = store.pairs_before_damage(index as u32, &mut steps);
        let pages = steps_max - steps.left;
        let read_bytes = pages * u64::from(store.shape.page_bytes);
        unit.faults.extend(budget.take(read_bytes).err());
        unit.overflow_pages = pages.saturating_sub(1);
        unit.faults.extend(or_fault(result)?.err());
        unit.items = pairs.into_iter().map(Item::here).collect();
        Ok(unit)
    }

    fn homes(&self, key: &[u8]) -> Homes {
        match self.table.store().bucket_of(key) {
            Some(bucket) => Homes::of(bucket.into(), bucket.into()),
            None => Homes::UNKNOWN,
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let found = self.table.parameters();
        let lorder = if found.byte_order == ByteOrder::Little { 1234 } else { 4321 };
        vec![
            Parameter::new("bsize", found.page_bytes),
            Parameter::new("lorder", lorder),
            match found.fill_factor {
                Some(fill_factor) => Parameter::new("ffactor", fill_factor),
                None => Parameter::new("ffactor", "not decided yet"),
            },
            Parameter::new("nkeys", format!("{} in the header", found.header_record_count)),
            Parameter::new("max_bucket", self.bucket_count - 1),
            Parameter::new("h_charkey", format!("{:#010x}", found.probe_hash)),
            Parameter::new("overflow pages", found.overflow_pages),
            Parameter::new("bitmap pages", found.bitmap_pages),
        ]
    }

    fn hash_name(&self) -> &str {
        &self.hash_name
    }

    fn hash_of(&self, key: &[u8]) -> Option<u64> {
        self.table.store().hash_of(key).map(u64::from)
    }

    fn linear_bucket_count(&self) -> Option<u64> {
        Some(self.bucket_count)
    }

    fn stats(&self) -> Option<Stats> {
        self.table.stats().ok()
    }
}

impl Loose for Db185File {
    fn page_behind(&self, number: u64, budget: &Budget) -> Result<Unit> {
        let store = self.table.store();
        budget.take(u64::from(store.shape.page_bytes))?;
        salvage::loose_page(&self.source, &store.shape, store.order, number)
    }

    fn loose_units(
        &self,
        _budget: &Budget,
        visit: &mut dyn FnMut(Unit) -> Result<()>,
    ) -> Result<()> {
        let (shape, order, free) = {
            let mut store = self.table.store();
            let is_believed = self.faults.is_empty() && bitmaps_agree(&mut store);
            let free = is_believed.then(|| store.overflow.clone());
            (store.shape.clone(), store.order, free)
        };
        let has_addresses = self.has_addresses;
        salvage::loose_units(&self.source, &shape, order, has_addresses, free.as_ref(), visit)
    }
}

impl Item {
    /// Makes an item of a pair that is in memory.
    pub(super) fn here((key, value): (Vec<u8>, Vec<u8>)) -> Self {
        Self::of(Piece::Here(key), Piece::Here(value))
    }
}

/// Returns whether the bitmaps are plausible: the file ends where its header states, and no chain
/// has a free page.
fn bitmaps_agree(store: &mut Store) -> bool {
    let is_longer = store.pool.end() > store.shape.page_end();
    let used = store.used_overflow_pages();
    let all_marked = |used: Bits| {
        let mut all = 0..store.shape.overflow_count();
        all.all(|index| !used.contains(index) || store.overflow.is_needed(index))
    };
    !is_longer && used.is_ok_and(all_marked)
}
