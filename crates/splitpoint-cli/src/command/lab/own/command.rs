//! A function that is a command: keys on its standard input, hashes on its standard output.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use splitpoint_lab::specimen::{Foreign, KeyIndex, Recorded};

use super::hash_file::{self, HashFormat};
use super::pipe::Pipe;
use super::{KNOWN_KEYS, Trouble, malformed};
use crate::bytes::shown;
use crate::failure::{Exit, Failure, Result};
use crate::number::{count, counted, grouped};

/// How a command gets the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command::lab) enum Form {
    /// Text, one a line.
    Lines,
    /// Text, each ended by a NUL byte.
    Nul,
    /// In hex, one a line.
    Hex,
}

impl Form {
    /// Returns whether a key can be written so that the command reads it back.
    fn can_write(self, key: &[u8]) -> bool {
        match self {
            Self::Lines => !key.contains(&b'\n'),
            Self::Nul => !key.contains(&0),
            Self::Hex => true,
        }
    }

    /// Returns whether a key that nobody has may be given to a program that expects text.
    fn can_try(self, key: &[u8]) -> bool {
        let is_text = || std::str::from_utf8(key).is_ok() && !key.contains(&b'\r');
        self.can_write(key) && (self == Self::Hex || is_text())
    }

    fn write(self, key: &[u8], out: &mut impl io::Write) -> io::Result<()> {
        match self {
            Self::Lines => out.write_all(key).and_then(|()| out.write_all(b"\n")),
            Self::Nul => out.write_all(key).and_then(|()| out.write_all(b"\0")),
            Self::Hex => {
                let mut hex = String::with_capacity(2 * key.len() + 1);
                for byte in key {
                    let _ = write!(hex, "{byte:02x}");
                }
                hex.push('\n');
                out.write_all(hex.as_bytes())
            }
        }
    }
}

/// Hashes that a command may print before it has got their keys: empty lines do not count as
/// hashes, and more is a command that does not end.
const AHEAD_MAX: u64 = 1 << 20;
/// Silence after which nobody waits for more from a command that has ended.
const SILENCE: Duration = Duration::from_secs(1);

/// A command that runs: it gets keys, and at the end of them its hashes are read. It is killed when
/// this is dropped.
pub(super) struct Run {
    command: String,
    form: Form,
    process: Child,
    /// `None` once the command reads no more.
    input: Option<BufWriter<ChildStdin>>,
    output: Pipe,
    has_ended: Arc<AtomicBool>,
    key_count: Arc<AtomicU64>,
    first_keys: Vec<Vec<u8>>,
    /// The first key that the command cannot be given.
    unwritable: Option<String>,
}

/// What a command gave for its keys.
pub(super) struct Answers {
    pub(super) hashes: Vec<u64>,
    pub(super) format: HashFormat,
    /// The first few keys and their hashes.
    pub(super) known: Vec<(Vec<u8>, u64)>,
}

impl Run {
    /// Starts a command, whose hashes come in `format`.
    pub(super) fn start(command: &str, form: Form, format: Option<HashFormat>) -> Result<Self> {
        Self::start_with(command, form, format, Stdio::inherit())
    }

    fn start_with(
        command: &str,
        form: Form,
        format: Option<HashFormat>,
        errors: Stdio,
    ) -> Result<Self> {
        let failed = |error: io::Error| Failure::io(format!("run `{command}`"), &error);
        let mut process = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(failed)?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (input, output) = pipes.ok_or_else(|| failed(io::Error::other("no pipes")))?;
        let key_count = Arc::default();
        // Read all the time, or the command would wait with its hashes and we with the keys.
        let has_ended = Arc::default();
        let output = Output { pipe: output, has_ended: Arc::clone(&has_ended) };
        let output = Pipe::new(output, at_most_for(Arc::clone(&key_count), format));
        Ok(Self {
            command: command.to_owned(),
            form,
            process,
            input: Some(BufWriter::with_capacity(64 << 10, input)),
            output,
            has_ended,
            key_count,
            first_keys: Vec::new(),
            unwritable: None,
        })
    }

    /// Gives the command a key. What goes wrong shows at the [end](Self::finish).
    pub(super) fn write(&mut self, key: &[u8]) {
        self.key_count.fetch_add(1, Ordering::Relaxed);
        if self.first_keys.len() < KNOWN_KEYS {
            self.first_keys.push(key.to_vec());
        }
        if !self.form.can_write(key) {
            self.unwritable.get_or_insert_with(|| shown(key));
        }
        if let Some(input) = &mut self.input
            && self.form.write(key, input).is_err()
        {
            self.input = None;
        }
    }

    /// Ends the keys and returns the hashes.
    pub(super) fn finish(mut self, format: Option<HashFormat>) -> Result<Answers> {
        drop(self.input.take());
        let read = self.read_to_end();
        let command = &self.command;
        if let Some(key) = &self.unwritable {
            let message = format!("`{command}` cannot be given the key `{key}`, which ends a line");
            return Err(Failure::new(Exit::Usage, message)
                .hint("with --keys hex, or any format that is not text, it gets the keys in hex"));
        }
        let wrong = |message: String| {
            Failure::new(Exit::Usage, message)
                .hint("it must print one hash on a line for each key, in the order of the keys")
        };
        let bytes = read.map_err(|error| wrong(format!("`{command}`: {error}")))?;
        let failed = |error: io::Error| Failure::io(format!("wait for `{command}`"), &error);
        let status = self.process.wait().map_err(failed)?;
        if !status.success() {
            let message = format!("`{command}` failed: {status}");
            return Err(Failure::new(Exit::Usage, message).hint(
                "it must read keys from standard input to its end, print a hash for each and exit \
                 with 0",
            ));
        }
        let (hashes, format) =
            hash_file::read(&bytes, format).map_err(|why| malformed(command, &why))?;
        let key_count = self.key_count.load(Ordering::Relaxed);
        if count(hashes.len()) != key_count {
            let keys = counted(key_count, "key");
            let printed = grouped(count(hashes.len()));
            return Err(wrong(format!("`{command}` printed {printed} hashes for {keys}")));
        }
        let first_keys = std::mem::take(&mut self.first_keys);
        let known = first_keys.into_iter().zip(hashes.iter().copied()).collect();
        Ok(Answers { hashes, format, known })
    }

    /// Reads what the command prints until it ends.
    fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            match self.output.part(SILENCE) {
                Ok(part) if part.is_empty() => return Ok(bytes),
                Ok(part) => bytes.extend(part),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let has_ended = self.process.try_wait()?.is_some();
                    self.has_ended.store(has_ended, Ordering::SeqCst);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The output of a command, which ends with the command: a process that it left behind may hold the
/// pipe for ever.
struct Output {
    pipe: ChildStdout,
    /// Whether the command has ended.
    has_ended: Arc<AtomicBool>,
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let silence = Timespec::try_from(SILENCE).map_err(io::Error::other)?;
        loop {
            // Before the wait: all that it has written by then is in the pipe, and ends the wait.
            let has_ended = self.has_ended.load(Ordering::SeqCst);
            let mut pipes = [PollFd::new(&self.pipe, PollFlags::IN)];
            if rustix::event::poll(&mut pipes, Some(&silence))? > 0 {
                return self.pipe.read(buffer);
            }
            if has_ended {
                return Ok(0);
            }
        }
    }
}

/// Refuses output that has many more hashes than there were keys so far, which would fill memory.
fn at_most_for(
    key_count: Arc<AtomicU64>,
    format: Option<HashFormat>,
) -> impl FnMut(&[u8]) -> io::Result<()> {
    /// Bytes of the longest hash, in binary digits, with its prefix and the end of its line.
    const LINE_BYTES_MAX: u64 = 68;
    let hash_bytes = format.and_then(HashFormat::bytes);
    let (mut byte_count, mut line_count) = (0, 0);
    move |part| {
        byte_count += count(part.len());
        line_count += count(part.split(|&byte| byte == b'\n').count() - 1);
        let hash_count = match hash_bytes {
            Some(hash_bytes) => byte_count / hash_bytes,
            None => line_count.max(byte_count / LINE_BYTES_MAX),
        };
        let key_count = key_count.load(Ordering::Relaxed);
        if hash_count <= key_count + AHEAD_MAX {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "it prints more hashes than it gets keys: {} for {} so far",
            grouped(hash_count),
            counted(key_count, "key")
        )))
    }
}

/// A function that is a command. The hashes of the keys are recorded; for others it runs again.
#[derive(Debug)]
pub(super) struct CommandFunction {
    pub(super) recorded: Recorded<Arc<KeyIndex>>,
    pub(super) command: String,
    pub(super) form: Form,
    pub(super) format: HashFormat,
    pub(super) width_bits: u32,
    /// Some keys and their hashes, to see that a later run is of the same function.
    pub(super) known: Vec<(Vec<u8>, u64)>,
    /// Whether a later run was not.
    pub(super) is_another: AtomicBool,
    pub(super) trouble: Trouble,
}

impl CommandFunction {
    /// Runs the command for keys that nobody has, such as keys with a flipped bit. A command may
    /// refuse those, so it says nothing and its failure is none of the measurement.
    fn run(&self, keys: &[&[u8]]) -> Option<Vec<u64>> {
        let format = Some(self.format);
        let mut run = Run::start_with(&self.command, self.form, format, Stdio::null()).ok()?;
        for key in self.known.iter().map(|(key, _)| &**key).chain(keys.iter().copied()) {
            run.write(key);
        }
        let mut hashes = run.finish(format).ok()?.hashes;
        let others = hashes.split_off(self.known.len());
        if self.known.iter().map(|(_, hash)| hash).eq(&hashes) {
            return Some(others);
        }
        if !self.is_another.swap(true, Ordering::Relaxed) {
            self.trouble.note(format!(
                "`{}` gives other hashes each time it runs, as if it drew a seed: the results say \
                 nothing of keys that are not in the file, such as keys with a flipped bit",
                self.command
            ));
        }
        None
    }
}

impl Foreign for CommandFunction {
    fn hashes(&self, keys: &[&[u8]], seed: u64) -> Vec<Option<u64>> {
        let mut hashes = self.recorded.hashes(keys, seed);
        if self.is_another.load(Ordering::Relaxed) {
            return hashes;
        }
        let is_tried = |at: &usize| hashes[*at].is_none() && self.form.can_try(keys[*at]);
        let places: Vec<usize> = (0..keys.len()).filter(is_tried).collect();
        if places.is_empty() {
            return hashes;
        }
        let tried: Vec<&[u8]> = places.iter().map(|&at| keys[at]).collect();
        if let Some(found) = self.run(&tried) {
            for (at, hash) in places.into_iter().zip(found) {
                hashes[at] = Some(hash & (u64::MAX >> (64 - self.width_bits)));
            }
        }
        hashes
    }
}
