//! The hash tables that machines of a given memory had in each era.

use serde::Serialize;
use splitpoint::stats::Ideal;

use super::{Era, EraTable};

/// A table of a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableSize {
    /// Memory of the machine in bytes.
    pub memory_bytes: u64,
    /// Version of the kernel.
    pub era: &'static str,
    /// Name of the table.
    pub table: &'static str,
    /// Its buckets.
    pub bucket_count: u64,
    /// Its size in bytes.
    pub table_bytes: u64,
    /// Whether the size is the same whatever the memory.
    pub is_fixed: bool,
    /// Objects per bucket, if a number of objects is given.
    pub load_factor: Option<f64>,
    /// Objects of the fullest bucket under an ideal hash, on average.
    pub longest_ideal: Option<f64>,
}

/// Tables of machines beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableSizes {
    /// Version of the form: 1.
    pub schema: u32,
    /// Objects in each table, if given.
    pub object_count: Option<u64>,
    /// The tables.
    pub tables: Vec<TableSize>,
    /// The tables of tasks of Linux 2.2.5, if it is among the eras: Lever named them as future work.
    pub task_tables: Vec<TaskTable>,
}

/// A table of Linux 2.2.5 whose size follows from how many tasks the kernel was built for.
///
/// Its function ends with a mask of the buckets less one, which reaches all of them only where their
/// number is a power of two.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskTable {
    /// `pid` or `uid`.
    pub table: &'static str,
    /// Tasks that the kernel was built for.
    pub task_count: u64,
    /// Its buckets.
    pub bucket_count: u64,
    /// Buckets that the mask can select.
    pub reachable_count: u64,
}

/// Tasks of a kernel as it came, and of all of Lever's kernels.
const TASK_COUNTS: [u64; 2] = [512, 4000];
/// The tables with the tasks for each of their buckets.
const TASK_TABLES: [(&str, u64); 2] = [("pid", 4), ("uid", 16)];

fn task_tables() -> Vec<TaskTable> {
    let of = |task_count: u64| {
        TASK_TABLES.map(|(table, tasks_per_bucket)| {
            let bucket_count = task_count / tasks_per_bucket;
            let reachable_count = 1 << (bucket_count - 1).count_ones();
            TaskTable { table, task_count, bucket_count, reachable_count }
        })
    };
    TASK_COUNTS.map(of).concat()
}

impl TableSizes {
    /// Applies the rules of each era to each memory.
    ///
    /// # Examples
    ///
    /// A machine of 24 GiB has 4,194,304 buckets of dentries today, of 8 bytes each:
    ///
    /// ```
    /// use splitpoint_lab::replay::{Era, TableSizes};
    ///
    /// let today = Era::by_name("6.x").expect("an era");
    /// let sizes = TableSizes::new(&[24 << 30], &[today], None);
    /// assert_eq!((sizes.tables[0].table, sizes.tables[0].table_bytes), ("dentry", 32 << 20));
    /// ```
    pub fn new(memories: &[u64], eras: &[&'static Era], object_count: Option<u64>) -> Self {
        let mut tables = Vec::new();
        for &memory_bytes in memories {
            for era in eras {
                let of_era = |it: &EraTable| size(memory_bytes, era, it, object_count);
                tables.extend(era.tables.iter().map(of_era));
            }
        }
        let has_task_tables = eras.iter().any(|era| era.name == "2.2.5");
        let task_tables = if has_task_tables { task_tables() } else { Vec::new() };
        Self { schema: 1, object_count, tables, task_tables }
    }
}

fn size(memory_bytes: u64, era: &'static Era, it: &EraTable, objects: Option<u64>) -> TableSize {
    let bucket_count = it.rule.bucket_count(it.table, memory_bytes);
    TableSize {
        memory_bytes,
        era: era.name,
        table: it.table.name(),
        bucket_count,
        table_bytes: bucket_count * era.bucket_bytes(it.table),
        is_fixed: it.rule.bucket_count(it.table, 1 << 20) == bucket_count
            && it.rule.bucket_count(it.table, 1 << 40) == bucket_count,
        load_factor: objects.map(|count| count as f64 / bucket_count as f64),
        longest_ideal: objects.map(|count| Ideal::uniform(bucket_count, count).longest_mean()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::ERAS;

    #[test]
    fn a_mask_of_a_thousand_buckets_reaches_a_quarter_of_them() {
        for it in task_tables() {
            let mask = it.bucket_count - 1;
            let reached: std::collections::BTreeSet<u64> = (0..1 << 16).map(|x| x & mask).collect();
            assert_eq!(reached.len() as u64, it.reachable_count, "{it:?}");
        }
        let of_lever = &task_tables()[2..];
        let counts = of_lever.iter().map(|it| (it.bucket_count, it.reachable_count));
        assert!(counts.eq([(1000, 256), (250, 64)]));
    }

    #[test]
    fn the_tables_of_512_mb_take_the_memory_that_they_took() {
        let eras: Vec<&Era> = ERAS.iter().collect();
        let sizes = TableSizes::new(&[512 << 20], &eras, Some(10_000));
        let of = |era: &str, table: &str| {
            let mut all = sizes.tables.iter();
            all.find(|it| it.era == era && it.table == table).unwrap()
        };
        assert_eq!(of("2.2.5", "buffer").table_bytes, 128 << 10);
        assert_eq!(of("2.2.5", "dentry").table_bytes, 8 << 10);
        // The largest allocation of its time.
        assert_eq!(of("2.2.16", "buffer").table_bytes, 2 << 20);
        assert_eq!(of("2.4.0", "inode").table_bytes, 256 << 10);
        let inodes = of("2.2.16", "inode");
        assert!(inodes.is_fixed && !of("2.4.0", "inode").is_fixed);
        assert_eq!(inodes.load_factor, Some(10_000.0 / 256.0));
        assert!(inodes.longest_ideal.is_some_and(|longest| (50.0..65.0).contains(&longest)));
        assert!(sizes.tables.iter().all(|it| it.era != "6.x" || it.table != "page"));
    }
}
