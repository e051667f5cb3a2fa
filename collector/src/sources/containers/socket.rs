//! The socket of a container daemon: where it is, and whether it may be used.
//!
//! Its path comes from this process's own environment, never from a process of the tree. A socket of another user is not used: what
//! answers there could name any container.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::model::containers::ContainerDaemon;
use crate::sys::given_file;
use crate::sys::safe_path::User;

/// A daemon that has this many connections waiting does not answer soon. So `connect` waits no longer.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The paths at which the socket of a daemon can be, the most likely first.
///
/// # Errors
/// If the environment says that the daemon is not on this machine: why it can't be followed.
pub fn paths(
    daemon: ContainerDaemon,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<PathBuf>, String> {
    let (name, usual) = match daemon {
        ContainerDaemon::Docker => ("DOCKER_HOST", ["/var/run/docker.sock", "docker.sock"]),
        ContainerDaemon::Podman => ("CONTAINER_HOST", ["/run/podman/podman.sock", "podman/podman.sock"]),
    };
    if let Some(host) = variable(name).filter(|host| !host.is_empty()) {
        let host = host.into_vec();
        let path = host.strip_prefix(b"unix://").filter(|path| path.starts_with(b"/"));
        let path = path.ok_or_else(|| format!("{name} names no socket of this machine"))?;
        return Ok(vec![OsString::from_vec(path.to_vec()).into()]);
    }
    let [of_machine, of_user] = usual;
    let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|directory| directory.is_absolute());
    let of_user = runtime.map(|directory| directory.join(of_user));
    if daemon == ContainerDaemon::Podman {
        return Ok(std::iter::once(of_machine.into()).chain(of_user).collect());
    }
    match context(&variable).as_deref() {
        None | Some("" | "default") => Ok(vec![of_machine.into()]),
        // The one that Docker's installer of a rootless daemon makes.
        Some("rootless") => Ok(of_user.into_iter().collect()),
        Some(_) => Err("docker's context names another daemon".to_owned()),
    }
}

/// The context of docker's client, which stands for a daemon: by DOCKER_CONTEXT, else by the client's configuration.
fn context(variable: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    if let Some(context) = variable("DOCKER_CONTEXT").filter(|context| !context.is_empty()) {
        return Some(context.to_string_lossy().into_owned());
    }
    let directory = variable("DOCKER_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let directory = directory.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".docker")))?;
    let file = directory.join("config.json");
    let config: serde_json::Value =
        serde_json::from_slice(&given_file::read(&file, MOST_OF_CONFIG).ok()?).ok()?;
    config.get("currentContext")?.as_str().map(str::to_owned)
}

/// Maximum number of bytes of the client's configuration.
const MOST_OF_CONFIG: u64 = 1 << 20;

/// Connects to the socket at this path.
///
/// # Errors
/// If it can't be reached, or another user owns it or listens there: why, as the end of a sentence.
pub fn open(path: &Path, user: User) -> Result<OwnedFd, String> {
    let failed = |error: std::io::Error| format!("{} can't be reached ({error})", path.display());
    let found = std::fs::metadata(path).map_err(failed)?;
    let of_other = |uid: u32| format!("user {uid} owns {}", path.display());
    if !user.trusts(path, &found) {
        return Err(of_other(std::os::unix::fs::MetadataExt::uid(&found)));
    }
    let connected = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        for timeout in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, timeout, Some(LONGEST_WAIT))?;
        }
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let listener = socket_peercred(&socket)?;
        Ok::<_, rustix::io::Errno>((socket, listener.uid.as_raw()))
    };
    let (socket, uid) = connected().map_err(|error| failed(error.into()))?;
    // The file can have been replaced since, so the process that listens counts, too.
    if uid != 0 && uid != user.uid() {
        return Err(of_other(uid));
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;
    use std::os::unix::net::UnixListener;

    use super::*;

    // Requirement: SEE-135
    #[test]
    fn socket_is_where_the_environment_says() {
        let none = |_: &str| None;
        let docker = paths(ContainerDaemon::Docker, none).unwrap();
        assert_eq!(docker, [Path::new("/var/run/docker.sock")]);
        let runtime = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".into());
        let podman = paths(ContainerDaemon::Podman, runtime).unwrap();
        assert_eq!(podman[1], Path::new("/run/user/7/podman/podman.sock"));
        for (host, expected) in
            [("unix:///a/b", Some("/a/b")), ("unix://a", None), ("tcp://h:1", None), ("ssh://h", None)]
        {
            let found = paths(ContainerDaemon::Docker, |name| (name == "DOCKER_HOST").then(|| host.into()));
            assert_eq!(found.ok(), expected.map(|path| vec![PathBuf::from(path)]), "{host}");
        }
    }

    // Requirement: SEE-135
    #[test]
    fn daemon_of_another_context_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".docker")).unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("config.json"), "{\"currentContext\": \"prod\"}").unwrap();
        let in_context = |configured: &str, variable: Option<&str>| {
            let config = format!("{{\"currentContext\": \"{configured}\"}}");
            std::fs::write(home.path().join(".docker/config.json"), config).unwrap();
            paths(ContainerDaemon::Docker, |name| match name {
                "HOME" => Some(home.path().into()),
                "DOCKER_CONTEXT" => variable.map(Into::into),
                "XDG_RUNTIME_DIR" => Some("/run/user/7".into()),
                _ => None,
            })
        };
        let of_machine = || Ok(vec![PathBuf::from("/var/run/docker.sock")]);
        assert_eq!(in_context("default", None), of_machine());
        assert_eq!(in_context("rootless", None), Ok(vec!["/run/user/7/docker.sock".into()]));
        assert!(in_context("prod", None).is_err() && in_context("default", Some("prod")).is_err());
        assert_eq!(in_context("prod", Some("default")), of_machine());
        let with_config = |config: &Path| {
            paths(ContainerDaemon::Docker, |name| match name {
                "HOME" => Some(home.path().into()),
                "DOCKER_CONFIG" => Some(config.into()),
                _ => None,
            })
        };
        in_context("default", None).unwrap();
        assert!(with_config(other.path()).is_err());
        assert!(with_config(Path::new("")).is_ok() && with_config(Path::new("/none")).is_ok());
    }

    // Requirement: SEE-135
    #[test]
    fn socket_of_another_user_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        assert!(open(&path, User::this()).unwrap_err().contains("can't be reached"));
        let listener = UnixListener::bind(&path).unwrap();
        open(&path, User::this()).unwrap();
        // This process is the listener: another user that is not root does not trust it.
        if User::this().uid() == 0 {
            chown(&path, Some(1234), None).unwrap();
            let refused = open(&path, User::this()).unwrap_err();
            assert!(refused.starts_with("user 1234 owns"), "{refused}");
        }
        drop(listener);
    }
}
