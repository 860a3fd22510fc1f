//! The files that the paths of a capture name, as far as they are still there.

use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::DeviceFacts;

/// What a name is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileForm {
    /// A directory.
    Directory,
    /// A symbolic link with its target.
    Link(Vec<u8>),
    /// A regular file.
    Regular,
    /// A device, a pipe, a socket.
    Other,
}

/// A file that is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Number of its device.
    pub device: u64,
    /// Number of its inode.
    pub inode: u64,
    /// What it is.
    pub form: FileForm,
    /// When it was created, in seconds since 1970, if that is known.
    pub created_s: Option<f64>,
}

/// Where the importer looks for files.
pub trait Files {
    /// Returns what has this absolute path, without following it if it is a link.
    fn look(&self, path: &[u8]) -> Option<Found>;

    /// Returns what is known of a device.
    fn device(&self, id: u64) -> DeviceFacts;
}

/// The files below a directory.
#[derive(Debug)]
pub struct FilesBelow {
    root: PathBuf,
    /// Pairs of a prefix in the trace and where its files are.
    maps: Vec<(Vec<u8>, Vec<u8>)>,
    mounts: String,
}

impl FilesBelow {
    /// Looks for files below `root`; what a map calls otherwise, under its old name.
    pub fn new(root: &Path, maps: &[PathMap]) -> Self {
        Self {
            root: root.to_owned(),
            maps: maps.iter().map(|map| (map.to.clone(), map.from.clone())).collect(),
            mounts: fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(),
        }
    }
}

impl Files for FilesBelow {
    fn look(&self, path: &[u8]) -> Option<Found> {
        let old = self.maps.iter().find_map(|(to, from)| replaced_prefix(path, to, from));
        let old = old.as_deref().unwrap_or(path);
        let below = old.strip_prefix(b"/").unwrap_or(old);
        let path = self.root.join(std::ffi::OsStr::from_bytes(below));
        let metadata = fs::symlink_metadata(&path).ok()?;
        let kind = metadata.file_type();
        let form = if kind.is_dir() {
            FileForm::Directory
        } else if kind.is_symlink() {
            FileForm::Link(fs::read_link(&path).ok()?.into_os_string().into_vec())
        } else if kind.is_file() {
            FileForm::Regular
        } else {
            FileForm::Other
        };
        let created = metadata.created().ok();
        let created = created.and_then(|it| it.duration_since(std::time::UNIX_EPOCH).ok());
        Some(Found {
            device: metadata.dev(),
            inode: metadata.ino(),
            form,
            created_s: created.map(|it| it.as_secs_f64()),
        })
    }

    fn device(&self, id: u64) -> DeviceFacts {
        let (major, minor) = (id >> 8 & 0xfff, id & 0xff | id >> 12 & 0xfff_ff00);
        let numbers = format!("{major}:{minor}");
        let line = self.mounts.lines().find(|line| line.split(' ').nth(2) == Some(&numbers));
        let kind = line.and_then(|line| line.split(" - ").nth(1)?.split(' ').next());
        kind.map_or_else(DeviceFacts::default, |kind| DeviceFacts {
            file_system: kind.to_owned(),
            ..DeviceFacts::default()
        })
    }
}

/// A prefix of paths that is another one in the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMap {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl std::str::FromStr for PathMap {
    type Err = String;

    /// Reads `OLD=NEW`, two absolute paths.
    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once('=').ok_or("give two paths, as in /u/me=/srv")?;
        let is_absolute = |path: &str| path.len() > 1 && path.starts_with('/');
        if !is_absolute(from) || !is_absolute(to) {
            return Err("both paths start with / and name a directory".to_owned());
        }
        let plain = |path: &str| path.trim_end_matches('/').as_bytes().to_vec();
        Ok(Self { from: plain(from), to: plain(to) })
    }
}

impl PathMap {
    /// Returns `path` by its new name, if it is below the old one.
    pub(crate) fn apply(&self, path: &[u8]) -> Option<Vec<u8>> {
        replaced_prefix(path, &self.from, &self.to)
    }
}

fn replaced_prefix(path: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(from)?;
    (rest.is_empty() || rest.starts_with(b"/")).then(|| [to, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_changes_whole_components_only() {
        let map: PathMap = "/home/me/=/srv".parse().unwrap();
        assert_eq!(map.apply(b"/home/me/a").unwrap(), b"/srv/a");
        assert_eq!(map.apply(b"/home/me").unwrap(), b"/srv");
        assert_eq!((map.apply(b"/home/men"), map.apply(b"/a/home/me")), (None, None));
        for text in ["/home", "home=/srv", "/=/srv", "/home="] {
            assert!(text.parse::<PathMap>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_mapped_path_is_looked_for_where_it_was() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let map: PathMap = format!("{dir}=/other/name").parse().unwrap();
        let files = FilesBelow::new(Path::new("/"), &[map]);
        let found = files.look(b"/other/name/capture/files.rs").unwrap();
        assert_eq!(found.form, FileForm::Regular);
        assert_eq!(files.look(b"/other/name/capture").unwrap().form, FileForm::Directory);
        assert_eq!(files.look(b"/other/nowhere"), None);
        assert_eq!(files.device(found.device).block_bytes, 4096);
    }
}
