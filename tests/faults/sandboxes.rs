//! Programs that restrict themselves, or what they start, by seccomp filters and Landlock.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::support::run::become_user;
use crate::support::{installed, is_root, or_skip, program, skip, static_program, tracked};
use crate::with_and_without::same_with_and_without;

/// A filter can come in a process that a clone system call made, and apply to programs that are exec'd later.
// Requirement: SEE-85, SHIM-5
#[test]
fn program_under_a_killing_seccomp_filter_is_unchanged() {
    let seccomp = program("seccomp");
    let modes = ["prctl", "syscall", "strict", "clone", "clone_reaps", "exec", "empty", "system"];
    for mode in modes {
        let run = same_with_and_without(&[&seccomp, mode]);
        assert_eq!(run.status.code(), Some(0), "{mode}: {}", run.stdout);
        let is_said =
            run.report().warnings().contains("1 process uninstrumented, like its children: a seccomp filter");
        assert_eq!(is_said, ["exec", "empty"].contains(&mode), "{mode}: {}", run.report().warnings());
    }
    for mode in modes {
        let run = or_skip!(tracked([&*seccomp, mode]).by_an_ordinary_user()).run();
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""), "{mode}");
    }
}

/// Landlock refuses to open files that are there.
// Requirement: SEE-19, SEE-118
#[test]
fn program_under_landlock_is_quiet_and_the_report_says_what_to_allow() {
    let landlock = program("landlock");
    let modes = ["exec", "spawn", "system"];
    for mode in modes {
        let run = same_with_and_without(&[&landlock, mode]);
        if run.status.code() == Some(77) {
            skip!("this kernel has no Landlock");
        }
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(4), "restricted\n"), "{}", run.stderr);
        let warnings = run.report().warnings();
        // libc's system() passes no hook.
        let is_said = warnings.contains("1 process in a sandbox") && warnings.contains("Landlock must allow");
        assert_eq!(is_said, mode != "system", "{mode}: {warnings}");
    }
    // A static program carries no shim that could notice.
    let run = tracked([static_program("landlock"), "exec".into()]).run();
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(4), "restricted\n"));
    assert!(run.stderr.contains("cannot be preloaded"), "{}", run.stderr);
    // All files may be opened.
    for mode in modes {
        let run = same_with_and_without(&[&landlock, mode, "/"]);
        let report = run.assert_clean(4);
        report.assert_all_exact(if mode == "exec" { 2 } else { 3 });
        assert!(!report.warnings().contains("sandbox"), "{mode}: {}", report.warnings());
    }
    // The parent of a vfork child that restricts itself is not restricted: after it has reaped the child, the programs that it starts
    // have the shim.
    let run = same_with_and_without(&[&landlock, "vfork"]);
    assert_eq!(
        (run.status.code(), run.stdout.as_str()),
        (Some(4), "restricted\nrestricted\n"),
        "{}",
        run.stderr
    );
    let report = run.report();
    assert_eq!(report.u64("coverage.layers.preload"), 3, "{report}");
    for mode in modes {
        let run = or_skip!(tracked([&*landlock, mode]).by_an_ordinary_user()).run();
        let got = (run.status.code(), run.stdout.as_str(), run.stderr.as_str());
        assert_eq!(got, (Some(4), "restricted\n", ""), "{mode}");
    }
}

/// bwrap makes the sandbox's processes by clone system calls, and filters them before it execs the command.
// Requirement: SHIM-5, SHIM-14
#[test]
fn bubblewrap_with_a_killing_filter_is_unchanged() {
    if installed("bwrap").is_none() {
        skip!("bwrap is not installed");
    }
    let killed = [libc::SYS_getrusage, libc::SYS_faccessat, libc::SYS_madvise, libc::SYS_clock_gettime];
    // sock_filter: code, jt, jf, k. Loads the number, and jumps over the return that kills.
    let mut code = vec![(0x20u16, 0u8, 0u8, 0u32)];
    for number in killed {
        code.push((0x15, 0, 1, u32::try_from(number).unwrap()));
        code.push((0x06, 0, 0, libc::SECCOMP_RET_KILL_PROCESS));
    }
    code.push((0x06, 0, 0, libc::SECCOMP_RET_ALLOW));
    let bytes = |(code, jt, jf, k): (u16, u8, u8, u32)| {
        [&code.to_ne_bytes()[..], &[jt, jf], &k.to_ne_bytes()].concat()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), code.into_iter().flat_map(bytes).collect::<Vec<u8>>()).unwrap();
    let script = "exec 9<\"$1\"; exec bwrap --ro-bind / / --dev-bind /dev /dev --unshare-pid --seccomp 9 \
                  sh -c '/bin/true; echo filtered; exit 4'";
    let run = same_with_and_without(&["sh", "-c", script, "sh", file.path().to_str().unwrap()]);
    if run.status.code() == Some(1) {
        skip!("no user namespaces here: {}", run.stderr.trim());
    }
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(4), "filtered\n"), "{}", run.stderr);
}

/// Chromium says so if its own sandbox, which an ordinary user has, meets a system call that it does not know.
// Requirement: SHIM-5, SHIM-14
#[test]
fn browser_with_its_own_sandbox_is_unchanged() {
    if installed("chromium").is_none() {
        skip!("chromium is not installed");
    }
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let words = ["chromium", "--headless", "--disable-gpu", "--dump-dom", "data:text/html,<p>seen"];
    let user = become_user(65534);
    let through = if is_root() { &user[..] } else { &[] };
    let all: Vec<&str> = through.iter().map(String::as_str).chain(words).collect();
    let bare =
        Command::new(all[0]).args(&all[1..]).env("HOME", home.path()).stdin(Stdio::null()).output().unwrap();
    let stdout = String::from_utf8_lossy(&bare.stdout).into_owned();
    if !stdout.contains("<p>seen</p>") {
        skip!("chromium's sandbox does not work here: {}", String::from_utf8_lossy(&bare.stderr).trim());
    }
    let run = tracked(words);
    let run = if is_root() { or_skip!(run.by_an_ordinary_user()) } else { run };
    let path = home.path().to_owned();
    let run = run.with(move |command| command.env("HOME", path)).run();
    assert_eq!((run.status, &run.stdout), (bare.status, &stdout), "{}", run.stderr);
    assert!(!run.stderr.contains("seccomp-bpf failure"), "{}", run.stderr);
}
