//! Sources of Debian's packages, fetched when a test runs. The tests of `splitpoint-db185` include this
//! file too.

use std::fs;
use std::path::Path;
use std::process::Command;

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{words}", output.status);
}

/// Points a run of `apt-get` at lists of sources of its own.
fn apt_get(folder: &Path) -> Command {
    let mut command = Command::new("apt-get");
    command.current_dir(folder).arg("-q");
    for (option, path) in [
        ("Dir::Etc::sourcelist", "none"),
        ("Dir::Etc::sourceparts", "parts"),
        ("Dir::State::lists", "lists"),
    ] {
        command.arg("-o").arg(format!("{option}={}", folder.join(path).display()));
    }
    command
}

/// Fetches a module and what its tests share, of the source of the interpreter, from where the machine
/// gets its packages, or returns `None` where there is no list of that, or nothing can be fetched.
pub(crate) fn fetch_perl_source(folder: &Path, module: &str) -> Option<()> {
    let list = fs::read_to_string("/etc/apt/sources.list.d/debian.sources").ok()?;
    for name in ["parts", "lists/partial"] {
        fs::create_dir_all(folder.join(name)).expect("there is room");
    }
    // Updates may have gone from the server that the list names.
    let first = list.split("\n\n").next().unwrap_or_default();
    let sources = first.replace("Types: deb\n", "Types: deb-src\n");
    fs::write(folder.join("parts/debian.sources"), sources).expect("there is room");
    // Without a network there are no sources.
    let has_sources = [vec!["update"], vec!["source", "--download-only", "perl"]]
        .into_iter()
        .all(|words| apt_get(folder).args(words).output().is_ok_and(|it| it.status.success()));
    if !has_sources {
        return None;
    }
    let archive = fs::read_dir(folder).expect("the folder is ours").find_map(|entry| {
        let path = entry.expect("the folder is ours").path();
        path.to_string_lossy().ends_with(".orig.tar.xz").then_some(path)
    });
    let mut tar = Command::new("tar");
    tar.arg("xJf").arg(archive.expect("a source has an archive")).arg("--strip-components=1");
    tar.arg("--wildcards")
        .arg(format!("*/{module}/*"))
        .args(["*/t/lib/*", "*/lib/dbm_filter_util.pl"]);
    run(tar.current_dir(folder));
    Some(())
}
