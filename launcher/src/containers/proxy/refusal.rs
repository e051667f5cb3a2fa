//! Clients that the proxy can't serve: they are told why in the words of an API of docker, so that they say it to the user.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use gpu_track_collector::container_socket;
use gpu_track_collector::model::containers::ContainerDaemon;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use serde_json::json;

/// How long a request is waited for.
const LONGEST_REQUEST: Duration = Duration::from_secs(2);
/// Maximum number of bytes of a client's environment. That of a process has 6 MiB at most, if its stack may have 24.
const MOST_OF_ENVIRONMENT: u64 = 8 << 20;

/// Maximum number of bytes of a client's arguments that are read: docker's options that count here come first.
const MOST_OF_ARGUMENTS: u64 = 64 << 10;

/// Why a client is refused. `hides_contexts`: the user named no daemon by DOCKER_HOST. `None`: it is not.
pub(super) fn reason(client: &OwnedFd, socket: &Path, hides_contexts: bool) -> Option<String> {
    let pid = socket_peercred(client).ok()?.pid.as_raw_nonzero().get();
    if !can_see(Path::new(&format!("/proc/{pid}")), Path::new("/proc/self"), socket) {
        return Some(
            "gpu-track-run --containers serves no container that docker's own socket is not mounted into"
                .to_owned(),
        );
    }
    hides_contexts.then(|| means_another(client, socket)).flatten()
}

/// Whether a process sees the file at this path as this process does. In another mount namespace, as that of a container, it may not: the
/// daemon's socket makes its user the owner of the machine. A process that is gone sees nothing.
fn can_see(process: &Path, own: &Path, path: &Path) -> bool {
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    match (namespace(process), namespace(own)) {
        (Some(theirs), Some(ours)) if theirs == ours => return true,
        // Another user's process, as that of sudo. A container has its own pid namespace.
        (None, _) => {
            let status = fs::read_to_string(process.join("status")).unwrap_or_default();
            let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            return pids.is_some_and(|pids| pids.split_whitespace().count() == 1);
        }
        _ => {}
    }
    // Its absolute links lead from its own root.
    let file_below = |process: &Path| {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let root = openat(CWD, process.join("root"), flags, Mode::empty()).ok()?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let relative = path.strip_prefix("/").unwrap_or(path);
        let file = openat2(root, relative, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
        fstat(file).ok().map(|found| (found.st_dev, found.st_ino))
    };
    let theirs = file_below(process);
    theirs.is_some() && theirs == file_below(own)
}

/// Why the daemon at this socket is not the one that a client means. Docker's own client obeys DOCKER_CONTEXT, and the context of its
/// configuration, only where there is no DOCKER_HOST, and the proxy is a DOCKER_HOST. `None`: it is that one.
fn means_another(client: &OwnedFd, socket: &Path) -> Option<String> {
    let process = format!("/proc/{}", socket_peercred(client).ok()?.pid.as_raw_nonzero());
    let name = fs::read(format!("{process}/comm")).ok()?;
    // Libraries know no contexts.
    if !name.starts_with(b"docker") {
        return None;
    }
    let read = |file: &str, most: u64| {
        let mut bytes = Vec::new();
        let file = File::open(format!("{process}/{file}")).ok()?;
        file.take(most).read_to_end(&mut bytes).ok().map(|_| bytes)
    };
    let line = read("cmdline", MOST_OF_ARGUMENTS)?;
    let options = GlobalOptions::of(&line);
    if options.name_daemon {
        return None;
    }
    let environment = read("environ", MOST_OF_ENVIRONMENT)?;
    // Its relative paths begin at its own directory.
    let absolute =
        |value: &[u8]| Path::new(&process).join("cwd").join(OsStr::from_bytes(value)).into_os_string();
    let variable = |name: &str| -> Option<OsString> {
        if let Some(directory) = options.configuration.filter(|_| name == "DOCKER_CONFIG") {
            return Some(absolute(directory));
        }
        let value = |entry: &'_ [u8]| Some(entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
        let value = environment.split(|byte| *byte == 0).find_map(value).filter(|_| name != "DOCKER_HOST")?;
        let is_path = name == "DOCKER_CONFIG" && !value.is_empty();
        Some(if is_path { absolute(&value) } else { OsStr::from_bytes(&value).to_owned() })
    };
    let is_meant = container_socket::paths(ContainerDaemon::Docker, variable)
        .is_ok_and(|paths| paths.iter().any(|path| path == socket));
    (!is_meant).then(|| {
        "docker's context was changed in a run of gpu-track-run --containers, whose DOCKER_HOST hides contexts: unset DOCKER_HOST \
         before this call, or name the context by --context"
            .to_owned()
    })
}

/// What the options of docker's client before its subcommand say.
#[derive(Debug, Default, PartialEq)]
struct GlobalOptions<'a> {
    /// They name a daemon or a context. This client found the proxy in spite of them, or by them: as the default context's daemon.
    name_daemon: bool,
    /// The directory of the client's configuration.
    configuration: Option<&'a [u8]>,
}

impl<'a> GlobalOptions<'a> {
    /// Those in a command line, as in /proc/PID/cmdline.
    fn of(line: &'a [u8]) -> Self {
        let mut found = Self::default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        while let Some(word) = words.next().filter(|word| word.starts_with(b"-")) {
            let equals = word.iter().position(|byte| *byte == b'=');
            let (name, value) = match equals {
                Some(at) => (word.get(..at).unwrap_or_default(), word.get(at + 1..)),
                None => (word, None),
            };
            match name {
                b"--config" => found.configuration = value.or_else(|| words.next()),
                b"-l" | b"--log-level" | b"--tlscacert" | b"--tlscert" | b"--tlskey" if value.is_none() => {
                    _ = words.next();
                }
                b"--context" | b"--host" => found.name_daemon = true,
                // The value of a short option can follow it at once.
                _ if name.starts_with(b"-c") || name.starts_with(b"-H") => found.name_daemon = true,
                _ => {}
            }
            // What follows can be the option's value.
            if found.name_daemon {
                break;
            }
        }
        found
    }
}

/// Replies this message to the client's request, and closes its connection.
pub(super) fn refuse(client: OwnedFd, message: &str) {
    let body = json!({ "message": message }).to_string();
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let reply = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let work = move || {
        let _ = set_socket_timeout(&client, Timeout::Recv, Some(LONGEST_REQUEST));
        let _ = set_socket_timeout(&client, Timeout::Send, Some(LONGEST_REQUEST));
        let mut client = File::from(client);
        // A client that is still writing would not read the reply.
        let _ = client.read(&mut [0; 64 << 10]);
        let _ = client.write_all(reply.as_bytes());
    };
    // Without a thread, the connection is closed.
    let _ = thread::Builder::new().stack_size(256 << 10).spawn(work);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    // Requirement: SEE-142
    #[test]
    fn options_of_a_client_name_its_daemon() {
        let of = |line: &str| {
            let line = line.replace(' ', "\0");
            let found = GlobalOptions::of(line.as_bytes());
            let directory = found.configuration.map(|path| String::from_utf8_lossy(path).into_owned());
            (found.name_daemon, directory)
        };
        for line in ["--context default info", "-c x ps", "-D --context=x ps", "-l info -Hunix:///s ps"] {
            assert_eq!(of(&format!("docker {line}")), (true, None), "{line}");
        }
        for line in ["run i sh -c x", "-D run -H x", "-l -c run i", "", "--tls", "--log-level=x compose -c y"]
        {
            assert_eq!(of(&format!("docker {line}")), (false, None), "{line}");
        }
        assert_eq!(of("docker --config /d run -c x"), (false, Some("/d".into())));
        assert_eq!(of("docker -D --config=d ps"), (false, Some("d".into())));
    }

    // Requirement: SEE-143
    #[test]
    fn socket_is_looked_for_in_the_root_of_a_process() {
        let top = tempfile::tempdir().unwrap();
        // A process of this mount namespace, and others of another one.
        let made = |name: &str, namespace: &str, root: &Path| {
            let process = top.path().join(name);
            fs::create_dir_all(process.join("ns")).unwrap();
            symlink(namespace, process.join("ns/mnt")).unwrap();
            symlink(root, process.join("root")).unwrap();
            process
        };
        let roots = ["own", "linked", "mounted"].map(|name| top.path().join("roots").join(name));
        for root in &roots {
            fs::create_dir_all(root.join("real")).unwrap();
        }
        let [own_root, linked, mounted] = &roots;
        fs::write(own_root.join("real/socket"), "").unwrap();
        fs::hard_link(own_root.join("real/socket"), mounted.join("real/socket")).unwrap();
        // It would lead to the right file from this process's root.
        symlink(own_root.join("real/socket"), linked.join("real/socket")).unwrap();
        let own = made("1", "mnt:[1]", own_root);
        let sees = |process: &Path| can_see(process, &own, Path::new("/real/socket"));
        assert!(sees(&made("2", "mnt:[1]", linked)));
        assert!(sees(&made("3", "mnt:[2]", mounted)));
        assert!(!sees(&made("4", "mnt:[2]", linked)));
        let other = top.path().join("5");
        assert!(!sees(&other), "it is gone");
        fs::create_dir(&other).unwrap();
        for (pids, expected) in [("7", true), ("7\t1", false)] {
            fs::write(other.join("status"), format!("Name:\tx\nNSpid:\t{pids}\n")).unwrap();
            assert_eq!(sees(&other), expected, "{pids}");
        }
        assert!(can_see(Path::new("/proc/self"), Path::new("/proc/self"), Path::new("/none")));
    }
}
