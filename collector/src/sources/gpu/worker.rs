//! The thread of a backend. The collector's other threads never wait for the driver: they take what was read, and leave a
//! thread alone that is stuck in a call.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::backend::Backend;
use super::policy::POLICY;
use crate::model::gpu::select::{self, Visibility};
use crate::model::gpu::{Batch, Device, DeviceList, GpuConfig, Missing, Reading, TrackedDevice};
use crate::sys::clock;

/// Makes the backend, on its thread.
pub(super) type Start = Box<dyn FnOnce() -> Reading<Box<dyn Backend>> + Send>;

/// What the thread does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// It loads and initialises the driver's library.
    Starting,
    /// The driver is initialised, and the first reading is under way.
    Reading,
    /// It has read at least once.
    Ready,
    /// There is no driver that can be used.
    Failed(Missing),
    /// It took its last reading and restored the driver's settings.
    Done,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Since when the thread has been in the driver, CLOCK_MONOTONIC nanoseconds; `None`: it pauses.
    in_driver_since_ns: Option<u64>,
    is_last: bool,
    pids: Vec<u32>,
    batches: VecDeque<Batch>,
    /// When the last reading began, CLOCK_MONOTONIC nanoseconds.
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
    /// A panic on the other thread leaves plain data behind, which is still valid.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle of the thread.
#[derive(Debug)]
pub(super) struct Worker {
    /// The backend's name in reports.
    pub name: &'static str,
    shared: Arc<Shared>,
}

impl Worker {
    /// Start the thread. Where there can be no thread, its phase is [`Phase::Failed`].
    pub(super) fn start(name: &'static str, config: &GpuConfig, start: Start) -> Self {
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
        let (shared_with, config) = (Arc::clone(&shared), config.clone());
        let thread = std::thread::Builder::new().name(format!("gpu-{name}"));
        if let Err(error) = thread.spawn(move || work(&shared_with, &config, start)) {
            shared.lock().phase = Phase::Failed(Missing::Failed(format!("cannot start a thread: {error}")));
        }
        Self { name, shared }
    }

    pub(super) fn phase(&self) -> Phase {
        self.shared.lock().phase.clone()
    }

    /// Take what it has read. Its next reading is about these processes.
    pub(super) fn exchange(&self, pids: &[u32]) -> Vec<Batch> {
        let mut state = self.shared.lock();
        state.pids.clear();
        state.pids.extend_from_slice(pids);
        state.batches.drain(..).collect()
    }

    /// Why devices that could not be identified can't be read.
    pub(super) fn unreadable(&self) -> Vec<Missing> {
        self.shared.lock().unreadable.clone()
    }

    /// Warnings for the report.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.shared.lock().warnings.clone()
    }

    /// Ask for a last reading. Gives whether it will come soon: the thread pauses, and is not in a driver call.
    pub(super) fn ask_for_last(&self) -> bool {
        let mut state = self.shared.lock();
        state.is_last = true;
        self.shared.changed.notify_all();
        state.phase == Phase::Ready && state.in_driver_since_ns.is_none()
    }

    /// Since when the driver, which had answered before, has not returned from a call, CLOCK_MONOTONIC nanoseconds;
    /// `None`: it answers.
    pub(super) fn unresponsive_since_ns(&self, now_ns: u64) -> Option<u64> {
        let state = self.shared.lock();
        let since_ns = state.in_driver_since_ns.filter(|_| state.phase == Phase::Ready)?;
        (now_ns.saturating_sub(since_ns) >= POLICY.unresponsive_ns).then_some(since_ns)
    }

    /// How long ago the last reading began.
    pub(super) fn age(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.shared.lock().read_ns))
    }

    /// Wait for the last reading, until the deadline.
    pub(super) fn wait_done(&self, deadline: Instant) {
        self.wait(deadline, |state| matches!(state.phase, Phase::Done | Phase::Failed(_)));
    }

    /// Wait until there is a first reading, or there will be none, or the deadline.
    pub(super) fn wait_sampled(&self, deadline: Instant) {
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
        // No setting of the driver was changed yet, and the report needs no reading any more.
        if state.is_last {
            return;
        }
        state.phase = Phase::Reading;
    }
    let mut reader = Reader { config, all: Vec::new(), wanted: Vec::new(), list_at: Instant::now() };
    let interval = Duration::from_nanos(config.interval_ns).max(POLICY.shortest_interval);
    loop {
        let began = Instant::now();
        let (is_last, pids) = {
            let mut state = shared.lock();
            state.in_driver_since_ns = Some(clock::monotonic_ns());
            (state.is_last, state.pids.clone())
        };
        let batch = reader.read(backend.as_mut(), &pids);
        if is_last {
            backend.restore();
        }
        let pause = interval.max(began.elapsed() * POLICY.pause_factor);
        let mut state = shared.lock();
        state.phase = if is_last { Phase::Done } else { Phase::Ready };
        state.unreadable = backend.unreadable();
        state.warnings = backend.warnings();
        if state.batches.len() >= POLICY.most_waiting {
            state.batches.pop_front();
        }
        state.read_ns = batch.at_ns;
        state.batches.push_back(batch);
        state.in_driver_since_ns = None;
        shared.changed.notify_all();
        if is_last {
            return;
        }
        let next = began + pause;
        while !state.is_last {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What the thread keeps from one reading to the next.
struct Reader<'a> {
    config: &'a GpuConfig,
    all: Vec<Device>,
    wanted: Vec<String>,
    list_at: Instant,
}

impl Reader<'_> {
    fn read(&mut self, backend: &mut dyn Backend, pids: &[u32]) -> Batch {
        let mut batch = Batch::default();
        let began = Instant::now();
        if began >= self.list_at {
            let all = backend.devices();
            self.list_at = began + POLICY.list_interval.max(began.elapsed() * POLICY.list_pause_factor);
            if all != self.all || self.wanted.is_empty() {
                let wanted: Vec<Device> = select::wanted(self.config, &all).into_iter().cloned().collect();
                // A device that disappeared is still asked for, so that the driver reports its loss.
                let ids = wanted.iter().map(|device| device.id.clone());
                self.wanted.extend(ids.filter(|id| !self.wanted.contains(id)).collect::<Vec<_>>());
                batch.devices = Some(self.device_list(&all, wanted));
                self.all = all;
            }
        }
        batch.at_ns = clock::monotonic_ns();
        batch.samples = backend.sample(batch.at_ns, &self.wanted, pids);
        batch
    }

    fn device_list(&self, all: &[Device], wanted: Vec<Device>) -> DeviceList {
        let visibility = Visibility::new(&self.config.visible, all);
        let tracked = |device: Device| TrackedDevice { is_visible: visibility.of(&device.id), device };
        let whole = all.iter().filter(|device| device.parent.is_none());
        DeviceList {
            tracked: wanted.into_iter().map(tracked).collect(),
            machine: whole.map(|device| device.id.clone()).collect(),
            is_order_unsure: visibility.is_order_unsure,
        }
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
    fn pausing_worker_gives_last_reading() {
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

    /// Answers once, and then stays in the call until the channel closes.
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
    fn unresponsive_driver_counts_from_the_start_of_the_call() {
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
        let since_ns = worker.unresponsive_since_ns(now_ns + POLICY.unresponsive_ns).unwrap();
        assert!((before_ns..=now_ns).contains(&since_ns));
        assert_eq!(worker.unresponsive_since_ns(since_ns), None);
        drop(release);
        worker.wait_done(soon());
        assert_eq!(worker.unresponsive_since_ns(u64::MAX), None);
    }

    #[test]
    fn worker_stuck_at_its_start_is_not_waited_for() {
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
