//! The C programs of tests/programs, compiled once per test run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

/// Path of the compiled program.
pub fn program(name: &str) -> String {
    compiled(name, "cc", &[])
}

/// Path of the program linked statically. It has no dynamic loader, so it is uninstrumented.
pub fn static_program(name: &str) -> String {
    compiled(name, "cc", &["-static"])
}

/// Path of a source file of tests/programs.
pub fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs").join(file)
}

/// Path of the program, compiled with the given compiler and flags.
pub fn compiled(name: &str, compiler: &str, flags: &[&str]) -> String {
    type Cache = Mutex<HashMap<String, Arc<OnceLock<String>>>>;
    static CACHE: OnceLock<Cache> = OnceLock::new();
    let variant = [&[compiler], flags].concat().concat();
    let key = format!("{variant}/{name}");
    let cell = CACHE.get_or_init(Cache::default).lock().unwrap().entry(key).or_default().clone();
    cell.get_or_init(|| compile(name, compiler, flags, &variant)).clone()
}

/// Whether the compiler is installed, and has what this program and the flags need.
pub fn can_build(name: &str, compiler: &str, flags: &[&str]) -> bool {
    let mut command = Command::new(compiler);
    command.args(flags).args(["-o", "/dev/null"]).arg(source(&format!("{name}.c")));
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn compile(name: &str, compiler: &str, flags: &[&str], variant: &str) -> String {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs").join(variant);
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name);
    // Renamed when it is complete, because a running program cannot be overwritten.
    let fresh = directory.join(format!("{name}.{}", std::process::id()));
    let output = Command::new(compiler)
        .args(["-O1", "-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&fresh)
        .arg(source(&format!("{name}.c")))
        .args(flags)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(output.status.success(), "{name}.c: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&fresh, &path).unwrap();
    path.into_os_string().into_string().unwrap()
}
