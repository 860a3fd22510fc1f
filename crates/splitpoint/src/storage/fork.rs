//! Distinguishes the process that opened a handle from its forks.
//!
//! A child has the memory, the mappings and the locks of its parent, and none of its threads. If it
//! changed the store, closed it or dropped the handle, it would write between the parent's writes,
//! mark the store closed and release the parent's lock.

use std::sync::atomic::{AtomicU32, Ordering};

/// The process that created something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// A word that has the number in that process and 0 in a child.
    word: &'static AtomicU32,
    /// A number that no ancestor has. Process ids repeat: a child in a new pid namespace can have that
    /// of its parent.
    number: u32,
    /// The id of the process, where there is no such word.
    id: Option<u32>,
}

/// The word of what has no process: it always has its number.
static EVERYWHERE: AtomicU32 = AtomicU32::new(1);
/// The word where the system wipes none: it never has the number.
static NOWHERE: AtomicU32 = AtomicU32::new(0);

impl Origin {
    /// Returns this process.
    pub(crate) fn here() -> Self {
        /// The number of the process that numbered itself last. A child inherits it from its parent
        /// and counts on from it.
        static LAST: AtomicU32 = AtomicU32::new(0);

        let Some(word) = wiped_word() else {
            return Self { word: &NOWHERE, number: 1, id: Some(std::process::id()) };
        };
        let number = match word.load(Ordering::Relaxed) {
            0 => {
                let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
                // Another thread may have been first.
                let stored = word.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
                stored.map_or_else(|first| first, |_| number)
            }
            number => number,
        };
        Self { word, number, id: None }
    }

    /// Returns the origin of what a child may use as its own.
    pub(crate) fn everywhere() -> Self {
        Self { word: &EVERYWHERE, number: 1, id: None }
    }

    /// Returns the origin of what no process may use by itself.
    pub(crate) fn nowhere() -> Self {
        Self { word: &NOWHERE, number: 1, id: None }
    }

    /// Returns whether this is still that process. Costs two loads and a comparison, or a system call
    /// where the kernel cannot wipe a word.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.word.load(Ordering::Relaxed) == self.number || self.has_id()
    }

    #[cold]
    fn has_id(&self) -> bool {
        self.id.is_some_and(|id| id == std::process::id())
    }
}

impl Default for Origin {
    fn default() -> Self {
        Self::here()
    }
}

/// Returns a word that is 0 again in a child, if the system has such memory (Linux 4.14).
/// Maps one page, which stays for the life of the process; more, if threads ask at once.
#[cfg(not(any(miri, loom)))]
fn wiped_word() -> Option<&'static AtomicU32> {
    use std::sync::atomic::AtomicPtr;

    /// Points to [`NOWHERE`] if there is no such word, and is null before the first call.
    static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
    let none = (&raw const NOWHERE).cast_mut();
    let mut word = WORD.load(Ordering::Acquire);
    if word.is_null() {
        // No thread may wait for another here, since a child of a fork could wait forever. The
        // first result is the one that counts.
        let new = map_wiped_word().unwrap_or(none);
        let stored = WORD.compare_exchange(word, new, Ordering::AcqRel, Ordering::Acquire);
        word = stored.map_or_else(|first| first, |_| new);
    }
    // SAFETY: it points to a static, or to a page that is never freed, for whose word zero is a
    // valid value; all access to it is atomic.
    (word != none).then(|| unsafe { &*word })
}

#[cfg(not(any(miri, loom)))]
fn map_wiped_word() -> Option<*mut AtomicU32> {
    use rustix::mm::{Advice, MapFlags, ProtFlags};

    let bytes = rustix::param::page_size();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses does not overlap an existing one.
    let page = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
    }
    .ok()?;
    // SAFETY: the page is new, has no contents yet, and is never freed.
    unsafe { rustix::mm::madvise(page, bytes, Advice::LinuxWipeOnFork) }.ok()?;
    Some(page.cast())
}

#[cfg(any(miri, loom))]
fn wiped_word() -> Option<&'static AtomicU32> {
    None
}
