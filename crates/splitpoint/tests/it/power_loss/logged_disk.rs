//! A mounted file system on a logged device, and the images that a power loss leaves of it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;

use super::logged_file::{Event, FILE_NAME, Log};
use crate::mounts;
use crate::small_disk::{FileSystem, mount_memory, run, unmount};
use crate::support::{HANG, Rng};

/// Name of the environment variable with the directories of a server.
pub(super) const SERVER_ENV: &str = "SPLITPOINT_TEST_LOGGED_DEVICE";
const MEMORY_KIB: u64 = 4 << 20;
const BLOCK_BYTES: usize = 4096;
/// Bytes that a device writes as a unit.
const SECTOR_BYTES: usize = 512;
/// Offsets of the superblocks of ext4, XFS and btrfs. They are read before any journal and have a
/// checksum each: a file system assumes that such a block is written as a unit.
const SUPERBLOCKS: [u64; 4] = [0, 1024, 64 << 10, 64 << 20];

/// The writes without a later flush that a power loss leaves on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Survivors {
    None,
    All,
    /// The first ones, and some sectors of the last of them.
    First,
    /// Any of them, each complete.
    Writes,
    /// Any sectors of any of them.
    Sectors,
}

impl Survivors {
    pub(super) const ALL: [Self; 5] =
        [Self::None, Self::All, Self::First, Self::Writes, Self::Sectors];
}

/// A mounted file system whose device keeps a log. Dropping it removes everything.
#[derive(Debug)]
pub(super) struct LoggedDisk {
    dir: tempfile::TempDir,
    file_system: FileSystem,
    kib: u64,
    /// The blocks of the device before the file system was mounted that are not zero.
    formatted: Vec<(u64, Vec<u8>)>,
    server: Option<Child>,
    loop_device: Option<String>,
}

impl LoggedDisk {
    /// Mounts an empty file system; `None` if this process may not, with the reason on standard
    /// error.
    pub(super) fn mount(file_system: FileSystem) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let kib = file_system.kib_min();
        let formatted = Vec::new();
        let mut disk = Self { dir, file_system, kib, formatted, server: None, loop_device: None };
        match disk.try_mount() {
            Ok(()) => Some(disk),
            Err(reason) => {
                // Not `eprintln!`, which the test harness would hide.
                let _ = writeln!(std::io::stderr(), "skipped: no logged {file_system:?}: {reason}");
                None
            }
        }
    }

    fn try_mount(&mut self) -> Result<(), String> {
        mounts::make_private().map_err(|error| format!("mounts of its own: {error}"))?;
        for directory in [self.memory(), self.served(), self.path(), self.restored()] {
            fs::create_dir(directory).map_err(|error| error.to_string())?;
        }
        mount_memory(&self.memory(), MEMORY_KIB)?;
        let content = self.memory().join("content");
        self.file_system.format(&content, self.kib)?;
        self.formatted = blocks(&content);
        self.serve(&content)?;

        let mut set_up = Command::new("losetup");
        set_up.args(["--find", "--show", "--direct-io=on"]).arg(self.served().join(FILE_NAME));
        let output = set_up.output().map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_string());
        }
        let device = String::from_utf8_lossy(&output.stdout).trim().to_string();
        let mounted = run(Command::new("mount")
            .args(["-t", self.file_system.name(), &device])
            .arg(self.path()));
        // From now on it is released with the mount, or at once if there is none.
        run(Command::new("losetup").args(["--detach", &device]))?;
        self.loop_device = Some(device);
        mounted
    }

    /// Starts the process that serves the device, and waits until it does.
    fn serve(&mut self, content: &Path) -> Result<(), String> {
        let (served, log) = (self.served(), self.log_path());
        let said = self.memory().join("server.log");
        let output = File::create(&said).map_err(|error| error.to_string())?;
        let arguments = format!("{}|{}|{}", served.display(), content.display(), log.display());
        let server = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--exact", "power_loss::process_serves_a_logged_device", "--nocapture"])
            .env(SERVER_ENV, arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(|error| error.to_string())?)
            .stderr(output)
            .spawn()
            .map_err(|error| error.to_string())?;
        let server = self.server.insert(server);
        let begun = Instant::now();
        while !served.join(FILE_NAME).exists() {
            let ended = server.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || begun.elapsed() > HANG {
                return Err(fs::read_to_string(&said).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Returns the directory of the file system.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// Returns a directory in memory, which outlives the file system.
    pub(super) fn memory(&self) -> PathBuf {
        self.dir.path().join("memory")
    }

    /// Returns the file that is the device.
    fn served(&self) -> PathBuf {
        self.dir.path().join("served")
    }

    /// Returns the directory where the file system after a power loss is mounted.
    fn restored(&self) -> PathBuf {
        self.dir.path().join("restored")
    }

    pub(super) fn log_path(&self) -> PathBuf {
        self.memory().join("device.log")
    }

    /// Returns whether the loop device passes on its requests unchanged.
    pub(super) fn is_direct(&self) -> bool {
        let device = self.loop_device.as_deref().expect("it is mounted");
        let name = device.trim_start_matches("/dev/");
        fs::read_to_string(format!("/sys/block/{name}/loop/dio")).is_ok_and(|dio| dio == "1\n")
    }

    /// Writes the whole file system to its device, as the kernel does now and then.
    pub(super) fn write_back(&self) {
        let directory = File::open(self.path()).expect("it is mounted");
        rustix::fs::syncfs(directory).expect("nothing fails here");
    }

    /// Unmounts the file system and ends the log.
    pub(super) fn end(&mut self) -> Log {
        unmount(&self.path());
        unmount(&self.served());
        let status = self.server.take().expect("it is mounted").wait();
        assert!(status.expect("a child can be waited for").success(), "the device failed");
        Log::read(&self.log_path())
    }

    /// Writes an image of the device after a power loss at a position of the log: all writes before
    /// the last flush until then, and some of those after it.
    pub(super) fn write_image(
        &self,
        log: &Log,
        position: u64,
        survivors: Survivors,
        rng: &mut Rng,
    ) -> PathBuf {
        let path = self.memory().join("image");
        let image = File::create(&path).expect("there is room");
        image.set_len(self.kib << 10).expect("there is room");
        let write =
            |offset, bytes: &[u8]| image.write_all_at(bytes, offset).expect("there is room");
        for (offset, block) in &self.formatted {
            write(*offset, block);
        }
        let mut unflushed = Vec::new();
        for (event, _) in log.events().take_while(|(_, end)| *end <= position) {
            match event {
                Event::Write { offset, bytes } => unflushed.push((offset, bytes)),
                Event::Flush => {
                    unflushed.drain(..).for_each(|(offset, bytes)| write(offset, bytes));
                }
            }
        }
        let first_count = rng.index(unflushed.len() + 1);
        for (number, (offset, bytes)) in unflushed.into_iter().enumerate() {
            let may_be_torn = !SUPERBLOCKS.contains(&offset);
            let (is_whole, is_torn) = match survivors {
                Survivors::None => (false, false),
                Survivors::All => (true, false),
                Survivors::First => (number < first_count, number == first_count && may_be_torn),
                Survivors::Sectors if may_be_torn => (false, true),
                Survivors::Writes | Survivors::Sectors => (rng.below(2) == 0, false),
            };
            if is_whole {
                write(offset, bytes);
            } else if is_torn {
                let sectors = (offset..).step_by(SECTOR_BYTES).zip(bytes.chunks(SECTOR_BYTES));
                sectors
                    .filter(|_| rng.below(2) == 0)
                    .for_each(|(offset, sector)| write(offset, sector));
            }
        }
        path
    }

    /// Mounts an image, on the loop device that the file system had if that is free, and runs
    /// `check` on its directory.
    pub(super) fn with_image(&self, image: &Path, check: impl FnOnce(&Path)) {
        let device = self.loop_device.as_deref().expect("it was mounted");
        let mount = |options: &str| {
            run(Command::new("mount")
                .args(["-t", self.file_system.name(), "-o", options])
                .args([image, &self.restored()]))
        };
        mount(&format!("loop={device}"))
            .or_else(|_| mount("loop"))
            .expect("what a power loss leaves is a file system");
        check(&self.restored());
        unmount(&self.restored());
    }
}

impl Drop for LoggedDisk {
    fn drop(&mut self) {
        // A mount that stays busy goes with the last process of the test.
        for path in [self.restored(), self.path(), self.served(), self.memory()] {
            let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
        }
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Returns the blocks of a file that are not zero, with their offsets.
pub(super) fn blocks(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let file = File::open(path).expect("it was just made");
    let mut blocks = Vec::new();
    let mut block = vec![0; BLOCK_BYTES];
    for offset in (0..file.metadata().expect("it is open").len()).step_by(BLOCK_BYTES) {
        file.read_exact_at(&mut block, offset).expect("it has whole blocks");
        if block.iter().any(|&byte| byte != 0) {
            blocks.push((offset, block.clone()));
        }
    }
    blocks
}
