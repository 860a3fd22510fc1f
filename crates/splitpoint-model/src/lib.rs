//! How the processes that share a store go about it, as a model that a machine checks.
//!
//! The model has what several processes do to one file: the turns of writers, pins with two counters and
//! a parity, what compaction empties and uses again, checkpoints that both superblocks name, over several
//! turns and with the syncs between them, and what the next writer does after a death. Each [`Action`] names
//! the function of the engine that it stands for. [`stateright`] visits every state that they can reach in any
//! order, within [`Bounds`], and looks at each whether the [`PROPERTIES`] hold.
//!
//! A [`Canary`] is a mistake that an engineer could make. With any of them in the model the checker must
//! find a state in which a property falls: so the tests show that it looks at what matters.
//!
//! `docs/durability.md` says what the model proves.
//!
//! # What is modelled
//!
//! | modelled | not modelled |
//! |---|---|
//! | two writers by turns, or one that keeps its turn: the lock of the place, the turn word, the word that says who waits, giving way, a place that is kept between turns and handed over, taking over after a turn that ended and after a death | more processes; the time after which a handle gives way, or gives up; a lock that is lost because the program closes its descriptor; `Locked` |
//! | a put: record, slot, counts, commit word. A record that compaction moves | several keys, splits, batches; half a record, which a checksum finds |
//! | segments of one record each: emptied, retired with a death, used again when all of `take_reusable` holds | heads of the log with room for more, free space, growth |
//! | two readers: parity, pin, slot, value; their places, which are erased when the lock has gone; a grace period that looks at one place after the other | readers without a place, who lock the byte of the parity: the kernel takes back what they counted |
//! | one snapshot of a reader, in the process of a single writer | several, eviction |
//! | syncs, which need no turn and read their ranges before; checkpoints in several turns: the image in one turn, then the log and the image made durable between turns, one superblock in a turn, its sync between turns, the other one likewise, and finally the place of the previous one freed; checkpoints within one turn; a checkpoint that another handle gives up meanwhile | a sync that fails; after how many intervals a handle gives up another's pending checkpoint: here it may at any time; which granules the image is in |
//! | one death of any process, at any step | a stopped process: it is one that takes no step |
//! | in every state, what a power loss may leave of each segment and of each superblock, and damage of either superblock | a second crash during recovery, which the crash tests make |
//! | memory in one order of all stores | weaker orders, which loom tests |
//!
//! # Examples
//!
//! ```
//! use splitpoint_model::{Bounds, Canary, Model};
//! use stateright::{Checker as _, Model as _};
//!
//! let bounds = Bounds { writers: 2, turns: 1, puts: 1, deaths: 1, ..Bounds::default() };
//! let right = Model { bounds, canary: None }.checker().spawn_bfs().join();
//! right.assert_properties();
//!
//! let canary = Some(Canary::KilledTurnTakenForEnded);
//! let wrong = Model { bounds, canary }.checker().spawn_bfs().join();
//! assert!(wrong.discovery("visible changes survive a death").is_some());
//! ```

mod power;
mod reader;
mod state;
mod writer;

pub use state::*;

use stateright::Property;

/// What holds in every state.
pub const PROPERTIES: [&str; 5] = [
    "no use after reuse",
    "durable changes survive a power loss",
    "visible changes survive a death",
    "at most one holds the place of the writer",
    "nobody is overtaken more often than by a row of turns",
];

/// How much happens at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Writers; a single one never gives up its turn, as with `Sharing::OneWriter`.
    pub writers: u8,
    /// Turns of each writer.
    pub turns: u8,
    /// Readers.
    pub readers: u8,
    /// Lookups of each reader.
    pub looks: u8,
    /// Snapshots of the last reader, which is in the process of the writer.
    pub snapshots: u8,
    /// Puts, of all writers together.
    pub puts: u8,
    /// Records that compaction moves.
    pub moves: u8,
    /// Checkpoints.
    pub checkpoints: u8,
    /// Syncs, beside those of checkpoints.
    pub syncs: u8,
    /// Processes that are killed, at any step.
    pub deaths: u8,
}

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A segment counts as emptied when its count of live records is 0.
    FreedByCount,
    /// Space is used again before what superseded its records is durable.
    FreedBeforeDurable,
    /// Space is used again that recovery still reads: before the next checkpoint.
    FreedInReplayRange,
    /// Space is used again as soon as one superblock names the checkpoint.
    FreedBeforeSecondSuperblock,
    /// A grace period looks at one of the two counters alone.
    GracePeriodWithOneLook,
    /// A reader loads the slot before it pins.
    PinsAfterTheSlot,
    /// The counts of a reader are erased that has its lock.
    PlaceErasedWithoutLock,
    /// The turn is said to have begun when its first change is visible.
    TurnWordAfterFirstStore,
    /// A turn that was killed is taken for one that has ended.
    KilledTurnTakenForEnded,
    /// The place of the writer is given up before the turn is said to have ended.
    PlaceGivenUpBeforeWord,
    /// The place of the writer is taken without a look at its lock.
    PlaceTakenWithoutLock,
    /// What a snapshot looks back to is used again.
    HorizonIgnored,
    /// A sync covers the last record of the log alone.
    SyncsTailAlone,
    /// A superblock names an image before that is durable, and the log before it.
    NamedBeforeDurable,
    /// A superblock names an image whose place another handle has freed meanwhile.
    FreedImageNamed,
    /// The place of a checkpoint is freed that a superblock on the disk may still name.
    PlaceFreedBeforeNamedDurably,
    /// Nobody gives way to one that waits.
    WaitWordIgnored,
    /// A place that is kept between turns is not handed over although another wants it.
    WantedPlaceKept,
}

/// The model, with a mistake or without.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// How much happens.
    pub bounds: Bounds,
    /// The mistake.
    pub canary: Option<Canary>,
}

/// What may happen next: one step of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `Store::begin_turn`: a handle that has something to change wants its turn.
    WantTurn(u8),
    /// `Store::give_way`: it goes on, since the other has had its turn, or was killed.
    GoOn(u8),
    /// `Neighbours::try_take_turn`, which succeeds.
    TakePlace(u8),
    /// `Neighbours::try_take_turn` fails: `OtherReaders::set_turn_wanted`.
    SayWanted(u8),
    /// `Store::begin_turn_in_place`: the turn word is read, and says from now on that a turn has begun.
    BeginTurn(u8),
    /// `TakeOver::take_over`: the state of the writer is read, what is half made completed, and what waits
    /// to be used again is retired anew (`Writer::begin_compaction`).
    TakeOver(u8),
    /// `Store::append`: the record of a put is complete in the log.
    Append(u8),
    /// `Store::compact_batch`: a copy of a live record, and the RELOCATE that names it.
    Move(u8),
    /// `Store::set_slot`: the slot leads to the record.
    StoreSlot(u8),
    /// `Writer::note_appended`, `Writer::note_buried`, `Store::commit`: the segment table counts it, the
    /// commit word names it.
    Commit(u8),
    /// `Compaction::retire`: a segment was read to its end, and no slot leads there.
    Retire(u8, u8),
    /// `Pins::poll`: one step of a grace period, a look at one place (`OtherReaders::is_clear`).
    Poll(u8),
    /// `Compaction::take_reusable`.
    TakeReusable(u8),
    /// `Store::unsynced_by_turns`: which ranges are not durable.
    BeginSync(u8),
    /// `Region::sync_range`, `LiveHeader::raise_durable_lsn`.
    EndSync(u8),
    /// `Store::image_in_turn`: the image, of a checkpoint that ends in a later turn.
    WriteCheckpoint(u8),
    /// `Store::checkpoint_in_this_turn`: the image, of one that ends in this turn.
    CheckpointInTurn(u8),
    /// `Store::sync_ending`, which needs no turn: the log before it, and the image; or a superblock that names
    /// it.
    SyncCheckpoint(u8),
    /// `Store::go_on_ending`: the older superblock names it, in the cache; later the other one too; at last the
    /// place of the one before is free. A handle that does not take turns makes each superblock durable at once.
    NameCheckpoint(u8),
    /// `Store::free_pending`: another handle gives up what is on its way.
    FreePending(u8),
    /// `Store::end_turn`: the turn word says that it has ended.
    SayEnded(u8),
    /// `Neighbours::give_up_turn`, of a place that is kept by `Store::hand_over_if_due`.
    GiveUpPlace(u8),
    /// `Store::keeps_place`.
    KeepPlace(u8),
    /// The process of a writer is killed.
    KillWriter(u8),
    /// `ReaderTable::parity`, in `Seat::pin`.
    LoadParity(u8),
    /// `Seat::pin`: the pin is counted.
    CountPin(u8),
    /// `lookup::find`: the slot is loaded.
    LoadSlot(u8),
    /// `SeenPins::remove`: the value is dropped.
    Unpin(u8),
    /// `Horizons::open`.
    TakeSnapshot(u8),
    /// A snapshot is dropped.
    DropSnapshot(u8),
    /// The process of a reader is killed.
    KillReader(u8),
}

impl Model {
    pub(crate) fn is_made(&self, canary: Canary) -> bool {
        self.canary == Some(canary)
    }

    /// Returns whether writers take turns.
    pub(crate) fn is_by_turns(&self) -> bool {
        self.bounds.writers > 1
    }
}

impl stateright::Model for Model {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Bounds { writers, turns, readers, looks, snapshots, .. } = self.bounds;
        let file = File::new();
        let disk = Disk { content: file.content, superblocks: file.superblocks };
        let ghost = Ghost {
            visible: 1,
            complete: 1,
            promised: 1,
            stamp: 0,
            next_record: 2,
            next_image: 1,
            puts_left: self.bounds.puts,
            moves_left: self.bounds.moves,
            checkpoints_left: self.bounds.checkpoints,
            syncs_left: self.bounds.syncs,
            deaths_left: self.bounds.deaths,
        };
        let writer = |number: usize| Writer {
            is_alive: number < usize::from(writers),
            turns_left: if number < usize::from(writers) { turns } else { 0 },
            ..Writer::default()
        };
        let reader = |number: usize| Reader {
            is_alive: number < usize::from(readers),
            looks_left: if number < usize::from(readers) { looks } else { 0 },
            snapshots_left: if number + 1 == usize::from(readers) { snapshots } else { 0 },
            ..Reader::default()
        };
        let (writers, readers) = ([0, 1].map(writer), [0, 1].map(reader));
        let mut state = State { file, disk, place: None, writers, readers, ghost };
        if !self.is_by_turns() {
            (state.place, state.writers[0].step) = (Some(0), Step::Turn);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for number in 0..PROCESSES as u8 {
            self.writer_actions(state, number, actions);
            self.reader_actions(state, number, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.act(&mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let [reuse, power, death, place, overtaken] = PROPERTIES;
        vec![
            Property::always(reuse, |_, state: &State| state.is_all_read_whole()),
            Property::always(power, |_, state: &State| state.survives_power_loss()),
            Property::always(death, |_, state: &State| state.is_all_visible()),
            Property::always(place, |_, state: &State| {
                state.writers.iter().filter(|writer| writer.has_place()).count() <= 1
            }),
            Property::always(overtaken, |_, state: &State| {
                state.writers.iter().all(|writer| writer.overtaken <= TURNS_IN_ROW)
            }),
            // Of an end in which nothing can happen any more.
            Property::eventually("everybody gets a turn", |_, state: &State| {
                state.writers.iter().all(|writer| !writer.is_alive || writer.turns_left == 0)
            }),
        ]
    }
}

impl Model {
    /// Changes the state as an action does.
    fn act(&self, state: &mut State, action: Action) {
        use Action::{
            CountPin, DropSnapshot, KillReader, LoadParity, LoadSlot, TakeSnapshot, Unpin,
        };
        match action {
            LoadParity(r) | CountPin(r) | LoadSlot(r) | Unpin(r) | TakeSnapshot(r)
            | DropSnapshot(r) | KillReader(r) => state.reader_acts(r, action),
            _ => self.writer_acts(state, action),
        }
    }
}

impl State {
    /// Returns whether what a reader may look at is still what it was.
    fn is_all_read_whole(&self) -> bool {
        self.readers.iter().filter(|reader| reader.is_alive).all(|reader| {
            let held = match reader.look {
                Look::Holds(slot, _) => Some(slot),
                _ => None,
            };
            held.into_iter().chain(reader.snapshot).all(|slot| self.file.is_whole(slot))
        })
    }

    /// Returns whether the index leads to the newest version that anybody could see, and where nothing is
    /// half made, to the newest of which the record was complete.
    fn is_all_visible(&self) -> bool {
        let File { slot, .. } = self.file;
        let is_quiet =
            self.writers.iter().any(|writer| writer.is_alive && writer.step == Step::Turn);
        self.file.is_whole(slot)
            && slot.version >= self.ghost.visible
            && (!is_quiet || slot.version >= self.ghost.complete)
    }
}

impl Writer {
    /// Returns whether it may change the file.
    pub(crate) fn has_place(&self) -> bool {
        let is_outside = matches!(
            self.step,
            Step::Idle | Step::GivesWay | Step::Tries | Step::Waits | Step::GaveUp
        );
        self.is_alive && !is_outside
    }
}
