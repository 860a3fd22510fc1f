//! A store in use: `lab live FILE`.

use super::chains::{histogram, warning};
use super::kernel_tables::page;
use super::number::{counted, fixed, grouped, percent};
use crate::document::{Block, Document, Line, Table, cells, shown};
use crate::live_store::{LiveLookups, LiveStore};

/// Returns the document of `lab live` of a store.
pub fn live_store(live: &LiveStore) -> Document {
    let chains = {
        let mut blocks = vec![Block::Prose(verdict(live))];
        blocks.extend(histogram(&live.chains));
        if let Some(warning) = warning(&live.chains) {
            let remedy = ". Take another hash function: `splitpoint lab recommend`";
            blocks.push(Block::Warning(Line::sentence(&(warning + remedy))));
        }
        blocks
    };
    let lookups = match &live.lookups {
        Some(lookups) => vec![Block::Table(costs(live, lookups))],
        None => vec![Block::Prose(Line::sentence(HOW_TO_COUNT))],
    };
    let subtitle =
        format!("{}, {}", counted(live.record_count, "key"), counted(live.bucket_count, "bucket"));
    let sections = vec![("chains", "Chains", chains), ("lookups", "Lookups", lookups)];
    page(format!("{} in use", shown(&live.store)), subtitle, sections)
}

/// How a program makes its lookups count.
pub const HOW_TO_COUNT: &str = "Nobody counts the lookups: a program does if it opens the store with \
    `Options::instrument(true)` in Rust, `sp_options_instrument(options, 1)` in C, or \
    `splitpoint.open(path, instrument=True)` in Python";

fn verdict(live: &LiveStore) -> Line {
    let chains = &live.chains;
    let of = if live.sampled_bucket_count == live.bucket_count {
        "all its buckets".to_owned()
    } else {
        format!("a sample of {}", counted(live.sampled_bucket_count, "bucket"))
    };
    let worse = chains.probes_hit / chains.probes_hit_ideal.max(f64::MIN_POSITIVE);
    let words = if live.sampled_key_count == 0 {
        "There are no keys in"
    } else if chains.beyond_chance_count > 0 {
        "The hash function does not suit the keys in"
    } else if worse > 1.1 {
        "Lookups read more lines than with an ideal hash in"
    } else {
        "The chains are those of an ideal hash in"
    };
    format!("{words} {of} with {}.", counted(live.sampled_key_count, "key")).into()
}

fn costs(live: &LiveStore, lookups: &LiveLookups) -> Table {
    let caption = format!("Lookups of all that count them, in {} s", fixed(lookups.seconds, 1));
    let mut table = Table::new(caption).words([""]).numbers(["measured", "ideal"]);
    let ideal = live.lines_per_lookup_ideal().map_or(String::new(), |ideal| fixed(ideal, 3));
    let LiveLookups { lookup_count, per_second, hit_share, in_vain_per_lookup, .. } = *lookups;
    table.push(cells!["lookups", grouped(lookup_count), ""]);
    table.push(cells!["lookups a second", fixed(per_second, 0), ""]);
    table.push(cells!["hit rate", percent(hit_share), ""]);
    table.push(cells!["keys compared in vain a lookup", fixed(in_vain_per_lookup, 3), "0.000"]);
    table.push(cells!["lines of the index a lookup", fixed(lookups.lines_per_lookup, 3), ideal]);
    table
}
