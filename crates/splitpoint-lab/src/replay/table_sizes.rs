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
        Self { schema: 1, object_count, tables }
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
