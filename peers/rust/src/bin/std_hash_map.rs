//! The standard library's map with its default hash function.

fn main() {
    engines::run::<engines::MapEngine<engines::std_hash_map::Boxed>>()
}
