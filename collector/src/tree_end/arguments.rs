//! What an ender is to end, and how it is started.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::members::Member;
use crate::sys::own_program;
use crate::sys::segment::named::KnownFile;

/// The name of an ender. Its arguments are a [`TreeToEnd`].
pub const ENDER: &str = "gpu-track-ender";

/// What is to be ended, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeToEnd {
    /// The launcher. `None`: it is gone.
    pub launcher: Option<u32>,
    /// The launcher is a subreaper, so all processes are its descendants.
    pub inherits_orphans: bool,
    /// The command's first process. `None`: it has ended.
    pub main: Option<u32>,
    /// The segment. `None`: the run has none.
    pub segment: Option<KnownFile>,
    /// From SIGTERM to SIGKILL.
    pub kill_after: Duration,
    /// SIGTERM was sent by another ender.
    pub is_told: bool,
    /// Processes of the tree that the starter of the ender knows. They and their descendants are ended, too.
    #[serde(skip)]
    pub known: Vec<Member>,
}

impl TreeToEnd {
    /// Starts the ender, in a session of its own: no signal to the command's process group reaches it.
    ///
    /// # Errors
    /// If no process can be made.
    pub fn start(&self) -> io::Result<Child> {
        let mut ender = own_program::command(ENDER);
        ender.env_clear().args(self.to_args());
        ender.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: setsid(2) is async-signal-safe.
        unsafe {
            ender.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        ender.spawn()
    }

    /// Makes the arguments of an ender: all fields as JSON, but the path of the segment, which need not be UTF-8, and the known
    /// processes, which may be more than fit in one argument (128 KiB); then that path; then each process.
    fn to_args(&self) -> Vec<OsString> {
        let path = self.segment.as_ref().map(|segment| segment.path.clone().into_os_string());
        [to_arg(self), path.unwrap_or_default()].into_iter().chain(self.known.iter().map(to_arg)).collect()
    }

    /// Reads the arguments that [`Self::to_args`] makes. `None`: they have another form.
    pub(super) fn from_args(args: &[OsString]) -> Option<Self> {
        let [fields, path, known @ ..] = args else { return None };
        let mut tree: Self = from_arg(fields)?;
        if let Some(segment) = &mut tree.segment {
            segment.path = path.into();
        }
        tree.known = known.iter().map(from_arg).collect::<Option<_>>()?;
        Some(tree)
    }
}

/// Makes an argument that has a value as JSON.
fn to_arg(value: &impl Serialize) -> OsString {
    serde_json::to_string(value).unwrap_or_default().into()
}

/// Reads an argument that [`to_arg`] makes. `None`: it has another form.
fn from_arg<T: DeserializeOwned>(arg: &OsString) -> Option<T> {
    serde_json::from_str(arg.to_str()?).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use crate::sys::segment::named::FileId;

    #[test]
    fn arguments_are_read_as_they_were_written() {
        let member = |pid| Member { pid, start_ticks: 100 + u64::from(pid) };
        for (launcher, known) in [(Some(7), vec![]), (None, vec![member(8), member(9)])] {
            let tree = TreeToEnd {
                launcher,
                inherits_orphans: launcher.is_some(),
                main: launcher.map(|pid| pid + 1),
                segment: launcher.map(|_| KnownFile {
                    path: OsString::from_vec(b"/dev/shm/gpu-track.\xff.7.1".to_vec()).into(),
                    id: FileId { device: (0, 26), inode: u64::MAX },
                }),
                kill_after: Duration::from_millis(1500),
                is_told: launcher.is_none(),
                known,
            };
            assert_eq!(TreeToEnd::from_args(&tree.to_args()), Some(tree));
        }
        let fields = to_arg(&TreeToEnd::default());
        for wrong in [&[][..], &["{}".into()], &["{}".into(), "".into()], &[fields, "".into(), "8".into()]] {
            assert_eq!(TreeToEnd::from_args(wrong), None, "{wrong:?}");
        }
    }
}
