//! A document as lines of letters: columns as wide as their widest cell, words wrapped.

use std::fmt;

use textwrap::core::display_width;
use textwrap::{Options, WordSeparator, WordSplitter};

use super::plain::visible;
use super::{Bar, Block, Cell, Document, Figure, Letters, Line, Span, Table};
use crate::measure::Grade;

/// Columns beyond which words are wrapped, however wide the terminal is.
const WORDS_MAX: usize = 80;
/// The fewest and the most columns of bars.
const BAR_MIN: usize = 12;
const BAR_MAX: usize = 100;

/// How a text looks.
pub struct Look<'a> {
    /// Columns of the terminal.
    pub columns: usize,
    /// Whether folded blocks are in the text.
    pub is_whole: bool,
    /// Gives a piece of text the color of its tone.
    pub paint: &'a dyn Fn(Tone, &str) -> String,
}

/// The tone of a piece of text, for colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A title.
    Heading,
    /// A bar.
    Measured,
    /// The ideal in a bar.
    Ideal,
    /// What is as it should be.
    Good,
    /// What asks for a look.
    Doubtful,
    /// What is wrong.
    Bad,
}

impl Look<'_> {
    /// Returns a look without colors.
    pub fn plain(columns: usize) -> Self {
        Self { columns, is_whole: false, paint: &|_, text| text.to_string() }
    }
}

impl fmt::Debug for Look<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { columns, is_whole, paint: _ } = self;
        f.debug_struct("Look").field("columns", columns).field("is_whole", is_whole).finish()
    }
}

pub(super) fn text(document: &Document, look: &Look<'_>) -> String {
    let mut text = Text { look, out: String::new() };
    for line in [&document.title, &document.subtitle] {
        if !line.is_empty() {
            text.wrap(line, "", "");
        }
    }
    for section in document.sections.iter().filter(|section| !section.is_appendix) {
        let heading = text.out.len();
        text.gap();
        if !section.title.is_empty() {
            text.heading(section.title);
        }
        let start = text.out.len();
        text.blocks(&section.blocks);
        if text.out.len() == start {
            text.out.truncate(heading);
        }
    }
    text.out
}

struct Text<'a> {
    look: &'a Look<'a>,
    out: String,
}

impl Text<'_> {
    /// Leaves a line empty, unless the line above is empty or there is none.
    fn gap(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// Colors a text, unless there is nothing to be seen.
    fn paint(&self, tone: Tone, text: &str) -> String {
        match text.trim() {
            "" => text.to_string(),
            _ => (self.look.paint)(tone, text),
        }
    }

    fn heading(&mut self, words: &str) {
        self.out += &self.paint(Tone::Heading, &visible(words));
        self.out.push('\n');
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for (index, block) in blocks.iter().enumerate() {
            if index > 0 && (block.is_tall() || blocks[index - 1].is_tall()) {
                self.gap();
            }
            self.block(block);
        }
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Lead(words) | Block::Prose(words) => self.wrap(words, "", ""),
            Block::Warning(words) => {
                let warning = self.paint(Tone::Doubtful, "warning:");
                self.wrap(words, &format!("{warning} "), "");
            }
            Block::List(heading, items) => {
                if !heading.is_empty() {
                    self.wrap(&Line::from(format!("{heading}:")), "", "");
                }
                for item in items {
                    self.wrap(item, "- ", "  ");
                }
            }
            Block::Grades(lines) => {
                for (grade, words) in lines {
                    let mark = self.paint(tone_of(*grade), "-");
                    self.wrap(words, &format!("{mark} "), "  ");
                }
            }
            Block::Facts(facts) => {
                let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
                for (name, value) in facts {
                    self.wrap(value, &format!("{name:<width$}  "), &" ".repeat(width + 2));
                }
            }
            Block::Table(table) => self.table(table),
            Block::Pair(tables) => {
                for table in tables {
                    self.gap();
                    self.table(table);
                }
            }
            Block::Figures(figures) => {
                for figure in figures {
                    self.figure(figure);
                }
            }
            Block::Beside(words, proof) => {
                self.blocks(words);
                self.gap();
                self.figure(proof);
            }
            Block::Fold(fold) if self.look.is_whole => {
                self.gap();
                self.wrap(&fold.summary, "", "");
                self.blocks(&fold.blocks);
            }
            Block::Fold(_) => {}
        }
    }

    fn figure(&mut self, figure: &Figure) {
        let Figure { title, summary, data, letters, .. } = figure;
        match (letters, data) {
            (Letters::Data, Some(data)) => {
                self.gap();
                self.table(data);
            }
            (Letters::Lines(lines), _) => {
                self.gap();
                self.heading(title);
                for line in lines {
                    self.out += &visible(line);
                    self.out.push('\n');
                }
            }
            _ => return,
        }
        self.wrap(&Line::from(summary.as_str()), "", "");
    }

    /// Writes words in lines, the first after one indent, the others after another.
    fn wrap(&mut self, line: &Line, first: &str, others: &str) {
        let options = Options::new(self.look.columns.clamp(40, WORDS_MAX))
            .initial_indent(first)
            .subsequent_indent(others)
            .word_separator(WordSeparator::AsciiSpace)
            .word_splitter(WordSplitter::NoHyphenation)
            .break_words(false);
        self.out += &textwrap::fill(&self.painted(line, "`"), options);
        self.out.push('\n');
    }

    /// Returns a line in its colors, and what is typed between `quotes`.
    fn painted(&self, line: &Line, quotes: &str) -> String {
        let paint = |tone, text: &str| self.paint(tone, &letters(text));
        let span = |span: &Span| match span {
            Span::Plain(text) | Span::Faint(text) => letters(text),
            Span::Code(text) => {
                format!("{quotes}{}{quotes}", letters(text))
            }
            Span::Strong(text) => paint(Tone::Heading, text),
            Span::Alarm(text) => paint(Tone::Bad, &format!("!{text}")),
            Span::Grade(grade) => paint(tone_of(*grade), grade.word()),
        };
        line.0.iter().map(span).collect()
    }

    /// Writes a table whose columns are as wide as their widest cell.
    fn table(&mut self, table: &Table) {
        let Table { caption, columns, rows, bars, .. } = table;
        if !caption.is_empty() {
            self.wrap(&Line::strong(caption.as_str()), "", "");
        }
        let shown: Vec<usize> = (0..columns.len()).filter(|&at| !columns[at].is_wide).collect();
        let heading = |&at: &usize| self.paint(Tone::Heading, &columns[at].name);
        let mut lines: Vec<Vec<String>> = vec![shown.iter().map(heading).collect()];
        let cells = |row: &Vec<Cell>| -> Vec<String> {
            shown.iter().map(|&at| self.painted(&row[at].line, "")).collect()
        };
        lines.extend(rows.iter().map(cells));
        let width = |at: usize| lines.iter().map(|line| display_width(&line[at])).max();
        let widths: Vec<usize> = (0..shown.len()).filter_map(width).collect();
        let taken = widths.iter().sum::<usize>() + 2 * widths.len();
        let bar_width = self.look.columns.saturating_sub(taken).clamp(BAR_MIN, BAR_MAX);
        let scale = bars.iter().map(Bar::end).fold(0.0, f64::max) / (bar_width - 1) as f64;
        for (number, line) in lines.iter().enumerate() {
            let mut drawn: Vec<String> = Vec::new();
            for ((cell, width), &at) in line.iter().zip(&widths).zip(&shown) {
                let gap = " ".repeat(width - display_width(cell));
                drawn.push(if columns[at].is_number { gap + cell } else { cell.clone() + &gap });
            }
            drawn.extend(match number.checked_sub(1) {
                None => bars.first().map(|bar| self.bar_legend(*bar)),
                Some(row) => bars.get(row).map(|bar| self.bar(*bar, scale, bar_width)),
            });
            self.out += drawn.join("  ").trim_end_matches(' ');
            self.out.push('\n');
        }
    }

    fn bar_legend(&self, bar: Bar) -> String {
        let [measured, ideal] = [(Tone::Measured, "#"), (Tone::Ideal, "|")]
            .map(|(tone, letter)| self.paint(tone, letter));
        let band = if bar.band.is_some() { " ( ) 2 sd" } else { "" };
        format!("{measured} measured {ideal} ideal{band}")
    }

    fn bar(&self, bar: Bar, scale: f64, width: usize) -> String {
        let mut out = String::new();
        for run in drawn(bar, scale, width).as_bytes().chunk_by(|a, b| (*a == b'#') == (*b == b'#'))
        {
            let tone = if run[0] == b'#' { Tone::Measured } else { Tone::Ideal };
            let text = String::from_utf8_lossy(run);
            out += &self.paint(tone, &text);
        }
        out
    }
}

/// Draws the measured as `#`, the ideal as `|` and the ends of its band as parentheses, which are
/// left out where they would be in the ideal's column.
pub(super) fn drawn(bar: Bar, scale: f64, width: usize) -> String {
    let column =
        |value: f64| ((value / scale.max(f64::MIN_POSITIVE)).round() as usize).min(width - 1);
    let mut letters = vec![' '; width];
    // The smallest number is not none.
    let end = column(bar.measured).max(usize::from(bar.measured > 0.0));
    letters[..end].fill('#');
    let ideal = column(bar.ideal);
    if let Some([low, high]) = bar.band {
        for (place, letter) in [(column(low), '('), (column(high), ')')] {
            if place != ideal {
                letters[place] = letter;
            }
        }
    }
    if ideal > 0 {
        letters[ideal] = '|';
    }
    letters.iter().collect::<String>().trim_end().to_string()
}

fn tone_of(grade: Grade) -> Tone {
    match grade {
        Grade::Fits => Tone::Good,
        Grade::Structured | Grade::Slight => Tone::Doubtful,
        Grade::Worse => Tone::Bad,
    }
}

impl Block {
    /// Returns whether lines are left empty around it.
    fn is_tall(&self) -> bool {
        matches!(self, Self::Table(_) | Self::Pair(_) | Self::Figures(_))
    }
}

impl Bar {
    fn end(&self) -> f64 {
        self.band.map_or(0.0, |[_, high]| high).max(self.measured).max(self.ideal)
    }
}

/// Returns what is written of a text: no character that cannot be seen, and plain spaces.
fn letters(text: &str) -> String {
    visible(text).replace('\u{a0}', " ")
}
