//! One sample: its passes, each as far as it is worth its price. What each reads goes to the core as an observation:
//!
//! 1. Memberships, scan, and the programs that the core asks about: a process that still runs in its parent's memory counts
//!    once.
//! 2. `Readings`: CPU clock, size and state of every live process. If a large process is found dead, the sample starts again
//!    later.
//! 3. `Peaks`, then `Sharing`: expensive, in the core's order, as far as `BudgetPolicy` allows.
//! 4. `SampleRead`. If processes were found dead, the sample waits for their last records: those ends belong before it.
//! 5. `SampleComplete`: RAM and CPU over time take it in. `GpuTick` and `Gpu` follow.

use std::time::{Duration, Instant};

use super::run_loop::Session;
use super::told::command_name;
use crate::model::observation::Observation;
use crate::run::schedule::{Outcome, Taken, Terms};
use crate::sys::clock;

/// A sample waits this long at most for records and events of processes that it found new or dead in /proc.
const LONGEST_WAIT: Duration = Duration::from_millis(10);

/// The first scan below an attached process takes this long at most. Samples go on where it stopped.
const LONGEST_FIRST_SCAN: Duration = Duration::from_secs(1);

impl Session {
    /// Takes a sample, unless it finds a large process dead: then it is taken again a little later. `terms` says whether that
    /// may be.
    pub(super) fn sample(&mut self, terms: Terms) {
        let begun_ns = clock::thread_cpu_ns();
        let (from_ns, largest_before) = (self.run.sampled_ns, self.run.ram.high_water_mark().combined);
        let at_ns = self.read();
        let dead_bytes = self.run.sampling.current.dead_bytes;
        // Set: a large process was found dead, so this sample is put off, and nothing is concluded from it.
        let large_end = terms.large_end.filter(|rule| dead_bytes >= rule.bytes);
        if large_end.is_none() {
            self.conclude(at_ns);
        }
        let cost_ns = clock::thread_cpu_ns().saturating_sub(begun_ns);
        let largest = self.run.ram.high_water_mark().combined;
        self.schedule.sampled(&match large_end {
            Some(large_end) => Outcome::PutOff { at_ns, cost_ns, large_end },
            None => Outcome::Taken(Taken { at_ns, from_ns, cost_ns, largest_before, largest }),
        });
        if large_end.is_none() {
            self.readers.after_sample(&mut self.run, at_ns, self.told.exit.is_some());
            self.hand_on();
            self.show();
        }
    }

    /// Reads the tree and all its live processes. Returns the sample's time, CLOCK_MONOTONIC nanoseconds.
    fn read(&mut self) -> u64 {
        let now_ns = clock::monotonic_ns();
        self.readers.check_memberships(&mut self.run, now_ns);
        self.scan(now_ns);
        // The scan may have taken in processes that started since.
        let at_ns = clock::monotonic_ns();
        self.readers.before_sample(&mut self.run, at_ns);
        self.readers.passes.read(&mut self.run, at_ns);
        self.readers.look_at_programs(&mut self.run, at_ns);
        at_ns
    }

    /// Reads what is expensive, and applies all that happened before the processes were found dead. Completes the sample.
    fn conclude(&mut self, at_ns: u64) {
        self.readers.passes.conclude(&mut self.run, at_ns);
        if let Some(dead_ns) = self.run.sampling.current.dead_ns {
            self.take_all_before(dead_ns);
        }
        self.run.apply(at_ns, Observation::SampleComplete);
    }

    /// Looks for children of known processes in /proc. The pump is told of each, since the connector's events of it count from
    /// then on.
    fn scan(&mut self, now_ns: u64) {
        if let Some(deadline) = self.readers.begin_scan(&self.run, now_ns) {
            self.look_around(deadline);
        }
    }

    /// Attaches the run to its process, if it has one, and to all descendants that it has by now. What they used before does not
    /// count. A collector that goes on from a state has attached.
    pub(super) fn attach(&mut self) {
        let Some(process) = self.config.attached.filter(|_| !self.run.tree.has_main()) else { return };
        self.run.apply_now(Observation::Attached { process, command: command_name(&self.config) });
        let now_ns = clock::monotonic_ns();
        self.readers.begin_first_scan(&self.run, now_ns);
        self.look_around(Instant::now() + LONGEST_FIRST_SCAN);
        if let Some(io) = self.readers.read_io(&self.run, now_ns, false) {
            self.run.apply(now_ns, io);
        }
    }

    /// Looks for children until this time, or until all were seen.
    fn look_around(&mut self, deadline: Instant) {
        while let Some(found) = self.readers.scanner.next(&self.run.tree, deadline) {
            match &found {
                Observation::Child(child) => self.pump.add_member(child.host_pid),
                Observation::HostPid { pid, .. } => self.pump.add_member(*pid),
                _ => {}
            }
            // With the connector, /proc can show a child before its fork event was read.
            let is_ahead = self.run.has_connector() && matches!(found, Observation::Child(_));
            self.run.apply_now(found);
            if is_ahead {
                // The core takes it when everything up to now is applied.
                self.take_all_before(clock::monotonic_ns());
            }
        }
    }

    /// Takes in all records and events before this time, CLOCK_MONOTONIC nanoseconds, if they come soon.
    pub(super) fn take_all_before(&mut self, at_ns: u64) {
        self.pump.await_complete(at_ns, LONGEST_WAIT);
        let complete_ns = self.drain();
        self.finalize(complete_ns, false);
    }
}
