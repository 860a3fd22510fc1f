//! The lookup of a key in an old file, where the original would look.

use splitpoint::Result;

use crate::reader::{Budget, Fault, Homes, Item, Piece, Reader, Unit, key_of, or_fault, value_of};

/// Looks for `key` where the original would.
pub(crate) fn find_at_home(
    reader: &dyn Reader,
    key: &[u8],
    homes: Homes,
    budget: &Budget,
) -> Result<Found> {
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

/// What a lookup finds.
pub(crate) enum Found {
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
