//! What a command failed with: one line that says what happened, one that says what to do, and
//! the exit code.

use std::fmt;
use std::io;
use std::path::Path;

use splitpoint::{Error as StoreError, ErrorKind, FileKind, Holder, Unsupported};
use splitpoint_legacy::Format;

use crate::shell::shell_word;

/// A `Result` whose error is a [`Failure`] by default.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// The exit codes, other than 0; `splitpoint --help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The reader of standard output is gone, which is not an error.
    BrokenPipe = 0,
    /// A key is missing or exists, a check found damage, or some records could not be converted or
    /// saved.
    No = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The store cannot be opened or is locked.
    CannotOpen = 3,
    /// The store is corrupt.
    Corrupt = 4,
    /// The operating system refused to read or write.
    Io = 5,
    /// A bug in this program (`EX_SOFTWARE`).
    Bug = 70,
    /// Stopped because the terminal went away.
    HungUp = 129,
    /// Stopped by Ctrl-C.
    Interrupted = 130,
    /// Stopped by a termination signal.
    Terminated = 143,
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// Makes a failure from its exit code and message, in lower case without a final stop.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A signal stopped the command; `state` describes the result.
    pub(crate) fn interrupted(exit: Exit, state: &str) -> Self {
        Self::new(exit, format!("interrupted: {state}"))
    }

    /// A failure without a message, only an exit code.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// Puts `context` and a colon before the message.
    #[must_use]
    pub(crate) fn within(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Puts `other`, which failed too, and a semicolon before the message.
    #[must_use]
    pub(crate) fn after(mut self, other: impl fmt::Display) -> Self {
        self.message = format!("{other}; {}", self.message);
        self
    }

    /// The store at `path` could not be opened.
    pub(crate) fn opening(path: &Path, error: &StoreError) -> Self {
        Self::opening_as(path, None, error)
    }

    /// The file at `path`, of `format` if known, could not be opened.
    pub(crate) fn opening_as(path: &Path, format: Option<Format>, error: &StoreError) -> Self {
        let is_full = error.io_error().is_some_and(|source| is_full(source.kind()));
        let exit = match error.kind() {
            ErrorKind::Io | ErrorKind::NotFound if !is_full => Exit::CannotOpen,
            kind => exit_of(kind),
        };
        Self::of_table(exit, path, format, error)
    }

    /// The file at `path` could not be created.
    pub(crate) fn creating(path: &Path, error: &StoreError) -> Self {
        let failure = Self::opening(path, error);
        match error.kind() {
            ErrorKind::NotFound => {
                failure.hint("the directory does not exist; create it first, or correct the path")
            }
            _ => failure,
        }
    }

    /// The open store at `path` failed.
    pub(crate) fn using(path: &Path, error: &StoreError) -> Self {
        Self::using_as(path, None, error)
    }

    /// The open table at `path` failed; `format` is set for an old file.
    pub(crate) fn using_as(path: &Path, format: Option<Format>, error: &StoreError) -> Self {
        Self::of_table(exit_of(error.kind()), path, format, error)
    }

    fn of_table(exit: Exit, path: &Path, format: Option<Format>, error: &StoreError) -> Self {
        let mut message = match error {
            // The error itself names what a program can do.
            StoreError::Locked { path, holders } => {
                format!("`{}` is locked by {}", path.display(), Holder::list(holders))
            }
            _ => error.to_string(),
        };
        let shown = path.display().to_string();
        // An error about a URL names the file in it.
        let has_file = error.path().is_some_and(|file| shown.contains(&*file.to_string_lossy()));
        if !has_file && !message.contains(&shown) {
            message = format!("`{shown}`: {message}");
        }
        Self { exit, message, hint: hint_of(error.path().unwrap_or(path), format, error) }
    }

    /// The operating system refused `action`, to follow "cannot".
    pub(crate) fn io(action: impl fmt::Display, source: &io::Error) -> Self {
        let hint = hint_of_io(source);
        Self { exit: Exit::Io, message: format!("cannot {action}: {source}"), hint }
    }

    /// The operating system refused to read the input `name`, to follow "cannot read".
    pub(crate) fn reading(name: impl fmt::Display, source: &io::Error) -> Self {
        let failure = Self::io(format_args!("read {name}"), source);
        match source.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::IsADirectory => Self { exit: Exit::CannotOpen, ..failure },
            _ => failure,
        }
    }

    /// Standard output refused data; a closed pipe only ends the command.
    pub(crate) fn output(source: &io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return Self::silent(Exit::BrokenPipe);
        }
        let failure = Self::io("write to standard output", source);
        if is_full(source.kind()) {
            return failure
                .hint("free some space; the output ends early, and what was stored is safe");
        }
        failure
    }

    /// Returns the exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns the message, or `None` for a silent failure.
    pub(crate) fn message(&self) -> Option<&str> {
        (!self.message.is_empty()).then_some(&self.message)
    }

    /// Returns the hint, if any.
    pub(crate) fn remedy(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

fn exit_of(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Corrupt => Exit::Corrupt,
        ErrorKind::TooLarge | ErrorKind::Invalid => Exit::Usage,
        ErrorKind::Conflict => Exit::No,
        ErrorKind::NotAStore
        | ErrorKind::Version
        | ErrorKind::Locked
        | ErrorKind::HashMismatch
        | ErrorKind::ReadOnly
        | ErrorKind::Unsupported
        | ErrorKind::Exists => Exit::CannotOpen,
        // `Io`, `NotFound`, `Full`, `Poisoned`, `SnapshotTooOld`, and kinds that a newer library may add.
        _ => Exit::Io,
    }
}

/// Returns the hint for an error of the file at `path`, of `format` if known.
fn hint_of(path: &Path, format: Option<Format>, error: &StoreError) -> Option<String> {
    let file = shell_word(&path.to_string_lossy());
    let old = format.filter(|format| format.is_readable() && *format != Format::Store);
    let hint = match error {
        StoreError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            "check the path".to_string()
        }
        StoreError::Io { source, .. } => return hint_of_io(source),
        StoreError::NotAStore { found, .. } => match old {
            Some(format) => hint_to_write(path, format),
            None => hint_of_foreign(found, &file),
        },
        StoreError::Unsupported { feature, .. } => {
            return hint_of_unsupported(*feature, format, &file);
        }
        StoreError::HashMismatch { .. } if old.is_some() => hint_to_convert(&file),
        StoreError::Version { .. } if old == Some(Format::Db185Hash) => format!(
            "no library reads this version; if the file was cut or damaged, save what can be read: \
             splitpoint salvage {file} -o NEW.spt"
        ),
        StoreError::Version { .. } if old.is_some() => {
            "dump it with the tools of the library that wrote it, and load the dump".to_string()
        }
        StoreError::Version { expected, found, .. } if found > expected => {
            "a newer splitpoint wrote it; upgrade this one, or dump the store with that version"
                .to_string()
        }
        StoreError::Version { .. } => "an older splitpoint wrote it; dump the store with that \
                                       version and load the dump with this one"
            .to_string(),
        StoreError::Corrupt { .. } if old.is_some() => {
            format!("save what can be read into a store: splitpoint salvage {file} -o NEW.spt")
        }
        StoreError::Corrupt { .. } => format!(
            "restore the file from a backup, or save what can be read: splitpoint repair {file} \
             -o NEW.spt"
        ),
        StoreError::Locked { .. } => "try again when they have closed the store".to_string(),
        StoreError::LockedCompacted { .. } => {
            "try again; nobody else can read a store that a process has for itself".to_string()
        }
        StoreError::HashMismatch { .. } => "open it with the program that created it, which \
                                            has its hash function"
            .to_string(),
        StoreError::Exists { .. } => {
            format!("`splitpoint load {file}` adds to it; to start over, remove the file first")
        }
        StoreError::Full { what: StoreError::ADDRESS_SPACE, .. } => {
            "raise the limit of the process: see `ulimit -v`, and vm.max_map_count if it has \
             thousands of stores open; everything stored before is safe"
                .to_string()
        }
        StoreError::Full { what: StoreError::MEMORY, .. } => {
            "free memory, or raise the limit of the process: see `ulimit -v`; everything stored \
             before is safe"
                .to_string()
        }
        StoreError::Full { .. } => {
            "free some space and try again; everything stored before is safe".to_string()
        }
        StoreError::Poisoned { .. } => format!(
            "try again; if that fails too, `splitpoint check {file}` shows the state of the store"
        ),
        _ => return None,
    };
    Some(hint)
}

/// Returns the hint for a file with an unsupported feature.
fn hint_of_unsupported(feature: Unsupported, format: Option<Format>, file: &str) -> Option<String> {
    use Format::{BdbBtree, BdbHash, BdbHeap, BdbQueue, BdbRecno, Db185Btree, Db185Hash, Store};
    match (feature, format?) {
        (Unsupported::Encryption, _) => Some(format!(
            "decrypt it with its own program: db5.3_dump -P PASSWORD {file} | splitpoint load \
             NEW.spt"
        )),
        (Unsupported::Other, BdbBtree) => Some(format!(
            "list its databases and load one: db5.3_dump -l {file}; db5.3_dump -s NAME {file} | \
             splitpoint load NEW.spt"
        )),
        (_, BdbHash | BdbBtree | BdbRecno | BdbQueue | BdbHeap) => Some(hint_to_dump(file)),
        (Unsupported::Format, Store) => {
            Some(format!("save what it still holds: splitpoint repair {file} -o NEW.spt"))
        }
        (Unsupported::Format, Db185Hash | Db185Btree) => None,
        (Unsupported::Format, _) | (Unsupported::Other, Db185Hash) => Some(hint_to_convert(file)),
        _ => None,
    }
}

fn hint_to_convert(file: &str) -> String {
    format!("convert it to a store: splitpoint convert {file} NEW.spt")
}

fn hint_to_dump(file: &str) -> String {
    format!("load it into a store: db5.3_dump {file} | splitpoint load NEW.spt")
}

/// What to do about a store that another process writes to, for a command that writes as well.
pub(crate) const HINT_TO_WAIT: &str = "one process at a time writes to a store; --lock-timeout waits \
                                       longer, and get, list, count, dump and stat need not wait";

/// Returns the command that makes the old file at `path` writable.
pub(crate) fn hint_to_write(path: &Path, format: Format) -> String {
    let hint = hint_to_convert(&shell_word(&path.to_string_lossy()));
    if format == Format::Db185Hash {
        let url = shell_word(&format!("db185:{}", path.display()));
        return format!("{hint}; or write to it in place: {url}");
    }
    hint
}

/// Returns the hint for `file`, which is `found` and not a store.
fn hint_of_foreign(found: &FileKind, file: &str) -> String {
    match found {
        FileKind::Directory => "give the path of a file".to_string(),
        FileKind::NamedPipe
        | FileKind::Socket
        | FileKind::CharacterDevice
        | FileKind::BlockDevice
        | FileKind::Special => "give the path of a regular file".to_string(),
        FileKind::DanglingLink { target } => {
            let target = shell_word(&target.to_string_lossy());
            format!("correct the link, or create a store at its target: splitpoint create {target}")
        }
        FileKind::Empty | FileKind::UnfinishedStore => {
            format!("to create a store there: rm {file} && splitpoint create {file}")
        }
        FileKind::BeginsWithZeros => format!(
            "check the path; if the file holds nothing, remove it: rm {file}; if it was a store, \
             save what it still holds: splitpoint repair {file} -o NEW.spt"
        ),
        FileKind::Text => format!(
            "if it is a dump or a list, load it into a store: splitpoint load NEW.spt {file}"
        ),
        FileKind::BerkeleyDbBtree => hint_to_dump(file),
        FileKind::Sqlite
        | FileKind::Tdb
        | FileKind::Lmdb
        | FileKind::Redb
        | FileKind::KyotoCabinet => tool_in_words(found, file)
            .map_or_else(String::new, |tool| format!("check the path; {tool}")),
        _ => format!(
            "check the path; if it was a store, save what it still holds: splitpoint repair {file} \
             -o NEW.spt"
        ),
    }
}

/// Returns how to read a file that is `found`, if it is the file of another program.
pub(crate) fn tool_of(found: &FileKind, path: &Path) -> Option<String> {
    tool_in_words(found, &shell_word(&path.to_string_lossy()))
}

fn tool_in_words(found: &FileKind, file: &str) -> Option<String> {
    let command = match found {
        FileKind::Sqlite => format!(
            "sqlite3 -tabs {file} 'select key, value from t' | splitpoint load --format tsv NEW.spt"
        ),
        FileKind::Lmdb => format!("mdb_dump -n {file} | splitpoint load NEW.spt"),
        FileKind::Tdb => format!("tdbdump {file}"),
        FileKind::KyotoCabinet => {
            format!("kchashmgr list -pv {file} | splitpoint load --format tsv NEW.spt")
        }
        FileKind::Redb => return Some("only a program with the crate redb reads it".to_string()),
        _ => return None,
    };
    Some(format!("to read it: {command}"))
}

/// Returns whether the operating system has no room for the data.
/// Returns whether there is no room for what was to be written.
fn is_full(kind: io::ErrorKind) -> bool {
    kind == io::ErrorKind::FileTooLarge || is_disk_full(kind)
}

/// Returns whether the disk has no room, or the user's part of it.
pub(crate) fn is_disk_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the hint for an error of the operating system.
fn hint_of_io(source: &io::Error) -> Option<String> {
    let hint = match source.kind() {
        io::ErrorKind::PermissionDenied => "check the permissions of the file and its directory",
        io::ErrorKind::IsADirectory => "that is a directory; give the path of a file",
        io::ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only: get, count, list, dump, stat and check work there; give a \
             new file a path elsewhere"
        }
        io::ErrorKind::FileTooLarge => {
            "the limit on file sizes is too low: see `ulimit -f`; everything stored before is safe"
        }
        io::ErrorKind::InvalidFilename => {
            "most file systems take names of up to 255 bytes, suffixes such as `.old` included; \
             choose a shorter name"
        }
        kind if is_full(kind) => "free some space and try again; everything stored before is safe",
        _ => return None,
    };
    Some(hint.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_without_permission_to_read_it_or_a_directory_cannot_be_opened() {
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::IsADirectory] {
            let refused = io::Error::from(kind);
            assert_eq!(Failure::reading("`a.tsv`", &refused).exit(), Exit::CannotOpen);
        }
    }

    /// One error of each kind, so that a new kind must be given an exit code and a hint here.
    fn one_of_each() -> Vec<(StoreError, Exit, Exit, bool)> {
        let path = || "a.spt".into();
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let (expected, found) = ("x33".to_string(), "fnv1a-64".to_string());
        let (feature, reason) = (Unsupported::Other, String::new());
        let (offset, too_large) = (0, 1 << 32);
        vec![
            (
                StoreError::Io { action: "open", path: path(), source },
                Exit::CannotOpen,
                Exit::Io,
                true,
            ),
            (
                StoreError::Io { action: "open", path: path(), source: missing },
                Exit::CannotOpen,
                Exit::Io,
                true,
            ),
            (
                StoreError::NotAStore { path: path(), found: FileKind::Text },
                Exit::CannotOpen,
                Exit::CannotOpen,
                true,
            ),
            (
                StoreError::Version { path: path(), expected: 1, found: 2 },
                Exit::CannotOpen,
                Exit::CannotOpen,
                true,
            ),
            (
                StoreError::Corrupt { what: "record", offset, expected: 1, found: 2 },
                Exit::Corrupt,
                Exit::Corrupt,
                true,
            ),
            (
                StoreError::Locked { path: path(), holders: Vec::new() },
                Exit::CannotOpen,
                Exit::CannotOpen,
                true,
            ),
            (
                StoreError::TooLarge { what: "key", bytes: too_large, bytes_max: too_large - 1 },
                Exit::Usage,
                Exit::Usage,
                false,
            ),
            (
                StoreError::HashMismatch { expected, found },
                Exit::CannotOpen,
                Exit::CannotOpen,
                true,
            ),
            (StoreError::ReadOnly, Exit::CannotOpen, Exit::CannotOpen, false),
            (StoreError::Exists { path: path() }, Exit::CannotOpen, Exit::CannotOpen, true),
            (StoreError::Poisoned { reason: reason.clone() }, Exit::Io, Exit::Io, true),
            (StoreError::Full { what: "disk", bytes: 1 }, Exit::Io, Exit::Io, true),
            (
                StoreError::Unsupported { path: path(), feature, reason: reason.clone() },
                Exit::CannotOpen,
                Exit::CannotOpen,
                false,
            ),
            (StoreError::Invalid { what: "URL", reason }, Exit::Usage, Exit::Usage, false),
            (StoreError::SnapshotTooOld { bytes_max: 9 }, Exit::Io, Exit::Io, false),
            (StoreError::Conflict, Exit::No, Exit::No, false),
        ]
    }

    #[test]
    fn every_kind_of_error_has_its_exit_code_and_hint() {
        let errors = one_of_each();
        for kind in ErrorKind::ALL {
            assert!(errors.iter().any(|(error, ..)| error.kind() == kind), "{kind:?} is missing");
        }
        for (error, opening, using, has_hint) in errors {
            let path = Path::new("a.spt");
            assert_eq!(Failure::opening(path, &error).exit(), opening, "{error}");
            let failure = Failure::using(path, &error);
            assert_eq!(failure.exit(), using, "{error}");
            assert_eq!(failure.remedy().is_some(), has_hint, "{error}");
            assert!(failure.message().is_some_and(|message| message.contains("`a.spt`")));
        }
    }

    #[test]
    fn a_full_disk_is_an_error_of_writing_also_where_a_file_is_created() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let error = StoreError::Io { action: "extend", path: "a.spt".into(), source: full() };
        assert_eq!(Failure::creating(Path::new("a.spt"), &error).exit(), Exit::Io);
        let hint = "free some space; the output ends early, and what was stored is safe";
        assert_eq!(Failure::output(&full()).remedy(), Some(hint));
    }

    #[test]
    fn an_old_file_of_another_version_is_not_taken_for_a_store() {
        let error = StoreError::Version { path: "a.db".into(), expected: 2, found: 0 };
        let failure = Failure::opening_as(Path::new("a.db"), Some(Format::Db185Hash), &error);
        let hint = failure.remedy().expect("a hint");
        assert!(hint.contains("splitpoint salvage a.db -o NEW.spt"), "{hint}");
    }

    #[test]
    fn a_process_without_address_space_is_sent_to_its_limit_and_not_to_the_disk() {
        let error = StoreError::Full { what: StoreError::ADDRESS_SPACE, bytes: 4096 };
        let failure = Failure::using(Path::new("a.spt"), &error);
        let message =
            "`a.spt`: the address space of this process is full: 4096 more bytes do not fit";
        assert_eq!(failure.message(), Some(message));
        assert!(failure.remedy().is_some_and(|hint| hint.contains("`ulimit -v`")));
    }

    #[test]
    fn the_message_names_the_operating_system_s_reason_once() {
        let source = io::Error::from(io::ErrorKind::NotFound);
        let error = StoreError::Io { action: "open", path: "a.spt".into(), source };
        let failure = Failure::opening(Path::new("a.spt"), &error);
        assert_eq!(failure.message(), Some("cannot open `a.spt`: entity not found"));
        assert_eq!(failure.remedy(), Some("check the path"));
    }
}
