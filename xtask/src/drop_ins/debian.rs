//! Packages of Debian and their sources, fetched when the suites run. Nothing of the system changes.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Stop, Suites};
use crate::Failure;
use crate::process::{command, run as run_program};

/// Where the system has its packages from; their sources are beside them.
pub(super) const LIST: &str = "/etc/apt/sources.list.d/debian.sources";

impl Suites<'_> {
    /// Fetches a source package, unpacks what matches the patterns, and returns the directory.
    pub(super) fn source(&self, package: &str, wanted: &[&str]) -> Result<PathBuf, Stop> {
        self.fetched("sources", package, &wanted.join("\n"), |directory, packages| {
            self.apt_get(packages, &["source", "--download-only", package])?;
            let archive = find(packages, ".orig.tar")?;
            let mut tar = command(self.root, "tar", &["-x", "--strip-components=1", "--wildcards"]);
            tar.arg("-C").arg(directory).arg("-f").arg(&archive).args(wanted);
            Ok(run_program(&mut tar)?)
        })
    }

    /// Fetches a package, unpacks it, and returns the directory.
    pub(super) fn package(&self, package: &str) -> Result<PathBuf, Stop> {
        self.fetched("unpacked", package, "", |directory, packages| {
            self.apt_get(packages, &["download", package])?;
            let mut unpack = command(self.root, "dpkg", &["-x"]);
            Ok(run_program(unpack.arg(find(packages, ".deb")?).arg(directory))?)
        })
    }

    /// Returns the directory of what `fetch` brings, which it is not asked for again: `complete` in it has
    /// what was `wanted` of the package.
    fn fetched(
        &self,
        kind: &str,
        package: &str,
        wanted: &str,
        fetch: impl FnOnce(&Path, &Path) -> Result<(), Stop>,
    ) -> Result<PathBuf, Stop> {
        let directory = self.place.join(kind).join(package);
        let done = directory.join("complete");
        if fs::read_to_string(&done).is_ok_and(|had| had == wanted) {
            return Ok(directory);
        }
        let packages = self.place.join("packages").join(kind).join(package);
        for path in [&directory, &packages, &self.place.join("lists/partial")] {
            fs::create_dir_all(path).map_err(|cause| format!("`{}`: {cause}", path.display()))?;
        }
        self.apt_get(&packages, &["update"])?;
        fetch(&directory, &packages)?;
        fs::write(&done, wanted).map_err(|cause| format!("`{}`: {cause}", done.display()))?;
        Ok(directory)
    }

    /// Calls apt-get with lists of its own. That it fails is no failure of ours.
    fn apt_get(&self, directory: &Path, arguments: &[&str]) -> Result<(), Stop> {
        let sources = self.place.join("debian.sources");
        let packages = fs::read_to_string(LIST).map_err(|cause| format!("`{LIST}`: {cause}"))?;
        // Updates for security may have gone from the server that the list names.
        let release = packages.split("\n\n").next().unwrap_or_default();
        fs::write(&sources, release.replace("Types: deb\n", "Types: deb deb-src\n"))
            .map_err(|cause| format!("`{}`: {cause}", sources.display()))?;
        let mut apt = command(self.root, "apt-get", &["--quiet"]);
        apt.current_dir(directory);
        for (name, path) in [
            ("Dir::Etc::sourcelist", sources),
            ("Dir::Etc::sourceparts", self.place.join("none")),
            ("Dir::State::lists", self.place.join("lists")),
        ] {
            apt.arg("-o").arg(format!("{name}={}", path.display()));
        }
        // The user that apt changes to may not reach this directory.
        run_program(apt.args(["-o", "APT::Sandbox::User=root"]).args(arguments))
            .map_err(Stop::Obstacle)
    }
}

/// Returns the file in a directory whose name has this in it.
fn find(directory: &Path, part: &str) -> Result<PathBuf, Failure> {
    let mut entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let found = entries.find(|entry| entry.file_name().to_string_lossy().contains(part));
    let found = found.map(|entry| entry.path());
    found.ok_or_else(|| format!("nothing came to `{}` that has `{part}`", directory.display()))
}
