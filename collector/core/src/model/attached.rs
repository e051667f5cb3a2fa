//! Attaching to a process that runs already: which process, and what it had used by then. The run's figures leave that out.

use serde::{Deserialize, Serialize};

use super::exit_account::{ExitAccount, Remains, StatCounts, ThreadAccount};
use super::ids::Key;

/// The process that a run attaches to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Its pid in the collector's pid namespace.
    pub pid: u32,
    /// Its pid as it sees it itself.
    pub key: Key,
    /// Inode of a pidfd of it, or 0.
    pub pidfd_inode: u64,
    /// When it started, CLOCK_MONOTONIC nanoseconds, rounded down to a clock tick.
    pub start_ns: u64,
    /// What it had used at the attach.
    pub before: UsedBefore,
}

/// What a process had used when the run began to count it. Sizes are bytes, times nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedBefore {
    /// When this was read, CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// CPU clock.
    pub cpu_ns: u64,
    /// What else was counted.
    pub counts: StatCounts,
    /// Block input and output of the process and its waited-for children, 512-byte units. `None`: it may not be read.
    pub blocks: Option<(u64, u64)>,
    /// VmHWM. The kernel never lowers it while the program runs, so only a later reading that is larger is a peak of the run.
    /// `None`: it could not be read.
    pub vm_hwm_bytes: Option<u64>,
}

impl UsedBefore {
    /// The final figures of a process, read from its zombie, less what the process had used before.
    pub fn of_remains(&self, remains: &Remains) -> Remains {
        Remains {
            cpu_ns: remains.cpu_ns.saturating_sub(self.cpu_ns),
            counts: remains.counts.since(self.counts),
        }
    }

    /// The kernel's account of an exit without the CPU time that was used before. `tick_us`: microseconds of a clock tick.
    ///
    /// The faults stay as they are: they are an upper bound of the memory of all programs that the process ran. The peak stays, too:
    /// [`Self::later_peak`] tells whether it is of the run.
    pub fn of_account(&self, account: ExitAccount, tick_us: u64) -> ExitAccount {
        let thread = account.thread.map(|thread| ThreadAccount {
            user_us: thread.user_us.saturating_sub(self.counts.user_ticks.saturating_mul(tick_us)),
            system_us: thread.system_us.saturating_sub(self.counts.system_ticks.saturating_mul(tick_us)),
            ..thread
        });
        ExitAccount {
            cpu_ns: account.cpu_ns.map(|cpu_ns| cpu_ns.saturating_sub(self.cpu_ns)),
            thread,
            ..account
        }
    }

    /// Block input and output of the run alone, from those at the end. `None`: those at the end or at the attach are not known.
    pub fn of_blocks(&self, blocks: Option<(u64, u64)>) -> Option<(u64, u64)> {
        let ((input, output), (input_before, output_before)) = blocks.zip(self.blocks)?;
        Some((input.saturating_sub(input_before), output.saturating_sub(output_before)))
    }

    /// The high-water mark `vm_hwm_bytes`, if the process reached it during the run. `None`: it is not known, or not known to exceed
    /// the one at the attach, so the process may have reached it before. If the program began after the attach (`program_start_ns`,
    /// CLOCK_MONOTONIC), its mark is of the run, because exec starts a new one.
    pub fn later_peak(&self, vm_hwm_bytes: Option<u64>, program_start_ns: u64) -> Option<u64> {
        let has_risen = |peak: u64| self.vm_hwm_bytes.is_some_and(|before| peak > before);
        vm_hwm_bytes.filter(|peak| has_risen(*peak) || program_start_ns > self.at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(user_ticks: u64, system_ticks: u64, minor_faults: u64, major_faults: u64) -> StatCounts {
        StatCounts { user_ticks, system_ticks, minor_faults, major_faults }
    }

    fn before() -> UsedBefore {
        UsedBefore {
            at_ns: 100,
            cpu_ns: 5_000,
            counts: counts(3, 2, 70, 7),
            blocks: Some((10, 20)),
            vm_hwm_bytes: Some(4096),
        }
    }

    // Requirement: ATTACH-2
    #[test]
    fn what_was_used_before_is_taken_off_every_figure() {
        let remains = Remains { cpu_ns: 7_000, counts: counts(4, 4, 90, 8) };
        let expected = Remains { cpu_ns: 2_000, counts: counts(1, 2, 20, 1) };
        assert_eq!(before().of_remains(&remains), expected);
        let thread = ThreadAccount { user_us: 40_000, system_us: 30_000, faulted_bytes: 4096 };
        let account = ExitAccount { cpu_ns: Some(9_000), thread: Some(thread), ..ExitAccount::default() };
        let since = before().of_account(account, 10_000);
        assert_eq!(since.cpu_ns, Some(4_000));
        assert_eq!(since.thread, Some(ThreadAccount { user_us: 10_000, system_us: 10_000, ..thread }));
        assert_eq!(before().of_blocks(Some((10, 25))), Some((0, 5)));
        assert_eq!(UsedBefore { blocks: None, ..before() }.of_blocks(Some((10, 25))), None);
        assert_eq!(before().of_blocks(None), None);
    }

    // Requirement: ATTACH-3
    #[test]
    fn high_water_mark_counts_only_if_it_rose_or_is_of_a_later_program() {
        let before = before();
        assert_eq!(before.later_peak(Some(4096), 50), None);
        assert_eq!(before.later_peak(Some(8192), 50), Some(8192));
        assert_eq!(before.later_peak(Some(1024), 101), Some(1024));
        assert_eq!(before.later_peak(None, 101), None);
        let unread = UsedBefore { vm_hwm_bytes: None, ..before };
        assert_eq!(unread.later_peak(Some(8192), 50), None);
    }
}
