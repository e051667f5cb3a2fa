//! The thread that a backend lives on. Whoever has to do with it never waits for the driver: what is there is taken,
//! and a thread that is stuck in a call is left alone.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Backend;
use crate::model::gpu::config::GpuConfig;
use crate::model::gpu::{Batch, Device, Missing, Reading, select};
use crate::sys::clock;

/// Samples are at least this far apart: a driver call can take milliseconds.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(20);
/// The thread works for at most one part in this many of its time.
const REST: u32 = 10;
/// Devices are looked for again this often: they can come and go.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Looking for devices takes at most one part in this many of the time: a handle can cost milliseconds.
const LOOK_REST: u32 = 100;
/// A driver that has not answered for so long is said to be silent, nanoseconds.
const SILENT_NS: u64 = 1_000_000_000;
/// Samples that nobody has taken yet; the oldest go first.
const MOST_WAITING: usize = 1024;

/// Makes the backend, on its thread.
pub type Start = Box<dyn FnOnce() -> Reading<Box<dyn Backend>> + Send>;

/// Where the thread is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It loads and initialises the driver's library.
    Starting,
    /// The driver is there, and it takes its first sample.
    Reading,
    /// It samples.
    Ready,
    /// There is no driver to be had.
    Failed(Missing),
    /// It took its last sample and put everything back.
    Done,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Since when the thread has been in the driver, CLOCK_MONOTONIC nanoseconds; `None`: it rests.
    in_driver_since_ns: Option<u64>,
    is_last: bool,
    pids: Vec<u32>,
    batches: VecDeque<Batch>,
    /// When the last of them was begun, CLOCK_MONOTONIC nanoseconds.
    read_ns: u64,
    unreadable: Vec<Missing>,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// A panic on the other side leaves plain data behind, which is still good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Our end of the thread.
#[derive(Debug)]
pub struct Worker {
    /// What the user calls the backend.
    pub name: &'static str,
    shared: Arc<Shared>,
}

impl Worker {
    /// Start the thread. Where there can be no thread, it has failed.
    #[must_use]
    pub fn start(name: &'static str, config: &GpuConfig, start: Start) -> Self {
        let state = State {
            phase: Phase::Starting,
            in_driver_since_ns: Some(clock::monotonic_ns()),
            is_last: false,
            pids: Vec::new(),
            batches: VecDeque::new(),
            read_ns: 0,
            unreadable: Vec::new(),
            warnings: Vec::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (theirs, config) = (Arc::clone(&shared), config.clone());
        let thread = std::thread::Builder::new().name(format!("gpu-{name}"));
        if let Err(error) = thread.spawn(move || work(&theirs, &config, start)) {
            shared.lock().phase = Phase::Failed(Missing::Failed(format!("cannot start a thread: {error}")));
        }
        Self { name, shared }
    }

    /// Where it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.shared.lock().phase.clone()
    }

    /// Take what it has read, and tell it the run's processes.
    #[must_use]
    pub fn exchange(&self, pids: &[u32]) -> Vec<Batch> {
        let mut state = self.shared.lock();
        state.pids.clear();
        state.pids.extend_from_slice(pids);
        state.batches.drain(..).collect()
    }

    /// Why devices that never said which they are can't be read.
    #[must_use]
    pub fn unreadable(&self) -> Vec<Missing> {
        self.shared.lock().unreadable.clone()
    }

    /// What a reader should know.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.shared.lock().warnings.clone()
    }

    /// Ask for a last sample, if the thread rests: one in a driver's call is not disturbed. Gives whether it will come.
    #[must_use]
    pub fn ask_for_last(&self) -> bool {
        let mut state = self.shared.lock();
        state.is_last = true;
        self.shared.changed.notify_all();
        state.phase == Phase::Ready && state.in_driver_since_ns.is_none()
    }

    /// Since when the driver, which had answered before, has not come back from a call; CLOCK_MONOTONIC nanoseconds.
    /// `None`: it answers.
    #[must_use]
    pub fn silent_since_ns(&self, now_ns: u64) -> Option<u64> {
        let state = self.shared.lock();
        let since_ns = state.in_driver_since_ns.filter(|_| state.phase == Phase::Ready)?;
        (now_ns.saturating_sub(since_ns) >= SILENT_NS).then_some(since_ns)
    }

    /// How long ago the last reading began.
    #[must_use]
    pub fn age(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.shared.lock().read_ns))
    }

    /// Wait until the last sample is there, or the deadline.
    pub fn wait_done(&self, deadline: Instant) {
        self.wait(deadline, |state| matches!(state.phase, Phase::Done | Phase::Failed(_)));
    }

    /// Wait until a first sample is there, or there will be none, or the deadline.
    pub fn wait_sampled(&self, deadline: Instant) {
        self.wait(deadline, |state| !state.batches.is_empty() || matches!(state.phase, Phase::Failed(_)));
    }

    fn wait(&self, deadline: Instant, until: impl Fn(&State) -> bool) {
        let mut state = self.shared.lock();
        while !until(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn work(shared: &Shared, config: &GpuConfig, start: Start) {
    let mut backend = match start() {
        Ok(backend) => backend,
        Err(missing) => {
            shared.lock().phase = Phase::Failed(missing);
            shared.changed.notify_all();
            return;
        }
    };
    {
        let mut state = shared.lock();
        // Nothing was changed in the driver yet, and there is nobody left to see it put back.
        if state.is_last {
            return;
        }
        state.phase = Phase::Reading;
    }
    let mut rounds = Rounds { config, all: Vec::new(), wanted: Vec::new(), look_at: Instant::now() };
    let interval = Duration::from_nanos(config.interval_ns).max(SHORTEST_INTERVAL);
    loop {
        let began = Instant::now();
        let (is_last, pids) = {
            let mut state = shared.lock();
            state.in_driver_since_ns = Some(clock::monotonic_ns());
            (state.is_last, state.pids.clone())
        };
        let batch = rounds.round(backend.as_mut(), &pids);
        if is_last {
            backend.restore();
        }
        let rest = interval.max(began.elapsed() * REST);
        let mut state = shared.lock();
        state.phase = if is_last { Phase::Done } else { Phase::Ready };
        state.unreadable = backend.unreadable();
        state.warnings = backend.warnings();
        if state.batches.len() >= MOST_WAITING {
            state.batches.pop_front();
        }
        state.read_ns = batch.at_ns;
        state.batches.push_back(batch);
        state.in_driver_since_ns = None;
        shared.changed.notify_all();
        if is_last {
            return;
        }
        let next = began + rest;
        while !state.is_last {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What the thread knows from one round to the next.
struct Rounds<'a> {
    config: &'a GpuConfig,
    all: Vec<Device>,
    wanted: Vec<String>,
    look_at: Instant,
}

impl Rounds<'_> {
    fn round(&mut self, backend: &mut dyn Backend, pids: &[u32]) -> Batch {
        let mut batch = Batch::default();
        let began = Instant::now();
        if began >= self.look_at {
            let all = backend.devices();
            self.look_at = began + LOOK_AGAIN.max(began.elapsed() * LOOK_REST);
            if all != self.all || self.wanted.is_empty() {
                let wanted: Vec<Device> = select::wanted(self.config, &all).into_iter().cloned().collect();
                // One that is no longer there is still asked for, so that its loss is told.
                let ids = wanted.iter().map(|device| device.id.clone());
                self.wanted.extend(ids.filter(|id| !self.wanted.contains(id)).collect::<Vec<_>>());
                self.all.clone_from(&all);
                (batch.devices, batch.all) = (Some(wanted), Some(all));
            }
        }
        batch.at_ns = clock::monotonic_ns();
        batch.samples = backend.sample(batch.at_ns, &self.wanted, pids);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::DeviceSample;
    use std::sync::mpsc;

    struct Plain;

    impl Backend for Plain {
        fn devices(&mut self) -> Vec<Device> {
            vec![Device { id: "GPU-1".into(), ..Device::default() }]
        }

        fn sample(&mut self, _: u64, wanted: &[String], _: &[u32]) -> Vec<DeviceSample> {
            wanted.iter().map(|id| DeviceSample { device: id.clone(), ..DeviceSample::default() }).collect()
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn a_worker_that_rests_gives_a_last_sample() {
        let config = GpuConfig { interval_ns: u64::MAX / 4, ..GpuConfig::default() };
        let worker = Worker::start("plain", &config, Box::new(|| Ok(Box::new(Plain))));
        worker.wait_sampled(soon());
        assert_eq!(worker.exchange(&[]).len(), 1);
        assert!(worker.ask_for_last());
        worker.wait_done(soon());
        assert_eq!(worker.phase(), Phase::Done);
        let last = worker.exchange(&[]);
        assert_eq!(last.len(), 1);
        assert_eq!(last[0].samples[0].device, "GPU-1");
    }

    /// Answers once, and then stays in the call until it is let go.
    struct Stuck(mpsc::Receiver<()>, u32);

    impl Backend for Stuck {
        fn devices(&mut self) -> Vec<Device> {
            Plain.devices()
        }

        fn sample(&mut self, at_ns: u64, wanted: &[String], pids: &[u32]) -> Vec<DeviceSample> {
            self.1 += 1;
            if self.1 > 1 {
                let _ = self.0.recv();
            }
            Plain.sample(at_ns, wanted, pids)
        }
    }

    #[test]
    fn a_driver_that_does_not_come_back_is_silent_since_it_was_called() {
        let (release, stuck) = mpsc::channel::<()>();
        let before_ns = clock::monotonic_ns();
        let worker =
            Worker::start("stuck", &GpuConfig::default(), Box::new(|| Ok(Box::new(Stuck(stuck, 0)))));
        let in_driver = |state: &State| state.phase == Phase::Ready && state.in_driver_since_ns.is_some();
        let deadline = soon();
        while !in_driver(&worker.shared.lock()) {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        let now_ns = clock::monotonic_ns();
        assert!(!worker.ask_for_last());
        let since_ns = worker.silent_since_ns(now_ns + SILENT_NS).unwrap();
        assert!((before_ns..=now_ns).contains(&since_ns));
        assert_eq!(worker.silent_since_ns(since_ns), None);
        drop(release);
        worker.wait_done(soon());
        assert_eq!(worker.silent_since_ns(u64::MAX), None);
    }

    #[test]
    fn one_that_is_stuck_at_its_start_is_not_waited_for() {
        let (release, stuck) = mpsc::channel::<()>();
        let start: Start = Box::new(move || {
            let _ = stuck.recv();
            Err(Missing::NoDriver)
        });
        let worker = Worker::start("stuck", &GpuConfig::default(), start);
        assert!(!worker.ask_for_last());
        assert_eq!(worker.phase(), Phase::Starting);
        drop(release);
        worker.wait_done(soon());
        assert_eq!(worker.phase(), Phase::Failed(Missing::NoDriver));
    }
}
