//! Which runs the figures need.

use super::data::{DataName, WORD_COUNT};
use super::run::{PaperFigure, PaperTest, Run, System};

/// Fill factors of Figure 5.
pub(super) const FILLS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Bucket sizes of Figure 5 that the package can have.
const SIZES: [u32; 8] = [128, 256, 512, 1024, 4096, 8192, 16_384, 32_768];
/// Bucket sizes that the text names and the package refuses: they go "to 1M".
const SIZES_REFUSED: [u32; 2] = [65_536, 1 << 20];
/// The same for a quick look.
const FILLS_QUICK: [u32; 5] = [1, 8, 16, 64, 128];
const SIZES_QUICK: [u32; 4] = [128, 256, 1024, 4096];
/// The buffer pool of Figures 5 and 6.
const POOL_BYTES: u64 = 1 << 20;
/// The default buffer pool.
const POOL_BYTES_DEFAULT: u64 = 64 << 10;
/// Bytes of a bucket of the native store, whose size nobody chooses.
const LINE_BYTES: u32 = 64;
/// Most keys a bucket of the native store may have on average.
const NATIVE_FILL_MAX: u32 = 7;
/// Bytes of buckets beyond which a run is left out: they go through a temporary file.
const BUCKET_BYTES_MAX: u64 = 256 << 20;

/// Returns the runs of `figures`, each once.
///
/// `is_quick` leaves out most bucket sizes, fill factors and pools.
pub fn runs(figures: &[PaperFigure], is_quick: bool) -> Vec<Run> {
    let mut runs = Vec::new();
    for figure in PaperFigure::ALL.into_iter().filter(|figure| figures.contains(figure)) {
        runs.extend(match figure {
            PaperFigure::BucketSizes => bucket_sizes(is_quick),
            PaperFigure::Growth => growth(is_quick),
            PaperFigure::Pool => pool(is_quick),
            PaperFigure::Reread => reread(is_quick),
            PaperFigure::Dictionary => comparison(figure, DataName::Dictionary),
            PaperFigure::Passwd => comparison(figure, DataName::Passwd),
        });
    }
    runs
}

/// Returns why a run is not made, if it is not: its buckets would fill the disk.
pub fn left_out(run: &Run) -> Option<String> {
    let buckets = (WORD_COUNT as u64).div_ceil(u64::from(run.fill_factor.max(1)));
    let bytes = buckets * u64::from(run.page_bytes);
    let is_grid = run.figure == PaperFigure::BucketSizes && run.system == System::Hash;
    (is_grid && bytes > BUCKET_BYTES_MAX && !SIZES_REFUSED.contains(&run.page_bytes)).then(|| {
        format!("left out: its buckets would take {} MiB of a temporary file", bytes >> 20)
    })
}

/// A run of the dictionary in memory, as Figures 5 to 7 have it.
fn dictionary_run(figure: PaperFigure, system: System, page_bytes: u32, fill_factor: u32) -> Run {
    Run {
        figure,
        system,
        test: PaperTest::CreateRead,
        data: DataName::Dictionary,
        page_bytes,
        fill_factor,
        is_size_known: true,
        cache_bytes: POOL_BYTES,
    }
}

fn bucket_sizes(is_quick: bool) -> Vec<Run> {
    let run = |system, page, fill| dictionary_run(PaperFigure::BucketSizes, system, page, fill);
    let (sizes, fills): (&[u32], &[u32]) =
        if is_quick { (&SIZES_QUICK, &FILLS_QUICK) } else { (&SIZES, &FILLS) };
    let mut runs: Vec<Run> = sizes
        .iter()
        .flat_map(|&page| fills.iter().map(move |&fill| run(System::Hash, page, fill)))
        .collect();
    runs.extend(SIZES_REFUSED.map(|page| run(System::Hash, page, 128)));
    let native = FILLS.into_iter().filter(|&fill| fill <= NATIVE_FILL_MAX);
    runs.extend(native.map(|fill| run(System::Splitpoint, LINE_BYTES, fill)));
    runs
}

fn growth(is_quick: bool) -> Vec<Run> {
    let run = |system, page, fill| dictionary_run(PaperFigure::Growth, system, page, fill);
    let fills: &[u32] = if is_quick { &[4, 8, 32] } else { &[4, 8, 16, 32, 64] };
    let mut runs = Vec::new();
    for &fill in fills {
        for system in [System::Hash, System::AlgorithmDynahash] {
            let known = run(system, 256, fill);
            runs.extend([known, Run { is_size_known: false, ..known }]);
        }
    }
    runs.push(Run { is_size_known: false, ..run(System::Splitpoint, LINE_BYTES, 4) });
    runs
}

fn pool(is_quick: bool) -> Vec<Run> {
    let is_wanted = |power: &u32| !is_quick || matches!(power, 0 | 3 | 6 | 8 | 10);
    let kib = (0..=10).filter(is_wanted).map(|power| 1_u64 << power);
    let mut runs = Vec::new();
    for kib in std::iter::once(0).chain(kib) {
        let hash = dictionary_run(PaperFigure::Pool, System::Hash, 256, 16);
        runs.push(Run { cache_bytes: kib << 10, ..hash });
        let native = dictionary_run(PaperFigure::Pool, System::Splitpoint, LINE_BYTES, 4);
        // The bound is on a file; a table in memory has none.
        let native = Run { test: PaperTest::Create, is_size_known: false, ..native };
        runs.push(Run { cache_bytes: kib << 10, ..native });
    }
    runs
}

fn reread(is_quick: bool) -> Vec<Run> {
    let pairs: &[(u32, u32)] = if is_quick {
        &[(256, 8), (1024, 32), (8192, 256)]
    } else {
        &[(128, 4), (256, 8), (512, 16), (1024, 32), (2048, 64), (4096, 128), (8192, 256)]
    };
    let run = |&(page, fill): &(u32, u32)| Run {
        test: PaperTest::Reread,
        ..dictionary_run(PaperFigure::Reread, System::Hash, page, fill)
    };
    pairs.iter().map(run).collect()
}

/// Figures 8a and 8b. The paper does not say that the size was known, nor names a pool: it speaks of one
/// that is limited, so the default is taken.
fn comparison(figure: PaperFigure, data: DataName) -> Vec<Run> {
    const FILES: [System; 7] = [
        System::Hash,
        System::Ndbm,
        System::Splitpoint,
        System::Gdbm,
        System::AlgorithmNdbm,
        System::AlgorithmSdbm,
        System::AlgorithmGdbm,
    ];
    const MEMORY: [System; 5] = [
        System::Hash,
        System::Hsearch,
        System::Splitpoint,
        System::AlgorithmHsearch,
        System::AlgorithmDynahash,
    ];
    const TESTS: [PaperTest; 5] = [
        PaperTest::Create,
        PaperTest::Read,
        PaperTest::Verify,
        PaperTest::Sequential,
        PaperTest::SequentialWithData,
    ];
    let run = |system: System, test: PaperTest| {
        let (page_bytes, fill_factor) = match (system, test.is_in_memory()) {
            (System::Splitpoint, _) => (LINE_BYTES, 4),
            (_, true) => (256, 8),
            (_, false) => (1024, 32),
        };
        Run {
            figure,
            system,
            test,
            data,
            page_bytes,
            fill_factor,
            is_size_known: false,
            cache_bytes: POOL_BYTES_DEFAULT,
        }
    };
    let files = TESTS.iter().flat_map(|&test| FILES.map(|system| run(system, test)));
    files.chain(MEMORY.map(|system| run(system, PaperTest::CreateRead))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_run_is_planned_twice_and_a_quick_look_has_fewer() {
        let whole = runs(&PaperFigure::ALL, false);
        let quick = runs(&PaperFigure::ALL, true);
        for runs in [&whole, &quick] {
            assert_eq!(runs.iter().collect::<BTreeSet<_>>().len(), runs.len());
        }
        assert!(2 * quick.len() < 3 * whole.len() && quick.len() > 100, "{}", quick.len());
        assert!(quick.iter().all(|run| run.figure == PaperFigure::Growth || whole.contains(run)));
    }

    #[test]
    fn only_buckets_that_fill_the_disk_are_left_out() {
        let whole = runs(&PaperFigure::ALL, false);
        let out: Vec<_> = whole.iter().filter(|run| left_out(run).is_some()).collect();
        let out: Vec<_> = out.iter().map(|run| (run.page_bytes, run.fill_factor)).collect();
        assert_eq!(out, [(16_384, 1), (32_768, 1), (32_768, 2)]);
    }
}
