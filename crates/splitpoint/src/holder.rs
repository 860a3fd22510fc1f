//! `Holder`: a handle or a program that has a file locked, for messages.

use std::fmt;
use std::time::Duration;

/// Who stands in the way of a handle, as far as the system tells: see [`Error::Locked`](crate::Error::Locked).
///
/// For messages alone. The process ids of readers and writers come from the file, which may name a process
/// of another pid namespace; that there *is* one, the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// What it does.
    pub role: HolderRole,
    /// Its process, if anybody names it. Where handles take turns, it is the one that changed the store last,
    /// also while another one checks the store in a turn of its own.
    pub pid: Option<u32>,
    /// For how long it has done it, if that is known; where handles take turns, since its first change after
    /// another's turn.
    pub age: Option<Duration>,
}

/// What somebody does who has a file locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HolderRole {
    /// It is the one writer, or has its turn.
    Writer,
    /// It changes the file by turns, and lets nobody in that wants to write for its whole session.
    TakesTurns,
    /// It reads, and pins what it looks at in the reader table.
    Reader,
    /// It reads without the tables in the file, so it keeps writers out; or a program that is not of this
    /// library has locked the file for reading.
    KeepsWritersOut,
    /// It has locked the whole file: a copy that is being made, or another program.
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
