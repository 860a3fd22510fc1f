//! Is a history of transactions serializable? Decides it from what each has read and written.
//!
//! Each value is the list of the transactions that wrote its key, in order, as in Elle (Kingsbury and
//! Alvaro 2020): a transaction reads a list and stores it with its own number behind. So a read shows
//! which versions came before, and the last list of a key is the order of all its versions.
//!
//! | edge | because |
//! |---|---|
//! | the writer of a version to the writer of the next | it was overwritten |
//! | the writer of a version to who read it | it was there before |
//! | who read a version to the writer of the next | it was not there yet |
//! | who had ended to who began later | real time |
//!
//! The history is serializable, in an order that agrees with real time, if these have no cycle.

use std::collections::BTreeMap;

/// The numbers of the transactions that have written a key.
pub(crate) type Writers = Vec<u32>;

/// A transaction that has committed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Committed {
    /// The number that it writes.
    pub(crate) number: u32,
    /// What it has read of each key.
    pub(crate) reads: BTreeMap<u8, Writers>,
    pub(crate) written: Vec<u8>,
    /// When it began and ended, by a clock of the whole history.
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

/// Checks a history whose keys end with the lists `last`; an error says what is wrong.
pub(crate) fn check(history: &[Committed], last: &BTreeMap<u8, Writers>) -> Result<(), String> {
    let places: BTreeMap<u32, usize> =
        history.iter().enumerate().map(|(i, done)| (done.number, i)).collect();
    let place_of = |number: &u32| {
        places.get(number).copied().ok_or(format!("{number} is read and has not committed"))
    };
    let mut edges: Vec<Vec<usize>> = vec![Vec::new(); history.len()];
    for done in history {
        for key in &done.written {
            let count = last
                .get(key)
                .map_or(0, |list| list.iter().filter(|&it| *it == done.number).count());
            if count != 1 {
                return Err(format!(
                    "{} has written key {key}, which shows it {count} times",
                    done.number
                ));
            }
        }
    }
    for list in last.values() {
        for pair in list.windows(2) {
            edges[place_of(&pair[0])?].push(place_of(&pair[1])?);
        }
    }
    let none = Writers::new();
    for (i, done) in history.iter().enumerate() {
        for (key, seen) in &done.reads {
            let all = last.get(key).unwrap_or(&none);
            if !all.starts_with(seen) {
                return Err(format!(
                    "{} has read {seen:?} of key {key}, not a prefix of {all:?}",
                    done.number
                ));
            }
            if let Some(writer) = seen.last() {
                edges[place_of(writer)?].push(i);
            }
            if let Some(next) = all.get(seen.len()).map(place_of).transpose()?
                && next != i
            {
                edges[i].push(next);
            }
        }
        for (j, later) in history.iter().enumerate() {
            if done.ended < later.began {
                edges[i].push(j);
            }
        }
    }
    assert_no_cycle(history, &edges)
}

/// Takes away what nothing leads to, again and again: what is left is on cycles, or behind them.
fn assert_no_cycle(history: &[Committed], edges: &[Vec<usize>]) -> Result<(), String> {
    let mut counts = vec![0; edges.len()];
    edges.iter().flatten().for_each(|&to| counts[to] += 1);
    let mut free: Vec<usize> = (0..edges.len()).filter(|&i| counts[i] == 0).collect();
    let mut left_count = edges.len();
    while let Some(i) = free.pop() {
        left_count -= 1;
        for &to in &edges[i] {
            counts[to] -= 1;
            if counts[to] == 0 {
                free.push(to);
            }
        }
    }
    if left_count == 0 {
        return Ok(());
    }
    let left: Vec<u32> = history
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|(it, _)| it.number)
        .collect();
    Err(format!("a cycle among {:?}", &left[..left.len().min(10)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(number: u32, reads: &[(u8, &[u32])], written: &[u8], when: (u64, u64)) -> Committed {
        let reads = reads.iter().map(|(key, list)| (*key, list.to_vec())).collect();
        Committed { number, reads, written: written.to_vec(), began: when.0, ended: when.1 }
    }

    fn last(lists: &[(u8, &[u32])]) -> BTreeMap<u8, Writers> {
        lists.iter().map(|(key, list)| (*key, list.to_vec())).collect()
    }

    #[test]
    fn write_skew_lost_updates_and_stale_reads_are_found() {
        let skew = [
            done(1, &[(0, &[]), (1, &[])], &[0], (1, 9)),
            done(2, &[(0, &[]), (1, &[])], &[1], (1, 9)),
        ];
        assert!(check(&skew, &last(&[(0, &[1]), (1, &[2])])).unwrap_err().contains("cycle"));
        let lost = [done(1, &[(0, &[])], &[0], (1, 9)), done(2, &[(0, &[])], &[0], (1, 9))];
        assert!(check(&lost, &last(&[(0, &[2])])).unwrap_err().contains("0 times"));
        let stale = [done(1, &[(0, &[])], &[0], (1, 2)), done(2, &[(0, &[])], &[], (3, 4))];
        assert!(check(&stale, &last(&[(0, &[1])])).unwrap_err().contains("cycle"));
        let torn = [
            done(1, &[(0, &[]), (1, &[])], &[0, 1], (1, 2)),
            done(2, &[(0, &[1]), (1, &[])], &[], (1, 9)),
        ];
        assert!(check(&torn, &last(&[(0, &[1]), (1, &[1])])).unwrap_err().contains("cycle"));
    }

    #[test]
    fn what_one_after_the_other_does_is_serializable() {
        let history = [
            done(1, &[(0, &[]), (1, &[])], &[0, 1], (1, 2)),
            done(2, &[(0, &[1]), (1, &[1])], &[0], (3, 4)),
            done(3, &[(0, &[1]), (1, &[1])], &[], (3, 9)),
        ];
        check(&history, &last(&[(0, &[1, 2]), (1, &[1])])).unwrap();
    }
}
