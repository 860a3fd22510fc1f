//! Python's dbm.dumb, which `shelve` uses where there is no other library.
//!
//! ```text
//! NAME.dat   values, each from a multiple of 512 on
//! NAME.dir   a line for each key:  'key', (offset, bytes)
//! NAME.bak   the .dir before it was last written anew
//! ```
//!
//! A new key is appended to the `.dir` at once. A value that has changed is only in the memory of the
//! program until it writes the `.dir` anew: it removes the `.bak`, renames the `.dir` to `.bak` and
//! writes the new `.dir`, without a sync. So a program that was killed, or a power loss, may leave:
//!
//! - no `.dir`, or one of zeros, and a `.bak` with every key: we read the `.bak`, with a reservation;
//! - a `.dir` whose last line is cut: a fault, and a salvage also returns what the `.bak` lists;
//! - a `.dir` that is empty or ends after a line, while the `.bak` has more keys, as after keys were
//!   deleted: we cannot tell the two apart, and say so;
//! - a `.dir` that leads beyond the end of the `.dat`: the records are reported as missing;
//! - a value written over another one, with the length of the other one: nothing shows it.
//!
//! Of several lines with one key the last counts, as in Python.
//!
//! # Source
//!
//! Files that Python 3 made, and its documentation of `dbm.dumb`, which calls the format "slow but
//! portable"; the lexical analysis of string literals in "The Python Language Reference".

mod line;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use splitpoint::Result;

use self::line::Line;
use crate::Source;
use crate::doubt::Doubt;
use crate::files::Index;
use crate::identity::{Format, Identity};
use crate::reader::{Budget, Fault, Homes, Item, Loose, Parameter, Piece, Reader, Unit};
use crate::stated::{Counted, Extent, Stated, StatedBy};

/// The largest `.dir` or `.bak` that is read: some five million keys.
const INDEX_BYTES_MAX: u64 = 256 << 20;

/// Bytes of an index that show whether it is one.
const INDEX_HEAD_BYTES: u64 = 1 << 20;

/// Lines of a unit.
const UNIT_LINES: usize = 1024;

/// An open table.
#[derive(Debug)]
pub(crate) struct DumbFile {
    identity: Identity,
    data: Source,
    lines: Vec<Line>,
    /// The lines that count, by rising key.
    by_key: Vec<usize>,
    /// The lines of the `.bak`, if it was not read in place of the `.dir`.
    earlier: Vec<Line>,
    faults: Vec<Fault>,
    reservation: Option<Doubt>,
    stated: Stated,
}

/// What a file that may be an index looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It has a line of an index.
    Index,
    /// It begins like a line that was cut.
    Start,
    Empty,
    /// Nothing but zeros, as a power loss leaves a file whose bytes were not written.
    Zeros,
    Other,
}

/// Returns whether an index has bytes, and all of them are zeros.
fn is_zeros(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| byte == 0)
}

impl Look {
    fn of(path: &Path) -> Result<Self> {
        let file = Source::open(path)?;
        let head = Self::head(&file)?;
        Ok(match head.first() {
            None => Self::Empty,
            Some(_) if !Line::all(&head).0.is_empty() => Self::Index,
            Some(b'\'' | b'"') => Self::Start,
            Some(_) if is_zeros(&head) => Self::Zeros,
            Some(_) => Self::Other,
        })
    }

    /// Returns the first bytes of an index from its first block on that is not zeros, of those that
    /// [`DumbFile::open`] reads. If all are zeros, so are these.
    ///
    /// A power loss may leave zeros at the beginning alone.
    fn head(file: &Source) -> Result<Vec<u8>> {
        let end = file.file_bytes().min(INDEX_BYTES_MAX);
        let mut offset = 0;
        loop {
            let mut head = vec![0; end.saturating_sub(offset).min(INDEX_HEAD_BYTES) as usize];
            file.read_at(offset, &mut head)?;
            let data = file.next_data(offset + head.len() as u64);
            if !is_zeros(&head) || data >= end {
                return Ok(head);
            }
            offset = data;
        }
    }
}

/// Returns the files of `index` that are lists of keys, or `None` if there is no table of dbm.dumb:
/// one of them must have a line of an index, or the `.dir` and the data be empty.
pub(crate) fn sound_index(index: &Index, data: &Path) -> Result<Option<Index>> {
    let look = |path: &Option<PathBuf>| path.as_deref().map(Look::of).transpose();
    let (dir, bak) = (look(&index.dir)?, look(&index.bak)?);
    let is_list = dir == Some(Look::Index) || bak == Some(Look::Index);
    let is_new = dir == Some(Look::Empty) && Source::open(data)?.file_bytes() == 0;
    if !(is_list || is_new) {
        return Ok(None);
    }
    let sound = |path: &Option<PathBuf>, is_sound: bool| path.clone().filter(|_| is_sound);
    Ok(Some(Index {
        dir: sound(&index.dir, dir != Some(Look::Other)),
        bak: sound(&index.bak, matches!(bak, Some(Look::Index | Look::Empty))),
        is_dir_lost: dir == Some(Look::Zeros),
    }))
}

/// Returns the identity of a table of dbm.dumb.
pub(crate) fn identity_of(data: &Source, index: &Index) -> Identity {
    let mut identity = Identity::new(Format::Dumb, data.path());
    if index.is_dir_lost {
        identity = identity.detail("the .dir is not readable");
    }
    if index.dir.is_none() || index.is_dir_lost {
        identity = identity.detail("keys from the .bak");
    }
    identity.dir_path.clone_from(&index.dir);
    identity.bak_path.clone_from(&index.bak);
    identity
}

impl DumbFile {
    /// Opens the table with this identity.
    pub(crate) fn open(data: Source, identity: Identity) -> Result<Self> {
        let all_of = |path: &Option<PathBuf>| {
            let index = path.as_deref().map(Source::open).transpose()?;
            let what = "the index of keys beside the .dat";
            index.map(|index| index.read_all(what, INDEX_BYTES_MAX)).transpose()
        };
        let dir = all_of(&identity.dir_path)?.filter(|dir| !is_zeros(dir));
        let bak = all_of(&identity.bak_path)?;
        Ok(Self::of_index(data, identity, dir.as_deref(), &bak.unwrap_or_default()))
    }

    /// Makes a table of its parts. Without a `.dir` the `.bak` is its index.
    pub(crate) fn of_index(
        data: Source,
        identity: Identity,
        dir: Option<&[u8]>,
        bak: &[u8],
    ) -> Self {
        let (lines, faults) = Line::all(dir.unwrap_or(bak));
        let earlier = if dir.is_some() { Line::all(bak).0 } else { Vec::new() };
        let mut by_key: Vec<usize> = (0..lines.len()).collect();
        // Of one key, the last line first.
        by_key.sort_by(|&one, &other| lines[one].key.cmp(&lines[other].key).then(other.cmp(&one)));
        by_key.dedup_by(|later, kept| lines[*later].key == lines[*kept].key);
        let mut file = Self {
            identity,
            data,
            lines,
            by_key,
            earlier,
            faults,
            reservation: dir.is_none().then_some(Doubt::EarlierIndex),
            stated: Stated::default(),
        };
        let key_count = file.lost_lines().count() as u64;
        if key_count > 0 {
            file.reservation = Some(Doubt::ShorterIndex { key_count });
        }
        file.stated.extent = Some(file.extent());
        file
    }

    fn extent(&self) -> Extent {
        let ends = self.by_key.iter().map(|&index| self.lines[index].end());
        let end = ends.max().unwrap_or_default();
        Extent {
            counted: Counted::Bytes,
            stated_by: StatedBy::Dir,
            at: 0,
            unit_bytes: 1,
            needed: end,
            stated: end,
            known: None,
            found: self.data.file_bytes(),
            has_more: false,
        }
    }

    /// Returns the number of the line that counts for `key`.
    fn line_of(&self, key: &[u8]) -> Option<usize> {
        let at = self.by_key.binary_search_by(|&index| self.lines[index].key.as_slice().cmp(key));
        at.ok().map(|at| self.by_key[at])
    }

    /// Returns the lines of the `.bak` whose keys the `.dir` lacks, the last of each.
    fn lost_lines(&self) -> impl Iterator<Item = &Line> {
        let mut seen = HashSet::new();
        let lost = self.earlier.iter().rev().filter(|line| self.line_of(&line.key).is_none());
        lost.filter(move |line| seen.insert(&line.key))
    }

    fn add(&self, line: &Line, unit: &mut Unit) {
        if line.end() > self.data.file_bytes() {
            let (expected, found) = (self.data.file_bytes(), line.end());
            unit.faults.push(Fault::new("end of a value", line.offset, expected, found));
            return;
        }
        let value = Piece::At { offset: line.offset, bytes: line.bytes };
        unit.items.push(Item::of(Piece::Here(line.key.clone()), value));
    }
}

impl Reader for DumbFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn source(&self) -> &Source {
        &self.data
    }

    fn unit_count(&self) -> u64 {
        self.lines.len().div_ceil(UNIT_LINES) as u64
    }

    fn faults(&self) -> &[Fault] {
        &self.faults
    }

    fn stated(&self) -> Stated {
        self.stated
    }

    fn reservation(&self) -> Option<Doubt> {
        self.reservation.clone()
    }

    fn unit(&self, index: u64, _budget: &Budget) -> Result<Unit> {
        let first = index as usize * UNIT_LINES;
        let mut unit = Unit { is_in_use: true, ..Unit::default() };
        for (at, line) in self.lines.iter().enumerate().skip(first).take(UNIT_LINES) {
            if self.line_of(&line.key) == Some(at) {
                self.add(line, &mut unit);
            }
        }
        Ok(unit)
    }

    fn unit_of(&self, _index: u64, key: &[u8], _budget: &Budget) -> Result<Unit> {
        let mut unit = Unit::default();
        if let Some(at) = self.line_of(key) {
            self.add(&self.lines[at], &mut unit);
        }
        Ok(unit)
    }

    fn is_hashed(&self) -> bool {
        false
    }

    fn homes(&self, key: &[u8]) -> Homes {
        let home = self.line_of(key).unwrap_or_default() / UNIT_LINES;
        Homes::of(home as u64, home as u64)
    }

    fn parameters(&self) -> Vec<Parameter> {
        let index = if self.reservation == Some(Doubt::EarlierIndex) { ".bak" } else { ".dir" };
        vec![Parameter::new("index", index), Parameter::new("lines", self.lines.len())]
    }

    fn hash_name(&self) -> &'static str {
        ""
    }

    fn hash_of(&self, _key: &[u8]) -> Option<u64> {
        None
    }
}

impl Loose for DumbFile {
    fn loose_units(
        &self,
        _budget: &Budget,
        visit: &mut dyn FnMut(Unit) -> Result<()>,
    ) -> Result<()> {
        for line in self.lost_lines() {
            let mut unit = Unit::default();
            self.add(line, &mut unit);
            visit(unit)?;
        }
        Ok(())
    }
}
