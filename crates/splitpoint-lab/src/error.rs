//! Errors of the lab.

use std::fmt;

/// An error of the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No hash function has this name.
    UnknownHash {
        /// The name as given.
        name: String,
        /// The function with the nearest name; empty if none is near.
        nearest: &'static str,
    },
    /// Several hash functions have this name.
    AmbiguousHash {
        /// The name as given.
        name: String,
        /// Their full names, two or more.
        candidates: &'static [&'static str],
    },
    /// No reduction has this name.
    UnknownReduction {
        /// The name as given.
        name: String,
        /// The names of all reductions.
        known: &'static str,
    },
    /// No format of keys, and no encoding of their text, has this name.
    UnknownFormat {
        /// The name as given.
        name: String,
        /// The nearest name.
        nearest: String,
    },
    /// A reduction cannot address a table of this size.
    BucketCount {
        /// The reduction's name.
        reduction: String,
        /// The requested number of buckets.
        bucket_count: u64,
        /// The numbers that it can address.
        needs: &'static str,
    },
    /// A cluster cannot have this many nodes.
    NodeCount {
        /// The requested number of nodes.
        node_count: u64,
    },
    /// A measurement would take more memory than it is allowed.
    Memory {
        /// The bytes that it would take.
        needed_bytes: u64,
        /// The bytes that it may take.
        allowed_bytes: u64,
    },
    /// The process does not get the memory that the counts may take.
    NoMemory {
        /// The bytes that they may take.
        needed_bytes: u64,
    },
    /// The objects of a kernel's table do not fit into the memory that the address model has.
    ModelMemory {
        /// The table.
        table: &'static str,
        /// Its objects.
        object_count: u64,
    },
    /// Two partial results belong to different measurements.
    Different {
        /// The part that differs.
        what: &'static str,
    },
    /// Two partial results have more than 2^64 keys together.
    KeyCount,
    /// The bytes are not a partial result, or belong to another version.
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// The place, in bytes from the start.
        offset: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownHash { name, nearest: "" } => {
                write!(f, "no hash function is called `{name}`")
            }
            Self::UnknownHash { name, nearest } => {
                write!(f, "no hash function is called `{name}`; the nearest is `{nearest}`")
            }
            Self::AmbiguousHash { name, candidates } => {
                let (last, others) = candidates.split_last().unwrap_or((&"", &[]));
                write!(f, "`{name}` may be `{}` or `{last}`", others.join("`, `"))
            }
            Self::UnknownReduction { name, known } => {
                write!(f, "no reduction is called `{name}`; there are {known}")
            }
            Self::UnknownFormat { name, nearest } => {
                write!(f, "no format of keys is called `{name}`; the nearest is `{nearest}`")
            }
            Self::BucketCount { reduction, bucket_count, needs } => {
                write!(f, "`{reduction}` needs {needs}, not {bucket_count} buckets")
            }
            Self::NodeCount { node_count } => {
                write!(f, "a cluster has 1 to 16384 nodes, not {node_count}")
            }
            Self::Memory { needed_bytes, allowed_bytes } => {
                write!(f, "the counts take {needed_bytes} bytes, {allowed_bytes} are allowed")
            }
            Self::NoMemory { needed_bytes } => {
                write!(
                    f,
                    "the counts may take {needed_bytes} bytes, and the process does not get them"
                )
            }
            Self::ModelMemory { table, object_count } => write!(
                f,
                "{object_count} objects of the {table} table do not fit into the memory that the address \
                 model has"
            ),
            Self::Different { what } => {
                write!(f, "the partial results are of different measurements: the {what} differs")
            }
            Self::KeyCount => f.write_str("the partial results have more than 2^64 keys together"),
            Self::Malformed { what, offset } => {
                write!(f, "not a partial result: {what} at byte {offset}")
            }
        }
    }
}

impl std::error::Error for Error {}
