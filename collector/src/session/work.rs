//! The collector's loop: take in what the sources find, sample, and at the end write the report.
//!
//! It is woken by the doorbell (ring filling up, command ended), by the sampling tick, and every 50 ms at the latest,
//! whatever the interval. All that the sources see goes to the core as observations; what the core wants to know is
//! read and goes back the same way.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::error::SessionError;
use super::messages::Messages;
use super::own_process;
use crate::model::config::{Config, Message};
use crate::model::finding::Damage;
use crate::model::host::{CommandExit, HostInfo};
use crate::model::observation::Observation;
use crate::model::style::Output;
use crate::passes::Passes;
use crate::recover;
use crate::run::RunState;
use crate::run::schedule::Schedule;
use crate::sources::connector::Members;
use crate::sources::exit_watch::ExitWatch;
use crate::sources::gpu::monitor::GpuMonitor;
use crate::sources::membership::Membership;
use crate::sources::pump::{Pump, Sources};
use crate::sources::sampler::Sampler;
use crate::sources::scan::Scanner;
use crate::sources::sender;
use crate::store::checkpoint::CheckpointWriter;
use crate::store::journal::JournaledRun;
use crate::store::state_file::StateFile;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::segment::Segment;
use crate::sys::{clock, pidfd, priority};

/// Records and messages are looked at this often at least.
const LOOK_NS: u64 = 50_000_000;
/// After so many findings the core checks whether they can be true.
const FINDINGS_AT_ONCE: usize = 1024;
/// The report-so-far is written after this time, then each time the run is twice as old, or this much older.
const FIRST_INTERIM_NS: u64 = 2_000_000_000;
pub(super) const LONGEST_INTERIM_NS: u64 = 60_000_000_000;
/// The first one is early where the file has the report of another run: if this run is killed, that would be taken for
/// its own.
const FIRST_INTERIM_OVER_ANOTHER_NS: u64 = 200_000_000;

pub(super) struct Session {
    pub(super) config: Config,
    pub(super) host: HostInfo,
    pub(super) segment: Arc<Segment>,
    pub(super) root: ProcRoot,
    pub(super) run: JournaledRun,
    pub(super) pump: Pump,
    pub(super) readers: Readers,
    pub(super) checkpoint: CheckpointWriter,
    pub(super) schedule: Schedule,
    pub(super) timers: Timers,
    /// What was wrong with the records that earlier collectors read.
    earlier_damage: Damage,
    pub(super) end: End,
}

/// What reads /proc and the drivers when the loop asks.
pub(super) struct Readers {
    pub(super) membership: Membership,
    pub(super) scanner: Scanner,
    pub(super) exits: ExitWatch,
    pub(super) passes: Passes,
    pub(super) gpu: GpuMonitor,
}

/// When what is due, CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Timers {
    pub(super) scan_ns: u64,
    pub(super) finalize_ns: u64,
    pub(super) system_ns: u64,
    pub(super) interim_ns: u64,
    pub(super) eager_until_ns: u64,
    /// Uninstrumented programs that were known when that was last set.
    pub(super) uninstrumented_programs: u64,
}

/// How the run ends.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) status: Option<i32>,
    pub(super) exit: Option<CommandExit>,
    pub(super) is_cancelled: bool,
}

impl Session {
    pub(super) fn new(
        config: Config,
        segment: Arc<Segment>,
        state: Arc<StateFile>,
        connector: Option<OwnedFd>,
    ) -> Result<Self, SessionError> {
        let root = ProcRoot::default();
        let host = HostInfo::of_this_machine(&root);
        // The command's own are known by now.
        own_process::raise_limits();
        // Orphans of a program that a driver starts are reparented to the collector, not to the launcher, which would
        // count them as the command's.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        recover::note(&state, &config, &host);
        let start_ns = config.started_monotonic_ns;
        let new = || RunState::of_run(&config, &host);
        let now_ns = clock::monotonic_ns();
        let (checkpoint, run) = CheckpointWriter::resume(state, &segment, config.restarts > 0, now_ns, new);
        let mut run = JournaledRun::new(run);
        if let Some(path) = config.journal.as_ref().filter(|_| config.restarts == 0) {
            // It is for developers. If it can't be created, there is no such file.
            let _ = run.write_to(path, &config, &host);
        }
        if connector.is_none() {
            let reason = config.connector_absent.clone().unwrap_or("no socket".into());
            run.apply(now_ns, Observation::ConnectorAbsent(reason));
        }
        let own_pid = std::process::id();
        let pidfd_inode = pidfd::inode(own_pid).unwrap_or(0);
        run.apply(now_ns, Observation::PidNumber { pid: own_pid, pidfd_inode });
        // Given up once, it stays so.
        let connector = connector.filter(|_| run.health.connector.absent.is_none());
        let membership = Membership::new(root.clone(), segment.named().path(), config.launcher_pid);
        let sources = Sources {
            segment: Arc::clone(&segment),
            journal: checkpoint.state(),
            begin: run.found,
            connector,
            dropped: run.health.connector.dropped,
            // What waits in the socket may be about the command before the run state knows of it.
            members: Members::new(
                run.tree.host_pids().chain([config.launcher_pid]).chain(config.running_pid),
                own_pid,
                (config.restarts > 0).then_some(config.launcher_pid),
            ),
            pid_ns: config.pid_ns,
            membership: membership.clone(),
        };
        let pump = Pump::start(sources, std::thread::current()).map_err(SessionError::Thread)?;
        if run.health.forgery.is_some() {
            pump.distrust();
        }
        priority::prefer_short_slices();
        let tick_us = host.tick_us();
        let readers = Readers {
            membership,
            scanner: Scanner::new(root.clone(), tick_us),
            exits: ExitWatch::default(),
            passes: Passes::new(
                Sampler::new(root.clone(), host.page_bytes, tick_us),
                config.policy.budget,
                run.sampled_ns,
            ),
            gpu: GpuMonitor::start(&config.gpu, &root),
        };
        run.apply(now_ns, Observation::GpuBackends { is_any: readers.gpu.is_active() });
        let is_replacing = matches!(&config.output, Output::File(path) if path.exists());
        let first_interim_ns = if is_replacing { FIRST_INTERIM_OVER_ANOTHER_NS } else { FIRST_INTERIM_NS };
        let timers = Timers {
            interim_ns: start_ns.saturating_add(first_interim_ns),
            uninstrumented_programs: run.tree.counts().uninstrumented_programs,
            ..Timers::default()
        };
        let schedule = Schedule::new(config.policy, config.interval_ns, start_ns);
        let earlier_damage = run.health.damage;
        let end = End::default();
        Ok(Self {
            config,
            host,
            segment,
            root,
            run,
            pump,
            readers,
            checkpoint,
            schedule,
            timers,
            earlier_damage,
            end,
        })
    }

    pub(super) fn work(&mut self, messages: &mut Messages) -> Result<(), SessionError> {
        loop {
            self.listen(messages)?;
            let now_ns = clock::monotonic_ns();
            let is_due = now_ns >= self.schedule.due_ns();
            if is_due {
                self.pump.freshen();
            }
            let complete_ns = self.drain();
            self.finalize(complete_ns);
            let now_ns = clock::monotonic_ns();
            // A program for which it was due may have reported meanwhile.
            let is_due = now_ns >= self.schedule.due_ns();
            let largest = self.run.high_water_mark().combined;
            let deferral = self.schedule.deferral(now_ns, self.run.sampled_ns, largest);
            let is_deferred =
                is_due && self.schedule.defer(deferral, now_ns, |bytes| self.run.tree.last_end_of(bytes));
            let is_tick = is_due && !is_deferred;
            let is_on_grid = is_tick && self.schedule.is_on_grid(now_ns);
            if self.schedule.is_overfull(self.run.tree.intervals_waiting()) {
                self.sample(now_ns, None);
            } else if is_tick {
                self.sample(now_ns, deferral);
            }
            self.checkpoint.save_if_due(&self.run, is_on_grid);
            let launcher_is_gone = messages.is_closed && self.end.exit.is_none();
            if self.end.exit.is_some()
                || self.end.is_cancelled
                || (launcher_is_gone && is_tick && self.run.tree.alive().is_empty())
            {
                return Ok(());
            }
            if now_ns >= self.timers.interim_ns {
                self.write_interim(now_ns);
            }
            let next = self.schedule.due_ns().min(now_ns + LOOK_NS);
            // The pump's doorbell ends the nap.
            std::thread::park_timeout(Duration::from_nanos(next.saturating_sub(clock::monotonic_ns())));
        }
    }

    fn listen(&mut self, messages: &mut Messages) -> Result<(), SessionError> {
        while self.end.exit.is_none()
            && let Some(line) = messages.line()?
        {
            match serde_json::from_slice(&line)? {
                Message::Started { pid, monotonic_ns: start_ns } => {
                    let program = self.config.command.first().map_or("", String::as_str);
                    let command = program.rsplit('/').next().unwrap_or(program).to_owned();
                    self.apply(Observation::CommandStarted { pid, start_ns, command });
                }
                Message::Signalled { signal, monotonic_ns, sender_pid, sender_uid } => {
                    let received = sender::received(&self.root, signal, monotonic_ns, sender_pid, sender_uid);
                    self.apply(Observation::SignalReceived(received));
                }
                Message::Cancelled => self.end.is_cancelled = true,
                Message::Ended { status, monotonic_ns, children_cpu_us } => {
                    self.end.status = Some(status);
                    self.end.exit = Some(CommandExit { at_ns: monotonic_ns, children_cpu_us });
                }
            }
        }
        Ok(())
    }

    pub(super) fn apply(&mut self, observation: Observation) {
        self.run.apply(clock::monotonic_ns(), observation);
    }

    /// Takes in what the pump has read. Returns a time up to which every record was read.
    pub(super) fn drain(&mut self) -> u64 {
        let (batches, complete_ns) = self.pump.take();
        let connector = self.run.health.connector.clone();
        let was_forged = self.run.health.forgery.is_some();
        for batch in batches {
            // It may have come while the one before was taken in, with records of that time.
            let now_ns = clock::monotonic_ns();
            for part in batch.chunks(FINDINGS_AT_ONCE) {
                self.run.apply(now_ns, Observation::Findings(part.to_vec()));
                if self.run.health.forgery.is_none() && self.run.suspicion(now_ns).is_some() {
                    // Read only now: /proc/stat is long on large machines.
                    let made = self.root.forks().zip(self.config.forks_before);
                    let made = made.map(|(forks, before)| forks.saturating_sub(before));
                    self.run.apply(now_ns, Observation::MachineForks(made));
                }
            }
        }
        if self.run.health.forgery.is_some() && !was_forged {
            self.pump.distrust();
        }
        let damage = self.earlier_damage.plus(self.pump.damage());
        if damage != self.run.health.damage {
            self.apply(Observation::RecordsDamaged(damage));
        }
        if self.run.health.connector != connector {
            self.timers.scan_ns = 0;
            self.readers.scanner.look_again();
        }
        self.look();
        complete_ns
    }

    /// Compute the figures of processes that are over. Which of the others have left /proc is not asked at every wake.
    pub(super) fn finalize(&mut self, complete_ns: u64) {
        let now_ns = clock::monotonic_ns();
        let is_due = now_ns >= self.timers.finalize_ns;
        if is_due {
            self.timers.finalize_ns = now_ns.saturating_add(LOOK_NS);
        }
        self.finalize_now(complete_ns, is_due);
    }

    pub(super) fn finalize_now(&mut self, complete_ns: u64, asks_all: bool) {
        let questions = self.run.tree.absence_questions(asks_all);
        let gone = questions.into_iter().filter(|target| pidfd::is_gone(target.pid));
        let absent: Vec<_> = gone.map(|target| (target.id, clock::monotonic_ns())).collect();
        if !absent.is_empty() {
            self.apply(Observation::Absent(absent));
        }
        self.apply(Observation::Finalize { complete_ns });
    }
}
