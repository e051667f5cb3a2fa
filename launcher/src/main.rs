//! The `gpu-track-run` command.
fn main() {}
