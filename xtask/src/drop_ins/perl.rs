//! Perl's own tests of its modules `NDBM_File`, `ODBM_File`, `GDBM_File` and `DB_File`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Form, Library, Suites};
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
    library: Library,
}

const COMPAT: &str = "libgdbm_compat.so.4";

const MODULES: [Module; 3] = [
    Module {
        name: "NDBM_File",
        tests: &["ndbm"],
        library: Library { name: "ndbm", file: COMPAT, function: "dbm_open" },
    },
    Module {
        name: "ODBM_File",
        tests: &["odbm"],
        library: Library { name: "dbm", file: COMPAT, function: "dbminit" },
    },
    Module {
        name: "GDBM_File",
        tests: &["gdbm", "dump", "fatal", "opt", "snapshot", "count"],
        library: Library { name: "gdbm", file: "libgdbm.so.6", function: "gdbm_open" },
    },
];

const DB185: Library =
    Library { name: "db1", file: "libsplitpoint_db185.so.0", function: "dbopen" };

/// The test of `DB_File` that prints four pairs and expects the order of db 1.85's hash function.
const OF_THE_ORDER: &str = "not ok 117";

impl Suites<'_> {
    /// Runs all of them; returns how many claims hold on ours.
    pub(super) fn perl(&self) -> Result<u64, Failure> {
        let source = self.source("perl", SOURCES)?;
        let mut count = self.db_file(&source)?;
        for module in &MODULES {
            let at = source.join("ext").join(module.name);
            self.make(
                &at,
                &["Makefile.PL".into(), self.header_option(), self.link_option(module)],
            )?;
            for test in module.tests {
                let run = |form| {
                    let own = (form == Form::Relinked).then_some("-Mblib");
                    self.claims(&at, own, test, form, module.library)
                };
                let expected = run(Form::Original)?;
                for form in [Form::Swapped, Form::Preloaded, Form::Relinked] {
                    let claims = run(form)?;
                    same(&format!("{} {test}", module.name), form, &claims, &expected, None)?;
                    count += claims.passed;
                }
            }
        }
        Ok(count)
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
    fn db_file(&self, source: &Path) -> Result<u64, Failure> {
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
        let mut perl = command(self.root, "perl", &[]);
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
    failed: Vec<String>,
}

impl Claims {
    fn of(said: &str) -> Self {
        let passed = said.lines().filter(|line| line.starts_with("ok ")).count() as u64;
        let failed = said.lines().filter(|line| line.starts_with("not ok"));
        Self { passed, failed: failed.map(str::to_owned).collect() }
    }
}

/// Requires that what holds on the original holds on ours, but for one claim at most.
fn same(
    what: &str,
    form: Form,
    claims: &Claims,
    expected: &Claims,
    other: Option<&str>,
) -> Result<(), Failure> {
    let is_other = |line: &String| other.is_some_and(|other| line.starts_with(other));
    let count = claims.passed + claims.failed.len() as u64;
    if expected.passed == 0 || count != expected.passed || !claims.failed.iter().all(is_other) {
        return Err(format!("{what}, {form:?}: {claims:?}; on the original {expected:?}"));
    }
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
        let none = Claims::of("");
        assert!(same("", Form::Swapped, &none, &none, None).is_err());
    }
}
