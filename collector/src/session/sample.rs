//! One sample: its passes, each as far as it is worth its price.

use std::time::Duration;

use super::work::Session;
use crate::model::observation::Observation;
use crate::run::schedule::{Deferral, Taken};
use crate::sys::clock;

/// A sample waits so long at most for records and events of processes that it found new or dead in /proc.
const LONGEST_WAIT: Duration = Duration::from_millis(10);

impl Session {
    /// Take a sample, unless it finds a large process dead: then it is taken again a little later.
    pub(super) fn sample(&mut self, now_ns: u64, deferral: Option<Deferral>) {
        let begun_ns = clock::thread_cpu_ns();
        let from_ns = self.run.sampled_ns;
        self.readers.check_memberships(&mut self.run, now_ns);
        self.scan(now_ns);
        // The scan may have taken in processes that started since.
        let now_ns = clock::monotonic_ns();
        self.readers.before_sample(&mut self.run, now_ns);
        let mark = self.run.ram.high_water_mark();
        self.readers.passes.read(&mut self.run, now_ns);
        self.readers.look_at_programs(&mut self.run, now_ns);
        if let Some(deferral) = deferral.filter(|one| self.run.sampling.current.dead_bytes >= one.bytes) {
            self.schedule.defer_again(deferral, now_ns, clock::thread_cpu_ns().saturating_sub(begun_ns));
            return;
        }
        self.readers.passes.conclude(&mut self.run, now_ns);
        if let Some(dead_ns) = self.run.sampling.current.dead_ns {
            self.take_all_before(dead_ns);
        }
        self.run.apply(now_ns, Observation::SampleComplete);
        self.schedule.taken(&Taken {
            at_ns: now_ns,
            from_ns,
            start_ns: self.run.start_ns,
            cost_ns: clock::thread_cpu_ns().saturating_sub(begun_ns),
            largest_before: mark.combined,
            largest: self.run.ram.high_water_mark().combined,
        });
        self.readers.after_sample(&mut self.run, now_ns, self.end.exit.is_some());
        self.hand_on();
        self.show();
    }

    /// Look for children of known processes in /proc.
    fn scan(&mut self, now_ns: u64) {
        let Some(deadline) = self.readers.begin_scan(&self.run, now_ns) else { return };
        while let Some(found) = self.readers.scanner.next(&self.run.tree, deadline) {
            match &found {
                Observation::Child(child) => self.pump.add_member(child.host_pid),
                Observation::HostPid { pid, .. } => self.pump.add_member(*pid),
                _ => {}
            }
            let is_ahead = self.run.has_connector() && matches!(found, Observation::Child(_));
            self.run.apply_now(found);
            if is_ahead {
                // The core takes it when everything up to now is applied.
                self.take_all_before(clock::monotonic_ns());
            }
        }
    }

    /// Take in all records and events before this time, CLOCK_MONOTONIC nanoseconds, if they come soon.
    pub(super) fn take_all_before(&mut self, at_ns: u64) {
        self.pump.await_complete(at_ns, LONGEST_WAIT);
        let complete_ns = self.drain();
        self.finalize(complete_ns, false);
    }
}
