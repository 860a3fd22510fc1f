//! Captures of strace, made into the lookups of names and pages that the calls ask for.
//!
//! ```text
//! strace -f -y -ttt -s 0 -e trace=%file,%process,%desc -o run.st COMMAND
//! ```
//!
//! Every path of every call is walked over a model of the tree. Reads and writes of regular files become
//! lookups of pages; those of mapped files are not to be seen in system calls.

use std::collections::HashMap;
use std::io::BufRead;

mod calls;
mod line;

use super::files::{FileForm, Files, PathMap};
use super::paths::{NodeNumber, Outcome, Paths, ROOT, Walked};
use super::{CaptureError, TraceWriter, next_line};
use calls::{Effect, PathArgument};
use line::{Call, Parsed};

const PAGE_BYTES: u64 = 4096;
/// What a program with shared libraries is started by.
const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2";

/// How a capture is read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Prefixes of paths that are other ones in the trace.
    pub maps: Vec<PathMap>,
    /// Where the first process started, if its first relative path comes before it says so.
    pub directory: Option<Vec<u8>>,
}

/// What became of a capture.
#[derive(Debug)]
pub struct Import {
    /// The trace.
    pub writer: TraceWriter,
    /// System calls in it.
    pub call_count: u64,
    /// Files that are not there any more; the trace numbers them.
    pub unknown_count: u64,
    /// Reads and writes whose content is in the capture; none of it is in the trace.
    pub content_count: u64,
}

/// Makes a trace of a capture.
///
/// # Errors
///
/// [`CaptureError`] with the number of a line that strace did not write, or of one that was cut off, or
/// with a relative path of which nothing says where it starts.
///
/// # Cost
///
/// Memory for the trace and for every name in it; a look at every file that it names.
pub fn import(
    mut input: impl BufRead,
    files: impl Files,
    options: Options,
    mut progress: impl FnMut(u64),
) -> Result<Import, CaptureError> {
    let (mut line, mut line_number) = (Vec::new(), 1);
    let start = |reason| CaptureError { line_number: 1, reason };
    let mut importer = Importer::new(Paths::new(files).map_err(start)?, options);
    while next_line(&mut input, &mut line, line_number)? {
        importer.follow(&line).map_err(|reason| CaptureError { line_number, reason })?;
        line_number += 1;
        if line_number.is_multiple_of(1 << 12) {
            progress(line_number);
        }
    }
    if importer.call_count == 0 {
        let reason = "no system call: this is no output of strace".to_owned();
        return Err(CaptureError { line_number: line_number - 1, reason });
    }
    Ok(Import {
        unknown_count: importer.paths.unknown_count(),
        writer: importer.paths.writer,
        call_count: importer.call_count,
        content_count: importer.content_count,
    })
}

/// What is known of a process.
#[derive(Clone, Debug, Default)]
struct Process {
    directory: Option<Vec<u8>>,
    /// Where each descriptor reads next.
    offsets: HashMap<u64, u64>,
}

struct Importer<F> {
    paths: Paths<F>,
    options: Options,
    processes: HashMap<u64, Process>,
    /// Starts of calls that have not ended.
    unfinished: HashMap<u64, Vec<u8>>,
    first_s: Option<f64>,
    call_count: u64,
    content_count: u64,
}

impl<F: Files> Importer<F> {
    fn new(paths: Paths<F>, options: Options) -> Self {
        Self {
            paths,
            options,
            processes: HashMap::new(),
            unfinished: HashMap::new(),
            first_s: None,
            call_count: 0,
            content_count: 0,
        }
    }

    fn follow(&mut self, line: &[u8]) -> Result<(), String> {
        let (process, call) = match line::parse(line)? {
            Parsed::Nothing => return Ok(()),
            Parsed::Start { process, moment_s, text } => {
                self.first_s = self.first_s.or(moment_s);
                self.unfinished.insert(process, text);
                return Ok(());
            }
            Parsed::End { process, text } => {
                let Some(start) = self.unfinished.remove(&process) else { return Ok(()) };
                (process, line::call(&[start, text].concat())?)
            }
            Parsed::Whole { process, moment_s, call } => {
                self.first_s = self.first_s.or(moment_s);
                (process, call)
            }
        };
        self.call_count += 1;
        self.process(process);
        self.do_call(process, &call)
    }

    /// Returns a process; one that is new has what its parent has.
    fn process(&mut self, id: u64) -> &mut Process {
        if !self.processes.contains_key(&id) {
            let is_fork = |start: &&Vec<u8>| {
                calls::is_fork(start.split(|&it| it == b'(').next().unwrap_or(&[]))
            };
            let parents = self.unfinished.iter().filter(|(_, start)| is_fork(start));
            let parent = parents.map(|(id, _)| *id).min().and_then(|id| self.processes.get(&id));
            let first = Process { directory: self.options.directory.clone(), ..Process::default() };
            let process = parent.cloned().unwrap_or(first);
            self.processes.insert(id, process);
        }
        self.processes.get_mut(&id).expect("it was just inserted")
    }

    fn do_call(&mut self, process: u64, call: &Call) -> Result<(), String> {
        if calls::is_fork(&call.name) {
            if let Some(child) = call.result.filter(|&child| child > 0) {
                let copy = self.process(process).clone();
                self.processes.entry(child as u64).or_insert(copy);
            }
            return Ok(());
        }
        for argument in &call.arguments {
            // A descriptor that stands for the directory says which it is.
            if let Some(path) =
                line::decorated(argument).filter(|_| argument.starts_with(b"AT_FDCWD"))
            {
                self.process(process).directory = Some(path);
            }
        }
        if let Some(plan) = calls::plan(&call.name) {
            return self.do_paths(process, call, &plan);
        }
        self.do_descriptor(process, call);
        Ok(())
    }

    /// Walks the paths of a call and does what it did.
    fn do_paths(&mut self, process: u64, call: &Call, plan: &calls::Plan) -> Result<(), String> {
        let mut ends = Vec::new();
        for (index, argument) in plan.paths.iter().enumerate() {
            let Some(path) = path_of(call, argument.path)? else { return Ok(()) };
            let start = self.start(process, call, argument, &path)?;
            let is_target = index == 1 && matches!(plan.effect, Effect::Rename | Effect::Link);
            let outcome = outcome(call, plan, is_target);
            let follows = plan.follows && !call.has_flag(b"NOFOLLOW") && !is_exclusive(call, plan);
            let path = self.mapped(&start.1, path);
            self.forget_target(plan, call, is_target, start.0, &path)?;
            ends.push(self.paths.walk(start.0, &path, follows, outcome, false)?);
        }
        if call.result.is_some_and(|result| result >= 0) {
            self.apply(process, call, plan, &ends)?;
        }
        Ok(())
    }

    /// Returns the directory where a path starts, and its name.
    fn start(
        &mut self,
        process: u64,
        call: &Call,
        argument: &PathArgument,
        path: &[u8],
    ) -> Result<(NodeNumber, Vec<u8>), String> {
        if path.starts_with(b"/") {
            return Ok((ROOT, Vec::new()));
        }
        let named = argument.directory.and_then(|at| line::decorated(call.arguments.get(at)?));
        let directory = match named.filter(|path| path.starts_with(b"/")) {
            Some(path) => path,
            None => self.process(process).directory.clone().ok_or_else(|| {
                format!(
                    "nothing says where process {process} is, whose path `{}` is relative: capture with \
                     -y, or name its directory",
                    path.escape_ascii()
                )
            })?,
        };
        let mapped = self.mapped(&[], directory.clone());
        let walked = self.paths.walk(ROOT, &mapped, true, Outcome::Found, true)?;
        Ok((walked.node.unwrap_or(ROOT), directory))
    }

    /// Returns a path as the trace has it; `directory` is where a relative one starts.
    fn mapped(&self, directory: &[u8], path: Vec<u8>) -> Vec<u8> {
        let mapped = |path: &[u8]| self.options.maps.iter().find_map(|map| map.apply(path));
        if path.starts_with(b"/") {
            return mapped(&path).unwrap_or(path);
        }
        // Where the directory is mapped, the walk starts there.
        match mapped(directory) {
            Some(_) => path,
            None => mapped(&[directory, b"/", &path].concat()).unwrap_or(path),
        }
    }

    /// What a call has created was not there before, though it is now.
    fn forget_target(
        &mut self,
        plan: &calls::Plan,
        call: &Call,
        is_target: bool,
        start: NodeNumber,
        path: &[u8],
    ) -> Result<(), String> {
        if call.result.is_none_or(|result| result < 0) {
            return Ok(());
        }
        let is_open = plan.effect == Effect::Open && call.has_flag(b"O_CREAT");
        let creates =
            matches!(plan.effect, Effect::Create(_) | Effect::Symlink) || is_target || is_open;
        if !creates {
            return Ok(());
        }
        let walked = self.paths.walk(start, path, is_open, Outcome::Unknown, true)?;
        let (Some(name), node) = (walked.name, walked.node) else { return Ok(()) };
        let is_new = match (&plan.effect, node) {
            (_, None) => false,
            (Effect::Open, Some(_)) if call.has_flag(b"O_EXCL") => true,
            // Its age tells whether the call created it, if nothing did before.
            (Effect::Open | Effect::Rename | Effect::Create(FileForm::Regular), Some(node)) => {
                let moment_s = self.first_s.unwrap_or(f64::INFINITY);
                !self.paths.is_settled(walked.directory, &name)
                    && (plan.effect == Effect::Rename
                        || self.paths.is_younger(node, moment_s) == Some(true))
            }
            _ => true,
        };
        if is_new {
            self.paths.set_absent(walked.directory, &name);
        }
        Ok(())
    }

    /// Does to the tree what a call did that succeeded.
    fn apply(
        &mut self,
        process: u64,
        call: &Call,
        plan: &calls::Plan,
        ends: &[Walked],
    ) -> Result<(), String> {
        let Some(first) = ends.first() else { return Ok(()) };
        let name = first.name.as_deref();
        match (&plan.effect, name, first.node) {
            (Effect::Open, _, _) => {
                if let (Some(name), None, true) = (name, first.node, call.has_flag(b"O_CREAT")) {
                    self.paths.create(first.directory, name, FileForm::Regular)?;
                }
                if let Some(descriptor) = call.result {
                    self.process(process).offsets.insert(descriptor as u64, 0);
                }
            }
            (Effect::Create(form), Some(name), None) => {
                self.paths.create(first.directory, name, form.clone())?;
            }
            (Effect::Symlink, Some(name), None) => {
                let target = call.arguments.first().and_then(|it| line::quoted(it));
                let target = target.map_or(Vec::new(), |(target, _)| target);
                self.paths.create(first.directory, name, FileForm::Link(target))?;
            }
            (Effect::Unlink, Some(name), Some(node)) => {
                self.paths.unlink(first.directory, name, node);
            }
            (Effect::Rename, Some(name), Some(node)) => {
                if let Some(Walked { directory, name: Some(to), .. }) = ends.get(1) {
                    self.paths.rename((first.directory, name), (*directory, to), node);
                }
            }
            (Effect::Link, _, Some(node)) => {
                if let Some(Walked { directory, name: Some(to), node: None }) = ends.get(1) {
                    self.paths.link(node, *directory, to);
                }
            }
            (Effect::Execute, ..) => {
                self.paths.walk(ROOT, LOADER, true, Outcome::Unknown, false)?;
            }
            (Effect::ChangeDirectory, ..) => {
                let path = path_of(call, 0)?.unwrap_or_default();
                let process = self.process(process);
                let old = process.directory.take().unwrap_or_default();
                process.directory = Some(if path.starts_with(b"/") {
                    path
                } else {
                    [&old[..], b"/", &path].concat()
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Follows calls of descriptors: what they read and write, and where the next does.
    fn do_descriptor(&mut self, process: u64, call: &Call) {
        let Some(first) = call.arguments.first() else { return };
        let descriptor = line::number(first);
        let moved = call.result.filter(|&count| count >= 0).map(|count| count as u64);
        let (Some(descriptor), Some(moved)) = (descriptor, moved) else { return };
        let path = line::decorated(first).filter(|path| path.starts_with(b"/"));
        let at_offset = call.arguments.get(3).and_then(|it| line::number(it));
        let letter =
            if call.name.ends_with(b"write") || call.name == b"pwrite64" { 'W' } else { 'G' };
        match &call.name[..] {
            b"read" | b"write" => {
                let offset = self.process(process).offsets.entry(descriptor).or_default();
                let start = std::mem::replace(offset, offset.saturating_add(moved));
                self.use_pages(letter, path, start, moved, call);
            }
            b"pread64" | b"pwrite64" => {
                self.use_pages(letter, path, at_offset.unwrap_or(0), moved, call);
            }
            b"lseek" => {
                self.process(process).offsets.insert(descriptor, moved);
            }
            b"close" => {
                self.process(process).offsets.remove(&descriptor);
            }
            b"dup" | b"dup2" | b"dup3" => {
                let offset = self.process(process).offsets.get(&descriptor).copied().unwrap_or(0);
                self.process(process).offsets.insert(moved, offset);
            }
            b"fchdir" => {
                self.process(process).directory = path;
            }
            _ => {}
        }
    }

    fn use_pages(
        &mut self,
        letter: char,
        path: Option<Vec<u8>>,
        start: u64,
        bytes: u64,
        call: &Call,
    ) {
        let content = call.arguments.get(1).and_then(|it| line::quoted(it));
        self.content_count += u64::from(content.is_some_and(|(content, _)| !content.is_empty()));
        let Some(path) = path.filter(|_| bytes > 0) else { return };
        let path = self.mapped(&[], path);
        let walked = self.paths.walk(ROOT, &path, false, Outcome::Unknown, true);
        let node = walked.ok().and_then(|walked| walked.node);
        let Some(owner) = node.and_then(|node| self.paths.regular(node)) else { return };
        let first = start / PAGE_BYTES;
        let last = start.saturating_add(bytes - 1) / PAGE_BYTES;
        self.paths.writer.pages(letter, &owner, first, last - first + 1);
    }
}

/// Returns the path in an argument, or `None` if it is empty or null: then the call is of a descriptor.
fn path_of(call: &Call, at: usize) -> Result<Option<Vec<u8>>, String> {
    let Some(argument) = call.arguments.get(at) else { return Ok(None) };
    let Some((path, is_cut)) = line::quoted(argument) else { return Ok(None) };
    if is_cut {
        let path = path.escape_ascii().to_string();
        return Err(format!("the path `{path}...` is cut off, so the capture has lost names"));
    }
    Ok((!path.is_empty()).then_some(path))
}

fn outcome(call: &Call, plan: &calls::Plan, is_target: bool) -> Outcome {
    let creates = matches!(plan.effect, Effect::Create(_) | Effect::Symlink);
    match (call.result, call.error.as_deref()) {
        (Some(0..), _) if creates || is_target => Outcome::Unknown,
        (Some(0..), _) if plan.effect == Effect::Open && call.has_flag(b"O_CREAT") => {
            Outcome::Unknown
        }
        (Some(0..), _) => Outcome::Found,
        // Which of two paths is missing is not said.
        (_, Some(b"ENOENT")) if plan.paths.len() == 1 => Outcome::Missing,
        _ => Outcome::Unknown,
    }
}

fn is_exclusive(call: &Call, plan: &calls::Plan) -> bool {
    plan.effect == Effect::Open && call.has_flag(b"O_EXCL")
}

#[cfg(test)]
mod tests;
