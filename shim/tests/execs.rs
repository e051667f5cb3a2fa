//! Environment repair: one test for each exec and spawn function. EXEC records are tested with the peaks in `ends.rs`.

mod common;
use common::*;

use std::sync::atomic::Ordering;

use gpu_track_abi::layout::FLAG_NO_ENV_REPAIR;
use gpu_track_abi::preload::SHIM_PREFIX;
use gpu_track_abi::record::{Event, Origin, SAME_USER};
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION};

/// The environment that the case gave to /bin/sh, one element per entry.
fn environment(session: &Session, args: &[&str]) -> Vec<Vec<u8>> {
    let (events, output) = session.case(&program("execs", &[]), args);
    assert_clean(&output);
    if session.header().flags & FLAG_NO_ENV_REPAIR == 0 {
        assert!(starts(&events).iter().any(|name| name == "sh"), "{args:?}: {:?}", starts(&events));
    }
    output.stdout.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(<[u8]>::to_vec).collect()
}

fn repairs(how: &str) {
    for entries in [0, 400, 3000] {
        let session = Session::new();
        let got = environment(&session, &[how, &entries.to_string()]);
        let mut wanted = vec![b"KEEP=\xff".to_vec()];
        for i in 0..entries {
            wanted.push(format!("E{i}={i:0100}").into_bytes());
        }
        wanted.push(format!("{ENV_SESSION}={}", session.path.display()).into_bytes());
        wanted.push(format!("{ENV_PRELOAD}={}", SHIM.display()).into_bytes());
        assert_eq!(got, wanted, "{how} with {entries} entries");
    }
}

// Requirement: SEE-5
#[test]
fn execve() {
    repairs("execve");
}
// Requirement: SEE-5
#[test]
fn execvpe() {
    repairs("execvpe");
}
// Requirement: SEE-5
#[test]
fn execle() {
    repairs("execle");
    repairs("execle-long");
}
// Requirement: SEE-5
#[test]
fn fexecve() {
    repairs("fexecve");
}
// Requirement: SEE-5
#[test]
fn execveat() {
    repairs("execveat");
}
// Requirement: SEE-5
#[test]
fn execv() {
    repairs("environ-execv");
}
// Requirement: SEE-5
#[test]
fn execvp() {
    repairs("environ-execvp");
}
// Requirement: SEE-5
#[test]
fn execl() {
    repairs("environ-execl");
    repairs("environ-execl-long");
}
// Requirement: SEE-5
#[test]
fn execlp() {
    repairs("environ-execlp");
}
// Requirement: SEE-5
#[test]
fn posix_spawn() {
    repairs("posix_spawn");
}
// Requirement: SEE-5
#[test]
fn posix_spawnp() {
    repairs("posix_spawnp");
}
// Requirement: SEE-5
#[test]
fn vfork_and_execve() {
    repairs("vfork");
}

// Requirement: SHIM-11
#[test]
fn null_environment_is_an_empty_one() {
    let session = Session::new();
    let got = environment(&session, &["execve-null"]);
    assert_eq!(got.len(), 2, "only session and shim: {got:?}");
}

// Requirement: SEE-87, SHIM-10
#[test]
fn foreign_preload_is_kept_behind_the_shim() {
    for (foreign, wanted) in [
        ("libm.so.6", format!("{}:libm.so.6", SHIM.display())),
        ("", SHIM.display().to_string()),
        // No second shim is added.
        (&*format!("libm.so.6 {}", SHIM.display()), format!("libm.so.6 {}", SHIM.display())),
    ] {
        for entries in ["0", "3000"] {
            let session = Session::new();
            let mut command = session.command(program("execs", &[]));
            let output = run(command.args(["execve", entries]).env("CASE_PRELOAD", foreign));
            assert_clean(&output);
            let entry = output.stdout.split(|b| *b == b'\n').find(|l| l.starts_with(b"LD_PRELOAD=")).unwrap();
            assert_eq!(String::from_utf8_lossy(entry), format!("LD_PRELOAD={wanted}"));
        }
    }
}

// Requirement: SHIM-11
#[test]
fn programs_under_env_minus_i_are_tracked() {
    let session = Session::new();
    let output = run(session.command("env").args(["-i", "sh", "-c", "env -i true; exit 3"]));
    assert_eq!(output.status, status_of(3));
    let starts = starts(&session.events());
    assert_eq!(starts.len(), 4, "{starts:?}");
    assert!(starts[3].starts_with("true"), "{starts:?}");
}

// Requirement: SEE-82, SHIM-11
#[test]
fn no_env_repair_flag_leaves_environments_alone() {
    let session = Session::with_flags(FLAG_NO_ENV_REPAIR);
    assert_eq!(environment(&session, &["execve"]), [b"KEEP=\xff".to_vec()]);
    assert_eq!(environment(&session, &["posix_spawn"]), [b"KEEP=\xff".to_vec()]);
}

/// The dynamic linker prints the list instead of running the program.
// Requirement: SHIM-27
#[test]
fn shim_is_not_in_a_list_of_libraries() {
    for how in ["execve", "execvpe", "execle", "environ-execv", "posix_spawn", "vfork"] {
        for preload in ["", "libm.so.6", &SHIM.display().to_string()] {
            let session = Session::new();
            let mut command = session.command(program("execs", &[]));
            let output = run(command.args([how, "3000"]).env("CASE_LIST", "").env("CASE_PRELOAD", preload));
            assert_clean(&output);
            let list = String::from_utf8_lossy(&output.stdout);
            assert!(
                list.contains("libc.so.6") && !list.contains(SHIM_PREFIX),
                "{how} with {preload:?}: {list}"
            );
            assert_eq!(list.contains("libm.so.6"), preload == "libm.so.6", "{how}: {list}");
        }
    }
}

// Requirement: SHIM-4
#[test]
fn failing_execs_return_libcs_errors() {
    let (_, output) = Session::new().case(&program("execs", &[]), &["errors"]);
    assert_clean(&output);
}

/// A fork child and exec notice it at once, posix_spawn within its memory of 100 ms.
// Requirement: SEE-103
#[test]
fn programs_that_cannot_see_the_shim_start_without_it() {
    let session = Session::new();
    let shim = session.dir().join(SHIM.file_name().unwrap());
    std::fs::copy(&*SHIM, &shim).unwrap();
    let output = run(session.command(program("hidden", &[])).arg(&shim).env(ENV_PRELOAD, &shim));
    assert_clean(&output);
    // One program each of the fork child, the last posix_spawn, and execve.
    assert_eq!(session.header().unreachable.0.load(Ordering::Relaxed), 3);
}

/// close(2) ends all record locks that a process holds on the file, whichever descriptor they were made by.
// Requirement: SHIM-18
#[test]
fn process_keeps_its_record_lock_on_a_program_that_it_starts() {
    for flags in [0, !FLAG_NO_ENV_REPAIR] {
        let (_, output) = Session::with_flags(flags).case(&program("execs", &[]), &["lock"]);
        assert_clean(&output);
    }
}

/// What the PROGRAM records of a case tell: whether the process has started, the user, and the arguments.
fn told(how: &str, name: &str) -> Vec<(bool, u32, String)> {
    let (events, output) = Session::new().case(&program("execs", &[]), &[how, "0", name]);
    assert_clean(&output);
    let is_start = |(_, event): &&(Origin, Event)| matches!(event, Event::Start { .. });
    let started: Vec<u32> = events.iter().filter(is_start).map(|(origin, _)| origin.pid).collect();
    let told = |(origin, event): &(Origin, Event)| match event {
        Event::Program { child, user, arguments } => {
            let pid = if *child == 0 { origin.pid } else { *child };
            let text = String::from_utf8_lossy(arguments).trim_end_matches('\0').replace('\0', "|");
            Some((started.contains(&pid), *user, text))
        }
        _ => None,
    };
    events.iter().filter_map(told).collect()
}

// Requirement: SEE-35
#[test]
fn arguments_of_clients_are_told_before_they_run() {
    let ways = "execve execvpe execle execle-long fexecve execveat environ-execv environ-execvp environ-execl environ-execl-long \
                environ-execlp posix_spawn posix_spawnp vfork";
    for how in ways.split(' ') {
        let [(is_started, user, text)] = &told(how, "/opt/ssh")[..] else { panic!("{how}") };
        assert!(is_started, "{how}");
        assert!(text.starts_with(r"ssh|-c|tr '\0' '\n' </proc/$$/environ"), "{how}: {text}");
        assert_eq!(*user, SAME_USER, "{how}");
        assert_eq!(text.ends_with("|8|9"), how.contains("long"), "{how}: {text}");
        assert_eq!(told(how, "sh"), [], "{how}");
    }
}

// Requirement: SEE-36
#[test]
fn user_of_a_program_is_told_if_it_is_another() {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        // To the descriptor, because cargo captures what a passing test prints.
        let line = "SKIPPED user_of_a_program_is_told_if_it_is_another: needs root (setpriv)\n";
        return drop(std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()));
    }
    let session = Session::new();
    let output = run(session.command("setpriv").args(["--reuid", "65534", "--clear-groups", "true"]));
    assert_clean(&output);
    let user = |(_, event): &(Origin, Event)| match event {
        Event::Program { child: 0, user, arguments: [0, ..] } => Some(*user),
        _ => None,
    };
    assert_eq!(session.events().iter().filter_map(user).collect::<Vec<_>>(), [65534]);
}

// Requirement: SEE-10
#[test]
fn spawn_failed_is_written_if_the_child_cannot_exec() {
    let (events, output) = Session::new().case(&program("execs", &[]), &["spawn-errors"]);
    assert_clean(&output);
    let errors: Vec<_> = events
        .iter()
        .filter_map(|(_, e)| if let Event::SpawnFailed { error } = e { Some(*error) } else { None })
        .collect();
    assert_eq!(errors, [libc::ENOENT, libc::ENOENT, libc::EACCES, libc::ENOENT]);
}

/// The larger environment does not fit on the stack, so each child uses the kept mapping.
// Requirement: SHIM-7
#[test]
fn ten_thousand_vforks_leak_nothing() {
    for entries in ["0", "2000"] {
        let (_, output) = Session::new().case(&program("execs", &[]), &["vforks", entries]);
        assert_clean(&output);
    }
}
