//! Which calls have paths, and what they do to names.

use crate::capture::files::FileForm;

/// Where a call has a path: the argument, and that of the directory where a relative one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathArgument {
    pub(super) directory: Option<usize>,
    pub(super) path: usize,
}

/// What a call does to names when it succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Open,
    Create(FileForm),
    Symlink,
    Link,
    Unlink,
    Rename,
    Execute,
    ChangeDirectory,
}

/// What to do for a call.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) paths: Vec<PathArgument>,
    /// Whether it follows a link at the end of a path.
    pub(super) follows: bool,
    pub(super) effect: Effect,
}

/// Returns whether a call makes a process.
pub(super) fn is_fork(name: &[u8]) -> bool {
    matches!(name, b"fork" | b"vfork" | b"clone" | b"clone3")
}

/// Returns what to do for a call, or `None` if it has no path.
pub(super) fn plan(name: &[u8]) -> Option<Plan> {
    use Effect::{ChangeDirectory, Create, Execute, Link, Nothing, Open, Rename, Symlink, Unlink};
    let at = |path| PathArgument { directory: None, path };
    let in_directory = |directory| PathArgument { directory: Some(directory), path: directory + 1 };
    let one = |path, follows, effect| Some(Plan { paths: vec![path], follows, effect });
    let two = |paths: [PathArgument; 2], effect| {
        Some(Plan { paths: paths.to_vec(), follows: false, effect })
    };
    match name {
        b"open" => one(at(0), true, Open),
        b"openat" | b"openat2" => one(in_directory(0), true, Open),
        b"creat" => one(at(0), true, Create(FileForm::Regular)),
        b"stat" | b"stat64" | b"access" | b"chmod" | b"chown" | b"utime" | b"utimes"
        | b"truncate" | b"statfs" | b"getxattr" | b"setxattr" | b"listxattr" | b"removexattr"
        | b"chroot" => one(at(0), true, Nothing),
        b"lstat" | b"lstat64" | b"readlink" | b"lchown" | b"lgetxattr" | b"lsetxattr"
        | b"llistxattr" | b"lremovexattr" => one(at(0), false, Nothing),
        b"newfstatat" | b"fstatat64" | b"statx" | b"faccessat" | b"faccessat2" | b"fchmodat"
        | b"fchmodat2" | b"fchownat" | b"utimensat" | b"futimesat" => {
            one(in_directory(0), true, Nothing)
        }
        b"readlinkat" => one(in_directory(0), false, Nothing),
        b"inotify_add_watch" => one(at(1), true, Nothing),
        b"execve" => one(at(0), true, Execute),
        b"execveat" => one(in_directory(0), true, Execute),
        b"chdir" => one(at(0), true, ChangeDirectory),
        b"mkdir" => one(at(0), false, Create(FileForm::Directory)),
        b"mkdirat" => one(in_directory(0), false, Create(FileForm::Directory)),
        b"mknod" => one(at(0), false, Create(FileForm::Other)),
        b"mknodat" => one(in_directory(0), false, Create(FileForm::Other)),
        b"symlink" => one(at(1), false, Symlink),
        b"symlinkat" => one(in_directory(1), false, Symlink),
        b"link" => two([at(0), at(1)], Link),
        b"linkat" => two([in_directory(0), in_directory(2)], Link),
        b"unlink" | b"rmdir" => one(at(0), false, Unlink),
        b"unlinkat" => one(in_directory(0), false, Unlink),
        b"rename" => two([at(0), at(1)], Rename),
        b"renameat" | b"renameat2" => two([in_directory(0), in_directory(2)], Rename),
        _ => None,
    }
}
