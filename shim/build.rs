//! How the preloaded library is linked. What comes out is checked by `scripts/check-shim`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        // Nothing is resolved lazily: waitpid and _exit must stay async-signal-safe.
        "-Wl,-z,now",
        // Handlers are registered with libc (on_exit, atfork): the code must never be unmapped.
        "-Wl,-z,nodelete",
        // Without this an undefined symbol links silently, and then kills every program at its start.
        "-Wl,-z,defs",
        "-Wl,--as-needed",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
