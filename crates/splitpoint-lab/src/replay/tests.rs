use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

/// The trace of the specification, small enough to be counted by hand.
const TRACE: &str = "\
# kernel cache trace 1
# dev 1 ext4 4096
# dev 2 ext2 1024
L 1 2 11 usr
L 1 11 12 bin
L 1 12 13 cc x3
L 1 2 0 lib64
L 1 2 14 srv
L 1 14 0 a.c
C 1 14 15 a.c
W 1 15 0 2
L 1 14 15 a.c
R 1 14 15 a.c 1 14 b.c
L 1 14 0 a.c
L 1 14 15 b.c
U 1 14 15 b.c
E 1 15
L 1 14 0 b.c
G 1 13 0 4 x2
A 1 13 4 4
X 1 13 0 2
F 1 13 4 1
B 2 1024 8195
D 2 1024 8195 x2
D 2 1024 9000
L 1 99 98 x
";

fn streams(text: &str, shrink: Shrink) -> Result<Streams, TraceError> {
    Streams::read(Trace::new(text.as_bytes())?, shrink, |_| {})
}

/// Lookups, hits, misses, insertions without lookup, removals, objects at the end and at the peak.
#[track_caller]
fn check(counts: StreamCounts, expected: [u64; 7]) {
    let found = [
        counts.lookup_count,
        counts.hit_count,
        counts.miss_count,
        counts.insert_count,
        counts.remove_count,
        counts.object_count,
        counts.object_count_max,
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_small_trace_does_to_the_tables_what_was_counted_by_hand() {
    let found = streams(TRACE, Shrink::None).unwrap();
    check(found.dentry.counts(), [13, 5, 8, 1, 1, 8, 8]);
    check(found.inode.counts(), [5, 0, 5, 1, 1, 5, 5]);
    check(found.page.counts(), [11, 5, 6, 4, 2, 8, 10]);
    check(found.buffer.counts(), [3, 1, 2, 0, 0, 2, 2]);
    assert_eq!((found.root_count, found.stale_count), (2, 0));
}

#[test]
fn a_cache_that_is_shrunk_evicts_what_was_counted_by_hand() {
    let found = streams(TRACE, Shrink::Lru(3)).unwrap();
    check(found.dentry.counts(), [13, 5, 8, 1, 6, 3, 4]);
    let found = streams(TRACE, Shrink::All(4)).unwrap();
    check(found.dentry.counts(), [13, 4, 9, 0, 9, 0, 3]);
    check(found.inode.counts(), [6, 1, 5, 1, 1, 5, 5]);
    let found = streams(TRACE, Shrink::Half(4)).unwrap();
    check(found.dentry.counts(), [13, 5, 8, 1, 4, 5, 7]);
}

#[test]
fn a_directory_moved_into_itself_is_refused_with_its_line() {
    let text = "# kernel cache trace 1\nL 1 2 11 a\nL 1 11 12 b\nR 1 2 11 a 1 12 c\n";
    let error = streams(text, Shrink::None).unwrap_err();
    assert_eq!(error.to_string(), "line 4: a directory is moved into itself");
}

#[test]
fn a_rename_onto_itself_changes_nothing() {
    let text = "# kernel cache trace 1\nL 1 2 11 a\nR 1 2 11 a 1 2 a\nL 1 2 11 a\n";
    check(streams(text, Shrink::None).unwrap().dentry.counts(), [2, 1, 1, 0, 0, 1, 1]);
}

#[test]
fn a_trace_of_endless_pages_is_refused() {
    let pages = Event::Pages {
        usage: PageUse::Lookup,
        owner: InodeNumber { device: 1, number: 13 },
        first: 0,
        count: 64,
    };
    let mut following = Following::new(Shrink::None, 1000);
    for _ in 0..15 {
        following.follow(&pages, 1).unwrap();
    }
    assert_eq!(following.follow(&pages, 1).unwrap_err(), "the trace has more than 1000 steps");
}

#[test]
fn a_trace_of_endless_names_is_refused() {
    let mut following = Following::new(Shrink::None, 1000);
    following.name_bytes_max = 1000;
    let mut look_up = |number: u8| {
        let directory = InodeNumber { device: 1, number: 2 };
        let name = vec![b'a' + number; 255];
        following.follow(&Event::Lookup(trace::Entry { directory, name }, None), 1)
    };
    for number in 0..3 {
        look_up(number).unwrap();
    }
    // A name that was there takes no more.
    look_up(0).unwrap();
    assert_eq!(look_up(4).unwrap_err(), "the trace has more than 1000 bytes of names");
}

/// A file is no directory, but a trace that lost events may look so.
#[test]
fn a_directory_under_a_file_is_a_directory() {
    let text = "# kernel cache trace 1\nL 1 2 11 file\nL 1 11 12 in\nL 1 11 12 in\n";
    check(streams(text, Shrink::None).unwrap().dentry.counts(), [3, 1, 2, 0, 0, 2, 2]);
}

/// Two directories that were one dentry each, then the same one.
#[test]
fn a_rename_between_two_names_of_one_directory_changes_nothing() {
    let text = "# kernel cache trace 1\nL 1 2 11 d\nL 1 11 0 a\nL 1 2 12 d\nL 1 12 0 a\n\
                R 1 11 5 a 1 12 a\nL 1 12 0 a\n";
    let counts = streams(text, Shrink::None).unwrap().dentry.counts();
    assert_eq!((counts.object_count, counts.hit_count), (2, 3));
}

/// Keys are put together from addresses and fields here anew, and hashed by the formulas.
#[test]
fn the_buckets_of_2_2_5_are_those_of_its_formulas() {
    let streams = streams(TRACE, Shrink::None).unwrap();
    let buckets = |table: KernelTable| {
        let era = Era::by_name("2.2.5").unwrap();
        let of_era = era.tables.iter().find(|it| it.table == table).unwrap();
        let function = crate::Specimen::by_name(of_era.function).unwrap();
        let bucket_count = of_era.rule.bucket_count(table, era.memory_bytes);
        let setup = TableSetup::new(table, function, bucket_count, era.layouts).unwrap();
        setup.buckets(&streams, 1).unwrap()
    };
    let parents = ObjectLayout::Dentry22.addresses(10, 1).unwrap();
    let dentry = streams.dentry.keys().iter().map(|key| {
        let name = &streams.names[key.name as usize];
        let name = name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(4) ^ u32::from(byte));
        let hash = name.wrapping_add(parents[key.parent_slot as usize] as u32);
        (hash ^ hash >> 10 ^ hash >> 20) & 1023
    });
    assert_eq!(buckets(KernelTable::Dentry), dentry.collect::<Vec<_>>());
    let superblock = ObjectLayout::Superblock22.addresses(1, 1).unwrap()[0] as u32;
    let inode = streams.inode.keys().iter().map(|key| {
        let hash = key.number as u32 | superblock;
        hash.wrapping_add(hash >> 8).wrapping_add(hash >> 16) & 255
    });
    assert_eq!(buckets(KernelTable::Inode), inode.collect::<Vec<_>>());
    let owners = ObjectLayout::Inode22.addresses(2, 1).unwrap();
    let page = streams.page.keys().iter().map(|key| {
        let hash = (owners[key.owner as usize] as u32 / 16).wrapping_add(key.index as u32);
        hash.wrapping_add(hash >> 11) & 2047
    });
    assert_eq!(buckets(KernelTable::Page), page.collect::<Vec<_>>());
    let buffer = streams.buffer.keys().iter().map(|key| (0x802 ^ key.block as u32) & 32_767);
    assert_eq!(buckets(KernelTable::Buffer), buffer.collect::<Vec<_>>());
}

/// A few lines of the events that change the dentry cache, on few names and inodes, so that they meet.
fn random_trace(events: &[(u8, u64, u64, u8, u64, u8)]) -> String {
    let mut text = format!("{}\n", trace::FIRST_LINE);
    for &(kind, directory, inode, name, other_directory, other_name) in events {
        let _ = match kind {
            0..=4 => writeln!(text, "L 1 {directory} {inode} n{name} x{}", name % 3 + 1),
            5 => writeln!(text, "C 1 {directory} {} n{name}", inode + 1),
            6 => writeln!(text, "U 1 {directory} {inode} n{name}"),
            7 => {
                writeln!(text, "R 1 {directory} {inode} n{name} 1 {other_directory} n{other_name}")
            }
            _ => writeln!(text, "E 1 {}", inode + 1),
        };
    }
    text
}

/// Returns the error of a trace that is impossible, or follows its dentries through a table.
fn follow_dentries(text: &str, shrink: Shrink) -> Result<StreamCounts, TraceError> {
    let streams = streams(text, shrink)?;
    let (counts, steps) = (streams.counts(KernelTable::Dentry), streams.steps(KernelTable::Dentry));
    let buckets = ideal_buckets(streams.dentry.keys().len(), 3, 1);
    let mut chains = Chains::new(3, buckets.len());
    chains.follow(steps, &buckets);
    let sizes = chains.visits().buckets_by_size;
    let left: u64 = (0..).zip(&sizes).map(|(size, count)| size * count).sum();
    assert_eq!(left, counts.object_count);
    assert_eq!(counts.lookup_count, counts.hit_count + counts.miss_count);
    assert_eq!(left, counts.miss_count + counts.insert_count - counts.remove_count);
    let slots_max = counts.object_count_max + streams.root_count + 1;
    assert!(u64::from(streams.dentry_slot_count) <= slots_max, "freed slots are reused");
    Ok(counts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any order of events is followed, or refused with its line.
    #[test]
    fn any_events_are_followed_whatever_is_shrunk(
        events in prop::collection::vec((0_u8..9, 1_u64..6, 0_u64..6, 0_u8..4, 1_u64..6, 0_u8..4), 1..60)
    ) {
        let text = random_trace(&events);
        for shrink in [Shrink::None, Shrink::Lru(2), Shrink::All(3), Shrink::Half(3)] {
            match follow_dentries(&text, shrink) {
                Ok(counts) => prop_assert!(counts.object_count <= counts.object_count_max),
                Err(error) => {
                    prop_assert_eq!(&error.reason, "a directory is moved into itself");
                    prop_assert!(error.line_number > 1);
                }
            }
        }
    }
}
