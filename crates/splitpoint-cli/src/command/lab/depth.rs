//! What `lab table` tells below the histogram: pages, open addressing, a trace, and the verdict.

use std::fmt::Write as _;

use splitpoint_lab::Report;
use splitpoint_lab::lookups::LookupCost;
use splitpoint_lab::probing::Method;

use super::avalanche::push_wrapped;
use crate::number::{counted, grouped};

/// Returns what lookups cost if the buckets are pages.
pub(super) fn pages(report: &Report) -> String {
    let mut out = format!(
        "\n{:<26}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n",
        "buckets as pages", "hit", "ideal", "miss", "ideal", "overflow", "ideal"
    );
    for page in &report.pages {
        let _ = writeln!(
            out,
            "{:<26}{:>9.3}{:>9.3}{:>9.3}{:>9.3}{:>8.2}%{:>8.2}%",
            format!("reads, {} slots", page.slots),
            page.reads_hit,
            page.reads_hit_ideal,
            page.reads_miss,
            page.reads_miss_ideal,
            100.0 * page.overflow_share,
            100.0 * page.overflow_share_ideal
        );
    }
    out
}

/// Returns what lookups cost with open addressing, or nothing if that is not known.
pub(super) fn probing(report: &Report) -> String {
    if report.probing.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "\n{:<26}{:>9}{:>9}{:>9}{:>9}{:>11}{:>7}\n",
        "open addressing", "hit", "ideal", "miss", "ideal", "slots", "load"
    );
    let mut notes = String::new();
    for found in &report.probing {
        let name = match found.method {
            Method::Linear => "slots, linear probing",
            Method::Double => "slots, double hashing",
            Method::Group => "groups of 16 slots",
        };
        let _ = writeln!(
            out,
            "{name:<26}{:>9.3}{:>9.3}{:>9.3}{:>9.3}{:>11}{:>7.3}",
            found.hit,
            found.hit_ideal,
            found.miss,
            found.miss_ideal,
            grouped(found.slot_count),
            found.inserted_count as f64 / found.slot_count as f64
        );
        if let Some(tags) = found.false_tags {
            let _ = writeln!(
                out,
                "{:<26}{:>9.3}{:>9.3}{:>9.3}{:>9.3}",
                "equal tags in vain", tags.hit, tags.hit_ideal, tags.miss, tags.miss_ideal
            );
        }
        if found.inserted_count < report.key_count {
            let inserted = counted(found.inserted_count, "key");
            let text =
                format!("{name}: given up after {inserted}, all of them would cost more still");
            push_wrapped(&text, &mut notes);
        }
    }
    out + &notes
}

/// Returns what the lookups of a trace cost.
pub(super) fn lookups(report: &Report) -> String {
    let Some(cost) = report.lookups else { return String::new() };
    let LookupCost { hit_count, miss_count, percentiles, .. } = cost;
    let mut out = format!(
        "\nlookups of the trace: {} of keys that are there, {} of others\n{:<26}{:>12}{:>12}\n",
        grouped(hit_count),
        grouped(miss_count),
        "",
        "measured",
        "ideal"
    );
    for (name, measured, ideal) in [
        ("keys looked at, hit", cost.probes_hit, cost.probes_hit_ideal),
        ("keys looked at, miss", cost.probes_miss, cost.probes_miss_ideal),
        ("keys looked at, all", cost.probes, cost.probes_ideal),
        ("cost", cost.cost_ratio, 1.0),
    ] {
        let _ = writeln!(out, "{name:<26}{measured:>12.3}{ideal:>12.3}");
    }
    let _ = writeln!(
        out,
        "keys of a lookup's bucket: p50 {}, p90 {}, p99 {}",
        percentiles.p50, percentiles.p90, percentiles.p99
    );
    out
}

/// Returns the verdict with what is to blame and what to do.
pub(super) fn verdict(report: &Report) -> String {
    let mut out = format!("\nverdict: {} ({} p values)\n", report.verdict, report.test_count);
    push_wrapped(&report.words.verdict, &mut out);
    for (heading, sentences) in
        [("to blame", &report.words.blame), ("what to do", &report.words.advice)]
    {
        if !sentences.is_empty() {
            let _ = writeln!(out, "{heading}:");
        }
        for sentence in sentences {
            push_wrapped(sentence, &mut out);
        }
    }
    out
}
