//! The standard library's map with its default hash function.

use std::collections::HashMap;

use crate::BoxedMap;

/// The map, with boxed keys and values.
#[derive(Debug, Default)]
pub struct Boxed(HashMap<Box<[u8]>, Box<[u8]>>);

impl BoxedMap for Boxed {
    fn insert(&mut self, key: &[u8], value: &[u8]) {
        // Hashes once.
        self.0.insert(key.into(), value.into());
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
