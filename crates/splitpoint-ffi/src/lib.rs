//! What the C libraries of Splitpoint share: `errno`, panics, memory of malloc(3), `datum`, walks, the
//! descriptors that programs see, and old files that become stores.
//!
//! # Invariants
//!
//! - No panic leaves a function that C calls: [`guard`] catches it. A lookup of hsearch alone has no guard: nothing
//!   in it panics, and a panic would end the program there, since C has nothing to unwind.
//! - Memory that a program frees comes from malloc(3).
//! - `errno` is set last, on failure alone: [`guard`] leaves it as it was.

mod bytes;
mod cut;
mod datum;
mod descriptor;
mod environment;
mod errno;
mod handle_lock;
mod memory;
mod old_files;
mod turns;
mod walk;

pub use bytes::bytes_at;
pub use cut::{CutWatch, is_store};
pub use datum::Datum;
pub use descriptor::{
    Identity, close_descriptor, is_close_on_exec, renew, replace_descriptor, set_close_on_exec,
};
pub use environment::secure_variable;
pub use errno::{errno, errno_of, set_errno};
pub use handle_lock::{HandleGuard, HandleLock};
pub use memory::malloc_copy;
pub use old_files::{Predecessor, beside, converts_old_files, sync_directory};
pub use turns::open_by_turns;
pub use walk::{Following, Walk};

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `body`, and returns what it returns; `None` if it panics.
///
/// Nothing is printed for a panic in `body`: the program's standard error is its own. The caller
/// refuses further changes through the handle that `body` used, which may be half changed.
///
/// `errno` is as it was: calls of the system inside may fail in a call that succeeds. The caller sets it
/// after a failure.
pub fn guard<T>(body: impl FnOnce() -> T) -> Option<T> {
    let before = errno();
    silence_guarded_panics();
    let was_guarded = IS_GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(body)).ok();
    IS_GUARDED.set(was_guarded);
    set_errno(before);
    result
}

/// Lets panics of guarded calls go unprinted. Those of others are printed as before.
fn silence_guarded_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // In a thread that is ending nobody knows.
            if !IS_GUARDED.try_with(Cell::get).unwrap_or(true) {
                print(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_stays_inside() {
        assert_eq!(guard(|| 7), Some(7));
        let fails = || -> i32 { panic!("as a defect would") };
        assert_eq!(guard(fails), None);
    }

    #[test]
    fn a_call_leaves_errno_as_it_was() {
        set_errno(7);
        assert!(guard(|| std::fs::File::open("/no/such/file")).is_some_and(|it| it.is_err()));
        assert_eq!(errno(), 7);
        let fails = || -> i32 {
            set_errno(libc::EIO);
            panic!("as a defect would")
        };
        assert_eq!(guard(fails), None);
        assert_eq!(errno(), 7);
    }
}
