//! Text of unknown origin, made fit for a page.
//!
//! The template library escapes what means something to HTML; here goes what means something to
//! the reader's eye: characters that draw nothing, or that turn the direction of what follows.

/// Most characters of a text before its middle is omitted.
const SHOWN_MAX: usize = 120;

/// Returns `text` with every character that could not be seen written as `\u{..}`, and shortened.
pub(crate) fn shown(text: &str) -> String {
    let count = text.chars().count();
    if count <= SHOWN_MAX {
        return text.chars().map(seen).collect();
    }
    let start = text.chars().take(SHOWN_MAX / 2).map(seen).collect::<String>();
    let end = text.chars().skip(count - SHOWN_MAX / 4).map(seen).collect::<String>();
    format!("{start}... ({count} characters) ...{end}")
}

/// Returns `text`, of whatever length, with every character that could not be seen written out.
pub(super) fn visible(text: &str) -> String {
    text.chars().map(seen).collect()
}

fn seen(character: char) -> String {
    match character {
        // Ends of lines in Unicode, marks of direction, spaces without width, tags, surrogates of
        // private use: what Unicode calls Cc, Cf, Zl and Zp, as far as browsers act on it.
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => character.escape_unicode().to_string(),
        _ if character.is_control() => character.escape_unicode().to_string(),
        _ => character.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        for (text, expected) in [
            ("plain \u{e9}t\u{e9}", "plain \u{e9}t\u{e9}"),
            ("a\0b\x1b[31m\r\n", "a\\u{0}b\\u{1b}[31m\\u{d}\\u{a}"),
            ("\u{202e}cod.exe", "\\u{202e}cod.exe"),
            ("\u{feff}\u{200b}", "\\u{feff}\\u{200b}"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn long_texts_lose_their_middle_and_say_so() {
        let text = format!("{}{}", "a".repeat(1 << 20), "z".repeat(30));
        let short = shown(&text);
        assert!(short.len() < 200, "{short}");
        assert!(short.starts_with("aaa") && short.ends_with("zzz"), "{short}");
        assert!(short.contains("... (1048606 characters) ..."), "{short}");
    }
}
