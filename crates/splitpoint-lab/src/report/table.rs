//! Tables of the page: with a caption, headed rows and columns, and a container of their own to
//! scroll in where the window is narrow.

use std::borrow::Cow;

use maud::{Markup, html};

/// A table, row by row.
#[derive(Debug)]
pub(super) struct Table {
    caption: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    is_sortable: bool,
}

#[derive(Debug)]
struct Column {
    name: Cow<'static, str>,
    is_number: bool,
}

/// One cell.
#[derive(Debug)]
pub(super) struct Cell {
    shown: Markup,
    /// What it is sorted by, if not by its text.
    order: Option<f64>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { shown: html! { (text) }, order: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_string().into()
    }
}

impl From<Markup> for Cell {
    fn from(shown: Markup) -> Self {
        Self { shown, order: None }
    }
}

impl Cell {
    /// Makes a cell that is sorted by `order`.
    pub(super) fn ordered(order: f64, shown: impl Into<Self>) -> Self {
        Self { order: Some(order), ..shown.into() }
    }
}

impl Table {
    /// Makes a table without columns.
    pub(super) fn new(caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), columns: Vec::new(), rows: Vec::new(), is_sortable: false }
    }

    /// Adds a column of words; the first column heads its rows.
    pub(super) fn words(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.columns.push(Column { name: name.into(), is_number: false });
        self
    }

    /// Adds a column of numbers.
    pub(super) fn numbers(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.columns.push(Column { name: name.into(), is_number: true });
        self
    }

    /// Lets the reader sort the rows by any column.
    pub(super) fn sortable(mut self) -> Self {
        self.is_sortable = true;
        self
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// If it has not as many cells as there are columns.
    pub(super) fn push(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Returns the table in its container.
    pub(super) fn render(&self) -> Markup {
        let Self { caption, columns, rows, is_sortable } = self;
        let class = |index: usize| columns[index].is_number.then_some("n");
        html! {
            div.scroll role="region" aria-label=(caption) tabindex="0" {
                table data-sort[*is_sortable] {
                    caption { span { (caption) } }
                    thead { tr {
                        @for (index, column) in columns.iter().enumerate() {
                            th scope="col" class=[class(index)] { (column.name) }
                        }
                    } }
                    tbody {
                        @for row in rows { tr {
                            @for (index, cell) in row.iter().enumerate() {
                                @let order = cell.order.map(|order| format!("{order:e}"));
                                @if index == 0 {
                                    th scope="row" data-v=[order] class=[class(index)] { (cell.shown) }
                                } @else {
                                    td data-v=[order] class=[class(index)] { (cell.shown) }
                                }
                            }
                        } }
                    }
                }
            }
        }
    }
}

/// Returns names with their values.
pub(super) fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, Markup)>) -> Markup {
    html! {
        dl.facts {
            @for (name, value) in facts { div { dt { (name) } dd { (value) } } }
        }
    }
}
