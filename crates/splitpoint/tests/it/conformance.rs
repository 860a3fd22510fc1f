//! Tests that every access method must pass.
//!
//! Other crates include this file with their own `support`: the tables of `on_every_table`, the
//! files of `on_every_file`, the options that `tiny` and `usual` begin with, and whether deletes
//! merge buckets.

use splitpoint::hash::{HashFunction, HashId};
use splitpoint::{Batch, BatchAtomicity, Change, Durability, ErrorKind, Table, TableExt};

use super::support::{Content, IS_MERGED, Rng, on_every_file, on_every_table, seed, tiny, usual};

fn get(table: &dyn Table, key: &[u8]) -> Option<Vec<u8>> {
    table.get(key).unwrap().map(splitpoint::Value::into_vec)
}

fn put(table: &dyn Table, key: &[u8], value: &[u8]) {
    table.put(key, value).unwrap();
}

fn scan(table: &dyn Table) -> Content {
    let mut content = Content::new();
    for entry in table.scan().unwrap() {
        let entry = entry.unwrap();
        assert!(content.insert(entry.key.to_vec(), entry.value.to_vec()).is_none());
    }
    content
}

#[test]
fn a_new_table_is_empty() {
    on_every_table(&tiny(), |table| {
        assert!(table.is_empty().unwrap());
        assert_eq!(table.len().unwrap(), 0);
        assert_eq!(get(table, b"key"), None);
        assert!(!table.delete(b"key").unwrap());
        assert_eq!(scan(table), Content::new());
        assert_eq!(table.get_many([""; 0]).unwrap().len(), 0);
        assert_eq!(table.stats().unwrap().record_count, 0);
        table.sync().unwrap();
        assert!(table.is_empty().unwrap());
    });
}

#[test]
fn put_replaces_and_put_new_refuses() {
    on_every_table(&tiny(), |table| {
        put(table, b"key", b"first");
        assert!(!table.put_new(b"key", b"second").unwrap());
        assert_eq!(get(table, b"key").unwrap(), b"first");
        put(table, b"key", b"the third is longer");
        assert_eq!(get(table, b"key").unwrap(), b"the third is longer");
        assert_eq!(table.len().unwrap(), 1);
        assert!(table.put_new(b"other", b"").unwrap());
        assert_eq!(table.len().unwrap(), 2);
    });
}

#[test]
fn delete_removes_just_its_key() {
    on_every_table(&tiny(), |table| {
        put(table, b"a", b"1");
        put(table, b"b", b"2");
        assert!(table.delete(b"a").unwrap());
        assert!(!table.delete(b"a").unwrap());
        assert_eq!(get(table, b"a"), None);
        assert_eq!(get(table, b"b").unwrap(), b"2");
        assert!(table.put_new(b"a", b"3").unwrap());
        assert_eq!(get(table, b"a").unwrap(), b"3");
        assert_eq!(table.len().unwrap(), 2);
    });
}

#[test]
fn keys_and_values_are_any_bytes_and_may_be_empty() {
    on_every_table(&tiny(), |table| {
        let keys: [&[u8]; 8] =
            [b"", b"\0", b"\0\0", b"a", b"a\0", b"\0a", b"\xff\xfe\n\r", &[0x80; 300]];
        for (i, key) in keys.iter().enumerate() {
            let value = vec![0; i];
            assert!(table.put_new(key, &value).unwrap(), "{key:?}");
        }
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(get(table, key).unwrap(), vec![0; i], "{key:?}");
        }
        assert_eq!(scan(table).len(), keys.len());
        for key in keys {
            assert!(table.delete(key).unwrap(), "{key:?}");
        }
        assert!(table.is_empty().unwrap());
    });
}

fn index_key(i: usize) -> [u8; 8] {
    (i as u64).to_le_bytes()
}

/// The borders of the record header's fields, of a record that gets a segment of its own, and of
/// the segments themselves. Each length is stored, read, replaced by the next and deleted.
#[test]
fn every_length_around_a_border_of_the_format_is_stored_whole() {
    let mut rng = Rng::new(seed());
    let near = |at: usize| [at - 1, at, at + 1];
    let borders = [8, 255, 1024, 4096 - 88, 4096, 16 << 10, 65_535, 128 << 10];
    let lens: Vec<usize> = borders.into_iter().flat_map(near).collect();
    let data = rng.bytes(200 << 10);
    on_every_table(&tiny(), |table| {
        for (i, &len) in lens.iter().enumerate() {
            put(table, &data[..len], &data[i..i + len]);
            put(table, &index_key(i), &data[len..2 * len.min(90_000)]);
        }
        for (i, &len) in lens.iter().enumerate() {
            assert_eq!(get(table, &data[..len]).unwrap(), &data[i..i + len], "{len}");
            assert_eq!(get(table, &index_key(i)).unwrap(), &data[len..2 * len.min(90_000)]);
        }
        for (i, &len) in lens.iter().enumerate() {
            let other = lens[(i + 7) % lens.len()];
            put(table, &data[..len], &data[..other]);
            assert_eq!(get(table, &data[..len]).unwrap(), &data[..other], "{len} {other}");
        }
        assert_eq!(scan(table).len(), 2 * lens.len());
        for &len in &lens {
            assert!(table.delete(&data[..len]).unwrap(), "{len}");
        }
        assert_eq!(table.len().unwrap(), lens.len() as u64);
    });
}

#[test]
fn big_records_are_read_as_one_slice() {
    let mut rng = Rng::new(seed());
    let data = rng.bytes(3 << 20);
    for options in [tiny(), usual()] {
        on_every_table(&options, |table| {
            let sizes = [4 << 10, 5000, 64 << 10, 1 << 20, (2 << 20) + 1, 3 << 20];
            for (i, &len) in sizes.iter().enumerate() {
                put(table, &[i as u8], &data[..len]);
                put(table, &data[..len], &[i as u8]);
            }
            for (i, &len) in sizes.iter().enumerate() {
                assert_eq!(get(table, &[i as u8]).unwrap(), &data[..len]);
                assert_eq!(get(table, &data[..len]).unwrap(), [i as u8]);
                assert!(table.delete(&data[..len]).unwrap());
            }
            assert_eq!(scan(table).len(), sizes.len());
        });
    }
}

/// An untouched zeroed vector is only address space, so the length must be refused before the bytes
/// are read.
#[test]
fn keys_and_values_over_the_limit_are_refused_before_anything_is_written() {
    let long = vec![0_u8; 1 << 32];
    on_every_table(&tiny(), |table| {
        put(table, b"key", b"value");
        let log_bytes = table.stats().unwrap().log_bytes;
        let bytes_max = table.capabilities().key_bytes_max.to_string();
        for (key, value, what) in [(&b"key"[..], &long[..], "value"), (&long, b"", "key")] {
            let error = table.put(key, value).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            let text = error.to_string();
            assert!(text.starts_with(what) && text.contains(&bytes_max), "{text}");
        }
        assert_eq!(get(table, b"key").unwrap(), b"value");
        assert_eq!(table.stats().unwrap().log_bytes, log_bytes);
        assert_eq!(table.get(&long[..1 << 20]).unwrap(), None);
    });
}

#[test]
fn get_many_answers_in_the_order_of_the_keys() {
    on_every_table(&tiny(), |table| {
        for i in 0..500_u32 {
            put(table, &i.to_le_bytes(), &(!i).to_le_bytes());
        }
        let keys: Vec<[u8; 4]> = (0..1000_u32).rev().map(u32::to_le_bytes).collect();
        let mut keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        keys.push(keys[999]);
        for count in [0, 1, 31, 32, 33, 64, 1001] {
            let values = table.get_many(&keys[..count]).unwrap();
            assert_eq!(values.len(), count);
            for (key, value) in keys.iter().zip(values) {
                assert_eq!(value.map(splitpoint::Value::into_vec), get(table, key));
            }
        }
    });
}

#[test]
fn put_many_stores_every_pair_and_the_last_of_a_key_wins() {
    on_every_table(&tiny(), |table| {
        table.put_many([("", ""); 0]).unwrap();
        table.put_many((0..100_u8).map(|i| ([i], format!("first {i}")))).unwrap();
        let three = [("one", "1"), ("two", "2"), ("one", "3")];
        table.put_many_with(three, Durability::Sync).unwrap();
        let pairs: Vec<(Vec<u8>, Vec<u8>)> =
            (50..150_u8).map(|i| (vec![i], vec![i; usize::from(i)])).collect();
        table.put_many(&pairs).unwrap();
        assert_eq!(table.len().unwrap(), 152);
        assert_eq!(table.get("one").unwrap().unwrap(), "3");
        assert_eq!(table.get([49]).unwrap().unwrap(), "first 49");
        assert_eq!(table.get([149]).unwrap().unwrap(), [149; 149]);
    });
}

/// The lengths are around that of the chunks in which a store takes them.
#[test]
fn put_many_stores_the_pairs_before_the_one_that_fails() {
    let long = vec![0_u8; 1 << 32];
    for durability in [None, Some(Durability::Buffered), Some(Durability::Sync)] {
        on_every_table(&tiny(), |table| {
            for refused in [0, 1, 31, 32, 33] {
                let value = |i| if i == refused { &long[..] } else { b"value" };
                let pairs = (0..40_u8).map(|i| ([refused, i], value(i)));
                let stored = match durability {
                    None => table.put_many(pairs),
                    Some(level) => table.put_many_with(pairs, level),
                };
                assert_eq!(stored.unwrap_err().kind(), ErrorKind::TooLarge);
                for i in 0..40 {
                    assert_eq!(table.contains([refused, i]).unwrap(), i < refused);
                }
            }
        });
    }
}

#[test]
fn every_change_takes_every_level_of_durability() {
    let levels = [Durability::Buffered, Durability::Async, Durability::Sync];
    on_every_table(&tiny(), |table| {
        for level in levels {
            table.put_with("key", "first", level).unwrap();
            assert!(!table.put_new_with("key", "second", level).unwrap());
            assert!(table.put_new_with("other", "second", level).unwrap());
            assert_eq!(table.get("key").unwrap().unwrap(), "first");
            assert!(table.delete_with("other", level).unwrap());
            assert!(!table.delete_with("other", level).unwrap());
            table.apply_with(&Batch::new().delete("key").put("new", "third"), level).unwrap();
            assert_eq!(scan(table), Content::from([(b"new".to_vec(), b"third".to_vec())]));
        }
    });
}

/// A value over the limit fails, after changes that succeed.
#[test]
fn a_batch_that_fails_makes_all_its_changes_or_those_before() {
    let long = vec![0_u8; 1 << 32];
    on_every_table(&tiny(), |table| {
        put(table, b"old", b"1");
        let changes = [
            Change::Put { key: b"new", value: b"2" },
            Change::Delete { key: b"old" },
            Change::Put { key: b"long", value: &long },
            Change::Put { key: b"never", value: b"3" },
        ];
        assert_eq!(table.apply(&changes).unwrap_err().kind(), ErrorKind::TooLarge);
        let expected: (&[u8], &[u8]) = match table.capabilities().batch {
            BatchAtomicity::Atomic => (b"old", b"1"),
            BatchAtomicity::None => (b"new", b"2"),
        };
        assert_eq!(scan(table), Content::from([(expected.0.to_vec(), expected.1.to_vec())]));
    });
}

#[test]
fn keys_and_values_are_taken_in_every_form() {
    on_every_table(&tiny(), |table| {
        table.put("str", String::from("a string")).unwrap();
        table.put(vec![1, 2], [3; 4]).unwrap();
        let value = table.get("str").unwrap().unwrap().into_vec();
        assert!(table.put_new(&value, &value[..1]).unwrap());
        assert!(table.contains("a string").unwrap() && !table.contains("a").unwrap());
        let mut copy = b"what was there".to_vec();
        assert!(table.get_into([1, 2], &mut copy).unwrap());
        assert_eq!(copy, [3; 4]);
        assert!(!table.get_into("nothing", &mut copy).unwrap());
        assert_eq!(copy, [3; 4]);
        let values = table.get_many((0..3_u8).map(|i| [i + 1, i + 2])).unwrap();
        assert_eq!(values[0].as_ref().unwrap(), &[3; 4]);
        assert_eq!(values[1..], [None, None]);
    });
}

#[test]
fn a_check_of_a_sound_table_is_clean_and_counts_its_records() {
    on_every_table(&tiny(), |table| {
        assert!(table.check().unwrap().is_clean());
        table.put_many((0..500_u32).map(|i| (i.to_le_bytes(), [7; 90]))).unwrap();
        let check = table.check().unwrap();
        assert!(check.is_clean() && check.damages.is_empty(), "{check:?}");
        assert_eq!(check.record_count, 500);
    });
}

#[test]
fn a_table_that_is_closed_is_found_as_it_was() {
    on_every_file(&tiny(), |open| {
        let table = open();
        table.put_many((0..500_u32).map(|i| (i.to_le_bytes(), (!i).to_le_bytes()))).unwrap();
        let content = scan(&*table);
        assert!(table.close().unwrap());
        let table = open();
        assert_eq!((scan(&*table), table.check().unwrap().damage_count), (content, 0));
        assert!(table.delete(7_u32.to_le_bytes()).unwrap());
        drop(table);
        assert_eq!(open().len().unwrap(), 499);
    });
}

#[test]
fn apply_makes_its_changes_in_order() {
    on_every_table(&tiny(), |table| {
        table
            .apply(&[
                Change::Put { key: b"a", value: b"1" },
                Change::Put { key: b"b", value: b"2" },
                Change::Delete { key: b"a" },
                Change::Delete { key: b"missing" },
                Change::Put { key: b"b", value: b"3" },
            ])
            .unwrap();
        table.apply(&Batch::new()).unwrap();
        assert_eq!(scan(table), Content::from([(b"b".to_vec(), b"3".to_vec())]));
    });
}

#[test]
fn a_scan_returns_each_key_once_with_its_last_value() {
    on_every_table(&tiny().fill_factor(1.0), |table| {
        let mut expected = Content::new();
        for round in 0..3_u32 {
            for i in (0..1000_u32).step_by(round as usize + 1) {
                let value = format!("{i} in round {round}").into_bytes();
                put(table, &i.to_le_bytes(), &value);
                expected.insert(i.to_le_bytes().to_vec(), value);
            }
        }
        for i in (0..1000_u32).step_by(7) {
            assert!(table.delete(&i.to_le_bytes()).unwrap());
            expected.remove(&i.to_le_bytes()[..]);
        }
        assert_eq!(scan(table), expected);
        assert_eq!(table.len().unwrap(), expected.len() as u64);
    });
}

#[test]
fn a_scan_shows_the_table_as_it_was_when_it_began() {
    on_every_table(&tiny(), |table| {
        for i in 0..200_u32 {
            put(table, &i.to_le_bytes(), b"old");
        }
        let mut entries = table.scan().unwrap();
        let first = entries.next().unwrap().unwrap();
        assert_eq!(&*first.value, b"old");
        for i in 0..400_u32 {
            put(table, &i.to_le_bytes(), &[b'n'; 2000]);
        }
        let mut count = 1;
        for entry in entries {
            assert_eq!(&*entry.unwrap().value, b"old");
            count += 1;
        }
        assert_eq!(count, 200);
        assert!(scan(table).values().all(|value| value == &[b'n'; 2000]));
    });
}

#[test]
fn deleting_what_a_scan_returns_deletes_everything() {
    on_every_table(&tiny().fill_factor(1.0), |table| {
        for i in 0..2000_u32 {
            put(table, &i.to_le_bytes(), b"value");
        }
        let grown = table.stats().unwrap().geometry.bucket_count();
        for entry in table.scan().unwrap() {
            assert!(table.delete(&entry.unwrap().key).unwrap());
        }
        assert!(table.is_empty().unwrap());
        assert_eq!(scan(table), Content::new());
        assert_eq!(table.stats().unwrap().geometry.bucket_count() < grown, IS_MERGED);
    });
}

/// All keys have the same hash: a single chain that no split divides. It must cost time and nothing
/// else, from the first overflow line to the last one freed.
#[test]
fn a_hash_function_of_one_value_costs_only_time() {
    let constant = HashFunction::user(HashId(0x8000_0009), "constant", |_, _| 5).unwrap();
    on_every_table(&tiny().hash(constant), |table| {
        for i in 0..1500_u32 {
            put(table, &i.to_le_bytes(), &i.to_le_bytes());
        }
        let stats = table.stats().unwrap();
        assert_eq!((stats.record_count, stats.chains.longest), (1500, 1500));
        assert!(stats.geometry.bucket_count() < 3000);
        for i in 0..1500_u32 {
            assert_eq!(get(table, &i.to_le_bytes()).unwrap(), i.to_le_bytes());
            assert_eq!(get(table, &(i + 1500).to_le_bytes()), None);
        }
        assert_eq!(scan(table).len(), 1500);
        for i in (0..1500_u32).rev() {
            assert!(table.delete(&i.to_le_bytes()).unwrap());
        }
        assert!(table.is_empty().unwrap());
    });
}

#[test]
fn stats_add_up() {
    on_every_table(&tiny().fill_factor(3.0), |table| {
        for i in 0..3000_u32 {
            put(table, &i.to_le_bytes(), &(!i).to_le_bytes());
        }
        for i in 0..100_u32 {
            put(table, &i.to_le_bytes(), b"again");
            table.delete(&(i + 500).to_le_bytes()).unwrap();
        }
        let stats = table.stats().unwrap();
        assert_eq!(stats.record_count, 2900);
        let rows = &stats.chains.rows;
        let buckets = stats.geometry.bucket_count();
        assert_eq!(rows.iter().map(|row| row.bucket_count).sum::<u64>(), buckets);
        assert_eq!(rows.iter().map(|row| row.item_count).sum::<u64>(), 2900);
        assert!((500..1100).contains(&buckets), "{buckets} buckets for 2,900 keys at 3 each");
    });
}

#[test]
fn capabilities_tell_memory_from_files() {
    on_every_table(&tiny(), |table| {
        let capabilities = table.capabilities();
        assert!(!capabilities.is_read_only && !capabilities.may_lose_acknowledged);
        assert!(capabilities.key_bytes_max >= i32::MAX as u64);
        let is_in_memory = table.stats().unwrap().path.is_none();
        assert_eq!(capabilities.durability.is_empty(), is_in_memory);
    });
}
