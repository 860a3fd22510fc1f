//! Chained tables under a stream: how many nodes its lookups visit.
//!
//! All four caches chain alike, from 2.2 to 6.x: a bucket is a list that is read in one direction, a new
//! object goes to its head, and a hit moves nothing.

use super::stream::{ObjectNumber, Step};
use crate::random::Random;

/// No object.
const NONE: u32 = u32::MAX;

/// What the lookups of a stream visited in one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visits {
    /// Nodes looked at by lookups that found their object, the object itself included.
    pub hit_nodes: u64,
    /// Nodes looked at by lookups that did not.
    pub miss_nodes: u64,
    /// Lookups that found their object.
    pub hit_count: u64,
    /// Lookups that did not.
    pub miss_count: u64,
    /// Buckets at the end, by how many objects they have.
    pub buckets_by_size: Vec<u64>,
}

impl Visits {
    /// Returns the nodes that a lookup visits on average, the match included.
    pub fn per_lookup(&self) -> f64 {
        (self.hit_nodes + self.miss_nodes) as f64 / self.lookup_count().max(1) as f64
    }

    /// Returns the nodes that a lookup passes on average, the match not included: Lever's iterations.
    pub fn skipped_per_lookup(&self) -> f64 {
        self.skipped() as f64 / self.lookup_count().max(1) as f64
    }

    /// Returns the nodes that all lookups pass, the matches not included.
    pub fn skipped(&self) -> u64 {
        self.hit_nodes + self.miss_nodes - self.hit_count
    }

    /// Adds what lookups visited in another table, such as that of another machine.
    pub fn merge(&mut self, other: &Self) {
        self.hit_nodes += other.hit_nodes;
        self.miss_nodes += other.miss_nodes;
        self.hit_count += other.hit_count;
        self.miss_count += other.miss_count;
        let sizes = self.buckets_by_size.len().max(other.buckets_by_size.len());
        self.buckets_by_size.resize(sizes, 0);
        for (sum, count) in self.buckets_by_size.iter_mut().zip(&other.buckets_by_size) {
            *sum += count;
        }
    }

    /// Returns the objects of the fullest bucket at the end.
    pub fn largest(&self) -> u64 {
        self.buckets_by_size.len().saturating_sub(1) as u64
    }

    /// Returns how many lookups there were.
    pub fn lookup_count(&self) -> u64 {
        self.hit_count + self.miss_count
    }
}

/// A table of chains, and what lookups have visited in it so far.
#[derive(Clone, Debug)]
pub struct Chains {
    /// The first object of each bucket.
    heads: Vec<u32>,
    sizes: Vec<u32>,
    /// The object after each object.
    next: Vec<u32>,
    hit_nodes: u64,
    miss_nodes: u64,
    hit_count: u64,
    miss_count: u64,
}

impl Chains {
    /// Returns an empty table for a stream of `object_count` objects.
    ///
    /// # Panics
    ///
    /// If there are no buckets, or more than 2^32.
    pub fn new(bucket_count: u64, object_count: usize) -> Self {
        assert!((1..=1 << 32).contains(&bucket_count), "1 to 2^32 buckets");
        let bucket_count = bucket_count as usize;
        Self {
            heads: vec![NONE; bucket_count],
            sizes: vec![0; bucket_count],
            next: vec![NONE; object_count],
            hit_nodes: 0,
            miss_nodes: 0,
            hit_count: 0,
            miss_count: 0,
        }
    }

    /// Does `steps` to the table; object `n` belongs to bucket `buckets[n]`.
    ///
    /// # Panics
    ///
    /// If a bucket is not of this table, or a step hits or removes what is not there.
    ///
    /// # Cost
    ///
    /// One step along a chain for each node that hits visit; misses take the length of the chain.
    pub fn follow(&mut self, steps: &[Step], buckets: &[u32]) {
        for step in steps {
            match *step {
                Step::Hit(object, count) => {
                    let visited = self.position(object, buckets) + 1;
                    self.hit_nodes += visited * u64::from(count);
                    self.hit_count += u64::from(count);
                }
                Step::Miss(object) => {
                    self.miss_nodes += u64::from(self.sizes[buckets[object as usize] as usize]);
                    self.miss_count += 1;
                    self.insert(object, buckets);
                }
                Step::Insert(object) => self.insert(object, buckets),
                Step::Remove(object) => self.remove(object, buckets),
            }
        }
    }

    /// Returns what lookups have visited so far, and the table as it is.
    pub fn visits(&self) -> Visits {
        let mut buckets_by_size = Vec::new();
        for &size in &self.sizes {
            let size = size as usize;
            if buckets_by_size.len() <= size {
                buckets_by_size.resize(size + 1, 0);
            }
            buckets_by_size[size] += 1;
        }
        Visits {
            hit_nodes: self.hit_nodes,
            miss_nodes: self.miss_nodes,
            hit_count: self.hit_count,
            miss_count: self.miss_count,
            buckets_by_size,
        }
    }

    /// Returns the `count` fullest buckets with their sizes, the fullest first, then by number.
    pub fn fullest(&self, count: usize) -> Vec<(u64, u64)> {
        let mut fullest: Vec<(u32, u32)> = Vec::new();
        for (bucket, &size) in (0..).zip(&self.sizes) {
            if size == 0 || fullest.len() == count && fullest.last().is_none_or(|it| it.1 >= size) {
                continue;
            }
            let at = fullest.partition_point(|it| it.1 >= size);
            fullest.insert(at, (bucket, size));
            fullest.truncate(count);
        }
        fullest.into_iter().map(|(bucket, size)| (bucket.into(), size.into())).collect()
    }

    /// Returns the objects of a bucket, from the head of its chain.
    ///
    /// # Panics
    ///
    /// If the table has no such bucket.
    pub fn objects_of(&self, bucket: u64) -> impl Iterator<Item = ObjectNumber> {
        let some = |object: u32| (object != NONE).then_some(object);
        std::iter::successors(some(self.heads[bucket as usize]), move |&object| {
            some(self.next[object as usize])
        })
    }

    /// Returns how many objects are before one in its bucket.
    fn position(&self, object: ObjectNumber, buckets: &[u32]) -> u64 {
        let (mut at, mut position) = (self.heads[buckets[object as usize] as usize], 0);
        while at != object {
            assert_ne!(at, NONE, "an object that is hit is in its bucket");
            at = self.next[at as usize];
            position += 1;
        }
        position
    }

    fn insert(&mut self, object: ObjectNumber, buckets: &[u32]) {
        let bucket = buckets[object as usize] as usize;
        self.next[object as usize] = std::mem::replace(&mut self.heads[bucket], object);
        self.sizes[bucket] += 1;
    }

    fn remove(&mut self, object: ObjectNumber, buckets: &[u32]) {
        let bucket = buckets[object as usize] as usize;
        let after = self.next[object as usize];
        match self.heads[bucket] {
            head if head == object => self.heads[bucket] = after,
            mut before => {
                while self.next[before as usize] != object {
                    before = self.next[before as usize];
                }
                self.next[before as usize] = after;
            }
        }
        self.sizes[bucket] -= 1;
    }
}

/// Returns the buckets of an ideal hash: drawn at random, each as likely.
pub fn ideal_buckets(object_count: usize, bucket_count: u64, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..object_count).map(|_| random.below(bucket_count) as u32).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A table as plain as can be: a vector for each bucket, the newest object last.
    fn by_vectors(steps: &[Step], buckets: &[u32], bucket_count: usize) -> Visits {
        let mut table: Vec<Vec<u32>> = vec![Vec::new(); bucket_count];
        let (mut hit_nodes, mut miss_nodes, mut hit_count, mut miss_count) = (0, 0, 0, 0);
        for step in steps {
            match *step {
                Step::Hit(object, count) => {
                    for _ in 0..count {
                        let chain = &table[buckets[object as usize] as usize];
                        let found = chain.iter().rev().position(|&it| it == object).unwrap();
                        hit_nodes += found as u64 + 1;
                        hit_count += 1;
                    }
                }
                Step::Miss(object) => {
                    let chain = &mut table[buckets[object as usize] as usize];
                    miss_nodes += chain.len() as u64;
                    miss_count += 1;
                    chain.push(object);
                }
                Step::Insert(object) => table[buckets[object as usize] as usize].push(object),
                Step::Remove(object) => {
                    table[buckets[object as usize] as usize].retain(|&it| it != object);
                }
            }
        }
        let longest = table.iter().map(Vec::len).max().unwrap_or(0);
        let buckets_by_size = (0..=longest)
            .map(|size| table.iter().filter(|chain| chain.len() == size).count() as u64)
            .collect();
        Visits { hit_nodes, miss_nodes, hit_count, miss_count, buckets_by_size }
    }

    /// Steps that are possible, from numbers: what is there is hit or removed, else inserted.
    fn steps_from(numbers: &[(u32, u32)], object_count: u32) -> Vec<Step> {
        let mut is_there = vec![false; object_count as usize];
        let step = |&(object, kind): &(u32, u32)| {
            let it = &mut is_there[object as usize];
            let step = match (*it, kind) {
                (true, 0) => Step::Remove(object),
                (true, count) => return Step::Hit(object, count),
                (false, 0 | 1) => Step::Insert(object),
                (false, _) => Step::Miss(object),
            };
            *it = !*it;
            step
        };
        numbers.iter().map(step).collect()
    }

    proptest! {
        #[test]
        fn chains_visit_what_a_table_of_vectors_visits(
            numbers in prop::collection::vec((0_u32..40, 0_u32..5), 0..400),
            buckets in prop::collection::vec(0_u32..7, 40),
        ) {
            let steps = steps_from(&numbers, 40);
            let mut chains = Chains::new(7, 40);
            chains.follow(&steps, &buckets);
            prop_assert_eq!(chains.visits(), by_vectors(&steps, &buckets, 7));
        }
    }
}
