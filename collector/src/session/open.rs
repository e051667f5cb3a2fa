//! Opens what a collector's loop works with: the run state (new, or that of a killed collector), the outputs, the pump and the
//! readers.

use std::path::Path;
use std::sync::Arc;

use super::error::SessionError;
use super::orders::OrderPipe;
use super::readers::Readers;
use super::run_loop::Session;
use super::told::Told;
use super::without_launcher::OwnEnder;
use crate::model::config::{Config, Layer};
use crate::model::host_info::HostInfo;
use crate::model::observation::Observation;
use crate::recover;
use crate::run::RunState;
use crate::run::schedule::Schedule;
use crate::run::usable_at_start::usable_at_start;
use crate::sinks::{SinkContext, Sinks};
use crate::sources::connector::{Connector, Launcher, Members, Subscription};
use crate::sources::host;
use crate::sources::membership::Membership;
use crate::sources::pump::{Pump, Sources};
use crate::store::checkpoint::CheckpointWriter;
use crate::store::replay_journal::JournaledRun;
use crate::store::state_file::StateFile;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::segment::Segment;
use crate::sys::{clock, pidfd, priority, rlimit};

/// The first report-so-far is written at this age of the run.
const FIRST_INTERIM_NS: u64 = 2_000_000_000;
/// The first report-so-far is written at this age if the file has the report of another run. If this run were killed before, that
/// report would be taken for its own.
const FIRST_INTERIM_OVER_ANOTHER_NS: u64 = 200_000_000;

impl Session {
    /// Opens the session. If a killed collector left its state, the session goes on from that. `subscription`: to the process
    /// connector; `None`: the launcher could not subscribe. `orders`: the pipe to the launcher.
    ///
    /// # Errors
    /// If the connector's inbox can't be mapped, or the pump's thread can't be started.
    pub(super) fn open(
        config: Config,
        segment: Arc<Segment>,
        state: Arc<StateFile>,
        subscription: Option<Subscription>,
        orders: OrderPipe,
    ) -> Result<Self, SessionError> {
        let root = ProcRoot::default();
        let host = host::of_this_machine(&root, config.attached.map(|process| process.pid));
        // After `host` was read: that must have the limits that the command got, and not the raised ones.
        rlimit::raise_own();
        // A GPU driver's library, which the collector loads, can start programs. Their orphans then come to the collector, and not to
        // the launcher, which would count them as the command's.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        // For a report by another process, if the run is killed as a whole or is asked for a report while it runs.
        recover::note(&state, &config, &host);
        let now_ns = clock::monotonic_ns();
        let new = || RunState::of_run(&config, &host);
        let (checkpoint, run) = CheckpointWriter::resume(state, &segment, config.restarts > 0, now_ns, new);
        let mut run = begin_journal(run, &config, &host);
        if subscription.is_none() {
            let reason = config.discovery.connector_absent.clone().unwrap_or("no socket".into());
            run.apply(now_ns, Observation::ConnectorAbsent(reason));
        }
        note_own_pid(&mut run, now_ns);
        let sinks = open_sinks(&mut run, &config, &host, &segment, now_ns);
        let membership = Membership::new(root.clone(), segment.named().known(), config.start.launcher_pid);
        // An earlier collector may have given up the connector, for the whole run.
        let connector = subscription.filter(|_| run.has_connector()).map(Connector::open).transpose();
        let sources = Sources {
            segment: Arc::clone(&segment),
            journal: checkpoint.state(),
            // How far an earlier collector has read.
            begin: run.found,
            connector: connector.map_err(SessionError::Inbox)?,
            dropped: run.health.connector.dropped,
            uninstrumented: run.tree.counts().uninstrumented_programs,
            has_records: config.attached.is_none() && config.discovery.uses(Layer::Preload),
            members: members(&run, &config),
            pid_ns: config.start.pid_ns,
            membership: membership.clone(),
        };
        let pump = Pump::start(sources, std::thread::current()).map_err(SessionError::Thread)?;
        // The core ignores records since an earlier collector found forged ones, so the pump need not read them.
        if run.health.forgery.is_some() {
            pump.distrust();
        }
        priority::prefer_short_slices();
        let mut readers = Readers::open(&config, &host, root, membership, &segment, run.sampled_ns);
        run.apply(now_ns, Observation::GpuBackends(readers.gpu.is_active()));
        // A collector's first reading of I/O is what later ones are counted from, so it is made now. If a process is still to be
        // attached, `attach` makes it, when the descendants of the process are known: what all did before does not count.
        let is_to_attach = config.attached.is_some() && !run.tree.has_main();
        if !is_to_attach && let Some(io) = readers.read_io(&run, now_ns, None) {
            run.apply(now_ns, io);
        }
        Ok(Self {
            next_interim_ns: first_interim_ns(&config),
            schedule: Schedule::new(config.policy, config.tracking.interval_ns(), config.start.monotonic_ns),
            earlier_damage: run.health.damage,
            told: Told::default(),
            alone: None,
            own_ender: OwnEnder::default(),
            config,
            host,
            segment,
            run,
            pump,
            readers,
            checkpoint,
            orders,
            sinks,
        })
    }
}

/// Begins the journal of the run, if `--journal` is given. If its file can't be written, the run goes on without it.
///
/// After a restart there is no new journal: it would lack the earlier observations, and could not be replayed.
fn begin_journal(run: Box<RunState>, config: &Config, host: &HostInfo) -> JournaledRun {
    let mut run = JournaledRun::new(run);
    if let Some(path) = config.journal.as_ref().filter(|_| config.restarts == 0) {
        let _ = run.write_to(path, config, host);
    }
    run
}

/// Opens the outputs of the run. Tells the core which could not be opened, and which items (samples, events and others) they want.
fn open_sinks(
    run: &mut JournaledRun,
    config: &Config,
    host: &HostInfo,
    segment: &Segment,
    now_ns: u64,
) -> Sinks {
    let usable = usable_at_start(config, host);
    let segment = (segment.named().path(), segment.header().session_id);
    let context = SinkContext { config, host, usable: &usable, segment };
    let (sinks, observations) = Sinks::open(&context, &run.samples.outbox);
    observations.into_iter().for_each(|observation| run.apply(now_ns, observation));
    sinks
}

/// Tells the core the collector's pid and the inode of its pidfd. See [`Observation::PidNumber`] for what this pair shows.
fn note_own_pid(run: &mut JournaledRun, now_ns: u64) {
    let pid = std::process::id();
    let pidfd_inode = pidfd::inode(pid).unwrap_or(0);
    run.apply(now_ns, Observation::PidNumber { pid, pidfd_inode });
}

/// The processes whose connector events count. Events that wait in the socket can be of a process that has ended since, so
/// all processes of the tree are among them. They can also be of the command, before the run state knows of it.
fn members(run: &RunState, config: &Config) -> Members {
    let unknown_main = config.main_pid.filter(|_| !run.tree.has_main());
    let attached = config.attached.map(|process| process.pid);
    let known = run.tree.host_pids().chain(unknown_main).chain(attached);
    // The launcher is about to start the command: the next child that it forks is that. A collector that replaces another one knows
    // the command's pid from its configuration.
    let starts_command = config.restarts == 0 && attached.is_none() && !config.command.is_empty();
    let launcher = Launcher { pid: config.start.launcher_pid, starts_command };
    Members::new(known, std::process::id(), launcher)
}

/// When the first report-so-far is written, CLOCK_MONOTONIC nanoseconds.
fn first_interim_ns(config: &Config) -> u64 {
    let is_replacing = config.report.files().any(Path::exists);
    let age_ns = if is_replacing { FIRST_INTERIM_OVER_ANOTHER_NS } else { FIRST_INTERIM_NS };
    config.start.monotonic_ns.saturating_add(age_ns)
}
