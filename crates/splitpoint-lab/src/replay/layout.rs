//! Nodes of chains: which of their bytes a lookup reads, and in how many cache lines they lie.
//!
//! A lookup that passes a node reads its link and the fields that it compares, up to the first that
//! differs; of the node that matches it reads all. [`NodeLayout::lines_per_step`] counts the cache
//! lines of these bytes, averaged over every place of a slab. It is arithmetic: nothing is measured.
//!
//! # Source
//!
//! The structures of Linux 2.2.5, 2.4.0, 2.6.13 and 6.x, as their fields lie on i386 with one CPU,
//! the last on x86-64 with ext4. Written from offsets. Dumazet, "struct dentry: place `d_hash` close
//! to `d_parent` and `d_name` to speedup lookups", linux-kernel, September 2005.

use serde::Serialize;

use super::KernelTable;
use super::walk::WalkTime;

/// Bytes between two colors of slabs: a cache line of the time.
const COLOR_BYTES: u32 = 32;
/// Bytes of the name that a match compares in the node: most names that are looked up are shorter.
const NAME_BYTES: u32 = 8;

/// A field of a node that lookups read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// What it is.
    pub name: &'static str,
    /// Where it starts in the node, in bytes.
    pub offset: u32,
    /// Its size in bytes.
    pub bytes: u32,
}

/// How the nodes of a table lie in memory, and which of their fields a lookup reads.
///
/// # Examples
///
/// On Dumazet's machine, with its cache lines of 32 bytes, half of the dentries still needed two of
/// them after his change:
///
/// ```
/// use splitpoint_lab::replay::NodeLayout;
///
/// let lines = |name| NodeLayout::by_name(name).map(|layout| layout.lines_per_step(32));
/// assert_eq!(lines("dentry-2.6.13"), Some(2.0));
/// assert!(lines("dentry-2.6.14").is_some_and(|lines| (lines - 1.517).abs() < 0.001));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeLayout {
    /// Name, as commands take it.
    pub name: &'static str,
    /// What the nodes are.
    pub title: &'static str,
    /// The table of a replay whose nodes they are.
    pub table: Option<KernelTable>,
    /// The eras that have this layout.
    pub eras: &'static [&'static str],
    /// Size of a node in bytes.
    pub node_bytes: u32,
    /// Bytes from one node to the next.
    pub stride_bytes: u32,
    /// Bytes before the first node of a slab that starts a page.
    pub first_bytes: u32,
    /// Colors: slabs whose nodes start 32 bytes later than those of another one.
    pub color_count: u32,
    /// Nodes of a slab, or after how many the places repeat.
    pub slab_nodes: u32,
    /// Keys in a node.
    pub node_keys: u32,
    /// What a lookup reads of a node that it passes.
    pub passed: &'static [Field],
    /// What it reads besides of the node that matches.
    pub matched: &'static [Field],
}

const fn field(name: &'static str, offset: u32, bytes: u32) -> Field {
    Field { name, offset, bytes }
}

/// A field of 4 bytes: a pointer or a number of i386.
const fn word(name: &'static str, offset: u32) -> Field {
    field(name, offset, 4)
}

/// The dentries of 2.6.14, which later rows place differently.
const DENTRY_2_6_14: NodeLayout = NodeLayout {
    name: "dentry-2.6.14",
    title: "dentry of Linux 2.6.14: after Dumazet's change",
    table: None,
    eras: &[],
    node_bytes: 136,
    stride_bytes: 136,
    first_bytes: 144,
    color_count: 1,
    slab_nodes: 29,
    node_keys: 1,
    passed: &[word("link", 12), word("hash", 24)],
    matched: &[
        word("parent", 20),
        word("length", 28),
        word("name", 32),
        field("characters", 100, NAME_BYTES),
    ],
};

const DENTRY_2_2: NodeLayout = NodeLayout {
    name: "dentry-2.2.5",
    title: "dentry of Linux 2.2",
    table: Some(KernelTable::Dentry),
    eras: &["2.2.5", "2.2.16"],
    node_bytes: 112,
    stride_bytes: 128,
    first_bytes: 0,
    color_count: 4,
    slab_nodes: 31,
    node_keys: 1,
    passed: &[word("link", 24), word("hash", 72)],
    matched: &[
        word("parent", 12),
        word("length", 68),
        word("name", 64),
        field("characters", 96, NAME_BYTES),
    ],
};

/// The layouts, oldest first within each table.
pub const NODE_LAYOUTS: &[NodeLayout] = &[
    DENTRY_2_2,
    NodeLayout {
        name: "dentry-2.4.0",
        title: "dentry of Linux 2.4.0: the same behind the head of the slab",
        eras: &["2.4.0"],
        first_bytes: 160,
        color_count: 3,
        slab_nodes: 30,
        ..DENTRY_2_2
    },
    NodeLayout {
        name: "dentry-2.6.13",
        title: "dentry of Linux 2.6.11 to 2.6.13: before Dumazet's change",
        passed: &[word("link", 88), word("hash", 16)],
        matched: &[
            word("parent", 12),
            word("length", 20),
            word("name", 24),
            field("characters", 100, NAME_BYTES),
        ],
        ..DENTRY_2_6_14
    },
    DENTRY_2_6_14,
    NodeLayout {
        name: "dentry-2.6.14-160",
        title: "the same 160 bytes apart: whole lines of 32 bytes",
        stride_bytes: 160,
        first_bytes: 0,
        slab_nodes: 25,
        ..DENTRY_2_6_14
    },
    NodeLayout {
        name: "dentry-2.6.14-144",
        title: "the same 144 bytes apart: half a line over",
        stride_bytes: 144,
        first_bytes: 0,
        slab_nodes: 28,
        ..DENTRY_2_6_14
    },
    NodeLayout {
        name: "dentry-6.x",
        title: "dentry of Linux 6.x, x86-64",
        table: Some(KernelTable::Dentry),
        eras: &["6.x"],
        node_bytes: 192,
        stride_bytes: 192,
        first_bytes: 0,
        color_count: 1,
        slab_nodes: 21,
        node_keys: 1,
        passed: &[word("sequence", 4), field("link", 8, 8), field("parent", 24, 8)],
        matched: &[
            field("hash and length", 32, 8),
            field("name", 40, 8),
            field("characters", 56, NAME_BYTES),
        ],
    },
    NodeLayout {
        name: "inode-2.2.5",
        title: "inode of Linux 2.2",
        table: Some(KernelTable::Inode),
        eras: &["2.2.5", "2.2.16"],
        node_bytes: 272,
        stride_bytes: 272,
        first_bytes: 0,
        color_count: 1,
        slab_nodes: 30,
        node_keys: 1,
        // On one file system the superblocks are equal.
        passed: &[word("link", 0), word("superblock", 104), word("number", 24)],
        matched: &[],
    },
    NodeLayout {
        name: "inode-2.4.0",
        title: "inode of Linux 2.4.0",
        table: Some(KernelTable::Inode),
        eras: &["2.4.0"],
        node_bytes: 440,
        stride_bytes: 448,
        first_bytes: 0,
        color_count: 1,
        slab_nodes: 9,
        node_keys: 1,
        passed: &[word("link", 0), word("superblock", 132), word("number", 32)],
        matched: &[],
    },
    NodeLayout {
        name: "inode-6.x",
        title: "inode of Linux 6.x in that of ext4, x86-64",
        table: Some(KernelTable::Inode),
        eras: &["6.x"],
        node_bytes: 1128,
        stride_bytes: 1128,
        first_bytes: 0,
        color_count: 1,
        slab_nodes: 29,
        node_keys: 1,
        passed: &[field("link", 480, 8), field("number", 336, 8)],
        matched: &[field("superblock", 312, 8)],
    },
    NodeLayout {
        name: "buffer-2.2.5",
        title: "buffer_head of Linux 2.2 and 2.4",
        table: Some(KernelTable::Buffer),
        eras: &["2.2.5", "2.2.16", "2.4.0"],
        node_bytes: 72,
        stride_bytes: 96,
        first_bytes: 0,
        color_count: 2,
        slab_nodes: 42,
        node_keys: 1,
        passed: &[word("link", 0), word("block", 4)],
        matched: &[word("size", 8), word("device", 12)],
    },
    NodeLayout {
        name: "page-2.2.5",
        title: "page of Linux 2.2, in mem_map",
        table: Some(KernelTable::Page),
        eras: &["2.2.5", "2.2.16"],
        node_bytes: 40,
        stride_bytes: 40,
        first_bytes: 0,
        color_count: 1,
        slab_nodes: 512,
        node_keys: 1,
        passed: &[word("link", 16), word("inode", 8)],
        matched: &[word("offset", 12)],
    },
    NodeLayout {
        name: "page-2.4.0",
        title: "page of Linux 2.4.0, in mem_map",
        table: Some(KernelTable::Page),
        eras: &["2.4.0"],
        node_bytes: 64,
        stride_bytes: 64,
        first_bytes: 0,
        color_count: 1,
        slab_nodes: 64,
        node_keys: 1,
        passed: &[word("link", 16), word("mapping", 8)],
        matched: &[word("index", 12)],
    },
    NodeLayout {
        name: "splitpoint",
        title: "bucket line of Splitpoint: tags of 7 keys",
        table: None,
        eras: &[],
        node_bytes: 64,
        stride_bytes: 64,
        first_bytes: 0,
        color_count: 1,
        slab_nodes: 64,
        node_keys: 7,
        passed: &[field("slots", 0, 56), word("link", 56)],
        matched: &[],
    },
];

impl NodeLayout {
    /// Returns the layout of this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        NODE_LAYOUTS.iter().find(|layout| layout.name == name)
    }

    /// Returns the nodes of a table in an era, or `None` where it has none: pages and buffers are in
    /// trees today.
    pub fn of_era(era: &str, table: KernelTable) -> Option<&'static Self> {
        NODE_LAYOUTS.iter().find(|it| it.table == Some(table) && it.eras.contains(&era))
    }

    /// Returns this layout with every slab's first node at `first_bytes`.
    #[must_use]
    pub fn with_first(self, first_bytes: u32) -> Self {
        Self { first_bytes, color_count: 1, ..self }
    }

    /// Returns where the nodes of a slab start, for every color, in bytes from a page.
    pub fn starts(&self) -> impl Iterator<Item = u64> {
        let Self { stride_bytes, first_bytes, color_count, slab_nodes, .. } = *self;
        (0..color_count).flat_map(move |color| {
            let first = u64::from(first_bytes) + u64::from(COLOR_BYTES * color);
            (0..slab_nodes).map(move |node| first + u64::from(node) * u64::from(stride_bytes))
        })
    }

    /// Returns the cache lines of `line_bytes` that a lookup reads to pass a node, on average.
    ///
    /// # Panics
    ///
    /// If `line_bytes` is 0.
    pub fn lines_per_step(&self, line_bytes: u32) -> f64 {
        self.mean_lines(line_bytes, false)
    }

    /// Returns the cache lines of `line_bytes` that a lookup reads of the node that matches, on
    /// average: those of a step, the other fields, and eight characters of a name that is in the node.
    ///
    /// # Panics
    ///
    /// If `line_bytes` is 0.
    pub fn lines_per_match(&self, line_bytes: u32) -> f64 {
        self.mean_lines(line_bytes, true)
    }

    fn mean_lines(&self, line_bytes: u32, is_match: bool) -> f64 {
        let matched = if is_match { self.matched } else { &[] };
        let fields: Vec<Field> = self.passed.iter().chain(matched).copied().collect();
        let line_of = |byte: u64| byte / u64::from(line_bytes);
        let (mut node_count, mut line_count) = (0_u64, 0);
        for start in self.starts() {
            let mut lines: Vec<u64> = Vec::new();
            for field in &fields {
                let first = start + u64::from(field.offset);
                lines.extend(line_of(first)..=line_of(first + u64::from(field.bytes) - 1));
            }
            lines.sort_unstable();
            lines.dedup();
            node_count += 1;
            line_count += lines.len() as u64;
        }
        line_count as f64 / node_count as f64
    }
}

/// The lines that a lookup reads of a node, for one size of cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeLines {
    /// Size of a cache line in bytes.
    pub line_bytes: u32,
    /// Lines of a node that a lookup passes.
    pub step: f64,
    /// Lines of the node that matches.
    pub matched: f64,
}

/// A layout and its lines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayoutRow {
    /// The layout.
    pub layout: NodeLayout,
    /// Its lines, for each size that was asked for.
    pub lines: Vec<NodeLines>,
}

/// Layouts beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayoutReport {
    /// Version of the form: 1.
    pub schema: u32,
    /// The layouts.
    pub layouts: Vec<LayoutRow>,
    /// What lookups took with nodes of them, if that was measured.
    pub times: Vec<WalkTime>,
}

impl LayoutReport {
    /// Counts the lines of `layouts` for each of these sizes of cache lines.
    ///
    /// # Panics
    ///
    /// If a size is 0.
    pub fn new(layouts: &[NodeLayout], line_sizes: &[u32]) -> Self {
        let lines = |layout: NodeLayout, line_bytes: u32| NodeLines {
            line_bytes,
            step: layout.lines_per_step(line_bytes),
            matched: layout.lines_per_match(line_bytes),
        };
        let row = |&layout: &NodeLayout| LayoutRow {
            layout,
            lines: line_sizes.iter().map(|&line_bytes| lines(layout, line_bytes)).collect(),
        };
        Self { schema: 1, layouts: layouts.iter().map(row).collect(), times: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::ERAS;

    #[track_caller]
    fn check(layout: NodeLayout, expected: [f64; 3]) {
        for (line_bytes, expected) in [32, 64, 128].into_iter().zip(expected) {
            let lines = layout.lines_per_step(line_bytes);
            // To three decimals, of which the last is rounded or cut.
            assert!((lines - expected).abs() < 0.000_6, "{} {line_bytes}: {lines}", layout.name);
        }
    }

    #[test]
    fn a_step_reads_the_lines_that_were_worked_out_for_each_layout() {
        for (name, expected) in [
            ("dentry-2.2.5", [2.0, 2.0, 1.5]),
            ("dentry-2.6.13", [2.0, 2.0, 1.621]),
            ("dentry-2.6.14", [1.517, 1.276, 1.138]),
            ("dentry-2.6.14-160", [1.0, 1.0, 1.0]),
            ("dentry-2.6.14-144", [1.5, 1.25, 1.107]),
            ("dentry-6.x", [1.0, 1.0, 1.0]),
            ("inode-2.2.5", [2.5, 2.233, 1.733]),
            ("inode-2.4.0", [3.0, 2.0, 2.0]),
            ("inode-6.x", [2.0, 2.0, 2.0]),
            ("buffer-2.2.5", [1.0, 1.0, 1.0]),
            ("page-2.2.5", [1.25, 1.125, 1.062]),
            ("page-2.4.0", [1.0, 1.0, 1.0]),
            ("splitpoint", [2.0, 1.0, 1.0]),
        ] {
            check(*NodeLayout::by_name(name).unwrap(), expected);
        }
    }

    /// Without the node's number in the head of the slab, the first dentry is 4 bytes earlier.
    #[test]
    fn the_first_node_of_a_slab_decides_where_the_others_are() {
        let dentry = NodeLayout::by_name("dentry-2.6.14").unwrap();
        assert!((dentry.with_first(140).lines_per_step(32) - 1.276).abs() < 0.000_6);
        let colored = NodeLayout::by_name("dentry-2.2.5").unwrap();
        let of_color = |color: u32| colored.with_first(32 * color).lines_per_step(128);
        let twice = [0, 1, 2, 3].map(|color| (2.0 * of_color(color)) as u32);
        assert_eq!(twice, [2, 2, 4, 4]);
    }

    /// By a plain walk over the bytes, one by one.
    #[test]
    fn lines_are_those_of_every_byte_that_is_read() {
        for layout in NODE_LAYOUTS {
            for line_bytes in [16, 32, 64, 128, 4096] {
                let mut line_count = 0_usize;
                for start in layout.starts() {
                    let fields = layout.passed.iter().chain(layout.matched);
                    let bytes = fields.flat_map(|it| it.offset..it.offset + it.bytes);
                    let lines = bytes.map(|byte| (start + u64::from(byte)) / u64::from(line_bytes));
                    line_count += lines.collect::<std::collections::BTreeSet<u64>>().len();
                }
                let mean = line_count as f64 / layout.starts().count() as f64;
                let found = layout.lines_per_match(line_bytes);
                assert!((found - mean).abs() < 1e-12, "{}", layout.name);
                assert!(layout.lines_per_step(line_bytes) <= mean);
            }
        }
    }

    #[test]
    fn nodes_do_not_overlap_and_their_fields_are_in_them() {
        for layout in NODE_LAYOUTS {
            assert!(layout.node_bytes <= layout.stride_bytes, "{}", layout.name);
            for field in layout.passed.iter().chain(layout.matched) {
                assert!(field.offset + field.bytes <= layout.node_bytes, "{}", layout.name);
            }
        }
    }

    #[test]
    fn every_table_of_every_era_has_one_layout() {
        for era in ERAS {
            for it in era.tables {
                let of_it = |layout: &&NodeLayout| {
                    layout.table == Some(it.table) && layout.eras.contains(&era.name)
                };
                assert_eq!(NODE_LAYOUTS.iter().filter(of_it).count(), 1, "{}", era.name);
                assert!(NodeLayout::of_era(era.name, it.table).is_some());
            }
        }
        assert_eq!(NodeLayout::of_era("6.x", KernelTable::Page), None);
    }
}
