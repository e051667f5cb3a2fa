//! The run so far, from which a restarted collector resumes. It can be written to the state file and read back. It changes by
//! observations only.

use gpu_track_abi::record::Event;
use gpu_track_abi::task::TaskKind;
use serde::{Deserialize, Serialize};

use super::calls_by_command::CallsByCommand;
use super::containers::Containers;
use super::events::RunEvents;
use super::failures::Failures;
use super::gpu::GpuState;
use super::live::LargestLive;
use super::orders::Orders;
use super::outbox::Outgoing;
use super::ranks::Ranks;
use super::rules::{self, Moment, Rules};
use super::samples::{Completed, Parts, Samples};
use super::sampling::{Held, Sample, Sampling};
use super::sink_troubles::SinkTroubles;
use super::stalls::RunStalls;
use super::tasks::Tasks;
use super::time_spent::{GpuMoment, TimeSpent};
use super::tree::{RunContext, Tree};
use super::trust::{Forgery, Trust};
use super::usable_at_start::usable_at_start;
use super::usage::{AllowedCores, CpuUsage, RamUsage, Totals};
use super::wait_all::Waiting;
use crate::model::config::{Config, Layer, Message};
use crate::model::containers::{ContainerDaemon, WantedContainers};
use crate::model::host_info::HostInfo;
use crate::model::ids::{Parent, ProcessId, Target};
use crate::model::kernel_event::{KernelEvent, What};
use crate::model::live::LiveProcesses;
use crate::model::observation::{ChildSeen, Observation, ProgramQuestion, ProgramSeen, Request};
use crate::model::order::{Order, OrderId, OrderResult, OrderedBy};
use crate::model::record_or_event::{Damage, Finding, ReadUpTo, StoredRecord, number};
use crate::model::run_limit::{Excess, LargestProcess, LargestProcesses};
use crate::model::signal::SignalReceived;
use crate::model::tree_sample::{GpuSums, ItemKind, TreeSample};

/// All that the core knows of a run, in parts that each deal with one subject.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunState {
    /// Processes whose figures are not final.
    pub tree: Tree,
    /// Sums over the processes whose figures are final.
    pub(crate) totals: Totals,
    /// Processes that did not succeed.
    pub(crate) failures: Failures,
    /// The ranks of which a process was seen.
    pub(crate) ranks: Ranks,
    /// What the tasks of a pipeline used.
    pub(crate) tasks: Tasks,
    /// Containers that a daemon runs.
    pub containers: Containers,
    /// Signals that the launcher passed on, the first of each number.
    pub(crate) signals: Vec<SignalReceived>,
    /// RAM over time.
    pub ram: RamUsage,
    /// CPU over time.
    pub(crate) cpu: CpuUsage,
    /// How busy the cores are that the run may use.
    pub(crate) cores: AllowedCores,
    /// Where the wall time went.
    pub time_spent: TimeSpent,
    /// What each command passed by read and write calls.
    pub calls: CallsByCommand,
    /// Pressure and CPU quota.
    pub(crate) stalls: RunStalls,
    /// GPUs over time.
    pub gpu: GpuState,
    /// The tree at each sample.
    pub samples: Samples,
    /// Pid of the command's first process; `None`: not known yet.
    pub(crate) main_pid: Option<u32>,
    /// CLOCK_MONOTONIC of the command's start, nanoseconds.
    pub start_ns: u64,
    /// CLOCK_MONOTONIC of the last sample, nanoseconds; before the first sample, of the session's start.
    pub sampled_ns: u64,
    /// Failures of the sources.
    pub health: Health,
    /// What the launcher is to do.
    pub(crate) orders: Orders,
    /// Whether the launcher waits for the tree after the command's end (`--wait-all`).
    pub(super) waiting: Waiting,
    /// Limits and alerts, and what came of them.
    pub(crate) rules: Rules,
    /// The run's events, such as alerts; `None`: nobody asked for them.
    pub(crate) events: Option<Box<RunEvents>>,
    /// How many findings (records and connector events) are applied, and where to read the next ones.
    pub found: ReadUpTo,
    /// The kernel's count of processes, by which forged records are found.
    trust: Trust,
    /// The sample that is being taken.
    #[serde(skip)]
    pub sampling: Sampling,
    /// The processes of the last sample that the live file lists.
    #[serde(skip)]
    largest: LargestLive,
    /// Clock ticks in a second, the unit of the machine's busy time.
    ticks_per_second: u64,
}

/// Failures of the sources of a run, which limit how far its figures can be trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Damaged and dropped records.
    pub damage: Damage,
    /// Records that claim more CPU time than there was, and were left out.
    pub impossible: u64,
    /// Records that were there at the end and were not read in time.
    pub unread: u64,
    /// The evidence that records are forged; later records are not applied.
    pub forgery: Option<Forgery>,
    /// State of the process connector.
    pub connector: ConnectorState,
    /// A killed collector left no readable state, so what it knew is missing.
    pub is_state_lost: bool,
    /// Time without samples, nanoseconds: no collector ran, or a killed one had not saved its last samples.
    pub unsampled_ns: u64,
    /// The segment's name was removed during the run.
    pub is_unlinked: bool,
    /// Outputs that failed, or miss something.
    pub sinks: SinkTroubles,
}

/// State of the process connector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectorState {
    /// Why it is not, or no longer, available; `None`: it is.
    pub absent: Option<String>,
    /// How often events were lost because the socket's buffer was full.
    pub overruns: u64,
    /// Lost events of the whole machine, as far as the kernel counts them.
    pub dropped: u32,
}

impl Health {
    /// Why the records are not trusted: they are forged, or the event ring was overwritten. `None`: they are trusted.
    pub(crate) fn records_untrusted(&self) -> Option<String> {
        match self.forgery {
            Some(forgery) => Some(forgery.to_string()),
            None => self.damage.is_untrusted.then(|| "the event ring was overwritten".into()),
        }
    }
}

/// The CPU time that a record claims for a process and its children, microseconds. 0: it claims none.
fn claimed_cpu_us(event: &Event) -> u64 {
    match event {
        Event::Exit { own, children, .. } => own.cpu_us().saturating_add(children.cpu_us()),
        Event::Reaped { usage, .. } => usage.cpu_us(),
        _ => 0,
    }
}

impl RunState {
    /// Makes the state of a run that has just begun, from its configuration and what is known of the machine (`host`). It is boxed,
    /// because it is large: each function that handed it on would have a place for it on the stack.
    pub fn of_run(config: &Config, host: &HostInfo) -> Box<Self> {
        let start_ns = config.start.monotonic_ns;
        let context = RunContext {
            launcher_pid: config.start.launcher_pid,
            pid_ns: config.start.pid_ns,
            session_monotonic_ns: start_ns,
            session_realtime_ns: config.start.realtime_ns,
            page: host.page_bytes,
            tick_us: host.tick_us(),
            has_main: !config.command.is_empty(),
        };
        let cores = host.host.cores;
        let interval_ns = config.tracking.interval_ns();
        let cpu = CpuUsage::new(interval_ns, cores, start_ns);
        let are_forks_counted = config.start.forks_before.is_some();
        let trust = Trust::new(start_ns, cores, are_forks_counted);
        let mut run = Box::new(Self::new(context, cpu, trust, config.report.most_heaviest));
        // The launcher carries no shim, so no record tells which arguments it starts the command with.
        if config.attached.is_none() {
            run.tree.expect_command(&config.command);
        }
        run.waiting.is_wanted = config.tracking.tells_waiting;
        // A launcher that is no subreaper can't see when the tree is empty.
        run.waiting.ends_by_order = !config.discovery.uses(Layer::Subreaper);
        let usable = usable_at_start(config, host);
        let usable = rules::Usable { ram_bytes: usable.memory.bytes, cores: usable.cores.count };
        let (limits, alerts) = (&config.tracking.limits.list, &config.tracking.alerts);
        run.rules = Rules::new(limits, alerts, usable, interval_ns);
        run.events = alerts.are_asked_for().then(Box::default);
        run
    }

    /// Makes the state of a run of which nothing has been observed, from parts that [`Self::of_run`] makes from the configuration.
    /// `most_heaviest`: how many processes each list of the heaviest keeps.
    pub fn new(context: RunContext, cpu: CpuUsage, trust: Trust, most_heaviest: usize) -> Self {
        let start_ns = context.session_monotonic_ns;
        Self {
            tree: Tree::new(context),
            totals: Totals::new(most_heaviest),
            cpu,
            start_ns,
            sampled_ns: start_ns,
            trust,
            ticks_per_second: 1_000_000 / context.tick_us.max(1),
            ..Self::default()
        }
    }

    /// Applies an observation at `now_ns`, CLOCK_MONOTONIC nanoseconds: gives it to the parts of the run that it concerns.
    pub fn apply(&mut self, now_ns: u64, observation: &Observation) {
        match observation {
            Observation::Findings(findings) => self.apply_findings(findings, now_ns),
            Observation::MachineForks(made) => {
                self.trust.made = *made;
                self.health.forgery = self.suspicion(now_ns);
            }
            Observation::CommandStarted { pid, start_ns, command } => {
                self.tree.set_main(*pid, *start_ns, command);
                self.begin(*pid, *start_ns);
            }
            Observation::Attached { process, command } => {
                self.tree.attach(process, command);
                self.begin(process.pid, process.before.at_ns);
            }
            Observation::PidNumber { pid, pidfd_inode } => self.tree.note_number(*pid, *pidfd_inode),
            Observation::Child(child) if self.is_ahead(child) => self.tree.found_ahead(child.clone()),
            Observation::Child(child) => {
                self.tree.found_in_proc(child);
            }
            Observation::OverBefore(over) => self.tree.found_over_before(*over),
            Observation::HostPid { id, pid } => self.tree.set_host_pid(*id, *pid),
            Observation::Program(seen) => self.apply_program(seen),
            Observation::Exec { id, by_ns } => self.tree.observe_exec(*id, *by_ns),
            Observation::Membership { id, is_member } => {
                // `None`: it is not known yet, so the session asks again.
                if let Some(is_member) = is_member {
                    self.tree.prove(*id, *is_member, now_ns);
                }
            }
            Observation::Ended { id, at_ns, gone_ns, remains } => {
                // If it does not count as alive, another source has reported its end, or its figures are final.
                if self.tree.get(*id).is_some_and(|process| process.is_alive()) {
                    if let Some(remains) = remains {
                        self.tree.note_remains(*id, remains);
                    }
                    self.tree.observe_end(*id, *at_ns, *gone_ns);
                }
            }
            Observation::Accounted { id, account } => self.tree.note_account(*id, *account),
            Observation::FirstThreadEnded(id) => self.tree.note_survives_first_thread(*id),
            Observation::Absent(absent) => {
                absent.iter().for_each(|(id, at_ns)| self.tree.observe_absence(*id, *at_ns));
            }
            Observation::WaitStatus { id, status } => self.tree.note_status(*id, *status),
            Observation::Tick => {
                self.tree.tick(now_ns);
                self.waiting.decide(now_ns, &self.tree, &mut self.orders);
            }
            Observation::Finalize { complete_ns } => {
                self.tree.finalize(now_ns, *complete_ns);
                self.count_finalized(now_ns);
                self.waiting.complete_ns = *complete_ns;
            }
            Observation::Readings(readings) => self.sampling.read(&mut self.tree, now_ns, readings),
            Observation::Peaks(peaks) => self.sampling.peaks(&self.tree, peaks),
            Observation::Sharing(unit) => self.sampling.take_in_sharing(&self.tree, unit),
            Observation::SampleRead => self.sampling.conclude(&mut self.tree, self.sampled_ns),
            Observation::SampleComplete => self.complete_sample(),
            Observation::System { memory_used_bytes, busy_ticks, cores, tools_ns } => {
                self.ram.system_bytes = self.ram.system_bytes.max(*memory_used_bytes);
                let ticks_per_second = self.ticks_per_second;
                let percent =
                    busy_ticks.and_then(|ticks| self.cpu.add_system(now_ns, ticks, ticks_per_second));
                self.samples.note_system(now_ns, *memory_used_bytes, percent);
                self.cores.add(now_ns, cores, *tools_ns, self.samples.cpu_ns.combined);
            }
            Observation::Io { sum, cancelled, calls, by_process, is_first } => {
                self.calls.add(&self.tree, by_process, *calls);
                self.samples.storage.note_cancelled(*cancelled);
                self.samples.storage.note_calls(*calls);
                let before = self.tree.io_before;
                self.samples.storage.add_io(now_ns, *sum, *is_first, before, &self.totals);
            }
            Observation::Stalls(reading) => self.stalls.note(now_ns, reading),
            Observation::FreeSpace(answers) => self.samples.storage.add_space(now_ns, answers),
            Observation::ThreadStates(states) => {
                self.cores.add_tasks(states.times);
                self.time_spent.note(states);
            }
            Observation::WaitedFor { id, state, what } => {
                if let Some(process) = self.tree.get(*id) {
                    self.time_spent.note_look(&process.name.command, *state, what.as_ref());
                }
            }
            Observation::SignalReceived(received) => {
                // A restarted collector is told of all signals again.
                if self.signals.iter().all(|known| known.signal != received.signal) {
                    self.signals.push(received.clone());
                }
            }
            Observation::Told(message) => self.hear(message),
            // The launcher obeys no order any more: runs of the alert command that it has not answered have failed.
            Observation::OrdersEnd => {
                let at_s = self.since_start_s(now_ns);
                if let Some(events) = &mut self.events {
                    events.give_up(&self.rules, self.orders.open(), at_s);
                }
                self.pass_on_events();
            }
            Observation::SnakemakeRules(rules) => {
                let named = self.tree.tasks.name(TaskKind::Snakemake, rules);
                named.into_iter().for_each(|id| self.tasks.note_named(id));
            }
            Observation::NextflowNames(names) => {
                let named = self.tree.tasks.name(TaskKind::Nextflow, names);
                named.into_iter().for_each(|id| self.tasks.note_named(id));
            }
            Observation::Torch(told) => self.gpu.usage.torch.clone_from(told),
            Observation::SegmentUnlinked => self.health.is_unlinked = true,
            Observation::ConnectorAbsent(reason) => self.health.connector.absent = Some(reason.clone()),
            Observation::RecordsDamaged(damage) => self.health.damage = *damage,
            Observation::Unread(unread) => self.health.unread = *unread,
            Observation::GpuBackends(is_any) => self.gpu.begin(*is_any),
            // The readings of GPUs that follow name pids, which are resolved by the processes of now.
            Observation::GpuTick => self.gpu.remember_processes(&self.tree),
            Observation::Gpu(observation) => {
                self.gpu.apply(observation);
                match &mut self.events {
                    Some(events) => events.note_gpu_steps(&mut self.gpu.usage, self.start_ns),
                    // Nobody asked for the steps of memory.
                    None => drop(self.gpu.usage.take_steps()),
                }
                self.pass_on_events();
            }
            Observation::GpuEnd => self.gpu.finish(&self.tree),
            // A process lives on at the end of the run. No record will tell its block I/O, so the session has read it.
            Observation::Survivor { id, blocks } => {
                if let Some(process) = self.tree.get_mut(*id) {
                    process.observed.blocks = process.blocks_of_run(*blocks);
                }
            }
            // CPU utilisation is measured over windows of time. The last one ends with the run.
            Observation::WindowsEnd { end_ns } => {
                let window_percent = self.cpu.finish(*end_ns);
                self.samples.note_last_window(window_percent);
            }
            Observation::Container(seen) => self.containers.add(seen),
            Observation::ContainerDaemon { daemon, state } => self.containers.note_daemon(*daemon, state),
            Observation::ContainerNotes { read_bytes, notes } => {
                // A client that is a library has no call in the tree.
                for wish in self.containers.note_created(*read_bytes, notes) {
                    self.tree.wanted_containers.add(ContainerDaemon::Docker, wish);
                }
            }
            Observation::FinalizeAll => self.finalize_all(now_ns),
            Observation::SinksWant(wants) => self.samples.outbox.wants.clone_from(wants),
            Observation::SinkFailed { sink, error } => self.health.sinks.failed(sink, error),
            Observation::SinkLost { sink, lost, error } => {
                self.health.sinks.lost(sink, *lost, error.as_deref())
            }
        }
    }

    /// The containers that are to be followed. Empty: no call of the tree asks for one.
    pub fn wanted_containers(&self) -> &WantedContainers {
        &self.tree.wanted_containers
    }

    /// Whether a driver has named a process of the run.
    pub fn uses_gpus(&self) -> bool {
        !self.gpu.usage.processes.by_id.is_empty()
    }

    /// The tasks of a kind: the hash of the mark of each, and its name.
    pub fn tasks_of(&self, kind: TaskKind) -> impl Iterator<Item = (u32, &str)> {
        self.tree.tasks.of_kind(kind)
    }

    /// Notes the command's first process, or the one that the run attached to, and since when the run counts (`start_ns`,
    /// CLOCK_MONOTONIC). Adds the event of the start.
    fn begin(&mut self, main_pid: u32, start_ns: u64) {
        self.start_ns = start_ns;
        self.main_pid = Some(main_pid);
        self.gpu.usage.start_ns = start_ns;
        if let Some(events) = &mut self.events {
            events.note_start();
        }
        self.pass_on_events();
    }

    /// Makes the figures of all processes final at the end of the run, and closes the last sample.
    fn finalize_all(&mut self, now_ns: u64) {
        self.tree.finalize_all(now_ns);
        self.count_finalized(now_ns);
        self.calls.finish(self.samples.storage.calls());
        // No other sample comes, so the CPU time that was used since the last one is counted in that one.
        self.samples.add_last_cpu(&self.tree.take_intervals(u64::MAX));
        self.samples.storage.finish_io(self.sampled_ns, &self.totals);
        self.close_sample();
        self.pass_on_tasks();
    }

    /// Applies records and connector events in their order.
    fn apply_findings(&mut self, findings: &[Finding], now_ns: u64) {
        for finding in findings {
            self.found.count += 1;
            match finding {
                Finding::Record(record) => self.apply_record(record, now_ns),
                Finding::Kernel(event) => self.apply_kernel_event(event, now_ns),
            }
        }
    }

    /// Applies a record, unless its CPU time is impossible or the records are forged. In any case, notes where the next record to
    /// read is: a collector that resumes this state reads from there.
    fn apply_record(&mut self, record: &StoredRecord, now_ns: u64) {
        let age_ns = now_ns.saturating_sub(self.tree.context().session_monotonic_ns);
        if !self.cpu.is_possible(claimed_cpu_us(&record.event), age_ns) {
            self.health.impossible += 1;
        } else if self.health.forgery.is_none() {
            self.tree.apply(&record.origin, &record.event, now_ns);
            if let Event::Start { rank, .. } = record.event {
                self.ranks.add_if_of_several(rank);
            }
        }
        // A position is marked if the record is in the overflow area; then `number` finds its number there.
        match number(record.position) {
            Some(number) => self.found.overflow = number + 1,
            None => self.found.position = record.position.wrapping_add(1),
        }
    }

    /// Applies a connector event, and notes if the connector lost events or was given up.
    fn apply_kernel_event(&mut self, event: &KernelEvent, now_ns: u64) {
        let connector = &mut self.health.connector;
        match event.what {
            What::Lost { dropped } => {
                connector.overruns += 1;
                connector.dropped = dropped;
            }
            What::GivenUp(reason) => connector.absent = Some(reason.to_string()),
            What::Fork { .. } | What::Exec | What::Exit { .. } => {}
        }
        self.tree.apply_kernel(event, now_ns);
        self.found.events += 1;
    }

    /// Applies what /proc showed of a process: its pid in its own namespace, whose memory it has, and its program.
    fn apply_program(&mut self, seen: &ProgramSeen) {
        let id = seen.inner.map_or(seen.id, |key| self.tree.found_inside(seen.id, key));
        // If the process had ended by then, /proc no longer shows its memory.
        if let Some((memory, at_ns)) = seen.memory.filter(|_| !seen.program.is_over()) {
            self.tree.set_unreported_image(id, memory, at_ns);
        }
        if let Some(args) = &seen.program.args {
            self.tree.wanted_containers.note(args);
        }
        self.tree.set_program(id, seen.program.clone());
        // The program is not requested again, until the time for its START record is over.
        if seen.is_answer {
            self.tree.program_was_read(id);
        }
    }

    /// Adds up a sample for which everything has been read, closes the sample before, and opens this one. Then the rules decide.
    ///
    /// This sample is added up first: it can report processes that lived in the time of the sample before, and these still count there.
    fn complete_sample(&mut self) {
        let Some(mut sample) = self.sampling.take() else { return };
        sample.intervals.extend(self.tree.take_intervals(sample.at_ns));
        // CPU utilisation in a window of time, if one ends with this sample.
        let window_percent = self.cpu.add(&sample);
        self.samples.add_cpu(&sample);
        if self.samples.outbox.wants.contains(&ItemKind::Live) {
            self.largest = LargestLive::from_sample(&sample);
        }
        self.ranks.add_sample(&self.tree, &sample);
        let on_gpus = |id: ProcessId| self.gpu.usage.processes.held_bytes(id.0);
        self.tasks.add_sample(&self.tree, &sample, on_gpus);
        // Their times count from the command's start, which another collector learns a little later.
        if self.main_pid.is_some() || !self.tree.expects_main() {
            self.pass_on_tasks();
        }
        let mut completed = Completed::new(&self.tree, &sample, window_percent);
        // The GPU figures of the sample before. The rules need them, and closing that sample resets them.
        let gpus = self.gpu.now(self.sampled_ns);
        let gpu = self.gpu_moment(&sample, &gpus);
        let cores = self.cores.moment(self.ticks_per_second);
        let division =
            self.time_spent.add(&self.tree, &sample, completed.commands(), gpu, cores, self.start_ns);
        self.samples.note_next_division(division.as_ref());
        completed.divide(&sample, self.start_ns, division.as_ref());
        self.rules.largest = self.largest_processes(&sample);
        self.ram.add(&self.tree, &mut sample);
        self.close_sample();
        let Self { ram, cpu, totals, gpu, samples, .. } = self;
        let parts = Parts { ram, cpu, totals, gpu };
        samples.begin(&sample, completed, parts);
        self.sampled_ns = sample.at_ns;
        self.decide(gpus);
    }

    /// How busy the run keeps its GPUs, and how much the processes on them compute. `None`: it is not known, or the sample is longer than
    /// the readings of a driver stand for.
    fn gpu_moment(&self, sample: &Sample, gpus: &GpuSums) -> Option<GpuMoment> {
        const LONGEST_NS: u64 = 2_000_000_000;
        let busy_percent = gpus.busy_of_run()?;
        if sample.at_ns.saturating_sub(sample.from_ns) > LONGEST_NS {
            return None;
        }
        let owners = sample.holders.iter().filter(|held| {
            held.cpu_ns > 0 && self.gpu.usage.processes.held_bytes(held.id.0).is_some_and(|bytes| bytes > 0)
        });
        Some(GpuMoment { busy: busy_percent / 100.0, owners_cpu_ns: owners.map(|held| held.cpu_ns).sum() })
    }

    /// How many events were handed to the sinks. Steps of memory that come too often are only counted.
    pub fn happened(&self) -> u64 {
        self.events.as_ref().map_or(0, |events| events.log.told)
    }

    /// Checks the rules (limits and alerts) against the sample that has just been opened. Orders what they demand, and hands the
    /// resulting events to the sinks. `gpu`: the GPU figures of the sample before, since this one has no reading of GPUs yet.
    fn decide(&mut self, gpu: GpuSums) {
        if self.rules.is_empty() && self.events.is_none() {
            return;
        }
        let Some(sample) = self.now().map(|sample| TreeSample { gpu, ..sample }) else { return };
        let start_ns = self.start_ns;
        // Stopped by a signal (Ctrl-Z): such time does not count as idle.
        let are_all_stopped = self.sampling.are_all_stopped();
        if let Some(events) = &mut self.events {
            events.note_jump(&self.rules, &sample, start_ns);
        }
        let changed =
            self.rules.decide(&Moment { start_ns, are_all_stopped, sample: &sample }, &mut self.orders);
        if let Some(events) = &mut self.events {
            changed.into_iter().for_each(|event| events.add(event));
        }
        self.pass_on_events();
    }

    /// Notes newly exceeded limits as events, and hands all new events to the sinks.
    fn pass_on_events(&mut self) {
        let Some(events) = &mut self.events else { return };
        events.note_limits(&self.rules, self.start_ns);
        for event in std::mem::take(&mut events.new) {
            self.samples.outbox.add(ItemKind::Happened, || Outgoing::Happened(Box::new(event)));
        }
    }

    /// Hands the tasks that have ended since the last call to the sinks.
    fn pass_on_tasks(&mut self) {
        if self.samples.outbox.wants.contains(&ItemKind::Tasks) {
            let ended = self.tasks.take_ended(&self.tree, self.start_ns);
            if !ended.is_empty() {
                self.samples.outbox.add(ItemKind::Tasks, || Outgoing::Tasks(ended));
            }
        } else {
            self.tasks.forget_changed();
        }
    }

    /// The processes that hold most RAM and most GPU memory at this sample. Empty if no rule is to name them.
    fn largest_processes(&self, sample: &Sample) -> LargestProcesses {
        if !self.rules.tells_the_largest() {
            return LargestProcesses::default();
        }
        let describe = |held: &Held, gpu_ram_bytes| {
            let process = self.tree.get(held.id)?;
            let (pid, command) = (process.ids.host_pid, process.name.command.to_string());
            Some(LargestProcess { pid, command, rss_bytes: held.rss_bytes, gpu_ram_bytes })
        };
        let gpu_ram_bytes = |held: &Held| self.gpu.usage.processes.held_bytes(held.id.0).unwrap_or(0);
        let in_ram = sample.holders.iter().max_by_key(|held| held.rss_bytes);
        let in_gpu_ram = sample.holders.iter().map(|held| (held, gpu_ram_bytes(held)));
        let in_gpu_ram = in_gpu_ram.filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes);
        LargestProcesses {
            in_ram: in_ram.and_then(|held| describe(held, None)),
            in_gpu_ram: in_gpu_ram.and_then(|(held, bytes)| describe(held, Some(bytes))),
        }
    }

    /// Notes what the launcher told. The rest of its messages is obeyed by the session.
    fn hear(&mut self, message: &Message) {
        match *message {
            Message::WaitingForTree { since_ns } => self.waiting.since_ns = Some(since_ns),
            Message::OrderAnswered { id, result, excess } => self.note_answer(id, result, excess),
            Message::TreeEnded(end) => self.rules.tree_end = Some(end),
            Message::AlertCommandFailed { alert, epoch, at_ns, failure } => {
                let at_s = self.since_start_s(at_ns);
                if let Some(events) = &mut self.events {
                    events.note_failure(&self.rules, (alert, epoch), at_s, failure);
                }
                self.pass_on_events();
            }
            _ => {}
        }
    }

    /// Notes that the launcher has answered an order. If a limit's action was done, notes by how much the limit was exceeded, and
    /// hands the event of the excess to the sinks.
    fn note_answer(&mut self, id: OrderId, result: OrderResult, excess: Option<Excess>) {
        self.orders.answer(id);
        if let (OrderedBy::Limit(index), OrderResult::Done, Some(excess)) = (id.by, result, excess) {
            self.rules.acted(index, excess);
            self.pass_on_events();
        }
    }

    /// Closes the open sample, if there is one. From then on, the GPUs' largest figures are those of the next sample. Then passes
    /// on, as `Event::Revised`, what was learnt of samples that had closed before.
    fn close_sample(&mut self) {
        let Self { ram, cpu, totals, gpu, samples, .. } = self;
        let parts = Parts { ram, cpu, totals, gpu };
        if let Some(at_ns) = samples.close(parts) {
            self.ram.largest_by_sample.close(at_ns);
            self.gpu.usage.begin_sample();
        }
        for revision in self.ram.largest_by_sample.take_revised() {
            self.samples.revise(&revision);
        }
    }

    /// The last sample as far as it is known: it is open, and may have more RAM when it closes.
    pub fn now(&self) -> Option<TreeSample> {
        let Self { ram, cpu, totals, gpu, .. } = self;
        self.samples.now(Parts { ram, cpu, totals, gpu })
    }

    /// The largest live processes of the last sample; none if no sink wants them.
    pub fn live_processes(&self) -> LiveProcesses {
        self.largest.processes(&self.tree, &self.gpu.usage)
    }

    /// Adds the processes that were finalized since the last call to the sums and lists of the run.
    /// `now_ns`: CLOCK_MONOTONIC nanoseconds.
    fn count_finalized(&mut self, now_ns: u64) {
        for process in self.tree.take_summaries() {
            self.calls.add_finalized(&process, now_ns);
            self.totals.add(&process);
            self.failures.add_if_failed(&process);
            self.samples.outbox.add(ItemKind::Ended, || Outgoing::Ended(Box::new(process.clone())));
            let gpu_peak_bytes = self.gpu.finalized(&process);
            if let Some(peak_bytes) = gpu_peak_bytes {
                self.totals.heaviest.add_on_gpus(&process, peak_bytes);
            }
            // 0: no driver reported its memory.
            let known_gpu_bytes = gpu_peak_bytes.filter(|bytes| *bytes > 0);
            self.ranks.add_finalized(&process, known_gpu_bytes);
            self.tasks.add_finalized(&self.tree.tasks, &process, known_gpu_bytes);
        }
    }

    /// What is to be read now: the programs of some processes, and what is left of processes whose exit the connector
    /// reported. A program is read if it began by `by_ns` and has written no record since. So is one whose time for its START
    /// record is over at `now_ns`. Times are CLOCK_MONOTONIC nanoseconds.
    pub fn requests(&self, by_ns: u64, now_ns: u64) -> Vec<Request> {
        let tree = &self.tree;
        let unread = tree.programs_to_read(by_ns).chain(tree.overdue_starts(now_ns));
        let programs = unread.filter_map(|process| {
            // After an exec its memory is its own. A process that neither exec'd nor wrote a record can have its
            // parent's memory.
            let question = if process.program.unreported_exec.is_some() {
                ProgramQuestion::What
            } else {
                ProgramQuestion::WhatAndWhose(tree.parent_host_pid(process))
            };
            Some(Request::ReadProgram(process.target()?, question))
        });
        let exited = tree.ends_to_read();
        let ends = exited.filter_map(|(process, exit)| Some(Request::ReadEnd(process.target()?, exit.at_ns)));
        programs.chain(ends).collect()
    }

    /// The processes that only records name. A record can claim any pid, so for each the session checks whether it is of the tree.
    pub fn membership_requests(&self) -> Vec<Target> {
        self.tree.memberships_to_check().collect()
    }

    /// The orders to send to the launcher at `now_ns` (CLOCK_MONOTONIC nanoseconds): new ones, and unanswered ones that are due to be
    /// sent again. They count as sent from now on.
    pub fn take_orders(&mut self, now_ns: u64) -> Vec<Order> {
        self.orders.take(now_ns)
    }

    /// The orders that the launcher has not answered.
    pub fn open_orders(&self) -> &[Order] {
        self.orders.open()
    }

    /// The evidence that the records are forged: what was found before, or what the kernel's count of processes shows now.
    /// `None`: there is none.
    pub fn suspicion(&self, now_ns: u64) -> Option<Forgery> {
        self.health.forgery.or_else(|| self.trust.forgery(&self.tree, self.found.count, now_ns))
    }

    /// Whether another source may still report this child, which /proc showed: the connector, or the own records of an orphan, which
    /// the launcher has adopted.
    pub fn is_ahead(&self, child: &ChildSeen) -> bool {
        self.has_connector() || child.parent == Parent::Launcher
    }

    /// A moment of CLOCK_MONOTONIC as seconds after the command's start.
    pub(crate) fn since_start_s(&self, at_ns: u64) -> f64 {
        at_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// Whether the process connector reports every fork, exec and exit.
    pub fn has_connector(&self) -> bool {
        self.health.connector.absent.is_none()
    }

    /// Notes that a collector resumes. Connector events may have been lost meanwhile, so no process's children are known to be
    /// complete. The time since the last sample counts as unsampled.
    pub fn resume(&mut self, now_ns: u64) {
        self.tree.forget_watched();
        self.health.unsampled_ns += now_ns.saturating_sub(self.sampled_ns);
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_abi::rank::Rank;
    use gpu_track_abi::record::{NAME_BYTES, Origin, Usage};
    use gpu_track_abi::task::TaskKeys;

    use super::*;
    use crate::model::exit_account::StatCounts;
    use crate::model::kernel_event::{AbsenceReason, KernelEvent};
    use crate::model::observation::{Reading, ReadingState, Size, Vitals};
    use crate::model::record_or_event::StoredRecord;

    const S: u64 = 1_000_000_000;

    fn findings(findings: impl IntoIterator<Item = Finding>) -> Observation {
        Observation::Findings(findings.into_iter().collect())
    }

    fn new_run() -> RunState {
        let frame = RunContext::of_test(100, 10, 50 * S);
        RunState::new(frame, CpuUsage::new(S, 2, 50 * S), Trust::new(50 * S, 2, false), 5)
    }

    // Requirement: SEE-57
    #[test]
    fn lost_connector_events_and_its_end_are_counted() {
        let mut run = new_run();
        let finding = |what| Finding::Kernel(KernelEvent { at_ns: 60 * S, pid: 0, what });
        run.apply(60 * S, &findings([5, 7].map(|dropped| finding(What::Lost { dropped }))));
        assert_eq!(run.health.connector, ConnectorState { absent: None, overruns: 2, dropped: 7 });
        run.apply(60 * S, &findings([finding(What::GivenUp(AbsenceReason::Cost))]));
        assert!(run.health.connector.absent.unwrap().contains("5% of a core"));
        assert_eq!(run.found, ReadUpTo { count: 3, events: 3, ..ReadUpTo::default() });
    }

    #[test]
    fn start_record_goes_to_tree_and_ranks_and_fork_record_to_the_tree_alone() {
        let mut run = new_run();
        let mut apply = |pid: u32, event: Event| {
            let origin = Origin { pid, pid_ns: 10, parent: 100, monotonic_ns: 60 * S, flags: 0 };
            run.apply(60 * S, &findings([Finding::Record(StoredRecord { position: 0, origin, event })]));
            (run.tree.counts().created, run.ranks.unseen(&[]).map(|ranks| (ranks.unseen, ranks.expected)))
        };
        let fork = Event::Fork { realtime_ns: 60 * S, pidfd_inode: 0, max_rss_kib: 0, parent_pid_ns: 10 };
        assert_eq!(apply(1, fork), (1, None));
        let rank = Rank { job: 7, rank: 1, count: 4 };
        let names = [0; NAME_BYTES];
        let start = Event::Start {
            realtime_ns: 60 * S,
            pidfd_inode: 0,
            max_rss_kib: 0,
            names,
            rank,
            task: TaskKeys::NONE,
        };
        assert_eq!(apply(2, start), (2, Some((3, 4))));
    }

    /// A run after these samples, one each second. A child with one of 1,000 names starts and ends before each of them.
    fn sampled(samples: u64) -> RunState {
        let mut run = new_run();
        let command = "main".to_owned();
        run.apply(50 * S, &Observation::CommandStarted { pid: 1, start_ns: 50 * S, command });
        for second in 51..51 + samples {
            let now_ns = second * S;
            let record = |pid: u32, at_ns: u64, event: Event| {
                let origin = Origin { pid, pid_ns: 10, parent: 1, monotonic_ns: at_ns, flags: 0 };
                Finding::Record(StoredRecord { position: 0, origin, event })
            };
            let mut names = [0; NAME_BYTES];
            let name = format!("step{}", second % 1000);
            names[..name.len()].copy_from_slice(name.as_bytes());
            let pid = 2 + (second % 30_000) as u32;
            let (started_ns, ended_ns) = (now_ns - S / 2, now_ns - S / 4);
            let rank = Rank::default();
            let start = Event::Start {
                realtime_ns: started_ns,
                pidfd_inode: 0,
                max_rss_kib: 0,
                names,
                rank,
                task: TaskKeys::NONE,
            };
            let own = Usage { user_us: 1000, max_rss_kib: 4096 + second % 997, ..Usage::default() };
            let exit =
                Event::Exit { status: 0, vm_hwm_kib: own.max_rss_kib, own, children: Usage::default() };
            run.apply(now_ns, &findings([record(pid, started_ns, start), record(pid, ended_ns, exit)]));
            run.apply(now_ns, &Observation::Tick);
            let id = run.tree.alive()[0];
            let vitals = Vitals {
                cpu_ns: Some(second * 1_000_000),
                counts: StatCounts { minor_faults: second, ..StatCounts::default() },
                threads: 1,
                ..Vitals::default()
            };
            let size = Size { rss_bytes: (second % 1013) << 20, shared_bytes: 0 };
            let state = ReadingState::Alive(vitals, Some(size));
            run.apply(now_ns, &Observation::Readings(vec![Reading { id, args: None, state }]));
            run.apply(now_ns, &Observation::Peaks(Vec::new()));
            run.apply(now_ns, &Observation::SampleRead);
            let gone = run.tree.absence_questions(true).into_iter().map(|target| (target.id, now_ns));
            run.apply(now_ns, &Observation::Absent(gone.collect()));
            run.apply(now_ns, &Observation::Finalize { complete_ns: now_ns });
            run.apply(now_ns, &Observation::SampleComplete);
        }
        run
    }

    // Requirement: TIME-7
    #[test]
    fn state_of_a_long_run_is_hardly_larger_than_that_of_a_short_one() {
        let [short, long] = [2000, 6000].map(|samples| postcard::to_stdvec(&sampled(samples)).unwrap().len());
        assert!(long < short + short / 4 && long < 1_000_000, "{short} and {long} bytes");
    }

    // Requirement: FAULT-88
    #[test]
    fn record_claiming_impossible_cpu_time_is_left_out() {
        let mut run = new_run();
        let mut ended = |pid: u32, own_s: u64, children_s: u64| {
            let usage = |s: u64| Usage { user_us: s.saturating_mul(1_000_000), ..Usage::default() };
            let event =
                Event::Exit { status: 0, vm_hwm_kib: 0, own: usage(own_s), children: usage(children_s) };
            let origin = Origin { pid, pid_ns: 10, parent: 100, monotonic_ns: 60 * S, flags: 0 };
            run.apply(60 * S, &findings([Finding::Record(StoredRecord { position: 0, origin, event })]));
            (run.tree.counts().created, run.health.impossible)
        };
        // Ten seconds of two cores, and some slack.
        assert_eq!(ended(1, 15, 5), (1, 0));
        assert_eq!(ended(2, 40, 10), (1, 1));
        assert_eq!(ended(3, u64::MAX, u64::MAX), (1, 2));
    }
}
