//! What keys that were chosen to collide cost, by the length of their chain, beside other keys of
//! the same store.
//!
//! ```sh
//! cargo bench -p splitpoint --bench hostile -- [--other-keys N] [--most N] [--slow-keys] [--only KIND]
//! ```
//!
//! Three kinds of keys, each in a store with 100,000 random keys of 16 bytes:
//!
//! - `random`: nobody chose them.
//! - `one hash`: all 64 bits of the hash are equal, whatever the seed is. rapidhash multiplies two
//!   words, each xored with something, for keys of 16 bytes; the first 8 bytes here make one of the
//!   factors zero. Every slot has the same tag, so that each lookup reads the records of the chain.
//! - `one bucket`: the lowest 17 bits of the hash are zero under the seed of the store, which
//!   whoever may read the file knows. Found by trying; 100,000 take 13 thousand million hashes, so
//!   they are measured only with `--slow-keys`. The tags differ in the other bits.
//!
//! For each length of the chain the mean of the operations at that length, and the longest put
//! until then: it has split the bucket, or allocated. Then what reads all keys: a scan, a check,
//! and the recovery of a copy. At last the store is rehashed to `siphash-1-3`, and the operations
//! are measured again. All times are CPU times, so that other work on the machine counts little.

#![expect(clippy::print_stdout, reason = "a program that prints its measurements")]

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use splitpoint::hash::HashFunction;
use splitpoint::rehash::Rehash;
use splitpoint::{Db, Durability, Options};

type Run<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The seed of the stores, known to whoever chooses the keys.
const SEED: u64 = 0x5eed_0f0a_5707_e000;
/// What rapidhash v3 combines the first 8 bytes of a key of 16 with: one of its public constants.
const RAPIDHASH_SECRET: u64 = 0x8bb8_4b93_962e_acc9;
/// Bits of the hash that the keys of one bucket have in common: more than the table splits by.
const BUCKET_BITS: u32 = 17;
/// Operations that are measured at each length of a chain.
const SAMPLE: u64 = 500;

/// What the keys have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Random,
    OneHash,
    OneBucket,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::OneHash => "one hash",
            Self::OneBucket => "one bucket",
        }
    }
}

/// Makes keys of one kind, one after the other.
struct Keys {
    kind: Kind,
    hash: HashFunction,
    next: u64,
}

impl Keys {
    fn new(kind: Kind) -> Self {
        Self { kind, hash: HashFunction::rapidhash_v3(), next: 0 }
    }

    fn take(&mut self, count: u64) -> Vec<[u8; 16]> {
        let mut keys = Vec::new();
        while (keys.len() as u64) < count {
            self.next += 1;
            let key = match self.kind {
                Kind::Random => key_of(mixed(self.next), mixed(!self.next)),
                Kind::OneHash => key_of(RAPIDHASH_SECRET, self.next),
                Kind::OneBucket => key_of(self.next, 0),
            };
            let is_hit = self.hash.hash(&key, SEED) << (64 - BUCKET_BITS) == 0;
            if self.kind != Kind::OneBucket || is_hit {
                keys.push(key);
            }
        }
        keys
    }
}

fn key_of(first: u64, second: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_le_bytes());
    key[8..].copy_from_slice(&second.to_le_bytes());
    key
}

fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Returns the CPU time that a clock has counted.
fn now(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Returns the CPU time that this thread has taken.
fn thread_now() -> Duration {
    now(ClockId::ThreadCPUTime)
}

/// Returns the mean time of an operation in nanoseconds.
fn mean<T>(items: &[T], mut operation: impl FnMut(&T) -> splitpoint::Result<()>) -> Run<u128> {
    let begun = thread_now();
    for item in items {
        operation(item)?;
    }
    Ok(thread_now().saturating_sub(begun).as_nanos() / (items.len() as u128).max(1))
}

struct Plan {
    other_count: u64,
    most: u64,
    has_slow_keys: bool,
    only: Option<String>,
}

fn main() -> Run {
    let mut plan = Plan { other_count: 100_000, most: 100_000, has_slow_keys: false, only: None };
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        let mut number = || -> Run<u64> { Ok(args.next().ok_or("a number")?.parse()?) };
        match arg.as_str() {
            "--other-keys" => plan.other_count = number()?,
            "--most" => plan.most = number()?,
            "--slow-keys" => plan.has_slow_keys = true,
            "--only" => plan.only = Some(args.next().ok_or("a kind of keys")?),
            _ => return Err(format!("unknown argument {arg}").into()),
        }
    }
    println!("nanoseconds an operation, {} other keys in each store", plan.other_count);
    for kind in [Kind::Random, Kind::OneHash, Kind::OneBucket] {
        let is_wanted = plan.only.as_ref().is_none_or(|only| only == kind.name());
        if is_wanted && (kind != Kind::OneBucket || plan.has_slow_keys) {
            measure(&plan, kind)?;
        }
    }
    Ok(())
}

fn measure(plan: &Plan, kind: Kind) -> Run {
    let dir = tempfile::tempdir_in(".")?;
    let path = dir.path().join("hostile.spt");
    let options = Options::new().seed(SEED).durability(Durability::Buffered);
    let db = options.open(&path)?;
    let others = Keys { next: 1 << 40, ..Keys::new(Kind::Random) }.take(plan.other_count);
    for key in &others {
        db.put(key, b"an innocent value")?;
    }
    let mut keys = Keys::new(kind);
    let (mut stored, mut worst) = (Vec::new(), Duration::ZERO);
    println!("\n{}", kind.name());
    println!(
        "{:>8}{:>10}{:>10}{:>10}{:>10}{:>14}",
        "keys", "put", "hit", "miss", "other", "longest put"
    );
    for length in [0, 100, 1_000, 10_000, 30_000, 100_000] {
        if length > plan.most {
            break;
        }
        for key in keys.take(length.saturating_sub(stored.len() as u64)) {
            let before = thread_now();
            db.put(&key, b"a hostile value")?;
            worst = worst.max(thread_now().saturating_sub(before));
            stored.push(key);
        }
        // As many as there are keys to look up, at most; the last ones stay out.
        let sample = keys.take(SAMPLE.min(length.max(50)));
        let means = operations(&db, &sample, &mut stored, &others)?;
        println!("{length:>8}{means}{:>11} us", worst.as_micros());
    }
    whole(&db, &path, &options)?;
    db.close()?;
    let begun = now(ClockId::ProcessCPUTime);
    Rehash::of_file(&path).hash(HashFunction::siphash_1_3()).run()?;
    let taken = now(ClockId::ProcessCPUTime).saturating_sub(begun);
    println!("rehash to siphash-1-3: {:.3} s", taken.as_secs_f64());
    let db = Options::new().durability(Durability::Buffered).open(&path)?;
    // The page faults of the new mapping are not the cost of the operations.
    others.iter().try_for_each(|key| db.put(key, b"an innocent value"))?;
    let means = operations(&db, &keys.take(SAMPLE), &mut stored, &others)?;
    println!("{:>8}{means}", stored.len());
    Ok(())
}

/// Puts half of `sample`, which it adds to `stored`, looks up keys that are there and the other
/// half, which is not, and returns the mean times.
fn operations(
    db: &Db,
    sample: &[[u8; 16]],
    stored: &mut Vec<[u8; 16]>,
    others: &[[u8; 16]],
) -> Run<String> {
    let (new, absent) = sample.split_at(sample.len() / 2);
    let put = mean(new, |key| db.put(key, b"a hostile value"))?;
    stored.extend(new);
    let spread: Vec<_> = stored.iter().step_by(stored.len() / new.len()).collect();
    let hit = mean(&spread, |key| db.get(&key[..]).map(|value| assert!(value.is_some())))?;
    let miss = mean(absent, |key| db.get(key).map(|value| assert!(value.is_none())))?;
    let other = mean(others, |key| db.get(key).map(|value| assert!(value.is_some())))?;
    Ok(format!("{put:>10}{hit:>10}{miss:>10}{other:>10}"))
}

/// Measures what reads all keys.
fn whole(db: &Db, path: &Path, options: &Options) -> Run {
    let stats = db.stats()?;
    println!(
        "buckets {}, overflow lines {}, longest chain {} keys",
        stats.geometry.bucket_count(),
        stats.overflow_line_count,
        stats.chains.longest
    );
    // A recovery has threads.
    let started = || now(ClockId::ProcessCPUTime);
    let timed = |what: &str, begun: Duration| {
        println!(
            "{what} of {} keys: {:.3} s",
            db.len(),
            started().saturating_sub(begun).as_secs_f64()
        );
    };
    let begun = started();
    let found = db.scan()?.filter_map(Result::ok).count() as u64;
    assert_eq!(found, db.len());
    timed("scan", begun);
    let begun = started();
    assert!(db.check()?.is_clean());
    timed("check", begun);
    // Another file, so that nothing but the log is trusted.
    let copy = path.with_extension("copy");
    std::fs::copy(path, &copy)?;
    let begun = started();
    assert_eq!(options.open(&copy)?.len(), db.len());
    timed("recovery", begun);
    Ok(())
}
