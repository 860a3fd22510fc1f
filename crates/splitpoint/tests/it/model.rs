//! Random operations on a store and on a map: the two must stay equal, whatever happens to the
//! store.
//!
//! A state machine draws the operations without knowing the store; the map, and the part of it that
//! must survive a power loss, are kept beside the store. Tables are tiny and half of the hash
//! functions bad, so that every run splits, merges, overflows and reuses overflow lines.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use splitpoint::hash::HashFunction;
use splitpoint::{Create, Db, Durability, Options, Recovery, SimDisk};
use tempfile::TempDir;

use crate::support::{Content, assert_sound, bad_hash, rounds, seed, tiny, worst_hash};

/// The place of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Memory,
    File,
    Sim,
}

/// The parameters of a case.
#[derive(Clone, Debug)]
struct Setup {
    fill_factor: f64,
    hash: u8,
    expected_records: u64,
    live_share: f64,
}

impl Setup {
    fn options(&self) -> Options {
        let hash = match self.hash {
            0 => worst_hash(),
            1 => bad_hash(),
            2 => HashFunction::x33(),
            _ => HashFunction::rapidhash_v3(),
        };
        tiny()
            .fill_factor(self.fill_factor)
            .hash(hash)
            .expected_records(self.expected_records)
            .live_share(self.live_share)
            .poison_freed()
    }
}

/// Returns a key. The number determines its length, which may be 0.
fn key(number: u16) -> Vec<u8> {
    match number {
        0 => Vec::new(),
        1 => vec![0],
        number if number % 97 == 0 => vec![number as u8; 260],
        number => number.to_le_bytes()[..=usize::from(number >= 256)].to_vec(),
    }
}

/// Returns a value. All values of a run differ, and some get a segment to themselves.
fn value(number: u64, len: u16) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(usize::from(len), number as u8);
    value
}

#[derive(Clone, Debug)]
enum Transition {
    Put {
        key: u16,
        len: u16,
        durability: Durability,
    },
    PutNew {
        key: u16,
        len: u16,
    },
    PutMany {
        first: u16,
        count: u16,
        step: u16,
    },
    Delete {
        key: u16,
        durability: Durability,
    },
    DeleteMany {
        first: u16,
        count: u16,
        step: u16,
    },
    Get {
        key: u16,
    },
    GetMany {
        first: u16,
        count: u16,
    },
    Scan,
    DeleteWhileScanning {
        one_in: u16,
    },
    Sync,
    Check,
    /// Compact ahead of the changes.
    Maintain {
        bytes: u64,
    },
    /// Close and open again.
    Reopen,
    /// Copy the file, as a killed process leaves it, and continue with the copy.
    Kill {
        rebuild: bool,
    },
    LosePower {
        seed: u64,
    },
}

#[derive(Debug)]
struct Machine;

impl ReferenceStateMachine for Machine {
    type State = Setup;
    type Transition = Transition;

    fn init_state() -> BoxedStrategy<Setup> {
        (
            prop::sample::select(vec![1.0, 1.7, 4.5, 7.0]),
            0..4_u8,
            prop::sample::select(vec![0, 200]),
            prop::sample::select(vec![0.5, 0.78, 0.9]),
        )
            .prop_map(|(fill_factor, hash, expected_records, live_share)| Setup {
                fill_factor,
                hash,
                expected_records,
                live_share,
            })
            .boxed()
    }

    fn transitions(_: &Setup) -> BoxedStrategy<Transition> {
        let key = || 0..400_u16;
        let len = || prop_oneof![6 => 0..60_u16, 1 => 1000..3000_u16, 1 => 250..260_u16];
        let durability = || {
            use Durability::{Async, Buffered, Sync};
            prop::sample::select(vec![Buffered, Async, Sync])
        };
        let range = || (key(), 1..200_u16, 1..4_u16);
        prop_oneof![
            8 => (key(), len(), durability())
                .prop_map(|(key, len, durability)| Transition::Put { key, len, durability }),
            3 => (key(), len()).prop_map(|(key, len)| Transition::PutNew { key, len }),
            5 => range().prop_map(|(first, count, step)| {
                Transition::PutMany { first, count, step }
            }),
            6 => (key(), durability())
                .prop_map(|(key, durability)| Transition::Delete { key, durability }),
            4 => range().prop_map(|(first, count, step)| {
                Transition::DeleteMany { first, count, step }
            }),
            3 => key().prop_map(|key| Transition::Get { key }),
            2 => (key(), 0..70_u16).prop_map(|(first, count)| Transition::GetMany { first, count }),
            2 => Just(Transition::Scan),
            1 => (1..4_u16).prop_map(|one_in| Transition::DeleteWhileScanning { one_in }),
            2 => Just(Transition::Sync),
            2 => Just(Transition::Check),
            2 => prop::sample::select(vec![0, 1000, 1 << 20])
                .prop_map(|bytes| Transition::Maintain { bytes }),
            2 => Just(Transition::Reopen),
            2 => any::<bool>().prop_map(|rebuild| Transition::Kill { rebuild }),
            2 => prop_oneof![Just(0), Just(u64::MAX), any::<u64>()]
                .prop_map(|seed| Transition::LosePower { seed }),
        ]
        .boxed()
    }

    fn apply(state: Setup, _: &Transition) -> Setup {
        state
    }
}

/// The home of the store.
enum Place {
    Memory,
    File { dir: TempDir, generation: u32 },
    Sim(SimDisk),
}

/// Counts of the events that every run must cover.
struct Seen {
    splits: AtomicU64,
    merges: AtomicU64,
    overflows: AtomicU64,
    lines_given_back: AtomicU64,
    recoveries: AtomicU64,
    big: AtomicU64,
}

/// A store and the map that it must equal.
struct Sut<const KIND: usize> {
    place: Place,
    options: Options,
    db: Option<Db>,
    model: HashMap<Vec<u8>, Vec<u8>>,
    /// The contents that are certainly durable, and the changes since.
    durable: HashMap<Vec<u8>, Vec<u8>>,
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    value_count: u64,
    bucket_count: u64,
    overflow_line_count: u64,
}

static SEEN: [Seen; 3] = [const { Seen::new() }; 3];

impl Seen {
    const fn new() -> Self {
        Self {
            splits: AtomicU64::new(0),
            merges: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
            lines_given_back: AtomicU64::new(0),
            recoveries: AtomicU64::new(0),
            big: AtomicU64::new(0),
        }
    }
}

impl<const KIND: usize> Sut<KIND> {
    const KIND: Kind = [Kind::Memory, Kind::File, Kind::Sim][KIND];

    fn new(setup: &Setup) -> Self {
        let options = setup.options();
        let place = match Self::KIND {
            Kind::Memory => Place::Memory,
            Kind::File => Place::File { dir: tempfile::tempdir().unwrap(), generation: 0 },
            Kind::Sim => Place::Sim(SimDisk::new()),
        };
        let mut sut = Self {
            place,
            options,
            db: None,
            model: HashMap::new(),
            durable: HashMap::new(),
            changes: Vec::new(),
            value_count: 0,
            bucket_count: 1,
            overflow_line_count: 0,
        };
        sut.open(Create::New, false);
        sut
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("the store is open")
    }

    fn open(&mut self, create: Create, rebuild: bool) {
        let mut options = self.options.clone().create(create);
        if rebuild {
            options = options.rebuild_index();
        }
        let db = match &self.place {
            Place::Memory => options.in_memory(),
            Place::File { dir, generation } => {
                options.open(dir.path().join(format!("{generation}.spt")))
            }
            Place::Sim(disk) => disk.open(&options),
        };
        self.db = Some(db.unwrap());
    }

    fn put(&mut self, key: Vec<u8>, len: u16) -> (Vec<u8>, Vec<u8>) {
        self.value_count += 1;
        let value = value(self.value_count, len);
        self.model.insert(key.clone(), value.clone());
        self.changes.push((key.clone(), Some(value.clone())));
        (key, value)
    }

    fn delete(&mut self, key: Vec<u8>) -> bool {
        let was_there = self.model.remove(&key).is_some();
        if was_there {
            self.changes.push((key, None));
        }
        was_there
    }

    /// Notes that everything so far is durable.
    fn synced(&mut self) {
        self.durable.clone_from(&self.model);
        self.changes.clear();
    }

    fn assert_scan(&self) {
        let found = crate::support::content(self.db());
        assert!(found.len() == self.model.len(), "{} of {}", found.len(), self.model.len());
        for (key, value) in &found {
            assert!(self.model.get(key) == Some(value), "{key:?}");
        }
    }

    /// Adopts the result of a scan: it must be the durable part and a prefix of the changes since.
    fn find_prefix(&mut self) {
        let found: HashMap<_, _> =
            crate::support::content(self.db.as_ref().expect("open")).into_iter().collect();
        let mut candidate = std::mem::take(&mut self.durable);
        let mut changes = std::mem::take(&mut self.changes).into_iter();
        while candidate != found {
            match changes.next().expect("what was found is a prefix of the changes") {
                (key, Some(value)) => drop(candidate.insert(key, value)),
                (key, None) => drop(candidate.remove(&key)),
            }
        }
        self.model = candidate;
        self.synced();
    }

    fn kill(&mut self, rebuild: bool) {
        let next = match &mut self.place {
            Place::Memory => return,
            Place::Sim(disk) => Place::Sim(disk.kill()),
            Place::File { dir, generation } => {
                let name = |generation: u32| format!("{generation}.spt");
                let (from, to) = (name(*generation), name(*generation + 1));
                std::fs::copy(dir.path().join(&from), dir.path().join(&to)).unwrap();
                let dir = std::mem::replace(dir, tempfile::tempdir().unwrap());
                Place::File { dir, generation: *generation + 1 }
            }
        };
        self.db = None;
        self.place = next;
        self.open(Create::Never, rebuild);
        // A store without changes is still closed, and a copied file has another inode.
        let was_changed = self.db().recovery() != Recovery::Clean;
        let is_replayed = matches!(self.db().recovery(), Recovery::Replayed { .. });
        if was_changed && !self.model.is_empty() {
            SEEN[KIND].recoveries.fetch_add(1, Ordering::Relaxed);
            assert_eq!(is_replayed, rebuild || Self::KIND == Kind::File, "{:?}", self.db());
        }
    }

    fn lose_power(&mut self, seed: u64) {
        let Place::Sim(disk) = &self.place else { return };
        let next = disk.lose_power(seed);
        self.db = None;
        self.place = Place::Sim(next);
        self.open(Create::IfMissing, false);
        SEEN[KIND].recoveries.fetch_add(1, Ordering::Relaxed);
        self.find_prefix();
    }

    fn step(&mut self, transition: &Transition) {
        match *transition {
            Transition::Put { key: number, len, durability } => {
                let (key, value) = self.put(key(number), len);
                self.db().put_with(&key, &value, durability).unwrap();
                if durability == Durability::Sync {
                    self.synced();
                }
            }
            Transition::PutNew { key: number, len } => {
                let is_new = !self.model.contains_key(&key(number));
                let (key, value) =
                    if is_new { self.put(key(number), len) } else { (key(number), vec![1]) };
                assert_eq!(self.db().put_new(&key, &value).unwrap(), is_new);
            }
            Transition::PutMany { first, count, step } => {
                let pairs: Vec<_> =
                    (0..count).map(|i| self.put(key(first + i * step), i % 40)).collect();
                let pairs: Vec<(&[u8], &[u8])> =
                    pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
                self.db().put_many(&pairs).unwrap();
            }
            Transition::Delete { key: number, durability } => {
                let was_there = self.delete(key(number));
                assert_eq!(self.db().delete_with(&key(number), durability).unwrap(), was_there);
                if durability == Durability::Sync {
                    self.synced();
                }
            }
            Transition::DeleteMany { first, count, step } => {
                for i in 0..count {
                    let was_there = self.delete(key(first + i * step));
                    assert_eq!(self.db().delete(&key(first + i * step)).unwrap(), was_there);
                }
            }
            Transition::Get { key: number } => {
                let (db, expected) = (self.db(), self.model.get(&key(number)));
                let mut buf = vec![1, 2, 3];
                assert!(db.get(&key(number)).unwrap().as_deref() == expected.map(|v| &v[..]));
                assert_eq!(db.contains(&key(number)).unwrap(), expected.is_some());
                assert_eq!(db.get_into(&key(number), &mut buf).unwrap(), expected.is_some());
                assert!(expected.is_none_or(|value| *value == buf));
            }
            Transition::GetMany { first, count } => {
                let keys: Vec<_> = (0..count).map(|i| key(first + i)).collect();
                let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                let values = self.db().get_many(&keys).unwrap();
                for (key, value) in keys.iter().zip(values) {
                    assert!(value.as_deref() == self.model.get(*key).map(|value| &value[..]));
                }
            }
            Transition::Scan => self.assert_scan(),
            Transition::DeleteWhileScanning { one_in } => self.delete_while_scanning(one_in),
            Transition::Sync => {
                self.db().sync().unwrap();
                self.synced();
            }
            Transition::Check => assert_sound(self.db()),
            Transition::Maintain { bytes } => self.maintain(bytes),
            Transition::Reopen if Self::KIND == Kind::Memory => {}
            Transition::Reopen => {
                self.db.take().expect("open").close().unwrap();
                self.open(Create::Never, false);
                assert!(matches!(
                    self.db().recovery(),
                    Recovery::Clean | Recovery::Replayed { .. }
                ));
                self.synced();
            }
            Transition::Kill { rebuild } => self.kill(rebuild),
            Transition::LosePower { seed } => self.lose_power(seed),
        }
    }

    /// Compacts; with enough bytes, everything that is worth it.
    fn maintain(&self, bytes: u64) {
        let done = self.db().maintain(bytes).unwrap();
        let segments = self.db().stats().unwrap().segments;
        if Self::KIND == Kind::Memory {
            assert_eq!(done.waiting_bytes, 0, "nothing is borrowed");
        }
        if Self::KIND == Kind::Memory && done.is_done {
            assert_eq!(segments.free, 0, "free space goes back to the system");
            let live_bytes = self.db().stats().unwrap().live_bytes;
            let bound = live_bytes + live_bytes / 2 + 4 * 4096;
            assert!(segments.log <= bound, "{} for {live_bytes}", segments.log);
        }
    }

    fn delete_while_scanning(&mut self, one_in: u16) {
        let mut deleted = Vec::new();
        let mut entry_count = 0;
        for entry in self.db().scan().unwrap() {
            let entry = entry.unwrap();
            assert!(self.model.get(&*entry.key).is_some_and(|value| value[..] == *entry.value));
            if entry_count % usize::from(one_in) == 0 {
                assert!(self.db().delete(&entry.key).unwrap());
                deleted.push(entry.key.to_vec());
            }
            entry_count += 1;
        }
        assert_eq!(entry_count, self.model.len());
        for key in deleted {
            assert!(self.delete(key));
        }
    }
}

impl<const KIND: usize> StateMachineTest for Sut<KIND> {
    type SystemUnderTest = Self;
    type Reference = Machine;

    fn init_test(setup: &Setup) -> Self {
        Self::new(setup)
    }

    fn apply(mut sut: Self, _: &Setup, transition: Transition) -> Self {
        sut.step(&transition);
        let stats = sut.db().stats().unwrap();
        let seen = &SEEN[KIND];
        let bucket_count = stats.geometry.bucket_count();
        if stats.recovery == sut.db().recovery() {
            let count = |is_seen: bool, what: &AtomicU64| {
                what.fetch_add(is_seen.into(), Ordering::Relaxed);
            };
            count(bucket_count > sut.bucket_count, &seen.splits);
            count(bucket_count < sut.bucket_count, &seen.merges);
            count(stats.overflow_line_count > 0, &seen.overflows);
            count(stats.overflow_line_count < sut.overflow_line_count, &seen.lines_given_back);
            count(stats.segments.big > 0, &seen.big);
        }
        (sut.bucket_count, sut.overflow_line_count) = (bucket_count, stats.overflow_line_count);
        sut
    }

    fn check_invariants(sut: &Self, _: &Setup) {
        let stats = sut.db().stats().unwrap();
        let len = sut.model.len() as u64;
        assert_eq!((sut.db().len(), stats.record_count), (len, len));
        let rows = &stats.chains.rows;
        assert_eq!(rows.iter().map(|row| row.item_count).sum::<u64>(), len);
        let bucket_count = stats.geometry.bucket_count();
        assert_eq!(rows.iter().map(|row| row.bucket_count).sum::<u64>(), bucket_count);
        let segments = stats.segments;
        assert!(segments.log + segments.big >= stats.live_bytes + stats.dead_bytes);
        assert!(stats.log_bytes >= stats.durable_bytes);
    }

    fn teardown(mut sut: Self, _: Setup) {
        sut.assert_scan();
        assert_sound(sut.db());
        for (key, value) in &sut.model {
            assert!(sut.db().get(key).unwrap().as_deref() == Some(&value[..]));
        }
        sut.step(&Transition::DeleteWhileScanning { one_in: 1 });
        assert!(sut.db().is_empty());
        assert_eq!(crate::support::content(sut.db()), Content::new());
        assert_sound(sut.db());
    }
}

fn run<const KIND: usize>(cases: u64) {
    let config = Config {
        cases: u32::try_from(cases).expect("few cases"),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        max_shrink_iters: 2000,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config.clone());
    let result =
        runner.run(&Machine::sequential_strategy(1..60), |(setup, transitions, counter)| {
            Sut::<KIND>::test_sequential(config.clone(), setup, transitions, counter);
            Ok(())
        });
    if let Err(error) = result {
        panic!("{error}");
    }
    let seen = &SEEN[KIND];
    for (name, count) in [
        ("splits", &seen.splits),
        ("merges", &seen.merges),
        ("overflow lines", &seen.overflows),
        ("overflow lines given back", &seen.lines_given_back),
        ("big records", &seen.big),
    ] {
        let count = count.load(Ordering::Relaxed);
        assert!(count > cases / 8, "only {count} times {name} in {cases} cases");
    }
    let recoveries = seen.recoveries.load(Ordering::Relaxed);
    assert!(recoveries > 0 || Sut::<KIND>::KIND == Kind::Memory);
}

#[test]
fn a_table_in_memory_is_a_map() {
    run::<{ Kind::Memory as usize }>(rounds(200, 10_000));
}

#[test]
fn a_store_in_a_file_is_a_map_across_closes_and_copies() {
    run::<{ Kind::File as usize }>(rounds(60, 3000));
}

#[test]
fn a_store_on_a_simulated_disk_is_a_map_across_kills_and_power_losses() {
    run::<{ Kind::Sim as usize }>(rounds(150, 10_000));
}

/// What seed 713 found. The first checkpoint of a store that is compacted frees big records that died before.
#[test]
fn a_replay_of_the_first_checkpoint_that_compacts_counts_no_freed_record_as_dead() {
    use Transition::{Delete, DeleteMany, Kill, Put, PutMany, Reopen};
    let setup = Setup { fill_factor: 1.0, hash: 0, expected_records: 0, live_share: 0.9 };
    let durability = Durability::Buffered;
    let put = |key, len| Put { key, len, durability };
    let put_many = |first, count, step| PutMany { first, count, step };
    let mut sut = Sut::<2>::new(&setup);
    let before = [
        put(0, 25),
        put(0, 9),
        put_many(89, 5, 1),
        put(254, 2240),
        put_many(134, 88, 2),
        put_many(222, 64, 2),
        put(0, 250),
        put(197, 2632),
        put(111, 24),
        Delete { key: 1, durability },
        DeleteMany { first: 90, count: 17, step: 3 },
        DeleteMany { first: 228, count: 43, step: 2 },
        put_many(89, 102, 3),
        put_many(111, 30, 1),
        Reopen,
    ];
    for step in before {
        sut.step(&step);
    }
    assert_eq!(sut.db().stats().unwrap().segments.big, 0, "both big records were freed");
    for step in [
        put_many(104, 180, 1),
        Kill { rebuild: true },
        DeleteMany { first: 109, count: 64, step: 1 },
    ] {
        sut.step(&step);
        Sut::<2>::check_invariants(&sut, &setup);
    }
}
