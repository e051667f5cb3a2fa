//! What the command hands to daemons and to other hosts is in no figure. The report names it, and gives no hints.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::support::run::Tracked;
use crate::support::{static_program, tracked};

/// A directory with clients that do nothing and end at once. docker and kubectl are static, so they carry no shim.
fn clients() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let nothing = static_program("runs");
    for name in ["docker", "kubectl"] {
        symlink(&nothing, directory.path().join(name)).unwrap();
    }
    for name in ["ssh", "git", "systemd-run", "sbatch", "podman"] {
        symlink("/bin/true", directory.path().join(name)).unwrap();
    }
    directory
}

/// A run of a shell script that finds these clients. No sample and no event of the kernel tells of them.
fn with_clients(clients: &tempfile::TempDir, script: &str) -> Tracked {
    let path = format!("{}:{}", clients.path().display(), std::env::var("PATH").unwrap());
    tracked(["bash", "-c", script])
        .options(&["--layers", "preload,wait,subreaper"])
        .with(move |command| command.env("PATH", path))
}

/// What was started elsewhere: `program target count`.
fn listed(report: &Value) -> Vec<String> {
    let shown = |entry: &Value| {
        format!(
            "{} {} {}",
            entry["program"].as_str().unwrap(),
            entry["target"].as_str().unwrap_or("-"),
            entry["count"]
        )
    };
    report["coverage"]["elsewhere"].as_array().map(|all| all.iter().map(shown).collect()).unwrap_or_default()
}

// Requirement: SEE-35, HINT-18
#[test]
fn what_clients_start_is_named_and_nothing_is_advised() {
    let clients = clients();
    let script = "docker run -it alpine; (docker run alpine); docker ps -a; ssh n2 make; ssh -V; systemd-run -u job true; \
                  bash -c 'kubectl exec pod -- ls'; sbatch job.sh; exit 0";
    let run = with_clients(&clients, script).run();
    let report = run.assert_clean(0);
    let all = ["docker alpine 2", "ssh n2 1", "systemd-run job 1", "kubectl pod 1", "sbatch - 1"];
    assert_eq!(listed(&report.0), all);
    assert_eq!(report.at("coverage.elsewhere.0.kind"), "container");
    let warnings = report.warnings();
    for what in [
        "containers of docker (alpine)",
        "commands on other hosts by ssh (n2)",
        "units of systemd-run (job)",
        "pods of kubectl (pod)",
        "jobs of sbatch",
    ] {
        assert!(warnings.contains(&format!("Not in this report: {what}; ")), "{what}: {warnings}");
    }
    let hints = report.at("hints");
    assert!(["memory", "time", "cpus", "gpus"].iter().all(|hint| hints[*hint].is_null()), "{hints}");
    let why = hints["withheld"].as_str().unwrap();
    assert!(why.contains("docker") && why.contains("is not in this report"), "{why}");
}

/// The shell that started a client becomes another one, or one that counts for its clients.
// Requirement: SEE-35
#[test]
fn client_counts_whatever_its_starter_becomes() {
    let clients = clients();
    for (script, expected) in [
        ("docker run a; exec ssh n2", &["docker a 1", "ssh n2 1"][..]),
        ("docker run a; exec git fetch", &["docker a 1"]),
        ("systemd-run -u job true; exec git fetch", &["systemd-run job 1"]),
    ] {
        let run = with_clients(&clients, script).run();
        assert_eq!(listed(&run.assert_clean(0).0), expected, "{script}");
    }
}

// Requirement: SEE-35
#[test]
fn client_with_many_options_is_named_without_its_target() {
    let (clients, long) = (clients(), "x".repeat(200));
    let script = format!("ssh -o UserKnownHostsFile={long} n2 make; docker --tlscacert {long} run a");
    let run = with_clients(&clients, &script).run();
    // A sample that sees a client reads all of its arguments.
    let expected = [["docker - 1", "docker a 1"], ["ssh - 1", "ssh n2 1"]];
    let found = listed(&run.assert_clean(0).0);
    let is_expected = found.iter().zip(&expected).all(|(found, names)| names.contains(&found.as_str()));
    assert!(found.len() == 2 && is_expected, "{found:?}");
}

// Requirement: SEE-35
#[test]
fn what_starts_nothing_elsewhere_is_not_named() {
    let clients = clients();
    // The exec of the one fails, the other copies files, and the last one runs containers below the tree.
    let script =
        "/nonexistent/docker run alpine 2>/dev/null; git push; docker images -a; podman run alpine; exit 0";
    let run = with_clients(&clients, script).run();
    let report = run.assert_clean(0);
    assert_eq!(report.at("coverage").get("elsewhere"), None, "{}", report.at("coverage"));
    // A wrapper that becomes another program.
    fs::remove_file(clients.path().join("docker")).unwrap();
    let wrapper = clients.path().join("docker");
    fs::write(&wrapper, "#!/bin/sh\nexec podman \"$@\"\n").unwrap();
    fs::set_permissions(wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let run = with_clients(&clients, "docker run alpine; exit 0").run();
    assert_eq!(listed(&run.assert_clean(0).0), [] as [&str; 0]);
}

// Requirement: SEE-121, SEE-122
#[test]
fn call_that_fails_counts_and_one_below_an_uninstrumented_program_does_not() {
    let clients = clients();
    // Without an image, the fake docker ends with an error.
    let script =
        format!("docker run; {} 1 {}/ssh n2; exit 0", static_program("runs"), clients.path().display());
    let run = with_clients(&clients, &script).run();
    assert_eq!(listed(&run.assert_clean(0).0), ["docker - 1"]);
}

// Requirement: SEE-35
#[test]
fn command_can_be_a_client_itself() {
    let clients = clients();
    let docker = clients.path().join("docker").display().to_string();
    let ways = [
        vec![docker.clone(), "run".into(), "alpine".into()],
        vec!["sh".into(), "-c".into(), format!("exec {docker} run alpine")],
    ];
    for words in ways {
        let run = tracked(words.clone()).options(&["--layers", "preload,wait,subreaper"]).run();
        assert_eq!(listed(&run.assert_clean(0).0), ["docker alpine 1"], "{words:?}");
    }
}

// Requirement: SEE-35
#[test]
fn summary_says_what_to_type_and_hides_what_a_terminal_would_act_on() {
    let clients = clients();
    let script = "docker run alpine; ssh $'n\\e[2J2' ls; exit 0";
    let run = with_clients(&clients, script).only_options(&["--hints"]).run();
    for text in [
        "Not in this report: containers of docker (alpine)",
        "--attach $(docker inspect",
        "not known: what docker, ssh started elsewhere is not in this report",
        "gpu-track-run --nodes=all tracks them there",
    ] {
        let unwrapped = run.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unwrapped.contains(text), "{text}: {}", run.stderr);
    }
    assert!(!run.stderr.contains('\u{1b}'), "{}", run.stderr);
    let run = with_clients(&clients, script).run();
    assert_eq!(run.report().at("coverage.elsewhere.1.target"), &json!("n\u{1b}[2J2"));
}
