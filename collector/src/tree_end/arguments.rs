//! What an ender is to end, and how it is started.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::members::Member;
use crate::sys::own_program;
use crate::sys::segment::named::{FileId, KnownFile};

/// The name of an ender. Its arguments are the fields of [`TreeToEnd`].
pub const ENDER: &str = "gpu-track-ender";
/// Stands for a field that is `None`.
const NONE: &str = "-";

/// What is to be ended, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    pub known: Vec<Member>,
}

impl TreeToEnd {
    /// Starts the ender, in a session of its own: no signal to the command's process group reaches it.
    ///
    /// # Errors
    /// If no process can be made.
    pub fn start(&self) -> io::Result<Child> {
        let mut ender = own_program::command_in_own_session(ENDER);
        ender.env_clear().args(self.to_args());
        ender.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        ender.spawn()
    }

    /// Makes the arguments of an ender: the fields in their order, durations in milliseconds, and a process as `PID:START_TICKS`.
    fn to_args(&self) -> Vec<OsString> {
        let pid = |pid: Option<u32>| pid.map_or_else(|| NONE.into(), |pid| OsString::from(pid.to_string()));
        let member = |member: &Member| format!("{}:{}", member.pid, member.start_ticks).into();
        let kill_after = self.kill_after.as_millis().to_string().into();
        let [inherits, is_told] =
            [self.inherits_orphans, self.is_told].map(|flag| u8::from(flag).to_string().into());
        let (path, file) = self.segment.as_ref().map_or((NONE.into(), NONE.into()), |segment| {
            let FileId { device: (major, minor), inode } = segment.id;
            (segment.path.clone().into_os_string(), format!("{major}:{minor}:{inode}").into())
        });
        let fixed = [pid(self.launcher), inherits, pid(self.main), path, file, kill_after, is_told];
        fixed.into_iter().chain(self.known.iter().map(member)).collect()
    }

    /// Reads the arguments that [`Self::to_args`] makes. `None`: they have another form.
    pub(super) fn from_args(args: &[OsString]) -> Option<Self> {
        let [launcher, inherits, main, path, file, kill_after, is_told, known @ ..] = args else {
            return None;
        };
        let number = |arg: &OsString| arg.to_str()?.parse().ok();
        let member = |arg: &OsString| {
            let (pid, start_ticks) = arg.to_str()?.split_once(':')?;
            Some(Member { pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? })
        };
        Some(Self {
            launcher: number(launcher),
            inherits_orphans: inherits == "1",
            main: number(main),
            segment: file_id(file.to_str()?).map(|id| KnownFile { path: path.into(), id }),
            kill_after: Duration::from_millis(kill_after.to_str()?.parse().ok()?),
            is_told: is_told == "1",
            known: known.iter().map(member).collect::<Option<_>>()?,
        })
    }
}

/// Reads `MAJOR:MINOR:INODE`. `None`: it has another form.
fn file_id(text: &str) -> Option<FileId> {
    let (major, rest) = text.split_once(':')?;
    let (minor, inode) = rest.split_once(':')?;
    Some(FileId { device: (major.parse().ok()?, minor.parse().ok()?), inode: inode.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_they_were_written() {
        let member = |pid| Member { pid, start_ticks: 100 + u64::from(pid) };
        for (launcher, known) in [(Some(7), vec![]), (None, vec![member(8), member(9)])] {
            let tree = TreeToEnd {
                launcher,
                inherits_orphans: launcher.is_some(),
                main: launcher.map(|pid| pid + 1),
                segment: launcher.map(|_| KnownFile {
                    path: "/dev/shm/gpu-track.0.7.1".into(),
                    id: FileId { device: (0, 26), inode: u64::MAX },
                }),
                kill_after: Duration::from_millis(1500),
                is_told: launcher.is_none(),
                known,
            };
            assert_eq!(TreeToEnd::from_args(&tree.to_args()), Some(tree));
        }
        for wrong in ["", "- 0 - x -", "- 0 - x - y 0", "- 0 - x - 1 0 z", "- 0 - x - 1 0 1"] {
            let args: Vec<OsString> = wrong.split(' ').map(OsString::from).collect();
            assert_eq!(TreeToEnd::from_args(&args), None, "{wrong:?}");
        }
    }
}
