//! START, FORK and EXIT: one test for each way in which a process begins or ends.

mod common;
use common::*;

use std::os::unix::process::ExitStatusExt;

use gpu_track_abi::layout::FLAG_PIDFS;
use gpu_track_abi::record::{
    Event, FLAG_AUTOREAP, FLAG_BORROWED_MEMORY, FLAG_GPU_LIBRARY, FLAG_IMAGE, FLAG_NO_STATUS, Origin,
};

fn ends(how: &str) -> (Vec<(Origin, Event)>, std::process::Output) {
    Session::new().case(&program("ends", &[]), &[how])
}

/// A process that ends by `how` with `code` writes START, EXIT, and no other record.
fn ends_with(how: &str, code: i32) {
    let (events, output) = ends(how);
    assert_eq!(output.status, status_of(code));
    assert_eq!(kinds(&events), "SE");
    let pid = events[0].0.pid;
    assert_eq!(exits(&events), [(pid, code, FLAG_IMAGE)]);
    assert!(events[0].0.monotonic_ns <= events[1].0.monotonic_ns);
}

// Requirement: SEE-3
#[test]
fn return_from_main() {
    ends_with("return", 3);
}
// Requirement: SEE-3
#[test]
fn exit() {
    ends_with("exit", 4);
}
// Requirement: SEE-3
#[test]
fn underscore_exit() {
    ends_with("_exit", 5);
}
// Requirement: SEE-3
#[test]
fn underscore_exit_of_c99() {
    ends_with("_Exit", 6);
}
// Requirement: SEE-3
#[test]
fn quick_exit() {
    ends_with("quick_exit", 7);
}
// Requirement: SEE-3
#[test]
fn exit_in_a_thread_after_the_main_thread_ended() {
    ends_with("thread", 5);
}

// Requirement: SEE-3
#[test]
fn abort_and_kill_write_no_exit() {
    for (how, signal) in [("abort", libc::SIGABRT), ("kill", libc::SIGKILL)] {
        let (events, output) = ends(how);
        assert_eq!(output.status.signal(), Some(signal));
        assert_eq!(kinds(&events), "S");
    }
}

// Requirement: CPU-52
#[test]
fn exit_has_autoreap_flag_if_sigchld_is_ignored() {
    let (events, _) = ends("autoreap");
    assert_eq!(exits(&events)[0].2, FLAG_IMAGE | FLAG_AUTOREAP);
}

/// A child made by `how` that ends with `code`; the kinds of the run's events.
fn child_of(how: &str, code: i32) -> (Vec<(Origin, Event)>, Origin, Event) {
    let (events, output) = ends(how);
    assert_clean(&output);
    let parent = events[0].0.pid;
    let (child, exit) = *events.iter().find(|(o, _)| o.pid != parent).expect("a record of the child");
    assert_eq!(reaped(&events), [(parent, child.pid, code << 8)]);
    let (_, status, flags) = exits(&events)[0];
    assert_eq!(status, code);
    assert_eq!(flags & (FLAG_IMAGE | FLAG_NO_STATUS), 0);
    (events, child, exit)
}

fn forked(how: &str, code: i32) {
    let (events, origin, event) = child_of(how, code);
    assert_eq!(kinds(&events), "SFERE");
    let Event::Fork { parent_pid_ns, max_rss_kib, .. } = event else { panic!("{event:?}") };
    assert_eq!(origin.parent, events[0].0.pid);
    assert_eq!(parent_pid_ns, events[0].0.pid_ns);
    assert!(max_rss_kib > 60_000, "it shares 64 MiB with its parent: {max_rss_kib}");
}

// Requirement: SEE-2
#[test]
fn fork() {
    forked("fork", 11);
}
// Requirement: SEE-2
#[test]
fn underscore_fork() {
    forked("_Fork", 12);
}
// Requirement: SEE-2
#[test]
fn forkpty() {
    forked("forkpty", 14);
}

// Requirement: RAM-6
#[test]
fn vfork_child_exit_has_borrowed_memory_flag() {
    let (events, ..) = child_of("vfork", 13);
    assert_eq!(kinds(&events), "SERE");
    let [(child, _, flags), (parent, 0, FLAG_IMAGE)] = exits(&events)[..] else { panic!("{events:?}") };
    assert_ne!(child, parent);
    assert_eq!(flags, FLAG_BORROWED_MEMORY);
    assert_eq!(events[1].0.parent, parent);
}

// Requirement: SEE-2
#[test]
fn daemon() {
    let (events, output) = ends("daemon");
    assert_clean(&output);
    assert_eq!(count(&events, 'F'), 2, "the child and the daemon");
    assert!(exits(&events).iter().any(|(_, status, _)| *status == 15));
}

// Requirement: SEE-2
#[test]
fn system_and_popen() {
    for (how, code) in [("system", 16), ("popen", 17)] {
        let (events, output) = ends(how);
        assert_eq!(output.status, status_of(code));
        assert_eq!(starts(&events).len(), 2);
        assert!(starts(&events)[1].starts_with("sh"), "{:?}", starts(&events));
        assert_eq!(exits(&events).iter().filter(|(_, status, _)| *status == code).count(), 2);
    }
}

#[test]
fn start_has_identity_and_time() {
    let session = Session::with_flags(FLAG_PIDFS);
    let before =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (events, _) = session.case(&program("ends", &[]), &["return"]);
    let after = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (origin, Event::Start { realtime_ns, pidfd_inode, max_rss_kib, .. }) = events[0] else { panic!() };
    assert_eq!(origin.parent, std::process::id());
    let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap();
    assert_eq!(u64::from(origin.pid_ns), std::os::unix::fs::MetadataExt::ino(&namespace));
    assert!((before..=after).contains(&realtime_ns));
    assert!(pidfd_inode > 0 && max_rss_kib > 0);
}

/// Only in the launcher's pid namespace does its record lock have the launcher's pid. There the namespace's inode is
/// taken from the header, without /proc.
#[test]
fn launchers_pid_namespace_is_taken_from_the_header() {
    const NAMESPACE: u32 = 4242;
    let mut session = Session::with_flags(FLAG_PIDFS);
    (session.header_mut().launcher_pid, session.header_mut().launcher_pid_ns) =
        (std::process::id(), NAMESPACE);
    let file = std::fs::File::options().read(true).write(true).open(&session.path).unwrap();
    // SAFETY: all-zero is a valid flock, for the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as _;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: the descriptor is open, and the lock outlives the call.
    let result = unsafe { libc::fcntl(fd, libc::F_SETLK, &raw mut lock) };
    assert_eq!(result, 0);
    let identities = |session: &Session| -> Vec<(u32, u64)> {
        let identity = |(origin, event): &(Origin, Event)| match event {
            Event::Start { pidfd_inode, .. } | Event::Fork { pidfd_inode, .. } => {
                Some((origin.pid_ns, *pidfd_inode))
            }
            _ => None,
        };
        session.events().iter().filter_map(identity).collect()
    };
    run(session.command("sh").args(["-c", "(exit 0); exit 0"]));
    assert_eq!(identities(&session), [(NAMESPACE, 0); 2]);
    // SAFETY: takes no arguments.
    if unsafe { libc::geteuid() } == 0 {
        run(session.command("unshare").args(["--fork", "--pid", "sh", "-c", "exit 3"]));
        let identities = identities(&session);
        assert_eq!(identities[0], (NAMESPACE, 0), "of unshare itself");
        assert!(identities[1..].iter().all(|(pid_ns, inode)| *pid_ns != NAMESPACE && *inode != 0));
    }
    drop(file);
    run(session.command("sh").args(["-c", "exit 0"]));
    assert!(identities(&session).iter().all(|(pid_ns, inode)| *pid_ns != NAMESPACE && *inode != 0));
}

/// getppid is 0 in the first process of a new pid namespace. Its FORK has both namespaces.
// Requirement: SEE-9
#[test]
fn fork_into_a_new_pid_namespace_has_both_namespaces() {
    // SAFETY: takes no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: needs root to create a pid namespace");
        return;
    }
    for flags in [0, FLAG_PIDFS] {
        let session = Session::with_flags(flags);
        let output = run(session.command("unshare").args(["--fork", "--pid", "sh", "-c", "exit 3"]));
        assert_eq!(output.status, status_of(3));
        let events = session.events();
        assert_eq!(kinds(&events), "SFSERE");
        let (outer, inner) = (events[0].0, events[1].0);
        let Event::Fork { parent_pid_ns, .. } = events[1].1 else { panic!() };
        assert_eq!((inner.pid, inner.parent, parent_pid_ns), (1, outer.pid, outer.pid_ns));
        assert!(inner.pid_ns != 0 && inner.pid_ns != outer.pid_ns);
        assert_eq!(events[2].0.pid_ns, inner.pid_ns, "START of sh is in the same namespace");
        assert_eq!(events[2].0.parent, 0);
    }
}

// Requirement: SEE-13
#[test]
fn start_has_program_and_script_names() {
    for (args, wanted) in [
        (&["return"][..], "python3|return"),
        (&["-u", "-W", "ignore", "/a/b/run.py", "x"], "python3|run.py"),
        (&["-c", "print()"], "python3"),
        (&["-m", "pkg.tool", "x"], "python3|-m pkg.tool"),
        (&[], "python3"),
    ] {
        let session = Session::new();
        let mut command = session.command(program("ends", &[]));
        std::os::unix::process::CommandExt::arg0(command.args(args), "/usr/x/python3");
        run(&mut command);
        assert_eq!(starts(&session.events()), [wanted], "{args:?}");
    }
    let session = Session::new();
    let mut command = session.command(program("ends", &[]));
    let long = format!("python{}", "3".repeat(34));
    std::os::unix::process::CommandExt::arg0(command.arg(format!("{}_7.py", "s".repeat(40))), &long);
    run(&mut command);
    assert_eq!(starts(&session.events()), ["python33333333...33333333333333|sssssss...s_7.py"]);
    let session = Session::new();
    let mut command = session.command(program("ends", &[]));
    std::os::unix::process::CommandExt::arg0(command.arg("x"), format!("{}_7", "p".repeat(60)));
    run(&mut command);
    assert_eq!(starts(&session.events()), [format!("{}...{}_7", "p".repeat(23), "p".repeat(20))]);
}

/// A child that is forked from a parent of 300 MB and execs inherits its ru_maxrss. EXIT has the child's own peak.
// Requirement: RAM-4
#[test]
fn exit_has_the_images_own_peak() {
    let session = Session::new();
    let (events, output) = session.case(&program("execs", &[]), &["big-parent"]);
    assert_clean(&output);
    let image = events.iter().find_map(|(_, e)| match e {
        Event::Exit { own, vm_hwm_kib, .. } if *vm_hwm_kib > 0 => Some((own.max_rss_kib, *vm_hwm_kib)),
        _ => None,
    });
    let (inherited, own) = image.expect("an EXIT with VmHWM");
    assert!(inherited > 250_000 && own < 50_000, "{inherited} {own}");
}

/// An image of 300 MB execs a small one, which execs another. START of the second shows the first one's peak, and so
/// does START of the third, so the second one's peak needs an EXEC record.
// Requirement: RAM-5
#[test]
fn exec_record_has_a_peak_that_start_would_hide() {
    let session = Session::new();
    let (events, output) = session.case(&program("execs", &[]), &["chain"]);
    assert_clean(&output);
    assert_eq!(kinds(&events), "SSxSE", "only the second image writes EXEC");
    let Event::Exec { vm_hwm_kib } = events[2].1 else { panic!() };
    assert!(vm_hwm_kib > 0 && vm_hwm_kib < 50_000, "{vm_hwm_kib}");
}

// Requirement: GPU-36
#[test]
fn gpu_library_that_is_loaded_at_the_end_is_flagged() {
    let loads = program("../../../tests/programs/loads", &["-ldl"]);
    for (file, how, expected) in [
        ("libcuda.so.1", "exit", FLAG_GPU_LIBRARY),
        ("libamdhip64.so.6", "exit", FLAG_GPU_LIBRARY),
        ("libcuda.so.1", "close", 0),
        ("libcuda.so.1", "nothing", 0),
        ("libnvidia-ml.so.1", "exit", 0),
        ("notlibcuda.so.1", "exit", 0),
    ] {
        let session = Session::new();
        let library = session.dir().join(file);
        let mut cc = std::process::Command::new("cc");
        cc.args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(&library);
        assert!(cc.status().unwrap().success());
        let (events, output) = session.case(&loads, &[library.to_str().unwrap(), how]);
        assert_clean(&output);
        assert_eq!(exits(&events)[0].2, FLAG_IMAGE | expected, "{file} {how}");
        // Here the library is loaded from the start.
        let mut early = session.command("/bin/true");
        early.env(gpu_track_abi::ENV_PRELOAD, format!("{}:{}", SHIM.display(), library.display()));
        assert_clean(&run(&mut early));
        let of_name =
            if file.starts_with("libnvidia") || file.starts_with("not") { 0 } else { FLAG_GPU_LIBRARY };
        assert_eq!(exits(&session.events()).last().unwrap().2, FLAG_IMAGE | of_name, "{file}");
    }
}
