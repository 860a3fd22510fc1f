//! Runs measurements over keys: in threads, in rounds that fit into memory, until they are stopped.
//!
//! ```text
//! setups --plan--> rounds of cells;  each window of keys: every cell counts its part of it
//! ```
//!
//! # Invariants
//!
//! - The results do not depend on the number of threads, because [`PartialStats`] add up.
//! - Wherever the work can stop, all cells of a round have counted the same keys, so the reports of
//!   a stopped round can be compared.
//!
//! # Not here
//!
//! `measure` evaluates the counts; `keys` reads the keys.

use std::ops::ControlFlow;

use rayon::prelude::*;

use crate::keys::{Done, KeySlice, Keys, Phase, ReadError, Watch};
use crate::memory;
use crate::number::grouped;
use crate::study::Interruption;
use crate::{Error, PartialStats, Setup};

/// Limits of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory for counts, in bytes, without the keys.
    pub memory_bytes: u64,
    /// Threads, 1024 at most; 0 is as many as there are cores.
    pub thread_count: usize,
}

/// More threads take memory, of which a process can die, and no machine has so many cores. The tests start
/// fewer, because not every machine lets a user have so many.
const THREADS_MAX: usize = if cfg!(test) { 5 } else { 1024 };

/// The results of some measurements.
#[derive(Clone, Debug)]
pub struct Outcome<T> {
    /// One result for each setup that was begun, in the order of the setups.
    pub results: Vec<T>,
    /// What is missing, if somebody stopped the work.
    pub interruption: Option<Interruption>,
    /// Measurements that kept fewer hashes than their setups wanted, to fit into memory.
    pub sampled_count: u64,
}

/// Measures every setup on all keys, and calls `finish` with the counts of each.
///
/// Setups that do not fit into memory together take turns, each turn with its own pass over the
/// keys. A setup whose hashes do not fit keeps a sample of them.
///
/// # Errors
///
/// - [`ReadError::Memory`] if the buckets of one setup do not fit.
/// - [`ReadError::NoMemory`] if the process does not get the memory that the limits allow.
/// - Others if the keys cannot be read again.
///
/// # Cost
///
/// The memory of [`Setup::memory_bytes`] for the setups that fit.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::drive::{Limits, measure};
/// use splitpoint_lab::keys::{Bytes, Column, DuplicatePolicy, KeyFormat, Keys};
/// use splitpoint_lab::{Reduction, Report, Setup, Specimen};
///
/// let column = Column { name: "1".to_owned(), has_header: false };
/// let source = Bytes { bytes: b"one\ntwo\n", format: KeyFormat::by_name("lines", column)? };
/// let keys = Keys::read(Box::new(source), DuplicatePolicy::Remove, 1 << 20, &mut ())?;
/// let setup = Setup::new(Specimen::by_name("xxh3-64")?, 0, Reduction::LowMask, 8)?;
/// let limits = Limits { memory_bytes: 1 << 20, thread_count: 2 };
/// let outcome = measure(&keys, &[setup], limits, &mut (), Report::new)?;
/// assert_eq!(outcome.results[0].key_count, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn measure<T: Send>(
    keys: &Keys<'_>,
    setups: &[Setup],
    limits: Limits,
    watch: &mut dyn Watch,
    finish: impl Fn(&PartialStats) -> T + Sync,
) -> Result<Outcome<T>, ReadError> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(limits.thread_count.min(THREADS_MAX))
        .build()
        .map_err(|error| ReadError::Io(std::io::Error::other(error)))?;
    let (setups, sampled_count) = fit(setups, keys.len(), limits.memory_bytes)?;
    let rounds = plan(&setups, keys.len(), limits.memory_bytes, pool.current_num_threads());
    pool.install(|| {
        let mut results: Vec<Option<T>> = setups.iter().map(|_| None).collect();
        let mut interruption = None;
        for (pass, round) in (1..).zip(&rounds) {
            let phase = Phase { name: "count", pass, pass_count: rounds.len() as u64 };
            let needed_bytes =
                round.iter().map(|plan| plan.memory_bytes(&setups, keys.len())).sum();
            if !memory::is_there(needed_bytes) {
                return Err(ReadError::NoMemory { needed_bytes });
            }
            let mut cells: Vec<Cell> = round.iter().map(|plan| Cell::new(plan, &setups)).collect();
            let key_count = count(keys, &mut cells, phase, watch)?;
            let is_whole = key_count == keys.len();
            if is_whole || key_count > 0 {
                let merged = merge(cells);
                let of_setup = |(index, stats): (usize, PartialStats)| (index, finish(&stats));
                for (index, result) in merged.into_par_iter().map(of_setup).collect::<Vec<_>>() {
                    results[index] = Some(result);
                }
            }
            if !is_whole || (watch.is_stopped() && (pass as usize) < rounds.len()) {
                interruption = Some(interrupted(key_count, keys.len(), &results));
                break;
            }
        }
        let results = results.into_iter().flatten().collect();
        Ok(Outcome { results, interruption, sampled_count })
    })
}

fn interrupted<T>(key_count: u64, of_count: u64, results: &[Option<T>]) -> Interruption {
    let (begun, all) = (results.iter().flatten().count(), results.len());
    let mut missing = Vec::new();
    if key_count < of_count {
        let (rest, all) = (grouped(of_count - key_count), grouped(of_count));
        missing.push(format!("{rest} of {all} keys were not counted"));
    }
    if begun < all {
        missing.push(format!("{} of {all} measurements were not begun", all - begun));
    }
    Interruption { key_count, missing: missing.join(", ") }
}

/// Lets setups whose hashes do not fit keep fewer of them. Returns the number of such setups.
///
/// Threads do not count here: the results must not depend on them.
fn fit(
    setups: &[Setup],
    key_count: u64,
    memory_bytes: u64,
) -> Result<(Vec<Setup>, u64), ReadError> {
    let mut sampled_count = 0;
    let fitting = |setup: &Setup| {
        let mut fitted = *setup;
        while fitted.memory_bytes(key_count) > memory_bytes && fitted.sampling() < 63 {
            fitted = fitted.sample_hashes(fitted.sampling() + 1);
        }
        sampled_count += u64::from(fitted.sampling() != setup.sampling());
        fitted.check_memory(key_count, memory_bytes).map(|()| fitted)
    };
    let fitted: Result<Vec<Setup>, Error> = setups.iter().map(fitting).collect();
    match fitted {
        Ok(fitted) => Ok((fitted, sampled_count)),
        Err(Error::Memory { needed_bytes, allowed_bytes }) => {
            Err(ReadError::Memory { needed_bytes, allowed_bytes })
        }
        Err(error) => Err(ReadError::Malformed {
            place: crate::keys::Place::Whole,
            reason: error.to_string(),
        }),
    }
}

/// Setups of one function and seed. One thread at a time counts them on a part of each window.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CellPlan {
    setups: Vec<usize>,
    part: usize,
    part_count: usize,
}

impl CellPlan {
    /// Returns the most memory that its counts take, of `key_count` keys in all parts, in bytes.
    fn memory_bytes(&self, setups: &[Setup], key_count: u64) -> u64 {
        let key_count = key_count.div_ceil(self.part_count as u64);
        self.setups.iter().map(|&index| setups[index].memory_bytes(key_count)).sum()
    }
}

/// Cuts the work into rounds whose counts fit into memory, and a round into cells for the threads.
fn plan(
    setups: &[Setup],
    key_count: u64,
    memory_bytes: u64,
    thread_count: usize,
) -> Vec<Vec<CellPlan>> {
    let mut order: Vec<usize> = (0..setups.len()).collect();
    // One function hashes a key once for all its tables.
    order.sort_by_key(|&index| (setups[index].specimen().name(), setups[index].seed()));
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut used_bytes = u64::MAX;
    for index in order {
        let needed_bytes = setups[index].memory_bytes(key_count);
        used_bytes = used_bytes.saturating_add(needed_bytes);
        match rounds.last_mut() {
            Some(round) if used_bytes <= memory_bytes => round.push(index),
            _ => {
                rounds.push(vec![index]);
                used_bytes = needed_bytes;
            }
        }
    }
    let cells =
        |round: Vec<usize>| plan_round(&round, setups, key_count, memory_bytes, thread_count);
    rounds.into_iter().map(cells).collect()
}

fn plan_round(
    round: &[usize],
    setups: &[Setup],
    key_count: u64,
    memory_bytes: u64,
    thread_count: usize,
) -> Vec<CellPlan> {
    let is_alike = |one: &usize, other: &usize| {
        let (one, other) = (&setups[*one], &setups[*other]);
        one.specimen().name() == other.specimen().name() && one.seed() == other.seed()
    };
    let groups: Vec<&[usize]> = round.chunk_by(is_alike).collect();
    let per_group = thread_count.div_ceil(groups.len());
    let needed_bytes: u64 = round.iter().map(|&index| setups[index].memory_bytes(key_count)).sum();
    let counters: u64 = round.iter().map(|&index| setups[index].memory_bytes(0)).sum();
    // Each part of the keys needs its own buckets, so computing another hash is cheaper.
    let spare = memory_bytes.saturating_sub(needed_bytes).checked_div(counters).unwrap_or(0);
    let mut cells = Vec::new();
    for group in groups {
        let piece_count = per_group.min(group.len());
        let part_count = (per_group / piece_count).min(usize::try_from(spare).unwrap_or(0) + 1);
        for piece in group.chunks(group.len().div_ceil(piece_count)) {
            cells.extend((0..part_count).map(|part| CellPlan {
                setups: piece.to_vec(),
                part,
                part_count,
            }));
        }
    }
    cells
}

/// The counts of a [`CellPlan`].
struct Cell {
    part: usize,
    part_count: usize,
    /// By index of the setup.
    stats: Vec<(usize, PartialStats)>,
    hashes: Vec<(u64, u64)>,
}

/// Keys that are hashed before they are counted in one table after the other.
const HASHED_KEYS: usize = 1024;

impl Cell {
    fn new(plan: &CellPlan, setups: &[Setup]) -> Self {
        let of_setup = |&index: &usize| (index, PartialStats::new(setups[index]));
        Self {
            part: plan.part,
            part_count: plan.part_count,
            stats: plan.setups.iter().map(of_setup).collect(),
            hashes: Vec::new(),
        }
    }

    fn count(&mut self, window: KeySlice<'_>) {
        let part = window.part(self.part, self.part_count);
        let Some((_, first)) = self.stats.first() else { return };
        let (specimen, seed) = (first.setup().specimen(), first.setup().seed());
        let mut keys = part.iter();
        loop {
            self.hashes.clear();
            let hashed = keys.by_ref().take(HASHED_KEYS);
            if specimen.is_foreign() {
                let batch: Vec<&[u8]> = hashed.collect();
                let hashes = specimen.hashes(batch.iter().copied(), seed);
                let known = hashes.into_iter().map(Option::unwrap_or_default);
                self.hashes.extend(known.zip(batch.iter().map(|key| key.len() as u64)));
            } else {
                self.hashes.extend(hashed.map(|key| (specimen.hash(key, seed), key.len() as u64)));
            }
            if self.hashes.is_empty() {
                break;
            }
            for (_, stats) in &mut self.stats {
                stats.add_hashes(&self.hashes);
            }
        }
    }
}

/// Counts to the end, or until somebody stops it, and returns the number of counted keys.
fn count(
    keys: &Keys<'_>,
    cells: &mut [Cell],
    phase: Phase,
    watch: &mut dyn Watch,
) -> Result<u64, ReadError> {
    let mut done = Done { key_count: 0, key_count_total: Some(keys.len()), input_bytes: 0 };
    keys.for_each_window(|window| {
        // Before the window, so that work that somebody stops early begins nothing.
        if watch.is_stopped() {
            return ControlFlow::Break(());
        }
        cells.par_iter_mut().for_each(|cell| cell.count(window));
        done.key_count += window.len() as u64;
        watch.progress(phase, done);
        ControlFlow::Continue(())
    })?;
    Ok(done.key_count)
}

/// Adds up the parts of each setup.
fn merge(cells: Vec<Cell>) -> Vec<(usize, PartialStats)> {
    let mut merged: Vec<(usize, PartialStats)> = Vec::new();
    for (index, stats) in cells.into_iter().flat_map(|cell| cell.stats) {
        match merged.iter_mut().find(|(other, _)| *other == index) {
            Some((_, sum)) => sum.merge(&stats).expect("parts of one setup"),
            None => merged.push((index, stats)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reduction, Specimen};

    fn setup(name: &str, bucket_count: u64) -> Setup {
        let specimen = Specimen::by_name(name).unwrap();
        Setup::new(specimen, 0, Reduction::LowMask, bucket_count).unwrap()
    }

    fn cell(setups: &[usize], part: usize, part_count: usize) -> CellPlan {
        CellPlan { setups: setups.to_vec(), part, part_count }
    }

    #[test]
    fn any_number_of_threads_may_be_asked_for() {
        use crate::keys::{Bytes, Column, DuplicatePolicy, KeyFormat};
        let column = Column { name: "1".to_owned(), has_header: false };
        let format = KeyFormat::by_name("lines", column).unwrap();
        let source = Bytes { bytes: b"one\ntwo\n", format };
        let keys = Keys::read(Box::new(source), DuplicatePolicy::Remove, 1 << 20, &mut ()).unwrap();
        let limits = Limits { memory_bytes: 1 << 20, thread_count: usize::MAX };
        let count = |stats: &PartialStats| (stats.key_count(), rayon::current_num_threads());
        let outcome = measure(&keys, &[setup("sdbm", 8)], limits, &mut (), count).unwrap();
        assert_eq!(outcome.results, [(2, THREADS_MAX)]);
    }

    #[test]
    fn one_table_is_counted_in_parts_and_many_are_shared_out() {
        let one = [setup("sdbm", 8)];
        let parts = vec![vec![cell(&[0], 0, 2), cell(&[0], 1, 2)]];
        assert_eq!(plan(&one, 10, 1 << 20, 2), parts);
        // There is no memory for the buckets of another part.
        assert_eq!(plan(&one, 10, 64 + 320, 2), [[cell(&[0], 0, 1)]]);
        let many = [setup("sdbm", 8), setup("dbm", 8), setup("sdbm", 16), setup("sdbm", 32)];
        let shared = [cell(&[1], 0, 2), cell(&[1], 1, 2), cell(&[0, 2], 0, 1), cell(&[3], 0, 1)];
        assert_eq!(plan(&many, 10, 1 << 20, 4), [shared]);
    }

    #[test]
    fn rounds_fit_into_memory_and_hold_every_setup_once() {
        let setups: Vec<Setup> =
            (0..20).map(|n| setup(["sdbm", "dbm", "x65599"][n % 2], 1 << (n % 7))).collect();
        for memory_bytes in [900, 1500, 6000] {
            let mut seen = Vec::new();
            for round in plan(&setups, 10, memory_bytes, 3) {
                let mut bytes = 0;
                for cell in &round {
                    for &index in &cell.setups {
                        let (counters, all) =
                            (setups[index].memory_bytes(0), setups[index].memory_bytes(10));
                        // The hashes are shared by the parts.
                        bytes += counters + (all - counters).div_ceil(cell.part_count as u64);
                    }
                }
                assert!(bytes <= memory_bytes + 20, "{bytes} of {memory_bytes}");
                seen.extend(
                    round.iter().filter(|cell| cell.part == 0).flat_map(|cell| cell.setups.clone()),
                );
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn hashes_are_sampled_where_they_do_not_fit_and_buckets_are_refused() {
        let setups = [setup("sdbm", 8), setup("xxh3-64", 1024)];
        let (fitted, sampled_count) = fit(&setups, 1000, 20_000).unwrap();
        assert_eq!((fitted[0].sampling(), fitted[1].sampling(), sampled_count), (1, 2, 2));
        assert!(matches!(
            fit(&setups, 1000, 4000),
            Err(ReadError::Memory { needed_bytes: 8192, allowed_bytes: 4000 })
        ));
    }
}
