//! Developer tasks: check, tidy, bench, peers.
fn main() {}
