//! What a run has come to so far: the one thing that a collector would miss if it were killed, so all of it can be
//! written to the state file and read back by the next one.

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::config::Config;
use crate::discovery::Finding;
use crate::discovery::kernel_side::ConnectorState;
use crate::gpu::GpuAccount;
use crate::pidfd;
use crate::report::build::Facts;
use crate::sampler::Sample;
use crate::state::ReadUpTo;
use crate::tree::{Frame, Tree};
use crate::usage::{CpuUsage, RamUsage, Totals};

/// The processes and their sums.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Account {
    /// Processes that are not settled.
    pub tree: Tree,
    /// Sums over the settled.
    pub totals: Totals,
    /// RAM over time.
    pub ram: RamUsage,
    /// CPU over time.
    pub cpu: CpuUsage,
    /// GPUs over time.
    pub gpu: GpuAccount,
    /// CLOCK_MONOTONIC of the command's start, nanoseconds.
    pub start_ns: u64,
    /// CLOCK_MONOTONIC of the last sample, nanoseconds.
    pub sampled_ns: u64,
    /// Time in which nobody sampled, since a collector was dead or its last samples died with it, nanoseconds.
    pub unsampled_ns: u64,
    /// The segment's name was removed during the run.
    pub is_unlinked: bool,
    /// Which findings are in here.
    pub found: ReadUpTo,
    /// What was wrong with others.
    pub damage: Damage,
    /// How the process connector fared.
    pub connector: ConnectorState,
    /// A killed collector left nothing behind: what it knew is not in here.
    pub is_state_lost: bool,
}

/// What was wrong with the records of the ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Records that made no sense.
    pub events: u64,
    /// The ring was overwritten: nothing more is read.
    pub is_untrusted: bool,
}

impl Damage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_add(other.events),
            is_untrusted: self.is_untrusted || other.is_untrusted,
        }
    }
}

impl Account {
    /// Of a run of which nothing is known yet.
    #[must_use]
    pub fn new(config: &Config, facts: &Facts) -> Self {
        let start_ns = config.started_monotonic_ns;
        let frame = Frame {
            launcher_pid: config.launcher_pid,
            pid_ns: config.pid_ns,
            session_monotonic_ns: start_ns,
            session_realtime_ns: config.started_realtime_ns,
            page: rustix::param::page_size() as u64,
            tick_us: 1_000_000 / facts.ticks_per_second.max(1),
        };
        let cpu = CpuUsage::new(config.interval_ns, facts.host.cores, start_ns);
        Self {
            tree: Tree::new(frame),
            totals: Totals::new(config.most_heaviest),
            ram: RamUsage::default(),
            cpu,
            gpu: GpuAccount::default(),
            start_ns,
            sampled_ns: start_ns,
            unsampled_ns: 0,
            is_unlinked: false,
            found: ReadUpTo::default(),
            damage: Damage::default(),
            connector: ConnectorState::default(),
            is_state_lost: false,
        }
    }

    /// Take in findings, in their order.
    pub fn apply(&mut self, findings: &[Finding], now_ns: u64) {
        for finding in findings {
            self.found.count += 1;
            match finding {
                Finding::Record(record) => {
                    self.tree.apply(&record.origin, &record.event, now_ns);
                    self.found.position = record.position.wrapping_add(1);
                }
                Finding::Kernel(event) => {
                    self.tree.apply_kernel(event, now_ns);
                    self.found.events += 1;
                }
            }
        }
    }

    /// Take in a sample.
    pub fn add(&mut self, sample: &Sample) {
        self.ram.add(&self.tree, sample);
        self.cpu.add(sample);
        self.sampled_ns = sample.at_ns;
    }

    /// Settle those of whom nothing more can be learnt; all records that were written before `complete_ns` are taken
    /// in. With `asks` all that ended are looked for in /proc, which takes a system call each.
    pub fn settle(&mut self, now_ns: u64, complete_ns: u64, asks: bool) {
        self.tree.settle(now_ns, complete_ns, asks, |pid| pidfd::is_gone(pid).then(clock::monotonic_ns));
        self.count_settled();
    }

    /// Settle all, the living as they are: the run is over.
    pub fn settle_all(&mut self, now_ns: u64) {
        self.tree.settle_all(now_ns);
        self.count_settled();
    }

    fn count_settled(&mut self) {
        for process in self.tree.take_settled() {
            self.totals.add(&process);
            if let Some(peak) = self.gpu.settled(&process) {
                self.totals.add_on_gpus(&process, peak);
            }
        }
    }

    /// CPU time of all processes that was counted so far, nanoseconds.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        let settled_us = crate::tree::process::cpu_us(&self.totals.own);
        settled_us.saturating_mul(1000).saturating_add(self.tree.counted_cpu_ns())
    }
}
