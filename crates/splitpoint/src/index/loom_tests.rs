//! Every interleaving of a lookup with what the writer does to chains, by loom.
