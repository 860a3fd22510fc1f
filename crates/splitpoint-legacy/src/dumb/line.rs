//! A line of a `.dir`: a Python string literal with the bytes of a key as Latin-1, and where its
//! value is.

use crate::reader::Fault;

/// Faults of an index that are listed; one more tells the number of further ones.
const FAULTS_MAX: usize = 100;

/// A key and the place of its value in the `.dat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) key: Vec<u8>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Line {
    /// Returns the end of the value.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// Reads the lines of a `.dir`. A line that cannot be read is a fault; so is the last one if it
    /// was cut. A fault takes more memory than the shortest line: only the first hundred are listed.
    pub(super) fn all(dir: &[u8]) -> (Vec<Self>, Vec<Fault>) {
        let (mut lines, mut faults, mut start) = (Vec::new(), Vec::new(), 0);
        let mut further: Option<Fault> = None;
        for line in dir.split(|&byte| byte == b'\n') {
            let text = line.trim_ascii();
            match Self::parse(text) {
                Ok(parsed) => lines.push(parsed),
                Err(_) if text.is_empty() => {}
                Err(at) => {
                    let found = text.get(at).copied().unwrap_or_default();
                    let at = start + (line.len() - line.trim_ascii_start().len()) + at;
                    if faults.len() < FAULTS_MAX {
                        let fault =
                            Fault::new("line of the .dir", at as u64, b')'.into(), found.into());
                        faults.push(fault);
                    } else {
                        let what = "number of further lines of the .dir that are not readable";
                        further.get_or_insert(Fault::new(what, at as u64, 0, 0)).found += 1;
                    }
                }
            }
            start += line.len() + 1;
        }
        faults.extend(further);
        (lines, faults)
    }

    /// Reads a line, or returns the offset of the first byte that does not fit.
    fn parse(text: &[u8]) -> Result<Self, usize> {
        let mut rest = Rest { text, at: 0 };
        let key = rest.literal().ok_or(rest.at)?;
        let line = (|| {
            rest.take(b',')?;
            rest.take(b'(')?;
            let offset = rest.number()?;
            rest.take(b',')?;
            let bytes = rest.number()?;
            rest.take(b')')?;
            Some(Self { key, offset, bytes })
        })();
        line.filter(|_| rest.at == text.len()).ok_or(rest.at)
    }
}

/// The part of a line that is not read yet.
struct Rest<'a> {
    text: &'a [u8],
    at: usize,
}

impl Rest<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.text.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    fn skip_blanks(&mut self) {
        while self.text.get(self.at).is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            self.at += 1;
        }
    }

    /// Takes `wanted`, with blanks around it.
    fn take(&mut self, wanted: u8) -> Option<()> {
        self.skip_blanks();
        (self.text.get(self.at) == Some(&wanted)).then(|| self.at += 1)?;
        self.skip_blanks();
        Some(())
    }

    fn number(&mut self) -> Option<u64> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let run = &self.text[self.at..self.at + digits];
        let number = std::str::from_utf8(run).ok()?.parse().ok()?;
        self.at += digits;
        Some(number)
    }

    /// Takes a string literal; Python 2 wrote those of bytes, which look the same.
    fn literal(&mut self) -> Option<Vec<u8>> {
        if self.text.get(self.at).is_some_and(|byte| b"bBuU".contains(byte)) {
            self.at += 1;
        }
        let quote = self.next().filter(|byte| matches!(byte, b'\'' | b'"'))?;
        let mut bytes = Vec::new();
        loop {
            match self.next()? {
                b'\\' => bytes.push(self.escape()?),
                byte if byte == quote => return Some(bytes),
                byte => bytes.push(byte),
            }
        }
    }

    /// Takes what follows a backslash. A character above 255 is no byte of a key.
    fn escape(&mut self) -> Option<u8> {
        Some(match self.next()? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 0x07,
            b'b' => 0x08,
            b'v' => 0x0b,
            b'f' => 0x0c,
            b'x' => return self.digits(2, 16),
            b'u' => return self.digits(4, 16),
            b'U' => return self.digits(8, 16),
            b'0'..=b'7' => {
                self.at -= 1;
                let run = self.text[self.at..].iter().take(3);
                let digits = run.take_while(|byte| matches!(byte, b'0'..=b'7')).count();
                return self.digits(digits, 8);
            }
            quoted @ (b'\\' | b'\'' | b'"') => quoted,
            _ => return None,
        })
    }

    fn digits(&mut self, count: usize, radix: u32) -> Option<u8> {
        let run = self.text.get(self.at..self.at + count)?;
        let are_digits = run.iter().all(|&byte| char::from(byte).is_digit(radix));
        let run = std::str::from_utf8(run).ok().filter(|_| are_digits)?;
        let number = u32::from_str_radix(run, radix).ok()?;
        self.at += count;
        u8::try_from(number).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(line: &[u8]) -> Option<Vec<u8>> {
        Line::parse(line).ok().map(|line| line.key)
    }

    #[test]
    fn every_quoting_of_python_is_undone() {
        for (literal, key) in [
            (&b"'plain'"[..], &b"plain"[..]),
            (b"\"it's\"", b"it's"),
            (br#"'it\'s "so"'"#, b"it's \"so\""),
            (br"'\\ \n \r \t'", b"\\ \n \r \t"),
            (br"'\x00\x7f\xa0'", b"\0\x7f\xa0"),
            (b"'\xe9t\xe9'", b"\xe9t\xe9"),
            (br"b'\xff'", b"\xff"),
            (br"u'\u00e9\U000000e9\351\0'", b"\xe9\xe9\xe9\0"),
            (br"'\a\b\v\f'", b"\x07\x08\x0b\x0c"),
            (b"''", b""),
        ] {
            let line = [literal, b", (512, 7)"].concat();
            assert_eq!(key_of(&line).as_deref(), Some(key), "{}", literal.escape_ascii());
            for cut in 0..line.len() {
                assert!(Line::parse(&line[..cut]).is_err(), "{}", line[..cut].escape_ascii());
            }
        }
        assert_eq!(key_of(br"'\u20ac', (0, 1)"), None);
        assert_eq!(key_of(b"'k', (-1, 1)"), None);
        assert_eq!(key_of(b"'k', (0, 99999999999999999999)"), None);
        assert_eq!(key_of(b"'k',(0,1)").as_deref(), Some(&b"k"[..]));
    }

    #[test]
    fn of_many_lines_that_are_not_readable_the_first_are_listed_and_the_others_counted() {
        let dir = [&b"x\n".repeat(5000)[..], b"'k', (0, 1)\n"].concat();
        let (lines, faults) = Line::all(&dir);
        assert_eq!((lines.len(), faults.len()), (1, FAULTS_MAX + 1));
        assert_eq!(faults[FAULTS_MAX - 1].offset, 199);
        let Fault { offset, expected, found, .. } = faults[FAULTS_MAX];
        assert_eq!((offset, expected, found), (201, 0, 4900));
    }

    #[test]
    fn a_line_that_was_cut_is_a_fault_and_the_others_are_read() {
        let (lines, faults) = Line::all(b"'one', (0, 3)\n'two', (512, 3)\n'thr");
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1], Line { key: b"two".to_vec(), offset: 512, bytes: 3 });
        assert_eq!(faults, [Fault::new("line of the .dir", 34, 41, 0)]);
        assert_eq!(Line::all(b""), (Vec::new(), Vec::new()));
    }
}
