//! Btrees of Berkeley DB that are damaged or made to do harm: whatever is lost is told, and nothing
//! is returned many times over.

use std::path::PathBuf;

use splitpoint::{Table, TableExt as _};
use splitpoint_legacy::{OldFile, Survey, open};

use crate::support::fixtures;

const PAGE_BYTES: usize = 512;
const INTERNAL: u8 = 3;
const LEAF: u8 = 5;
const OVERFLOW: u8 = 7;
/// A leaf of values in the order in which they came, and one of sorted values.
const LEAF_RECNO: u8 = 6;
const LEAF_DUPLICATES: u8 = 12;
const HASH: u8 = 13;

fn put_u16(bytes: &mut [u8], at: usize, number: u16) {
    bytes[at..at + 2].copy_from_slice(&number.to_le_bytes());
}

fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// A file, page by page.
struct Image(Vec<u8>);

impl Image {
    /// A btree of little-endian numbers whose root is page 1.
    fn new(page_bytes: usize, last_page: u32) -> Self {
        let mut head = vec![0; page_bytes];
        let fields = [(12, 0x0005_3162), (16, 9), (20, page_bytes as u32), (32, last_page)];
        for (at, number) in fields.into_iter().chain([(48, 1), (76, 2), (88, 1)]) {
            put_u32(&mut head, at, number);
        }
        head[25] = 9;
        Self(head)
    }

    /// Adds a page, whose items begin at `starts`.
    fn page(&mut self, kind: u8, [previous, next]: [u32; 2], starts: &[usize], items: &[u8]) {
        let page_bytes = u16_at(&self.0, 20).max(PAGE_BYTES);
        let number = self.0.len() / page_bytes;
        let mut page = vec![0; page_bytes];
        page[page_bytes - items.len()..].copy_from_slice(items);
        put_u32(&mut page, 8, number as u32);
        put_u32(&mut page, 12, previous);
        put_u32(&mut page, 16, next);
        put_u16(&mut page, 20, starts.len() as u16);
        put_u16(&mut page, 22, starts.iter().min().copied().unwrap_or(page_bytes) as u16);
        (page[24], page[25]) = (if kind == INTERNAL { 2 } else { 1 }, kind);
        for (index, start) in starts.iter().enumerate() {
            put_u16(&mut page, 26 + 2 * index, *start as u16);
        }
        self.0.extend(page);
    }

    /// Adds a page with these items, one of which may be there several times.
    fn page_of(&mut self, kind: u8, links: [u32; 2], items: &[&[u8]]) {
        let mut bytes: Vec<u8> = Vec::new();
        let mut starts: Vec<usize> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let same = items[..index].iter().rposition(|other| std::ptr::eq(*other, *item));
            if let Some(same) = same {
                starts.push(starts[same]);
                continue;
            }
            let padding = item.len().next_multiple_of(4) - item.len();
            bytes.splice(0..0, item.iter().copied().chain(std::iter::repeat_n(0, padding)));
            starts.push(PAGE_BYTES - bytes.len());
        }
        self.page(kind, links, &starts, &bytes);
    }

    fn open(&self) -> (tempfile::TempDir, OldFile) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("made.db");
        std::fs::write(&path, &self.0).expect("the file is written");
        let file = open(&path).expect("its header is sound");
        (dir, file)
    }
}

fn item(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes(), &[1][..], bytes].concat()
}

/// An item of an internal page.
fn child(page: u32, least: &[u8]) -> Vec<u8> {
    let bytes = (least.len() as u16).to_le_bytes();
    [&bytes[..], &[1, 0], &page.to_le_bytes(), &[0; 4], least].concat()
}

/// An item on overflow pages.
fn far(page: u32, bytes: u32) -> Vec<u8> {
    [&[0, 0, 3, 0], &page.to_le_bytes()[..], &bytes.to_le_bytes()].concat()
}

/// A sample that is damaged again and again.
struct Victim {
    _dir: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Victim {
    fn new(name: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let bytes = std::fs::read(fixtures().join(name)).expect("the sample is there");
        Self { path: dir.path().join(name), _dir: dir, bytes }
    }

    /// Returns the places of the pages of these kinds.
    fn pages(&self, kinds: &[u8]) -> Vec<usize> {
        let starts = (PAGE_BYTES..self.bytes.len()).step_by(PAGE_BYTES);
        let found: Vec<_> =
            starts.filter(|start| kinds.contains(&self.bytes[start + 25])).collect();
        assert!(!found.is_empty(), "no page of {kinds:?}");
        found
    }

    fn with(&self, damage: impl FnOnce(&mut [u8])) -> OldFile {
        let mut bytes = self.bytes.clone();
        damage(&mut bytes);
        std::fs::write(&self.path, bytes).expect("the copy is written");
        open(&self.path).expect("its header is sound")
    }
}

fn survey(file: &OldFile) -> &Survey {
    file.survey().expect("a survey")
}

/// The place and the number of each value, or its fault.
fn values(file: &OldFile, key: &[u8]) -> Vec<(u64, Option<Vec<u8>>)> {
    let found = file.values().filter_map(Result::ok).filter(|one| *one.key == *key);
    found.map(|one| (one.number, one.value.ok().map(|value| value.to_vec()))).collect()
}

const SEVERAL: &str = "bdb53-btree-le-512-several.bdb53";
const WORDS: &str = "bdb53-btree-le-512-word.bdb53";

#[test]
fn an_item_that_is_not_on_its_page_is_told() {
    for name in [WORDS, SEVERAL] {
        let victim = Victim::new(name);
        for page in victim.pages(&[INTERNAL, LEAF, LEAF_RECNO]) {
            for start in [0, 27, 0xfff0] {
                let file = victim.with(|bytes| put_u16(bytes, page + 26, start));
                assert!(survey(&file).loss_count > 0, "{name}, page at {page}: {start}");
                assert!(file.values().any(|one| one.is_err() || one.unwrap().value.is_err()));
            }
        }
    }
}

/// A key that cannot be read any more is not denied.
#[test]
fn a_lookup_does_not_deny_a_key_whose_place_is_damaged() {
    let victim = Victim::new(WORDS);
    let page = victim.pages(&[LEAF])[0];
    let at = page + u16_at(&victim.bytes, page + 26);
    let key = victim.bytes[at + 3..at + 3 + u16_at(&victim.bytes, at)].to_vec();
    assert!(victim.with(|_| {}).get(&key).unwrap().is_some());
    let file = victim.with(|bytes| put_u16(bytes, page + 26, 0xfff0));
    assert!(file.get(&key).is_err());
}

#[test]
fn a_page_that_lists_fewer_items_than_it_has_is_told() {
    for name in [WORDS, SEVERAL, "bdb53-le-512-word.bdb53"] {
        let victim = Victim::new(name);
        for page in victim.pages(&[INTERNAL, LEAF, LEAF_RECNO, HASH]) {
            let items = u16_at(&victim.bytes, page + 20);
            let fewer = if victim.bytes[page + 25] == INTERNAL { 1 } else { 2 };
            if items < fewer {
                continue;
            }
            let file = victim.with(|bytes| put_u16(bytes, page + 20, (items - fewer) as u16));
            assert!(survey(&file).loss_count > 0, "{name}, page at {page}");
        }
    }
}

/// Removes an item of an internal page as the original would, but not the leaf.
#[test]
fn a_leaf_that_only_its_neighbour_names_is_told() {
    let victim = Victim::new(WORDS);
    let page = *victim.pages(&[INTERNAL]).last().unwrap();
    let items = u16_at(&victim.bytes, page + 20);
    for removed in 0..items {
        let file = victim.with(|bytes| {
            let offsets = page + 26..page + 26 + 2 * items;
            bytes.copy_within(
                offsets.start + 2 * (removed + 1)..offsets.end,
                offsets.start + 2 * removed,
            );
            put_u16(bytes, page + 20, items as u16 - 1);
            let starts = (0..items - 1).map(|index| u16_at(bytes, page + 26 + 2 * index));
            let lowest = starts.min().unwrap_or(PAGE_BYTES) as u16;
            put_u16(bytes, page + 22, lowest);
        });
        assert!(survey(&file).loss_count > 0, "item {removed}");
        let what: Vec<_> = survey(&file).doubts.iter().map(ToString::to_string).collect();
        assert!(what.iter().any(|what| what.contains("leaf")), "{what:?}");
    }
}

#[test]
fn a_chain_of_values_that_ends_early_or_is_a_loop_is_told() {
    let victim = Victim::new(SEVERAL);
    let pages = victim.pages(&[LEAF_RECNO]);
    for page in &pages {
        for next in [0, page / PAGE_BYTES] {
            let is_end = victim.bytes[page + 16..page + 20] == [0; 4];
            let file = victim.with(|bytes| put_u32(bytes, page + 16, next as u32));
            let is_told = survey(&file).loss_count > 0;
            assert_eq!(is_told, next != 0 || !is_end, "page at {page}: next {next}");
            let survey = survey(&file);
            let value_count = survey.pair_count + survey.further_value_count;
            assert!(value_count <= 376, "page at {page}: {value_count} values");
        }
    }
}

#[test]
fn an_unreadable_value_does_not_take_its_neighbours_along() {
    for bad in 0..5_usize {
        let mut image = Image::new(PAGE_BYTES, 2);
        let key = item(b"k");
        let mut found: Vec<Vec<u8>> = (0..5).map(|n| item(format!("v{n}").as_bytes())).collect();
        // Its overflow page has fewer bytes.
        found[bad] = far(2, 999);
        let mut items: Vec<&[u8]> = found.iter().flat_map(|value| [&key[..], value]).collect();
        let other = [item(b"z"), item(b"zz")];
        items.extend(other.iter().map(Vec::as_slice));
        image.page_of(LEAF, [0, 0], &items);
        image.page(OVERFLOW, [0, 0], &[], &[]);
        put_u16(&mut image.0, 2 * PAGE_BYTES + 22, 10);
        let (_dir, file) = image.open();
        let expected =
            (0..5).map(|n| (n as u64 + 1, (n != bad).then(|| format!("v{n}").into_bytes())));
        assert_eq!(values(&file, b"k"), expected.collect::<Vec<_>>());
        assert_eq!(file.get(b"k").is_err(), bad == 0);
        assert_eq!(file.get(b"z").unwrap().as_deref(), Some(&b"zz"[..]));
        let survey = survey(&file);
        assert_eq!((survey.doubt_count, survey.loss_count), (1, 1), "{:?}", survey.doubts);
        assert_eq!(survey.pair_count, if bad == 0 { 1 } else { 2 });
        assert_eq!(survey.pair_count + survey.further_value_count, 5);
        assert_eq!(survey.several_values_count, 1);
    }
}

#[test]
fn an_unreadable_value_of_a_tree_does_not_take_its_neighbours_along() {
    let victim = Victim::new(SEVERAL);
    for page in victim.pages(&[LEAF_RECNO]) {
        for index in [0, 1, u16_at(&victim.bytes, page + 20) - 1] {
            let at = page + u16_at(&victim.bytes, page + 26 + 2 * index);
            let file = victim.with(|bytes| bytes[at + 2] = 9);
            assert_eq!(survey(&file).loss_count, 1, "page at {page}: {index}");
            let readable = file.values().filter(|one| one.as_ref().unwrap().value.is_ok());
            assert_eq!(readable.count(), 375, "page at {page}: {index}");
        }
    }
}

/// The values of a salvage are those that are readable, each with its place.
#[test]
fn a_salvage_gives_every_value() {
    let victim = Victim::new(SEVERAL);
    let file = victim.with(|_| {});
    let mut saved = Vec::new();
    let faults = file.salvage(|one, is_doubtful| {
        assert!(!is_doubtful);
        saved.push((one.key.to_vec(), one.number, one.value?.to_vec()));
        Ok(())
    });
    assert!(faults.unwrap().is_empty());
    let expected = file.values().map(|one| {
        let one = one.unwrap();
        (one.key.to_vec(), one.number, one.value.unwrap().to_vec())
    });
    assert!(saved == expected.collect::<Vec<_>>());
    assert_eq!(saved.len(), 376);
    // Nothing leads to the leaves any more.
    let file = victim.with(|bytes| {
        let root = u16_at(bytes, 88) * PAGE_BYTES;
        bytes[root + 25] = 0;
    });
    let mut doubtful = 0;
    file.salvage(|one, is_doubtful| {
        doubtful += usize::from(is_doubtful && one.value.is_ok());
        Ok(())
    })
    .unwrap();
    assert_eq!(doubtful, 376);
}

/// Items that name the same bytes again and again are told, and returned once.
#[test]
fn items_that_overlap_are_not_multiplied() {
    const PAGE_BYTES: usize = 1 << 16;
    const ITEMS: usize = 16_000;
    let at = 26 + 2 * ITEMS;
    let room = PAGE_BYTES - at;
    let mut image = Image::new(PAGE_BYTES, 1);
    let mut bytes = vec![0; room];
    put_u16(&mut bytes, 0, (room - 3) as u16);
    bytes[2] = 1;
    put_u32(&mut image.0, 20, PAGE_BYTES as u32);
    let page_with = |kind: u8, bytes: &[u8]| {
        let mut page = vec![0; PAGE_BYTES];
        page[at..].copy_from_slice(bytes);
        put_u32(&mut page, 8, 1);
        put_u16(&mut page, 20, ITEMS as u16);
        put_u16(&mut page, 22, at as u16);
        page[25] = kind;
        (0..ITEMS).for_each(|index| put_u16(&mut page, 26 + 2 * index, at as u16));
        page
    };
    let leaf = Image([&image.0[..], &page_with(LEAF, &bytes)].concat());
    let (_dir, file) = leaf.open();
    let returned: usize =
        file.values().flatten().map(|one| one.value.map_or(0, |value| value.len())).sum();
    assert!(returned <= PAGE_BYTES, "{returned}");
    assert!(survey(&file).loss_count > 0);
    put_u16(&mut bytes, 0, (room - 12) as u16);
    put_u32(&mut bytes, 4, 0x7fff_ffff);
    let internal = Image([&image.0[..], &page_with(INTERNAL, &bytes)].concat());
    let (_dir, file) = internal.open();
    assert!(survey(&file).loss_count > 0);
    let parameters = file.parameters();
    let leaves = parameters.iter().find(|parameter| parameter.name == "leaves").unwrap();
    assert!(leaves.value.parse::<usize>().unwrap() <= 2, "{}", leaves.value);
}

/// The first values of trees are longer than the page with their keys.
#[test]
fn values_of_trees_take_no_room_on_the_page_of_their_keys() {
    const KEYS: u32 = 8;
    let mut image = Image::new(PAGE_BYTES, 1 + KEYS);
    let pairs: Vec<[Vec<u8>; 2]> = (0..KEYS)
        .map(|key| {
            let tree = [&[0, 0, 2, 0], &(2 + key).to_le_bytes()[..], &[0; 4]].concat();
            [item(&[b'a' + key as u8]), tree]
        })
        .collect();
    let items: Vec<&[u8]> = pairs.iter().flatten().map(Vec::as_slice).collect();
    image.page_of(LEAF, [0, 0], &items);
    for _ in 0..KEYS {
        image.page_of(LEAF_DUPLICATES, [0, 0], &[&item(&[b'v'; 100]), &item(&[b'w'; 100])]);
    }
    let (_dir, file) = image.open();
    assert_eq!(survey(&file).doubts, []);
    assert_eq!(file.values().filter(|one| one.as_ref().unwrap().value.is_ok()).count(), 16);
}

/// Little-endian numbers, which Berkeley DB sorts by a function of the program: no key of such a
/// file is out of place.
#[test]
fn keys_in_an_order_of_their_own_are_sound() {
    let mut image = Image::new(PAGE_BYTES, 3);
    let number = |number: u32| number.to_le_bytes();
    let (first, second) = (child(2, b""), child(3, &number(260)));
    image.page_of(INTERNAL, [0, 0], &[&first, &second]);
    for (keys, links) in [(250..260, [0, 3]), (260..270, [2, 0])] {
        let items: Vec<Vec<u8>> =
            keys.flat_map(|key| [item(&number(key)), item(b"value")]).collect();
        let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
        image.page_of(LEAF, links, &items);
    }
    let (_dir, file) = image.open();
    assert_eq!(survey(&file).doubts, []);
    assert_eq!(file.len().unwrap(), 20);
    for key in 250..270 {
        assert_eq!(file.get(number(key)).unwrap().as_deref(), Some(&b"value"[..]), "{key}");
    }
    assert!(file.get(number(7)).unwrap().is_none());
    let order = file.parameters().into_iter().find(|one| one.name == "order").unwrap();
    assert_eq!(order.value, "another");
}
