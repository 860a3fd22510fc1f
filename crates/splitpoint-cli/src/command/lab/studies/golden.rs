//! `splitpoint lab golden`: published figures, computed again.

use std::fmt::Write as _;

use serde::Serialize;
use splitpoint_lab::golden::{self, Row, Slip};

use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::number::{count, counted};
use crate::words::Words;

/// Recompute published figures and compare
///
/// Covers Bacik's figures of 2014, Lever's histograms of 2000, the table sizes of Linux 2.2.16,
/// reductions that cannot reach some buckets, figures and addresses of Seltzer and Yigit's paper of
/// 1991, and the test vectors of every hash function. Exits with code 1 if a figure differs. Lists errors in the published texts at the end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab golden
  splitpoint lab golden --all
  splitpoint lab golden --json | jq '.rows[] | select(.is_equal | not)'")]
pub(crate) struct Args {
    /// Print the test vectors one by one
    #[arg(long)]
    all: bool,

    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    rows: Vec<Row>,
    slips: Vec<Slip>,
}

/// Sections too long to read; without `--all` only their totals are shown.
const SUMMED: [&str; 2] = ["vectors", "2.2 buckets"];

/// Computes and compares.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let words = Words::bundled();
    let mut rows = golden::rows();
    rows.extend(golden::word_rows(words.records().into_iter().map(|(word, _)| word)));
    let report = Report { schema: 1, rows, slips: golden::slips() };
    let different = count(report.rows.iter().filter(|row| !row.is_equal).count());
    if args.json {
        console::print_json(&report)?;
    } else {
        console::print_styled(&in_words(&report, args.all, console))?;
    }
    if different > 0 {
        let figures = counted(different, "figure");
        return Err(Failure::new(Exit::No, format!("{figures} differ from the published ones")));
    }
    Ok(())
}

fn in_words(report: &Report, shows_all: bool, console: Console) -> String {
    let mut out = String::new();
    for section in report.rows.chunk_by(|one, other| one.source == other.source) {
        let equal = section.iter().filter(|row| row.is_equal).count();
        let _ = writeln!(out, "{}: {equal} of {} are equal", section[0].source, section.len());
        let is_summed = SUMMED.contains(&section[0].source) && !shows_all;
        for row in section.iter().filter(|row| !is_summed || !row.is_equal) {
            let Row { what, published, computed, .. } = row;
            if row.is_equal {
                let _ = writeln!(out, "  {what}: {computed}");
            } else {
                let _ = writeln!(out, "  {what}: published {published}, computed {computed}");
            }
        }
    }
    if !console.is_quiet() {
        let _ = writeln!(out, "errors in the published texts:");
        for Slip { source, printed, evidence } in &report.slips {
            let _ = writeln!(out, "  {source}: {printed}\n    {evidence}");
        }
    }
    out
}
