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
    /// What the wrapping shell used while it moved in, which may be missing in it.
    pub moving_s: f64,
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
        // What the shell has used before it moves in and after: the first number of its schedstat, nanoseconds.
        let script =
            "read before rest < /proc/$$/schedstat; echo $$ > \"$2\"; read after rest < /proc/$$/schedstat
            echo $$ $before $after > \"$1\"; shift 2; exec \"$@\"";
        let mut words: Vec<OsString> = ["/bin/sh", "-c", script, "sh"].map(OsString::from).into();
        words.push(self.directory.path().join("pid").into());
        words.push(self.cgroup.procs().into());
        words.extend(command.into_iter().map(Into::into));
        words
    }

    /// Closes the account after the run has ended.
    pub fn close(self) -> Truth {
        let line = std::fs::read_to_string(self.directory.path().join("pid")).unwrap();
        let mut words = line.split_whitespace();
        let family = self.connector.finish(words.next().unwrap().parse().unwrap());
        let mut seconds = || words.next().expect("the kernel has schedstat").parse::<f64>().unwrap() / 1e9;
        let (before_s, after_s) = (seconds(), seconds());
        Truth { family, cpu_s: self.cgroup.cpu_s() + before_s, moving_s: after_s - before_s }
    }
}
