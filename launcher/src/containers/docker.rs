//! The proxy of docker's daemon, as the launcher sees it: it is started, replaced when it was killed, and told to end.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use gpu_track_collector::model::containers::ContainerDaemon;
use gpu_track_collector::run_directory::DOCKER_SOCKET;
use gpu_track_collector::safe_path::User;
use gpu_track_collector::{RunDirectory, container_socket, own_program};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::containers::proxy::PROXY;
use crate::process::signals;

/// Maximum number of proxies of a run. Something that kills every one of them would keep the launcher busy.
const MOST_STARTS: u32 = 100;
/// How long the end of the run waits for the proxy. One that serves clients outlives the run.
const LONGEST_END: Duration = Duration::from_millis(200);
/// How often it looks whether the proxy has ended, if no signal tells.
const LOOK: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug)]
pub(super) struct DockerProxy {
    /// Kept open, so that clients can wait while a proxy is replaced.
    listener: UnixListener,
    /// Its end is that of the launcher.
    life: (PipeReader, PipeWriter),
    /// The lock of the run's directory.
    lock: OwnedFd,
    /// What keeps the connections of a killed proxy: a pair of sockets, and a file.
    parking: [OwnedFd; 3],
    /// The socket that clients are told.
    path: PathBuf,
    /// The daemon's own.
    socket: PathBuf,
    shim: PathBuf,
    segment: PathBuf,
    /// `None`: it has ended.
    pid: Option<u32>,
    starts: u32,
}

impl DockerProxy {
    /// Makes the socket of a proxy of the daemon that the environment names. Clients can connect, and wait until [`Self::serve`] is called.
    /// `None`: there is no daemon, so clients are left alone.
    ///
    /// # Errors
    /// If the daemon can't be used, or the socket can't be made: why.
    pub(super) fn prepare(
        directory: &RunDirectory,
        shim: &Path,
        segment: &Path,
    ) -> Result<Option<Self>, String> {
        let socket = daemon_socket(|name| std::env::var_os(name))?;
        let prepare = |socket| Self::prepare_for(socket, directory, shim, segment);
        let prepared = socket.map(prepare).transpose();
        prepared.map_err(|error| format!("its proxy could not be started ({error})"))
    }

    fn prepare_for(
        socket: PathBuf,
        directory: &RunDirectory,
        shim: &Path,
        segment: &Path,
    ) -> io::Result<Self> {
        let path = directory.file(DOCKER_SOCKET);
        symlink(&socket, directory.without_run(DOCKER_SOCKET))?;
        let listener = UnixListener::bind(&path)?;
        open_to_users_of(&socket, &path)?;
        let lock = directory.lock().ok_or(io::ErrorKind::NotFound)?.try_clone_to_owned()?;
        let (shim, segment) = (shim.to_owned(), segment.to_owned());
        let life = io::pipe()?;
        let (one, other) = UnixStream::pair()?;
        let states = memfd_create("gpu-track-docker", MemfdFlags::CLOEXEC)?;
        let parking = [one.into(), other.into(), states];
        Ok(Self { listener, life, lock, parking, path, socket, shim, segment, pid: None, starts: 0 })
    }

    /// The value of DOCKER_HOST.
    pub(super) fn host(&self) -> OsString {
        let mut host = OsString::from("unix://");
        host.push(&self.path);
        host
    }

    pub(super) fn has(&self, pid: u32) -> bool {
        self.pid == Some(pid)
    }

    /// Starts a process that serves, the first or in place of one that has ended. Returns whether it did.
    pub(super) fn serve(&mut self) -> bool {
        self.pid = None;
        self.starts < MOST_STARTS && self.start_process().is_ok()
    }

    fn start_process(&mut self) -> io::Result<()> {
        self.starts += 1;
        let own = [self.listener.as_raw_fd(), self.life.0.as_raw_fd(), self.lock.as_raw_fd()];
        let parking = self.parking.iter().map(AsRawFd::as_raw_fd);
        let inherited: Vec<RawFd> = own.into_iter().chain(parking).collect();
        let mut proxy = own_program::command(PROXY);
        proxy
            .arg(&self.segment)
            .args(inherited.iter().map(RawFd::to_string))
            .arg(&self.socket)
            .arg(&self.shim);
        // A batch system waits until all processes of a task have closed its streams.
        proxy.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: setsid(2) and fcntl(2) are async-signal-safe, and the descriptors are open until the process is spawned.
        unsafe {
            proxy.pre_exec(move || {
                libc::setsid();
                for fd in &inherited {
                    if libc::fcntl(*fd, libc::F_SETFD, 0) == -1 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        self.pid = Some(proxy.spawn()?.id());
        Ok(())
    }

    /// Has the process end when its clients are done, and waits a little for that.
    pub(super) fn close(self) {
        let pid = self.pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        drop((self.life, self.listener));
        let begin = Instant::now();
        while let Some(pid) = pid
            && matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None))
            && begin.elapsed() < LONGEST_END
        {
            signals::wait_for_child(LOOK);
        }
    }
}

/// Has those users connect to the socket at `path` that can connect to the daemon's: a program of the tree can become another user.
fn open_to_users_of(socket: &Path, path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let socket = fs::canonicalize(socket)?;
    let is_entered = |directory: &Path| fs::metadata(directory).is_ok_and(|found| found.mode() & 0o001 != 0);
    let found = fs::metadata(&socket)?;
    // With an ACL, the bits of the group are those of its mask.
    let has_acl = rustix::fs::lgetxattr(&socket, "system.posix_acl_access", &mut [0_u8; 0]).is_ok();
    if !has_acl && socket.ancestors().skip(1).all(is_entered) && chown(path, None, Some(found.gid())).is_ok()
    {
        fs::set_permissions(path, Permissions::from_mode(0o600 | (found.mode() & 0o066)))?;
    }
    Ok(())
}

/// The socket of the daemon that docker's client would use. `None`: there is none.
///
/// # Errors
/// If the client uses another daemon, or this socket can't be used: why.
fn daemon_socket(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<PathBuf>, String> {
    // With these, the client asks for TLS, and at a port unless it is told otherwise.
    for name in ["DOCKER_TLS", "DOCKER_TLS_VERIFY"] {
        if variable(name).is_some_and(|value| !value.is_empty()) {
            return Err(format!("{name} is set"));
        }
    }
    let paths = container_socket::paths(ContainerDaemon::Docker, variable)?;
    let Some(path) = paths.into_iter().next().filter(|path| path.exists()) else { return Ok(None) };
    container_socket::open(&path, User::this()).map(|_| Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: SEE-140
    #[test]
    fn daemon_that_is_not_proxied_is_told_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let found = |name: &str, value: &str| {
            let host = || format!("unix://{}", socket.display()).into();
            daemon_socket(|asked| {
                let is_host = asked == "DOCKER_HOST" && name != asked;
                if is_host { Some(host()) } else { (asked == name).then(|| value.into()) }
            })
        };
        assert_eq!(found("", ""), Ok(None), "there is no daemon");
        let listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(found("DOCKER_TLS", ""), Ok(Some(socket.clone())));
        assert_eq!(found("DOCKER_TLS_VERIFY", "1"), Err("DOCKER_TLS_VERIFY is set".to_owned()));
        assert!(found("DOCKER_HOST", "tcp://h:1").unwrap_err().contains("no socket of this machine"));
        drop(listener);
        assert!(found("", "").unwrap_err().contains("can't be reached"));
        let context = |name: &str| (name == "DOCKER_CONTEXT").then(|| "prod".into());
        assert!(daemon_socket(context).unwrap_err().contains("context"));
    }

    // Requirement: SEE-143
    #[test]
    fn users_of_the_daemon_can_use_the_proxy() {
        let directory = tempfile::tempdir().unwrap();
        let [closed, path] = ["closed", "proxy.sock"].map(|name| directory.path().join(name));
        fs::create_dir(&closed).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let _proxy = UnixListener::bind(&path).unwrap();
        for (of_directories, of_socket, expected) in
            [(0o755, 0o660, 0o660), (0o711, 0o666, 0o666), (0o755, 0o600, 0o600), (0o700, 0o666, 0o600)]
        {
            fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
            fs::set_permissions(&closed, Permissions::from_mode(of_directories)).unwrap();
            let socket = closed.join(format!("{of_directories}{of_socket}"));
            let _daemon = UnixListener::bind(&socket).unwrap();
            fs::set_permissions(&socket, Permissions::from_mode(of_socket)).unwrap();
            open_to_users_of(&socket, &path).unwrap();
            assert_eq!(mode(&path), expected, "{of_directories:o} {of_socket:o}");
        }
    }
}
