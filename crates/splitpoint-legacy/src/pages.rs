//! dbm, ndbm and sdbm: pairs in blocks of one size, and a trie beside them that names the block of
//! each key.
//!
//! ```text
//! | n | key 0 | value 0 | key 1 | ...        | value 1 | key 1 | value 0 | key 0 |
//!   ^ offsets, 16 bits each                  ^ each ends where the one before it starts
//! ```
//!
//! The files do not state their format, the size of their blocks or their byte order. The library
//! finds all three by trial: with the right size and order a block has falling offsets, and with
//! the right hash function its keys belong where they are.

use std::ops::Range;

use splitpoint::Result;
use splitpoint::hash::{self, CharSign};

use crate::byte_order::ByteOrder;
use crate::doubt::Doubt;
use crate::files::Files;
use crate::identity::{Format, Identity};
use crate::reader::{Budget, Fault, Homes, Item, Loose, Parameter, Piece, Reader, Unit};
use crate::stated::{Counted, Extent, Stated, StatedBy};
use crate::{Source, dbm, sdbm};

/// Sizes that blocks have: 512 in the seventh edition, 1024 in BSD and sdbm, more by some vendors.
pub(crate) const BLOCK_BYTES: [usize; 7] = [512, 1024, 2048, 4096, 8192, 16384, 32768];

/// The largest `.dir` that is read: half a billion blocks.
const DIR_BYTES_MAX: u64 = 64 << 20;

/// Every `.dir` is a multiple of this, because its blocks have 1024 bytes or more, except in older
/// files.
const DIR_BLOCK_BYTES_MIN: u64 = 512;

/// Bytes of one trial: a multiple of every block size.
const CHUNK_BYTES: usize = 1 << 20;

/// Keys of the trial of hash functions.
const SAMPLE_KEYS: u64 = 1 << 16;

/// Size and byte order of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) block_bytes: usize,
    pub(crate) order: ByteOrder,
}

/// A trie and the hash function that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Dbm,
    Sdbm {
        multiplier: u32,
        sign: CharSign,
    },
    /// Unknown, because no function puts the keys where they are, or every function does.
    Unknown,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Dbm,
        Self::Sdbm { multiplier: 65_599, sign: CharSign::Signed },
        Self::Sdbm { multiplier: 65_599, sign: CharSign::Unsigned },
        Self::Sdbm { multiplier: 65_587, sign: CharSign::Unsigned },
        Self::Sdbm { multiplier: 65_587, sign: CharSign::Signed },
    ];

    pub(crate) fn format(self) -> Format {
        match self {
            Self::Dbm => Format::Dbm,
            Self::Sdbm { .. } => Format::Sdbm,
            Self::Unknown => Format::DbmOrSdbm,
        }
    }

    pub(crate) fn detail(self) -> Option<&'static str> {
        match self {
            Self::Sdbm { multiplier: 65_587, .. } => Some("hash of Ruby"),
            Self::Sdbm { .. } => Some("hash of Perl and Apache"),
            Self::Dbm | Self::Unknown => None,
        }
    }

    fn hash(self, key: &[u8]) -> Option<u64> {
        match self {
            Self::Dbm => Some(u64::from(hash::dbm(key))),
            Self::Sdbm { multiplier, sign } => Some(u64::from(hash::sdbm(key, multiplier, sign))),
            Self::Unknown => None,
        }
    }

    /// Returns the highest block that a trie reaches.
    fn highest_block(self, dir: &[u8]) -> u64 {
        match self {
            Self::Dbm => dbm::highest_block(dir),
            Self::Sdbm { .. } => sdbm::highest_block(dir),
            // Either trie has at least this many.
            Self::Unknown => dbm::highest_block(dir).min(sdbm::highest_block(dir)),
        }
    }

    fn leaf_of(self, dir: &[u8], hash: u64) -> (u64, u32) {
        match self {
            Self::Dbm => dbm::leaf_of(dir, hash),
            Self::Sdbm { .. } => sdbm::leaf_of(dir, hash),
            Self::Unknown => (hash, 0),
        }
    }

    /// The same function on a machine with the other sign of `char`.
    fn other_sign(self) -> Self {
        match self {
            Self::Sdbm { multiplier, sign: CharSign::Signed } => {
                Self::Sdbm { multiplier, sign: CharSign::Unsigned }
            }
            Self::Sdbm { multiplier, sign: CharSign::Unsigned } => {
                Self::Sdbm { multiplier, sign: CharSign::Signed }
            }
            other => other,
        }
    }
}

/// An open table of blocks.
#[derive(Debug)]
pub(crate) struct PagedFile {
    pub(crate) identity: Identity,
    pag: Source,
    dir: Option<Vec<u8>>,
    shape: Shape,
    kind: Kind,
    /// Whether the trie puts the keys where they are.
    is_trie_right: bool,
    faults: Vec<Fault>,
    stated: Stated,
}

impl PagedFile {
    /// Recognizes the kind of the file, or returns `None` if it is none of these.
    pub(crate) fn recognize(pag: Source, files: &Files) -> Result<Option<Self>> {
        let dir = files.dir.as_deref().map(read_dir).transpose()?;
        Self::recognize_bits(pag, dir, files)
    }

    /// As [`Self::recognize`], with the content of the `.dir`.
    pub(crate) fn recognize_bits(
        pag: Source,
        dir: Option<Vec<u8>>,
        files: &Files,
    ) -> Result<Option<Self>> {
        let Some(Guess { shape, kind, placed }) = guess(&pag, dir.as_deref())? else {
            return Ok(None);
        };
        let is_trie_right = dir.is_some() && placed.is_trie_right();
        let mut faults = Vec::new();
        if dir.is_some() && kind != Kind::Unknown && !is_trie_right {
            faults.push(Fault::new("trie in .dir", 0, placed.keys, placed.by_trie));
        }
        let dir_bytes = dir.as_ref().map_or(0, |dir| dir.len() as u64);
        if !dir_bytes.is_multiple_of(DIR_BLOCK_BYTES_MIN) {
            let expected = dir_bytes.next_multiple_of(DIR_BLOCK_BYTES_MIN);
            faults.push(Fault::new("size of .dir", 0, expected, dir_bytes));
        }
        let identity = of_blocks(files, shape, kind);
        let stated = Stated::default();
        let mut file = Self { identity, pag, dir, shape, kind, is_trie_right, faults, stated };
        file.stated.extent = file.extent();
        Ok(Some(file))
    }

    /// Computes the length that the `.pag` must have. A split writes both blocks, empty or not,
    /// before it sets the bit in the `.dir`, so the highest block must be in the file.
    fn extent(&self) -> Option<Extent> {
        let dir = self.dir.as_deref()?;
        // A trie that does not fit the keys belongs to another table.
        let is_believed = self.is_trie_right || self.kind == Kind::Unknown;
        let highest = self.kind.highest_block(dir);
        let stated = if highest == 0 { 0 } else { highest + 1 };
        is_believed.then_some(Extent {
            counted: Counted::Blocks,
            stated_by: StatedBy::Dir,
            at: 0,
            unit_bytes: self.shape.block_bytes as u64,
            needed: stated,
            stated,
            known: None,
            found: self.whole_blocks(),
            has_more: false,
        })
    }

    /// Returns whether block `index` may be the last, according to the `.dir`.
    fn is_end_unstated(&self, index: u64) -> bool {
        self.stated.extent.is_none_or(|extent| extent.needed == 0 && index == 0)
    }

    fn whole_blocks(&self) -> u64 {
        self.pag.file_bytes() / self.shape.block_bytes as u64
    }

    /// Treats a file as one of this kind, whatever its content.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn forced(pag: Source, dir: Option<Vec<u8>>, shape: Shape, kind: Kind) -> Self {
        let files = Files { data: pag.path().to_path_buf(), dir: None, index: None };
        let identity = of_blocks(&files, shape, kind);
        let (is_trie_right, faults, stated) = (dir.is_some(), Vec::new(), Stated::default());
        let mut file = Self { identity, pag, dir, shape, kind, is_trie_right, faults, stated };
        file.stated.extent = file.extent();
        file
    }

    fn trie(&self) -> Option<&[u8]> {
        self.dir.as_deref().filter(|_| self.is_trie_right && self.kind != Kind::Unknown)
    }
}

fn read_dir(path: &std::path::Path) -> Result<Vec<u8>> {
    Source::open(path)?.read_all("the .dir beside the .pag", DIR_BYTES_MAX)
}

impl Reader for PagedFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn source(&self) -> &Source {
        &self.pag
    }

    fn unit_count(&self) -> u64 {
        self.pag.file_bytes().div_ceil(self.shape.block_bytes as u64)
    }

    fn faults(&self) -> &[Fault] {
        &self.faults
    }

    fn stated(&self) -> Stated {
        self.stated
    }

    fn reservation(&self) -> Option<Doubt> {
        self.dir.is_none().then_some(Doubt::UnknownExtent)
    }

    fn unit(&self, index: u64, budget: &Budget) -> Result<Unit> {
        let stated = self.stated.extent.map(|extent| extent.needed);
        let mut unit = if index >= self.whole_blocks() && stated.is_none_or(|all| index < all) {
            let bytes = self.shape.block_bytes as u64;
            Unit::absent(index.saturating_mul(bytes), bytes, self.pag.file_bytes())
        } else {
            Unit::default()
        };
        if let Err(fault) = budget.take(self.shape.block_bytes as u64) {
            unit.faults.push(fault);
            return Ok(unit);
        }
        let mut block = vec![0; self.shape.block_bytes];
        let offset = index.saturating_mul(block.len() as u64);
        let available = self.pag.read_at(offset, &mut block)?;
        if (1..block.len()).contains(&available) && self.is_end_unstated(index) {
            let (expected, found) = (block.len() as u64, available as u64);
            unit.faults.push(Fault::new("size of a block", offset, expected, found));
        }
        let (pairs, fault) = pairs_of(&block, available, self.shape.order);
        unit.faults.extend(fault.map(|fault| Fault { offset: offset + fault.offset, ..fault }));
        unit.items = pairs
            .into_iter()
            .map(|[key, value]| {
                Item::of(Piece::Here(block[key].to_vec()), Piece::Here(block[value].to_vec()))
            })
            .collect();
        let leaf = self.trie().map(|dir| self.kind.leaf_of(dir, index));
        unit.depth = leaf.map(|(_, depth)| depth);
        unit.is_in_use = leaf.map_or(!unit.items.is_empty(), |(block, _)| block == index);
        Ok(unit)
    }

    fn after_hole(&self, index: u64) -> u64 {
        let block_bytes = self.shape.block_bytes as u64;
        let data = self.pag.next_data(index.saturating_mul(block_bytes));
        (data / block_bytes).max(index)
    }

    fn empty_buckets(&self, units: Range<u64>, visit: &mut dyn FnMut(Option<u32>)) {
        let Some(dir) = self.trie() else { return };
        // A trie has one more leaf than bits.
        let end = units.end.min(8 * dir.len() as u64 + 1);
        for index in units.start..end {
            let (leaf, depth) = self.kind.leaf_of(dir, index);
            if leaf == index {
                visit(Some(depth));
            }
        }
    }

    fn homes(&self, key: &[u8]) -> Homes {
        let Some(dir) = self.trie() else { return Homes::UNKNOWN };
        let home = |kind: Kind| kind.hash(key).map(|hash| kind.leaf_of(dir, hash).0);
        match (home(self.kind), home(self.kind.other_sign())) {
            (Some(first), Some(second)) => Homes::of(first, second),
            _ => Homes::UNKNOWN,
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = vec![
            Parameter::new("block size", self.shape.block_bytes),
            Parameter::new("byte order", self.shape.order.name()),
            Parameter::new("blocks", self.unit_count()),
        ];
        if let Some(dir) = &self.dir {
            let splits: u32 = dir.iter().map(|byte| byte.count_ones()).sum();
            parameters.push(Parameter::new("splits", splits));
        }
        if let Kind::Sdbm { multiplier, sign } = self.kind {
            parameters.push(Parameter::new("hash multiplier", multiplier));
            let sign = if sign == CharSign::Signed { "signed" } else { "unsigned" };
            parameters.push(Parameter::new("char", sign));
        }
        parameters
    }

    fn hash_name(&self) -> &'static str {
        match self.kind {
            Kind::Dbm => "dbm",
            Kind::Sdbm { multiplier: 65_587, .. } => "sdbm-65587",
            Kind::Sdbm { .. } => "sdbm",
            Kind::Unknown => "",
        }
    }

    fn hash_of(&self, key: &[u8]) -> Option<u64> {
        self.kind.hash(key)
    }
}

impl Loose for PagedFile {}

/// Returns the places of the keys and values in a block, and the fault after them, if any.
///
/// The file has only the first `available` bytes of the block. The fault's offset is within the
/// block.
fn pairs_of(
    block: &[u8],
    available: usize,
    order: ByteOrder,
) -> (Vec<[Range<usize>; 2]>, Option<Fault>) {
    let slot = |index: usize| usize::from(order.u16_at(block, 2 * index));
    let slot_count = slot(0);
    let slots_bytes = 2 * (slot_count + 1);
    if slot_count % 2 == 1 || slots_bytes > block.len() {
        let expected = (slot_count & !1).min(block.len() / 2 - 1);
        let fault = Fault::new("slot count of a block", 0, expected as u64, slot_count as u64);
        return (Vec::new(), Some(fault));
    }
    let mut pairs = Vec::with_capacity(slot_count / 2);
    let mut fault = None;
    let mut end = block.len();
    for index in (1..slot_count).step_by(2) {
        let (key, value) = (slot(index), slot(index + 1));
        for (index, start, end) in [(index, key, end), (index + 1, value, key)] {
            if start > end || start < slots_bytes {
                let at = 2 * index as u64;
                let fault = Fault::new("offset in a block", at, end as u64, start as u64);
                return (pairs, Some(fault));
            }
        }
        if end > available {
            let (at, end) = (available as u64, end as u64);
            fault.get_or_insert(Fault::new("end of a block", at, end, at));
        } else {
            pairs.push([key..end, value..key]);
        }
        end = value;
    }
    (pairs, fault)
}

/// Counts of the blocks of one shape.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    good: u64,
    bad: u64,
}

/// The result of the trial.
#[derive(Clone, Copy, Debug)]
struct Guess {
    shape: Shape,
    kind: Kind,
    placed: Placement,
}

/// Guesses block size, byte order and hash function.
fn guess(pag: &Source, dir: Option<&[u8]>) -> Result<Option<Guess>> {
    let shapes = plausible_shapes(pag, dir.is_some())?;
    let mut best: Option<(f64, Guess)> = None;
    for &(shape, trial) in &shapes {
        let valid = trial.good as f64 / (trial.good + trial.bad).max(1) as f64;
        for (kind, placed) in Kind::ALL.into_iter().zip(Placement::of(pag, dir, shape)?) {
            // Where only block 0 has keys, every function is right.
            if !placed.is_decisive() || !placed.is_likely() {
                continue;
            }
            let score = placed.evidence() as f64 * valid;
            if best.is_none_or(|(other, _)| score > other) {
                best = Some((score, Guess { shape, kind, placed }));
            }
        }
    }
    if let Some((_, guess)) = best {
        return Ok(Some(guess));
    }
    // No function is right, or every one is. Then it is enough that all blocks are well-formed.
    let is_certain = |shape: Shape, trial: Trial| {
        let is_whole = pag.file_bytes().is_multiple_of(shape.block_bytes as u64);
        if dir.is_some() { trial.good >= 9 * trial.bad } else { trial.bad == 0 && is_whole }
    };
    let found = shapes.into_iter().find(|&(shape, trial)| is_certain(shape, trial));
    let (kind, placed) = (Kind::Unknown, Placement::default());
    Ok(found.map(|(shape, _)| Guess { shape, kind, placed }))
}

/// Returns the shapes in which at least half of the non-empty blocks are valid, the smallest first,
/// because with a larger one the start of each block would look like a block.
fn plausible_shapes(pag: &Source, has_dir: bool) -> Result<Vec<(Shape, Trial)>> {
    let mut trials: Vec<(Shape, Trial)> = Vec::new();
    for block_bytes in BLOCK_BYTES {
        for order in ByteOrder::ALL {
            trials.push((Shape { block_bytes, order }, Trial::default()));
        }
    }
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < pag.file_bytes() {
        let filled = pag.read_at(offset, &mut chunk)?;
        if filled == 0 {
            break;
        }
        if chunk[..filled].iter().any(|&byte| byte != 0) {
            for (shape, trial) in &mut trials {
                try_blocks(&chunk[..filled], *shape, trial);
            }
        }
        offset = chunk_of_data(pag, offset + filled as u64);
    }
    trials.retain(|(_, trial)| trial.good >= trial.bad && (trial.good > 0 || has_dir));
    Ok(trials)
}

/// Returns the start of the first chunk from `offset` on that is not a hole.
fn chunk_of_data(pag: &Source, offset: u64) -> u64 {
    let data = pag.next_data(offset);
    (data - data % CHUNK_BYTES as u64).max(offset)
}

fn try_blocks(chunk: &[u8], shape: Shape, trial: &mut Trial) {
    for block in chunk.chunks(shape.block_bytes) {
        if block.len() == shape.block_bytes {
            let (pairs, fault) = pairs_of(block, block.len(), shape.order);
            trial.good += u64::from(!pairs.is_empty() && fault.is_none());
            trial.bad += u64::from(fault.is_some());
        }
    }
}

/// Counts of keys that are where a hash function puts them.
#[derive(Clone, Copy, Debug, Default)]
struct Placement {
    keys: u64,
    /// Keys in the block that the trie names.
    by_trie: u64,
    /// Keys in a block whose number is in the lowest bits of their hash, whatever the trie says.
    by_bits: u64,
    /// Whether a block other than the first has keys.
    is_spread: bool,
    /// Bits of the hashes that the trie examines, over the keys in the right block.
    trie_bits: u64,
    /// Bits of the block numbers, over the keys whose hashes have them.
    block_bits: u64,
}

impl Placement {
    /// Returns whether another function would put some keys elsewhere.
    fn is_decisive(self) -> bool {
        const BITS_MIN: u64 = 16;
        // If only the first block is left, its keys can fit by chance only if they are few.
        self.is_spread || self.trie_bits >= BITS_MIN && self.by_trie == self.keys
    }

    /// Tries every function, in the order of [`Kind::ALL`].
    fn of(pag: &Source, dir: Option<&[u8]>, shape: Shape) -> Result<[Self; Kind::ALL.len()]> {
        let mut placed = [Self::default(); Kind::ALL.len()];
        let mut block = vec![0; shape.block_bytes];
        let block_bytes = shape.block_bytes as u64;
        let block_count = pag.file_bytes().div_ceil(block_bytes);
        let mut next = 0;
        while next < block_count {
            let index = next;
            next = (pag.next_data((index + 1) * block_bytes) / block_bytes).max(index + 1);
            let available = pag.read_at(index * block.len() as u64, &mut block)?;
            let (pairs, _) = pairs_of(&block, available, shape.order);
            for [key, _] in pairs {
                for (kind, placed) in Kind::ALL.into_iter().zip(&mut placed) {
                    placed.count(kind, dir, index, &block[key.clone()]);
                }
            }
            if placed[0].keys > SAMPLE_KEYS {
                break;
            }
        }
        Ok(placed)
    }

    /// Returns how many bits of the hashes agree with the places of the keys. A share would not do:
    /// with a few large blocks of the wrong size it can be larger by chance.
    fn evidence(self) -> u64 {
        self.block_bits + self.trie_bits
    }

    fn count(&mut self, kind: Kind, dir: Option<&[u8]>, index: u64, key: &[u8]) {
        self.keys += 1;
        self.is_spread |= index > 0;
        let Some(hash) = kind.hash(key) else { return };
        let bits = u64::BITS - index.leading_zeros();
        if hash & ((1 << bits) - 1) == index {
            self.by_bits += 1;
            self.block_bits += u64::from(bits);
        }
        if let Some(dir) = dir {
            let (block, depth) = kind.leaf_of(dir, hash);
            if block == index {
                self.by_trie += 1;
                self.trie_bits += u64::from(depth);
            }
        }
    }

    fn trie_share(self) -> f64 {
        self.by_trie as f64 / self.keys.max(1) as f64
    }

    fn bits_share(self) -> f64 {
        self.by_bits as f64 / self.keys.max(1) as f64
    }

    /// Returns whether chance does not explain the places of the keys.
    fn is_likely(self) -> bool {
        self.bits_share() >= 0.8
    }

    fn is_trie_right(self) -> bool {
        self.trie_share() >= 0.5
    }
}

/// Returns the name of the kind of file.
fn of_blocks(files: &Files, shape: Shape, kind: Kind) -> Identity {
    let mut identity = Identity::new(kind.format(), &files.data).order(shape.order);
    identity.dir_path.clone_from(&files.dir);
    let identity = identity.detail(format!("blocks of {}", shape.block_bytes));
    match kind.detail() {
        Some(detail) => identity.detail(detail),
        None => identity,
    }
}
