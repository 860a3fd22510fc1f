use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::super::variant::EVERY_COLLISIONS;
use super::super::{Algorithm, Reason, StoreMode, Stored};
use super::*;

fn words(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("word{}", number * 7).into_bytes()).collect()
}

fn filled(options: Options, keys: &[Vec<u8>]) -> Hsearch {
    let mut table = Hsearch::new(options, keys.len() as u64);
    for key in keys {
        assert_eq!(table.store(key, key, StoreMode::Insert).unwrap(), Stored::New);
    }
    table
}

fn hit_probes(table: &mut Hsearch, keys: &[Vec<u8>]) -> u64 {
    let before = table.counts().probes;
    for key in keys {
        assert_eq!(table.fetch(key).unwrap().as_deref(), Some(&key[..]));
    }
    table.counts().probes - before
}

#[test]
fn anagrams_share_the_whole_probe_path() {
    let (silent, listen) = (digest(b"silent"), digest(b"listen"));
    assert_eq!(silent, listen);
    for hashing in [Hashing::Mult, Hashing::Div] {
        assert_eq!(probe_of(hashing, silent, 10), probe_of(hashing, listen, 10));
    }
    assert_ne!(digest(b"silence"), listen);
}

#[test]
fn hcreate_makes_the_first_power_of_two_above_nelem() {
    for (nelem, slots) in
        [(0, 2), (1, 2), (2, 4), (3, 4), (4, 8), (24_474, 32_768), (32_768, 65_536)]
    {
        assert_eq!(1_u64 << bits_for(nelem), slots, "{nelem}");
    }
}

#[test]
fn options_that_exclude_each_other_are_refused_and_all_others_are_not() {
    let names = ["MULT", "DIV", "OPEN", "CHAINED", "BRENT", "SORTUP", "SORTDOWN"];
    let mut accepted = 0;
    for set in 0_u32..1 << names.len() {
        let macros: Vec<&str> =
            (0..).zip(names).filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, name)| name).collect();
        let has = |name: &str| macros.contains(&name);
        let both = |one, other| has(one) && has(other);
        let is_excluded = both("MULT", "DIV")
            || both("OPEN", "CHAINED")
            || both("BRENT", "CHAINED")
            || both("SORTUP", "SORTDOWN");
        let is_sorted = has("SORTUP") || has("SORTDOWN");
        let expected = !is_excluded && (has("CHAINED") || !is_sorted);
        let found = Options::of_macros(&macros, None);
        assert_eq!(found.is_ok(), expected, "{macros:?}");
        accepted += u32::from(found.is_ok());
    }
    // MULT, DIV or neither; and OPEN or not, BRENT or not, or CHAINED with one of three orders.
    assert_eq!(accepted, 3 * (4 + 3));
    let refused = Options::of_macros(&["CHAINED", "BRENT"], None).unwrap_err();
    assert!(refused.to_string().contains("BRENT and CHAINED exclude each other"), "{refused}");
    assert!(Options::of_macros(&["USCR"], None).is_err());
    assert!(Options::of_macros(&["FAST"], None).is_err());
}

#[test]
fn a_table_with_one_slot_left_refuses_new_keys_and_finds_the_old_ones() {
    for hashing in [Hashing::Mult, Hashing::Div] {
        for collisions in [Collisions::Open, Collisions::Brent] {
            let options = Options { hashing, collisions, ..Options::default() };
            let mut table = Hsearch::new(options, 7);
            let keys = words(7);
            for key in &keys {
                table.store(key, key, StoreMode::Insert).unwrap();
            }
            let refusal = table.store(b"one more", b"", StoreMode::Insert).unwrap_err();
            assert_eq!(refusal.reason(), Reason::TableFull);
            assert_eq!(
                refusal.to_string(),
                "table full: all but one of 8 slots have an entry, and that one must stay empty"
            );
            assert_eq!(table.store(&keys[3], b"", StoreMode::Insert).unwrap(), Stored::Kept);
            hit_probes(&mut table, &keys);
        }
    }
    // A chained table is never full.
    let options = Options { collisions: Collisions::Chained(Order::Start), ..Options::default() };
    filled(options, &words(1)).store(b"more", b"", StoreMode::Insert).unwrap();
}

#[test]
fn brent_moves_entries_and_makes_hits_cheaper() {
    let keys = words(250);
    let good = |key: &[u8]| splitpoint::hash::fnv1a_64(key) as u32;
    let plain = Options { digest: good, ..Options::default() };
    let brent = Options { collisions: Collisions::Brent, ..plain };
    let (mut plain, mut brent) = (filled(plain, &keys), filled(brent, &keys));
    assert!(brent.counts().moves > 0 && plain.counts().moves == 0);
    let (without, with) = (hit_probes(&mut plain, &keys), hit_probes(&mut brent, &keys));
    // Knuth: about 2.5 probes in a full table, where double hashing takes log(n), here about 5.5.
    assert!(with * 100 < without * 80 && with < 250 * 5 / 2, "{with} of {without}");
}

/// Knuth's series, 1 + a/2 + a^3/4 + a^4/15 - ..., is 1.51 there, with uniform probing.
#[test]
fn brent_hits_cost_what_knuth_s_series_says_at_the_load_of_the_paper() {
    let good = |key: &[u8]| splitpoint::hash::fnv1a_64(key) as u32;
    let options = Options { collisions: Collisions::Brent, digest: good, ..Options::default() };
    let keys = words(24_474 / 2);
    let mut table = filled(options, &keys);
    assert_eq!(table.slot_count(), 1 << 14);
    let mean = hit_probes(&mut table, &keys) as f64 / keys.len() as f64;
    assert!((1.50..1.54).contains(&mean), "{mean}");
}

/// A rearrangement may not cost more than the first free slot, also where entries were deleted.
#[test]
fn brent_never_makes_hits_dearer_than_the_first_free_slot_would() {
    let good = |key: &[u8]| splitpoint::hash::fnv1a_64(key) as u32;
    let options = Options { collisions: Collisions::Brent, digest: good, ..Options::default() };
    let mut table = filled(options, &words(60));
    let mut keys = words(60);
    assert_eq!(table.slot_count(), 64);
    for number in 0..1000_u32 {
        let old = keys.remove(number as usize * 7 % keys.len());
        assert!(table.delete(&old).unwrap());
        let new = format!("new{number}").into_bytes();
        let (home, step) = probe_of(Hashing::Mult, good(&new), 6);
        let Table::Open(slots) = &table.table else { panic!("slots") };
        let path = (0..64).map(|probe| home.wrapping_add(probe * step) & 63);
        let plain = 1 + path.take_while(|&slot| !slots.is_free(slot)).count() as u64;
        let before = hit_probes(&mut table, &keys);
        assert_eq!(table.store(&new, &new, StoreMode::Insert).unwrap(), Stored::New);
        keys.push(new);
        let after = hit_probes(&mut table, &keys);
        assert!(after <= before + plain, "{number}: {before} + {plain} < {after}");
    }
    assert!(table.counts().moves > 100);
}

#[test]
fn sorted_chains_are_in_the_order_of_the_comparison() {
    let by_length = |one: &[u8], other: &[u8]| (one.len(), one).cmp(&(other.len(), other));
    for (macros, first, last) in [
        (&["CHAINED", "SORTUP"][..], "ab", "b"),
        (&["CHAINED", "SORTDOWN"], "b", "ab"),
        (&["CHAINED", "SORTUP", "USCR"], "b", "ab"),
    ] {
        let mut options = Options::of_macros(macros, Some(by_length)).unwrap();
        // All in one chain.
        options.digest = |_| 1;
        let mut table = Hsearch::new(options, 1);
        for key in ["b", "ab"] {
            table.store(key.as_bytes(), b"", StoreMode::Insert).unwrap();
        }
        let mut keys = Vec::new();
        let mut visit = |key: &[u8], _: &[u8]| {
            keys.push(String::from_utf8(key.to_vec()).unwrap());
            ControlFlow::Continue(())
        };
        table.walk(&mut visit).unwrap();
        assert_eq!(keys, [first, last], "{macros:?}");
    }
}

/// A comparison that ignores case finds a key whose digest differs, as long as the search comes by.
#[test]
fn the_comparison_of_the_user_decides_which_keys_are_equal() {
    let folded =
        |one: &[u8], other: &[u8]| one.to_ascii_lowercase().cmp(&other.to_ascii_lowercase());
    let mut options = Options::of_macros(&["USCR"], Some(folded)).unwrap();
    options.digest = |_| 1;
    let mut table = Hsearch::new(options, 4);
    table.store(b"Key", b"1", StoreMode::Insert).unwrap();
    assert_eq!(table.store(b"kEY", b"2", StoreMode::Insert).unwrap(), Stored::Kept);
    assert_eq!(table.fetch(b"KEY").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn deleted_slots_are_passed_and_used_again() {
    let same = Options { digest: |_| 1, ..Options::default() };
    let mut table = Hsearch::new(same, 3);
    for key in ["a", "b", "c"] {
        table.store(key.as_bytes(), b"", StoreMode::Insert).unwrap();
    }
    assert!(table.delete(b"a").unwrap());
    assert!(table.fetch(b"c").unwrap().is_some());
    assert!(table.store(b"d", b"", StoreMode::Insert).is_ok());
    assert_eq!((table.len(), table.slot_count()), (3, 4));
    assert!(table.store(b"e", b"", StoreMode::Insert).is_err());
}

#[test]
fn every_option_finds_what_a_map_finds() {
    let keys = words(300);
    for hashing in [Hashing::Mult, Hashing::Div] {
        for collisions in EVERY_COLLISIONS {
            let mut table = filled(Options { hashing, collisions, ..Options::default() }, &keys);
            let mut map: BTreeMap<&[u8], &[u8]> =
                keys.iter().map(|key| (&key[..], &key[..])).collect();
            for key in keys.iter().step_by(3) {
                assert!(table.delete(key).unwrap() && map.remove(&key[..]).is_some());
            }
            for key in keys.iter().step_by(6) {
                table.store(key, b"again", StoreMode::Replace).unwrap();
                map.insert(key, b"again");
            }
            assert_eq!(table.len(), map.len() as u64);
            for key in &keys {
                assert_eq!(table.fetch(key).unwrap().as_deref(), map.get(&key[..]).copied());
            }
        }
    }
}
