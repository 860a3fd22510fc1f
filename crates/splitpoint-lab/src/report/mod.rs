//! A study as a [`Document`]: one file for each section, and what pictures share.
//!
//! ```text
//! Study --> Entry --> sections: words, tables, figures --> Document
//!            scale: where a value stands     chart: what is drawn there
//! ```
//!
//! The document depends on the [`Study`] alone, so a document from a saved study equals the
//! original one byte by byte.
//!
//! # Invariants
//!
//! - A section is written once: page, Markdown and text are renderings of its blocks.
//! - Words beside a picture, and numbers below it, say what it shows.

mod avalanche;
mod bars;
mod chains;
mod chart;
mod choices;
mod classics;
mod compared;
mod cost;
mod curve;
mod entry;
mod evidence;
mod functions;
mod gates;
mod handles;
mod kernel_tables;
mod keys;
mod layouts;
mod live_store;
mod measurement;
mod method;
mod number;
mod paper;
mod replay;
mod scale;
mod seltzer_yigit;
mod sizes;
mod slots;
mod strip;
mod timing;
mod verdict;

use splitpoint::stats::ChainHistogram;

use self::entry::Entry;
use self::number::{bytes, counted};
use crate::document::{Block, Document, Line, Section, shown};
use crate::study::Study;

pub use self::chains::warning as chains_warning;
pub use self::classics::classics;
pub use self::handles::handles;
pub use self::kernel_tables::{live_kernel, table_sizes};
pub use self::layouts::layouts;
pub use self::live_store::{HOW_TO_COUNT, live_store};
pub use self::paper::paper;
pub use self::replay::replay;
pub use self::seltzer_yigit::paper_rerun;

/// Returns the document of a study.
///
/// # Cost
///
/// Time and memory in proportion to it: some kilobytes for each function and reduction.
pub fn document(study: &Study) -> Document {
    let keys = &study.keys;
    let title = Line::from("Hash functions on ").then(Line::code(shown(&keys.source)));
    let count = counted(keys.key_count, "key");
    let subtitle = format!("{count}, {}, measured beside an ideal hash", bytes(keys.key_bytes));
    Document { title, subtitle: subtitle.into(), sections: sections(study) }
}

/// Returns the chain histogram of a store, without titles.
pub fn chains(chains: &ChainHistogram) -> Document {
    let section = Section { blocks: chains::histogram(chains), ..Section::default() };
    Document { sections: vec![section], ..Document::default() }
}

fn sections(study: &Study) -> Vec<Section> {
    let entries = Entry::all(study);
    let mut sections = Vec::new();
    let mut add = |id, title, blocks: Vec<Block>| {
        // What the keys are, and how they were measured, is for reference, and so is what a league,
        // limits or differences were made of.
        let is_alone = study.gates.is_empty() && study.differences.is_empty();
        let is_appendix = match id {
            "keys" | "timing" | "method" => true,
            "league" => !is_alone,
            "depth" => !is_alone || entries.len() > 1,
            _ => false,
        };
        sections.push(Section { id, title, is_appendix, blocks });
    };
    if !study.gates.is_empty() {
        add("gates", "Limits", gates::section(&study.gates));
    }
    let verdict = verdict::section(study, &entries);
    if !verdict.is_empty() {
        add("verdict", "Verdict", verdict);
    }
    if !study.differences.is_empty() {
        add("compared", "Compared", compared::section(study));
    }
    if !study.choices.is_empty() {
        add("choices", "What to choose", choices::section(study));
    }
    if let Some(slots) = &study.slots {
        add("slots", "Cluster slots", slots::section(slots));
    }
    if !study.avalanches.is_empty() {
        add("avalanche", "Avalanche", avalanche::section(study));
    }
    if entries.len() > 1 {
        add("league", "League table", functions::section(&entries, study));
    }
    if let Some(blocks) = cost::section(&entries, &study.reports) {
        add("cost", "Cost over table size", blocks);
    }
    if let Some(live) = &study.live_table {
        add("chains", "The table of the store", chains::section(live));
    }
    if !entries.is_empty() {
        add("depth", "In depth", measurement::section(&entries, study.reports.len()));
    }
    if !study.timings.is_empty() {
        add("timing", "Time per key", timing::section(&study.timings));
    }
    add("keys", "The keys", keys::section(&study.keys, &study.key_positions));
    add("method", "Method and versions", method::section(study));
    sections
}
