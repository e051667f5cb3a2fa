//! The GPU room as the session sees it: started with the run, told who lives at each tick, asked for the usage.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::worker::{Phase, Start, Worker};
use super::{drm, nvml};
use crate::model::gpu::config::{GpuConfig, Vendor};
use crate::model::gpu::{Batch, Missing, NVIDIA};
use crate::run::gpu::GpuAccount;
use crate::run::gpu::usage::Whose;
use crate::run::tree::Tree;
use crate::sys::clock;
use crate::sys::proc_fs::{ProcRoot, Statm};

/// The report waits this long for a last reading, and only for a thread that rests: one in a driver's call, or one
/// that still initialises the driver, is not waited for at all.
const LAST_READING: Duration = Duration::from_millis(20);
/// A last reading that is older than this, or than two intervals, at the end is told of.
const LATE: Duration = Duration::from_millis(500);
/// Settings that we changed are put back before we go, even if the driver takes long.
const PUT_BACK: Duration = Duration::from_secs(2);
/// What the devices of GPUs begin with (NVIDIA, WSL, DRM, KFD).
const GPU_DEVICES: [&str; 4] = ["/dev/nvidia", "/dev/dxg", "/dev/dri/", "/dev/kfd"];
/// Inode of the initial pid namespace (the kernel's PROC_PID_INIT_INO).
const INITIAL_PID_NS: u32 = 0xEFFF_FFFC;

/// The backends and what comes from them.
#[derive(Debug)]
pub struct GpuRoom {
    config: GpuConfig,
    workers: Vec<Worker>,
    /// Samples wait here for one tick: the records of the processes in them may come later than they.
    waiting: Vec<Batch>,
    root: ProcRoot,
    is_initial_pid_ns: bool,
}

/// The backends that this machine may have, each on its thread.
#[must_use]
pub fn workers(config: &GpuConfig) -> Vec<Worker> {
    let mut workers = Vec::new();
    if config.wants(Vendor::Nvidia) && config.may_have_nvidia() {
        let own = config.clone();
        let start: Start = Box::new(move || Ok(Box::new(nvml::Nvml::start(&own)?)));
        workers.push(Worker::start(NVIDIA, config, start));
    }
    if (config.wants(Vendor::Amd) || config.wants(Vendor::Intel)) && config.may_have_drm() {
        let own = config.clone();
        let start: Start = Box::new(move || Ok(Box::new(drm::Drm::start(&own)?)));
        workers.push(Worker::start("AMD and Intel", config, start));
    }
    workers
}

impl GpuRoom {
    /// Start the threads. Costs a few `stat` calls where there is no driver.
    #[must_use]
    pub fn start(config: &GpuConfig, root: &ProcRoot, account: &mut GpuAccount) -> Self {
        let workers = workers(config);
        account.is_on = !workers.is_empty();
        account.roster.set_epoch(clock::realtime_ns().saturating_sub(clock::monotonic_ns()) / 1000);
        Self {
            workers,
            config: config.clone(),
            waiting: Vec::new(),
            is_initial_pid_ns: root.pid_ns(std::process::id()).is_none_or(|ns| ns == INITIAL_PID_NS),
            root: root.clone(),
        }
    }

    /// Take in what the threads have read, and tell them who lives.
    pub fn tick(&mut self, account: &mut GpuAccount, tree: &Tree, now_ns: u64) {
        if self.workers.is_empty() {
            return;
        }
        // One without a device is not worth a look at who lives.
        self.workers.retain(|worker| worker.phase() != Phase::Failed(Missing::NoDevice));
        account.is_on = !self.workers.is_empty();
        account.roster.update(tree);
        let known = std::mem::take(&mut self.waiting);
        self.take_in(account, &known);
        self.note_silent(account, now_ns);
        let pids = account.roster.pids();
        self.waiting = self.workers.iter().flat_map(|worker| worker.exchange(&pids)).collect();
        for person in account.roster.forget(now_ns) {
            account.usage.ended(&person);
        }
        account.usage.forget_times(account.roster.oldest_ns().unwrap_or(now_ns));
    }

    fn note_silent(&self, account: &mut GpuAccount, now_ns: u64) {
        let silent = self.workers.iter().filter_map(|worker| {
            worker.silent_since_ns(now_ns).map(|since_ns| (worker.name.to_owned(), since_ns))
        });
        account.usage.silent = silent.collect();
    }

    fn take_in(&self, account: &mut GpuAccount, batches: &[Batch]) {
        for sample in batches.iter().flat_map(|batch| &batch.samples) {
            for pid in sample.pids() {
                account.roster.meet(pid, |pid| self.root.status(pid)?.tgid);
                if !self.is_initial_pid_ns {
                    account.roster.check(pid, |pid| self.has_gpu_open(pid));
                }
            }
        }
        let memory = |pid: u32| self.root.read(pid, "statm").and_then(|text| Statm::parse(&text));
        // A kernel thread, or nobody: can't be the one that uses a GPU.
        let is_taken = |pid: u32| memory(pid).is_some_and(|statm| statm.size > 0);
        // In a container, or in a sandbox whose processes are all one to the driver (gVisor).
        let is_nobody = |pid: u32| memory(pid).is_none();
        let is_foreign = |pid: u32| {
            !self.is_initial_pid_ns
                && self.has_gpu_open(pid).map_or_else(|| is_nobody(pid), |is_open| !is_open)
        };
        let whose = Whose { roster: &account.roster, is_taken: &is_taken, is_foreign: &is_foreign };
        for batch in batches {
            account.usage.add(&self.config, batch, whose);
        }
    }

    /// Whether a process has a GPU open; `None`: it is not there, or we may not look.
    fn has_gpu_open(&self, pid: u32) -> Option<bool> {
        let devices = GPU_DEVICES.map(|device| self.config.path(device).into_os_string());
        let is_device = |link: PathBuf| {
            let link = link.as_os_str().as_encoded_bytes();
            devices.iter().any(|device| link.starts_with(device.as_encoded_bytes()))
        };
        let files = std::fs::read_dir(self.root.path(pid, "fd")).ok()?;
        let mut links = files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok()).peekable();
        // A zombie has none.
        links.peek()?;
        Some(links.any(is_device))
    }

    /// The run is over: take in a last reading if it comes at once, and all that waits.
    pub fn finish(&mut self, account: &mut GpuAccount, tree: &Tree) {
        if self.workers.is_empty() {
            return;
        }
        // Who ended since the last tick may have an account with the driver.
        account.roster.update(tree);
        let pids = account.roster.pids();
        let mut batches = std::mem::take(&mut self.waiting);
        batches.extend(self.workers.iter().flat_map(|worker| worker.exchange(&pids)));
        let coming: Vec<bool> = self.workers.iter().map(Worker::ask_for_last).collect();
        let deadline = Instant::now() + LAST_READING;
        for (worker, _) in self.workers.iter().zip(coming).filter(|(_, is_coming)| *is_coming) {
            worker.wait_done(deadline);
        }
        // Asked before its readings are taken: one that is ready now has given what it had.
        let phases: Vec<Phase> = self.workers.iter().map(Worker::phase).collect();
        batches.extend(self.workers.iter().flat_map(|worker| worker.exchange(&[])));
        self.take_in(account, &batches);
        let now_ns = clock::monotonic_ns();
        self.note_silent(account, now_ns);
        account.finish(tree);
        for (worker, phase) in self.workers.iter().zip(phases) {
            match phase {
                Phase::Starting => account.usage.failed.push((worker.name.to_owned(), Missing::NotYet)),
                Phase::Reading => account.usage.failed.push((worker.name.to_owned(), Missing::FirstReading)),
                Phase::Failed(Missing::NoDevice) => {}
                Phase::Failed(missing) => account.usage.failed.push((worker.name.to_owned(), missing)),
                Phase::Ready | Phase::Done => {
                    let age = worker.age(now_ns);
                    if worker.silent_since_ns(now_ns).is_none()
                        && age > LATE.max(Duration::from_nanos(self.config.interval_ns.saturating_mul(2)))
                    {
                        account.usage.notes.push(format!(
                        "{} GPUs: the last reading began {:.1} s before the report, since the driver or the machine was slow; \
                         their figures end there.",
                        worker.name,
                        age.as_secs_f64()
                    ));
                    }
                }
            }
            account.usage.unreadable.extend(worker.unreadable());
            account.usage.notes.extend(worker.warnings());
        }
    }

    /// After the report: settings of the driver that were changed must not stay.
    pub fn put_back(&self) {
        if self.config.accounting {
            let deadline = Instant::now() + PUT_BACK;
            for worker in &self.workers {
                if matches!(worker.phase(), Phase::Reading | Phase::Ready) {
                    worker.wait_done(deadline);
                }
            }
        }
    }
}
