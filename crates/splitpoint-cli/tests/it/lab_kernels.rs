//! The commands of the lab on hash tables of kernels: tables, layout, nfs, live, trace, paper.

use crate::sandbox::Sandbox;

#[test]
fn layout_prints_the_lines_of_a_step() {
    let sandbox = Sandbox::new();
    let args = ["lab", "layout", "--node", "dentry-2.6.13", "--node", "dentry-2.6.14"];
    sandbox.run(&args).check(
        0,
        "Nodes of hash chains\n\
         in cache lines\n\
         \n\
         Cache lines\n\
         A lookup that passes a node reads its link and the fields that it compares, up\n\
         to the first that differs; of the node that matches it reads all. The lines are\n\
         counted over every place of a slab; nothing is measured.\n\
         \n\
         Lines of a step\n\
         node            32 B   64 B  128 B  bytes  apart  first\n\
         dentry-2.6.13  2.000  2.000  1.621    136    136    144\n\
         dentry-2.6.14  1.517  1.276  1.138    136    136    144\n\
         \n\
         Lines of the node that matches\n\
         node            32 B   64 B  128 B  bytes  apart  first\n\
         dentry-2.6.13  3.000  2.552  1.828    136    136    144\n\
         dentry-2.6.14  3.000  2.552  1.828    136    136    144\n\
         \n\
         - Dumazet 2005: \"one cache line is needed instead of two\". With his lines of 32\n  \
           bytes it is 1.517 instead of 2.000: 48 % of the dentries need one line, the\n  \
           others two.\n",
        "",
    );
    let first = ["lab", "layout", "--node", "dentry-2.6.14", "--first", "140", "--json"];
    let json = sandbox.run(&first).json();
    let step = json["layouts"][0]["lines"][0]["step"].as_f64().expect("a number");
    assert!((step - 1.276).abs() < 0.001, "{step}");
    let odd = sandbox.run(&["lab", "layout", "--line", "48"]);
    odd.check_error(2, "a cache line has a power of two of bytes, not 48");
}

#[test]
fn layout_measures_what_it_is_asked_to() {
    let sandbox = Sandbox::new();
    let args = ["lab", "layout", "--node", "page-2.4.0", "--node", "splitpoint", "--time"];
    let json =
        sandbox.run(&[&args[..], &["--memory", "1M", "--chain", "7", "--json"]].concat()).json();
    let times = json["times"].as_array().expect("a list");
    assert_eq!(times.len(), 8);
    assert!(times.iter().all(|it| it["lookup_ns"]["run_count"] == 7 && it["chain_keys"] == 7));
    let text = sandbox.run(&[&args[..], &["--memory", "1M"]].concat()).text();
    assert!(text.contains("\nabsent keys, nodes shuffled, in 1.0 MiB\n"), "{text}");
}

#[test]
fn tables_apply_the_rules_of_an_era() {
    let sandbox = Sandbox::new();
    sandbox
        .run(&["lab", "tables", "--era", "2.2.16", "--memory", "64M", "--objects", "10000"])
        .check(
            0,
            "Hash tables of the kernel\n\
         with 10,000 objects in each\n\
         \n\
         Sizes\n\
         Buckets and memory of the hash tables\n\
         memory    kernel  table   buckets  table bytes   of it    load  fullest, ideal\n\
         64.0 MiB  2.2.16  dentry    8,192     64.0 KiB  0.10 %   1.221             7.2\n\
         64.0 MiB  2.2.16  inode      256*      2.0 KiB  0.00 %  39.062            57.8\n\
         64.0 MiB  2.2.16  page     16,384     64.0 KiB  0.10 %   0.610             5.6\n\
         64.0 MiB  2.2.16  buffer   65,536    256.0 KiB  0.39 %   0.153             3.8\n\
         \n\
         - A table marked * has this size whatever the memory.\n",
            "",
        );
    assert_eq!(sandbox.run(&["lab", "tables", "--memory", "1K"]).exit, 2);
    sandbox.run(&["lab", "tables", "--html", "page.html", "-q"]);
    assert!(sandbox.read("page.html").starts_with(b"<!DOCTYPE html>"));
}

#[test]
fn nfs_prints_netbsd_s_line_of_each_function() {
    let sandbox = Sandbox::new();
    let lines: Vec<String> = (0..2000).map(|inode| format!("{} 0", 2 * inode)).collect();
    sandbox.write("handles", lines.join("\n").as_bytes());
    let text = sandbox.run(&["lab", "nfs", "handles"]).text();
    let row = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).expect("a row");
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<String>>()
    };
    assert_eq!(row("netbsd-byte-sum")[..4], ["as", "found", "65,536", "269"]);
    assert_eq!(
        row("byte sum, 2001")[2..],
        ["the", "paper's", "65,536", "1,000", "1.53", "34,688", "34", "105"]
    );
    assert!(text.contains("Every generation is 0"), "{text}");
    let json =
        sandbox.run_with(&["lab", "nfs", "-", "--buckets", "256", "--json"], b"7\n8 9\n").json();
    assert_eq!(
        (&json["handle_count"], &json["tables"][0]["bucket_count"]),
        (&2.into(), &256.into())
    );
    sandbox.write("odd", b"1 2\nx\n");
    let expected =
        "`odd`: line 2: expected `INODE GENERATION`, two decimal numbers of 32 bits, found `x`";
    sandbox.run(&["lab", "nfs", "odd"]).check_error(2, expected);
    sandbox.run_with(&["lab", "nfs", "-"], b"").check_error(1, "`-` holds no handles");
    assert_eq!(sandbox.run(&["lab", "nfs", "absent"]).exit, 3);
}

#[test]
fn live_reads_what_there_is_and_says_what_there_is_not() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path("copy/proc/sys/fs")).expect("a directory");
    std::fs::create_dir_all(sandbox.path("copy/proc/sys/kernel")).expect("a directory");
    sandbox.write("copy/proc/meminfo", b"MemTotal:        2048000 kB\n");
    sandbox.write("copy/proc/sys/fs/dentry-state", b"100000\t9\t45\t0\t0\t0\n");
    sandbox.write("copy/proc/sys/kernel/osrelease", b"6.1.0\n");
    let text = sandbox.run(&["lab", "live", "--root", "copy"]).text();
    for needle in [
        "Linux 6.1.0, 2.0 GiB\n",
        "dentry  262,144  2.0 MiB  100,000  0.381  68.3 %  1.191  0.381      5.6  rule, from MemTotal\n",
        "inode   131,072  1.0 MiB        ?      ?       ?      ?      ?        ?",
        "\nWhat could not be read\n",
        "- `/proc/slabinfo`: No such file or directory (os error 2); instead: the\n  counters\n",
    ] {
        assert!(text.contains(needle), "no `{needle}` in\n{text}");
    }
    // Whatever machine runs this test.
    assert_eq!(sandbox.run(&["lab", "live", "--json"]).exit, 0);
    let none = sandbox.run(&["lab", "live", "--root", "absent"]);
    assert!(none.exit == 0 && none.text().contains("No file tells how large the tables are"));
}

#[test]
fn a_capture_of_strace_becomes_a_trace_that_is_replayed() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path("root/usr/bin")).expect("a directory");
    sandbox.write("root/usr/bin/cc", b"");
    sandbox.write(
        "cc.st",
        b"7 100.0 stat(\"/usr/bin/cc\", {}) = 0\n7 100.1 stat(\"/usr/bin/gone\", 0) = -1 ENOENT (No)\n",
    );
    let args = ["lab", "trace", "strace", "cc.st", "--root", "root", "--map", "/usr=/opt"];
    let outcome = sandbox.run(&[&args[..], &["--output", "cc.kct", "--name", "compiler"]].concat());
    outcome.check(0, "", "splitpoint: wrote the trace `cc.kct`: L 6\n");
    let text = String::from_utf8(sandbox.read("cc.kct")).expect("text");
    assert!(text.starts_with("# kernel cache trace 1\n# name compiler\n# dev 1 "), "{text}");
    assert!(text.contains(" opt\n") && !text.contains("usr"), "{text}");
    let replay = ["lab", "replay", "cc.kct", "--table", "dentry", "--seeds", "1", "--json"];
    let json = sandbox.run(&replay).json();
    assert_eq!(json["traces"][0]["streams"][0]["counts"]["lookup_count"], 6);
    // Only a trace is replaced.
    let over = sandbox.run(&["lab", "trace", "strace", "cc.st", "-o", "cc.st"]);
    over.check_error(2, "`cc.st` exists and is not a trace, so it was not replaced");
    sandbox.write("bad.st", b"7 100.0 stat(\"a\", {}) = 0\n");
    let bad = sandbox.run(&["lab", "trace", "strace", "bad.st"]);
    assert_eq!(bad.exit, 2);
    assert!(bad.stderr.contains("line 1: nothing says where process 7 is"), "{}", bad.stderr);
    sandbox.write("with.st", b"7 1.0 write(1</x>, \"secret\", 6) = 6\n");
    let with = sandbox.run(&["lab", "trace", "strace", "with.st", "--root", "root"]);
    assert!(with.stderr.contains("1 call with what files contain"), "{}", with.stderr);
}

#[test]
fn a_capture_of_tracefs_that_lost_events_is_refused() {
    let sandbox = Sandbox::new();
    let line = "cat-7 [000] ..... 1.5: mm_filemap_get_pages: dev=8:1 ino=d ofs=0-8191\n";
    sandbox.write("t", line.as_bytes());
    sandbox.write("stats0", b"entries: 1\noverrun: 0\ndropped events: 0\n");
    sandbox.write("stats1", b"entries: 1\noverrun: 5\ndropped events: 0\n");
    let outcome =
        sandbox.run(&["lab", "trace", "tracefs", "t", "--stats", "stats0", "--name", "n"]);
    let expected = "# kernel cache trace 1\n# name n\n# dev 1 unknown 4096\n\
                    # source tracefs, 1 event\nG 1 13 0 2\n";
    outcome.check(0, expected, "splitpoint: wrote the trace: G 1\n");
    let lossy = sandbox.run(&["lab", "trace", "tracefs", "t", "--stats", "stats1"]);
    lossy.check_error(2, "`stats1`: 5 events lost, so the trace would miss them");
    sandbox.write("lost", format!("{line}CPU:0 [LOST 7 EVENTS]\n").as_bytes());
    let lossy = sandbox.run(&["lab", "trace", "tracefs", "lost"]);
    assert!(lossy.stderr.contains("`lost`: line 2: events are lost"), "{}", lossy.stderr);
    assert_eq!(sandbox.run(&["lab", "trace", "tracefs", "t", "--device", "sda"]).exit, 2);
}

#[test]
fn papers_mark_every_number() {
    let sandbox = Sandbox::new();
    for (paper, exact) in [("lever", 30), ("dumazet", 4), ("mewburn", 8)] {
        let json = sandbox.run(&["lab", "paper", paper, "--json"]).json();
        let findings = json["findings"].as_array().expect("a list");
        let count = |mark: &str| findings.iter().filter(|it| it["mark"] == mark).count();
        assert!(count("exact") >= exact, "{paper}: {}", count("exact"));
        let marks = ["exact", "in_shape", "did_not_hold", "not_reproducible"];
        assert_eq!(marks.map(count).iter().sum::<usize>(), findings.len(), "{paper}");
        let reasons = findings.iter().filter(|it| it["mark"] == "not_reproducible");
        assert!(reasons.clone().all(|it| it["note"] != ""), "{paper}");
        let text = sandbox.run(&["lab", "paper", paper]).text();
        assert!(text.contains("\nMistakes in the text\n"), "{text}");
    }
}
