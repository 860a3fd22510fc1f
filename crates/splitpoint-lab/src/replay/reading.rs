//! Readings of a table while a stream runs: the instrument, at any moment.

use serde::{Deserialize, Serialize};

use super::{Chains, Step};

/// What an instrument in a table would show at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Lookups so far.
    pub lookup_count: u64,
    /// Lookups that found their object.
    pub hit_count: u64,
    /// Nodes looked at so far, matches included.
    pub visited: u64,
    /// Nodes looked at so far, matches not included: Lever's iterations.
    pub skipped: u64,
    /// Objects in the table.
    pub object_count: u64,
    /// Objects in the fullest bucket.
    pub largest: u64,
}

impl Reading {
    /// Returns the nodes that a lookup visits on average, the match included.
    pub fn visited_per_lookup(&self) -> f64 {
        self.visited as f64 / self.lookup_count.max(1) as f64
    }

    /// Returns the nodes that a lookup passes on average, the match not included.
    pub fn skipped_per_lookup(&self) -> f64 {
        self.skipped as f64 / self.lookup_count.max(1) as f64
    }

    /// Returns the share of the lookups that found their object.
    pub fn hit_rate(&self) -> f64 {
        self.hit_count as f64 / self.lookup_count.max(1) as f64
    }
}

/// A table under a stream that can be stopped after any lookup.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::Specimen;
/// use splitpoint_lab::replay::{KernelTable, Layouts, Run, Shrink, Streams, TableSetup, Trace};
///
/// let text = "# kernel cache trace 1\nL 1 2 11 usr\nL 1 2 12 bin\nL 1 2 11 usr x2\n";
/// let streams = Streams::read(Trace::new(text.as_bytes())?, Shrink::None, |_| {})?;
/// let function = Specimen::by_name("linux-2.2.5-dentry")?;
/// let setup = TableSetup::new(KernelTable::Dentry, function, 1, Layouts::LINUX_2_2)?;
/// let buckets = setup.buckets(&streams, 1).expect("the objects fit");
/// let mut run = Run::new(streams.steps(KernelTable::Dentry), &buckets, 1);
/// // With one bucket the second miss passes `usr`, and both hits pass `bin`, which came later.
/// run.advance_to(2);
/// assert_eq!(run.reading().visited, 1);
/// run.finish();
/// assert_eq!((run.reading().visited, run.reading().hit_count), (5, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Run<'a> {
    steps: &'a [Step],
    buckets: &'a [u32],
    chains: Chains,
    /// The step that comes next.
    next: usize,
    /// How many of its hits have happened.
    hits_done: u32,
    lookup_count: u64,
}

impl<'a> Run<'a> {
    /// Begins with an empty table; object `n` belongs to bucket `buckets[n]`.
    ///
    /// # Panics
    ///
    /// If there are no buckets, or more than 2^32.
    pub fn new(steps: &'a [Step], buckets: &'a [u32], bucket_count: u64) -> Self {
        let chains = Chains::new(bucket_count, buckets.len());
        Self { steps, buckets, chains, next: 0, hits_done: 0, lookup_count: 0 }
    }

    /// Goes on until there were `lookup_count` lookups, or to the end.
    ///
    /// # Panics
    ///
    /// If a step hits or removes what is not there.
    pub fn advance_to(&mut self, lookup_count: u64) {
        while self.lookup_count < lookup_count {
            let Some(step) = self.steps.get(self.next) else { return };
            let step = match *step {
                Step::Hit(object, count) => {
                    let left = u64::from(count - self.hits_done);
                    let taken = left.min(lookup_count - self.lookup_count);
                    self.lookup_count += taken;
                    if taken == left {
                        (self.next, self.hits_done) = (self.next + 1, 0);
                    } else {
                        self.hits_done += taken as u32;
                    }
                    Step::Hit(object, taken as u32)
                }
                step => {
                    self.lookup_count += u64::from(matches!(step, Step::Miss(_)));
                    self.next += 1;
                    step
                }
            };
            self.chains.follow(&[step], self.buckets);
        }
    }

    /// Goes on to the end of the stream.
    ///
    /// # Panics
    ///
    /// If a step hits or removes what is not there.
    pub fn finish(&mut self) {
        while self.hits_done > 0 {
            self.advance_to(self.lookup_count + 1);
        }
        let rest = &self.steps[self.next..];
        self.chains.follow(rest, self.buckets);
        self.next = self.steps.len();
        self.lookup_count = self.chains.lookup_count();
    }

    /// Returns what an instrument would show now.
    pub fn reading(&self) -> Reading {
        let visits = self.chains.visits();
        let sizes = (0..).zip(&visits.buckets_by_size);
        Reading {
            lookup_count: visits.lookup_count(),
            hit_count: visits.hit_count,
            visited: visits.hit_nodes + visits.miss_nodes,
            skipped: visits.skipped(),
            object_count: sizes.map(|(size, count): (u64, _)| size * count).sum(),
            largest: visits.largest(),
        }
    }

    /// Returns the table as it is now.
    pub fn chains(&self) -> &Chains {
        &self.chains
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stops_after_any_lookup_and_ends_where_an_unbroken_one_does() {
        let steps = [
            Step::Miss(0),
            Step::Insert(1),
            Step::Hit(0, 5),
            Step::Remove(1),
            Step::Miss(2),
            Step::Hit(0, 2),
            Step::Insert(3),
        ];
        let buckets = [0, 0, 0, 0];
        let mut whole = Run::new(&steps, &buckets, 1);
        whole.finish();
        let mut broken = Run::new(&steps, &buckets, 1);
        let mut visited = Vec::new();
        for lookups in 1..=9 {
            broken.advance_to(lookups);
            assert_eq!(broken.reading().lookup_count, lookups);
            visited.push(broken.reading().visited);
        }
        // The object 1 is before 0 during five hits, and 2 is during the last two.
        assert_eq!(visited, [0, 2, 4, 6, 8, 10, 11, 13, 15]);
        broken.finish();
        assert_eq!(broken.reading(), whole.reading());
        assert_eq!(broken.reading().object_count, 3);
        assert_eq!(broken.reading().skipped, 15 - 7);
    }
}
