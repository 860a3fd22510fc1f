//! The walk of a survey: counts pairs, finds those out of place, compares both with what the file
//! states.

use std::collections::{BTreeMap, HashSet};

use splitpoint::Result;
use splitpoint::stats::Ideal;

use crate::doubt::Doubt;
use crate::lookup::{Found, find_at_home};
use crate::reader::{Budget, FurtherValues, Item, Piece, Reader, Unit, key_of, or_fault, value_of};
use crate::stated::{Counted, Discrepancy, StatedBy};
use crate::survey::{BucketRow, Place, Survey};

/// The walk of a survey.
pub(super) struct Walk<'a> {
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
    pub(super) fn new(reader: &'a dyn Reader) -> Self {
        let budget = Budget::new(reader.source());
        let (survey, sizes) = (Survey::default(), BTreeMap::new());
        let (stated_pairs, twice_count, has_own_order) = (0, 0, false);
        Self { reader, survey, budget, sizes, stated_pairs, twice_count, has_own_order }
    }

    pub(super) fn run(mut self) -> Result<Survey> {
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
