//! Builds the shim that the launcher contains, with a cargo of its own in a target directory of its own.
//!
//! The outer cargo holds the lock of its target directory, and its compiler flags are meant for programs. The inner cargo
//! must use neither.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables that the inner build must not inherit. They would make it use the outer build's directories (a deadlock),
/// run clippy in place of the compiler, or wait for the outer build's job tokens.
const NOT_INHERITED: [&str; 12] = [
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
    // Cargo sets it for build scripts, and the shim's build script would read the outer build's.
    "RUSTC_LINKER",
];

/// Names the shim's linker, for builds in which the launcher's can't link it.
const SHIM_LINKER: &str = "GPU_TRACK_SHIM_LINKER";

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
    println!("cargo:rerun-if-env-changed={SHIM_LINKER}");
    if let Some(linker) = shim_linker() {
        let target = target.to_uppercase().replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{target}_LINKER"), linker);
    }
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

/// The linker to build the shim with; `None`: cargo's default.
///
/// zig, which links the launcher against an old glibc (cargo zigbuild), refuses the shim's flags. The shim does not need
/// it: it uses no symbol that has changed since glibc 2.14.
fn shim_linker() -> Option<OsString> {
    env::var_os(SHIM_LINKER).or_else(|| {
        let outer = env::var_os("RUSTC_LINKER")?;
        let is_zig = Path::new(&outer).file_name()?.to_string_lossy().starts_with("zig");
        Some(if is_zig { "cc".into() } else { outer })
    })
}
