//! What there is at a moment: the file, the disk below it, the locks, the processes.

/// Segments of the file; each has room for one record.
pub const SEGMENTS: usize = 4;
/// Writers, and readers, at most.
pub const PROCESSES: usize = 2;
/// Records that the log has at most.
pub const LOG_RECORDS: usize = 6;
/// Turns in a row after which a handle lets another one go first: as many as there are in `TIME_IN_ROW`.
pub const TURNS_IN_ROW: u8 = 2;

/// What a slot of the index leads to: a record, by where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The segment of the record.
    pub segment: u8,
    /// Which record it is: each append makes another one.
    pub record: u8,
    /// The version of the one key. A record that was moved keeps it.
    pub version: u8,
}

/// What the segment table says of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// Nothing.
    #[default]
    Free,
    /// It has a record.
    Log,
    /// Compaction has read it to its end, and moved what was live.
    Emptied,
}

/// The turn word of the reader table (`TurnWord`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// Nobody had a turn.
    #[default]
    None,
    /// A turn of this writer, with its number, has begun.
    Begun(u8, u8),
    /// It has ended.
    Ended(u8, u8),
}

/// The file, as every process sees it through its mappings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct File {
    /// Which record is in each segment.
    pub content: [u8; SEGMENTS],
    /// The segment table.
    pub uses: [Use; SEGMENTS],
    /// Live records of each segment, as the segment table counts them: hints.
    pub live: [u8; SEGMENTS],
    /// The index, of one key.
    pub slot: Slot,
    /// The records of the log, in their order.
    pub log: [Slot; LOG_RECORDS],
    /// How many of them are complete.
    pub log_end: u8,
    /// How many the commit word names.
    pub committed: u8,
    /// How many are durable (`durable_lsn` of the live header).
    pub durable: u8,
    /// Who has the turn, or had the last one.
    pub word: Word,
    /// Whether a handle waits for its turn.
    pub is_wanted: bool,
    /// On which of two counters new pins count.
    pub parity: u8,
    /// Pins of the place of each reader, on both parities.
    pub pins: [[u8; 2]; PROCESSES],
    /// Where images of checkpoints are (the live header): the one that is named, and one that is pending.
    pub places: [Option<Place>; 2],
    /// The checkpoint that each superblock names, in the cache.
    pub superblocks: [Checkpoint; 2],
    /// Which superblock is newer.
    pub newest: u8,
}

/// The place of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Whose it is.
    pub checkpoint: Checkpoint,
    /// Whether the image is durable.
    pub is_durable: bool,
}

/// A checkpoint: the index as of a record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checkpoint {
    /// How many records of the log it has.
    pub lsn: u8,
    /// The index.
    pub slot: Slot,
    /// Which image has it: each one is another.
    pub image: u8,
}

/// What a power loss leaves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Disk {
    /// Which record of each segment was synced. What was stored there since may be on the disk too, or a
    /// part of it.
    pub content: [u8; SEGMENTS],
    /// The checkpoint that each superblock names which was synced. What the cache has may be on the disk too.
    pub superblocks: [Checkpoint; 2],
}

/// How far a grace period is that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grace {
    /// It has not begun: the ticket is that of the next one.
    Next,
    /// It runs.
    Running,
    /// It is over.
    Over,
}

/// A segment that waits to be used again (`Emptied`), with its death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiting {
    /// Which segment.
    pub segment: u8,
    /// Where the log ended.
    pub lsn: u8,
    /// How many checkpoints had been begun.
    pub checkpoint: u8,
    /// The ticket.
    pub grace: Grace,
    /// The stamp for the horizons.
    pub stamp: u8,
}

/// What the period that runs waits for (`Step` of the pins), and at which place it looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    /// None runs.
    #[default]
    Rest,
    /// Those that loaded the parity before the last flip.
    Stragglers(u8),
    /// Those that count on the parity before the flip of this period.
    Flipped(u8),
}

/// Where a writer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Between two calls.
    #[default]
    Idle,
    /// It lets another one go first (`give_way`).
    GivesWay,
    /// It tries to take the place of the writer.
    Tries,
    /// It has said that it waits.
    Waits,
    /// It has the place and has not looked at the turn word.
    Placed,
    /// It has found a turn word, and said that its own turn has begun.
    Found(Word),
    /// It has a turn, and nothing is half made.
    Turn,
    /// A record is complete in the log.
    Appended,
    /// The slot leads to it. What it replaced was in this segment.
    Stored(u8),
    /// The turn is said to have ended; the place is still held.
    Ended,
    /// Between two calls; the place is kept (`Store::keeps_place`).
    Kept,
    /// The place was given up before the turn is said to have ended: with a canary.
    GaveUp,
}

/// How far a checkpoint is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Making {
    /// None is made.
    #[default]
    None,
    /// The image is whole.
    Written(Checkpoint),
    /// The log before it is durable, and the image.
    Durable(Checkpoint),
    /// So many superblocks name it, the last of them in the cache.
    Naming(Checkpoint, u8),
    /// So many superblocks name it durably.
    Named(Checkpoint, u8),
}

impl Making {
    /// Returns whether it waits for a sync, which needs no turn.
    pub(crate) fn is_unsynced(self) -> bool {
        matches!(self, Self::Written(_) | Self::Naming(..))
    }
}

/// A process that writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writer {
    /// Whether it is there and lives.
    pub is_alive: bool,
    /// Where it is.
    pub step: Step,
    /// The word that it left.
    pub word: Word,
    /// Turns that it has had.
    pub number: u8,
    /// Turns that it will still want.
    pub turns_left: u8,
    /// Turns since another one had one.
    pub in_row: u8,
    /// Turns of others while it waits.
    pub overtaken: u8,
    /// Its grace period.
    pub period: Period,
    /// Whether anything waits for the next one.
    pub is_awaited: bool,
    /// What it has emptied.
    pub waiting: Vec<Waiting>,
    /// The checkpoint that it makes.
    pub making: Making,
    /// Whether it makes all of it within this turn.
    pub is_in_turn: bool,
    /// Checkpoints that it has begun.
    pub begun: u8,
    /// Which of them both superblocks name (`replay_checkpoint`).
    pub replay_checkpoint: u8,
    /// The sync that it has under way: up to where, and of which segments.
    pub syncing: Option<(u8, [bool; SEGMENTS])>,
    /// The largest stamp of which no horizon needs anything, and the next one after a grace period
    /// (`PastHorizon`).
    pub past: u8,
    /// See `past`.
    pub past_next: Option<(u8, Grace)>,
}

/// Where a reader is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Look {
    /// Between two lookups.
    #[default]
    Idle,
    /// It has loaded the parity.
    Parity(u8),
    /// Its pin is counted.
    Pinned(u8),
    /// It has loaded the slot before it pins: with a canary.
    LoadedFirst(Slot),
    /// The same, with the parity.
    LoadedParity(Slot, u8),
    /// It has a value, and the pin.
    Holds(Slot, u8),
}

/// A process that reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reader {
    /// Whether it is there and lives: then it has the lock of its place.
    pub is_alive: bool,
    /// Where it is.
    pub look: Look,
    /// Lookups that it will still make.
    pub looks_left: u8,
    /// What it looks back to by a snapshot.
    pub snapshot: Option<Slot>,
    /// Snapshots that it will still take.
    pub snapshots_left: u8,
}

/// What nobody in the program knows: what was promised, and what may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ghost {
    /// The newest version that a lookup could see.
    pub visible: u8,
    /// The newest version of which the record was complete in the log.
    pub complete: u8,
    /// The newest version that a sync has promised.
    pub promised: u8,
    /// How many horizons have been opened (`Horizons::now`).
    pub stamp: u8,
    /// The next record.
    pub next_record: u8,
    /// The next image.
    pub next_image: u8,
    /// Events that may still happen.
    pub puts_left: u8,
    /// See `puts_left`.
    pub moves_left: u8,
    /// See `puts_left`.
    pub checkpoints_left: u8,
    /// See `puts_left`.
    pub syncs_left: u8,
    /// See `puts_left`.
    pub deaths_left: u8,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// The file.
    pub file: File,
    /// The disk.
    pub disk: Disk,
    /// Who has the lock of the writer's byte.
    pub place: Option<u8>,
    /// The writers.
    pub writers: [Writer; PROCESSES],
    /// The readers.
    pub readers: [Reader; PROCESSES],
    /// The rest.
    pub ghost: Ghost,
}

impl File {
    /// Returns a file with one record, which a checkpoint has.
    pub(crate) fn new() -> Self {
        let slot = Slot { segment: 0, record: 1, version: 1 };
        let checkpoint = Checkpoint { lsn: 1, slot, image: 0 };
        let mut file = Self {
            content: [0; SEGMENTS],
            uses: [Use::Free; SEGMENTS],
            live: [0; SEGMENTS],
            slot,
            log: [Slot::default(); LOG_RECORDS],
            log_end: 1,
            committed: 1,
            durable: 1,
            word: Word::None,
            is_wanted: false,
            parity: 0,
            pins: [[0; 2]; PROCESSES],
            places: [Some(Place { checkpoint, is_durable: true }), None],
            superblocks: [checkpoint; 2],
            newest: 0,
        };
        (file.content[0], file.uses[0], file.live[0], file.log[0]) = (1, Use::Log, 1, slot);
        file
    }

    /// Returns where the next record goes: behind the last one that is committed. If there is one that is
    /// not, its place is taken: nobody has seen it.
    pub(crate) fn place_of_next(&self) -> Option<u8> {
        if self.log_end > self.committed {
            return Some(self.log[usize::from(self.committed)].segment);
        }
        if usize::from(self.log_end) == LOG_RECORDS {
            return None;
        }
        self.uses.iter().position(|&segment_use| segment_use == Use::Free).map(|at| at as u8)
    }

    /// Returns the checkpoint that the newest superblock names.
    pub(crate) fn named(&self) -> Checkpoint {
        self.superblocks[usize::from(self.newest)]
    }

    /// Returns the place that the newest superblock does not name (`Writer::pending`).
    pub(crate) fn pending(&self) -> Option<Place> {
        let is_pending = |place: &Place| place.checkpoint != self.named();
        self.places.iter().flatten().copied().find(is_pending)
    }

    /// Returns whether the image of a checkpoint is in its place, and durable.
    pub(crate) fn has_durable_image(&self, checkpoint: Checkpoint) -> bool {
        self.places.contains(&Some(Place { checkpoint, is_durable: true }))
    }

    /// Returns whether the index leads to the record that it names.
    pub(crate) fn is_whole(&self, slot: Slot) -> bool {
        self.content[usize::from(slot.segment)] == slot.record
    }

    /// Returns which segments a sync has to cover: those of what is committed and not durable.
    pub(crate) fn unsynced(&self, is_tail_alone: bool) -> [bool; SEGMENTS] {
        let mut segments = [false; SEGMENTS];
        let from = if is_tail_alone { self.committed - 1 } else { self.durable };
        for lsn in from.min(self.committed)..self.committed {
            segments[usize::from(self.log[usize::from(lsn)].segment)] = true;
        }
        segments
    }
}

impl State {
    /// Returns the same state with the names of the processes in an order: what one may do the other may
    /// do, so only one of them has to be visited.
    #[must_use]
    pub fn representative(&self) -> Self {
        let mut state = self.clone();
        let [first, second] = &state.writers;
        if second < first {
            state.swap_writers();
        }
        // Those who look at the places go from the first to the last.
        let is_looked_at = |writer: &Writer| {
            matches!(writer.period, Period::Stragglers(1..) | Period::Flipped(1..))
        };
        let [first, second] = &state.readers;
        if second < first && !state.writers.iter().any(is_looked_at) {
            state.readers.swap(0, 1);
            state.file.pins.swap(0, 1);
        }
        state
    }

    fn swap_writers(&mut self) {
        self.writers.swap(0, 1);
        self.place = self.place.map(|w| w ^ 1);
        self.file.word = self.file.word.swapped();
        for writer in &mut self.writers {
            writer.word = writer.word.swapped();
            if let Step::Found(word) = writer.step {
                writer.step = Step::Found(word.swapped());
            }
        }
    }
}

impl Word {
    fn swapped(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Begun(w, number) => Self::Begun(w ^ 1, number),
            Self::Ended(w, number) => Self::Ended(w ^ 1, number),
        }
    }
}
