//! Builds the shim that the launcher carries, with cargo, into a target directory of its own.
//!
//! The outer cargo holds the lock of its target directory, and its flags are meant for programs: neither may reach
//! the inner one.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

/// Variables that would send the inner build to the outer one's directories (deadlock), run clippy in the compiler's
/// place, or wait for the outer build's job tokens.
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
    // Whatever the shim needs, the launcher's own build has already fetched.
    cargo
        .args(["build", "--offline", "--profile", "shim", "--package", "gpu-track-shim", "--target", &target])
        .arg("--target-dir")
        .arg(&target_dir)
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        // Set and empty: flags from configuration files (target-cpu, other linkers) are overridden too.
        .env("CARGO_ENCODED_RUSTFLAGS", "");
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("building the shim failed ({status}): {cargo:?}").into());
    }

    let library = target_dir.join(&target).join("shim").join("libgpu_track_shim.so");
    let bytes = std::fs::read(&library).map_err(|e| format!("{}: {e}", library.display()))?;
    println!("cargo:rustc-env=GPU_TRACK_SHIM_SO={}", library.display());
    println!("cargo:rustc-env=GPU_TRACK_SHIM_HASH={:016x}", fnv1a(&bytes));
    Ok(())
}

/// FNV-1a, 64 bits: names a build of the shim; that a file is that build is checked byte by byte.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
