//! Containers that a daemon runs for calls of the tree, such as `docker run`. They are no processes of the tree, so the daemon's events
//! and their cgroups tell what they used.
//!
//! Nothing is done before a call of the tree asks a daemon for a container. From then on, a thread reads the daemon's events, which don't say
//! for whom it starts a container. The thread follows those that a call can have meant, and the core concludes which ones belong to the tree.

mod event;
mod followed;
mod follower;
mod notes;
mod reply;
mod shared;
pub mod socket;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use follower::{Follower, Start};
use shared::Shared;

use crate::model::containers::{ContainerDaemon, ContainerSeen, DaemonState, WantedContainers};
use crate::model::observation::Observation;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::safe_path::User;
use crate::sys::signal_mask;

/// How long the end of the run waits for the last events. A daemon that answers does so within some milliseconds.
const LAST_EVENTS: Duration = Duration::from_millis(500);

/// Follows the containers of the daemons that calls of the tree ask.
#[derive(Debug)]
pub(crate) struct ContainerMonitor {
    root: ProcRoot,
    /// When the run began, nanoseconds since 1970.
    since_ns: u64,
    /// The notes of docker's proxy, if there is one.
    notes: Option<PathBuf>,
    workers: Vec<Worker>,
}

/// The thread of a daemon, as the loop sees it.
#[derive(Debug)]
struct Worker {
    daemon: ContainerDaemon,
    /// `None`: the thread could not be started.
    shared: Option<Arc<Shared>>,
    /// How many of the run's wishes it knows.
    wishes: usize,
    /// How many files of `--cidfile` it knows.
    cidfiles: usize,
}

impl Worker {
    /// Tells the thread what is wanted since the last call.
    fn order(&mut self, wanted: &WantedContainers) {
        let Some(shared) = &self.shared else { return };
        let wishes = wanted.wishes.get(self.wishes..).unwrap_or_default();
        let cidfiles = wanted.cidfiles.get(self.cidfiles..).unwrap_or_default();
        let own = || wishes.iter().filter(|(daemon, _)| *daemon == self.daemon).map(|(_, wish)| wish.clone());
        if own().next().is_some() || !cidfiles.is_empty() {
            shared.order(|orders| {
                orders.wishes.extend(own());
                orders.cidfiles.extend_from_slice(cidfiles);
            });
        }
        (self.wishes, self.cidfiles) = (wanted.wishes.len(), wanted.cidfiles.len());
    }
}

impl ContainerMonitor {
    /// Prepares to follow containers since this time, nanoseconds since 1970. `notes`: as the field.
    pub(crate) fn new(root: ProcRoot, since_ns: u64, notes: Option<PathBuf>) -> Self {
        Self { root, since_ns, notes, workers: Vec::new() }
    }

    /// Reads the new notes of docker's proxy. `read_bytes`: how many bytes of them were read before.
    pub(crate) fn notes(&self, read_bytes: u64) -> Option<Observation> {
        notes::after(self.notes.as_deref()?, read_bytes)
    }

    /// Follows the containers that the tree can have asked for by now. Returns what was seen since the last call. `known` gives the
    /// containers of a daemon that an earlier collector knew.
    pub(crate) fn exchange(
        &mut self,
        wanted: &WantedContainers,
        known: impl Fn(ContainerDaemon) -> Vec<ContainerSeen>,
    ) -> Vec<Observation> {
        let mut observations = Vec::new();
        for (daemon, _) in &wanted.wishes {
            if !self.workers.iter().any(|worker| worker.daemon == *daemon) {
                let shared = self.start(*daemon, known(*daemon));
                if let Err(reason) = &shared {
                    observations.push(state(*daemon, Err(reason.clone())));
                }
                self.workers.push(Worker { daemon: *daemon, shared: shared.ok(), wishes: 0, cidfiles: 0 });
            }
        }
        for worker in &mut self.workers {
            worker.order(wanted);
            let Some(shared) = &worker.shared else { continue };
            observations.extend(taken(worker.daemon, shared));
        }
        observations
    }

    /// Ends the threads. Returns what they saw up to now.
    pub(crate) fn finish(&self) -> Vec<Observation> {
        let mut observations = Vec::new();
        let deadline = Instant::now() + LAST_EVENTS;
        let workers =
            || self.workers.iter().filter_map(|worker| Some((worker.daemon, worker.shared.as_ref()?)));
        for (_, shared) in workers() {
            shared.order(|orders| orders.end_by = Some(deadline));
        }
        for (daemon, shared) in workers() {
            shared.await_end(deadline);
            observations.extend(taken(daemon, shared));
        }
        observations
    }

    /// Starts the thread of a daemon.
    fn start(&self, daemon: ContainerDaemon, known: Vec<ContainerSeen>) -> Result<Arc<Shared>, String> {
        let start = Start {
            daemon,
            root: self.root.clone(),
            user: User::this(),
            sockets: socket::paths(daemon, |name| std::env::var_os(name))?,
            since_ns: self.since_ns,
            known,
        };
        let failed = |error: std::io::Error| format!("no thread for its events could be started ({error})");
        let shared = Arc::new(Shared::new().map_err(failed)?);
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("gpu-track-cont".into());
        let work = move || {
            signal_mask::block_all();
            Follower::new(start, of_thread).work();
        };
        thread.spawn(work).map_err(failed)?;
        Ok(shared)
    }
}

/// What a thread has seen since it was last asked.
fn taken(daemon: ContainerDaemon, shared: &Shared) -> Vec<Observation> {
    let (of_daemon, seen) = shared.take();
    let seen = seen.into_iter().map(|seen| Observation::Container(Box::new(seen)));
    of_daemon.map(|answer| state(daemon, answer)).into_iter().chain(seen).collect()
}

fn state(daemon: ContainerDaemon, state: DaemonState) -> Observation {
    Observation::ContainerDaemon { daemon, state }
}
