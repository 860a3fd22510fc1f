//! The hash tables of Linux 2.2.5.
//!
//! # Source
//!
//! Lever, "Linux kernel hash table behavior: analysis and improvements", 2000.

mod figures;
mod slips;
mod tables;

use super::PaperReport;
use crate::Error;
use crate::replay::{Measuring, Streams};

/// What to replay for the paper.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// A trace of a load like his.
    pub streams: &'a Streams,
    /// The same with the dentry cache shrunk, half of what is unused at a time.
    pub shrunk: Option<&'a Streams>,
    /// How to measure.
    pub measuring: Measuring<'a>,
}

/// Puts the numbers of Lever's paper beside ours; without a trace, only what follows from them.
///
/// His throughput cannot be had. In its place stand the nodes and cache lines of a lookup: a kernel that
/// is faster than the reference in the paper, and cheaper here, has the same shape.
///
/// # Errors
///
/// [`Error::ModelMemory`] if the objects of the trace do not fit into the address model.
pub fn lever(runs: Option<Runs<'_>>) -> Result<PaperReport, Error> {
    let mut findings = tables::findings(runs)?;
    findings.extend(figures::histograms(runs)?);
    findings.extend(figures::arithmetic());
    let subject = runs.map_or_else(
        || "its own figures; --trace replays a load on its tables".to_owned(),
        |runs| {
            format!(
                "the trace {}, addresses modeled, {} seeds",
                runs.streams.name, runs.measuring.seed_count
            )
        },
    );
    let slips = slips::slips();
    Ok(PaperReport::new("Lever 2000: hash tables of Linux 2.2.5", subject, findings, slips))
}
