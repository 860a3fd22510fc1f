//! Small file systems of their own, where this process may mount one: to fill them.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// What a small disk is formatted with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileSystem {
    /// Memory.
    Tmpfs,
    /// A journaling file system in a file.
    Ext4,
}

impl FileSystem {
    pub(crate) const ALL: [Self; 2] = [Self::Tmpfs, Self::Ext4];
}

/// A mounted file system, gone with the value.
pub(crate) struct SmallDisk {
    dir: tempfile::TempDir,
    file_system: FileSystem,
    kib: u64,
}

impl SmallDisk {
    /// Mounts an empty file system. `None`, with the reason on standard error, where this process
    /// may not.
    pub(crate) fn mount(file_system: FileSystem, kib: u64) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        std::fs::create_dir(dir.path().join("disk")).expect("a directory can be made");
        let disk = Self { dir, file_system, kib };
        match disk.make().and_then(|()| disk.attach()) {
            Ok(()) => Some(disk),
            Err(reason) => {
                // Not `eprintln!`, which the test harness would hide.
                let _ = writeln!(std::io::stderr(), "skipped: no small {file_system:?}: {reason}");
                None
            }
        }
    }

    /// Returns the directory of the file system.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn make(&self) -> Result<(), String> {
        match self.file_system {
            FileSystem::Tmpfs => Ok(()),
            FileSystem::Ext4 => {
                let image = File::create(self.image()).map_err(|error| error.to_string())?;
                image.set_len(self.kib << 10).map_err(|error| error.to_string())?;
                run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(self.image()))
            }
        }
    }

    fn attach(&self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        match self.file_system {
            FileSystem::Tmpfs => {
                let size = format!("size={}k", self.kib);
                mount.args(["-t", "tmpfs", "-o", &size, "splitpoint-test"])
            }
            FileSystem::Ext4 => mount.args(["-o", "loop"]).arg(self.image()),
        };
        run(mount.arg(self.path()))
    }

    /// Changes the options of the mount.
    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        run(Command::new("mount").args(["-o", &options]).arg(self.path())).expect("a remount");
    }

    /// Unmounts the file system and mounts it again, so that what is read comes from the disk;
    /// one in memory stays as it is.
    pub(crate) fn reattach(&self) {
        if let FileSystem::Ext4 = self.file_system {
            // A process that another test has just forked has all files open until it executes.
            let unmounted = (0..100).any(|_| {
                let unmounted = run(Command::new("umount").arg(self.path())).is_ok();
                if !unmounted {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
                unmounted
            });
            assert!(unmounted, "something uses {}", self.path().display());
            self.attach().expect("what was mounted mounts again");
        }
    }

    /// Writes a file of so many bytes, fewer if the disk is full before, to be removed later.
    pub(crate) fn write_ballast(&self, bytes: usize) -> PathBuf {
        let path = self.path().join("ballast");
        let mut file = File::create(&path).expect("there is room for a name");
        for chunk in vec![1; bytes].chunks(4096) {
            if file.write_all(chunk).is_err() {
                break;
            }
        }
        // On a full disk this may fail; what has been written takes its room all the same.
        let _ = file.sync_all();
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What cannot be unmounted is gone with the machine.
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
