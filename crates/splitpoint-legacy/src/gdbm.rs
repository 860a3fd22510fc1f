//! GNU gdbm: a directory of buckets, each with the hashes and the addresses of its records.
//!
//! ```text
//! header --> directory: 2^dir_bits offsets --> bucket: hash, four bytes of the key, address,
//!                                                      sizes --> key and value, one after the other
//! ```
//!
//! The file is a memory image of the machine that wrote it, with its byte order, the size of its
//! `off_t`, and the alignment of its compiler.
//!
//! # Source
//!
//! GNU gdbm 1.8 to 1.23, whose files these facts were measured on.

use splitpoint::Result;
use splitpoint::hash::{self, CharSign};

use crate::Source;
use crate::byte_order::ByteOrder;
use crate::identity::Identity;
use crate::reader::{Budget, Fault, Homes, Item, Loose, Parameter, Piece, Reader, Unit};
use crate::stated::{Counted, Extent, Stated, StatedBy, has_data};

/// What `NAME.dir` holds beside a gdbm file, or a store, in `NAME.pag`: the mark and the version of gdbm's
/// interface of ndbm, for which it looks.
pub const COMPAT_DIR: [u8; 16] = *b"GDBM\0\0\0\x01\0\0\0\x17\0\0\0\0";

/// Bits of a hash.
const HASH_BITS: u32 = 31;

/// Bytes of each key in its bucket.
const START_BYTES: usize = 4;

/// Bytes after the header of a file with counted syncs.
const NUMSYNC_BYTES: u64 = 32;

/// A compiler's layout of a header and a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `off_t` of 8 bytes on a boundary of 8: 64-bit machines.
    Lp64,
    /// `off_t` of 8 bytes on a boundary of 4: i386 with large files.
    I386Large,
    /// `off_t` of 4 bytes.
    Off32,
}

impl Layout {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lp64 => "64-bit layout",
            Self::I386Large => "i386 layout with 64-bit offsets",
            Self::Off32 => "32-bit layout",
        }
    }

    fn offset_bytes(self) -> usize {
        if self == Self::Off32 { 4 } else { 8 }
    }

    fn header_bytes(self) -> u64 {
        if self == Self::Off32 { 32 } else { 40 }
    }

    /// Offsets in a bucket of the bits of its hashes, their count and the elements.
    fn bucket(self) -> (usize, usize, usize) {
        match self {
            Self::Lp64 => (104, 108, 112),
            Self::I386Large => (76, 80, 84),
            Self::Off32 => (52, 56, 60),
        }
    }

    fn element_bytes(self) -> usize {
        if self == Self::Off32 { 20 } else { 24 }
    }

    fn offset_at(self, order: ByteOrder, bytes: &[u8], at: usize) -> u64 {
        match self {
            Self::Off32 => u64::from(order.u32_at(bytes, at)),
            Self::Lp64 | Self::I386Large => order.u64_at(bytes, at),
        }
    }

    /// Returns the number of elements in a bucket of `bucket_bytes`.
    fn elements_of(self, bucket_bytes: u64) -> Option<u64> {
        let (_, _, table) = self.bucket();
        let elements = bucket_bytes.checked_sub(table as u64)? / self.element_bytes() as u64;
        (elements > 0).then_some(elements)
    }
}

/// Returns the kind of file with this magic number.
pub(crate) fn kind_of(magic: u32) -> Option<&'static str> {
    match magic {
        0x1357_9ace => Some("oldest standard format"),
        0x1357_9acd | 0x1357_9acf => Some("standard format"),
        0x1357_9ad0 | 0x1357_9ad1 => Some("numsync format"),
        _ => None,
    }
}

fn is_numsync(magic: u32) -> bool {
    matches!(magic, 0x1357_9ad0 | 0x1357_9ad1)
}

/// The numbers of a header.
#[derive(Clone, Copy, Debug)]
struct Header {
    block_bytes: u64,
    dir_offset: u64,
    dir_bytes: u64,
    dir_bits: u32,
    bucket_bytes: u64,
    bucket_elements: u64,
    end: u64,
}

impl Header {
    fn read(order: ByteOrder, layout: Layout, head: &[u8]) -> Self {
        let number = |at| u64::from(order.u32_at(head, at));
        let offset = layout.offset_bytes();
        Self {
            block_bytes: number(4),
            dir_offset: layout.offset_at(order, head, 8),
            dir_bytes: number(8 + offset),
            dir_bits: order.u32_at(head, 12 + offset),
            bucket_bytes: number(16 + offset),
            bucket_elements: number(20 + offset),
            end: layout.offset_at(order, head, 24 + offset),
        }
    }

    /// Returns how many of the numbers agree with each other in this layout.
    fn agreement(self, layout: Layout) -> u32 {
        let is_dir = self.dir_bits <= HASH_BITS
            && self.dir_bytes == (layout.offset_bytes() as u64) << self.dir_bits;
        let is_bucket = layout.elements_of(self.bucket_bytes) == Some(self.bucket_elements);
        2 * u32::from(is_bucket) + u32::from(is_dir)
    }
}

/// Returns the layout of a file by its header: the one in which the count of elements follows from
/// the size of a bucket. `None` if several fit equally well.
pub(crate) fn layout_of(order: ByteOrder, magic: u32, head: &[u8]) -> Option<Layout> {
    let candidates: &[Layout] = match magic {
        0x1357_9acd | 0x1357_9ad0 => &[Layout::Off32],
        0x1357_9acf | 0x1357_9ad1 => &[Layout::Lp64, Layout::I386Large],
        _ => &[Layout::Lp64, Layout::I386Large, Layout::Off32],
    };
    let agreement = |layout: &&Layout| Header::read(order, **layout, head).agreement(**layout);
    // `max_by_key` returns the last of equals, but the first is the likeliest.
    candidates.iter().rev().max_by_key(agreement).copied()
}

/// An open gdbm file.
#[derive(Debug)]
pub(crate) struct GdbmFile {
    identity: Identity,
    source: Source,
    order: ByteOrder,
    layout: Layout,
    magic: u32,
    header: Header,
    /// Number of the bucket of each entry of the directory.
    directory: Vec<u32>,
    /// Offset of each bucket.
    buckets: Vec<u64>,
    /// Sign of `char` on the machine that wrote it.
    sign: CharSign,
    faults: Vec<Fault>,
    stated: Stated,
}

impl GdbmFile {
    /// Opens the file. For a salvage it does so even without a directory.
    pub(crate) fn open(source: Source, identity: Identity, is_salvage: bool) -> Result<Self> {
        let mut head = [0; 64];
        source.read_at(0, &mut head)?;
        let order = identity.byte_order.unwrap_or(ByteOrder::Little);
        let magic = order.u32_at(&head, 0);
        let layout = layout_of(order, magic, &head).unwrap_or(Layout::Lp64);
        let header = Header::read(order, layout, &head);
        let mut file = Self {
            identity,
            source,
            order,
            layout,
            magic,
            header,
            directory: Vec::new(),
            buckets: Vec::new(),
            sign: CharSign::Signed,
            faults: Vec::new(),
            stated: Stated::default(),
        };
        match file.validate() {
            Ok(()) => {
                file.stated.extent = Some(file.extent()?);
                file.read_directory()?;
            }
            Err(fault) if is_salvage => file.give_up_directory(fault),
            Err(fault) => return Err(fault.into()),
        }
        file.guess_sign()?;
        Ok(file)
    }

    /// Checks the header, which must have a directory and the size of a bucket.
    fn validate(&mut self) -> Result<(), Fault> {
        let header = self.header;
        let file_bytes = self.source.file_bytes();
        let offset_bytes = self.layout.offset_bytes() as u64;
        let at = |plain: u64, wide: u64| if offset_bytes == 4 { plain } else { wide };
        if header.dir_bits > HASH_BITS - 1 {
            return Err(Fault::new(
                "directory bits",
                at(16, 20),
                u64::from(HASH_BITS - 1),
                u64::from(header.dir_bits),
            ));
        }
        let dir_bytes = offset_bytes << header.dir_bits;
        if header.dir_bytes != dir_bytes {
            self.faults.push(Fault::new("directory size", at(12, 16), dir_bytes, header.dir_bytes));
        }
        let dir_end = header.dir_offset.checked_add(dir_bytes);
        if dir_end.is_none_or(|end| end > file_bytes) {
            if let Some(end) = dir_end.filter(|&end| end <= header.end) {
                return Err(Fault::new("end of the file", file_bytes, end, file_bytes));
            }
            let limit = file_bytes.saturating_sub(dir_bytes);
            return Err(Fault::new("directory", 8, limit, header.dir_offset));
        }
        match self.layout.elements_of(header.bucket_bytes) {
            Some(elements) if header.bucket_bytes <= file_bytes => {
                if elements != header.bucket_elements {
                    let found = header.bucket_elements;
                    self.faults.push(Fault::new("bucket elements", at(24, 28), elements, found));
                }
            }
            _ => {
                let found = header.bucket_bytes;
                let expected = header.block_bytes;
                return Err(Fault::new("bucket size", at(20, 24), expected, found));
            }
        }
        Ok(())
    }

    /// Computes the length of the file. Older versions did not always write the unused end of the
    /// last block, so a complete file may be shorter than its header says. The address of a missing
    /// bucket or record reveals it.
    fn extent(&self) -> Result<Extent> {
        let (end, found) = (self.header.end, self.source.file_bytes());
        Ok(Extent {
            counted: Counted::Bytes,
            stated_by: StatedBy::Header,
            at: if self.layout.offset_bytes() == 4 { 28 } else { 32 },
            unit_bytes: 1,
            needed: 0,
            stated: end,
            known: Some(end),
            found,
            has_more: has_data(&self.source, end, found)?,
        })
    }

    /// Prepares to find buckets by their content. Their size is that of a block if the header does
    /// not state it.
    fn give_up_directory(&mut self, fault: Fault) {
        const BLOCK_BYTES_DEFAULT: u64 = 4096;
        self.faults.push(fault);
        self.header.dir_bits = HASH_BITS - 1;
        let file_bytes = self.source.file_bytes();
        let is_bucket = |bytes: u64| (512..=file_bytes.min(1 << 26)).contains(&bytes);
        let candidates = [self.header.bucket_bytes, self.header.block_bytes, BLOCK_BYTES_DEFAULT];
        let found = candidates.into_iter().find(|bytes| is_bucket(*bytes));
        self.header.bucket_bytes = found.unwrap_or(BLOCK_BYTES_DEFAULT);
    }

    /// Numbers the buckets in the order of the directory, where the entries of one bucket are
    /// adjacent.
    fn read_directory(&mut self) -> Result<()> {
        let entry_bytes = self.layout.offset_bytes();
        let mut bytes = vec![0; entry_bytes << self.header.dir_bits];
        self.source.read_at(self.header.dir_offset, &mut bytes)?;
        // No more buckets than the file has room for, because further ones would overlap.
        let buckets_max = self.source.file_bytes() / self.header.bucket_bytes + 1;
        let mut last = None;
        for at in (0..bytes.len()).step_by(entry_bytes) {
            let offset = self.layout.offset_at(self.order, &bytes, at);
            if last != Some(offset) {
                last = Some(offset);
                if self.buckets.len() as u64 > buckets_max {
                    let at = self.header.dir_offset + at as u64;
                    let found = self.buckets.len() as u64;
                    self.faults.push(Fault::new("buckets", at, buckets_max, found));
                    break;
                }
                self.buckets.push(offset);
            }
            self.directory.push((self.buckets.len() - 1) as u32);
        }
        Ok(())
    }

    /// Determines the sign of `char` by the first key that depends on it.
    fn guess_sign(&mut self) -> Result<()> {
        let budget = Budget::new(&self.source);
        for &bucket in self.buckets.iter().take(64) {
            if budget.take(self.header.bucket_bytes).is_err() {
                break;
            }
            let unit = self.bucket(bucket)?;
            for item in &unit.items {
                let Piece::At { offset, bytes } = item.key else { continue };
                if bytes > 1 << 20 || budget.take(bytes).is_err() {
                    continue;
                }
                let key = crate::reader::run_of(&self.source, offset, bytes)?;
                let signed = hash::gdbm(&key, CharSign::Signed);
                let unsigned = hash::gdbm(&key, CharSign::Unsigned);
                let stored = unit.hash_of(offset);
                if signed != unsigned && stored == Some(unsigned) {
                    self.sign = CharSign::Unsigned;
                }
                if signed != unsigned {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads the bucket at `offset`.
    fn bucket(&self, offset: u64) -> Result<Bucket> {
        let mut bytes = vec![0; self.header.bucket_bytes as usize];
        let available = self.source.read_at(offset, &mut bytes)?;
        Ok(self.decode(offset, &bytes, available))
    }

    /// Reads the elements from the bytes of a bucket, of which the file has the first `available`.
    fn decode(&self, offset: u64, bytes: &[u8], available: usize) -> Bucket {
        let mut bucket = Bucket::default();
        let (bits_at, count_at, table) = self.layout.bucket();
        if available < bytes.len() {
            let (expected, found) = (bytes.len() as u64, available as u64);
            bucket.faults.push(Fault::new("size of a bucket", offset, expected, found));
        }
        bucket.bits = self.order.u32_at(bytes, bits_at);
        if bucket.bits > self.header.dir_bits {
            let (expected, found) = (u64::from(self.header.dir_bits), u64::from(bucket.bits));
            bucket.faults.push(Fault::new(
                "bits of a bucket",
                offset + bits_at as u64,
                expected,
                found,
            ));
        }
        let element_bytes = self.layout.element_bytes();
        let mut elements = 0;
        for at in (table..).step_by(element_bytes) {
            if at + element_bytes > available {
                break;
            }
            let hash = self.order.u32_at(bytes, at);
            if hash == u32::MAX {
                continue;
            }
            elements += 1;
            match self.element(bytes, at) {
                Ok(item) => {
                    let key_start = bytes[at + 4..][..START_BYTES].try_into().expect("4 bytes");
                    bucket.stored.push(Stored { at: offset + at as u64, hash, key_start });
                    bucket.items.push(item);
                }
                Err(fault) => {
                    bucket.faults.push(Fault { offset: offset + at as u64, ..fault });
                }
            }
        }
        let count = u64::from(self.order.u32_at(bytes, count_at));
        // A damaged count does not count.
        bucket.count = if count <= self.header.bucket_elements { count } else { 0 };
        if count != elements {
            let at = offset + count_at as u64;
            bucket.faults.push(Fault::new("count of a bucket", at, elements, count));
        }
        bucket
    }

    fn element(&self, bytes: &[u8], at: usize) -> Result<Item, Fault> {
        let hash = self.order.u32_at(bytes, at);
        if hash >> HASH_BITS != 0 {
            return Err(Fault::new("hash of a pair", 0, u64::from(hash >> 1), u64::from(hash)));
        }
        let offset_bytes = self.layout.offset_bytes();
        let offset = self.layout.offset_at(self.order, bytes, at + 8);
        let key_bytes = u64::from(self.order.u32_at(bytes, at + 8 + offset_bytes));
        let value_bytes = u64::from(self.order.u32_at(bytes, at + 12 + offset_bytes));
        let end = offset.checked_add(key_bytes + value_bytes);
        if end.is_none_or(|end| end > self.source.file_bytes()) {
            let found = end.unwrap_or(u64::MAX);
            return Err(Fault::new("end of a pair", 0, self.source.file_bytes(), found));
        }
        Ok(Item::of(
            Piece::At { offset, bytes: key_bytes },
            Piece::At { offset: offset + key_bytes, bytes: value_bytes },
        ))
    }

    /// Returns whether this can be a bucket: at most six free areas, and at least one record, but
    /// no more than it has room for.
    fn looks_like_bucket(&self, bytes: &[u8]) -> bool {
        let (bits_at, count_at, _) = self.layout.bucket();
        let elements = self.layout.elements_of(bytes.len() as u64).unwrap_or_default();
        let count = u64::from(self.order.u32_at(bytes, count_at));
        self.order.u32_at(bytes, 0) <= 6
            && self.order.u32_at(bytes, bits_at) < HASH_BITS
            && (1..=elements).contains(&count)
    }

    /// Keeps the pairs whose hash is that of their key, except those that were `tested` before.
    fn verified(&self, bucket: Bucket, tested: &mut Tested, budget: &Budget) -> Result<Unit> {
        let mut unit = Unit::default();
        for (item, stored) in bucket.items.into_iter().zip(bucket.stored) {
            let Piece::At { offset, bytes } = item.key else { continue };
            if !tested.insert(stored.at) {
                continue;
            }
            // A bucket has the first bytes of its keys. If they differ, we need not read a long
            // key.
            let mut start = [0; START_BYTES];
            self.source.read_at(offset, &mut start)?;
            let start_bytes = START_BYTES.min(bytes as usize);
            if start[..start_bytes] != stored.key_start[..start_bytes] {
                continue;
            }
            // Bounds the work if a file names the same keys again and again.
            if budget.take(bytes).is_err() {
                break;
            }
            let key = crate::reader::run_of(&self.source, offset, bytes)?;
            if [CharSign::Signed, CharSign::Unsigned]
                .into_iter()
                .any(|sign| hash::gdbm(&key, sign) == stored.hash)
            {
                unit.items.push(item);
            }
        }
        Ok(unit)
    }

    fn home(&self, key: &[u8], sign: CharSign) -> Option<u64> {
        let hash = hash::gdbm(key, sign);
        // No bits, no shift: a directory of one entry.
        let entry = u64::from(hash) >> (HASH_BITS - self.header.dir_bits);
        self.directory.get(entry as usize).map(|&bucket| u64::from(bucket))
    }
}

/// The data beside the address of a record in its bucket.
#[derive(Clone, Copy, Debug)]
struct Stored {
    /// Its place, in bytes from the start of the file.
    at: u64,
    hash: u32,
    key_start: [u8; START_BYTES],
}

/// The elements that a search for buckets has tested.
///
/// The search tries a bucket at every fourth byte, and the elements of a real one pass for those of
/// most places inside it: without this, each key would be read a hundred times. Only places that
/// overlap share elements, so one entry for every fourth byte of a bucket is enough.
struct Tested(Vec<u64>);

impl Tested {
    fn new(bucket_bytes: usize) -> Self {
        Self(vec![u64::MAX; bucket_bytes.div_ceil(4)])
    }

    /// Returns whether the element at `offset` is new.
    fn insert(&mut self, offset: u64) -> bool {
        let index = offset / 4 % self.0.len() as u64;
        std::mem::replace(&mut self.0[index as usize], offset) != offset
    }
}

/// The contents of a bucket.
#[derive(Debug, Default)]
struct Bucket {
    items: Vec<Item>,
    stored: Vec<Stored>,
    faults: Vec<Fault>,
    bits: u32,
    /// Its own count of records.
    count: u64,
}

impl Bucket {
    fn hash_of(&self, key_offset: u64) -> Option<u32> {
        let is_it =
            |item: &Item| matches!(item.key, Piece::At { offset, .. } if offset == key_offset);
        self.items.iter().position(is_it).map(|index| self.stored[index].hash)
    }
}

impl Reader for GdbmFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn source(&self) -> &Source {
        &self.source
    }

    fn unit_count(&self) -> u64 {
        self.buckets.len() as u64
    }

    fn faults(&self) -> &[Fault] {
        &self.faults
    }

    fn stated(&self) -> Stated {
        self.stated
    }

    fn unit(&self, index: u64, budget: &Budget) -> Result<Unit> {
        let Some(&offset) = self.buckets.get(index as usize) else { return Ok(Unit::default()) };
        if let Err(fault) = budget.take(self.header.bucket_bytes) {
            return Ok(Unit { faults: vec![fault], ..Unit::default() });
        }
        let bucket = self.bucket(offset)?;
        Ok(Unit {
            items: bucket.items,
            faults: bucket.faults,
            depth: Some(bucket.bits.min(self.header.dir_bits)),
            is_in_use: true,
            stated_pairs: bucket.count,
            ..Unit::default()
        })
    }

    fn homes(&self, key: &[u8]) -> Homes {
        let other = match self.sign {
            CharSign::Signed => CharSign::Unsigned,
            CharSign::Unsigned => CharSign::Signed,
        };
        match (self.home(key, self.sign), self.home(key, other)) {
            (Some(first), Some(second)) => Homes::of(first, second),
            (Some(only), None) | (None, Some(only)) => Homes::of(only, only),
            (None, None) => Homes::UNKNOWN,
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let header = &self.header;
        let sign = if self.sign == CharSign::Signed { "signed" } else { "unsigned" };
        let mut parameters = vec![
            Parameter::new("block size", header.block_bytes),
            Parameter::new("byte order", self.order.name()),
            Parameter::new("layout", self.layout.name()),
            Parameter::new("directory", format!("{} entries", self.directory.len())),
            Parameter::new("buckets", self.buckets.len()),
            Parameter::new("bucket size", header.bucket_bytes),
            Parameter::new("pairs a bucket holds", header.bucket_elements),
            Parameter::new("char", sign),
        ];
        if is_numsync(self.magic) {
            let mut syncs = [0; NUMSYNC_BYTES as usize];
            if self.source.read_at(self.layout.header_bytes(), &mut syncs).is_ok() {
                parameters.push(Parameter::new("syncs", self.order.u32_at(&syncs, 4)));
            }
        }
        parameters
    }

    fn hash_name(&self) -> &'static str {
        if self.sign == CharSign::Signed { "gdbm-signed" } else { "gdbm" }
    }

    fn hash_of(&self, key: &[u8]) -> Option<u64> {
        // The highest bits choose a bucket. Reversed, they are the lowest.
        Some(u64::from(hash::gdbm(key, self.sign).reverse_bits() >> 1))
    }
}

impl Loose for GdbmFile {
    /// Buckets may begin at any multiple of 4. A candidate is a bucket if its hashes are those of
    /// the keys that it names.
    fn loose_units(
        &self,
        budget: &Budget,
        visit: &mut dyn FnMut(Unit) -> Result<()>,
    ) -> Result<()> {
        const CHUNK_BYTES: usize = 1 << 20;
        let bucket_bytes = self.header.bucket_bytes as usize;
        let mut chunk = vec![0; CHUNK_BYTES + bucket_bytes];
        let mut tested = Tested::new(bucket_bytes);
        let mut start = 0;
        while start < self.source.file_bytes() && !budget.is_spent() {
            let filled = self.source.read_at(start, &mut chunk)?;
            for at in (0..filled.min(CHUNK_BYTES)).step_by(4) {
                let end = (at + bucket_bytes).min(filled);
                if !self.looks_like_bucket(&chunk[at..end]) {
                    continue;
                }
                let bucket = self.decode(start + at as u64, &chunk[at..end], end - at);
                let unit = self.verified(bucket, &mut tested, budget)?;
                if !unit.items.is_empty() {
                    visit(unit)?;
                }
            }
            start += CHUNK_BYTES as u64;
            let data = self.source.next_data(start);
            start = (data - data % CHUNK_BYTES as u64).max(start);
        }
        Ok(())
    }
}
