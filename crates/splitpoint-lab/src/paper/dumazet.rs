//! The place of a link in the dentry.
//!
//! # Source
//!
//! Dumazet, "struct dentry: place `d_hash` close to `d_parent` and `d_name` to speedup lookups",
//! linux-kernel, September 2005.

use super::{Finding, Mark, PaperReport, change, digits, p};
use crate::chance::{Moments, welch};
use crate::golden::Slip;
use crate::replay::NodeLayout;
use crate::replay::walk::WalkTime;

const PART_SIZES: &str = "Sizes";
const PART_FIND: &str = "find, seven runs";
const PART_BUILD: &str = "Kernel build";
const PART_LINES: &str = "Cache lines";

/// Real, user and system time of his seven runs, before and after, in seconds.
const TIMES: [(&str, [f64; 7], [f64; 7]); 3] = [
    (
        "real",
        [3.077, 3.077, 3.084, 3.108, 3.061, 3.067, 3.061],
        [3.017, 3.018, 3.017, 3.019, 3.021, 3.022, 3.021],
    ),
    (
        "user",
        [1.724, 1.728, 1.784, 1.716, 1.672, 1.644, 1.804],
        [1.700, 1.592, 1.624, 1.680, 1.676, 1.644, 1.620],
    ),
    (
        "sys",
        [1.344, 1.348, 1.276, 1.348, 1.384, 1.424, 1.252],
        [1.316, 1.424, 1.396, 1.340, 1.344, 1.376, 1.404],
    ),
];
/// Below this, a difference is none of chance.
const P_CHANCE: f64 = 0.05;
/// The first and the second layout of a dentry in his mail.
const BEFORE: &str = "dentry-2.6.13";
const AFTER: &str = "dentry-2.6.14";

/// Puts Dumazet's numbers beside ours; `times` are lookups measured on this machine.
pub fn dumazet(times: &[WalkTime]) -> PaperReport {
    let mut findings = sizes();
    findings.extend(TIMES.iter().map(of_runs));
    findings.extend(build());
    findings.extend(lines());
    findings.extend(of_times(times));
    let subject = match times {
        [] => "his own figures, and the layouts; --time measures here",
        _ => "his own figures, the layouts, and lookups on this machine",
    };
    PaperReport::new("Dumazet 2005: one cache line instead of two", subject, findings, slips())
}

fn sizes() -> Vec<Finding> {
    let (dentries, slabs, objects) = (131_104.0, 4530.0, 29.0);
    vec![
        Finding::exact(PART_SIZES, "131072 slots: memory", "0.5 MB", {
            format!("{:.1} MB", 131_072.0 * 4.0 / f64::from(1 << 20))
        }),
        Finding::exact(PART_SIZES, "dhash_entries=8191: average chain", "16", {
            digits(dentries / 8191_f64.log2().ceil().exp2(), 0)
        })
        .note("131,104 dentries over 8192 slots: the kernel rounds up"),
        Finding::exact(PART_SIZES, "dentry_cache: places in 4530 slabs", "131370", {
            digits(slabs * objects, 0)
        }),
        Finding::missing(PART_SIZES, "searches of data in the cache", "563887 files", {
            format!(
                "the cache held 131,104 dentries, one for {:.1} files: most names were gone when find \
                 came to them again, and a miss passes the whole chain",
                563_887.0 / dentries
            )
        }),
    ]
}

fn of_runs((what, before, after): &(&'static str, [f64; 7], [f64; 7])) -> Finding {
    let (left, right) = (Moments::of(before), Moments::of(after));
    let test = welch(left, right);
    let published = format!("{:.3} to {:.3} s", left.mean, right.mean);
    let ours = format!("{}, {}", change(left.mean, right.mean), p(test.map(|it| it.p)));
    let is_faster = right.mean < left.mean && test.is_some_and(|it| it.p < P_CHANCE);
    let note = match (*what, is_faster) {
        ("sys", false) => "where lookups are: no difference that chance does not explain",
        ("user", _) => "find itself, which the change does not touch",
        _ => "Welch's test on his runs",
    };
    let item = format!("{what}: a clear benefit");
    Finding::new(PART_FIND, item, published, ours, Mark::shape(is_faster)).note(note)
}

fn build() -> Vec<Finding> {
    let of = |what: &str, before: f64, after: f64| {
        let published = format!("{before:.3} to {after:.3} s");
        let ours = change(before, after);
        Finding::new(PART_BUILD, what, published, ours, Mark::NotReproducible)
            .note("one run each: nothing tells it from chance")
    };
    vec![of("real", 741.755, 728.814), of("user", 665.070, 662.129), of("sys", 60.756, 52.187)]
}

fn lines() -> Vec<Finding> {
    let lines = |name: &str, line_bytes| {
        NodeLayout::by_name(name).map_or(f64::NAN, |layout| layout.lines_per_step(line_bytes))
    };
    let after = lines(AFTER, 32);
    let whole = lines("dentry-2.6.14-160", 32);
    let half = lines("dentry-2.6.14-144", 32);
    vec![
        Finding::exact(
            PART_LINES,
            "lines a step touches, before",
            "2",
            digits(lines(BEFORE, 32), 0),
        ),
        Finding::new(
            PART_LINES,
            "one line instead of two, 32 bytes",
            "1",
            digits(after, 3),
            Mark::shape(after < 1.25),
        )
        .note("half of the dentries still lie across two lines"),
        Finding::new(
            PART_LINES,
            "the same with lines of 64 bytes",
            "1",
            digits(lines(AFTER, 64), 3),
            Mark::InShape,
        ),
        Finding::new(
            PART_LINES,
            "remark 2: size a multiple of a line",
            "better",
            digits(whole, 3),
            Mark::shape(whole < after),
        ),
        Finding::new(
            PART_LINES,
            "remark 2: half a line over",
            "better",
            digits(half, 3),
            Mark::shape(half < after - 0.1),
        )
        .note("against 1.517 as it was"),
    ]
}

/// What this machine says: lookups of absent keys, which pass whole chains.
fn of_times(times: &[WalkTime]) -> Vec<Finding> {
    let is_meant = |it: &&WalkTime| it.layout == AFTER && !it.is_present;
    let finding = |after: &WalkTime| {
        let manner = |it: &WalkTime| (it.order, it.is_present, it.memory_bytes);
        let before = times.iter().find(|it| it.layout == BEFORE && manner(it) == manner(after))?;
        let (left, right) = (before.lookup_ns.median, after.lookup_ns.median);
        let holds = right < left && after.p.is_some_and(|p| p < P_CHANCE);
        let order = format!("{:?}", after.order).to_lowercase();
        let item = format!(
            "a miss, {} MiB of nodes, {order} order",
            digits(after.memory_bytes as f64 / f64::from(1 << 20), 1)
        );
        let ours = format!("{left:.0} to {right:.0} ns, {}, {}", change(left, right), p(after.p));
        Some(Finding::new("This machine", item, "faster", ours, Mark::shape(holds)).note(
            "processors of today load both lines of a node at once, so that the second costs little",
        ))
    };
    times.iter().filter(is_meant).filter_map(finding).collect()
}

fn slips() -> Vec<Slip> {
    let user = TIMES
        .iter()
        .find(|it| it.0 == "user")
        .map_or(0.0, |it| Moments::of(&it.2).mean - Moments::of(&it.1).mean);
    let real = Moments::of(&TIMES[0].2).mean - Moments::of(&TIMES[0].1).mean;
    let sys = Moments::of(&TIMES[2].2).mean - Moments::of(&TIMES[2].1).mean;
    let slip = |printed: &str, evidence: String| Slip {
        source: "Dumazet 2005",
        printed: printed.to_owned(),
        evidence,
    };
    vec![
        slip(
            "There is a clear benefit, even without a microbenchmark",
            format!(
                "real time changed by {real:+.3} s, of which user time, where no lookup is, {user:+.3} s, \
                 and system time {sys:+.3} s"
            ),
        ),
        slip(
            "sizeof(struct dentry) % L1_CACHE_BYTES = {0 or (L1_CACHE_BYTES/2)} would be better",
            "of 160 bytes a step reads 1.000 lines of 32, of 144 bytes 1.500, of 136 as it is 1.517"
                .to_owned(),
        ),
    ]
}
