//! Small file systems, if this process may mount them: to fill them, and to take them away.
//!
//! They are in memory and in private mounts, so a killed test leaves nothing behind, neither mounts
//! nor loop devices.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::FallocateFlags;
use rustix::mount::UnmountFlags;

use crate::mounts;

/// The format of a small disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// Memory.
    Tmpfs,
    /// Has a journal, and writes in place.
    Ext4,
    /// Has a journal, writes in place, and may share blocks between files.
    Xfs,
    /// Never writes in place, and may share blocks between files.
    Btrfs,
}

impl FileSystem {
    /// Those that fit into any size.
    pub(crate) const SMALL: [Self; 2] = [Self::Tmpfs, Self::Ext4];
    /// Those that have a device.
    pub(crate) const ON_DEVICES: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];
    /// Those whose device can be pulled out.
    pub(crate) const PULLABLE: [Self; 2] = [Self::Ext4, Self::Xfs];

    /// Returns the smallest size that its tools support, with some room.
    pub(crate) fn kib_min(self) -> u64 {
        match self {
            // On btrfs a store requires some free space.
            Self::Xfs | Self::Btrfs => 300 << 10,
            Self::Tmpfs | Self::Ext4 => 128 << 10,
        }
    }

    /// Makes an image of an empty file system.
    pub(crate) fn format(self, image: &Path, kib: u64) -> Result<(), String> {
        let file = File::create(image).map_err(|error| error.to_string())?;
        file.set_len(kib << 10).map_err(|error| error.to_string())?;
        let mut format = Command::new(format!("mkfs.{}", self.name()));
        format.arg("-q");
        match self {
            // Leave nothing for the kernel to write later.
            Self::Ext4 => format.args(["-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
            Self::Xfs => format.args(["-m", "reflink=1"]),
            Self::Btrfs | Self::Tmpfs => &mut format,
        };
        run(format.arg(image))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

/// A mounted file system, unmounted on drop.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    dir: tempfile::TempDir,
    file_system: FileSystem,
    kib: u64,
}

impl SmallDisk {
    /// Mounts an empty file system; `None` if this process may not, with the reason on standard
    /// error.
    pub(crate) fn mount(file_system: FileSystem, kib: u64) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        for name in ["disk", "memory"] {
            std::fs::create_dir(dir.path().join(name)).expect("a directory can be made");
        }
        let disk = Self { dir, file_system, kib };
        match disk.make().and_then(|()| disk.try_attach()) {
            Ok(()) => Some(disk),
            Err(reason) => {
                // Not `eprintln!`, which the test harness would hide.
                let _ = writeln!(io::stderr(), "skipped: no small {file_system:?}: {reason}");
                None
            }
        }
    }

    pub(crate) fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// Returns the directory of the file system.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// Returns a directory outside of the file system, which outlives it.
    pub(crate) fn outside(&self) -> PathBuf {
        self.dir.path().to_path_buf()
    }

    fn memory(&self) -> PathBuf {
        self.dir.path().join("memory")
    }

    fn image(&self) -> PathBuf {
        self.memory().join("image")
    }

    fn make(&self) -> Result<(), String> {
        mounts::make_private().map_err(|error| format!("mounts of its own: {error}"))?;
        if let FileSystem::Tmpfs = self.file_system {
            return Ok(());
        }
        mount_memory(&self.memory(), self.kib + 1024)?;
        self.file_system.format(&self.image(), self.kib)
    }

    fn try_attach(&self) -> Result<(), String> {
        if let FileSystem::Tmpfs = self.file_system {
            return mount_memory(&self.path(), self.kib);
        }
        let mut mount = Command::new("mount");
        // The loop device is released with the mount.
        mount.args(["-o", "loop", "-t", self.file_system.name()]).arg(self.image());
        run(mount.arg(self.path()))
    }

    /// Mounts the file system that [`detach`](Self::detach) has unmounted.
    pub(crate) fn attach(&self) {
        self.try_attach().expect("what was mounted mounts again");
    }

    /// Changes the options of the mount.
    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        run(Command::new("mount").args(["-o", &options]).arg(self.path())).expect("a remount");
    }

    /// Mounts the file system at a second place too, while `what` runs with that.
    pub(crate) fn with_second_mount<T>(&self, what: impl FnOnce(PathBuf) -> T) -> T {
        let other = self.dir.path().join("other");
        std::fs::create_dir(&other).expect("a directory can be made");
        rustix::mount::mount_bind(self.path(), &other).expect("the first mount was allowed");
        let result = what(other.clone());
        unmount(&other);
        result
    }

    /// Has the tool of btrfs do something with subvolumes.
    pub(crate) fn subvolume(&self, command: &str, paths: &[&Path]) {
        assert_eq!(self.file_system, FileSystem::Btrfs, "no other has them");
        run(Command::new("btrfs").args(["-q", "subvolume", command]).args(paths))
            .expect("a subvolume");
    }

    /// Unmounts the file system.
    pub(crate) fn detach(&self) {
        unmount(&self.path());
    }

    /// Unmounts and mounts the file system, so that reads come from the disk; one in memory stays
    /// mounted.
    pub(crate) fn reattach(&self) {
        if self.file_system != FileSystem::Tmpfs {
            self.detach();
            self.attach();
        }
    }

    /// Writes the whole file system to its disk, as the kernel does now and then.
    pub(crate) fn write_back(&self) {
        let directory = File::open(self.path()).expect("it is mounted");
        rustix::fs::syncfs(directory).expect("nothing fails here");
    }

    /// Takes the disk away from under the file system: nothing more is written to it.
    pub(crate) fn pull(&self) {
        mounts::shut_down(&self.path()).expect("the file system can be stopped");
    }

    /// Fills the file system until only about `left_bytes` are free, for data and in all.
    pub(crate) fn fill(&self, left_bytes: u64) {
        let ballast = File::create(self.ballast()).expect("there is room for a name");
        let mut end = 0;
        // Concurrent writes may free space.
        for _ in 0..3 {
            for step in [16 << 20, 1 << 20, 64 << 10, 4 << 10] {
                while rustix::fs::fallocate(&ballast, FallocateFlags::empty(), end, step).is_ok() {
                    end += step;
                }
            }
            self.write_back();
        }
        ballast.set_len(end.saturating_sub(left_bytes)).expect("a file can be cut");
        self.write_back();
    }

    /// Undoes [`fill`](Self::fill) and [`write_ballast`](Self::write_ballast).
    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.ballast()).expect("the disk was filled");
        self.write_back();
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Writes a file of `bytes`, or fewer if the disk fills up, to be removed later.
    pub(crate) fn write_ballast(&self, bytes: usize) -> PathBuf {
        let path = self.ballast();
        let mut file = File::create(&path).expect("there is room for a name");
        for chunk in vec![1; bytes].chunks(4096) {
            if file.write_all(chunk).is_err() {
                break;
            }
        }
        // This may fail on a full disk; the part that was written takes its space anyway.
        let _ = file.sync_all();
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A mount that stays busy goes with the last process of the test.
        for path in [self.path(), self.memory()] {
            let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
        }
    }
}

/// Mounts a file system in memory.
pub(crate) fn mount_memory(path: &Path, kib: u64) -> Result<(), String> {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "splitpoint-test"]);
    run(mount.arg(path))
}

/// Unmounts what is mounted at `path`.
pub(crate) fn unmount(path: &Path) {
    // A process that another test has just forked has all files open until it executes.
    let is_unmounted = (0..100).any(|_| {
        let result = rustix::mount::unmount(path, UnmountFlags::empty());
        if result.is_err() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        result.is_ok()
    });
    assert!(is_unmounted, "something uses {}", path.display());
}

/// Runs a program, and returns what it said if it failed.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
