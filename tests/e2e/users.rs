//! Descendants of another user or in a pid namespace of their own, and runs by an ordinary user.

use crate::support::{is_root, program, skip, tracked};

/// Puts the shim in the home directory, which other users may not enter, as for an installed gpu-track-run.
fn as_installed(command: &mut std::process::Command) -> &mut std::process::Command {
    command.env_remove("XDG_CACHE_HOME")
}

// Requirement: SEE-60, SHIM-16
#[test]
fn descendant_of_another_user_breaks_nothing() {
    if !is_root() {
        skip!("needs root (setpriv)");
    }
    let script = "setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '/bin/true; id -u; exit 0'; /bin/true; exit 7";
    let run = tracked(["sh", "-c", script]).with(as_installed).run();
    assert_eq!(run.stdout, "65534\n");
    assert_eq!(run.stderr, "", "the dynamic loader must not complain about an unreadable preload");
    let report = run.assert_clean(7);
    // The shell, setpriv and true are instrumented, whether or not the other user's processes are.
    assert!(report.u64("processes.total") >= 3);
}

// Requirement: SEE-36
#[test]
fn processes_of_another_user_are_counted_by_uid() {
    if !is_root() {
        skip!("needs root (setpriv)");
    }
    // The first is known by its parent alone, and what the second starts by samples alone.
    let script = "as() { setpriv --reuid $1 --regid $1 --clear-groups $2; }; as 65534 true; as 4711 'sleep 0.5'; exit 0";
    for (layers, warns) in
        [("preload,wait,subreaper,scan", true), ("preload,wait,subreaper,scan,connector", false)]
    {
        let run = tracked(["sh", "-c", script]).with(as_installed).options(&["--layers", layers]).run();
        let report = run.assert_clean(0);
        let users = serde_json::json!([{"uid": 4711, "processes": 1}, {"uid": 65534, "processes": 1}]);
        assert_eq!(report.at("coverage.other_users"), &users, "{layers}");
        let is_unseen = warns || !report.at("coverage.connector_absent").is_null();
        let text = "2 processes of other users (uids 4711, 65534): uninstrumented";
        assert_eq!(report.warnings().matches(text).count(), usize::from(is_unseen), "{}", report.warnings());
        assert!(!report.warnings().contains("Ended without a record"), "{}", report.warnings());
    }
}

// Requirement: SHIM-16
#[test]
fn command_of_another_user_is_exact() {
    if !is_root() {
        skip!("needs root (setpriv)");
    }
    let burn = program("burn");
    let run = tracked(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", &burn, "0.3"])
        .with(as_installed)
        .run();
    let report = run.assert_clean(0);
    assert_eq!(report.u64("processes.total"), 1);
    assert_eq!(report.u64("coverage.exact"), 1, "the launcher itself reaped it");
    report.assert_cpu_between(0.3, 0.1);
}

// Requirement: SEE-9
#[test]
fn descendants_in_a_pid_namespace_are_exact() {
    let unshare = if is_root() { "unshare -fp --mount-proc" } else { "unshare -Ufpr --mount-proc" };
    if !std::process::Command::new("sh").args(["-c", &format!("{unshare} true")]).status().unwrap().success()
    {
        skip!("no pid namespaces here");
    }
    let script = format!("{unshare} sh -c '{} 0.3; /bin/true; echo pid $$; exit 0'; exit 5", program("burn"));
    let run = tracked(["sh", "-c", &script]).run();
    assert_eq!(run.stdout, "pid 1\n");
    let report = run.assert_clean(5);
    // The processes are sh, unshare, the sh in the namespace, burn and true.
    report.assert_all_exact(5);
    report.assert_cpu_between(0.3, 0.1);
}

// Requirement: SEE-9
#[test]
fn pid_namespace_by_a_raw_clone_is_exact() {
    if !is_root() {
        skip!("needs root (a pid namespace without a user namespace)");
    }
    for layers in ["preload,wait,subreaper,scan", "preload,wait,subreaper,scan,connector"] {
        let script = format!("{} 0.3; (/bin/true; /bin/true); exit 0", program("burn"));
        let run = tracked([program("init"), "-n".into(), "sh".into(), "-c".into(), script])
            .options(&["--layers", layers])
            .run();
        let report = run.assert_clean(0);
        // The processes are init, the init in the namespace, sh, burn, true, and a subshell that becomes the second true.
        report.assert_all_exact(6);
        report.assert_cpu(report.f64("cpu_time.kernel_s"), 1.0);
    }
}

// Requirement: SEE-9
#[test]
fn run_inside_a_pid_namespace_is_exact() {
    if !is_root() {
        skip!("needs root (unshare)");
    }
    let run = tracked(["sh", "-c", "/bin/true; /bin/true; exit 0"])
        .through(&["unshare", "-fp", "--mount-proc"])
        .run();
    run.assert_clean(0).assert_all_exact(3);
}

// Requirement: FAULT-10, SEE-1
#[test]
fn ordinary_user_gets_exact_figures() {
    if !is_root() {
        skip!("needs root, to become an ordinary user");
    }
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), Some(65534), Some(65534)).unwrap();
    let file = directory.path().join("report.json");
    let home = directory.path().to_str().unwrap().to_owned();
    let run = tracked(["sh", "-c", "/bin/true; (exit 0); exit 2"])
        .only_options(&["-f", "json", "-o", file.to_str().unwrap()])
        .through(&["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .with(move |command| command.env_remove("XDG_CACHE_HOME").env("HOME", home))
        .run();
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
    assert_eq!(run.stderr, "");
    let report =
        crate::support::report::Report(serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap());
    report.assert_all_exact(3);
    let left = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|e| e.file_name().into_string().unwrap());
    let prefix = format!("gpu-track.65534.{}.", run.launcher);
    assert_eq!(left.filter(|name| name.starts_with(&prefix)).count(), 0);
}
