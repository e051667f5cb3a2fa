//! One sample: its passes, each as far as it is worth its price.

use std::time::Duration;

use gpu_track_abi::sample::Sample as LiveSample;

use super::work::Session;
use crate::model::observation::Observation;
use crate::run::schedule::{Deferral, Taken};
use crate::sys::clock;

/// A sample waits so long at most for records and events of processes that it found new or dead in /proc.
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// The machine's own figures are read this often at most: /proc/stat is long on large machines.
const SYSTEM_NS: u64 = 100_000_000;

impl Session {
    /// Take a sample, unless it finds a large process dead: then it is taken again a little later.
    pub(super) fn sample(&mut self, now_ns: u64, deferral: Option<Deferral>) {
        let begun_ns = clock::thread_cpu_ns();
        let from_ns = self.run.sampled_ns;
        self.check_memberships(now_ns);
        self.scan(now_ns);
        // The scan may have taken in processes that started since.
        let now_ns = clock::monotonic_ns();
        self.watch_exits();
        // The sample must know which processes still run in their parent's memory.
        self.answer(u64::MAX, now_ns);
        let mark = self.run.high_water_mark();
        self.readers.passes.read(&mut self.run, now_ns);
        self.look_at_programs(now_ns);
        if let Some(deferral) = deferral.filter(|one| self.run.sampling().dead_bytes() >= one.bytes) {
            self.schedule.defer_again(deferral, now_ns);
            return;
        }
        self.readers.passes.conclude(&mut self.run, now_ns);
        if let Some(dead_ns) = self.run.sampling().dead_ns() {
            self.take_all_before(dead_ns);
        }
        self.run.apply(now_ns, Observation::SampleComplete);
        self.schedule.taken(&Taken {
            at_ns: now_ns,
            from_ns,
            start_ns: self.run.start_ns,
            cost_ns: clock::thread_cpu_ns().saturating_sub(begun_ns),
            largest_before: mark.combined,
            largest: self.run.high_water_mark().combined,
        });
        self.run.apply(now_ns, Observation::GpuTick);
        if let Some(seen) = self.readers.gpu.exchange(&self.run.gpu.pids(), now_ns) {
            self.run.apply(now_ns, Observation::Gpu(Box::new(seen)));
        }
        if now_ns.saturating_sub(self.timers.system_ns) >= SYSTEM_NS || self.end.exit.is_some() {
            self.timers.system_ns = now_ns;
            self.read_system(now_ns);
        }
        self.show(now_ns);
    }

    /// Take in all records and events before this time, CLOCK_MONOTONIC nanoseconds, if they come soon.
    pub(super) fn take_all_before(&mut self, at_ns: u64) {
        self.pump.await_complete(at_ns, LONGEST_WAIT);
        let complete_ns = self.drain();
        self.finalize(complete_ns);
    }

    /// The machine's own figures, and whether the segment still has its name.
    fn read_system(&mut self, now_ns: u64) {
        let memory_used_bytes = self.root.system_memory().map(|(used, _)| used);
        let busy_ticks = self.root.system_cpu().map(|system| system.busy_ticks);
        self.run.apply(now_ns, Observation::System { memory_used_bytes, busy_ticks });
        // A collector that had begun to finish took the name away itself.
        if self.segment.is_open() && !self.segment.named().is_linked() && !self.run.health.is_unlinked {
            self.run.apply(now_ns, Observation::SegmentUnlinked);
        }
    }

    /// Writes the live sample, for programs that watch the run.
    fn show(&self, now_ns: u64) {
        let now = self.run.latest();
        self.segment.push_sample(LiveSample {
            monotonic_ns: now_ns,
            main_bytes: now.main.footprint_bytes,
            descendants_bytes: now.descendants.footprint_bytes,
            combined_bytes: now.combined_bytes,
            cpu_ns: self.run.cpu_ns(),
            processes: now.processes,
            threads: now.main.threads + now.descendants.threads,
        });
    }
}
