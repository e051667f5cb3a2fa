//! Which segments are used, and what happens if the ring is full. Whatever is wrong, the program runs.

mod common;
use common::*;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::Ordering;

use gpu_track_abi::ENV_SESSION;
use gpu_track_abi::layout::{
    FILE_SIZE, RING_CAPACITY, STATE_CLOSED, STATE_OPEN, STATE_RESTING, TRACKED_SIZE,
};
use gpu_track_abi::overflow::MAX_UNREAD_BYTES;
use gpu_track_abi::record::RECORD_WORDS;
use gpu_track_abi::ring::Push;

/// A process of this session runs as usual, and writes no record.
fn inert(session: &Session) {
    let (events, output) = session.case(&program("waits", &[]), &["waitpid"]);
    assert_clean(&output);
    assert_eq!(kinds(&events), "");
    assert_eq!(session.header().dropped.0.load(Ordering::Relaxed), 0);
}

// Requirement: SHIM-12
#[test]
fn segment_of_another_version_is_not_used() {
    for change in [
        |s: &mut Session| s.header_mut().abi_version += 1,
        |s: &mut Session| s.header_mut().magic ^= 1,
        |s: &mut Session| s.header_mut().record_words -= 1,
        |s: &mut Session| s.header_mut().ring_capacity *= 2,
    ] {
        let mut session = Session::new();
        change(&mut session);
        inert(&session);
    }
}

// Requirement: SHIM-12
#[test]
fn closed_session_is_not_used() {
    let session = Session::new();
    session.header().state.store(STATE_CLOSED, Ordering::Relaxed);
    inert(&session);
}

/// An access beyond the file's end would be a SIGBUS.
// Requirement: SHIM-12
#[test]
fn truncated_file_is_not_used() {
    for length in [0, 1, 4096, TRACKED_SIZE as u64 - 1] {
        let session = Session::new();
        let path = session.dir().join("short");
        std::fs::copy(&session.path, &path).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        let output = run(session.command(program("waits", &[])).arg("waitpid").env(ENV_SESSION, &path));
        assert_clean(&output);
        assert_eq!(kinds(&session.events()), "");
    }
}

/// A page fault of a write would change the modification time, where the file is on a disk.
// Requirement: SHIM-12
#[test]
fn file_that_is_no_segment_stays_unchanged() {
    let session = Session::new();
    let path = session.dir().join("data");
    let before = vec![7; FILE_SIZE];
    std::fs::write(&path, &before).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    OpenOptions::new().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
    let output = run(session.command(program("waits", &[])).arg("waitpid").env(ENV_SESSION, &path));
    assert_clean(&output);
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), long_ago);
    assert!(std::fs::read(&path).unwrap() == before);
}

// Requirement: SHIM-12
#[test]
fn paths_that_are_no_segments_are_skipped() {
    let session = Session::new();
    let link = session.dir().join("link");
    std::os::unix::fs::symlink(&session.path, &link).unwrap();
    let fifo = session.dir().join("fifo");
    let c_path = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: a NUL-terminated path.
    assert_eq!(unsafe { libc::mkfifo(c_path.as_ptr(), 0o600) }, 0);
    let long = format!("/tmp/{}", "x".repeat(200));
    let here = session.dir().to_str().unwrap();
    for path in
        [link.to_str().unwrap(), fifo.to_str().unwrap(), here, "/no/such", "/dev/zero", "", ":::", &long]
    {
        let output = run(session.command(program("waits", &[])).arg("waitpid").env(ENV_SESSION, path));
        assert_clean(&output);
        assert_eq!(kinds(&session.events()), "", "{path}");
    }
}

// Requirement: FAULT-16
#[test]
fn session_of_another_user_is_not_used() {
    // SAFETY: the call takes no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: needs root, for a file of another user");
        return;
    }
    let session = Session::new();
    std::os::unix::fs::chown(&session.path, Some(64002), None).unwrap();
    inert(&session);
}

/// So a container gets the session of a user that is not its own. Such a mount needs more power than the owner of a file has.
// Requirement: FAULT-16, SEE-137
#[test]
fn session_of_another_user_is_used_if_it_is_mounted_by_itself_in_shared_memory() {
    const SCRIPT: &str =
        "mount --bind \"$1\" \"$1\" && LD_PRELOAD=$2 GPU_TRACK_SESSION=$1 exec \"$3\" waitpid";
    let may_mount =
        Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|done| done.status.success());
    // SAFETY: the call takes no arguments.
    if !may_mount || unsafe { libc::geteuid() } != 0 {
        println!("skipped: needs root that may mount");
        return;
    }
    let is_tmpfs = |path: &str| {
        Command::new("stat").args(["-f", "-c", "%T", path]).output().unwrap().stdout == b"tmpfs\n"
    };
    for directory in ["/dev/shm", "/tmp"] {
        let session = Session::in_directory(tempfile::tempdir_in(directory).unwrap(), 0);
        std::os::unix::fs::chown(&session.path, Some(64002), None).unwrap();
        let mut mounted = Command::new("unshare");
        mounted
            .args(["-m", "sh", "-c", SCRIPT, "sh"])
            .arg(&session.path)
            .arg(&*SHIM)
            .arg(program("waits", &[]));
        assert_clean(&run(&mut mounted));
        assert_eq!(!kinds(&session.events()).is_empty(), is_tmpfs(directory), "{directory}");
    }
}

// Requirement: SEE-14
#[test]
fn each_of_several_sessions_gets_all_records() {
    let sessions: [Session; 6] = std::array::from_fn(|_| Session::new());
    let paths: Vec<_> = sessions.iter().map(|s| s.path.to_str().unwrap()).collect();
    // One does not exist; the others are used.
    let list = format!("{}:/no/such:{}:{}", paths[0], paths[1], paths[2]);
    let output = run(sessions[0].command(program("waits", &[])).arg("waitpid").env(ENV_SESSION, list));
    assert_clean(&output);
    for session in &sessions[..3] {
        assert_eq!(kinds(&session.events()), "SFERE");
    }
    // With deeper nesting, the outermost four are used.
    let output =
        run(sessions[0].command(program("waits", &[])).arg("waitpid").env(ENV_SESSION, paths.join(":")));
    assert_clean(&output);
    let got: Vec<_> = sessions.iter().map(|s| kinds(&s.events())).collect();
    assert_eq!(got, ["SFERE", "SFERE", "SFERE", "SFERE", "", ""]);
}

// Requirement: SHIM-12
#[test]
fn no_record_is_written_after_the_session_closes() {
    let session = Session::new();
    let inner = "printf go; read line; true";
    let mut command = session.command("sh");
    command.args(["-c", inner]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut go = [0; 2];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut go).unwrap();
    assert_eq!(kinds(&session.events()), "S");
    session.header().state.store(STATE_CLOSED, Ordering::Relaxed);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(kinds(&session.events()), "");
}

/// Only the first of the records wakes it.
// Requirement: SEE-126
#[test]
fn record_ends_the_readers_rest_and_rings_the_doorbell_once() {
    let session = Session::new();
    session.header().begin_rest();
    assert_eq!(session.header().state.load(Ordering::Relaxed), STATE_RESTING);
    let (events, output) = session.case(&program("waits", &[]), &["waitpid"]);
    assert_clean(&output);
    assert_eq!(kinds(&events), "SFERE");
    let header = session.header();
    assert_eq!(
        (header.state.load(Ordering::Relaxed), header.doorbell.load(Ordering::Relaxed)),
        (STATE_OPEN, 1)
    );
    // A closed session stays closed.
    header.state.store(STATE_CLOSED, Ordering::Relaxed);
    header.begin_rest();
    assert!(!header.end_rest() && !header.is_open());
}

/// A shell script that writes more records than the ring holds, and how many are too many. They are START and EXIT of
/// the shell, and FORK, EXIT and REAPED of each child. They are not read meanwhile.
const FULL: (&str, u64) =
    ("i=0; while [ $i -lt 1024 ]; do (exit 3); i=$((i+1)); done", 2 + 3 * 1024 - RING_CAPACITY as u64);

/// Writers never wait, and records of a stopped collector take a bounded part of the machine's memory. The doorbell is
/// incremented when a quarter of the ring is used.
// Requirement: FAULT-82, SEE-18
#[test]
fn records_are_dropped_and_counted_if_ring_and_file_are_full() {
    let session = Session::new();
    let file = OpenOptions::new().write(true).open(&session.path).unwrap();
    file.write_all_at(&vec![1; MAX_UNREAD_BYTES as usize], FILE_SIZE as u64).unwrap();
    let length = file.metadata().unwrap().len();
    assert_clean(&run(session.command("sh").args(["-c", FULL.0])));
    assert_eq!((file.metadata().unwrap().len(), session.dropped()), (length, FULL.1));
    assert_eq!(session.events().len(), RING_CAPACITY);
    assert_eq!(session.header().doorbell.load(Ordering::Relaxed), 1);
}

// Requirement: FAULT-7, FAULT-81
#[test]
fn records_are_appended_if_the_ring_is_full() {
    let session = Session::new();
    assert_clean(&run(session.command("sh").args(["-c", FULL.0])));
    let appended = session.appended();
    assert_eq!((appended.len() as u64, session.dropped()), (FULL.1, 0));
    assert!(appended.iter().all(|(_, head)| *head == RING_CAPACITY as u64));
    let in_ring = session.events();
    // Ring and file together have all records in the order of writing: FORK, EXIT and REAPED of each child.
    let all: Vec<_> = in_ring.into_iter().chain(appended.into_iter().map(|(event, _)| event)).collect();
    assert!(kinds(&all) == format!("S{}E", "FER".repeat(1024)), "{}", kinds(&all));
}

/// An append beyond the limit would end the process by SIGXFSZ.
// Requirement: FAULT-82
#[test]
fn no_record_is_appended_under_a_file_size_limit() {
    let session = Session::new();
    let script = format!("ulimit -f {}; {}", (16 << 20) / 512, FULL.0);
    assert_clean(&run(session.command("sh").args(["-c", &script])));
    assert_eq!((session.appended().len(), session.dropped()), (0, FULL.1));
}

/// Between open and write, another thread could close the descriptor and open a file of the program's in its place.
// Requirement: FAULT-82
#[test]
fn no_record_is_appended_by_a_process_with_threads() {
    let session = Session::new();
    while session.ring().push(&[1; RECORD_WORDS]) != Push::Full {}
    let output = run(session.command(program("ends", &[])).arg("thread"));
    assert_eq!(output.status.code(), Some(5));
    let appended: Vec<_> = session.appended().into_iter().map(|(event, _)| event).collect();
    assert_eq!((kinds(&appended).as_str(), session.dropped()), ("S", 1), "no EXIT");
}
