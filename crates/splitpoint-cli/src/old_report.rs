//! The report of `stat` on an old file: one serialized struct, and its text for 80 columns.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anstyle::Style;
use serde::Serialize;
use splitpoint::stats::{ChainHistogram, Stats};
use splitpoint_legacy::{OldFile, Survey};

use crate::chains;
use crate::number::grouped;

const BOLD: Style = Style::new().bold();

/// All facts about an old file.
#[derive(Debug, Serialize)]
pub(crate) struct OldReport {
    file: String,
    format: String,
    records: u64,
    file_bytes: u64,
    parameters: BTreeMap<&'static str, String>,
    overflow_pages: u64,
    hash: String,
    doubts: u64,
    further_values: u64,
    buckets: Vec<SizeRow>,
    #[serde(with = "splitpoint_lab::chains::histogram")]
    chains: ChainHistogram,
    /// Whether the format has a hash function, so that the chains mean something.
    #[serde(skip)]
    is_hashed: bool,
}

/// Buckets that hold `size` pairs.
#[derive(Debug, Serialize)]
struct SizeRow {
    size: u64,
    buckets: u64,
    ideal: f64,
}

impl OldReport {
    /// Makes the report of `file`, with the name that the user gave.
    pub(crate) fn new(name: String, file: &OldFile, survey: &Survey, stats: &Stats) -> Self {
        let parameters = file.parameters();
        let buckets = survey.buckets.iter().map(|row| SizeRow {
            size: row.size,
            buckets: row.bucket_count,
            ideal: row.ideal_bucket_count,
        });
        Self {
            file: name,
            format: file.identity().to_string(),
            records: survey.pair_count,
            file_bytes: stats.file_bytes,
            parameters: parameters.into_iter().map(|one| (one.name, one.value)).collect(),
            overflow_pages: stats.overflow_line_count,
            hash: stats.hash_name.clone(),
            doubts: survey.doubt_count,
            further_values: survey.further_value_count,
            is_hashed: file.is_hashed(),
            buckets: buckets.collect(),
            chains: stats.chains.clone(),
        }
    }

    /// Returns the report as text.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{BOLD}{}{BOLD:#}", self.file);
        let hash = match &*self.hash {
            "" if self.is_hashed => "unknown",
            "" => "none: the keys are in order, or listed",
            name => name,
        };
        for (name, value) in [
            ("format", self.format.clone()),
            ("records", grouped(self.records)),
            ("file bytes", grouped(self.file_bytes)),
            ("overflow pages", grouped(self.overflow_pages)),
            ("hash function", hash.to_string()),
            ("in doubt", grouped(self.doubts)),
            ("further values", grouped(self.further_values)),
        ] {
            if name == "further values" && self.further_values == 0 {
                continue;
            }
            let _ = writeln!(out, "  {name:<22}{value}");
        }
        let _ = writeln!(out, "\n{BOLD}parameters{BOLD:#}");
        for (name, value) in &self.parameters {
            let _ = writeln!(out, "  {name:<22}{value}");
        }
        if !self.buckets.is_empty() {
            let _ = writeln!(out, "\n{BOLD}{:>8}{:>11}{:>13}{BOLD:#}", "pairs", "buckets", "ideal");
            for row in &self.buckets {
                let buckets = grouped(row.buckets);
                let _ = writeln!(out, "{:>8}{buckets:>11}{:>13.1}", grouped(row.size), row.ideal);
            }
        }
        if !self.is_hashed {
            return out;
        }
        let _ = writeln!(out, "\n{BOLD}keys by their hashes{BOLD:#}");
        let remedy =
            "Its hash function does not suit these keys. Convert it with `splitpoint convert`.\n";
        out += &chains::to_text(&self.chains, remedy);
        out
    }
}
