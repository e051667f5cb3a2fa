//! Attacks by another local user, on a user's run and on root's. The attacker is a real user, so these tests need root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::run::{BINARY, Running, Tracked, become_user};
use crate::support::{is_root, kill, or_skip, skip, tracked, wait_until};

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

/// Puts files of the attacker in the place of the cache directory. A loader that meets them prints an error.
const REPLACE_CACHE: &str = "mv $1/.cache $1/away && mkdir -p $1/.cache/gpu-track && cd $1/.cache/gpu-track && \
                             for f in $(ls $1/away/gpu-track 2>/dev/null); do echo evil >$f; done; chmod 755 ..";

/// A command that shows where the shim is, waits, and starts another program.
const SHOW_SHIM: [&str; 3] = ["sh", "-c", "echo \"$LD_PRELOAD\"; read x; /bin/true; exit 3"];

/// Lets the command go on after the attack.
fn go_on(mut running: Running) -> crate::support::Run {
    std::io::Write::write_all(&mut running.stdin(), b"go\n").unwrap();
    running.wait()
}

// Requirement: FAULT-13
#[test]
fn shim_is_not_where_another_user_can_replace_it() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    for (owner, mode) in [(ATTACKER, 0o755), (VICTIM, 0o777), (VICTIM, 0o770)] {
        let (_top, top) = top();
        let run = or_skip!(tracked(SHOW_SHIM).by_user(VICTIM)).piped_stdin();
        let home = directory(&top, "home", owner, mode);
        let cache = home.join(".cache");
        fs::create_dir(&cache).unwrap();
        chown(&cache, Some(VICTIM), Some(if mode == 0o770 { ATTACKER } else { VICTIM })).unwrap();
        chown(&home, None, Some(ATTACKER)).unwrap();
        let runtime = directory(&top, "runtime", VICTIM, 0o700);
        let (home_of_run, runtime_of_run) = (home.clone(), runtime.clone());
        let running = run
            .with(|command| command.env_remove("XDG_CACHE_HOME"))
            .with(|command| command.env("HOME", home_of_run).env("XDG_RUNTIME_DIR", runtime_of_run))
            .start();
        running.wait_for_output("gpu-track");
        attack(REPLACE_CACHE, &home);
        let run = go_on(running);
        assert!(run.stdout.starts_with(runtime.to_str().unwrap()), "{mode:o}: {}", run.stdout);
        run.assert_clean(3).assert_all_exact(2);
    }
}

// Requirement: FAULT-13
#[test]
fn shim_of_root_is_not_where_the_environment_says() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    let (_top, top) = top();
    let run = tracked(SHOW_SHIM).piped_stdin();
    let home = directory(&top, "home", ATTACKER, 0o755);
    attack("mkdir $1/.cache", &home);
    let of_run = home.clone();
    let running = run
        .with_mounts(
            "for d in /var/cache /run; do mount -t tmpfs -o noexec,mode=755 tmpfs $d; done; \
             mount -t tmpfs tmpfs /dev/shm",
        )
        .with(move |command| {
            command
                .env("HOME", &of_run)
                .env("XDG_CACHE_HOME", of_run.join(".cache"))
                .env("XDG_RUNTIME_DIR", of_run)
        })
        .start();
    running.wait_for_output("gpu-track");
    attack(REPLACE_CACHE, &home);
    let run = go_on(running);
    assert!(run.stdout.starts_with("/dev/shm/gpu-track-0/"), "{}", run.stdout);
    run.assert_clean(3).assert_all_exact(2);
    assert_eq!(fs::read_dir(home.join("away")).unwrap().count(), 0, "root made nothing there");
}

/// Shell words that mount a file system whose program never answers. The mount ends with the descriptor.
fn mount_without_an_answer(at: &Path) -> Result<String, &'static str> {
    if !is_root() {
        return Err(NEEDS_ROOT);
    }
    let mount = format!(
        "exec 9<>/dev/fuse && mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0,allow_other none {}",
        at.display()
    );
    let tried = Command::new("unshare").args(["-m", "sh", "-c", &mount]).output();
    let works = tried.is_ok_and(|output| output.status.success());
    if works { Ok(mount) } else { Err("no FUSE here") }
}

/// A run by the victim, whose variables name directories on a file system that does not answer.
fn with_hung_directories(
    run: Tracked,
    top: &Path,
    variables: &'static [&'static str],
) -> Result<Tracked, &'static str> {
    let run = run.by_user(VICTIM)?;
    let hung = directory(top, "hung", 0, 0o755);
    let runtime = directory(top, "runtime", VICTIM, 0o700);
    let mount = mount_without_an_answer(&hung)?;
    let script = format!("{mount} && exec {} \"$@\"", become_user(VICTIM).join(" "));
    Ok(run.through(&["unshare", "-m", "sh", "-c", &script, "sh"]).with(move |command| {
        command.env_remove("XDG_CACHE_HOME").env("XDG_RUNTIME_DIR", runtime);
        command.envs(variables.iter().map(|name| (*name, hung.join("x"))))
    }))
}

// Requirement: FAULT-14
#[test]
fn file_system_that_does_not_answer_delays_the_command_only() {
    let (_top, top) = top();
    let run = or_skip!(with_hung_directories(tracked(SHOW_SHIM).piped_stdin(), &top, &["HOME"]));
    let running = run.start();
    running.wait_for_output("gpu-track");
    let run = go_on(running);
    assert!(run.stdout.contains("/runtime/gpu-track/"), "{}", run.stdout);
    run.assert_clean(3).assert_all_exact(2);
}

// Requirement: OUT-28
#[test]
fn state_directory_that_does_not_answer_keeps_no_run_from_ending() {
    let (_top, top) = top();
    let run = tracked(["sh", "-c", "exit 3"]).only_options(&[]);
    let run = or_skip!(with_hung_directories(run, &top, &["XDG_STATE_HOME"]));
    let run = run.with(|command| command.env("GPU_TRACK_KEEP", "20")).run();
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    assert!(run.stderr.contains(" FAILED, exit 3 ") && !run.stderr.contains("Full report"), "{}", run.stderr);
}

// Requirement: FAULT-14
#[test]
fn signal_ends_the_launcher_while_a_file_system_does_not_answer() {
    let run = tracked(["echo", "started"]);
    let (_top, top) = top();
    let run = or_skip!(with_hung_directories(run, &top, &["HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"]));
    let running = run.start();
    let pid = running.pid();
    let is_waiting = || {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        name.starts_with("gpu-track-run") && threads == 2
    };
    wait_until("the launcher to look for the shim", is_waiting);
    kill(pid, libc::SIGTERM);
    let run = running.wait();
    assert_eq!((run.status.signal(), run.stdout.as_str()), (Some(libc::SIGTERM), ""), "{}", run.stderr);
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
        assert!(run.stderr.contains("RAM"), "the summary is on stderr: {}", run.stderr);
    }
}

// Requirement: OUT-21
#[test]
fn run_ends_although_its_fifo_has_no_reader() {
    let (_top, top) = top();
    let run = tracked(["sh", "-c", "exit 3"]);
    let fifo = top.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let run = run.only_options(&["-o", fifo.to_str().unwrap()]).run();
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("no process reads it"), "{}", run.stderr);
    assert!(run.stderr.contains("RAM"), "the summary is on stderr: {}", run.stderr);
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

// Requirement: FAULT-15
#[test]
fn environment_of_another_user_makes_root_load_and_write_nothing() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    let (_top, top) = top();
    let run = tracked(["sh", "-c", "exit 3"]);
    let theirs = directory(&top, "theirs", ATTACKER, 0o755);
    attack("touch $1/evil.so", &theirs);
    let (library, journal) = (theirs.join("evil.so"), theirs.join("journal"));
    let variables = [("GPU_TRACK_NVML_LIB", library), ("GPU_TRACK_JOURNAL", journal.clone())];
    let run = run.with(|command| command.envs(variables)).run();
    let warnings = run.assert_clean(3).warnings();
    assert!(
        warnings.contains("GPU_TRACK_NVML_LIB is ignored") && warnings.contains("--nvml-lib"),
        "{warnings}"
    );
    assert!(!journal.exists());
}

// Requirement: FAULT-15, RECORD-5
#[test]
fn bundle_of_root_is_in_no_directory_of_another_user() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    let (_top, top) = top();
    let theirs = directory(&top, "theirs", ATTACKER, 0o755);
    let own = directory(&top, "own", 0, 0o700);
    attack(&format!("ln -s {} $1/link", own.display()), &theirs);
    let mut running = tracked(["sh", "-c", "echo ready; read x; exit 3"]).piped_stdin().start();
    running.wait_for_output("ready");
    running.wait_for_collector();
    let pid = running.pid().to_string();
    let record = |variable: &str, state: &Path| {
        let mut record = Command::new(Path::new(BINARY).with_file_name("gpu-track"));
        record.args(["record", &pid]).env_remove("XDG_STATE_HOME").env_remove("HOME").env(variable, state);
        record.output().unwrap()
    };
    for (variable, state) in [("XDG_STATE_HOME", "."), ("HOME", "."), ("XDG_STATE_HOME", "link")] {
        let output = record(variable, &theirs.join(state));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{variable} {state}: {said}");
        assert!(said.contains(&format!("user {ATTACKER} owns ")), "{said}");
    }
    let left = |directory: &Path| fs::read_dir(directory).unwrap().count();
    assert_eq!((left(&theirs), left(&own)), (1, 0), "but for the attacker's link nothing was made");
    wait_until("a bundle in root's own directory", || record("XDG_STATE_HOME", &own).status.success());
    std::io::Write::write_all(&mut running.stdin(), b"go\n").unwrap();
    assert_eq!(running.wait().status.code(), Some(3));
}

/// Makes a program of this name in the attacker's directory. It leaves a file if it is run.
fn program_of_attacker(theirs: &Path, name: &str) {
    let script = format!("cd $1 && printf '#!/bin/sh\\n: >$0.was-run\\n' >{name} && chmod 755 {name}");
    attack(&script, theirs);
}

// Requirement: FAULT-15
#[test]
fn root_finds_no_program_of_another_user_along_path() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    let (_top, top) = top();
    let theirs = directory(&top, "theirs", ATTACKER, 0o755);
    let own = directory(&top, "own", 0, 0o700);
    for name in ["srun", "ssh"] {
        program_of_attacker(&theirs, name);
    }
    // A job of Slurm on two nodes, by its variables.
    let report = own.join("r.json");
    let of_job = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "2"), ("GPU_TRACK_NODES", "auto")];
    let path = format!("{}:/usr/bin:/bin", theirs.display());
    let run = tracked(["bash", "-c", "(exec -a srun true); exit 3"]);
    let run = run.only_options(&["-q", "-f", "json", "-o", report.to_str().unwrap()]);
    let of_run = path.clone();
    let run = run.with(move |command| command.envs(of_job).env("PATH", of_run)).run();
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    if !Path::new("/usr/bin/srun").exists() {
        assert!(run.stderr.contains("PATH has no srun that root alone can replace"), "{}", run.stderr);
    }
    // The stand-in for ssh.
    let mut stand_in = Command::new(BINARY);
    stand_in
        .args(["-x", "n2", "hydra_pmi_proxy", "--control-port", "n1:1"])
        .env("PATH", &theirs)
        .env("GPU_TRACK_AGENT", "x");
    let output = stand_in.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(127), 1), "{said}");
    assert!(said.contains("PATH has no ssh that root alone can replace"), "{said}");
    for name in ["srun", "ssh"] {
        assert!(!theirs.join(format!("{name}.was-run")).exists(), "root has run {name} of another user");
        let is_run = Command::new(theirs.join(name)).status().unwrap().success();
        assert!(is_run && theirs.join(format!("{name}.was-run")).exists(), "the trap works");
    }
}

// Requirement: FAULT-15, NODE-11
#[test]
fn reports_of_roots_nodes_are_in_no_directory_of_another_user() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    let (_top, top) = top();
    let theirs = directory(&top, "theirs", ATTACKER, 0o755);
    let own = directory(&top, "own", 0, 0o700);
    attack(&format!("ln -s {} $1/link", own.display()), &theirs);
    let run = tracked(["bash", "-c", "(exec -a ssh true n2 'x --agent y'); exit 3"]);
    let run = run.only_options(&["-q", "--nodes=auto"]);
    let state = theirs.join("link");
    let run = run.with(|command| command.env("XDG_STATE_HOME", state)).run();
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("only this node is tracked"), "{}", run.stderr);
    assert_eq!(fs::read_dir(own).unwrap().count(), 0);
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

/// Root's environment has another user's session (`su -m`, `sudo -E`), and that user truncates the file.
// Requirement: FAULT-16
#[test]
fn session_of_another_user_does_not_harm_programs_of_root() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    let victims = tracked(["sh", "-c", "echo ready; read x; exit 3"]);
    let running = or_skip!(victims.by_user(VICTIM)).piped_stdin().start();
    running.wait_for_output("ready");
    let session = running.segment();
    let of_theirs = session.clone();
    let inner = tracked(["sh", "-c", "echo ready; read x; exit 5"])
        .piped_stdin()
        .with(move |command| command.env("GPU_TRACK_SESSION", of_theirs))
        .start();
    inner.wait_for_output("ready");
    fs::File::options().write(true).open(&session).unwrap().set_len(0).unwrap();
    let inner = go_on(inner);
    inner.assert_clean(5).assert_all_exact(1);
    let theirs = go_on(running);
    assert_eq!(theirs.status.signal(), Some(libc::SIGBUS), "{}", theirs.stderr);
}
