//! hashbrown with its default hash function, foldhash.

use crate::BoxedMap;
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;

/// The map, with boxed keys and values.
#[derive(Debug, Default)]
pub struct Boxed(HashMap<Box<[u8]>, Box<[u8]>>);

impl BoxedMap for Boxed {
    fn insert(&mut self, key: &[u8], value: &[u8]) {
        // Hashes once, and copies the key only if it is new.
        match self.0.entry_ref(key) {
            EntryRef::Occupied(mut old) => drop(old.insert(value.into())),
            EntryRef::Vacant(place) => drop(place.insert_with_key(key.into(), value.into())),
        }
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.0.get(key).map(|value| &**value)
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        self.0.remove(key).is_some()
    }

    fn each(&self, mut each: impl FnMut(&[u8], &[u8])) {
        self.0.iter().for_each(|(key, value)| each(key, value));
    }
}
