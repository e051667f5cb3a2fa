//! `--containers`: programs in containers count as those of the tree. A fake daemon and client, and real ones where they are.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::leftovers::{processes, segments};
use crate::support::run::Tracked;
use crate::support::{installed, or_skip, skip, tracked, wait_until};

/// Sends requests on one connection to the socket of DOCKER_HOST, as the words say, and prints what comes back:
/// - `create NAME JSON`: creates a container, and prints the status and the body
/// - `chunked NAME JSON`: creates a container by a request in chunks, and prints the same
/// - `load N`: sends N bytes in chunks, and prints the body
/// - `stream TEXT`: upgrades, sends the text, ends its side, and prints all that comes
/// - `hold FIFO TEXT`: upgrades, sends the text, reads the FIFO to its end, and does as `stream` with what was read
/// - `new`: goes on with another connection
/// - `hostile`: opens connections that send garbage, an endless head, half of a request, or nothing, and leaves them open
const CLIENT: &str = r#"
import os, socket, sys
def connect():
    s = socket.socket(socket.AF_UNIX); s.connect(os.environ["DOCKER_HOST"][7:]); return s, s.makefile("rb")
def reply(f):
    status = f.readline().split()[1].decode(); length = 0
    while (line := f.readline().strip()):
        name, value = line.split(b": ")
        if name.lower() == b"content-length": length = int(value)
    return status + " " + f.read(length).decode()
words = sys.argv[1:]; s, f = connect()
while words:
    word = words.pop(0)
    if word == "create":
        name, body = words.pop(0), words.pop(0).encode()
        s.sendall(b"POST /v1.41/containers/create?name=%s HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n\r\n" % (name.encode(), len(body)) + body)
        print(reply(f), flush=True)
    elif word == "chunked":
        name, body = words.pop(0), words.pop(0).encode()
        s.sendall(b"POST /v1.41/containers/create?name=%s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (name.encode(), len(body)) + body + b"\r\n0\r\n\r\n")
        print(reply(f), flush=True)
    elif word == "load":
        s.sendall(b"POST /v1.41/images/load HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n")
        left = int(words.pop(0))
        while left > 0:
            part = b"x" * min(left, 100000); left -= len(part)
            s.sendall(b"%x\r\n" % len(part) + part + b"\r\n")
        s.sendall(b"0\r\n\r\n"); print(reply(f), flush=True)
    elif word == "stream":
        s.sendall(b"POST /v1.41/containers/x/attach HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n" + words.pop(0).encode())
        s.shutdown(socket.SHUT_WR); print(f.read().decode(), flush=True)
    elif word == "hold":
        fifo = words.pop(0)
        s.sendall(b"POST /v1.41/containers/x/attach HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n" + words.pop(0).encode())
        s.sendall(open(fifo, "rb").read()); s.shutdown(socket.SHUT_WR); print(f.read().decode(), flush=True)
    elif word == "new": s.close(); s, f = connect()
    elif word == "hostile":
        create = b"POST /containers/create HTTP/1.1\r\nContent-Length: "
        parts = [b"", b"x" * 70000, b"\0\r\n\r\n", create, create + b"4000000\r\n\r\n{", create + b"9\r\n\r\n[[[[[[[[[",
            b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n", create + b"99999999999999999999\r\n\r\n"]
        left_open = [connect() for _ in range(300)]
        for number, (one, _) in enumerate(left_open):
            one.setblocking(False)
            try: one.send(parts[number % len(parts)])
            except OSError: pass
            if number % 3 == 0: one.close()
"#;

/// What a daemon was asked.
#[derive(Default)]
struct Asked {
    /// The requests that create containers: name, and body.
    creates: Vec<(String, Value)>,
    loaded_bytes: usize,
    /// How many bytes have come in streams.
    streamed_bytes: usize,
}

/// A daemon with one image, `pre`, whose programs preload /image.so. It refuses to mount anything into a container named `refused`.
#[derive(Clone, Default)]
struct Daemon(Arc<Mutex<Asked>>);

impl Daemon {
    fn at(socket: &Path) -> Self {
        let daemon = Self::default();
        let listener = UnixListener::bind(socket).unwrap();
        let of_thread = daemon.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let of_client = of_thread.clone();
                std::thread::spawn(move || of_client.serve(stream));
            }
        });
        daemon
    }

    /// Answers the requests of a connection until it closes.
    fn serve(&self, mut stream: UnixStream) -> Option<()> {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).ok()?;
                head.extend(byte);
            }
            let head = String::from_utf8(head).ok()?.to_lowercase();
            let target = head.split(' ').nth(1)?.to_owned();
            let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name).map(str::trim));
            if header("upgrade:").is_some() {
                stream.write_all(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n").ok()?;
                let mut all = Vec::new();
                let mut byte = [0];
                while stream.read(&mut byte).ok()? > 0 {
                    all.extend(byte);
                    self.0.lock().unwrap().streamed_bytes += 1;
                }
                // Only after the client's end.
                stream.write_all(&all).ok()?;
                return None;
            }
            let mut body = Vec::new();
            if header("transfer-encoding:").is_some() {
                while !body.ends_with(b"\r\n0\r\n\r\n") {
                    let mut part = [0; 4096];
                    let length = stream.read(&mut part).ok().filter(|length| *length > 0)?;
                    body.extend_from_slice(&part[..length]);
                }
                self.0.lock().unwrap().loaded_bytes = body.iter().filter(|byte| **byte == b'x').count();
                // Of a request for a container, which has one chunk.
                if let Some(at) = body.iter().position(|byte| *byte == b'{') {
                    body = body[at..body.len() - b"\r\n0\r\n\r\n".len()].to_vec();
                }
            } else if let Some(length) = header("content-length:") {
                body = vec![0; length.parse().ok()?];
                stream.read_exact(&mut body).ok()?;
            }
            let (status, reply) = self.reply(&target, &body);
            let reply = reply.to_string();
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", reply.len());
            stream.write_all(format!("{head}{reply}").as_bytes()).ok()?;
        }
    }

    fn reply(&self, target: &str, body: &[u8]) -> (u16, Value) {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
        if target == "/info" {
            return (
                200,
                json!({"OSType": "linux", "KernelVersion": kernel.trim(), "DefaultRuntime": "runc"}),
            );
        }
        if let Some(id) = target.strip_prefix("/containers/").and_then(|rest| rest.strip_suffix("/json")) {
            let number = usize::from_str_radix(id, 16).unwrap();
            let body = &self.0.lock().unwrap().creates[number - 1].1;
            return (200, json!({"Config": {"User": body["User"]}, "HostConfig": body["HostConfig"]}));
        }
        if target == "/images/pre/json" {
            let config = json!({"Env": ["LD_PRELOAD=/image.so"]});
            return (200, json!({"Os": "linux", "Architecture": architecture, "Config": config}));
        }
        if let Some(name) = target.strip_prefix("/v1.41/containers/create?name=") {
            let Ok(body) = serde_json::from_slice::<Value>(body) else { return (400, json!({})) };
            let mut asked = self.0.lock().unwrap();
            asked.creates.push((name.to_owned(), body.clone()));
            if name == "refused" && !body["HostConfig"]["Mounts"].is_null() {
                return (400, json!({"message": "no mounts"}));
            }
            return (201, json!({"Id": format!("{:064x}", asked.creates.len())}));
        }
        if target.starts_with("/events") { (404, json!({})) } else { (200, json!("loaded")) }
    }

    fn creates(&self) -> Vec<(String, Value)> {
        self.0.lock().unwrap().creates.clone()
    }
}

/// A directory with a client and a daemon.
struct Docker {
    directory: tempfile::TempDir,
    daemon: Daemon,
}

impl Docker {
    fn new() -> Result<Self, String> {
        installed("python3").ok_or("python3 is not installed")?;
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("client.py"), CLIENT).unwrap();
        let daemon = Daemon::at(&directory.path().join("daemon.sock"));
        Ok(Self { directory, daemon })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A run with `--containers` of this client, which does what the words say.
    fn tracked(&self, words: &[&str]) -> Tracked {
        let client = self.path("client.py").into_os_string().into_string().unwrap();
        let command = ["python3", &client].into_iter().chain(words.iter().copied());
        self.with_daemon(tracked(command.map(str::to_owned)))
    }

    fn with_daemon(&self, run: Tracked) -> Tracked {
        let host = format!("unix://{}", self.path("daemon.sock").display());
        let out = fs::File::create(self.path("out")).unwrap();
        run.options(&["--containers"]).with(move |command| command.env("DOCKER_HOST", host).stdout(out))
    }

    fn output(&self) -> String {
        fs::read_to_string(self.path("out")).unwrap()
    }
}

/// The body of a request for a container with this image.
fn container(image: &str, is_removed: bool) -> String {
    json!({"Image": image, "AttachStdout": true, "Env": ["A=1"], "Big": 12345678901234567_u64, "HostConfig": {"AutoRemove": is_removed}}).to_string()
}

// Requirement: SEE-139, SEE-140
#[test]
fn proxy_edits_requests_for_containers_and_passes_all_else_on() {
    let docker = or_skip!(Docker::new());
    let [removed, kept] = [container("pre", true), container("pre", false)];
    let detached = removed.replace("\"AttachStdout\":true", "\"AttachStdout\":false");
    let words =
        ["create", "one", &removed, "load", "3000000", "create", "two", &kept, "create", "refused", &removed];
    let words = words.into_iter().chain(["create", "none", "{}", "create", "detached", &detached]);
    let words = words.chain(["new", "stream", "to and fro"]);
    let run = docker.tracked(&words.collect::<Vec<_>>()).run();
    let report = run.assert_clean(0);
    let id = |number: usize| format!("201 {{\"Id\":\"{number:064x}\"}}\n");
    let expected = [
        id(1),
        "200 \"loaded\"\n".to_owned(),
        id(2),
        id(4),
        id(5),
        id(6),
        "HTTP/1.1 101 UPGRADED\r\n".to_owned(),
    ];
    let output = docker.output();
    assert!(output.starts_with(&expected.concat()) && output.trim_end().ends_with("to and fro"), "{output}");
    assert_eq!(docker.daemon.0.lock().unwrap().loaded_bytes, 3_000_000);
    let creates = docker.daemon.creates();
    let names: Vec<&str> = creates.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["one", "two", "refused", "refused", "none", "detached"]);
    let edited = &creates[0].1;
    let mounts = edited["HostConfig"]["Mounts"].as_array().unwrap();
    assert!(mounts.iter().all(|mount| mount["Target"].as_str().unwrap().starts_with("/dev/gpu-track/")));
    assert_eq!((mounts.len(), &edited["Big"]), (2, &json!(12345678901234567_u64)));
    let preload = edited["Env"][1].as_str().unwrap();
    assert!(
        preload.starts_with("LD_PRELOAD=/dev/gpu-track/") && preload.ends_with(":/image.so"),
        "{preload}"
    );
    // Those that are not edited are as the client sent them.
    let sent = [&kept, &removed, &detached].map(|text| serde_json::from_str::<Value>(text).unwrap());
    assert_eq!([&creates[1].1, &creates[3].1, &creates[5].1], [&sent[0], &sent[1], &sent[2]]);
    let warnings = report.warnings();
    assert!(
        warnings.contains("--containers: 4 containers are not in the tree's figures: 2 without --rm"),
        "{warnings}"
    );
    assert!(warnings.contains("1 detached or only created"), "{warnings}");
    assert!(warnings.contains("1 where the daemon refused the shim"), "{warnings}");
}

// Requirement: SEE-140
#[test]
fn container_of_a_request_that_is_not_understood_counts_if_it_is_created() {
    let docker = or_skip!(Docker::new());
    let removed = container("pre", true);
    let run = docker.tracked(&["chunked", "one", &removed, "create", "two", &removed]).run();
    let warnings = run.assert_clean(0).warnings();
    let creates = docker.daemon.creates();
    assert_eq!(creates.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert!(
        creates[0].1["HostConfig"]["Mounts"].is_null() && creates[1].1["HostConfig"]["Mounts"].is_array()
    );
    assert!(warnings.contains("1 by a request that is not understood"), "{warnings}");
}

// Requirement: SEE-142
#[test]
fn client_of_a_daemon_that_is_gone_is_told_so() {
    let docker = or_skip!(Docker::new());
    let at = docker.directory.path().display();
    let script = format!("rm {at}/daemon.sock; exec python3 {at}/client.py create one '{{}}'");
    docker.with_daemon(tracked(["sh", "-c", &script])).run().assert_clean(0);
    let output = docker.output();
    assert!(output.starts_with("503 ") && output.contains("Is the docker daemon running?"), "{output}");
}

// Requirement: FAULT-11
#[test]
fn session_is_opened_to_others_only_for_a_container_of_another_user() {
    let docker = or_skip!(Docker::new());
    let removed = container("pre", true);
    let of_other = removed.replacen('{', "{\"User\":\"1234\",", 1);
    let at = docker.directory.path().display();
    let script = format!(
        "stat -c %a $GPU_TRACK_SESSION; python3 {at}/client.py create one '{removed}'; stat -c %a $GPU_TRACK_SESSION; \
         python3 {at}/client.py create two '{of_other}'; stat -c %a $GPU_TRACK_SESSION"
    );
    docker.with_daemon(tracked(["sh", "-c", &script])).run().assert_clean(0);
    let output = docker.output();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!([lines[0], lines[2], lines[4]], ["600", "600", "666"], "{output}");
}

// Requirement: SEE-142
#[test]
fn hostile_clients_keep_no_other_from_a_container() {
    let docker = or_skip!(Docker::new());
    let removed = container("pre", true);
    docker.tracked(&["hostile", "create", "one", &removed]).run().assert_clean(0);
    assert!(docker.output().starts_with("201 "), "{}", docker.output());
    let creates = docker.daemon.creates();
    let one = creates.iter().find(|(name, _)| name == "one").unwrap();
    assert!(one.1["HostConfig"]["Mounts"].is_array());
}

// Requirement: SEE-142
#[test]
fn stream_goes_on_when_the_proxy_is_killed() {
    let docker = or_skip!(Docker::new());
    let fifo = docker.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let run = docker.tracked(&["hold", fifo.to_str().unwrap(), "before, "]).start();
    wait_until("the stream", || docker.daemon.0.lock().unwrap().streamed_bytes == "before, ".len());
    let mut writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    for _ in 0..2 {
        let first = proxies(run.pid())[0];
        // It has passed all on, and waits for more.
        wait_until("the proxy's sleep", || is_asleep(first));
        crate::support::kill(first, libc::SIGKILL);
        wait_until("another proxy", || proxies(run.pid()).first().is_some_and(|pid| *pid != first));
    }
    writer.write_all(b"after").unwrap();
    drop(writer);
    run.wait().assert_clean(0);
    assert!(docker.output().ends_with("before, after\n"), "{}", docker.output());
}

fn is_asleep(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// The proxies below a launcher.
fn proxies(launcher: u32) -> Vec<u32> {
    let children =
        fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap_or_default();
    let is_proxy = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "gpu-track-dock")
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(is_proxy).collect()
}

// Requirement: SEE-142
#[test]
fn killed_proxy_is_replaced_and_clients_wait_for_the_next() {
    let docker = or_skip!(Docker::new());
    let removed = container("pre", true);
    assert!(Command::new("mkfifo").arg(docker.path("next")).status().unwrap().success());
    let at = docker.directory.path().display();
    let script = format!("read -r _ <{at}/next; exec python3 {at}/client.py create one '{removed}'");
    let run = docker.with_daemon(tracked(["sh", "-c", &script])).start();
    let launcher = run.pid();
    wait_until("a proxy", || !proxies(launcher).is_empty());
    let first = proxies(launcher)[0];
    crate::support::kill(first, libc::SIGKILL);
    fs::write(docker.path("next"), "go\n").unwrap();
    let run = run.wait();
    run.assert_clean(0);
    assert!(docker.output().starts_with("201 "), "{}", docker.output());
    assert!(docker.daemon.creates()[0].1["HostConfig"]["Mounts"].is_array(), "the next proxy edits, too");
}

// Requirement: SEE-138
#[test]
fn daemon_is_found_without_the_proxy_when_the_launcher_is_gone() {
    let docker = or_skip!(Docker::new());
    let removed = container("pre", true);
    let at = docker.directory.path().display();
    let script = format!(
        "s=${{DOCKER_HOST#unix://}}; while ! test -S \"$s\"; do :; done; kill -9 $PPID; while ! test -L \"$s\"; do :; done; \
         python3 {at}/client.py create one '{removed}'; readlink \"$s\""
    );
    let run = docker.with_daemon(tracked(["sh", "-c", &script])).start();
    wait_until("the client's end", || docker.output().ends_with("daemon.sock\n"));
    assert!(docker.output().starts_with("201 "), "{}", docker.output());
    assert_eq!(docker.daemon.creates()[0].1, serde_json::from_str::<Value>(&removed).unwrap());
    wait_until("the collector's end", || segments(run.pid()).is_empty() && processes(run.mark()).is_empty());
    run.wait();
}

// Requirement: SEE-142
#[test]
fn proxy_keeps_no_pipe_and_no_directory_of_its_caller() {
    let docker = or_skip!(Docker::new());
    let fifo = docker.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (mut reader, writer) = std::io::pipe().unwrap();
    let held = writer.as_raw_fd();
    let run = docker.tracked(&["hold", fifo.to_str().unwrap(), "x"]).with(move |command| {
        // SAFETY: fcntl(2) is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                if libc::fcntl(held, libc::F_SETFD, 0) == -1 {
                    Err(std::io::Error::last_os_error())
                } else {
                    Ok(())
                }
            })
        }
    });
    let run = run.start();
    wait_until("the stream", || docker.daemon.0.lock().unwrap().streamed_bytes == 1);
    let proxy = PathBuf::from(format!("/proc/{}", proxies(run.pid())[0]));
    assert_eq!(fs::read_link(proxy.join("cwd")).unwrap(), Path::new("/"));
    let ours = fs::read_link(format!("/proc/self/fd/{held}")).unwrap();
    let files =
        fs::read_dir(proxy.join("fd")).unwrap().map(|entry| fs::read_link(entry.unwrap().path()).unwrap());
    assert!(files.into_iter().all(|file| file != ours));
    drop(fs::OpenOptions::new().write(true).open(&fifo).unwrap());
    run.wait().assert_clean(0);
    drop(writer);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}

// Requirement: SEE-143
#[test]
fn socket_is_not_in_shared_memory_and_serves_only_namespaces_with_the_daemons() {
    let docker = or_skip!(Docker::new());
    let at = docker.directory.path().display();
    // /dev/shm of its own is no hindrance. A mount that hides the daemon's socket is.
    let script = format!(
        "echo $DOCKER_HOST; c='python3 {at}/client.py create one {{}}'; mount -t tmpfs none /dev/shm && $c; \
         mkdir -p {at}/over && mount --bind {at}/over {at}/hidden && exec $c"
    );
    fs::create_dir(docker.path("hidden")).unwrap();
    let daemon = docker.path("hidden/daemon.sock");
    let _daemon = Daemon::at(&daemon);
    let host = format!("unix://{}", daemon.display());
    let mut tries = Command::new("unshare");
    tries.args(["-m", "mount", "-t", "tmpfs", "none", "/dev/shm"]).stderr(Stdio::null());
    if !tries.status().is_ok_and(|status| status.success()) {
        skip!("no mount namespace can be made here");
    }
    let run = tracked(["unshare", "-m", "sh", "-c", &script]);
    docker.with_daemon(run).with(|command| command.env("DOCKER_HOST", host)).run().assert_clean(0);
    let output = docker.output();
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].starts_with("unix:///") && !lines[0].contains("/dev/shm"), "{output}");
    assert!(lines[1].starts_with("201 ") && lines[2].starts_with("503 "), "{output}");
}

// Requirement: SEE-138
#[test]
fn directory_goes_with_the_last_client() {
    let docker = or_skip!(Docker::new());
    let fifos = ["stream", "end"].map(|name| docker.path(name));
    assert!(Command::new("mkfifo").args(&fifos).status().unwrap().success());
    let at = docker.directory.path().display();
    let script = format!(
        "echo $DOCKER_HOST; setsid python3 {at}/client.py hold {at}/stream x >{at}/of_client & read -r _ <{at}/end"
    );
    let run = docker.with_daemon(tracked(["sh", "-c", &script]).leaves_processes()).start();
    wait_until("the stream", || docker.daemon.0.lock().unwrap().streamed_bytes == 1);
    fs::write(docker.path("end"), "go\n").unwrap();
    let launcher = run.pid();
    run.wait().assert_clean(0);
    let output = docker.output();
    let directory = Path::new(output.trim().strip_prefix("unix://").unwrap()).parent().unwrap();
    assert!(directory.exists(), "the client can come again");
    fs::write(docker.path("stream"), "y").unwrap();
    wait_until("the proxy's end", || !directory.exists() && segments(launcher).is_empty());
    assert!(fs::read_to_string(docker.path("of_client")).unwrap().ends_with("xy\n"));
}

// Requirement: SEE-138
#[test]
fn nothing_is_told_to_clients_without_the_option_or_without_a_daemon() {
    let docker = or_skip!(Docker::new());
    let host = format!("unix://{}", docker.path("nowhere").display());
    let out = fs::File::create(docker.path("out")).unwrap();
    let expected = format!("{host}\n");
    let run = tracked(["sh", "-c", "echo \"$DOCKER_HOST\""]).options(&["--containers"]);
    run.with(move |command| command.env("DOCKER_HOST", host).stdout(out)).run().assert_clean(0);
    assert_eq!(docker.output(), expected);
    let run =
        tracked(["sh", "-c", "echo \"${DOCKER_HOST-none} ${CONTAINERS_CONF-none} ${APPTAINER_BIND-none}\""]);
    let out = fs::File::create(docker.path("out")).unwrap();
    let clear = |command: &mut Command| {
        _ = ["DOCKER_HOST", "CONTAINERS_CONF", "APPTAINER_BIND"].map(|name| _ = command.env_remove(name))
    };
    let run = run.with(move |command| {
        clear(command);
        command.stdout(out)
    });
    run.run().assert_clean(0);
    assert_eq!(docker.output(), "none none none\n");
}

/// Whether a real docker can be used: its daemon answers, and it has the image `local/glibc`. Otherwise the reason.
fn real(client: &str) -> Result<String, String> {
    let path = installed(client).ok_or(format!("{client} is not installed"))?;
    let mut inspect = Command::new(&path);
    inspect.args(["image", "inspect", "local/glibc"]).stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = inspect.status().is_ok_and(|status| status.success());
    let path = path.into_os_string().into_string().unwrap();
    if is_there { Ok(path) } else { Err(format!("{client} has no image local/glibc")) }
}

/// Holds 60 MB and computes for half a second, beside three short children.
const WORK: &str = "for i in 1 2 3; do /bin/true; done; perl -e '\
    my $x = \"a\" x 60000000; my $end = 0.5; while ((times)[0] < $end) { for (my $i = 0; $i < 1000; $i++) {} }'; exit 3";

/// Checks that the work of a container is in the tree's figures, each process once.
fn assert_in_tree(report: &crate::support::report::Report) {
    let commands = report.at("processes.by_command").as_array().unwrap();
    let count = |name: &str| {
        commands
            .iter()
            .find(|command| command["command"] == name)
            .map_or(0, |command| command["count"].as_u64().unwrap())
    };
    assert_eq!((count("true"), count("perl")), (3, 1), "{commands:?}");
    assert!(report.at("max_ram_bytes.combined.total_rss").as_u64().unwrap() > 60_000_000);
}

// Requirement: SEE-139, SEE-140
#[test]
fn processes_of_real_containers_are_in_the_tree() {
    let docker = or_skip!(real("docker"));
    for options in
        [&["--network=none"][..], &["--network=none", "--read-only", "--cap-drop=all", "--user=1234:1234"]]
    {
        let words =
            [&[docker.as_str(), "run", "--rm"][..], options, &["local/glibc", "bash", "-c", WORK]].concat();
        let run = tracked(words).options(&["--containers"]).run();
        let report = run.assert_clean(3);
        assert_in_tree(report);
        assert_eq!(
            (report.at("containers.0.in_tree"), report.at("containers.0.certainty")),
            (&json!(true), &json!("certain"))
        );
        if !report.at("containers.0.reason").is_null() {
            // A lower bound: the container's end was missed, as on a busy machine.
            continue;
        }
        let cgroup_s = report.at("containers.0.cpu_s").as_f64().unwrap();
        let by_command = report.at("processes.by_command").as_array().unwrap();
        let of_client = by_command.iter().find(|command| command["command"] == "docker").unwrap();
        let inside_s = report.at("cpu_time.total_s").as_f64().unwrap() - of_client["cpu_s"].as_f64().unwrap();
        assert!(
            (inside_s - cgroup_s).abs() < 0.02 + cgroup_s * 0.01,
            "{inside_s} s, and the cgroup counted {cgroup_s} s"
        );
    }
}

// Requirement: SEE-141
#[test]
fn processes_of_real_podman_containers_are_in_the_tree() {
    let podman = or_skip!(real("podman"));
    let plain = [podman.as_str(), "run", "--rm", "--network=none", "local/glibc"];
    let mut works = Command::new(plain[0]);
    works.args(&plain[1..]).arg("true").stdout(Stdio::null()).stderr(Stdio::null());
    if !works.status().is_ok_and(|status| status.success()) {
        skip!("podman can't run a container here");
    }
    let run = tracked(plain.iter().copied().chain(["bash", "-c", WORK])).options(&["--containers"]).run();
    let report = run.assert_clean(3);
    assert_in_tree(report);
    let commands = report.at("processes.by_command").as_array().unwrap();
    assert!(commands.iter().all(|command| command["command"] != "gpu-track-container"), "{commands:?}");
}
