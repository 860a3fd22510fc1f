//! `splitpoint lab replay`.

use crate::sandbox::Sandbox;

/// A small trace whose streams were counted by hand.
const TRACE: &str = "\
# kernel cache trace 1
# name small
# dev 1 ext4 4096
# dev 2 ext2 1024
L 1 2 11 usr
L 1 11 12 bin
L 1 12 13 cc x3
L 1 2 0 lib64
L 1 2 14 srv
L 1 14 0 a.c
C 1 14 15 a.c
W 1 15 0 2
L 1 14 15 a.c
R 1 14 15 a.c 1 14 b.c
L 1 14 0 a.c
L 1 14 15 b.c
U 1 14 15 b.c
E 1 15
L 1 14 0 b.c
G 1 13 0 4 x2
A 1 13 4 4
X 1 13 0 2
F 1 13 4 1
B 2 1024 8195
D 2 1024 8195 x2
D 2 1024 9000
L 1 99 98 x
";

/// Compresses nothing: a frame of one block that is stored as it is.
fn stored_zstd(text: &[u8]) -> Vec<u8> {
    let size = text.len() as u32;
    // One segment, whose size has 4 bytes; the last block, raw.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend(size.to_le_bytes());
    frame.extend(&(size << 3 | 1).to_le_bytes()[..3]);
    frame.extend(text);
    frame
}

fn with_trace() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("small.kct", TRACE.as_bytes());
    sandbox
}

#[test]
fn a_trace_is_shown_then_and_now_beside_the_ideal() {
    let sandbox = with_trace();
    let outcome = sandbox.run(&["lab", "replay", "small.kct"]);
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
    let text = outcome.text();
    let streams = "
Events of each table, whatever its function and size
table   lookups  hits  misses  added  removed  at end  peak
dentry       13     5       8      1        1       8     8
inode         5     0       5      1        1       5     5
page         11     5       6      4        2       8    10
buffer        3     1       2      0        0       2     2
";
    assert!(text.starts_with("Replay of `small`\n") && text.contains(streams), "{text}");
    for caption in ["dentry", "inode", "page", "buffer"] {
        assert!(
            text.contains(&format!("\nThe {caption} table: nodes visited by a lookup\n")),
            "{text}"
        );
    }
    assert!(
        text.lines().any(|line| line.starts_with("6.x") && line.contains(" 4,194,304 ")),
        "{text}"
    );
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert_eq!(sandbox.run(&["lab", "replay", "small.kct"]).text(), text, "twice the same");
}

#[test]
fn a_compressed_trace_gives_what_the_plain_one_gives() {
    let sandbox = with_trace();
    sandbox.write("small.kct.zst", &stored_zstd(TRACE.as_bytes()));
    let args = ["--table", "dentry", "--era", "2.2.5"];
    let plain = sandbox.run(&[&["lab", "replay", "small.kct"], &args[..]].concat());
    let compressed = sandbox.run(&[&["lab", "replay", "small.kct.zst"], &args[..]].concat());
    assert_eq!((compressed.exit, compressed.text()), (0, plain.text()), "{}", compressed.stderr);
}

#[test]
fn the_style_of_lever_is_what_his_patch_logged() {
    let sandbox = with_trace();
    let args = ["lab", "replay", "small.kct", "--style", "lever", "--buckets", "1"];
    let outcome = sandbox.run(&[&args[..], &["--table", "dentry", "--era", "2.2.5"]].concat());
    let expected = "\
Dentry cache total lookups: 13 (hit rate: 38%)
hash table size is 1 buckets
hash table contains 8 objects
largest bucket contains 8 dentries
d_lookup() iterations/lookup: 2307/1000
hash table histogram:
 size    buckets      dentries  sum-pct
    0          0             0        0
";
    let text = outcome.text();
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("\n    8          1             8      100\n"), "{text}");
    let all = sandbox.run(&["lab", "replay", "small.kct", "--style", "lever", "--era", "2.2.5"]);
    for line in ["Inode cache total lookups: 5", "find_page() iterations/lookup: ", " buffers\n"] {
        assert!(all.text().contains(line), "{}", all.text());
    }
}

#[test]
fn functions_sizes_and_moments_that_are_asked_are_measured() {
    let sandbox = with_trace();
    let json = |more: &[&str]| {
        let outcome = sandbox.run(&[&["lab", "replay", "small.kct", "--json"], more].concat());
        assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
        outcome.json()["traces"][0].clone()
    };
    let asked = json(&["--table", "buffer", "--hash", "steiner-buffer", "--buckets", "16,1024"]);
    let sizes: Vec<_> =
        asked["tables"].as_array().unwrap().iter().map(|it| &it["bucket_count"]).collect();
    assert_eq!(sizes, [16, 1024]);
    let memory = json(&["--era", "2.4.0", "--memory", "64M", "--seeds", "2"]);
    let sizes: Vec<_> =
        memory["tables"].as_array().unwrap().iter().map(|it| &it["bucket_count"]).collect();
    assert_eq!(sizes, [8192, 4096, 16_384, 4096]);
    let table = ["--table", "dentry", "--era", "2.2.5", "--buckets", "1"];
    let at = json(&[&table[..], &["--at", "5"]].concat());
    // usr, bin and three times cc: 0 + 1 + 2 + 1 + 1 nodes.
    let reading = &at["tables"][0]["reading"];
    assert_eq!((&reading["lookup_count"], &reading["visited"]), (&5.into(), &5.into()));
    assert_eq!(reading["object_count"], 3);
    let every = json(&[&table[..], &["--every", "4"]].concat());
    let moments = every["tables"][0]["moments"].as_array().unwrap();
    let lookups: Vec<_> = moments.iter().map(|it| &it["reading"]["lookup_count"]).collect();
    assert_eq!(lookups, [4, 8, 12]);
    let shrunk = json(&["--shrink", "all:4", "--era", "2.2.5"]);
    assert_eq!(shrunk["shrink"], "all:4");
    assert_eq!(shrunk["streams"][0]["counts"]["remove_count"], 9);
}

#[test]
fn the_kernels_of_lever_are_combined() {
    let sandbox = with_trace();
    let text = sandbox.run(&["lab", "replay", "small.kct", "--combine", "all"]).text();
    for kernel in ["ref", "A", "B", "C", "D"] {
        assert!(text.lines().any(|line| line.split_whitespace().next() == Some(kernel)), "{text}");
    }
    assert!(text.contains("- ref and A: t = 44.35, they differ\n"), "{text}");
    assert!(text.contains("- A and B: t = -0.77, they may be equal\n"), "{text}");
    let one = sandbox.run(&["lab", "replay", "small.kct", "--combine", "B", "--json"]).json();
    let tables = &one["traces"][0]["combinations"][0]["tables"];
    assert_eq!(tables[3]["hash"], "steiner-buffer");
}

#[test]
fn all_traces_of_a_directory_make_one_page_that_answers() {
    let sandbox = with_trace();
    std::fs::create_dir(sandbox.path("traces")).unwrap();
    sandbox.write("traces/b.kct", TRACE.as_bytes());
    sandbox.write("traces/a.kct.zst", &stored_zstd(TRACE.replace("small", "first").as_bytes()));
    sandbox.write("traces/README.md", b"no trace\n");
    let args = ["lab", "replay", "--all", "traces", "--seeds", "1", "--html", "page.html"];
    let outcome = sandbox.run(&[&args[..], &["--json", "study.json"]].concat());
    assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    let text = outcome.text();
    assert!(text.starts_with("Replay of 2 traces\n"), "{text}");
    assert!(text.contains("\nIs today's Linux fine?\nYes, on all 2 traces: "), "{text}");
    assert!(text.contains("10,000 names of 24 bytes"), "{text}");
    let page = String::from_utf8(sandbox.read("page.html")).unwrap();
    let (first, small) = (page.find("<code>first</code>"), page.find("<code>small</code>"));
    assert!(first.is_some() && first < small, "in the order of the files' names");
    assert!(!page.contains("NaN") && !page.contains("inf "), "numbers are numbers");
    // The saved study renders to the same page.
    let again = sandbox.run(&["lab", "report", "study.json", "--html", "again.html"]);
    assert_eq!(again.exit, 0, "{}", again.stderr);
    assert!(sandbox.read("again.html") == sandbox.read("page.html"));
    let none = sandbox.run(&["lab", "compare", "study.json", "--with", "study.json"]);
    assert_ne!(none.exit, 0);
}

#[test]
fn hostile_traces_get_an_error_with_the_line_or_a_bounded_result() {
    let sandbox = Sandbox::new();
    let run = |lines: &str| {
        sandbox
            .write("t.kct", format!("# kernel cache trace 1\nL 1 2 11 usr\n{lines}\n").as_bytes());
        sandbox.run(&["lab", "replay", "t.kct", "--era", "2.2.5", "--seeds", "1"])
    };
    for (line, reason) in [
        ("Z 1 2 3", "no event is called `Z`"),
        ("G 1 13 0 0", "0 pages: an event has 1 to 1048576"),
        ("G 1 13 0 1048577", "1048577 pages: an event has 1 to 1048576"),
        ("G 1 13 9223372036854775808 1", "page 9223372036854775808 is behind the largest file"),
        ("L 1 2 11", "a field is missing"),
        ("R 1 2 11 usr 1 11 in", "a directory is moved into itself"),
    ] {
        let outcome = run(line);
        outcome.check_error(2, &format!("`t.kct`: line 3: {reason}"));
        assert!(outcome.stderr.contains("hint: "), "{}", outcome.stderr);
    }
    for line in [
        "R 1 2 11 usr 1 2 usr",
        "L 1 11 12 below-a-file\nL 1 12 13 below",
        "L 1 2 11 usr x4000000000",
    ] {
        let outcome = run(line);
        assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""), "{line}");
    }
}

#[test]
fn what_is_no_trace_or_cut_off_is_refused() {
    let sandbox = with_trace();
    sandbox.write("words", b"apple\n");
    let outcome = sandbox.run(&["lab", "replay", "words"]);
    let error = "`words`: line 1: no trace: the first line is not `# kernel cache trace 1`";
    outcome.check_error(2, error);
    let whole = stored_zstd(TRACE.as_bytes());
    sandbox.write("cut.kct.zst", &whole[..whole.len() - 20]);
    let outcome = sandbox.run(&["lab", "replay", "cut.kct.zst"]);
    assert_eq!(outcome.exit, 2);
    assert!(
        outcome.stderr.contains("cannot be read: the zstd data is damaged"),
        "{}",
        outcome.stderr
    );
    let hint = "hint: the file is damaged or cut off; replay another copy of it";
    assert!(outcome.stderr.contains(hint), "{}", outcome.stderr);
    let outcome = sandbox.run(&["lab", "replay", "nothing.kct"]);
    assert!(outcome.stderr.contains("cannot read `nothing.kct`"), "{}", outcome.stderr);
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    sandbox.run(&["lab", "replay", "--all", "empty"]).check_error(2, "no trace in `empty`");
    let wrong = ["lab", "replay", "small.kct", "--table", "inode", "--hash", "linux-2.2.5-page"];
    sandbox.run(&wrong).check_error(2, "`linux-2.2.5-page` is not for the tables that were named");
    let none = ["lab", "replay", "small.kct", "--table", "page", "--era", "6.x"];
    sandbox.run(&none).check_error(2, "no kernel that was named has a hash table that was named");
    // The function of these buffers shifts by the table's bits less 12.
    let small = ["lab", "replay", "small.kct", "--era", "2.4.0", "--memory", "16M"];
    let outcome = sandbox.run(&small);
    assert!(
        outcome.exit == 2 && outcome.stderr.contains("hint: give more --memory"),
        "{}",
        outcome.stderr
    );
    assert_eq!(sandbox.run(&[&small[..], &["--table", "dentry"]].concat()).exit, 0);
    for wrong in [["--memory", "1X"], ["--shrink", "lru"], ["--era", "3.1"], ["--combine", "E"]] {
        let outcome = sandbox.run(&[&["lab", "replay", "small.kct"], &wrong[..]].concat());
        assert_eq!(outcome.exit, 2, "{wrong:?}");
    }
}
