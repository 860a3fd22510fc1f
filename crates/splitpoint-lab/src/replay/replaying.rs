//! Measures columns on streams, in threads: each seed of the addresses, each draw of the ideal.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::plan::{Column, Combination};
use super::study::{
    Across, CombinationReplay, FullBucket, LineCost, Moment, SizeCurve, SizePoint, StreamReplay,
    TableReplay, TraceReplay,
};
use super::{KernelTable, NodeLayout, Reading, Run, Shrink, Streams, ideal_buckets};
use crate::occupancy::Occupancy;
use crate::{Error, Specimen};

/// Sizes of cache lines: of a Pentium III, of today, and of a pair of today's.
const LINE_BYTES: [u32; 3] = [32, 64, 128];
/// Moments of a stream that are kept.
const MOMENTS: u64 = 24;
/// Fullest buckets that are kept, and objects of each.
const FULLEST: usize = 10;
const OBJECTS_SHOWN: usize = 6;
/// Sizes of a curve: from a load of 32 to one of 1/16.
const BITS_BELOW: u32 = 5;
const BITS_ABOVE: u32 = 4;
const BITS_MIN: u32 = 6;

/// How to measure.
#[derive(Clone, Copy)]
pub struct Measuring<'a> {
    /// Seeds of the addresses, from 1.
    pub seed_count: u64,
    /// Draws of the ideal hash, from 1.
    pub draw_count: u64,
    /// Stop after this many lookups of each table.
    pub at: Option<u64>,
    /// Keep a reading each time that this many lookups have come.
    pub every: Option<u64>,
    /// Told how much is done, of how much.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

impl std::fmt::Debug for Measuring<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed_count, draw_count, at, every, progress: _ } = self;
        f.debug_struct("Measuring")
            .field("seed_count", seed_count)
            .field("draw_count", draw_count)
            .field("at", at)
            .field("every", every)
            .finish()
    }
}

/// A trace that was read, and what is measured on it.
#[derive(Debug)]
pub struct Replay<'a> {
    streams: &'a Streams,
    measuring: Measuring<'a>,
    done: AtomicU64,
    total: AtomicU64,
}

/// The readings of an ideal hash: at the end, for each draw, and during the first.
#[derive(Clone, Debug)]
struct Ideals {
    readings: Vec<Reading>,
    moments: Vec<Reading>,
}

/// What one seed gives.
#[derive(Debug)]
struct OfSeed {
    reading: Reading,
    occupancy: Occupancy,
    moments: Vec<Reading>,
    fullest: Vec<FullBucket>,
}

impl<'a> Replay<'a> {
    /// Begins.
    pub fn new(streams: &'a Streams, measuring: Measuring<'a>) -> Self {
        Self { streams, measuring, done: AtomicU64::new(0), total: AtomicU64::new(0) }
    }

    /// Returns the trace and its streams, without anything measured.
    pub fn trace(&self, source: &str, shrink: Shrink) -> TraceReplay {
        let stream = |table| StreamReplay { table, counts: self.streams.counts(table) };
        TraceReplay {
            name: self.streams.name.clone(),
            source: source.to_owned(),
            line_count: self.streams.line_count,
            shrink: shrink.to_string(),
            root_count: self.streams.root_count,
            stale_count: self.streams.stale_count,
            streams: KernelTable::ALL.into_iter().map(stream).collect(),
            ..TraceReplay::default()
        }
    }

    /// Measures each column; those without lookups are left out.
    ///
    /// # Errors
    ///
    /// [`Error::ModelMemory`] if the objects do not fit into the memory of a column's address model.
    pub fn tables(&self, columns: &[Column]) -> Result<Vec<TableReplay>, Error> {
        let columns: Vec<&Column> = columns.iter().filter(|it| self.is_used(it.table())).collect();
        let ideals = self.ideals(&columns);
        let seed_count = |column: &Column| {
            if Self::is_seeded(column) { self.measuring.seed_count.max(1) } else { 1 }
        };
        let tasks: Vec<(usize, u64)> = (0..columns.len())
            .flat_map(|index| (1..=seed_count(columns[index])).map(move |seed| (index, seed)))
            .collect();
        self.total.fetch_add(tasks.len() as u64, Ordering::Relaxed);
        let measured: Vec<(usize, OfSeed)> = tasks
            .into_par_iter()
            .map(|(index, seed)| Ok((index, self.of_seed(columns[index], seed)?)))
            .collect::<Result<_, Error>>()?;
        let mut by_column: BTreeMap<usize, Vec<OfSeed>> = BTreeMap::new();
        for (index, of_seed) in measured {
            by_column.entry(index).or_default().push(of_seed);
        }
        let table = |(index, seeds): (usize, Vec<OfSeed>)| {
            let column = columns[index];
            Self::table(column, &seeds, &ideals[&(column.table(), column.setup.bucket_count())])
        };
        Ok(by_column.into_iter().map(table).collect())
    }

    /// Measures the kernels of Lever's section 4.
    ///
    /// # Errors
    ///
    /// As [`tables`](Self::tables).
    pub fn combinations(
        &self,
        combinations: &[Combination],
    ) -> Result<Vec<CombinationReplay>, Error> {
        let of = |combination: &Combination| {
            let tables = self.tables(&combination.columns()?)?;
            let [measured, ideal] = weighted_lines(&tables);
            Ok(CombinationReplay {
                name: combination.name().to_owned(),
                tables,
                lines_per_lookup: measured,
                lines_per_lookup_ideal: ideal,
            })
        };
        combinations.iter().map(of).collect()
    }

    /// Measures functions over the size of their tables, with seed 1; sizes that a function's reduction
    /// does not have are left out.
    ///
    /// # Errors
    ///
    /// As [`tables`](Self::tables).
    pub fn curves(
        &self,
        functions: &[(KernelTable, &'static Specimen)],
    ) -> Result<Vec<SizeCurve>, Error> {
        let mut tasks = Vec::new();
        for (index, &(table, function)) in functions.iter().enumerate() {
            if !self.is_used(table) {
                continue;
            }
            let peak = self.streams.counts(table).object_count_max.max(1);
            let middle = peak.next_power_of_two().ilog2();
            let bits = middle.saturating_sub(BITS_BELOW).max(BITS_MIN)..=middle + BITS_ABOVE;
            let era = super::plan::era_of(function);
            tasks.extend(bits.filter_map(|bits| {
                let column = Column::of_function(table, function, 1 << bits, era).ok()?;
                Some((index, bits, column))
            }));
        }
        // The ideal is the same for all functions.
        let sizes: BTreeMap<(KernelTable, u32), Column> =
            tasks.iter().map(|&(_, bits, column)| ((column.table(), bits), column)).collect();
        self.expect((tasks.len() + sizes.len()) as u64);
        let visited = |column: &Column, buckets: &[u32]| {
            let visited = self.run(column, buckets, Run::finish).reading().visited_per_lookup();
            self.tick();
            visited
        };
        let ideals = sizes.into_par_iter();
        let ideals: BTreeMap<(KernelTable, u32), f64> = ideals
            .map(|(size, column)| (size, visited(&column, &self.drawn(&column, 1))))
            .collect();
        let points = tasks.into_par_iter().map(|(index, bits, column)| {
            let visited = visited(&column, &self.buckets(&column, 1)?);
            let visited_ideal = ideals[&(column.table(), bits)];
            Ok((index, SizePoint { bits, visited, visited_ideal }))
        });
        let points: Vec<(usize, SizePoint)> = points.collect::<Result<_, Error>>()?;
        let curve = |(index, &(table, function)): (usize, &(KernelTable, &Specimen))| SizeCurve {
            table,
            hash: function.name().to_owned(),
            points: points.iter().filter(|(of, _)| *of == index).map(|(_, point)| *point).collect(),
        };
        let curves = functions.iter().enumerate().map(curve);
        Ok(curves.filter(|curve| !curve.points.is_empty()).collect())
    }

    /// Returns whether a table has lookups.
    pub(super) fn is_used(&self, table: KernelTable) -> bool {
        self.streams.counts(table).lookup_count > 0
    }

    pub(super) fn streams(&self) -> &'a Streams {
        self.streams
    }

    pub(super) fn draw_count(&self) -> u64 {
        self.measuring.draw_count.max(1)
    }

    /// Adds work to be done.
    pub(super) fn expect(&self, passes: u64) {
        self.total.fetch_add(passes, Ordering::Relaxed);
    }

    /// Counts one pass over a stream as done.
    pub(super) fn tick(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        (self.measuring.progress)(done, self.total.load(Ordering::Relaxed));
    }

    /// Returns the buckets of a column's objects under `seed`.
    pub(super) fn buckets(&self, column: &Column, seed: u64) -> Result<Vec<u32>, Error> {
        let too_many = || Error::ModelMemory {
            table: column.table().name(),
            object_count: self.streams.object_count(column.table()) as u64,
        };
        column.setup.buckets(self.streams, seed).ok_or_else(too_many)
    }

    fn drawn(&self, column: &Column, draw: u64) -> Vec<u32> {
        let object_count = self.streams.object_count(column.table());
        ideal_buckets(object_count, column.setup.bucket_count(), draw)
    }

    fn run<'b>(
        &self,
        column: &Column,
        buckets: &'b [u32],
        work: impl FnOnce(&mut Run<'b>),
    ) -> Run<'b>
    where
        'a: 'b,
    {
        let steps = self.streams.steps(column.table());
        let mut run = Run::new(steps, buckets, column.setup.bucket_count());
        work(&mut run);
        run
    }

    /// Buffers are hashed by device and block, which no model has to make up.
    fn is_seeded(column: &Column) -> bool {
        column.table() != KernelTable::Buffer
    }

    /// Returns the ideals of each table and size.
    fn ideals(&self, columns: &[&Column]) -> BTreeMap<(KernelTable, u64), Ideals> {
        let key = |column: &&Column| (column.table(), column.setup.bucket_count());
        let distinct: BTreeMap<_, &Column> = columns.iter().map(|it| (key(it), *it)).collect();
        let tasks: Vec<_> = distinct
            .iter()
            .flat_map(|(key, column)| {
                (1..=self.draw_count()).map(move |draw| (*key, *column, draw))
            })
            .collect();
        self.expect(tasks.len() as u64);
        let drawn: Vec<_> = tasks
            .into_par_iter()
            .map(|(key, column, draw)| {
                let buckets = self.drawn(column, draw);
                let (run, moments) = self.read(column, &buckets, draw == 1);
                let reading = run.reading();
                self.tick();
                (key, reading, moments)
            })
            .collect();
        let mut ideals: BTreeMap<_, Ideals> = BTreeMap::new();
        for (key, reading, moments) in drawn {
            let of = ideals
                .entry(key)
                .or_insert_with(|| Ideals { readings: Vec::new(), moments: Vec::new() });
            of.readings.push(reading);
            of.moments.extend(moments);
        }
        ideals
    }

    /// Runs a stream to where it is to be read, and keeps readings on the way if they are wanted.
    fn read<'b>(
        &self,
        column: &Column,
        buckets: &'b [u32],
        keeps_moments: bool,
    ) -> (Run<'b>, Vec<Reading>)
    where
        'a: 'b,
    {
        let lookups = self.streams.counts(column.table()).lookup_count;
        let end = self.measuring.at.map_or(lookups, |at| at.min(lookups));
        let mut moments = Vec::new();
        let run = self.run(column, buckets, |run| {
            if keeps_moments {
                for at in moments_of(end, self.measuring.every) {
                    run.advance_to(at);
                    moments.push(run.reading());
                }
            }
            run.advance_to(end);
            if self.measuring.at.is_none() {
                run.finish();
            }
        });
        (run, moments)
    }

    fn of_seed(&self, column: &Column, seed: u64) -> Result<OfSeed, Error> {
        let buckets = self.buckets(column, seed)?;
        let (run, moments) = self.read(column, &buckets, seed == 1);
        let sizes = (0..).zip(run.chains().visits().buckets_by_size);
        let occupancy = Occupancy::uniform(sizes.collect());
        let fullest = if seed == 1 { self.fullest(column, &run) } else { Vec::new() };
        self.tick();
        Ok(OfSeed { reading: run.reading(), occupancy, moments, fullest })
    }

    fn fullest(&self, column: &Column, run: &Run<'_>) -> Vec<FullBucket> {
        let fullest = run.chains().fullest(FULLEST);
        let bucket = |(bucket, size): (u64, u64)| FullBucket {
            bucket,
            object_count: size,
            objects: run
                .chains()
                .objects_of(bucket)
                .take(OBJECTS_SHOWN)
                .map(|object| self.streams.object_in_words(column.table(), object))
                .collect(),
        };
        fullest.into_iter().filter(|(_, size)| *size > 1).map(bucket).collect()
    }

    fn table(column: &Column, seeds: &[OfSeed], ideals: &Ideals) -> TableReplay {
        let across = |of: &dyn Fn(&Reading) -> f64,
                      readings: &mut dyn Iterator<Item = &Reading>| {
            Across::of(&readings.map(of).collect::<Vec<f64>>()).unwrap_or_default()
        };
        let of_seeds = || seeds.iter().map(|seed| &seed.reading);
        let (visited, skipped) = (Reading::visited_per_lookup, Reading::skipped_per_lookup);
        let z: Option<Vec<f64>> =
            seeds.iter().map(|seed| Some(seed.occupancy.chi_square()?.z)).collect();
        let first = &seeds[0];
        let ideal = first.occupancy.ideal();
        let bucket_count = column.setup.bucket_count();
        let moments = first.moments.iter().zip(&ideals.moments);
        TableReplay {
            kernel: column.kernel.to_owned(),
            era: column.era.name.to_owned(),
            table: column.table(),
            hash: column.setup.function().name().to_owned(),
            bucket_count,
            table_bytes: bucket_count * column.era.bucket_bytes(column.table()),
            is_seeded: Self::is_seeded(column),
            reading: first.reading,
            visited: across(&visited, &mut of_seeds()),
            skipped: across(&skipped, &mut of_seeds()),
            visited_ideal: across(&visited, &mut ideals.readings.iter()),
            skipped_ideal: across(&skipped, &mut ideals.readings.iter()),
            largest_ideal: ideal.longest_mean(),
            z: z.and_then(|z| Across::of(&z)),
            lines: line_costs(column, &first.reading, &ideals.readings),
            rows: ideal.rows(first.occupancy.bucket_count_by_size()),
            moments: moments.map(|(&reading, &ideal)| Moment { reading, ideal }).collect(),
            fullest: first.fullest.clone(),
        }
    }
}

/// Returns the lookups after which there is a reading.
fn moments_of(end: u64, every: Option<u64>) -> Vec<u64> {
    match every {
        Some(every) => (1..=end / every.max(1)).map(|n| n * every.max(1)).collect(),
        None => (1..=MOMENTS.min(end))
            .map(|n| (u128::from(end) * u128::from(n) / u128::from(MOMENTS.min(end))) as u64)
            .collect(),
    }
}

/// Returns the lines that lookups read: that of the bucket, those of the nodes that they pass, and those
/// of the match.
pub(super) fn lines_per_lookup(nodes: &NodeLayout, line_bytes: u32, reading: &Reading) -> f64 {
    let [step, found] = [nodes.lines_per_step(line_bytes), nodes.lines_per_match(line_bytes)];
    1.0 + reading.skipped_per_lookup() * step + reading.hit_rate() * found
}

fn line_costs(column: &Column, reading: &Reading, ideals: &[Reading]) -> Vec<LineCost> {
    let Some(nodes) = column.nodes() else { return Vec::new() };
    let cost = |line_bytes| {
        let ideal: f64 = ideals.iter().map(|it| lines_per_lookup(nodes, line_bytes, it)).sum();
        LineCost {
            line_bytes,
            per_lookup: lines_per_lookup(nodes, line_bytes, reading),
            per_lookup_ideal: ideal / ideals.len().max(1) as f64,
        }
    };
    LINE_BYTES.into_iter().map(cost).collect()
}

/// Returns the lines of 32 bytes that a lookup of any of the tables reads, measured and ideal.
fn weighted_lines(tables: &[TableReplay]) -> [f64; 2] {
    let (mut sums, mut lookups) = ([0.0; 2], 0.0);
    for table in tables {
        let weight = table.reading.lookup_count as f64;
        lookups += weight;
        for cost in table.lines.iter().filter(|cost| cost.line_bytes == LINE_BYTES[0]) {
            sums[0] += weight * cost.per_lookup;
            sums[1] += weight * cost.per_lookup_ideal;
        }
    }
    sums.map(|sum| sum / f64::max(lookups, 1.0))
}
