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
    let mut environment = Vec::new();
    let file = File::open(format!("{process}/environ")).ok()?;
    file.take(MOST_OF_ENVIRONMENT).read_to_end(&mut environment).ok()?;
    let variable = |name: &str| -> Option<OsString> {
        let value = |entry: &[u8]| Some(entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
        let value = environment.split(|byte| *byte == 0).find_map(value).filter(|_| name != "DOCKER_HOST")?;
        Some(OsStr::from_bytes(&value).to_owned())
    };
    let is_meant = container_socket::paths(ContainerDaemon::Docker, variable)
        .is_ok_and(|paths| paths.iter().any(|path| path == socket));
    (!is_meant).then(|| {
        "docker's context was changed in a run of gpu-track-run --containers, whose DOCKER_HOST hides contexts: unset DOCKER_HOST \
         before this call, or name the context by --context"
            .to_owned()
    })
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
