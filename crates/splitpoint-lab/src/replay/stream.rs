//! Streams: what a trace does to one table, whatever its hash function and size.
//!
//! A replay reads a trace once into streams and measures every function, size and seed on them. An
//! object has one key for as long as it is in the table; under another key it is another object.

use std::collections::HashMap;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

/// Number of an object of a stream, from 0, in the order of first insertion.
pub type ObjectNumber = u32;

/// What happens to a table next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An object was looked up this many times in a row, and found.
    Hit(ObjectNumber, u32),
    /// An object was looked up, not found, and inserted.
    Miss(ObjectNumber),
    /// An object was inserted without a lookup.
    Insert(ObjectNumber),
    /// An object was removed.
    Remove(ObjectNumber),
}

/// The events of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCounts {
    /// Lookups.
    pub lookup_count: u64,
    /// Lookups that found their object.
    pub hit_count: u64,
    /// Lookups that did not; each inserted its object.
    pub miss_count: u64,
    /// Objects inserted without a lookup.
    pub insert_count: u64,
    /// Objects removed.
    pub remove_count: u64,
    /// Objects at the end.
    pub object_count: u64,
    /// Most objects at a time.
    pub object_count_max: u64,
}

/// The steps of one table and the keys of its objects.
#[derive(Clone, Debug)]
pub struct Stream<K> {
    steps: Vec<Step>,
    keys: Vec<K>,
    counts: StreamCounts,
}

impl<K> Default for Stream<K> {
    fn default() -> Self {
        Self { steps: Vec::new(), keys: Vec::new(), counts: StreamCounts::default() }
    }
}

impl<K> Stream<K> {
    /// Returns the steps in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the key of every object.
    pub fn keys(&self) -> &[K] {
        &self.keys
    }

    /// Returns what the steps come to.
    pub fn counts(&self) -> StreamCounts {
        self.counts
    }

    /// Adds hits of an object that is in the table.
    pub(super) fn hit(&mut self, object: ObjectNumber, mut count: u64) {
        self.counts.lookup_count += count;
        self.counts.hit_count += count;
        if let Some(Step::Hit(last, run)) = self.steps.last_mut()
            && *last == object
        {
            let room = u64::from(u32::MAX - *run).min(count);
            *run += room as u32;
            count -= room;
        }
        while count > 0 {
            let run = count.min(u32::MAX.into());
            self.steps.push(Step::Hit(object, run as u32));
            count -= run;
        }
    }

    /// Adds a lookup that finds nothing and inserts a new object, which is returned.
    pub(super) fn miss(&mut self, key: K) -> ObjectNumber {
        self.counts.lookup_count += 1;
        self.counts.miss_count += 1;
        let object = self.add(key);
        self.steps.push(Step::Miss(object));
        object
    }

    /// Adds an insertion without a lookup of a new object, which is returned.
    pub(super) fn insert(&mut self, key: K) -> ObjectNumber {
        self.counts.insert_count += 1;
        let object = self.add(key);
        self.steps.push(Step::Insert(object));
        object
    }

    /// Adds the removal of an object that is in the table.
    pub(super) fn remove(&mut self, object: ObjectNumber) {
        self.counts.remove_count += 1;
        self.counts.object_count -= 1;
        self.steps.push(Step::Remove(object));
    }

    fn add(&mut self, key: K) -> ObjectNumber {
        let object = ObjectNumber::try_from(self.keys.len()).expect("fewer objects than 2^32");
        self.keys.push(key);
        self.counts.object_count += 1;
        let peak = &mut self.counts.object_count_max;
        *peak = (*peak).max(self.counts.object_count);
        object
    }
}

/// A stream of objects with keys that are found by their keys.
#[derive(Clone, Debug)]
pub(super) struct KeyedStream<K> {
    stream: Stream<K>,
    objects: HashMap<K, ObjectNumber>,
}

impl<K> Default for KeyedStream<K> {
    fn default() -> Self {
        Self { stream: Stream::default(), objects: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> KeyedStream<K> {
    /// Looks a key up this many times in a row, and inserts it if it is not there.
    pub(super) fn look_up(&mut self, key: K, count: u64) {
        let mut hits = count;
        let stream = &mut self.stream;
        let object = *self.objects.entry(key).or_insert_with(|| {
            hits -= 1;
            stream.miss(key)
        });
        if hits > 0 {
            stream.hit(object, hits);
        }
    }

    /// Inserts a key without a lookup, if it is not there.
    pub(super) fn insert(&mut self, key: K) {
        let stream = &mut self.stream;
        self.objects.entry(key).or_insert_with(|| stream.insert(key));
    }

    /// Removes a key, if it is there.
    pub(super) fn remove(&mut self, key: &K) {
        if let Some(object) = self.objects.remove(key) {
            self.stream.remove(object);
        }
    }

    pub(super) fn stream(&self) -> &Stream<K> {
        &self.stream
    }

    pub(super) fn into_stream(self) -> Stream<K> {
        self.stream
    }
}
