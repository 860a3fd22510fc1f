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
    let mut reading = Reading::new(Shrink::None, 1000);
    for _ in 0..15 {
        reading.follow(&pages, 1).unwrap();
    }
    assert_eq!(reading.follow(&pages, 1).unwrap_err(), "the trace has more than 1000 steps");
}
