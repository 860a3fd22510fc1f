//! What to replay: the columns that the options of the command line ask for.

use clap::builder::PossibleValuesParser;
use splitpoint_lab::Specimen;
use splitpoint_lab::replay::{Column, Combination, ERAS, Era, KernelTable, era_of, tables_of};

use super::super::super::list::by_name;
use super::{Args, of_lab};
use crate::failure::{Exit, Failure, Result};

/// Functions that Lever tried, whose costs over the size are shown beside those of the kernels.
const TRIED: [(KernelTable, &str); 6] = [
    (KernelTable::Dentry, "lever-dentry-14bit"),
    (KernelTable::Dentry, "lever-dentry-mult"),
    (KernelTable::Page, "lever-page-mult"),
    (KernelTable::Page, "lever-page-offset"),
    (KernelTable::Buffer, "lever-buffer-mult-11"),
    (KernelTable::Buffer, "steiner-buffer"),
];

/// Everything that is measured on each trace.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) tables: Vec<KernelTable>,
    pub(super) columns: Vec<Column>,
    /// Functions that are measured at many sizes.
    pub(super) functions: Vec<(KernelTable, &'static Specimen)>,
    /// The columns are those of kernels.
    pub(super) is_of_eras: bool,
    pub(super) combinations: Option<Vec<Combination>>,
}

impl Plan {
    pub(super) fn of(args: &Args) -> Result<Self> {
        let mut tables: Vec<KernelTable> =
            args.table.iter().flat_map(|table| table.tables()).copied().collect();
        tables.sort_unstable();
        tables.dedup();
        let combinations = args.combine.as_deref().map(combinations);
        let eras = eras(args);
        let columns = if args.hash.is_empty() {
            of_eras(args, &eras, &tables)?
        } else {
            of_functions(args, &tables)?
        };
        if columns.is_empty() {
            let message = "no kernel that was named has a hash table that was named";
            return Err(Failure::new(Exit::Usage, message)
                .hint("since 2.6 pages and buffers are in trees: use an era from 2.2.5 to 2.4.0"));
        }
        let is_of_eras = args.hash.is_empty();
        let mut functions: Vec<(KernelTable, &'static Specimen)> = Vec::new();
        let mut add = |table: KernelTable, function: &'static Specimen| {
            if !functions.iter().any(|it| it.0 == table && it.1.name() == function.name()) {
                functions.push((table, function));
            }
        };
        for column in &columns {
            add(column.table(), column.setup.function());
        }
        if is_of_eras && args.era.is_empty() {
            for (table, name) in TRIED.iter().filter(|(table, _)| tables.contains(table)) {
                add(*table, by_name(name)?);
            }
        }
        Ok(Self { tables, columns, functions, is_of_eras, combinations })
    }
}

/// The tables of kernels, at the sizes of their rules or those that were asked.
fn of_eras(args: &Args, eras: &[&'static Era], tables: &[KernelTable]) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    for era in eras {
        for table in era.tables.iter().filter(|it| tables.contains(&it.table)) {
            if args.buckets.is_empty() {
                let column = Column::of_table(era, table, args.memory);
                columns.push(column.map_err(|error| {
                    of_lab(error).hint("give more --memory, or leave the table out with --table")
                })?);
            }
            let function = by_name(table.function)?;
            for &bucket_count in &args.buckets {
                let sized = Column::of_function(table.table, function, bucket_count, era);
                columns.push(Column { kernel: era.name, ..sized.map_err(of_size)? });
            }
        }
    }
    Ok(columns)
}

/// The functions that were asked, in the tables that they suit, at the sizes that were asked or those
/// of an era.
fn of_functions(args: &Args, tables: &[KernelTable]) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    for name in &args.hash {
        let function = by_name(name)?;
        let named = eras(args);
        let eras = if args.era.is_empty() { vec![era_of(function)] } else { named };
        for era in eras {
            for &table in tables.iter().filter(|table| tables_of(function).contains(table)) {
                for bucket_count in bucket_counts(args, era, table) {
                    let column = Column::of_function(table, function, bucket_count, era);
                    columns.push(column.map_err(of_size)?);
                }
            }
        }
        if columns.is_empty() {
            let suited: Vec<&str> = tables_of(function).iter().map(|it| it.name()).collect();
            let message = format!("`{}` is not for the tables that were named", function.name());
            return Err(Failure::new(Exit::Usage, message)
                .hint(format!("it is for: {}", suited.join(", "))));
        }
    }
    Ok(columns)
}

fn eras(args: &Args) -> Vec<&'static Era> {
    if args.era.is_empty() {
        return ERAS.iter().collect();
    }
    args.era.iter().filter_map(|name| Era::by_name(name)).collect()
}

/// Returns the sizes that were asked, or that of the era's rule; of 2.4.0's where it has no such table.
fn bucket_counts(args: &Args, era: &Era, table: KernelTable) -> Vec<u64> {
    if !args.buckets.is_empty() {
        return args.buckets.clone();
    }
    let rule_of = |era: &Era| era.tables.iter().find(|it| it.table == table).map(|it| it.rule);
    let rule = rule_of(era).or_else(|| rule_of(Era::by_name("2.4.0")?));
    let memory = args.memory.unwrap_or(era.memory_bytes);
    rule.map(|rule| rule.bucket_count(table, memory)).into_iter().collect()
}

fn of_size(error: splitpoint_lab::Error) -> Failure {
    of_lab(error).hint("give --buckets another number")
}

fn combinations(name: &str) -> Vec<Combination> {
    match Combination::by_name(name) {
        Some(combination) => vec![combination],
        None => Combination::ALL.to_vec(),
    }
}

/// Returns a parser of the names of eras.
pub(super) fn era_names() -> PossibleValuesParser {
    PossibleValuesParser::new(ERAS.iter().map(|era| era.name))
}

/// Returns a parser of the names of Lever's kernels.
pub(super) fn combination_names() -> PossibleValuesParser {
    let names = Combination::ALL.iter().map(|combination| combination.name());
    PossibleValuesParser::new(names.chain(["all"]))
}

/// Least and most memory of a machine.
const MEMORY_MIN: u64 = 1 << 20;
const MEMORY_MAX: u64 = 1 << 46;

/// Reads an amount of memory: a number with a binary unit.
pub(in crate::command::lab) fn parse_memory(text: &str) -> Result<u64, String> {
    let expected = || "give a number with K, M, G or T, from 1M to 64T".to_owned();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift =
        match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I')
        {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(expected()),
        };
    let number: u64 = digits.parse().map_err(|_| expected())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(expected)?;
    if (MEMORY_MIN..=MEMORY_MAX).contains(&bytes) { Ok(bytes) } else { Err(expected()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_number_with_a_binary_unit() {
        for (text, bytes) in [
            ("64M", 64 << 20),
            ("24G", 24 << 30),
            ("512MiB", 512 << 20),
            ("1048576", 1 << 20),
            ("2g", 2 << 30),
        ] {
            assert_eq!(parse_memory(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "M", "12X", "0", "1K", "-1G", "99999999999G", "1.5G"] {
            assert!(parse_memory(wrong).is_err(), "{wrong}");
        }
    }
}
