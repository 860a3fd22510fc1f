//! Full disks, file systems that are only read, few descriptors, threads, signals.

use std::path::Path;
use std::process::Command;

use crate::memcheck::found_by_valgrind;
use crate::support::{Program, Whose, bind, has_program, skip, succeed};

fn run(program: &Program, what: &str, name: &Path) {
    let said = program.run(Whose::Ours, &[what.as_ref(), name.as_os_str()]);
    // What leaves no line has ended before.
    assert_eq!(said, if what == "left" { "" } else { "done\n" }, "{what}");
}

#[test]
fn few_descriptors_threads_and_a_handler_that_leaves_a_call_are_survived() {
    let program = Program::compile("corners");
    for what in ["descriptors", "threads", "left call"] {
        run(&program, what, Path::new(&format!("{what}.db")));
    }
}

/// A file system of 6 MiB in memory, as long as this value lives.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` if this process may not mount one.
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().expect("there is room");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(dir.path());
        mount.output().is_ok_and(|output| output.status.success()).then(|| Self(dir))
    }

    fn remount_to_read(&self) {
        succeed(Command::new("mount").args(["-o", "remount,ro"]).arg(self.0.path()));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_fails_one_store_and_a_disk_that_is_only_read_is_read() {
    let program = Program::compile("corners");
    let Some(disk) = SmallDisk::mount() else {
        return skip("a small file system needs root to mount");
    };
    let [full, closed, left] =
        ["full.db", "closed.db", "left.db"].map(|name| disk.0.path().join(name));
    run(&program, "full", &full);
    std::fs::remove_file(&full).unwrap();
    run(&program, "fill", &closed);
    run(&program, "left", &left);
    disk.remount_to_read();
    run(&program, "read-only", &closed);
    run(&program, "read-only", &left);
}

/// A handle whose call was left cannot be freed.
#[test]
fn the_corners_touch_nothing_that_was_freed() {
    if !has_program("valgrind") {
        return skip("valgrind is not installed");
    }
    let program = Program::compile("corners");
    for (what, leaks) in [("threads", "full"), ("left call", "no"), ("fill", "full")] {
        let mut command = Command::new("timeout");
        command.args(["300", "valgrind", "-q", "--error-exitcode=9"]);
        command.arg(format!("--leak-check={leaks}")).arg("--errors-for-leak-kinds=definite");
        command.arg(program.folder.path().join("corners.bin")).args([what, "checked.db"]);
        command.current_dir(program.folder.path());
        bind(&mut command, Whose::Ours);
        assert_eq!(found_by_valgrind(&succeed(&mut command).stderr), "", "{what}");
    }
}
