//! Figures 1 to 4 of the paper: each builds the state that is drawn there, and prints it.
//!
//! # Source
//!
//! Seltzer and Yigit 1991. The figures are drawings; their captions and the text say what is in
//! them.

use std::fmt::Write as _;

use splitpoint::linear::{BucketIndex, Geometry};
use splitpoint::{Result, Table as _, TableExt as _, hash};

use super::gdbm::{self, Gdbm};
use super::sdbm::{self, Sdbm};
use super::{Algorithm, Refusal, StoreMode};
use crate::db185::{Db185, Options, PageUse};

/// A figure of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Figure 1: a radix search trie, as sdbm has it.
    Trie,
    /// Figure 2: a directory, as gdbm has it.
    Directory,
    /// Figure 3: overflow pages between the generations of primary pages.
    OverflowPages,
    /// Figure 4: the buffer pool.
    Pool,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Trie, Self::Directory, Self::OverflowPages, Self::Pool];

    /// Returns the name: `figure-1` to `figure-4`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trie => "figure-1",
            Self::Directory => "figure-2",
            Self::OverflowPages => "figure-3",
            Self::Pool => "figure-4",
        }
    }

    /// Returns the figure of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.name() == name)
    }

    /// Builds the state and returns it as lines of text.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](splitpoint::ErrorKind::Io) if the temporary file of the pool cannot be
    /// written.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_legacy::algorithm::Figure;
    ///
    /// let drawing = Figure::Directory.draw()?;
    /// assert!(drawing.contains("entry 2 to 3: L1, depth 1"));
    /// # Ok::<(), splitpoint::Error>(())
    /// ```
    pub fn draw(self) -> Result<String> {
        match self {
            Self::Trie => Ok(trie()),
            Self::Directory => Ok(directory()),
            Self::OverflowPages => overflow_pages(),
            Self::Pool => pool(),
        }
    }
}

/// Stores keys without values; those of the figures have room.
fn store<K: AsRef<[u8]>>(table: &mut dyn Algorithm, keys: impl IntoIterator<Item = K>) {
    for key in keys {
        let stored: std::result::Result<_, Refusal> =
            table.store(key.as_ref(), b"", StoreMode::Insert);
        assert!(stored.is_ok(), "the keys of a figure have room");
    }
}

/// Letters, whose hash is their code: the even ones fill page 0, which is split twice.
fn trie() -> String {
    let mut table = Sdbm::new(sdbm::Options { page_bytes: 64, ..sdbm::Options::default() });
    store(&mut table, "bdfhjlnprtvxz".bytes().map(|letter| [letter]));
    store(&mut table, "ace".bytes().map(|letter| [letter]));
    let mut out = "Figure 1: a radix search trie\n".to_owned();
    for (node, bit, path) in
        [("A", 0, ""), ("B", 1, "0"), ("C", 3, "00"), ("D", 4, "01"), ("E", 2, "1")]
    {
        let kind = if table.is_split(bit) { "internal" } else { "external" };
        let _ = write!(out, "  {node}: bit {bit}, {kind}");
        if table.is_split(bit) {
            out.push('\n');
            continue;
        }
        // The first letter of the path is the lowest bit.
        let page = path.bytes().rev().fold(0, |page, digit| page << 1 | u32::from(digit == b'1'));
        let _ = writeln!(out, ", bucket L{path} = page {}", table.page_of(page));
    }
    out.push_str("Table: ");
    out + &table.show()
}

/// Keys chosen by the top bits of their hashes: L0 overflows and is split, L1 is not.
fn directory() -> String {
    let options =
        gdbm::Options { block_bytes: 512, directory_bits: Some(0), ..gdbm::Options::default() };
    let mut table = Gdbm::new(options);
    let full = table.bucket_capacity();
    let top_bit = |key: &String| table.hash(key.as_bytes()) >> 30;
    let keys: Vec<String> = (0..200_u32).map(|number| number.to_string()).collect();
    let of = |bit: u32| keys.iter().filter(move |key| top_bit(key) == bit);
    let (lower, upper): (Vec<&String>, Vec<&String>) =
        (of(0).take(full + 1).collect(), of(1).take(full / 2).collect());
    store(&mut table, upper);
    store(&mut table, lower);
    let mut out = "Figure 2: a directory representing the trie\n".to_owned();
    for (entry, &bucket) in table.directory().iter().enumerate() {
        let width = table.depth() as usize;
        let depth = table.bucket_depth(bucket);
        let path = entry >> (table.depth() - depth);
        let depth_width = depth as usize;
        let _ = writeln!(out, "  {entry:0width$b} -> L{path:0depth_width$b}");
    }
    out.push_str("Table: ");
    out + &table.show()
}

/// A table that grows to four buckets without overflow, and then gets a value that needs four
/// overflow pages: one at split point 1, which is free, and three at split point 2.
fn overflow_pages() -> Result<String> {
    const VALUE_BYTES: usize = 1700;
    let table = Options::new().page_bytes(512).fill_factor(1).in_memory()?;
    for number in 0..6 {
        table.put(number.to_string(), "")?;
    }
    table.put("big", vec![b'x'; VALUE_BYTES])?;
    let mut out = "Figure 3: split points between generations\n".to_owned();
    for split_point in 0..=2 {
        let count = overflow_count(&table, split_point)?;
        let _ = writeln!(out, "  split point {split_point}: {count} overflow pages");
    }
    out.push_str("Pages of the file:\n");
    for (number, row) in table.pages()?.iter().enumerate() {
        let _ = writeln!(out, "  page {number}: {}", row.what);
    }
    Ok(out)
}

fn overflow_count(table: &Db185, split_point: u32) -> Result<usize> {
    let at_point = |what: PageUse| what.addr().is_some_and(|addr| addr.split_point == split_point);
    Ok(table.pages()?.iter().filter(|row| at_point(row.what)).count())
}

/// Eleven buckets, of which the sixth has an overflow page; all are evicted and three looked at.
fn pool() -> Result<String> {
    const BUCKETS: u64 = 11;
    let table = Options::new().page_bytes(256).fill_factor(4).in_memory()?;
    let mut keys = (0..1_u32 << 16).map(|number| number.to_string());
    while table.bucket_count() < BUCKETS {
        table.put(keys.next().unwrap_or_default(), "")?;
    }
    let geometry = Geometry::with_bucket_count(BUCKETS);
    let in_bucket = |key: &String, bucket: u64| {
        geometry.bucket_of(hash::x33(key.as_bytes()).into()) == BucketIndex(bucket)
    };
    let mut of_five = keys.filter(|key| in_bucket(key, 5));
    while table.bucket_count() == BUCKETS {
        table.put(of_five.next().unwrap_or_default(), [b'x'; 80])?;
    }
    table.evict_all()?;
    // A key that is not there reads the whole chain of its bucket.
    for bucket in [0, 5, 10] {
        let absent = (0..1_u32 << 16).map(|number| format!("absent {number}"));
        let absent = absent.into_iter().find(|key| in_bucket(key, bucket)).unwrap_or_default();
        table.get_bytes(absent.as_bytes())?;
    }
    draw_pool(&table)
}

fn draw_pool(table: &Db185) -> Result<String> {
    let mut out = "Figure 4: the buffer pool\n  bucket array\n".to_owned();
    let pages = table.pages_by_number()?;
    let mut buckets = table.pool();
    let used = buckets.iter().map(|it| format!("B{}", it.bucket)).collect::<Vec<String>>();
    buckets.sort_unstable_by_key(|it| it.bucket);
    for it in &buckets {
        let _ = write!(out, "    [{}] ->", it.bucket);
        let mut chained: Vec<(u64, &str)> = Vec::new();
        for page in &it.pages {
            chained.push((page.number, if page.is_changed { ", modified" } else { "" }));
        }
        // The primary page first.
        chained.sort_unstable_by_key(|(number, _)| {
            !matches!(pages.get(number), Some(PageUse::Bucket(_)))
        });
        let names = chained.iter().map(|(number, modified)| {
            let name = match pages.get(number) {
                Some(PageUse::Overflow { addr, .. }) => format!("O{addr}"),
                _ => format!("B{}", it.bucket),
            };
            format!(" {name} (page {number}{modified})")
        });
        let _ = writeln!(out, "{}", names.collect::<Vec<String>>().join(" ->"));
    }
    let others = table.bucket_count() - buckets.len() as u64;
    let _ = writeln!(out, "    the other {others}: NULL");
    let _ = writeln!(out, "  in the order of use, the last one first: {}", used.join(", "));
    out.push_str(
        "  The figure has O1/1 behind B5. In the package as it was released page 1/1 has the first\n  \
         bitmap, so that the first overflow page of a bucket is O1/2.\n",
    );
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_1_has_two_internal_and_three_external_nodes() {
        let expected = "\
Figure 1: a radix search trie
  A: bit 0, internal
  B: bit 1, internal
  C: bit 3, external, bucket L00 = page 0
  D: bit 4, external, bucket L01 = page 2
  E: bit 2, external, bucket L1 = page 1
";
        let drawing = Figure::Trie.draw().unwrap();
        assert!(drawing.starts_with(expected), "{drawing}");
    }

    #[test]
    fn figure_2_has_a_directory_of_depth_2_for_three_buckets() {
        let expected = "\
Figure 2: a directory representing the trie
  00 -> L00
  01 -> L01
  10 -> L1
  11 -> L1
Table: directory of depth 2: 4 entries for 3 buckets
";
        let drawing = Figure::Directory.draw().unwrap();
        assert!(drawing.starts_with(expected), "{drawing}");
    }

    #[test]
    fn figure_3_has_two_overflow_pages_at_split_point_1_and_three_at_2() {
        let expected = "\
Figure 3: split points between generations
  split point 0: 0 overflow pages
  split point 1: 2 overflow pages
  split point 2: 3 overflow pages
Pages of the file:
  page 0: header
  page 1: bucket 0
  page 2: bucket 1
  page 3: overflow 1/1, a bitmap
";
        let drawing = Figure::OverflowPages.draw().unwrap();
        assert!(drawing.starts_with(expected), "{drawing}");
    }

    #[test]
    fn figure_4_has_three_buckets_and_one_overflow_page_in_the_pool() {
        let drawing = Figure::Pool.draw().unwrap();
        let lines: Vec<&str> = drawing.lines().collect();
        assert!(lines[2].starts_with("    [0] -> B0 (page "), "{drawing}");
        assert!(lines[3].starts_with("    [5] -> B5 (page "), "{drawing}");
        assert!(lines[3].contains(" -> O1/2 (page "), "{drawing}");
        assert!(lines[4].starts_with("    [10] -> B10 (page "), "{drawing}");
        assert!(
            drawing.contains("in the order of use, the last one first: B10, B5, B0"),
            "{drawing}"
        );
    }
}
