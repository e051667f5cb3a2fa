//! Containers that a daemon runs for the command: a fake docker and a fake daemon, and the real ones where they are.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::cgroup::mounted;
use crate::support::run::Tracked;
use crate::support::{installed, or_skip, program, skip, tracked, wait_until};

/// A daemon that tells of the containers that a test makes up.
#[derive(Clone, Default)]
struct Daemon {
    state: Arc<Mutex<DaemonState>>,
}

#[derive(Default)]
struct DaemonState {
    /// All events so far, each a line.
    events: Vec<String>,
    /// Clients that wait for more.
    waiting: Vec<UnixStream>,
    /// What was asked for.
    requests: Vec<String>,
}

impl Daemon {
    /// Begins to answer at this socket.
    fn at(socket: &Path) -> Self {
        let daemon = Self::default();
        let listener = UnixListener::bind(socket).unwrap();
        let of_thread = daemon.clone();
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| of_thread.answer(stream)));
        daemon
    }

    fn answer(&self, mut stream: UnixStream) {
        let mut request = String::new();
        if BufReader::new(&stream).read_line(&mut request).is_err() {
            return;
        }
        let mut state = self.state.lock().unwrap();
        state.requests.push(request.clone());
        if !request.starts_with("GET /events?") {
            let _ = stream.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n");
            return;
        }
        let reply =
            format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}", state.events.concat());
        let _ = stream.write_all(reply.as_bytes());
        if !request.contains("&until=") {
            state.waiting.push(stream);
        }
    }

    /// Tells of an event of the container of which the id has these digits.
    fn tell(&self, action: &str, digits: &str, name: &str, exit_code: Option<i32>) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let image = if name == "of_others" { "other/image" } else { "local/image" };
        let mut attributes = json!({"image": image, "name": name});
        if let Some(code) = exit_code {
            attributes["exitCode"] = code.to_string().into();
        }
        let event = json!({
            "Type": "container",
            "Action": action,
            "Actor": {"ID": digits.repeat(32), "Attributes": attributes},
            "timeNano": u64::try_from(now.as_nanos()).unwrap(),
        });
        let mut state = self.state.lock().unwrap();
        let line = format!("{event}\n");
        state.waiting.retain_mut(|stream| stream.write_all(line.as_bytes()).is_ok());
        state.events.push(line);
    }

    /// How often it was asked for its events.
    fn asked(&self) -> usize {
        self.state.lock().unwrap().requests.len()
    }
}

/// A directory with a docker that hands each call to the test, and waits for its exit code.
struct Docker {
    directory: tempfile::TempDir,
    daemon: Daemon,
}

impl Docker {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().display();
        for pipe in ["calls", "codes"] {
            assert!(Command::new("mkfifo").arg(directory.path().join(pipe)).status().unwrap().success());
        }
        let docker = directory.path().join("docker");
        fs::write(
            &docker,
            format!("#!/bin/sh\necho \"$*\" >{at}/calls\nread -r code <{at}/codes\nexit \"$code\"\n"),
        )
        .unwrap();
        fs::set_permissions(docker, fs::Permissions::from_mode(0o755)).unwrap();
        let daemon = Daemon::at(&directory.path().join("daemon.sock"));
        Self { directory, daemon }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A run of a shell script that finds this docker. Its daemon is this one.
    fn tracked(&self, script: &str) -> Tracked {
        let path = format!("{}:{}", self.directory.path().display(), std::env::var("PATH").unwrap());
        let host = format!("unix://{}", self.path("daemon.sock").display());
        tracked(["bash", "-c", script])
            .with(move |command| command.env("PATH", path).env("DOCKER_HOST", host))
    }

    /// Serves one call: `act` does what the daemon does for its arguments, and says how docker exits.
    fn serve(&self, act: impl FnOnce(&Daemon, &str) -> i32) {
        let mut call = String::new();
        BufReader::new(OpenOptions::new().read(true).open(self.path("calls")).unwrap())
            .read_line(&mut call)
            .unwrap();
        let code = act(&self.daemon, call.trim());
        writeln!(OpenOptions::new().write(true).open(self.path("codes")).unwrap(), "{code}").unwrap();
    }
}

/// The containers of a report: name, certainty, exit code.
fn listed(report: &Value) -> Vec<String> {
    let all = report["containers"].as_array().cloned().unwrap_or_default();
    let text = |one: &Value| {
        format!(
            "{} {} {}",
            one["name"].as_str().unwrap(),
            one["certainty"].as_str().unwrap(),
            one["exit_code"]
        )
    };
    all.iter().map(text).collect()
}

// Requirement: SEE-132, SEE-134
#[test]
fn containers_of_calls_are_followed_by_the_daemons_events() {
    let docker = Docker::new();
    let run = docker.tracked("docker run --name one local/image; docker run local/image; exit 0").start();
    docker.serve(|daemon, call| {
        assert_eq!(call, "run --name one local/image");
        daemon.tell("create", "0a", "one", None);
        daemon.tell("create", "0b", "of_others", None);
        daemon.tell("start", "0a", "one", None);
        daemon.tell("oom", "0a", "one", None);
        daemon.tell("die", "0a", "one", Some(137));
        137
    });
    docker.serve(|daemon, _| {
        daemon.tell("create", "0c", "two", None);
        daemon.tell("start", "0c", "two", None);
        daemon.tell("die", "0c", "two", Some(3));
        daemon.tell("start", "0b", "of_others", None);
        3
    });
    let run = run.wait();
    let report = run.assert_clean(0);
    assert_eq!(listed(&report.0), ["one certain 137", "two matched 3"]);
    assert_eq!(
        (report.at("containers.0.oom_killed"), report.at("containers.1.oom_killed")),
        (&json!(true), &json!(null)),
        "no event and no cgroup tells of the second one"
    );
    assert!(report.at("containers.0.cpu_s").is_null());
    assert!(report.at("containers.0.reason").as_str().unwrap().contains("cgroup"));
    assert!(!report.warnings().contains("Not in this report: containers"), "{}", report.warnings());
}

// Requirement: SEE-131, SEE-135
#[test]
fn unreachable_daemon_is_in_the_warning_and_the_trees_own_is_never_asked() {
    let docker = Docker::new();
    let other = docker.path("other.sock");
    let of_tree = Daemon::at(&other);
    let script = format!("DOCKER_HOST=unix://{} docker run local/image", other.display());
    let host = format!("unix://{}", docker.path("nowhere").display());
    let run = docker.tracked(&script).with(move |command| command.env("DOCKER_HOST", host)).start();
    docker.serve(|_, _| 0);
    let run = run.wait();
    let report = run.assert_clean(0);
    assert_eq!(listed(&report.0), [] as [&str; 0]);
    let warnings = report.warnings();
    assert!(
        warnings.contains(
            "can't be reached (No such file or directory (os error 2)); see them by gpu-track-run --attach"
        ),
        "{warnings}"
    );
    assert_eq!(of_tree.asked(), 0);
}

// Requirement: SEE-135
#[test]
fn no_daemon_is_asked_before_a_call_starts_a_container() {
    let docker = Docker::new();
    let run = docker.tracked("docker ps; exit 0").start();
    docker.serve(|_, _| 0);
    run.wait().assert_clean(0);
    assert_eq!(docker.daemon.asked(), 0);
}

// Requirement: FAULT-105
#[test]
fn next_collector_goes_on_to_follow() {
    let docker = Docker::new();
    let run = docker.tracked("docker run --name one local/image; exit 0").start();
    docker.serve(|daemon, _| {
        daemon.tell("create", "0a", "one", None);
        daemon.tell("start", "0a", "one", None);
        wait_until("the first collector asks", || daemon.asked() > 0);
        let asked = daemon.asked();
        run.replace_collector();
        wait_until("the next collector asks", || daemon.asked() > asked);
        daemon.tell("die", "0a", "one", Some(5));
        5
    });
    let run = run.wait();
    assert_eq!(listed(&run.assert_clean(0).0), ["one certain 5"]);
}

/// The cgroup of a container that a test makes, in each hierarchy that counts.
struct MadeGroup(Vec<PathBuf>);

impl MadeGroup {
    fn new(id: &str) -> Result<Self, String> {
        let v1 = ["cpuacct", "memory"].map(|controller| mounted("cgroup", controller));
        let tops: Vec<PathBuf> = v1.into_iter().flatten().collect();
        let tops = if tops.is_empty() {
            vec![mounted("cgroup2", "").ok_or("no cgroups are mounted")?]
        } else {
            tops
        };
        let made = Self(tops.iter().map(|top| top.join("docker").join(id)).collect());
        for directory in &made.0 {
            fs::create_dir_all(directory).map_err(|error| format!("no cgroup can be made: {error}"))?;
        }
        Ok(made)
    }

    fn add(&self, process: &Child) {
        self.0.iter().for_each(|directory| {
            fs::write(directory.join("cgroup.procs"), process.id().to_string()).unwrap()
        });
    }

    /// The CPU time that it has counted, seconds.
    fn cpu_s(&self) -> Option<f64> {
        let read =
            |file: &str| self.0.iter().find_map(|directory| fs::read_to_string(directory.join(file)).ok());
        let v2 = || {
            Some(
                read("cpu.stat")?
                    .lines()
                    .find_map(|line| line.strip_prefix("usage_usec "))?
                    .parse::<f64>()
                    .ok()?
                    / 1e6,
            )
        };
        read("cpuacct.usage").and_then(|ns| Some(ns.trim().parse::<f64>().ok()? / 1e9)).or_else(v2)
    }
}

impl Drop for MadeGroup {
    fn drop(&mut self) {
        for directory in &self.0 {
            let _ = fs::remove_dir(directory);
            // Only if it has no other container.
            let _ = fs::remove_dir(directory.parent().unwrap());
        }
    }
}

// Requirement: SEE-133
#[test]
fn figures_are_those_of_the_containers_cgroup() {
    let docker = Docker::new();
    let digits = format!("{:02x}", std::process::id() % 256);
    let group = or_skip!(MadeGroup::new(&digits.repeat(32)));
    if group.cpu_s().is_none() {
        skip!("the cgroup counts no CPU time");
    }
    let run = docker.tracked("docker run --name one local/image").start();
    docker.serve(|daemon, _| {
        daemon.tell("create", &digits, "one", None);
        let mut container = Command::new("sh");
        let script = r#"read -r go; exec "$0" 0.2"#;
        let container =
            container.args(["-c", script]).arg(program("burn")).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut container = container.spawn().unwrap();
        group.add(&container);
        daemon.tell("start", &digits, "one", None);
        container.stdin.take().unwrap().write_all(b"go\n").unwrap();
        container.wait().unwrap();
        daemon.tell("die", &digits, "one", Some(0));
        0
    });
    let run = run.wait();
    let report = run.assert_clean(0);
    let [found_s, counted_s] = [report.at("containers.0.cpu_s").as_f64(), group.cpu_s()].map(Option::unwrap);
    assert!(
        found_s > 0.1 && (found_s - counted_s).abs() < 0.01,
        "{found_s} s, and the kernel counted {counted_s} s"
    );
    // The burner is no process of the run.
    assert!(report.at("cpu_time.total_s").as_f64().unwrap() < found_s + 0.1);
}

/// Whether a real docker can be used: its daemon answers, and it has the image `local/glibc`. Otherwise the reason.
fn real_docker() -> Result<PathBuf, String> {
    let docker = installed("docker").ok_or("docker is not installed")?;
    let mut inspect = Command::new(&docker);
    inspect.args(["image", "inspect", "local/glibc"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut inspect = inspect.spawn().map_err(|error| error.to_string())?;
    let mut error = String::new();
    let _ = inspect.stderr.take().unwrap().read_to_string(&mut error);
    let is_there = inspect.wait().is_ok_and(|status| status.success());
    if is_there { Ok(docker) } else { Err(format!("docker has no image local/glibc: {}", error.trim())) }
}

// Requirement: SEE-133
#[test]
fn real_containers_have_figures() {
    let docker = or_skip!(real_docker());
    let name = format!("gpu-track-test-{}", std::process::id());
    let perl = "my $x = 'a' x 60000000; my $end = 0.5; while ((times)[0] < $end) { for (my $i = 0; $i < 1000; $i++) {} } exit 3";
    let words = ["run", "--rm", "--network=none", "--name", &name, "local/glibc", "perl", "-e", perl];
    let run = tracked(std::iter::once(docker.to_str().unwrap()).chain(words)).run();
    let report = run.assert_clean(3);
    assert_eq!(listed(&report.0), [format!("{name} certain 3")]);
    let cpu_s = report.at("containers.0.cpu_s").as_f64().unwrap();
    let peak_bytes = report.at("containers.0.peak_memory_bytes").as_u64().unwrap();
    assert!(cpu_s > 0.49 && peak_bytes > 60_000_000, "{cpu_s} s, {peak_bytes} bytes");
}
