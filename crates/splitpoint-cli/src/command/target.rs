//! A new file of records: a store, a file of db 1.85 or a cdb.

use std::fs::{self, File, OpenOptions};
use std::io::BufWriter;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use splitpoint::{BatchAtomicity, Capabilities, Create, Error, Options, TableExt as _};
use splitpoint_legacy::{CdbWriter, db185};

use crate::bytes::shown;
use crate::failure::{Exit, Failure, Result};
use crate::files::is_same;
use crate::new_file::NewFile;
use crate::number::{count, counted};
use crate::shell::shell_word;
use crate::store::Opened;

/// What the new file is.
#[derive(Clone, Debug)]
pub(super) enum Format {
    Store {
        /// Whether its first bytes are those of a gdbm file.
        has_gdbm_mark: bool,
    },
    Db185(db185::Options),
    Cdb,
}

/// What records are written to, until it is finished.
enum Sink {
    Table(Opened, Capabilities),
    Cdb(CdbWriter<BufWriter<File>>),
}

impl Sink {
    fn create(partial: &Path, format: &Format, mode: u32) -> Result<Self, Error> {
        let table = match format {
            Format::Store { has_gdbm_mark } => {
                let options = Options::new().gdbm_mark(*has_gdbm_mark);
                let options = options.create(Create::New).file_mode(mode);
                Opened::new(partial, options.open(partial)?)
            }
            Format::Db185(options) => {
                let options = options.clone().create(Create::New).file_mode(mode);
                Opened::new(partial, options.open(partial)?)
            }
            Format::Cdb => return create_cdb(partial, mode).map(Self::Cdb),
        };
        let capabilities = table.capabilities();
        Ok(Self::Table(table, capabilities))
    }
}

fn create_cdb(partial: &Path, mode: u32) -> Result<CdbWriter<BufWriter<File>>, Error> {
    let path = partial.to_path_buf();
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(partial);
    let writer = file.and_then(|file| CdbWriter::new(BufWriter::new(file)));
    writer.map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => Error::Exists { path },
        _ => Error::Io { action: "create", path, source },
    })
}

const NOTHING_MADE: &str = "no file was created; the source is unchanged";

/// A new file that gets its name once it is complete.
pub(super) struct Target {
    sink: Sink,
    path: PathBuf,
    file: NewFile,
    batch: Vec<(Vec<u8>, Vec<u8>)>,
    batch_bytes: usize,
    records: u64,
    left_out: LeftOut,
    /// Whether a record did not fit the format.
    has_refused: bool,
}

/// What the new file holds.
pub(super) struct Made {
    /// Whether a record did not fit the format.
    pub(super) has_refused: bool,
    pub(super) records: u64,
    pub(super) left_out: LeftOut,
}

/// What a new file does not get.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// The first thousand reasons.
    pub(super) reasons: Vec<String>,
    pub(super) count: u64,
    /// Parts whose reason is not among the first.
    unlisted: u64,
}

/// Most reasons that are listed.
const REASONS_MAX: usize = 1000;

impl LeftOut {
    /// Adds `count` parts that are left out for one reason.
    pub(super) fn add(&mut self, reason: String, count: u64) {
        self.count += count;
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(reason);
        } else {
            self.unlisted += count;
        }
    }

    /// Adds parts without their reasons.
    pub(super) fn add_unlisted(&mut self, count: u64) {
        self.count += count;
        self.unlisted += count;
    }

    /// Adds what `other` has.
    pub(super) fn append(&mut self, other: Self) {
        let listed = other.count - other.unlisted;
        let more = other.reasons.len() + self.reasons.len();
        self.count += other.count;
        self.unlisted += other.unlisted + count(more.saturating_sub(REASONS_MAX)).min(listed);
        self.reasons.extend(other.reasons);
        self.reasons.truncate(REASONS_MAX);
    }

    /// Returns a line for each reason, and one for the parts that are not listed.
    pub(super) fn lines(&self) -> String {
        let lines = self.reasons.iter().map(|reason| format!("skipped: {reason}\n"));
        let unlisted = counted(self.unlisted, "further part");
        let rest = (self.unlisted > 0).then(|| format!("skipped: {unlisted}, not listed\n"));
        lines.chain(rest).collect()
    }
}

impl Target {
    /// Creates an empty file beside its final place, with the permissions of `sources`, whose records it
    /// will hold.
    pub(super) fn create<'a>(
        path: &Path,
        work: &str,
        format: &Format,
        sources: impl Iterator<Item = &'a Path>,
    ) -> Result<Self> {
        let sources: Vec<_> = sources.collect();
        // Elsewhere the advice is to remove a file that exists.
        if sources.iter().any(|source| is_same(path, source)) {
            let message = format!("`{}` is the file to {work} itself", path.display());
            return Err(Failure::new(Exit::CannotOpen, message).hint("give the name of a new file"));
        }
        let mode = splitpoint::mode_like(sources);
        if path.symlink_metadata().is_ok() {
            let error = match splitpoint::open_regular(path, fs::OpenOptions::new().read(true)) {
                // The error says what it is, such as a directory or a dangling link.
                Err(error @ Error::NotAStore { .. }) => error,
                _ => Error::Exists { path: path.to_path_buf() },
            };
            return Err(Failure::opening(path, &error)
                .hint("choose another name, or remove the file first"));
        }
        let open = |partial: &Path| Sink::create(partial, format, mode);
        let created = NewFile::create(path, work, open);
        let (sink, file) = created.map_err(|error: Error| match error {
            Error::Exists { path: ref partial } => {
                let file = shell_word(&partial.to_string_lossy());
                Failure::opening(partial, &error).hint(format!(
                    "another process is creating it, or one was killed; in that case: rm {file}"
                ))
            }
            // It has another name until it is complete, which the user has not given.
            Error::Io { action: "open" | "create", source, .. } => {
                let error = Error::Io { action: "create", path: path.to_path_buf(), source };
                Failure::creating(path, &error)
            }
            error => Failure::creating(path, &error),
        })?;
        Ok(Self {
            sink,
            path: path.to_path_buf(),
            file,
            batch: Vec::new(),
            batch_bytes: 0,
            records: 0,
            left_out: LeftOut::default(),
            has_refused: false,
        })
    }

    /// Adds a record, and skips it if it does not fit the format.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        const BATCH_RECORDS: usize = 4096;
        const BATCH_BYTES: usize = 4 << 20;
        let (key_bytes_max, value_bytes_max) = match &self.sink {
            Sink::Table(_, of) if of.batch == BatchAtomicity::Atomic => {
                (of.key_bytes_max, of.value_bytes_max)
            }
            Sink::Table(..) | Sink::Cdb(_) => return self.put_one(key, value),
        };
        if count(key.len()) > key_bytes_max || count(value.len()) > value_bytes_max {
            let bytes = key.len() + value.len();
            self.leave_out(key, &format!("{bytes} bytes are over the limit"));
            return Ok(());
        }
        self.batch_bytes += key.len() + value.len();
        self.batch.push((key.to_vec(), value.to_vec()));
        self.records += 1;
        if self.batch.len() >= BATCH_RECORDS || self.batch_bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Adds a record to a table that may refuse single records.
    fn put_one(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let stored = match &self.sink {
            Sink::Table(table, _) => table.put_new(key, value),
            Sink::Cdb(_) => return self.put_cdb(key, value),
        };
        match stored {
            Ok(true) => self.records += 1,
            Ok(false) => self.leave_out(key, "is there twice"),
            // Nothing has changed; a record that needs fewer pages may still fit.
            Err(error @ (Error::TooLarge { .. } | Error::Full { .. })) => {
                self.has_refused = true;
                self.leave_out(key, &error.to_string());
            }
            Err(error) => return Err(self.failed(&error)),
        }
        Ok(())
    }

    fn put_cdb(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Sink::Cdb(writer) = &mut self.sink else { return Ok(()) };
        match writer.put(key, value) {
            Ok(true) => self.records += 1,
            // Any other record would hardly fit either.
            Ok(false) => {
                let (path, records) = (self.path.display(), counted(self.records, "record"));
                let message =
                    format!("`{path}`: a cdb cannot be longer than 4 GiB, full after {records}");
                return Err(Failure::new(Exit::No, message).hint(NOTHING_MADE));
            }
            Err(source) => return Err(self.failed(&self.write_error(source))),
        }
        Ok(())
    }

    fn write_error(&self, source: std::io::Error) -> Error {
        Error::Io { action: "write", path: self.path.clone(), source }
    }

    /// Notes a record that the new file does not get.
    pub(super) fn leave_out(&mut self, key: &[u8], reason: &str) {
        let start = shown(&key[..key.len().min(64)]);
        self.left_out.add(format!("key `{start}`: {reason}"), 1);
    }

    /// Returns the failure for an error, with the name that the user gave and not the temporary
    /// one.
    fn failed(&self, error: &Error) -> Failure {
        Failure::using(&self.path, error).hint(NOTHING_MADE)
    }

    fn flush(&mut self) -> Result<()> {
        let Sink::Table(table, _) = &self.sink else { return Ok(()) };
        let pairs: Vec<(&[u8], &[u8])> =
            self.batch.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        table.put_many(&pairs).map_err(|error| self.failed(&error))?;
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    /// Makes the file durable, verifies its record count and gives it its name.
    pub(super) fn finish(mut self) -> Result<Made> {
        self.flush()?;
        let Self { sink, path, file, records, left_out, has_refused, .. } = self;
        let failed = |error: &Error| Failure::using(&path, error).hint(NOTHING_MADE);
        let found = match sink {
            Sink::Table(table, _) => {
                let found = table.len().map_err(|error| failed(&error))?;
                table.close().map_err(|failure| failure.hint(NOTHING_MADE))?;
                found
            }
            Sink::Cdb(writer) => {
                finish_cdb(writer, file.partial(), &path).map_err(|error| failed(&error))?
            }
        };
        if found != records {
            let put = counted(records, "record");
            let message = format!("`{}` has {found} records after storing {put}", path.display());
            return Err(Failure::new(Exit::Bug, message));
        }
        file.publish()?;
        Ok(Made { has_refused, records, left_out })
    }
}

/// Makes a cdb durable, and returns the number of records that it holds.
fn finish_cdb(
    writer: CdbWriter<BufWriter<File>>,
    partial: &Path,
    path: &Path,
) -> Result<u64, Error> {
    let finished = writer.finish().and_then(|out| out.get_ref().sync_all());
    finished.map_err(|source| {
        let path = path.to_path_buf();
        Error::Io { action: "write", path, source }
    })?;
    let file = splitpoint_legacy::open(partial)?;
    let survey = file.survey()?;
    Ok(survey.pair_count + survey.further_value_count)
}
