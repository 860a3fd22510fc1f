//! Damages every single byte of a small store, and cuts its file at every length.
//!
//! An open or a check must detect the damage, or the byte is in a range that is listed here as
//! harmless, with the reason; `docs/durability.md` shows the list. Undetected damage outside the
//! list is a failure, and so is a listed range in which all damage is detected: the list is exact.
//! Harmless means that all records are there, and still are after the store has grown, was killed,
//! lost its power and was closed.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use splitpoint::{Create, Db, Options, Recovery, SimDisk};

use crate::support::{Content, content, is_slow, tiny, tiny_with_whole_log, try_content, within};

/// How the last writer of a store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It closed the store.
    Closed,
    /// It closed the store, with a checksum of the index.
    ClosedSmall,
    /// It was killed on this boot: its live tables are trusted.
    Killed,
    /// By a power loss: its live tables are not trusted.
    PowerLost,
}

use Ended::{Closed, ClosedSmall, Killed, PowerLost};

/// The effect of a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Opening, reading or checking returned an error.
    Refused,
    /// The check reported damage.
    Reported,
    /// The open reported that it dropped the end of the log, and the rest was once there.
    Dropped,
    /// Nothing is reported, and all records are there and stay there.
    Unnoticed,
    /// Nothing is reported, and a record is missing, at once or after the store has grown.
    Harmful,
}

impl Outcome {
    fn is_noticed(self) -> bool {
        matches!(self, Self::Refused | Self::Reported | Self::Dropped)
    }
}

/// A store with every structure, and its contents after each change.
#[derive(Clone, Debug)]
struct Sample {
    ended: Ended,
    bytes: Vec<u8>,
    options: Options,
    states: Vec<Content>,
}

const LIVE: usize = 8192;
const READER_TABLE: Range<usize> = 12_288..16_384;
const GRANULE: usize = 4096;
const LINE: usize = 64;

impl Sample {
    /// Creates a store with several segments and sessions, a big record, dead records, overflow
    /// lines in use and free, pieces that are not full, and a free granule.
    fn new(ended: Ended) -> Self {
        let mut options = tiny_with_whole_log().segment_bytes_min(8192).fill_factor(7.0);
        if ended != ClosedSmall {
            options = options.checkpoint_bytes_min(3000);
        }
        let disk = SimDisk::new();
        let mut states = vec![Content::new()];
        let mut change = |db: &Db, key: &[u8], value: Option<&[u8]>| {
            match value {
                Some(value) => db.put(key, value).expect("there is room"),
                None => assert!(db.delete(key).expect("nothing fails")),
            }
            states.push(content(db));
        };
        let db = disk.open(&options).expect("it opens");
        for i in 0..180_u8 {
            change(&db, &[i], Some(&[i; 6]));
        }
        for i in 30..160_u8 {
            change(&db, &[i], None);
        }
        db.close().expect("nothing fails");
        let db = disk.open(&options).expect("it opens");
        for i in 0..20_u8 {
            change(&db, &[i], Some(&vec![i; 15 * usize::from(i)]));
        }
        change(&db, b"big", Some(&[9; 5000]));
        for i in 0..3_u8 {
            change(&db, &[i], Some(&[9; 900]));
            db.sync().expect("nothing fails");
        }
        let stats = db.stats().expect("nothing fails");
        assert!(stats.segments.big > 0 && stats.segments.log > 8192 && stats.segments.free > 0);
        assert_eq!(stats.checkpoint.is_some(), ended != ClosedSmall);
        assert!(stats.geometry.bucket_count() > 16);
        let sample = Self::left(ended, &disk, db, options, states);
        assert!(sample.word(LIVE + 328) != 0, "no overflow line was given back");
        sample
    }

    /// Creates a small store in two sessions, whose file can be cut at every length.
    fn of_few_records(ended: Ended) -> Self {
        let options = tiny_with_whole_log();
        let disk = SimDisk::new();
        let mut states = vec![Content::new()];
        let db = disk.open(&options).expect("it opens");
        for i in 0..12_u8 {
            db.put(&[i], &[i; 250]).expect("there is room");
            states.push(content(&db));
        }
        db.close().expect("nothing fails");
        let db = disk.open(&options).expect("it opens");
        for i in 8..14_u8 {
            db.put(&[i], &[i; 260]).expect("there is room");
            states.push(content(&db));
        }
        assert!(db.delete(&[0]).expect("nothing fails"));
        states.push(content(&db));
        Self::left(ended, &disk, db, options, states)
    }

    /// Creates a store that was compacted, and whose space was used again, with emptied segments that
    /// wait.
    fn compacted(ended: Ended) -> Self {
        let options = tiny().fill_factor(7.0).checkpoint_bytes_min(3000);
        let disk = SimDisk::new();
        let mut states = vec![Content::new()];
        let db = disk.open(&options).expect("it opens");
        for i in 0..700_u32 {
            let key = [(i * 7 % 60) as u8];
            if i % 9 == 8 {
                db.delete(&key).expect("nothing fails");
            } else {
                db.put(&key, vec![i as u8; 20 + (i * 13 % 150) as usize]).expect("there is room");
            }
            states.push(content(&db));
        }
        let is_settled = |db: &Db| {
            let stats = db.stats().expect("nothing fails");
            stats.moved_bytes > 0 && stats.segments.segment_table > 0 && stats.segments.waiting > 0
        };
        for i in 0_u32.. {
            if is_settled(&db) && i >= 20 {
                break;
            }
            db.put([200], i.to_le_bytes()).expect("there is room");
            states.push(content(&db));
        }
        Self::left(ended, &disk, db, options, states)
    }

    /// Returns where the live header and the index are.
    fn tables(&self) -> Vec<Range<usize>> {
        let [[buckets, more], [overflow, rest]] = [self.bucket_lines(), self.overflow_lines()];
        let lines = buckets.into_iter().chain(more).chain(overflow).chain(rest);
        lines.map(|at| at..at + LINE).chain(one(LIVE..READER_TABLE.start)).collect()
    }

    /// Ends the last session of a store.
    fn left(ended: Ended, disk: &SimDisk, db: Db, options: Options, states: Vec<Content>) -> Self {
        let mut bytes = disk.file();
        match ended {
            Closed | ClosedSmall => {
                db.close().expect("nothing fails");
                bytes = disk.file();
            }
            Killed => {}
            // As another boot finds it.
            PowerLost => bytes[LIVE + 16..LIVE + 32].fill(0xb0),
        }
        let sample = Self { ended, bytes, options, states };
        assert_eq!(sample.examine(&sample.bytes, true), Outcome::Unnoticed);
        sample
    }

    /// Opens a file of these bytes and reads all of it in every way; on request it also grows the
    /// store if nothing is wrong.
    fn examine(&self, bytes: &[u8], may_grow: bool) -> Outcome {
        let disk = SimDisk::with_file(bytes);
        let options = self.options.clone().create(Create::Never);
        let Ok(db) = disk.open(&options) else { return Outcome::Refused };
        match db.check() {
            Err(_) => return Outcome::Refused,
            Ok(report) if !report.is_clean() => return Outcome::Reported,
            Ok(_) => {}
        }
        let Ok(found) = try_content(&db) else { return Outcome::Refused };
        let is_got = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            db.get(key).is_ok_and(|found| found.as_deref() == Some(&value[..]))
        };
        if db.len() != found.len() as u64 || !found.iter().all(is_got) {
            return Outcome::Harmful;
        }
        match db.recovery() {
            Recovery::Replayed { dropped_bytes: 1.., .. } if self.states.contains(&found) => {
                return Outcome::Dropped;
            }
            _ if Some(&found) != self.states.last() => return Outcome::Harmful,
            _ => {}
        }
        if may_grow && !self.grows(&disk, db, found) {
            Outcome::Harmful
        } else {
            Outcome::Unnoticed
        }
    }

    /// Returns whether a store takes many more changes, keeps what it had, and opens again.
    fn grows(&self, disk: &SimDisk, db: Db, mut expected: Content) -> bool {
        for i in 0..80_u8 {
            let (key, value) = ([b'x', i], vec![i; 90 + usize::from(i)]);
            if db.put(&key, &value).is_err() {
                return false;
            }
            expected.insert(key.to_vec(), value);
        }
        for key in expected.keys().step_by(3).cloned().collect::<Vec<_>>() {
            if !db.delete(&key).is_ok_and(|was_there| was_there) {
                return false;
            }
            expected.remove(&key);
        }
        let is_sound = |db: &Db| {
            db.check().is_ok_and(|report| report.is_clean())
                && try_content(db).is_ok_and(|found| found == expected)
        };
        let options = self.options.clone().create(Create::Never);
        let opens = |disk: &SimDisk| disk.open(&options).is_ok_and(|db| is_sound(&db));
        opens(&disk.kill())
            && opens(&disk.lose_power(u64::MAX))
            && is_sound(&db)
            && db.close().is_ok()
            && opens(disk)
    }

    fn word(&self, at: usize) -> usize {
        let bytes = self.bytes[at..at + 8].try_into().expect("8 bytes");
        usize::try_from(u64::from_le_bytes(bytes)).expect("64 bits")
    }

    fn u32(&self, at: usize) -> usize {
        let bytes = self.bytes[at..at + 4].try_into().expect("4 bytes");
        u32::from_le_bytes(bytes) as usize
    }

    /// Returns the offset of the superblock with the higher generation.
    fn newest_superblock(&self) -> Range<usize> {
        let start = if self.word(16) > self.word(4096 + 16) { 0 } else { 4096 };
        start..start + 4096
    }

    /// Returns the granules that are free.
    fn free_granules(&self) -> Vec<Range<usize>> {
        let count = self.u32(LIVE + 432);
        let extent = |i| (self.u32(LIVE + 512 + 8 * i), self.u32(LIVE + 516 + 8 * i));
        (0..count).map(extent).map(|(at, len)| at * GRANULE..(at + len) * GRANULE).collect()
    }

    /// Returns the segments that are in use, the tail of the log last.
    fn segments(&self) -> Vec<Range<usize>> {
        let free = self.free_granules();
        let starts = (READER_TABLE.end..self.bytes.len()).step_by(GRANULE);
        let mut segments: Vec<Range<usize>> = starts
            .filter(|at| self.bytes[*at..*at + 4] == *b"SEGM")
            .filter(|at| !free.iter().any(|range| range.contains(at)))
            .map(|at| at..at + self.word(at + 16))
            .collect();
        let tail = self.word(LIVE + 192 + 64 * (self.word(LIVE + 128) & 1) + 32);
        segments.sort_by_key(|segment| segment.start == tail);
        assert_eq!(segments.last().map(|segment| segment.start), Some(tail));
        segments
    }

    fn is_checkpoint(&self, segment: &Range<usize>) -> bool {
        self.bytes[segment.start + 4] == 7
    }

    /// Returns the ranges behind the last record of a segment, which does not end in zeros, or behind
    /// the segment table of a checkpoint and behind its block.
    fn behind_records(&self, segment: &Range<usize>) -> Vec<Range<usize>> {
        if self.is_checkpoint(segment) {
            let table_end = segment.start + GRANULE + 8 * self.word(segment.start + 144);
            let block = table_end.next_multiple_of(GRANULE);
            return vec![table_end..block, block + self.u32(block + 4)..segment.end];
        }
        let last = self.bytes[segment.clone()].iter().rposition(|&byte| byte != 0);
        one(segment.start + (last.expect("it has a header") + 1).next_multiple_of(8)..segment.end)
    }

    /// Returns the lines of a window: those that are in use, and those that never were.
    fn lines(&self, counts_at: usize, pieces_at: usize, used_count: usize) -> [Vec<usize>; 2] {
        let pieces = (0..self.word(LIVE + counts_at)).map(|i| self.word(LIVE + pieces_at + 8 * i));
        let lines =
            pieces.flat_map(|granule| (granule * GRANULE..(granule + 1) * GRANULE).step_by(LINE));
        let mut used: Vec<usize> = lines.collect();
        let unused = used.split_off(used_count);
        [used, unused]
    }

    fn bucket_lines(&self) -> [Vec<usize>; 2] {
        self.lines(416, 1024, self.word(LIVE + 64) & 0x1_ffff_ffff)
    }

    fn overflow_lines(&self) -> [Vec<usize>; 2] {
        self.lines(424, 2560, self.word(LIVE + 320))
    }

    /// Returns the free overflow lines.
    fn free_lines(&self) -> Vec<usize> {
        let [used, _] = self.overflow_lines();
        let first = self.word(LIVE + 328);
        let next =
            |&number: &usize| Some(self.u32(used[number - 1] + 60)).filter(|&next| next != 0);
        std::iter::successors(Some(first), next).map(|number| used[number - 1]).collect()
    }
}

/// A range in which damage goes undetected and does no harm.
struct Harmless {
    what: &'static str,
    reason: &'static str,
    /// The endings to which it applies.
    ended: &'static [Ended],
    /// Whether other damage in the range is detected.
    is_noticed_too: bool,
    ranges: fn(&Sample) -> Vec<Range<usize>>,
}

fn one(range: Range<usize>) -> Vec<Range<usize>> {
    std::iter::once(range).collect()
}

/// All harmless ranges. Damage anywhere else is detected.
const HARMLESS: &[Harmless] = &[
    Harmless {
        what: "the reader table",
        reason: "a writer that is alone erases it; its notes about the last turn and about a close count \
                 only if the live header agrees with them, and then only save a comparison",
        ended: &[Closed, ClosedSmall, Killed, PowerLost],
        is_noticed_too: false,
        ranges: |_| one(READER_TABLE),
    },
    Harmless {
        what: "free granules",
        reason: "a writer that allocates one overwrites all of it first",
        ended: &[Closed, ClosedSmall, Killed, PowerLost],
        is_noticed_too: false,
        ranges: Sample::free_granules,
    },
    Harmless {
        what: "the rest of a segment after its last record",
        reason: "no checksum matches there, and new records overwrite it",
        ended: &[Closed, ClosedSmall, Killed, PowerLost],
        is_noticed_too: false,
        ranges: |sample| {
            let mut segments = sample.segments();
            if matches!(sample.ended, ClosedSmall | PowerLost) {
                // A replay says what it finds behind the end of the log.
                segments.pop();
                segments.retain(|segment| !sample.is_checkpoint(segment));
            }
            segments.iter().flat_map(|segment| sample.behind_records(segment)).collect()
        },
    },
    Harmless {
        what: "the checkpoint",
        reason: "the log has all of it; without a complete checkpoint, recovery reads the whole log",
        ended: &[PowerLost],
        is_noticed_too: false,
        ranges: |sample| {
            let segments = sample.segments().into_iter();
            segments.filter(|segment| sample.is_checkpoint(segment)).collect()
        },
    },
    Harmless {
        what: "lines in no chain: future buckets, overflow lines never allocated",
        reason: "the writer fills a line before it joins a chain",
        ended: &[Closed, Killed],
        is_noticed_too: false,
        ranges: |sample| {
            let [[_, buckets], [_, overflow]] = [sample.bucket_lines(), sample.overflow_lines()];
            buckets.into_iter().chain(overflow).map(|at| at..at + LINE).collect()
        },
    },
    Harmless {
        what: "the slots and the link of a freed overflow line",
        reason: "the writer fills both before the line joins a chain again",
        ended: &[Closed, Killed],
        is_noticed_too: false,
        ranges: |sample| sample.free_lines().into_iter().map(|at| at..at + 60).collect(),
    },
    Harmless {
        what: "bytes 60 to 63 of a line in a chain",
        reason: "they link the free lines, and this line is not free",
        ended: &[Closed, Killed],
        is_noticed_too: false,
        ranges: |sample| {
            let free = sample.free_lines();
            let [[buckets, _], [overflow, _]] = [sample.bucket_lines(), sample.overflow_lines()];
            let lines = buckets.into_iter().chain(overflow).filter(|line| !free.contains(line));
            lines.map(|at| at + 60..at + 64).collect()
        },
    },
    Harmless {
        what: "the link to an empty overflow line at the end of a chain",
        reason: "without it no record is lost, only a line until the next rebuild of the index",
        ended: &[Closed, Killed],
        is_noticed_too: false,
        ranges: |sample| {
            let [[buckets, _], [overflow, _]] = [sample.bucket_lines(), sample.overflow_lines()];
            let is_empty_end = |number: usize| {
                let line = overflow[number - 1];
                sample.bytes[line..line + 60].iter().all(|&byte| byte == 0)
            };
            let links = buckets.iter().chain(&overflow).map(|at| at + 56);
            links
                .filter(|&at| sample.u32(at) != 0 && is_empty_end(sample.u32(at)))
                .map(|at| at..at + 1)
                .collect()
        },
    },
    Harmless {
        what: "the live header and the index",
        reason: "recovery rebuilds both from the log",
        ended: &[PowerLost],
        is_noticed_too: false,
        ranges: Sample::tables,
    },
    Harmless {
        what: "the live header",
        reason: "opening rebuilds a header that changed since the close, and the index, from the log",
        ended: &[Closed],
        is_noticed_too: false,
        ranges: |_| one(LIVE..READER_TABLE.start),
    },
    Harmless {
        what: "the live header and the index",
        reason: "opening rebuilds both from the log if one has changed since the close",
        ended: &[ClosedSmall],
        is_noticed_too: false,
        ranges: Sample::tables,
    },
    Harmless {
        what: "the live header, except the low bytes of the record count",
        reason: "if it does not fit the file or the index, opening rebuilds both or reports it; \
                 the other fields are only statistics, or are not trusted",
        ended: &[Killed],
        is_noticed_too: false,
        ranges: |sample| {
            let count_at = LIVE + 192 + 64 * (sample.word(LIVE + 128) & 1);
            vec![LIVE..count_at, count_at + 1..READER_TABLE.start]
        },
    },
    Harmless {
        what: "the slots and the chain of the bucket that was split last",
        reason: "a warm restart examines them, and rebuilds the index if one is damaged",
        ended: &[Killed],
        is_noticed_too: false,
        ranges: |sample| {
            let [buckets, _] = sample.bucket_lines();
            let last = buckets.len() - 1;
            let source = buckets[last - (1 << last.ilog2())];
            one(source..source + 60)
        },
    },
    Harmless {
        what: "the slots and the chains of other buckets",
        reason: "opening looks up the last changes, 1,024 at most, and rebuilds an index that lacks \
                 one; `check` detects the rest",
        ended: &[Killed],
        is_noticed_too: true,
        ranges: |sample| {
            let [[buckets, _], [overflow, _]] = [sample.bucket_lines(), sample.overflow_lines()];
            buckets.into_iter().chain(overflow).map(|at| at..at + 60).collect()
        },
    },
    Harmless {
        what: "the superblock written last",
        reason: "the one before it names the same log; opening or the first change writes it again, \
                 and `check` reports it until then",
        ended: &[Closed, ClosedSmall, Killed],
        is_noticed_too: true,
        ranges: |sample| one(sample.newest_superblock()),
    },
    Harmless {
        what: "either superblock",
        reason: "the other one names the same log, and the replay overwrites the damaged one",
        ended: &[PowerLost],
        is_noticed_too: false,
        ranges: |_| one(0..LIVE),
    },
];

/// A byte and the effect of its damage, for a message.
struct Found(Vec<(usize, Outcome)>);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &self.0[..];
        while let Some(&(start, outcome)) = rest.first() {
            let is_next = |(i, found): &(usize, &(usize, Outcome))| *found == &(start + i, outcome);
            let len = rest.iter().enumerate().take_while(is_next).count();
            write!(f, "{start}..{} {outcome:?}; ", start + len)?;
            rest = &rest[len..];
        }
        Ok(())
    }
}

/// Damages the byte at `offset` and returns what goes undetected. It damages the fields that a warm
/// restart trusts, and listed bytes, in several ways; with `SPLITPOINT_SLOW=1` all others as well.
fn unnoticed(sample: &Sample, offset: usize, is_listed: bool) -> Option<Outcome> {
    let is_believed = sample.ended == Killed && (LIVE..LIVE + 512).contains(&offset);
    let bits = if is_slow() || is_believed { 0..8 } else { offset % 8..offset % 8 + 1 };
    let (all, zero) =
        if is_slow() || is_believed || is_listed { (0xff, sample.bytes[offset]) } else { (0, 0) };
    let masks = bits.map(|bit| 1 << bit).chain([all, zero]);
    let may_grow = offset.is_multiple_of(match (is_slow(), is_believed) {
        (true, _) => 4,
        (false, true) => 2,
        (false, false) => 32,
    });
    let outcomes = masks.filter(|&mask: &u8| mask != 0).map(|mask| {
        let mut bytes = sample.bytes.clone();
        bytes[offset] ^= mask;
        sample.examine(&bytes, may_grow)
    });
    // Harm comes first.
    outcomes.filter(|outcome| !outcome.is_noticed()).max_by_key(|outcome| *outcome as u8)
}

/// Returns for each byte what it is on the list: where other damage is noticed, only what is
/// nothing else.
fn listed(sample: &Sample) -> Vec<Option<&'static Harmless>> {
    let mut listed: Vec<Option<&'static Harmless>> = vec![None; sample.bytes.len()];
    let of_sample = || HARMLESS.iter().filter(|harmless| harmless.ended.contains(&sample.ended));
    let (vague, exact): (Vec<_>, Vec<_>) =
        of_sample().partition(|harmless| harmless.is_noticed_too);
    for harmless in exact.into_iter().chain(vague) {
        let ranges = (harmless.ranges)(sample);
        assert!(!ranges.is_empty(), "the sample has nothing that is `{}`", harmless.what);
        for offset in ranges.into_iter().flatten() {
            if let Some(other) = listed[offset] {
                let what = [harmless.what, other.what];
                assert!(harmless.is_noticed_too, "byte {offset} is two things: {what:?}");
            } else {
                listed[offset] = Some(harmless);
            }
        }
    }
    listed
}

/// Damages every byte and compares the undetected damage with the list.
fn check_every_byte(ended: Ended) {
    let sample = Sample::new(ended);
    let listed = listed(&sample);
    let (mut missing, mut surplus) = (Vec::new(), Vec::new());
    for offset in 0..sample.bytes.len() {
        // A few bytes represent a long listed run of zeros.
        let mut around = offset.saturating_sub(32)..(offset + 32).min(sample.bytes.len());
        let what = |at: usize| listed[at].map(|harmless| harmless.what);
        let is_alike = |at| what(at) == what(offset) && sample.bytes[at] == 0;
        let is_in_run = listed[offset].is_some() && around.all(is_alike);
        if is_in_run && !offset.is_multiple_of(29) && !is_slow() {
            continue;
        }
        match (unnoticed(&sample, offset, listed[offset].is_some()), listed[offset]) {
            (Some(Outcome::Unnoticed), Some(_)) | (None, None) => {}
            (Some(outcome), _) => missing.push((offset, outcome)),
            (None, Some(harmless)) if harmless.is_noticed_too => {}
            (None, Some(_)) => surplus.push((offset, Outcome::Reported)),
        }
    }
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "goes unnoticed and is not listed, or does harm: {}\nis listed and noticed: {}",
        Found(missing),
        Found(surplus),
    );
}

/// Cuts the file at every length. If the store was not closed, the part behind its last segment may
/// be missing without a report: free granules, including a prepared segment, and pieces of the
/// index, which is rebuilt, and the checkpoint. For the larger store, some lengths represent all.
fn check_every_length(sample: &Sample, is_every: bool) {
    let mut missing = Vec::new();
    // Nothing is lost with the checkpoint that a recovery would begin with.
    let is_needed = |segment: &Range<usize>| !sample.is_checkpoint(segment);
    let ends = sample.segments().into_iter().filter(is_needed).map(|segment| segment.end);
    let used_bytes = match sample.ended {
        Closed | ClosedSmall => sample.bytes.len(),
        Killed | PowerLost => ends.max().expect("there is a log"),
    };
    for len in 0..sample.bytes.len() {
        if !is_every && len % 512 > 1 && len % 61 > 0 {
            continue;
        }
        let outcome = sample.examine(&sample.bytes[..len], true);
        let may_go_unnoticed = len >= used_bytes && outcome == Outcome::Unnoticed;
        if !outcome.is_noticed() && !may_go_unnoticed {
            missing.push((len, outcome));
        }
    }
    assert!(missing.is_empty(), "a file cut there goes unnoticed: {}", Found(missing));
}

#[test]
fn every_damaged_byte_of_a_closed_store_is_noticed_or_listed() {
    within("bytes of a closed store", || check_every_byte(Closed));
}

#[test]
fn every_damaged_byte_of_a_store_that_was_closed_small_is_noticed_or_listed() {
    within("bytes of a small store", || check_every_byte(ClosedSmall));
}

#[test]
fn every_damaged_byte_a_killed_process_left_is_noticed_or_listed() {
    within("bytes after a kill", || check_every_byte(Killed));
}

#[test]
fn every_damaged_byte_after_a_power_loss_is_noticed_or_listed() {
    within("bytes after a power loss", || check_every_byte(PowerLost));
}

#[test]
fn a_store_cut_at_any_length_is_noticed() {
    for ended in [Closed, ClosedSmall, Killed, PowerLost] {
        within("cuts of a small store", move || {
            check_every_length(&Sample::of_few_records(ended), true);
        });
        within("cuts", move || check_every_length(&Sample::new(ended), is_slow()));
    }
}

/// Damages bytes of a compacted store: what is not noticed does no harm.
#[test]
fn no_damaged_byte_of_a_compacted_store_does_harm_in_silence() {
    for ended in [Closed, Killed, PowerLost] {
        within("bytes of a compacted store", move || {
            let sample = Sample::compacted(ended);
            let is_harmful =
                |&offset: &usize| unnoticed(&sample, offset, false) == Some(Outcome::Harmful);
            // In those at multiples of 32 the store grows as well.
            let is_chosen = |&offset: &usize| {
                let is_header = offset % GRANULE < 256 && offset < LIVE + GRANULE;
                is_slow() || is_header || offset % 61 == 0 || offset % 608 == 0
            };
            let harmful = (0..sample.bytes.len()).filter(is_chosen).filter(is_harmful);
            let harmful: Vec<_> = harmful.map(|offset| (offset, Outcome::Harmful)).collect();
            assert!(harmful.is_empty(), "{ended:?}: {}", Found(harmful));
        });
    }
}

/// Returns the list as the rows of a table.
fn rows() -> String {
    let name = |ended: &Ended| match ended {
        Closed => "closed",
        ClosedSmall => "closed small",
        Killed => "killed",
        PowerLost => "power loss",
    };
    let row = |harmless: &Harmless| {
        let ended: Vec<&str> = harmless.ended.iter().map(name).collect();
        format!("| {} | {} | {} |\n", harmless.what, ended.join(", "), harmless.reason)
    };
    HARMLESS.iter().map(row).collect()
}

#[test]
fn the_document_has_the_list() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/durability.md");
    let document = std::fs::read_to_string(path).unwrap();
    assert!(document.contains(&rows()), "docs/durability.md should have these rows:\n{}", rows());
}
