//! `--nodes=all`: what ssh starts on other nodes is in the report, and runs as without. Here, an ssh in PATH stays on this machine. With a
//! cluster (GPU_TRACK_TEST_CLUSTER), ssh, pdsh and GNU parallel reach other hosts.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::cluster::{cluster, on_n1, on_node};
use crate::support::run::{BINARY, Tracked, tracked};
use crate::support::{installed, is_root, or_skip, skip};

/// Runs the remote command as sshd does, on this machine, by the login shell that LOGIN names.
const SSHD: &str = "#!/bin/bash\nwhile case $1 in -*) ;; *) false ;; esac; do shift; done\n[ \"$1\" != down ] || exit 255\nshift\n\
                    SHELL=/bin/false exec -a \"${LOGIN##*/}\" \"$LOGIN\" -c \"$*\"\n";

/// A directory with this script as ssh.
fn with_ssh(script: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let ssh = directory.path().join("ssh");
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(ssh, fs::Permissions::from_mode(0o755)).unwrap();
    // The user database, in which the login shell is.
    let database = directory.path().join("getent");
    fs::write(&database, "#!/bin/sh\n[ \"$LOGIN\" ] && echo x:x:0:0::/root:$LOGIN\n").unwrap();
    fs::set_permissions(database, fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

fn path_with(ssh: &Path) -> String {
    format!("{}:{}", ssh.display(), std::env::var("PATH").unwrap())
}

/// A run with `--nodes=all` of these words, which find that ssh.
fn over_ssh(ssh: &Path, words: &[&str]) -> Tracked {
    let path = path_with(ssh);
    tracked(words.iter().copied())
        .options(&["-q", "--nodes=all"])
        .with(move |command| command.env("PATH", path).env("LOGIN", "/bin/sh").env_remove("GPU_TRACK_AGENT"))
}

/// The same words without gpu-track-run.
fn bare(ssh: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("PATH", path_with(ssh)).env("LOGIN", "/bin/sh").output().unwrap()
}

fn files(report: &Value) -> u64 {
    report["merged"]["files"]["read"].as_u64().unwrap_or(1)
}

// Requirement: NODE-43, NODE-70
#[test]
fn remote_command_runs_as_by_its_login_shell_and_is_in_the_report() {
    let ssh = with_ssh(SSHD);
    let long = format!("echo {}", "x".repeat(90_000));
    let commands = [
        "echo 'a b'  \"c  d\" \\\\ \\n '\\' '\\\\'; exit 7",
        "echo 'it'\\''s' !! \\!x $HOME `echo y` ~; nosuchcommand",
        "printf '%s\\n' a b\necho second\n\n",
        "echo $0; sh -c 'echo error >&2'; kill -9 $$",
        "# a comment\necho é\tx",
        "if (1 == 1) echo only csh",
        "for i in 1 2; echo only fish $i; end",
        &long,
    ];
    for shell in ["dash", "bash", "zsh", "tcsh", "fish"] {
        let Some(shell) = installed(shell) else { continue };
        for command in commands {
            let words = ["ssh", "-x", "n2", command];
            let expected = {
                let mut ssh_alone = Command::new(ssh.path().join("ssh"));
                ssh_alone.args(&words[1..]).env("LOGIN", &shell).output().unwrap()
            };
            let login = shell.clone();
            let run = over_ssh(ssh.path(), &words).with(|command| command.env("LOGIN", login)).run();
            let name = format!("{}: {command:.60}", shell.display());
            assert_eq!(run.status, expected.status, "{name}");
            assert_eq!(run.stdout, String::from_utf8_lossy(&expected.stdout), "{name}");
            assert_eq!(run.stderr, String::from_utf8_lossy(&expected.stderr), "{name}");
            assert_eq!(files(&run.report().0), 2, "{name}");
        }
    }
}

// Requirement: NODE-43, NODE-71
#[test]
fn calls_that_agents_track_are_named_so_and_others_as_before() {
    // An ssh that becomes another program is none for the report.
    let ssh = with_ssh(&format!("{})\nexit $?\n", SSHD.trim_end().replace("SHELL=", "(SHELL=")));
    let script = "ssh n2 /bin/true; ssh me@n2 true; ssh n3 true gpu-track-run; ssh n4 >/dev/null; exit 0";
    let run = over_ssh(ssh.path(), &["bash", "-c", script]).run();
    let report = run.assert_clean(0);
    let listed = |report: &Value| -> Vec<String> {
        let entries = report["coverage"]["elsewhere"].as_array().unwrap().iter();
        entries.map(|entry| format!("{} {} {}", entry["target"], entry["count"], entry["in_tree"])).collect()
    };
    let all = ["\"n2\" 2 2", "\"n3\" 1 null", "\"n4\" 1 null"];
    let mut found = listed(&report.0);
    found.sort();
    assert_eq!((files(&report.0), found), (3, all.map(str::to_owned).to_vec()));
    let warnings = report.warnings();
    assert!(warnings.contains("by ssh (n3, n4); see it by ssh HOST"), "{warnings}");
    // A host that was not reached, beside one that was.
    let script = "ssh down true; ssh n2 true; exit 0";
    let run = over_ssh(ssh.path(), &["bash", "-c", script]).run();
    let report = run.assert_clean(0);
    assert!(report.warnings().contains("may have stayed on its node"), "{}", report.warnings());
    assert!(report.at("hints.withheld").as_str().unwrap().contains("what ssh started on down"));
    // Without the option, the ssh in PATH is the user's own.
    let run = over_ssh(ssh.path(), &["bash", "-c", "command -v ssh; ssh n2 true; exit 0"])
        .options(&["--nodes=auto"])
        .run();
    assert_eq!(run.stdout, format!("{}/ssh\n", ssh.path().display()));
    let report = run.report();
    assert_eq!(files(&report.0), 1);
    assert!(report.warnings().contains("gpu-track-run --nodes=all tracks them"), "{}", report.warnings());
}

// Requirement: NODE-68
#[test]
fn calls_that_start_no_command_or_copy_files_are_unchanged() {
    let ssh = with_ssh("#!/bin/sh\necho \"$0 ${GPU_TRACK_AGENT-unset} $PATH\"; printf '<%s>' \"$@\"\n");
    let too_long = format!("echo {}", "x".repeat(120_000));
    for words in [
        &["n2"][..],
        &[],
        &["-V"],
        &["-N", "-L", "1:x:2", "n2"],
        &["-O", "check", "n2"],
        &["-W", "n3:22", "n2"],
        &["n2", "-s", "sftp"],
        &["-oSessionType=subsystem", "n2", "sftp"],
        &["-P", "tag", "n2", "ls"],
        &["n2", "rsync --server -vlogDtpr . /tmp"],
        &["n2", "scp", "-t", "/tmp"],
        &["git@host", "git-upload-pack 'a/b'"],
        &["n2", "git-receive-pack 'a'"],
        &["n2", "/opt/gpu-track-run -- ./app"],
        &["n2", " "],
        &["::1", "ls"],
        &["n2", &too_long],
    ] {
        let line: Vec<&str> = std::iter::once("ssh").chain(words.iter().copied()).collect();
        let expected = String::from_utf8(bare(ssh.path(), &line).stdout).unwrap();
        assert_eq!(over_ssh(ssh.path(), &line).run().stdout, expected, "{words:.3?}");
    }
    // What ssh starts itself finds no stand-in, and options stay before the command.
    let run = over_ssh(ssh.path(), &["ssh", "-tt", "-p22", "n2", "-x", "ls", "-l"]).run();
    let path = path_with(ssh.path());
    assert!(run.stdout.contains(&format!("unset {path}\n<-tt><-p22><n2><-x><: gpu-")), "{}", run.stdout);
}

// Requirement: NODE-69
#[test]
fn ssh_runs_whatever_is_in_path_and_however_runs_are_nested() {
    let ssh = with_ssh(SSHD);
    let other = tempfile::tempdir().unwrap();
    symlink(BINARY, other.path().join("ssh")).unwrap();
    let others = other.path().display();
    for (script, output) in [
        // Other links to this program, before and behind.
        (format!("PATH={others}:$PATH:{others} ssh n2 echo out"), "out\n"),
        (format!("{others}/ssh n2 echo out"), "out\n"),
        ("PATH=$PATH:$PATH ssh n2 echo out".to_owned(), "out\n"),
        // A run within a run, and one that has no stand-in of its own.
        (format!("{BINARY} -q -o /dev/null --nodes=all -- ssh n2 echo out 2>/dev/null"), "out\n"),
        (format!("{BINARY} -q -o /dev/null --nodes=off -- ssh n2 echo out"), "out\n"),
        // Without what the stand-in needs.
        ("env -u GPU_TRACK_AGENT ssh n2 echo out".to_owned(), "out\n"),
        ("GPU_TRACK_AGENT=x ssh n2 echo out".to_owned(), "out\n"),
        ("env -u HOME ssh n2 echo out".to_owned(), "out\n"),
        ("env -u LD_PRELOAD ssh n2 echo out".to_owned(), "out\n"),
        ("A=$(command -v ssh); PATH=${A%/*} $A n2 echo out; [ $? = 127 ] && echo none".to_owned(), "none\n"),
        (
            "A=$(command -v ssh); env -i PATH= LOGIN=/bin/sh $A; [ $? = 127 ] && echo none".to_owned(),
            "none\n",
        ),
    ] {
        let run = over_ssh(ssh.path(), &["/bin/bash", "-c", &script]).run();
        assert_eq!(run.stdout, output, "{script}: {}", run.stderr);
    }
    // A PATH without ssh: the command's stays as it is.
    let nothing = tempfile::tempdir().unwrap();
    let empty = nothing.path().display().to_string();
    let path = empty.clone();
    let run = over_ssh(ssh.path(), &["/bin/sh", "-c", "echo $PATH"])
        .with(|command| command.env("PATH", path))
        .run();
    assert_eq!(run.stdout, format!("{empty}\n"));
    assert!(
        run.stderr.contains("--nodes=all: what ssh starts is not tracked: PATH has no ssh"),
        "{}",
        run.stderr
    );
    // A process that outlives its run.
    let directory = tempfile::tempdir().unwrap();
    let (state, survivor) = (directory.path().join("state"), directory.path().join("survivor"));
    let script = format!(
        "(while [ -e /proc/$PPID ] || [ ! -e {0}.go ]; do sleep 0.01; done; ssh n2 echo out >{0}.new; mv {0}.new {0}) >/dev/null 2>&1 &",
        survivor.display()
    );
    let home = state.clone();
    let run = over_ssh(ssh.path(), &["/bin/sh", "-c", &script])
        .with(move |command| command.env("XDG_STATE_HOME", home))
        .leaves_processes()
        .run();
    assert_eq!(run.status.code(), Some(0));
    fs::write(survivor.with_extension("go"), "").unwrap();
    crate::support::wait_until("the survivor's ssh", || survivor.exists());
    assert_eq!(fs::read_to_string(&survivor).unwrap(), "out\n");
    assert!(!state.join("gpu-track/nodes").exists(), "no agent is left without a run");
}

// Requirement: NODE-69, FAULT-15
#[test]
fn root_becomes_no_ssh_of_another_user() {
    let (ssh, own) = (with_ssh("#!/bin/sh\necho of another user\n"), with_ssh("#!/bin/sh\necho of root\n"));
    let run = tracked(["true"]).by_an_ordinary_user();
    drop(or_skip!(run));
    std::os::unix::fs::chown(ssh.path(), Some(65534), Some(65534)).unwrap();
    let path = format!("{}:{}", ssh.path().display(), path_with(own.path()));
    let run =
        over_ssh(own.path(), &["sh", "-c", "ssh n2 true"]).with(|command| command.env("PATH", path)).run();
    assert_eq!(run.stdout, "of root\n");
}

// Requirement: NODE-69, FAULT-15
#[test]
fn root_takes_no_agent_from_an_environment_that_its_run_has_not_made() {
    if !is_root() {
        skip!("needs root");
    }
    let ssh = with_ssh("#!/bin/sh\necho \"$2\"\n");
    let script = "echo \"$PATH\"; echo \"$GPU_TRACK_AGENT\"; echo end; ssh n2 ls; read line";
    let mut running = over_ssh(ssh.path(), &["sh", "-c", script]).piped_stdin().start();
    running.wait_for_output("end\n: gpu-track-run --agent;\n");
    let output = fs::read_to_string(running.path("stdout")).unwrap();
    let [path, agent] = output.lines().take(2).collect::<Vec<_>>()[..] else { panic!("{output}") };
    // Another user who knows of root's run can set the variable for a shell of root's (`su -m`).
    let mut other = Command::new("sh");
    other.args(["-c", "exec ssh n2 ls"]).env("PATH", path).env("GPU_TRACK_AGENT", agent);
    assert_eq!(String::from_utf8(other.output().unwrap().stdout).unwrap(), "ls\n");
    drop(running.stdin());
    running.wait();
}

// Requirement: NODE-25, NODE-43
#[test]
fn variable_can_ask_for_ssh_and_forbid_it() {
    let ssh = with_ssh(SSHD);
    let with = |variable: &'static str, option: &[&str]| {
        let path = path_with(ssh.path());
        tracked(["ssh", "n2", "true"])
            .options(option)
            .with(move |command| {
                command.env("PATH", path).env("LOGIN", "/bin/sh").env("GPU_TRACK_NODES", variable)
            })
            .run()
    };
    assert_eq!(files(&with("all", &[]).report().0), 2);
    let run = with("never", &["--nodes=all"]);
    assert!(run.stderr.contains("only this node is tracked: GPU_TRACK_NODES is \"never\""), "{}", run.stderr);
    assert_eq!(files(&run.report().0), 1);
    // Without the shim, the launcher would not learn of the agent.
    assert_eq!(files(&with("all", &["--layers=scan"]).report().0), 1);
    let run = tracked(["true"]).options(&["--nodes=all"]).with(|command| command.env("PBS_JOBID", "7")).run();
    assert!(run.stderr.contains("in a job of pbs no agents can be started"), "{}", run.stderr);
}

// Requirement: NODE-12, NODE-38
#[test]
fn host_without_the_program_runs_the_command_and_is_named() {
    let script = SSHD.replace(
        "shift\nSHELL",
        &format!(
            "shift\nset -- \"${{@//{}/\\/nonexistent\\/gpu-track-run}}\"\nSHELL",
            BINARY.replace('/', "\\/")
        ),
    );
    let ssh = with_ssh(&script);
    let run = over_ssh(ssh.path(), &["ssh", "n2", "echo 'a  b'; exit 3"]).run();
    assert_eq!((run.status.code(), &*run.stdout), (Some(3), "a  b\n"));
    let warnings = run.report().warnings();
    assert!(warnings.contains("Not tracked: n2. gpu-track-run is missing there: "), "{warnings}");
}

/// Words that make `ssh` in PATH reach the hosts of a cluster.
fn with_ssh_of(cluster: &str) -> String {
    let output = Command::new(cluster).arg("ssh").output().unwrap();
    let ssh = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    format!(
        "mkdir -p ssh && ln -sf {ssh} ssh/ssh && export PATH=$PWD/ssh:$PATH GPU_TRACK_NODES=all PDSH_RCMD_TYPE=ssh;"
    )
}

// Requirement: NODE-43, NODE-68
#[test]
fn calls_of_ssh_end_as_without_us_on_a_cluster() {
    let (cluster, _turn) = or_skip!(cluster());
    let prepare = with_ssh_of(&cluster);
    for (line, agents) in [
        ("head -c 3000000 /dev/zero | TRACK ssh n2 'cksum; sleep 0.3; exit 3' 2>&1; echo $?", 1),
        ("echo in | TRACK ssh -n n2 'cat; kill -9 $$'; echo $?", 1),
        ("TRACK ssh n2 'sleep 30 </dev/null >/dev/null 2>&1 & echo $((6*7))'", 1),
        ("TRACK ssh -tt n2 'tty | sed s/[0-9]*$//; kill -INT $$'; echo $?", 1),
        (
            "TRACK sh -c 'ssh -M -S c -o ControlPersist=20 n2 echo 1; ssh -S c n2 exit 4; echo $?; ssh -S c -O exit n2' 2>&1",
            2,
        ),
        ("TRACK ssh -o ProxyCommand='ssh -W %h:%p n1' n2 'hostname; exit 5'; echo $?", 1),
        (
            "TRACK bash -c 'ssh -f -o ExitOnForwardFailure=yes -L 7711:n2:22 n2 sleep 1; head -c 7 </dev/tcp/localhost/7711'",
            1,
        ),
        (
            "echo data >f; TRACK sh -c 'scp -q f n2:$PWD/g; scp -O -q f n2:$PWD/h; echo pwd | sftp -q -b - n2 >/dev/null'; cat g h",
            0,
        ),
    ] {
        let line = format!("{prepare} {line}");
        let (status, output, report) = on_n1(&cluster, &line, true);
        let (expected, of_bare, _) = on_n1(&cluster, &line, false);
        assert_eq!((status, output), (expected, of_bare), "{line}");
        let report = report.unwrap();
        assert_eq!(files(&report), agents + 1, "{line}: {}", report["merged"]);
    }
}

// Requirement: NODE-43
#[test]
fn pdsh_and_parallel_over_ssh_are_in_the_report() {
    let (cluster, _turn) = or_skip!(cluster());
    let prepare = with_ssh_of(&cluster);
    let mut tried = 0;
    for (program, line) in [
        ("ssh", "TRACK ssh n2 '/bin/true; sleep 1'"),
        ("pdsh", "TRACK pdsh -S -w n1,n2 '/bin/true; sleep 1; exit 3' | sort"),
        ("parallel", "TRACK parallel --will-cite -k -S 1/n1,1/n2 'sleep 1; echo \"a  b\"' ::: 1 2"),
    ] {
        if installed(program).is_none() {
            continue;
        }
        tried += 1;
        let line = format!("{prepare} {line}");
        let (status, output, report) = on_n1(&cluster, &line, true);
        let (expected, of_bare, _) = on_n1(&cluster, &line, false);
        assert_eq!((status, output), (expected, of_bare), "{line}");
        let report = report.unwrap();
        assert!(on_node(&report, "n2").is_some_and(|processes| processes >= 3), "{}", report["nodes"]);
        let elsewhere = report["coverage"]["elsewhere"].as_array().unwrap();
        let is_by_agent = |entry: &Value| entry["program"] == "ssh" && entry["in_tree"] == entry["count"];
        assert!(elsewhere.iter().all(is_by_agent), "{elsewhere:?}");
        assert!(
            !report["warnings"].to_string().contains("commands on other hosts"),
            "{}",
            report["warnings"]
        );
    }
    assert!(tried > 0);
}
