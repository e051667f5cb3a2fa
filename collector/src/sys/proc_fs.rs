//! Reading /proc: what is read at every sample, in few system calls and without allocating.
//!
//! Every reader takes the root to read below, so a test can hand in a tree of files. "Gone" (ENOENT, ESRCH) is an
//! ordinary value: `None`. Numbers that do not parse are `None` too, never 0.

use crate::model::finding::Remains;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use procfs::{FromRead, Meminfo};

use crate::sys::{clock, pidfd};

/// The fields of /proc/PID/stat that we use (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// R, S, D, T, Z, X ...
    pub state: u8,
    /// Parent.
    pub ppid: u32,
    /// PF_* of the kernel.
    pub flags: u64,
    /// Minor faults of the process itself.
    pub minor_faults: u64,
    /// Major faults of the process itself.
    pub major_faults: u64,
    /// User CPU time, clock ticks.
    pub user_ticks: u64,
    /// System CPU time, clock ticks.
    pub system_ticks: u64,
    /// Threads.
    pub threads: u64,
    /// Start, clock ticks after boot.
    pub start_ticks: u64,
    /// Address of the bottom of the stack: an exec changes it, unless addresses are not randomised, a fork does not. 0: not
    /// told (another user's process, one that may not be dumped, a zombie).
    pub start_stack: u64,
}

impl Stat {
    /// Parse the file's one line. The command name is in parentheses and may hold any byte, so the fields are
    /// counted from the last closing one.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let after = text.iter().rposition(|b| *b == b')')?;
        let mut fields = text.get(after + 2..)?.split(|b| *b == b' ');
        // Fields are numbered from 1 in proc_pid_stat(5); `state` is the third.
        let state = *fields.next()?.first()?;
        let mut number = 3;
        let mut field = |wanted: u32| {
            while number + 1 < wanted {
                fields.next()?;
                number += 1;
            }
            number += 1;
            parse_u64(fields.next()?)
        };
        Some(Self {
            state,
            ppid: u32::try_from(field(4)?).ok()?,
            flags: field(9)?,
            minor_faults: field(10)?,
            major_faults: field(12)?,
            user_ticks: field(14)?,
            system_ticks: field(15)?,
            threads: field(20)?,
            start_ticks: field(22)?,
            start_stack: field(28).unwrap_or(0),
        })
    }

    /// Start, CLOCK_MONOTONIC nanoseconds, rounded down to a tick of so many microseconds. The file counts from boot, the
    /// time that the machine was suspended included, so this is early where that was after the start.
    #[must_use]
    pub fn start_ns(&self, tick_us: u64) -> u64 {
        let since_boot = i128::from(self.start_ticks) * i128::from(tick_us) * 1000;
        u64::try_from(since_boot - clock::boot_offset_ns()).unwrap_or(0)
    }

    /// Whether it is on its way out, or dead.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        const PF_EXITING: u64 = 4;
        self.is_dead() || self.flags & PF_EXITING != 0
    }

    /// Whether all its threads are dead: its sums are final.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_dead() && self.threads <= 1
    }

    /// Whether the process is dead and waits for its parent, or is being torn down.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

impl Remains {
    /// Of the process with this pid, if its `stat` says that it is over.
    #[must_use]
    pub fn of(pid: u32, stat: &Stat) -> Option<Self> {
        // The clock is read after its end: before, it may have gone on.
        let cpu_ns = stat.is_over().then(|| pidfd::cpu_clock_ns(pid))??;
        Some(Self {
            cpu_ns,
            user_ticks: stat.user_ticks,
            system_ticks: stat.system_ticks,
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
        })
    }
}

/// The fields of /proc/PID/statm that we use, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statm {
    /// Pages of address space; none once the process has let go of its memory.
    pub size: u64,
    /// Resident pages.
    pub resident: u64,
    /// Resident pages that belong to files or shared memory.
    pub shared: u64,
}

impl Statm {
    /// Parse the file's one line.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut fields = text.trim_ascii().split(|b| *b == b' ');
        Some(Self {
            size: parse_u64(fields.next()?)?,
            resident: parse_u64(fields.next()?)?,
            shared: parse_u64(fields.next()?)?,
        })
    }
}

/// /proc/PID/smaps_rollup in bytes: how the resident memory is shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Resident set.
    pub rss: u64,
    /// Proportional set: a page that n processes map counts 1/n.
    pub pss: u64,
    /// Its anonymous part.
    pub pss_anon: u64,
    /// Mapped by this process only.
    pub private: u64,
}

impl Rollup {
    /// Parse the file. Kernels before 5.2 have no `Pss_Anon` line: it is then 0.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut rollup = Self { rss: kib(text, b"Rss:")?, pss: kib(text, b"Pss:")?, ..Self::default() };
        rollup.pss_anon = kib(text, b"Pss_Anon:").unwrap_or(0);
        rollup.private = kib(text, b"Private_Clean:")?.saturating_add(kib(text, b"Private_Dirty:")?);
        Some(rollup)
    }
}

/// The fields of /proc/PID/status that we use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// VmHWM, bytes; `None` for a process without memory (a zombie, a kernel thread).
    pub hwm: Option<u64>,
    /// HugetlbPages, bytes: neither RSS nor PSS holds them.
    pub hugetlb: u64,
    /// Its process's pid: of a thread's file that is another than the file's name.
    pub tgid: Option<u32>,
    /// The pid in each pid namespace from the reader's down to the process's own.
    pub ns_pids: Vec<u32>,
    /// A SIGKILL was sent to it, and not yet taken.
    pub is_killed: bool,
}

impl Status {
    /// Parse the file.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
        let ns_pids = line(text, b"NSpid:").unwrap_or_default();
        let has_kill = |key: &[u8]| {
            let mask = line(text, key).and_then(|mask| str::from_utf8(mask.trim_ascii()).ok());
            mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & SIGKILL != 0)
        };
        Self {
            is_killed: has_kill(b"SigPnd:") || has_kill(b"ShdPnd:"),
            hwm: kib(text, b"VmHWM:"),
            hugetlb: kib(text, b"HugetlbPages:").unwrap_or(0),
            tgid: line(text, b"Tgid:").and_then(parse_u64).and_then(|tgid| tgid.try_into().ok()),
            ns_pids: ns_pids
                .split(u8::is_ascii_whitespace)
                .filter_map(parse_u64)
                .filter_map(|pid| pid.try_into().ok())
                .collect(),
        }
    }
}

fn line<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(key))
}

/// The value of a "Key:   123 kB" line in bytes. The kernel's kB are 1024 bytes.
fn kib(text: &[u8], key: &[u8]) -> Option<u64> {
    let value = line(text, key)?.trim_ascii();
    let digits = value.strip_suffix(b"kB").unwrap_or(value);
    parse_u64(digits)?.checked_mul(1024)
}

fn parse_u64(text: &[u8]) -> Option<u64> {
    str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// One line of numbers about the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemCpu {
    /// Busy time of all cores since boot, clock ticks (idle and iowait left out; guest time is in user time).
    pub busy_ticks: u64,
}

impl SystemCpu {
    /// Parse /proc/stat.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut fields = line(text, b"cpu ")?.trim_ascii().split(|b| *b == b' ').map(parse_u64);
        let mut next = || fields.next().flatten();
        let (user, nice, system) = (next()?, next()?, next()?);
        let (_idle, _iowait) = (next()?, next()?);
        let (irq, softirq, steal) = (next()?, next()?, next().unwrap_or(0));
        // Steal is time that others had: not work of this machine's processes.
        let _ = steal;
        let busy = [user, nice, system, irq, softirq].into_iter().reduce(u64::saturating_add);
        Some(Self { busy_ticks: busy.unwrap_or(0) })
    }
}

/// A /proc, real or made for a test.
#[derive(Debug, Clone)]
pub struct ProcRoot {
    root: PathBuf,
}

impl Default for ProcRoot {
    fn default() -> Self {
        Self::new("/proc")
    }
}

impl ProcRoot {
    /// The tree below `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The path of a file of a process.
    #[must_use]
    pub fn path(&self, pid: u32, file: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(file)
    }

    /// Open a file of a process, to be read again and again.
    pub fn open(&self, pid: u32, file: &str) -> io::Result<File> {
        File::open(self.path(pid, file))
    }

    /// A file of the machine.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A whole file of a process, or `None` if the process is gone or the file may not be read.
    #[must_use]
    pub fn read(&self, pid: u32, file: &str) -> Option<Vec<u8>> {
        read_all(&self.path(pid, file))
    }

    /// /proc/PID/stat.
    #[must_use]
    pub fn stat(&self, pid: u32) -> Option<Stat> {
        Stat::parse(&self.read(pid, "stat")?)
    }

    /// What is left of a process that is over.
    #[must_use]
    pub fn remains(&self, pid: u32) -> Option<Remains> {
        Remains::of(pid, &self.stat(pid)?)
    }

    /// /proc/PID/status.
    #[must_use]
    pub fn status(&self, pid: u32) -> Option<Status> {
        Some(Status::parse(&self.read(pid, "status")?))
    }

    /// /proc/PID/smaps_rollup; an error of its own kind for processes that may not be looked into (other users').
    pub fn rollup(&self, pid: u32) -> io::Result<Option<Rollup>> {
        // The file opens for whoever owns it; permission is asked for at open and at read.
        match self.open(pid, "smaps_rollup").and_then(|file| read_whole(&file, u64::MAX)) {
            Ok(bytes) => Ok(Rollup::parse(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Device and inode of a process's executable.
    #[must_use]
    pub fn executable(&self, pid: u32) -> Option<(u64, u64)> {
        use std::os::unix::fs::MetadataExt;
        let file = std::fs::metadata(self.path(pid, "exe")).ok()?;
        Some((file.dev(), file.ino()))
    }

    /// /proc/PID/cmdline, at most `limit` bytes of it; `None` if it has none (zombies, kernel threads).
    #[must_use]
    pub fn args(&self, pid: u32, limit: u64) -> Option<Vec<String>> {
        let bytes = read_whole(&self.open(pid, "cmdline").ok()?, limit).ok()?;
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        if bytes.is_empty() {
            return None;
        }
        Some(bytes.split(|b| *b == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect())
    }

    /// /proc/PID/comm without its newline.
    #[must_use]
    pub fn comm(&self, pid: u32) -> Option<String> {
        Some(String::from_utf8_lossy(self.read(pid, "comm")?.trim_ascii_end()).into_owned())
    }

    /// Bytes that the process and the children that it waited for read from and wrote to storage (/proc/PID/io).
    #[must_use]
    pub fn io_bytes(&self, pid: u32) -> Option<(u64, u64)> {
        let text = self.read(pid, "io")?;
        let number = |key: &[u8]| parse_u64(line(&text, key)?);
        Some((number(b"read_bytes:")?, number(b"write_bytes:")?))
    }

    /// Inode of a process's pid namespace.
    #[must_use]
    pub fn pid_ns(&self, pid: u32) -> Option<u32> {
        let link = std::fs::read_link(self.path(pid, "ns/pid")).ok()?;
        let text = link.to_str()?;
        text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
    }

    /// The children of all threads of a process. Needs CONFIG_PROC_CHILDREN, which distributions set.
    #[must_use]
    pub fn children(&self, pid: u32, threads: u64) -> Vec<u32> {
        let mut found = Vec::new();
        let threads = if threads <= 1 { vec![pid] } else { self.threads(pid) };
        for thread in threads {
            let text = self.read(pid, &format!("task/{thread}/children")).unwrap_or_default();
            found.extend(
                text.split(|b| *b == b' ').filter_map(parse_u64).filter_map(|p| u32::try_from(p).ok()),
            );
        }
        found
    }

    /// The ids of a process's threads; none if it is gone.
    #[must_use]
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        let Ok(tasks) = std::fs::read_dir(self.path(pid, "task")) else { return Vec::new() };
        tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
    }

    /// Processes and threads that the machine has made since it was started; `None` where the kernel does not count.
    #[must_use]
    pub fn forks(&self) -> Option<u64> {
        forks(&read_all(&self.file("stat"))?)
    }

    /// Busy CPU time of the machine.
    #[must_use]
    pub fn system_cpu(&self) -> Option<SystemCpu> {
        SystemCpu::parse(&read_all(&self.file("stat"))?)
    }

    /// Memory in use on the machine and its capacity (MemTotal - MemAvailable, MemTotal), bytes.
    #[must_use]
    pub fn system_memory(&self) -> Option<(u64, u64)> {
        let memory = Meminfo::from_file(self.file("meminfo")).ok()?;
        Some((memory.mem_total.saturating_sub(memory.mem_available?), memory.mem_total))
    }
}

/// The count of forks in /proc/stat.
fn forks(text: &[u8]) -> Option<u64> {
    parse_u64(line(text, b"processes ")?).filter(|count| *count > 0)
}

fn read_all(path: &Path) -> Option<Vec<u8>> {
    read_whole(&File::open(path).ok()?, u64::MAX).ok()
}

/// Read a file, at most `limit` bytes. Those of /proc have no size: to ask for it first, as the standard library does,
/// is in vain, and to begin with the small buffer that follows from it has the kernel make the same text again and again.
fn read_whole(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Read a small file that is held open, from its start.
#[must_use]
pub fn read_held<'a>(file: &File, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let length = file.read_at(buffer, 0).ok()?;
    buffer.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_counts_its_fields_from_the_last_parenthesis() {
        let text = b"12 (a) b (c) R) Z 7 12 12 0 -1 4194304 101 2 3 4 50 60 7 8 20 0 9 0 555 1000 200 18446744073709551615 1 2 140727100000000\n";
        let stat = Stat::parse(text).unwrap();
        let expected = Stat {
            state: b'Z',
            ppid: 7,
            flags: 4_194_304,
            minor_faults: 101,
            major_faults: 3,
            user_ticks: 50,
            system_ticks: 60,
            threads: 9,
            start_ticks: 555,
            start_stack: 140_727_100_000_000,
        };
        assert_eq!(stat, expected);
        assert!(stat.is_dead() && stat.is_ending());
        let running = Stat { state: b'R', ..expected };
        assert!(!running.is_ending() && Stat { flags: 4_194_308, ..running }.is_ending());
        assert_eq!(Stat::parse(b"12 (x) R 7"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn a_kill_that_was_not_taken_yet_is_seen() {
        let status =
            |set: &str| Status::parse(format!("SigQ:\t1/2\nSigPnd:\t0\nShdPnd:\t{set}\n").as_bytes());
        assert!(status("0000000000000100").is_killed);
        assert!(!status("0000000000010000").is_killed && !Status::parse(b"").is_killed);
    }

    #[test]
    fn our_own_files_parse() {
        let root = ProcRoot::default();
        let pid = std::process::id();
        let stat = root.stat(pid).unwrap();
        assert!(stat.threads >= 1 && !stat.is_dead());
        let statm = Statm::parse(&root.read(pid, "statm").unwrap()).unwrap();
        assert!(statm.resident > 0 && statm.shared <= statm.resident);
        assert!(root.status(pid).unwrap().hwm.unwrap() > 0);
        assert_eq!(root.status(pid).unwrap().ns_pids.first(), Some(&pid));
        let rollup = root.rollup(pid).unwrap().unwrap();
        assert!(rollup.pss <= rollup.rss && rollup.private <= rollup.rss);
        assert!(root.args(pid, 4096).is_some_and(|args| !args.is_empty()));
        assert!(root.pid_ns(pid).is_some());
        assert!(root.system_cpu().is_some());
        let (used, total) = root.system_memory().unwrap();
        assert!(used <= total);
    }

    #[test]
    fn what_is_missing_is_none_and_not_zero() {
        let root = ProcRoot::new("/nonexistent");
        assert_eq!(root.stat(1), None);
        assert_eq!(root.rollup(1).unwrap(), None);
        assert_eq!(root.system_memory(), None);
        assert_eq!(Status::parse(b"Name:\tx\nState:\tZ (zombie)\n").hwm, None);
        assert_eq!(Statm::parse(b"12"), None);
    }

    #[test]
    fn children_are_found() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        // The test harness has threads, so the child may belong to any of them.
        assert!(ProcRoot::default().children(std::process::id(), 2).contains(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
