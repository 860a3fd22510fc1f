use std::fmt::Write as _;

use super::*;
use crate::handles::{BUCKETS, Handle, HandleReport};
use crate::replay::{Measuring, Shrink, Streams, Trace};

fn find<'a>(report: &'a PaperReport, item: &str) -> &'a Finding {
    let found = report.findings.iter().find(|it| it.item == item);
    found.unwrap_or_else(|| panic!("no `{item}` in {:#?}", report.findings))
}

#[test]
fn dumazet_s_runs_differ_in_real_and_user_time_and_not_where_lookups_are() {
    let report = dumazet(&[]);
    assert_eq!(find(&report, "real: a clear benefit").mark, Mark::InShape);
    assert_eq!(find(&report, "sys: a clear benefit").mark, Mark::DidNotHold);
    assert!(find(&report, "real: a clear benefit").ours.starts_with("-1.9 %, p = "));
    assert_eq!(find(&report, "one line instead of two, 32 bytes").ours, "1.517");
    assert_eq!(find(&report, "remark 2: half a line over").mark, Mark::DidNotHold);
    for item in ["131072 slots: memory", "dhash_entries=8191: average chain"] {
        assert_eq!(find(&report, item).mark, Mark::Exact, "{item}");
    }
}

#[test]
fn mewburn_s_columns_follow_from_each_other() {
    let report = mewburn(None);
    for it in &report.findings {
        let is_derived = it.item.ends_with("util %") || it.item.ends_with("a call");
        assert!(!is_derived || it.mark == Mark::Exact, "{it:?}");
    }
    let handles: Vec<Handle> =
        (0..34_688).map(|n| Handle { inode: n * 3, generation: 0 }).collect();
    let handles = HandleReport::new("made".into(), &handles, BUCKETS, 1).unwrap();
    let report = mewburn(Some(&handles));
    let fnv = find(&report, "fnv_32_buf(): used, util %, items, average, maximum");
    assert_eq!(fnv.mark, Mark::InShape, "{fnv:?}");
}

#[test]
fn bacik_s_counts_are_met_and_the_fix_is_not_ideal() {
    let report = torvalds();
    let exact = |it: &&Finding| it.part == "Bacik's report" && it.mark != Mark::NotReproducible;
    assert!(report.findings.iter().filter(exact).all(|it| it.mark == Mark::Exact));
    assert_eq!(report.count(Mark::DidNotHold), 1);
}

#[test]
fn without_a_trace_lever_s_arithmetic_is_checked_and_the_rest_says_what_it_needs() {
    let report = lever(None).unwrap();
    assert_eq!(find(&report, "Histogram 1: utilization").mark, Mark::Exact);
    assert_eq!(find(&report, "2654435761 is a prime").mark, Mark::Exact);
    assert_eq!(find(&report, "13-bit").note, "give --trace");
    assert!(report.slips.len() > 10);
    // Every row of the six tables is there.
    let rows = |part: &str| report.findings.iter().filter(|it| it.part.starts_with(part)).count();
    let counts = ["Table 1", "Table 2", "Table 3", "Table 4", "Table 5", "Table 6, c"].map(rows);
    assert_eq!(counts, [7, 3, 9, 4, 7, 5]);
}

#[test]
fn a_trace_fills_the_rows_of_its_tables() {
    let mut text = "# kernel cache trace 1\n# name small\n".to_owned();
    for n in 0..3000_u64 {
        let block = 8193 * (n % 700) + n / 700;
        let inode = n + 11;
        let _ = write!(text, "L 1 2 {inode} f{n}\nG 1 {inode} 0 2\nB 1 1024 {block}\n");
    }
    let streams =
        Streams::read(Trace::new(text.as_bytes()).unwrap(), Shrink::None, |_| {}).unwrap();
    let measuring =
        Measuring { seed_count: 2, draw_count: 2, at: None, every: None, progress: &|_, _| {} };
    let runs = Runs { streams: &streams, shrunk: Some(&streams), measuring };
    let report = lever(Some(runs)).unwrap();
    let missing = report.findings.iter().filter(|it| it.note.contains("--trace")).count();
    assert_eq!(missing, 0);
    assert_eq!(find(&report, "13-bit").mark, Mark::InShape);
    assert!(find(&report, "rbtree").ours.starts_with("visited "), "{report:#?}");
    assert!(report.subject.contains("2 seeds"));
}
