//! A series of changes that a seed determines, and the contents after any number of them.

use std::ops::RangeInclusive;

use splitpoint::Db;

use crate::support::{Content, Rng, assert_sound, content};

/// A change: a put or a delete of one key, or several that count as one.
pub(crate) type Batch = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The kinds of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Stores a new key with every change: the table grows and splits.
    Growing,
    /// Stores some keys again and again.
    Overwriting,
    /// Stores some keys and deletes them: the table grows and shrinks.
    Deleting,
    /// Does all of that, with small values, and several keys at a time.
    Small,
    /// The same with values of every size.
    Mixed,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Growing, Self::Overwriting, Self::Deleting, Self::Small, Self::Mixed];
}

/// The changes with the numbers 1, 2, 3...
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
}

impl Series {
    /// Returns change `number`.
    pub(crate) fn change(&self, number: u64) -> Batch {
        let mut rng = Rng::new(self.seed ^ number << 32);
        let has_batches = matches!(self.kind, Kind::Small | Kind::Mixed);
        let size = if has_batches && rng.below(20) == 0 { 2 + rng.below(8) } else { 1 };
        // In a batch with a key twice, the later change counts.
        (0..size).map(|place| self.pair(number, place, &mut rng)).collect()
    }

    fn pair(&self, number: u64, place: u64, rng: &mut Rng) -> (Vec<u8>, Option<Vec<u8>>) {
        let new_key = number << 8 | place;
        let (key, is_delete) = match self.kind {
            Kind::Growing => (new_key, false),
            Kind::Overwriting => (rng.below(1000), false),
            // Keys are stored for a while, then deleted for a while.
            Kind::Deleting => (
                rng.below(2000),
                rng.below(8) < if (number / 1500).is_multiple_of(2) { 1 } else { 6 },
            ),
            Kind::Small | Kind::Mixed if rng.below(2) == 0 => (new_key, false),
            Kind::Small | Kind::Mixed => ((1 + rng.below(number)) << 8, rng.below(3) == 0),
        };
        let value_bytes = match (self.kind, rng.below(100)) {
            (Kind::Mixed, 0) => 70_000,
            (Kind::Mixed, 1..10) => 5000,
            (Kind::Mixed, 10..20) => 300,
            _ => 8 + rng.index(60),
        };
        let value = (!is_delete).then(|| {
            let mut value = number.to_le_bytes().to_vec();
            value.resize(value_bytes, (number ^ place) as u8);
            value
        });
        (key.to_le_bytes().to_vec(), value)
    }

    /// Applies change `number` to the contents after those before it.
    pub(crate) fn apply(&self, content: &mut Content, number: u64) {
        for (key, value) in self.change(number) {
            match value {
                Some(value) => drop(content.insert(key, value)),
                None => drop(content.remove(&key)),
            }
        }
    }

    /// Returns the contents after the first `count` changes.
    pub(crate) fn content_after(&self, count: u64) -> Content {
        let mut content = Content::new();
        (1..=count).for_each(|number| self.apply(&mut content, number));
        content
    }

    /// Checks that a store is sound and holds exactly the first changes, as many as one of
    /// `counts`. Returns the smallest such number.
    #[track_caller]
    pub(crate) fn assert_prefix(&self, db: &Db, counts: RangeInclusive<u64>) -> u64 {
        let found = content(db);
        let mut expected = self.content_after(*counts.start());
        let difference = describe_difference(&found, &expected);
        for count in counts.clone() {
            if found == expected {
                assert_eq!(db.len(), found.len() as u64);
                for (key, value) in &found {
                    assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]), "{key:?}");
                }
                assert_sound(db);
                return count;
            }
            self.apply(&mut expected, count + 1);
        }
        panic!(
            "not what the first {counts:?} changes of {self:?} make, {:?}: beside those of the \
             first {}, {difference}",
            db.recovery(),
            counts.start(),
        );
    }
}

fn describe_difference(found: &Content, expected: &Content) -> String {
    let missing: Vec<_> = expected.keys().filter(|key| !found.contains_key(*key)).collect();
    let extra: Vec<_> = found.keys().filter(|key| !expected.contains_key(*key)).collect();
    let other = expected.iter().filter(|(key, value)| found.get(*key).is_some_and(|f| f != *value));
    format!(
        "of {} keys {} are missing ({:?}), {} are there too many ({:?}), {} have another value",
        expected.len(),
        missing.len(),
        missing.first(),
        extra.len(),
        extra.first(),
        other.count(),
    )
}
