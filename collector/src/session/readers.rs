//! The sources that the loop reads, and when it reads each.
//!
//! | when | what is read |
//! |---|---|
//! | at each wake | containers, once a call of the tree has asked for one; programs and zombies that the core asks about; ends that pidfds show; the kernel's accounts of exits; which ended processes have left /proc |
//! | before a sample | memberships, children in /proc, programs that have not reported |
//! | in a sample | the live processes, and the programs that they run by now |
//! | after a sample | GPUs, and sources with a period of their own |
//! | at 50 ms, and at the end | pressure and CPU quota |
//! | at the end | block I/O of the live processes, GPUs |

use std::sync::Arc;
use std::time::Instant;

use crate::model::config::{Config, Layer};
use crate::model::host_info::HostInfo;
use crate::model::ids::Target;
use crate::model::io_calls::IoTarget;
use crate::model::observation::{Observation, ProgramSeen, Request};
use crate::run::RunState;
use crate::sample_passes::Passes;
use crate::sources::container_processes::ContainerProcesses;
use crate::sources::containers::ContainerMonitor;
use crate::sources::disks::FreeSpaces;
use crate::sources::exit_accounts::ExitAccounts;
use crate::sources::exit_watch::ExitWatch;
use crate::sources::gpu::monitor::GpuMonitor;
use crate::sources::helpers::Helpers;
use crate::sources::io_usage::IoUsage;
use crate::sources::machine_usage::Machine;
use crate::sources::membership::Membership;
use crate::sources::program;
use crate::sources::sampler::Sampler;
use crate::sources::scan::Scanner;
use crate::sources::segment_name::SegmentName;
use crate::sources::stalls::StallReader;
use crate::sources::thread_states::ThreadReader;
use crate::sources::waited_for::WaitLookup;
use crate::store::replay_journal::JournaledRun;
use crate::store::run_directory::{NOTES, RunDirectory};
use crate::sys::clock::{self, Timer};
use crate::sys::pidfd;
use crate::sys::proc_fs::{self, ProcRoot, Stat};
use crate::sys::segment::Segment;

/// How often all processes that ended are looked for in /proc, nanoseconds. In between, only those are looked for whose reaper will
/// write no REAPED record.
const ABSENCE_NS: u64 = 50_000_000;

/// How often the core is asked whether an uninstrumented program (one without the shim) still runs, nanoseconds.
const PRESENCE_NS: u64 = 1_000_000_000;

/// Which of the processes that ended are looked for in /proc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbsenceCheck {
    /// All of them.
    All,
    /// All of them if [`ABSENCE_NS`] have passed since the last time, else only those whose reaper will write no REAPED record.
    Due,
}

/// The sources. The argument `now_ns` of their methods is the time of the observations that they make, and the time that decides
/// what is due, CLOCK_MONOTONIC nanoseconds.
pub(super) struct Readers {
    pub(super) root: ProcRoot,
    /// Whether /proc is scanned for children and programs (the scan layer is on).
    scans: bool,
    launcher_pid: u32,
    membership: Membership,
    pub(super) scanner: Scanner,
    exits: ExitWatch,
    accounts: ExitAccounts,
    /// How many execs of uninstrumented programs were known at the last [`Self::take_exits`].
    uninstrumented_programs: u64,
    /// When to look again whether an uninstrumented program still runs ([`PRESENCE_NS`]).
    presence: Timer,
    /// When to look again for all processes that ended ([`ABSENCE_NS`]).
    absence: Timer,
    pub(super) passes: Passes,
    pub(super) gpu: GpuMonitor,
    machine: Machine,
    threads: ThreadReader,
    waits: WaitLookup,
    io: IoUsage,
    free_spaces: FreeSpaces,
    stalls: StallReader,
    segment_name: SegmentName,
    containers: ContainerMonitor,
    container_processes: ContainerProcesses,
    /// Length of a clock tick, microseconds.
    tick_us: u64,
}

impl Readers {
    /// Opens the sources. The budget of samples begins at `sampled_ns`, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn open(
        config: &Config,
        host: &HostInfo,
        root: ProcRoot,
        membership: Membership,
        segment: &Arc<Segment>,
        sampled_ns: u64,
    ) -> Self {
        let tick_us = host.tick_us();
        let sampler = Sampler::new(root.clone(), host.page_bytes, tick_us);
        // An earlier collector has counted what threads used until it was killed.
        let is_resumed = config.restarts > 0;
        // An attached process is no child of the launcher, nor is what descends from it.
        let has_command = config.attached.is_none();
        let topmost_pid = has_command.then_some(config.start.launcher_pid);
        // They tell orphans of the tree, which the launcher adopts, from its own helpers, such as collectors.
        let helpers = has_command.then(|| Helpers::new(segment.named().path()));
        Self {
            scans: config.discovery.uses(Layer::Scan),
            launcher_pid: config.start.launcher_pid,
            membership,
            scanner: Scanner::new(
                root.clone(),
                tick_us,
                config.tracking.interval_ns(),
                config.start.launcher_pid,
                helpers,
            ),
            exits: ExitWatch::default(),
            accounts: ExitAccounts::default(),
            uninstrumented_programs: 0,
            presence: Timer::default(),
            absence: Timer::default(),
            passes: Passes::new(sampler, config.policy.budget, sampled_ns),
            gpu: GpuMonitor::start(&config.gpu, &root),
            machine: Machine::new(root.clone(), host.allowed.cpus.clone(), config.start.launcher_pid),
            threads: ThreadReader::new(root.clone(), is_resumed),
            waits: WaitLookup::new(root.clone()),
            io: IoUsage::new(root.clone(), topmost_pid, config.start.calls_before),
            free_spaces: FreeSpaces::new(config.report.files()),
            stalls: StallReader::new(
                root.clone(),
                config.attached.map(|process| process.pid),
                config.cgroups.own.as_ref().and_then(|own| own.as_ref().ok()),
                host.allowed.job().id(),
            ),
            segment_name: SegmentName::new(Arc::clone(segment)),
            containers: ContainerMonitor::new(
                root.clone(),
                config.start.realtime_ns,
                RunDirectory::of_segment(segment.named().path()).map(|directory| directory.file(NOTES)),
            ),
            container_processes: ContainerProcesses::default(),
            tick_us,
            root,
        }
    }

    /// Answers the core's questions about programs that began by `by_ns` (CLOCK_MONOTONIC nanoseconds), and about processes that
    /// the kernel says ended.
    pub(super) fn answer(&mut self, run: &mut JournaledRun, by_ns: u64, now_ns: u64) {
        for request in run.requests(by_ns, now_ns) {
            let answer = match request {
                Request::ReadProgram(target, question) => {
                    let seen = program::read(&self.root, &target, question, clock::monotonic_ns());
                    if run.has_connector() && program::is_uninstrumented(&seen.program) {
                        // No record will tell of the program's exit, but the kernel's account will.
                        self.accounts.ask(now_ns);
                    }
                    Observation::Program(ProgramSeen { is_answer: true, ..seen })
                }
                Request::ReadEnd(target, at_ns) => self.read_end(&target, at_ns),
            };
            run.apply_now(answer);
        }
    }

    /// Reads what /proc still has of a process that the kernel says ended at `at_ns`, CLOCK_MONOTONIC nanoseconds. The kernel reports
    /// the end of the first thread, and other threads may live on.
    fn read_end(&self, target: &Target, at_ns: u64) -> Observation {
        let has_identity = |stat: &Stat| {
            target.identity.is_shown(stat.start_ns(self.tick_us), || pidfd::inode(target.pid).unwrap_or(0))
        };
        // Another process can have its pid by now.
        let stat = self.root.stat(target.pid).filter(has_identity);
        // It left /proc between `at_ns` and now. The core gives its reaper some time to write REAPED from `gone_ns` on.
        let gone_ns = stat.is_none().then(clock::monotonic_ns);
        if stat.is_some_and(|stat| !stat.is_over()) {
            return Observation::FirstThreadEnded(target.id);
        }
        let remains = stat.and_then(|stat| proc_fs::remains_if_over(target.pid, &stat));
        Observation::Ended { id: target.id, at_ns, gone_ns, remains }
    }

    /// Applies the ends that pidfds show, and the kernel's accounts of exits. With the connector, first asks for accounts after
    /// each exec of an uninstrumented program, and each [`PRESENCE_NS`] while one runs: no record tells of their exits.
    pub(super) fn take_exits(&mut self, run: &mut JournaledRun, now_ns: u64) {
        let programs = run.tree.counts().uninstrumented_programs;
        let has_new = programs != self.uninstrumented_programs;
        self.uninstrumented_programs = programs;
        if run.has_connector() {
            let can_exit =
                has_new || (self.presence.is_due(now_ns, PRESENCE_NS) && run.tree.has_uninstrumented());
            if can_exit {
                self.accounts.ask(now_ns);
            }
        }
        // `accounted` finds the process that an account is about.
        let mut exits = self.accounts.take(now_ns, |pid, start_ns| run.tree.accounted(pid, start_ns));
        exits.extend(self.exits.take(|id| run.tree.get(id).is_some()));
        for exit in exits {
            run.apply_now(exit);
        }
    }

    /// Tells the core what is known by now of containers that the tree has asked a daemon for.
    pub(super) fn follow_containers(&mut self, run: &mut JournaledRun) {
        if let Some(notes) = self.containers.notes(run.containers.notes_bytes()) {
            run.apply_now(notes);
        }
        let known = |daemon| run.containers.of_daemon(daemon).cloned().collect();
        for seen in self.containers.exchange(run.wanted_containers(), known) {
            run.apply_now(seen);
        }
    }

    /// Tells the core which processes that ended have left /proc.
    pub(super) fn find_absent(&mut self, run: &mut JournaledRun, check: AbsenceCheck) {
        let is_due = self.absence.is_due(clock::monotonic_ns(), ABSENCE_NS);
        let questions = run.tree.absence_questions(is_due || check == AbsenceCheck::All);
        let mut absent = Vec::new();
        for target in questions {
            if pidfd::is_gone(target.pid) {
                absent.push((target.id, clock::monotonic_ns()));
            }
        }
        if !absent.is_empty() {
            run.apply_now(Observation::Absent(absent));
        }
    }

    /// Tells the core whether pids that only records name belong to the tree. Foreign processes must not be measured.
    pub(super) fn check_memberships(&self, run: &mut JournaledRun, now_ns: u64) {
        for target in run.membership_requests() {
            // An ancestor that only a record names, which can be forged, proves nothing.
            let is_known = |pid| pid == self.launcher_pid || run.tree.is_proven(pid);
            let is_member = self.membership.is_member(target.pid, is_known);
            run.apply(now_ns, Observation::Membership { id: target.id, is_member });
        }
    }

    /// Begins a scan of /proc for children. Returns when the scan must stop. `None`: no scan is due, or the layer is off.
    pub(super) fn begin_scan(&mut self, run: &RunState, now_ns: u64) -> Option<Instant> {
        // The connector reports children, so a scan is then only a check, which is rare.
        let is_check = run.has_connector();
        if self.scans { self.scanner.begin(&run.tree, now_ns, is_check) } else { None }
    }

    /// Begins the scan that finds the descendants of an attached process. Nothing else finds them, so it runs even if the scan
    /// layer is off.
    pub(super) fn begin_first_scan(&mut self, run: &RunState, now_ns: u64) {
        // Not even the connector reports children that were made before the run.
        let is_check = false;
        self.scanner.begin(&run.tree, now_ns, is_check);
    }

    /// Prepares a sample: answers the core about programs of any age. If the scan layer stands in for the connector, also begins to
    /// watch the processes whose exits nobody will report.
    pub(super) fn before_sample(&mut self, run: &mut JournaledRun, now_ns: u64) {
        if self.scans && !run.has_connector() {
            let unreported = run.tree.unawaited().filter_map(|process| process.target());
            self.exits.watch(unreported, &self.root, &std::thread::current());
        }
        self.find_container_processes(run);
        // The sample must know which processes still run in their parent's memory, to count that once.
        self.answer(run, u64::MAX, now_ns);
    }

    /// Tells the core the pids here of processes in containers that are in the tree.
    fn find_container_processes(&mut self, run: &mut JournaledRun) {
        if !self.scans {
            return;
        }
        let user = (&self.root, rustix::process::getuid().as_raw());
        let pids = self.container_processes.unknown(run.containers.running_in_tree(), &run.tree, user);
        for pid in pids {
            if let Some(news) = self.container_processes.news(&self.scanner, &run.tree, pid) {
                run.apply_now(news);
            }
        }
    }

    /// If the scan layer stands in for the connector, which tells of execs: reads the programs of processes that the sample found
    /// to run another program than before. Then reads those of processes that the sample saw for the first time, until the scan's
    /// time is over. Such processes may end before the next sample.
    pub(super) fn look_at_programs(&self, run: &mut JournaledRun, now_ns: u64) {
        if !self.scans || run.has_connector() {
            return;
        }
        let deadline = self.scanner.deadline();
        for program in run.sampling.current.changed.clone() {
            for observation in self.scanner.look_at_changed(&run.tree, program.id, program.since_ns, now_ns) {
                run.apply_now(observation);
            }
        }
        // `start_stack`: the bottom of the stack at that first sight. Another one shows an exec.
        for (id, start_stack) in run.sampling.current.first.clone() {
            if Instant::now() > deadline {
                break;
            }
            for observation in self.scanner.look_at_newcomer(&run.tree, id, start_stack, now_ns) {
                run.apply_now(observation);
            }
        }
    }

    /// Reads what the threads of the live processes do, if that is due.
    pub(super) fn read_threads(&mut self, run: &mut JournaledRun, now_ns: u64) {
        let targets = || run.sampling.thread_targets(&run.tree);
        if let Some(states) = self.threads.read(now_ns, run.start_ns, targets) {
            run.apply(now_ns, states);
        }
    }

    /// Reads GPUs, and the sources with a period of their own if they are due. `end_ns`: when the command ended (CLOCK_MONOTONIC), if
    /// it has. Then those that must be read at the end are read now.
    pub(super) fn after_sample(&mut self, run: &mut JournaledRun, now_ns: u64, end_ns: Option<u64>) {
        let is_last = end_ns.is_some();
        // Brings the pids that drivers may name up to date.
        run.apply(now_ns, Observation::GpuTick);
        let gpus = self.gpu.exchange(&run.gpu.pids(), now_ns);
        let observations = [
            gpus.map(|gpus| Observation::Gpu(Box::new(gpus))),
            self.machine.read(now_ns, is_last),
            self.waits.read(now_ns, || run.time_spent.blocked(&run.tree)),
            self.free_spaces.read(now_ns),
            self.stalls.read(age_ns(run, now_ns, end_ns), is_last),
            self.segment_name.read(now_ns, is_last),
        ];
        for observation in observations.into_iter().flatten() {
            run.apply(now_ns, observation);
        }
    }

    /// Reads the I/O of the tree so far. `end_ns`: when the command ended (CLOCK_MONOTONIC), if it has. `None`: the reading is not
    /// due.
    pub(super) fn read_io(
        &mut self,
        run: &RunState,
        now_ns: u64,
        end_ns: Option<u64>,
    ) -> Option<Observation> {
        let scanner = &self.scanner;
        let age_ns = age_ns(run, now_ns, end_ns);
        self.io.read(now_ns, age_ns, end_ns.is_some(), || targets_with_io(run, scanner))
    }

    /// Tells the core the block I/O of the processes that outlive the run, which can't be read later.
    pub(super) fn note_survivors(&self, run: &mut JournaledRun) {
        let alive = run.tree.alive().iter().filter_map(|id| run.tree.get(*id)?.target());
        for target in alive.collect::<Vec<_>>() {
            let blocks = self.root.io_blocks(target.pid);
            run.apply_now(Observation::Survivor { id: target.id, blocks });
        }
    }

    /// Ends the reading of containers and GPUs, and applies their last figures, for which it waits a limited time.
    pub(super) fn finish(&mut self, run: &mut JournaledRun) {
        // The last records can have told of the first call.
        self.follow_containers(run);
        for seen in self.containers.finish() {
            run.apply_now(seen);
        }
        // The pids in the drivers' last process lists are looked up among the pids of now.
        run.apply_now(Observation::GpuTick);
        let last = self.gpu.finish(&run.gpu.pids());
        run.apply_now(Observation::Gpu(Box::new(last)));
        run.apply_now(Observation::GpuEnd);
    }
}

/// How long the run has lasted, or lasted in all if it ended at `end_ns`. The last sample can be much later than that end. Times are
/// nanoseconds.
fn age_ns(run: &RunState, now_ns: u64, end_ns: Option<u64>) -> u64 {
    end_ns.unwrap_or(now_ns).saturating_sub(run.start_ns)
}

/// The processes whose I/O is not yet in their parents' figures, zombies from before the run included.
fn targets_with_io(run: &RunState, scanner: &Scanner) -> Vec<IoTarget> {
    let zombies = run.tree.over_before().iter().filter(|over| scanner.is_still_over(over));
    let zombies = zombies.map(|over| IoTarget { pid: over.host_pid, id: None, needs_first_thread: false });
    run.calls.targets(&run.tree).into_iter().chain(zombies).collect()
}
