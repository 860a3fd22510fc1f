//! Runs work in two halves, in parallel on a machine with two cores.
//!
//! # Invariants
//!
//! - Without a second thread, the second half starts after the first has succeeded. So on the
//!   simulated machine, which has no threads, the steps before a crash are always the same.

use crate::error::Result;
use crate::region::Region;

/// Size of a file in bytes from which a second thread pays off.
const THREAD_BYTES_MIN: u64 = 16 << 20;

/// Returns whether the recovery of this store runs in two halves: if a second thread pays off, and
/// always on the simulated machine, to test it.
pub(super) fn has_halves(region: &Region) -> bool {
    is_worth_a_thread(region) || !region.storage().may_sync_in_background()
}

/// Returns whether a second thread makes the recovery faster.
fn is_worth_a_thread(region: &Region) -> bool {
    region.view.file_bytes() >= THREAD_BYTES_MIN
        && region.storage().may_sync_in_background()
        && std::thread::available_parallelism().is_ok_and(|count| count.get() > 1)
}

/// Calls `first` on this thread while a thread named `name` calls `second`. Returns `None` for
/// `second` if there is no such thread; `second` was then not called.
pub(super) fn beside<A, B: Send>(
    region: &Region,
    name: &str,
    first: impl FnOnce() -> A,
    second: impl FnOnce() -> B + Send,
) -> (A, Option<B>) {
    if !is_worth_a_thread(region) {
        return (first(), None);
    }
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name(name.to_string());
        let second = builder.spawn_scoped(scope, second).ok();
        let first = first();
        let join = |thread: std::thread::ScopedJoinHandle<'_, B>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (first, second.map(join))
    })
}

/// Calls `each` for both halves.
pub(super) fn each_half<T: Clone + Send + Sync>(
    region: &Region,
    name: &str,
    [first, second]: [T; 2],
    each: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    let (done, other) = beside(region, name, || each(first), || each(second.clone()));
    done?;
    other.unwrap_or_else(|| each(second))
}
