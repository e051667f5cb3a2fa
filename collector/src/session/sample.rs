//! One sample. It is taken in passes; the expensive ones read only as much as their budget allows. What a pass reads goes to the
//! core as an observation:
//!
//! 1. Memberships, the scan, and the programs that the core asks about. Memory that a process still has in common with its
//!    parent before exec counts once.
//! 2. `Readings`: CPU clock, size and state of every live process. If a large process is found dead, the sample is taken again
//!    later.
//! 3. `Peaks`, then `Sharing`, which are expensive. The core gives the order, and `BudgetPolicy` the budget.
//! 4. `SampleRead`. If processes were found dead, the sample waits for their last records, because they ended before it.
//! 5. `SampleComplete` adds the sample to RAM and CPU over time. `GpuTick` and `Gpu` follow.

use std::time::{Duration, Instant};

use super::readers::AbsenceCheck;
use super::run_loop::Session;
use super::told::command_name;
use crate::model::observation::Observation;
use crate::run::schedule::{Outcome, Taken, Terms};
use crate::sys::clock;

/// A sample waits this long at most for records and events of processes that it found new or dead in /proc.
const LONGEST_WAIT: Duration = Duration::from_millis(10);

/// The first scan below an attached process takes this long at most. The scans of samples go on where it stopped.
const LONGEST_FIRST_SCAN: Duration = Duration::from_secs(1);

impl Session {
    /// Takes a sample, reads what follows a sample (GPUs and others), and hands the sample to the sinks. The schedule is told the
    /// cost. If `terms` allow that and the sample finds a large process dead, it is put off: the schedule takes it again a little
    /// later.
    pub(super) fn sample(&mut self, terms: Terms) {
        let begun_ns = clock::thread_cpu_ns();
        let (from_ns, largest_before) = (self.run.sampled_ns, self.run.ram.high_water_mark().combined);
        let at_ns = self.read();
        let dead_bytes = self.run.sampling.current.dead_bytes;
        // `Some`: this sample is put off, and nothing is concluded from it.
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
            let end_ns = self.told.exit.map(|exit| exit.at_ns);
            self.readers.after_sample(&mut self.run, at_ns, end_ns);
            self.read_io(at_ns, end_ns);
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

    /// Takes the expensive passes. If processes were found dead, applies all that happened before. Then completes the sample.
    fn conclude(&mut self, at_ns: u64) {
        self.readers.read_threads(&mut self.run, at_ns);
        self.readers.passes.conclude(&mut self.run, at_ns);
        if let Some(dead_ns) = self.run.sampling.current.dead_ns {
            self.take_all_before(dead_ns);
        }
        self.run.apply(at_ns, Observation::SampleComplete);
    }

    /// Reads I/O, if that is due. `end_ns`: as for [`Readers::read_io`](super::readers::Readers::read_io).
    fn read_io(&mut self, at_ns: u64, end_ns: Option<u64>) {
        if let Some(mut io) = self.readers.read_io(&self.run, at_ns, end_ns) {
            // The sum of all has what ended until now, so these processes must be known.
            let is_complete = self.take_all_before(clock::monotonic_ns());
            if let Observation::Io { by_process, .. } = &mut io {
                by_process.is_complete = is_complete;
            }
            self.run.apply(at_ns, io);
        }
    }

    /// Looks for children of known processes in /proc, if a scan is due.
    fn scan(&mut self, now_ns: u64) {
        if let Some(deadline) = self.readers.begin_scan(&self.run, now_ns) {
            self.take_in_scan(deadline);
        }
    }

    /// With `--attach`, attaches the run to its process and to the descendants that the process has by now. What they used before
    /// does not count. Does nothing if an earlier collector has attached the run.
    pub(super) fn attach(&mut self) {
        let Some(process) = self.config.attached.filter(|_| !self.run.tree.has_main()) else { return };
        self.run.apply_now(Observation::Attached { process, command: command_name(&self.config) });
        let now_ns = clock::monotonic_ns();
        self.readers.begin_first_scan(&self.run, now_ns);
        self.take_in_scan(Instant::now() + LONGEST_FIRST_SCAN);
        // After the scan: what the descendants had read and written before is known by now, and does not count.
        if let Some(io) = self.readers.read_io(&self.run, now_ns, None) {
            self.run.apply(now_ns, io);
        }
    }

    /// Applies what the scan that has begun finds, until `deadline` or its end. The pump is told of each child, so that the
    /// connector's events of it count from now on.
    fn take_in_scan(&mut self, deadline: Instant) {
        while let Some(found) = self.readers.scanner.next(&self.run.tree, deadline) {
            match &found {
                Observation::Child(child) => self.pump.add_member(child.host_pid),
                Observation::HostPid { pid, .. } => self.pump.add_member(*pid),
                _ => {}
            }
            let is_ahead = matches!(&found, Observation::Child(child) if self.run.is_ahead(child));
            self.run.apply_now(found);
            if is_ahead {
                // The core accepts the child when all events up to now are applied.
                self.take_all_before(clock::monotonic_ns());
            }
        }
    }

    /// Takes in all records and events from before `at_ns`, CLOCK_MONOTONIC nanoseconds. Waits for them at most [`LONGEST_WAIT`].
    /// Returns whether all have come.
    pub(super) fn take_all_before(&mut self, at_ns: u64) -> bool {
        self.pump.await_complete(at_ns, LONGEST_WAIT);
        let complete_ns = self.drain();
        self.finalize(complete_ns, AbsenceCheck::Due);
        complete_ns >= at_ns
    }
}
