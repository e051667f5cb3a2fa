//! The GPU monitor: exchanges pids for readings with the workers at each tick (after each sample), without waiting for a driver.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::detection;
use super::pid_facts::PidFactReader;
use super::policy;
use super::worker::{Phase, Worker};
use crate::model::gpu::{
    BackendsAtEnd, Batch, DeviceSample, GpuConfig, GpuObservation, GpuPids, Missing, NVIDIA,
};
use crate::model::sorting::InOrder;
use crate::sys::clock;
use crate::sys::proc_fs::ProcRoot;

/// The workers, and their readings that wait.
#[derive(Debug)]
pub(crate) struct GpuMonitor {
    workers: Vec<Worker>,
    /// Readings wait here for one tick, because the records of the processes that they name may come later.
    waiting: Vec<Batch>,
    facts: PidFactReader,
    interval: Duration,
    /// Settings of a driver may be changed (`--gpu-accounting`).
    changes_settings: bool,
    /// The time of day at which CLOCK_MONOTONIC was 0, microseconds since 1970.
    epoch_us: u64,
    started: Instant,
}

impl GpuMonitor {
    /// Starts a worker for each backend. Costs a few `stat` calls where there is no driver.
    pub(crate) fn start(config: &GpuConfig, root: &ProcRoot) -> Self {
        Self {
            workers: detection::start(config),
            waiting: Vec::new(),
            facts: PidFactReader::new(root, config),
            interval: Duration::from_nanos(config.interval_ns).max(policy::SHORTEST_INTERVAL),
            changes_settings: config.accounting,
            epoch_us: clock::realtime_ns().saturating_sub(clock::monotonic_ns()) / 1000,
            started: Instant::now(),
        }
    }

    /// Whether there are backends.
    pub(crate) fn is_active(&self) -> bool {
        !self.workers.is_empty()
    }

    /// Returns what the workers had read by the previous tick, and gives them the processes to read about from now on. `None`: there
    /// is no backend.
    pub(crate) fn exchange(&mut self, pids: &GpuPids, now_ns: u64) -> Option<GpuObservation> {
        if !self.is_active() {
            return None;
        }
        // A driver without a device is asked no more. Where no driver is left, the core need not keep processes for GPU readings.
        self.workers.retain(|worker| worker.phase() != Phase::Failed(Missing::NoDevice));
        let batches = std::mem::take(&mut self.waiting);
        let observation = self.observation(batches, pids, now_ns);
        self.waiting = self.take(&pids.all());
        Some(observation)
    }

    /// Makes the last observation of the run: all readings that wait, a last reading if it comes soon, and the state of each backend.
    /// Waits for changed settings of a driver to be restored.
    pub(crate) fn finish(&mut self, pids: &GpuPids) -> GpuObservation {
        let mut batches = std::mem::take(&mut self.waiting);
        // The workers are given the processes of now, which the last readings are about.
        batches.extend(self.take(&pids.all()));
        self.await_last_readings();
        let mut end = BackendsAtEnd::default();
        end.notes.extend(self.await_restored());
        // The phases are read before the readings: a worker that is ready by now has handed over what it had.
        let phases: Vec<Phase> = self.workers.iter().map(Worker::phase).collect();
        // No reading follows that could be about processes.
        batches.extend(self.take(&[]));
        let now_ns = clock::monotonic_ns();
        end.unknown_names = self.unknown_names(&phases);
        for (worker, phase) in self.workers.iter().zip(phases) {
            let failure = match phase {
                Phase::Starting => Some(Missing::NotInitialized),
                Phase::Reading => Some(Missing::FirstReading),
                Phase::Failed(missing) => Some(missing).filter(|missing| *missing != Missing::NoDevice),
                Phase::Ready | Phase::Done => {
                    end.notes.extend(self.late_reading(worker, now_ns));
                    None
                }
            };
            end.failed.extend(failure.map(|missing| (worker.name.to_owned(), missing)));
            end.unreadable.extend(worker.unreadable());
            end.notes.extend(worker.warnings());
        }
        GpuObservation { end: Some(end), ..self.observation(batches, pids, now_ns) }
    }

    /// Asks all workers for a last reading, and waits for those from which it will come soon. A longer run waits for longer.
    fn await_last_readings(&self) {
        let wait = self.started.elapsed() / policy::LAST_READING_PART;
        let deadline = Instant::now() + wait.clamp(policy::LAST_READING_WAIT, policy::LONGEST_LAST_WAIT);
        // All workers are asked before any is waited for, so that they read at the same time.
        let coming: Vec<bool> = self.workers.iter().map(|worker| worker.ask_for_last(deadline)).collect();
        for (worker, _) in self.workers.iter().zip(coming).filter(|(_, is_coming)| *is_coming) {
            worker.wait_done(deadline);
        }
    }

    /// Waits until changed settings of the NVIDIA driver are restored. Returns a note for the report if some may not be.
    fn await_restored(&self) -> Option<String> {
        if !self.changes_settings {
            return None;
        }
        let deadline = Instant::now() + policy::LONGEST_LAST_WAIT;
        for worker in self.workers.iter().filter(|worker| worker.name == NVIDIA) {
            if !worker.wait_restored(deadline) {
                return Some(
                    "--gpu-accounting: the driver did not answer in time at the end, so accounting mode may still be on. \
                     nvidia-smi -am 0, as root, switches it off."
                        .into(),
                );
            }
        }
        None
    }

    /// The names of `--guuids` that mean no device: every backend has listed its devices, and none of these has the name. `phases`:
    /// those of the workers.
    fn unknown_names(&self, phases: &[Phase]) -> Vec<String> {
        if !phases.iter().all(|phase| matches!(phase, Phase::Ready | Phase::Done)) {
            return Vec::new();
        }
        let mut of_workers = self.workers.iter().map(Worker::unknown_names);
        let mut unknown_to_all = of_workers.next().unwrap_or_default();
        for unknown in of_workers {
            unknown_to_all.retain(|name| unknown.contains(name));
        }
        unknown_to_all
    }

    /// Takes what the workers have read, and makes their next readings be about these processes.
    fn take(&self, pids: &[u32]) -> Vec<Batch> {
        self.workers.iter().flat_map(|worker| worker.exchange(pids)).collect()
    }

    /// Makes an observation of what was read, with the facts about the pids in it.
    fn observation(&mut self, batches: Vec<Batch>, pids: &GpuPids, now_ns: u64) -> GpuObservation {
        // When a driver last named each pid.
        let mut named: BTreeMap<u32, u64> = BTreeMap::new();
        for batch in &batches {
            for pid in batch.samples.iter().flat_map(DeviceSample::pids) {
                let at_ns = named.entry(pid).or_default();
                *at_ns = batch.at_ns.max(*at_ns);
            }
        }
        let facts_of = |(pid, named_ns)| (pid, self.facts.read(pid, pids, named_ns, now_ns));
        let facts = named.into_iter().map(facts_of).ordered_map();
        self.facts.forget_unnamed(&facts);
        let unresponsive = self.workers.iter().filter_map(|worker| {
            worker.unresponsive_since_ns(now_ns).map(|since_ns| (worker.name.to_owned(), since_ns))
        });
        GpuObservation {
            at_ns: now_ns,
            epoch_us: self.epoch_us,
            is_active: self.is_active(),
            interval_ns: u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX),
            has_own_pid_ns: self.facts.has_own_pid_ns,
            batches,
            pids: facts,
            unresponsive: unresponsive.collect(),
            end: None,
        }
    }

    /// A warning if the last reading is old, unless the driver is unresponsive, which has a warning of its own.
    fn late_reading(&self, worker: &Worker, now_ns: u64) -> Option<String> {
        let age = worker.age(now_ns);
        let is_late = age > policy::LATE_READING.max(self.interval.saturating_mul(2));
        (is_late && worker.unresponsive_since_ns(now_ns).is_none()).then(|| {
            format!(
                "{} GPUs: the last reading began {:.1} s before the report, since the driver or the machine was slow; \
                 their figures end there.",
                worker.name,
                age.as_secs_f64()
            )
        })
    }
}
