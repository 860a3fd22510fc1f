//! The lease of the writer's place: how handles that take turns pass it on.
//!
//! The place is a lock that the kernel drops with the process. A handle that waits for it sleeps
//! (futex) on a word of the reader table, which every process has mapped. Two words are enough:
//!
//! | word | who stores | who sleeps on it |
//! |---|---|---|
//! | `wanted` | a waiting handle: 1; a handle that hands over and finds nobody asleep: 0 | the keeper of a handle that keeps its place |
//! | `handed` | a handle that hands over: one more | waiting handles |
//!
//! A handle that has had several turns in a row *keeps* its place between them, so that its changes
//! need no system call. When another handle wants the place, it hands over after [`TIME_IN_ROW`].
//! If it makes no change in the meantime, its *keeper*, a background thread, hands over, perhaps
//! earlier. The keeper also gives the place up after [`IDLE`] without a change, so that a leaked
//! handle does not keep others out forever. A reader that must keep writers out requests the place
//! by a lock, for which the keeper polls once per [`IDLE`]. Even while the place is kept, each turn
//! ends with its change: a process killed between changes leaves nothing unfinished.
//!
//! # Every sleep ends
//!
//! A killed holder wakes nobody, and a holder that releases the place after every call wakes nobody
//! before it has had its turns in a row. So a waiting handle checks again after [`LOOK_AGAIN_MAX`]
//! at most. The kernel knows which handles sleep, so a handle that was killed while it waited is
//! not waited for.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::Store;
use super::turns::{Turn, Turns};
use crate::background::{Monitor, Worker};
use crate::error::Result;
use crate::options::Sharing;
use crate::storage::Storage;
use crate::storage::failure::io_error;
use crate::storage::neighbours::Neighbours;
use crate::storage::reader_table::OtherReaders;
use crate::storage::waiting::Waiting;
use crate::testing::meanwhile::{self, Point};
use crate::testing::mutant::{self, Mutant};

/// How long to sleep between two attempts to get the writer's place: at first, and at most. A
/// handle that wakes to try again goes to the end of the queue of sleepers, so the sleep must be
/// longer than the turns of a few other handles together.
const LOOK_AGAIN_MIN: Duration = Duration::from_micros(50);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(4);
/// How long a handle has turns in a row before it lets another one have its own: a change of hands
/// costs as much as a hundred changes, most of it until the other one runs. With twice this time,
/// four processes on two cores make 1.3 to 1.6 times as many changes, but some handle waits 0.02 to
/// 0.16 s, instead of 13 to 22 ms.
const TIME_IN_ROW: Duration = Duration::from_micros(500);
/// How long the keeper of a place that is wanted waits for another change.
const NEXT_CHANGE: Duration = Duration::from_micros(200);
/// After how many turns in a row a handle keeps the writer's place, and after how many in all if
/// other handles have had turns in between. A handle that makes a few changes and is closed thus
/// needs no thread.
const KEPT_AFTER: u32 = 16;
const KEPT_AFTER_IN_ALL: u32 = 64;
/// The same for a handle that already has the keeper thread: handles that make single changes in turn
/// would otherwise wait for each other every time.
const KEPT_AGAIN_AFTER: u32 = 2;
/// How long a handle that gives way waits for the other one to take the place.
const GIVE_WAY_MAX: Duration = Duration::from_millis(2);
/// Longest wait of a background thread for the place: calls of the program wait for that thread.
const SILENT_MAX: Duration = Duration::from_millis(100);
/// How long an idle handle keeps the place.
const IDLE: Duration = Duration::from_millis(10);
/// How long, and how often, a keeper polls for the next kept place before it sleeps.
const NEXT_PLACE: Duration = Duration::from_millis(1);
const NEXT_PLACES: u32 = 20;

/// The thread of a handle that hands the place over while the handle makes no change.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    worker: Worker<State>,
    /// The store that owns the keeper.
    store: OnceLock<Weak<Store>>,
    has_thread: AtomicBool,
    /// Whether the handle keeps the place between its turns.
    is_kept: AtomicBool,
    /// Whether the thread sleeps until the place is kept.
    is_asleep: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    is_stopped: bool,
}

impl Keeper {
    /// Begins to watch a place that is kept from now on. Returns `false` if there is no thread for
    /// that.
    fn watch(&self) -> bool {
        self.is_kept.store(true, Ordering::SeqCst);
        if !self.has_thread() {
            let Some(store) = self.store.get().and_then(Weak::upgrade) else { return false };
            if !store.region.storage().may_sync_in_background() {
                // A test plays the thread.
                return true;
            }
            let has_begun = self.worker.begin("splitpoint-turns", move |shared| {
                run(shared, &store);
            });
            self.has_thread.store(has_begun, Ordering::Relaxed);
            return has_begun;
        }
        if self.is_asleep.load(Ordering::SeqCst) {
            self.worker.shared().change(|_| ());
        }
        true
    }

    fn has_thread(&self) -> bool {
        self.has_thread.load(Ordering::Relaxed)
    }

    fn sleep(&self, shared: &Monitor<State>) {
        let state = shared.lock();
        self.is_asleep.store(true, Ordering::SeqCst);
        if !state.is_stopped && !self.is_kept.load(Ordering::SeqCst) {
            drop(shared.wait(state));
        }
        self.is_asleep.store(false, Ordering::SeqCst);
    }
}

fn run(shared: &Monitor<State>, store: &Store) {
    let (Some(turns), Some(others)) = (store.turns.as_deref(), &store.others) else { return };
    let (mut rounds, mut seen) = (0, 0);
    while !shared.lock().is_stopped {
        if turns.keeper.is_kept.load(Ordering::Relaxed) {
            rounds = 0;
            let is_wanted = others.wait_until_wanted(IDLE) || store.is_asked_for(others);
            if store.hand_over_if_due(turns, is_wanted, &mut seen) {
                continue;
            }
            let state = shared.lock();
            if !state.is_stopped {
                drop(shared.wait_for(state, NEXT_CHANGE));
            }
        } else if rounds < NEXT_PLACES {
            rounds += 1;
            let state = shared.lock();
            if !state.is_stopped {
                drop(shared.wait_for(state, NEXT_PLACE));
            }
        } else {
            turns.keeper.sleep(shared);
        }
    }
}

impl Turn {
    /// Returns whether this handle has had its time in a row, by the clock of the storage.
    fn is_over(&self, storage: &dyn Storage) -> bool {
        self.since.is_none_or(|since| storage.since_boot().saturating_sub(since) >= TIME_IN_ROW)
    }

    /// Returns whether the handle has had enough turns to keep the place after this one.
    fn is_of_many(&self, keeper: &Keeper) -> bool {
        let is_one_of = |in_row| self.number_in_row >= in_row;
        is_one_of(KEPT_AFTER)
            || is_one_of(KEPT_AGAIN_AFTER)
                && (self.number_in_all >= KEPT_AFTER_IN_ALL || keeper.has_thread())
    }
}

impl Store {
    /// Gives the keeper of a handle that takes turns a reference to the store.
    pub(crate) fn link_keeper(self: &Arc<Self>) {
        if let Some(turns) = &self.turns {
            // Called once per store.
            let _ = turns.keeper.store.set(Arc::downgrade(self));
        }
    }

    /// Stops the keeper of the handle. A kept place stays kept until the store is closed.
    pub(crate) fn stop_keeper(&self) {
        let (Some(turns), Some(others)) = (self.turns.as_deref(), &self.others) else { return };
        let wake = || others.wake_keepers();
        turns.keeper.worker.end_waking(|state| state.is_stopped = true, Some(&wake));
    }

    /// Returns whether a reader waits for the kept place. It requests the place by a lock, because
    /// it cannot store to the table.
    fn is_asked_for(&self, others: &OtherReaders) -> bool {
        let neighbours = self.region.storage().neighbours();
        let is_asked = neighbours.is_some_and(Neighbours::is_turn_asked_for);
        if is_asked {
            others.want_turn();
        }
        is_asked
    }

    /// Takes the writer's place for a turn, unless the handle has kept it.
    pub(super) fn take_place(&self, turns: &Turns, turn: &mut Turn) -> Result<()> {
        turn.number_in_row = turn.number_in_row.wrapping_add(1);
        turn.number_in_all = turn.number_in_all.saturating_add(1);
        if turn.is_kept {
            // The mapping keeps the lock even if the program has closed the descriptor. If the lock
            // is lost all the same, the turn word has changed.
            let found = self.others.as_ref().and_then(|others| others.turn().ok());
            if found == Some(turn.word) {
                return Ok(());
            }
            turn.is_kept = false;
            turns.keeper.is_kept.store(false, Ordering::SeqCst);
        }
        let (Some(neighbours), Some(others)) = (self.region.storage().neighbours(), &self.others)
        else {
            return Ok(());
        };
        if !turn.gave_way && self.try_to_take(turns, neighbours)? {
            return Ok(());
        }
        self.wait_for_place(turns, turn, neighbours, others)
    }

    fn try_to_take(&self, turns: &Turns, neighbours: &Neighbours) -> Result<bool> {
        let taken = neighbours.try_take_turn(turns.options.sharing);
        taken.map_err(|source| io_error("lock a byte of", self.region.storage().path(), source))
    }

    /// Waits for the writer's place. If this handle has just handed it to a sleeping handle, it
    /// lets that one go first: otherwise this one would always be faster.
    #[cold]
    fn wait_for_place(
        &self,
        turns: &Turns,
        turn: &mut Turn,
        neighbours: &Neighbours,
        others: &OtherReaders,
    ) -> Result<()> {
        let mut waiting = Waiting::new(&turns.options);
        let is_silent = turn.is_silent;
        let wait_max = turns.wait_max.min(if is_silent { SILENT_MAX } else { Duration::MAX });
        let mut gives_way = std::mem::take(&mut turn.gave_way);
        let mut pause = LOOK_AGAIN_MIN;
        loop {
            let seen = others.handed();
            others.want_turn();
            meanwhile::at(Point::PlaceWanted);
            let is_late = waiting.elapsed() >= wait_max;
            if (!gives_way || is_late) && self.try_to_take(turns, neighbours)? {
                return Ok(());
            }
            if is_late {
                return Err(self.locked());
            }
            if !is_silent {
                self.tell_of_wait(turns, &mut waiting);
            }
            others.wait_for_hand_over(seen, pause);
            pause = (pause * 2).min(LOOK_AGAIN_MAX);
            // Give way only for a limited time: the handle that was woken may be suspended or
            // killed.
            gives_way = gives_way
                && waiting.elapsed() < GIVE_WAY_MAX
                && others.turn().map_err(|source| self.table_error(source))? == turn.word;
        }
    }

    /// Calls the program's `on_wait` function while this thread holds the writer's lock. A panic is
    /// passed on, and the next call finds the writer unchanged.
    fn tell_of_wait(&self, turns: &Turns, waiting: &mut Waiting<'_>) {
        let calling = self.begin_call();
        let told = catch_unwind(AssertUnwindSafe(|| waiting.tell(|| self.locked())));
        drop(calling);
        if let Err(panic) = told {
            turns.note_panic_of_wait();
            resume_unwind(panic);
        }
    }

    /// Returns whether the handle keeps the place after a turn.
    pub(super) fn keeps_place(&self, turns: &Turns, turn: &mut Turn) -> bool {
        let is_of_many = turn.is_of_many(&turns.keeper);
        let Some(others) = self.others.as_ref().filter(|_| is_of_many) else { return false };
        if turns.options.sharing != Sharing::Shared {
            return false;
        }
        let is_wanted = others.is_turn_wanted() && !mutant::is_made(Mutant::KeepsWantedPlace);
        if is_wanted && turn.is_over(self.region.storage()) {
            return false;
        }
        turn.is_kept = turn.is_kept || turns.keeper.watch();
        turn.is_kept
    }

    /// Gives the place up. Wakes a waiting handle if `is_at_once` is set or this handle has had its
    /// time in a row.
    pub(super) fn leave_place(&self, turns: &Turns, turn: &mut Turn, is_at_once: bool) {
        turn.is_kept = false;
        turns.keeper.is_kept.store(false, Ordering::SeqCst);
        let Some(neighbours) = self.region.storage().neighbours() else { return };
        // Ignore an error: the lock ends with the handle.
        let _ = neighbours.give_up_turn(turns.options.sharing);
        if let Some(others) = &self.others
            && others.is_turn_wanted()
            && (is_at_once || turn.is_over(self.region.storage()))
        {
            turn.gave_way = others.hand_over();
        }
    }

    /// Does what the keeper of an idle handle does when another handle wants the place. Returns
    /// whether the handle had kept it.
    #[cfg(test)]
    pub(crate) fn play_keeper(&self) -> bool {
        let Some(turns) = self.turns.as_deref() else { return false };
        // It waits for a change that is being made.
        let Ok(writer) = self.writer.try_lock() else { return false };
        let (is_kept, mut seen) = (writer.turn.is_kept, writer.turn.number_in_row);
        drop(writer);
        self.hand_over_if_due(turns, true, &mut seen);
        is_kept
    }

    /// Hands a kept place over if no change was made since `seen`, or if another handle wants it
    /// and the time in a row is over. Returns `false` if the keeper should check again soon.
    fn hand_over_if_due(&self, turns: &Turns, is_wanted: bool, seen: &mut u32) -> bool {
        let Ok(mut writer) = self.lock() else {
            // A change that has panicked has given the place up.
            turns.keeper.is_kept.store(false, Ordering::SeqCst);
            return true;
        };
        let turn = &mut writer.turn;
        // If the program has closed the descriptor, the place cannot be given up.
        let neighbours = self.region.storage().neighbours();
        turn.is_kept &= neighbours.is_none_or(Neighbours::has_descriptor);
        if !turn.is_kept {
            turns.keeper.is_kept.store(false, Ordering::SeqCst);
            return true;
        }
        let is_idle = std::mem::replace(seen, turn.number_in_row) == turn.number_in_row;
        let is_due = is_idle || is_wanted && turn.is_over(self.region.storage());
        if is_due && !mutant::is_made(Mutant::KeepsWantedPlace) {
            self.leave_place(turns, turn, true);
        }
        is_due
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::error::ErrorKind;
    use crate::options::{Durability, Options};
    use crate::recovery::open_file;
    use crate::table::PutMode;

    /// Longer than any turn takes.
    const LONG: Duration = Duration::from_secs(600);

    fn open(path: &Path, wait_max: Duration) -> Arc<Store> {
        let options = Options::new().sharing(Sharing::Shared).lock_timeout(wait_max);
        let opened = open_file(path, &options).expect("nobody keeps it out");
        let store = Arc::new(Store::new(opened, &options));
        store.link_keeper();
        store
    }

    fn put(store: &Store, key: &[u8]) -> Result<()> {
        let mut writer = store.lock_for_change()?;
        store.put_at_once(&mut writer, key, b"value", PutMode::Replace, Durability::Buffered)?;
        Ok(())
    }

    fn close(store: &Store) {
        store.stop_keeper();
        store.close().expect("nothing fails");
    }

    /// Makes one handle keep its place and then stay idle, while another one makes a change.
    fn change_beside_an_idle_handle(wait_max: Duration) -> Result<()> {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        let (store, other) = (open(&path, LONG), open(&path, wait_max));
        for i in 0..KEPT_AFTER {
            put(&store, &i.to_le_bytes())?;
        }
        assert!(store.lock()?.turn.is_kept || !mutant::is_made(Mutant::KeepsWantedPlace));
        let changed = put(&other, b"other");
        close(&store);
        close(&other);
        changed
    }

    #[test]
    fn an_idle_handle_hands_over_the_place_that_it_keeps() {
        change_beside_an_idle_handle(LONG).unwrap();
    }

    #[test]
    fn a_handle_that_keeps_its_place_although_it_is_wanted_is_found() {
        let changed = mutant::with(Mutant::KeepsWantedPlace, || {
            change_beside_an_idle_handle(Duration::from_millis(20))
        });
        assert_eq!(changed.unwrap_err().kind(), ErrorKind::Locked);
    }

    #[test]
    fn a_thread_waits_for_its_turn_in_silence_and_not_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let other = open(&path, LONG);
        let options = Options::new().sharing(Sharing::Shared).lock_timeout(LONG);
        let options = options.on_wait(|_| panic!("nobody has called the store"));
        let store = Store::new(open_file(&path, &options).unwrap(), &options);
        put(&other, b"key").unwrap();
        let held = other.lock_for_change().unwrap();
        let turn = store.lock_out_others_in_silence().map(drop);
        assert_eq!(turn.unwrap_err().kind(), ErrorKind::Locked);
        drop(held);
        store.lock_out_others_in_silence().map(drop).unwrap();
        close(&other);
    }

    #[test]
    fn a_busy_handle_hands_over_after_its_turns_in_a_row() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (store, other) = (open(&path, LONG), open(&path, LONG));
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| {
                let mut i = 0_u32;
                while store.region.live().record_count() < 1_000 || !has(&store, b"done") {
                    put(&store, &(i % 999).to_le_bytes()).unwrap();
                    i += 1;
                }
            });
            for i in 0..50_u32 {
                put(&other, &(1_000 + i).to_le_bytes()).unwrap();
                // A handle that is opened now waits as well.
                let third = open(&path, LONG);
                put(&third, &(2_000 + i).to_le_bytes()).unwrap();
                close(&third);
            }
            put(&other, b"done").unwrap();
            busy.join().unwrap();
        });
        close(&store);
        close(&other);
    }

    fn has(store: &Store, key: &[u8]) -> bool {
        store.find(key).expect("nothing fails").is_some()
    }

    #[test]
    fn a_change_of_hands_keeps_the_mapping_of_the_tail() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (store, other) = (open(&path, LONG), open(&path, LONG));
        let is_mapped = |store: &Store| store.lock().unwrap().log.is_mapped();
        let (mut i, mut turns) = (0_u32, 0);
        let mut have_both = || {
            for store in [&store, &other] {
                put(store, &(i % 7).to_le_bytes()).unwrap();
                i += 1;
            }
        };
        // Both write a little at a time, until both have mapped the same segment.
        while !(is_mapped(&store) && is_mapped(&other)) {
            have_both();
            turns += 1;
            assert!(turns < 10_000);
        }
        let segment = |store: &Store| store.lock().unwrap().log.position().segment_offset;
        while segment(&store) == segment(&other) && turns < 10_000 {
            assert!(is_mapped(&store) && is_mapped(&other));
            have_both();
            turns += 1;
        }
        close(&store);
        close(&other);
        let again = open(&path, LONG);
        assert_eq!(again.region.live().record_count(), 7);
        for last in i - 7..i {
            assert!(has(&again, &(last % 7).to_le_bytes()));
        }
        close(&again);
    }

    #[test]
    fn a_handle_that_is_closed_leaves_the_place_that_it_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for _ in 0..20 {
            let (store, other) = (open(&path, LONG), open(&path, LONG));
            for i in 0..2 * KEPT_AFTER {
                put(&store, &i.to_le_bytes()).unwrap();
            }
            close(&store);
            put(&other, b"other").unwrap();
            assert!(!other.lock().unwrap().turn.is_kept, "its first turn");
            close(&other);
        }
    }
}
