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
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use serde_json::json;

/// How long a request is waited for.
const LONGEST_REQUEST: Duration = Duration::from_secs(2);
/// Maximum number of bytes of a client's environment. That of a process has 6 MiB at most, if its stack may have 24.
const MOST_OF_ENVIRONMENT: u64 = 8 << 20;

/// Why the daemon at this socket is not the one that a client means. Docker's own client obeys DOCKER_CONTEXT, and the context of its
/// configuration, only where there is no DOCKER_HOST, and the proxy is a DOCKER_HOST. `None`: it is that one.
pub(super) fn means_another(client: &OwnedFd, socket: &Path) -> Option<String> {
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
