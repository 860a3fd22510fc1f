//! The contents of a disk, and every image of it that a power loss may leave.
//!
//! ```text
//! sector 40   durable | store | store | write      any of its versions may be on the disk
//! sector 41   durable                              only this one
//!             ^ the last sync                      ^ now
//! ```
//!
//! # Model
//!
//! - Since its last sync a sector went through versions. A power loss leaves any one of them,
//!   independently of other sectors: any subset of the writes, in any order, torn at the borders of
//!   sectors.
//! - Words of 8 bytes that were stored through a mapping are not even tied to their sector: each
//!   has any of the values that it had since the sync.
//! - The size of the file is any that it had since the last sync that fixed it. A sync of a range
//!   makes a size durable that includes the range.
//! - A failed sync may have written any part, and leaves its pages marked clean: later syncs skip
//!   them until something is stored there again.
//!
//! # Not here
//!
//! `testing::crash_tests` decides when a crash happens and checks what must be there afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Size of a sector in bytes, which a device writes as a unit.
const SECTOR_BYTES: usize = 512;
/// Bytes that a store through a mapping changes as a unit.
const WORD_BYTES: usize = 8;
/// Bytes that the kernel marks dirty or clean as a unit.
const PAGE_BYTES: usize = 4096;

type Sector = [u8; SECTOR_BYTES];

/// How bytes came into the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// By stores through a mapping.
    Stored,
    /// By a write to the file.
    Written,
}

/// A file, as the page cache has it and as the disk may have it.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// The page cache, with zeros behind the end of the file if it was longer once.
    cached: Vec<u8>,
    /// Sectors of which the disk may have another version than the cache.
    unsynced: BTreeMap<usize, Arc<History>>,
    /// Sizes of the file since the last sync that fixed it, the durable one first.
    sizes: Vec<usize>,
    /// Pages that a failed sync has marked clean.
    lost_pages: BTreeSet<usize>,
    /// Number of changes so far.
    event_count: u64,
}

/// The versions of a sector since it was durable.
#[derive(Clone, Debug)]
struct History {
    /// The durable version first, that of the cache last.
    versions: Vec<Sector>,
    /// One bit for each word that was stored through a mapping.
    stored: u64,
    /// What a power loss may leave of it, once somebody has asked. A crash test asks at each event, most of which
    /// change one sector.
    parts: OnceLock<Vec<Arc<Part>>>,
}

fn sectors_of(range: &Range<usize>) -> Range<usize> {
    range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES)
}

fn page_of(sector: usize) -> usize {
    sector * SECTOR_BYTES / PAGE_BYTES
}

impl Disk {
    /// Creates a disk with a file whose bytes are all durable.
    pub(super) fn new(file: Vec<u8>) -> Self {
        let sizes = vec![file.len()];
        let mut disk = Self { cached: file, sizes, ..Self::default() };
        disk.extend(disk.cached.len());
        disk
    }

    /// Keeps `cached` in complete sectors.
    fn extend(&mut self, bytes: usize) {
        let bytes = bytes.next_multiple_of(SECTOR_BYTES).max(self.cached.len());
        self.cached.resize(bytes, 0);
    }

    pub(super) fn file_bytes(&self) -> usize {
        self.sizes.last().copied().unwrap_or(0)
    }

    /// Returns the file as every process reads it.
    pub(super) fn file(&self) -> &[u8] {
        &self.cached[..self.file_bytes()]
    }

    #[cfg(test)]
    pub(super) fn event_count(&self) -> u64 {
        self.event_count
    }

    /// Returns whether every byte of the cache is durable.
    #[cfg(test)]
    pub(super) fn is_durable(&self) -> bool {
        self.unsynced.is_empty() && self.sizes.len() == 1
    }

    /// Records the size of the file.
    pub(super) fn resize(&mut self, bytes: usize) {
        if bytes == self.file_bytes() {
            return;
        }
        self.event_count += 1;
        let before = self.file_bytes();
        self.sizes.push(bytes);
        self.extend(bytes);
        if bytes < before {
            let zeros = vec![0; before - bytes];
            self.see(bytes, &zeros, How::Written);
        }
    }

    /// Records what the cache has from `start` on.
    pub(super) fn see(&mut self, start: usize, seen: &[u8], how: How) {
        let range = start..start + seen.len();
        self.extend(range.end);
        if how == How::Written {
            // A write dirties pages whether or not it changes them.
            let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
            self.lost_pages.retain(|page| !pages.contains(page));
        }
        if self.cached[range.clone()] == *seen {
            return;
        }
        for sector in sectors_of(&range) {
            let place = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            let part = place.start.max(range.start)..place.end.min(range.end);
            let new = &seen[part.start - start..part.end - start];
            if self.cached[part.clone()] != *new {
                let old = sector_at(&self.cached, sector);
                self.cached[part].copy_from_slice(new);
                let new = sector_at(&self.cached, sector);
                self.change(sector, &old, &new, how);
            }
        }
    }

    fn change(&mut self, sector: usize, old: &Sector, new: &Sector, how: How) {
        let history = Arc::make_mut(self.unsynced.entry(sector).or_insert_with(|| {
            Arc::new(History { versions: vec![*old], stored: 0, parts: OnceLock::new() })
        }));
        history.parts.take();
        history.versions.push(*new);
        if how == How::Stored {
            for (word, (old, new)) in words(old).zip(words(new)).enumerate() {
                history.stored |= u64::from(old != new) << word;
            }
        }
        self.lost_pages.remove(&page_of(sector));
        self.event_count += 1;
    }

    /// Makes a range durable, except pages that are marked clean.
    pub(super) fn sync(&mut self, range: &Range<usize>) {
        let lost_pages = &self.lost_pages;
        let is_synced = |sector: &usize| {
            sectors_of(range).contains(sector) && !lost_pages.contains(&page_of(*sector))
        };
        self.unsynced.retain(|sector, _| !is_synced(sector));
        let file_bytes = self.file_bytes();
        self.sizes.retain(|&bytes| bytes >= range.end && range.end < file_bytes);
        if self.sizes.last() != Some(&file_bytes) {
            self.sizes.push(file_bytes);
        }
        self.event_count += 1;
    }

    /// Fails to sync a range: any part may have been written, and its pages are marked clean.
    pub(super) fn fail_sync(&mut self, range: &Range<usize>) {
        let failed = self.unsynced.range(sectors_of(range)).map(|(&sector, _)| page_of(sector));
        self.lost_pages.extend(failed);
        self.event_count += 1;
    }

    /// Drops the pages that are marked clean from the cache, which then has what is on the disk,
    /// chosen by `seed`.
    pub(super) fn drop_clean_pages(&mut self, seed: u64) {
        let image = self.images().seeded(seed);
        let pages = std::mem::take(&mut self.lost_pages);
        for &sector in self.unsynced.keys().filter(|&&sector| pages.contains(&page_of(sector))) {
            let start = sector * SECTOR_BYTES;
            let on_disk = image.get(start..start + SECTOR_BYTES).unwrap_or(&[0; SECTOR_BYTES]);
            self.cached[start..start + SECTOR_BYTES].copy_from_slice(on_disk);
        }
        self.unsynced.retain(|&sector, _| !pages.contains(&page_of(sector)));
        self.event_count += 1;
    }

    /// Returns everything that a power loss may leave now.
    pub(super) fn images(&self) -> Images {
        let mut sizes = self.sizes.clone();
        sizes.dedup();
        let parts = self.unsynced.iter().flat_map(|(&sector, history)| {
            history.parts.get_or_init(|| parts_of(sector, history)).iter().cloned()
        });
        let parts = parts.collect();
        Images { cached: self.cached.clone(), sizes, parts }
    }
}

fn sector_at(bytes: &[u8], sector: usize) -> Sector {
    let mut copy = [0; SECTOR_BYTES];
    copy.copy_from_slice(&bytes[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES]);
    copy
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<WORD_BYTES>().0.iter().map(|&word| u64::from_le_bytes(word))
}

/// Returns the independent parts of a sector: each word that was stored, and all other words together.
fn parts_of(sector: usize, history: &History) -> Vec<Arc<Part>> {
    let start = sector * SECTOR_BYTES;
    let versions = || history.versions.iter();
    let rest = Part::new(start, !history.stored, versions().map(|version| &version[..]));
    let stored = (0..SECTOR_BYTES / WORD_BYTES).filter(|word| history.stored >> word & 1 == 1);
    let words = stored.filter_map(|word| {
        let at = word * WORD_BYTES;
        let values = versions().map(|version| &version[at..at + WORD_BYTES]);
        Part::new(start + at, 1, values)
    });
    rest.into_iter().chain(words).map(Arc::new).collect()
}

/// Bytes that may be on the disk in several versions, independent of all others.
#[derive(Clone, Debug)]
struct Part {
    offset: usize,
    /// One bit for each word from there on that belongs to it.
    mask: u64,
    /// Its possible values, oldest first. Words that do not belong to it are zero.
    values: Vec<Vec<u8>>,
    /// The index of the value in each version of the sector.
    of_version: Vec<usize>,
}

impl Part {
    /// Returns `None` if there is a single value: the cache has that already. A sector has hundreds of versions
    /// between two syncs, each of which changed few words, and a crash test asks at each event.
    fn new<'a>(offset: usize, mask: u64, versions: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut part = Self { offset, mask, values: Vec::new(), of_version: Vec::new() };
        let mut known: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for version in versions {
            let is_as_before = |value: &Vec<u8>| {
                let mut pairs = words(value).zip(words(version)).enumerate();
                pairs.all(|(word, (value, now))| mask >> word & 1 == 0 || value == now)
            };
            let before = part.of_version.last().copied();
            if let Some(before) = before.filter(|&before| is_as_before(&part.values[before])) {
                part.of_version.push(before);
                continue;
            }
            let mut value = version.to_vec();
            for (word, bytes) in value.chunks_mut(WORD_BYTES).enumerate() {
                if mask >> word & 1 == 0 {
                    bytes.fill(0);
                }
            }
            let new = part.values.len();
            let index = *known.entry(value).or_insert_with_key(|value| {
                part.values.push(value.clone());
                new
            });
            part.of_version.push(index);
        }
        (part.values.len() > 1).then_some(part)
    }

    fn newest(&self) -> usize {
        self.of_version.last().copied().unwrap_or(0)
    }

    fn put(&self, value: usize, image: &mut [u8]) {
        let value = &self.values[value];
        let place = image[self.offset..][..value.len()].chunks_mut(WORD_BYTES);
        for (word, (place, bytes)) in place.zip(value.chunks(WORD_BYTES)).enumerate() {
            if self.mask >> word & 1 == 1 {
                place.copy_from_slice(bytes);
            }
        }
    }
}

#[cfg(test)]
impl Part {
    /// Returns whether an image has this value.
    fn is_in(&self, value: usize, image: &[u8]) -> bool {
        let value = &self.values[value];
        let place = image[self.offset..][..value.len()].chunks(WORD_BYTES);
        let mut words = place.zip(value.chunks(WORD_BYTES)).enumerate();
        words.all(|(word, (place, bytes))| self.mask >> word & 1 == 0 || place == bytes)
    }
}

/// All images of a disk that a power loss may leave at one moment.
#[derive(Clone, Debug)]
pub(super) struct Images {
    cached: Vec<u8>,
    sizes: Vec<usize>,
    parts: Vec<Arc<Part>>,
}

/// A sequence of random numbers: splitmix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}

#[cfg(test)]
/// The state of the rest of the file while the images of a part are enumerated: see
/// [`Images::every`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Oldest,
    Newest,
}

impl Images {
    #[cfg(test)]
    /// Returns the number of images, at most `u128::MAX`. Images that differ only behind the end of
    /// a cut file count separately.
    pub(super) fn count(&self) -> u128 {
        let counts = self.parts.iter().map(|part| part.values.len() as u128);
        counts.fold(self.sizes.len() as u128, u128::saturating_mul)
    }

    /// Returns the image with a size and a choice for each part.
    fn image(&self, size: usize, mut choose: impl FnMut(&Part) -> usize) -> Vec<u8> {
        let mut image = self.cached.clone();
        for part in &self.parts {
            part.put(choose(part), &mut image);
        }
        image.resize(size, 0);
        image
    }

    /// Returns an image chosen by `seed`. 0 is everything as of the last sync, `u64::MAX`
    /// everything as it is now. The others are of four kinds: each part by itself; sectors that are
    /// not torn; nearly all new; nearly all old.
    pub(super) fn seeded(&self, seed: u64) -> Vec<u8> {
        let newest_size = self.sizes.last().copied().unwrap_or(0);
        match seed {
            0 => return self.image(self.sizes[0], |_| 0),
            u64::MAX => return self.image(newest_size, Part::newest),
            _ => {}
        }
        let mut random = Random(seed);
        let manner = random.below(4);
        let size = self.sizes[random.below(self.sizes.len())];
        let mut sector_choice = (usize::MAX, 0);
        self.image(size, |part| {
            let is_rare = random.below(6) == 0;
            let any = random.below(part.values.len());
            match manner {
                1 => {
                    let sector = part.offset / SECTOR_BYTES;
                    if sector_choice.0 != sector {
                        sector_choice = (sector, random.below(part.of_version.len()));
                    }
                    part.of_version[sector_choice.1]
                }
                2 if !is_rare => part.newest(),
                3 if !is_rare => 0,
                _ => any,
            }
        })
    }

    #[cfg(test)]
    /// Calls `visit` with every image of the parts in `ranges` and of the size, the rest being
    /// oldest or newest, and returns the number of images.
    pub(super) fn every(
        &self,
        ranges: &[Range<usize>],
        rest: Rest,
        visit: &mut dyn FnMut(Vec<u8>),
    ) -> u64 {
        let is_inside = |part: &Part| ranges.iter().any(|range| range.contains(&part.offset));
        let (inside, outside): (Vec<&Part>, Vec<&Part>) =
            self.parts.iter().map(|part| &**part).partition(|part| is_inside(part));
        let mut image = self.cached.clone();
        for part in outside {
            part.put(if rest == Rest::Oldest { 0 } else { part.newest() }, &mut image);
        }
        let mut count = 0;
        each_choice(&inside, &mut image, &mut |image| {
            for &size in &self.sizes {
                let mut image = image.to_vec();
                image.resize(size, 0);
                visit(image);
                count += 1;
            }
        });
        count
    }

    #[cfg(test)]
    /// Returns whether a power loss may leave this image.
    pub(super) fn has(&self, image: &[u8]) -> bool {
        let mut whole = image.to_vec();
        whole.resize(self.cached.len(), 0);
        // With what the image has of each part, all else is as it is on every disk.
        let mut certain = self.cached.clone();
        let is_certain = self.parts.iter().all(|part| {
            let value = (0..part.values.len()).find(|&value| part.is_in(value, &whole));
            value.inspect(|&value| part.put(value, &mut certain)).is_some()
        });
        certain.resize(image.len(), 0);
        is_certain && self.sizes.contains(&image.len()) && certain == image
    }

    #[cfg(test)]
    /// Calls `visit` with the images in which all parts are old or all are new, except those `beside` in any
    /// combination, and one in `range`, which has any of its values; returns the number of images.
    pub(super) fn each_alone(
        &self,
        range: &Range<usize>,
        beside: &Range<usize>,
        visit: &mut dyn FnMut(Vec<u8>),
    ) -> u64 {
        let size = self.sizes.last().copied().unwrap_or(0);
        let parts = self.parts.iter().map(|part| &**part);
        let (free, fixed): (Vec<&Part>, Vec<&Part>) =
            parts.partition(|part| beside.contains(&part.offset));
        let mut count = 0;
        for rest in [Rest::Oldest, Rest::Newest] {
            let of_rest = |part: &Part| if rest == Rest::Oldest { 0 } else { part.newest() };
            let mut around = self.cached.clone();
            for part in &fixed {
                part.put(of_rest(part), &mut around);
            }
            each_choice(&free, &mut around, &mut |around| {
                for part in fixed.iter().filter(|part| range.contains(&part.offset)) {
                    for value in (0..part.values.len()).filter(|&value| value != of_rest(part)) {
                        let mut image = around.to_vec();
                        part.put(value, &mut image);
                        image.resize(size, 0);
                        visit(image);
                        count += 1;
                    }
                }
            });
        }
        count
    }
}

#[cfg(test)]
/// Calls `visit` with an image for every choice of values for `parts` of it.
fn each_choice(parts: &[&Part], image: &mut [u8], visit: &mut dyn FnMut(&[u8])) {
    let Some((first, others)) = parts.split_first() else { return visit(image) };
    for value in 0..first.values.len() {
        first.put(value, image);
        each_choice(others, image, visit);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn every(disk: &Disk) -> Vec<Vec<u8>> {
        let mut images = Vec::new();
        disk.images().every(std::slice::from_ref(&(0..usize::MAX)), Rest::Newest, &mut |image| {
            images.push(image);
        });
        assert_eq!(images.len() as u128, disk.images().count());
        images
    }

    fn with(file: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
        let mut file = file.to_vec();
        for &(at, byte) in changes {
            file[at] = byte;
        }
        file
    }

    #[test]
    fn writes_reach_the_disk_by_sectors_in_any_order() {
        let old = vec![0; 2 * SECTOR_BYTES];
        let mut disk = Disk::new(old.clone());
        disk.see(500, &[1; 24], How::Written);
        disk.see(0, &[2], How::Written);
        let images = every(&disk);
        assert_eq!(images.len(), 3 * 2);
        let second_only = with(&old, &(512..524).map(|at| (at, 1)).collect::<Vec<_>>());
        assert!(images.contains(&second_only));
        // What was between is among them: the first write's sector without the second write.
        let first_only = with(&old, &(500..512).map(|at| (at, 1)).collect::<Vec<_>>());
        assert!(images.contains(&first_only));
        assert!(!images.contains(&with(&old, &[(0, 2)])), "a sector is whole");
    }

    #[test]
    fn stores_reach_the_disk_by_words_with_any_value_they_had() {
        let old = vec![0; SECTOR_BYTES];
        let mut disk = Disk::new(old.clone());
        for (at, byte) in [(0, 1), (8, 2), (0, 3)] {
            disk.see(at, &[byte; 8], How::Stored);
        }
        let images = every(&disk);
        assert_eq!(images.len(), 3 * 2);
        let mut second_without_first = old;
        second_without_first[8..16].fill(2);
        assert!(images.contains(&second_without_first));
    }

    #[test]
    fn an_image_is_one_of_those_that_a_power_loss_may_leave_or_not() {
        let mut disk = Disk::new(vec![0; PAGE_BYTES]);
        disk.see(0, &[1; 700], How::Written);
        disk.see(8, &[2; 8], How::Stored);
        disk.resize(2 * PAGE_BYTES);
        let images = disk.images();
        assert!(every(&disk).iter().all(|image| images.has(image)));
        let cached = disk.file().to_vec();
        for at in [0, 8, 600, 1000] {
            assert!(!images.has(&with(&cached, &[(at, 3)])), "byte {at}");
        }
        assert!(!images.has(&cached[..PAGE_BYTES + 8]), "no such size");
    }

    #[test]
    fn a_sync_leaves_one_image_of_its_range() {
        let mut disk = Disk::new(vec![0; 4 * SECTOR_BYTES]);
        disk.see(0, &[1; 4 * SECTOR_BYTES], How::Written);
        assert_eq!(every(&disk).len(), 16);
        disk.sync(&(0..2 * SECTOR_BYTES));
        assert_eq!(every(&disk).len(), 4);
        disk.sync(&(0..4 * SECTOR_BYTES));
        assert!(disk.is_durable());
        assert_eq!(every(&disk), [vec![1; 4 * SECTOR_BYTES]]);
    }

    #[test]
    fn a_size_is_durable_when_a_sync_reaches_so_far() {
        let mut disk = Disk::new(vec![1; PAGE_BYTES]);
        disk.resize(2 * PAGE_BYTES);
        disk.resize(3 * PAGE_BYTES);
        let sizes = |disk: &Disk| every(disk).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(&disk), [PAGE_BYTES, 2 * PAGE_BYTES, 3 * PAGE_BYTES]);
        disk.sync(&(PAGE_BYTES..2 * PAGE_BYTES));
        assert_eq!(sizes(&disk), [2 * PAGE_BYTES, 3 * PAGE_BYTES]);
        disk.resize(PAGE_BYTES);
        assert_eq!(sizes(&disk), [2 * PAGE_BYTES, 3 * PAGE_BYTES, PAGE_BYTES]);
        disk.sync(&(0..PAGE_BYTES));
        assert_eq!(sizes(&disk), [PAGE_BYTES]);
    }

    #[test]
    fn a_cut_makes_zeros_that_may_not_have_reached_the_disk() {
        let mut disk = Disk::new(vec![1; 2 * PAGE_BYTES]);
        disk.resize(PAGE_BYTES);
        disk.resize(2 * PAGE_BYTES);
        assert_eq!(disk.file()[PAGE_BYTES..], vec![0; PAGE_BYTES]);
        let tail = |image: &Vec<u8>| image.get(PAGE_BYTES).copied();
        let tails: BTreeSet<_> = every(&disk).iter().map(tail).collect();
        assert_eq!(tails, BTreeSet::from([None, Some(0), Some(1)]));
    }

    #[test]
    fn what_a_failed_sync_gave_up_is_not_written_by_the_next_one() {
        let mut disk = Disk::new(vec![0; 2 * PAGE_BYTES]);
        disk.see(0, &[1; 8], How::Written);
        disk.see(PAGE_BYTES, &[1; 8], How::Written);
        disk.fail_sync(&(0..PAGE_BYTES));
        disk.sync(&(0..2 * PAGE_BYTES));
        assert_eq!(every(&disk).len(), 2, "only the second page is durable");
        let mut dropped = disk.clone();
        dropped.drop_clean_pages(0);
        assert_eq!((dropped.file()[0], dropped.file()[PAGE_BYTES]), (0, 1));
        // Another store makes the whole page dirty again.
        disk.see(3000, &[2; 8], How::Stored);
        disk.sync(&(0..2 * PAGE_BYTES));
        assert!(disk.is_durable());
    }

    #[test]
    fn seeds_choose_images_of_the_enumeration_and_reach_all_of_a_few() {
        let mut disk = Disk::new(vec![0; PAGE_BYTES]);
        disk.see(0, &[1; 700], How::Written);
        disk.see(8, &[2; 8], How::Stored);
        disk.see(512, &[3; 8], How::Stored);
        disk.resize(2 * PAGE_BYTES);
        let all: BTreeSet<_> = every(&disk).into_iter().collect();
        let images = disk.images();
        let seeded: BTreeSet<_> = (0..4000).map(|seed| images.seeded(seed)).collect();
        assert!(seeded == all, "{} of {}", seeded.len(), all.len());
        assert_eq!(images.seeded(u64::MAX), disk.file());
    }
}
