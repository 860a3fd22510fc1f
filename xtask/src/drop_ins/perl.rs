//! Perl's own tests of its modules `NDBM_File`, `ODBM_File`, `GDBM_File` and `DB_File`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Form, Library, Stop, Suites, require};
use crate::process::{command, output};
use crate::{Failure, console};

/// What is unpacked of the source of Perl.
pub(super) const SOURCES: &[&str] = &[
    "*/ext/NDBM_File",
    "*/ext/ODBM_File",
    "*/ext/GDBM_File",
    "*/cpan/DB_File",
    "*/t/lib/dbmt_common.pl",
    "*/t/lib/common.pl",
    "*/lib",
];

/// A module of which Debian has one that was compiled for the original.
struct Module {
    name: &'static str,
    tests: &'static [&'static str],
    /// Fewer claims than that are there in no version that we know.
    claims_min: u64,
    library: Library,
}

const COMPAT: &str = "libgdbm_compat.so.4";

const MODULES: [Module; 3] = [
    Module {
        name: "NDBM_File",
        tests: &["ndbm"],
        claims_min: 131,
        library: Library { name: "ndbm", file: COMPAT, function: "dbm_open" },
    },
    Module {
        name: "ODBM_File",
        tests: &["odbm"],
        claims_min: 131,
        library: Library { name: "dbm", file: COMPAT, function: "dbminit" },
    },
    Module {
        name: "GDBM_File",
        tests: &["gdbm", "dump", "fatal", "opt", "snapshot", "count"],
        claims_min: 178,
        library: Library { name: "gdbm", file: "libgdbm.so.6", function: "gdbm_open" },
    },
];

const DB185: Library =
    Library { name: "db1", file: "libsplitpoint_db185.so.0", function: "dbopen" };

/// The test of `DB_File` that prints four pairs and expects the order of db 1.85's hash function.
const OF_THE_ORDER: &str = "not ok 117";

/// Claims of the test of `DB_File`, at least.
const DB_FILE_CLAIMS_MIN: u64 = 166;

impl Suites<'_> {
    /// Runs all of them; returns how many claims hold on ours.
    pub(super) fn perl(&self) -> Result<u64, Stop> {
        require(&["perl", "make"])?;
        if let Some(obstacle) = self.perl_lacks() {
            return Err(Stop::Obstacle(obstacle));
        }
        let source = self.source("perl", SOURCES)?;
        let mut count = self.db_file(&source)?;
        for module in &MODULES {
            let at = source.join("ext").join(module.name);
            self.make(
                &at,
                &["Makefile.PL".into(), self.header_option(), self.link_option(module)],
            )?;
            let mut claim_count = 0;
            for test in module.tests {
                let run = |form| {
                    let own = (form == Form::Relinked).then_some("-Mblib");
                    self.claims(&at, own, test, form, module.library)
                };
                let expected = run(Form::Original)?;
                claim_count += expected.count();
                for form in [Form::Swapped, Form::Preloaded, Form::Relinked] {
                    let claims = run(form)?;
                    same(&format!("{} {test}", module.name), form, &claims, &expected, None)?;
                    count += claims.passed;
                }
            }
            require_claims(module.name, claim_count, module.claims_min)?;
        }
        Ok(count)
    }

    /// Returns what the perl of this machine has not, of what its suites need.
    fn perl_lacks(&self) -> Option<String> {
        let has = |modules: &str, test: &str| {
            let mut perl = command(self.root, "perl", &[]);
            output(perl.args(modules.split(' ')).args(["-e", test])).is_ok()
        };
        if !has("-MNDBM_File -MODBM_File -MGDBM_File", "1") {
            return Some("perl has no NDBM_File, ODBM_File and GDBM_File".to_owned());
        }
        let has_headers = has(
            "-MConfig -MDevel::PPPort -MExtUtils::Constant",
            "exit !-e \"$Config{archlibexp}/CORE/perl.h\"",
        );
        (!has_headers).then(|| "perl has no headers, or no Devel::PPPort".to_owned())
    }

    fn header_option(&self) -> String {
        format!("INC=-I{}", self.prefix.join("include/splitpoint").display())
    }

    fn link_option(&self, module: &Module) -> String {
        let link = self.prefix.join("lib/splitpoint/link");
        format!("LIBS=-L{} -l{}", link.display(), module.library.name)
    }

    /// Debian's `DB_File` calls other functions of Berkeley DB, so both are compiled: with its `db_185.h`,
    /// and with our `db.h`.
    fn db_file(&self, source: &Path) -> Result<u64, Stop> {
        let headers = self.package("libdb5.3-dev")?.join("usr/include");
        let at = source.join("cpan/DB_File");
        let port = "Devel::PPPort::WriteFile('ppport.h')";
        let original = Library { function: "__db185_open", ..DB185 };
        let mut count = 0;
        let mut expected = None;
        for (library, forms, include, lib, name, older) in [
            (
                original,
                &[Form::Original, Form::Preloaded][..],
                headers,
                PathBuf::from("/usr/lib"),
                "-ldb-5.3",
                "1",
            ),
            (
                DB185,
                &[Form::Relinked],
                self.prefix.join("include/splitpoint"),
                self.prefix.join("lib/splitpoint/link"),
                "-ldb1",
                "0",
            ),
        ] {
            let config = format!(
                "INCLUDE = {}\nLIB = {}\nDBNAME = {name}\nPREFIX = size_t\nHASH = u_int32_t\nCOMPAT185 = {older}\n",
                include.display(),
                lib.display()
            );
            fs::write(at.join("config.in"), config)
                .map_err(|cause| format!("`{}`: {cause}", at.display()))?;
            let _ = output(command(self.root, "make", &["clean"]).current_dir(&at));
            let mut write = command(self.root, "perl", &["-MDevel::PPPort", "-e", port]);
            output(write.current_dir(&at))?;
            self.make(&at, &["Makefile.PL".into()])?;
            for &form in forms {
                for format in ["native", "db185"] {
                    let mut perl = self.perl_at(&at, Some("-Mblib"), "db-hash");
                    perl.env("SPLITPOINT_NEW_FILES", format);
                    let claims = Claims::of(&self.proved(perl, form, library)?);
                    let expected = expected.get_or_insert_with(|| claims.clone());
                    require_claims("DB_File", expected.count(), DB_FILE_CLAIMS_MIN)?;
                    let other = (format == "native").then_some(OF_THE_ORDER);
                    same("DB_File db-hash", form, &claims, expected, other)?;
                    count += if form == Form::Original { 0 } else { claims.passed };
                }
            }
        }
        Ok(count)
    }

    /// Compiles a module.
    fn make(&self, at: &Path, arguments: &[String]) -> Result<(), Failure> {
        output(command(self.root, "perl", &[]).args(arguments).current_dir(at))?;
        output(command(self.root, "make", &[]).current_dir(at)).map(drop)
    }

    fn perl_at(&self, at: &Path, own: Option<&str>, test: &str) -> Command {
        let mut perl = self.bounded("perl");
        perl.args(own).args(["-I../../lib", "-I../../t/lib"]).arg(format!("t/{test}.t"));
        perl.current_dir(at);
        perl
    }

    fn claims(
        &self,
        at: &Path,
        own: Option<&str>,
        test: &str,
        form: Form,
        library: Library,
    ) -> Result<Claims, Failure> {
        let said = self.proved(self.perl_at(at, own, test), form, library)?;
        Ok(Claims::of(&said))
    }
}

/// What a test says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claims {
    passed: u64,
    /// Claims of which the test says that it has not looked.
    skipped: u64,
    failed: Vec<String>,
}

impl Claims {
    fn of(said: &str) -> Self {
        let is_skipped = |line: &&str| line.to_lowercase().contains("# skip");
        let (skipped, passed): (Vec<&str>, Vec<&str>) =
            said.lines().filter(|line| line.starts_with("ok ")).partition(is_skipped);
        let failed = said.lines().filter(|line| line.starts_with("not ok"));
        Self {
            passed: passed.len() as u64,
            skipped: skipped.len() as u64,
            failed: failed.map(str::to_owned).collect(),
        }
    }

    fn count(&self) -> u64 {
        self.passed + self.skipped + self.failed.len() as u64
    }
}

fn require_claims(what: &str, count: u64, min: u64) -> Result<(), Failure> {
    if count < min { Err(format!("{what}: {count} claims, not {min} or more")) } else { Ok(()) }
}

/// Requires that what holds on the original holds on ours, but for one claim at most, and that no more is
/// skipped.
fn same(
    what: &str,
    form: Form,
    claims: &Claims,
    expected: &Claims,
    other: Option<&str>,
) -> Result<(), Failure> {
    let is_other = |line: &String| other.is_some_and(|other| line.starts_with(other));
    let is_same = claims.count() == expected.count() && claims.skipped == expected.skipped;
    let fails = !expected.failed.is_empty() || !claims.failed.iter().all(is_other);
    if expected.passed == 0 || !is_same || fails {
        return Err(format!("{what}, {form:?}: {claims:?}; on the original {expected:?}"));
    }
    let count = claims.count() - claims.skipped;
    console::say(&format!("{what}, {form:?}: {} of {count} claims", claims.passed));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_is_missing_or_fails_is_a_failure() {
        let [all, few, wrong] =
            ["ok 1\nok 2\n", "ok 1\n", "ok 1\nnot ok 2 - order\n"].map(Claims::of);
        let check = |claims, other| same("", Form::Swapped, claims, &all, other).is_ok();
        assert!(check(&all, None) && !check(&few, None) && !check(&wrong, None));
        assert!(check(&wrong, Some("not ok 2")) && !check(&wrong, Some("not ok 1")));
        let skipped = Claims::of("ok 1\nok 2 # SKIP no such file\n");
        assert!(!check(&skipped, None) && skipped.passed == 1);
        assert!(same("", Form::Swapped, &skipped, &skipped, None).is_ok());
        assert!(require_claims("", all.count(), 2).is_ok() && require_claims("", 2, 3).is_err());
        let none = Claims::of("");
        assert!(same("", Form::Swapped, &none, &none, None).is_err());
    }
}
