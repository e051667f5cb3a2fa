//! What a run has come to so far: the one thing that a collector would miss if it were killed, so all of it can be
//! written to the state file and read back by the next one.

use gpu_track_abi::record::Event;
use serde::{Deserialize, Serialize};

use crate::model::config::Config;
use crate::model::finding::ReadUpTo;
use crate::model::finding::What;
use crate::model::finding::{Damage, Finding, number};
use crate::model::host::HostInfo;
use crate::run::gpu::GpuAccount;
use crate::run::tree::process::cpu_us;
use crate::run::tree::{Frame, Tree};
use crate::run::trust::Forgery;
use crate::run::usage::{CpuUsage, RamUsage, Totals};
use crate::sources::sampler::Sample;
use crate::sys::clock;
use crate::sys::pidfd;

/// The processes and their sums.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunState {
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
    /// Records that claim more CPU time than there was, and were left out.
    pub impossible: u64,
    /// Records that were there at the end and were not read in time.
    pub unread: u64,
    /// What showed that the records are forged; none that came after counts.
    pub forgery: Option<Forgery>,
    /// How the process connector fares.
    pub connector: ConnectorState,
    /// A killed collector left nothing behind: what it knew is not in here.
    pub is_state_lost: bool,
}

/// How the process connector fares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectorState {
    /// Why it is not there, or no longer.
    pub absent: Option<String>,
    /// How often events were lost, since the socket's buffer was full.
    pub overruns: u64,
    /// How many events of the whole machine were lost in all, as far as the kernel tells.
    pub dropped: u32,
}

/// The CPU time that a record tells of.
fn claimed_cpu_us(event: &Event) -> u64 {
    match event {
        Event::Exit { own, children, .. } => cpu_us(own).saturating_add(cpu_us(children)),
        Event::Reaped { usage, .. } => cpu_us(usage),
        Event::Start { .. } | Event::Fork { .. } | Event::Exec { .. } | Event::SpawnFailed { .. } => 0,
    }
}

impl RunState {
    /// Of a run of which nothing is known yet.
    #[must_use]
    pub fn of_run(config: &Config, facts: &HostInfo) -> Self {
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
        Self::new(frame, cpu, config.most_heaviest)
    }

    /// The same from its parts.
    #[must_use]
    pub fn new(frame: Frame, cpu: CpuUsage, most_heaviest: usize) -> Self {
        let start_ns = frame.session_monotonic_ns;
        Self {
            tree: Tree::new(frame),
            totals: Totals::new(most_heaviest),
            ram: RamUsage::default(),
            cpu,
            gpu: GpuAccount::default(),
            start_ns,
            sampled_ns: start_ns,
            unsampled_ns: 0,
            is_unlinked: false,
            found: ReadUpTo::default(),
            damage: Damage::default(),
            impossible: 0,
            unread: 0,
            forgery: None,
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
                    let age_ns = now_ns.saturating_sub(self.tree.frame().session_monotonic_ns);
                    if !self.cpu.is_possible(claimed_cpu_us(&record.event), age_ns) {
                        self.impossible += 1;
                    } else if self.forgery.is_none() {
                        self.tree.apply(&record.origin, &record.event, now_ns);
                    }
                    match number(record.position) {
                        Some(number) => self.found.overflow = number + 1,
                        None => self.found.position = record.position.wrapping_add(1),
                    }
                }
                Finding::Kernel(event) => {
                    match event.what {
                        What::Lost { dropped } => {
                            self.connector.overruns += 1;
                            self.connector.dropped = dropped;
                        }
                        What::GivenUp(reason) => self.connector.absent = Some(reason.to_string()),
                        What::Fork { .. } | What::Exec | What::Exit { .. } => {}
                    }
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
        let settled_us = cpu_us(&self.totals.own);
        settled_us.saturating_mul(1000).saturating_add(self.tree.counted_cpu_ns())
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_abi::record::{Origin, Usage};

    use super::*;
    use crate::model::finding::StoredRecord;
    use crate::model::finding::{AbsenceReason, KernelEvent};

    const S: u64 = 1_000_000_000;

    fn account() -> RunState {
        let frame = Frame {
            launcher_pid: 100,
            pid_ns: 10,
            session_monotonic_ns: 50 * S,
            session_realtime_ns: 50 * S,
            page: 4096,
            tick_us: 10_000,
        };
        RunState::new(frame, CpuUsage::new(S, 2, 50 * S), 5)
    }

    #[test]
    fn what_befell_the_connector_is_counted_in_its_turn() {
        let mut account = account();
        let finding = |what| Finding::Kernel(KernelEvent { at_ns: 60 * S, pid: 0, what });
        account.apply(&[5, 7].map(|dropped| finding(What::Lost { dropped })), 60 * S);
        assert_eq!(account.connector, ConnectorState { absent: None, overruns: 2, dropped: 7 });
        account.apply(&[finding(What::GivenUp(AbsenceReason::Cost))], 60 * S);
        assert!(account.connector.absent.unwrap().contains("5% of a core"));
        assert_eq!(account.found, ReadUpTo { count: 3, events: 3, ..ReadUpTo::default() });
    }

    #[test]
    fn a_claim_of_more_cpu_time_than_there_was_is_left_out() {
        let mut account = account();
        let mut ended = |pid: u32, own_s: u64, children_s: u64| {
            let usage = |s: u64| Usage { user_us: s.saturating_mul(1_000_000), ..Usage::default() };
            let event =
                Event::Exit { status: 0, vm_hwm_kib: 0, own: usage(own_s), children: usage(children_s) };
            let origin = Origin { pid, pid_ns: 10, parent: 100, monotonic_ns: 60 * S, flags: 0 };
            account.apply(&[Finding::Record(StoredRecord { position: 0, origin, event })], 60 * S);
            (account.tree.born(), account.impossible)
        };
        // Ten seconds of two cores, and some slack.
        assert_eq!(ended(1, 15, 5), (1, 0));
        assert_eq!(ended(2, 40, 10), (1, 1));
        assert_eq!(ended(3, u64::MAX, u64::MAX), (1, 2));
    }
}
