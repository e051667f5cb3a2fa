//! What the core asks of /proc is read while it is there: programs that wrote no START record, zombies, memberships.

use std::time::Duration;

use super::work::Session;
use crate::model::finding::Remains;
use crate::model::ids::Target;
use crate::model::observation::{Observation, ProgramSeen, Request};
use crate::sources::connector_queue::START_GRACE_NS;
use crate::sources::program;
use crate::sources::scan::Deadline;
use crate::sys::clock;

/// After an uninstrumented program was seen, the kernel's events are looked at at once for so long.
const EAGER_NS: u64 = 200_000_000;
/// With the process connector, a scan of /proc is only a check, and comes this often.
const SCAN_NS: u64 = 1_000_000_000;

impl Session {
    /// Answer what the core asks, and tell it which processes ended.
    pub(super) fn look(&mut self) {
        let now_ns = clock::monotonic_ns();
        let loading_ns = if now_ns < self.timers.eager_until_ns { 0 } else { START_GRACE_NS };
        let by_ns = now_ns.saturating_sub(loading_ns);
        self.answer(by_ns, now_ns);
        self.run.apply(now_ns, Observation::Tick);
        self.schedule.expect(self.run.tree.youngest_unreported_ns(by_ns));
        if self.run.tree.counts().uninstrumented_programs != self.timers.uninstrumented_programs {
            self.timers.uninstrumented_programs = self.run.tree.counts().uninstrumented_programs;
            self.timers.eager_until_ns = now_ns.saturating_add(EAGER_NS);
        }
        self.pump.be_eager(now_ns < self.timers.eager_until_ns);
        let tree = &self.run.tree;
        for observation in self.readers.exits.take(|id| tree.get(id).is_some()) {
            self.apply(observation);
        }
    }

    /// Read what the core asks of programs that began by `by_ns`, and of processes that the kernel says ended.
    pub(super) fn answer(&mut self, by_ns: u64, now_ns: u64) {
        for request in self.run.requests(by_ns, now_ns) {
            let answer = match request {
                Request::ReadProgram(target, question) => {
                    let seen = program::read(&self.root, &target, question, clock::monotonic_ns());
                    Observation::Program(ProgramSeen { is_answer: true, ..seen })
                }
                Request::ReadEnd(target, at_ns) => self.read_end(&target, at_ns),
            };
            self.apply(answer);
        }
    }

    fn read_end(&self, target: &Target, at_ns: u64) -> Observation {
        let stat = self.root.stat(target.pid);
        // Later than its end: its reaper may write more about it.
        let gone_ns = stat.is_none().then(clock::monotonic_ns);
        // The first thread may end before others.
        if stat.is_some_and(|stat| !stat.is_over()) {
            return Observation::FirstThreadEnded(target.id);
        }
        let remains = stat.and_then(|stat| Remains::of(target.pid, &stat));
        Observation::Ended { id: target.id, at_ns, gone_ns, remains }
    }

    /// A pid that only a record names may be that of a process outside of the tree, which must not be measured.
    pub(super) fn check_memberships(&mut self, now_ns: u64) {
        let launcher_pid = self.config.start.launcher_pid;
        for target in self.run.membership_requests() {
            let is_known = |pid| pid == launcher_pid || self.run.tree.is_proven(pid);
            let is_member = self.readers.membership.is_member(target.pid, is_known);
            self.run.apply(now_ns, Observation::Membership { id: target.id, is_member });
        }
    }

    /// Look for children of known processes in /proc.
    pub(super) fn scan(&mut self, now_ns: u64) {
        // The connector reports every process, so a scan is rarely needed.
        if !self.config.discovery.layers.scan || (self.has_connector() && now_ns < self.timers.scan_ns) {
            return;
        }
        self.timers.scan_ns = now_ns.saturating_add(SCAN_NS);
        self.readers.scanner.begin(&self.run.tree);
        let deadline = Deadline::of_interval(self.interval());
        while let Some(found) = self.readers.scanner.step(&self.run.tree, deadline) {
            for observation in found {
                match &observation {
                    Observation::Child(child) => self.pump.add_member(child.host_pid),
                    Observation::HostPid { pid, .. } => self.pump.add_member(*pid),
                    _ => {}
                }
                let is_ahead = self.has_connector() && matches!(observation, Observation::Child(_));
                self.apply(observation);
                if is_ahead {
                    // The core takes it when everything up to now is applied.
                    self.take_all_before(clock::monotonic_ns());
                }
            }
        }
    }

    /// Where the kernel does not tell of execs, programs are read that a reading found to be others than before, and, for
    /// a bounded time, those of processes that it read first: no later reading need come before they end.
    pub(super) fn look_at_programs(&mut self, now_ns: u64) {
        if !self.config.discovery.layers.scan || self.has_connector() {
            return;
        }
        let deadline = Deadline::of_interval(self.interval());
        let changed = self.run.sampling().changed_programs().to_vec();
        for program in changed {
            let tree = &self.run.tree;
            let found = self.readers.scanner.look_at_changed(tree, program.id, program.since_ns, now_ns);
            found.into_iter().for_each(|observation| self.apply(observation));
        }
        for (id, start_stack) in self.run.sampling().first_read().to_vec() {
            if deadline.is_over() {
                break;
            }
            let found = self.readers.scanner.look_at_newcomer(&self.run.tree, id, start_stack, now_ns);
            found.into_iter().for_each(|observation| self.apply(observation));
        }
    }

    /// Where the kernel does not tell of ends, processes whose parents will not report them are watched.
    pub(super) fn watch_exits(&mut self) {
        if self.config.discovery.layers.scan && !self.has_connector() {
            let unreported = self.run.tree.unawaited().filter_map(|process| process.target());
            self.readers.exits.watch(unreported, &self.root, &std::thread::current());
        }
    }

    fn has_connector(&self) -> bool {
        self.run.health.connector.absent.is_none()
    }

    fn interval(&self) -> Duration {
        Duration::from_nanos(self.config.interval_ns)
    }
}
