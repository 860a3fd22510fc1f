//! hashbrown with its default hash function, foldhash.

fn main() {
    engines::run::<engines::MapEngine<engines::hashbrown::Boxed>>()
}
