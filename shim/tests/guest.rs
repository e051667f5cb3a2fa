//! A good guest: errno, descriptors, heap, locked memory, seccomp filters, other libraries.

mod common;
use common::*;

use std::process::Command;

use gpu_track_abi::layout::FLAG_SPLIT_RSS;
use gpu_track_abi::record::{Event, FLAG_BORROWED_MEMORY, FLAG_NO_STATUS, Origin};
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION};

/// What a case writes, be the kernel one that keeps RSS by thread or not. Where it is and is not told so, an exec may look
/// as if it lost a peak, or not.
fn guest(args: &[&str]) -> Vec<(Origin, Event)> {
    let [events, split] = [0, FLAG_SPLIT_RSS].map(|flags| {
        let (events, output) = Session::with_flags(flags).case(&program("guest", &[]), args);
        assert_clean(&output);
        events
    });
    assert_eq!(kinds(&split).replace('x', ""), kinds(&events).replace('x', ""), "{args:?}");
    events
}

#[test]
fn the_built_library_passes_its_check() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/check-shim");
    let output = run(Command::new(script).arg(&*SHIM));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn errno_is_left_alone() {
    assert_eq!(count(&guest(&["errno"]), 'R'), 3);
}
#[test]
fn no_descriptor_is_kept() {
    let program = program("guest", &[]);
    let plain = run(Command::new(&program).arg("fds"));
    let (events, output) = Session::new().case(&program, &["fds"]);
    assert_clean(&output);
    assert_eq!(kinds(&events), "SFERE");
    assert_eq!(output.stdout, plain.stdout);
}
#[test]
fn closing_every_descriptor_changes_nothing() {
    assert_eq!(kinds(&guest(&["close-all"])), "SFERE");
}

/// Nor where memory is locked, or there may be none more.
#[test]
fn no_memory_stays_mapped() {
    assert_eq!(kinds(&guest(&["maps"])).replace('x', ""), "SFERERE");
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: needs root, to lock memory");
        return;
    }
    for how in ["maps-locked", "maps-full"] {
        assert_eq!(kinds(&guest(&[how])).replace('x', ""), "SFERERE", "{how}");
    }
}

#[test]
fn nothing_is_allocated() {
    let session = Session::new();
    let (events, output) = session.case(&program("guest", &["-DCOUNT_MALLOC"]), &["heap"]);
    assert_clean(&output);
    assert_eq!(starts(&events).len(), 2);
}

/// An unprivileged program whose limit leaves one MiB for the library can still lock its memory.
#[test]
fn mlockall_within_a_small_limit() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: needs root, to become another user");
        return;
    }
    let program = program("guest", &[]);
    let plain = run(Command::new(&program).arg("size"));
    assert_clean(&plain);
    let plain: u64 = String::from_utf8(plain.stdout).unwrap().parse().unwrap();
    let limit = (plain + (1 << 20)).to_string();
    assert_eq!(kinds(&guest(&["mlockall", &limit])), "SE");
}

/// Status 0 stays 0: a system call of ours would be answered with SIGSYS.
#[test]
fn after_a_seccomp_filter_no_system_call_of_ours() {
    for how in ["seccomp-prctl", "seccomp-syscall", "seccomp-syscall-prctl"] {
        let events = guest(&[how]);
        // waitpid needs no call of ours; fork children, waitid and exit do.
        assert_eq!(kinds(&events), "SR", "{how}");
        let (reaper, child, status) = reaped(&events)[0];
        assert_eq!((reaper, status), (events[0].0.pid, 0));
        assert_ne!(child, reaper);
    }
    assert_eq!(kinds(&guest(&["seccomp-strict"])), "S");
}

#[test]
fn a_filter_that_did_not_come_changes_nothing() {
    assert_eq!(kinds(&guest(&["seccomp-failed"])), "SE");
}

#[test]
fn syscall_hands_on_all_its_arguments() {
    guest(&["six-arguments"]);
    let events = guest(&["raw-clone"]);
    assert_eq!(kinds(&events), "SERE", "a raw clone runs no handler, so it has no FORK");
    assert_eq!(exits(&events)[0].2, FLAG_BORROWED_MEMORY);
}

#[test]
fn the_next_preloaded_library_is_called() {
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

/// For aarch64 Debian's gcc calls atomics of its libgcc, which ask glibc's __getauxval, which musl does not have.
const FOR_MUSL: &[&str] = if cfg!(target_arch = "aarch64") { &["-mno-outline-atomics"] } else { &[] };

/// musl has neither on_exit nor versions of symbols, and hands no arguments to constructors.
#[test]
fn a_musl_program() {
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        println!("skipped: needs musl-gcc (package musl-tools)");
        return;
    }
    let session = Session::new();
    let mut command = session.command(compile("musl-gcc", "waits", FOR_MUSL));
    std::os::unix::process::CommandExt::arg0(&mut command, "/x/musl-waits");
    let output = run(command.arg("waitpid"));
    assert_clean(&output);
    let events = session.events();
    assert_eq!(kinds(&events), "SFERE");
    assert_eq!(starts(&events), ["musl-waits|waitpid"]);
    assert_eq!(exits(&events)[1].2 & FLAG_NO_STATUS, FLAG_NO_STATUS);
    assert_eq!(reaped(&events)[0].2, 21 << 8);
    for how in
        ["wait", "waitpid-group", "wait3", "wait4", "waitid", "nohang", "stopped", "cancel", "race", "nobody"]
    {
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
