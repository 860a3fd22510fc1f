//! What handles keep of a file that others change: values, scans and snapshots, which must stay as they were.

use std::rc::Rc;

use super::{Content, Kept, Shared, read};
use crate::cursor::Scan;
use crate::{Db, Snapshot, Value};

/// What all handles of a machine keep.
#[derive(Debug, Default)]
pub(super) struct Keeping(Vec<Keep>);

/// What one handle keeps.
#[derive(Debug)]
struct Keep {
    number: usize,
    what: Cell,
    /// The content when it looked.
    content: Content,
}

self_cell::self_cell!(
    struct Cell {
        owner: Rc<Db>,
        #[not_covariant]
        dependent: What,
    }

    impl {Debug}
);

#[derive(Debug)]
enum What<'db> {
    Values(Vec<(Vec<u8>, Value<'db>)>),
    Scan(Scan<'db>, Content),
    Snapshot(Snapshot<'db>),
}

impl<'db> What<'db> {
    fn of(db: &'db Db, content: &Content, kept: &Kept) -> crate::Result<Self> {
        Ok(match kept {
            Kept::Values(count) => {
                let keys = content.keys().take(*count);
                let value = |key: &Vec<u8>| Ok((key.clone(), db.get(key)?.expect("it was found")));
                Self::Values(keys.map(value).collect::<crate::Result<_>>()?)
            }
            Kept::Snapshot => Self::Snapshot(db.snapshot()?),
            Kept::Scan | Kept::Nothing => Self::Scan(db.scan()?, Content::new()),
        })
    }

    /// Checks values in memory, without a call. Returns one that has changed.
    fn changed(&self, content: &Content) -> Option<&Vec<u8>> {
        let Self::Values(values) = self else { return None };
        let changed = values.iter().find(|(key, value)| content[key] != **value);
        changed.map(|(key, _)| key)
    }

    /// Reads on; returns a key of a snapshot that has changed.
    fn go_on(&mut self, content: &Content) -> crate::Result<Option<Vec<u8>>> {
        match self {
            Self::Values(_) => {}
            Self::Scan(scan, found) => {
                if let Some(entry) = scan.next() {
                    let entry = entry?;
                    found.insert(entry.key.to_vec(), entry.value.to_vec());
                }
            }
            Self::Snapshot(snapshot) => {
                for (key, value) in content {
                    if snapshot.get(key)?.as_deref() != Some(&value[..]) {
                        return Ok(Some(key.clone()));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Reads to the end, and returns what was there; `None` for values.
    fn end(&mut self) -> crate::Result<Option<Content>> {
        let note = |found: &mut Content, entry: crate::Result<crate::Entry<'_>>| {
            let entry = entry?;
            found.insert(entry.key.to_vec(), entry.value.to_vec());
            Ok(())
        };
        match self {
            Self::Values(_) => Ok(None),
            Self::Scan(scan, found) => {
                scan.try_for_each(|entry| note(found, entry))?;
                Ok(Some(std::mem::take(found)))
            }
            Self::Snapshot(snapshot) => {
                let mut found = Content::new();
                snapshot.scan()?.try_for_each(|entry| note(&mut found, entry))?;
                Ok(Some(found))
            }
        }
    }
}

impl Keep {
    fn check_values(&self) -> Result<(), String> {
        let changed = self.what.with_dependent(|_, what| what.changed(&self.content).cloned());
        match changed {
            Some(key) => {
                Err(format!("the value of {key:?} that handle {} keeps changes", self.number))
            }
            None => Ok(()),
        }
    }

    /// Reads on, and checks what is read.
    fn go_on(&mut self) -> Result<(), String> {
        self.check_values()?;
        let Self { what, content, number } = self;
        match what.with_dependent_mut(|_, what| what.go_on(content)) {
            Ok(None) => Ok(()),
            Ok(Some(key)) => Err(format!("a snapshot of handle {number} loses {key:?}")),
            Err(error) => Err(format!("handle {number} cannot read on: {error}")),
        }
    }

    /// Reads to the end, and checks that all was there.
    fn end(mut self) -> Result<(), String> {
        self.go_on()?;
        let Self { mut what, content, number } = self;
        match what.with_dependent_mut(|_, what| what.end()) {
            Ok(Some(found)) if found != content => {
                Err(format!("what handle {number} looks back to changes"))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(format!("handle {number} cannot read to the end: {error}")),
        }
    }
}

impl Keeping {
    /// Takes what a handle keeps.
    pub(super) fn take_of(&mut self, number: usize) -> Self {
        let (taken, left) =
            std::mem::take(&mut self.0).into_iter().partition(|it| it.number == number);
        self.0 = left;
        Self(taken)
    }

    /// Returns whether a handle keeps anything.
    pub(super) fn has(&self, number: usize) -> bool {
        self.0.iter().any(|keep| keep.number == number)
    }

    pub(super) fn check_values(&self) -> Result<(), String> {
        self.0.iter().try_for_each(Keep::check_values)
    }

    pub(super) fn go_on(&mut self) -> Result<(), String> {
        self.0.iter_mut().try_for_each(Keep::go_on)
    }

    fn end(self) -> Result<(), String> {
        self.0.into_iter().try_for_each(Keep::end)
    }
}

impl Shared {
    /// Has a handle look at the file, and keep what it finds there.
    pub(super) fn keep(&self, number: usize, db: &Rc<Db>, kept: &Kept) -> Result<(), String> {
        let content = read(db).map_err(|error| format!("handle {number}: {error}"))?;
        {
            let history = self.history.borrow();
            let found = history.find(&content, history.acknowledged);
            found.ok_or_else(|| format!("handle {number} misses a change"))?;
        }
        if matches!(kept, Kept::Nothing) {
            return Ok(());
        }
        let what = Cell::try_new(db.clone(), |db| What::of(db, &content, kept));
        let what = what.map_err(|error| format!("handle {number}: {error}"))?;
        self.keeping.borrow_mut().0.push(Keep { number, what, content });
        Ok(())
    }

    /// Reads on in all that is kept, and checks it.
    pub(super) fn go_on_keeping(&self) -> Result<(), String> {
        self.is_quiet.set(true);
        let went_on = self.keeping.borrow_mut().go_on();
        self.is_quiet.set(false);
        went_on
    }

    /// Lets go of what one handle keeps, or all of them.
    pub(super) fn release(&self, number: Option<usize>) -> Result<(), String> {
        let released = match number {
            Some(number) => self.keeping.borrow_mut().take_of(number),
            None => self.keeping.take(),
        };
        self.is_quiet.set(number.is_none());
        let ended = released.end();
        self.is_quiet.set(false);
        ended
    }
}
