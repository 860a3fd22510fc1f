//! An old file as a read-only table.
//!
//! # Invariants
//!
//! - A scan returns each key once: the pair that the original's lookup finds, or else the first
//!   one.
//! - A scan of a file that lacks units at its end ends with an error.
//! - A lookup returns what a scan returns. A lookup answers that a key is absent only if no pair is
//!   out of place, and nothing is damaged or missing where the key would be.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::OnceLock;

use splitpoint::linear::{BucketIndex, Geometry};
use splitpoint::stats::{Ideal, Occupancy, Stats};
use splitpoint::{
    Capabilities, Durability, Entries, Error, PutMode, Result, ScanGuarantee, Table, TableCheck,
    Value,
};

use crate::identity::Identity;
use crate::reader::{
    Budget, Fault, FurtherValues, Homes, Item, Parameter, Piece, Reader, Unit, key_of, or_fault,
    value_of,
};
use crate::scan::{KeyValue, Scan, Values, values_of_item};
use crate::stated::{Counted, Discrepancy, StatedBy};

/// Most doubts that a survey lists; it counts further ones.
const DOUBTS_MAX: usize = 1000;

/// Most counters of hashes: more than any histogram needs rows.
const CELL_BITS_MAX: u32 = 20;

/// Something in a file that the library cannot take at face value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// Something breaks the format; a scan loses its content.
    Fault(Fault),
    /// A key is in the file twice, as after a crash during a split. The scan returns the pair that
    /// the original's lookup finds.
    Twice {
        /// The key.
        key: Vec<u8>,
    },
    /// A pair is in a place where the original's lookup misses it. The scan returns it.
    Stray {
        /// The key.
        key: Vec<u8>,
    },
    /// A number that the file states differs from the one found.
    Discrepancy(Discrepancy),
    /// The `.dir` is missing, so nothing states the number of blocks. Missing blocks at the end go
    /// unnoticed.
    UnknownExtent,
    /// The `.dir` of a dbm.dumb table is missing, so its earlier copy, the `.bak`, was read. Changes
    /// of the last session may be missing.
    EarlierIndex,
    /// The `.dir` of a dbm.dumb table lacks keys that its earlier copy, the `.bak`, lists: they were
    /// deleted, or the program was killed while it wrote the `.dir`. A salvage returns them.
    ShorterIndex {
        /// The number of these keys.
        key_count: u64,
    },
}

impl Doubt {
    /// Returns whether a scan lacks something that the file holds or held.
    pub fn is_loss(&self) -> bool {
        !matches!(self, Self::Stray { .. }) && !self.is_reservation()
    }

    /// Returns whether nothing in the files can settle it, so that a command warns of it and goes
    /// on.
    pub fn is_reservation(&self) -> bool {
        matches!(self, Self::UnknownExtent) || self.is_about_index()
    }

    /// Returns whether the list of the keys may lack some, so that the table must not be replaced
    /// by what it lists unless the user says so.
    pub fn is_about_index(&self) -> bool {
        matches!(self, Self::EarlierIndex | Self::ShorterIndex { .. })
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::Twice { key } => write!(f, "key `{}` is there twice", key.escape_ascii()),
            Self::Stray { key } => {
                write!(f, "key `{}` is where a lookup does not find it", key.escape_ascii())
            }
            Self::Discrepancy(discrepancy) => discrepancy.fmt(f),
            Self::UnknownExtent => {
                f.write_str("there is no .dir, and nothing else states how many blocks there were")
            }
            Self::EarlierIndex => f.write_str(
                "there is no .dir, so its earlier copy, the .bak, was read; changes of the last \
                 session may be missing",
            ),
            Self::ShorterIndex { key_count: 1 } => f.write_str(
                "the .dir lacks a key that its earlier copy, the .bak, lists: it was deleted, or \
                 the program was killed; salvage saves its record",
            ),
            Self::ShorterIndex { key_count } => write!(
                f,
                "the .dir lacks {key_count} keys that its earlier copy, the .bak, lists: they were \
                 deleted, or the program was killed; salvage saves their records",
            ),
        }
    }
}

/// The buckets with `size` pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketRow {
    /// Pairs in the bucket.
    pub size: u64,
    /// Buckets with that many pairs.
    pub bucket_count: u64,
    /// Buckets of this size that an ideal hash gives on average.
    pub ideal_bucket_count: f64,
}

/// The result of a walk over a complete file.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Pairs that a scan returns.
    pub pair_count: u64,
    /// Readable values after the first of their key, in formats that have several of a key.
    pub further_value_count: u64,
    /// Keys with several values.
    pub several_values_count: u64,
    /// Buckets or blocks.
    pub bucket_count: u64,
    /// Pages of chains after their first.
    pub overflow_pages: u64,
    /// The first thousand doubts.
    pub doubts: Vec<Doubt>,
    /// The number of all doubts.
    pub doubt_count: u64,
    /// The number of losses among them; see [`Doubt::is_loss`].
    pub loss_count: u64,
    /// Buckets by their number of pairs, by rising size.
    pub buckets: Vec<BucketRow>,
    /// What breaks the format first.
    fault: Option<Fault>,
    /// Keys with a pair out of place, and the place of the pair that counts, unless that is in its
    /// place.
    pub(crate) strays: HashMap<Vec<u8>, Option<Place>>,
}

/// An item of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) unit: u64,
    pub(crate) index: usize,
}

impl Survey {
    /// Returns the first fault in the format, if there is one.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Returns the stated numbers that differ from what was found, records first.
    pub fn discrepancies(&self) -> impl Iterator<Item = Discrepancy> {
        self.doubts.iter().filter_map(|doubt| match doubt {
            Doubt::Discrepancy(discrepancy) => Some(*discrepancy),
            _ => None,
        })
    }

    pub(crate) fn doubt(&mut self, doubt: Doubt) {
        self.doubt_count += 1;
        self.loss_count += u64::from(doubt.is_loss());
        if let Doubt::Fault(fault) = doubt {
            self.fault.get_or_insert(fault);
        }
        if self.doubts.len() < DOUBTS_MAX {
            self.doubts.push(doubt);
        }
    }

    /// Puts a discrepancy before all other doubts, so that it stays in the list.
    fn discrepancy(&mut self, discrepancy: Discrepancy) {
        self.doubt_count += 1;
        self.loss_count += 1;
        self.doubts.truncate(DOUBTS_MAX - 1);
        self.doubts.insert(0, Doubt::Discrepancy(discrepancy));
    }
}

/// An old file as a read-only table.
///
/// [`open`](crate::open()) returns it. A scan that reaches damaged or missing bytes returns an
/// error and then continues behind them. A count in the header that is too high is not an error;
/// only [`survey`](Self::survey) reports it.
#[derive(Debug)]
pub struct OldFile {
    reader: Box<dyn Reader>,
    survey: OnceLock<Survey>,
}

impl OldFile {
    pub(crate) fn new(reader: Box<dyn Reader>) -> Self {
        Self { reader, survey: OnceLock::new() }
    }

    /// Returns the number of bytes read from the file so far.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn read_bytes(&self) -> u64 {
        self.reader.source().read_bytes()
    }

    /// Returns the identity of the file.
    pub fn identity(&self) -> &Identity {
        self.reader.identity()
    }

    /// Returns whether a hash leads to the keys of this format, so that the sizes of its buckets
    /// tell how well the hash function suits them.
    pub fn is_hashed(&self) -> bool {
        self.reader.is_hashed()
    }

    /// Returns the parameters of the file, as its format names them.
    pub fn parameters(&self) -> Vec<Parameter> {
        self.reader.parameters()
    }

    /// Returns the signs, found without a walk over the file, that it was cut short.
    ///
    /// [`Survey::discrepancies`] has more: the number of records, pages that only a chain leads to,
    /// and pages of a file that was not closed.
    pub fn discrepancy(&self) -> Option<Discrepancy> {
        self.reader.stated().discrepancy()
    }

    /// Returns the number of records that the header states, if it is reliable: a sound file has at
    /// least that many.
    pub fn stated_record_count(&self) -> Option<u64> {
        self.reader.stated().records
    }

    /// Walks over the complete file and returns what it finds. Later calls return the same result.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a system call fails. Damage is in the survey.
    ///
    /// # Cost
    ///
    /// Reads every bucket, every key, and every value outside the buckets. Takes memory for the
    /// keys out of place: none in a sound file, all keys if the hash function is unknown.
    pub fn survey(&self) -> Result<&Survey> {
        if let Some(survey) = self.survey.get() {
            return Ok(survey);
        }
        let survey = Walk::new(&*self.reader).run()?;
        Ok(self.survey.get_or_init(|| survey))
    }

    /// Returns the reader of its format.
    pub(crate) fn reader(&self) -> &dyn Reader {
        &*self.reader
    }

    /// Returns every value of every key: a key comes as often as it has values, one after the
    /// other, in their order. [`scan`](Table::scan) returns the first value of each.
    ///
    /// A value that is unreadable comes with its key, so that nobody takes the next one for it.
    ///
    /// # Errors
    ///
    /// Damage that hides keys, as items; those of a scan.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let old = splitpoint_legacy::open("tests/fixtures/bdb53-btree-le-512-several.bdb53")?;
    /// let survey = old.survey()?;
    /// let value_count = survey.pair_count + survey.further_value_count;
    /// assert_eq!(old.values().count() as u64, value_count);
    /// # Ok(())
    /// # }
    /// ```
    pub fn values(&self) -> impl Iterator<Item = Result<KeyValue<'_>>> {
        Scan::new(self, Values::All)
    }

    /// Calls `save` with every value of every key that is still readable, and with whether it is in
    /// doubt.
    ///
    /// First come the values that [`values`](Self::values) returns, the unreadable ones included;
    /// these are certain. Then come other keys with their values, from buckets and pages that
    /// nothing in the file leads to any more. Such a record may have been deleted or replaced before
    /// the damage.
    ///
    /// # Errors
    ///
    /// Those of `save`; [`Error::Io`] if a system call fails. Damage is not an error here: the
    /// result lists the first thousand faults, after the discrepancies.
    ///
    /// # Cost
    ///
    /// Reads the file three times, and keeps its keys in memory.
    pub fn salvage(
        &self,
        mut save: impl FnMut(KeyValue<'_>, bool) -> Result<()>,
    ) -> Result<Vec<Doubt>> {
        let end = self.reader.stated().fault();
        let mut faults = Vec::new();
        let mut saved: HashSet<Vec<u8>> = HashSet::new();
        for one in self.values() {
            let fault = match or_fault(one)? {
                Ok(one) => {
                    let fault = one.value.as_ref().err().copied();
                    // A key of which nothing is readable may be elsewhere too.
                    if fault.is_none() && !saved.contains(&*one.key) {
                        saved.insert(one.key.to_vec());
                    }
                    save(one, false)?;
                    fault
                }
                Err(fault) => Some(fault),
            };
            match fault {
                None => {}
                // It is a discrepancy.
                Some(fault) if Some(fault) == end => {}
                Some(fault) if faults.len() < DOUBTS_MAX => faults.push(fault),
                // A walk that cannot continue would repeat itself.
                Some(_) => break,
            }
        }
        let reader = &*self.reader;
        // Looking for them and reading them take one each.
        let (looking, reading) = (Budget::new(reader.source()), Budget::new(reader.source()));
        reader.loose_units(&looking, &mut |unit| {
            for item in unit.items {
                let Ok(key) = or_fault(key_of(reader, &item, &reading))? else { continue };
                if saved.contains(&key) {
                    continue;
                }
                let mut is_saved = false;
                for one in values_of_item(reader, &key, item, &reading) {
                    let one = one?;
                    is_saved |= one.value.is_ok();
                    save(one, true)?;
                }
                if is_saved {
                    saved.insert(key);
                }
            }
            Ok(())
        })?;
        faults
            .extend([looking, reading].iter().find(|budget| budget.is_spent()).map(Budget::fault));
        let discrepancies = self.survey()?.discrepancies().map(Doubt::Discrepancy);
        Ok(discrepancies.chain(faults.into_iter().map(Doubt::Fault)).collect())
    }

    /// Counts the keys by their hashes, which shows how evenly the hash function spreads them.
    ///
    /// With linear hashing the counters are the buckets. Other formats split the buckets that are
    /// full, which says little about the hash; for these the counters are equal parts of the range
    /// of the hash, as many as keys, rounded down to a power of two.
    fn occupancy(&self, reader: &dyn Reader) -> Result<Occupancy> {
        let survey = self.survey()?;
        if reader.hash_name().is_empty() || !reader.is_hashed() {
            return Ok(occupancy_of_rows(survey));
        }
        let key_count = survey.pair_count;
        let cells = match reader.linear_bucket_count() {
            Some(buckets) => buckets.min(1 << CELL_BITS_MAX),
            None => 1 << key_count.max(1).ilog2().min(CELL_BITS_MAX),
        };
        let geometry = Geometry::with_bucket_count(cells);
        let mut keys_by_cell = vec![0_u64; cells as usize];
        for entry in self.scan()? {
            let Ok(entry) = entry else { continue };
            if let Some(hash) = reader.hash_of(&entry.key) {
                keys_by_cell[geometry.bucket_of(hash).0 as usize] += 1;
            }
        }
        let slots = keys_by_cell.iter().copied().max().unwrap_or_default().max(1);
        let mut occupancy = Occupancy::new(geometry, slots);
        for (cell, &keys) in (0..).zip(&keys_by_cell) {
            occupancy.add_chain(BucketIndex(cell), &[keys]);
        }
        Ok(occupancy)
    }
}

/// Counts the keys by their buckets, which is all one can do if the hash function is unknown.
fn occupancy_of_rows(survey: &Survey) -> Occupancy {
    let geometry = Geometry::with_bucket_count(survey.bucket_count.max(1));
    let slots = survey.buckets.last().map_or(1, |row| row.size.max(1));
    let mut occupancy = Occupancy::new(geometry, slots);
    let rows = survey.buckets.iter();
    let sizes = rows.flat_map(|row| (0..row.bucket_count).map(|_| row.size));
    for (cell, size) in (0..).zip(sizes) {
        occupancy.add_chain(BucketIndex(cell), &[size]);
    }
    occupancy
}

/// Looks for `key` where the original would.
fn find_at_home(reader: &dyn Reader, key: &[u8], homes: Homes, budget: &Budget) -> Result<Found> {
    let mut fault = None;
    for home in homes.iter() {
        let unit = reader.unit_of(home, key, budget)?;
        match find(reader, &unit, key, budget)? {
            Ok(Some(item)) => return Ok(Found::Value(value_of(reader, item, budget)?)),
            Ok(None) => fault = fault.or(unit.absence).or(unit.faults.first().copied()),
            Err(unreadable) => fault = fault.or(Some(unreadable)),
        }
    }
    Ok(Found::Nothing { fault })
}

enum Found {
    Value(Vec<u8>),
    /// And the damage in the places where it would have been.
    Nothing {
        fault: Option<Fault>,
    },
}

/// Finds the first item with `key`. If there is none, an unreadable key might be it.
fn find<'u>(
    reader: &dyn Reader,
    unit: &'u Unit,
    key: &[u8],
    budget: &Budget,
) -> Result<Result<Option<&'u Item>, Fault>> {
    let mut fault = None;
    for item in &unit.items {
        let bytes = match &item.key {
            Piece::Here(found) => Some(found.len() as u64),
            Piece::At { bytes, .. } => Some(*bytes),
            Piece::Pages { bytes, .. } => *bytes,
            Piece::Fault(_) => None,
        };
        if bytes.is_some_and(|bytes| bytes != key.len() as u64) {
            continue;
        }
        match or_fault(key_of(reader, item, budget))? {
            Ok(found) if found == key => return Ok(Ok(Some(item))),
            Ok(_) => {}
            Err(unreadable) => fault = fault.or(Some(unreadable)),
        }
    }
    Ok(fault.map_or(Ok(None), Err))
}

impl Table for OldFile {
    fn capabilities(&self) -> Capabilities {
        let bytes_max = self.reader.source().file_bytes();
        let mut capabilities = Capabilities::of_limits(bytes_max, bytes_max);
        capabilities.scan = ScanGuarantee::ExactlyOnce;
        capabilities
    }

    fn get_bytes(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        let reader = &*self.reader;
        let homes = reader.homes(key);
        let budget = Budget::new(reader.source());
        let fault = match find_at_home(reader, key, homes, &budget)? {
            Found::Value(value) => return Ok(Some(Value::owned(value))),
            Found::Nothing { fault } => fault,
        };
        let survey = self.survey()?;
        if let Some(Some(place)) = survey.strays.get(key) {
            let unit = reader.unit(place.unit, &budget)?;
            if let Some(item) = unit.items.get(place.index) {
                return Ok(Some(Value::owned(value_of(reader, item, &budget)?)));
            }
        }
        let fault = if homes == Homes::UNKNOWN { survey.fault } else { fault };
        fault.map_or(Ok(None), |fault| Err(fault.into()))
    }

    fn put_bytes(
        &self,
        _key: &[u8],
        _value: &[u8],
        _mode: PutMode,
        _durability: Option<Durability>,
    ) -> Result<bool> {
        Err(Error::ReadOnly)
    }

    fn delete_bytes(&self, _key: &[u8], _durability: Option<Durability>) -> Result<bool> {
        Err(Error::ReadOnly)
    }

    fn scan(&self) -> Result<Entries<'_>> {
        Ok(Box::new(Scan::new(self, Values::First).map(|one| one?.into_entry())))
    }

    fn len(&self) -> Result<u64> {
        let survey = self.survey()?;
        survey.fault.map_or(Ok(survey.pair_count), |fault| Err(fault.into()))
    }

    fn sync(&self) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn stats(&self) -> Result<Stats> {
        let reader = &*self.reader;
        let survey = self.survey()?;
        let mut stats = match reader.stats() {
            Some(stats) => stats,
            None => Stats::of_chains(&self.occupancy(reader)?),
        };
        stats.record_count = survey.pair_count;
        stats.hash_name = reader.hash_name().to_string();
        stats.path = Some(self.identity().path.clone());
        stats.file_bytes = reader.source().file_bytes();
        stats.overflow_line_count = survey.overflow_pages;
        Ok(stats)
    }

    fn check(&self) -> Result<TableCheck> {
        let survey = self.survey()?;
        let mut check = TableCheck::new(survey.pair_count);
        survey.doubts.iter().for_each(|doubt| check.note(doubt));
        check.damage_count = survey.doubt_count;
        Ok(check)
    }
}

/// The walk of a survey.
struct Walk<'a> {
    reader: &'a dyn Reader,
    survey: Survey,
    budget: Budget,
    sizes: BTreeMap<(Option<u32>, u64), u64>,
    /// Pairs, by the units' own counts.
    stated_pairs: u64,
    /// Second pairs of keys that are in the file twice.
    twice_count: u64,
    /// Whether the place of a key among the others says nothing.
    has_own_order: bool,
}

impl<'a> Walk<'a> {
    fn new(reader: &'a dyn Reader) -> Self {
        let budget = Budget::new(reader.source());
        let (survey, sizes) = (Survey::default(), BTreeMap::new());
        let (stated_pairs, twice_count, has_own_order) = (0, 0, false);
        Self { reader, survey, budget, sizes, stated_pairs, twice_count, has_own_order }
    }

    fn run(mut self) -> Result<Survey> {
        for &fault in self.reader.faults() {
            self.survey.doubt(Doubt::Fault(fault));
        }
        if let Some(doubt) = self.reader.reservation() {
            self.survey.doubt(doubt);
        }
        let mut next = 0;
        while next < self.reader.unit_count() {
            let unit = self.reader.after_hole(next).min(self.reader.unit_count());
            self.reader.empty_buckets(next..unit, &mut |depth| {
                self.survey.bucket_count += 1;
                *self.sizes.entry((depth, 0)).or_insert(0) += 1;
            });
            next = unit + 1;
            if unit < self.reader.unit_count() {
                self.unit(unit)?;
            }
            if self.budget.is_spent() {
                break;
            }
        }
        self.settle_strays()?;
        let surplus = self.surplus()?;
        self.compare(surplus);
        self.survey.buckets = self.rows();
        Ok(self.survey)
    }

    /// Compares the findings with what the file states.
    fn compare(&mut self, surplus: Option<Discrepancy>) {
        let stated = self.reader.stated();
        let found = self.survey.pair_count + self.twice_count;
        let by_header = stated.records.map(|records| (StatedBy::Header, records));
        let by_buckets = (StatedBy::Buckets, self.stated_pairs);
        let records = [by_header, Some(by_buckets)].into_iter().flatten();
        // An abandoned walk has not counted everything.
        let is_counted =
            |(_, records): &(StatedBy, u64)| found < *records && !self.budget.is_spent();
        let records: Vec<_> = records.filter(is_counted).collect();
        let is_less = self.survey.fault.is_some() || !records.is_empty();
        let suspicion = stated.suspicion().filter(|_| is_less);
        if let Some(discrepancy) = stated.discrepancy().or(suspicion).or(surplus) {
            self.survey.discrepancy(discrepancy);
        }
        for (by, records) in records {
            self.survey.discrepancy(Discrepancy::of_records(by, records, found));
        }
        if let Some(fault) = stated.fault() {
            self.survey.fault.get_or_insert(fault);
        }
    }

    /// Looks behind the end that the header states for a key that the table lacks.
    fn surplus(&self) -> Result<Option<Discrepancy>> {
        let Some((extent, discrepancy)) = self.reader.stated().surplus() else { return Ok(None) };
        if extent.counted == Counted::Bytes {
            // Where pairs lie anywhere, each byte may be of one.
            return Ok(Some(discrepancy));
        }
        let (source, budget) = (self.reader.source(), Budget::new(self.reader.source()));
        let mut number = extent.known.unwrap_or(extent.found);
        while number < extent.found && !budget.is_spent() {
            let data = source.next_data(number.saturating_mul(extent.unit_bytes));
            number = number.max(data / extent.unit_bytes);
            if number >= extent.found {
                break;
            }
            let Ok(unit) = or_fault(self.reader.page_behind(number, &budget))? else { break };
            if self.is_surplus(&unit, &budget)? {
                return Ok(Some(discrepancy));
            }
            number += 1;
        }
        Ok(None)
    }

    /// Returns whether a page has something that the table lacks.
    fn is_surplus(&self, unit: &Unit, budget: &Budget) -> Result<bool> {
        // Without the header nothing shows which key a page of a big pair belongs to.
        if unit.overflow_pages > 0 {
            return Ok(true);
        }
        for item in &unit.items {
            match or_fault(key_of(self.reader, item, budget))? {
                Ok(key) if self.has_key(&key, budget)? => {}
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    fn has_key(&self, key: &[u8], budget: &Budget) -> Result<bool> {
        let found = or_fault(find_at_home(self.reader, key, self.reader.homes(key), budget))?;
        // A key whose value is unreadable counts as present.
        let is_home = !matches!(found, Ok(Found::Nothing { .. }));
        Ok(is_home || self.survey.strays.contains_key(key))
    }

    fn unit(&mut self, index: u64) -> Result<()> {
        let unit = self.reader.unit(index, &self.budget)?;
        for &fault in &unit.faults {
            self.survey.doubt(Doubt::Fault(fault));
        }
        self.stated_pairs = self.stated_pairs.saturating_add(unit.stated_pairs);
        let mut seen = HashSet::new();
        for (at, item) in unit.items.iter().enumerate() {
            match or_fault(key_of(self.reader, item, &self.budget))? {
                Ok(key) => self.item(Place { unit: index, index: at }, item, key, &mut seen)?,
                Err(fault) => self.survey.doubt(Doubt::Fault(fault)),
            }
            if self.budget.is_spent() {
                break;
            }
        }
        if unit.is_in_use {
            self.survey.bucket_count += 1;
            *self.sizes.entry((unit.depth, unit.items.len() as u64)).or_insert(0) += 1;
        }
        self.survey.overflow_pages += unit.overflow_pages;
        Ok(())
    }

    /// Counts an item with each of its values.
    fn item(
        &mut self,
        place: Place,
        item: &Item,
        key: Vec<u8>,
        seen: &mut HashSet<Vec<u8>>,
    ) -> Result<()> {
        let is_whole = match item.value {
            Piece::Pages { .. } | Piece::Fault(_) => {
                let value = or_fault(value_of(self.reader, item, &self.budget))?;
                value.inspect_err(|fault| self.survey.doubt(Doubt::Fault(*fault))).is_ok()
            }
            Piece::Here(_) | Piece::At { .. } => true,
        };
        let is_counted = if is_whole {
            self.pair(place, key, seen)
        } else if self.reader.homes(&key).first() == Some(place.unit) && !item.further.is_empty() {
            // The further values belong to the first item with this key.
            seen.insert(key)
        } else {
            !seen.contains(&key)
        };
        let (mut readable, mut all) = (0, 0);
        let mut further = FurtherValues::of(item.further.clone());
        while let Some(value) = or_fault(further.next(self.reader, &self.budget))?.transpose() {
            all += 1;
            match value {
                Ok(_) => readable += 1,
                Err(fault) => self.survey.doubt(Doubt::Fault(fault)),
            }
            if self.budget.is_spent() {
                break;
            }
        }
        if is_counted {
            self.survey.further_value_count += readable;
            self.survey.several_values_count += u64::from(all > 0);
        }
        Ok(())
    }

    fn twice(&mut self, key: Vec<u8>) {
        self.twice_count += 1;
        self.survey.doubt(Doubt::Twice { key });
    }

    /// Counts a pair whose first value is readable. Returns whether a scan returns it, as far as is
    /// known.
    fn pair(&mut self, place: Place, key: Vec<u8>, seen: &mut HashSet<Vec<u8>>) -> bool {
        let homes = self.reader.homes(&key);
        if homes.first() == Some(place.unit) {
            if seen.contains(&key) {
                self.twice(key);
                return false;
            }
            self.survey.pair_count += 1;
            seen.insert(key);
            return true;
        }
        if let Some(earlier) = self.survey.strays.get_mut(&key) {
            // A lookup tries every home first.
            let is_at_home = |place: Place| homes.iter().any(|home| home == place.unit);
            if is_at_home(place) && !earlier.is_some_and(is_at_home) {
                *earlier = Some(place);
            }
            self.twice(key);
            return false;
        }
        self.survey.pair_count += 1;
        self.survey.strays.insert(key, Some(place));
        true
    }

    /// Finds the strays that also have a pair in their place, or a better one.
    fn settle_strays(&mut self) -> Result<()> {
        let mut by_home: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        let mut keys: Vec<Vec<u8>> = self.survey.strays.keys().cloned().collect();
        keys.sort_unstable();
        for key in keys {
            // If the function is unknown, nothing is out of place.
            if let Some(home) = self.reader.homes(&key).first() {
                by_home.entry(home).or_default().push(key);
            }
        }
        if by_home.is_empty() {
            return Ok(());
        }
        let budget = Budget::new(self.reader.source());
        self.has_own_order = self.reader.has_own_order(&budget)?;
        let budget = Budget::new(self.reader.source());
        for (home, keys) in by_home {
            let unit = self.reader.unit(home, &budget)?;
            let mut at_home = HashSet::new();
            for item in &unit.items {
                if let Ok(key) = or_fault(key_of(self.reader, item, &budget))? {
                    at_home.insert(key);
                }
            }
            for key in keys {
                // If the search failed, the key counts as found, because a scan returns no key
                // twice.
                if budget.is_spent() {
                    at_home.insert(key.clone());
                }
                self.settle(key, &at_home);
            }
        }
        Ok(())
    }

    fn settle(&mut self, key: Vec<u8>, at_home: &HashSet<Vec<u8>>) {
        if at_home.contains(&key) {
            self.survey.pair_count -= 1;
            self.survey.strays.insert(key.clone(), None);
            return self.twice(key);
        }
        let place = self.survey.strays.get(&key).copied().flatten();
        let homes = self.reader.homes(&key);
        // With the other sign of `char` it is in its place.
        let is_home = place.is_some_and(|place| homes.iter().any(|home| home == place.unit));
        if !is_home && !self.has_own_order {
            self.survey.doubt(Doubt::Stray { key });
        }
    }

    /// Returns the histogram of the buckets with the ideal, in which each bucket gets keys by
    /// chance, in proportion to its share of the hash's range.
    fn rows(&self) -> Vec<BucketRow> {
        let mut by_size: BTreeMap<u64, u64> = BTreeMap::new();
        let mut by_depth: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        for (&(depth, size), &count) in &self.sizes {
            *by_size.entry(size).or_insert(0) += count;
            *by_depth.entry(depth).or_insert(0) += count;
        }
        if !self.reader.is_hashed() {
            return Vec::new();
        }
        let keys = self.survey.pair_count;
        let ideal_of = |size| {
            let shares = by_depth.iter().map(|(&depth, &count)| {
                let cells = depth.map_or(self.survey.bucket_count, |depth| 1 << depth.min(32));
                count as f64 * Ideal::uniform(cells, keys).bucket_count(size) / cells as f64
            });
            shares.sum()
        };
        let rows = by_size.into_iter();
        rows.map(|(size, bucket_count)| BucketRow {
            size,
            bucket_count,
            ideal_bucket_count: ideal_of(size),
        })
        .collect()
    }
}
