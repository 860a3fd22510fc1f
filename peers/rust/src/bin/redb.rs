//! redb, a copy-on-write B-tree.

fn main() {
    engines::run::<engines::redb::Redb>()
}
