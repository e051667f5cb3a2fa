//! The shim does not disturb its program: errno, descriptors, heap, locked memory, seccomp filters, other libraries.

mod common;
use common::*;

use std::process::Command;

use gpu_track_abi::layout::FLAG_SPLIT_RSS;
use gpu_track_abi::record::{Event, FLAG_BORROWED_MEMORY, FLAG_NO_STATUS, Origin};
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION};

/// The records of a case, with and without FLAG_SPLIT_RSS. The flag may decide whether an exec needs an EXEC record.
fn guest(args: &[&str]) -> Vec<(Origin, Event)> {
    let [events, split] = [0, FLAG_SPLIT_RSS].map(|flags| {
        let (events, output) = Session::with_flags(flags).case(&program("guest", &[]), args);
        assert_clean(&output);
        events
    });
    assert_eq!(kinds(&split).replace('x', ""), kinds(&events).replace('x', ""), "{args:?}");
    events
}

// Requirement: SHIM-1, SHIM-2
#[test]
fn built_library_passes_check_shim() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/check-shim");
    let output = run(Command::new(script).arg(&*SHIM));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

// Requirement: SHIM-3
#[test]
fn errno_is_unchanged() {
    assert_eq!(count(&guest(&["errno"]), 'R'), 3);
}
// Requirement: SHIM-3
#[test]
fn no_descriptor_stays_open() {
    let program = program("guest", &[]);
    let plain = run(Command::new(&program).arg("fds"));
    let (events, output) = Session::new().case(&program, &["fds"]);
    assert_clean(&output);
    assert_eq!(kinds(&events), "SFERE");
    assert_eq!(output.stdout, plain.stdout);
}
// Requirement: SHIM-8
#[test]
fn records_continue_after_all_descriptors_are_closed() {
    assert_eq!(kinds(&guest(&["close-all"])), "SFERE");
}

/// Holds as usual, with locked memory, and where the address space may not grow.
// Requirement: SHIM-3
#[test]
fn no_memory_stays_mapped() {
    assert_eq!(kinds(&guest(&["maps"])).replace('x', ""), "SFERERE");
    // SAFETY: takes no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: needs root to lock memory");
        return;
    }
    for how in ["maps-locked", "maps-full"] {
        assert_eq!(kinds(&guest(&[how])).replace('x', ""), "SFERERE", "{how}");
    }
}

// Requirement: SHIM-3
#[test]
fn shim_does_not_allocate() {
    let session = Session::new();
    let (events, output) = session.case(&program("guest", &["-DCOUNT_MALLOC"]), &["heap"]);
    assert_clean(&output);
    assert_eq!(starts(&events).len(), 2);
}

/// An unprivileged program can still lock its memory if its limit leaves 1 MiB for the shim and the segment.
// Requirement: SEE-89, SHIM-9
#[test]
fn mlockall_succeeds_with_one_mib_more() {
    // SAFETY: takes no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: needs root to become another user");
        return;
    }
    let program = program("guest", &[]);
    let plain = run(Command::new(&program).arg("size"));
    assert_clean(&plain);
    let plain: u64 = String::from_utf8(plain.stdout).unwrap().parse().unwrap();
    let limit = (plain + (1 << 20)).to_string();
    assert_eq!(kinds(&guest(&["mlockall", &limit])), "SE");
}

/// The filter kills the process for any system call of the shim's.
// Requirement: SEE-85, SHIM-5
#[test]
fn no_system_call_of_the_shim_after_a_seccomp_filter() {
    for how in ["seccomp-prctl", "seccomp-syscall", "seccomp-syscall-prctl"] {
        let events = guest(&[how]);
        // REAPED by waitpid needs no system call of the shim; FORK, EXIT and REAPED by waitid do.
        assert_eq!(kinds(&events), "SR", "{how}");
        let (reaper, child, status) = reaped(&events)[0];
        assert_eq!((reaper, status), (events[0].0.pid, 0));
        assert_ne!(child, reaper);
    }
    assert_eq!(kinds(&guest(&["seccomp-strict"])), "S");
}

// Requirement: SHIM-4
#[test]
fn records_continue_if_no_filter_was_installed() {
    assert_eq!(kinds(&guest(&["seccomp-failed"])), "SE");
}

// Requirement: SHIM-4
#[test]
fn syscall_passes_on_all_arguments() {
    guest(&["six-arguments"]);
    let events = guest(&["raw-clone"]);
    assert_eq!(kinds(&events), "SERE", "a raw clone runs no atfork handler, so there is no FORK");
    assert_eq!(exits(&events)[0].2, FLAG_BORROWED_MEMORY);
}

// Requirement: SHIM-10
#[test]
fn next_preloaded_library_is_called() {
    let chain = program("chain", &["-shared", "-fPIC"]);
    let session = Session::new();
    let mut command = Command::new(program("waits", &[]));
    let preload = format!("{}:{}", SHIM.display(), chain.display());
    let output = run(command.arg("waitpid").env(ENV_PRELOAD, preload).env(ENV_SESSION, &session.path));
    assert_clean(&output);
    let mut called: Vec<_> = output.stdout.split(|b| *b == b'\n').collect();
    called.sort_unstable();
    assert_eq!(called, [&b""[..], b"_exit", b"wait4"]);
    assert_eq!(kinds(&session.events()), "SFERE");
}

/// Debian's gcc for aarch64 calls atomics in libgcc, which need glibc's __getauxval. musl does not have it.
const FOR_MUSL: &[&str] = if cfg!(target_arch = "aarch64") { &["-mno-outline-atomics"] } else { &[] };

/// musl has no on_exit and no symbol versions, and passes no arguments to constructors.
// Requirement: HOST-1, HOST-51
#[test]
fn musl_programs_are_tracked() {
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        // To the descriptor, because cargo captures what a passing test prints.
        let line = "SKIPPED musl_programs_are_tracked: musl-gcc is not installed\n";
        return drop(std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()));
    }
    let session = Session::new();
    let mut command = session.command(compile("musl-gcc", "waits", FOR_MUSL));
    std::os::unix::process::CommandExt::arg0(&mut command, "/x/python3");
    let output = run(command.arg("waitpid"));
    assert_clean(&output);
    let events = session.events();
    assert_eq!(kinds(&events), "SFERE");
    assert_eq!(starts(&events), ["python3|waitpid"]);
    assert_eq!(exits(&events)[1].2 & FLAG_NO_STATUS, FLAG_NO_STATUS);
    assert_eq!(reaped(&events)[0].2, 21 << 8);
    for how in [
        "wait",
        "waitpid-group",
        "wait3",
        "wait4",
        "waitid",
        "nohang",
        "stopped",
        "cancel",
        "race",
        "no-child",
    ] {
        let (_, output) = session.case(&compile("musl-gcc", "waits", FOR_MUSL), &[how]);
        assert_clean(&output);
    }
    let execs = compile("musl-gcc", "execs", FOR_MUSL);
    for how in ["execve", "execle", "environ-execlp", "posix_spawn", "vfork"] {
        let (events, output) = session.case(&execs, &[how]);
        assert_clean(&output);
        assert!(starts(&events).contains(&"sh".to_owned()), "{how}");
    }
}
