//! How the preloaded library is linked. `scripts/check-shim` checks the result.
//!
//! Each segment that the dynamic linker maps, each page that it writes and each symbol that it looks up costs every
//! process time. So there is one segment for code and constants, and one page of data.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Flags of lld: constants are in the segment of the code, and data is on one page, not across two.
const FEW_SEGMENTS: [&str; 2] = ["-Wl,--no-rosegment", "-Wl,-z,separate-loadable-segments"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        // No lazy binding: waitpid and _exit must stay async-signal-safe.
        "-Wl,-z,now",
        // libc has handlers of the library (on_exit, atfork), so its code must never be unmapped.
        "-Wl,-z,nodelete",
        // Otherwise an undefined symbol is no link error, and then every program fails at its start.
        "-Wl,-z,defs",
        "-Wl,--as-needed",
        // The compiler's start files are not needed here, and would cost five symbol look-ups.
        "-nostartfiles",
        // Calls from one hook to another need no look-up.
        "-Wl,-Bsymbolic",
        // RELRO would split the data into two pages and two mappings. It would protect nothing, because the addresses
        // of the next functions must stay writable.
        "-Wl,-z,norelro",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    let few_segments: &[&str] = if links_with(&FEW_SEGMENTS)? {
        &FEW_SEGMENTS
    } else {
        // GNU ld's flag for the same.
        &["-Wl,-z,noseparate-code"]
    };
    for arg in few_segments {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    Ok(())
}

/// Whether the linker accepts these flags, found out by a link, because rustc does not say which linker it uses. GNU
/// ld 2.44 accepts the first and ignores the other with a warning, which counts as refused.
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
    if let Ok(rustflags) = env::var("CARGO_ENCODED_RUSTFLAGS") {
        rustc.args(rustflags.split('\x1f').filter(|flag| !flag.is_empty()));
    }
    rustc.args(["-Wl,--fatal-warnings"].iter().chain(flags).map(|flag| format!("-Clink-arg={flag}")));
    rustc.arg("-o").arg(directory.join("probe.so")).arg(&source);
    let status = rustc.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    Ok(status.success())
}
