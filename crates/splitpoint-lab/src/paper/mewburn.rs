//! FNV for the file handles of NFS.
//!
//! # Source
//!
//! Mewburn, "New hash algorithm - FNV - for use in the kernel", tech-perform@netbsd.org, November
//! 2001.

use splitpoint::stats::Ideal;

use super::{Finding, Mark, PaperReport, digits};
use crate::golden::Slip;
use crate::handles::{BUCKETS, HandleReport};

const PART_LINES: &str = "vmstat";
const PART_PROFILE: &str = "Profile";
const PART_BENCHMARK: &str = "Benchmark";

/// Function here and there, and his line: used buckets, utilization, items, average, maximum.
const LINES: [(&str, &str, [f64; 5]); 2] = [
    ("netbsd-byte-sum", "existing nfs_hash()", [1000.0, 1.53, 34_688.0, 34.0, 105.0]),
    ("fnv1-32-bsd", "fnv_32_buf()", [27_054.0, 41.28, 34_867.0, 1.0, 6.0]),
];
/// Function, seconds of it alone, calls, and the figure that is headed ns a call.
const PROFILE: [(&str, f64, f64, &str); 4] = [
    ("nfs_nget, old", 1.48, 83_303.0, "17.77"),
    ("nfs_hash, old", 0.02, 83_303.0, "0.24"),
    ("nfs_nget, FNV", 0.06, 83_305.0, "0.72"),
    ("nfs_hash, FNV", 0.05, 83_305.0, "0.60"),
];

/// Puts Mewburn's numbers beside ours; without handles, only what follows from his own.
pub fn mewburn(handles: Option<&HandleReport>) -> PaperReport {
    let mut findings = Vec::new();
    for (hash, name, line) in LINES {
        findings.extend(of_line(name, line));
        findings.push(of_handles(hash, name, line, handles));
    }
    for (name, seconds, calls, printed) in PROFILE {
        let micros = digits(1e6 * seconds / calls, 2);
        let finding = Finding::exact(PART_PROFILE, format!("{name}, a call"), printed, micros);
        findings.push(finding.note("microseconds, from seconds and calls: the heading says ns"));
    }
    findings.push(
        Finding::missing(PART_PROFILE, "share of nfs_nget", "0.60 %, 0.03 %", "time of his kernel")
            .note("time of his kernel; it bounds what any hash could have saved there: 0.57 %"),
    );
    findings.push(Finding::missing(
        PART_BENCHMARK,
        "ls -Rf of 330,000 files",
        "the same time",
        "his server and network; that nothing changed follows from the profile's 0.60 %",
    ));
    let slips = vec![Slip {
        source: "Mewburn 2001",
        printed: "17.77 ns/call of nfs_nget".to_owned(),
        evidence: format!("1.48 s over 83,303 calls are {:.2} microseconds", 1.48e6 / 83_303.0),
    }];
    let subject = handles.map_or_else(
        || "his own figures; give handles for more".to_owned(),
        |report| format!("{} handles of {}", report.handle_count, report.source),
    );
    PaperReport::new("Mewburn 2001: FNV for file handles", subject, findings, slips)
}

/// What follows from a line by itself.
fn of_line(name: &str, [used, util, items, average, _]: [f64; 5]) -> Vec<Finding> {
    let item = |what: &str| format!("{name}: {what}");
    let ideal = Ideal::uniform(BUCKETS, items as u64);
    let used_ideal = BUCKETS as f64 - ideal.bucket_count(0);
    let mut findings = vec![
        Finding::exact(PART_LINES, item("util %"), digits(util, 2), {
            digits(100.0 * used / BUCKETS as f64, 2)
        }),
        Finding::exact(PART_LINES, item("average chain"), digits(average, 0), {
            digits((items / used).floor(), 0)
        })
        .note("items over used buckets, cut to a whole number"),
    ];
    if name.starts_with("fnv") {
        findings.push(
            Finding::new(
                PART_LINES,
                item("much better distribution"),
                digits(used, 0),
                digits(used_ideal, 0),
                Mark::shape((used / used_ideal - 1.0).abs() < 0.01),
            )
            .note("buckets that an ideal hash uses, on average"),
        );
    }
    findings
}

/// The line on handles of ours, with generations drawn as his file system drew them.
fn of_handles(
    hash: &str,
    name: &str,
    [used, util, items, average, maximum]: [f64; 5],
    handles: Option<&HandleReport>,
) -> Finding {
    let published = format!("{used}, {util:.2}, {items}, {average}, {maximum}");
    let item = format!("{name}: used, util %, items, average, maximum");
    let table = handles.and_then(|report| {
        report.tables.iter().find(|it| it.hash == hash && it.is_drawn && it.bucket_count == BUCKETS)
    });
    let Some(it) = table else {
        return Finding::missing(PART_LINES, item, published, "no handles were given");
    };
    let ours = format!(
        "{}, {:.2}, {}, {}, {}",
        it.used_count,
        100.0 * it.utilization,
        it.item_count,
        it.average_chain,
        it.longest
    );
    let near = |one: f64, other: f64| (one / other - 1.0).abs() < 0.1;
    let holds = near(it.used_count as f64 / it.item_count as f64, used / items)
        && near(it.average_chain as f64, average);
    Finding::new(PART_LINES, item, published, ours, Mark::shape(holds))
        .note("handles of another machine, with random generations")
}
