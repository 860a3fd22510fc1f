//! A cdb file that is read. Its units are the hash tables.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use splitpoint::Result;

use super::{HEAD_BYTES, PAIR_BYTES, TABLES, first_slot, hash, pair_of};
use crate::Source;
use crate::identity::Identity;
use crate::reader::{
    Budget, Fault, Further, Homes, Item, Loose, Parameter, Piece, Reader, Unit, or_fault,
};
use crate::stated::{Counted, Extent, Stated, StatedBy};

/// Slots of a table that are read at once.
const STEP_SLOTS: u64 = 8192;

/// Where a table is.
#[derive(Clone, Copy, Debug, Default)]
struct Table {
    start: u64,
    slots: u64,
}

impl Table {
    fn bytes(self) -> u64 {
        PAIR_BYTES * self.slots
    }

    fn end(self) -> u64 {
        self.start + self.bytes()
    }

    /// Returns the offset of slot `at`.
    fn offset(self, at: u64) -> u64 {
        self.start + PAIR_BYTES * at
    }
}

/// A slot that leads to a record.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    /// Offset of the record.
    record: u64,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct CdbFile {
    identity: Identity,
    source: Source,
    tables: [Table; TABLES],
    stated: Stated,
}

/// Returns whether a file begins with the places of tables that follow each other. cdb has no other
/// mark.
pub(crate) fn is_cdb(source: &Source) -> Result<bool> {
    Ok(tables_of(source)?.is_some())
}

fn tables_of(source: &Source) -> Result<Option<[Table; TABLES]>> {
    let mut head = [0; HEAD_BYTES];
    if source.read_at(0, &mut head)? < HEAD_BYTES {
        return Ok(None);
    }
    let mut tables = [Table::default(); TABLES];
    for (table, bytes) in tables.iter_mut().zip(head.as_chunks().0) {
        let (start, slots) = pair_of(*bytes);
        *table = Table { start: start.into(), slots: slots.into() };
    }
    let is_chain = tables.is_sorted_by(|one, next| one.end() == next.start);
    // Places are numbers of four bytes.
    let is_inside = tables[TABLES - 1].end() <= 1 << 32;
    Ok((is_chain && is_inside && tables[0].start >= HEAD_BYTES as u64).then_some(tables))
}

impl CdbFile {
    pub(crate) fn open(source: Source, identity: Identity) -> Result<Self> {
        let found = tables_of(&source)?;
        let tables = found.ok_or(Fault::new("places of tables", 0, HEAD_BYTES as u64, 0))?;
        let (end, file_bytes) = (tables[TABLES - 1].end(), source.file_bytes());
        let extent = Extent {
            counted: Counted::Bytes,
            stated_by: StatedBy::Header,
            at: HEAD_BYTES as u64 - PAIR_BYTES,
            unit_bytes: 1,
            needed: end,
            stated: end,
            known: None,
            found: file_bytes,
            has_more: false,
        };
        let stated = Stated { records: None, extent: Some(extent) };
        Ok(Self { identity, source, tables, stated })
    }

    /// Returns the end of the records.
    fn records_end(&self) -> u64 {
        self.tables[0].start.min(self.source.file_bytes())
    }

    fn pair_at(&self, offset: u64, budget: &Budget) -> Result<(u32, u32)> {
        budget.take(PAIR_BYTES)?;
        let mut bytes = [0; PAIR_BYTES as usize];
        self.source.read_at(offset, &mut bytes)?;
        Ok(pair_of(bytes))
    }

    /// Reads slots of a table: hashes and places of records.
    fn run(&self, table: Table, at: Range<u64>, budget: &Budget) -> Result<Vec<(u32, u32)>> {
        let bytes = PAIR_BYTES * (at.end - at.start);
        budget.take(bytes)?;
        let mut run = vec![0; bytes as usize];
        self.source.read_at(table.offset(at.start), &mut run)?;
        Ok(run.as_chunks().0.iter().map(|pair| pair_of(*pair)).collect())
    }

    /// Calls `visit` with number, hash and record of each full slot of a table.
    fn visit_full(
        &self,
        table: Table,
        budget: &Budget,
        mut visit: impl FnMut(u64, u32, u32),
    ) -> Result<()> {
        let mut next = 0;
        while next < table.slots {
            // The slots in a hole are empty.
            let data = (self.source.next_data(table.offset(next)) - table.start) / PAIR_BYTES;
            if data > next {
                next = data;
                continue;
            }
            let end = table.slots.min(next + STEP_SLOTS);
            for (at, (hash, record)) in (next..).zip(self.run(table, next..end, budget)?) {
                if record != 0 {
                    visit(at, hash, record);
                }
            }
            next = end;
        }
        Ok(())
    }

    /// Returns the number of full slots behind the last empty one of a table.
    fn full_at_end(&self, table: Table, budget: &Budget) -> Result<u64> {
        let mut full = 0;
        while full < table.slots {
            let end = table.slots - full;
            let run = self.run(table, end.saturating_sub(STEP_SLOTS)..end, budget)?;
            let found = run.iter().rev().take_while(|(_, record)| *record != 0).count();
            full += found as u64;
            if found < run.len() {
                break;
            }
        }
        Ok(full)
    }

    /// Reads the slots of table `index` that lead to a record and to which a lookup gets.
    fn slots(&self, index: usize, unit: &mut Unit, budget: &Budget) -> Result<Vec<Slot>> {
        let table = self.tables[index];
        // Full slots before this one, around the end of the table.
        let mut full = self.full_at_end(table, budget)?;
        let mut slots = Vec::new();
        let mut last = None;
        self.visit_full(table, budget, |at, hash, record| {
            if last.replace(at).map_or(at > 0, |last| at > last + 1) {
                full = 0;
            }
            let offset = table.offset(at);
            let distance = (at + table.slots - first_slot(hash, table.slots)) % table.slots.max(1);
            if hash as usize % TABLES != index {
                let (expected, found) = (index as u64, u64::from(hash) % TABLES as u64);
                unit.faults.push(Fault::new("table of a hash", offset, expected, found));
            } else if distance > full {
                unit.faults.push(Fault::new("place of a slot", offset, full, distance));
            } else {
                slots.push(Slot { hash, record: record.into() });
            }
            full += 1;
        })?;
        Ok(slots)
    }

    /// Reads the slots in which a lookup of `hash` finds it.
    fn slots_of(&self, index: usize, wanted: u32, budget: &Budget) -> Result<Vec<Slot>> {
        let table = self.tables[index];
        let first = first_slot(wanted, table.slots);
        let mut slots = Vec::new();
        for step in 0..table.slots {
            let at = (first + step) % table.slots;
            let (hash, record) = self.pair_at(table.start + PAIR_BYTES * at, budget)?;
            match record {
                0 => break,
                _ if hash == wanted => slots.push(Slot { hash, record: record.into() }),
                _ => {}
            }
        }
        Ok(slots)
    }

    /// Reads the records of slots, in the order of the file.
    fn records(&self, mut slots: Vec<Slot>, unit: &mut Unit, budget: &Budget) -> Result<()> {
        slots.sort_by_key(|slot| slot.record);
        let mut by_key: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut last = None;
        for slot in slots {
            if last.replace(slot.record) == Some(slot.record) {
                let fault = Fault::new("number of slots of a record", slot.record, 1, 2);
                unit.faults.push(fault);
                continue;
            }
            let record = self.record(slot.record, Some(slot.hash), budget);
            let (key, value) = match or_fault(record)? {
                Ok(record) => record,
                Err(fault) => {
                    unit.faults.push(fault);
                    continue;
                }
            };
            match by_key.entry(key) {
                Entry::Vacant(vacant) => {
                    let key = Piece::Here(vacant.key().clone());
                    vacant.insert(unit.items.len());
                    unit.items.push(Item::of(key, value));
                }
                Entry::Occupied(occupied) => {
                    if let Further::Row(row) = &mut unit.items[*occupied.get()].further {
                        row.push(value);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the key of the record at `offset`, and returns it with the place of its value. The
    /// hash of the key must be `expected`, if that is known.
    fn record(
        &self,
        offset: u64,
        expected: Option<u32>,
        budget: &Budget,
    ) -> Result<(Vec<u8>, Piece)> {
        let (key_bytes, value_bytes) = self.pair_at(offset, budget)?;
        let (key_bytes, value_bytes) = (u64::from(key_bytes), u64::from(value_bytes));
        let key_at = offset + PAIR_BYTES;
        let end = key_at + key_bytes + value_bytes;
        if end > self.records_end() || offset < HEAD_BYTES as u64 {
            return Err(Fault::new("end of a record", offset, self.records_end(), end).into());
        }
        budget.take(key_bytes)?;
        let key = crate::reader::run_of(&self.source, key_at, key_bytes)?;
        let found = hash(&key);
        if expected.is_some_and(|expected| expected != found) {
            let expected = u64::from(expected.unwrap_or_default());
            return Err(Fault::new("hash of a key", key_at, expected, found.into()).into());
        }
        Ok((key, Piece::At { offset: key_at + key_bytes, bytes: value_bytes }))
    }
}

impl Reader for CdbFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn source(&self) -> &Source {
        &self.source
    }

    fn unit_count(&self) -> u64 {
        TABLES as u64
    }

    fn faults(&self) -> &[Fault] {
        &[]
    }

    fn stated(&self) -> Stated {
        self.stated
    }

    fn unit(&self, index: u64, budget: &Budget) -> Result<Unit> {
        let table = self.tables[index as usize];
        if table.end() > self.source.file_bytes() {
            return Ok(Unit::absent(table.start, table.bytes(), self.source.file_bytes()));
        }
        let mut unit = Unit { is_in_use: true, ..Unit::default() };
        match or_fault(self.slots(index as usize, &mut unit, budget))? {
            Ok(slots) => self.records(slots, &mut unit, budget)?,
            Err(fault) => unit.faults.push(fault),
        }
        Ok(unit)
    }

    fn unit_of(&self, index: u64, key: &[u8], budget: &Budget) -> Result<Unit> {
        let table = self.tables[index as usize];
        if table.end() > self.source.file_bytes() {
            return self.unit(index, budget);
        }
        let mut unit = Unit::default();
        match or_fault(self.slots_of(index as usize, hash(key), budget))? {
            Ok(slots) => self.records(slots, &mut unit, budget)?,
            Err(fault) => unit.faults.push(fault),
        }
        Ok(unit)
    }

    fn homes(&self, key: &[u8]) -> Homes {
        let table = u64::from(hash(key)) % TABLES as u64;
        Homes::of(table, table)
    }

    fn parameters(&self) -> Vec<Parameter> {
        let slots: u64 = self.tables.iter().map(|table| table.slots).sum();
        let used = self.tables.iter().filter(|table| table.slots > 0).count();
        vec![
            Parameter::new("tables in use", used),
            Parameter::new("slots", slots),
            Parameter::new("bytes of records", self.tables[0].start - HEAD_BYTES as u64),
        ]
    }

    fn hash_name(&self) -> &'static str {
        "cdb"
    }

    fn hash_of(&self, key: &[u8]) -> Option<u64> {
        Some(hash(key).into())
    }
}

impl Loose for CdbFile {
    /// The records follow each other, whether or not a slot leads to them.
    fn loose_units(
        &self,
        budget: &Budget,
        visit: &mut dyn FnMut(Unit) -> Result<()>,
    ) -> Result<()> {
        let mut offset = HEAD_BYTES as u64;
        while offset < self.records_end() {
            let Ok((key, value)) = or_fault(self.record(offset, None, budget))? else { break };
            if let Piece::At { offset: start, bytes } = value {
                offset = start + bytes;
            }
            visit(Unit { items: vec![Item::of(Piece::Here(key), value)], ..Unit::default() })?;
        }
        Ok(())
    }
}
