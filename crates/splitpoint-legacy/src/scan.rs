//! The walk that returns the pairs of an old file.

use std::collections::HashSet;

use splitpoint::{Entry, Error, Result, Value};

use crate::old_file::OldFile;
use crate::reader::{
    Budget, Fault, Further, FurtherValues, Item, Reader, key_of, or_fault, value_of,
};
use crate::survey::Place;

/// A value of a key, or what makes it unreadable.
///
/// [`OldFile::values`] returns it.
#[derive(Clone, Debug)]
pub struct KeyValue<'a> {
    /// The key.
    pub key: Value<'a>,
    /// The place of the value among those of its key, from 1.
    pub number: u64,
    /// The value.
    pub value: Result<Value<'a>, Fault>,
}

impl<'a> KeyValue<'a> {
    /// Makes the only value of a key from a record.
    pub fn of(record: Entry<'a>) -> Self {
        Self { key: record.key, number: 1, value: Ok(record.value) }
    }

    fn owned(key: Vec<u8>, number: u64, value: Result<Vec<u8>, Fault>) -> Self {
        Self { key: Value::owned(key), number, value: value.map(Value::owned) }
    }

    /// Makes a record of it.
    pub(crate) fn into_entry(self) -> Result<Entry<'a>> {
        Ok(Entry { key: self.key, value: self.value? })
    }
}

/// The values of a key that a scan returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    First,
    All,
}

/// A pair that counts: its key, its first value, and its further ones.
type Pair = (Vec<u8>, Result<Vec<u8>, Fault>, Further);

/// A scan of an old file.
pub(crate) struct Scan<'a> {
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
    values: Values,
    /// The key of the last pair, the number of its last value, and the values of it that are still
    /// to be returned.
    key: Vec<u8>,
    number: u64,
    further: FurtherValues,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(file: &'a OldFile, values: Values) -> Self {
        let reader = file.reader();
        Self {
            file,
            reader,
            next_unit: 0,
            place: Place { unit: 0, index: 0 },
            items: Vec::new().into_iter(),
            faults: reader.faults().to_vec().into_iter(),
            end: reader.stated().fault(),
            seen: HashSet::new(),
            budget: Budget::new(reader.source()),
            values,
            key: Vec::new(),
            number: 0,
            further: FurtherValues::default(),
        }
    }

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
        self.further = FurtherValues::default();
        self.end = None;
    }

    /// Returns the pair of `item`, if it is the one of its key that counts.
    fn pair(&mut self, item: Item, place: Place) -> Result<Option<Pair>> {
        let reader = self.reader;
        let key = key_of(reader, &item, &self.budget)?;
        let is_home = reader.homes(&key).first() == Some(place.unit);
        let mut is_counted = true;
        if !is_home {
            match self.file.survey()?.strays.get(&key) {
                Some(counts) if *counts == Some(place) => {}
                Some(_) => return Ok(None),
                // The survey did not get to it, or could not read its value.
                None => is_counted = false,
            }
        }
        let value = or_fault(value_of(reader, &item, &self.budget))?;
        let is_other = is_home && self.seen.contains(&key);
        if value.is_ok() && (is_other || !is_counted) {
            return Ok(None);
        }
        // The further values belong to the first item with this key.
        let further = if is_other { Further::default() } else { item.further };
        if is_home && (value.is_ok() || !further.is_empty()) {
            self.seen.insert(key.clone());
        }
        Ok(Some((key, value, further)))
    }

    /// Returns the next value of the last key.
    fn further(&mut self) -> Result<Option<KeyValue<'a>>> {
        let value = match or_fault(self.further.next(self.reader, &self.budget))? {
            Ok(None) => return Ok(None),
            Ok(Some(value)) => Ok(value),
            Err(fault) => Err(fault),
        };
        self.number += 1;
        let key = self.key.clone();
        if value.is_err() && self.budget.is_spent() {
            self.end();
        }
        Ok(Some(KeyValue::owned(key, self.number, value)))
    }

    /// Returns the next value, fault or error, or `None` at the end.
    fn step(&mut self) -> Result<Option<KeyValue<'a>>> {
        loop {
            if let Some(further) = self.further()? {
                return Ok(Some(further));
            }
            if let Some(fault) = self.faults.next() {
                return Err(fault.into());
            }
            let Some(item) = self.items.next() else {
                if self.turn()? {
                    continue;
                }
                return Ok(None);
            };
            let place = self.place;
            self.place.index += 1;
            let pair = self.pair(item, place);
            let is_read = !matches!(pair, Err(_) | Ok(Some((_, Err(_), _))));
            if self.budget.is_spent() && !is_read {
                self.end();
            }
            let Some((key, value, further)) = pair? else { continue };
            if self.values == Values::All && !further.is_empty() {
                self.key.clone_from(&key);
                self.number = 1;
                self.further = FurtherValues::of(further);
            }
            return Ok(Some(KeyValue::owned(key, 1, value)));
        }
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = Result<KeyValue<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.step();
        if found.as_ref().is_err_and(|error| !matches!(error, Error::Corrupt { .. })) {
            self.end();
        }
        found.transpose()
    }
}

/// Returns every value of an item with this key.
pub(crate) fn values_of_item<'a>(
    reader: &dyn Reader,
    key: &[u8],
    item: Item,
    budget: &Budget,
) -> impl Iterator<Item = Result<KeyValue<'a>>> {
    let mut first = Some(or_fault(value_of(reader, &item, budget)));
    let mut further = FurtherValues::of(item.further);
    let mut next = move || match first.take() {
        Some(first) => first.map(Some),
        None if budget.is_spent() => Ok(None),
        None => or_fault(further.next(reader, budget)).map(Result::transpose),
    };
    let mut number = 0;
    std::iter::from_fn(move || {
        let value = next().transpose()?;
        number += 1;
        Some(value.map(|value| KeyValue::owned(key.to_vec(), number, value)))
    })
}
