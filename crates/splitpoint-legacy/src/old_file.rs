//! An old file as a read-only table.
//!
//! # Invariants
//!
//! - A scan returns each key once: the pair that the original's lookup finds, or else the first
//!   one.
//! - A scan of a file that lacks units at its end ends with an error.
//! - A lookup returns what a scan returns. A lookup answers that a key is absent only if no pair is
//!   out of place, and nothing is damaged or missing where the key would be.

use std::collections::HashSet;
use std::sync::OnceLock;

use splitpoint::linear::{BucketIndex, Geometry};
use splitpoint::stats::{Occupancy, Stats};
use splitpoint::{
    Capabilities, Durability, Entries, Error, PutMode, Result, ScanGuarantee, Table, TableCheck,
    Value,
};

use crate::doubt::Doubt;
use crate::identity::Identity;
use crate::lookup::{Found, find_at_home};
use crate::reader::{Budget, Homes, Parameter, Reader, key_of, or_fault, value_of};
use crate::scan::{KeyValue, Scan, Values, values_of_item};
use crate::stated::Discrepancy;
use crate::survey::{DOUBTS_MAX, Survey};

/// Most counters of hashes: more than any histogram needs rows.
const CELL_BITS_MAX: u32 = 20;

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
        let survey = Survey::of(&*self.reader)?;
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
        let fault = if homes == Homes::UNKNOWN { survey.fault() } else { fault };
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
        survey.fault().map_or(Ok(survey.pair_count), |fault| Err(fault.into()))
    }

    /// Does nothing, as for every table that is only read.
    fn sync(&self) -> Result<()> {
        Ok(())
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
