//! Work in two halves, at the same time where the machine has two cores.
//!
//! # Invariants
//!
//! - Where there is no second thread, the first half is done before the second begins, and the second
//!   only if the first succeeds: on the simulated machine, which has no threads, a crash is always of
//!   the same steps.

use crate::error::Result;
use crate::region::Region;

/// Size in bytes from which a file is worth a second thread.
const THREAD_BYTES_MIN: u64 = 16 << 20;

/// Returns whether the recovery of this store is done in two halves: if a second thread makes it
/// shorter, and on the simulated machine.
pub(super) fn has_halves(region: &Region) -> bool {
    is_worth_a_thread(region) || !region.storage().may_sync_in_background()
}

/// Returns whether a second thread makes a recovery shorter.
fn is_worth_a_thread(region: &Region) -> bool {
    region.view.file_bytes() >= THREAD_BYTES_MIN
        && region.storage().may_sync_in_background()
        && std::thread::available_parallelism().is_ok_and(|count| count.get() > 1)
}

/// Calls `first` here and `second` in a thread named `name` at the same time. Returns `None` for
/// `second` where there is no such thread: then it has not been called.
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

/// Calls `each` with both halves.
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
