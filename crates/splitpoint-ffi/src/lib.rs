//! What the C libraries of Splitpoint share: `errno`, panics, memory of malloc(3), and `datum`.
//!
//! # Invariants
//!
//! - No panic leaves a function that C calls: [`guard`] catches it.
//! - Memory that a program frees comes from malloc(3).
//! - `errno` is set last, on failure alone.

mod bytes;
mod datum;
mod environment;
mod errno;
mod memory;
mod walk;

pub use bytes::bytes_at;
pub use datum::Datum;
pub use environment::secure_variable;
pub use errno::{errno, errno_of, set_errno};
pub use memory::malloc_copy;
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
pub fn guard<T>(body: impl FnOnce() -> T) -> Option<T> {
    silence_guarded_panics();
    let was_guarded = IS_GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(body)).ok();
    IS_GUARDED.set(was_guarded);
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
}
