//! The process with the library, as the one that measures sees it.
//!
//! ```text
//! request:  kind u8, seed u64, keys u32, then each key after its length u32
//! answer:   HASH    the hash of each key, 8 bytes
//!           SAMPLE  one byte: the function can take its turns on these keys
//!           TURN    4 numbers of 8 bytes: throughput and latency of a function that does nothing,
//!                   then of the function
//! ```
//!
//! Numbers are little-endian.

use std::io::{self, BufWriter, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use splitpoint_lab::timing::Turn;

use super::super::pipe::Pipe;
use crate::failure::{Exit, Failure, Result};
use crate::itself;

/// Kinds of a request.
pub(super) const HASH: u8 = 0;
pub(super) const SAMPLE: u8 = 1;
pub(super) const TURN: u8 = 2;
/// What the process says when it has found the function, and when it is ready to be timed.
pub(super) const READY: u8 = b'+';
/// Bytes of the answer to [`TURN`].
pub(super) const TURN_BYTES: usize = 32;

/// Longest silence of a process that loads the library.
const LOADING_MAX: Duration = Duration::from_secs(60);

/// A process with the library. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: Pipe,
    /// Longest silence before an answer.
    limit: Duration,
}

/// How a process ended.
#[derive(Debug)]
pub(super) enum End {
    /// It did not answer in time.
    Silent,
    /// By itself, with this status.
    Ended(String),
}

impl Process {
    /// Starts this program again, as the process with the library. `limit` is the longest silence
    /// before an answer, once the library is loaded.
    pub(super) fn start(file: &Path, symbol: &str, limit: Duration) -> Result<Self> {
        let failed = |error: io::Error| Failure::io("run this program again", &error);
        let mut child = itself::command()
            .map_err(failed)?
            .args(["lab", "__library"])
            .arg(file)
            .arg(symbol)
            // Ctrl-C on a terminal goes to a group: this process alone decides what to do then.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| failed(io::Error::other("no pipes")))?;
        let (input, output) = (BufWriter::new(input), Pipe::new(output, |_| Ok(())));
        let mut process = Self { child, input, output, limit };
        match process.expect_ready(LOADING_MAX) {
            Ok(()) => Ok(process),
            Err(error) => Err(process.no_library(&error, file, symbol)),
        }
    }

    fn expect_ready(&mut self, limit: Duration) -> io::Result<()> {
        let mut answer = [0];
        self.output.fill(&mut answer, limit)?;
        let is_ready = answer[0] == READY;
        if is_ready { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Returns why there is no library, which the process has written after a byte that is not
    /// [`READY`].
    fn no_library(mut self, error: &io::Error, file: &Path, symbol: &str) -> Failure {
        let mut why = Vec::new();
        if error.kind() == io::ErrorKind::InvalidData {
            let mut byte = [0];
            while self.output.fill(&mut byte, LOADING_MAX).is_ok() {
                why.extend(byte);
            }
        }
        let why = match self.end(error) {
            _ if !why.is_empty() => String::from_utf8_lossy(&why).into_owned(),
            End::Silent => format!("loading it does not end in {} s", LOADING_MAX.as_secs()),
            End::Ended(how) => format!("the process with it ended: {how}"),
        };
        // The dynamic linker begins with the file.
        let file = file.display();
        let why = why.strip_prefix(&format!("{file}: ")).unwrap_or(&why);
        let message = format!("cannot load the function `{symbol}` of `{file}`: {why}");
        Failure::new(Exit::CannotOpen, message)
            .hint("to make a shared library: cc -O2 -shared -fPIC mine.c -o libmine.so")
    }

    /// Ends the process after an error, and returns how it ended.
    pub(super) fn end(mut self, error: &io::Error) -> End {
        // Its pipes may be closed and it still there.
        let _ = self.child.kill();
        match self.child.wait() {
            _ if error.kind() == io::ErrorKind::TimedOut => End::Silent,
            Ok(status) => End::Ended(status.to_string()),
            Err(error) => End::Ended(error.to_string()),
        }
    }

    fn ask(&mut self, kind: u8, keys: &[&[u8]], seed: u64) -> io::Result<()> {
        let length =
            |length: usize| u32::try_from(length).map(u32::to_le_bytes).map_err(io::Error::other);
        self.input.write_all(&[kind])?;
        self.input.write_all(&seed.to_le_bytes())?;
        self.input.write_all(&length(keys.len())?)?;
        for key in keys {
            self.input.write_all(&length(key.len())?)?;
            self.input.write_all(key)?;
        }
        self.input.flush()
    }

    /// Returns the hashes of keys.
    pub(super) fn hashes(&mut self, keys: &[&[u8]], seed: u64) -> io::Result<Vec<u64>> {
        self.ask(HASH, keys, seed)?;
        let mut bytes = vec![0; 8 * keys.len()];
        self.output.fill(&mut bytes, self.limit)?;
        Ok(bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect())
    }

    /// Prepares to time the function on these keys.
    pub(super) fn begin_to_time(&mut self, keys: &[&[u8]], seed: u64) -> io::Result<()> {
        self.ask(SAMPLE, keys, seed)?;
        self.expect_ready(self.limit)
    }

    /// Times a function that does nothing, and the function.
    pub(super) fn turn(&mut self) -> io::Result<[Turn; 2]> {
        self.ask(TURN, &[], 0)?;
        let mut bytes = [0; TURN_BYTES];
        self.output.fill(&mut bytes, self.limit)?;
        let number = |at: usize| {
            let bytes = bytes.as_chunks().0[at];
            f64::from_bits(u64::from_le_bytes(bytes))
        };
        let turn = |at| Turn { throughput_ns: number(at), latency_ns: number(at + 1) };
        Ok([turn(0), turn(2)])
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
