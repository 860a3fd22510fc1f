//! Replays: what real streams of lookups cost in the hash tables of a kernel.
//!
//! ```text
//! trace --> Streams: dentry, inode, page, buffer --> a function, a size, addresses --> visited
//! ```
//!
//! [`trace`] reads the events, [`Streams`] says what they do to each of the four tables, whatever their
//! functions; [`ObjectLayout`] gives the objects the addresses that old functions hash, and [`Chains`] counts
//! what the lookups visit.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::BufRead;

mod addresses;
mod chains;
mod dentries;
mod era;
mod layout;
mod plan;
mod reading;
mod recent;
mod replaying;
mod sizes;
mod stream;
mod study;
mod table_sizes;
mod today;
pub mod trace;
mod trees;
pub mod walk;

pub use addresses::ObjectLayout;
pub use chains::{Chains, Visits, ideal_buckets};
pub use dentries::{DentryKey, Shrink};
pub use era::{ERAS, Era, EraTable, KernelTable, Layouts, TableSetup};
pub use layout::{Field, LayoutReport, LayoutRow, NODE_LAYOUTS, NodeLayout, NodeLines};
pub use plan::{Column, Combination, era_of, tables_of};
pub use reading::{Reading, Run};
pub use recent::recent_buffers;
pub use replaying::{Measuring, Replay};
pub use sizes::SizeRule;
pub use stream::{ObjectNumber, Step, Stream, StreamCounts};
pub use study::{
    Across, CombinationReplay, FullBucket, LineCost, Moment, NameAttack, REPLAY_SCHEMA,
    ReplayStudy, SizeCurve, SizePoint, StreamReplay, SuperblockReplay, TableReplay, TodayReplay,
    TraceReplay,
};
pub use table_sizes::{TableSize, TableSizes, TaskTable};
pub use today::{name_attacks, names_that_collide};
pub use trace::{InodeNumber, Trace};
pub use trees::{TreeReplay, red_black, xarray};

use dentries::Dentries;
use stream::KeyedStream;
use trace::{Event, PageUse};

/// Most steps of the four streams together: a trace of more takes more than 2 GB.
const STEPS_MAX: usize = 1 << 27;
/// Most bytes of the names of a trace, each counted once: a million of the longest.
const NAME_BYTES_MAX: u64 = 1 << 28;
/// Events between two reports of progress.
const PROGRESS_EVENTS: u64 = 1 << 14;

/// A line of a trace that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Number of the line, from 1.
    pub line_number: u64,
    /// What is wrong with it.
    pub reason: String,
    /// The line cannot be read: the system refused, or the compressed data is damaged.
    pub is_unreadable: bool,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line_number, self.reason)
    }
}

impl std::error::Error for TraceError {}

/// The key of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey {
    /// Number of the file, from 0, in the order of first use.
    pub owner: u32,
    /// Number of the page in the file.
    pub index: u64,
}

/// The key of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferKey {
    /// Device, from 0.
    pub device: u32,
    /// Number of the block.
    pub block: u64,
}

/// What a trace does to the four tables.
#[derive(Debug)]
pub struct Streams {
    /// Name of the trace.
    pub name: String,
    /// Lines of the trace.
    pub line_count: u64,
    /// The dentry cache.
    pub dentry: Stream<DentryKey>,
    /// The inode cache, looked up where the dentry cache misses.
    pub inode: Stream<InodeNumber>,
    /// The page cache.
    pub page: Stream<PageKey>,
    /// The buffer cache.
    pub buffer: Stream<BufferKey>,
    /// The names of the dentries, by number.
    pub names: Vec<Box<[u8]>>,
    /// Address slots that dentries have taken.
    pub dentry_slot_count: u32,
    /// Files with pages.
    pub page_owner_count: u32,
    /// Directories that were looked in before their own name was.
    pub root_count: u64,
    /// Lookups that found a dentry whose inode had changed.
    pub stale_count: u64,
}

impl Streams {
    /// Reads a trace to its end; `progress` is called now and then with the lines read so far.
    ///
    /// # Errors
    ///
    /// [`TraceError`] with the number of the line that is malformed or impossible, or with which the
    /// streams would take more memory than any real trace.
    ///
    /// # Cost
    ///
    /// Memory for the keys of all objects and 12 bytes a step, about one a lookup.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_lab::replay::{Shrink, Streams, Trace};
    ///
    /// let text = "# kernel cache trace 1\nL 1 2 11 usr\nL 1 11 0 lib64 x3\n";
    /// let streams = Streams::read(Trace::new(text.as_bytes())?, Shrink::None, |_| {})?;
    /// let counts = streams.dentry.counts();
    /// assert_eq!((counts.lookup_count, counts.hit_count, counts.miss_count), (4, 2, 2));
    /// # Ok::<(), splitpoint_lab::replay::TraceError>(())
    /// ```
    pub fn read<R: BufRead>(
        mut trace: Trace<R>,
        shrink: Shrink,
        mut progress: impl FnMut(u64),
    ) -> Result<Self, TraceError> {
        let mut following = Following::new(shrink, STEPS_MAX);
        let mut event_count = 0_u64;
        while let Some((event, repeats)) = trace.next_event()? {
            following.follow(&event, repeats).map_err(|reason| trace.error(reason))?;
            event_count += 1;
            if event_count.is_multiple_of(PROGRESS_EVENTS) {
                progress(trace.line_number());
            }
        }
        // The last call found the end, not a line.
        let line_count = trace.line_number() - 1;
        Ok(following.finish(trace.name().to_owned(), line_count))
    }
}

impl Streams {
    /// Returns what the trace does to one table.
    pub fn counts(&self, table: KernelTable) -> StreamCounts {
        match table {
            KernelTable::Dentry => self.dentry.counts(),
            KernelTable::Inode => self.inode.counts(),
            KernelTable::Page => self.page.counts(),
            KernelTable::Buffer => self.buffer.counts(),
        }
    }

    /// Returns the steps of one table.
    pub fn steps(&self, table: KernelTable) -> &[Step] {
        match table {
            KernelTable::Dentry => self.dentry.steps(),
            KernelTable::Inode => self.inode.steps(),
            KernelTable::Page => self.page.steps(),
            KernelTable::Buffer => self.buffer.steps(),
        }
    }

    /// Returns how many objects a table's stream has, whether they are in the table at its end or not.
    pub fn object_count(&self, table: KernelTable) -> usize {
        match table {
            KernelTable::Dentry => self.dentry.keys().len(),
            KernelTable::Inode => self.inode.keys().len(),
            KernelTable::Page => self.page.keys().len(),
            KernelTable::Buffer => self.buffer.keys().len(),
        }
    }

    /// Returns an object as a name, `inode N`, `file:page` or `device:block`.
    pub fn object_in_words(&self, table: KernelTable, object: ObjectNumber) -> String {
        let at = object as usize;
        match table {
            KernelTable::Dentry => {
                let name = &self.names[self.dentry.keys()[at].name as usize];
                String::from_utf8_lossy(name).into_owned()
            }
            KernelTable::Inode => format!("inode {}", self.inode.keys()[at].number),
            KernelTable::Page => {
                let PageKey { owner, index } = self.page.keys()[at];
                format!("{owner}:{index}")
            }
            KernelTable::Buffer => {
                let BufferKey { device, block } = self.buffer.keys()[at];
                format!("{device}:{block}")
            }
        }
    }

    /// Returns the numbers of the devices whose inodes are looked up, in order.
    fn inode_devices(&self) -> Vec<u32> {
        let devices: std::collections::BTreeSet<u32> =
            self.inode.keys().iter().map(|key| key.device).collect();
        devices.into_iter().collect()
    }
}

/// The tables while a trace is read.
#[derive(Debug)]
struct Following {
    steps_max: usize,
    name_bytes_max: u64,
    dentries: Dentries,
    pages: KeyedStream<PageKey>,
    owners: HashMap<InodeNumber, u32>,
    buffers: KeyedStream<BufferKey>,
    /// Blocks that were looked up and not yet marked dirty since.
    looked_up: HashSet<BufferKey>,
}

impl Following {
    fn new(shrink: Shrink, steps_max: usize) -> Self {
        Self {
            steps_max,
            name_bytes_max: NAME_BYTES_MAX,
            dentries: Dentries::new(shrink),
            pages: KeyedStream::default(),
            owners: HashMap::new(),
            buffers: KeyedStream::default(),
            looked_up: HashSet::new(),
        }
    }

    /// Does to the tables what an event does that happened `repeats` times in a row.
    fn follow(&mut self, event: &Event, repeats: u64) -> Result<(), String> {
        match event {
            Event::Lookup(entry, inode) => self.dentries.look_up(entry, *inode, repeats)?,
            Event::Create(entry, inode) => self.dentries.create(entry, *inode),
            Event::Unlink(entry) => self.dentries.unlink(entry),
            Event::Rename(from, to) => self.dentries.rename(from, to)?,
            Event::Free(inode) => self.dentries.free(*inode),
            Event::Pages { usage, owner, first, count } => {
                self.use_pages(*usage, *owner, *first..*first + *count, repeats);
            }
            Event::Buffer { device, block, is_dirty } => {
                let key = BufferKey { device: *device, block: *block };
                self.use_buffer(key, *is_dirty, repeats);
            }
        }
        self.dentries.shrink_to_bound();
        let keyed = self.pages.stream().steps().len() + self.buffers.stream().steps().len();
        if self.dentries.step_count() + keyed > self.steps_max {
            return Err(format!("the trace has more than {} steps", self.steps_max));
        }
        if self.dentries.name_bytes() > self.name_bytes_max {
            return Err(format!("the trace has more than {} bytes of names", self.name_bytes_max));
        }
        Ok(())
    }

    fn use_pages(
        &mut self,
        usage: PageUse,
        owner: InodeNumber,
        range: std::ops::Range<u64>,
        repeats: u64,
    ) {
        let next = u32::try_from(self.owners.len()).expect("fewer files than steps");
        let owner = *self.owners.entry(owner).or_insert(next);
        let keys = range.map(|index| PageKey { owner, index });
        match usage {
            PageUse::Add => keys.for_each(|key| self.pages.insert(key)),
            PageUse::Remove => keys.for_each(|key| self.pages.remove(&key)),
            PageUse::Lookup => {
                keys.clone().for_each(|key| self.pages.look_up(key, 1));
                // The first time has brought in what was missing.
                if repeats > 1 {
                    keys.for_each(|key| self.pages.look_up(key, repeats - 1));
                }
            }
        }
    }

    /// A block that is written is looked up, unless it was looked up to be written.
    fn use_buffer(&mut self, key: BufferKey, is_dirty: bool, repeats: u64) {
        let paired = u64::from(is_dirty && self.looked_up.remove(&key));
        if !is_dirty {
            self.looked_up.insert(key);
        }
        if repeats > paired {
            self.buffers.look_up(key, repeats - paired);
        }
    }

    fn finish(self, name: String, line_count: u64) -> Streams {
        let dentries = self.dentries.into_streams();
        Streams {
            name,
            line_count,
            dentry: dentries.dentries,
            inode: dentries.inodes,
            page: self.pages.into_stream(),
            buffer: self.buffers.into_stream(),
            names: dentries.names,
            dentry_slot_count: dentries.slot_count,
            page_owner_count: u32::try_from(self.owners.len()).expect("fewer files than steps"),
            root_count: dentries.root_count,
            stale_count: dentries.stale_count,
        }
    }
}

#[cfg(test)]
mod tests;
