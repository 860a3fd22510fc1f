//! File handles of NFS, and how NetBSD's functions of 2001 and of today spread them.
//!
//! A handle has 28 bytes: the file system's number, the length of the rest, inode, generation, and
//! zeros. Only inode and generation differ from file to file.
//!
//! # Source
//!
//! Mewburn, "New hash algorithm - FNV - for use in the kernel", tech-perform@netbsd.org, November
//! 2001; `vmstat -H` for the columns.

use std::fmt;
use std::io::BufRead;

use serde::Serialize;

use crate::random::Random;
use crate::{Error, PartialStats, Reduction, Report, Setup, Specimen};

/// The functions, in the order of their use.
pub const FUNCTIONS: [&str; 4] = ["netbsd-byte-sum", "fnv1-32-bsd", "fnv1-32", "netbsd-hash32-buf"];
/// Buckets of Mewburn's table.
pub const BUCKETS: u64 = 1 << 16;
/// Bytes of a handle.
pub const HANDLE_BYTES: usize = 28;

/// Longest line: two numbers of 32 bits with some space.
const LINE_BYTES_MAX: u64 = 256;
/// Tells these random numbers from those of other models.
const KIND: u64 = 4;

/// What tells a file of one file system from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Number of the inode.
    pub inode: u32,
    /// How often the inode was used again, or a random number instead.
    pub generation: u32,
}

impl Handle {
    /// Returns the handle as NFS passes it, of a file system with constant numbers.
    pub fn bytes(self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[0..4].copy_from_slice(&0x801_u32.to_le_bytes());
        bytes[4..8].copy_from_slice(&0xef53_u32.to_le_bytes());
        bytes[8..10].copy_from_slice(&12_u16.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.inode.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }
}

/// A line that is no handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleError {
    /// Number of the line, from 1.
    pub line_number: u64,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line_number, self.reason)
    }
}

impl std::error::Error for HandleError {}

/// Reads handles, one a line: the inode and, if it is known, the generation.
///
/// # Errors
///
/// [`HandleError`] with the number of a line that has other fields, or if reading fails.
///
/// # Examples
///
/// ```
/// let handles = splitpoint_lab::handles::read("12 0\n13 99\n".as_bytes())?;
/// assert_eq!((handles[1].inode, handles[1].generation), (13, 99));
/// # Ok::<(), splitpoint_lab::handles::HandleError>(())
/// ```
pub fn read(mut input: impl BufRead) -> Result<Vec<Handle>, HandleError> {
    let (mut handles, mut line, mut line_number) = (Vec::new(), Vec::new(), 0);
    loop {
        line.clear();
        line_number += 1;
        let error = |reason: String| HandleError { line_number, reason };
        let read = std::io::Read::take(&mut input, LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.map_err(|cause| error(format!("cannot be read: {cause}")))? == 0 {
            return Ok(handles);
        }
        let text = line.escape_ascii().to_string();
        let text = text.trim_end_matches("\\n").trim_end_matches("\\r");
        let mut numbers = text.split(' ').map(str::parse::<u32>);
        let handle = match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(inode)), None, _) => Handle { inode, generation: 0 },
            (Some(Ok(inode)), Some(Ok(generation)), None) => Handle { inode, generation },
            _ => {
                let expected = "expected `INODE GENERATION`, two decimal numbers of 32 bits";
                return Err(error(format!("{expected}, found `{text}`")));
            }
        };
        handles.push(handle);
    }
}

/// Returns the handles with generations drawn at random, as file systems of the BSDs draw them.
pub fn with_drawn_generations(handles: &[Handle], seed: u64) -> Vec<Handle> {
    let mut random = Random::new(seed.wrapping_mul(256).wrapping_add(KIND));
    let drawn =
        |handle: &Handle| Handle { generation: random.next() as u32 & 0x7fff_ffff, ..*handle };
    handles.iter().map(drawn).collect()
}

/// NetBSD's figures for one table, beside those of an ideal hash.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HandleTable {
    /// The function.
    pub hash: &'static str,
    /// Whether the generations were drawn, or are those of the file.
    pub is_drawn: bool,
    /// Buckets.
    pub bucket_count: u64,
    /// Buckets that hold a handle.
    pub used_count: u64,
    /// The same for an ideal hash, on average.
    pub used_ideal: f64,
    /// Share of the buckets that hold a handle.
    pub utilization: f64,
    /// Handles.
    pub item_count: u64,
    /// Handles per bucket that holds one, cut to a whole number.
    pub average_chain: u64,
    /// Handles of the fullest bucket.
    pub longest: u64,
    /// The same for an ideal hash, on average.
    pub longest_ideal: f64,
    /// Cost of a hit in units of the ideal.
    pub cost_ratio: f64,
    /// Fits, structured, slight or worse.
    pub verdict: &'static str,
}

/// Handles under each function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HandleReport {
    /// Version of the form: 1.
    pub schema: u32,
    /// Where the handles come from.
    pub source: String,
    /// How many they are.
    pub handle_count: u64,
    /// Generations that are not 0.
    pub generation_count: u64,
    /// Seed of the generations that were drawn.
    pub seed: u64,
    /// One table for each function, with the generations as found and drawn.
    pub tables: Vec<HandleTable>,
}

impl HandleReport {
    /// Spreads handles over `bucket_count` buckets by each of [`FUNCTIONS`].
    ///
    /// # Errors
    ///
    /// [`Error::BucketCount`] unless `bucket_count` is a power of two.
    pub fn new(
        source: String,
        handles: &[Handle],
        bucket_count: u64,
        seed: u64,
    ) -> Result<Self, Error> {
        let drawn = with_drawn_generations(handles, seed);
        let mut tables = Vec::new();
        for hash in FUNCTIONS {
            for (is_drawn, handles) in [(false, handles), (true, &drawn)] {
                tables.push(table(hash, is_drawn, handles, bucket_count)?);
            }
        }
        let handle_count = handles.len() as u64;
        let generation_count = handles.iter().filter(|it| it.generation != 0).count() as u64;
        Ok(Self { schema: 1, source, handle_count, generation_count, seed, tables })
    }
}

fn table(
    hash: &'static str,
    is_drawn: bool,
    handles: &[Handle],
    bucket_count: u64,
) -> Result<HandleTable, Error> {
    let setup = Setup::new(Specimen::by_name(hash)?, 0, Reduction::LowMask, bucket_count)?;
    let mut stats = PartialStats::new(setup);
    for handle in handles {
        stats.add(&handle.bytes());
    }
    let report = Report::new(&stats);
    Ok(HandleTable {
        hash,
        is_drawn,
        bucket_count,
        used_count: report.used_count,
        used_ideal: report.used_ideal,
        utilization: report.utilization,
        item_count: report.key_count,
        average_chain: report.key_count / report.used_count.max(1),
        longest: report.longest,
        longest_ideal: report.longest_ideal,
        cost_ratio: report.cost_ratio,
        verdict: report.verdict.grade().word(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_its_fields_at_their_places() {
        let handle = Handle { inode: 0x0102_0304, generation: 0x0a0b_0c0d };
        let expected = [
            1, 8, 0, 0, 0x53, 0xef, 0, 0, 12, 0, 0, 0, 4, 3, 2, 1, 13, 12, 11, 10, 0, 0, 0, 0, 0,
            0, 0, 0,
        ];
        assert_eq!(handle.bytes(), expected);
    }

    #[test]
    fn lines_that_are_no_handles_are_refused_with_their_number() {
        for (text, line_number, found) in [
            ("1 2\n\n", 2, "found ``"),
            ("1 2\n3 x\n", 2, "found `3 x`"),
            ("4294967296 0\n", 1, "found `4294967296 0`"),
            ("1 2 3\n", 1, "found `1 2 3`"),
            ("-1 2\n", 1, "found `-1 2`"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert_eq!(error.line_number, line_number, "{text:?}");
            assert!(error.reason.ends_with(found), "{error}");
        }
        assert!(read(&[b'1'; 1000][..]).is_err());
        assert_eq!(read("7\r\n".as_bytes()).unwrap(), [Handle { inode: 7, generation: 0 }]);
        assert_eq!(read("".as_bytes()).unwrap(), []);
    }

    #[test]
    fn generations_are_drawn_from_the_seed_and_have_31_bits() {
        let handles = vec![Handle { inode: 1, generation: 0 }; 100];
        let drawn = with_drawn_generations(&handles, 1);
        assert_eq!(drawn, with_drawn_generations(&handles, 1));
        assert_ne!(drawn, with_drawn_generations(&handles, 2));
        let all = drawn.iter().fold(0, |all, handle| all | handle.generation);
        assert_eq!(all, 0x7fff_ffff);
    }

    /// One inode more each: the sums of the bytes follow each other, few and long chains.
    #[test]
    fn a_sum_of_bytes_crowds_handles_that_fnv_spreads() {
        let handles: Vec<Handle> =
            (0..20_000).map(|inode| Handle { inode, generation: 0 }).collect();
        let report = HandleReport::new("made".into(), &handles, BUCKETS, 1).unwrap();
        assert_eq!((report.tables.len(), report.generation_count), (8, 0));
        let sum = &report.tables[0];
        let sums: std::collections::BTreeSet<u32> =
            (0..20_000_u32).map(|inode| (inode & 255) + (inode >> 8)).collect();
        assert_eq!((sum.used_count, sum.verdict), (sums.len() as u64, "worse"));
        assert_eq!(sum.average_chain, 20_000 / sums.len() as u64);
        let drawn = &report.tables[3];
        assert_eq!((drawn.hash, drawn.is_drawn, drawn.verdict), ("fnv1-32-bsd", true, "fits"));
        assert!(HandleReport::new("made".into(), &handles, 1000, 1).is_err());
    }
}
