//! fjall, a log-structured merge tree.

fn main() {
    engines::run::<engines::fjall::Fjall>()
}
