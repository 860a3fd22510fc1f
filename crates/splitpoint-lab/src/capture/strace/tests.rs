use std::collections::HashMap;

use super::*;
use crate::capture::DeviceFacts;
use crate::capture::files::Found;
use crate::replay::{Shrink, Streams, Trace};

/// A tree that is not on a disk.
#[derive(Default)]
struct Tree(HashMap<Vec<u8>, Found>);

impl Files for Tree {
    fn look(&self, path: &[u8]) -> Option<Found> {
        self.0.get(path).cloned()
    }

    fn device(&self, _: u64) -> DeviceFacts {
        DeviceFacts::default()
    }
}

/// Directories end in `/`, links have a target behind ` -> `; a file that a `+` starts is young.
fn tree(paths: &[&str]) -> Tree {
    let mut tree = Tree::default();
    for (inode, path) in (2..).zip([&["/"], paths].concat()) {
        let (is_young, path) = path.strip_prefix('+').map_or((false, path), |path| (true, path));
        let (name, form) = match path.split_once(" -> ") {
            Some((name, target)) => (name, FileForm::Link(target.as_bytes().to_vec())),
            None if path.ends_with('/') => (path, FileForm::Directory),
            None => (path, FileForm::Regular),
        };
        let name = if name == "/" { name } else { name.trim_end_matches('/') };
        let device = if name.starts_with("/mnt") { 9 } else { 8 };
        let created_s = Some(if is_young { 150.0 } else { 50.0 });
        tree.0.insert(name.as_bytes().to_vec(), Found { device, inode, form, created_s });
    }
    tree
}

#[track_caller]
fn events_with(lines: &str, paths: &[&str], options: Options) -> Result<String, CaptureError> {
    let import = import(lines.as_bytes(), tree(paths), options, |_| {})?;
    let mut out = Vec::new();
    import.writer.write("t", "test", &mut out).unwrap();
    // Whatever comes out, a replay can follow it.
    Streams::read(Trace::new(&out[..]).unwrap(), Shrink::None, |_| {}).unwrap();
    let text = String::from_utf8(out).unwrap();
    let events = text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n"));
    Ok(events.collect())
}

/// Checks what a capture becomes that starts in `/w`.
#[track_caller]
fn check(lines: &str, paths: &[&str], expected: &str) {
    let options = Options { directory: Some(b"/w".to_vec()), ..Options::default() };
    let events = events_with(lines, &[&["/w/"], paths].concat(), options).unwrap();
    assert_eq!(events, expected, "\n{events}");
}

#[test]
fn every_component_of_a_path_is_looked_up_and_links_are_followed() {
    check(
        "7 100.0 stat(\"/lib/../lib//./c\", {}) = 0\n",
        &["/lib -> usr/lib", "/usr/", "/usr/lib/", "/usr/lib/c", "/usr/lib/lib -> ."],
        // `..` is the parent of where the link leads.
        "L 1 2 4 lib\nL 1 2 5 usr\nL 1 5 6 lib x2\nL 1 6 7 c\n",
    );
    check(
        "7 100.0 lstat(\"l\", {}) = 0\n7 100.1 stat(\"l\", 0) = -1 ENOENT (No such file)\n",
        &["/w/l -> gone"],
        "L 1 3 4 l x2\nL 1 3 0 gone\n",
    );
}

#[test]
fn a_name_that_is_missing_ends_the_path() {
    check(
        "7 100.0 open(\"/no/such/file\", O_RDONLY) = -1 ENOENT (No such file)\n\
         7 100.0 stat(\"/w/a\", 0) = -1 ENOENT (No such file)\n",
        &["/w/a"],
        // `a` came later: the call is right, not the tree of today.
        "L 1 2 0 no\nL 1 2 3 w\nL 1 3 0 a\n",
    );
}

#[test]
fn names_are_created_renamed_and_removed() {
    check(
        "7 100.0 mkdir(\"d\", 0777) = 0\n\
         7 100.1 openat(AT_FDCWD</w>, \"d/a\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</w/d/a>\n\
         7 100.2 write(3</w/d/a>, \"\"..., 5000) = 5000\n\
         7 100.3 rename(\"d/a\", \"d/b\") = 0\n\
         7 100.4 link(\"d/b\", \"d/c\") = 0\n\
         7 100.5 unlinkat(4</w/d>, \"b\", 0) = 0\n\
         7 100.6 unlink(\"d/c\") = 0\n\
         7 100.7 rmdir(\"d\") = 0\n",
        &[],
        "L 1 3 0 d\nC 1 3 2113929216 d\nL 1 3 2113929216 d\nL 1 2113929216 0 a\n\
         C 1 2113929216 2113929217 a\nW 1 2113929217 0 2\nL 1 3 2113929216 d\n\
         L 1 2113929216 2113929217 a\nL 1 3 2113929216 d\nL 1 2113929216 0 b\n\
         R 1 2113929216 2113929217 a 1 2113929216 b\nL 1 3 2113929216 d\n\
         L 1 2113929216 2113929217 b\nL 1 3 2113929216 d\nL 1 2113929216 0 c\n\
         C 1 2113929216 2113929217 c\nL 1 2113929216 2113929217 b\nU 1 2113929216 2113929217 b\n\
         L 1 3 2113929216 d\nL 1 2113929216 2113929217 c\nU 1 2113929216 2113929217 c\n\
         E 1 2113929217\nL 1 3 2113929216 d\nU 1 3 2113929216 d\nE 1 2113929216\n",
    );
}

/// `open` with `O_CREAT` does not say whether the file was there; its age does.
#[test]
fn a_file_that_is_younger_than_the_capture_was_created_in_it() {
    check(
        "7 100.0 open(\"old\", O_WRONLY|O_CREAT, 0666) = 3</w/old>\n\
         7 100.1 open(\"new\", O_WRONLY|O_CREAT, 0666) = 4</w/new>\n\
         7 100.2 open(\"new\", O_WRONLY|O_CREAT, 0666) = 5</w/new>\n",
        &["/w/old", "+/w/new"],
        "L 1 3 4 old\nL 1 3 0 new\nC 1 3 5 new\nL 1 3 5 new\n",
    );
}

#[test]
fn reads_are_of_the_pages_that_they_come_to() {
    check(
        "7 100.0 open(\"a\", O_RDONLY) = 3</w/a>\n\
         7 100.1 read(3</w/a>, \"\"..., 4096) = 4096\n\
         7 100.2 read(3</w/a>, \"\"..., 4096) = 100\n\
         7 100.3 read(3</w/a>, \"\", 4096) = 0\n\
         7 100.4 pread64(3</w/a>, \"\"..., 9000, 8190) = 9000\n\
         7 100.5 lseek(3</w/a>, 40960, SEEK_SET) = 40960\n\
         7 100.6 read(3</w/a>, \"\"..., 1) = 1\n\
         7 100.7 read(0</dev/pts/0>, \"\"..., 9) = 9\n\
         7 100.8 read(5<pipe:[77]>, \"\"..., 9) = 9\n",
        &["/w/a"],
        "L 1 3 4 a\nG 1 4 0 1\nG 1 4 1 1\nG 1 4 1 4\nG 1 4 10 1\n",
    );
}

#[test]
fn a_child_starts_where_its_parent_is_even_before_the_fork_returns() {
    check(
        "7 100.0 chdir(\"/w/d\") = 0\n\
         7 100.1 vfork( <unfinished ...>\n\
         8 100.2 execve(\"./p\", [...], 0x7ff /* 3 vars */ <unfinished ...>\n\
         7 100.3 <... vfork resumed>) = 8\n\
         8 100.4 <... execve resumed>) = 0\n\
         8 100.5 +++ exited with 0 +++\n",
        &["/w/d/", "/w/d/p"],
        "L 1 2 3 w\nL 1 3 4 d\nL 1 4 5 p\nL 1 2 0 lib64\n",
    );
}

#[test]
fn mount_points_and_the_kernel_s_own_trees_are_as_a_trace_has_them() {
    check(
        "7 100.0 stat(\"/mnt/x\", {}) = 0\n7 100.1 open(\"/proc/self/maps\", O_RDONLY) = 3</proc/8/maps>\n",
        &["/mnt/", "/mnt/x", "/proc/"],
        "L 1 2 2097152002 mnt\nL 2 4 5 x\nL 1 2 6 proc\n",
    );
}

#[test]
fn a_mapped_prefix_leaves_no_trace_of_its_name() {
    let options = Options { maps: vec!["/home/me=/srv".parse().unwrap()], directory: None };
    let lines = "7 100.0 openat(AT_FDCWD</home/me/p>, \"a\", O_RDONLY) = 3</home/me/p/a>\n\
                 7 100.1 read(3</home/me/p/a>, \"\"..., 10) = 10\n\
                 7 100.2 stat(\"/home/me/p\", {}) = 0\n\
                 7 100.3 stat(AT_FDCWD</home>, 0) = -1 EFAULT (Bad address)\n\
                 7 100.4 stat(\"me/p\", {}) = 0\n";
    let paths = ["/srv/", "/srv/p/", "/srv/p/a"];
    let events = events_with(lines, &paths, options).unwrap();
    assert_eq!(events, "L 1 4 5 a\nG 1 5 0 1\nL 1 2 3 srv\nL 1 3 4 p\nL 1 2 3 srv\nL 1 3 4 p\n");
}

#[test]
fn captures_without_what_a_trace_needs_are_refused_with_the_line() {
    for (lines, line_number, reason) in [
        ("", 0, "no system call"),
        ("7 100.0 stat(\"/a\"..., {}) = 0\n", 1, "the path `/a...` is cut off"),
        (
            "7 1.0 stat(\"/a\", {}) = 0\n7 1.0 stat(\"a\", {}) = 0\n",
            2,
            "nothing says where process 7 is",
        ),
        ("7 1.0 stat(\"/a\", {}) = 0\n7 1.0 sta", 2, "`sta` is no line of strace"),
    ] {
        let error = events_with(lines, &[], Options::default()).unwrap_err();
        assert_eq!(error.line_number, line_number, "{lines}");
        assert!(error.reason.starts_with(reason), "{}", error.reason);
    }
}

#[test]
fn what_files_contain_is_counted_and_not_kept() {
    let lines = "7 1.0 write(1</w/a>, \"secret\", 6) = 6\n";
    let import =
        import(lines.as_bytes(), tree(&["/w/", "/w/a"]), Options::default(), |_| {}).unwrap();
    assert_eq!((import.content_count, import.call_count), (1, 1));
    let mut out = Vec::new();
    import.writer.write("t", "test", &mut out).unwrap();
    assert!(!String::from_utf8(out).unwrap().contains("secret"));
}
