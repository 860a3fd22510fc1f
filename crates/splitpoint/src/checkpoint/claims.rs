//! `Claims`: decides which thread captures a bucket, when a background thread walks the buckets
//! beside the writer.
//!
//! Each bucket is captured by the thread that claims it first. The background thread claims a group
//! of buckets and reads them without a lock. The writer claims a bucket before it changes it, and
//! waits while the background thread is reading the group of that bucket: for less than a
//! microsecond, unless that thread is preempted or an overflow line is read from the device.

use crate::atomic::{AtomicU64, Ordering};

/// Buckets per group. A small group rarely makes the writer wait.
pub(crate) const GROUP_BUCKETS: u64 = 8;
/// Number of spins on the group that is being read before the writer yields.
const SPINS_MAX: u32 = 200;

/// A bit for each bucket of a table: whether it has been claimed.
#[derive(Debug)]
pub(super) struct Claims {
    words: Box<[AtomicU64]>,
    bucket_count: u64,
    /// One more than the number of the group that the background thread is reading; 0 for none.
    reading: AtomicU64,
}

impl Claims {
    /// Creates the claims of a table, with no bucket claimed.
    pub(super) fn new(bucket_count: u64) -> Self {
        let words = (0..bucket_count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words, bucket_count, reading: AtomicU64::new(0) }
    }

    /// Returns the number of groups.
    pub(super) fn group_count(&self) -> u64 {
        self.bucket_count.div_ceil(GROUP_BUCKETS)
    }

    /// Claims a bucket for the writer, and returns whether the writer must capture it before
    /// changing it. A bucket that did not exist at the commit of the checkpoint need not be
    /// captured.
    #[inline]
    pub(super) fn claim(&self, bucket: u64) -> bool {
        if bucket >= self.bucket_count {
            return false;
        }
        let (word, bit) = (&self.words[(bucket / 64) as usize], 1 << (bucket % 64));
        let is_claimed = word.load(Ordering::Acquire) & bit != 0
            || word.fetch_or(bit, Ordering::AcqRel) & bit != 0;
        if is_claimed {
            self.wait_while_read(bucket / GROUP_BUCKETS);
        }
        !is_claimed
    }

    #[inline]
    fn wait_while_read(&self, group: u64) {
        let mut spin_count = 0;
        while self.reading.load(Ordering::Acquire) == group + 1 {
            spin_count += 1;
            if spin_count < SPINS_MAX && !cfg!(loom) {
                std::hint::spin_loop();
            } else {
                yield_now();
            }
        }
    }

    /// Claims a group for the background thread, and calls `read` with each bucket that the writer
    /// has not claimed. These buckets do not change during the call.
    pub(super) fn read_group<E>(
        &self,
        group: u64,
        mut read: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = group * GROUP_BUCKETS;
        debug_assert!(first < self.bucket_count);
        let all = (1 << GROUP_BUCKETS) - 1;
        // Stored before the claims below are published: a writer that sees a claim also sees that
        // the group is being read.
        self.reading.store(group + 1, Ordering::Release);
        let word = &self.words[(first / 64) as usize];
        let before = word.fetch_or(all << (first % 64), Ordering::AcqRel) >> (first % 64) & all;
        let end = self.bucket_count.min(first + GROUP_BUCKETS);
        let unclaimed = (first..end).filter(|bucket| before >> (bucket - first) & 1 == 0);
        // A guard, so that the writer does not wait forever after a panic.
        let _reading = Reading(&self.reading);
        unclaimed.into_iter().try_for_each(&mut read)
    }
}

/// Clears `reading` when it is dropped.
struct Reading<'a>(&'a AtomicU64);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(not(loom))]
fn yield_now() {
    std::thread::yield_now();
}
#[cfg(loom)]
fn yield_now() {
    loom::thread::yield_now();
}

/// Runs every interleaving of the thread with a writer that changes two buckets, by loom.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::Mutex;
    use std::convert::Infallible;

    #[test]
    fn loom_each_bucket_is_captured_once_and_as_it_was() {
        const BUCKETS: u64 = 2;
        loom::model(|| {
            let claims = Arc::new(Claims::new(BUCKETS));
            let buckets: Arc<[AtomicU64; 2]> = Arc::new([AtomicU64::new(10), AtomicU64::new(11)]);
            let image = Arc::new(Mutex::new(Vec::new()));
            let thread = {
                let (claims, buckets, image) = (claims.clone(), buckets.clone(), image.clone());
                loom::thread::spawn(move || {
                    let mut read = Vec::new();
                    let Ok(()) = claims.read_group(0, |bucket| {
                        let found = buckets[bucket as usize].load(Ordering::Relaxed);
                        read.push((bucket, found));
                        Ok::<(), Infallible>(())
                    });
                    image.lock().unwrap().extend(read);
                })
            };
            for bucket in [1, 0, 1] {
                let value = &buckets[bucket as usize];
                if claims.claim(bucket) {
                    let found = value.load(Ordering::Relaxed);
                    image.lock().unwrap().push((bucket, found));
                }
                value.store(99, Ordering::Relaxed);
            }
            thread.join().unwrap();
            let mut image = image.lock().unwrap().clone();
            image.sort_unstable();
            assert_eq!(image, [(0, 10), (1, 11)]);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_thread_reads_what_the_writer_has_not_claimed() {
        let claims = Claims::new(19);
        assert!(claims.claim(2) && !claims.claim(2) && claims.claim(18));
        assert!(!claims.claim(19), "it is younger than the table");
        let mut read = Vec::new();
        for group in 0..claims.group_count() {
            let Ok(()) = claims.read_group(group, |bucket| {
                read.push(bucket);
                Ok::<(), std::convert::Infallible>(())
            });
        }
        assert!(read.iter().copied().eq((0..18).filter(|&bucket| bucket != 2)));
        assert!((0..19).all(|bucket| !claims.claim(bucket)));
    }

    #[test]
    fn a_group_that_could_not_be_read_makes_nobody_wait() {
        let claims = Claims::new(8);
        assert_eq!(claims.read_group(0, |_| Err("full")), Err("full"));
        assert!(!claims.claim(0));
    }
}
