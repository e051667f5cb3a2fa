//! Programs that are built with gcc's sanitizers, which watch the same functions as the shim, and are particular about
//! who is loaded before them.

use std::process::Command;

use crate::support::programs::compiled;
use crate::support::skip;
use crate::twice::same_with_and_without;

/// Whether gcc has a runtime library.
fn has(library: &str) -> bool {
    let output = Command::new("gcc").arg(format!("-print-file-name={library}")).output();
    output.is_ok_and(|output| output.stdout.starts_with(b"/"))
}

/// Each of `modes`; the last ends well, after it had children.
fn check(library: &str, flags: &[&str], modes: &[&str]) {
    if !has(library) {
        skip!("gcc has no {library}");
    }
    let program = compiled("faulty", "gcc", flags);
    for mode in modes {
        let run = same_with_and_without(&[&program, *mode]);
        if *mode == "none" {
            assert_eq!(run.status.code(), Some(5), "{}", run.stderr);
            assert!(run.report().u64("processes.total") >= 5, "its children are seen");
        } else {
            assert_ne!(run.stderr, "", "{mode} is found");
        }
    }
}

#[test]
fn address_with_the_shared_runtime() {
    check("libasan.so", &["-fsanitize=address"], &["overflow", "leak", "none"]);
}

#[test]
fn address_with_a_static_runtime() {
    check("libasan.a", &["-fsanitize=address", "-static-libasan"], &["overflow", "leak", "none"]);
}

#[test]
fn thread() {
    check("libtsan.so", &["-fsanitize=thread"], &["race", "none"]);
}

#[test]
fn undefined_behaviour() {
    check("libubsan.so", &["-fsanitize=undefined"], &["shift", "none"]);
}

#[test]
fn leaks() {
    check("liblsan.so", &["-fsanitize=leak"], &["leak", "none"]);
}
