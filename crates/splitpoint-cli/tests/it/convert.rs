//! `splitpoint convert`: to stores and to files of db 1.85, and what can go wrong on the way.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::db185::dump_of_original;
use crate::old_files::{lines, with_samples};
use crate::sandbox::{Outcome, Sandbox};

/// Makes a directory with a store `big.spt` of so many records.
fn with_big_store(records: u32) -> Sandbox {
    let sandbox = Sandbox::new();
    let input: String =
        (0..records).fold(String::new(), |text, number| text + &format!("key {number}\tvalue\n"));
    sandbox.write("input", input.as_bytes());
    sandbox.run(&["load", "-q", "big.spt", "input", "--format", "tsv"]).check(0, "", "");
    sandbox
}

#[track_caller]
fn assert_nothing_made(sandbox: &Sandbox, names: &[&str]) {
    for name in names {
        for ending in ["", ".convert-in-progress"] {
            let path = sandbox.path(&format!("{name}{ending}"));
            assert!(path.symlink_metadata().is_err(), "{} was left behind", path.display());
        }
    }
}

/// The program of the original package reads what is made here, byte for byte.
#[test]
fn a_file_of_db_185_is_made_that_the_original_program_reads() {
    for name in ["gdbm-be-std-word.gdbm", "bdb53-be-4096-big.bdb53", "db185-be-512-small.db"] {
        let sandbox = with_samples(&[name]);
        let expected = lines(&sandbox.run(&["dump", name]).stdout);
        for (dest, args) in [
            ("made.db", &["convert", "-q", name, "made.db", "--format", "db185"][..]),
            ("big.db", &["convert", "-q", name, "db185:big.db?bsize=512&ffactor=8&lorder=4321"]),
        ] {
            sandbox.run(args).check(0, "", "");
            let identity = sandbox.run(&["identify", dest]).text();
            assert!(identity.starts_with(&format!("{dest}: db 1.85 hash")), "{identity}");
            assert!(lines(&sandbox.run(&["dump", dest]).stdout) == expected, "{name}");
            if let Some(theirs) = dump_of_original(&sandbox, dest) {
                assert!(theirs == expected, "{name}: the original program reads other pairs");
            }
        }
        // And back into a store.
        sandbox.run(&["convert", "-q", "made.db", "again.spt"]).check(0, "", "");
        assert!(lines(&sandbox.run(&["dump", "again.spt"]).stdout) == expected, "{name}");
    }
}

#[test]
fn the_parameters_of_a_file_of_db_185_stand_behind_its_name() {
    let sandbox = Sandbox::with_words();
    let dest = "db185:words.db?bsize=1024&lorder=4321";
    sandbox.run(&["convert", "words.spt", dest]).check(
        0,
        "",
        "splitpoint: converted 3 records of `words.spt` (Splitpoint store) to `words.db`\n",
    );
    let identity = "words.db: db 1.85 hash, version 2, pages of 1024, big-endian\n";
    sandbox.run(&["identify", "words.db"]).check(0, identity, "");
    let other = ["convert", "words.spt", "db185:b.db", "--format", "splitpoint"];
    sandbox.run(&other).check_error(2, "`db185:b.db` is not a store");
    let bad = ["convert", "words.spt", "db185:b.db?pages=1"];
    assert_eq!(sandbox.run(&bad).exit, 2);
    assert_nothing_made(&sandbox, &["b.db"]);
}

/// A big pair of a format without limits can need more overflow pages than a file can have.
#[test]
fn what_does_not_fit_the_format_is_listed_and_the_rest_carried() {
    let sandbox = Sandbox::with_words();
    let value = vec![b'v'; 8 << 20];
    sandbox.run_with(&["put", "-q", "words.spt", "large"], &value).check(0, "", "");
    let outcome = sandbox.run(&["convert", "words.spt", "db185:words.db?bsize=64"]);
    assert_eq!(outcome.exit, 1, "{}", outcome.stderr);
    assert!(outcome.text().starts_with("skipped: key `large`: "), "{}", outcome.text());
    assert!(outcome.stderr.contains("converted 3 of 4 records of"), "{}", outcome.stderr);
    let hint = "hint: a store has no such limit: splitpoint convert words.spt NEW.spt\n";
    assert!(outcome.stderr.ends_with(hint), "{}", outcome.stderr);
    sandbox.run(&["count", "words.db"]).check(0, "3\n", "");
}

/// The same file by its own name, by a link and by a second name is one that exists.
#[test]
fn what_exists_is_not_replaced_and_the_source_least_of_all() {
    let sandbox = with_samples(&["gdbm-std-bin.gdbm"]);
    let before = sandbox.read("gdbm-std-bin.gdbm");
    std::os::unix::fs::symlink("gdbm-std-bin.gdbm", sandbox.path("symlink")).unwrap();
    std::os::unix::fs::symlink("nowhere", sandbox.path("dangling")).unwrap();
    std::fs::hard_link(sandbox.path("gdbm-std-bin.gdbm"), sandbox.path("second")).unwrap();
    sandbox.write("other", b"other");
    for dest in ["gdbm-std-bin.gdbm", "symlink", "dangling", "second", "other"] {
        for format in ["splitpoint", "db185"] {
            let outcome = sandbox.run(&["convert", "gdbm-std-bin.gdbm", dest, "--format", format]);
            let what = match dest {
                "dangling" => "is a symbolic link to `nowhere`, which does not exist",
                "other" => "already exists",
                _ => "is the file to convert itself",
            };
            outcome.check_error(3, &format!("`{dest}` {what}"));
        }
        assert_nothing_made(&sandbox, &[&format!("{dest}.convert-in-progress")]);
    }
    assert!(sandbox.read("gdbm-std-bin.gdbm") == before && sandbox.read("other") == b"other");
    assert!(!sandbox.path("nowhere").exists());
}

/// A disk that is full, as `ulimit -f` makes it, leaves nothing behind and the source as it was.
#[test]
fn a_full_disk_leaves_nothing_behind() {
    let sandbox = with_big_store(60_000);
    let before = sandbox.read("big.spt");
    for args in ["big.spt made.spt", "big.spt made.db --format db185", "--in-place big.spt"] {
        let program = sandbox.program(&[]).get_program().to_string_lossy().into_owned();
        let script = format!("ulimit -f 1000; exec '{program}' convert -q {args}");
        let output = sandbox.command(Path::new("/bin/sh"), &["-c", &script]).output().unwrap();
        let outcome = Outcome::of(&output);
        assert_eq!(outcome.exit, 5, "{args}: {}", outcome.stderr);
        let hint = "hint: no file was created; the source is unchanged\n";
        assert!(outcome.stderr.ends_with(hint), "{args}: {}", outcome.stderr);
        assert_nothing_made(&sandbox, &["made.spt", "made.db", "big.spt.new", "big.spt.old"]);
        assert!(sandbox.read("big.spt") == before, "{args}");
    }
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let sandbox = with_big_store(300_000);
    for (dest, format) in [("made.spt", "splitpoint"), ("made.db", "db185")] {
        let partial = sandbox.path(&format!("{dest}.convert-in-progress"));
        // It may be done before the signal comes; in another test it is not.
        for _ in 0..3 {
            let _ = std::fs::remove_file(sandbox.path(dest));
            let mut child = sandbox
                .program(&["convert", "-q", "big.spt", dest, "--format", format])
                .stderr(Stdio::null())
                .spawn()
                .expect("the program can be run");
            while !partial.exists() && child.try_wait().expect("it can be asked").is_none() {
                std::thread::yield_now();
            }
            let _ = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
            let code = child.wait().expect("the program ends").code();
            assert!(matches!(code, Some(0 | 130)), "{dest}: {code:?}");
            assert!(!partial.exists(), "{dest}: a part is left");
            assert_eq!(sandbox.path(dest).exists(), code == Some(0), "{dest}");
        }
    }
}

#[test]
fn a_conversion_in_place_follows_a_link_and_can_be_to_db_185() {
    let sandbox = with_samples(&["gdbm-std-bin.gdbm"]);
    let old = sandbox.read("gdbm-std-bin.gdbm");
    let expected = lines(&sandbox.run(&["dump", "gdbm-std-bin.gdbm"]).stdout);
    std::fs::create_dir(sandbox.path("dir")).unwrap();
    std::fs::rename(sandbox.path("gdbm-std-bin.gdbm"), sandbox.path("dir/data")).unwrap();
    std::os::unix::fs::symlink("dir/data", sandbox.path("link")).unwrap();
    sandbox.run(&["convert", "-q", "--in-place", "link", "--format", "db185"]).check(0, "", "");
    assert!(sandbox.path("link").symlink_metadata().unwrap().is_symlink());
    assert!(sandbox.read("dir/data.old") == old);
    assert!(sandbox.run(&["identify", "dir/data"]).text().contains("db 1.85 hash"));
    assert_eq!(lines(&sandbox.run(&["dump", "link"]).stdout), expected);
    assert_nothing_made(&sandbox, &["link.new", "link.old", "dir/data.new"]);
}

/// The programs that had the file open the store next. They look at its first four bytes, and a pair has two files.
#[test]
fn a_conversion_in_place_leaves_what_programs_for_gdbm_and_ndbm_look_for() {
    let sandbox = with_samples(&["gdbm-std-bin.gdbm", "ndbm-le-word.pag", "ndbm-le-word.dir"]);
    let old_dir = sandbox.read("ndbm-le-word.dir");
    for file in ["gdbm-std-bin.gdbm", "ndbm-le-word.pag"] {
        sandbox.run(&["convert", "-q", "--in-place", file]).check(0, "", "");
        assert_eq!(sandbox.read(file)[..4], 0x1357_9acf_u32.to_le_bytes(), "{file}");
        assert!(sandbox.run(&["identify", file]).text().contains("Splitpoint store"));
    }
    assert_eq!(sandbox.read("ndbm-le-word.dir"), b"GDBM\0\0\0\x01\0\0\0\x17\0\0\0\0");
    assert!(sandbox.read("ndbm-le-word.dir.old") == old_dir);
    assert_nothing_made(&sandbox, &["ndbm-le-word.dir.new", "ndbm-le-word.pag.new"]);
}

/// Makes a pair in another directory, and links to both files.
fn with_linked_pair() -> (Sandbox, BTreeSet<String>) {
    let pair = ["sdbm-be-bin.pag", "sdbm-be-bin.dir"];
    let sandbox = with_samples(&pair);
    let expected = lines(&sandbox.run(&["dump", "sdbm-be-bin"]).stdout);
    std::fs::create_dir(sandbox.path("dir")).expect("nothing is in the way");
    for (file, name) in pair.iter().zip(["mail.pag", "mail.dir"]) {
        std::fs::rename(sandbox.path(file), sandbox.path(&format!("dir/{name}")))
            .expect("nothing is in the way");
        std::os::unix::fs::symlink(format!("dir/{name}"), sandbox.path(name))
            .expect("nothing is in the way");
    }
    (sandbox, expected)
}

/// The name of a pair leads to the store, which is where the files were, and the links to them are gone.
#[test]
fn a_conversion_in_place_of_a_name_without_room_for_the_suffix_changes_nothing() {
    let sandbox = with_samples(&["gdbm-std-bin.gdbm"]);
    let name = "a".repeat(253);
    std::fs::rename(sandbox.path("gdbm-std-bin.gdbm"), sandbox.path(&name)).unwrap();
    sandbox.run(&["convert", "--in-place", &name]).check(
        3,
        "",
        &format!(
            "splitpoint: error: cannot create `{name}.new`: File name too long (os error 36)\n\
             hint: most file systems take names of up to 255 bytes, suffixes such as `.old` \
             included; choose a shorter name\n"
        ),
    );
    let outcome = sandbox.run(&["convert", "-q", &name, "short.spt"]);
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
}

#[test]
fn a_conversion_in_place_of_linked_files_leaves_a_link_to_the_store() {
    for source in ["mail", "mail.pag"] {
        let (sandbox, expected) = with_linked_pair();
        let old = sandbox.read("mail.pag");
        let outcome = sandbox.run(&["convert", "--in-place", source]);
        assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
        let [kept, dir] =
            ["mail.pag.old", "mail.dir.old"].map(|name| sandbox.path("dir").join(name));
        let kept_in_words = format!(
            "to `{source}`; the old files are now `{}` and `{}`",
            kept.canonicalize().unwrap().display(),
            dir.canonicalize().unwrap().display()
        );
        assert!(outcome.stderr.contains(&kept_in_words), "{}", outcome.stderr);
        assert!(sandbox.read("dir/mail.pag.old") == old);
        let link = std::fs::read_link(sandbox.path(source)).unwrap();
        assert_eq!(link, Path::new("dir").join(source));
        assert!(sandbox.run(&["identify", source]).text().contains("Splitpoint store"));
        assert!(lines(&sandbox.run(&["dump", source]).stdout) == expected);
        let others: Vec<_> = ["mail", "mail.pag", "mail.dir", "mail.new", "mail.pag.new"]
            .into_iter()
            .filter(|name| *name != source)
            .collect();
        assert_nothing_made(&sandbox, &others);
        let there: Vec<_> = others.iter().map(|name| format!("dir/{name}")).collect();
        assert_nothing_made(&sandbox, &there.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// The stem of a pair may be the name of something else where the links lead.
#[test]
fn a_conversion_in_place_of_linked_files_replaces_nothing_else() {
    let (sandbox, _) = with_linked_pair();
    sandbox.write("dir/mail", b"other");
    let before = ["mail.pag", "mail.dir"].map(|name| sandbox.read(name));
    let outcome = sandbox.run(&["convert", "--in-place", "mail"]);
    assert_eq!(outcome.exit, 3, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("dir/mail` already exists"), "{}", outcome.stderr);
    assert!(sandbox.read("dir/mail") == b"other");
    assert!(["mail.pag", "mail.dir"].map(|name| sandbox.read(name)) == before);
    assert_nothing_made(&sandbox, &["mail", "mail.new", "dir/mail.new", "dir/mail.pag.old"]);
}

/// The second file of a pair cannot be kept: then neither is, and nothing has changed.
#[test]
fn a_conversion_in_place_that_cannot_keep_both_files_changes_nothing() {
    let pair = ["sdbm-be-bin.pag", "sdbm-be-bin.dir"];
    let sandbox = with_samples(&pair);
    let before: Vec<_> = pair.iter().map(|file| sandbox.read(file)).collect();
    sandbox.write("sdbm-be-bin.dir.old", b"from before");
    let outcome = sandbox.run(&["convert", "-q", "--in-place", "sdbm-be-bin"]);
    assert_eq!(outcome.exit, 5, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("sdbm-be-bin.dir.old"), "{}", outcome.stderr);
    let after: Vec<_> = pair.iter().map(|file| sandbox.read(file)).collect();
    assert!(before == after);
    assert_nothing_made(&sandbox, &["sdbm-be-bin", "sdbm-be-bin.new", "sdbm-be-bin.pag.old"]);
}

#[test]
fn a_store_that_is_damaged_is_not_carried_as_if_it_were_sound() {
    let sandbox = Sandbox::with_words();
    let mut bytes = sandbox.read("words.spt");
    let at = bytes.windows(6).position(|window| window == b"banana").expect("a record");
    bytes[at] ^= 1;
    sandbox.write("words.spt", &bytes);
    let outcome = sandbox.run(&["convert", "words.spt", "new.spt"]);
    assert_eq!(outcome.exit, 4, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("splitpoint repair words.spt"), "{}", outcome.stderr);
    assert_nothing_made(&sandbox, &["new.spt"]);
}

/// A crash in a split leaves a pair in the old bucket and in the new one.
#[test]
fn a_key_that_is_there_twice_is_listed_and_carried_once() {
    let sandbox = Sandbox::new();
    let url = "db185:twice.db?bsize=512&nelem=2&ffactor=1000";
    for key in ["a", "b"] {
        sandbox.run(&["put", "-q", url, key, key]).check(0, "", "");
    }
    // The two keys are in the two buckets; each page is copied over the other's free half.
    let mut bytes = sandbox.read("twice.db");
    let (first, second) = (bytes[512..1024].to_vec(), bytes[1024..1536].to_vec());
    assert!(first[0] == 2 && second[0] == 2, "one pair in each bucket");
    let pair = if first[511] == b'a' { &first } else { &second };
    bytes[512..1024].copy_from_slice(pair);
    bytes[1024..1536].copy_from_slice(pair);
    sandbox.write("twice.db", &bytes);
    let outcome = sandbox.run(&["convert", "twice.db", "new.spt"]);
    assert_eq!(outcome.exit, 1, "{}", outcome.stderr);
    assert_eq!(outcome.text(), "skipped: key `a` is there twice\n");
    sandbox.run(&["dump", "new.spt", "--format", "tsv"]).check(0, "a\ta\n", "");
}

/// What a private file holds stays private in what is made of it.
#[test]
fn a_new_file_gets_the_permissions_of_its_source() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::with_words();
    let set = |file: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(sandbox.path(file), mode).unwrap();
    };
    let mode =
        |file: &str| std::fs::metadata(sandbox.path(file)).unwrap().permissions().mode() & 0o777;
    sandbox.run(&["convert", "-q", "words.spt", "db185:old.db"]).check(0, "", "");
    // The owner may write to the new file; the sandbox's umask withholds nothing from these.
    for (given, wanted) in [(0o600, 0o600), (0o400, 0o600), (0o644, 0o644), (0o755, 0o755)] {
        set("words.spt", given);
        set("old.db", given);
        for args in [
            &["convert", "old.db", "new"][..],
            &["convert", "words.spt", "new"],
            &["convert", "words.spt", "db185:new"],
            &["convert", "words.spt", "new", "--format", "cdb"],
            &["salvage", "old.db", "-o", "new"],
            &["repair", "words.spt", "-o", "new"],
        ] {
            let outcome = sandbox.run(args);
            assert_eq!(outcome.exit, 0, "{args:?}: {}", outcome.stderr);
            assert_eq!(mode("new"), wanted, "{args:?} of {given:o}");
            std::fs::remove_file(sandbox.path("new")).unwrap();
        }
    }
    set("old.db", 0o600);
    sandbox.run(&["convert", "-q", "--in-place", "old.db"]).check(0, "", "");
    assert_eq!((mode("old.db"), mode("old.db.old")), (0o600, 0o600));
}

#[test]
fn a_file_that_cannot_be_created_is_told_by_the_name_that_the_user_gave() {
    let sandbox = Sandbox::with_words();
    for format in ["splitpoint", "db185", "cdb"] {
        sandbox.run(&["convert", "words.spt", "no/dir/new", "--format", format]).check(
            3,
            "",
            "splitpoint: error: cannot create `no/dir/new`: No such file or directory (os error 2)\n\
             hint: the directory does not exist; create it first, or correct the path\n",
        );
    }
}
