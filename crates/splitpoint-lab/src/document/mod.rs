//! A document of blocks, built once and rendered as text, as a page and as Markdown.
//!
//! ```text
//! Study --> report --> Document --> text      columns of letters, colors by a hook
//!                                  html      one page that needs no other file
//!                                  markdown  for an issue or a wiki
//! ```
//!
//! # Invariants
//!
//! - A renderer adds no facts: what two of them say comes from the same block.
//! - Characters that cannot be seen are written out by each renderer, wherever a text came from.
//! - A picture has its message in words and its numbers in a table, for readers who cannot see it.

mod html;
mod markdown;
mod plain;
#[cfg(test)]
mod tests;
mod text;

use std::borrow::Cow;

use maud::Markup;

use crate::measure::Grade;
use crate::number::grouped;

pub use self::html::PAGE_START;
pub use self::markdown::MARKDOWN_START;
pub(crate) use self::plain::shown;
pub use self::text::{Look, Tone};

/// Sections of blocks under one title.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::study::{KeyFacts, Machine, Program};
/// use splitpoint_lab::{Study, document, report};
///
/// let keys = KeyFacts { source: "words".to_string(), ..KeyFacts::default() };
/// let document = report::document(&Study::new(Program::default(), Machine::default(), keys));
/// let page = document.html();
/// assert!(page.starts_with(document::PAGE_START));
/// assert!(page.contains("<h1>Hash functions on <code>words</code></h1>"));
/// assert!(document.markdown().contains("\n# Hash functions on `words`\n"));
/// assert!(document.text(&document::Look::plain(80)).starts_with("Hash functions on `words`\n"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Document {
    pub(crate) title: Line,
    pub(crate) subtitle: Line,
    pub(crate) sections: Vec<Section>,
}

impl Document {
    /// Returns the page: one file that loads nothing from elsewhere.
    pub fn html(&self) -> String {
        html::page(self)
    }

    /// Returns the document in GitHub's Markdown.
    pub fn markdown(&self) -> String {
        markdown::markdown(self)
    }

    /// Returns the document as lines of text, without its appendices and, unless `look` wants
    /// them, without folded blocks.
    pub fn text(&self, look: &Look<'_>) -> String {
        text::text(self, look)
    }
}

/// A part of the document with a title.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// For reference: not in the text.
    pub(crate) is_appendix: bool,
    pub(crate) blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    /// The sentence to read if only one is read.
    Lead(Line),
    Prose(Line),
    /// Prose that must not be overlooked.
    Warning(Line),
    /// Sentences under a heading, which may be empty.
    List(&'static str, Vec<Line>),
    /// One line for each verdict.
    Grades(Vec<(Grade, Line)>),
    /// Names with their values, or words with their meanings.
    Facts(Vec<(&'static str, Line)>),
    Table(Table),
    /// Small tables that may stand beside each other.
    Pair(Vec<Table>),
    Figures(Vec<Figure>),
    /// Words with the picture that proves them; they stand beside each other where there is room.
    Beside(Vec<Block>, Box<Figure>),
    Fold(Fold),
}

/// Blocks that the reader may open.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) summary: Line,
    /// The summary is a heading.
    pub(crate) is_headed: bool,
    pub(crate) is_open: bool,
    pub(crate) blocks: Vec<Block>,
}

impl Fold {
    /// Makes a closed one.
    pub(crate) fn closed(summary: impl Into<Line>, block: Block) -> Block {
        let (is_headed, is_open) = (false, false);
        Block::Fold(Self { summary: summary.into(), is_headed, is_open, blocks: vec![block] })
    }
}

/// Words of several kinds in one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Line(Vec<Span>);

#[derive(Clone, Debug, PartialEq)]
enum Span {
    Plain(String),
    Strong(String),
    /// What is typed, or stands in a file.
    Code(String),
    Faint(String),
    /// A number that chance does not explain.
    Alarm(String),
    Grade(Grade),
}

impl From<&str> for Line {
    fn from(text: &str) -> Self {
        text.to_string().into()
    }
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        Self(vec![Span::Plain(text)])
    }
}

impl From<Grade> for Line {
    fn from(grade: Grade) -> Self {
        Self(vec![Span::Grade(grade)])
    }
}

impl Line {
    pub(crate) fn strong(text: impl Into<String>) -> Self {
        Self(vec![Span::Strong(text.into())])
    }

    pub(crate) fn code(text: impl Into<String>) -> Self {
        Self(vec![Span::Code(text.into())])
    }

    pub(crate) fn faint(text: impl Into<String>) -> Self {
        Self(vec![Span::Faint(text.into())])
    }

    pub(crate) fn alarm(text: impl Into<String>) -> Self {
        Self(vec![Span::Alarm(text.into())])
    }

    /// Makes a sentence of words in which backticks enclose what is typed.
    pub(crate) fn sentence(words: &str) -> Self {
        let mut first = words.chars();
        let words: String =
            first.next().into_iter().flat_map(char::to_uppercase).chain(first).collect();
        let part = |(number, part): (usize, &str)| match number % 2 {
            0 => Span::Plain(part.to_string()),
            _ => Span::Code(part.to_string()),
        };
        Self(words.split('`').enumerate().map(part).collect()).then(".")
    }

    /// Returns this line with another after it.
    pub(crate) fn then(mut self, other: impl Into<Self>) -> Self {
        self.0.extend(other.into().0);
        self
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Rows of cells under named columns, of which the first heads its row.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    caption: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    is_sortable: bool,
    /// One for each row: text has them beside the numbers.
    bars: Vec<Bar>,
}

#[derive(Clone, Debug)]
struct Column {
    name: Cow<'static, str>,
    is_number: bool,
    /// Text, which is narrow, omits it.
    is_wide: bool,
}

/// One cell.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    line: Line,
    /// What it is sorted by, if not by its text.
    order: Option<f64>,
}

/// A number drawn as letters, with its ideal and the ends of the band around that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    pub(crate) measured: f64,
    pub(crate) ideal: f64,
    pub(crate) band: Option<[f64; 2]>,
}

impl<T: Into<Line>> From<T> for Cell {
    fn from(line: T) -> Self {
        Self { line: line.into(), order: None }
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::ordered(count as f64, grouped(count))
    }
}

impl Cell {
    /// Makes a cell that is sorted by `order`.
    pub(crate) fn ordered(order: f64, line: impl Into<Line>) -> Self {
        Self { line: line.into(), order: Some(order) }
    }
}

/// Makes the cells of a row of anything that is a cell.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { [$($crate::document::Cell::from($cell)),*] };
}
pub(crate) use cells;

impl Table {
    /// Makes a table without columns.
    pub(crate) fn new(caption: impl Into<String>) -> Self {
        let caption = caption.into();
        Self { caption, columns: vec![], rows: vec![], is_sortable: false, bars: vec![] }
    }

    fn columns<N: Into<Cow<'static, str>>>(
        mut self,
        names: impl IntoIterator<Item = N>,
        is_number: bool,
    ) -> Self {
        let column = |name: N| Column { name: name.into(), is_number, is_wide: false };
        self.columns.extend(names.into_iter().map(column));
        self
    }

    /// Adds columns of words.
    pub(crate) fn words<N: Into<Cow<'static, str>>>(
        self,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        self.columns(names, false)
    }

    /// Adds columns of numbers.
    pub(crate) fn numbers<N: Into<Cow<'static, str>>>(
        self,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        self.columns(names, true)
    }

    /// Omits the last column from text, which is narrow.
    pub(crate) fn wide(mut self) -> Self {
        self.columns.last_mut().expect("a column was added").is_wide = true;
        self
    }

    /// Omits the last column from text if `is_wide`.
    pub(crate) fn wide_if(self, is_wide: bool) -> Self {
        if is_wide { self.wide() } else { self }
    }

    /// Lets the reader of a page sort the rows by any column.
    pub(crate) fn sortable(mut self) -> Self {
        self.is_sortable = true;
        self
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// If it has not as many cells as there are columns.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Adds a row with a bar.
    pub(crate) fn push_bar(&mut self, cells: impl IntoIterator<Item = Cell>, bar: Bar) {
        self.push(cells);
        self.bars.push(bar);
    }

    /// Returns whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// A picture, what it shows in words, and its numbers.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Unique in the document.
    pub(crate) id: String,
    /// What is drawn.
    pub(crate) title: String,
    /// What the picture shows, in words.
    pub(crate) summary: String,
    /// Height in units of which it is [`WIDTH`] wide.
    pub(crate) height: f64,
    /// The picture, as the content of an SVG.
    pub(crate) drawing: Markup,
    /// What its marks mean.
    pub(crate) legend: Vec<(Markup, String)>,
    /// The numbers, if no table near by has them.
    pub(crate) data: Option<Table>,
    /// What stands for it in a text.
    pub(crate) letters: Letters,
}

impl Figure {
    /// Makes a picture without a legend and numbers, which no text has.
    pub(crate) fn new(
        id: impl Into<String>,
        title: impl Into<String>,
        summary: impl Into<String>,
        drawing: Markup,
    ) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            summary: summary.into(),
            height: 220.0,
            drawing,
            legend: Vec::new(),
            data: None,
            letters: Letters::Nothing,
        }
    }
}

/// What stands for a picture in a text.
#[derive(Clone, Debug)]
pub(crate) enum Letters {
    /// Nothing: other blocks say the same.
    Nothing,
    /// Its numbers, with their bars.
    Data,
    /// These lines.
    Lines(Vec<String>),
}

/// Width of every picture in its own units, in which letters are 11 high. Small, so that they can
/// be read on a telephone, where a picture is not much wider than that.
pub(crate) const WIDTH: f64 = 420.0;
