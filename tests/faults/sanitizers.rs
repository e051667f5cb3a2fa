//! Programs built with the sanitizers of gcc and clang. They interpose the same functions as the shim, and they check
//! which library is loaded first. Their runtimes are linked dynamically by gcc, and into the program by clang.

use std::process::Command;

use crate::support::programs::{can_build, compiled};
use crate::support::skip;
use crate::with_and_without::same_in;

/// The symbolizer is a process that could outlive the program for a moment.
const NO_SYMBOLIZER: &str =
    "export ASAN_OPTIONS=symbolize=0 LSAN_OPTIONS=symbolize=0 TSAN_OPTIONS=symbolize=0; exec \"$@\"";

/// Runs tests/programs/faulty.c in each of these modes; its behaviour must be the same with and without tracking.
fn assert_unchanged(compiler: &str, flags: &[&str], modes: &[&str]) {
    if !can_build("faulty", compiler, flags) {
        skip!("{compiler} is not installed, or builds nothing with {flags:?}");
    }
    let program = compiled("faulty", compiler, flags);
    for mode in modes {
        let run = same_in(&[&program, *mode], &["sh", "-c", NO_SYMBOLIZER, "sh"]);
        if *mode == "none" {
            assert_eq!(run.status.code(), Some(5), "{}", run.stderr);
            assert!(run.report().u64("processes.total") >= 5, "the program's children are counted");
        } else {
            assert_ne!(run.stderr, "", "the sanitizer reports {mode}");
        }
    }
}

// Requirement: SEE-86, SHIM-13
#[test]
fn gcc_asan_with_a_shared_runtime_is_unchanged() {
    assert_unchanged("gcc", &["-fsanitize=address"], &["overflow", "leak", "none"]);
}

// Requirement: SHIM-13
#[test]
fn gcc_asan_with_a_static_runtime_is_unchanged() {
    assert_unchanged("gcc", &["-fsanitize=address", "-static-libasan"], &["overflow", "leak", "none"]);
}

// Requirement: SHIM-13
#[test]
fn clang_asan_is_unchanged() {
    assert_unchanged("clang", &["-fsanitize=address"], &["overflow", "leak", "none"]);
}

// Requirement: SHIM-13
#[test]
fn clang_asan_with_a_shared_runtime_is_unchanged() {
    let name = format!("libclang_rt.asan-{}.so", std::env::consts::ARCH);
    let found = Command::new("clang").arg(format!("-print-file-name={name}")).output();
    let Some(library) = found.ok().and_then(|output| String::from_utf8(output.stdout).ok()) else {
        skip!("clang is not installed");
    };
    let Some((directory, _)) = library.rsplit_once('/') else { skip!("clang has no {name}") };
    let rpath = format!("-Wl,-rpath,{directory}");
    assert_unchanged(
        "clang",
        &["-fsanitize=address", "-shared-libasan", &rpath],
        &["overflow", "leak", "none"],
    );
}

// Requirement: SHIM-13
#[test]
fn thread_sanitizer_is_unchanged() {
    for compiler in ["gcc", "clang"] {
        assert_unchanged(compiler, &["-fsanitize=thread"], &["race", "none"]);
    }
}

// Requirement: SHIM-13
#[test]
fn undefined_behaviour_sanitizer_is_unchanged() {
    for compiler in ["gcc", "clang"] {
        assert_unchanged(compiler, &["-fsanitize=undefined"], &["shift", "none"]);
    }
}

// Requirement: SEE-86, SHIM-13
#[test]
fn leak_sanitizer_is_unchanged() {
    for compiler in ["gcc", "clang"] {
        assert_unchanged(compiler, &["-fsanitize=leak"], &["leak", "none"]);
    }
}
