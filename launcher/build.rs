//! Builds the shim that the launcher contains, with a cargo of its own in a target directory of its own.
//!
//! The outer cargo holds the lock of its target directory, and its compiler flags are meant for programs. The inner cargo
//! must use neither.

use std::env;
use std::error::Error;
use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;
use std::process::Command;

/// Variables that the inner build must not inherit. They would make it use the outer build's directories (a deadlock),
/// run clippy in place of the compiler, or wait for the outer build's job tokens.
const NOT_INHERITED: [&str; 11] = [
    "CARGO_BUILD_BUILD_DIR",
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_MAKEFLAGS",
    "CARGO_TARGET_DIR",
    "MAKEFLAGS",
    "MFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("..");
    for source in [
        "shim/src",
        "shim/build.rs",
        "shim/Cargo.toml",
        "include/src",
        "include/Cargo.toml",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    println!("cargo:rerun-if-changed=build.rs");

    let target = env::var("TARGET")?;
    let target_dir = PathBuf::from(env::var("OUT_DIR")?).join("shim");
    let mut cargo = Command::new(env::var("CARGO")?);
    for name in NOT_INHERITED {
        cargo.env_remove(name);
    }
    // The outer build has fetched all crates that the shim needs.
    cargo
        .args(["build", "--offline", "--profile", "shim", "--package", "gpu-track-shim", "--target", &target])
        .arg("--target-dir")
        .arg(&target_dir)
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        // Setting it to nothing also overrides flags in configuration files (target-cpu, other linkers).
        .env("CARGO_ENCODED_RUSTFLAGS", "");
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("building the shim failed ({status}): {cargo:?}").into());
    }

    let library = target_dir.join(&target).join("shim").join("libgpu_track_shim.so");
    let bytes = std::fs::read(&library).map_err(|e| format!("{}: {e}", library.display()))?;
    // The hash only names this build of the shim; the launcher compares every byte of a file.
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    println!("cargo:rustc-env=GPU_TRACK_SHIM_SO={}", library.display());
    println!("cargo:rustc-env=GPU_TRACK_SHIM_HASH={:016x}", hasher.finish());
    Ok(())
}
