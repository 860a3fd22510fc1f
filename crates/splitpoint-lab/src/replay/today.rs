//! Whether today's tables are fine: at several sizes, under many addresses, and under attack.
//!
//! # Source
//!
//! `fs/dcache.c`, `fs/inode.c` and `fs/namei.c` of Linux 6.x, by their formulas. Bacik's names of 2014.

use rayon::prelude::*;
use splitpoint::stats::Ideal;

use super::plan::Column;
use super::replaying::{Replay, lines_per_lookup};
use super::study::{Across, NameAttack, SuperblockReplay, TodayReplay};
use super::{
    Era, KernelTable, ObjectLayout, Reading, Run, SizeRule, Step, TableSetup, ideal_buckets,
};
use crate::occupancy::Occupancy;
use crate::random::Random;
use crate::specimen::linux::{GOLDEN_64, hash_64};
use crate::{Error, Specimen};

/// Memory of the machine whose tables are taken as today's.
const MEMORY_BYTES: u64 = 24 << 30;
/// What the real size is divided by, besides a table of 2^10 buckets.
const DIVISORS: [u64; 3] = [1, 16, 256];
const SMALL_BITS: u32 = 10;
/// Addresses of parents that are tried; of superblocks, of which a file system has one.
const PARENT_SEEDS: u64 = 20;
const SUPERBLOCK_SEEDS: u64 = 100;
/// Addresses of superblocks that are tried at the size at which some are known to be bad.
const SUPERBLOCK_SEEDS_MANY: u64 = 500;
/// The bits of that size, and the addresses: this and its negative, modulo it.
const AWKWARD_BITS: u32 = 17;
const AWKWARD_ADDRESS: u64 = 0x800;
/// Addresses of each kind.
const AWKWARD_COUNT: u64 = 10;
/// Binary logarithm of the bytes of memory for each bucket of inodes.
const INODE_SCALE: u32 = 14;
/// Where the memory of x86-64 starts.
const MEMORY_BASE: u64 = 0xffff_8880_0000_0000;

impl Replay<'_> {
    /// Measures today's tables of names and inodes at several sizes, beside those of 2.2.5.
    ///
    /// # Errors
    ///
    /// As [`tables`](Self::tables).
    pub fn today(&self) -> Result<Vec<TodayReplay>, Error> {
        let mut rows = Vec::new();
        for table in [KernelTable::Dentry, KernelTable::Inode] {
            if !self.is_used(table) {
                continue;
            }
            for era in ["2.2.5", "6.x"] {
                let Some(era) = Era::by_name(era) else { continue };
                let of_era = era.tables.iter().find(|it| it.table == table);
                let Some(of_era) = of_era else { continue };
                let function = Specimen::by_name(of_era.function)?;
                for (bucket_count, memory_bytes) in sizes(of_era.rule, table) {
                    let column = Column::of_function(table, function, bucket_count, era)?;
                    rows.push(self.today_row(&column, memory_bytes)?);
                }
            }
        }
        Ok(rows)
    }

    fn today_row(&self, column: &Column, memory_bytes: Option<u64>) -> Result<TodayReplay, Error> {
        let table = column.table();
        let seed_count = match table {
            KernelTable::Inode => SUPERBLOCK_SEEDS,
            _ => PARENT_SEEDS,
        };
        self.expect(seed_count + self.draw_count());
        let seeds = (1..=seed_count).into_par_iter().map(|seed| {
            let buckets = self.buckets(column, seed)?;
            Ok(self.whole(table, column.setup.bucket_count(), &buckets))
        });
        let seeds: Vec<(Reading, Option<f64>)> = seeds.collect::<Result<_, Error>>()?;
        let z: Option<Vec<f64>> = seeds.iter().map(|(_, z)| *z).collect();
        let visited: Vec<f64> = seeds.iter().map(|(it, _)| it.visited_per_lookup()).collect();
        let lines = column.nodes().map_or(0.0, |nodes| {
            let sum: f64 = seeds.iter().map(|(it, _)| lines_per_lookup(nodes, 64, it)).sum();
            sum / seeds.len() as f64
        });
        Ok(TodayReplay {
            era: column.era.name.to_owned(),
            table,
            bucket_count: column.setup.bucket_count(),
            table_bytes: column.setup.bucket_count() * column.era.bucket_bytes(table),
            memory_bytes,
            visited: Across::of(&visited).unwrap_or_default(),
            visited_ideal: self.ideal_visited(table, column.setup.bucket_count()),
            seed_count,
            z: z.and_then(|z| Across::of(&z)),
            lines_per_lookup: lines,
        })
    }

    /// Returns what a whole stream shows at its end, and the z of the buckets.
    fn whole(
        &self,
        table: KernelTable,
        bucket_count: u64,
        buckets: &[u32],
    ) -> (Reading, Option<f64>) {
        let mut run = Run::new(self.streams().steps(table), buckets, bucket_count);
        run.finish();
        let sizes = (0..).zip(run.chains().visits().buckets_by_size);
        let z = Occupancy::uniform(sizes.collect()).chi_square().map(|test| test.z);
        self.tick();
        (run.reading(), z)
    }

    fn ideal_visited(&self, table: KernelTable, bucket_count: u64) -> Across {
        let object_count = self.streams().object_count(table);
        let draws = (1..=self.draw_count()).into_par_iter().map(|draw| {
            let buckets = ideal_buckets(object_count, bucket_count, draw);
            self.whole(table, bucket_count, &buckets).0.visited_per_lookup()
        });
        Across::of(&draws.collect::<Vec<f64>>()).unwrap_or_default()
    }

    /// Tries addresses of superblocks at every size of today's inode table, on the inodes that are in it
    /// at the end.
    ///
    /// # Errors
    ///
    /// As [`tables`](Self::tables).
    pub fn superblocks(&self) -> Result<Vec<SuperblockReplay>, Error> {
        let inodes = self.inodes_at_end();
        if inodes.is_empty() {
            return Ok(Vec::new());
        }
        let largest = SizeRule::Linux6.bucket_count(KernelTable::Inode, MEMORY_BYTES).ilog2();
        (SMALL_BITS..=largest).map(|bits| self.superblocks_of(bits, &inodes)).collect()
    }

    fn superblocks_of(&self, bits: u32, inodes: &[u32]) -> Result<SuperblockReplay, Error> {
        let era = Era::by_name("6.x").expect("an era of the list");
        let function = Specimen::by_name("linux-6.14-inode")?;
        let column = Column::of_function(KernelTable::Inode, function, 1 << bits, era)?;
        let count = if bits == AWKWARD_BITS { SUPERBLOCK_SEEDS_MANY } else { SUPERBLOCK_SEEDS };
        let awkward = awkward_addresses();
        self.expect(count + 2 * awkward.len() as u64);
        let visited_ideal = 1.0 + (inodes.len() as f64 - 1.0) / 2.0 / 2_f64.powf(bits.into());
        let ratio = |buckets: &[u32]| {
            let (visited, largest) = visited_by_hits(bits, inodes, buckets);
            self.tick();
            (visited / visited_ideal, largest)
        };
        let random =
            (1..=count).into_par_iter().map(|seed| Ok(ratio(&self.buckets(&column, seed)?).0));
        let random: Vec<f64> = random.collect::<Result<_, Error>>()?;
        let at_awkward = |&address: &u64| ratio(&self.inode_buckets(&column.setup, address));
        let awkward_found: Vec<(f64, u64)> = awkward.par_iter().map(at_awkward).collect();
        let mended = awkward.par_iter().map(|&address| ratio(&self.mended(address, bits)).0);
        let share = |limit: f64| {
            random.iter().filter(|&&ratio| ratio > limit).count() as f64 / random.len() as f64
        };
        let ratios = |values: &[f64]| Across::of(values).unwrap_or_default();
        Ok(SuperblockReplay {
            bucket_count: 1 << bits,
            memory_bytes: 1 << (bits + INODE_SCALE),
            address_count: count,
            inode_count: inodes.len() as u64,
            visited_ideal,
            ratio: ratios(&random),
            share_over_1_1: share(1.1),
            share_over_1_5: share(1.5),
            ratio_awkward: ratios(&awkward_found.iter().map(|it| it.0).collect::<Vec<_>>()),
            largest_awkward: awkward_found.iter().map(|it| it.1).max().unwrap_or(0),
            largest_ideal: Ideal::uniform(1 << bits, inodes.len() as u64).longest_mean(),
            ratio_mended: ratios(&mended.collect::<Vec<_>>()),
        })
    }

    /// Returns the inodes that are in the table at the end of the stream.
    fn inodes_at_end(&self) -> Vec<u32> {
        let mut is_there = vec![false; self.streams().inode.keys().len()];
        for step in self.streams().inode.steps() {
            match *step {
                Step::Miss(object) | Step::Insert(object) => is_there[object as usize] = true,
                Step::Remove(object) => is_there[object as usize] = false,
                Step::Hit(..) => {}
            }
        }
        (0..).zip(is_there).filter(|(_, is_there)| *is_there).map(|(object, _)| object).collect()
    }

    /// The first device has the address; others lie 2 MiB apart, so that theirs are as awkward.
    fn inode_buckets(&self, setup: &TableSetup, address: u64) -> Vec<u32> {
        setup.inode_buckets(self.streams(), |device| address + (u64::from(device) << 21))
    }

    /// What would mend it: the sum is multiplied, and the top bits of the product kept, which all bits
    /// of the inode number reach whatever the address is.
    fn mended(&self, address: u64, bits: u32) -> Vec<u32> {
        let keys = self.streams().inode.keys().iter();
        keys.map(|key| {
            let superblock = address + (u64::from(key.device) << 21);
            hash_64(superblock.wrapping_add(key.number), GOLDEN_64, bits) as u32
        })
        .collect()
    }
}

/// Returns the nodes visited to find an object of the table, on average over them, and the objects of the
/// fullest bucket: the objects of a bucket are found after 1, 2, 3 ... nodes.
fn visited_by_hits(bits: u32, objects: &[u32], buckets: &[u32]) -> (f64, u64) {
    let mut sizes = vec![0_u32; 1 << bits];
    let (mut nodes, mut largest) = (0_u64, 0);
    for &object in objects {
        let size = &mut sizes[buckets[object as usize] as usize];
        *size += 1;
        nodes += u64::from(*size);
        largest = largest.max(*size);
    }
    (nodes as f64 / objects.len().max(1) as f64, largest.into())
}

/// Returns the sizes to measure, and the most memory of a machine with each.
fn sizes(rule: SizeRule, table: KernelTable) -> Vec<(u64, Option<u64>)> {
    let real = rule.bucket_count(table, MEMORY_BYTES);
    if matches!(rule, SizeRule::Fixed(_)) {
        return vec![(real, None)];
    }
    let bytes_per_bucket = if table == KernelTable::Dentry { 1 << 13 } else { 1 << INODE_SCALE };
    let sizes = DIVISORS.iter().map(|divisor| real / divisor).chain([1 << SMALL_BITS]);
    sizes.map(|size| (size, Some(size * bytes_per_bucket))).collect()
}

/// Returns addresses that are 0x800 or -0x800 modulo 2^17, in random places of memory.
fn awkward_addresses() -> Vec<u64> {
    let mut random = Random::new(AWKWARD_ADDRESS);
    let mut address = |rest: u64| MEMORY_BASE + (random.below(1 << 17) << AWKWARD_BITS) + rest;
    let negative = (1 << AWKWARD_BITS) - AWKWARD_ADDRESS;
    let both = (0..AWKWARD_COUNT).flat_map(|_| [address(AWKWARD_ADDRESS), address(negative)]);
    both.collect()
}

/// Names of Bacik's list, `a0` to `a999999`.
const BACIK_NAMES: u64 = 1_000_000;
/// Names that are made to collide.
const MADE_NAMES: u64 = 10_000;
/// Salts under which names are tried.
const SALTS: u64 = 10;

/// Measures names that were made to harm a table of names, under one parent: Bacik's at every size, and
/// names that collide under a salt that their maker knows.
///
/// # Errors
///
/// None: the functions and sizes are those of the lab.
///
/// # Cost
///
/// About a second for each size of Bacik's table.
pub fn name_attacks() -> Result<Vec<NameAttack>, Error> {
    let parents = ObjectLayout::Dentry6.addresses(SALTS + 1, 1).unwrap_or_default();
    let bacik: Vec<Vec<u8>> = (0..BACIK_NAMES).map(|n| format!("a{n}").into_bytes()).collect();
    let mut tasks = Vec::new();
    for bits in (10..=24).step_by(2) {
        for function in ["linux-3.10-name", "linux-4.8-name"] {
            tasks.push(("a0 to a999999", "nothing", function, bits, &bacik, &parents[1..2]));
        }
    }
    let made = names_that_collide(parents[0], MADE_NAMES);
    let real = SizeRule::Linux6.bucket_count(KernelTable::Dentry, MEMORY_BYTES).ilog2();
    let known = ("made to collide", "the salt", "linux-4.8-name", real, &made, &parents[..1]);
    let other = ("made to collide", "another salt", "linux-4.8-name", real, &made, &parents[1..]);
    let keyed =
        ("made to collide", "the salt, not the key", "siphash-1-3", real, &made, &parents[1..]);
    tasks.extend([known, other, keyed]);
    let attacks = tasks.into_par_iter().map(|(names, salt, function, bits, list, salts)| {
        let function = Specimen::by_name(function)?;
        attack([names, salt], function, bits, list, salts)
    });
    attacks.collect()
}

fn attack(
    [what, salt]: [&str; 2],
    function: &'static Specimen,
    bits: u32,
    names: &[Vec<u8>],
    salts: &[u64],
) -> Result<NameAttack, Error> {
    let reduction = function.historic_reduction().unwrap_or(crate::Reduction::LowMask);
    let reducer = reduction.prepare(function.width_bits(), 1 << bits)?;
    let all: Vec<u32> = (0..).zip(names).map(|(number, _)| number).collect();
    let (mut visited, mut largest) = (Vec::new(), 0);
    for &salt in salts {
        let bucket = |name: &Vec<u8>| reducer.bucket_of(function.hash(name, salt)) as u32;
        let buckets: Vec<u32> = names.iter().map(bucket).collect();
        let (nodes, fullest) = visited_by_hits(bits, &all, &buckets);
        visited.push(nodes);
        largest = largest.max(fullest);
    }
    let n = names.len() as f64;
    let ideal = Ideal::uniform(1 << bits, names.len() as u64);
    Ok(NameAttack {
        names: what.to_owned(),
        salt: salt.to_owned(),
        hash: function.name().to_owned(),
        name_count: names.len() as u64,
        bucket_count: 1 << bits,
        visited: Across::of(&visited).unwrap_or_default(),
        visited_ideal: 1.0 + (n - 1.0) / 2.0 / 2_f64.powf(bits.into()),
        largest,
        largest_ideal: ideal.longest_mean(),
    })
}

/// Returns names of 24 bytes whose hashes since 4.8 are all equal under `salt`.
///
/// Each word of a name is mixed into a state of two words by steps that can be undone, so that the
/// second and third word can lead any first word to the same state. Neither `/` nor NUL is in them.
pub fn names_that_collide(salt: u64, count: u64) -> Vec<Vec<u8>> {
    /// What both halves of the state become before they are mixed; any numbers do.
    const TARGETS: [u64; 2] = [0x6b79_2d65_6c62_6174, 0x7469_6c70_736e_6f69];
    let mut random = Random::new(salt);
    let mut names = Vec::new();
    while (names.len() as u64) < count {
        let (mut x, mut y) = (0_u64, salt);
        let mut name = Vec::with_capacity(24);
        for target in [None, Some(TARGETS[0]), Some(TARGETS[1])] {
            let word = target.map_or_else(|| random.next(), |target| target ^ y ^ x);
            name.extend(word.to_le_bytes());
            x ^= word;
            y ^= x;
            x = x.rotate_left(12).wrapping_add(y);
            y = y.rotate_left(45).wrapping_mul(9);
        }
        if !name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::specimen::linux::name_4_8;

    #[test]
    fn names_made_for_a_salt_collide_under_it_in_all_bits_and_under_no_other() {
        let names = names_that_collide(0xffff_8883_9af8_1180, 1000);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 1000);
        let hashes = |salt| names.iter().map(|name| name_4_8(name, salt)).collect::<HashSet<_>>();
        assert_eq!(hashes(0xffff_8883_9af8_1180).len(), 1);
        assert!(hashes(0xffff_8883_9af8_1240).len() > 990);
        assert!(names.iter().all(|name| name.len() == 24));
    }

    #[test]
    fn awkward_addresses_are_what_they_are_called() {
        let rests: HashSet<u64> =
            awkward_addresses().iter().map(|address| address % (1 << 17)).collect();
        assert_eq!(rests, HashSet::from([0x800, 0x1_f800]));
    }

    #[test]
    fn a_machine_of_the_memory_that_is_named_has_a_table_of_that_size() {
        for table in [KernelTable::Dentry, KernelTable::Inode] {
            for (size, memory) in sizes(SizeRule::Linux6, table) {
                let memory = memory.expect("today's sizes depend on memory");
                assert_eq!(SizeRule::Linux6.bucket_count(table, memory), size);
                assert!(SizeRule::Linux6.bucket_count(table, memory + (1 << 20)) > size);
            }
        }
    }
}
