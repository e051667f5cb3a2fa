//! Reads /proc.
//!
//! [`ProcRoot`] has the directory to read from, so a test can use a tree of files. A process or file that is gone
//! (ENOENT, ESRCH) is an ordinary value: `None`. Files that each sample reads are held open (`read_held`), so that a reading
//! takes one system call and allocates nothing.

mod huge_pages;
mod pages;
mod parse;
mod shared_pages;

use std::cell::LazyCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::model::attached::UsedBefore;
use crate::model::command::{command_of_args, is_title};
use crate::model::exit_account::Remains;
use crate::model::io_calls::IoCalls;
use crate::model::observation::{Mappings, Rollup, TaskTimes};
use crate::sys::{clock, pidfd};
use pages::PageMap;

pub use parse::{Io, Stat, Statm, Status, parse_busy_ticks, parse_core_ticks, parse_rollup};
use parse::{parse_fork_count, parse_task_times, parse_u64};
pub(crate) use shared_pages::{AddressSpace, count_pages};

/// Maximum number of bytes of an environment that are read. An exec takes no more (execve(2)), but by prctl(PR_SET_MM) a process can
/// declare any part of its memory its environment.
const MAX_ENVIRONMENT_BYTES: u64 = 6 << 20;

/// The final figures of the process with this pid. `None`: `stat` shows that a thread of it lives, or it is gone.
///
/// `stat` must have been read before, because a CPU clock that is read before the end is not final.
pub(crate) fn remains_if_over(pid: u32, stat: &Stat) -> Option<Remains> {
    if !stat.is_over() {
        return None;
    }
    Some(Remains { cpu_ns: pidfd::cpu_clock_ns(pid)?, counts: stat.counts })
}

/// Bytes of a block, the unit in which getrusage(2) counts block I/O.
pub(crate) const BLOCK_BYTES: u64 = 512;

/// A /proc directory, real or made for a test.
#[derive(Debug, Clone)]
pub struct ProcRoot {
    root: PathBuf,
}

/// What /proc/PID/cmdline shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLine {
    /// The program and its arguments.
    Args(Vec<String>),
    /// A title that the process has written over them.
    Title {
        /// The title.
        text: String,
        /// Path or name of the program.
        program: String,
    },
}

impl CommandLine {
    /// The name of the program, with what an interpreter runs. `None`: there is no name in the arguments.
    pub fn command(&self) -> Option<String> {
        match self {
            Self::Args(args) => command_of_args(args),
            Self::Title { program, .. } => command_of_args(&[program]),
        }
    }

    /// The arguments. A title is one.
    pub fn into_args(self) -> Vec<String> {
        match self {
            Self::Args(args) => args,
            Self::Title { text, .. } => vec![text],
        }
    }
}

impl Default for ProcRoot {
    fn default() -> Self {
        Self::new("/proc")
    }
}

impl ProcRoot {
    /// A reader of the /proc that is mounted at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The path of a file of a process, such as `stat`.
    pub fn path(&self, pid: u32, file: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(file)
    }

    /// Opens a file of a process, to read it repeatedly.
    pub(crate) fn open(&self, pid: u32, file: &str) -> io::Result<File> {
        File::open(self.path(pid, file))
    }

    /// The path of a file that is not in the directory of a pid, such as `loadavg` or `self/cgroup`.
    pub(crate) fn top_path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Reads a file of a process. `None`: the process is gone, or the file may not be read.
    pub(crate) fn read(&self, pid: u32, file: &str) -> Option<Vec<u8>> {
        read_all(&self.path(pid, file))
    }

    /// Lists the pids of all processes that this user may see.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return Vec::new() };
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// Reads /proc/PID/stat. `None`: the process is gone.
    pub fn stat(&self, pid: u32) -> Option<Stat> {
        Stat::parse(&self.read(pid, "stat")?)
    }

    /// Reads the final figures of a zombie. `None`: a thread of the process lives, or the process is gone.
    pub(crate) fn remains(&self, pid: u32) -> Option<Remains> {
        remains_if_over(pid, &self.stat(pid)?)
    }

    /// What a process has used so far. `stat` must have been read just now, since a part of the figures comes from there.
    /// `None`: the process is gone.
    pub fn used_so_far(&self, pid: u32, stat: &Stat) -> Option<UsedBefore> {
        Some(UsedBefore {
            at_ns: clock::monotonic_ns(),
            cpu_ns: pidfd::cpu_clock_ns(pid)?,
            counts: stat.counts,
            blocks: self.io_blocks(pid),
            vm_hwm_bytes: self.status(pid)?.hwm,
        })
    }

    /// Reads how many blocks of [`BLOCK_BYTES`] a process and its waited-for children read from storage, and how many they wrote.
    /// `None`: the process is gone, or is another user's.
    pub(crate) fn io_blocks(&self, pid: u32) -> Option<(u64, u64)> {
        self.io(pid).map(|io| (io.read / BLOCK_BYTES, io.written / BLOCK_BYTES))
    }

    /// Reads /proc/PID/status. `None`: the process is gone.
    pub fn status(&self, pid: u32) -> Option<Status> {
        Some(Status::parse(&self.read(pid, "status")?))
    }

    /// Reads the real user id of a process. `None`: the process is gone.
    pub(crate) fn real_uid(&self, pid: u32) -> Option<u32> {
        let status = self.read(pid, "status")?;
        let real = parse::line(&status, b"Uid:")?.trim_ascii().split(u8::is_ascii_whitespace).next()?;
        parse_u64(real)?.try_into().ok()
    }

    /// Reads /proc/PID/smaps_rollup. `None`: the process is gone, or has no memory any more.
    ///
    /// # Errors
    /// If it may not be read, as that of another user's process.
    pub fn rollup(&self, pid: u32) -> io::Result<Option<Rollup>> {
        // Both open and read can be refused: the kernel checks the permission each time.
        match self.open(pid, "smaps_rollup").and_then(|file| read_whole(&file, u64::MAX)) {
            Ok(bytes) => Ok(parse::parse_rollup(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Reads /proc/PID/smaps. Large file mappings are divided into their resident pieces, which /proc/PID/pagemap has. `None`:
    /// smaps can't be read, or the process has no memory any more.
    pub(crate) fn mappings(&self, pid: u32) -> Option<Mappings> {
        let bytes = read_whole(&self.open(pid, "smaps").ok()?, u64::MAX).ok()?;
        if bytes.is_empty() {
            return None;
        }
        // Opened once, for the first mapping that is divided. `None`: it can't be opened.
        let page_map = LazyCell::new(|| {
            let file = self.open(pid, "pagemap").ok()?;
            Some(PageMap::new(file, rustix::param::page_size() as u64))
        });
        Some(parse::parse_smaps(&bytes, |addresses| page_map.as_ref()?.pieces(addresses)))
    }

    /// Device and inode of the executable of a process. `None`: the process is gone, has no executable, or may not be
    /// looked at.
    pub fn executable(&self, pid: u32) -> Option<(u64, u64)> {
        use std::os::unix::fs::MetadataExt;
        let file = std::fs::metadata(self.path(pid, "exe")).ok()?;
        Some((file.dev(), file.ino()))
    }

    /// Reads the arguments in the first `limit` bytes of /proc/PID/cmdline, or the title that the process has written over them
    /// (setproctitle). `None`: the process has none, as a zombie or a kernel thread, or it is gone.
    pub fn args(&self, pid: u32, limit: u64) -> Option<CommandLine> {
        let bytes = read_whole(&self.open(pid, "cmdline").ok()?, limit).ok()?;
        if bytes.is_empty() {
            return None;
        }
        // Both cost a read of /proc, so they are asked for only if the bytes leave open whether this is a title.
        let executable = || {
            let path = std::fs::read_link(self.path(pid, "exe")).ok()?.to_string_lossy().into_owned();
            Some(path.strip_suffix(" (deleted)").map(str::to_owned).unwrap_or(path))
        };
        let area_bytes = || self.read(pid, "stat").map_or(0, |stat| parse::arguments_bytes(&stat));
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if is_title(&bytes, executable, area_bytes) {
            let title = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            return Some(CommandLine::Title {
                text: text(title),
                program: executable().or_else(|| self.comm(pid))?,
            });
        }
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        Some(CommandLine::Args(bytes.split(|byte| *byte == 0).map(text).collect()))
    }

    /// Reads /proc/PID/environ: the variables that the process was started with, each with a zero byte after it. `None`: the
    /// process is gone, or another user's.
    pub(crate) fn environ(&self, pid: u32) -> Option<Vec<u8>> {
        read_whole(&self.open(pid, "environ").ok()?, MAX_ENVIRONMENT_BYTES).ok()
    }

    /// Reads the variables that the process was started with, without what is no `NAME=VALUE`. `None`: as for [`Self::environ`].
    pub(crate) fn variables(&self, pid: u32) -> Option<Vec<(OsString, OsString)>> {
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let variable = |entry: &[u8]| {
            let equals = entry.iter().position(|byte| *byte == b'=')?;
            Some((text(&entry[..equals]), text(&entry[equals + 1..])))
        };
        Some(self.environ(pid)?.split(|byte| *byte == 0).filter_map(variable).collect())
    }

    /// Reads /proc/PID/comm, without its newline. `None`: the process is gone.
    pub fn comm(&self, pid: u32) -> Option<String> {
        Some(String::from_utf8_lossy(self.read(pid, "comm")?.trim_ascii_end()).into_owned())
    }

    /// Reads how many bytes the process and its waited-for children read from storage, and how many they wrote (/proc/PID/io).
    /// `None`: the process is gone, or is another user's.
    pub fn io(&self, pid: u32) -> Option<Io> {
        Io::parse(&self.read(pid, "io")?)
    }

    /// Reads what the first thread of a process has passed by calls itself. `None`: the process is gone, or is another user's.
    pub(crate) fn io_calls_of_first_thread(&self, pid: u32) -> Option<IoCalls> {
        Some(Io::parse(&self.read(pid, &format!("task/{pid}/io"))?)?.calls)
    }

    /// Reads what the other threads of this process, and the children that it waited for, have passed by calls. Exec keeps the sum.
    /// `None`: the kernel does not count it.
    pub fn io_calls_beside_first_thread(&self) -> Option<IoCalls> {
        let own = std::process::id();
        let of_first_thread = self.io_calls_of_first_thread(own)?;
        Some(self.io(own)?.calls.without(of_first_thread))
    }

    /// Whether a process or thread has this id. /proc can hide other users' processes (mount option hidepid), so kill(2) is asked,
    /// too.
    pub(crate) fn has_id(&self, pid: u32) -> bool {
        let is_real = self.root == Path::new("/proc");
        self.path(pid, "").exists() || (is_real && !pidfd::is_gone(pid))
    }

    /// The inode of the pid namespace of a process. `None`: the process is gone, or is another user's.
    pub fn pid_ns(&self, pid: u32) -> Option<u32> {
        let link = std::fs::read_link(self.path(pid, "ns/pid")).ok()?;
        let text = link.to_str()?;
        text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
    }

    /// Reads the pids of the children of all threads of a process. `thread_count`: how many threads it has. If it has one, its
    /// threads need not be listed. The result is empty if the kernel lacks CONFIG_PROC_CHILDREN, which distributions set.
    pub fn children(&self, pid: u32, thread_count: u64) -> Vec<u32> {
        let mut children = Vec::new();
        let threads = if thread_count <= 1 { vec![pid] } else { self.threads(pid) };
        for thread in threads {
            let text = self.read(pid, &format!("task/{thread}/children")).unwrap_or_default();
            for word in text.split(|b| *b == b' ') {
                children.extend(parse_u64(word).and_then(|child| u32::try_from(child).ok()));
            }
        }
        children
    }

    /// Reads the pids of the children of this process: those that its first thread has made or inherited. Where the kernel lists none
    /// (no CONFIG_PROC_CHILDREN), all processes are read for their parent. `None`: there is no /proc.
    pub fn own_children(&self) -> Option<Vec<u32>> {
        let own = std::process::id();
        if self.path(own, &format!("task/{own}/children")).exists() {
            return Some(self.children(own, 1));
        }
        let pids = self.pids();
        let is_child = |pid: &u32| self.stat(*pid).is_some_and(|stat| stat.ppid == own);
        (!pids.is_empty()).then(|| pids.into_iter().filter(is_child).collect())
    }

    /// Reads the ids of the threads of a process. The result is empty if the process is gone.
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        let Ok(tasks) = std::fs::read_dir(self.path(pid, "task")) else { return Vec::new() };
        tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
    }

    /// Reads how many processes and threads were created since boot. `None`: the kernel does not count them.
    pub fn forks(&self) -> Option<u64> {
        parse_fork_count(&read_all(&self.top_path("stat"))?)
    }

    /// Reads how many pages the machine has read from swap since boot. `None`: the kernel does not count them.
    pub(crate) fn swapped_in(&self) -> Option<u64> {
        let text = read_all(&self.top_path("vmstat"))?;
        let line = text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"pswpin "))?;
        parse_u64(line)
    }

    /// Reads the text of /proc/stat.
    pub fn machine_stat(&self) -> Option<Vec<u8>> {
        read_all(&self.top_path("stat"))
    }

    /// Whether this /proc is mounted, and shows processes by the pids of this process's namespace.
    pub(crate) fn is_of_this_namespace(&self) -> bool {
        let own = std::fs::read_link(self.top_path("self"));
        own.is_ok_and(|pid| pid.to_str() == Some(&std::process::id().to_string()))
    }

    /// Whether /proc/stat is a file of FUSE, as lxcfs mounts it in containers. Such a file numbers the cores anew, and leaves out
    /// the processes outside the container.
    pub(crate) fn has_virtual_stat(&self) -> bool {
        const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
        rustix::fs::statfs(self.top_path("stat")).is_ok_and(|fs| fs.f_type == FUSE_SUPER_MAGIC)
    }

    /// Reads how long a thread ran, and how long it waited for a core (/proc/PID/task/TID/schedstat). `None`: it is gone, or the kernel
    /// has no such file.
    pub(crate) fn task_times(&self, pid: u32, task: u32) -> Option<TaskTimes> {
        parse_task_times(&self.read(pid, &format!("task/{task}/schedstat"))?)
    }

    /// How long a thread ran and waited for a core, by the text of its schedstat. `None`: the text lacks a number.
    pub(crate) fn parse_task_times(text: &[u8]) -> Option<TaskTimes> {
        parse_task_times(text)
    }

    /// Reads the memory in use (MemTotal - MemAvailable) and MemTotal, bytes.
    pub fn system_memory(&self) -> Option<(u64, u64)> {
        let text = read_all(&self.top_path("meminfo"))?;
        let total = parse::bytes_of(&text, b"MemTotal:")?;
        Some((total.saturating_sub(parse::bytes_of(&text, b"MemAvailable:")?), total))
    }

    /// Reads the random id of this boot of the kernel.
    pub fn boot_id(&self) -> Option<String> {
        let text = String::from_utf8(read_all(&self.top_path("sys/kernel/random/boot_id"))?).ok()?;
        Some(text.trim().to_owned()).filter(|id| !id.is_empty())
    }
}

/// Reads a file. `None`: it can't be read.
fn read_all(path: &Path) -> Option<Vec<u8>> {
    read_whole(&File::open(path).ok()?, u64::MAX).ok()
}

/// Reads at most `limit` bytes of a file.
///
/// Begins with a buffer that most files of /proc fit in. These files report no size, so the standard library would begin with
/// a small buffer. The kernel would then format the text again for every further read.
fn read_whole(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads an open file from its start into `buffer`, in one system call. What does not fit in the buffer is left out. `None`: the
/// file can't be read, as after its process was reaped.
pub(crate) fn read_held<'a>(file: &File, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let length = file.read_at(buffer, 0).ok()?;
    buffer.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_files_parse() {
        let root = ProcRoot::default();
        let pid = std::process::id();
        let stat = root.stat(pid).unwrap();
        assert!(stat.threads >= 1 && !stat.is_dead());
        let statm = Statm::parse(&root.read(pid, "statm").unwrap()).unwrap();
        assert!(statm.resident > 0 && statm.shared <= statm.resident);
        assert!(root.status(pid).unwrap().hwm.unwrap() > 0);
        assert_eq!(root.status(pid).unwrap().ns_pids.first(), Some(&pid));
        let rollup = root.rollup(pid).unwrap().unwrap();
        assert!(rollup.pss_bytes <= rollup.rss_bytes && rollup.private_bytes <= rollup.rss_bytes);
        assert!(root.args(pid, 4096).is_some_and(|line| line.command().is_some()));
        assert!(root.pid_ns(pid).is_some());
        assert!(root.machine_stat().is_some_and(|text| parse_busy_ticks(&text).is_some()));
        let (used, total) = root.system_memory().unwrap();
        assert!(used <= total);
        assert_eq!(root.boot_id().unwrap().len(), 36);
    }

    #[test]
    fn missing_files_are_none() {
        let root = ProcRoot::new("/nonexistent");
        assert_eq!(root.stat(1), None);
        assert_eq!(root.rollup(1).unwrap(), None);
        assert_eq!(root.system_memory(), None);
        assert_eq!(root.boot_id(), None);
    }

    #[test]
    fn children_of_all_threads_are_found() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        // The test harness has threads; the child can belong to any of them.
        assert!(ProcRoot::default().children(std::process::id(), 2).contains(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
