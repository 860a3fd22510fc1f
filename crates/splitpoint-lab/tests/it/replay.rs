//! Replays against a model as naive as can be, and against the counts of real traces.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use splitpoint_lab::replay::{
    Column, Era, KernelTable, Reading, Run, Shrink, Streams, Trace, ideal_buckets,
};
use splitpoint_lab::zstd;

/// `splitmix64`, from its published constants.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The addresses of seed 1 of objects of Linux 2.2, in the order in which they are handed out.
fn addresses(kind: u64, count: usize) -> Vec<u32> {
    let mut random = SplitMix(256 + kind);
    let (mut taken, mut addresses, mut chunk) = (BTreeSet::new(), Vec::new(), 0);
    while addresses.len() < count {
        let frames = if kind == 2 { 131_072 / 2 } else { 131_072 };
        let frame = random.next() % frames;
        if !taken.insert(frame) {
            continue;
        }
        let start = 0xc000_0000_u32 + frame as u32 * if kind == 2 { 8192 } else { 4096 };
        match kind {
            1 => addresses.extend((0..31).map(|k| start + 32 * (3 - chunk % 4) + 128 * k)),
            2 => addresses.extend([0].into_iter().chain((1..30).rev()).map(|k| start + 272 * k)),
            _ => addresses.push(start + 512 * (random.next() % 8) as u32),
        }
        chunk += 1;
    }
    addresses
}

/// A table as a map of vectors, the newest last; a key is its formula's input in words.
#[derive(Default)]
struct Table {
    buckets: BTreeMap<u32, Vec<String>>,
    lookups: u64,
    hits: u64,
    visited: u64,
}

impl Table {
    fn has(&self, bucket: u32, key: &str) -> bool {
        self.buckets.get(&bucket).is_some_and(|chain| chain.iter().any(|it| it == key))
    }

    fn insert(&mut self, bucket: u32, key: &str) {
        if !self.has(bucket, key) {
            self.buckets.entry(bucket).or_default().push(key.to_owned());
        }
    }

    fn remove(&mut self, bucket: u32, key: &str) {
        self.buckets.entry(bucket).or_default().retain(|it| it != key);
    }

    fn look_up(&mut self, bucket: u32, key: &str) -> bool {
        self.lookups += 1;
        let chain = self.buckets.entry(bucket).or_default();
        let found = chain.iter().rev().position(|it| it == key);
        self.hits += u64::from(found.is_some());
        self.visited += found.map_or(chain.len(), |at| at + 1) as u64;
        if found.is_none() {
            chain.push(key.to_owned());
        }
        found.is_some()
    }
}

/// A name that is cached, or a directory without one.
struct Node {
    slot: usize,
    /// The parent and the name, while it is in the table.
    key: Option<(usize, String)>,
    inode: u64,
}

/// Linux 2.2.5 with seed 1: four tables of vectors.
#[derive(Default)]
struct Model {
    nodes: Vec<Node>,
    free: Vec<usize>,
    slots: usize,
    directories: BTreeMap<u64, usize>,
    owners: Vec<u64>,
    written: BTreeSet<u64>,
    parents: Vec<u32>,
    files: Vec<u32>,
    superblocks: Vec<u32>,
    dentry: Table,
    inode: Table,
    page: Table,
    buffer: Table,
}

impl Model {
    fn new() -> Self {
        let (parents, files) = (addresses(1, 8000), addresses(2, 1000));
        Self { parents, files, superblocks: addresses(3, 1), ..Self::default() }
    }

    fn allocate(&mut self) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.nodes.push(Node { slot, key: None, inode: 0 });
        self.nodes.len() - 1
    }

    fn set_inode(&mut self, node: usize, inode: u64) {
        let old = std::mem::replace(&mut self.nodes[node].inode, inode);
        if old != inode && self.directories.get(&old) == Some(&node) {
            self.directories.remove(&old);
        }
        if inode != 0 {
            self.directories.insert(inode, node);
        }
    }

    fn directory(&mut self, inode: u64) -> usize {
        if let Some(&node) = self.directories.get(&inode) {
            return node;
        }
        let root = self.allocate();
        self.set_inode(root, inode);
        root
    }

    fn cached(&self, parent: usize, name: &str) -> Option<usize> {
        let is_it =
            |node: &Node| node.key.as_ref().is_some_and(|key| key.0 == parent && key.1 == name);
        self.nodes.iter().position(is_it)
    }

    fn name_bucket(&self, parent: usize, name: &str) -> u32 {
        let hash = name.bytes().fold(0_u32, |hash, byte| hash.rotate_left(4) ^ u32::from(byte));
        let hash = hash.wrapping_add(self.parents[self.nodes[parent].slot]);
        (hash ^ (hash >> 10) ^ (hash >> 20)) % 1024
    }

    fn inode_bucket(&self, inode: u64) -> u32 {
        let hash = inode as u32 | self.superblocks[0];
        hash.wrapping_add(hash >> 8).wrapping_add(hash >> 16) % 256
    }

    fn is_above(&self, node: usize, mut below: usize) -> bool {
        loop {
            if node == below {
                return true;
            }
            match &self.nodes[below].key {
                Some((parent, _)) => below = *parent,
                None => return false,
            }
        }
    }

    fn look_up(&mut self, directory: u64, inode: u64, name: &str) {
        let parent = self.directory(directory);
        let (bucket, key) = (self.name_bucket(parent, name), format!("{parent}/{name}"));
        if self.dentry.look_up(bucket, &key) {
            let node = self.cached(parent, name).expect("what is hashed is cached");
            self.set_inode(node, inode);
            return;
        }
        let root = self.directories.get(&inode).copied().filter(|&it| self.nodes[it].key.is_none());
        let root = root.filter(|&it| inode != 0 && !self.is_above(it, parent));
        let node = root.unwrap_or_else(|| self.allocate());
        self.nodes[node].key = Some((parent, name.to_owned()));
        self.set_inode(node, inode);
        if inode != 0 {
            self.inode.look_up(self.inode_bucket(inode), &inode.to_string());
        }
    }

    fn create(&mut self, directory: u64, inode: u64, name: &str) {
        let parent = self.directory(directory);
        let node = self.cached(parent, name).unwrap_or_else(|| {
            let node = self.allocate();
            self.nodes[node].key = Some((parent, name.to_owned()));
            let bucket = self.name_bucket(parent, name);
            self.dentry.insert(bucket, &format!("{parent}/{name}"));
            node
        });
        self.set_inode(node, inode);
        self.inode.insert(self.inode_bucket(inode), &inode.to_string());
    }

    fn unhash(&mut self, node: usize) {
        let (parent, name) = self.nodes[node].key.take().expect("it is in the table");
        let bucket = self.name_bucket(parent, &name);
        self.dentry.remove(bucket, &format!("{parent}/{name}"));
    }

    /// Files only, so that no directory with names in it is moved or replaced.
    fn rename(&mut self, from: (u64, &str), to: (u64, &str)) {
        let Some(&parent) = self.directories.get(&from.0) else { return };
        let Some(node) = self.cached(parent, from.1).filter(|_| from != to) else { return };
        let parent = self.directory(to.0);
        if let Some(target) = self.cached(parent, to.1) {
            self.unhash(target);
            self.set_inode(target, 0);
            self.free.push(self.nodes[target].slot);
        }
        self.unhash(node);
        let bucket = self.name_bucket(parent, to.1);
        self.dentry.insert(bucket, &format!("{parent}/{}", to.1));
        self.nodes[node].key = Some((parent, to.1.to_owned()));
        let inode = self.nodes[node].inode;
        self.set_inode(node, inode);
    }

    fn page(&mut self, letter: &str, inode: u64, index: u64) {
        let owner = self.owners.iter().position(|&it| it == inode).unwrap_or_else(|| {
            self.owners.push(inode);
            self.owners.len() - 1
        });
        let hash = (self.files[owner] / 16).wrapping_add(index as u32);
        let bucket = hash.wrapping_add(hash >> 11) % 2048;
        let key = format!("{owner}:{index}");
        match letter {
            "A" => self.page.insert(bucket, &key),
            "X" => self.page.remove(bucket, &key),
            _ => {
                self.page.look_up(bucket, &key);
            }
        }
    }

    fn block(&mut self, is_dirty: bool, block: u64) {
        let is_paired = is_dirty && self.written.remove(&block);
        if !is_dirty {
            self.written.insert(block);
        }
        if !is_paired {
            self.buffer.look_up((0x801 ^ block as u32) % 32_768, &block.to_string());
        }
    }

    fn event(&mut self, line: &str) {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| fields[at].parse::<u64>().expect("a number");
        match fields[0] {
            "L" => self.look_up(number(2), number(3), fields[4]),
            "C" => self.create(number(2), number(3), fields[4]),
            "U" => {
                let Some(&parent) = self.directories.get(&number(2)) else { return };
                if let Some(node) = self.cached(parent, fields[4]) {
                    self.set_inode(node, 0);
                }
            }
            "R" => self.rename((number(2), fields[4]), (number(6), fields[7])),
            "E" => self.inode.remove(self.inode_bucket(number(2)), fields[2]),
            "B" | "D" => self.block(fields[0] == "D", number(3)),
            letter => {
                for index in number(3)..number(3) + number(4) {
                    self.page(letter, number(2), index);
                }
            }
        }
    }
}

/// Some thousand events on few files and blocks; lines are written once for each time.
fn some_events() -> Vec<String> {
    let mut random = SplitMix(7);
    let mut below = |end: u64| random.next() % end;
    let event = |_| {
        // Directories 2 to 6 have files 100 and up in them, and each other.
        let (directory, name, file) = (2 + below(5), below(40), 100 + below(60));
        let (first, count, block) = (below(3000), 1 + below(4), below(12) * 8192 + below(40));
        match below(20) {
            0..8 if below(4) == 0 => format!("L 1 {directory} {} d{}", 3 + below(4), below(3)),
            0..8 => format!("L 1 {directory} {} n{name}", if below(3) == 0 { 0 } else { file }),
            8 => format!("C 1 {directory} {file} n{name}"),
            9 => format!("U 1 {directory} {file} n{name}"),
            10 => format!("R 1 {directory} {file} n{name} 1 {} n{}", 2 + below(5), below(40)),
            11 => format!("E 1 {file}"),
            12 => format!("A 1 {file} {first} {count}"),
            13 => format!("X 1 {file} {first} {count}"),
            14..17 => {
                format!("{} 1 {file} {first} {count}", ["G", "M", "F", "W"][below(4) as usize])
            }
            17 => format!("D 1 1024 {block}"),
            _ => format!("B 1 1024 {block}"),
        }
    };
    (0..6000).map(event).collect()
}

fn read(text: &str) -> Streams {
    let trace = Trace::new(text.as_bytes()).expect("a trace");
    Streams::read(trace, Shrink::None, |_| {}).expect("its lines are events")
}

/// Returns what the whole stream of a table of 2.2.5 shows with seed 1.
fn measured(streams: &Streams, table: KernelTable) -> Reading {
    let era = Era::by_name("2.2.5").expect("an era");
    let columns = Column::of_era(era, None).expect("its tables");
    let setup = columns.iter().find(|it| it.table() == table).expect("all four").setup;
    let buckets = setup.buckets(streams, 1).expect("the objects fit");
    at_end(streams, table, setup.bucket_count(), &buckets)
}

/// Returns what the whole stream of a table shows, with its objects in these buckets.
fn at_end(streams: &Streams, table: KernelTable, bucket_count: u64, buckets: &[u32]) -> Reading {
    let mut run = Run::new(streams.steps(table), buckets, bucket_count);
    run.finish();
    run.reading()
}

#[test]
fn all_tables_of_seed_1_visit_what_a_naive_map_of_vectors_visits() {
    let events = some_events();
    let text = format!("# kernel cache trace 1\n{}\n", events.join("\n"));
    let streams = read(&text);
    let mut model = Model::new();
    for event in &events {
        model.event(event);
    }
    let models = [&model.dentry, &model.inode, &model.page, &model.buffer];
    for (table, naive) in KernelTable::ALL.into_iter().zip(models) {
        let found = measured(&streams, table);
        let expected = (naive.lookups, naive.hits, naive.visited);
        assert_eq!(
            (found.lookup_count, found.hit_count, found.visited),
            expected,
            "{}",
            table.name()
        );
        let sizes = || naive.buckets.values().map(|chain| chain.len() as u64);
        assert_eq!(found.object_count, sizes().sum::<u64>(), "{}", table.name());
        assert_eq!(found.largest, sizes().max().unwrap_or(0), "{}", table.name());
        assert!(naive.lookups > 100 && naive.visited > 20, "{}", table.name());
    }
}

/// Returns the directory of the real traces, or says that they are not here.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn traces() -> Option<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    let traces = root.join("shared/traces");
    if !traces.is_dir() {
        eprintln!("skipped: the traces are not in {}", traces.display());
        return None;
    }
    Some(traces)
}

fn read_file(path: &std::path::Path) -> Streams {
    let file = BufReader::new(File::open(path).expect("a file"));
    let trace = Trace::new(zstd::reader(file).expect("it can be read")).expect("a trace");
    Streams::read(trace, Shrink::None, |_| {}).expect("its lines are events")
}

/// Lookups, hits, misses, insertions without lookup, removals, objects at the end and at the peak.
type Counts = [u64; 7];

#[test]
fn real_traces_have_the_streams_that_were_counted() {
    let Some(directory) = traces() else { return };
    let expected: [(&str, [Counts; 4]); 2] = [
        (
            "git",
            [
                [300_175, 290_231, 9944, 9, 18, 9935, 9935],
                [61, 0, 61, 14_644, 6194, 8511, 8513],
                [158_400, 98_783, 59_617, 13_478, 26_689, 46_406, 46_577],
                [0; 7],
            ],
        ),
        (
            "usr",
            [
                [197_929, 35_355, 162_574, 0, 0, 162_574, 162_574],
                [162_571, 12, 162_559, 0, 0, 162_559, 162_559],
                [844, 217, 627, 1, 0, 628, 628],
                [0; 7],
            ],
        ),
    ];
    for (name, expected) in expected {
        let streams = read_file(&directory.join(format!("{name}.kct.zst")));
        for (table, expected) in KernelTable::ALL.into_iter().zip(expected) {
            let it = streams.counts(table);
            let found = [
                it.lookup_count,
                it.hit_count,
                it.miss_count,
                it.insert_count,
                it.remove_count,
                it.object_count,
                it.object_count_max,
            ];
            assert_eq!(found, expected, "{name} {}", table.name());
        }
        assert_eq!((streams.root_count, streams.stale_count), (1, 0), "{name}");
    }
}

/// Figures that an independent program computed on the same trace and model.
#[test]
fn the_costs_of_a_real_trace_are_those_that_were_computed_elsewhere() {
    let Some(directory) = traces() else { return };
    let streams = read_file(&directory.join("usr.kct.zst"));
    let visited = |table| measured(&streams, table).visited_per_lookup();
    assert!((visited(KernelTable::Dentry) - 65.4).abs() < 0.1);
    assert!((visited(KernelTable::Inode) - 317.0).abs() < 0.5);
    let ideal = |table, bucket_count| {
        let buckets = ideal_buckets(streams.object_count(table), bucket_count, 1);
        at_end(&streams, table, bucket_count, &buckets).visited_per_lookup()
    };
    let inodes = ideal(KernelTable::Inode, 1 << 8);
    assert!((inodes - 317.5).abs() < 0.5, "{inodes}");
    let dentries = ideal(KernelTable::Dentry, 1 << 22);
    assert!((dentries - 0.194).abs() < 0.001, "{dentries}");
}
