//! Lines of strace: process, time, call, arguments, result.

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Parsed {
    /// A signal, an exit, a message of strace: no call.
    Nothing,
    /// A call and its result.
    Whole { process: u64, moment_s: Option<f64>, call: Call },
    /// A call that has not ended.
    Start { process: u64, moment_s: Option<f64>, text: Vec<u8> },
    /// The end of one.
    End { process: u64, text: Vec<u8> },
}

/// A system call that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: Vec<u8>,
    /// As strace printed them.
    pub(super) arguments: Vec<Vec<u8>>,
    /// What it returned, if it returned.
    pub(super) result: Option<i64>,
    /// Name of the error, if it failed.
    pub(super) error: Option<Vec<u8>>,
}

impl Call {
    /// Returns whether an argument that is no text has a flag.
    pub(super) fn has_flag(&self, flag: &[u8]) -> bool {
        let flags = self.arguments.iter().filter(|argument| !argument.starts_with(b"\""));
        flags.into_iter().any(|argument| memchr::memmem::find(argument, flag).is_some())
    }
}

const UNFINISHED: &[u8] = b"<unfinished ...>";
const RESUMED: &[u8] = b" resumed>";

/// Parses a line without its end.
pub(super) fn parse(line: &[u8]) -> Result<Parsed, String> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"strace: ") {
        return Ok(Parsed::Nothing);
    }
    let (process, rest) = process(line);
    let (moment_s, rest) = moment(rest);
    if rest.starts_with(b"+++") || rest.starts_with(b"---") {
        return Ok(Parsed::Nothing);
    }
    if let Some(resumed) = rest.strip_prefix(b"<... ") {
        let at = memchr::memmem::find(resumed, RESUMED).ok_or_else(|| odd(line))?;
        return Ok(Parsed::End { process, text: resumed[at + RESUMED.len()..].to_vec() });
    }
    if let Some(start) = rest.strip_suffix(UNFINISHED) {
        return Ok(Parsed::Start { process, moment_s, text: start.trim_ascii_end().to_vec() });
    }
    Ok(Parsed::Whole { process, moment_s, call: call(rest)? })
}

fn odd(line: &[u8]) -> String {
    let start = line[..line.len().min(60)].escape_ascii();
    format!("`{start}` is no line of strace, or was cut off")
}

/// Splits off the number of the process, which the first one may not have.
fn process(line: &[u8]) -> (u64, &[u8]) {
    let (text, rest) = match line.strip_prefix(b"[pid") {
        Some(rest) => match memchr::memchr(b']', rest) {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => return (0, line),
        },
        None => match memchr::memchr(b' ', line) {
            Some(end) => (&line[..end], &line[end..]),
            None => return (0, line),
        },
    };
    match std::str::from_utf8(text.trim_ascii()).ok().and_then(|text| text.parse().ok()) {
        Some(process) => (process, rest.trim_ascii_start()),
        None => (0, line),
    }
}

/// Splits off the time, if there is one.
fn moment(line: &[u8]) -> (Option<f64>, &[u8]) {
    let end = memchr::memchr(b' ', line).unwrap_or(line.len());
    let is_time = |it: &u8| it.is_ascii_digit() || matches!(it, b'.' | b':');
    if end == 0 || !line[..end].iter().all(is_time) {
        return (None, line);
    }
    let text = std::str::from_utf8(&line[..end]).unwrap_or_default();
    (text.parse().ok(), line[end..].trim_ascii_start())
}

/// Parses a call: `name(arguments) = result`.
pub(super) fn call(text: &[u8]) -> Result<Call, String> {
    let open = memchr::memchr(b'(', text).ok_or_else(|| odd(text))?;
    let name = &text[..open];
    if name.is_empty() || !name.iter().all(|it| it.is_ascii_alphanumeric() || *it == b'_') {
        return Err(odd(text));
    }
    let (arguments, rest) = arguments(&text[open + 1..]).ok_or_else(|| odd(text))?;
    let result = rest.trim_ascii_start().strip_prefix(b"=").ok_or_else(|| odd(text))?;
    let mut words = result.trim_ascii().split(|&it| it == b' ');
    let returned = words.next().unwrap_or_default();
    let error = words.next().filter(|word| word.starts_with(b"E"));
    let result = if returned.starts_with(b"-1") {
        Some(-1)
    } else {
        number(returned).and_then(|it| i64::try_from(it).ok())
    };
    Ok(Call {
        name: name.to_vec(),
        arguments,
        result,
        error: error.map(<[u8]>::to_vec).filter(|_| result == Some(-1)),
    })
}

/// Splits arguments up to the parenthesis that closes them; returns them and what follows.
fn arguments(text: &[u8]) -> Option<(Vec<Vec<u8>>, &[u8])> {
    let (mut all, mut start, mut depth, mut at) = (Vec::new(), 0, 0_u32, 0);
    loop {
        match *text.get(at)? {
            b'"' => at = end_of_text(text, at)?,
            // The path of a descriptor: `3</etc/passwd>`, `4<pipe:[123]>`.
            b'<' if text.get(at + 1).is_some_and(|it| *it == b'/' || it.is_ascii_alphabetic()) => {
                at += memchr::memchr(b'>', &text[at..])?;
            }
            b'/' if text.get(at + 1) == Some(&b'*') => {
                at += memchr::memmem::find(&text[at..], b"*/")? + 1;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                if at > start {
                    all.push(text[start..at].trim_ascii().to_vec());
                }
                return Some((all, &text[at + 1..]));
            }
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                all.push(text[start..at].trim_ascii().to_vec());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
}

/// Returns where the quote is that ends a text.
fn end_of_text(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match *text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns the text of a quoted argument, and whether strace cut it off.
pub(super) fn quoted(argument: &[u8]) -> Option<(Vec<u8>, bool)> {
    if !argument.starts_with(b"\"") {
        return None;
    }
    let end = end_of_text(argument, 0)?;
    Some((unescaped(&argument[1..end]), argument[end + 1..].starts_with(b"...")))
}

/// Returns the path of a descriptor, as `-y` prints it.
pub(super) fn decorated(argument: &[u8]) -> Option<Vec<u8>> {
    let start = memchr::memchr(b'<', argument)?;
    let path = argument.strip_suffix(b">").unwrap_or(argument);
    // What was removed has a mark behind the path.
    let path = path.strip_suffix(b">(deleted)").unwrap_or(path);
    (!argument.starts_with(b"\"")).then(|| unescaped(path.get(start + 1..).unwrap_or_default()))
}

/// Returns the number that an argument starts with, decimal or hex.
pub(super) fn number(argument: &[u8]) -> Option<u64> {
    let (digits, radix) = match argument.strip_prefix(b"0x") {
        Some(digits) => (digits, 16),
        None => (argument, 10),
    };
    let is_digit = |it: &&u8| char::from(**it).is_digit(radix);
    let end = digits.iter().take_while(is_digit).count();
    let text = std::str::from_utf8(&digits[..end]).ok()?;
    u64::from_str_radix(text, radix).ok()
}

/// Replaces the escapes of strace.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        if text[at] != b'\\' {
            out.push(text[at]);
            at += 1;
            continue;
        }
        let octal =
            text[at + 1..].iter().take(3).take_while(|it| matches!(it, b'0'..=b'7')).count();
        if octal > 0 {
            let digits = &text[at + 1..=at + octal];
            out.push(digits.iter().fold(0_u32, |sum, it| sum * 8 + u32::from(it - b'0')) as u8);
            at += 1 + octal;
            continue;
        }
        out.push(match text.get(at + 1) {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'v') => 0x0b,
            Some(b'f') => 0x0c,
            Some(&other) => other,
            None => b'\\',
        });
        at += 2;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn whole(line: &str) -> (u64, Call) {
        match parse(line.as_bytes()) {
            Ok(Parsed::Whole { process, call, .. }) => (process, call),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_is_split_at_its_own_commas() {
        let line = r#"31887 1795386435.276764 newfstatat(AT_FDCWD</a, b>, "/x \"y\", \303\n", {st_mode=S_IFDIR|0755, ...}, 0) = 0"#;
        let (process, call) = whole(line);
        assert_eq!((process, &call.name[..], call.result), (31887, &b"newfstatat"[..], Some(0)));
        assert_eq!(call.arguments.len(), 4);
        assert_eq!(decorated(&call.arguments[0]).unwrap(), b"/a, b");
        assert_eq!(quoted(&call.arguments[1]), Some((b"/x \"y\", \xc3\n".to_vec(), false)));
        let (_, call) =
            whole(r#"execve("/bin/sh", [...], 0x7ffd48ab43c8 /* 35 vars, (or) */) = 0"#);
        assert_eq!(call.arguments.len(), 3);
        let (_, call) =
            whole("[pid  77] mmap(NULL, 1<<21, PROT_READ, MAP_SHARED, 3</x>, 0x26000) = 0x7f00");
        assert_eq!((call.arguments.len(), number(&call.arguments[5])), (6, Some(0x26000)));
        let (_, call) =
            whole(r#"openat(AT_FDCWD, "a", O_RDONLY) = -1 ENOENT (No such file or directory)"#);
        assert_eq!((call.result, call.error.as_deref()), (Some(-1), Some(&b"ENOENT"[..])));
        let (_, call) = whole(r#"read(3</a>, ""..., 832) = 832"#);
        assert_eq!(quoted(&call.arguments[1]), Some((Vec::new(), true)));
        assert_eq!(whole("exit_group(0) = ?").1.result, None);
    }

    #[test]
    fn a_call_in_two_lines_is_put_together() {
        let Ok(Parsed::Start { text, .. }) =
            parse(b"7 1.5 openat(AT_FDCWD, \"a\", <unfinished ...>")
        else {
            panic!("a start")
        };
        let Ok(Parsed::End { text: end, process: 7 }) =
            parse(b"7 1.6 <... openat resumed>O_RDONLY) = 3</a>")
        else {
            panic!("an end")
        };
        let call = call(&[text, end].concat()).unwrap();
        assert_eq!((call.arguments.len(), call.result), (3, Some(3)));
    }

    #[test]
    fn what_is_no_call_is_passed_over_and_what_is_cut_off_refused() {
        for line in [
            "",
            "7 +++ exited with 0 +++",
            "7 1.0 --- SIGCHLD {si_signo=SIGCHLD} ---",
            "strace: Process 7 attached",
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(Parsed::Nothing), "{line}");
        }
        for line in
            ["hello", "open(\"a", "open(\"a\", 0", "open(\"a\", 0)", "a b(c) = 0", "open(}) = 0"]
        {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
