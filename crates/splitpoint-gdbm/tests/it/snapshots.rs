//! Snapshots, on a file system where files share blocks.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::support::{Program, Whose, original, skip, succeed, text};

/// A file system of btrfs, as long as this value lives.
struct Clones {
    folder: tempfile::TempDir,
    _image: tempfile::TempDir,
}

impl Clones {
    /// `None` if this process may not mount one, or there is no program that makes it.
    fn mount() -> Option<Self> {
        let [folder, image] = [(); 2].map(|()| tempfile::tempdir().expect("there is room"));
        let path = image.path().join("image");
        File::create(&path).and_then(|file| file.set_len(320 << 20)).expect("there is room");
        let ran = |command: &mut Command| command.output().is_ok_and(|it| it.status.success());
        let is_made = ran(Command::new("mkfs.btrfs").arg("-q").arg(&path));
        let mounted = is_made
            && ran(Command::new("mount").args(["-o", "loop"]).arg(&path).arg(folder.path()));
        mounted.then(|| Self { folder, _image: image })
    }

    fn folder(&self, name: &str) -> std::path::PathBuf {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).expect("there is room");
        folder
    }
}

impl Drop for Clones {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder.path()).status();
    }
}

/// After each sync the newer snapshot alone may be read; the one of a close has everything.
#[test]
fn snapshots_are_taken_and_chosen_as_with_the_original() {
    let program = Program::compile("snapshots");
    let Some(disk) = Clones::mount() else { return skip("btrfs needs root to mount") };
    let run = |whose, folder: &Path| text(succeed(program.command(whose).current_dir(folder)));
    let ours = run(Whose::Ours, &disk.folder("ours"));
    assert!(ours.contains("a sync: even 200, odd 400, 0, odd: ab\n"), "{ours}");
    assert_eq!(ours.matches("closed: even 400, odd 200, 0, even: abcde\n").count(), 3, "{ours}");
    if original().is_none() {
        return skip("the original is not installed");
    }
    assert_eq!(ours, run(Whose::Original, &disk.folder("original")));
}
