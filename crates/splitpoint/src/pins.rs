//! `Pins`: readers' claims that the records they read are not overwritten.
//!
//! A reader that has loaded the address of a record may still be reading the record after the
//! writer has stored another address in the slot. So a reader counts itself *before* it loads the
//! slot: it holds a [`Pin`], which moves into the [`Value`](crate::Value) that it returns. The
//! writer *retires* records that no slot holds any more, and reuses their space only after a *grace
//! period*: when every pin that may be older is gone.
//!
//! One counter would be correct, but it might never reach 0 while threads take new values before
//! they drop old ones. So each place has two counters, and a word, the *parity*, says on which one
//! new pins count:
//!
//! ```text
//! pin     p = parity; count[p] += 1; fence; only then load the slot     remembers count[p]
//! unpin   count[p] -= 1                                                 from any thread
//! period  slots stored; fence
//!         look at count[parity ^ 1] of all places, until all are 0
//!         parity ^= 1
//!         look at count[old parity] of all places, until all are 0      over
//! ```
//!
//! A *place* belongs to one thread: a cache line with its two counters, so that readers do not
//! write to the same line. The module `places` assigns places to threads.
//!
//! # Why it is right
//!
//! - One of the two fences comes first in the order of sequentially consistent fences. If it is the
//!   reader's, the writer sees the count, on whichever parity, and waits for it: it checks both
//!   counters after its fence. If it is the writer's, the reader sees the new slot, and never gets
//!   the old address. This requires that the reader also loads everything that leads to the slot
//!   after the pin. A lookup that has loaded its line before the pin checks the shape again, which
//!   has another epoch if the line has left its chain or moved.
//! - Checking only `count[old parity]` would be wrong. A reader may load the parity, be preempted
//!   during a flip, and only then count and load the slot. For the next period the other parity is
//!   the old one, so it would never check that count. A mutant confirms that loom finds this.
//! - The reads of a reader happen before the reuse: the reader unpins with a release, and the
//!   writer loads the 0 with an acquire.
//! - A period ends: new pins count on the counter that the writer is not waiting for, except those
//!   of the few readers that loaded the parity before the flip.
//!
//! # Invariants
//!
//! - The writer never blocks: [`poll`](Pins::poll) checks once and returns.
//! - A copy of a pin counts on the same counter as the pin. It protects the same bytes, so it must
//!   delay the same period.
//!
//! # Source
//!
//! Sleepable RCU: `McKenney` 2006. Rejected: epoch-based reclamation, the usual way, because a
//! thread that takes a value before it drops the previous one never leaves its first epoch.

mod places;

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::testing::mutant::{self, Mutant};

/// Number of places of a handle. More threads than this share places.
#[cfg(not(loom))]
const PLACE_COUNT: usize = 64;
#[cfg(loom)]
const PLACE_COUNT: usize = 2;

/// Pins that a [`Bunch`] counts at a time.
const BUNCH: u64 = 64;

/// The pins of one handle, and the state of its writer's grace periods.
///
/// In the child of a fork, the counts include pins of threads that the child does not have, so
/// space may stay retired forever.
pub(crate) struct Pins {
    parity: CacheLine<AtomicU64>,
    places: [CacheLine<[PinCount; 2]>; PLACE_COUNT],
    periods: Mutex<Periods>,
    elsewhere: OnceLock<Box<dyn Elsewhere>>,
}

/// A counter of pins.
#[derive(Debug)]
pub(crate) struct PinCount {
    count: AtomicU64,
    /// Counts instead of `count`, if another process has to see the pins.
    seen: Option<Box<dyn SeenPins>>,
}

impl PinCount {
    fn new() -> Self {
        Self { count: AtomicU64::new(0), seen: None }
    }

    /// Counts pins that another process sees.
    pub(crate) fn seen(pins: Box<dyn SeenPins>) -> Self {
        Self { count: AtomicU64::new(0), seen: Some(pins) }
    }

    /// Returns a pin that `seen` has counted.
    pub(crate) fn counted(&self) -> Pin<'_> {
        debug_assert!(self.seen.is_some(), "others are counted here");
        Pin(self)
    }
}

/// Counts pins where another process sees them.
pub(crate) trait SeenPins: fmt::Debug + Send + Sync {
    /// Counts a copy of a pin that is counted.
    fn add(&self);

    /// Takes a pin from the count.
    fn remove(&self);
}

/// Pins that are counted outside of the handle: those of other processes. They have a parity of
/// their own, which flips together with that of the handle.
pub(crate) trait Elsewhere: fmt::Debug + Send + Sync {
    /// Makes new pins count on the other parity.
    fn flip(&self);

    /// Returns whether no pin counts on the old parity, on which new pins do not count.
    fn is_clear_behind(&self) -> bool;

    /// Returns whether anything is pinned.
    fn is_pinned(&self) -> bool;
}

/// A value in a cache line of its own.
#[repr(align(64))]
struct CacheLine<T>(T);

impl Default for Pins {
    fn default() -> Self {
        let zeros = || CacheLine([PinCount::new(), PinCount::new()]);
        Self {
            parity: CacheLine(AtomicU64::new(0)),
            places: std::array::from_fn(|_| zeros()),
            periods: Mutex::default(),
            elsewhere: OnceLock::new(),
        }
    }
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pins").field("is_pinned", &self.is_pinned()).finish_non_exhaustive()
    }
}

impl Pins {
    /// Pins everything that slots hold from now on, until the pin is dropped.
    ///
    /// After this call, load the slot and everything that leads to it, or check that what was
    /// loaded before has not changed.
    #[inline]
    pub(crate) fn pin(&self) -> Pin<'_> {
        self.pin_at(places::number())
    }

    #[inline]
    pub(crate) fn pin_at(&self, place: usize) -> Pin<'_> {
        let count = self.count_of_new(place);
        count_up(&count.count, 1);
        Pin(count)
    }

    /// Pins like [`pin`](Self::pin), twice.
    #[inline]
    pub(crate) fn two(&self) -> [Pin<'_>; 2] {
        let count = self.count_of_new(places::number());
        count_up(&count.count, 2);
        [Pin(count), Pin(count)]
    }

    /// Pins like [`pin`](Self::pin), for a caller that hands out many pins.
    pub(crate) fn bunch(&self) -> Bunch<'_> {
        let count = self.count_of_new(places::number());
        count_up(&count.count, BUNCH);
        Bunch { count, left: BUNCH }
    }

    /// Returns the counter of a place on which new pins count.
    #[inline]
    fn count_of_new(&self, place: usize) -> &PinCount {
        // A stale parity is fine: the writer checks both counters.
        let parity = self.parity.0.load(Ordering::Relaxed);
        &self.places[place % PLACE_COUNT].0[(parity & 1) as usize]
    }

    /// Returns a ticket for space that the writer retires now, because no slot leads there any
    /// more. The space may be reused when [`poll`](Self::poll) returns a larger number.
    ///
    /// The caller holds the writer's lock, and has already stored to the slots.
    pub(crate) fn ticket(&self) -> u64 {
        let mut periods = self.periods();
        periods.is_awaited = true;
        periods.next
    }

    /// Advances the grace period as far as the pins allow, and returns the ticket below which every
    /// period is over. Begins a period only if something was retired; never blocks.
    ///
    /// The caller holds the writer's lock, and calls this once in each step of its work.
    pub(crate) fn poll(&self) -> u64 {
        let mut periods = self.periods();
        while periods.advance(self) {}
        periods.past
    }

    /// Makes grace periods also wait for pins that are counted elsewhere. Called at most once,
    /// before anything is retired.
    pub(crate) fn wait_for(&self, elsewhere: Box<dyn Elsewhere>) {
        let was_set = self.elsewhere.set(elsewhere).is_err();
        debug_assert!(!was_set, "the pins of a file are elsewhere in one place");
    }

    /// Returns whether anything is pinned. A pin that is taken or dropped concurrently may be
    /// missed.
    pub(crate) fn is_pinned(&self) -> bool {
        !(self.is_clear(0) && self.is_clear(1)) || self.is_pinned_elsewhere()
    }

    /// Returns whether another process has anything pinned. The reader of a pin that this misses
    /// sees every store that was made before this call.
    pub(crate) fn is_pinned_elsewhere(&self) -> bool {
        fence(Ordering::SeqCst);
        self.elsewhere.get().is_some_and(|elsewhere| elsewhere.is_pinned())
    }

    /// Returns whether no pin counts on the old parity, on which new pins do not count, here or
    /// elsewhere.
    fn is_clear_behind(&self, parity: u64) -> bool {
        self.is_clear(parity)
            && self.elsewhere.get().is_none_or(|elsewhere| elsewhere.is_clear_behind())
    }

    /// Returns for how long, at least, pins have held up the present period: the time since the
    /// first poll that could not advance it. `None` if nothing waits.
    pub(crate) fn held_up_for(&self) -> Option<Duration> {
        self.periods().held_up_since.map(|since| since.elapsed())
    }

    /// Returns whether no pin counts on a parity.
    fn is_clear(&self, parity: u64) -> bool {
        let used = &self.places[..places::used_count()];
        used.iter().all(|place| place.0[(parity & 1) as usize].count.load(Ordering::Acquire) == 0)
    }

    /// Callers that change the state hold the writer's lock as well. This mutex makes the calls
    /// sound without relying on that.
    fn periods(&self) -> MutexGuard<'_, Periods> {
        self.periods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts pins, ordered before every later load of the caller: in the order of `SeqCst` operations, a
/// later check by the writer sees the count.
#[inline]
fn count_up(count: &AtomicU64, pin_count: u64) {
    count.fetch_add(pin_count, Ordering::SeqCst);
    // On x86-64 a locked instruction orders all memory accesses around it, and a second one would
    // cost as much again.
    if cfg!(any(loom, miri, not(target_arch = "x86_64"))) {
        fence(Ordering::SeqCst);
    }
}

/// The state of the grace periods. At most one runs at a time.
#[derive(Debug, Default)]
struct Periods {
    /// Ticket for what is retired now; it waits for the period after the running one.
    next: u64,
    /// Whether this ticket has been given out.
    is_awaited: bool,
    /// Tickets below this one have passed their periods.
    past: u64,
    step: Step,
    /// When pins first held up the running period.
    held_up_since: Option<Instant>,
}

/// What the running period waits for.
#[derive(Clone, Copy, Debug, Default)]
enum Step {
    /// No period runs.
    #[default]
    Rest,
    /// Readers that loaded the parity before the previous flip, and so count on the other parity.
    Stragglers,
    /// Readers that count on the parity before the flip of this period.
    Flipped,
}

impl Periods {
    /// Takes one step if the pins allow it, and returns whether it took one.
    fn advance(&mut self, pins: &Pins) -> bool {
        let parity = pins.parity.0.load(Ordering::Relaxed);
        let may_go_on = match self.step {
            Step::Rest => self.is_awaited,
            Step::Stragglers if mutant::is_made(Mutant::OneLookAtPins) => true,
            Step::Stragglers | Step::Flipped => pins.is_clear_behind(parity ^ 1),
        };
        if !may_go_on {
            if !matches!(self.step, Step::Rest) {
                self.held_up_since.get_or_insert_with(Instant::now);
            }
            return false;
        }
        self.step = match self.step {
            Step::Rest => {
                // A reader whose fence comes after this one sees the new slots, and no longer the
                // retired records.
                fence(Ordering::SeqCst);
                self.is_awaited = false;
                self.next += 1;
                Step::Stragglers
            }
            Step::Stragglers => {
                pins.parity.0.store(parity ^ 1, Ordering::Relaxed);
                if let Some(elsewhere) = pins.elsewhere.get() {
                    elsewhere.flip();
                }
                Step::Flipped
            }
            Step::Flipped => {
                self.past = self.next;
                self.held_up_since = None;
                Step::Rest
            }
        };
        true
    }
}

/// Keeps the records that slots held when it was taken, and later ones, from being overwritten.
#[derive(Debug)]
pub(crate) struct Pin<'a>(&'a PinCount);

impl Clone for Pin<'_> {
    #[inline]
    fn clone(&self) -> Self {
        // This pin keeps the counter above 0, so no ordering is needed.
        match &self.0.seen {
            None => drop(self.0.count.fetch_add(1, Ordering::Relaxed)),
            Some(seen) => seen.add(),
        }
        Self(self.0)
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(seen) = &self.0.seen {
            return seen.remove();
        }
        let before = self.0.count.fetch_sub(1, Ordering::Release);
        debug_assert_ne!(before, 0, "a pin is counted until it is dropped");
    }
}

/// A pin that hands out copies of itself. It counts many of them by one atomic addition.
#[derive(Debug)]
pub(crate) struct Bunch<'a> {
    count: &'a PinCount,
    /// Pins that are counted but not handed out; always at least one.
    left: u64,
}

impl<'a> Bunch<'a> {
    /// Creates a bunch from a pin that another process sees. It counts each copy when it hands it
    /// out.
    pub(crate) fn of(pin: Pin<'a>) -> Self {
        debug_assert!(pin.0.seen.is_some(), "others are counted many at once");
        Self { count: ManuallyDrop::new(pin).0, left: 1 }
    }

    /// Returns a copy, which protects the same records as the bunch.
    #[inline]
    pub(crate) fn take(&mut self) -> Pin<'a> {
        if let Some(seen) = &self.count.seen {
            seen.add();
            return Pin(self.count);
        }
        if self.left == 1 {
            self.count.count.fetch_add(BUNCH, Ordering::Relaxed);
            self.left += BUNCH;
        }
        self.left -= 1;
        Pin(self.count)
    }
}

impl Drop for Bunch<'_> {
    fn drop(&mut self) {
        if let Some(seen) = &self.count.seen {
            return seen.remove();
        }
        let before = self.count.count.fetch_sub(self.left, Ordering::Release);
        debug_assert!(before >= self.left, "a pin is counted until it is dropped");
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
