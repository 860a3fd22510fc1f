//! The traces of a replay: files, pipes, directories of them.

use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use splitpoint_lab::replay::{Shrink, Streams, Trace, TraceError};
use splitpoint_lab::zstd;

use crate::failure::{Exit, Failure, Result};
use crate::files::open_stream;

/// Bytes read at once.
const BUFFER_BYTES: usize = 1 << 16;

/// A trace that was read.
pub(in crate::command::lab) struct Input {
    pub(in crate::command::lab) streams: Streams,
    /// The file, as it was named.
    pub(in crate::command::lab) source: String,
}

/// Returns the traces in directories, in the order of their names; a file stands for itself.
pub(in crate::command::lab) fn all_in(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let here = [PathBuf::from(".")];
    let paths = if paths.is_empty() { &here[..] } else { paths };
    let mut traces = Vec::new();
    for path in paths {
        if !path.is_dir() {
            traces.push(path.clone());
            continue;
        }
        let failed =
            |error: io::Error| Failure::reading(format_args!("`{}`", path.display()), &error);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let text = name.to_string_lossy();
            if text.ends_with(".kct") || text.ends_with(".kct.zst") {
                found.push(path.join(&name));
            }
        }
        found.sort();
        traces.extend(found);
    }
    if traces.is_empty() {
        let shown: Vec<String> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
        let message = format!("no trace in {}", shown.join(", "));
        return Err(Failure::new(Exit::Usage, message).hint("traces are called *.kct or *.kct.zst"));
    }
    Ok(traces)
}

/// Reads a trace; `progress` is told the bytes read, those of the file, and the lines.
pub(in crate::command::lab) fn read(
    path: &Path,
    shrink: Shrink,
    mut progress: impl FnMut(u64, u64, u64),
) -> Result<Input> {
    let source = path.display().to_string();
    let file = open_stream(path)?;
    let total = file.metadata().map_or(0, |metadata| metadata.len());
    let read_bytes = Rc::new(Cell::new(0));
    let counted = Counted { input: file, read_bytes: Rc::clone(&read_bytes) };
    let reading = |error: io::Error| Failure::reading(format_args!("`{source}`"), &error);
    let text = zstd::reader(BufReader::with_capacity(BUFFER_BYTES, counted)).map_err(reading)?;
    let wrong = |error: TraceError| {
        let hint = if error.is_unreadable {
            "the file is damaged or cut off; replay another copy of it"
        } else {
            "docs/lab.md describes the lines of a trace"
        };
        Failure::new(Exit::Usage, format!("`{source}`: {error}")).hint(hint)
    };
    let trace = Trace::new(text).map_err(wrong)?;
    let mut streams = Streams::read(trace, shrink, |lines| {
        progress(read_bytes.get(), total, lines);
    })
    .map_err(wrong)?;
    if streams.name.is_empty() {
        streams.name = name_of(path);
    }
    Ok(Input { streams, source })
}

/// Returns the name of a file without its endings.
fn name_of(path: &Path) -> String {
    let name =
        path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Counts the bytes that are read.
struct Counted<R> {
    input: R,
    read_bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(out)?;
        self.read_bytes.set(self.read_bytes.get() + count as u64);
        Ok(count)
    }
}
