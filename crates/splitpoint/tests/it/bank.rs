//! A bank whose tellers are processes that are killed: transfers are transactions, and every snapshot of
//! any process is exact, account by account.
//!
//! What a transfer does is determined by its teller and its number, and each teller counts its own in the
//! store. So the counts in a snapshot say what every account in it must hold. A file that the processes
//! share, outside the store, says how many transfers each teller has begun, and how many have returned.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use splitpoint::{Db, Durability, Options, Result, Sharing, Snapshot, Transaction};

use crate::processes::{Process, compacting, say};
use crate::support::{Content, Rng, rounds, seed};

const TELLERS: u64 = 4;
const ACCOUNTS: u64 = 12;
const KINDS: [Sharing; 2] = [Sharing::Shared, Sharing::PerCall];

fn teller_key(teller: u64) -> Vec<u8> {
    format!("teller {teller}").into_bytes()
}

/// The key of a receipt, which is there after every other transfer.
fn receipt_key(teller: u64) -> Vec<u8> {
    format!("receipt of teller {teller}").into_bytes()
}

fn account_key(account: u64) -> Vec<u8> {
    format!("account {account}").into_bytes()
}

/// Returns a number as a value, whose length and last bytes it determines.
fn value_of(number: i64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    // Now and then one that has a segment of its own.
    let filler_bytes = if number % 61 == 0 { 9_000 } else { number.unsigned_abs() as usize % 150 };
    value.resize(8 + filler_bytes, number as u8);
    value
}

fn number_in(value: &[u8]) -> i64 {
    i64::from_le_bytes(*value.first_chunk().expect("a number"))
}

/// Returns what a transfer adds to accounts: one to another, or all of them to one.
fn transfer(teller: u64, number: u64) -> Vec<(u64, i64)> {
    let mut rng = Rng::new(teller << 32 ^ number);
    let to = rng.below(ACCOUNTS);
    let others = (1..ACCOUNTS).map(|i| (to + i) % ACCOUNTS);
    let paying: Vec<u64> = if rng.below(10) == 0 {
        others.collect()
    } else {
        others.skip(rng.index(ACCOUNTS as usize - 1)).take(1).collect()
    };
    let amount = 1 + rng.below(100).cast_signed();
    let mut added: Vec<_> = paying.iter().map(|&account| (account, -amount)).collect();
    added.push((to, amount * (paying.len() as u64).cast_signed()));
    added
}

/// What the store must hold after some transfers of each teller.
#[derive(Clone, Default)]
struct Books {
    counts: [u64; TELLERS as usize],
    balances: [i64; ACCOUNTS as usize],
}

impl Books {
    /// Adds the transfers of a teller up to a number.
    fn advance(&mut self, teller: u64, count: u64) {
        for number in self.counts[teller as usize] + 1..=count {
            for (account, amount) in transfer(teller, number) {
                self.balances[account as usize] += amount;
            }
            self.counts[teller as usize] = number;
        }
    }

    fn content(&self) -> Content {
        let mut content = Content::new();
        for (account, &balance) in (0..).zip(&self.balances) {
            content.insert(account_key(account), value_of(balance));
        }
        for (teller, &count) in (0..).zip(&self.counts) {
            content.insert(teller_key(teller), value_of(count.cast_signed()));
            if !count.is_multiple_of(2) {
                content.insert(receipt_key(teller), value_of(count.cast_signed()));
            }
        }
        content
    }

    /// Checks that a snapshot is exact. It must have what had returned before it was taken, nothing that
    /// was not begun, and what an earlier one had.
    fn audit(&mut self, db: &Db, oracle: &Oracle) -> std::result::Result<Content, String> {
        let returned = oracle.words(Word::Returned);
        let snapshot = db.snapshot().map_err(|error| error.to_string())?;
        let begun = oracle.words(Word::Begun);
        for teller in 0..TELLERS {
            let at = teller as usize;
            let value = snapshot.get(teller_key(teller)).map_err(|error| error.to_string())?;
            let count = value.map_or(0, |value| number_in(&value).cast_unsigned());
            let least = returned[at].max(self.counts[at]);
            if !(least..=begun[at]).contains(&count) {
                return Err(format!(
                    "teller {teller} has made {count} and not one of {least}..={}",
                    begun[at]
                ));
            }
            self.advance(teller, count);
        }
        let content = self.content();
        shows(&snapshot, &content).map(|()| content)
    }
}

/// Checks that a snapshot shows exactly a content.
fn shows(snapshot: &Snapshot<'_>, expected: &Content) -> std::result::Result<(), String> {
    let total = |content: &Content| -> i64 {
        let accounts = content.iter().filter(|(key, _)| key.starts_with(b"account"));
        accounts.map(|(_, value)| number_in(value)).sum()
    };
    let mut found = Content::new();
    for entry in snapshot.scan().map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        if found.insert(entry.key.to_vec(), entry.value.to_vec()).is_some() {
            return Err(format!("a scan returned {:?} twice", entry.key));
        }
    }
    let keys: Vec<_> = (0..ACCOUNTS)
        .map(account_key)
        .chain((0..TELLERS).flat_map(|teller| [teller_key(teller), receipt_key(teller)]))
        .collect();
    let values = snapshot.get_many(&keys).map_err(|error| error.to_string())?;
    for (key, value) in keys.iter().zip(&values) {
        if value.as_deref() != found.get(key).map(Vec::as_slice) {
            return Err(format!("a scan and a get differ at {}", key.escape_ascii()));
        }
    }
    match expected.iter().find(|(key, value)| found.get(*key) != Some(value)) {
        _ if total(&found) != 0 => Err(format!("the total is {} and not 0", total(&found))),
        Some((key, _)) => Err(format!("{} has another value", key.escape_ascii())),
        None if found.len() != expected.len() || snapshot.len() != found.len() as u64 => {
            Err(format!("{} keys, {} by a scan", snapshot.len(), found.len()))
        }
        None => Ok(()),
    }
}

/// The words of a teller.
#[derive(Clone, Copy)]
enum Word {
    /// The number of its last transfer that was begun.
    Begun,
    /// The number of its last transfer that has returned.
    Returned,
}

/// What the tellers have begun and made, in a file that outlives them.
struct Oracle(File);

impl Oracle {
    fn path(store: &Path) -> PathBuf {
        store.with_extension("oracle")
    }

    fn create(store: &Path) -> Self {
        fs::write(Self::path(store), [0; 16 * TELLERS as usize]).expect("a directory of ours");
        Self::open(store)
    }

    fn open(store: &Path) -> Self {
        let file = File::options().read(true).write(true).open(Self::path(store));
        Self(file.expect("it was created"))
    }

    fn set(&self, word: Word, teller: u64, number: u64) {
        let at = 16 * teller + 8 * word as u64;
        self.0.write_all_at(&number.to_le_bytes(), at).expect("there is room");
    }

    fn words(&self, word: Word) -> [u64; TELLERS as usize] {
        std::array::from_fn(|teller| {
            let mut bytes = [0; 8];
            let at = 16 * teller as u64 + 8 * word as u64;
            self.0.read_exact_at(&mut bytes, at).expect("it has its size");
            u64::from_le_bytes(bytes)
        })
    }
}

fn open_bank(path: &Path) -> Oracle {
    let db = compacting().open(path).expect("it opens");
    db.put_many(&Books::default().content()).expect("it is written");
    db.close().expect("it closes");
    Oracle::create(path)
}

/// Makes the next transfer of a teller, in a transaction; returns its number.
fn make_next(tx: &mut Transaction<'_>, teller: u64, oracle: &Oracle) -> Result<u64> {
    let number = number_in(&tx.get(teller_key(teller))?.expect("it has a count")) as u64 + 1;
    oracle.set(Word::Begun, teller, number);
    if number.is_multiple_of(16) {
        let mut total = 0;
        for entry in tx.scan()? {
            let entry = entry?;
            total += if entry.key.starts_with(b"account") { number_in(&entry.value) } else { 0 };
        }
        assert_eq!(total, 0, "in a transaction");
    }
    for (account, amount) in transfer(teller, number) {
        let balance = number_in(&tx.get(account_key(account))?.expect("an account"));
        tx.put(account_key(account), value_of(balance + amount))?;
    }
    let count = value_of(number.cast_signed());
    if number.is_multiple_of(2) {
        tx.delete(receipt_key(teller))?;
    } else {
        tx.put(receipt_key(teller), &count)?;
    }
    tx.put(teller_key(teller), &count)?;
    Ok(number)
}

fn tellers_options(rng: &mut Rng) -> Options {
    let durability = match rng.below(8) {
        0 => Durability::Sync,
        1..4 => Durability::Async,
        _ => Durability::Buffered,
    };
    compacting().sharing(KINDS[rng.index(2)]).durability(durability)
}

/// What a process does that is a teller: makes transfers until it is killed.
pub(crate) fn tell(path: &Path, seed: u64) {
    let (oracle, mut rng, teller) = (Oracle::open(path), Rng::new(seed), seed % TELLERS);
    let (mut books, mut last) = (Books::default(), None);
    loop {
        let db = tellers_options(&mut rng).open(path).expect("it opens");
        say("open");
        for _ in 0..rng.below(150) {
            let number = db.transaction(|tx| make_next(tx, teller, &oracle)).expect("its turn");
            assert!(last.is_none_or(|last| last + 1 == number), "{number} after {last:?}");
            oracle.set(Word::Returned, teller, number);
            last = Some(number);
            if rng.below(20) == 0 {
                books
                    .audit(&db, &oracle)
                    .unwrap_or_else(|error| panic!("teller {teller}: {error}"));
            }
        }
        if rng.below(2) == 0 {
            db.close().expect("it closes");
        }
    }
}

/// What a process does that is an auditor: looks at new snapshots, and again at one that it keeps, until it
/// is killed.
pub(crate) fn audit(path: &Path, seed: u64) {
    let (oracle, mut rng) = (Oracle::open(path), Rng::new(seed));
    let mut books = Books::default();
    loop {
        let db = Options::new().read_only().open(path).expect("it opens");
        say("open");
        for _ in 0..rng.below(5) {
            let kept = db.snapshot().expect("there is a place");
            let mut shown = None;
            // Some are kept as long as this process lives.
            for _ in 0..[10, u64::MAX][rng.index(2)] {
                books.audit(&db, &oracle).unwrap_or_else(|error| panic!("an auditor: {error}"));
                let content = shown.get_or_insert_with(|| content_of(&kept));
                shows(&kept, content).unwrap_or_else(|error| panic!("one that is kept: {error}"));
            }
        }
    }
}

/// Returns what the counts in a snapshot say that it shows.
fn content_of(snapshot: &Snapshot<'_>) -> Content {
    let mut books = Books::default();
    for teller in 0..TELLERS {
        let count = snapshot.get(teller_key(teller)).expect("it is sound").expect("it has a count");
        books.advance(teller, number_in(&count).cast_unsigned());
    }
    books.content()
}

/// Looks at what a kill has left as the log alone has it.
fn audit_a_copy(path: &Path, books: &mut Books, oracle: &Oracle) {
    let copy = path.with_extension("copy");
    fs::copy(path, &copy).unwrap();
    let db = compacting().rebuild_index().open(&copy).unwrap();
    books.audit(&db, oracle).unwrap_or_else(|error| panic!("by the log: {error}"));
    assert!(db.check().unwrap().is_clean());
}

/// Starts a teller, or an auditor for those after the last.
fn start(who: usize, path: &Path, rng: &mut Rng) -> Process {
    match who as u64 {
        teller @ ..TELLERS => Process::start("tell", path, rng.below(1 << 60) * TELLERS + teller),
        _ => Process::start("audit", path, rng.next()),
    }
}

/// Four tellers and two auditors, one of which is killed after the other, and started again.
#[test]
fn a_bank_of_four_processes_that_are_killed_is_exact_in_every_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let oracle = open_bank(&path);
    let open = |i: u64| compacting().sharing(KINDS[i as usize % 2]).open(&path).unwrap();
    let (mut rng, mut books) = (Rng::new(seed()), Books::default());
    for round in 0..rounds(5, 300) {
        // Somebody has it open all the time, or nobody.
        let held = round.is_multiple_of(2).then(|| open(round / 2));
        let mut all: Vec<_> =
            (0..TELLERS as usize + 2).map(|who| start(who, &path, &mut rng)).collect();
        assert!(all.iter_mut().all(|process| process.says("open")), "round {round}");
        for kill in 0..20 {
            std::thread::sleep(Duration::from_micros(rng.below(25_000)));
            let next = rng.index(all.len());
            all.remove(next).kill();
            let fresh = held.is_none().then(|| open(kill));
            let db = held.as_ref().or(fresh.as_ref()).expect("one of them");
            let at = |error| panic!("round {round}, kill {kill} of {next}: {error}");
            books.audit(db, &oracle).unwrap_or_else(at);
            all.insert(next, start(next, &path, &mut rng));
        }
        all.into_iter().for_each(Process::kill);
        drop(held);
        if round % 3 == 0 {
            audit_a_copy(&path, &mut books.clone(), &oracle);
        }
        let db = if round % 4 == 3 { compacting().open(&path).unwrap() } else { open(round) };
        books.audit(&db, &oracle).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(db.check().unwrap().is_clean());
    }
    println!("{:?} transfers", books.counts);
    assert!(books.counts.iter().all(|&count| count > 0), "{:?}", books.counts);
}

/// One transfer, and what is wrong with a bank in which it is not whole.
#[test]
fn an_audit_finds_what_is_lost_half_made_made_twice_or_foreign() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let oracle = open_bank(&path);
    let db = compacting().open(&path).unwrap();
    let audit = |expected: &str| {
        let error = Books::default().audit(&db, &oracle).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    let pass = || drop(Books::default().audit(&db, &oracle).unwrap());
    let add = |(account, amount): (u64, i64)| {
        let balance = number_in(&db.get(account_key(account)).unwrap().unwrap());
        db.put(account_key(account), value_of(balance + amount)).unwrap();
    };
    pass();
    oracle.set(Word::Begun, 0, 1);
    pass();
    oracle.set(Word::Returned, 0, 1);
    audit("has made 0");
    db.transaction(|tx| make_next(tx, 0, &oracle)).unwrap();
    pass();
    db.transaction(|tx| make_next(tx, 0, &oracle)).unwrap();
    pass();
    oracle.set(Word::Begun, 0, 1);
    audit("has made 2");
    oracle.set(Word::Begun, 0, 2);

    // Changes that are not one transaction; the second is a lost update.
    let [first, second] = [[(0, 5), (1, -5)], [(2, 7), (3, -7)]];
    add(first[0]);
    audit("the total is 5");
    add(first[1]);
    audit("has another value");
    for (account, amount) in first {
        add((account, -amount));
    }
    pass();
    let stale = db.get(account_key(2)).unwrap().unwrap().into_vec();
    add(second[0]);
    db.put(account_key(2), stale).unwrap();
    pass();
    add(second[1]);
    audit("the total is -7");
    add((3, 7));
    db.put(receipt_key(0), "what was deleted").unwrap();
    audit("keys");
}
