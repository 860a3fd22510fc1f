//! The dentry cache: which names a kernel would have cached, and which inodes it would look up.
//!
//! It follows the trace, not a hash function: what is cached depends on the lookups, on unlinks and
//! renames, and on how the cache is shrunk. A dentry that is looked up and not cached costs a lookup
//! in the inode cache, unless the name does not exist.
//!
//! # Source
//!
//! `fs/dcache.c` and `fs/inode.c` of Linux 2.2 to 6.x, as far as they decide what is in the tables.
//! Written from a description.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::stream::{KeyedStream, ObjectNumber, Stream};
use super::trace::{Entry, InodeNumber};

/// Deepest directory: a path of Linux has at most 4096 bytes.
const DEPTH_MAX: u32 = 4096;
/// No dentry.
const NONE: u32 = u32::MAX;

/// How the dentry cache is shrunk. Evicted inodes stay in the inode cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shrink {
    /// Not at all.
    #[default]
    None,
    /// After each event, to this many dentries, the least recently used first.
    Lru(u64),
    /// All that is unused, each time that this many lookups have come: 2.2.5 under pressure.
    All(u64),
    /// The less recently used half of what is unused, each time: 2.2.16 and 2.4.0.
    Half(u64),
}

/// The key of a dentry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DentryKey {
    /// Address slot of the parent.
    pub parent_slot: u32,
    /// Number of the name.
    pub name: u32,
}

/// What is cached of one name, or of a directory that has none yet.
#[derive(Clone, Copy, Debug)]
struct Dentry {
    slot: u32,
    parent: u32,
    name: u32,
    inode: Option<InodeNumber>,
    /// Its number while it is in the table. A root is not: its directory was looked in first.
    object: Option<ObjectNumber>,
    /// Cached names in it.
    child_count: u32,
    is_unused: bool,
    newer: u32,
    older: u32,
}

/// The cache while a trace is read.
#[derive(Debug)]
pub(super) struct Dentries {
    shrink: Shrink,
    all: Vec<Dentry>,
    by_name: HashMap<(u32, u32), u32>,
    by_inode: HashMap<InodeNumber, u32>,
    numbers: HashMap<Box<[u8]>, u32>,
    names: Vec<Box<[u8]>>,
    name_bytes: u64,
    /// Slots of freed dentries; the last is reused first.
    free_slots: Vec<u32>,
    slot_count: u32,
    /// Ends of the list of unused dentries.
    newest: u32,
    oldest: u32,
    unused_count: u64,
    lookups_since: u64,
    stream: Stream<DentryKey>,
    inodes: KeyedStream<InodeNumber>,
    root_count: u64,
    stale_count: u64,
}

/// What the cache comes to at the end of a trace.
#[derive(Debug)]
pub(super) struct DentryStreams {
    pub(super) dentries: Stream<DentryKey>,
    pub(super) inodes: Stream<InodeNumber>,
    pub(super) names: Vec<Box<[u8]>>,
    pub(super) slot_count: u32,
    pub(super) root_count: u64,
    pub(super) stale_count: u64,
}

impl Dentries {
    pub(super) fn new(shrink: Shrink) -> Self {
        Self {
            shrink,
            all: Vec::new(),
            by_name: HashMap::new(),
            by_inode: HashMap::new(),
            numbers: HashMap::new(),
            names: Vec::new(),
            name_bytes: 0,
            free_slots: Vec::new(),
            slot_count: 0,
            newest: NONE,
            oldest: NONE,
            unused_count: 0,
            lookups_since: 0,
            stream: Stream::default(),
            inodes: KeyedStream::default(),
            root_count: 0,
            stale_count: 0,
        }
    }

    pub(super) fn into_streams(self) -> DentryStreams {
        DentryStreams {
            dentries: self.stream,
            inodes: self.inodes.into_stream(),
            names: self.names,
            slot_count: self.slot_count,
            root_count: self.root_count,
            stale_count: self.stale_count,
        }
    }

    /// Returns how many steps both streams have.
    pub(super) fn step_count(&self) -> usize {
        self.stream.steps().len() + self.inodes.stream().steps().len()
    }

    /// Returns how many bytes the names have, each counted once.
    pub(super) fn name_bytes(&self) -> u64 {
        self.name_bytes
    }

    /// Looks a name up this many times in a row, and finds `inode`.
    pub(super) fn look_up(
        &mut self,
        entry: &Entry,
        inode: Option<InodeNumber>,
        count: u64,
    ) -> Result<(), String> {
        let parent = self.directory(entry.directory);
        let name = self.number_of(&entry.name);
        if let Some(&dentry) = self.by_name.get(&(parent, name)) {
            self.stream.hit(self.object_of(dentry), count);
            self.stale_count += u64::from(self.all[dentry as usize].inode != inode);
            self.set_inode(dentry, inode);
            self.touch(dentry);
        } else {
            let root = inode.and_then(|inode| self.by_inode.get(&inode)).copied();
            let root = root.filter(|&it| self.all[it as usize].object.is_none());
            let dentry = match root {
                Some(root) if !self.is_within(parent, root)? => root,
                _ => self.allocate(),
            };
            let object = self.stream.miss(self.key(parent, name));
            self.hash(dentry, parent, name, object);
            if count > 1 {
                self.stream.hit(object, count - 1);
            }
            self.set_inode(dentry, inode);
            if let Some(inode) = inode {
                self.inodes.look_up(inode, 1);
            }
        }
        self.lookups_since += count;
        self.shrink_periodically();
        Ok(())
    }

    /// Creates a name of an inode.
    pub(super) fn create(&mut self, entry: &Entry, inode: InodeNumber) {
        let parent = self.directory(entry.directory);
        let name = self.number_of(&entry.name);
        let cached = self.by_name.get(&(parent, name)).copied();
        let dentry = cached.unwrap_or_else(|| self.allocate());
        if cached.is_some() {
            self.touch(dentry);
        } else {
            let object = self.stream.insert(self.key(parent, name));
            self.hash(dentry, parent, name, object);
        }
        self.set_inode(dentry, Some(inode));
        self.inodes.insert(inode);
        self.shrink_periodically();
    }

    /// Removes a name: its dentry stays and says that there is none.
    pub(super) fn unlink(&mut self, entry: &Entry) {
        if let Some(dentry) = self.cached(entry) {
            self.set_inode(dentry, None);
            self.touch(dentry);
        }
    }

    /// Gives what is cached of a name another one, and the same address.
    pub(super) fn rename(&mut self, from: &Entry, to: &Entry) -> Result<(), String> {
        let Some(dentry) = self.cached(from).filter(|_| from != to) else { return Ok(()) };
        let parent = self.directory(to.directory);
        let name = self.number_of(&to.name);
        if self.is_within(parent, dentry)? {
            return Err("a directory is moved into itself".to_owned());
        }
        let target = self.by_name.get(&(parent, name)).copied();
        // Two directories of the trace may be one dentry, and so the two names.
        if target == Some(dentry) {
            return Ok(());
        }
        if let Some(target) = target.filter(|&it| self.all[it as usize].child_count == 0) {
            self.evict(target);
        }
        self.unhash(dentry);
        let object = self.stream.insert(self.key(parent, name));
        self.hash(dentry, parent, name, object);
        let inode = self.all[dentry as usize].inode;
        self.set_inode(dentry, inode);
        Ok(())
    }

    /// Frees an inode.
    pub(super) fn free(&mut self, inode: InodeNumber) {
        self.inodes.remove(&inode);
    }

    /// Evicts what is over the bound of [`Shrink::Lru`]; called after each event.
    pub(super) fn shrink_to_bound(&mut self) {
        let Shrink::Lru(bound) = self.shrink else { return };
        while self.stream.counts().object_count > bound && self.oldest != NONE {
            self.evict(self.oldest);
        }
    }

    fn shrink_periodically(&mut self) {
        let (period, is_half) = match self.shrink {
            Shrink::All(period) => (period, false),
            Shrink::Half(period) => (period, true),
            _ => return,
        };
        if self.lookups_since < period {
            return;
        }
        self.lookups_since = 0;
        let mut left = if is_half { self.unused_count / 2 } else { u64::MAX };
        while left > 0 && self.oldest != NONE {
            self.evict(self.oldest);
            left -= 1;
        }
    }

    /// Returns the dentry of a directory, a new root if it has none.
    fn directory(&mut self, inode: InodeNumber) -> u32 {
        if let Some(&dentry) = self.by_inode.get(&inode) {
            return dentry;
        }
        let root = self.allocate();
        self.root_count += 1;
        self.set_inode(root, Some(inode));
        root
    }

    /// Returns the dentry of a name, if it is cached.
    fn cached(&self, entry: &Entry) -> Option<u32> {
        let parent = *self.by_inode.get(&entry.directory)?;
        let name = *self.numbers.get(entry.name.as_slice())?;
        self.by_name.get(&(parent, name)).copied()
    }

    fn number_of(&mut self, name: &[u8]) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = u32::try_from(self.names.len()).expect("fewer names than objects");
        self.name_bytes += name.len() as u64;
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        number
    }

    fn key(&self, parent: u32, name: u32) -> DentryKey {
        DentryKey { parent_slot: self.all[parent as usize].slot, name }
    }

    fn object_of(&self, dentry: u32) -> ObjectNumber {
        self.all[dentry as usize].object.expect("what is found by its name is in the table")
    }

    /// Allocates a dentry that is not in the table.
    fn allocate(&mut self) -> u32 {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slot_count += 1;
            self.slot_count - 1
        });
        let number = u32::try_from(self.all.len()).expect("fewer dentries than steps");
        self.all.push(Dentry {
            slot,
            parent: NONE,
            name: 0,
            inode: None,
            object: None,
            child_count: 0,
            is_unused: false,
            newer: NONE,
            older: NONE,
        });
        number
    }

    /// Puts a dentry into the table as `object`.
    fn hash(&mut self, dentry: u32, parent: u32, name: u32, object: ObjectNumber) {
        self.by_name.insert((parent, name), dentry);
        self.all[parent as usize].child_count += 1;
        self.leave_list(parent);
        let it = &mut self.all[dentry as usize];
        (it.parent, it.name, it.object) = (parent, name, Some(object));
        self.touch(dentry);
    }

    /// Takes a dentry from the table.
    fn unhash(&mut self, dentry: u32) {
        let Dentry { parent, name, .. } = self.all[dentry as usize];
        self.stream.remove(self.object_of(dentry));
        self.leave_list(dentry);
        // A rename over a directory that is not empty has taken the name.
        if self.by_name.get(&(parent, name)) == Some(&dentry) {
            self.by_name.remove(&(parent, name));
        }
        self.all[dentry as usize].object = None;
        self.all[parent as usize].child_count -= 1;
        self.touch(parent);
    }

    fn evict(&mut self, dentry: u32) {
        self.unhash(dentry);
        self.set_inode(dentry, None);
        self.free_slots.push(self.all[dentry as usize].slot);
    }

    /// Makes a dentry that of `inode`, the latest one; an earlier inode no longer leads to it.
    fn set_inode(&mut self, dentry: u32, inode: Option<InodeNumber>) {
        let earlier = std::mem::replace(&mut self.all[dentry as usize].inode, inode);
        if let Some(earlier) = earlier.filter(|_| earlier != inode)
            && self.by_inode.get(&earlier) == Some(&dentry)
        {
            self.by_inode.remove(&earlier);
        }
        if let Some(inode) = inode {
            self.by_inode.insert(inode, dentry);
        }
    }

    /// Returns whether a dentry is `ancestor` or below it.
    fn is_within(&self, mut dentry: u32, ancestor: u32) -> Result<bool, String> {
        for _ in 0..DEPTH_MAX {
            if dentry == ancestor {
                return Ok(true);
            }
            dentry = self.all[dentry as usize].parent;
            if dentry == NONE {
                return Ok(false);
            }
        }
        Err(format!("a directory is {DEPTH_MAX} levels deep"))
    }

    /// Moves a dentry to the front of the unused ones, if it is one: in the table, without children.
    fn touch(&mut self, dentry: u32) {
        self.leave_list(dentry);
        let newest = self.newest;
        let it = &mut self.all[dentry as usize];
        if it.object.is_none() || it.child_count > 0 {
            return;
        }
        (it.is_unused, it.newer, it.older) = (true, NONE, newest);
        match newest {
            NONE => self.oldest = dentry,
            newest => self.all[newest as usize].newer = dentry,
        }
        self.newest = dentry;
        self.unused_count += 1;
    }

    fn leave_list(&mut self, dentry: u32) {
        let it = &mut self.all[dentry as usize];
        if !std::mem::take(&mut it.is_unused) {
            return;
        }
        let (newer, older) = (it.newer, it.older);
        match newer {
            NONE => self.newest = older,
            newer => self.all[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.all[older as usize].newer = newer,
        }
        self.unused_count -= 1;
    }
}
