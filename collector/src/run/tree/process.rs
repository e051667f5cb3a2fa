//! One process: what is known of it so far, and what may be concluded when it is over.

use std::sync::Arc;

use gpu_track_abi::record::{FLAG_AUTOREAP, FLAG_BORROWED_MEMORY, FLAG_IMAGE, FLAG_NO_STATUS, Usage};
use serde::{Deserialize, Serialize};

use super::inner::Inside;
use super::kernel::{KernelExit, SilentExec, TICK_NS};
use super::usage_math::{minus, plus};
use crate::model::ids::{FoundBy, Identity, ImageGroup, Key, Parent, ProcessId, Target};
use crate::model::quality::Quality;
use crate::model::report::Exit;

/// What a process runs, as far as its memory goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Image {
    /// A copy of its parent's memory, of which it had this much at the fork.
    Forked {
        /// RSS at the fork, bytes.
        rss_at_fork: u64,
    },
    /// A program that announced itself.
    Loaded {
        /// ru_maxrss that it inherited over exec, bytes.
        inherited: u64,
    },
    /// A program of its own that never said anything.
    Silent,
    /// It never said anything, and may still be a copy of its parent.
    Unknown,
    /// Its parent's memory itself (vfork).
    Borrowed,
}

/// An EXIT record.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Argument of exit.
    pub status: i32,
    /// VmHWM, bytes, if it was read.
    pub hwm: Option<u64>,
    /// RUSAGE_SELF.
    pub own: Usage,
    /// RUSAGE_CHILDREN.
    pub children: Usage,
    /// `FLAG_*`.
    pub flags: u8,
}

/// A REAPED record, seen from the child.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ReapRecord {
    /// Wait status.
    pub status: i32,
    /// The child and what it waited for.
    pub usage: Usage,
    /// The reaper's ru_maxrss, bytes.
    pub reaper_peak: u64,
}

/// What sampling saw last.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Observed {
    /// When, CLOCK_MONOTONIC nanoseconds; 0: never.
    pub at_ns: u64,
    /// CPU clock, nanoseconds.
    pub cpu_ns: Option<u64>,
    /// User part of it, clock ticks.
    pub user_ticks: u64,
    /// System part of it, clock ticks.
    pub system_ticks: u64,
    /// RSS, bytes.
    pub rss: u64,
    /// The largest RSS or VmHWM seen, bytes.
    pub peak: u64,
    /// Its share of the tree's RAM, bytes.
    pub share: u64,
    /// The part of it that no other process has, bytes.
    pub private: u64,
    /// How much of what it grows by from then on may be others' too, bytes.
    pub common_growth: u64,
    /// Threads.
    pub threads: u64,
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
    /// Block input and output of the process and what it waited for, 512-byte units; read at the run's end only.
    pub blocks: Option<(u64, u64)>,
}

/// A process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Process {
    /// Its name in this run.
    pub id: ProcessId,
    /// Its pid as itself sees it.
    pub key: Key,
    /// Its pid as we see it; `None` in another pid namespace until /proc told.
    pub host_pid: Option<u32>,
    /// While only the kernel has told of it: where it is, if that is another pid namespace.
    pub inside: Option<Inside>,
    /// Inode of a pidfd of it; 0: unknown.
    pub pidfd_inode: u64,
    /// Who made it.
    pub parent: Parent,
    /// Its parent's pid as told when it started.
    pub parent_pid: u32,
    /// The nearest of its ancestors that ran a program which says nothing when this one was made, or whose parent nobody
    /// knows yet: if that program is a subreaper, it reaps orphans and does not tell.
    pub silent_ancestor: Option<ProcessId>,
    /// It was that of another one; it may speak by now.
    pub was_silent_ancestor: bool,
    /// Who found it.
    pub found_by: FoundBy,
    /// It wrote a record itself.
    pub spoke: bool,
    /// It is the command's first process.
    pub is_main: bool,
    /// More than a record says that its pid is that of a process of this tree.
    pub is_proven: bool,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub start_ns: u64,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub end_ns: Option<u64>,
    /// When a sample first found it dead.
    pub seen_dead_ns: Option<u64>,
    /// When it was first found to be no longer in /proc.
    pub gone_ns: Option<u64>,
    /// To be added to its clock to get ours (time namespaces).
    pub clock_skew_ns: i64,
    /// Base name, with the script's where it is an interpreter.
    pub command: Arc<str>,
    /// Arguments, if it lived long enough to be asked.
    pub args: Option<Vec<String>>,
    /// Its executable, if that has no dynamic loader.
    pub static_executable: Option<String>,
    /// What it runs.
    pub image: Image,
    /// Who shares its memory.
    pub group: ImageGroup,
    /// When that began, CLOCK_MONOTONIC nanoseconds.
    pub image_start_ns: u64,
    /// VmHWM that the image told before an exec, bytes.
    pub told_peak: Option<u64>,
    /// Peak RSS of earlier images, bytes.
    pub earlier_peak: Option<u64>,
    /// One of those was silent, so that its peak is a sample's.
    pub has_sampled_past: bool,
    /// The process connector has told of it since it was made: whatever children it has are known.
    pub is_watched: bool,
    /// Children of it are known.
    pub has_children: bool,
    /// The kernel's word that it runs another program, until that speaks.
    pub silent_exec: Option<SilentExec>,
    /// The kernel's word on its end.
    pub kernel_exit: Option<KernelExit>,
    /// The wait status that the kernel kept of it. What it said itself may still be on its way.
    pub kept_status: Option<i32>,
    /// Its own word at its end.
    pub exit: Option<ExitRecord>,
    /// Its reaper's word.
    pub reaped: Option<ReapRecord>,
    /// Sum of what it reaped itself.
    pub reaped_children: Usage,
    /// Sum of what its children used that ended without anybody's record of their reaping.
    pub unreaped_children: Usage,
    /// How many those are.
    pub unreaped_count: u64,
    /// What sampling saw.
    pub observed: Observed,
    /// Its CPU clock was read there after its end.
    pub is_clock_final: bool,
    /// CPU time already counted into windows, nanoseconds.
    pub counted_cpu_ns: u64,
    /// When that was.
    pub counted_at_ns: u64,
}

/// CPU time and the other sums of one process without its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// The figures; `max_rss_kib` has no meaning here.
    pub usage: Usage,
    /// How they are known.
    pub quality: Quality,
}

impl Process {
    /// Whether nothing says that it is over.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.end_ns.is_none()
    }

    /// A record told the inode of a pidfd of it, or not (0).
    pub(super) fn note_inode(&mut self, pidfd_inode: u64) {
        if pidfd_inode != 0 {
            self.pidfd_inode = pidfd_inode;
        }
    }

    /// What tells it from a process that gets its pid later.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity {
            pidfd_inode: self.pidfd_inode,
            latest_start_ns: self.start_ns.max(self.last_sign_ns()).saturating_add(TICK_NS),
            is_start_rough: self.clock_skew_ns != 0,
            // Of the first process only a time before its start is known, and the launcher keeps its pid for it.
            is_pid_held: self.is_main && self.parent == Parent::Launcher,
        }
    }

    /// How sources address it; `None` while its pid in the collector's namespace is unknown.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        Some(Target { id: self.id, pid: self.host_pid?, identity: self.identity() })
    }

    /// When it was there for certain, CLOCK_MONOTONIC nanoseconds.
    #[must_use]
    pub fn last_sign_ns(&self) -> u64 {
        let said_end_ns = self.end_ns.filter(|_| self.exit.is_some());
        let told_ns = self.kernel_exit.map(|exit| exit.at_ns).max(said_end_ns).unwrap_or(0);
        told_ns.max(self.observed.at_ns).max(self.image_start_ns)
    }

    /// What it used itself, its children taken off.
    #[must_use]
    pub fn own(&self, tick_us: u64) -> Own {
        let exact = |usage| Own { usage, quality: Quality::Exact };
        match (&self.reaped, &self.exit) {
            // wait4 gives the child and all descendants that it waited for; at its end it said how much that was.
            (Some(reaped), Some(exit)) => {
                let own = minus(&reaped.usage, &self.waited_for(exit));
                // A record of another process under the same pid would give less than it said itself.
                exact(if own.user_us + own.system_us < cpu_us(&exit.own) / 2 { exit.own } else { own })
            }
            (Some(reaped), None) => {
                let own = minus(&reaped.usage, &self.reaped_children);
                let less = minus(&own, &self.unreaped_children);
                // Children that were autoreaped (SIGCHLD ignored) are not in it: its own clock tells, as far as it and the
                // kernel's sums, which are rounded, are of one time.
                const DOUBT_US: u64 = 1000;
                let clock_us = self.observed.cpu_ns.unwrap_or(0) / 1000;
                let is_in_it = cpu_us(&less).saturating_add(DOUBT_US) >= clock_us;
                exact(if is_in_it { less } else { own })
            }
            (None, Some(exit)) => exact(exit.own),
            (None, None) => match self.observed.cpu_ns {
                Some(ns) => Own {
                    usage: self.observed_usage(ns, tick_us),
                    quality: if self.is_clock_final { Quality::Exact } else { Quality::Sampled },
                },
                None => Own { usage: Usage::default(), quality: Quality::Unknown },
            },
        }
    }

    /// What it and the kernel for it waited for: when a pid namespace's init ends, the kernel reaps the zombies that are
    /// left there, after its last word.
    fn waited_for(&self, exit: &ExitRecord) -> Usage {
        let known = plus(&self.reaped_children, &self.unreaped_children);
        if self.key.pid == 1 && cpu_us(&known) > cpu_us(&exit.children) { known } else { exit.children }
    }

    /// Whether it ignored SIGCHLD at its end, so that the kernel reaped its children by itself.
    pub(super) fn ignores_children(&self) -> bool {
        self.exit.is_some_and(|exit| exit.flags & FLAG_AUTOREAP != 0)
    }

    /// Whether what it says of its children has room for one more that used this.
    pub(super) fn says_it_waited_for(&self, used: &Usage) -> bool {
        // Sums are rounded; a child's end, which only its reaper has, makes them larger.
        const DOUBT_US: u64 = 100;
        let known = plus(&self.reaped_children, &self.unreaped_children);
        let with_it = cpu_us(&known).saturating_add(cpu_us(used));
        match (&self.exit, &self.reaped) {
            (Some(exit), _) => with_it <= cpu_us(&exit.children).saturating_add(DOUBT_US),
            // It was killed, or says nothing: its reaper's word is of it and of all that it waited for. How much of that is
            // its own only its last clock tells; without, who has told of one wait is taken to tell of all.
            (None, Some(reaped)) => {
                let own_us = self.observed.cpu_ns.unwrap_or(0) / 1000;
                let tells_all = !self.is_clock_final && self.reaped_children != Usage::default();
                let all_us = cpu_us(&reaped.usage).saturating_add(DOUBT_US);
                !tells_all && with_it.saturating_add(own_us) <= all_us
            }
            (None, None) => true,
        }
    }

    /// The last sample in the form of a usage. The clock is exact; the split into user and system follows the ticks.
    fn observed_usage(&self, cpu_ns: u64, tick_us: u64) -> Usage {
        let observed = &self.observed;
        let (user, system) = (observed.user_ticks * tick_us, observed.system_ticks * tick_us);
        let cpu_us = cpu_ns / 1000;
        let user_us = match user + system {
            0 => cpu_us,
            ticks => (u128::from(cpu_us) * u128::from(user) / u128::from(ticks)) as u64,
        };
        // The kernel's counters hold the waited-for children too.
        let (input, output) = observed.blocks.unwrap_or((0, 0));
        Usage {
            user_us,
            system_us: cpu_us - user_us,
            minor_faults: observed.minor_faults,
            major_faults: observed.major_faults,
            input_blocks: input.saturating_sub(self.reaped_children.input_blocks),
            output_blocks: output.saturating_sub(self.reaped_children.output_blocks),
            ..Usage::default()
        }
    }

    /// What the process says of its waited-for children beyond what is known of those.
    #[must_use]
    pub fn unattributed_us(&self) -> u64 {
        let Some(exit) = &self.exit else { return 0 };
        let known = plus(&self.reaped_children, &self.unreaped_children);
        cpu_us(&exit.children).saturating_sub(cpu_us(&known))
    }

    /// Whether children of it vanished without account: it ignores SIGCHLD, or says less of its children than those
    /// say themselves.
    #[must_use]
    pub fn autoreaped(&self) -> bool {
        const DOUBT_US: u64 = 20_000;
        let Some(exit) = &self.exit else { return false };
        let known = plus(&self.reaped_children, &self.unreaped_children);
        self.unreaped_count > 0
            && (self.ignores_children() || cpu_us(&known) > cpu_us(&exit.children).saturating_add(DOUBT_US))
    }

    /// Its peak RSS over all its images, bytes, and how that is known. Never its parent's: ru_maxrss survives exec,
    /// so it says something of the last image only where it grew beyond what that image inherited.
    #[must_use]
    pub fn peak(&self) -> (Option<u64>, Quality) {
        let (last, quality) = self.peak_of_last_image();
        // No earlier image had more than what the last one inherited.
        let may_be_short = self.has_sampled_past
            && matches!(self.image, Image::Loaded { inherited } if last.is_none_or(|last| last < inherited));
        let is_earlier_only = last.is_none() && self.earlier_peak.is_some();
        let quality = match quality {
            Quality::Exact if may_be_short => Quality::Sampled,
            Quality::Unknown if is_earlier_only => Quality::Sampled,
            _ => quality,
        };
        (last.into_iter().chain(self.earlier_peak).max(), quality)
    }

    /// Whether the tree's RAM lacks what it held: nobody knows of it, and it may have been much.
    #[must_use]
    pub fn is_ram_missing(&self) -> bool {
        let held_little = self
            .exit
            .as_ref()
            .is_some_and(|exit| exit.flags & FLAG_BORROWED_MEMORY != 0 && exit.own.minor_faults < FEW_FAULTS);
        self.peak() == (None, Quality::Unknown) && !held_little
    }

    fn peak_of_last_image(&self) -> (Option<u64>, Quality) {
        // A fork child that the kernel has not seen exec has what it had at its fork.
        let at_fork = match self.image {
            Image::Forked { rss_at_fork } if self.is_watched && self.silent_exec.is_none() => rss_at_fork,
            _ => 0,
        };
        let observed = Some(self.observed.peak.max(at_fork)).filter(|peak| *peak > 0);
        let otherwise = || match observed {
            Some(peak) => (Some(peak), Quality::Sampled),
            None => (None, Quality::Unknown),
        };
        match (&self.exit, self.image) {
            // A raw clone, which has memory of its own, looks the same to the shim as a vfork.
            (Some(exit), _) if exit.flags & FLAG_BORROWED_MEMORY != 0 => (None, Quality::Unknown),
            (_, Image::Borrowed) => (None, Quality::Exact),
            (Some(exit), image) => {
                let max = exit.own.max_rss_kib.max(self.reaped_own_kib(exit)).saturating_mul(1024);
                // The kernel's maximum leaves out what its CPUs have not yet added up (up to 32 pages each), and statm does
                // not: a sample can have seen more.
                let seen = observed.unwrap_or(0);
                match image {
                    Image::Loaded { inherited } if exit.flags & FLAG_IMAGE != 0 && max <= inherited => {
                        exit.hwm.map_or_else(otherwise, |hwm| (Some(hwm.max(seen)), Quality::Exact))
                    }
                    Image::Loaded { .. } | Image::Forked { .. } => (Some(max.max(seen)), Quality::Exact),
                    Image::Silent | Image::Unknown | Image::Borrowed => otherwise(),
                }
            }
            (None, image) => {
                let Some(reaped) = &self.reaped else { return otherwise() };
                // A maximum over the child and all that it waited for.
                let max = reaped.usage.max_rss_kib.saturating_mul(1024);
                let of_children = self
                    .reaped_children
                    .max_rss_kib
                    .max(self.unreaped_children.max_rss_kib)
                    .saturating_mul(1024);
                let is_own = max > of_children
                    && match image {
                        Image::Loaded { inherited } => max > inherited,
                        Image::Forked { rss_at_fork } => {
                            max > rss_at_fork.saturating_add(rss_noise(rss_at_fork))
                        }
                        // Without a START: a child inherits at most what its parent had, and what it grew by before its
                        // exec; pages of files that it read in again are not told.
                        Image::Silent | Image::Unknown => {
                            let untold = if self.spoke { FILE_PAGES } else { 0 };
                            let grown = self.earlier_peak.unwrap_or(0).saturating_add(untold);
                            max > reaped.reaper_peak.saturating_add(grown)
                        }
                        Image::Borrowed => false,
                    };
                // Killed before it could say that it runs another program, whose peak this is not.
                let may_have_execd = matches!(image, Image::Forked { .. }) && !self.is_watched;
                // It had its parent's peak, or ran another program by then, which had no more. Who ended by exit without a
                // word did run another program.
                let was_killed_as_copy = matches!(image, Image::Forked { .. })
                    && libc::WIFSIGNALED(reaped.status)
                    && max > of_children;
                match observed {
                    _ if is_own && self.knows_its_children(reaped.status) => {
                        (Some(max), if may_have_execd { Quality::Bound } else { Quality::Exact })
                    }
                    Some(peak) => (Some(peak), Quality::Sampled),
                    None if (is_own || was_killed_as_copy) && !self.has_children => {
                        (Some(max), Quality::Bound)
                    }
                    None => (None, Quality::Unknown),
                }
            }
        }
    }

    /// What its reaper says of its peak, KiB, if that is above all that it waited for and so its own; else 0. It is the
    /// kernel's last word: all threads have ended by then, and are counted.
    fn reaped_own_kib(&self, exit: &ExitRecord) -> u64 {
        let of_children = exit.children.max_rss_kib.max(self.reaped_children.max_rss_kib);
        let max = self.reaped.map_or(0, |reaped| reaped.usage.max_rss_kib);
        if max > of_children { max } else { 0 }
    }

    /// Whether all that it waited for is known: who ended by exit without a word of its own (a static program, one
    /// that makes its system calls itself, as Go does) has not told of its waits either.
    fn knows_its_children(&self, status: i32) -> bool {
        let told_its_waits = self.spoke && self.image != Image::Silent && libc::WIFSIGNALED(status);
        // Nor does a record tell of a wait by a raw system call, or inside libc.
        (told_its_waits && self.unreaped_count == 0) || (self.is_watched && !self.has_children)
    }

    /// Whether the last program that it ran told nothing of its end, though it could: what it started may not be known.
    #[must_use]
    pub fn ended_silently(&self) -> bool {
        let by_exit = self.reaped.is_some_and(|reaped| libc::WIFEXITED(reaped.status));
        !self.spoke || (self.exit.is_none() && by_exit)
    }

    /// How it ended.
    #[must_use]
    pub fn exit_status(&self) -> Exit {
        match (&self.reaped, &self.exit) {
            (Some(reaped), _) => exit_of_wait_status(reaped.status),
            (None, Some(exit)) if exit.flags & FLAG_NO_STATUS == 0 => {
                Exit { code: Some(exit.status & 0xff), signal: None }
            }
            _ => {
                let status = self.kernel_exit.map(|exit| exit.status).or(self.kept_status);
                status.map_or_else(Exit::default, exit_of_wait_status)
            }
        }
    }

    /// Whether SIGKILL ended it.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        self.exit_status().signal == Some(libc::SIGKILL)
    }

    /// Its memory's part in the tree's RAM since it was last sampled, at most: the peak of its image if that is more
    /// than was seen; for a fork child only what it does not share with its parent.
    #[must_use]
    pub fn share_since_sample(&self, page: u64) -> u64 {
        let (peak, quality) = self.peak_of_last_image();
        let peak = peak.filter(|_| matches!(quality, Quality::Exact | Quality::Bound)).unwrap_or(0);
        let faults = match (&self.exit, &self.reaped) {
            (Some(exit), _) => exit.own.minor_faults,
            (None, Some(reaped)) => minus(&reaped.usage, &self.reaped_children).minor_faults,
            (None, None) => 0,
        };
        let unsampled = match self.image {
            Image::Forked { rss_at_fork } => fork_share(peak, rss_at_fork, faults.saturating_mul(page)),
            _ => peak,
        };
        if self.observed.at_ns < self.image_start_ns {
            return unsampled;
        }
        self.observed.share_at(peak).min(unsampled.max(self.observed.share))
    }
}

/// What a fork child does not share with its parent: the pages that it touched since (copied or new), or at least
/// what it grew by (a huge page is one fault); never more than it has.
#[must_use]
pub fn fork_share(rss: u64, rss_at_fork: u64, faulted: u64) -> u64 {
    rss.min(faulted.max(rss.saturating_sub(rss_at_fork)))
}

impl Image {
    /// How much of an RSS peak is the image's own: what a fork child had of its parent's is not.
    #[must_use]
    pub fn own_part(&self, peak: u64, rss: u64) -> u64 {
        match self {
            Image::Loaded { .. } | Image::Silent => peak.saturating_sub(rss),
            Image::Forked { rss_at_fork } => peak.saturating_sub(rss.max(*rss_at_fork)),
            Image::Unknown | Image::Borrowed => 0,
        }
    }
}

/// So much a fork child may grow by reading in its parent's programs and libraries again, bytes.
pub(super) const FILE_PAGES: u64 = 4 << 20;

/// What touched so few pages held little of its own, be it in its parent's memory or in a copy of it.
const FEW_FAULTS: u64 = 256;

/// How far two readings of the same RSS may differ: the kernel's counters are batched per CPU.
#[must_use]
pub fn rss_noise(rss: u64) -> u64 {
    (rss / 100).max(1 << 20)
}

/// CPU time of a usage, microseconds.
#[must_use]
pub fn cpu_us(usage: &Usage) -> u64 {
    usage.user_us.saturating_add(usage.system_us)
}

/// Exit code or signal of a wait status.
#[must_use]
pub fn exit_of_wait_status(status: i32) -> Exit {
    if libc::WIFEXITED(status) {
        Exit { code: Some(libc::WEXITSTATUS(status)), signal: None }
    } else if libc::WIFSIGNALED(status) {
        Exit { code: None, signal: Some(libc::WTERMSIG(status)) }
    } else {
        Exit::default()
    }
}

impl Observed {
    /// A new image: what was seen of the old one's memory is void.
    pub fn forget_memory(&mut self) {
        (self.rss, self.peak, self.share, self.private) = (0, 0, 0, 0);
    }

    /// The last sample is of a new image, but the peak beside it may be the old one's.
    pub fn forget_peak(&mut self) {
        self.peak = self.rss;
    }

    /// The share of the tree's RAM when the RSS was at this peak, if that is one that no sample knew of: what the
    /// process grew by since is its own, as far as it can't be others' too.
    #[must_use]
    pub fn share_at(&self, peak: u64) -> u64 {
        let is_new = peak > self.peak.saturating_add(rss_noise(self.peak));
        let grown = if is_new { peak.saturating_sub(self.rss) } else { 0 };
        self.share.saturating_add(grown.saturating_sub(self.common_growth))
    }
}
