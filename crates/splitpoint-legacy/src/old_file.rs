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
    Capabilities, Durability, Entries, Entry, Error, PutMode, Result, ScanGuarantee, Table,
    TableCheck, Value,
};

use crate::identity::Identity;
use crate::reader::{
    Budget, Fault, Homes, Item, Parameter, Piece, Reader, Unit, key_of, or_fault, value_of,
};
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
    /// A key has several values, which a table cannot hold. The scan returns the first.
    FurtherValues {
        /// The key.
        key: Vec<u8>,
        /// The number of further values.
        count: u64,
    },
    /// A number that the file states differs from the one found.
    Discrepancy(Discrepancy),
    /// The `.dir` is missing, so nothing states the number of blocks. Missing blocks at the end go
    /// unnoticed.
    UnknownExtent,
}

impl Doubt {
    /// Returns whether a scan lacks something that the file holds or held.
    pub fn is_loss(&self) -> bool {
        !matches!(self, Self::Stray { .. } | Self::UnknownExtent)
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
            Self::FurtherValues { key, count } => {
                write!(f, "key `{}` has more values: {count}", key.escape_ascii())
            }
            Self::Discrepancy(discrepancy) => discrepancy.fmt(f),
            Self::UnknownExtent => {
                f.write_str("there is no .dir, and nothing else states how many blocks there were")
            }
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
    strays: HashMap<Vec<u8>, Option<Place>>,
}

/// An item of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    unit: u64,
    index: usize,
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

    /// Calls `save` with every record that is still readable: each key once, with whether it is in
    /// doubt.
    ///
    /// First come the records of a scan, which are certain. Then come records with other keys, from
    /// buckets and pages that nothing in the file leads to any more. Such a record may have been
    /// deleted or replaced before the damage.
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
        mut save: impl FnMut(&[u8], &[u8], bool) -> Result<()>,
    ) -> Result<Vec<Doubt>> {
        let end = self.reader.stated().fault();
        let mut faults = Vec::new();
        let mut saved: HashSet<Vec<u8>> = HashSet::new();
        for entry in self.scan()? {
            match or_fault(entry)? {
                Ok(entry) => {
                    if saved.insert(entry.key.to_vec()) {
                        save(&entry.key, &entry.value, false)?;
                    }
                }
                // It is a discrepancy.
                Err(fault) if Some(fault) == end => {}
                Err(fault) if faults.len() < DOUBTS_MAX => faults.push(fault),
                // A walk that cannot continue would repeat itself.
                Err(_) => break,
            }
        }
        let reader = &*self.reader;
        // Looking for them and reading them take one each.
        let (looking, reading) = (Budget::new(reader.source()), Budget::new(reader.source()));
        reader.loose_units(&looking, &mut |unit| {
            for item in &unit.items {
                let Ok(key) = or_fault(key_of(reader, item, &reading))? else { continue };
                if saved.contains(&key) {
                    continue;
                }
                let Ok(value) = or_fault(value_of(reader, item, &reading))? else { continue };
                save(&key, &value, true)?;
                saved.insert(key);
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
        if reader.hash_name().is_empty() {
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
        let unit = reader.unit(home, budget)?;
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
        let reader = &*self.reader;
        Ok(Box::new(Scan {
            file: self,
            reader,
            next_unit: 0,
            place: Place { unit: 0, index: 0 },
            items: Vec::new().into_iter(),
            faults: reader.faults().to_vec().into_iter(),
            end: reader.stated().fault(),
            seen: HashSet::new(),
            budget: Budget::new(reader.source()),
        }))
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
}

impl<'a> Walk<'a> {
    fn new(reader: &'a dyn Reader) -> Self {
        let budget = Budget::new(reader.source());
        let (survey, sizes) = (Survey::default(), BTreeMap::new());
        Self { reader, survey, budget, sizes, stated_pairs: 0, twice_count: 0 }
    }

    fn run(mut self) -> Result<Survey> {
        for &fault in self.reader.faults() {
            self.survey.doubt(Doubt::Fault(fault));
        }
        if !self.reader.states_extent() {
            self.survey.doubt(Doubt::UnknownExtent);
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
            match or_fault(self.key_of_whole(item))? {
                Ok(key) => self.pair(Place { unit: index, index: at }, item, key, &mut seen),
                Err(fault) => {
                    self.survey.doubt(Doubt::Fault(fault));
                    if self.budget.is_spent() {
                        break;
                    }
                }
            }
        }
        if unit.is_in_use {
            self.survey.bucket_count += 1;
            *self.sizes.entry((unit.depth, unit.items.len() as u64)).or_insert(0) += 1;
        }
        self.survey.overflow_pages += unit.overflow_pages;
        Ok(())
    }

    /// Returns the key of a pair if its value is readable too.
    fn key_of_whole(&self, item: &Item) -> Result<Vec<u8>> {
        let key = key_of(self.reader, item, &self.budget)?;
        if let Piece::Pages { .. } = item.value {
            value_of(self.reader, item, &self.budget)?;
        }
        Ok(key)
    }

    fn twice(&mut self, key: Vec<u8>) {
        self.twice_count += 1;
        self.survey.doubt(Doubt::Twice { key });
    }

    fn pair(&mut self, place: Place, item: &Item, key: Vec<u8>, seen: &mut HashSet<Vec<u8>>) {
        let homes = self.reader.homes(&key);
        if homes.first() == Some(place.unit) {
            if seen.contains(&key) {
                return self.twice(key);
            }
            self.survey.pair_count += 1;
            if item.further_values > 0 {
                let count = item.further_values;
                self.survey.doubt(Doubt::FurtherValues { key: key.clone(), count });
            }
            seen.insert(key);
            return;
        }
        if let Some(earlier) = self.survey.strays.get_mut(&key) {
            // A lookup tries every home first.
            let is_at_home = |place: Place| homes.iter().any(|home| home == place.unit);
            if is_at_home(place) && !earlier.is_some_and(is_at_home) {
                *earlier = Some(place);
            }
            return self.twice(key);
        }
        self.survey.pair_count += 1;
        if item.further_values > 0 {
            let count = item.further_values;
            self.survey.doubt(Doubt::FurtherValues { key: key.clone(), count });
        }
        self.survey.strays.insert(key, Some(place));
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
        if !place.is_some_and(|place| homes.iter().any(|home| home == place.unit)) {
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

/// A scan of an old file.
struct Scan<'a> {
    file: &'a OldFile,
    reader: &'a dyn Reader,
    next_unit: u64,
    /// The next item of `items`.
    place: Place,
    items: std::vec::IntoIter<Item>,
    faults: std::vec::IntoIter<Fault>,
    /// The fault at the end of the file, which the scan returns last.
    end: Option<Fault>,
    /// Keys of this unit.
    seen: HashSet<Vec<u8>>,
    budget: Budget,
}

impl Scan<'_> {
    /// Returns the items of the next unit, or `None` after the last.
    fn turn(&mut self) -> Result<bool> {
        // A unit without pairs may be the start of a hole.
        if self.place.index == 0 {
            self.next_unit = self.reader.after_hole(self.next_unit);
        }
        if self.next_unit >= self.reader.unit_count() {
            let end = self.end.take();
            self.faults = Vec::from_iter(end).into_iter();
            return Ok(end.is_some());
        }
        let unit = self.reader.unit(self.next_unit, &self.budget)?;
        self.place = Place { unit: self.next_unit, index: 0 };
        self.next_unit += 1;
        if self.budget.is_spent() {
            self.next_unit = u64::MAX;
        }
        self.seen.clear();
        self.items = unit.items.into_iter();
        self.faults = unit.faults.into_iter();
        Ok(true)
    }

    fn end(&mut self) {
        self.next_unit = u64::MAX;
        self.items = Vec::new().into_iter();
        self.faults = Vec::new().into_iter();
        self.end = None;
    }

    /// Returns the pair of `item`, if it is the one of its key that counts.
    fn entry(&mut self, item: &Item, place: Place) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let reader = self.reader;
        let key = key_of(reader, item, &self.budget)?;
        let is_home = reader.homes(&key).first() == Some(place.unit);
        if !is_home {
            match self.file.survey()?.strays.get(&key) {
                Some(counts) if *counts == Some(place) => {}
                Some(_) => return Ok(None),
                // The survey did not get to it, or could not read its value.
                None => return value_of(reader, item, &self.budget).map(|_| None),
            }
        }
        let value = value_of(reader, item, &self.budget)?;
        if is_home && !self.seen.insert(key.clone()) {
            return Ok(None);
        }
        Ok(Some((key, value)))
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(fault) = self.faults.next() {
                return Some(Err(fault.into()));
            }
            let Some(item) = self.items.next() else {
                match self.turn() {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(error) => {
                        self.end();
                        return Some(Err(error));
                    }
                }
            };
            let place = self.place;
            self.place.index += 1;
            match self.entry(&item, place) {
                Ok(Some((key, value))) => {
                    return Some(Ok(Entry { key: Value::owned(key), value: Value::owned(value) }));
                }
                Ok(None) => {}
                Err(error) => {
                    if self.budget.is_spent() {
                        self.end();
                    }
                    return Some(Err(error));
                }
            }
        }
    }
}
