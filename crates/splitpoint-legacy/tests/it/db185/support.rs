//! What the suite of all access methods asks of one: its tables.

use splitpoint::Table;
use splitpoint::hash::HashFunction;
use splitpoint_legacy::ByteOrder;
use splitpoint_legacy::db185::Options;

pub(crate) use super::Content;

/// Whether deletes join buckets again: a file of the 1991 package never shrinks.
pub(crate) const IS_MERGED: bool = false;

/// Parameters as the suite sets them.
#[derive(Clone, Debug)]
pub(crate) struct Setup(Options);

impl Setup {
    pub(crate) fn fill_factor(self, keys_per_bucket: f64) -> Self {
        Self(self.0.fill_factor(keys_per_bucket as u32))
    }

    pub(crate) fn hash(self, function: HashFunction) -> Self {
        Self(self.0.hash(function))
    }
}

/// Options with the smallest cache.
pub(crate) fn tiny() -> Setup {
    Setup(Options::new().cache_bytes(0).fill_factor(4))
}

/// Options as they are.
pub(crate) fn usual() -> Setup {
    Setup(Options::new())
}

/// Runs `check` on an empty table of each kind: in memory and in a file, of either byte order, with
/// large pages and small ones.
pub(crate) fn on_every_table(setup: &Setup, check: impl Fn(&dyn Table)) {
    for (order, page_bytes) in [(ByteOrder::Little, 4096), (ByteOrder::Big, 1024)] {
        let options = setup.0.clone().byte_order(order).page_bytes(page_bytes);
        check(&options.in_memory().unwrap());
        let dir = tempfile::tempdir().unwrap();
        check(&options.open(dir.path().join("table.db")).unwrap());
    }
}

/// Runs `check` with a function that opens a file, empty at first, of either byte order.
pub(crate) fn on_every_file(setup: &Setup, check: impl Fn(&dyn Fn() -> Box<dyn Table>)) {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let options = setup.0.clone().byte_order(order);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table.db");
        check(&|| Box::new(options.open(&path).unwrap()));
    }
}

/// Returns the seed of this run.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("SPLITPOINT_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or(1991);
    println!("SPLITPOINT_SEED={seed}");
    seed
}

/// Random numbers: splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}
