//! The hash tables of the kernel that runs: their sizes, their objects, and what an ideal hash gives.
//!
//! Without debugging, no kernel tells how long its chains are. What it does tell is how many buckets
//! the tables of dentries and inodes have, in its boot log, and how many objects there are. The rest
//! follows from an ideal hash.
//!
//! # Source
//!
//! `proc(5)`, `slabinfo(5)`, `kernel-parameters`: `dhash_entries`, `ihash_entries`.

use serde::Serialize;
use splitpoint::stats::Ideal;

use crate::replay::{KernelTable, SizeRule};

/// Bytes of a bucket: one pointer.
const BUCKET_BYTES: u64 = 8;
/// Chain lengths that the histogram tells apart.
const LENGTHS: u64 = 8;

/// What one file says, or why it could not be read.
pub type Reading = Result<String, String>;

/// The files that tell about the tables.
#[derive(Clone, Debug)]
pub struct Readings {
    /// `/proc/sys/kernel/osrelease`.
    pub release: Reading,
    /// The messages of the boot.
    pub boot_log: Reading,
    /// `/proc/cmdline`.
    pub command_line: Reading,
    /// `/proc/meminfo`.
    pub meminfo: Reading,
    /// `/proc/sys/fs/dentry-state`.
    pub dentry_state: Reading,
    /// `/proc/sys/fs/inode-nr`.
    pub inode_nr: Reading,
    /// `/proc/slabinfo`, which only root may read.
    pub slabinfo: Reading,
}

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The boot log.
    BootLog,
    /// A boot parameter.
    Parameter,
    /// The rule for as much memory as there is.
    Rule,
    /// A count in `/proc/sys/fs`.
    Counter,
    /// The slabs of its objects.
    Slabs,
}

impl Origin {
    /// Returns words for it.
    pub fn words(self) -> &'static str {
        match self {
            Self::BootLog => "boot log",
            Self::Parameter => "boot parameter",
            Self::Rule => "rule, from MemTotal",
            Self::Counter => "counter",
            Self::Slabs => "slabs",
        }
    }
}

/// A number of buckets that is expected of an ideal hash.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ChainShare {
    /// Objects in a bucket; the last row counts those with more, too.
    pub objects: u64,
    /// Buckets with as many.
    pub bucket_count: f64,
}

/// A table of the kernel that runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelTableState {
    /// Its name.
    pub table: &'static str,
    /// Buckets.
    pub bucket_count: u64,
    /// Where that comes from.
    pub bucket_origin: Origin,
    /// Size in bytes.
    pub table_bytes: u64,
    /// Objects, if they are known.
    pub object_count: Option<u64>,
    /// Where that comes from.
    pub object_origin: Option<Origin>,
    /// What follows from both.
    pub ideal: Option<IdealState>,
}

/// What an ideal hash gives for a table and its objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdealState {
    /// Objects per bucket.
    pub load_factor: f64,
    /// Share of the buckets that are empty.
    pub empty_share: f64,
    /// Objects that a hit visits.
    pub hit_steps: f64,
    /// Objects that a miss visits.
    pub miss_steps: f64,
    /// Objects of the fullest bucket, on average.
    pub longest: f64,
    /// Buckets by their objects.
    pub chains: Vec<ChainShare>,
    /// The least power of two that gives each object a bucket.
    pub enough_count: u64,
    /// Bytes that a table of that size would save; 0 if the table is smaller.
    pub saved_bytes: u64,
}

/// A file that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// The file.
    pub what: &'static str,
    /// Why.
    pub reason: String,
    /// What stands in for it.
    pub instead: &'static str,
}

/// The tables of the kernel that runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveKernel {
    /// Version of the form: 1.
    pub schema: u32,
    /// Version of the kernel, if it says.
    pub release: Option<String>,
    /// Memory in bytes, if it is known.
    pub memory_bytes: Option<u64>,
    /// The tables whose size is known.
    pub tables: Vec<KernelTableState>,
    /// Files that could not be read.
    pub unread: Vec<Unread>,
}

impl LiveKernel {
    /// Puts together what the files say.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_lab::live_kernel::{LiveKernel, Readings};
    ///
    /// let none = || Err("no such file".to_owned());
    /// let readings = Readings {
    ///     release: none(),
    ///     boot_log: none(),
    ///     command_line: none(),
    ///     meminfo: Ok("MemTotal:       24683532 kB\n".to_owned()),
    ///     dentry_state: Ok("171234\t160000\t45\t0\t5000\t0\n".to_owned()),
    ///     inode_nr: none(),
    ///     slabinfo: none(),
    /// };
    /// let live = LiveKernel::of(&readings);
    /// assert_eq!(live.tables[0].bucket_count, 4_194_304);
    /// assert_eq!(live.tables[0].object_count, Some(171_234));
    /// ```
    pub fn of(readings: &Readings) -> Self {
        let release = readings.release.as_ref().ok().map(|text| text.trim().to_owned());
        let memory_bytes = readings.meminfo.as_ref().ok().and_then(|text| mem_total(text));
        let tables = [KernelTable::Dentry, KernelTable::Inode];
        let tables = tables.into_iter().filter_map(|table| state(table, memory_bytes, readings));
        Self {
            schema: 1,
            release,
            memory_bytes,
            tables: tables.collect(),
            unread: unread(readings),
        }
    }
}

fn state(
    table: KernelTable,
    memory_bytes: Option<u64>,
    readings: &Readings,
) -> Option<KernelTableState> {
    let (bucket_count, bucket_origin) = buckets(table, memory_bytes, readings)?;
    let counted = match table {
        KernelTable::Dentry => &readings.dentry_state,
        _ => &readings.inode_nr,
    };
    let counted = counted.as_ref().ok().and_then(|text| first_number(text));
    let of_slabs = || slab_objects(table, readings.slabinfo.as_ref().ok()?);
    let objects = counted
        .map(|count| (count, Origin::Counter))
        .or_else(|| of_slabs().map(|count| (count, Origin::Slabs)));
    Some(KernelTableState {
        table: table.name(),
        bucket_count,
        bucket_origin,
        table_bytes: bucket_count * BUCKET_BYTES,
        object_count: objects.map(|(count, _)| count),
        object_origin: objects.map(|(_, origin)| origin),
        ideal: objects.map(|(count, _)| ideal(bucket_count, count)),
    })
}

/// Returns the buckets of a table by the best source there is.
fn buckets(
    table: KernelTable,
    memory_bytes: Option<u64>,
    readings: &Readings,
) -> Option<(u64, Origin)> {
    let (message, parameter) = match table {
        KernelTable::Dentry => ("Dentry cache hash table entries: ", "dhash_entries="),
        _ => ("Inode-cache hash table entries: ", "ihash_entries="),
    };
    let is_count = |count: &u64| count.is_power_of_two() && *count <= 1 << 40;
    let after = |text: &Reading, start: &str| {
        let text = text.as_ref().ok()?;
        first_number(text.split(start).nth(1)?)
    };
    if let Some(count) = after(&readings.boot_log, message).filter(is_count) {
        return Some((count, Origin::BootLog));
    }
    if let Some(count) = after(&readings.command_line, parameter).filter(|count| *count > 0) {
        let count = count.checked_next_power_of_two().filter(is_count)?;
        return Some((count, Origin::Parameter));
    }
    let count = SizeRule::Linux6.bucket_count(table, memory_bytes?);
    Some((count, Origin::Rule))
}

fn ideal(bucket_count: u64, object_count: u64) -> IdealState {
    let ideal = Ideal::uniform(bucket_count, object_count);
    let load_factor = object_count as f64 / bucket_count as f64;
    let mut chains: Vec<ChainShare> = (0..LENGTHS)
        .map(|objects| ChainShare { objects, bucket_count: ideal.bucket_count(objects) })
        .collect();
    let shorter: f64 = chains.iter().map(|row| row.bucket_count).sum();
    let longer = (bucket_count as f64 - shorter).max(0.0);
    chains.push(ChainShare { objects: LENGTHS, bucket_count: longer });
    let enough_count = object_count.max(1).next_power_of_two();
    IdealState {
        load_factor,
        empty_share: ideal.bucket_count(0) / bucket_count as f64,
        hit_steps: 1.0 + object_count.saturating_sub(1) as f64 / (2.0 * bucket_count as f64),
        miss_steps: load_factor,
        longest: ideal.longest_mean(),
        chains,
        enough_count,
        saved_bytes: bucket_count.saturating_sub(enough_count) * BUCKET_BYTES,
    }
}

fn unread(readings: &Readings) -> Vec<Unread> {
    let rule = "the rule for as much memory as there is";
    [
        ("/proc/sys/kernel/osrelease", &readings.release, "nothing: the kernel stays unnamed"),
        ("the boot log", &readings.boot_log, rule),
        ("/proc/cmdline", &readings.command_line, "no boot parameters"),
        ("/proc/meminfo", &readings.meminfo, "the boot log alone"),
        ("/proc/sys/fs/dentry-state", &readings.dentry_state, "the slabs"),
        ("/proc/sys/fs/inode-nr", &readings.inode_nr, "the slabs"),
        ("/proc/slabinfo", &readings.slabinfo, "the counters"),
    ]
    .into_iter()
    .filter_map(|(what, reading, instead)| {
        let reason = reading.as_ref().err()?.clone();
        Some(Unread { what, reason, instead })
    })
    .collect()
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    first_number(line)?.checked_mul(1024).filter(|bytes| *bytes > 0)
}

fn first_number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Returns the objects of all slabs of dentries, or of inodes.
fn slab_objects(table: KernelTable, slabinfo: &str) -> Option<u64> {
    let is_meant = |name: &str| match table {
        KernelTable::Dentry => name == "dentry",
        _ => name.contains("inode"),
    };
    let counts: Vec<u64> = slabinfo
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            is_meant(name).then(|| words.next()?.parse().ok())?
        })
        .collect();
    (!counts.is_empty())
        .then(|| counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings() -> Readings {
        Readings {
            release: Ok("6.18.0\n".into()),
            boot_log: Ok("[    0.1] Dentry cache hash table entries: 262144 (order: 9, 2097152 \
                          bytes, linear)\n[    0.1] Inode-cache hash table entries: 131072\n"
                .into()),
            command_line: Ok("quiet dhash_entries=8191\n".into()),
            meminfo: Ok("MemFree: 1 kB\nMemTotal:        2048000 kB\n".into()),
            dentry_state: Ok("100000\t9\t45\t0\t0\t0\n".into()),
            inode_nr: Ok("80000\t3\n".into()),
            slabinfo: Ok(
                "# name <active_objs>\ndentry 90000 99 192\next4_inode_cache 700 9 1128\n\
                          inode_cache 60 9 600\n"
                    .into(),
            ),
        }
    }

    fn none() -> Reading {
        Err("no such file".into())
    }

    #[test]
    fn the_best_source_decides() {
        let live = LiveKernel::of(&readings());
        let [dentry, inode] = &live.tables[..] else { panic!("two tables") };
        assert_eq!((dentry.bucket_count, dentry.bucket_origin), (262_144, Origin::BootLog));
        assert_eq!(
            (inode.object_count, inode.object_origin),
            (Some(80_000), Some(Origin::Counter))
        );
        assert!(live.unread.is_empty());

        let fewer = Readings { boot_log: none(), inode_nr: none(), ..readings() };
        let live = LiveKernel::of(&fewer);
        let [dentry, inode] = &live.tables[..] else { panic!("two tables") };
        // The kernel rounds up what it is asked for.
        assert_eq!((dentry.bucket_count, dentry.bucket_origin), (8192, Origin::Parameter));
        assert_eq!((inode.bucket_count, inode.bucket_origin), (131_072, Origin::Rule));
        assert_eq!((inode.object_count, inode.object_origin), (Some(760), Some(Origin::Slabs)));
        assert_eq!(live.unread.iter().map(|it| it.what).collect::<Vec<_>>().len(), 2);
    }

    #[test]
    fn an_ideal_hash_of_a_load_of_a_half_has_poisson_s_chains() {
        let of_half = ideal(1 << 20, 1 << 19);
        assert!((of_half.empty_share - (-0.5_f64).exp()).abs() < 1e-4);
        assert!((of_half.hit_steps - 1.25).abs() < 1e-5);
        let all: f64 = of_half.chains.iter().map(|row| row.bucket_count).sum();
        assert!((all - f64::from(1 << 20)).abs() < 1.0);
        assert_eq!((of_half.enough_count, of_half.saved_bytes), (1 << 19, 8 << 19));
    }

    /// A container may have none of them, and some systems have files with other content.
    #[test]
    fn files_without_the_numbers_lead_to_fewer_tables_and_not_to_a_panic() {
        let empty = Readings {
            release: none(),
            boot_log: none(),
            command_line: none(),
            meminfo: none(),
            dentry_state: none(),
            inode_nr: none(),
            slabinfo: none(),
        };
        let live = LiveKernel::of(&empty);
        assert!(live.tables.is_empty() && live.unread.len() == 7);
        for text in ["", "0", "MemTotal: x", "Dentry cache hash table entries: 7", "dhash_entries="]
        {
            let odd = || Ok(text.to_owned());
            let readings = Readings {
                release: odd(),
                boot_log: odd(),
                command_line: odd(),
                meminfo: odd(),
                dentry_state: odd(),
                inode_nr: odd(),
                slabinfo: odd(),
            };
            assert!(LiveKernel::of(&readings).tables.is_empty(), "{text}");
        }
    }
}
