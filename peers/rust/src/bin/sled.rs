//! sled, a lock-free B-tree over a log.

fn main() {
    engines::run::<engines::sled::Sled>()
}
