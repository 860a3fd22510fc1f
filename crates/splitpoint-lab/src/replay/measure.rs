//! A stream measured on a function, a size and addresses: what its lookups visit.

use super::{Chains, KernelTable, Streams, TableSetup, Visits, ideal_buckets};

impl TableSetup {
    /// Returns what all lookups of the table's stream visit, with addresses under `seed`, or `None` if
    /// the objects do not fit into the memory of the model.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_lab::Specimen;
    /// use splitpoint_lab::replay::{KernelTable, Layouts, Shrink, Streams, TableSetup, Trace};
    ///
    /// let text = "# kernel cache trace 1\nL 1 2 11 usr\nL 1 2 12 bin\nL 1 2 11 usr x2\n";
    /// let streams = Streams::read(Trace::new(text.as_bytes())?, Shrink::None, |_| {})?;
    /// let function = Specimen::by_name("linux-2.2.5-dentry")?;
    /// let setup = TableSetup::new(KernelTable::Dentry, function, 1, Layouts::LINUX_2_2)?;
    /// // With one bucket the second miss passes `usr`, and both hits pass `bin`, which came later.
    /// let visits = setup.measure(&streams, 1).expect("the objects fit");
    /// assert_eq!((visits.hit_nodes, visits.miss_nodes), (4, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn measure(&self, streams: &Streams, seed: u64) -> Option<Visits> {
        let buckets = self.buckets(streams, seed)?;
        Some(follow_all(streams, self.table(), self.bucket_count(), &buckets))
    }
}

/// Returns what all lookups of a table's stream visit if an ideal hash places its objects; `draw` is
/// the seed of its random numbers.
///
/// An ideal hash varies from draw to draw, because a few objects get most lookups and their positions
/// in their chains decide.
///
/// # Panics
///
/// If there are no buckets, or more than 2^32.
pub fn measure_ideal(
    streams: &Streams,
    table: KernelTable,
    bucket_count: u64,
    draw: u64,
) -> Visits {
    let buckets = ideal_buckets(streams.object_count(table), bucket_count, draw);
    follow_all(streams, table, bucket_count, &buckets)
}

fn follow_all(streams: &Streams, table: KernelTable, bucket_count: u64, buckets: &[u32]) -> Visits {
    let mut chains = Chains::new(bucket_count, buckets.len());
    chains.follow(streams.steps(table), buckets);
    chains.visits()
}
