//! Programs that do what breaks many preloaded libraries, or what many preloaded libraries break.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::rounds;
use crate::support::programs::{compiled, source};
use crate::support::{Run, installed, program, skip, tracked};
use crate::with_and_without::{same_in, same_with_and_without};

/// Runs one of tests/programs with and without tracking and asserts its status and its number of processes.
#[track_caller]
fn assert_unchanged_and_exact(name: &str, mode: &str, status: i32, processes: u64) -> Run {
    let run = same_with_and_without(&[&program(name), mode]);
    assert_eq!(run.status.code(), Some(status), "{}", run.stderr);
    run.report().assert_all_exact(processes);
    run
}

// Requirement: SHIM-8
#[test]
fn program_that_closes_every_descriptor_is_exact() {
    for how in ["loop", "range", "unshare"] {
        let run = assert_unchanged_and_exact("hard_fds", how, 3, 6);
        assert_eq!(run.stdout, "3\n", "{how}: the shim must hold no descriptor");
    }
}

// Requirement: SHIM-8
#[test]
fn changed_or_huge_environment_is_survived() {
    for how in ["clear", "overwrite", "big"] {
        assert_unchanged_and_exact("hard_env", how, 4, 1);
    }
}

// Requirement: SHIM-4
#[test]
fn pointers_that_lead_nowhere_are_refused_by_the_kernel() {
    let run = same_with_and_without(&[&program("bad_pointers")]);
    // Statuses are printed as wait(2) gives them: libc's posix_spawn reads the array of arguments itself.
    assert!(run.stdout.contains("an argument nowhere: posix_spawn: Bad address\n"), "{}", run.stdout);
    assert!(run.stdout.ends_with("nothing wrong: status 0\n"), "{}", run.stdout);
}

// Requirement: SHIM-7
#[test]
fn fork_with_the_malloc_lock_held_is_exact() {
    assert_eq!(assert_unchanged_and_exact("hard_forks", "malloc", 5, 201).stdout, "200\n");
}

// Requirement: SHIM-7
#[test]
fn fork_in_a_signal_handler_is_exact() {
    let run = same_with_and_without(&[&program("hard_forks"), "signal"]);
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(6), "enough\n"));
    let report = run.report();
    assert!(report.u64("processes.total") >= 202);
    report.assert_all_exact(report.u64("processes.total"));
}

// Requirement: SHIM-7
#[test]
fn ten_thousand_vforks_without_exec_leak_nothing() {
    let run = assert_unchanged_and_exact("hard_forks", "vfork", 7, 10_001);
    assert_eq!(run.stdout, "10000, 0 descriptors more, 0 mappings more\n");
}

#[test]
fn ten_thousand_threads_are_survived() {
    let run = same_with_and_without(&[&program("hard_limits"), "threads"]);
    if run.status.code() == Some(8) {
        skip!("10,000 threads are not allowed here: {}", run.stdout.trim());
    }
    assert_eq!(run.status.code(), Some(9));
    run.report().assert_all_exact(2);
}

// Requirement: SEE-89, SHIM-9
#[test]
fn mlockall_works_under_the_usual_limit() {
    let run = assert_unchanged_and_exact("hard_limits", "mlockall", 9, 2);
    assert_eq!(run.stdout, "mlockall: done\n");
}

// Requirement: SHIM-6
#[test]
fn cancelled_wait_is_unchanged() {
    for mode in ["waitpid", "waitid"] {
        same_with_and_without(&[&program("cancelled_wait"), mode, "0.05"]);
    }
}

// Requirement: CMD-5
#[test]
fn script_without_a_shebang_is_run_by_sh() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    std::fs::write(&script, "echo run by sh\nexit 7\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    // env uses execvp, which runs such a script by sh. The launcher does the same.
    let run = same_in(&[script], &["env"]);
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(7), "run by sh\n"));
    same_with_and_without(&["sh", "-c", script]);
}

// Requirement: SHIM-16
#[test]
fn setuid_program_is_unchanged_and_counted() {
    let Some(su) = installed("su") else { skip!("su is not installed") };
    let mode = std::fs::metadata(&su).unwrap().permissions().mode();
    if mode & 0o4000 == 0 {
        skip!("su is not setuid");
    }
    let run = same_with_and_without(&["sh", "-c", "su --version; exit 3"]);
    assert_eq!(run.status.code(), Some(3));
    assert_eq!(run.report().u64("processes.total"), 2);
}

// Requirement: SEE-61, SEE-104
#[test]
fn thirty_two_bit_program_runs_and_its_linker_prints_a_line() {
    if !Path::new("/lib/ld-linux.so.2").exists() {
        skip!("no dynamic linker for 32-bit programs is installed");
    }
    let narrow = compiled(
        "narrow",
        "gcc",
        &["-m32", "-nostdlib", "-fpie", "-pie", "-Wl,--dynamic-linker,/lib/ld-linux.so.2"],
    );
    let sh = installed("sh").unwrap().display().to_string();
    let script = format!("{narrow} /bin/echo 32; env {narrow} /bin/echo 32; exit 7");
    // The command; its status and stdout; the number of processes; how often a 32-bit program is executed.
    let cases: [(&[&str], i32, &str, u64, usize); 3] = [
        (&[&narrow, "/nowhere"], 127, "", 1, 1),
        (&[&narrow, &sh, "-c", "/bin/true; /bin/true; exit 6"], 6, "", 3, 1),
        (&[&narrow, &sh, "-c", &script], 7, "32\n32\n", 3, 3),
    ];
    for (words, status, stdout, processes, starts) in cases {
        let run = tracked(words).run();
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(status), stdout), "{words:?}");
        let is_of_the_linker = |line: &str| line.contains("libgpu_track_shim") && line.contains("ELFCLASS64");
        assert_eq!(run.stderr.lines().count(), starts, "{words:?}: {}", run.stderr);
        assert!(run.stderr.lines().all(is_of_the_linker), "{words:?}: {}", run.stderr);
        assert_eq!(run.report().u64("processes.total"), processes, "{words:?}");
        if processes > 1 {
            // Each 32-bit program has become a 64-bit one, which is tracked.
            run.report().assert_all_exact(processes);
        }
    }
}

// Requirement: SHIM-15
#[test]
fn go_program_with_cgo_is_exact() {
    if installed("go").is_none() {
        skip!("go is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let built = directory.path().join("cgo");
    let output = std::process::Command::new("go")
        .args(["build", "-o"])
        .arg(&built)
        .arg(source("cgo.go"))
        .envs([("CGO_ENABLED", "1"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod")])
        .envs(["GOCACHE", "GOPATH"].map(|name| (name, directory.path().join(name))))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = same_with_and_without(&[built.to_str().unwrap()]);
    let stdout = "3\nfrom Go\n<nil>\n".to_owned() + &"from Go\n<nil>\n".repeat(2);
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(4), stdout.as_str()));
    run.report().assert_all_exact(5);
}

// Requirement: SHIM-15
#[test]
fn other_c_libraries_and_runtimes_are_unchanged() {
    if installed("musl-gcc").is_some() {
        let run = same_with_and_without(&[&compiled("hard_fds", "musl-gcc", &[]), "range"]);
        run.report().assert_all_exact(6);
    }
    for words in [
        vec![
            "node",
            "-e",
            "const c = require('child_process'); console.log(c.spawnSync('/bin/true').status); process.exit(4)",
        ],
        vec!["python3", "-c", "import os, sys; print(os.system('exit 3')); sys.exit(4)"],
        vec!["perl", "-e", "print system('/bin/true'), qq{\\n}; exit 4"],
        vec!["busybox", "sh", "-c", "/bin/true; echo x; exit 4"],
    ] {
        if installed(words[0]).is_some() {
            let run = same_with_and_without(&words);
            assert_eq!(run.status.code(), Some(4), "{words:?}: {}", run.stderr);
        }
    }
}

// Requirement: SHIM-15
#[test]
fn java_virtual_machine_is_unchanged() {
    if installed("java").is_none() {
        skip!("java is not installed");
    }
    let run = same_with_and_without(&["java", "-Xint", "-XX:+UseSerialGC", "--version"]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
}

/// The shim looks at the loader's list of libraries at a process's end. Another thread may be changing it then.
// Requirement: SHIM-17
#[test]
fn process_that_ends_while_a_thread_closes_a_library_is_unharmed() {
    let ends = rounds(500);
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("libcuda.so.1").display().to_string();
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-x", "c", "/dev/null", "-o", &library]);
    assert!(cc.status().unwrap().success());
    let loads = compiled("loads", "cc", &["-ldl"]);
    let race = tracked([loads, library, "race".into(), ends.to_string()]);
    let run = race.watchdog(Duration::from_secs(600)).run();
    run.assert_clean(0).assert_all_exact(u64::from(ends) + 1);
}
