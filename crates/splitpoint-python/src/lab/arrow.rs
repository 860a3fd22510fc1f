//! Columns of Arrow, without an object of Python for each key: the C data interface, which pyarrow,
//! pandas and Polars export as capsules.
//!
//! ```text
//! __arrow_c_stream__() --> capsule of a stream --> schema, and arrays until one is released
//! __arrow_c_array__()  --> capsules of a schema and of an array
//! ```
//!
//! The structures and their rules are those of the Arrow specification, "The Arrow C data interface"
//! and "The `PyCapsule` interface". Capsules keep what they own; what a stream returns belongs to
//! [`Owned`], which releases it.
//!
//! # Invariants
//!
//! - A column is read only if its format is known here and it has the buffers of that format; a key
//!   only if its offsets make sense. The interface does not tell the size of most buffers: there the
//!   exporter is trusted, as by every reader.
//! - A null is an error that names its row.

#![allow(unsafe_code, reason = "the interface is one of pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::keys::CHUNK;

#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    child_count: i64,
    children: *const *const Schema,
    dictionary: *const Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct Array {
    len: i64,
    null_count: i64,
    offset: i64,
    buffer_count: i64,
    child_count: i64,
    buffers: *const *const c_void,
    children: *const *const Array,
    dictionary: *const Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut Array) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private_data: *mut c_void,
}

/// A structure that an exporter has filled, and that is released when it is dropped.
struct Owned<T: Release>(T);

impl<T: Release> Drop for Owned<T> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A structure that says itself how it is released.
trait Release {
    fn release(&mut self);
}

impl Release for Schema {
    fn release(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the exporter's function for this structure, which has not been released:
            // a function that releases it sets the pointer to null.
            unsafe { release(self) }
        }
    }
}

impl Release for Array {
    fn release(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as for a schema.
            unsafe { release(self) }
        }
    }
}

/// Calls `work` on each key of a column, and returns `false` if `source` is none.
///
/// # Errors
///
/// `TypeError` for a type that holds no keys, `ValueError` for a null and for what the interface
/// forbids, and what the exporter, a signal handler or `work` raises.
pub(super) fn for_each(
    source: &Bound<'_, PyAny>,
    mut work: impl FnMut(&[u8]) -> PyResult<()>,
) -> PyResult<bool> {
    let py = source.py();
    let mut row = 0;
    if let Some(export) = source.getattr_opt(intern!(py, "__arrow_c_stream__"))? {
        let capsule = export.call0()?.cast_into::<PyCapsule>()?;
        let stream = StreamCalls(content(&capsule, c"arrow_array_stream")?);
        let schema = stream.schema()?;
        let format = Format::of(&schema.0)?;
        while let Some(array) = stream.next()? {
            Column::of(&format, &array.0)?.for_each(py, &mut row, &mut work)?;
        }
        return Ok(true);
    }
    let Some(export) = source.getattr_opt(intern!(py, "__arrow_c_array__"))? else {
        return Ok(false);
    };
    let (schema, array) =
        export.call0()?.extract::<(Bound<'_, PyCapsule>, Bound<'_, PyCapsule>)>()?;
    let format_pointer = content::<Schema>(&schema, c"arrow_schema")?;
    let array_pointer = content::<Array>(&array, c"arrow_array")?;
    // SAFETY: a capsule of this name holds a schema, which it owns; `schema` outlives the borrow.
    let format = Format::of(unsafe { &*format_pointer })?;
    // SAFETY: the same, for an array.
    Column::of(&format, unsafe { &*array_pointer })?.for_each(py, &mut row, &mut work)?;
    Ok(true)
}

/// Returns the structure that a capsule of this name holds.
fn content<T>(capsule: &Bound<'_, PyCapsule>, name: &'static CStr) -> PyResult<*mut T> {
    let pointer = capsule.pointer_checked(Some(name))?.cast::<T>();
    if pointer.is_aligned() {
        Ok(pointer.as_ptr())
    } else {
        Err(PyValueError::new_err(format!("the capsule {name:?} holds a misaligned pointer")))
    }
}

/// The functions of a stream that a capsule keeps alive.
struct StreamCalls(*mut Stream);

impl StreamCalls {
    fn stream(&self) -> &Stream {
        // SAFETY: a capsule of this name holds a stream, which it owns; the caller of `content` holds
        // the capsule, and nobody else has a reference to the stream while a function of it runs.
        unsafe { &*self.0 }
    }

    fn schema(&self) -> PyResult<Owned<Schema>> {
        let mut schema = Schema {
            format: std::ptr::null(),
            name: std::ptr::null(),
            metadata: std::ptr::null(),
            flags: 0,
            child_count: 0,
            children: std::ptr::null(),
            dictionary: std::ptr::null(),
            release: None,
            private_data: std::ptr::null_mut(),
        };
        let get_schema = self.stream().get_schema.ok_or_else(released)?;
        // SAFETY: the stream's own function, which fills the structure or returns an error.
        self.expect(unsafe { get_schema(self.0, &raw mut schema) })?;
        Ok(Owned(schema))
    }

    /// Returns the next array, or `None` after the last.
    fn next(&self) -> PyResult<Option<Owned<Array>>> {
        let mut array = Array {
            len: 0,
            null_count: 0,
            offset: 0,
            buffer_count: 0,
            child_count: 0,
            buffers: std::ptr::null(),
            children: std::ptr::null(),
            dictionary: std::ptr::null(),
            release: None,
            private_data: std::ptr::null_mut(),
        };
        let get_next = self.stream().get_next.ok_or_else(released)?;
        // SAFETY: as in `schema`.
        self.expect(unsafe { get_next(self.0, &raw mut array) })?;
        Ok(array.release.is_some().then_some(Owned(array)))
    }

    fn expect(&self, error_number: c_int) -> PyResult<()> {
        if error_number == 0 {
            return Ok(());
        }
        let get_last_error = self.stream().get_last_error.ok_or_else(released)?;
        // SAFETY: the stream's own function, called right after one that has failed.
        let message = unsafe { get_last_error(self.0) };
        let words = if message.is_null() {
            format!("error {error_number}")
        } else {
            // SAFETY: it is not null, and so text that ends in a zero until the next call.
            unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
        };
        Err(PyRuntimeError::new_err(format!("cannot read the column of Arrow: {words}")))
    }
}

fn released() -> PyErr {
    PyValueError::new_err("the stream of Arrow has been read before; make a new one")
}

/// How the keys of a column lie in its buffers.
#[derive(Debug, PartialEq, Eq)]
enum Format {
    /// Offsets of 4 bytes into one buffer.
    Variable32,
    /// The same, of 8 bytes.
    Variable64,
    /// Structures of 16 bytes, which hold a short key or say where a longer one is.
    View,
    /// Keys of this size, side by side.
    Fixed(usize),
    /// Numbers, of which each is a key of its little-endian bytes.
    Number(Number),
    /// Nothing but nulls: a column of no rows that nobody has given a type.
    Null,
    /// Integers that say where in a column of keys the key is.
    Dictionary(Number, Box<Format>),
}

/// A number in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Signed(usize),
    Unsigned(usize),
    Float(usize),
}

impl Number {
    fn size(self) -> usize {
        let (Self::Signed(size) | Self::Unsigned(size) | Self::Float(size)) = self;
        size
    }
}

impl Format {
    fn of(schema: &Schema) -> PyResult<Self> {
        if schema.release.is_none() || schema.format.is_null() {
            return Err(released());
        }
        // SAFETY: it is not null, and so text that ends in a zero, as long as the schema lives.
        let letters = unsafe { CStr::from_ptr(schema.format) }.to_string_lossy();
        let own = Self::of_letters(&letters);
        // SAFETY: null, or the schema of the dictionary, which lives as long as its parent.
        let Some(keys) = (unsafe { schema.dictionary.as_ref() }) else {
            return own.ok_or_else(|| {
                PyTypeError::new_err(format!(
                    "keys are a column of Arrow of strings, binary or numbers, not of the format \
                     '{letters}'; of a table, pass one column"
                ))
            });
        };
        match (own, Self::of(keys)?) {
            (Some(Self::Number(index)), keys)
                if !matches!(index, Number::Float(_)) && !matches!(keys, Self::Dictionary(..)) =>
            {
                Ok(Self::Dictionary(index, Box::new(keys)))
            }
            (_, keys) => Err(PyTypeError::new_err(format!(
                "a dictionary of Arrow has integers and a plain column, not the format '{letters}' \
                 and {keys:?}"
            ))),
        }
    }

    fn of_letters(letters: &str) -> Option<Self> {
        Some(match letters {
            "n" => Self::Null,
            "u" | "z" => Self::Variable32,
            "U" | "Z" => Self::Variable64,
            "vu" | "vz" => Self::View,
            "c" => Self::Number(Number::Signed(1)),
            "C" => Self::Number(Number::Unsigned(1)),
            "s" => Self::Number(Number::Signed(2)),
            "S" => Self::Number(Number::Unsigned(2)),
            "i" => Self::Number(Number::Signed(4)),
            "I" => Self::Number(Number::Unsigned(4)),
            "l" => Self::Number(Number::Signed(8)),
            "L" => Self::Number(Number::Unsigned(8)),
            "e" => Self::Number(Number::Float(2)),
            "f" => Self::Number(Number::Float(4)),
            "g" => Self::Number(Number::Float(8)),
            _ => Self::Fixed(letters.strip_prefix("w:")?.parse().ok()?),
        })
    }

    fn buffer_count_min(&self) -> usize {
        match self {
            Self::Variable32 | Self::Variable64 | Self::View => 3,
            Self::Fixed(_) | Self::Number(_) | Self::Dictionary(..) => 2,
            Self::Null => 0,
        }
    }
}

/// Bytes of the longest key that is inside a view, and where in a view it begins.
const VIEW_KEY_BYTES_MAX: usize = 12;
const VIEW_KEY_OFFSET: usize = 4;
/// Numbers in a view: the length of the key, its first 4 bytes, its buffer and its offset there.
const VIEW_NUMBERS: usize = 4;

/// An array whose structure fits its format.
struct Column<'a> {
    format: &'a Format,
    buffers: &'a [*const c_void],
    /// The rows that count are `start..end`.
    start: usize,
    end: usize,
    /// What the integers of a dictionary stand for.
    keys: Option<Box<Column<'a>>>,
}

impl<'a> Column<'a> {
    fn of(format: &'a Format, array: &'a Array) -> PyResult<Self> {
        let wrong = |what| PyValueError::new_err(format!("the array of Arrow {what}"));
        if array.release.is_none() {
            return Err(wrong("has been released before"));
        }
        let count = |number: i64| usize::try_from(number).ok();
        let (Some(start), Some(len)) = (count(array.offset), count(array.len)) else {
            return Err(wrong("has a negative length"));
        };
        // The largest element is a key of this size, or a view.
        let size = if let Format::Fixed(size) = format { (*size).max(16) } else { 16 };
        let is_addressable = |rows: usize| rows.checked_mul(size).is_some_and(|it| it < 1 << 62);
        let end = start.checked_add(len).and_then(|end| end.checked_add(1)).unwrap_or(usize::MAX);
        if !is_addressable(end) {
            return Err(wrong("is longer than memory"));
        }
        let mut column = Self { format, buffers: &[], start, end: start + len, keys: None };
        // A column without rows may have no buffers, and one of nulls has none.
        if len == 0 || *format == Format::Null {
            return Ok(column);
        }
        let buffer_count = count(array.buffer_count).unwrap_or(0);
        if array.buffers.is_null() || buffer_count < format.buffer_count_min() {
            return Err(wrong("has fewer buffers than its format asks for"));
        }
        // SAFETY: the exporter promises so many pointers there, as long as the array lives.
        column.buffers = unsafe { slice::from_raw_parts(array.buffers, buffer_count) };
        if column.buffers[1].is_null() && *format != Format::Fixed(0) {
            return Err(wrong("has no buffer of keys"));
        }
        if let Format::Dictionary(_, keys) = format {
            // SAFETY: null, or the array of the dictionary, which lives as long as its parent.
            let array = unsafe { array.dictionary.as_ref() };
            let array = array.ok_or_else(|| wrong("has no dictionary"))?;
            column.keys = Some(Box::new(Column::of(keys, array)?));
        }
        Ok(column)
    }

    /// Calls `work` on each key; `first` is the number of the first row, and then that of the next.
    fn for_each(
        &self,
        py: Python<'_>,
        first: &mut u64,
        work: &mut impl FnMut(&[u8]) -> PyResult<()>,
    ) -> PyResult<()> {
        let plain = self.keys.as_deref().map_or(self.format, |keys| keys.format);
        for at in self.start..self.end {
            match (self.key(at, *first)?, plain) {
                (Some(key), Format::Number(_)) => super::keys::number(key, &mut *work)?,
                (Some(key), _) => work(key)?,
                (None, _) => {
                    return Err(PyValueError::new_err(format!(
                        "the key in row {first} is null; leave nulls out first, with `drop_null()` \
                         of pyarrow, `dropna()` of pandas and Dask or `drop_nulls()` of Polars"
                    )));
                }
            }
            *first += 1;
            if first.is_multiple_of(CHUNK as u64) {
                py.check_signals()?;
            }
        }
        py.check_signals()
    }

    /// Returns a key, or `None` for a null. `row` is its number in messages.
    fn key(&self, at: usize, row: u64) -> PyResult<Option<&'a [u8]>> {
        if *self.format == Format::Null || self.is_null(at) {
            return Ok(None);
        }
        let (start, end) = match self.format {
            Format::Variable32 => {
                (self.number::<i32>(1, at).into(), self.number::<i32>(1, at + 1).into())
            }
            Format::Variable64 => (self.number::<i64>(1, at), self.number::<i64>(1, at + 1)),
            Format::View => return self.viewed(at, row).map(Some),
            Format::Fixed(size) => return Ok(Some(self.data(1, at * size, *size))),
            Format::Number(number) => {
                return Ok(Some(self.data(1, at * number.size(), number.size())));
            }
            Format::Dictionary(number, _) => return self.listed(at, *number, row),
            Format::Null => unreachable!("all its rows are null"),
        };
        let is_there = start == end || !self.buffers[2].is_null();
        match (usize::try_from(start), usize::try_from(end)) {
            (Ok(start), Ok(end)) if start <= end && is_there => {
                Ok(Some(self.data(2, start, end - start)))
            }
            _ => Err(PyValueError::new_err(format!(
                "the key in row {row} of the column of Arrow lies at bytes {start} to {end}"
            ))),
        }
    }

    /// Returns the key for which a row of a dictionary column stands.
    fn listed(&self, at: usize, number: Number, row: u64) -> PyResult<Option<&'a [u8]>> {
        let index = match number {
            Number::Signed(1) => self.number::<i8>(1, at).into(),
            Number::Unsigned(1) => self.number::<u8>(1, at).into(),
            Number::Signed(2) => self.number::<i16>(1, at).into(),
            Number::Unsigned(2) => self.number::<u16>(1, at).into(),
            Number::Signed(4) => self.number::<i32>(1, at).into(),
            Number::Unsigned(4) => self.number::<u32>(1, at).into(),
            // No dictionary is so long that the sign matters.
            _ => self.number::<i64>(1, at),
        };
        let (keys, index) = (self.keys.as_deref(), usize::try_from(index).ok());
        let listed = keys.zip(index).filter(|(keys, index)| *index < keys.end - keys.start);
        let (keys, index) = listed.ok_or_else(|| {
            PyValueError::new_err(format!(
                "row {row} of the column of Arrow stands for a key that its dictionary has not"
            ))
        })?;
        keys.key(keys.start + index, row)
    }

    /// Returns the key of a view.
    fn viewed(&self, at: usize, row: u64) -> PyResult<&'a [u8]> {
        let field = |index| usize::try_from(self.number::<i32>(1, at * VIEW_NUMBERS + index)).ok();
        let (len, buffer, start) = (field(0), field(2), field(3));
        if let Some(len) = len.filter(|len| *len <= VIEW_KEY_BYTES_MAX) {
            return Ok(self.data(1, at * VIEW_NUMBERS * 4 + VIEW_KEY_OFFSET, len));
        }
        // Behind the views are the buffers of long keys, and last the sizes of those.
        let sizes = self.buffers.len() - 1;
        let found = || {
            let (len, start, buffer) = (len?, start?, buffer?.checked_add(2)?);
            if buffer >= sizes || self.buffers[sizes].is_null() || self.buffers[buffer].is_null() {
                return None;
            }
            let size = usize::try_from(self.number::<i64>(sizes, buffer - 2)).ok()?;
            (start.checked_add(len)? <= size).then(|| self.data(buffer, start, len))
        };
        found().ok_or_else(|| {
            PyValueError::new_err(format!(
                "the key in row {row} of the column of Arrow lies outside of its buffers"
            ))
        })
    }

    fn is_null(&self, at: usize) -> bool {
        let validity = self.buffers[0].cast::<u8>();
        if validity.is_null() {
            return false;
        }
        // SAFETY: this buffer has a bit for each row up to `end`, and `at < end`.
        let byte = unsafe { *validity.wrapping_add(at / 8) };
        byte & (1 << (at % 8)) == 0
    }

    /// Returns an integer of a buffer, by its index there.
    fn number<T: Integer>(&self, buffer: usize, index: usize) -> T {
        let first = self.buffers[buffer].cast::<T>();
        // SAFETY: `of` and `viewed` have seen that the buffer is there. By the format it has an integer
        // of this type at `index`: one for each row up to `end`, or for offsets one more, for views
        // four, and for the sizes of buffers one for each. All bits make an integer.
        unsafe { first.wrapping_add(index).read_unaligned() }
    }

    /// Returns bytes of a buffer.
    fn data(&self, buffer: usize, start: usize, len: usize) -> &'a [u8] {
        let first = self.buffers[buffer].cast::<u8>();
        if first.is_null() || len == 0 {
            return &[];
        }
        // SAFETY: the offsets, the views or the format of the column say that these bytes are in
        // the buffer; it does not change and lives as long as the array, which is borrowed for `'a`.
        let start = unsafe { first.add(start) };
        // SAFETY: the same.
        unsafe { slice::from_raw_parts(start, len) }
    }
}

/// A type of which all bits make a value.
trait Integer: Copy {}

impl Integer for i8 {}
impl Integer for u8 {}
impl Integer for i16 {}
impl Integer for u16 {}
impl Integer for i32 {}
impl Integer for u32 {}
impl Integer for i64 {}
