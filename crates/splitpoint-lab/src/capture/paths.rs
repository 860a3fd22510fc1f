//! The tree of names that a capture walks: which components are looked up, and what they find.
//!
//! It starts from the files that are there now and follows what calls did: a name that a call created,
//! removed or renamed is known from then on. Where a call's result contradicts what is known, the
//! result is right.

use std::collections::{HashMap, HashSet};

use super::files::{FileForm, Files};
use super::{TraceWriter, escaped_name};

/// Inodes of mount points, by device, and of files that are gone.
const MOUNT_POINT: u64 = 0x7d00_0000;
const UNKNOWN: u64 = 0x7e00_0000;
/// Links that one path may follow, as in Linux.
const LINKS_MAX: u32 = 40;
/// File systems of the kernel, whose own names are in no table of a disk.
const KERNEL_TREES: [&[u8]; 3] = [b"proc", b"sys", b"dev"];

/// Number of a node of the tree.
pub(super) type NodeNumber = usize;
/// The root directory.
pub(super) const ROOT: NodeNumber = 0;

/// What a call says of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is there.
    Found,
    /// It, or a directory on the way, is not there.
    Missing,
    /// Something else went wrong.
    Unknown,
}

/// Where a walk ended.
#[derive(Clone, Debug)]
pub(super) struct Walked {
    /// The directory of the last component.
    pub(super) directory: NodeNumber,
    /// The last component, unless the path ends in a directory that needs no lookup.
    pub(super) name: Option<Vec<u8>>,
    /// What it is.
    pub(super) node: Option<NodeNumber>,
}

#[derive(Clone, Debug)]
struct Node {
    /// Number of the device in the trace.
    device: u32,
    inode: u64,
    form: FileForm,
    parent: NodeNumber,
    /// Its path when it was found, by which its entries are looked for.
    path: Vec<u8>,
    created_s: Option<f64>,
    link_count: u32,
    entries: HashMap<Vec<u8>, Option<NodeNumber>>,
}

/// The names that are known so far.
#[derive(Debug)]
pub(super) struct Paths<F> {
    files: F,
    nodes: Vec<Node>,
    /// Names of which a call has said what they are.
    settled: HashSet<(NodeNumber, Vec<u8>)>,
    unknown_count: u64,
    pub(super) writer: TraceWriter,
}

impl<F: Files> Paths<F> {
    pub(super) fn new(files: F) -> Result<Self, String> {
        let mut writer = TraceWriter::default();
        let found = files.look(b"/");
        let (id, inode) = found.map_or((0, 2), |found| (found.device, found.inode));
        let root = Node {
            device: writer.device(id, || files.device(id))?,
            inode,
            form: FileForm::Directory,
            parent: ROOT,
            path: Vec::new(),
            created_s: None,
            link_count: 1,
            entries: HashMap::new(),
        };
        Ok(Self { files, nodes: vec![root], settled: HashSet::new(), unknown_count: 0, writer })
    }

    /// Returns how many files are not there any more, and have numbers that were never theirs.
    pub(super) fn unknown_count(&self) -> u64 {
        self.unknown_count
    }

    /// Returns device and inode of a regular file, as events name it.
    pub(super) fn regular(&self, node: NodeNumber) -> Option<String> {
        let node = &self.nodes[node];
        (node.form == FileForm::Regular).then(|| format!("{} {}", node.device, node.inode))
    }

    /// Returns whether a file was created after a moment, if that is known.
    pub(super) fn is_younger(&self, node: NodeNumber, moment_s: f64) -> Option<bool> {
        Some(self.nodes[node].created_s? >= moment_s)
    }

    /// Walks a path and writes its lookups, unless it is `silent`.
    pub(super) fn walk(
        &mut self,
        start: NodeNumber,
        path: &[u8],
        follows: bool,
        outcome: Outcome,
        is_silent: bool,
    ) -> Result<Walked, String> {
        let mut walk = Walk { outcome, is_silent, links_left: LINKS_MAX };
        let follows = follows || path.ends_with(b"/");
        self.walk_from(start, path, follows, true, &mut walk)
    }

    fn walk_from(
        &mut self,
        start: NodeNumber,
        path: &[u8],
        follows: bool,
        is_end: bool,
        walk: &mut Walk,
    ) -> Result<Walked, String> {
        let mut at = if path.starts_with(b"/") { ROOT } else { start };
        let mut walked = Walked { directory: at, name: None, node: Some(at) };
        let components: Vec<&[u8]> =
            path.split(|&byte| byte == b'/').filter(|it| !it.is_empty() && *it != b".").collect();
        for (index, &name) in components.iter().enumerate() {
            if name == b".." {
                at = self.nodes[at].parent;
                walked = Walked { directory: at, name: None, node: Some(at) };
                continue;
            }
            let is_last = is_end && index + 1 == components.len();
            let node = self.look_up(at, name, is_last, follows, walk)?;
            walked = Walked { directory: at, name: Some(name.to_vec()), node };
            let Some(mut next) = node else { return Ok(walked) };
            if at == ROOT && KERNEL_TREES.contains(&name) {
                return Ok(Walked { node: None, ..walked });
            }
            if let FileForm::Link(target) = &self.nodes[next].form
                && (!is_last || follows)
            {
                let target = target.clone();
                if walk.links_left == 0 {
                    return Ok(Walked { node: None, ..walked });
                }
                walk.links_left -= 1;
                walked = self.walk_from(at, &target, true, is_last, walk)?;
                let Some(end) = walked.node else { return Ok(walked) };
                next = end;
            }
            at = next;
        }
        Ok(walked)
    }

    fn is_link(&self, node: NodeNumber) -> bool {
        matches!(self.nodes[node].form, FileForm::Link(_))
    }

    /// Looks one component up and writes it.
    fn look_up(
        &mut self,
        directory: NodeNumber,
        name: &[u8],
        is_last: bool,
        follows: bool,
        walk: &Walk,
    ) -> Result<Option<NodeNumber>, String> {
        let known = self.entry(directory, name)?;
        let node = match (walk.outcome, known) {
            (Outcome::Found, None) => {
                let form = if is_last { FileForm::Regular } else { FileForm::Directory };
                Some(self.add(directory, name, form))
            }
            // Of a link that is followed, what it leads to may be missing.
            (Outcome::Missing, Some(node)) if is_last && !(follows && self.is_link(node)) => {
                self.set(directory, name, None);
                None
            }
            _ => known,
        };
        if walk.outcome == Outcome::Found && !walk.is_silent {
            self.settled.insert((directory, name.to_vec()));
        }
        if !walk.is_silent {
            self.write_name('L', directory, name, node);
        }
        Ok(node)
    }

    /// Returns what a name is of, as far as it is known.
    pub(super) fn entry(
        &mut self,
        directory: NodeNumber,
        name: &[u8],
    ) -> Result<Option<NodeNumber>, String> {
        if let Some(&known) = self.nodes[directory].entries.get(name) {
            return Ok(known);
        }
        let path = [&self.nodes[directory].path[..], b"/", name].concat();
        let node = match self.files.look(&path) {
            None => None,
            Some(found) => {
                let files = &self.files;
                let device = self.writer.device(found.device, || files.device(found.device))?;
                self.nodes.push(Node {
                    device,
                    inode: found.inode,
                    form: found.form,
                    parent: directory,
                    path,
                    created_s: found.created_s,
                    link_count: 1,
                    entries: HashMap::new(),
                });
                Some(self.nodes.len() - 1)
            }
        };
        self.nodes[directory].entries.insert(name.to_vec(), node);
        Ok(node)
    }

    /// Adds a file that is not there any more, under a number of its own.
    fn add(&mut self, directory: NodeNumber, name: &[u8], form: FileForm) -> NodeNumber {
        let parent = &self.nodes[directory];
        let (device, path) = (parent.device, [&parent.path[..], b"/", name].concat());
        let inode = UNKNOWN + self.unknown_count;
        self.unknown_count += 1;
        self.nodes.push(Node {
            device,
            inode,
            form,
            parent: directory,
            path,
            created_s: None,
            link_count: 1,
            entries: HashMap::new(),
        });
        let node = self.nodes.len() - 1;
        self.nodes[directory].entries.insert(name.to_vec(), Some(node));
        node
    }

    /// Returns whether a call has decided what a name is of.
    pub(super) fn is_settled(&self, directory: NodeNumber, name: &[u8]) -> bool {
        self.settled.contains(&(directory, name.to_vec()))
    }

    /// Notes that a name is of nothing now.
    pub(super) fn set_absent(&mut self, directory: NodeNumber, name: &[u8]) {
        self.set(directory, name, None);
    }

    fn set(&mut self, directory: NodeNumber, name: &[u8], node: Option<NodeNumber>) {
        self.nodes[directory].entries.insert(name.to_vec(), node);
        self.settled.insert((directory, name.to_vec()));
    }

    /// Returns a new file for a name: the one that is there now if it can be it.
    pub(super) fn create(
        &mut self,
        directory: NodeNumber,
        name: &[u8],
        form: FileForm,
    ) -> Result<NodeNumber, String> {
        self.nodes[directory].entries.remove(name);
        let there = self.entry(directory, name)?.filter(|&node| {
            let found = &self.nodes[node].form;
            std::mem::discriminant(found) == std::mem::discriminant(&form)
        });
        let node = match there {
            Some(node) => node,
            None => self.add(directory, name, form),
        };
        self.set(directory, name, Some(node));
        self.write_name('C', directory, name, Some(node));
        Ok(node)
    }

    /// Gives a file a second name.
    pub(super) fn link(&mut self, node: NodeNumber, directory: NodeNumber, name: &[u8]) {
        self.nodes[node].link_count += 1;
        self.set(directory, name, Some(node));
        self.write_name('C', directory, name, Some(node));
    }

    /// Removes a name, and the file if it was the last one.
    pub(super) fn unlink(&mut self, directory: NodeNumber, name: &[u8], node: NodeNumber) {
        self.write_name('U', directory, name, Some(node));
        self.set(directory, name, None);
        let it = &mut self.nodes[node];
        it.link_count = it.link_count.saturating_sub(1);
        if it.link_count == 0 {
            let line = format!("E {} {}", it.device, it.inode);
            self.writer.event(line);
        }
    }

    /// Moves a name to another place.
    pub(super) fn rename(
        &mut self,
        from: (NodeNumber, &[u8]),
        to: (NodeNumber, &[u8]),
        node: NodeNumber,
    ) {
        let replaced = self.nodes[to.0].entries.get(to.1).copied().flatten();
        let of = |directory: NodeNumber| &self.nodes[directory];
        let line = format!(
            "R {} {} {} {} {} {} {}",
            of(from.0).device,
            of(from.0).inode,
            of(node).inode,
            escaped_name(from.1),
            of(to.0).device,
            of(to.0).inode,
            escaped_name(to.1)
        );
        self.writer.event(line);
        self.set(from.0, from.1, None);
        self.set(to.0, to.1, Some(node));
        self.nodes[node].parent = to.0;
        self.nodes[node].path = [&self.nodes[to.0].path[..], b"/", to.1].concat();
        if let Some(replaced) = replaced.filter(|&replaced| replaced != node) {
            let it = &mut self.nodes[replaced];
            it.link_count = it.link_count.saturating_sub(1);
            if it.link_count == 0 {
                let line = format!("E {} {}", it.device, it.inode);
                self.writer.event(line);
            }
        }
    }

    /// Writes an event of a name in a directory.
    pub(super) fn write_name(
        &mut self,
        letter: char,
        directory: NodeNumber,
        name: &[u8],
        node: Option<NodeNumber>,
    ) {
        let parent = &self.nodes[directory];
        let inode = node.map_or(0, |node| {
            let node = &self.nodes[node];
            // In the table of the file system around it, a mount point has another inode.
            if node.device == parent.device {
                node.inode
            } else {
                MOUNT_POINT + u64::from(node.device)
            }
        });
        let (device, dir) = (parent.device, parent.inode);
        self.writer.event(format!("{letter} {device} {dir} {inode} {}", escaped_name(name)));
    }
}

/// What stays the same during a walk.
#[derive(Debug)]
struct Walk {
    outcome: Outcome,
    is_silent: bool,
    links_left: u32,
}
