//! The kernel's own account of a tracked tree: how many processes (connector), how much CPU time (cgroup).

use std::ffi::OsString;

use tempfile::TempDir;

use super::cgroup::Cgroup;
use super::connector::{Connector, Family};

/// An account that has been opened; the command is to be run as [`KernelAccount::wrap`] says.
pub struct KernelAccount {
    connector: Connector,
    cgroup: Cgroup,
    directory: TempDir,
}

/// What the kernel says.
pub struct Truth {
    /// Processes and how they ended.
    pub family: Family,
    /// CPU time of the tree, seconds.
    pub cpu_s: f64,
}

impl KernelAccount {
    /// Opens one; says why it cannot.
    pub fn open() -> Result<Self, String> {
        if !super::is_root() {
            return Err("needs root (process connector and cgroup)".into());
        }
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        Ok(Self { connector: Connector::subscribe()?, cgroup: Cgroup::create()?, directory })
    }

    /// The command behind a shell that says its pid, moves into the cgroup, and becomes the command: no process more.
    pub fn wrap<S: Into<OsString>>(&self, command: impl IntoIterator<Item = S>) -> Vec<OsString> {
        // What the shell has used until it moves in: the first number of its schedstat, nanoseconds.
        let script = "read used rest < /proc/$$/schedstat; echo $$ $used > \"$1\"; echo $$ > \"$2\"; shift 2; exec \"$@\"";
        let mut words: Vec<OsString> = ["/bin/sh", "-c", script, "sh"].map(OsString::from).into();
        words.push(self.directory.path().join("pid").into());
        words.push(self.cgroup.procs().into());
        words.extend(command.into_iter().map(Into::into));
        words
    }

    /// Closes the account after the run has ended.
    pub fn close(self) -> Truth {
        let line = std::fs::read_to_string(self.directory.path().join("pid")).unwrap();
        let (pid, used_ns) = line.trim().split_once(' ').expect("the kernel has schedstat");
        let family = self.connector.finish(pid.parse().unwrap());
        Truth { family, cpu_s: self.cgroup.cpu_s() + used_ns.parse::<f64>().unwrap() / 1e9 }
    }
}
