//! How the preloaded library is linked. What comes out is checked by `scripts/check-shim`.
//!
//! Every process of a tree pays for each segment that the dynamic linker maps, each page that it writes to, and each
//! symbol that it looks up, so there are few of them: one segment for code and constants, and one page of data.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Flags of lld: constants in the segment of the code, and data on a page of its own, not across two.
const FEW_SEGMENTS: [&str; 2] = ["-Wl,--no-rosegment", "-Wl,-z,separate-loadable-segments"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        // Nothing is resolved lazily: waitpid and _exit must stay async-signal-safe.
        "-Wl,-z,now",
        // Handlers are registered with libc (on_exit, atfork): the code must never be unmapped.
        "-Wl,-z,nodelete",
        // Without this an undefined symbol links silently, and then kills every program at its start.
        "-Wl,-z,defs",
        "-Wl,--as-needed",
        // The compiler's start files do nothing here but have five symbols looked up.
        "-nostartfiles",
        // A hook that goes to another hook of ours needs no look-up.
        "-Wl,-Bsymbolic",
        // It would split the data into two pages and two mappings, and guard nothing: the addresses of the next
        // functions have to be writable anyway.
        "-Wl,-z,norelro",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    let few: &[&str] = if links_with(&FEW_SEGMENTS)? {
        &FEW_SEGMENTS
    } else {
        // What GNU ld has for it.
        &["-Wl,-z,noseparate-code"]
    };
    for arg in few {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    Ok(())
}

/// Whether the linker takes these flags: which one it is, rustc does not say. GNU ld since 2.44 knows the first, and
/// ignores the other with a warning.
fn links_with(flags: &[&str]) -> Result<bool, Box<dyn Error>> {
    let directory = PathBuf::from(env::var("OUT_DIR")?);
    let source = directory.join("probe.rs");
    std::fs::write(
        &source,
        "#![no_std]\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }\n",
    )?;
    let mut rustc = Command::new(env::var("RUSTC")?);
    rustc.args(["--crate-type", "cdylib", "--edition", "2024", "-Cpanic=abort", "-Clink-arg=-nostartfiles"]);
    rustc.args(["--target", &env::var("TARGET")?]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    if let Ok(of_cargo) = env::var("CARGO_ENCODED_RUSTFLAGS") {
        rustc.args(of_cargo.split('\x1f').filter(|flag| !flag.is_empty()));
    }
    rustc.args(["-Wl,--fatal-warnings"].iter().chain(flags).map(|flag| format!("-Clink-arg={flag}")));
    rustc.arg("-o").arg(directory.join("probe.so")).arg(&source);
    let status = rustc.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    Ok(status.success())
}
