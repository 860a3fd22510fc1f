//! The look of the lab's documents on a terminal.

use anstyle::{AnsiColor, Style};
use splitpoint_lab::document::{Look, Tone};

/// Returns the look of standard output: as wide as the terminal, and in colors, which the stream
/// removes if they are disabled. `is_whole` also shows folded blocks.
pub(crate) fn look(is_whole: bool) -> Look<'static> {
    let columns = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
    Look { columns, is_whole, paint: &paint }
}

fn paint(tone: Tone, text: &str) -> String {
    let style = match tone {
        Tone::Heading => Style::new().bold(),
        Tone::Measured => AnsiColor::Cyan.on_default(),
        Tone::Ideal => AnsiColor::Yellow.on_default(),
        Tone::Good => AnsiColor::Green.on_default().bold(),
        Tone::Doubtful => AnsiColor::Yellow.on_default().bold(),
        Tone::Bad => AnsiColor::Red.on_default().bold(),
    };
    format!("{style}{text}{style:#}")
}
