//! What to replay: the columns of a study, each a function and a size for one table.

use std::fmt;
use std::str::FromStr;

use super::{ERAS, Era, EraTable, KernelTable, NodeLayout, Shrink, TableSetup};
use crate::specimen::KeyLayout;
use crate::{Error, Specimen};

/// A function and a size for one table, and the era whose objects it hashes.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The kernel: an era, or one of Lever's.
    pub kernel: &'static str,
    /// The era of the objects: their addresses and nodes.
    pub era: &'static Era,
    /// The function and the size.
    pub setup: TableSetup,
}

impl Column {
    /// Returns the tables of `era`, as [`of_table`](Self::of_table) does.
    ///
    /// # Errors
    ///
    /// As [`of_table`](Self::of_table).
    pub fn of_era(era: &'static Era, memory_bytes: Option<u64>) -> Result<Vec<Self>, Error> {
        era.tables.iter().map(|it| Self::of_table(era, it, memory_bytes)).collect()
    }

    /// Returns a table of `era`, of the size that its rule gives with `memory_bytes` or, without, with the
    /// memory of a machine of its time.
    ///
    /// # Errors
    ///
    /// [`Error::BucketCount`] if the function has no table of that size, as that of 2.2.16's buffers has
    /// none under 4096 buckets.
    pub fn of_table(
        era: &'static Era,
        table: &EraTable,
        memory_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        let memory_bytes = memory_bytes.unwrap_or(era.memory_bytes);
        let bucket_count = table.rule.bucket_count(table.table, memory_bytes);
        let function = Specimen::by_name(table.function)?;
        let setup = TableSetup::new(table.table, function, bucket_count, era.layouts)?;
        Ok(Self { kernel: era.name, era, setup })
    }

    /// Returns `function` in a table of `bucket_count` buckets with the objects of `era`.
    ///
    /// # Errors
    ///
    /// [`Error::BucketCount`] if its reduction has no table of that size.
    pub fn of_function(
        table: KernelTable,
        function: &'static Specimen,
        bucket_count: u64,
        era: &'static Era,
    ) -> Result<Self, Error> {
        let setup = TableSetup::new(table, function, bucket_count, era.layouts)?;
        Ok(Self { kernel: "", era, setup })
    }

    /// Returns the table.
    pub fn table(&self) -> KernelTable {
        self.setup.table()
    }

    /// Returns how the nodes of its chains lie in memory.
    pub fn nodes(&self) -> Option<&'static NodeLayout> {
        NodeLayout::of_era(self.era.name, self.table())
    }
}

/// Returns the tables that `function` suits: those whose keys it takes, or all if it takes any bytes.
pub fn tables_of(function: &Specimen) -> &'static [KernelTable] {
    match function.layout() {
        KeyLayout::Page | KeyLayout::PageIndex => &[KernelTable::Page],
        KeyLayout::Buffer => &[KernelTable::Buffer],
        KeyLayout::Dentry | KeyLayout::Dentry64 => &[KernelTable::Dentry],
        KeyLayout::Inode | KeyLayout::Inode64 => &[KernelTable::Inode],
        _ if function.name().ends_with("-name") => &[KernelTable::Dentry],
        _ => &KernelTable::ALL,
    }
}

/// Returns the era whose objects `function` hashes: 64-bit addresses are those of 6.x.
pub fn era_of(function: &Specimen) -> &'static Era {
    let is_new = matches!(function.layout(), KeyLayout::Dentry64 | KeyLayout::Inode64)
        || matches!(function.name(), "linux-4.8-name" | "linux-3.17-name" | "linux-3.10-name");
    let name = match (is_new, function.layout()) {
        (true, _) => "6.x",
        (_, KeyLayout::PageIndex) => "2.4.0",
        _ => "2.2.5",
    };
    Era::by_name(name).unwrap_or(&ERAS[0])
}

/// One of the kernels of Lever's section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// Linux 2.2.5 with the sizes it had.
    Reference,
    /// All tables replaced; pages and buffers by multiplication.
    A,
    /// As A, with Steiner's function for buffers.
    B,
    /// As A, with 2.2.5's function for pages.
    C,
    /// As A, with the offset added unshifted for pages.
    D,
}

impl Combination {
    /// All of them, in his order.
    pub const ALL: [Self; 5] = [Self::Reference, Self::A, Self::B, Self::C, Self::D];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reference => "ref",
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
        }
    }

    /// Returns the combination of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(name))
    }

    /// Returns its four tables.
    ///
    /// The inode function of A to D is "slightly modified" in the paper, which does not say how; it is
    /// 2.2.5's here, at 11 bits.
    ///
    /// # Errors
    ///
    /// None: each function has a table of its size.
    pub fn columns(self) -> Result<Vec<Column>, Error> {
        let is_reference = self == Self::Reference;
        let buffer = match self {
            Self::Reference => ("linux-2.2.5-buffer", 32_768),
            Self::B => ("steiner-buffer", 16_384),
            _ => ("lever-buffer-mult-11", 16_384),
        };
        let page = match self {
            Self::Reference => ("linux-2.2.5-page", 2048),
            Self::A | Self::B => ("lever-page-mult", 8192),
            Self::C => ("linux-2.2.5-page", 8192),
            Self::D => ("lever-page-offset", 8192),
        };
        let dentry =
            if is_reference { ("linux-2.2.5-dentry", 1024) } else { ("lever-dentry-14bit", 8192) };
        let inode = ("linux-2.2-inode", if is_reference { 256 } else { 2048 });
        let all = [
            (KernelTable::Dentry, dentry),
            (KernelTable::Inode, inode),
            (KernelTable::Page, page),
            (KernelTable::Buffer, buffer),
        ];
        let column = |(table, (function, bucket_count))| {
            let function = Specimen::by_name(function)?;
            let column = Column::of_function(table, function, bucket_count, &ERAS[0])?;
            Ok(Column { kernel: self.name(), ..column })
        };
        all.into_iter().map(column).collect()
    }
}

impl fmt::Display for Shrink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lru(bound) => write!(f, "lru:{bound}"),
            Self::All(period) => write!(f, "all:{period}"),
            Self::Half(period) => write!(f, "half:{period}"),
        }
    }
}

impl FromStr for Shrink {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self::None);
        }
        let number = |number: &str| number.parse().ok().filter(|&number: &u64| number > 0);
        let parsed = text.split_once(':').and_then(|(name, rest)| Some((name, number(rest)?)));
        match parsed {
            Some(("lru", bound)) => Ok(Self::Lru(bound)),
            Some(("all", period)) => Ok(Self::All(period)),
            Some(("half", period)) => Ok(Self::Half(period)),
            _ => Err("expected none, lru:N, all:K or half:K, with a number from 1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_era_and_combination_has_its_tables() {
        for era in ERAS {
            assert_eq!(Column::of_era(era, None).unwrap().len(), era.tables.len(), "{}", era.name);
            for column in Column::of_era(era, None).unwrap() {
                assert!(column.nodes().is_some(), "{} {:?}", era.name, column.table());
                assert!(tables_of(column.setup.function()).contains(&column.table()));
            }
        }
        for combination in Combination::ALL {
            assert_eq!(combination.columns().unwrap().len(), 4);
            assert_eq!(Combination::by_name(combination.name()), Some(combination));
        }
    }

    #[test]
    fn ways_to_shrink_are_read_as_they_are_written() {
        for shrink in [Shrink::None, Shrink::Lru(3), Shrink::All(4), Shrink::Half(5)] {
            assert_eq!(shrink.to_string().parse(), Ok(shrink));
        }
        for wrong in ["lru", "lru:0", "lru:x", "some:3", ""] {
            assert!(wrong.parse::<Shrink>().is_err(), "{wrong}");
        }
    }
}
