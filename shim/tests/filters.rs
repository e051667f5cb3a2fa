//! Seccomp filters that processes install for themselves: no system call of the shim's may be the one that they are killed for.

mod common;
use common::*;

use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::sync::atomic::Ordering;

use gpu_track_abi::ENV_PRELOAD;
use gpu_track_abi::layout::FLAG_NO_ENV_REPAIR;
use gpu_track_abi::record::{Event, FLAG_BORROWED_MEMORY, Origin};

/// Runs a case without and with the shim; status and output must be the same. Gives the records.
#[track_caller]
fn same(session: &Session, args: &[&str]) -> (Vec<(Origin, Event)>, Output) {
    let program = program("filters", &[]);
    let bare = run(std::process::Command::new(&program).args(args));
    let (events, output) = session.case(&program, args);
    assert_eq!((output.status, &output.stderr), (bare.status, &bare.stderr), "{args:?}");
    (events, output)
}

/// The number of programs that were started without the shim because of a filter.
fn filtered(session: &Session) -> u64 {
    session.header().filtered.0.load(Ordering::Relaxed)
}

/// Browsers make the processes that they sandbox by clone system calls.
// Requirement: SEE-85, SHIM-5
#[test]
fn raw_clone_child_with_a_filter_is_not_killed() {
    for how in ["clone", "clone-quick"] {
        let (events, _) = same(&Session::new(), &[how]);
        assert_eq!(kinds(&events), "SRE", "{how}");
        assert_eq!(reaped(&events)[0].2, 7 << 8, "{how}");
    }
    let (events, _) = same(&Session::new(), &["clone-reap"]);
    // The child can't make REAPED of waitid.
    assert_eq!(kinds(&events), "SRRE");
    let [(reaper, _, inner), (main, child, outer)] = reaped(&events)[..] else { panic!("{events:?}") };
    assert_eq!((reaper, inner, main, outer), (child, 4 << 8, events[0].0.pid, 7 << 8));
    // SAFETY: takes no arguments.
    if unsafe { libc::geteuid() } == 0 {
        assert_eq!(kinds(&same(&Session::new(), &["clone-namespace"]).0), "SRE");
    }
}

// Requirement: SHIM-5
#[test]
fn filter_of_a_vfork_child_is_not_its_parents() {
    for (how, wanted) in [("vfork", "SRFERE"), ("vfork-exec", "SRFERE"), ("vfork-waitid", "SFERE")] {
        let session = Session::new();
        let (events, _) = same(&session, &[how]);
        assert_eq!(kinds(&events), wanted, "{how}");
        assert!(exits(&events).iter().all(|(_, _, flags)| flags & FLAG_BORROWED_MEMORY == 0), "{how}");
        assert_eq!(filtered(&session), u64::from(how == "vfork-exec"), "{how}");
    }
}

/// The constructor's system calls would kill the program, and the environment's repair its parent. Even without repair the shim is
/// taken out, which the launcher has put in.
// Requirement: SEE-85, SHIM-5
#[test]
fn program_that_is_started_under_a_filter_does_not_get_the_shim() {
    for how in [
        "execve",
        "execv",
        "execvp",
        "execvpe",
        "execl",
        "fexecve",
        "execveat",
        "syscall-execve",
        "syscall-execveat",
        "posix_spawn",
        "fork",
    ] {
        for (entries, flags) in [(0, 0), (3000, 0), (0, FLAG_NO_ENV_REPAIR)] {
            let session = Session::with_flags(flags);
            let (events, output) = same(&session, &[how, &entries.to_string()]);
            let mut wanted = format!("KEEP=\u{fffd}\n{ENV_PRELOAD}=\n");
            (0..entries).for_each(|i| wanted += &format!("E{i}={i:0100}\n"));
            assert_eq!(output.status, status_of(7), "{how}");
            assert!(String::from_utf8_lossy(&output.stdout) == wanted, "{how} with {entries} entries");
            assert_eq!(count(&events, 'S'), 1, "{how}: {}", kinds(&events));
            assert_eq!(filtered(&session), 1, "{how}");
        }
    }
}

/// libc's `system` starts a shell without a hook.
// Requirement: SHIM-5, SHIM-10
#[test]
fn own_environment_has_no_shim_after_a_filter() {
    for (before, after, left) in
        [("", "", ""), ("", ":libm.so.6", "libm.so.6"), ("libm.so.6 ", "", "libm.so.6")]
    {
        let session = Session::new();
        let mut command = session.command(program("filters", &[]));
        let output =
            run(command.arg("system").env(ENV_PRELOAD, format!("{before}{}{after}", SHIM.display())));
        assert_eq!(output.status, status_of(7), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{left}\n"));
        assert_eq!(kinds(&session.events()), "S");
    }
}

/// A vfork child that installs a filter takes the shim out of its parent's environment, where it runs.
// Requirement: SHIM-5, SHIM-10, SEE-127
#[test]
fn own_environment_has_the_shim_again_when_a_vfork_child_with_a_filter_is_reaped() {
    for (before, after, rest, separator) in
        [("", "", "", ""), ("", ":libm.so.6", "libm.so.6", ":"), ("libm.so.6 ", "", "libm.so.6", ":")]
    {
        let session = Session::new();
        let shim = SHIM.display();
        let mut command = session.command(program("filters", &[]));
        let output = run(command.arg("vfork-system").env(ENV_PRELOAD, format!("{before}{shim}{after}")));
        assert_eq!(output.status, status_of(7), "{output:?}");
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(shown, format!("{rest}\n{shim}{separator}{rest}\n"));
        // The child's REAPED. START and EXIT of the second shell, which libc's system() reaps without a hook.
        assert_eq!(kinds(&session.events()), "SRSEE", "{before}{after}");
    }
}

// Requirement: SHIM-5
#[test]
fn programs_that_could_not_be_started_are_not_counted() {
    let session = Session::new();
    assert_eq!(same(&session, &["failing"]).1.status, status_of(7));
    assert_eq!(filtered(&session), 0);
}

// Requirement: SEE-117
#[test]
fn filter_by_an_instruction_of_the_programs_own_is_not_noticed() {
    let (events, output) = Session::new().case(&program("filters", &[]), &["own-instruction"]);
    assert_eq!(output.status.signal(), Some(libc::SIGSYS));
    assert_eq!(kinds(&events), "S");
}

/// Its constructor runs before the shim's.
// Requirement: SHIM-5
#[test]
fn filter_of_another_librarys_constructor_is_noticed() {
    let library = program("filters", &["-shared", "-fPIC", "-DLIBRARY"]);
    let program = program("filters", &[]);
    let preload = format!("{}:{}", SHIM.display(), library.display());
    let session = Session::new();
    let output = run(session.command(program).arg("inherit").env(ENV_PRELOAD, preload));
    assert_eq!(output.status, status_of(7), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(kinds(&session.events()), "");
}
