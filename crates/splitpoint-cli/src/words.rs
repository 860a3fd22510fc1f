//! Word lists: the bundled one, or one of the user's.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use crate::failure::{Exit, Failure, Result};
use crate::files::read_whole;

/// Debian's `american-english-small`; see `data/README.md` for its origin. `build.rs` has left out of each
/// word what the word before it begins with; their number, below [`WORD_BYTE_MIN`], is there instead.
const BUNDLED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/words"));
const WORD_BYTE_MIN: u8 = 32;

/// The records of a workload: each distinct word with its number, from 1, in decimal.
#[derive(Debug)]
pub(crate) struct Words {
    text: Vec<u8>,
    spans: Vec<Range<usize>>,
    values: Vec<String>,
}

impl Words {
    /// Returns the bundled list.
    pub(crate) fn bundled() -> Self {
        Self::of_text(Self::bundled_text())
    }

    /// Returns the text of the bundled list, one word a line.
    pub(crate) fn bundled_text() -> Vec<u8> {
        let (mut text, mut word) = (Vec::new(), Vec::new());
        for coded in BUNDLED.chunk_by(|_, next| *next >= WORD_BYTE_MIN) {
            word.truncate(usize::from(coded[0]));
            word.extend_from_slice(&coded[1..]);
            text.extend_from_slice(&word);
            text.push(b'\n');
        }
        text
    }

    /// Reads a list from a file, one word a line.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let words = Self::of_text(read_whole(path)?);
        if words.is_empty() {
            let message = format!("`{}` holds no words", path.display());
            return Err(Failure::new(Exit::Usage, message).hint("give a file with one word a line"));
        }
        Ok(words)
    }

    fn of_text(text: Vec<u8>) -> Self {
        let mut seen = HashSet::new();
        let mut spans = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let word = line.strip_suffix(b"\n").unwrap_or(line);
            if seen.insert(word) {
                spans.push(start..start + word.len());
            }
            start += line.len();
        }
        let values = (1..=spans.len()).map(|number| number.to_string()).collect();
        Self { text, spans, values }
    }

    /// Returns the number of words.
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns every word with its value, in order.
    pub(crate) fn records(&self) -> Vec<(&[u8], &[u8])> {
        let spans = self.spans.iter().cloned();
        spans.zip(&self.values).map(|(span, value)| (&self.text[span], value.as_bytes())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_words_are_numbered_from_one() {
        let words = Words::of_text(b"apple\n\napple\nlast".to_vec());
        let expected: [(&[u8], &[u8]); 3] = [(b"apple", b"1"), (b"", b"2"), (b"last", b"3")];
        assert_eq!(words.records(), expected);
    }

    #[test]
    fn the_bundled_list_has_the_words_that_its_readme_says() {
        assert!(Words::bundled_text() == include_bytes!("../data/words.txt"));
        let words = Words::bundled();
        assert_eq!(words.len(), 51_294);
    }
}
