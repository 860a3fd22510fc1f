//! Files that were cut short: no part of one passes for the whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use splitpoint::{Error, Table, TableExt};
use splitpoint_legacy::db185::Options;
use splitpoint_legacy::{ByteOrder, Counted, Doubt, OldFile, StatedBy, open};

use crate::support::{expected, files_of, is_installed, left_out, names, unhex};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A copy of the files of a sample, or of files that a test made, to be cut shorter and shorter.
struct Copy {
    _dir: tempfile::TempDir,
    path: PathBuf,
    bytes: u64,
}

impl Copy {
    fn of_sample(name: &str) -> Self {
        Self::of(&files_of(name))
    }

    /// Copies files, of which the first has the pairs.
    fn of(files: &[PathBuf]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for file in files {
            let copy = dir.path().join(file.file_name().expect("a name"));
            std::fs::copy(file, &copy).expect("a copy");
        }
        let path = dir.path().join(files[0].file_name().expect("a name"));
        let bytes = path.metadata().expect("the copy").len();
        Self { _dir: dir, path, bytes }
    }

    /// Cuts the file with the pairs; it cannot become longer again.
    fn cut(&self, bytes: u64) {
        let file = File::options().write(true).open(&self.path).expect("the copy");
        assert!(bytes <= file.metadata().expect("the copy").len());
        file.set_len(bytes).expect("it can be cut");
    }

    /// Writes `number` at `offset`, its highest byte first.
    fn write_u32(&self, offset: usize, number: u32) {
        let mut bytes = std::fs::read(&self.path).expect("the copy");
        bytes[offset..offset + 4].copy_from_slice(&ByteOrder::Big.bytes_of_u32(number));
        std::fs::write(&self.path, bytes).expect("the copy");
    }
}

/// What is left of a file by the answers that users see.
struct Left {
    pairs: Pairs,
    scan_faults: usize,
}

fn scan(file: &OldFile) -> Left {
    let mut left = Left { pairs: Pairs::new(), scan_faults: 0 };
    for entry in file.scan().expect("a scan") {
        match entry {
            Ok(entry) => {
                let earlier = left.pairs.insert(entry.key.to_vec(), entry.value.to_vec());
                assert_eq!(earlier, None, "a key twice");
            }
            Err(Error::Corrupt { .. }) => left.scan_faults += 1,
            Err(error) => panic!("{error}"),
        }
    }
    left
}

/// Checks that a file that was cut is refused, has every pair, or says what it lacks in every
/// answer. Returns whether a pair is lost.
#[track_caller]
fn check(path: &Path, whole: &Pairs, what: &str) -> bool {
    let file = match open(path) {
        Ok(file) => file,
        Err(Error::Corrupt { .. } | Error::NotAStore { .. } | Error::Version { .. }) => {
            return true;
        }
        Err(error) => panic!("{what}: {error}"),
    };
    let left = scan(&file);
    for (key, value) in &left.pairs {
        assert_eq!(whole.get(key), Some(value), "{what}: {} is made up", key.escape_ascii());
    }
    let survey = file.survey().expect("a survey");
    assert_eq!(survey.pair_count, left.pairs.len() as u64, "{what}");
    let mut lost = whole.keys().filter(|key| !left.pairs.contains_key(*key));
    let Some(first) = lost.next() else {
        return false;
    };
    assert!(survey.loss_count > 0, "{what}: nothing is said of {}", first.escape_ascii());
    // A table that never split has one block, and nothing that states it.
    let is_only_block = survey.fault().is_some_and(|fault| fault.what == "size of a block");
    let is_numbered = survey.discrepancies().any(|one| one.stated > one.found);
    assert!(is_numbered || is_only_block, "{what}: no numbers, {:?}", survey.doubts);
    assert!(left.scan_faults > 0, "{what}: the scan does not fail");
    assert!(matches!(file.len(), Err(Error::Corrupt { .. })), "{what}: there is a length");
    // Keys that a bug of the original has altered are not found in the whole file either.
    let lost = std::iter::once(first).chain(lost.step_by(97));
    for key in lost.filter(|_| !what.contains("buggywriter") && !what.contains("unclean")) {
        let answer = file.get(key).map(|value| value.is_some());
        let is_fair = matches!(answer, Err(Error::Corrupt { .. }));
        assert!(is_fair, "{what}: {} is {answer:?}", key.escape_ascii());
    }
    true
}

/// The page or block of a sample.
fn page_bytes(name: &str) -> u64 {
    if name.contains("ndbm") && !name.contains("gdbm") || name.starts_with("sdbm") {
        return 1024;
    }
    let file = open(&files_of(name)[0]).expect("a sample");
    let parameters = file.parameters();
    let is_page = |name: &str| matches!(name, "bsize" | "db_pagesize" | "block size");
    let page = parameters.iter().find(|one| is_page(one.name)).expect("a size of pages");
    page.value.parse().expect("a number")
}

/// Returns every page boundary, the last one first, and lengths between two of every eighth.
fn lengths(bytes: u64, page_bytes: u64) -> Vec<u64> {
    let mut lengths: Vec<u64> = (0..bytes).step_by(page_bytes as usize).collect();
    for page in lengths.clone().into_iter().step_by(8) {
        let inside = [page + 1, page + page_bytes / 2 + 1, page + page_bytes - 1];
        lengths.extend(inside.into_iter().filter(|length| *length < bytes));
    }
    lengths.sort_unstable();
    lengths.reverse();
    lengths
}

fn cut_everywhere(prefix: &str) {
    let names = names().into_iter().filter(|name| name.starts_with(prefix));
    let mut cut_count = 0;
    for name in names {
        let (copy, whole, page_bytes) =
            (Copy::of_sample(&name), expected(&name), page_bytes(&name));
        let mut lost_count = 0;
        for length in lengths(copy.bytes, page_bytes) {
            copy.cut(length);
            // An empty pair of files is an empty table, which was never split.
            if length == 0 && name.ends_with("-onepage") {
                continue;
            }
            lost_count +=
                usize::from(check(&copy.path, &whole, &format!("{name} cut at {length}")));
            cut_count += 1;
        }
        assert!(lost_count > 0, "{name}: no cut loses anything");
    }
    assert!(cut_count > 10, "{prefix}: {cut_count} cuts");
}

#[test]
fn no_part_of_a_file_of_the_1991_package_passes_for_the_whole() {
    cut_everywhere("db185-");
}

#[test]
fn no_part_of_a_file_of_kerberos_passes_for_the_whole() {
    cut_everywhere("krb5db2-");
}

#[test]
fn no_part_of_a_file_of_berkeley_db_passes_for_the_whole() {
    cut_everywhere("bdb53-");
}

#[test]
fn no_part_of_a_gdbm_file_passes_for_the_whole() {
    cut_everywhere("gdbm");
}

#[test]
fn no_part_of_a_pag_passes_for_the_whole_beside_its_dir() {
    cut_everywhere("ndbm-");
    cut_everywhere("sdbm-");
}

/// Every pair is in the `.pag`; what is wrong with the `.dir` is told.
#[test]
fn a_dir_that_was_cut_hides_no_pair() {
    for name in
        names().into_iter().filter(|name| name.starts_with("ndbm") || name.starts_with("sdbm"))
    {
        let (copy, whole) = (Copy::of_sample(&name), expected(&name));
        let dir_path = copy.path.with_extension("dir");
        let dir = std::fs::read(&dir_path).unwrap();
        let used = dir.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for length in [0, 1, used / 2, used, dir.len().saturating_sub(1)] {
            std::fs::write(&dir_path, &dir[..length.min(dir.len())]).unwrap();
            let what = format!("{name}, {length} bytes of .dir");
            let file = open(&copy.path).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(scan(&file).pairs == whole, "{what}");
            let is_cut = length < dir.len();
            assert_eq!(file.survey().unwrap().doubt_count > 0, is_cut, "{what}");
        }
    }
}

/// Only the `.dir` states how many blocks there were.
#[test]
fn a_pag_without_its_dir_is_read_and_not_called_sound() {
    let copy = Copy::of_sample("sdbm-le-word");
    std::fs::remove_file(copy.path.with_extension("dir")).unwrap();
    let file = open(&copy.path).unwrap();
    assert!(scan(&file).pairs == expected("sdbm-le-word"));
    let survey = file.survey().unwrap();
    assert_eq!(survey.doubts, [Doubt::UnknownExtent]);
    assert_eq!((survey.loss_count, file.len().unwrap()), (0, survey.pair_count));
}

fn discrepancies(file: &OldFile) -> Vec<(Counted, StatedBy, u64, u64)> {
    let survey = file.survey().expect("a survey");
    let all = survey.discrepancies();
    all.map(|one| (one.counted, one.stated_by, one.stated, one.found)).collect()
}

#[test]
fn both_numbers_are_there_in_a_type() {
    for (name, bytes, stated, numbers) in [
        ("db185-le-512-small", 40 * 512, 600, (Counted::Pages, StatedBy::Header, 158, 40)),
        ("krb5db2-v3-le-512-word", 40 * 512, 400, (Counted::Pages, StatedBy::Header, 72, 40)),
        ("bdb53-le-512-word", 40 * 512, 0, (Counted::Pages, StatedBy::Header, 134, 40)),
        ("ndbm-le-word", 60 * 1024, 0, (Counted::Blocks, StatedBy::Dir, 121, 60)),
        ("sdbm-ruby-word", 60 * 1024 + 1, 0, (Counted::Blocks, StatedBy::Dir, 64, 60)),
        ("gdbm-std-4096", 150_000, 0, (Counted::Bytes, StatedBy::Header, 208_896, 150_000)),
    ] {
        let copy = Copy::of_sample(name);
        copy.cut(bytes);
        let file = open(&copy.path).unwrap();
        let found = file.survey().unwrap().pair_count;
        let mut expected = vec![numbers];
        if stated > 0 {
            expected.insert(0, (Counted::Records, StatedBy::Header, stated, found));
        }
        let mut numbers = discrepancies(&file);
        // Those buckets of gdbm that are left count pairs that are not.
        numbers.retain(|(_, by, ..)| *by != StatedBy::Buckets);
        assert_eq!(numbers, expected, "{name}");
        // Where a bucket is missing, that is known at once.
        let known = file.discrepancy().map(|one| one.counted);
        assert_eq!(
            known,
            (!name.starts_with("gdbm")).then_some(expected.pop().unwrap().0),
            "{name}"
        );
    }
}

#[test]
fn a_count_that_is_too_high_is_told_and_one_that_is_too_low_is_not() {
    for (name, offset) in [("db185-le-512-small", 56), ("krb5db2-v3-le-512-word", 44)] {
        let (copy, whole) = (Copy::of_sample(name), expected(name));
        let count = whole.len() as u64;
        // The original takes pairs from its count that it never added: it may be below 0.
        for stated in [0, count as u32 - 1, u32::MAX - 3] {
            copy.write_u32(offset, stated);
            assert_eq!(open(&copy.path).unwrap().survey().unwrap().doubts, [], "{name} {stated}");
        }
        copy.write_u32(offset, 700);
        let file = open(&copy.path).unwrap();
        let expected = (Counted::Records, StatedBy::Header, 700, count);
        assert_eq!(discrepancies(&file), [expected], "{name}");
        assert_eq!(
            file.survey().unwrap().doubts[0].to_string(),
            format!("the header states 700 records, found {count}")
        );
        // All pages are there: a scan has every pair, and the table has a length.
        let left = scan(&file);
        assert!(left.pairs == whole && left.scan_faults == 0, "{name}");
        assert_eq!((file.len().unwrap(), file.discrepancy()), (count, None), "{name}");
    }
}

/// A page that was overwritten by zeros looks like an empty one.
#[test]
fn pages_that_are_lost_in_the_middle_are_missed_by_the_count() {
    let (copy, whole) = (Copy::of_sample("db185-le-512-small"), expected("db185-le-512-small"));
    let mut bytes = std::fs::read(&copy.path).unwrap();
    bytes[10 * 512..20 * 512].fill(0);
    std::fs::write(&copy.path, bytes).unwrap();
    let file = open(&copy.path).unwrap();
    let found = scan(&file).pairs.len() as u64;
    assert!(found < whole.len() as u64);
    assert_eq!(discrepancies(&file), [(Counted::Records, StatedBy::Header, 600, found)]);
}

/// The header of each is older than its pages, as a crash leaves it.
#[test]
fn a_file_that_was_not_closed_is_told_by_what_its_header_does_not_know() {
    let unclean = open(&files_of("db185-unclean-le-1024")[0]).unwrap();
    let expected = [
        (Counted::Records, StatedBy::Header, 300, 284),
        (Counted::Pages, StatedBy::Header, 37, 128),
    ];
    assert_eq!(discrepancies(&unclean), expected);
    // It was cut as well: to as many pages as its header knows, and to fewer.
    let copy = Copy::of_sample("db185-unclean-le-1024");
    copy.cut(37 * 1024);
    assert_eq!(discrepancies(&open(&copy.path).unwrap()), expected[..1]);
    copy.cut(30 * 1024);
    let numbers = discrepancies(&open(&copy.path).unwrap());
    assert_eq!(numbers[1], (Counted::Pages, StatedBy::Header, 37, 30));

    for (name, page) in [
        ("db185-glibc-le-512-word", 80),
        ("krb5db2-v3-le-512-word", 72),
        ("bdb53-le-512-word", 134),
    ] {
        let copy = Copy::of_sample(name);
        let mut bytes = std::fs::read(&copy.path).unwrap();
        // Page 1 is the first bucket.
        bytes.extend_from_within(512..1024);
        // A copy of a page has nothing that the table does not have.
        std::fs::write(&copy.path, &bytes).unwrap();
        assert_eq!(discrepancies(&open(&copy.path).unwrap()), [], "{name}");
        // The last byte of a page is that of its first key.
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&copy.path, &bytes).unwrap();
        let longer = (Counted::Pages, StatedBy::Header, page, page + 1);
        assert_eq!(discrepancies(&open(&copy.path).unwrap()), [longer], "{name}");
    }
    let copy = Copy::of_sample("gdbm-std-512");
    let mut bytes = std::fs::read(&copy.path).unwrap();
    bytes.push(b'x');
    std::fs::write(&copy.path, &bytes).unwrap();
    let longer = (Counted::Bytes, StatedBy::Header, copy.bytes, copy.bytes + 1);
    assert_eq!(discrepancies(&open(&copy.path).unwrap()), [longer]);
}

/// Space at the end that holds nothing: free overflow pages, the unused rest of the last block of
/// an old gdbm, and zeros that a tape or a disk has added.
#[test]
fn an_end_without_pairs_is_no_loss() {
    for (name, bytes) in [
        ("db185-be-4096-many", 58 * 4096),
        ("db185-empty", 4 * 512),
        ("gdbm-std-empty", 3 * 4096),
        ("db185-le-512-small", 159 * 512),
        ("krb5db2-v3-le-512-word", 80 * 512),
        ("bdb53-le-512-word", 140 * 512),
        ("gdbm-std-512", 84_000),
    ] {
        let copy = Copy::of_sample(name);
        File::options().write(true).open(&copy.path).unwrap().set_len(bytes).unwrap();
        let file = open(&copy.path).unwrap();
        assert_eq!(file.survey().unwrap().doubts, [], "{name}");
        assert!(scan(&file).pairs == expected(name), "{name}");
    }
}

/// The next sync would write over what says that pages are missing.
#[test]
fn a_file_of_the_1991_package_that_was_cut_is_not_opened_to_write() {
    for (name, pages) in [("db185-le-512-small", 40), ("db185-le-512-small", 120)] {
        let copy = Copy::of_sample(name);
        copy.cut(pages * 512);
        let before = std::fs::read(&copy.path).unwrap();
        let error = Options::new().open(&copy.path).map(drop).unwrap_err();
        let is_told = matches!(error, Error::Corrupt { what: "number of pages", found, .. } if found == pages);
        assert!(is_told, "{pages}: {error}");
        assert!(std::fs::read(&copy.path).unwrap() == before);
        // To read, it is a table that fails where pages are missing.
        let table = Options::new().read_only().open(&copy.path).unwrap();
        let (found, faults): (Vec<_>, Vec<_>) = table.scan().unwrap().partition(Result::is_ok);
        assert!(!found.is_empty() && !faults.is_empty(), "{pages}");
        assert!(matches!(table.len(), Err(Error::Corrupt { .. })), "{pages}");
        assert!(!table.check().unwrap().is_clean(), "{pages}");
        let whole = expected(name);
        let is_denied = |key: &Vec<u8>| matches!(table.get(key), Ok(None));
        assert!(!whole.keys().any(is_denied), "{pages}: a key is denied");
    }
}

/// Stores and deletes in a new file of a module of Perl, and prints what is in it at the end.
const PERL: &str = r#"
    use strict; use Fcntl;
    my ($module, $path, $count) = @ARGV;
    eval "require $module; 1" or exit 9;
    srand $count;
    my @mode = $module eq 'GDBM_File' ? (GDBM_File::GDBM_WRCREAT(), 0644)
        : (O_RDWR | O_CREAT, 0644, $module eq 'DB_File' ? $DB_File::DB_HASH : ());
    tie my %table, $module, $path, @mode or die "tie: $!";
    for (1 .. $count) {
        my $key = 'key ' . int rand $count;
        if (rand() < 0.3) { delete $table{$key} } else { $table{$key} = 'v' x int rand 60 }
    }
    print map { unpack('H*', $_) . ' ' . unpack('H*', $table{$_}) . "\n" } keys %table;
    untie %table;
"#;

/// Makes a file by a module of Perl. Returns what is in it, or `None` if there is no such module.
fn by_perl(module: &str, path: &Path, count: u32) -> Option<Pairs> {
    let mut command = Command::new("perl");
    command.args(["-e", PERL, module]).arg(path).arg(count.to_string());
    let output = command.output().expect("perl runs");
    if output.status.code() == Some(9) {
        left_out(&format!("perl has no module {module}; Debian has it in package perl"));
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("hex");
    let pairs = text.lines().map(|line| {
        let (key, value) = line.split_once(' ').expect("key and value");
        (unhex(key), unhex(value))
    });
    Some(pairs.collect())
}

/// Files as they are written today, and a part of each.
#[test]
fn what_the_original_programs_write_is_sound_and_a_part_of_it_is_not() {
    if !is_installed("perl", "perl") {
        return;
    }
    for (module, ending, page_bytes) in [
        ("SDBM_File", "pag", 1024),
        ("DB_File", "", 4096),
        ("GDBM_File", "", 4096),
        ("NDBM_File", "pag", 4096),
    ] {
        for count in [1, 40, 1000, 4000] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("made");
            let Some(whole) = by_perl(module, &path, count) else { continue };
            let what = format!("{module} {count}");
            let path = path.with_extension(ending);
            let file = open(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(scan(&file).pairs == whole, "{what}");
            assert_eq!(file.survey().unwrap().doubts, [], "{what}");
            let mut files = vec![path.clone(), path.with_extension("dir")];
            files.retain(|path| path.exists());
            let copy = Copy::of(&files);
            let pages = copy.bytes.div_ceil(page_bytes);
            for page in (1..pages).rev().step_by(pages as usize / 8 + 1) {
                copy.cut(page * page_bytes);
                check(&copy.path, &whole, &format!("{what} cut to {page} pages"));
            }
        }
    }
}
