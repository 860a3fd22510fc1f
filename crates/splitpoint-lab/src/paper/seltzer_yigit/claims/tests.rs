use super::*;
use crate::paper::seltzer_yigit::data::DataName;
use crate::paper::seltzer_yigit::run::{RunOutcome, Sample};
use crate::paper::seltzer_yigit::{plan, run::Counts};

/// Pretends that each run took what `times` says, in milliseconds: user, system, elapsed.
fn measured(runs: &[Run], times: impl Fn(&Run) -> [f64; 3]) -> Vec<Measurement> {
    let measure = |run: &Run| {
        let mut it = Measurement::new(*run);
        if run.page_bytes > 32_768 {
            it.push(RunOutcome::Refused { reason: "too large".to_owned() });
            return it;
        }
        let [user_s, system_s, elapsed_s] = times(run).map(|ms| ms / 1e3);
        for jitter in [0.999, 1.0, 1.001] {
            let [user_s, system_s, elapsed_s] = [user_s, system_s, elapsed_s].map(|it| it * jitter);
            let sample =
                Sample { user_s, system_s, elapsed_s, repetition_count: 1, ..Sample::default() };
            it.push(RunOutcome::Measured { sample, counts: counts(run) });
        }
        it
    };
    runs.iter().map(measure).collect()
}

/// Fewer buckets and larger pools make fewer transfers.
fn counts(run: &Run) -> Counts {
    let buckets = 24_474 / u64::from(run.fill_factor);
    let bytes = buckets * u64::from(run.page_bytes);
    let transfers = bytes.saturating_sub(run.cache_bytes) / u64::from(run.page_bytes);
    Counts {
        page_reads: Some(transfers),
        page_writes: Some(0),
        page_allocations: Some(buckets),
        device_bytes: Some(1 << 20),
        ..Counts::default()
    }
}

/// Times that make each claim hold, roughly those of 1991.
fn of_1991(run: &Run) -> [f64; 3] {
    use System::{AlgorithmHsearch, Hash, Hsearch, Ndbm};
    match (run.figure, run.system, run.test) {
        (PaperFigure::BucketSizes, ..) => {
            let is_full = 17 * run.fill_factor >= run.page_bytes;
            let waste = if is_full { 1.0 } else { f64::from(run.page_bytes / run.fill_factor) };
            let is_best = (run.page_bytes, run.fill_factor) == (256, 8);
            let user = if is_best { 10.0 } else { 20.0 };
            [user, waste, user + waste + 5.0]
        }
        (PaperFigure::Growth, ..) => {
            let grown =
                if run.is_size_known { 0.0 } else { 4.0 / f64::from(run.fill_factor).powi(2) };
            [10.0, 1.0, 11.0 + grown]
        }
        (PaperFigure::Pool, ..) => {
            [10.0, 5.0, 11.0 + f64::from(1 << 20) / (run.cache_bytes + 9_000) as f64]
        }
        (PaperFigure::Reread, ..) => [5.0, 5.0, if run.page_bytes == 1024 { 20.0 } else { 30.0 }],
        (_, Hash, PaperTest::Create) => [6.4, 32.5, 90.4],
        (_, Ndbm, PaperTest::Create) => [12.2, 34.7, 99.6],
        (_, Hash, PaperTest::Read | PaperTest::Verify) => [3.4, 1.2, 4.0],
        (_, Ndbm, PaperTest::Read | PaperTest::Verify) => [6.1, 15.3, 21.2],
        (_, Hash, PaperTest::CreateRead) => [6.6, 1.1, 7.8],
        (_, Hsearch | AlgorithmHsearch, PaperTest::CreateRead) => [17.2, 0.3, 17.0],
        (_, Hash, _) => [2.7, 0.7, 3.0],
        (_, Ndbm, PaperTest::Sequential) => [1.9, 3.9, 5.0],
        (_, Ndbm, _) => [8.2, 4.3, 12.0],
        _ => [5.0, 5.0, 10.0],
    }
}

fn claims_of(measurements: &[Measurement]) -> Vec<Claim> {
    claims(measurements, &PaperFigure::ALL, 13.0)
}

#[test]
fn with_the_times_of_1991_the_claims_hold() {
    let all = claims_of(&measured(&plan::runs(&PaperFigure::ALL, false), of_1991));
    let failed: Vec<_> = all.iter().filter(|it| it.verdict != ClaimVerdict::Held).collect();
    // The package never had pages of 1 MiB.
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert_eq!(failed[0].ours, "refused: too large", "{failed:#?}");
    assert!(all.len() >= 20);
}

#[test]
fn without_runs_nothing_is_decided_and_each_claim_says_why() {
    for it in claims_of(&[]) {
        assert_eq!(it.verdict, ClaimVerdict::CannotTell, "{it:?}");
        assert!(!it.note.is_empty(), "{it:?}");
    }
}

#[test]
fn only_claims_of_the_figures_asked_for_are_listed() {
    let figures = [PaperFigure::Pool];
    let all = claims(&[], &figures, 13.0);
    assert!(all.len() == 3 && all.iter().all(|it| it.place == "Figure 7"));
}

#[test]
fn a_machine_without_ndbm_leaves_its_claims_open_and_names_the_package() {
    let runs = plan::runs(&[PaperFigure::Dictionary], true);
    let mut all = measured(&runs, of_1991);
    all.retain(|it| it.run.system != System::Ndbm);
    let all = claims(&all, &[PaperFigure::Dictionary], 13.0);
    let create = all.iter().find(|it| it.words.starts_with("CREATE")).unwrap();
    assert_eq!(create.verdict, ClaimVerdict::CannotTell);
    assert!(create.note.contains("libgdbm"), "{}", create.note);
    let memory = all.iter().find(|it| it.words.contains("over 50 %")).unwrap();
    assert_eq!(memory.verdict, ClaimVerdict::Held);
}

#[test]
fn a_pool_that_saves_nothing_and_a_slow_growth_do_not_hold() {
    let runs = plan::runs(&[PaperFigure::Growth, PaperFigure::Pool], true);
    let slow = |run: &Run| match run.figure {
        PaperFigure::Growth if !run.is_size_known => [10.0, 1.0, 30.0],
        _ => [10.0, 1.0, 11.0],
    };
    let all = claims_of(&measured(&runs, slow));
    let verdict = |words: &str| all.iter().find(|it| it.words.contains(words)).unwrap().verdict;
    assert_eq!(verdict("once the fill factor"), ClaimVerdict::DidNotHold);
    assert_eq!(verdict("inversely proportional"), ClaimVerdict::DidNotHold);
    assert_eq!(verdict("virtually insensitive"), ClaimVerdict::Held);
    assert_eq!(verdict("performed no I/O"), ClaimVerdict::Held);
}

#[test]
fn times_that_scatter_decide_nothing() {
    let runs = plan::runs(&[PaperFigure::Growth], true);
    let mut all = measured(&runs, of_1991);
    for it in all.iter_mut().filter(|it| !it.run.is_size_known) {
        it.elapsed.half_interval = 10.0 * it.elapsed.mean;
    }
    for it in claims(&all, &[PaperFigure::Growth], 13.0) {
        assert_eq!(it.verdict, ClaimVerdict::CannotTell, "{it:?}");
        assert!(it.note.contains("more runs"));
    }
}

#[test]
fn a_warm_file_tells_nothing_about_the_disk() {
    let runs = plan::runs(&[PaperFigure::Reread], false);
    let mut all = measured(&runs, of_1991);
    for it in &mut all {
        it.counts = Some(Counts { device_bytes: Some(0), ..Counts::default() });
    }
    for it in claims(&all, &[PaperFigure::Reread], 13.0) {
        assert_eq!(it.verdict, ClaimVerdict::CannotTell);
        assert!(it.note.contains("in memory"));
    }
    assert_eq!(all[0].run.data, DataName::Dictionary);
}

#[test]
fn seconds_have_three_digits() {
    let shown = [12.3456, 0.5, 0.0123, 0.001_234].map(seconds);
    assert_eq!(shown, ["12.35 s", "500 ms", "12.3 ms", "1.23 ms"]);
}
