//! Space of a file: when the pages of free granules go back to the system, and what is used again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::format::{GRANULE_BYTES, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, SegmentHeader, u64_at};
use crate::region::Needs;
use crate::space::Extent;
use crate::testing::mutant::{self, Mutant};
use crate::{Batch, Db, Durability, Options, Recovery, Sharing, SimDisk, SimFault};

const EIO: i32 = 5;
/// Bytes that go back to the system as one even on a disk that is nearly full.
const FOLIO_BYTES: u64 = 2 << 20;
const AMPLE_BYTES: u64 = 1 << 30;

fn options() -> Options {
    Options::new().seed(7).durability(Durability::Buffered).segment_bytes_min(GRANULE_BYTES)
}

/// Frees ranges of the given sizes, in ascending order and not adjacent, which keep their pages;
/// from then on no freed range may.
fn free_warm(db: &Db, sizes: &[u64], alignment: u64) {
    let extents = &mut db.store().lock().unwrap().extents;
    extents.set_warm_bytes_max(AMPLE_BYTES, true);
    let mut freed = Vec::new();
    for &bytes in sizes {
        let offset = extents.allocate(bytes, alignment).unwrap();
        extents.allocate(GRANULE_BYTES, GRANULE_BYTES).unwrap();
        freed.push(offset..offset + bytes);
    }
    assert!(freed.is_sorted_by_key(|range| range.start), "{freed:?}");
    for range in freed {
        extents.release_segment(range);
    }
    extents.set_warm_bytes_max(0, true);
    assert_eq!(extents.warm_bytes(), sizes.iter().sum::<u64>());
}

fn warm_bytes(db: &Db) -> u64 {
    db.store().lock().unwrap().extents.warm_bytes()
}

#[test]
fn a_range_that_the_system_does_not_take_back_keeps_no_other_range() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    free_warm(&db, &[8 * GRANULE_BYTES, 16 * GRANULE_BYTES], GRANULE_BYTES);
    disk.fail_once(1, SimFault::Error(EIO));
    db.store().cool_excess(|| true).unwrap();
    assert_eq!(warm_bytes(&db), 16 * GRANULE_BYTES, "the last one is tried first");
    db.store().cool_excess(|| true).unwrap();
    assert_eq!(warm_bytes(&db), 0);
}

/// Only the killed process knew which free ranges keep their pages; without a remedy, each process
/// killed after it would leave as many more.
#[test]
fn what_a_killed_process_has_left_free_gives_its_blocks_back() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    overwrite(&db, 1000, 20_000);
    {
        let extents = &mut db.store().lock().unwrap().extents;
        extents.set_warm_bytes_max(AMPLE_BYTES, true);
        let bytes = 64 * GRANULE_BYTES;
        let offset = extents.allocate(bytes, GRANULE_BYTES).unwrap();
        extents.region().storage().claim_range(offset, bytes).unwrap();
        extents.release_segment(offset..offset + bytes);
    }
    let killed = disk.kill();
    drop(db);
    let db = killed.open(&options()).unwrap();
    let free_bytes = || db.store().lock().unwrap().extents.space().free_bytes();
    let with_blocks = || free_bytes() - killed.hole_count() * GRANULE_BYTES;
    assert!(with_blocks() >= 64 * GRANULE_BYTES, "{} bytes", with_blocks());
    // A simulated disk has no thread that would do it.
    db.put(0_u64.to_le_bytes(), value(0)).unwrap();
    assert!(with_blocks() < 16 * GRANULE_BYTES, "{} bytes", with_blocks());
    assert!(db.check().unwrap().is_clean());
}

/// Changes do without a range while its pages go back.
#[test]
fn what_was_inherited_goes_back_in_parts_that_end_with_folios() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    overwrite(&db, 1000, 20_000);
    let large = {
        let extents = &mut db.store().lock().unwrap().extents;
        let offset = extents.allocate(3 * FOLIO_BYTES, GRANULE_BYTES).unwrap();
        extents.release_segment(offset..offset + 3 * FOLIO_BYTES);
        offset..offset + 3 * FOLIO_BYTES
    };
    let killed = disk.kill();
    drop(db);
    let db = killed.open(&options()).unwrap();
    let extents = &mut db.store().lock().unwrap().extents;
    let (mut taken_bytes, mut end) = (0, u64::MAX);
    while let Some(range) = extents.take_inherited() {
        assert!(range.end - range.start <= FOLIO_BYTES && range.end <= end, "{range:?}");
        assert!(
            range.end / FOLIO_BYTES * FOLIO_BYTES <= range.start || range.end % FOLIO_BYTES == 0
        );
        taken_bytes += range.end - range.start;
        end = range.start;
        extents.release_cool(range, true);
    }
    assert!(taken_bytes >= large.end - large.start, "{taken_bytes}");
}

/// A claim of a segment in complete folios would also give blocks to the free ranges beside it.
#[test]
fn free_ranges_beside_a_segment_that_is_used_again_get_no_blocks() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    overwrite(&db, 20_000, 120_000);
    let extents = &db.store().lock().unwrap().extents;
    let holes = disk.holes();
    let granules =
        extents.space().unreserved().flat_map(|free| free.granule..free.granule + free.count);
    let with_blocks = granules.filter(|granule| !holes.contains(granule)).count() as u64;
    let (bytes, warm_bytes) = (with_blocks * GRANULE_BYTES, extents.warm_bytes());
    assert!(bytes <= warm_bytes, "{bytes} bytes, of which {warm_bytes} are known");
}

/// Nobody had held back what deletes need: it must not go back first.
#[test]
fn after_a_replay_on_a_full_disk_the_reserve_is_held_before_anything_goes_back() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    overwrite(&db, 20_000, 60_000);
    disk.limit_to(disk.file().len() as u64 + (4 << 20));
    db.sync().unwrap();
    let lost = disk.lose_power(1);
    drop(db);
    let db = lost.open(&options()).unwrap();
    assert!(matches!(db.stats().unwrap().recovery, Recovery::Replayed { .. }));
    assert!(!db.store().lock().unwrap().extents.is_anything_held());
    db.store().cool_excess(|| true).unwrap();
    assert!(db.store().lock().unwrap().extents.is_anything_held());
    assert!(db.check().unwrap().is_clean());
}

#[test]
fn on_a_disk_nearly_full_whole_folios_are_given_back_before_a_range_without_any() {
    let disk = SimDisk::new();
    disk.limit_to(32 << 20);
    let db = disk.open(&options()).unwrap();
    let small = 4 * GRANULE_BYTES;
    free_warm(&db, &[FOLIO_BYTES, FOLIO_BYTES + small, small], FOLIO_BYTES);
    db.store().cool_excess(|| true).unwrap();
    assert_eq!(warm_bytes(&db), 2 * small);
}

/// The list of free granules has room for 64 ranges of a store that was not compacted.
#[test]
fn a_range_that_is_not_free_any_more_does_not_end_a_round() {
    let db = SimDisk::new().open(&options()).unwrap();
    let mut sizes = [2 * GRANULE_BYTES; 80];
    *sizes.last_mut().unwrap() = GRANULE_BYTES;
    free_warm(&db, &sizes, GRANULE_BYTES);
    db.store().cool_excess(|| true).unwrap();
    assert_eq!(warm_bytes(&db), 0);
}

#[test]
fn a_round_ends_when_something_else_is_to_be_done() {
    let db = SimDisk::new().open(&options()).unwrap();
    free_warm(&db, &[GRANULE_BYTES; 4], GRANULE_BYTES);
    let mut count = 0;
    let go_on = || {
        count += 1;
        count < 3
    };
    db.store().cool_excess(go_on).unwrap();
    assert_eq!(warm_bytes(&db), 2 * GRANULE_BYTES);
}

#[test]
fn what_is_freed_during_a_round_behind_it_has_another_one() {
    let db = SimDisk::new().open(&options()).unwrap();
    free_warm(&db, &[GRANULE_BYTES; 4], GRANULE_BYTES);
    let mut count = 0;
    let go_on = || {
        count += 1;
        db.store().lock().unwrap().checkpoints.is_excess |= count == 2;
        true
    };
    db.store().cool_excess(go_on).unwrap();
    assert!(db.store().lock().unwrap().checkpoints.needs_thread());
}

#[test]
fn the_thread_is_not_asked_to_give_back_what_its_last_round_left() {
    let disk = SimDisk::new();
    disk.limit_to(32 << 20);
    let db = disk.open(&options()).unwrap();
    let small = 4 * GRANULE_BYTES;
    free_warm(&db, &[FOLIO_BYTES, small, small], FOLIO_BYTES);
    let has_excess = || db.store().lock().unwrap().extents.has_excess();
    assert!(has_excess());
    db.store().cool_excess(|| true).unwrap();
    assert_eq!(
        warm_bytes(&db),
        2 * small,
        "on a disk nearly full only whole folios are given back"
    );
    assert!(!has_excess());
    {
        let extents = &mut db.store().lock().unwrap().extents;
        extents.set_warm_bytes_max(AMPLE_BYTES, true);
        let offset = extents.allocate(FOLIO_BYTES, FOLIO_BYTES).unwrap();
        extents.release_segment(offset..offset + FOLIO_BYTES);
        extents.set_warm_bytes_max(0, true);
    }
    assert!(has_excess(), "more than it left");
}

#[test]
fn a_range_that_the_thread_gives_back_counts_as_free_meanwhile() {
    let db = SimDisk::new().open(&options()).unwrap();
    free_warm(&db, &[8 * GRANULE_BYTES], GRANULE_BYTES);
    let extents = &mut db.store().lock().unwrap().extents;
    let before = extents.free_bytes();
    let range = extents.take_excess(u64::MAX).unwrap();
    assert_eq!(extents.free_bytes(), before);
    extents.release_cool(range, true);
    assert_eq!(extents.free_bytes(), before);
}

#[test]
fn free_granules_behind_the_end_of_the_file_keep_no_pages() {
    let disk = SimDisk::new();
    disk.limit_to(AMPLE_BYTES);
    let db = disk.open(&options()).unwrap();
    let bytes = 8 * GRANULE_BYTES;
    let extents = &mut db.store().lock().unwrap().extents;
    extents.set_warm_bytes_max(AMPLE_BYTES, true);
    let offset = extents.allocate(bytes, GRANULE_BYTES).unwrap();
    extents.region().storage().hold_range(offset, bytes).unwrap();
    let end = extents.space().end();
    extents.release_segment(offset..offset + bytes);
    assert_eq!(extents.warm_bytes(), bytes);
    let free_before = extents.region().storage().free_bytes().unwrap();
    extents.forget_end();
    assert!(extents.space().end() < end, "it was the last one");
    assert_eq!(extents.warm_bytes(), 0);
    let freed_bytes = extents.region().storage().free_bytes().unwrap() - free_before;
    assert_eq!(freed_bytes, bytes, "its blocks go back");
}

/// A batch owes more than one step, and no change may come behind it.
#[test]
fn what_a_batch_frees_while_it_pays_is_given_back_without_another_change() {
    let dir = tempfile::tempdir().unwrap();
    let db = options().checkpoint_bytes_min(256 << 10).open(dir.path().join("a")).unwrap();
    let (mut random, mut settled_count, mut i) = (1_u64, 0, 0);
    let settled =
        |freed_before: u64| db.store().lock().unwrap().retired_record_bytes() > freed_before;
    // The thread may have emptied enough, so that a batch owes nothing.
    while settled_count < 10 {
        assert!(i < 10_000, "segments are emptied for few batches: {settled_count}");
        let mut batch = Batch::new();
        for k in 0..1000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = if i < 4 { i * 1000 + k } else { (random >> 33) % 4000 };
            batch = batch.put(key.to_le_bytes(), [i as u8; 100]);
        }
        let before = db.store().lock().unwrap().retired_record_bytes();
        db.apply(&batch).unwrap();
        settled_count += u64::from(settled(before));
        let end = Instant::now() + Duration::from_secs(60);
        while db.store().lock().unwrap().checkpoints.needs_thread() {
            assert!(Instant::now() < end, "batch {i}: nobody was asked");
            std::thread::sleep(Duration::from_millis(1));
        }
        i += 1;
    }
}

#[test]
fn a_handle_that_takes_turns_compacts_beside_the_changes_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let options = Options::new().sharing(Sharing::Shared).durability(Durability::Buffered);
    let one = options.clone().keep_dead_records().open(&path).unwrap();
    let other = options.open(&path).unwrap();
    for round in 0..4_u32 {
        for key in 0..20_000_u32 {
            one.put(key.to_le_bytes(), [round as u8; 200]).unwrap();
        }
    }
    (2_500..20_000_u32).for_each(|key| assert!(one.delete(key.to_le_bytes()).unwrap()));
    let disk_bytes = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let (before, mut rounds) = (disk_bytes(), 4_u32);
    // Each call is a turn or two, after which the other changes something.
    while !other.maintain(1).unwrap().is_done {
        for key in 0..100_u32 {
            one.put(key.to_le_bytes(), [rounds as u8; 200]).unwrap();
        }
        rounds += 1;
        assert!(rounds < 1000, "it never ends");
    }
    assert!(rounds > 5, "all was done in {} calls", rounds - 4);
    assert!(disk_bytes() < before / 2, "{} of {before}", disk_bytes());
    for key in 0..2_500_u32 {
        let round = if key < 100 { rounds - 1 } else { 3 };
        let value = one.get(key.to_le_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(&[round as u8; 200][..]));
    }
    let stats = one.stats().unwrap();
    assert_eq!(stats.record_count, 2_500);
    assert!(stats.dead_bytes < stats.live_bytes / 5, "{stats:?}");
    drop((one, other));
    assert!(options.open(&path).unwrap().check().unwrap().is_clean());
}

#[test]
fn maintain_by_turns_leaves_few_blocks_beside_a_handle_that_has_changed_much() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let options = Options::new().sharing(Sharing::Shared).durability(Durability::Buffered);
    let writer = options.open(&path).unwrap();
    overwrite(&writer, 4_000, 200_000);
    let disk_bytes = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let before = disk_bytes();
    let live_bytes = writer.stats().unwrap().live_bytes;
    assert!(before > 6 * live_bytes, "{before} for {live_bytes}");
    let other = options.open(&path).unwrap();
    while !other.maintain(4 << 20).unwrap().is_done {}
    other.close().unwrap();
    (0..1000).for_each(|i: u64| writer.put(i.to_le_bytes(), value(i)).unwrap());
    writer.close().unwrap();
    assert!(disk_bytes() < 3 * live_bytes, "{} for {live_bytes}, {before} before", disk_bytes());
}

/// Returns a disk with a store of many segments that are half dead, which may be compacted.
fn half_dead(options: &Options, keys: u64) -> SimDisk {
    let disk = SimDisk::new();
    let db = disk.open(&self::options().keep_dead_records()).unwrap();
    overwrite(&db, keys, 2 * keys);
    db.close().unwrap();
    let db = disk.open(options).unwrap();
    // The first turn prepares that; the second one empties a few segments, which wait for a checkpoint.
    db.maintain(1).unwrap();
    assert!(db.store().lock().unwrap().superblock.is_compacted);
    db.close().unwrap();
    disk
}

fn by_turns() -> Options {
    options().sharing(Sharing::Shared)
}

/// Each call read a few segments, found no room for the next copies, and freed none of those segments.
#[test]
fn maintain_by_turns_frees_what_it_empties_on_a_full_disk() {
    let (keys, room_bytes) = (32_000, 1 << 20);
    let disk = half_dead(&by_turns(), keys);
    disk.limit_to(disk.file().len() as u64 + room_bytes);
    let db = disk.open(&by_turns()).unwrap();
    let live_bytes = db.stats().unwrap().live_bytes;
    let done = db.maintain(u64::MAX).unwrap();
    assert!(done.is_done && done.moved_bytes > 2 * room_bytes, "{done:?}, {live_bytes} are live");
    assert_eq!(done.waiting_bytes, 0);
    assert_eq!(db.stats().unwrap().record_count, keys);
    assert!(db.check().unwrap().is_clean());
}

#[test]
fn maintain_by_turns_uses_what_it_empties_before_it_has_emptied_all() {
    let options = by_turns().checkpoint_bytes_min(256 << 10);
    let disk = half_dead(&options, 40_000);
    let before = disk.file().len() as u64;
    let db = disk.open(&options).unwrap();
    let live_bytes = db.stats().unwrap().live_bytes;
    let done = db.maintain(u64::MAX).unwrap();
    assert!(done.moved_bytes > live_bytes / 2, "{done:?}");
    let grown_bytes = disk.file().len() as u64 - before;
    assert!(grown_bytes < done.moved_bytes * 3 / 4, "{grown_bytes} of {done:?}");
}

/// So it is after a put that found no room for its value.
#[test]
fn maintain_by_turns_makes_a_checkpoint_of_a_log_that_goes_on_without_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let db = by_turns().open(dir.path().join("a")).unwrap();
    overwrite(&db, 100, 150);
    {
        let writer = &mut *db.store().lock_for_change().unwrap();
        let room = writer.log.room();
        writer.log.reserve(room + 1, &mut writer.extents).unwrap();
        let (committed, _) = db.store().region.live().committed();
        assert!(committed < writer.log.position().lsn);
    }
    db.maintain(u64::MAX).unwrap();
    let checkpoint = db.stats().unwrap().checkpoint;
    assert!(checkpoint.is_some());
    assert!(db.check().unwrap().is_clean());
}

#[test]
fn a_handle_by_turns_that_keeps_dead_records_makes_no_checkpoint_for_what_others_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let one = by_turns().open(&path).unwrap();
    overwrite(&one, 4_000, 12_000);
    let value = one.get(5_u64.to_le_bytes()).unwrap();
    overwrite(&one, 4_000, 12_000);
    let held = one.maintain(u64::MAX).unwrap();
    assert!(held.is_done && held.waiting_bytes > 0, "a value holds them: {held:?}");
    let other = by_turns().keep_dead_records().open(&path).unwrap();
    assert!(other.maintain(u64::MAX).unwrap().is_done);
    assert!(other.maintain(u64::MAX).unwrap().is_done);
    assert_eq!(other.store().lock().unwrap().checkpoints.begun_count, 0);
    drop(value);
}

#[test]
fn free_space_that_the_reserve_lacks_is_not_given_back() {
    let db = SimDisk::new().open(&by_turns()).unwrap();
    let extents = &mut db.store().lock().unwrap().extents;
    let bytes = 32 * GRANULE_BYTES;
    let offset = extents.allocate(bytes, bytes).unwrap();
    extents.allocate(GRANULE_BYTES, GRANULE_BYTES).unwrap();
    extents.release(offset, bytes);
    extents.set_needs(Needs {
        segment_bytes: bytes,
        segment_bytes_min: GRANULE_BYTES,
        image_bytes: bytes,
        place_bytes: bytes,
    });
    assert_eq!(extents.punch_free(0, usize::MAX).0, 0);
    extents.end_reserve();
    assert!(extents.punch_free(0, usize::MAX).0 >= bytes);
}

/// Neither where it is nor behind the end of the file.
#[test]
fn maintenance_does_not_give_back_what_the_reserve_lacks() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    free_warm(&db, &[FOLIO_BYTES], FOLIO_BYTES);
    let extents = &mut db.store().lock().unwrap().extents;
    let bytes = 32 * GRANULE_BYTES;
    extents.set_needs(Needs {
        segment_bytes: bytes,
        segment_bytes_min: GRANULE_BYTES,
        image_bytes: bytes,
        place_bytes: bytes,
    });
    assert_eq!(extents.cool(), 0);
    let needs = extents.needs().unwrap();
    extents.end_reserve();
    assert_eq!(extents.cool(), FOLIO_BYTES);
    extents.set_needs(needs);
    let offset = extents.allocate(2 * FOLIO_BYTES, FOLIO_BYTES).unwrap();
    extents.release_segment(offset..offset + 2 * FOLIO_BYTES);
    let (end, hole_count) = (extents.space().end(), disk.hole_count());
    extents.forget_end();
    assert!(extents.space().end() < end);
    assert_eq!(disk.hole_count(), hole_count);
    extents.end_reserve();
}

/// What a checkpoint lets be freed, the changes after it free; so nothing is too much right after it.
#[test]
fn what_changes_free_after_a_checkpoint_is_given_back_without_another() {
    let dir = tempfile::tempdir().unwrap();
    let db = options().checkpoint_bytes_min(256 << 10).open(dir.path().join("a")).unwrap();
    let taken_count = || db.store().lock().unwrap().extents.taken_count;
    let (mut random, mut i) = (1_u64, 0);
    while i < 60_000 || taken_count() == 0 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = if i < 4000 { i } else { (random >> 33) % 4000 };
        db.put(key.to_le_bytes(), [i as u8; 100]).unwrap();
        if db.store().lock().unwrap().extents.has_excess() {
            // No change comes meanwhile, so no checkpoint does.
            let end = Instant::now() + Duration::from_secs(60);
            while db.store().lock().unwrap().extents.has_excess() {
                assert!(Instant::now() < end, "nobody gives it back");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        i += 1;
        if i > 60_000 && i % 16 == 0 {
            // On a slow device checkpoints come after many changes.
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(i < 1_000_000, "no more is freed than may keep its pages");
    }
    assert!(db.check().unwrap().is_clean());
}

/// Overwrites random keys; returns what they have then.
fn overwrite(db: &Db, keys: u64, count: u64) -> BTreeMap<u64, u64> {
    let (mut random, mut model) = (1_u64, BTreeMap::new());
    for i in 0..count {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = if i < keys { i } else { (random >> 33) % keys };
        db.put(key.to_le_bytes(), value(i)).unwrap();
        model.insert(key, i);
    }
    model
}

fn value(i: u64) -> Vec<u8> {
    i.to_le_bytes().repeat(12)
}

/// Both places where the live header names a checkpoint are taken, so none can begin.
#[test]
fn a_checkpoint_that_fails_is_tried_again_when_the_log_has_grown_and_no_sooner() {
    let bytes_min = 256 << 10;
    let db = SimDisk::new().open(&options().checkpoint_bytes_min(bytes_min)).unwrap();
    let take = |place: usize| {
        let extents = &mut db.store().lock().unwrap().extents;
        let granule = extents.allocate(GRANULE_BYTES, GRANULE_BYTES).unwrap() / GRANULE_BYTES;
        let live = extents.region().live();
        live.set_checkpoint_extent(place, Some(Extent { granule, count: 1 }));
    };
    (0..2).for_each(take);
    let (mut tried, mut last) = (0, 0);
    for i in 0..20_000_u64 {
        db.put((i % 200).to_le_bytes(), value(i)).unwrap();
        let put_off_lsn = db.store().lock().unwrap().checkpoints.put_off_lsn();
        tried += u64::from(put_off_lsn != last);
        last = put_off_lsn;
    }
    let log_bytes = db.stats().unwrap().log_bytes;
    assert!(tried > 10 && tried <= log_bytes / (bytes_min / 4) + 1, "{tried} in {log_bytes}");
    assert!(!db.store().lock().unwrap().superblock.is_compacted);
    for place in 0..2 {
        db.store().lock().unwrap().extents.region().live().set_checkpoint_extent(place, None);
    }
    overwrite(&db, 200, 2 * bytes_min / 100);
    assert!(db.store().lock().unwrap().superblock.is_compacted, "it is made when it can be");
}

#[test]
fn a_checkpoint_that_had_no_room_is_tried_again_when_room_has_come_back() {
    let disk = SimDisk::new();
    let bytes_min = 4 << 20;
    let db = disk.open(&options().checkpoint_bytes_min(bytes_min)).unwrap();
    let put = |i: u64| db.put((i % 4000).to_le_bytes(), value(i)).unwrap();
    let put_off_lsn = || db.store().lock().unwrap().checkpoints.put_off_lsn();
    // The smallest tables have a reserve in so little room, and that would refuse puts.
    (0..4000).for_each(put);
    let mut i = 4000;
    // No more than the next segments of the log, so that the checkpoint has no room.
    while put_off_lsn() == 0 {
        let end = db.store().lock().unwrap().extents.space().end();
        disk.limit_to((end + 8) * GRANULE_BYTES);
        put(i);
        i += 1;
    }
    let put_off_bytes = put_off_lsn() - db.store().lock().unwrap().log.position().lsn;
    disk.limit_to(AMPLE_BYTES);
    let begun = db.store().lock().unwrap().log.position().lsn;
    while db.store().lock().unwrap().checkpoints.begun_count == 0 {
        put(i);
        i += 1;
    }
    let waited_bytes = db.store().lock().unwrap().log.position().lsn - begun;
    assert!(waited_bytes < put_off_bytes / 2, "{waited_bytes} of {put_off_bytes}");
}

#[test]
fn a_store_whose_compacted_head_has_no_header_shows_all_that_it_holds() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    let model = overwrite(&db, 4000, 20_000);
    db.maintain(u64::MAX).unwrap();
    let head = db.store().lock().unwrap().state.head_segment as usize;
    assert!(head > 0, "records have moved");
    db.close().unwrap();
    let mut file = disk.file();
    let sound = SimDisk::with_file(&file).open(&options().read_only()).unwrap();
    file[head..head + SegmentHeader::BYTES as usize].fill(0xff);
    let db = SimDisk::with_file(&file).open(&options().read_only()).unwrap();
    let [stats, expected] = [&db, &sound].map(|db| db.stats().unwrap().segments);
    assert_eq!(stats, expected);
    assert_eq!(db.scan().unwrap().map(Result::unwrap).count(), model.len());
    let segments = |db: &Db| db.store().lock().unwrap().extents.segments().unwrap().used().count();
    assert_eq!(segments(&db), segments(&sound), "every segment is known");
    let report = db.check().unwrap();
    assert!(!report.is_clean(), "it does not go unnoticed");
}

#[test]
fn beside_a_writer_whose_compacted_head_has_no_header_a_reader_finds_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let db = options().open(&path).unwrap();
    let model = overwrite(&db, 4000, 20_000);
    db.maintain(u64::MAX).unwrap();
    let head = db.store().lock().unwrap().state.head_segment;
    assert!(head > 0, "records have moved");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff; SegmentHeader::BYTES as usize], head).unwrap();
    let reader = options().read_only().open(&path).unwrap();
    assert_eq!(reader.stats().unwrap().segments, db.stats().unwrap().segments);
    assert_eq!(reader.scan().unwrap().map(Result::unwrap).count(), model.len());
}

/// The segments of the log begin at multiples of their size.
#[test]
fn free_space_in_which_no_segment_fits_is_no_room_for_copies() {
    let least_bytes = 4 * GRANULE_BYTES;
    let db = SimDisk::new().open(&options().segment_bytes_min(least_bytes)).unwrap();
    db.put("key", "value").unwrap();
    let mut writer = db.store().lock().unwrap();
    let before = writer.room_for_copies();
    let offset = writer.extents.allocate(3 * least_bytes, least_bytes).unwrap();
    writer.extents.release(offset + GRANULE_BYTES, least_bytes);
    assert_eq!(writer.room_for_copies(), before, "it is not aligned");
    writer.extents.release(offset + GRANULE_BYTES + least_bytes, least_bytes);
    let room = writer.room_for_copies() - before;
    assert!(room <= least_bytes && room > least_bytes - 256, "{room}");
}

#[test]
fn on_a_full_disk_granules_with_blocks_are_found_behind_others_without() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    let bytes = 4 * GRANULE_BYTES;
    let extents = &mut db.store().lock().unwrap().extents;
    let offset = extents.allocate(3 * bytes, bytes).unwrap();
    extents.release(offset, 3 * bytes);
    extents.region().storage().punch(offset, bytes).unwrap();
    // Somebody else has taken the blocks.
    disk.limit_to(disk.file().len() as u64 - bytes);
    let found = extents.allocate_backed(bytes, GRANULE_BYTES, |_| {}).unwrap();
    assert!(offset + bytes <= found && found + bytes <= offset + 3 * bytes, "{found}");
}

/// Each place that is tried costs a call of the system, for which all changes wait.
#[test]
fn on_a_full_disk_few_places_are_tried_for_the_reserve() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    let extents = &mut db.store().lock().unwrap().extents;
    let bytes = 32 * GRANULE_BYTES;
    let freed: Vec<u64> = (0..200)
        .map(|_| {
            let offset = extents.allocate(bytes, bytes).unwrap();
            extents.allocate(GRANULE_BYTES, GRANULE_BYTES).unwrap();
            offset
        })
        .collect();
    // Not beside each other: the list has room for few ranges.
    for &offset in freed.iter().step_by(4) {
        extents.release(offset, bytes);
        extents.region().storage().punch(offset, bytes).unwrap();
    }
    // Somebody else has taken the blocks.
    disk.limit_to(0);
    let (least_bytes, image_bytes) = (GRANULE_BYTES, 8 * GRANULE_BYTES);
    extents.set_needs(Needs {
        segment_bytes: bytes,
        segment_bytes_min: least_bytes,
        image_bytes,
        place_bytes: image_bytes,
    });
    let before = disk.call_count();
    assert!(extents.hold().is_err(), "there is no room for it");
    let call_count = disk.call_count() - before;
    assert!((64..512).contains(&call_count), "{call_count} calls");
}

/// Copies an open file, as a power loss leaves it that the newest superblock does not survive, and opens
/// the copy.
fn with_older_superblock(path: &Path) -> crate::Result<Db> {
    let mut file = std::fs::read(path).unwrap();
    let newest = SUPERBLOCK_OFFSETS.into_iter().max_by_key(|&at| u64_at(&file, at as usize + 16));
    let newest = newest.expect("there are two") as usize;
    file[newest..newest + SUPERBLOCK_BYTES as usize].fill(0);
    let copy = path.with_extension("copy");
    std::fs::write(&copy, file).unwrap();
    options().rebuild_index().open(copy)
}

/// Overwrites a file, and looks again and again at what the older superblock leads to.
fn trust_the_older_superblock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let db = options().checkpoint_bytes_min(64 << 10).open(&path).unwrap();
    for _ in 0..8 {
        let model = overwrite(&db, 1000, 5000);
        db.store().checkpoint_now().unwrap();
        // What was emptied before is used again.
        let model: BTreeMap<u64, u64> =
            model.into_iter().chain(overwrite(&db, 500, 1500)).collect();
        db.sync().unwrap();
        let writer = db.store().lock().unwrap();
        let copy = with_older_superblock(&path).unwrap();
        drop(writer);
        assert_eq!(copy.len(), model.len() as u64);
        for (key, i) in model {
            assert_eq!(copy.get(key.to_le_bytes()).unwrap().as_deref(), Some(&value(i)[..]));
        }
    }
}

#[test]
fn either_superblock_of_a_compacted_file_is_enough() {
    crate::background::without_threads(trust_the_older_superblock);
}

#[test]
fn a_file_in_which_one_superblock_names_the_checkpoint_is_found() {
    let broken = || {
        mutant::with(Mutant::OneSuperblock, either_superblock_of_a_compacted_file_is_enough);
    };
    assert!(std::panic::catch_unwind(broken).is_err(), "nobody notices");
}

/// Returns the bytes moved for a byte of changes of a file, while what is emptied waits for checkpoints
/// and scans.
fn moved_share() -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let options = options().checkpoint_bytes_min(64 << 10).live_share(0.78);
    let db = options.open(dir.path().join("a")).unwrap();
    overwrite(&db, 1000, 2000);
    for _ in 0..3 {
        let scan = db.scan().unwrap();
        overwrite(&db, 1000, 2000);
        drop(scan);
    }
    let stats = db.stats().unwrap();
    stats.moved_bytes as f64 / stats.log_bytes as f64
}

#[test]
fn changes_of_a_file_do_not_pay_for_space_that_is_on_its_way() {
    let shares = || (moved_share(), mutant::with(Mutant::PaysForWaiting, moved_share));
    let (right, wrong) = crate::background::without_threads(shares);
    assert!(right < 2.0 && wrong > 1.3 * right, "{wrong} instead of {right}");
}

/// Its segment waits to be used again, and is emptied.
#[test]
fn a_big_record_that_waits_is_not_dead_again_after_a_replay() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    (0..64).for_each(|i: u64| db.put(i.to_le_bytes(), value(i)).unwrap());
    assert!(db.delete(1_u64.to_le_bytes()).unwrap());
    db.maintain(u64::MAX).unwrap();
    assert!(db.store().lock().unwrap().superblock.is_compacted);
    let big_bytes = 100_000;
    db.put(0_u64.to_le_bytes(), vec![7; big_bytes]).unwrap();
    db.put(0_u64.to_le_bytes(), value(0)).unwrap();
    db.sync().unwrap();
    let stats = db.stats().unwrap();
    assert!(stats.segments.big == 0 && stats.segments.waiting > big_bytes as u64, "{stats:?}");
    let db = disk.remount(0).open(&options()).unwrap();
    assert!(matches!(db.recovery(), Recovery::Replayed { .. }), "{:?}", db.recovery());
    let replayed = db.stats().unwrap();
    assert_eq!(replayed.segments.big, 0);
    assert!(
        replayed.dead_bytes <= stats.dead_bytes,
        "{} {}",
        replayed.dead_bytes,
        stats.dead_bytes
    );
}

/// What statistics say of the space in use.
fn counts(db: &Db) -> [u64; 4] {
    let stats = db.stats().unwrap();
    [stats.segments.log, stats.segments.big, stats.live_bytes, stats.dead_bytes]
}

/// What is emptied counts as in use no more at once, and its dead records with the next commit.
#[test]
fn a_kill_after_big_records_were_retired_leaves_no_dead_bytes_of_them() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    (0..2_u64).for_each(|i| db.put(i.to_le_bytes(), vec![7; 100_000]).unwrap());
    db.delete(1_u64.to_le_bytes()).unwrap();
    db.maintain(0).unwrap();
    let before = counts(&db);
    assert!(before[0] + before[1] >= before[2] + before[3], "{before:?}");
    let left = disk.kill().open(&options()).unwrap();
    assert_eq!(left.recovery(), Recovery::WarmRestart { records: 0 });
    assert_eq!(counts(&left), before);
}

/// Overwrites, deletes and compacts; calls `at_step` after each.
fn churn(options: &Options, mut at_step: impl FnMut(&SimDisk, &Db)) {
    let disk = SimDisk::new();
    let db = disk.open(options).unwrap();
    for step in 0..600_u64 {
        let key = (step * 7 % 60).to_le_bytes();
        match step % 13 {
            12 => {
                db.maintain(step % 3 * 5000).unwrap();
            }
            3 | 8 => {
                db.delete(key).unwrap();
            }
            5 if step % 2 == 0 => {
                let put = |batch: Batch, i: u64| batch.put((step + i).to_le_bytes(), [3; 90]);
                db.apply(&(0..3_u64).fold(Batch::new(), put)).unwrap();
            }
            _ => db.put(key, vec![7; if step % 9 == 3 { 9000 } else { 300 }]).unwrap(),
        }
        at_step(&disk, &db);
    }
    assert!(db.store().lock().unwrap().superblock.is_compacted);
}

#[test]
fn a_kill_between_two_changes_leaves_the_counts_as_they_were() {
    let options = options().checkpoint_bytes_min(8192).live_share(0.9);
    crate::background::without_threads(|| {
        churn(&options, |disk, db| {
            let left = disk.kill().open(&options).unwrap();
            if matches!(left.recovery(), Recovery::WarmRestart { .. }) {
                assert_eq!(counts(&left), counts(db));
            }
        });
    });
}

/// What a segment had that was emptied is dead again, until it is emptied again.
#[test]
fn a_replay_leaves_no_fewer_dead_bytes() {
    let options = options().checkpoint_bytes_min(8192).live_share(0.9);
    crate::background::without_threads(|| {
        churn(&options, |disk, db| {
            db.sync().unwrap();
            let left = disk.kill().remount(0).open(&options).unwrap();
            assert!(matches!(left.recovery(), Recovery::Replayed { .. }), "{:?}", left.recovery());
            let ([log, big, live, dead], expected) = (counts(&left), counts(db));
            assert_eq!(live, expected[2]);
            assert!(dead >= expected[3], "{dead} bytes instead of {}", expected[3]);
            assert!(log + big >= live + dead, "{log} and {big} bytes for {live} and {dead}");
        });
    });
}

/// The segment to which records are moved is damaged: its header, or one of its records.
#[test]
fn damage_where_records_are_moved_hides_nothing() {
    let options = options().checkpoint_bytes_min(32 << 10).live_share(0.9);
    let mut outcomes = [[0; 4]; 3];
    crate::background::without_threads(|| {
        for step in (0..600).step_by(60) {
            let disk = SimDisk::new();
            let db = disk.open(&options).unwrap();
            let model = overwrite(&db, 300, 2000 + step);
            db.sync().unwrap();
            let [killed, lost] = [disk.kill(), disk.kill().lose_power(0)];
            db.close().unwrap();
            for (left, disk) in [&disk, &killed, &lost].into_iter().enumerate() {
                // A close may move records.
                let sound = SimDisk::with_file(&disk.file()).open(&options.clone().read_only());
                let head = sound.unwrap().store().lock().unwrap().state.head_segment as usize;
                assert!(head > 0, "records have moved");
                for at in [8, SegmentHeader::BYTES as usize + 20, 1000] {
                    let mut file = disk.file();
                    file[head + at] ^= 0x10;
                    outcomes[left][damage_shows(&file, &options, &model, (left, at))] += 1;
                }
            }
        }
    });
    let [closed, killed, lost] = outcomes;
    assert_eq!(closed[..2], [0, 0], "a closed store keeps all");
    assert!(killed[1] > 0 && lost[1] > 0, "{outcomes:?}: no name in the log leads there");
    assert!(closed[2] > 0 && killed[0] + lost[0] == 0, "{outcomes:?}");
}

/// Opens a damaged file, and returns how the damage shows: by an error, by what recovery has dropped, by a
/// check, or by nothing because all is there.
fn damage_shows(
    file: &[u8],
    options: &Options,
    model: &BTreeMap<u64, u64>,
    at: (usize, usize),
) -> usize {
    let Ok(db) = SimDisk::with_file(file).open(options) else { return 0 };
    if let Recovery::Replayed { dropped_bytes, .. } = db.recovery()
        && dropped_bytes > 0
    {
        return 1;
    }
    if !db.check().unwrap().is_clean() {
        return 2;
    }
    assert_eq!(db.len(), model.len() as u64, "{at:?}");
    for (key, &i) in model {
        let found = db.get(key.to_le_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&value(i)[..]), "{at:?}: key {key}");
    }
    3
}

/// Stores keys in one session, deletes those that are `doomed` in the next one, and returns the live bytes and
/// those of the file when it is closed.
fn bytes_after_deletes(doomed: impl Fn(u64) -> bool) -> (u64, u64) {
    const KEYS: u64 = 100_000;
    let options = Options::new().seed(7).durability(Durability::Buffered);
    let disk = SimDisk::new();
    let db = disk.open(&options).unwrap();
    (0..KEYS).for_each(|i| db.put(i.to_le_bytes(), value(i)).unwrap());
    db.close().unwrap();
    let db = disk.open(&options).unwrap();
    let doomed = (0..KEYS).filter(|&i| doomed(i));
    doomed.for_each(|i| assert!(db.delete(i.to_le_bytes()).unwrap()));
    db.close().unwrap();
    let db = disk.open(&options).unwrap();
    assert_eq!(db.recovery(), Recovery::Clean);
    assert!(db.check().unwrap().is_clean());
    (db.stats().unwrap().live_bytes, disk.file().len() as u64)
}

#[test]
fn a_close_after_most_was_deleted_leaves_a_small_file() {
    let (live_bytes, bytes) = bytes_after_deletes(|i| i % 10 > 0);
    assert!(bytes * 4 <= live_bytes * 7, "{bytes} for {live_bytes}");
    let (live_bytes, bytes) = bytes_after_deletes(|_| true);
    assert!(live_bytes == 0 && bytes < 1 << 20, "{bytes} for {live_bytes}");
}

#[test]
fn a_close_after_little_was_deleted_moves_nothing() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    overwrite(&db, 4000, 20_000);
    db.close().unwrap();
    let db = disk.open(&options()).unwrap();
    (0..400_u64).for_each(|i| assert!(db.delete(i.to_le_bytes()).unwrap()));
    let (moved_bytes, file_bytes) = (db.stats().unwrap().moved_bytes, disk.file().len());
    let begun_count = || db.store().lock().unwrap().checkpoints.begun_count;
    let checkpoints = begun_count();
    db.store().pack_at_close();
    assert_eq!(db.stats().unwrap().moved_bytes, moved_bytes);
    assert_eq!((begun_count(), disk.file().len()), (checkpoints, file_bytes));
}

/// Returns a handle on a machine whose file ends with all that is live, behind what is free; many times as much.
fn live_at_the_end() -> (SimDisk, Db) {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    overwrite(&db, 20_000, 20_000);
    let held = db.get(0_u64.to_le_bytes()).unwrap();
    overwrite(&db, 20_000, 80_000);
    drop(held);
    db.store().checkpoint_now().unwrap();
    // Few changes free few segments each.
    (0..2000_u64).for_each(|i| db.put(i.to_le_bytes(), value(i)).unwrap());
    let stats = db.stats().unwrap();
    assert!(stats.segments.free > 4 * stats.live_bytes, "{stats:?}");
    (disk, db)
}

#[test]
fn maintenance_moves_many_segments_before_it_makes_a_checkpoint_to_free_them() {
    let (disk, db) = live_at_the_end();
    let begun_count = || db.store().lock().unwrap().checkpoints.begun_count;
    let (before, moved_before) = (begun_count(), db.stats().unwrap().moved_bytes);
    while !db.maintain(1 << 20).unwrap().is_done {}
    let (checkpoints, stats) = (begun_count() - before, db.stats().unwrap());
    let moved_bytes = stats.moved_bytes - moved_before;
    assert!(moved_bytes >= stats.live_bytes, "{moved_bytes} of {stats:?}");
    assert!(checkpoints <= 9, "{checkpoints} for {moved_bytes} bytes");
    db.close().unwrap();
    let bytes = disk.file().len() as u64;
    assert!(bytes * 4 <= stats.live_bytes * 7, "{bytes} for {}", stats.live_bytes);
}

/// Closes a store of which each key has been replaced nine times; returns how many holes the close made, how many
/// free ranges it left, and how many granules of them have blocks.
fn holes_of_a_close() -> (u64, u64, u64) {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    overwrite(&db, 5000, 50_000);
    let before = disk.punch_count();
    db.close().unwrap();
    let made_count = disk.punch_count() - before;
    let db = disk.open(&options()).unwrap();
    let free: Vec<u64> = {
        let writer = db.store().lock().unwrap();
        writer.extents.space().unreserved().map(|extent| extent.count).collect()
    };
    let filled_count = free.iter().sum::<u64>() - disk.hole_count();
    (made_count, free.len() as u64, filled_count)
}

/// A hole waits for the disk while its pages are not written, and the file is cut anyway.
#[test]
fn a_close_makes_a_hole_of_each_free_range_that_it_leaves_and_no_others() {
    let (made_count, left_count, filled_count) = holes_of_a_close();
    assert!(made_count <= left_count, "{made_count} for {left_count}");
    assert_eq!(filled_count, 0);
    let (made_count, left_count, _) = mutant::with(Mutant::PunchesBeforeCut, holes_of_a_close);
    assert!(made_count > left_count, "{made_count} for {left_count}: it goes unnoticed");
}

/// Returns how many bytes a close would move, and how many it may read, of a file of which most is free and
/// little has died since it was opened.
fn packed_bytes() -> (u64, u64) {
    let (disk, db) = live_at_the_end();
    let disk = disk.kill();
    drop(db);
    let db = disk.open(&options()).unwrap();
    (0..1000_u64).for_each(|i| assert!(db.delete(i.to_le_bytes()).unwrap()));
    let store = db.store();
    let dead_bytes = {
        let writer = store.lock().unwrap();
        writer.state.dead_bytes + writer.retired_record_bytes()
    };
    let moved_before = db.stats().unwrap().moved_bytes;
    store.pack_at_close();
    (db.stats().unwrap().moved_bytes - moved_before, 2 * dead_bytes)
}

#[test]
fn a_close_reads_no_more_than_twice_what_has_died() {
    let (moved_bytes, bound) = packed_bytes();
    assert!(moved_bytes > 0 && moved_bytes <= bound, "{moved_bytes} of {bound}");
    let (moved_bytes, bound) = mutant::with(Mutant::PacksBeyondBudget, packed_bytes);
    assert!(moved_bytes > bound, "{moved_bytes} of {bound}: it goes unnoticed");
}

/// Deletes most of a store of so many keys; returns whether a close would move anything, where the segments of
/// the log have so many bytes in all.
fn is_packed(keys: u64, log_bytes: Option<u64>) -> bool {
    let db = SimDisk::new().open(&options()).unwrap();
    (0..keys).for_each(|i| db.put(i.to_le_bytes(), [7; 200]).unwrap());
    // Less than a delete pays for.
    db.store().checkpoint_now().unwrap();
    (keys / 4..keys).for_each(|i| assert!(db.delete(i.to_le_bytes()).unwrap()));
    let live = db.store().region.live();
    let before = (db.stats().unwrap().moved_bytes, live.log_bytes());
    live.set_log_bytes(log_bytes.unwrap_or(before.1));
    db.store().pack_at_close();
    db.stats().unwrap().moved_bytes > before.0
}

#[test]
fn a_close_compacts_neither_a_small_loss_nor_a_long_log() {
    // 64 segments of 4 KiB are 1,100 of these records.
    assert!(!is_packed(1000, None), "three quarters of 230 KB");
    assert!(is_packed(4000, None), "three quarters of 930 KB");
    assert!(!is_packed(4000, Some(513 << 20)), "a log of 513 MiB");
}

/// Deletes most keys of a file and closes it, while `hold` holds something for a reader; returns the bytes of
/// the file before the close and after it.
fn close_beside(hold: impl FnOnce(&Db, &mut dyn FnMut())) -> (u64, u64) {
    const KEYS: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let db = options().open(&path).unwrap();
    (0..KEYS).for_each(|i| db.put(i.to_le_bytes(), value(i)).unwrap());
    db.close().unwrap();
    let db = options().open(&path).unwrap();
    let reader = options().read_only().open(&path).unwrap();
    let bytes = || std::fs::metadata(&path).unwrap().len();
    let (mut db, mut before) = (Some(db), 0);
    hold(&reader, &mut || {
        let db = db.take().unwrap();
        let doomed = (0..KEYS).filter(|i| i % 4 > 0);
        doomed.for_each(|i| assert!(db.delete(i.to_le_bytes()).unwrap()));
        before = bytes();
        db.close().unwrap();
    });
    (before, bytes())
}

#[test]
fn a_close_beside_a_reader_that_holds_something_does_not_lengthen_the_file() {
    // A checkpoint that is made meanwhile takes 80 KiB; what is live has a megabyte.
    const CHECKPOINT_BYTES_MAX: u64 = 128 << 10;
    let (before, after) = close_beside(|reader, close| {
        let value = reader.get(1_u64.to_le_bytes()).unwrap();
        close();
        assert_eq!(value.as_deref(), Some(&self::value(1)[..]));
    });
    let is_longer = after > before + CHECKPOINT_BYTES_MAX;
    assert!(!is_longer, "{after} bytes after {before}: a value");
    let (before, after) = close_beside(|reader, close| {
        let snapshot = reader.snapshot().unwrap();
        close();
        assert!(snapshot.get(1_u64.to_le_bytes()).unwrap().is_some());
    });
    let is_longer = after > before + CHECKPOINT_BYTES_MAX;
    assert!(!is_longer, "{after} bytes after {before}: a snapshot");
    let (before, after) = close_beside(|_, close| close());
    assert!(after < before / 2, "{after} bytes after {before}: nothing is held");
}

#[test]
fn maintain_of_a_table_that_was_made_large_leaves_it_as_it_is() {
    let options = options().expected_records(100_000);
    let disk = SimDisk::new();
    let db = disk.open(&options).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let db = disk.open(&options).unwrap();
    let state = || {
        let bucket_count = db.store().geometry().bucket_count();
        let writer = db.store().lock().unwrap();
        (bucket_count, writer.superblock.is_compacted, writer.mark)
    };
    let before = state();
    assert!(before.0 > 10_000 && !before.1, "{before:?}");
    assert!(db.maintain(u64::MAX).unwrap().is_done);
    assert_eq!(state(), before);
}

/// The bytes of a big record are not among those of the log behind a batch.
#[test]
fn a_batch_that_fails_without_compaction_leaves_no_fewer_dead_bytes() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    overwrite(&db, 1000, 5000);
    db.maintain(u64::MAX).unwrap();
    assert!(db.store().lock().unwrap().superblock.is_compacted);
    db.close().unwrap();
    let db = disk.open(&options().keep_dead_records()).unwrap();
    overwrite(&db, 1000, 5000);
    let before = counts(&db)[3];
    assert!(before > 200_000, "{before}");
    disk.limit_to(disk.file().len() as u64 + (1 << 20));
    let batch = Batch::new().put("big", vec![7; 100_000]).put("too big", vec![7; 4 << 20]);
    db.apply(&batch).unwrap_err();
    let after = counts(&db)[3];
    assert!(after >= before, "{after} bytes after {before}");
}

/// Opens, maintains and closes a store; returns how much that moved, and the bytes of the file.
fn maintain_alone(disk: &SimDisk, options: &Options) -> (u64, u64) {
    let db = disk.open(options).unwrap();
    let done = db.maintain(u64::MAX).unwrap();
    assert!(done.is_done);
    db.close().unwrap();
    (done.moved_bytes, disk.file().len() as u64)
}

#[test]
fn a_second_maintenance_of_a_file_moves_nothing() {
    const KEYS: u64 = 16_000;
    let mut moved = 0;
    for seed in 0..12 {
        let options = Options::new().seed(seed).durability(Durability::Buffered);
        let disk = SimDisk::new();
        let db = disk.open(&options).unwrap();
        (0..KEYS).for_each(|i| db.put(i.to_le_bytes(), [7; 200]).unwrap());
        db.close().unwrap();
        let db = disk.open(&options).unwrap();
        let doomed = (0..KEYS).filter(|i| i % 8 > 0);
        doomed.for_each(|i| assert!(db.delete(i.to_le_bytes()).unwrap()));
        db.close().unwrap();
        let (moved_bytes, bytes) = maintain_alone(&disk, &options);
        assert_eq!(maintain_alone(&disk, &options), (0, bytes), "seed {seed}");
        moved += moved_bytes;
    }
    assert!(moved > 0, "the first has nothing to do");
}

#[test]
fn a_handle_whose_sync_has_failed_merges_no_buckets() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    (0..20_000_u64).for_each(|i| db.put(i.to_le_bytes(), value(i)).unwrap());
    (100..20_000_u64).for_each(|i| assert!(db.delete(i.to_le_bytes()).unwrap()));
    let store = db.store();
    assert!(store.is_index_sparse(&store.lock().unwrap()), "there is something to merge");
    let bucket_count = db.stats().unwrap().geometry.bucket_count();
    disk.fail_call(1, EIO, true);
    db.sync().unwrap_err();
    store.shrink_index().unwrap_err();
    assert_eq!(db.stats().unwrap().geometry.bucket_count(), bucket_count);
}

/// What waits for a reader soon waits again; what a snapshot holds back does not.
#[test]
fn what_waited_for_readers_keeps_its_pages_and_what_a_snapshot_held_back_does_not() {
    let overwrite = |db: &Db, times: u64| {
        for i in 0..1000 * times {
            db.put((i % 1000).to_le_bytes(), [i as u8; 100]).unwrap();
        }
    };
    let warm_share = |is_snapshot: bool| {
        let db = options().in_memory().unwrap();
        overwrite(&db, 3);
        if is_snapshot {
            let snapshot = db.snapshot().unwrap();
            overwrite(&db, 5);
            drop(snapshot);
        } else {
            let value = db.get(0_u64.to_le_bytes()).unwrap();
            overwrite(&db, 5);
            drop(value);
        }
        overwrite(&db, 1);
        warm_bytes(&db) as f64 / db.stats().unwrap().live_bytes as f64
    };
    let (after_snapshot, after_reader) = (warm_share(true), warm_share(false));
    assert!(after_snapshot <= 0.3, "{after_snapshot:.2}");
    assert!(after_reader > 1.0, "{after_reader:.2}");
}

#[test]
fn what_could_not_be_regained_is_tried_again_once_anything_came_free() {
    let db = SimDisk::new().open(&options().checkpoint_bytes_min(16 << 10)).unwrap();
    let put = |i: u64| db.put((i % 1000).to_le_bytes(), [i as u8; 100]).unwrap();
    (0..4000).for_each(put);
    let is_hopeless = || db.store().lock().unwrap().hopeless_dead_bytes > 0;
    db.store().lock().unwrap().hopeless_dead_bytes = u64::MAX;
    put(4000);
    assert!(is_hopeless(), "nothing came free");
    (4001..12_000).for_each(put);
    assert!(!is_hopeless());
}

#[test]
fn a_handle_that_fails_within_put_many_splits_no_bucket() {
    let pairs: Vec<_> = (0..32_u64).map(|i| (i.to_le_bytes(), [7; 60])).collect();
    let mut failed_count = 0;
    for call in 1.. {
        let disk = SimDisk::new();
        let db = disk.open(&options().fill_factor(1.0)).unwrap();
        let before = db.stats().unwrap().geometry.bucket_count();
        disk.fail_once(disk.call_count() + call, SimFault::Error(EIO));
        let stored = db.put_many_with(&pairs, Durability::Sync);
        let is_poisoned = db.put("key", "value").is_err();
        if stored.is_ok() {
            assert!(!is_poisoned && db.stats().unwrap().geometry.bucket_count() > before);
            break;
        }
        if is_poisoned && db.len() < pairs.len() as u64 {
            failed_count += u64::from(!db.is_empty());
            assert_eq!(
                db.stats().unwrap().geometry.bucket_count(),
                before,
                "call {call}, {} stored",
                db.len()
            );
        }
    }
    assert!(failed_count > 10, "{failed_count}");
}

#[test]
fn put_many_begins_a_checkpoint_before_all_its_bytes_are_stored() {
    let options = options().segment_bytes_min(64 << 10).checkpoint_bytes_min(64 << 10);
    let db = SimDisk::new().open(&options).unwrap();
    db.put_many((0..32_u64).map(|i| (i.to_le_bytes(), [7; 10 << 10]))).unwrap();
    let writer = db.store().lock().unwrap();
    assert_eq!(writer.checkpoints.begun_count, 1);
    let begun = writer.checkpoints.begun_lsn;
    assert!(begun < writer.log.position().lsn / 2, "at {begun}");
}

/// What names a big record, or ends a batch, is dead from the beginning; the killed process has not published
/// that.
#[test]
fn a_kill_before_the_commit_of_a_change_leaves_its_names_dead() {
    for is_batch in [false, true] {
        let disk = Rc::new(SimDisk::new());
        let db = disk.open(&options()).unwrap();
        overwrite(&db, 100, 100);
        let copies = Rc::new(RefCell::new(Vec::new()));
        let observer = {
            let (disk, copies) = (disk.clone(), copies.clone());
            move || copies.borrow_mut().push(disk.kill())
        };
        let value = vec![7; if is_batch { 90 } else { 50_000 }];
        crate::atomic::kill_points::observe(observer, || {
            if is_batch {
                db.apply(&Batch::new().put("a", &value).put("b", &value)).unwrap();
            } else {
                db.put("a", &value).unwrap();
            }
        });
        let after = db.stats().unwrap();
        let mut made_count = 0;
        for (place, copy) in copies.take().iter().enumerate() {
            let left = copy.open(&options()).unwrap().stats().unwrap();
            if left.live_bytes == after.live_bytes {
                made_count += 1;
                assert_eq!(left.dead_bytes, after.dead_bytes, "{is_batch}, place {place}");
            }
        }
        assert!(made_count > 2, "{made_count}");
    }
}

/// A handle that keeps dead records, in a store that was never compacted: the big record is dead with the rest.
#[test]
fn the_big_records_of_a_batch_that_fails_before_a_store_is_compacted_are_dead() {
    let disk = SimDisk::new();
    let db = disk.open(&options().keep_dead_records()).unwrap();
    overwrite(&db, 1000, 5000);
    let before = counts(&db)[3];
    disk.limit_to(disk.file().len() as u64 + (1 << 20));
    let batch = Batch::new().put("big", vec![7; 100_000]).put("too big", vec![7; 4 << 20]);
    db.apply(&batch).unwrap_err();
    let after = counts(&db)[3];
    assert!((100_000..110_000).contains(&(after - before)), "{after} bytes after {before}");
}

/// An opening fills the holes beside what a change stores to.
#[test]
fn maintenance_of_a_compact_file_leaves_no_more_blocks_than_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let options = Options::new().seed(7).durability(Durability::Buffered);
    let db = options.open(&path).unwrap();
    overwrite(&db, 20_000, 20_000);
    (0..20_000_u64)
        .filter(|i| i % 10 > 0)
        .for_each(|i| assert!(db.delete(i.to_le_bytes()).unwrap()));
    db.close().unwrap();
    let maintain = || {
        let db = options.open(&path).unwrap();
        while !db.maintain(1 << 20).unwrap().is_done {}
        db.close().unwrap();
        std::fs::metadata(&path).unwrap().blocks()
    };
    maintain();
    let blocks = maintain();
    assert!((0..3).all(|_| maintain() <= blocks), "{blocks}");
    // Another hole, as large as a segment.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let bytes = file.metadata().unwrap().len();
    let filled = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    filled.unwrap();
    let full = file.metadata().unwrap().blocks();
    assert!(maintain() <= blocks && blocks < full, "{blocks} of {full}");
}
