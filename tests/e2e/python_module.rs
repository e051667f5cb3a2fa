//! The Python module `gpu_track`: its own tests, which use the built programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::gpu_tracker::theirs;
use crate::support::run::{BINARY, become_user, cache_home};
use crate::support::{WATCHDOG, is_root, leftovers, or_skip, skip, wait_until};

/// Arguments of unittest for all tests of the module.
const ALL: [&str; 5] = ["discover", "-s", "gpu_track_tests", "-t", "."];
/// The tests that start runs and write their files. What the others test does not depend on the user.
const OF_USERS: [&str; 2] = ["gpu_track_tests.test_tracker", "gpu_track_tests.test_record"];

/// Where the module and its tests are.
pub fn module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../include/python").canonicalize().unwrap()
}

/// A Python that the module is for, and that runs after the words of `prefix`: the first one on PATH can be root's alone.
pub fn python(prefix: &[String]) -> Result<Vec<String>, &'static str> {
    let behind = |python: &str| [prefix, &[python.to_owned()]].concat();
    let is_new = |words: &Vec<String>| {
        let test = "import sys; sys.exit(sys.version_info < (3, 9))";
        let asked =
            Command::new(&words[0]).args(&words[1..]).args(["-c", test]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    ["python3", "/usr/bin/python3"].map(behind).into_iter().find(is_new).ok_or("needs Python 3.9")
}

/// Runs tests of the module by the Python that `words` start, with `cache` as the directory of the shim.
fn run_tests(words: &[String], tests: &[&str], cache: &Path) {
    let mark = leftovers::new_mark();
    let watchdog = (5 * WATCHDOG).as_secs().to_string();
    let done = Command::new("timeout")
        .arg(watchdog)
        .args(words)
        .args(["-B", "-m", "unittest"])
        .args(tests)
        .current_dir(module())
        .env("GPU_TRACK_RUN", BINARY)
        .env("XDG_CACHE_HOME", cache)
        .env(leftovers::VARIABLE, &mark)
        .env_remove("GPU_TRACK_SESSION")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    assert!(text.contains("\nRan ") && text.ends_with("\nOK\n"), "none is skipped: {text}");
    // A collector outlives its killed launcher until the program ends.
    wait_until("what the tests started is over", || leftovers::processes(&mark).is_empty());
}

// Requirement: PY-1, PY-2, PY-3, PY-4, PY-5, PY-6, PY-8, PY-11, PY-13, PY-14, PY-16, PY-17, PY-18, PY-19, PY-25, PY-26, PY-27, PY-28, PY-29, PY-30, PY-31, PY-32, PY-33, PY-34, PY-35, PY-36
#[test]
fn python_module_does_what_its_tests_say() {
    run_tests(&or_skip!(python(&[])), &ALL, &cache_home());
}

// Requirement: PY-1, PY-2, PY-10, PY-13, PY-14
#[test]
fn python_module_has_the_forms_and_figures_of_gpu_tracker() {
    let python = or_skip!(theirs()).with_file_name("python");
    if std::env::var_os("GPU_TRACK_TEST_GPU_TRACKER_DATA").is_none() {
        skip!("gpu_tracker's test data is not there (scripts/test)");
    }
    run_tests(&[python.to_str().unwrap().to_owned()], &["gpu_track_tests.check_peer"], &cache_home());
}

// Requirement: PY-16, PY-17, PY-18, PY-19, PY-24
#[test]
fn notebook_shows_what_its_cells_used() {
    let kernel = std::env::var("GPU_TRACK_TEST_JUPYTER")
        .map_err(|_| "ipykernel and nbclient are not installed (scripts/test)");
    run_tests(&[or_skip!(kernel)], &["gpu_track_tests.check_notebook"], &cache_home());
}

// Requirement: PY-9
#[test]
fn python_module_does_so_for_an_ordinary_user() {
    if !is_root() {
        skip!("needs root (setpriv); the other test runs as an ordinary user");
    }
    let user = become_user(65534);
    let may_read = |path: &Path| {
        Command::new(&user[0]).args(&user[1..]).args(["test", "-r"]).arg(path).status().unwrap().success()
    };
    if ![Path::new(BINARY), &module()].into_iter().all(may_read) {
        skip!("the directory of the built programs is closed to other users");
    }
    let cache = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(cache.path(), Some(65534), Some(65534)).unwrap();
    run_tests(&or_skip!(python(&user)), &OF_USERS, cache.path());
}
