//! `Holder`: describes, for messages, a handle or a program that has a file locked.

use std::fmt;
use std::time::Duration;

/// A handle or a program that has a file locked, as far as the system can tell: see
/// [`Error::Locked`](crate::Error::Locked).
///
/// Use it for messages only. The kernel vouches that the lock exists. The process ids of readers
/// and writers come from the file, and may belong to another pid namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// What the holder does with the file.
    pub role: HolderRole,
    /// Its process id, if known. Where handles take turns, this is the process that changed the
    /// store last, even while another process has the turn only to check the store.
    pub pid: Option<u32>,
    /// For how long it has held the lock, if known; where handles take turns, the time since its
    /// first change after the turn of another handle.
    pub age: Option<Duration>,
}

/// What the holder of a lock does with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HolderRole {
    /// It is the only writer, or has the turn.
    Writer,
    /// It changes the file by turns, and so excludes any handle that wants to be the only writer.
    TakesTurns,
    /// It reads, and keeps its pins in the reader table.
    Reader,
    /// It reads without the index in the file, or checks, repairs or backs up the file, so it keeps
    /// writers out; or a program other than this library has locked the file for reading.
    KeepsWritersOut,
    /// It has locked the whole file: a process that is still writing this file as a copy (a backup,
    /// a rehash or a repair), or another program.
    Locker,
}

impl Holder {
    /// Returns a holder for the message of another access method.
    #[must_use]
    pub fn new(role: HolderRole, pid: Option<u32>, age: Option<Duration>) -> Self {
        Self { role, pid, age }
    }

    /// Returns holders as the end of a sentence: `process 12 (writer for 3 s)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint::{Error, Holder};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// let db = splitpoint::Db::open(&path)?;
    /// if let Err(Error::Locked { holders, .. }) = splitpoint::Db::open(&path) {
    ///     assert!(Holder::list(&holders).starts_with("this process (writer"));
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn list(holders: &[Self]) -> String {
        match holders {
            [] => "another handle".to_string(),
            [one] => one.to_string(),
            [first, second] => format!("{first} and {second}"),
            [first, second, rest @ ..] => format!("{first}, {second} and {} more", rest.len()),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) if pid == std::process::id() => f.write_str("this process")?,
            Some(pid) => write!(f, "process {pid}")?,
            None => f.write_str("another process")?,
        }
        write!(f, " ({}", self.role)?;
        match self.age.map(|age| age.as_secs()) {
            None | Some(0) => {}
            Some(seconds @ ..120) => write!(f, " for {seconds} s")?,
            Some(seconds @ ..7200) => write!(f, " for {} min", seconds / 60)?,
            Some(seconds) => write!(f, " for {} h", seconds / 3600)?,
        }
        f.write_str(")")
    }
}

impl fmt::Display for HolderRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Writer => "writer",
            Self::TakesTurns => "writer by turns",
            Self::Reader => "reader",
            Self::KeepsWritersOut => "reader that keeps writers out",
            Self::Locker => "has all of it locked",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_listed_with_what_they_do_and_for_how_long() {
        let own = Some(std::process::id());
        let second = Duration::from_secs(1);
        let mut holders = vec![Holder::new(HolderRole::Writer, own, Some(second / 2))];
        assert_eq!(Holder::list(&holders), "this process (writer)");
        holders.push(Holder::new(HolderRole::Reader, Some(1), Some(3 * second)));
        assert_eq!(Holder::list(&holders), "this process (writer) and process 1 (reader for 3 s)");
        holders.push(Holder::new(HolderRole::Locker, None, None));
        assert!(Holder::list(&holders).ends_with("process 1 (reader for 3 s) and 1 more"));
        assert_eq!(Holder::list(&[]), "another handle");
        let others = &mut holders[1..];
        others[0].age = Some(150 * second);
        assert_eq!(others[0].to_string(), "process 1 (reader for 2 min)");
        others[0].age = Some(9000 * second);
        assert_eq!(others[0].to_string(), "process 1 (reader for 2 h)");
        assert_eq!(others[1].to_string(), "another process (has all of it locked)");
    }
}
