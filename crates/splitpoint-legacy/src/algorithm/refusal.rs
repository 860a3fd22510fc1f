//! Why a table does not take a pair.

use std::fmt;

/// A pair that was not stored, with the numbers that say why.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The pair is larger than a page.
    PairExceedsPage {
        /// Bytes of key and value.
        pair_bytes: u64,
        /// The most that a page takes.
        pair_bytes_max: u64,
    },
    /// The pair and those with the same hash are together larger than a page, so that no split can
    /// make room. The original of 4.3BSD splits for ever.
    CollidingKeys {
        /// Keys with this hash, the new one included.
        key_count: u64,
        /// The hash that they have.
        hash: u32,
        /// Bytes of a page.
        page_bytes: u64,
    },
    /// So many splits in a row made no room, because the keys agree in the bits that these looked
    /// at.
    SplitLimit {
        /// The splits of this store, 0 if earlier ones have used all bits of the hash.
        split_count: u64,
        /// Lowest bits of the hash in which the keys of the page agree with the new one, by all splits.
        depth: u32,
        /// Keys of the page.
        key_count: u64,
    },
    /// Every slot of a table of fixed size has an entry, but for the one that ends a search.
    TableFull {
        /// Slots of the table.
        slot_count: u64,
    },
    /// The keys of a full bucket differ only in bits that no directory uses.
    DirectoryLimit {
        /// Keys with these bits, the new one included.
        key_count: u64,
        /// The most bits that a directory uses.
        depth_max: u32,
    },
    /// The package itself failed.
    Failed(splitpoint::Error),
}

/// A reason for a [`Refusal`], as far as the paper names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A pair exceeds the page.
    PairExceedsPage,
    /// Colliding keys exceed the page.
    CollidingKeys,
    /// The table is full.
    TableFull,
    /// The directory cannot grow: the paper does not name it.
    DirectoryLimit,
    /// The package failed: the paper does not name it.
    Failed,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::PairExceedsPage,
        Self::CollidingKeys,
        Self::TableFull,
        Self::DirectoryLimit,
        Self::Failed,
    ];

    /// Returns the name of the reason, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::PairExceedsPage => "pair exceeds page",
            Self::CollidingKeys => "colliding keys exceed page",
            Self::TableFull => "table full",
            Self::DirectoryLimit => "directory limit",
            Self::Failed => "failed",
        }
    }

    /// Returns the words of the paper, if it names the reason.
    pub fn in_paper(self) -> Option<&'static str> {
        match self {
            Self::PairExceedsPage => {
                Some("cannot store data items whose total key and data size exceed the page size")
            }
            Self::CollidingKeys => Some(
                "if two or more keys produce the same hash value and their total size exceeds the \
                 page size, the table cannot store all the colliding keys",
            ),
            Self::TableFull => Some("an insertion fails with a \"table full\" condition"),
            Self::DirectoryLimit | Self::Failed => None,
        }
    }
}

impl Refusal {
    /// Returns the reason, without numbers.
    pub fn reason(&self) -> Reason {
        match self {
            Self::PairExceedsPage { .. } => Reason::PairExceedsPage,
            Self::CollidingKeys { .. } | Self::SplitLimit { .. } => Reason::CollidingKeys,
            Self::TableFull { .. } => Reason::TableFull,
            Self::DirectoryLimit { .. } => Reason::DirectoryLimit,
            Self::Failed(_) => Reason::Failed,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PairExceedsPage { pair_bytes, pair_bytes_max } => write!(
                f,
                "the pair exceeds the page: it has {pair_bytes} bytes, at most {pair_bytes_max} fit"
            ),
            Self::CollidingKeys { key_count, hash, page_bytes } => write!(
                f,
                "colliding keys exceed the page: {key_count} keys with the hash {hash:08x} do not \
                 fit into {page_bytes} bytes"
            ),
            Self::SplitLimit { split_count, depth, key_count } => {
                let s = if *split_count == 1 { "" } else { "s" };
                let keys = if *key_count == 1 { "key" } else { "keys" };
                let agree = if *key_count == 1 { "agrees" } else { "agree" };
                f.write_str("colliding keys exceed the page: ")?;
                if *split_count > 0 {
                    write!(f, "{split_count} split{s} in a row made no room: ")?;
                }
                write!(
                    f,
                    "{key_count} {keys} on the page {agree} with it in the lowest {depth} bits of the \
                     hash"
                )
            }
            Self::TableFull { slot_count } => {
                write!(
                    f,
                    "table full: all but one of {slot_count} slots have an entry, and that one must \
                     stay empty"
                )
            }
            Self::DirectoryLimit { key_count, depth_max } => write!(
                f,
                "the directory cannot grow: {key_count} keys agree in the {depth_max} bits of the \
                 hash that it can use"
            ),
            Self::Failed(_) => f.write_str("the table failed"),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(cause) => Some(cause),
            _ => None,
        }
    }
}

impl From<splitpoint::Error> for Refusal {
    fn from(cause: splitpoint::Error) -> Self {
        Self::Failed(cause)
    }
}
