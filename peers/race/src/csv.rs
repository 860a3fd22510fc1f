//! Every result in a line.

use std::fmt::Write as _;

use crate::rows::Rows;
use crate::saved::Saved;

const HEADS: &str = "work,phase,engine,version,runs,operations,median_ns,min_ns,max_ns,worst_ns,p99_ns,\
    p999_ns,rss_bytes,peak_rss_bytes,file_bytes,disk_bytes,read_bytes,others_cpus,stolen_cpus,puts_per_second,\
    unsupported,unfinished";

/// All of `docs/bench/results.csv`. Times are for one operation; what was not measured is empty.
pub fn page(saved: &Saved) -> String {
    let mut out = format!("{HEADS}\n");
    for row in &Rows::of(saved).0 {
        let some =
            |figure: Option<u64>| figure.map_or_else(String::new, |figure| figure.to_string());
        let cells = [
            quoted(&row.case),
            quoted(&row.label),
            quoted(&row.engine),
            quoted(&row.version),
            row.run_count.to_string(),
            row.ops.to_string(),
            format!("{:.1}", row.median_ns),
            format!("{:.1}", row.min_ns),
            format!("{:.1}", row.max_ns),
            row.worst_ns.to_string(),
            some(row.p99_ns),
            some(row.p999_ns),
            row.rss_bytes.to_string(),
            row.peak_rss_bytes.to_string(),
            some(row.file_bytes),
            some(row.disk_bytes),
            some(row.read_bytes),
            format!("{:.3}", row.others_cpus),
            format!("{:.3}", row.stolen_cpus),
            row.puts_per_second.map_or_else(String::new, |puts| format!("{puts:.0}")),
            quoted(row.unsupported.as_deref().unwrap_or("")),
            if row.is_unfinished { "killed" } else { "" }.to_owned(),
        ];
        let _ = writeln!(out, "{}", cells.join(","));
    }
    out
}

/// Quotes what has a comma or a quote in it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
