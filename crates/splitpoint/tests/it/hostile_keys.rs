//! Keys that were chosen to collide: their effect on a store, and how `stats` reveals them.

use splitpoint::hash::HashFunction;
use splitpoint::{Db, Options};

use crate::support::{Rng, assert_sound, rounds, seed};

/// Returns a key of 16 bytes; all such keys have the same hash under rapidhash v3 and any seed.
fn of_one_hash(number: u64) -> Vec<u8> {
    [&0x8bb8_4b93_962e_acc9_u64.to_le_bytes()[..], &number.to_le_bytes()].concat()
}

/// Harmless keys, of kinds that programs use.
fn ordinary(kind: u64, number: u64, rng: &mut Rng) -> Vec<u8> {
    match kind % 6 {
        0 => number.to_le_bytes().to_vec(),
        1 => format!("user:{number}").into_bytes(),
        2 => format!("/usr/share/doc/package-{}/file-{number}.gz", number / 10).into_bytes(),
        3 => (number << 32).swap_bytes().to_le_bytes().to_vec(),
        4 => vec![b'a'; usize::try_from(number % 4000).expect("small")],
        _ => rng.bytes(8 + usize::try_from(number % 20).expect("small")),
    }
}

fn with_hash(hash: HashFunction, seed: u64) -> Db {
    Options::new().hash(hash).seed(seed).in_memory().expect("memory")
}

#[test]
fn ordinary_keys_raise_no_alarm_whatever_the_seed_is() {
    let mut rng = Rng::new(seed());
    for round in 0..rounds(240, 20_000) {
        let functions = HashFunction::all();
        // A function without a seed makes no promise for numbers.
        let seeded = ["rapidhash-v3", "xxh3-64", "siphash-1-3"];
        let name = seeded[rng.index(seeded.len())];
        let hash = functions.into_iter().find(|hash| hash.name() == name).expect("a function");
        let db = with_hash(hash, rng.next());
        let count = 1 + rng.below(4000);
        for number in 0..count {
            db.put(&ordinary(round, number, &mut rng), b"").expect("there is room");
        }
        for number in (0..count).filter(|_| rng.below(3) == 0).collect::<Vec<_>>() {
            db.delete(&ordinary(round, number, &mut rng)).expect("nothing fails");
        }
        let chains = db.stats().expect("nothing fails").chains;
        assert_eq!(chains.beyond_chance_count, 0, "{name}, kind {}, {count} keys", round % 6);
    }
}

#[test]
fn a_few_chosen_keys_among_many_raise_the_alarm_under_any_seed() {
    let mut rng = Rng::new(seed());
    for _ in 0..5 {
        let (default, keyed) = (HashFunction::rapidhash_v3(), HashFunction::siphash_1_3());
        for (hash, expected) in [(default, 1), (keyed, 0)] {
            let db = with_hash(hash, rng.next());
            for _ in 0..20_000 {
                db.put(&rng.bytes(16), b"").expect("there is room");
            }
            for number in 0..60 {
                db.put(&of_one_hash(number), b"").expect("there is room");
            }
            let stats = db.stats().expect("nothing fails");
            assert_eq!(stats.chains.beyond_chance_count, expected, "{}", stats.hash_name);
        }
    }
}

/// However long the chain is, a put divides at most two buckets, the chain takes one line for seven
/// keys, and the other buckets are as usual.
#[test]
fn chosen_keys_cost_a_chain_and_nothing_else() {
    let db = with_hash(HashFunction::rapidhash_v3(), seed());
    let mut rng = Rng::new(seed());
    for _ in 0..5000 {
        db.put(&rng.bytes(16), b"").expect("there is room");
    }
    let before = db.stats().expect("nothing fails");
    let mut bucket_count = before.geometry.bucket_count();
    for number in 0..3000 {
        db.put(&of_one_hash(number), b"").expect("there is room");
        let now = db.stats().expect("nothing fails").geometry.bucket_count();
        assert!((bucket_count..=bucket_count + 2).contains(&now), "key {number}");
        bucket_count = now;
    }
    let after = db.stats().expect("nothing fails");
    let lines = after.overflow_line_count - before.overflow_line_count;
    assert!(lines <= 3000 / 7 + 20, "{lines} lines");
    assert_eq!(after.chains.beyond_chance_count, 1);
    // The first of them is in the chain of some others.
    assert!((3000..3030).contains(&after.chains.longest), "{}", after.chains.longest);
    for number in (0..3000).step_by(7) {
        assert!(db.delete(&of_one_hash(number)).expect("nothing fails"));
        assert!(!db.contains(&of_one_hash(number)).expect("nothing fails"));
        assert!(db.contains(&of_one_hash(number + 1)).expect("nothing fails"));
    }
    assert_sound(&db);
}
