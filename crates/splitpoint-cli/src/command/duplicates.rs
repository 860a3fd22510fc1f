//! What becomes of the values of a key that has several.

use std::collections::HashSet;

use splitpoint_legacy::KeyValue;

use crate::failure::Result;
use crate::number::{counted, grouped};

/// What `convert` or `salvage` keeps of a key with several values
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Duplicates {
    /// The first value
    First,
    /// The last value
    Last,
    /// Every value: the first under KEY, the second under KEY#2, the next under KEY#3 and so on
    #[value(name = "all-as-N")]
    AllAsN,
    /// Nothing: the command fails if there is such a key
    Fail,
}

/// Which records are made of the values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    First,
    Last,
    /// Each under a key of its own.
    Numbered,
    /// Each under the same key, in a format that can hold them.
    Every,
}

/// Makes records of values, which come key by key.
pub(crate) struct Records {
    keep: Keep,
    /// The key of the last value, with that value if it is readable, while it is not known whether it
    /// counts.
    held: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Records {
    pub(crate) fn new(keep: Keep) -> Self {
        Self { keep, held: None }
    }

    /// Takes a value, and gives `put` the records that are complete, each with the number of its
    /// value. Of a value that is unreadable nothing is made: no other takes its place.
    pub(crate) fn take(
        &mut self,
        one: &KeyValue<'_>,
        mut put: impl FnMut(&[u8], &[u8], u64) -> Result<()>,
    ) -> Result<()> {
        let (key, number) = (&*one.key, one.number);
        let value = one.value.as_ref().ok().map(|value| &**value);
        if self.keep == Keep::Last {
            if number == 1 {
                self.finish(&mut put)?;
            }
            self.held = Some((key.to_vec(), value.map(<[u8]>::to_vec)));
            return Ok(());
        }
        match (self.keep, value) {
            (_, None) => Ok(()),
            (Keep::First, _) if number > 1 => Ok(()),
            (Keep::Numbered, Some(value)) if number > 1 => {
                put(&numbered(key, number), value, number)
            }
            (_, Some(value)) => put(key, value, number),
        }
    }

    /// Gives `put` the record that is still held.
    pub(crate) fn finish(
        &mut self,
        mut put: impl FnMut(&[u8], &[u8], u64) -> Result<()>,
    ) -> Result<()> {
        match self.held.take() {
            Some((key, Some(value))) => put(&key, &value, 1),
            _ => Ok(()),
        }
    }
}

/// The keys of a source that look like the key of a further value. Where both are there, the value
/// is left out.
#[derive(Debug, Default)]
pub(crate) struct Taken(HashSet<Vec<u8>>);

impl Taken {
    /// Takes note of a key of the source.
    pub(crate) fn note(&mut self, key: &[u8]) {
        let number = key.iter().rposition(|byte| *byte == b'#').map(|at| &key[at + 1..]);
        let is_number = |number: &[u8]| number.iter().all(u8::is_ascii_digit);
        if number.is_some_and(is_number) && !self.0.contains(key) {
            self.0.insert(key.to_vec());
        }
    }

    /// Returns why value `number` cannot have `key`, if it cannot.
    pub(crate) fn refusal(&self, key: &[u8], number: u64) -> Option<String> {
        let is_taken = number > 1 && self.0.contains(key);
        is_taken.then(|| format!("value {number} would take this key, which is there"))
    }
}

/// What was found of keys with several values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Several {
    /// Keys with several values.
    pub(crate) keys: u64,
    /// Their readable values after the first.
    pub(crate) further: u64,
}

impl Several {
    /// Counts a value.
    pub(crate) fn count(&mut self, one: &KeyValue<'_>) {
        self.keys += u64::from(one.number == 2);
        self.further += u64::from(one.number > 1 && one.value.is_ok());
    }

    pub(crate) fn keys_in_words(self) -> String {
        match self.keys {
            1 => "1 key with several values".to_string(),
            keys => format!("{} keys with several values", grouped(keys)),
        }
    }

    pub(crate) fn further_in_words(self) -> String {
        counted(self.further, "further value")
    }

    /// Returns what becomes of the further values, in words.
    pub(crate) fn kept(self, keep: Keep) -> String {
        let (keys, further) = (self.keys_in_words(), self.further_in_words());
        match keep {
            Keep::First => format!("kept the first value of {keys}, not {further}"),
            Keep::Last => {
                format!("kept the last value of {keys}, not the {} before it", self.further)
            }
            Keep::Numbered => format!("{keys}: gave {further} the keys KEY#2, KEY#3 and so on"),
            Keep::Every => format!("kept {further} of {keys}"),
        }
    }

    /// Returns what is left out if nothing says what becomes of the further values.
    pub(crate) fn left_out(self) -> String {
        format!("{} of {}", self.further_in_words(), self.keys_in_words())
    }
}

/// The hint where a key has several values, and nothing says what becomes of them.
pub(crate) const CHOOSE: &str =
    "say what becomes of the values of such a key: --duplicates first, last or all-as-N";

/// Returns the key of value `number` of `key`.
pub(crate) fn numbered(key: &[u8], number: u64) -> Vec<u8> {
    [key, format!("#{number}").as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use splitpoint::Value;
    use splitpoint_legacy::Fault;

    use super::*;

    fn value(key: &str, number: u64, value: Option<&str>) -> KeyValue<'static> {
        let fault = Fault { what: "page", offset: 0, expected: 1, found: 2 };
        let value = value.map(|value| Value::owned(value.as_bytes().to_vec())).ok_or(fault);
        KeyValue { key: Value::owned(key.as_bytes().to_vec()), number, value }
    }

    /// Compares what is made of `values` in each way with `expected`: first, last, numbered, every.
    #[track_caller]
    fn check(values: &[KeyValue<'_>], expected: [&str; 4]) {
        let ways = [Keep::First, Keep::Last, Keep::Numbered, Keep::Every];
        for (keep, expected) in ways.into_iter().zip(expected) {
            assert_eq!(made_of(keep, values), expected, "{keep:?}");
        }
    }

    fn made_of(keep: Keep, values: &[KeyValue<'_>]) -> String {
        let mut made = Vec::new();
        let mut put = |key: &[u8], value: &[u8], _| {
            made.push(format!("{}={}", key.escape_ascii(), value.escape_ascii()));
            Ok(())
        };
        let mut records = Records::new(keep);
        for one in values {
            records.take(one, &mut put).expect("a record");
        }
        records.finish(&mut put).expect("a record");
        made.join(" ")
    }

    #[test]
    fn each_way_makes_its_records_of_the_values() {
        let values = [("a", 1, "1"), ("b", 1, "2"), ("b", 2, "3"), ("b", 3, "4"), ("c", 1, "5")];
        let values = values.map(|(key, number, text)| value(key, number, Some(text)));
        let numbered = "a=1 b=2 b#2=3 b#3=4 c=5";
        check(&values, ["a=1 b=2 c=5", "a=1 b=4 c=5", numbered, "a=1 b=2 b=3 b=4 c=5"]);
    }

    #[test]
    fn no_value_takes_the_place_of_an_unreadable_one() {
        let values = [
            value("a", 1, None),
            value("a", 2, Some("2")),
            value("b", 1, Some("1")),
            value("b", 2, None),
            value("b", 3, Some("3")),
            value("c", 1, Some("1")),
            value("c", 2, None),
        ];
        check(&values, ["b=1 c=1", "a=2 b=3", "a#2=2 b=1 b#3=3 c=1", "a=2 b=1 b=3 c=1"]);
    }

    #[test]
    fn a_key_that_looks_like_that_of_a_further_value_is_taken() {
        let mut taken = Taken::default();
        for key in ["a#2", "b#", "c#x", "d", "#e#12"] {
            taken.note(key.as_bytes());
        }
        for (key, number, is_taken) in
            [("a#2", 2, true), ("a#2", 1, false), ("a#3", 3, false), ("#e#12", 12, true)]
        {
            assert_eq!(taken.refusal(key.as_bytes(), number).is_some(), is_taken, "{key}");
        }
    }
}
