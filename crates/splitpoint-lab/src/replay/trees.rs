//! The page cache as trees, one for each file: a red-black tree, as Lever tried one, and the xarray of
//! today.
//!
//! # Source
//!
//! Guibas and Sedgewick, "A dichromatic framework for balanced trees", 1978, in the form of Cormen,
//! Leiserson, Rivest and Stein, Introduction to Algorithms, chapter 13. The shape of an `xa_node`:
//! `include/linux/xarray.h` of 6.x, written from offsets.

use serde::{Deserialize, Serialize};

use super::{KernelTable, PageKey, Step, Streams};

/// What lookups visit in trees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeReplay {
    /// The table that it stands for.
    pub table: KernelTable,
    /// `red-black`, `xarray` or `16 recent, then xarray`.
    pub tree: String,
    /// Lookups.
    pub lookup_count: u64,
    /// Nodes visited, matches included.
    pub visited: u64,
    /// Most nodes that one lookup visited.
    pub deepest: u64,
    /// Cache lines of 64 bytes that the lookups read: the root or the recent entries, the nodes, and
    /// the pages or buffers that are compared.
    pub line_count: u64,
}

impl TreeReplay {
    /// Returns the nodes that a lookup visits on average.
    pub fn visited_per_lookup(&self) -> f64 {
        self.visited as f64 / self.lookup_count.max(1) as f64
    }

    /// Returns the cache lines that a lookup reads on average.
    pub fn lines_per_lookup(&self) -> f64 {
        self.line_count as f64 / self.lookup_count.max(1) as f64
    }

    pub(super) fn new(table: KernelTable, tree: &str) -> Self {
        let tree = tree.to_owned();
        Self { table, tree, lookup_count: 0, visited: 0, deepest: 0, line_count: 0 }
    }

    pub(super) fn add(&mut self, count: u64, visited: u64, lines: u64) {
        self.lookup_count += count;
        self.visited += visited * count;
        if count > 0 {
            self.deepest = self.deepest.max(visited);
        }
        self.line_count += lines * count;
    }
}

/// Returns what the page cache's lookups visit in red-black trees, one for each file.
///
/// A node has three pointers, a color and the offset, all in one cache line.
pub fn red_black(streams: &Streams) -> TreeReplay {
    let keys = streams.page.keys();
    let mut trees = Trees::new(keys, streams.page_owner_count);
    let mut sum = TreeReplay::new(KernelTable::Page, "red-black");
    for step in streams.page.steps() {
        match *step {
            Step::Hit(object, count) => {
                let depth = trees.depth(object);
                sum.add(count.into(), depth, 1 + depth);
            }
            Step::Miss(object) => {
                let depth = trees.insert(object);
                sum.add(1, depth, 1 + depth);
            }
            Step::Insert(object) => {
                trees.insert(object);
            }
            Step::Remove(object) => trees.remove(object),
        }
    }
    sum
}

/// Bits of an index that one node of an xarray resolves.
pub(super) const SLOT_BITS: u32 = 6;
/// Slots of a node that are in its first line of 64 bytes, behind 40 bytes of other fields.
const FIRST_LINE_SLOTS: u64 = 3;

/// Returns what the page cache's lookups visit in the xarray of each file: as many nodes as its largest
/// index so far needs.
pub fn xarray(streams: &Streams) -> TreeReplay {
    let keys = streams.page.keys();
    let mut largest = vec![0_u64; streams.page_owner_count as usize];
    let mut sum = TreeReplay::new(KernelTable::Page, "xarray");
    for step in streams.page.steps() {
        let (object, count, is_hit) = match *step {
            Step::Hit(object, count) => (object, u64::from(count), true),
            Step::Miss(object) => (object, 1, false),
            Step::Insert(object) => (object, 0, false),
            Step::Remove(_) => continue,
        };
        let PageKey { owner, index } = keys[object as usize];
        let levels = levels_of(largest[owner as usize]);
        if count > 0 {
            let reach = SLOT_BITS * levels;
            // What is beyond the tree is seen at its first node.
            let is_beyond = reach < u64::BITS && index >> reach > 0;
            let nodes = if is_beyond { 1 } else { levels };
            let node_lines: u64 =
                (0..nodes).map(|level| lines_of(index >> (SLOT_BITS * level))).sum();
            sum.add(count, nodes.into(), 1 + node_lines + u64::from(is_hit));
        }
        let largest = &mut largest[owner as usize];
        *largest = (*largest).max(index);
    }
    sum
}

pub(super) fn levels_of(largest_index: u64) -> u32 {
    (u64::BITS - largest_index.leading_zeros()).div_ceil(SLOT_BITS).max(1)
}

/// The line with the node's shift, and that of the slot.
pub(super) fn lines_of(index: u64) -> u64 {
    1 + u64::from(index % (1 << SLOT_BITS) >= FIRST_LINE_SLOTS)
}

/// The node that stands for none. It is black.
const NIL: u32 = 0;

/// A node; page `n` is node `n + 1`.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    parent: u32,
    children: [u32; 2],
    is_red: bool,
}

/// Red-black trees, one for each file.
#[derive(Debug)]
struct Trees<'a> {
    keys: &'a [PageKey],
    nodes: Vec<Node>,
    roots: Vec<u32>,
}

impl<'a> Trees<'a> {
    fn new(keys: &'a [PageKey], owner_count: u32) -> Self {
        let nodes = vec![Node::default(); keys.len() + 1];
        Self { keys, nodes, roots: vec![NIL; owner_count as usize] }
    }

    fn key(&self, node: u32) -> PageKey {
        self.keys[node as usize - 1]
    }

    fn node(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    fn child(&self, node: u32, side: usize) -> u32 {
        self.nodes[node as usize].children[side]
    }

    fn parent(&self, node: u32) -> u32 {
        self.nodes[node as usize].parent
    }

    fn is_red(&self, node: u32) -> bool {
        self.nodes[node as usize].is_red
    }

    /// Returns the side on which a node hangs at its parent.
    fn side(&self, node: u32) -> usize {
        usize::from(self.child(self.parent(node), 1) == node)
    }

    /// Returns how many nodes a lookup of a page in the tree visits.
    fn depth(&self, object: u32) -> u64 {
        let (mut node, mut depth) = (object + 1, 1);
        while self.parent(node) != NIL {
            node = self.parent(node);
            depth += 1;
        }
        depth
    }

    /// Inserts a page that is not in the tree, and returns how many nodes a lookup of it visited.
    fn insert(&mut self, object: u32) -> u64 {
        let new = object + 1;
        let PageKey { owner, index } = self.key(new);
        let (mut at, mut parent, mut side, mut depth) = (self.roots[owner as usize], NIL, 0, 0);
        while at != NIL {
            side = usize::from(index > self.key(at).index);
            parent = at;
            at = self.child(at, side);
            depth += 1;
        }
        *self.node(new) = Node { parent, children: [NIL; 2], is_red: true };
        if parent == NIL {
            self.roots[owner as usize] = new;
        } else {
            self.node(parent).children[side] = new;
        }
        self.mend_red(owner, new);
        depth
    }

    /// Restores that no red node has a red parent.
    fn mend_red(&mut self, owner: u32, mut node: u32) {
        while self.is_red(self.parent(node)) {
            let (parent, side) = (self.parent(node), self.side(self.parent(node)));
            let grandparent = self.parent(parent);
            let uncle = self.child(grandparent, 1 - side);
            if self.is_red(uncle) {
                self.node(parent).is_red = false;
                self.node(uncle).is_red = false;
                self.node(grandparent).is_red = true;
                node = grandparent;
                continue;
            }
            if self.side(node) != side {
                node = parent;
                self.rotate(owner, node, side);
            }
            let parent = self.parent(node);
            self.node(parent).is_red = false;
            self.node(grandparent).is_red = true;
            self.rotate(owner, grandparent, 1 - side);
        }
        let root = self.roots[owner as usize];
        self.node(root).is_red = false;
    }

    /// Moves a node down to `side`; its child on the other side takes its place.
    fn rotate(&mut self, owner: u32, node: u32, side: usize) {
        let riser = self.child(node, 1 - side);
        let moved = self.child(riser, side);
        self.node(node).children[1 - side] = moved;
        if moved != NIL {
            self.node(moved).parent = node;
        }
        self.replace(owner, node, riser);
        self.node(riser).children[side] = node;
        self.node(node).parent = riser;
    }

    /// Hangs `new`, which may be none, where `old` hangs.
    fn replace(&mut self, owner: u32, old: u32, new: u32) {
        let parent = self.parent(old);
        if parent == NIL {
            self.roots[owner as usize] = new;
        } else {
            let side = self.side(old);
            self.node(parent).children[side] = new;
        }
        // Also of none: the mending climbs from there.
        self.node(new).parent = parent;
    }

    fn remove(&mut self, object: u32) {
        let node = object + 1;
        let owner = self.key(node).owner;
        let [left, right] = self.nodes[node as usize].children;
        let (lost_red, gap);
        if left == NIL || right == NIL {
            lost_red = self.is_red(node);
            gap = if left == NIL { right } else { left };
            self.replace(owner, node, gap);
        } else {
            let mut successor = right;
            while self.child(successor, 0) != NIL {
                successor = self.child(successor, 0);
            }
            lost_red = self.is_red(successor);
            gap = self.child(successor, 1);
            if self.parent(successor) == node {
                self.node(gap).parent = successor;
            } else {
                self.replace(owner, successor, gap);
                self.node(successor).children[1] = right;
                self.node(right).parent = successor;
            }
            self.replace(owner, node, successor);
            self.node(successor).children[0] = left;
            self.node(left).parent = successor;
            self.node(successor).is_red = self.is_red(node);
        }
        if !lost_red {
            self.mend_black(owner, gap);
        }
        *self.node(NIL) = Node::default();
    }

    /// Restores that every path from the root has as many black nodes; the paths through `node` have
    /// one less.
    fn mend_black(&mut self, owner: u32, mut node: u32) {
        while node != self.roots[owner as usize] && !self.is_red(node) {
            let parent = self.parent(node);
            let side = usize::from(self.child(parent, 0) != node);
            let mut sibling = self.child(parent, 1 - side);
            if self.is_red(sibling) {
                self.node(sibling).is_red = false;
                self.node(parent).is_red = true;
                self.rotate(owner, parent, side);
                sibling = self.child(parent, 1 - side);
            }
            let [near, far] = [side, 1 - side].map(|side| self.child(sibling, side));
            if !self.is_red(near) && !self.is_red(far) {
                self.node(sibling).is_red = true;
                node = parent;
                continue;
            }
            if !self.is_red(far) {
                self.node(near).is_red = false;
                self.node(sibling).is_red = true;
                self.rotate(owner, sibling, 1 - side);
                sibling = self.child(parent, 1 - side);
            }
            self.node(sibling).is_red = self.is_red(parent);
            self.node(parent).is_red = false;
            let far = self.child(sibling, 1 - side);
            self.node(far).is_red = false;
            self.rotate(owner, parent, side);
            node = self.roots[owner as usize];
        }
        self.node(node).is_red = false;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    impl Trees<'_> {
        /// Returns the indexes below a node in order, and its black height, checking every rule.
        fn check(&self, node: u32, indexes: &mut Vec<u64>) -> u32 {
            if node == NIL {
                return 0;
            }
            for side in [0, 1] {
                let child = self.child(node, side);
                assert!(child == NIL || self.parent(child) == node, "a child knows its parent");
                assert!(!(self.is_red(node) && self.is_red(child)), "no red node below a red one");
            }
            let left = self.check(self.child(node, 0), indexes);
            indexes.push(self.key(node).index);
            let right = self.check(self.child(node, 1), indexes);
            assert_eq!(left, right, "as many black nodes on every path");
            left + u32::from(!self.is_red(node))
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn a_tree_keeps_its_rules_and_has_what_a_set_has(
            objects in prop::collection::vec(0_u32..48, 0..200)
        ) {
            let keys: Vec<PageKey> =
                (0..48).map(|n| PageKey { owner: 0, index: n * 7 % 48 }).collect();
            let (mut trees, mut set) = (Trees::new(&keys, 1), BTreeSet::new());
            for object in objects {
                let index = keys[object as usize].index;
                if set.insert(index) {
                    trees.insert(object);
                } else {
                    set.remove(&index);
                    trees.remove(object);
                }
                let mut indexes = Vec::new();
                trees.check(trees.roots[0], &mut indexes);
                prop_assert!(indexes.iter().eq(&set), "{:?} {:?}", indexes, set);
            }
        }
    }

    #[test]
    fn an_xarray_is_as_deep_as_its_largest_index_needs() {
        assert_eq!([0, 1, 63, 64, 4095, 4096].map(levels_of), [1, 1, 1, 2, 2, 3]);
        assert_eq!([0, 2, 3, 63, 66].map(lines_of), [1, 1, 2, 2, 1]);
    }

    #[test]
    fn trees_visit_what_was_counted_by_hand() {
        let text = format!(
            "{}\nG 1 9 0 3\nG 1 9 1 1 x2\nG 1 9 0 1\nX 1 9 1 1\nG 1 9 100 1\n",
            super::super::trace::FIRST_LINE
        );
        let trace = super::super::Trace::new(text.as_bytes()).unwrap();
        let streams = Streams::read(trace, super::super::Shrink::None, |_| {}).unwrap();
        // Misses see 0, 1 and 2 nodes; then 1 is the root, 0 below it. Without 1, 2 or 0 is.
        let found = red_black(&streams);
        assert_eq!((found.lookup_count, found.deepest), (7, 2));
        assert_eq!(found.visited, 1 + 2 + 1 + 1 + 2 + 1);
        let found = xarray(&streams);
        assert_eq!((found.visited, found.deepest), (7, 1));
        // The root always, the node's two lines where the slot is not among the first three, the page.
        assert_eq!(found.line_count, 3 * 2 + 3 * 3 + 3);
    }
}
