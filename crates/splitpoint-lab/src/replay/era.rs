//! The tables of an era: their functions, sizes, and how their objects lay in memory.

use serde::{Deserialize, Serialize};

use super::{BufferKey, DentryKey, InodeNumber, ObjectLayout, PageKey, SizeRule, Streams};
use crate::specimen::{KeyLayout, Seeding};
use crate::{Error, Reducer, Reduction, Specimen};

/// The device number of device 0 of a trace: major 8.
const DEVICE_BASE: u32 = 0x800;
const PAGE_SHIFT: u32 = 12;

/// One of the four caches of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelTable {
    /// Names in directories.
    Dentry,
    /// Inodes by superblock and number.
    Inode,
    /// Pages by file and offset.
    Page,
    /// Blocks by device and number.
    Buffer,
}

impl KernelTable {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Dentry, Self::Inode, Self::Page, Self::Buffer];

    /// Returns the name that commands and reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dentry => "dentry",
            Self::Inode => "inode",
            Self::Page => "page",
            Self::Buffer => "buffer",
        }
    }
}

/// How the objects that are hashed by their addresses lie in the memory of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layouts {
    /// Dentries, the parents of names.
    pub dentry: ObjectLayout,
    /// What stands for a file in the key of a page.
    pub owner: ObjectLayout,
    /// Superblocks.
    pub superblock: ObjectLayout,
}

impl Layouts {
    /// Linux 2.2.
    pub const LINUX_2_2: Self = Self {
        dentry: ObjectLayout::Dentry22,
        owner: ObjectLayout::Inode22,
        superblock: ObjectLayout::Superblock22,
    };
    /// Linux 2.4.0.
    pub const LINUX_2_4: Self = Self {
        dentry: ObjectLayout::Dentry24,
        owner: ObjectLayout::InodeData24,
        superblock: ObjectLayout::Superblock22,
    };
    /// Linux 6.x.
    pub const LINUX_6: Self = Self {
        dentry: ObjectLayout::Dentry6,
        owner: ObjectLayout::Inode22,
        superblock: ObjectLayout::Superblock6,
    };
}

/// A table of an era: its function and the rule of its size.
#[derive(Clone, Copy, Debug)]
pub struct EraTable {
    /// Which of the four.
    pub table: KernelTable,
    /// Name of its function.
    pub function: &'static str,
    /// Its size.
    pub rule: SizeRule,
}

/// A kernel whose tables a stream can be replayed against.
#[derive(Clone, Copy, Debug)]
pub struct Era {
    /// Its version.
    pub name: &'static str,
    /// Memory of a machine of its time, where nothing else is asked, in bytes.
    pub memory_bytes: u64,
    /// Its objects in memory.
    pub layouts: Layouts,
    /// Its tables. Since 2.6 pages and buffers are in trees and not in hash tables.
    pub tables: &'static [EraTable],
}

const fn of(table: KernelTable, function: &'static str, rule: SizeRule) -> EraTable {
    EraTable { table, function, rule }
}

/// The eras, oldest first.
pub const ERAS: &[Era] = &[
    Era {
        name: "2.2.5",
        memory_bytes: 512 << 20,
        layouts: Layouts::LINUX_2_2,
        tables: &[
            of(KernelTable::Dentry, "linux-2.2.5-dentry", SizeRule::Fixed(1 << 10)),
            of(KernelTable::Inode, "linux-2.2-inode", SizeRule::Fixed(1 << 8)),
            of(KernelTable::Page, "linux-2.2.5-page", SizeRule::Fixed(1 << 11)),
            of(KernelTable::Buffer, "linux-2.2.5-buffer", SizeRule::Fixed(1 << 15)),
        ],
    },
    Era {
        name: "2.2.16",
        memory_bytes: 512 << 20,
        layouts: Layouts::LINUX_2_2,
        tables: &[
            of(KernelTable::Dentry, "linux-2.2.16-dentry", SizeRule::Linux2216),
            of(KernelTable::Inode, "linux-2.2-inode", SizeRule::Linux2216),
            of(KernelTable::Page, "linux-2.2.16-page", SizeRule::Linux2216),
            of(KernelTable::Buffer, "linux-2.2.16-buffer", SizeRule::Linux2216),
        ],
    },
    Era {
        name: "2.4.0",
        memory_bytes: 512 << 20,
        layouts: Layouts::LINUX_2_4,
        tables: &[
            of(KernelTable::Dentry, "linux-2.2.16-dentry", SizeRule::Linux240),
            of(KernelTable::Inode, "linux-2.4.0-inode", SizeRule::Linux240),
            of(KernelTable::Page, "linux-2.4.0-page", SizeRule::Linux240),
            of(KernelTable::Buffer, "linux-2.2.16-buffer", SizeRule::Linux240),
        ],
    },
    Era {
        name: "6.x",
        memory_bytes: 24 << 30,
        layouts: Layouts::LINUX_6,
        tables: &[
            of(KernelTable::Dentry, "linux-4.8-name", SizeRule::Linux6),
            of(KernelTable::Inode, "linux-6.14-inode", SizeRule::Linux6),
        ],
    },
];

impl Era {
    /// Returns the era of this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        ERAS.iter().find(|era| era.name == name)
    }

    /// Returns the bytes of a bucket of `table`: a pointer or, of dentries and inodes before 6.x, a list
    /// head of two.
    pub fn bucket_bytes(&self, table: KernelTable) -> u64 {
        match (self.layouts == Layouts::LINUX_6, table) {
            (false, KernelTable::Page | KernelTable::Buffer) => 4,
            _ => 8,
        }
    }
}

/// A function and a size for one table, with the objects of an era.
#[derive(Clone, Copy, Debug)]
pub struct TableSetup {
    table: KernelTable,
    function: &'static Specimen,
    reducer: Reducer,
    layouts: Layouts,
}

impl TableSetup {
    /// Prepares `function`, with its own reduction, for a table of `bucket_count` buckets.
    ///
    /// # Errors
    ///
    /// [`Error::BucketCount`] if its reduction has no table of that size.
    pub fn new(
        table: KernelTable,
        function: &'static Specimen,
        bucket_count: u64,
        layouts: Layouts,
    ) -> Result<Self, Error> {
        let reduction = function.historic_reduction().unwrap_or(Reduction::LowMask);
        let reducer = reduction.prepare(function.width_bits(), bucket_count)?;
        Ok(Self { table, function, reducer, layouts })
    }

    /// Returns this setup with another reduction, such as another shift.
    ///
    /// # Errors
    ///
    /// [`Error::BucketCount`] if the reduction has no table of this size.
    pub fn with_reduction(self, reduction: Reduction) -> Result<Self, Error> {
        let reducer = reduction.prepare(self.function.width_bits(), self.bucket_count())?;
        Ok(Self { reducer, ..self })
    }

    /// Returns which of the four tables it is for.
    pub fn table(&self) -> KernelTable {
        self.table
    }

    /// Returns the number of buckets.
    pub fn bucket_count(&self) -> u64 {
        self.reducer.bucket_count()
    }

    /// Returns the function.
    pub fn function(&self) -> &'static Specimen {
        self.function
    }

    /// Returns the bucket of every object of the table's stream, with addresses under `seed`, or
    /// `None` if the objects do not fit into the memory of the model.
    pub fn buckets(&self, streams: &Streams, seed: u64) -> Option<Vec<u32>> {
        let mut key = Vec::new();
        let mut bucket = |fill: &dyn Fn(&mut Vec<u8>) -> u64| {
            key.clear();
            let salt = fill(&mut key);
            self.reducer.bucket_of(self.function.hash(&key, salt)) as u32
        };
        Some(match self.table {
            KernelTable::Dentry => {
                let count = streams.dentry_slot_count.into();
                let parents = self.layouts.dentry.addresses(count, seed)?;
                let keys = streams.dentry.keys().iter();
                keys.map(|it| bucket(&|key| self.dentry(*it, &parents, streams, key))).collect()
            }
            KernelTable::Inode => {
                let devices = streams.inode_devices();
                let count = devices.len() as u64;
                let addresses = self.layouts.superblock.addresses(count, seed)?;
                self.inode_buckets(streams, |device| {
                    addresses[devices.partition_point(|&it| it < device)]
                })
            }
            KernelTable::Page => {
                let count = streams.page_owner_count.into();
                let owners = self.layouts.owner.addresses(count, seed)?;
                let keys = streams.page.keys().iter();
                keys.map(|it| bucket(&|key| self.page(*it, owners[it.owner as usize], key)))
                    .collect()
            }
            KernelTable::Buffer => {
                streams.buffer.keys().iter().map(|it| bucket(&|key| buffer(*it, key))).collect()
            }
        })
    }

    /// Returns the bucket of every inode, with the superblock of each device at an address.
    pub(super) fn inode_buckets(
        &self,
        streams: &Streams,
        superblock: impl Fn(u32) -> u64,
    ) -> Vec<u32> {
        let mut key = Vec::new();
        let mut bucket = |it: &InodeNumber| {
            key.clear();
            let salt = self.inode(*it, superblock(it.device), &mut key);
            self.reducer.bucket_of(self.function.hash(&key, salt)) as u32
        };
        streams.inode.keys().iter().map(&mut bucket).collect()
    }

    /// Fills `key` with the parent's address and the name, as the function takes them, and returns the
    /// seed that it is given.
    fn dentry(&self, it: DentryKey, parents: &[u64], streams: &Streams, key: &mut Vec<u8>) -> u64 {
        let parent = parents[it.parent_slot as usize];
        match (self.function.layout(), self.function.seeding()) {
            (KeyLayout::Dentry, _) => key.extend((parent as u32).to_le_bytes()),
            (KeyLayout::Dentry64, _) | (KeyLayout::Bytes, Seeding::None) => {
                key.extend(parent.to_le_bytes());
            }
            // The parent is the salt of the name.
            _ => {}
        }
        key.extend(&*streams.names[it.name as usize]);
        if self.function.seeding() == Seeding::None { 0 } else { parent }
    }

    fn inode(&self, it: InodeNumber, superblock: u64, key: &mut Vec<u8>) -> u64 {
        if self.function.layout() == KeyLayout::Inode64 {
            key.extend(superblock.to_le_bytes());
            key.extend(it.number.to_le_bytes());
        } else {
            key.extend((superblock as u32).to_le_bytes());
            key.extend((it.number as u32).to_le_bytes());
        }
        0
    }

    fn page(&self, it: PageKey, owner: u64, key: &mut Vec<u8>) -> u64 {
        let index = it.index as u32;
        let is_number = self.function.layout() == KeyLayout::PageIndex;
        let second = if is_number { index } else { index << PAGE_SHIFT };
        key.extend((owner as u32).to_le_bytes());
        key.extend(second.to_le_bytes());
        0
    }
}

fn buffer(it: BufferKey, key: &mut Vec<u8>) -> u64 {
    let device = DEVICE_BASE + it.device;
    key.extend(device.to_le_bytes());
    key.extend((it.block as u32).to_le_bytes());
    0
}
