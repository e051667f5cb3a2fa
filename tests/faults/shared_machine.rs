//! Attacks by another local user, on a user's run and on root's. The attacker is a real user, so these tests need root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::run::{Running, become_user};
use crate::support::{is_root, or_skip, skip, tracked};

const VICTIM: u32 = 64001;
const ATTACKER: u32 = 64002;
const NEEDS_ROOT: &str = "needs root, to become other users";

/// A directory of root that all users may enter, and its path without links.
fn top() -> (TempDir, PathBuf) {
    let top = tempfile::tempdir().unwrap();
    fs::set_permissions(top.path(), Permissions::from_mode(0o755)).unwrap();
    let path = top.path().canonicalize().unwrap();
    (top, path)
}

/// A new directory of this user and mode.
fn directory(top: &Path, name: &str, uid: u32, mode: u32) -> PathBuf {
    let directory = top.join(name);
    fs::create_dir(&directory).unwrap();
    chown(&directory, Some(uid), Some(uid)).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
    directory
}

/// Runs a shell script as the attacker; `$1` is the path.
fn attack(script: &str, path: &Path) {
    let [program, options @ ..] = become_user(ATTACKER);
    let mut shell = Command::new(program);
    shell.args(options).args(["sh", "-c", script, "sh"]).arg(path);
    assert!(shell.status().unwrap().success(), "the attack itself failed: {script}");
}

/// Lets the command go on after the attack.
fn go_on(mut running: Running) -> crate::support::Run {
    std::io::Write::write_all(&mut running.stdin(), b"go\n").unwrap();
    running.wait()
}

// Requirement: OUT-20
#[test]
fn fifo_that_its_owner_replaces_gets_no_report() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    for user in [0, VICTIM] {
        let (_top, top) = top();
        let run = tracked(["sh", "-c", "echo ready; read x; exit 3"]).piped_stdin();
        let theirs = directory(&top, "theirs", ATTACKER, 0o755);
        let ours = directory(&top, "ours", user, 0o700);
        let secret = ours.join("secret");
        fs::write(&secret, "untouched").unwrap();
        chown(&secret, Some(user), Some(user)).unwrap();
        attack("mkfifo $1/report && chmod 666 $1/report", &theirs);
        let fifo = theirs.join("report");
        let run = run.only_options(&["-o", fifo.to_str().unwrap()]);
        let running = if user == 0 { run } else { or_skip!(run.by_user(user)) }.start();
        running.wait_for_output("ready");
        attack(&format!("rm $1/report && ln -s {} $1/report", secret.display()), &theirs);
        let run = go_on(running);
        assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
        assert_eq!(fs::read_to_string(&secret).unwrap(), "untouched");
        assert!(run.stderr.contains("it is another file than at the start of the run"), "{}", run.stderr);
        assert!(run.stderr.contains("RAM"), "the report is on stderr: {}", run.stderr);
    }
}

// Requirement: OUT-21
#[test]
fn fifo_that_no_process_reads_does_not_keep_the_run_from_ending() {
    let (_top, top) = top();
    let run = tracked(["sh", "-c", "exit 3"]);
    let fifo = top.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let run = run.only_options(&["-o", fifo.to_str().unwrap()]).run();
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("no process reads it"), "{}", run.stderr);
    assert!(run.stderr.contains("RAM"), "the report is on stderr: {}", run.stderr);
}

// Requirement: OUT-6, OUT-55
#[test]
fn report_of_root_does_not_go_where_another_user_leads_it() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    let (_top, tmp) = top();
    fs::set_permissions(&tmp, Permissions::from_mode(0o1777)).unwrap();
    let secret = tmp.join("secret");
    fs::write(&secret, "untouched").unwrap();
    attack(
        &format!("ln -s {} $1/link; ln -s . $1/sub; touch $1/file; chmod 777 $1/file", secret.display()),
        &tmp,
    );
    for (name, cure) in [
        ("link", "name the file that it leads to"),
        ("sub/new", "name the file"),
        ("file", "give another name"),
    ] {
        let run = tracked(["echo", "started"]).only_options(&["-o", tmp.join(name).to_str().unwrap()]).run();
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(2), ""), "{name}: {}", run.stderr);
        assert!(run.stderr.contains(cure), "{}", run.stderr);
    }
    // What appears while the command runs is replaced.
    for script in ["touch $1/r && chmod 777 $1/r", "ln -s secret $1/r"] {
        let report = tmp.join("r");
        let running = tracked(["sh", "-c", "echo ready; read x; exit 3"])
            .only_options(&["-o", report.to_str().unwrap()])
            .piped_stdin()
            .start();
        running.wait_for_output("ready");
        attack(script, &tmp);
        let run = go_on(running);
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(3), ""));
        let found = fs::symlink_metadata(&report).unwrap();
        assert_eq!((found.is_file(), found.uid(), found.mode() & 0o022), (true, 0, 0), "{:o}", found.mode());
        fs::remove_file(report).unwrap();
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "untouched");
}

// Requirement: OUT-22
#[test]
fn lock_of_another_user_keeps_no_command_from_running() {
    for user in [0, VICTIM] {
        if !is_root() {
            skip!("{NEEDS_ROOT}");
        }
        let (_top, top) = top();
        let run = tracked(["sh", "-c", "exit 3"]);
        let shared = directory(&top, "shared", 0, 0o1777);
        attack("touch $1/.r.json.gpu-track-lock && chmod 666 $1/.r.json.gpu-track-lock", &shared);
        let lock = fs::File::open(shared.join(".r.json.gpu-track-lock")).unwrap();
        lock.lock().unwrap();
        let report = shared.join("r.json");
        let run = run.only_options(&["-f", "json", "-o", report.to_str().unwrap()]);
        let running = if user == 0 { run } else { or_skip!(run.by_user(user)) }.start();
        let run = running.wait();
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(3), ""));
        let text = fs::read_to_string(&report).unwrap();
        assert!(text.contains(&format!("is user {ATTACKER}'s")), "a warning says so: {text}");
        drop(lock);
    }
}

// Requirement: OUT-9
#[test]
fn names_do_not_control_the_terminal_by_json_or_messages() {
    let hidden = ["\u{7f}", "\u{9b}", "\u{202e}", "\u{200b}", "\u{feff}", "\x1b"];
    let name = format!("x{}", hidden.concat());
    let (_top, top) = top();
    let report = top.join("raw.json");
    let run = tracked(["sh", "-c", "exit 3", &name]);
    let run = run.only_options(&["-f", "json", "-o", report.to_str().unwrap()]).run();
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    let text = fs::read_to_string(&report).unwrap();
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(read["command"].to_string().contains('x'), "{text}");
    let run = tracked([format!("/no/such/{name}")]).only_options(&["-q"]).run();
    assert_eq!(run.status.code(), Some(127));
    assert!(run.stderr.contains("cannot run"), "{}", run.stderr);
    for shown in [text, run.stderr.clone()] {
        assert!(!hidden.iter().any(|hidden| shown.contains(hidden)), "{shown:?}");
    }
}

