//! The collector of the random trees: it applies what it observes of the simulated machine.

use std::collections::HashMap;

use super::machine::{Exe, LAUNCHER, Life, Machine, PID_NS, START_NS, SimProcess};
use crate::model::exit_account::{Remains, StatCounts};
use crate::model::ids::{Key, Parent, Target};
use crate::model::observation::{
    ChildSeen, Observation, PeakReading, Program, ProgramQuestion, ProgramSeen, Reading, ReadingState,
    Request, Size, UnreportedMemory, Vitals,
};
use crate::model::process_lookup::ProcessLookup;
use crate::model::tree_sample::{ItemKind, Wants};
use crate::run::RunState;
use crate::run::sampling::Sampling;
use crate::run::tree::RunContext;
use crate::run::trust::Trust;
use crate::run::usage::CpuUsage;

const MS: u64 = 1_000_000;
const TICK_US: u64 = 10_000;

/// The collector's side: applies what it observes of the machine.
pub(super) struct Collector {
    pub(super) run: RunState,
    /// The run by a replay of what a journal would have.
    pub(super) replayed: RunState,
    /// The run, restored from its stored form at some time.
    pub(super) restored: Option<RunState>,
    knows_command: bool,
    looks: u32,
    /// All that was applied, to be printed.
    pub(super) story: Option<Vec<String>>,
}

impl Collector {
    pub(super) fn new(has_story: bool) -> Self {
        let context = RunContext {
            launcher_pid: LAUNCHER,
            pid_ns: PID_NS,
            session_monotonic_ns: START_NS,
            session_realtime_ns: START_NS,
            page: 4096,
            tick_us: TICK_US,
            has_main: true,
        };
        let cpu = CpuUsage::new(100 * MS, 2, START_NS);
        let mut run = RunState::new(context, cpu, Trust::new(START_NS, 2, false), 1000);
        use ItemKind::{Ended, Event, Happened, Live, Sample, Tasks};
        let all = Wants::from([Sample, Ended, Event, Happened, Tasks, Live]);
        run.apply(START_NS, &Observation::SinksWant(all));
        let story = has_story.then(Vec::new);
        Self { replayed: run.clone(), run, restored: None, knows_command: false, looks: 0, story }
    }

    pub(super) fn apply(&mut self, machine: &Machine, observation: &Observation) {
        if let Some(story) = &mut self.story {
            story.push(format!("{}: {observation:?}", (machine.now_ns - START_NS) / 1000));
        }
        self.run.apply(machine.now_ns, observation);
        let bytes = postcard::to_stdvec(observation).expect("it can be written down");
        self.replayed.apply(machine.now_ns, &postcard::from_bytes(&bytes).expect("and read"));
        if let Some(restored) = &mut self.restored {
            restored.apply(machine.now_ns, observation);
        }
    }

    /// Store the run and read it back, as when the collector was killed and another goes on.
    pub(super) fn restore(&mut self) {
        if self.restored.is_none() {
            let bytes = postcard::to_stdvec(&self.run).expect("it can be stored");
            self.restored = Some(postcard::from_bytes(&bytes).expect("and read"));
        }
    }

    pub(super) fn look(&mut self, machine: &mut Machine) {
        if !self.knows_command && self.looks > 1 {
            self.knows_command = true;
            let command = "prog".to_owned();
            let started =
                Observation::CommandStarted { pid: machine.main_pid(), start_ns: START_NS, command };
            self.apply(machine, &started);
        }
        self.looks += 1;
        let findings = machine.take_findings();
        self.apply(machine, &Observation::Findings(findings));
        self.answer(machine, machine.now_ns - 3 * MS);
        for (pid, start_ns, account) in std::mem::take(&mut machine.accounts) {
            match self.run.tree.accounted(pid, start_ns) {
                Some(id) => self.apply(machine, &Observation::Accounted { id, account }),
                None => machine.accounts.push((pid, start_ns, account)),
            }
        }
        self.apply(machine, &Observation::Tick);
        let questions = self.run.tree.absence_questions(true);
        let gone = questions.into_iter().filter(|target| machine.by_pid(target.pid).is_none());
        let absent: Vec<_> = gone.map(|target| (target.id, machine.now_ns)).collect();
        self.apply(machine, &Observation::Absent(absent));
        self.apply(machine, &Observation::Finalize { complete_ns: machine.now_ns });
    }

    /// Looks for children in /proc, and for orphans below the launcher.
    fn scan(&mut self, machine: &mut Machine) {
        if self.run.health.connector.absent.is_none() {
            self.apply(machine, &Observation::ConnectorAbsent("switched off".to_owned()));
        }
        for parent in self.run.tree.live() {
            if let Some(target) = self.run.tree.target(parent) {
                self.scan_children(machine, Parent::Known(parent), target.pid);
            }
        }
        if self.run.tree.has_main() {
            self.scan_children(machine, Parent::Launcher, LAUNCHER);
        }
    }

    /// Looks for the children of one process.
    fn scan_children(&mut self, machine: &mut Machine, parent: Parent, parent_pid: u32) {
        let is_child = |process: &&SimProcess| {
            let maker = process.parent.map_or(LAUNCHER, |parent| machine.processes[parent].pid);
            maker == parent_pid && process.life != Life::Reaped
        };
        let children: Vec<SimProcess> = machine.processes.iter().filter(is_child).cloned().collect();
        for child in &children {
            let key = Key { pid_ns: PID_NS, pid: child.pid };
            let (shown_ns, seen_ns) = (shown_start_ns(child), machine.now_ns);
            if self.run.tree.is_known(key, 0, shown_ns) {
                continue;
            }
            let (earliest_start_ns, start_ns) =
                ChildSeen::starts(shown_ns, TICK_US * 1000, seen_ns, START_NS);
            let (host_pid, pidfd_inode) = (child.pid, 0);
            let seen = ChildSeen {
                key,
                host_pid,
                parent,
                earliest_start_ns,
                start_ns,
                pidfd_inode,
                seen_ns,
                before: None,
            };
            self.apply(machine, &Observation::Child(seen));
            if parent == Parent::Launcher {
                // All records up to now are applied before an orphan counts.
                self.look(machine);
            }
            let found = self.run.tree.live_by_key(key).and_then(|id| self.run.tree.target(id));
            if let Some(found) = found.filter(|_| child.life == Life::Alive) {
                let question = ProgramQuestion::WhatAndWhose(Some(parent_pid));
                let program = read_program(machine, found, question);
                self.apply(machine, &Observation::Program(ProgramSeen { is_answer: false, ..program }));
            }
        }
    }

    fn answer(&mut self, machine: &Machine, by_ns: u64) {
        for request in self.run.requests(by_ns, machine.now_ns) {
            let answer = match request {
                Request::ReadProgram(target, question) => {
                    Observation::Program(read_program(machine, target, question))
                }
                Request::ReadEnd(target, at_ns) => match machine.by_pid(target.pid) {
                    Some(process) if process.life == Life::Alive => Observation::FirstThreadEnded(target.id),
                    found => {
                        let gone_ns = found.is_none().then_some(machine.now_ns);
                        let remains = found.map(remains);
                        Observation::Ended { id: target.id, at_ns, gone_ns, remains }
                    }
                },
            };
            self.apply(machine, &answer);
        }
    }

    /// Takes a sample as the session does: membership, a scan where the rules say so, readings, then peaks.
    pub(super) fn sample(&mut self, machine: &mut Machine) {
        for target in self.run.membership_requests() {
            let is_member = machine.by_pid(target.pid).map(|_| true);
            self.apply(machine, &Observation::Membership { id: target.id, is_member });
        }
        if machine.rules.is_in_turn {
            self.scan(machine);
        }
        self.answer(machine, u64::MAX);
        let targets = Sampling::targets(&self.run.tree);
        let readings: Vec<_> = targets.iter().map(|target| read_state(machine, &target.target)).collect();
        self.apply(machine, &Observation::Readings(readings));
        let new = self.run.sampling.new_images(&self.run.tree);
        let pids = targets.iter().map(|target| (target.target.id, target.target.pid));
        let pids: HashMap<_, _> = pids.collect();
        let peak = |id| {
            let process = machine.by_pid(*pids.get(&id)?)?;
            let vm_hwm_bytes = Some(process.hwm_kib * 1024);
            Some(PeakReading { id, vm_hwm_bytes, hugetlb_bytes: Some(0), swap_bytes: Some(0), limits: None })
        };
        let peaks = Observation::Peaks(new.into_iter().filter_map(peak).collect());
        self.apply(machine, &peaks);
        self.apply(machine, &Observation::SampleRead);
        self.look(machine);
        self.apply(machine, &Observation::SampleComplete);
    }
}

fn counts(process: &SimProcess) -> StatCounts {
    StatCounts { user_ticks: process.own_us / TICK_US, ..StatCounts::default() }
}

fn remains(process: &SimProcess) -> Remains {
    Remains { cpu_ns: process.own_us * 1000, counts: counts(process) }
}

fn read_program(machine: &Machine, target: Target, question: ProgramQuestion) -> ProgramSeen {
    let process = machine.by_pid(target.pid).filter(|process| process.life == Life::Alive);
    let program = process.map_or_else(Program::default, |process| Program {
        command: Some("prog".to_owned()),
        args: Some(vec!["prog".to_owned()]),
        static_executable: (process.exe != Exe::Instrumented).then(|| "/bin/prog".to_owned()),
        other_user: None,
        peak_rss_bytes: Some(process.hwm_kib * 1024),
    });
    let memory = match question {
        ProgramQuestion::What => None,
        ProgramQuestion::WhatAndWhose(parent) => {
            let exe = |pid| machine.by_pid(pid).filter(|p| p.life == Life::Alive).map(|p| p.exe);
            let is_same = parent.is_some_and(|parent| exe(parent) == exe(target.pid));
            let memory = if is_same { UnreportedMemory::Copy } else { UnreportedMemory::Own };
            Some((memory, machine.now_ns))
        }
    };
    ProgramSeen { id: target.id, program, inner: None, memory, is_answer: true }
}

/// /proc gives the start in clock ticks.
fn shown_start_ns(process: &SimProcess) -> u64 {
    process.start_ns / (TICK_US * 1000) * (TICK_US * 1000)
}

fn read_state(machine: &Machine, target: &Target) -> Reading {
    let process = machine.by_pid(target.pid);
    let state = match process.filter(|p| target.identity.is_shown(shown_start_ns(p), || 0)) {
        None => ReadingState::Gone(machine.now_ns),
        Some(process) if process.life == Life::Zombie => {
            ReadingState::Zombie(machine.now_ns, remains(process))
        }
        Some(process) => {
            let vitals = Vitals {
                cpu_ns: Some(process.own_us * 1000),
                counts: counts(process),
                threads: 1,
                ..Vitals::default()
            };
            let size = Size { rss_bytes: process.rss_kib * 1024, shared_bytes: 0 };
            ReadingState::Alive(vitals, Some(size))
        }
    };
    Reading { id: target.id, args: None, state }
}
