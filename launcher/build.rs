//! Builds the shim that the launcher carries.
fn main() {}
