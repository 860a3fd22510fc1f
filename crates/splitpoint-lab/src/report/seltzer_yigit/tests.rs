use super::*;
use crate::document::Look;
use crate::paper::seltzer_yigit::{
    Counts, DataSet, Evidence, Measurement, RunOutcome, Sample, System, SystemFacts, runs,
    seltzer_yigit,
};
use crate::study::{Machine, Program};

/// A report of pretended runs; of ndbm there is none.
fn report(figures: &[PaperFigure]) -> PaperRerun {
    let measure = |run| {
        let mut it = Measurement::new(run);
        if run.system == System::Ndbm {
            it.push(RunOutcome::Absent { reason: "not here: no libndbm".to_owned() });
            return it;
        }
        for jitter in 0..3 {
            let user_s = 0.01 + 0.0001 * f64::from(jitter) + 0.01 / f64::from(run.fill_factor);
            let (system_s, elapsed_s) = (0.001, 2.0 * user_s);
            let sample =
                Sample { user_s, system_s, elapsed_s, repetition_count: 2, ..Sample::default() };
            let counts = Counts {
                found_count: 24_474,
                page_reads: Some(1000 / u64::from(run.fill_factor)),
                page_writes: Some(0),
                ..Counts::default()
            };
            it.push(RunOutcome::Measured { sample, counts });
        }
        it
    };
    let data = DataSet::made_passwd(b"", 1);
    let absent = SystemFacts {
        system: System::Ndbm,
        what: "libndbm".to_owned(),
        is_here: false,
        note: "install it".to_owned(),
    };
    seltzer_yigit(Evidence {
        program: Program::default(),
        machine: Machine::default(),
        load_average: Some(0.5),
        seed: 1,
        run_count: 3,
        figures: figures.to_vec(),
        data_sets: vec![data.facts],
        systems: vec![absent],
        measurements: runs(figures, true).into_iter().map(measure).collect(),
        defaults: None,
        interruption: None,
    })
}

#[test]
fn the_claims_come_first_and_every_figure_has_its_picture_or_its_table() {
    let html = paper_rerun(&report(&PaperFigure::ALL)).html();
    let place = |needle: &str| html.find(needle).unwrap_or_else(|| panic!("no {needle}"));
    let order = ["claims", "figure-5", "text", "figure-6", "figure-7", "figure-8a", "figure-8b"];
    let places = order.map(|id| place(&format!("<section id=\"{id}\"")));
    assert!(places.is_sorted());
    for id in ["fig-5a", "fig-5b", "fig-5c", "fig-5-pages", "fig-6-hash", "fig-7", "fig-reread"] {
        place(&format!("<figure id=\"{id}\""));
    }
    // Lines have their names, bars are stacked.
    for needle in [">4096</text>", "class=\"bar-rest\"", "not here", "-266"] {
        place(needle);
    }
}

#[test]
fn the_text_names_each_claim_with_its_verdict() {
    let rerun = report(&[PaperFigure::Pool, PaperFigure::Dictionary]);
    let text = paper_rerun(&rerun).text(&Look::plain(80));
    for claim in &rerun.claims {
        assert!(text.contains(claim.name), "{}", claim.name);
        assert!(text.contains(claim.verdict.words()));
    }
    assert!(text.contains("SEQUENTIAL (with data)") && !text.contains("Figure 6"), "{text}");
}

#[test]
fn a_report_without_runs_says_so() {
    let mut rerun = report(&PaperFigure::ALL);
    rerun.measurements.clear();
    rerun.interruption = Some("stopped before the first run".to_owned());
    let text = paper_rerun(&rerun).text(&Look::plain(80));
    assert!(text.contains("warning: interrupted: stopped before the first run"), "{text}");
    assert_eq!(text.matches("No run of this figure was made.").count(), 4);
}
