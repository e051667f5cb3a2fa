//! The thread of a backend. The collector's other threads never wait for a driver call: they take what was read, and leave a
//! thread alone that is stuck in a call.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::backend::{Ask, Backend, Turn};
use super::policy;
use crate::model::gpu::select::{self, Visibility};
use crate::model::gpu::{Batch, Device, DeviceList, GpuConfig, Missing, Reading, TrackedDevice};
use crate::sys::clock;

/// Makes the backend, on its thread.
pub(super) type Start = Box<dyn FnOnce() -> Reading<Box<dyn Backend>> + Send>;

/// What the thread does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// It loads and initialises the driver's library.
    #[default]
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

/// What the thread and the other threads tell each other.
#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// Since when the thread has been in the driver, CLOCK_MONOTONIC nanoseconds; `None`: it pauses.
    in_driver_since_ns: Option<u64>,
    /// Every figure of every device was read.
    has_read_all: bool,
    /// Until when a last reading is wanted; `None`: the run is not over.
    last_until: Option<Instant>,
    /// The processes of the run.
    pids: Vec<u32>,
    /// What was read and not taken yet, oldest first.
    batches: VecDeque<Batch>,
    /// When the last reading began, CLOCK_MONOTONIC nanoseconds.
    read_ns: u64,
    /// Why devices that could not be identified can't be read.
    unreadable: Vec<Missing>,
    /// Names of `--guuids` that mean none of the devices.
    unknown_names: Vec<String>,
    /// Warnings for the report.
    warnings: Vec<String>,
    /// How many driver settings were changed, and are not restored.
    changed_settings: usize,
}

/// The state, and a signal for each change of it.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl State {
    /// Whether a driver setting was changed and is not restored. In the first turn that is not known, and counts as true.
    fn has_changed_settings(&self) -> bool {
        match self.phase {
            Phase::Ready => self.changed_settings > 0,
            Phase::Reading => true,
            Phase::Starting | Phase::Failed(_) | Phase::Done => false,
        }
    }

    /// As [`Worker::unresponsive_since_ns`].
    fn unresponsive_since_ns(&self, now_ns: u64) -> Option<u64> {
        let since_ns = self.in_driver_since_ns.filter(|_| self.phase == Phase::Ready)?;
        (now_ns.saturating_sub(since_ns) >= policy::UNRESPONSIVE_NS).then_some(since_ns)
    }

    /// Notes that a turn is over, and what backend and reader know by now. `is_complete`: as in [`Turn`].
    fn note_turn(&mut self, backend: &dyn Backend, reader: &Reader, is_complete: bool) {
        self.has_read_all |= is_complete;
        self.unreadable = backend.unreadable();
        self.unknown_names.clone_from(&reader.unknown_names);
        self.warnings = backend.warnings();
        self.changed_settings = backend.changed_settings();
        self.in_driver_since_ns = None;
    }

    /// Adds a batch to those that wait, if anything was read. If too many wait, the oldest is dropped. Notes when the batch was
    /// read, for [`Worker::age`].
    fn take_in(&mut self, batch: Batch) {
        if batch.samples.is_empty() && batch.devices.is_none() {
            return;
        }
        if self.batches.len() >= policy::MAX_WAITING {
            self.batches.pop_front();
        }
        self.read_ns = batch.at_ns;
        self.batches.push_back(batch);
    }
}

impl Shared {
    /// Locks the state. A panic on the other thread leaves plain data behind, which is still valid.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `next`, or until a last reading is wanted.
    fn pause(&self, mut state: MutexGuard<'_, State>, next: Instant) {
        while state.last_until.is_none() {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
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
    /// Starts the thread. Where there can be no thread, its phase is [`Phase::Failed`].
    pub(super) fn start(name: &'static str, config: &GpuConfig, start: Start) -> Self {
        let state = State { in_driver_since_ns: Some(clock::monotonic_ns()), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (shared_with, config) = (Arc::clone(&shared), config.clone());
        let thread = std::thread::Builder::new().name(format!("gpu-{name}"));
        if let Err(error) = thread.spawn(move || work(&shared_with, &config, start)) {
            shared.lock().phase = Phase::Failed(Missing::Failed(format!("cannot start a thread: {error}")));
        }
        Self { name, shared }
    }

    /// What the thread does now.
    pub(super) fn phase(&self) -> Phase {
        self.shared.lock().phase.clone()
    }

    /// Takes what the thread has read, and makes its next reading be about these processes.
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

    /// Names of `--guuids` that mean none of its devices.
    pub(super) fn unknown_names(&self) -> Vec<String> {
        self.shared.lock().unknown_names.clone()
    }

    /// Warnings for the report.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.shared.lock().warnings.clone()
    }

    /// Asks for a last reading, as far as it can be read until the time `until`. Returns whether it can come soon. It can't if the
    /// driver is unresponsive. While a process that used a GPU ends, calls wait for the driver: for 0.2 s on an H200.
    pub(super) fn ask_for_last(&self, until: Instant) -> bool {
        let mut state = self.shared.lock();
        state.last_until = Some(until);
        self.shared.changed.notify_all();
        state.phase == Phase::Ready && state.unresponsive_since_ns(clock::monotonic_ns()).is_none()
    }

    /// When the driver was called, CLOCK_MONOTONIC nanoseconds, if that call has not returned for `policy::UNRESPONSIVE_NS`. `None`: it
    /// answers, or it has never answered.
    pub(super) fn unresponsive_since_ns(&self, now_ns: u64) -> Option<u64> {
        self.shared.lock().unresponsive_since_ns(now_ns)
    }

    /// How long before `now_ns` (CLOCK_MONOTONIC) the last reading began.
    pub(super) fn age(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.shared.lock().read_ns))
    }

    /// Waits until the thread has taken its last reading or failed, at most until the deadline.
    pub(super) fn wait_done(&self, deadline: Instant) {
        self.wait(deadline, |state| matches!(state.phase, Phase::Done | Phase::Failed(_)));
    }

    /// Waits, after the last reading, until changed settings of the driver are restored, at most until the deadline. The wait ends
    /// early if none is restored for `policy::RESTORE_WAIT`. Returns whether all are restored.
    pub(super) fn wait_restored(&self, deadline: Instant) -> bool {
        let progress = || {
            let state = self.shared.lock();
            (state.has_changed_settings(), state.changed_settings)
        };
        let (mut is_any_changed, mut left) = progress();
        while is_any_changed {
            let before = left;
            let next = deadline.min(Instant::now() + policy::RESTORE_WAIT);
            self.wait(next, |state| !state.has_changed_settings() || state.changed_settings < before);
            (is_any_changed, left) = progress();
            let is_one_restored = left < before;
            if !is_one_restored || Instant::now() >= deadline {
                break;
            }
        }
        !is_any_changed
    }

    /// Waits until every figure was read, or the backend has failed, at most until the deadline.
    pub(super) fn wait_sampled(&self, deadline: Instant) {
        self.wait(deadline, |state| state.has_read_all || matches!(state.phase, Phase::Failed(_)));
    }

    /// Waits until the state `is_reached`, at most until the deadline.
    fn wait(&self, deadline: Instant, is_reached: impl Fn(&State) -> bool) {
        let mut state = self.shared.lock();
        while !is_reached(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Runs the thread: starts the backend, and reads until the run's last reading is complete or its time is over. Then it restores the
/// settings that were changed.
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
        // The run is over: the report needs no reading any more, and no setting of the driver was changed yet.
        if state.last_until.is_some() {
            return;
        }
        state.phase = Phase::Reading;
    }
    // From here on the state is locked only to take or give something: no driver is called meanwhile.
    let mut reader = Reader::new(config);
    let interval = Duration::from_nanos(config.interval_ns).max(policy::SHORTEST_INTERVAL);
    loop {
        let began = Instant::now();
        let (last_until, pids) = {
            let mut state = shared.lock();
            state.in_driver_since_ns = Some(clock::monotonic_ns());
            (state.last_until, state.pids.clone())
        };
        let (batch, turn) = reader.read(backend.as_mut(), &pids, last_until.is_some());
        let is_over = last_until.is_some_and(|until| turn.is_complete || Instant::now() >= until);
        if is_over {
            restore_all(shared, backend.as_mut());
        }
        let mut state = shared.lock();
        state.note_turn(backend.as_ref(), &reader, turn.is_complete);
        state.take_in(batch);
        state.phase = if is_over { Phase::Done } else { Phase::Ready };
        shared.changed.notify_all();
        if is_over {
            return;
        }
        let next = match turn.again_ns {
            Some(at_ns) => Instant::now() + Duration::from_nanos(at_ns.saturating_sub(clock::monotonic_ns())),
            None => began + interval.max(began.elapsed() * policy::PAUSE_FACTOR),
        };
        shared.pause(state, next);
    }
}

/// Restores the changed settings of the driver one by one: [`Worker::wait_restored`] waits while their number falls.
fn restore_all(shared: &Shared, backend: &mut dyn Backend) {
    while backend.changed_settings() > 0 {
        backend.restore_one();
        shared.lock().changed_settings = backend.changed_settings();
        shared.changed.notify_all();
    }
}

/// What the thread keeps from one reading to the next.
struct Reader<'a> {
    config: &'a GpuConfig,
    /// The devices that the backend had when they were last listed.
    all: Vec<Device>,
    /// The backend could identify each whole device then.
    has_all: bool,
    /// Ids of the devices to read.
    wanted: Vec<String>,
    /// Ids of those that the command does not see, by its environment.
    hidden: BTreeSet<String>,
    /// Names of `--guuids` that mean none of the devices.
    unknown_names: Vec<String>,
    /// When to list the devices again.
    list_at: Instant,
}

impl<'a> Reader<'a> {
    /// Makes a reader that lists the devices at its first reading.
    fn new(config: &'a GpuConfig) -> Self {
        Self {
            config,
            all: Vec::new(),
            has_all: true,
            wanted: Vec::new(),
            hidden: BTreeSet::new(),
            unknown_names: Vec::new(),
            list_at: Instant::now(),
        }
    }

    /// Reads what is due, and lists the devices if that is due. Returns both as a batch, and the turn without its samples. `pids`:
    /// the processes of the run. `is_last`: it is the end of the run, so all is to be read once more.
    fn read(&mut self, backend: &mut dyn Backend, pids: &[u32], is_last: bool) -> (Batch, Turn) {
        let mut batch = Batch::default();
        let began = Instant::now();
        // At the end of the run, listing devices could take all the time for which the report waits. Only a first list is made even
        // then: nothing is read without it.
        if began >= self.list_at && (!is_last || self.all.is_empty()) {
            let all = backend.devices();
            self.list_at = began + policy::LIST_INTERVAL.max(began.elapsed() * policy::LIST_PAUSE_FACTOR);
            batch.devices = self.take_devices(all, backend.has_all());
        }
        batch.at_ns = clock::monotonic_ns();
        let ask = Ask { at_ns: batch.at_ns, wanted: &self.wanted, hidden: &self.hidden, pids, is_last };
        let mut turn = backend.turn(&ask);
        batch.samples = std::mem::take(&mut turn.samples);
        for (figure, value) in batch.samples.iter_mut().flat_map(|sample| &mut sample.values) {
            *value = figure.believed(value.clone());
        }
        if turn.has_news {
            let has_all = backend.has_all();
            batch.devices = self.take_devices(backend.known_devices(), has_all).or(batch.devices);
        }
        (batch, turn)
    }

    /// Takes in the devices that the backend has: which are to be read, and which of these the command can't see. Also notes which
    /// names of the user mean none. Returns the list of the devices that count in this run. `None`: the list that was returned last
    /// still holds.
    fn take_devices(&mut self, all: Vec<Device>, has_all: bool) -> Option<DeviceList> {
        // While no device is wanted, each list is returned, changed or not: the first must be, even if it is empty.
        if all == self.all && has_all == self.has_all && !self.wanted.is_empty() {
            return None;
        }
        self.has_all = has_all;
        let wanted: Vec<Device> = select::wanted(self.config, &all, has_all).into_iter().cloned().collect();
        // A device that disappeared is still asked for, so that the driver reports its loss.
        let ids = wanted.iter().map(|device| device.id.clone());
        self.wanted.extend(ids.filter(|id| !self.wanted.contains(id)).collect::<Vec<_>>());
        let list = self.device_list(&all, wanted);
        let given = self.config.uuids.iter().flatten();
        self.unknown_names = given.filter(|name| select::names_none(name, &all)).cloned().collect();
        let hidden = list.tracked.iter().filter(|tracked| tracked.is_visible == Some(false));
        self.hidden = hidden.map(|tracked| tracked.device.id.clone()).collect();
        self.all = all;
        Some(list)
    }

    /// The wanted devices with their visibility to the command, and the ids of all whole devices of the machine.
    fn device_list(&self, all: &[Device], wanted: Vec<Device>) -> DeviceList {
        let visibility = Visibility::new(&self.config.visible, all, self.has_all);
        let tracked =
            |device: Device| TrackedDevice { is_visible: visibility.is_visible(&device.id), device };
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

        fn turn(&mut self, ask: &Ask<'_>) -> Turn {
            let sample = |id: &String| DeviceSample::of_device(id);
            Turn { samples: ask.wanted.iter().map(sample).collect(), is_complete: true, ..Turn::default() }
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
        assert!(worker.ask_for_last(soon()));
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

        fn turn(&mut self, ask: &Ask<'_>) -> Turn {
            self.1 += 1;
            if self.1 > 1 {
                let _ = self.0.recv();
            }
            Plain.turn(ask)
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
        worker.ask_for_last(soon());
        let since_ns = worker.unresponsive_since_ns(now_ns + policy::UNRESPONSIVE_NS).unwrap();
        assert!((before_ns..=now_ns).contains(&since_ns));
        assert_eq!(worker.unresponsive_since_ns(since_ns), None);
        drop(release);
        worker.wait_done(soon());
        assert_eq!(worker.unresponsive_since_ns(u64::MAX), None);
    }

    /// Changed a setting, and stays in its second call until the channel closes.
    struct Changed(Stuck, mpsc::Sender<()>, bool);

    impl Backend for Changed {
        fn devices(&mut self) -> Vec<Device> {
            self.0.devices()
        }

        fn turn(&mut self, ask: &Ask<'_>) -> Turn {
            self.0.turn(ask)
        }

        fn changed_settings(&self) -> usize {
            usize::from(!self.2)
        }

        fn restore_one(&mut self) {
            self.2 = true;
            self.1.send(()).unwrap();
        }
    }

    // Requirement: GPU-15
    #[test]
    fn thread_that_was_left_behind_restores_settings_when_the_driver_returns() {
        let (release, stuck) = mpsc::channel::<()>();
        let (restored, is_restored) = mpsc::channel::<()>();
        let backend = Changed(Stuck(stuck, 0), restored, false);
        let worker = Worker::start("changed", &GpuConfig::default(), Box::new(|| Ok(Box::new(backend))));
        worker.wait_sampled(soon());
        worker.ask_for_last(Instant::now());
        assert!(!worker.wait_restored(soon()), "the driver does not answer");
        assert!(is_restored.try_recv().is_err());
        drop(release);
        is_restored.recv().unwrap();
        assert!(worker.wait_restored(soon()));
    }

    #[test]
    fn worker_stuck_at_its_start_is_not_waited_for() {
        let (release, stuck) = mpsc::channel::<()>();
        let start: Start = Box::new(move || {
            let _ = stuck.recv();
            Err(Missing::NoDriver)
        });
        let worker = Worker::start("stuck", &GpuConfig::default(), start);
        assert!(!worker.ask_for_last(soon()));
        assert_eq!(worker.phase(), Phase::Starting);
        drop(release);
        worker.wait_done(soon());
        assert_eq!(worker.phase(), Phase::Failed(Missing::NoDriver));
    }
}
