//! The rules of the process tree as examples: who is counted, what each used, and what may not be concluded.

use gpu_track_abi::record::{
    Event, FLAG_AUTOREAP, FLAG_BORROWED_MEMORY, FLAG_IMAGE, FLAG_NO_STATUS, FLAG_TRACER, NAME_BYTES, Origin,
    Usage,
};

use super::process::Observed;
use super::program::fork_share;
use super::tolerance::Tolerance;
use super::*;
use crate::model::finding::{KernelEvent, What};

const HERE: u32 = 10;
const INSIDE: u32 = 20;
const LAUNCHER: u32 = 100;
const MAIN: u32 = 101;
const T0: u64 = 1_000_000_000_000;
const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
const MIB_KIB: u64 = 1024;

fn frame() -> RunContext {
    RunContext {
        launcher_pid: LAUNCHER,
        pid_ns: HERE,
        session_monotonic_ns: T0,
        session_realtime_ns: 7 * T0,
        page: 4096,
        tick_us: 10_000,
    }
}

fn used(us: u64, max_rss_kib: u64) -> Usage {
    Usage { user_us: us, max_rss_kib, minor_faults: us / 10, ..Usage::default() }
}

/// A run that is told record after record, each a millisecond later.
struct Run {
    tree: Tree,
    now_ns: u64,
    /// Pid namespace of the next records' writers.
    pid_ns: u32,
}

impl Run {
    /// With the command's first process started.
    fn new() -> Self {
        let mut run = Self { tree: Tree::new(frame()), now_ns: T0, pid_ns: HERE };
        run.start(MAIN, LAUNCHER);
        run
    }

    fn tell(&mut self, pid: u32, parent: u32, flags: u8, event: Event) -> &mut Self {
        let origin = Origin { pid, pid_ns: self.pid_ns, parent, monotonic_ns: self.now_ns, flags };
        self.tree.apply(&origin, &event, self.now_ns);
        self.now_ns += MS;
        self
    }

    fn inside(&mut self, pid_ns: u32, tell: impl FnOnce(&mut Self)) -> &mut Self {
        let outside = std::mem::replace(&mut self.pid_ns, pid_ns);
        tell(self);
        self.pid_ns = outside;
        self
    }

    fn start(&mut self, pid: u32, parent: u32) -> &mut Self {
        self.start_as(pid, parent, 0, MIB_KIB, "prog")
    }

    fn start_as(
        &mut self,
        pid: u32,
        parent: u32,
        pidfd_inode: u64,
        max_rss_kib: u64,
        name: &str,
    ) -> &mut Self {
        let mut names = [0; NAME_BYTES];
        names[..name.len()].copy_from_slice(name.as_bytes());
        let realtime_ns = self.now_ns + 6 * T0;
        self.tell(pid, parent, 0, Event::Start { realtime_ns, pidfd_inode, max_rss_kib, names })
    }

    /// A program `slow` speaks, and ends with 9 MiB, when the process has had up to 50.
    fn speaks_late(&mut self, pid: u32) -> &mut Self {
        let (own, children) = (used(1, 50 * MIB_KIB), used(0, 0));
        let event = Event::Exit { status: 0, vm_hwm_kib: 9 * MIB_KIB, own, children };
        self.start_as(pid, MAIN, 0, 50 * MIB_KIB, "slow").tell(pid, MAIN, FLAG_IMAGE, event)
    }

    fn fork(&mut self, pid: u32, parent: u32, max_rss_kib: u64) -> &mut Self {
        let event = Event::Fork {
            realtime_ns: self.now_ns + 6 * T0,
            pidfd_inode: 0,
            max_rss_kib,
            parent_pid_ns: HERE,
        };
        self.tell(pid, parent, 0, event)
    }

    fn exit(&mut self, pid: u32, own_us: u64, children_us: u64) -> &mut Self {
        self.exit_with(pid, 0, FLAG_IMAGE, used(own_us, 2 * MIB_KIB), used(children_us, 2 * MIB_KIB))
    }

    fn exit_with(&mut self, pid: u32, parent: u32, flags: u8, own: Usage, children: Usage) -> &mut Self {
        self.tell(pid, parent, flags, Event::Exit { status: 3, vm_hwm_kib: 0, own, children })
    }

    fn reaped(&mut self, reaper: u32, child: u32, us: u64) -> &mut Self {
        self.reaped_with(reaper, child, 0, 0, used(us, 2 * MIB_KIB))
    }

    fn reaped_with(&mut self, reaper: u32, child: u32, flags: u8, status: i32, usage: Usage) -> &mut Self {
        let event = Event::Reaped { child, status, reaper_max_rss_kib: MIB_KIB, usage };
        self.tell(reaper, 0, flags, event)
    }

    fn later(&mut self, ms: u64) -> &mut Self {
        self.now_ns += ms * MS;
        self
    }

    /// Settle while /proc no longer has these pids.
    fn finalize(&mut self, gone: &[u32]) -> &mut Self {
        let now_ns = self.now_ns;
        finalize(&mut self.tree, now_ns, now_ns, |pid| gone.contains(&pid));
        self
    }

    fn id(&self, pid: u32) -> ProcessId {
        self.tree.open_instance(Key { pid_ns: self.pid_ns, pid }).unwrap()
    }

    fn sampled(&mut self, pid: u32, cpu_ns: u64, rss: u64, share: u64) -> &mut Self {
        let (id, now_ns) = (self.id(pid), self.now_ns);
        let observed = &mut self.tree.get_mut(id).unwrap().observed;
        *observed = Observed {
            at_ns: now_ns,
            cpu_ns: Some(cpu_ns),
            user_ticks: 3,
            system_ticks: 1,
            rss_bytes: rss,
            peak_rss_bytes: rss.max(observed.peak_rss_bytes),
            share_bytes: share,
            private_bytes: share,
            threads: 2,
            ..Observed::default()
        };
        self.later(1)
    }

    fn scan(&mut self, pid: u32, parent: u32) -> &mut Self {
        let key = Key { pid_ns: HERE, pid };
        let (parent, start_ns) = (self.id(parent), self.now_ns);
        self.tree.found_in_proc(&ChildSeen { key, host_pid: pid, parent, start_ns, pidfd_inode: 0 });
        self
    }

    /// The kernel's word.
    fn kernel(&mut self, pid: u32, what: What) -> &mut Self {
        self.tree.apply_kernel(&KernelEvent { at_ns: self.now_ns, pid, what }, self.now_ns);
        self.later(1)
    }

    fn made(&mut self, pid: u32, parent: u32) -> &mut Self {
        self.kernel(pid, What::Fork { parent })
    }

    fn execs(&mut self, pid: u32) -> &mut Self {
        self.kernel(pid, What::Exec)
    }

    /// The kernel says that it ended, and /proc that it is gone.
    fn over(&mut self, pid: u32, status: i32) -> &mut Self {
        self.kernel(pid, What::Exit { status });
        for id in ends(&self.tree) {
            let at_ns = self.tree.get(id).and_then(|process| process.end.kernel_exit).unwrap().at_ns;
            self.tree.observe_end(id, at_ns, Some(at_ns));
        }
        self.finalize(&[])
    }

    /// The end of the run.
    fn end(&mut self) -> Vec<ProcessSummary> {
        self.tree.finalize_all(self.now_ns);
        let summaries = self.tree.take_summaries();
        assert!(
            self.tree.processes.is_empty() && self.tree.lists.index.is_empty() && self.tree.groups.is_empty()
        );
        summaries
    }
}

/// Settle while /proc no longer has the pids that `is_gone` names.
fn finalize(tree: &mut Tree, now_ns: u64, complete_ns: u64, is_gone: impl Fn(u32) -> bool) {
    for target in tree.absence_questions(true).into_iter().filter(|target| is_gone(target.pid)) {
        // A live one's records up to now are applied before it counts as dead.
        let is_alive = tree.get(target.id).is_some_and(Process::is_alive);
        tree.observe_absence(target.id, now_ns + u64::from(is_alive));
    }
    tree.finalize(now_ns, complete_ns);
}

fn ends(tree: &Tree) -> Vec<ProcessId> {
    tree.ends_to_read().map(|(process, _)| process.ids.id).collect()
}

fn unreported_execs(tree: &Tree) -> Vec<ProcessId> {
    let alive = tree.alive().iter().filter_map(|id| tree.get(*id));
    alive.filter(|process| process.program.unreported_exec.is_some()).map(|process| process.ids.id).collect()
}

fn unread(tree: &Tree, by_ns: u64) -> Vec<ProcessId> {
    tree.programs_to_read(by_ns).map(|process| process.ids.id).collect()
}

fn of(summaries: &[ProcessSummary], pid: u32) -> &ProcessSummary {
    let mut all = summaries.iter().filter(|process| process.pid == pid);
    let one = all.next().unwrap();
    assert!(all.next().is_none(), "pid {pid} was summaries twice");
    one
}

fn total_us(summaries: &[ProcessSummary]) -> u64 {
    summaries.iter().map(|process| process.own.cpu_us() + process.unattributed_us).sum()
}

// ---- own CPU time ----

#[test]
fn own_cpu_is_what_was_reaped_less_what_it_waited_for_itself() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500, 0).reaped(102, 103, 550);
    run.exit(102, 1000, 550).reaped(MAIN, 102, 1650).exit(MAIN, 10, 1650).reaped(LAUNCHER, MAIN, 1700);
    let summaries = run.end();
    assert_eq!(of(&summaries, 103).own.cpu_us(), 550, "the kernel's teardown is in it");
    assert_eq!(of(&summaries, 102).own.cpu_us(), 1100);
    assert_eq!(of(&summaries, MAIN).own.cpu_us(), 50);
    assert_eq!(total_us(&summaries), 1700, "all of it is what the launcher reaped");
    assert!(summaries.iter().all(|p| p.quality == Quality::Exact && p.unattributed_us == 0 && !p.joined));
}

#[test]
fn without_an_exit_what_it_reaped_is_taken_off() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500, 0).reaped(102, 103, 550);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(1650, 0));
    let summaries = run.end();
    let killed = of(&summaries, 102);
    assert_eq!((killed.own.cpu_us(), killed.quality), (1100, Quality::Exact));
    assert_eq!((killed.exit.code, killed.exit.signal), (None, Some(libc::SIGKILL)));
}

#[test]
fn without_a_reaper_its_own_word_counts() {
    let mut run = Run::new();
    run.start(102, MAIN).exit(102, 900, 5).finalize(&[]).finalize(&[102]);
    assert!(run.tree.take_summaries().is_empty(), "its reaper may still say more");
    run.later(200).finalize(&[102]);
    let summaries = run.tree.take_summaries();
    let process = of(&summaries, 102);
    assert_eq!((process.own.cpu_us(), process.quality), (900, Quality::Exact));
    assert_eq!((process.exit.code, process.unattributed_us), (Some(3), 5));
}

#[test]
fn the_child_of_system_is_counted_once() {
    // glibc waits inside system(): the child is in its parent's sums, but no record says that it was reaped.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500, 0).exit(102, 100, 520).reaped(MAIN, 102, 620);
    run.finalize(&[102, 103]);
    let summaries = run.tree.take_summaries();
    assert_eq!(of(&summaries, 103).own.cpu_us(), 500);
    assert_eq!(of(&summaries, 102).own.cpu_us(), 100);
    assert_eq!(of(&summaries, 102).unattributed_us, 20, "the child's teardown");
    assert_eq!(total_us(&summaries), 620);
}

#[test]
fn the_child_of_system_in_a_killed_process_is_counted_once() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500, 0);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(620, 0)).finalize(&[102, 103]);
    let summaries = run.tree.take_summaries();
    assert_eq!((of(&summaries, 103).own.cpu_us(), of(&summaries, 102).own.cpu_us()), (500, 120));
}

#[test]
fn what_a_killed_shell_of_system_had_reaped_is_counted_once() {
    // 102 calls system(); its shell 103 reaps 104 and is then killed. 102's children hold all of it.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).start(104, 103).exit(104, 500, 0).reaped(103, 104, 500);
    run.sampled(103, 40_000, MIB, MIB);
    let shell = run.id(103);
    run.tree.observe_end(shell, run.now_ns, Some(run.now_ns));
    run.exit(102, 100, 540).reaped(MAIN, 102, 640).finalize(&[102, 103, 104]);
    assert_eq!(total_us(&run.tree.take_summaries()), 640);
}

#[test]
fn ignored_sigchld_is_told_and_charges_nobody() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500, 0);
    run.exit_with(102, 0, FLAG_IMAGE | FLAG_AUTOREAP, used(100, 0), used(0, 0)).reaped(MAIN, 102, 110);
    run.finalize(&[102, 103]);
    let summaries = run.tree.take_summaries();
    assert_eq!((of(&summaries, 103).own.cpu_us(), of(&summaries, 102).own.cpu_us()), (500, 110));
    assert_eq!((run.tree.counts().autoreaped, total_us(&summaries)), (1, 610));
}

#[test]
fn a_killed_parent_that_ignored_sigchld_keeps_what_its_clock_said() {
    // The autoreaped never enter any wait accounting: there is nothing to take off.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500_000, 0).sampled(102, 100_000_000, MIB, MIB);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(120_000, 0)).finalize(&[102, 103]);
    assert!(of(&run.tree.take_summaries(), 102).own.cpu_us() >= 100_000);
}

#[test]
fn a_clock_that_is_a_rounding_error_ahead_does_not_count_a_child_twice() {
    // 102 runs a silent program, waits for 103 by a raw system call, and is seen as a zombie before it is reaped.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 40_000, 0).sampled(102, 60_003_000, MIB, MIB);
    run.reaped(MAIN, 102, 100_000).finalize(&[102, 103]);
    assert_eq!(total_us(&run.tree.take_summaries()), 100_000);
}

#[test]
fn children_that_nobody_recorded_are_unattributed() {
    let mut run = Run::new();
    run.exit(MAIN, 10, 700).reaped(LAUNCHER, MAIN, 720);
    let summaries = run.end();
    assert_eq!((of(&summaries, MAIN).own.cpu_us(), of(&summaries, MAIN).unattributed_us), (20, 700));
}

#[test]
fn a_sampled_process_is_marked_and_one_never_seen_is_unknown() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, MAIN).sampled(102, 8_000_000, MIB, MIB);
    for pid in [102, 103] {
        let id = run.id(pid);
        run.tree.observe_end(id, run.now_ns, Some(run.now_ns));
    }
    let summaries = run.finalize(&[]).end();
    let (seen, unseen) = (of(&summaries, 102), of(&summaries, 103));
    assert_eq!((seen.quality, seen.own.user_us, seen.own.system_us), (Quality::Sampled, 6000, 2000));
    assert_eq!((unseen.quality, unseen.exit.code), (Quality::Unknown, None));
    assert!(!seen.is_still_running && !unseen.is_still_running && of(&summaries, MAIN).is_still_running);
}

#[test]
fn a_record_of_a_foreign_process_under_the_same_pid_does_not_take_figures_away() {
    let mut run = Run::new();
    run.start(102, MAIN).exit(102, 90_000, 0).reaped(MAIN, 102, 10);
    assert_eq!(of(&run.end(), 102).own.cpu_us(), 90_000);
}

// ---- who is who ----

#[test]
fn an_exec_chain_is_one_process_with_its_last_name() {
    let mut run = Run::new();
    for name in ["env", "nice", "job"] {
        run.start_as(102, MAIN, 77, MIB_KIB, name);
    }
    run.exit(102, 5, 0).reaped(MAIN, 102, 6);
    assert_eq!(run.tree.counts().created, 2);
    assert_eq!(&*of(&run.end(), 102).command, "job");
}

#[test]
fn fork_children_have_their_parents_name_and_group_until_they_exec() {
    let mut run = Run::new();
    run.start_as(102, MAIN, 0, MIB_KIB, "make").fork(103, 102, MIB_KIB).fork(104, 103, MIB_KIB);
    let group = run.tree.get(run.id(102)).unwrap().program.group;
    assert_eq!(run.tree.group(group).unwrap().members, [run.id(102), run.id(103), run.id(104)]);
    run.start_as(104, 103, 0, MIB_KIB, "cc");
    assert_eq!(run.tree.group(group).unwrap().members, [run.id(102), run.id(103)]);
    let summaries = run.end();
    assert_eq!((&*of(&summaries, 103).command, &*of(&summaries, 104).command), ("make", "cc"));
    assert_eq!((of(&summaries, 104).parent_pid, summaries.len()), (Some(103), 4));
}

#[test]
fn a_vfork_child_that_never_execs_is_known_by_its_exit_and_has_no_memory() {
    let mut run = Run::new();
    run.exit_with(102, MAIN, FLAG_BORROWED_MEMORY, used(7, 400 * MIB_KIB), used(0, 0)).reaped(MAIN, 102, 9);
    let lives = run.tree.take_intervals(u64::MAX);
    assert!(lives.iter().all(|life| life.bytes == 0), "{lives:?}");
    let summaries = run.end();
    let child = of(&summaries, 102);
    assert_eq!((child.own.cpu_us(), child.peak_rss_bytes, child.joined), (9, None, false));
    // A child of a raw clone writes the same record, and has memory of its own, which it copies when it writes to it.
    assert_eq!((child.peak_quality, child.is_ram_missing), (Quality::Unknown, false));
    let own = Usage { minor_faults: 400, ..used(7, 400 * MIB_KIB) };
    let mut run = Run::new();
    run.exit_with(102, MAIN, FLAG_BORROWED_MEMORY, own, used(0, 0)).reaped(MAIN, 102, 9);
    assert!(of(&run.end(), 102).is_ram_missing);
}

#[test]
fn a_vfork_childs_exit_ends_a_stale_instance_and_is_another_process() {
    let mut run = Run::new();
    run.start(102, MAIN).exit_with(102, MAIN, FLAG_BORROWED_MEMORY, used(7, 0), used(0, 0));
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (3, 1));
}

#[test]
fn a_pid_with_another_pidfd_inode_is_another_process() {
    let mut run = Run::new();
    run.start_as(102, MAIN, 7, MIB_KIB, "a").start_as(102, MAIN, 8, MIB_KIB, "b");
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (3, 2));
    // The oldest unreaped instance is meant.
    run.reaped(MAIN, 102, 5).reaped(MAIN, 102, 6);
    let summaries = run.end();
    let cpu = |name| summaries.iter().find(|p| &*p.command == name).map(|p| p.own.cpu_us());
    assert_eq!((cpu("a"), cpu("b")), (Some(5), Some(6)));
}

#[test]
fn without_pidfs_a_fork_still_tells_a_new_process_and_a_second_reaping_another() {
    let mut run = Run::new();
    run.start(102, MAIN).fork(102, MAIN, MIB_KIB);
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (3, 2));
    // Two STARTs of one pid look like an exec; the second REAPED shows that there were two.
    run.start(103, MAIN).start(103, MAIN).reaped(MAIN, 103, 5).reaped(MAIN, 103, 6);
    assert_eq!(run.end().iter().filter(|process| process.pid == 103).count(), 2);
}

#[test]
fn a_tracer_makes_no_process_and_ends_none_that_is_not_its_child() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).start(104, 103);
    // strace (102) is told of its child 103, of that one's child 104, and of a thread 999.
    run.reaped_with(102, 104, FLAG_TRACER, 0, used(5, 0)).reaped_with(102, 999, FLAG_TRACER, 0, used(5, 0));
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (4, 4));
    run.reaped_with(102, 103, FLAG_TRACER, 0, used(8, 0)).reaped_with(102, 103, FLAG_TRACER, 0, used(8, 0));
    // An orphan is its subreaper's to reap, not the tracer's.
    run.reaped_with(102, 104, FLAG_TRACER, 0, used(5, 0));
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (4, 3));
    run.exit(102, 1, 8).reaped(MAIN, 102, 9);
    let summaries = run.end();
    assert_eq!((of(&summaries, 103).own.cpu_us(), of(&summaries, 102).unattributed_us), (8, 0));
}

#[test]
fn orphans_are_reaped_by_the_subreaper_and_an_unknown_one_is_found_by_it() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(102, 1, 0).reaped(MAIN, 102, 1).finalize(&[]);
    run.exit(103, 40, 0).reaped(LAUNCHER, 103, 44).reaped(LAUNCHER, 105, 3);
    let summaries = run.end();
    assert_eq!((of(&summaries, 103).own.cpu_us(), of(&summaries, 103).found_by), (44, FoundBy::Preload));
    assert_eq!((of(&summaries, 105).found_by, of(&summaries, 105).joined), (FoundBy::Subreaper, false));
}

#[test]
fn an_orphan_that_just_left_proc_is_not_settled_before_its_reaper_could_tell() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(102, 1, 0).reaped(MAIN, 102, 1).finalize(&[102]);
    run.exit(103, 40, 0).finalize(&[103]).reaped(LAUNCHER, 103, 44);
    assert_eq!(of(&run.end(), 103).own.cpu_us(), 44);
}

#[test]
fn an_orphan_of_a_killed_parent_may_be_reaped_before_that_is_told() {
    // timeout -s KILL kills its child and itself; the launcher reaps the child before the shell reaps timeout.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).reaped_with(LAUNCHER, 103, 0, 9, used(50, 0));
    run.reaped_with(MAIN, 102, 0, 9, used(5, 0)).exit(MAIN, 1, 5).reaped(LAUNCHER, MAIN, 6);
    let summaries = run.end();
    assert_eq!((summaries.len(), total_us(&summaries)), (3, 56));
}

#[test]
fn a_killed_parent_is_not_charged_for_a_child_that_it_never_waited_for() {
    // 103's zombie outlives 102, and is gone when the launcher's word of its reaping is written, but not read.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 40_000, 0);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(90_000, 0));
    let (gone_ns, complete_ns) = (run.now_ns + MS, run.now_ns);
    finalize(&mut run.tree, gone_ns, complete_ns, |pid| pid == 103);
    run.reaped(LAUNCHER, 103, 41_000);
    assert_eq!(total_us(&run.end()), 131_000);
    // The same of a silent one: the kernel told of its end, and it was looked for too late.
    let mut run = Run::new();
    run.start(102, MAIN).made(103, 102).execs(103).kernel(103, What::Exit { status: libc::SIGKILL });
    let end_ns = run.now_ns;
    run.exit(102, 50_000, 0).reaped(MAIN, 102, 50_000);
    let (gone_ns, complete_ns) = (run.now_ns + MS, run.now_ns);
    for id in ends(&run.tree) {
        run.tree.observe_end(id, end_ns, Some(gone_ns));
    }
    finalize(&mut run.tree, gone_ns, complete_ns, |_| false);
    run.reaped(LAUNCHER, 103, 41_000);
    assert_eq!(total_us(&run.end()), 91_000);
}

#[test]
fn a_silent_child_is_found_by_its_reaper() {
    let mut run = Run::new();
    run.reaped_with(MAIN, 102, 0, 9 << 8, used(5, 0));
    let summaries = run.end();
    let child = of(&summaries, 102);
    assert_eq!((child.found_by, child.has_record, child.parent_pid), (FoundBy::Wait, false, Some(MAIN)));
    assert_eq!((child.exit.code, child.own.cpu_us(), child.quality), (Some(9), 5, Quality::Exact));
    // Nobody in the tree, and not the launcher: no process of ours.
    let mut run = Run::new();
    assert_eq!(run.reaped(555, 102, 5).tree.counts().created, 1);
}

#[test]
fn a_silent_parent_adopts_those_that_named_it() {
    let mut run = Run::new();
    run.start(103, 102).exit(103, 500, 0).reaped(MAIN, 102, 620);
    let summaries = run.finalize(&[102, 103]).tree.take_summaries();
    assert_eq!((of(&summaries, 103).joined, of(&summaries, 103).own.cpu_us()), (false, 500));
    assert_eq!(of(&summaries, 102).own.cpu_us(), 120);
}

#[test]
fn a_silent_parent_that_a_scan_finds_adopts_those_that_named_it() {
    // A static program (102) starts a dynamic one at once, and a scan finds it a moment later.
    let mut run = Run::new();
    run.start(103, 102).scan(102, MAIN).exit(103, 500, 0).finalize(&[103]).later(500).finalize(&[103]);
    run.reaped(MAIN, 102, 620);
    let summaries = run.finalize(&[102, 103]).end();
    assert!(!of(&summaries, 103).joined);
    assert_eq!(total_us(&summaries), 620);
}

#[test]
fn an_adopted_child_settles_before_its_younger_parent() {
    let mut run = Run::new();
    // 301 named a parent that nobody knew; it is found, as a younger entry, when it is reaped.
    run.start(301, 300).exit(301, 4, 0);
    run.reaped(MAIN, 300, 10).exit(MAIN, 1, 10).reaped(LAUNCHER, MAIN, 11);
    let summaries = run.end();
    let own = |pid: u32| summaries.iter().find(|process| process.pid == pid).unwrap().own.cpu_us();
    assert_eq!((own(301), own(300), own(MAIN)), (4, 6, 1));
}

#[test]
fn a_double_fork_daemon_is_a_descendant() {
    let mut run = Run::new();
    run.fork(102, MAIN, MIB_KIB)
        .fork(103, 102, MIB_KIB)
        .exit(102, 1, 0)
        .reaped(MAIN, 102, 1)
        .finalize(&[102]);
    run.start(103, LAUNCHER);
    let summaries = run.end();
    let daemon = of(&summaries, 103);
    assert!(daemon.is_still_running && !daemon.joined && !daemon.is_main);
}

#[test]
fn a_daemon_whose_parent_spoke_its_last_word_first_is_a_descendant() {
    // The parent's _exit and the child's first steps race: EXIT may be in the ring before FORK.
    let mut run = Run::new();
    run.fork(102, MAIN, MIB_KIB).exit(102, 1, 0).fork(103, 102, MIB_KIB);
    let daemon = run.tree.get(run.id(103)).unwrap();
    assert_ne!(daemon.ancestry.parent, Parent::Unknown);
    assert!(!of(&run.end(), 103).joined);
}

#[test]
fn who_carries_the_session_without_a_known_parent_is_joined() {
    let mut run = Run::new();
    run.start(500, 400).exit(500, 5, 0);
    assert!(of(&run.end(), 500).joined);
    assert_eq!(run.tree.counts().joined_unreaped, 1);
    // Who is waited for in the tree belongs to it.
    let mut run = Run::new();
    run.start(500, 400).exit(500, 5, 0).reaped(LAUNCHER, 500, 5).end();
    assert_eq!(run.tree.counts().joined_unreaped, 0);
}

#[test]
fn a_pid_namespaces_init_is_reaped_under_its_pid_outside() {
    let mut run = Run::new();
    run.start(102, MAIN).inside(INSIDE, |run| {
        run.fork(1, 102, MIB_KIB).start(1, 0).start(2, 1).exit(2, 70, 0).reaped(1, 2, 75).exit(1, 20, 75);
    });
    run.reaped(102, 103, 98).exit(102, 1, 98).reaped(MAIN, 102, 100);
    assert_eq!(run.tree.counts().created, 4);
    let summaries = run.end();
    assert_eq!((of(&summaries, 103).own.cpu_us(), of(&summaries, 103).parent_pid), (23, Some(102)));
    assert_eq!((of(&summaries, 2).own.cpu_us(), total_us(&summaries)), (75, 100));
}

#[test]
fn a_scan_tells_the_pid_outside_of_a_process_inside() {
    let mut run = Run::new();
    run.start(102, MAIN).inside(INSIDE, |run| {
        run.fork(1, 102, MIB_KIB);
        let id = run.id(1);
        run.tree.set_host_pid(id, 103);
    });
    assert!(run.tree.knows(Key { pid_ns: HERE, pid: 103 }, 0, run.now_ns));
    assert_eq!(run.reaped(102, 103, 98).end().iter().filter(|process| process.pid == 103).count(), 1);
}

#[test]
fn the_child_of_system_in_a_pid_namespace_is_counted_once() {
    let mut run = Run::new();
    run.start(102, MAIN).inside(INSIDE, |run| {
        run.fork(1, 102, MIB_KIB).start(2, 1).start(3, 2).exit(3, 500, 0).exit(2, 10, 500).reaped(1, 2, 510);
    });
    run.finalize(&[]).later(3000).finalize(&[]);
    assert_eq!(total_us(&run.tree.take_summaries()), 510);
}

#[test]
fn a_pid_namespace_ends_with_its_init() {
    // The kernel kills all that is left in it; nobody says so.
    let mut run = Run::new();
    run.start(102, MAIN).inside(INSIDE, |run| {
        run.fork(1, 102, MIB_KIB).start(2, 1).exit(1, 5, 0);
    });
    run.reaped(102, 103, 6);
    assert!(!of(&run.end(), 2).is_still_running);
}

// ---- the kernel's word ----

#[test]
fn a_process_that_speaks_is_the_one_that_the_kernel_told_of() {
    let mut run = Run::new();
    run.made(102, MAIN).fork(102, MAIN, MIB_KIB).execs(102).start(102, MAIN).exit(102, 5, 0).over(102, 768);
    run.made(103, MAIN).execs(103).start(103, MAIN).exit(103, 5, 0).over(103, 0);
    // The pid comes again.
    run.made(102, MAIN).execs(102).start(102, MAIN).exit(102, 7, 0).over(102, 0);
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (4, 1));
    let summaries = run.end();
    let wall_ms: Vec<_> = summaries.iter().filter(|p| p.pid == 102).map(|p| p.wall_ns / MS).collect();
    assert_eq!(wall_ms.len(), 2);
    assert!(
        wall_ms.contains(&4) && wall_ms.contains(&3),
        "from the fork, not from the first word: {wall_ms:?}"
    );
    assert!(summaries.iter().all(|process| process.has_record));
}

#[test]
fn a_silent_tree_is_known_from_the_kernel() {
    // A static shell (102) starts a static program (103), which starts a dynamic one (104).
    let mut run = Run::new();
    run.made(102, MAIN).execs(102).made(103, 102).execs(103).made(104, 103).execs(104).start(104, 103);
    run.exit(104, 30, 0).over(104, 0).over(103, 9).over(102, 256).reaped(MAIN, 102, 100);
    let summaries = run.later(500).finalize(&[102, 103, 104]).end();
    assert_eq!(summaries.len(), 4);
    let (shell, program) = (of(&summaries, 102), of(&summaries, 103));
    assert_eq!(
        (shell.exit.code, program.exit.signal),
        (Some(0), Some(9)),
        "its reaper's word, else the kernel's"
    );
    assert_eq!((shell.quality, program.quality), (Quality::Exact, Quality::Unknown));
    assert_eq!(
        (shell.own.cpu_us(), of(&summaries, 104).own.cpu_us()),
        (70, 30),
        "who waited has the unknown part"
    );
    assert_eq!(
        (program.parent_pid, &*program.command, program.found_by),
        (Some(102), "(unseen)", FoundBy::Connector)
    );
    assert!(summaries.iter().all(|process| !process.joined));
}

#[test]
fn who_is_known_to_be_over_may_still_be_heard() {
    let mut run = Run::new();
    run.start(102, MAIN);
    let id = run.id(102);
    run.tree.observe_end(id, run.now_ns + 1, Some(run.now_ns + 1));
    run.tree.note_status(id, 9);
    // What it wrote before is read later.
    run.start(102, MAIN);
    let summaries = run.later(500).end();
    let ended = of(&summaries, 102);
    assert_eq!((summaries.len(), ended.exit.signal), (2, Some(9)), "the first process and this one");
}

#[test]
fn a_fork_child_that_runs_a_silent_program_is_no_copy_of_its_parent_any_more() {
    let mut run = Run::new();
    run.fork(102, MAIN, 100 * MIB_KIB).execs(102);
    let id = run.id(102);
    let exec_ns = run.tree.get(id).unwrap().program_start_ns();
    assert!(unread(&run.tree, exec_ns - 1).is_empty(), "it may be about to speak");
    assert_eq!(unread(&run.tree, exec_ns), [id]);
    run.tree.program_was_read(id);
    assert!(unread(&run.tree, exec_ns).is_empty(), "once");
    let program = Program {
        command: Some("busybox".into()),
        static_executable: Some("/bin/busybox".into()),
        peak_rss_bytes: Some(MIB),
        ..Program::default()
    };
    run.tree.set_program(id, program);
    run.tree.confirm_uninstrumented(id);
    let process = run.tree.get(id).unwrap();
    assert_eq!((process.program.image, &*process.name.command), (Image::Uninstrumented, "busybox"));
    assert_ne!(process.program.group, run.tree.get(run.id(MAIN)).unwrap().program.group);
    let summaries = run.over(102, 0).reaped_with(MAIN, 102, 0, 0, used(9, MIB_KIB)).end();
    let of = of(&summaries, 102);
    assert_eq!((of.peak_rss_bytes, of.peak_quality), (Some(MIB), Quality::Sampled));
    assert_eq!(of.static_executable.as_deref(), Some("/bin/busybox"));
}

#[test]
fn a_look_that_came_too_late_takes_nothing_away() {
    let seen = Program {
        command: Some("script.sh".into()),
        args: Some(vec!["busybox".into(), "script.sh".into()]),
        static_executable: Some("/bin/busybox".into()),
        peak_rss_bytes: Some(MIB),
    };
    // It ended while it was looked at, or before.
    let dying = Program { static_executable: None, peak_rss_bytes: None, ..seen.clone() };
    let dead = Program { command: Some("busybox".into()), ..Program::default() };
    for is_told in [false, true] {
        let mut run = Run { tree: Tree::new(frame()), now_ns: T0 + 5 * MS, pid_ns: HERE };
        run.tree.set_main(MAIN, T0 + MS, "busybox");
        let id = run.id(MAIN);
        if is_told {
            run.execs(MAIN);
        }
        run.tree.set_unreported_image(id, UnreportedMemory::Own, T0 + 5 * MS);
        for program in [&seen, &dying, &dead] {
            run.tree.set_program(id, program.clone());
        }
        run.tree.confirm_uninstrumented(id);
        let process = run.tree.get(id).unwrap();
        assert_eq!(
            (process.name.static_executable.as_ref(), &process.name.args),
            (seen.static_executable.as_ref(), &seen.args)
        );
        assert_eq!(&*process.name.command, "script.sh");
    }
}

#[test]
fn who_was_only_looked_at_too_late_has_his_name() {
    let mut run = Run::new();
    run.fork(102, MAIN, 100 * MIB_KIB).execs(102);
    let id = run.id(102);
    run.tree.set_program(id, Program { command: Some("busybox".into()), ..Program::default() });
    run.tree.confirm_uninstrumented(id);
    assert_eq!(&*run.tree.get(id).unwrap().name.command, "busybox");
}

#[test]
fn the_end_of_a_first_thread_is_not_the_end_of_a_process_that_execs_in_another() {
    let mut run = Run::new();
    run.made(102, MAIN).execs(102).start(102, MAIN).kernel(102, What::Exit { status: 0 });
    run.execs(102).start(102, MAIN);
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (2, 2));
    assert!(ends(&run.tree).is_empty());
}

#[test]
fn a_failed_spawn_that_the_kernel_told_of_counts_once() {
    let mut run = Run::new();
    run.made(102, MAIN).over(102, 127 << 8).tell(MAIN, LAUNCHER, 0, Event::SpawnFailed { error: 2 });
    assert_eq!((run.tree.counts().created, run.tree.counts().failed_spawns), (2, 1));
    assert_eq!(run.end().len(), 1);
}

#[test]
fn a_pid_namespaces_first_process_is_the_one_that_the_kernel_told_of() {
    let mut run = Run::new();
    run.made(500, MAIN).inside(INSIDE, |run| {
        run.start(1, 0);
    });
    assert_eq!((run.tree.counts().created, run.tree.get(run.id(500)).unwrap().ids.key.pid), (2, 1));
    // Its children are told of by pids that nobody inside knows: they speak, or are reaped, each once.
    run.made(501, 500).made(502, 500).made(503, 500);
    run.inside(INSIDE, |run| {
        run.start(3, 1).exit(3, 5, 0).start(2, 1).exit(2, 6, 0);
        run.reaped(1, 3, 5).reaped(1, 2, 6);
    });
    run.execs(503).kernel(503, What::Exit { status: 0 }).inside(INSIDE, |run| {
        run.reaped(1, 4, 7);
    });
    run.over(502, 0).over(501, 0);
    assert_eq!((run.tree.counts().created, total_us(&run.end())), (5, 18));
}

#[test]
fn a_child_of_a_silent_process_in_a_pid_namespace_is_the_one_that_the_kernel_told_of() {
    let mut run = Run::new();
    run.made(500, MAIN).execs(500).made(501, 500).execs(501).inside(INSIDE, |run| {
        run.start(2, 1).exit(2, 6, 0);
    });
    run.over(501, 0).over(500, 0);
    let summaries = run.end();
    assert_eq!(
        (summaries.len(), of(&summaries, 501).has_record, of(&summaries, 500).has_record),
        (3, true, false)
    );
}

/// A pid namespace, whose init is 500 outside.
fn with_namespace() -> Run {
    let mut run = Run::new();
    run.made(500, MAIN).inside(INSIDE, |run| {
        run.start(1, 0);
    });
    run
}

fn outside_of(run: &Run, pid: u32) -> Option<u32> {
    let id = run.tree.open_instance(Key { pid_ns: INSIDE, pid })?;
    run.tree.get(id)?.ids.host_pid
}

#[test]
fn who_speaks_in_a_pid_namespace_is_told_from_siblings_by_the_order_of_pids() {
    let mut run = with_namespace();
    run.made(501, 500).made(502, 500).execs(501).execs(502).inside(INSIDE, |run| {
        run.start(3, 1).start(2, 1);
    });
    assert_eq!([2, 3].map(|pid| outside_of(&run, pid)), [Some(501), Some(502)]);
    // Children of theirs, and theirs; threads may have had pids between.
    run.made(503, 502).made(504, 503).inside(INSIDE, |run| {
        run.fork(7, 3, MIB_KIB).fork(8, 7, MIB_KIB);
    });
    assert_eq!([7, 8].map(|pid| outside_of(&run, pid)), [Some(503), Some(504)]);
    // The kernel numbers all pids that it hands out by the inodes of pidfds: better than any guess.
    run.made(510, 502).made(511, 502).tree.note_number(504, 7000);
    run.inside(INSIDE, |run| {
        let fork = |pidfd_inode| Event::Fork {
            realtime_ns: 7 * T0,
            pidfd_inode,
            max_rss_kib: MIB_KIB,
            parent_pid_ns: INSIDE,
        };
        run.tell(11, 3, 0, fork(7006)).tell(12, 3, 0, fork(7007));
    });
    assert_eq!([11, 12].map(|pid| outside_of(&run, pid)), [Some(510), Some(511)]);
    // One is an orphan when it speaks first.
    run.made(505, 504).made(506, 505).execs(506).kernel(505, What::Exit { status: 0 });
    run.inside(INSIDE, |run| {
        run.start(14, 1);
    });
    assert_eq!((outside_of(&run, 14), run.tree.counts().created), (Some(506), 10));
}

#[test]
fn the_pid_of_a_silent_init_is_told_by_its_child() {
    let mut run = Run::new();
    run.made(500, MAIN).execs(500).made(501, 500).execs(501).inside(INSIDE, |run| {
        run.start(2, 1);
    });
    assert_eq!([1, 2].map(|pid| outside_of(&run, pid)), [Some(500), Some(501)]);
    // What it waited for, an orphan too, is taken off what its own parent says of it.
    run.made(502, 501).made(503, 502).inside(INSIDE, |run| {
        run.fork(3, 2, MIB_KIB).fork(4, 3, MIB_KIB).exit(3, 1000, 0).reaped(2, 3, 1000);
        run.exit(4, 40_000, 0).exit(2, 2000, 1000);
    });
    run.over(503, 0).over(501, 0).kernel(500, What::Exit { status: 0 });
    run.reaped(MAIN, 500, 50_000).finalize(&[501, 503]);
    let summaries = run.end();
    assert_eq!((summaries.len(), total_us(&summaries), of(&summaries, 500).own.cpu_us()), (5, 50_000, 7000));
}

#[test]
fn a_silent_child_that_is_reaped_in_a_pid_namespace_is_the_one_that_ended_so() {
    let mut run = with_namespace();
    run.made(501, 500).made(502, 500).kernel(501, What::Exit { status: 9 });
    run.kernel(502, What::Exit { status: 0 }).inside(INSIDE, |run| {
        run.reaped_with(1, 3, 0, 0, used(7, 0)).reaped_with(1, 2, 0, 9, used(5, 0));
    });
    let summaries = run.end();
    assert_eq!([501, 502].map(|pid| of(&summaries, pid).own.cpu_us()), [5, 7]);
    assert_eq!(summaries.len(), 4);
}

#[test]
fn who_was_killed_below_a_silent_init_that_waited_is_in_its_sum() {
    // The orphan is settled while the init lives, or only when its sum is known, which has room for it.
    for is_late in [false, true] {
        let mut run = Run::new();
        run.made(500, MAIN).execs(500).made(501, 500).execs(501).inside(INSIDE, |run| {
            run.start(2, 1);
        });
        run.made(502, 501).inside(INSIDE, |run| {
            run.fork(3, 2, MIB_KIB).exit(2, 3000, 0);
        });
        run.over(501, 0);
        let (id, remains_ns) = (run.id(502), 9_000_000);
        run.tree.get_mut(id).unwrap().observed.cpu_ns = Some(remains_ns);
        run.over(502, libc::SIGKILL);
        if !is_late {
            run.later(300).finalize(&[501, 502]);
        }
        let init = run.id(500);
        run.tree.get_mut(init).unwrap().observed.cpu_ns = Some(1_000_000);
        run.kernel(500, What::Exit { status: 0 }).reaped(MAIN, 500, 13_000);
        assert_eq!((run.tree.counts().killed_with_namespace, run.tree.counts().autoreaped), (0, 0));
        let summaries = run.end();
        assert_eq!(
            (total_us(&summaries), of(&summaries, 500).own.cpu_us()),
            (13_000, 1000),
            "late: {is_late}"
        );
    }
}

#[test]
fn who_ends_with_the_init_of_his_pid_namespace_is_in_nobodys_sums() {
    let mut run = with_namespace();
    run.made(501, 500).made(502, 500).inside(INSIDE, |run| {
        run.fork(2, 1, MIB_KIB).fork(3, 1, MIB_KIB).exit(2, 3000, 0).exit(1, 10_000, 0);
    });
    // The kernel reaps the zombie that is left, which is in the init's sums, and kills the other, which is not.
    run.kernel(501, What::Exit { status: 0 }).kernel(502, What::Exit { status: 9 });
    run.kernel(500, What::Exit { status: 0 }).reaped(MAIN, 500, 13_500);
    run.finalize(&[501, 502]).later(300).finalize(&[501, 502]);
    assert_eq!((run.tree.counts().killed_with_namespace, run.tree.counts().autoreaped), (1, 1));
    let summaries = run.end();
    assert_eq!((of(&summaries, 502).quality, total_us(&summaries)), (Quality::Unknown, 13_500));
    assert_eq!(of(&summaries, 500).own.cpu_us(), 10_500);
}

#[test]
fn a_process_that_proc_shows_in_a_pid_namespace_is_one_with_what_spoke_there() {
    let mut run = with_namespace();
    run.made(501, 500);
    let told = run.id(501);
    // Its word was not taken for its own: the kernel's events had been lost, say.
    run.inside(INSIDE, |run| {
        run.fork(2, 77, MIB_KIB);
    });
    run.tree.found_inside(told, Key { pid_ns: INSIDE, pid: 2 });
    assert_eq!((run.tree.counts().created, outside_of(&run, 2)), (3, Some(501)));
}

/// 102 runs a static program that is a subreaper, 103 a child of it that speaks.
fn below_a_silent_subreaper() -> Run {
    let mut run = Run::new();
    run.made(102, MAIN).execs(102).made(103, 102).execs(103).start(103, 102);
    run
}

#[test]
fn an_orphan_below_a_silent_subreaper_is_in_its_sums() {
    let mut run = below_a_silent_subreaper();
    run.made(104, 103).fork(104, 103, MIB_KIB).made(105, 104).fork(105, 104, MIB_KIB);
    run.exit(104, 100, 0)
        .reaped(103, 104, 100)
        .exit(105, 5000, 0)
        .exit(103, 900, 100)
        .over(105, 0)
        .over(103, 0);
    run.later(1).reaped(MAIN, 102, 6700).finalize(&[103, 105]).later(300).finalize(&[103, 105]);
    let summaries = run.end();
    assert_eq!((total_us(&summaries), of(&summaries, 102).own.cpu_us()), (6700, 700));
}

#[test]
fn an_orphan_is_in_the_sums_of_the_nearest_that_may_be_a_subreaper() {
    // 102 is static and none; below it 103, which speaks, and 104, a static subreaper.
    let mut run = below_a_silent_subreaper();
    run.made(104, 103).execs(104).made(105, 104).execs(105).start(105, 104);
    run.made(106, 105).fork(106, 105, MIB_KIB).exit(105, 100, 0).over(105, 0).exit(106, 5000, 0).over(106, 0);
    run.kernel(104, What::Exit { status: 0 })
        .later(1)
        .reaped(103, 104, 5800)
        .exit(103, 900, 5800)
        .over(103, 0);
    run.kernel(102, What::Exit { status: 0 }).reaped(MAIN, 102, 7000);
    run.finalize(&[103, 105, 106]).later(300).finalize(&[103, 105, 106]);
    let summaries = run.end();
    assert_eq!([102, 104].map(|pid| of(&summaries, pid).own.cpu_us()), [300, 700]);
    assert_eq!(total_us(&summaries), 7000);
}

#[test]
fn an_orphan_is_in_a_silent_subreapers_sums_though_one_between_them_was_silent_and_spoke_later() {
    let mut run = below_a_silent_subreaper();
    run.made(104, 103).execs(104).made(105, 104).execs(105).start(105, 104);
    run.execs(104).start(104, 103).exit(104, 100, 0).reaped(103, 104, 100).later(1).finalize(&[103, 105]);
    assert!(run.tree.open_instance(Key { pid_ns: HERE, pid: 104 }).is_none(), "it is summaries");
    run.exit(105, 5000, 0).over(105, 0).exit(103, 900, 100).over(103, 0);
    run.later(1).reaped(MAIN, 102, 6700).finalize(&[103, 105]).later(300).finalize(&[103, 105]);
    let summaries = run.end();
    assert_eq!((total_us(&summaries), of(&summaries, 102).own.cpu_us()), (6700, 700));
}

#[test]
fn an_orphan_below_a_silent_subreaper_of_which_only_its_reaper_tells_is_in_its_sums() {
    let mut run = Run::new();
    run.start(103, 102).fork(104, 103, MIB_KIB).fork(105, 104, MIB_KIB);
    run.exit(104, 100, 0).reaped(103, 104, 100).exit(105, 5000, 0).exit(103, 900, 100).later(1);
    run.reaped(MAIN, 102, 6700).finalize(&[103, 105]);
    // Another that spoke late is no subreaper.
    run.fork(108, 107, MIB_KIB)
        .fork(109, 108, MIB_KIB)
        .fork(107, MAIN, MIB_KIB)
        .exit(108, 10, 0)
        .exit(109, 20, 0);
    run.exit(107, 30, 0).reaped(MAIN, 107, 30).reaped(LAUNCHER, 108, 10).reaped(LAUNCHER, 109, 20);
    run.later(300).finalize(&[103, 105]);
    let summaries = run.end();
    assert_eq!((total_us(&summaries), of(&summaries, 102).own.cpu_us()), (6760, 700));
    assert_eq!([107, 108, 109].map(|pid| of(&summaries, pid).own.cpu_us()), [30, 10, 20]);
}

#[test]
fn a_zombie_that_a_killed_process_leaves_is_its_reapers() {
    // 104 is killed with a zombie of its own: what its parent says of it has no room for that one, or it has told of
    // another that it waited for.
    for (has_told, own_us) in [(false, 300), (true, 30_000)] {
        let mut run = below_a_silent_subreaper();
        run.made(104, 103).fork(104, 103, MIB_KIB).made(105, 104).fork(105, 104, MIB_KIB);
        if has_told {
            run.made(106, 104).fork(106, 104, MIB_KIB).exit(106, 10, 0).reaped(104, 106, 10);
        }
        let of_106 = if has_told { 10 } else { 0 };
        run.exit(105, 5000, 0).kernel(104, What::Exit { status: libc::SIGKILL });
        run.reaped_with(103, 104, 0, libc::SIGKILL, used(own_us + of_106, 0)).exit(103, 900, own_us + of_106);
        run.over(105, 0).over(103, 0).reaped(MAIN, 102, 700 + 5000 + 900 + own_us + of_106);
        run.finalize(&[103, 105]).later(300).finalize(&[103, 105]);
        let summaries = run.end();
        assert_eq!(of(&summaries, 104).own.cpu_us(), own_us);
        assert_eq!((total_us(&summaries), of(&summaries, 102).own.cpu_us()), (6600 + own_us + of_106, 700));
    }
}

#[test]
fn who_was_killed_ended_then_and_not_when_it_was_waited_for() {
    let mut run = Run::new();
    run.made(102, MAIN).fork(102, MAIN, MIB_KIB);
    let killed_ns = run.now_ns;
    run.kernel(102, What::Exit { status: libc::SIGKILL }).later(500);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(10, 0));
    let summaries = run.end();
    let killed = of(&summaries, 102);
    assert_eq!(killed.start_ns + killed.wall_ns, killed_ns);
}

#[test]
fn a_child_that_is_found_dead_after_its_parent_is_taken_off_its_sums_first() {
    // 102 waits by raw system calls, and so does MAIN for it; 103 runs a static program and can't speak at its end,
    // which the kernel tells, or a sample finds, or nobody before 102 is settled.
    for found_by in ["the kernel", "a sample", "nobody"] {
        let mut run = Run::new();
        run.made(102, MAIN).made(103, 102).fork(103, MAIN, MIB_KIB).execs(103);
        run.sampled(103, 55_000_000, MIB, MIB);
        if found_by == "the kernel" {
            run.kernel(103, What::Exit { status: 0 });
        }
        run.exit(102, 20_000, 60_000).exit(MAIN, 10_000, 80_000).reaped(LAUNCHER, MAIN, 90_000);
        if found_by == "a sample" {
            let id = run.id(103);
            run.tree.observe_end(id, run.now_ns, Some(run.now_ns));
        }
        for id in ends(&run.tree) {
            let at_ns = run.tree.get(id).and_then(|process| process.end.kernel_exit).unwrap().at_ns;
            run.tree.observe_end(id, at_ns, Some(at_ns));
        }
        run.finalize(&[102, 103]).later(1).finalize(&[102, 103]).later(300).finalize(&[102, 103]);
        let summaries = run.tree.take_summaries();
        assert_eq!((summaries.len(), total_us(&summaries)), (3, 90_000), "found by {found_by}");
    }
}

#[test]
fn an_orphan_that_is_gone_may_have_left_a_last_word() {
    // 102 speaks for the first time when it ends; it is gone from /proc before that word is read.
    let mut run = Run::new();
    run.scan(102, MAIN).exit(MAIN, 1, 0).reaped(LAUNCHER, MAIN, 1).later(500);
    let (now_ns, complete_ns) = (run.now_ns + MS, run.now_ns - MS);
    finalize(&mut run.tree, now_ns, complete_ns, |pid| pid == 102);
    run.exit(102, 5, 0).reaped(LAUNCHER, 102, 6);
    assert_eq!(run.tree.counts().created, 2);
    assert_eq!(total_us(&run.end()), 7);
}

#[test]
fn a_fork_child_that_never_execs_had_at_least_what_it_had_at_its_fork() {
    let mut run = Run::new();
    run.made(102, MAIN).fork(102, MAIN, 7 * MIB_KIB).over(102, 9);
    let summaries = run.end();
    assert_eq!(
        (of(&summaries, 102).peak_rss_bytes, of(&summaries, 102).peak_quality),
        (Some(7 * MIB), Quality::Sampled)
    );
}

#[test]
fn what_the_launcher_starts_is_told_by_the_launcher() {
    let mut run = Run::new();
    run.made(700, LAUNCHER).execs(700).over(700, 9);
    assert_eq!(run.tree.counts().created, 1);
}

#[test]
fn the_launchers_word_makes_the_first_process_main() {
    let mut run = Run { tree: Tree::new(frame()), now_ns: T0 + 5 * MS, pid_ns: HERE };
    run.tree.set_main(MAIN, T0 + MS, "static");
    run.later(9).start(102, MAIN).reaped(LAUNCHER, MAIN, 5);
    let summaries = run.end();
    let main = of(&summaries, MAIN);
    assert!(main.is_main && !main.joined && &*main.command == "static");
    assert_eq!(main.wall_ns, 14 * MS, "from the launcher's fork to its reaping");
    assert!(!of(&summaries, 102).is_main);
}

#[test]
fn a_silent_main_that_was_reaped_before_the_launchers_word_is_one_process() {
    let mut run = Run { tree: Tree::new(frame()), now_ns: T0 + 5 * MS, pid_ns: HERE };
    run.reaped(LAUNCHER, MAIN, 5).finalize(&[MAIN]).tree.set_main(MAIN, T0 + MS, "static");
    let summaries = run.end();
    assert_eq!((summaries.len(), summaries[0].is_main), (1, true));
}

#[test]
fn a_late_reaping_is_of_the_one_that_was_settled() {
    let mut run = Run::new();
    run.start(102, MAIN).exit(102, 5, 0).finalize(&[102]).later(200).finalize(&[102]).reaped(MAIN, 102, 6);
    assert_eq!(run.tree.counts().created, 2);
}

#[test]
fn a_pid_that_comes_again_much_later_is_another_process() {
    let mut run = Run::new();
    run.start(102, MAIN).exit(102, 5, 0).finalize(&[102]).later(200).finalize(&[102]);
    run.later(3_600_000).reaped(MAIN, 102, 6);
    assert_eq!(run.tree.counts().created, 3);
}

#[test]
fn a_failed_spawn_was_born_and_has_no_figures() {
    let mut run = Run::new();
    run.tell(MAIN, LAUNCHER, 0, Event::SpawnFailed { error: libc::ENOENT });
    assert_eq!((run.tree.counts().created, run.tree.counts().failed_spawns, run.end().len()), (2, 1, 1));
}

#[test]
fn an_exit_without_status_has_none() {
    let mut run = Run::new();
    run.exit_with(MAIN, LAUNCHER, FLAG_IMAGE | FLAG_NO_STATUS, used(1, 0), used(0, 0));
    assert_eq!(of(&run.end(), MAIN).exit, crate::model::report::Exit::default());
}

#[test]
fn a_clock_of_another_time_namespace_is_put_right() {
    let mut run = Run::new();
    let names = [0; NAME_BYTES];
    // Its clock is a day ahead: the real time tells that it started at T0 + 10 ms, and ended at T0 + 30 ms.
    let day = 86_400_000 * MS;
    let mut origin =
        Origin { pid: 102, pid_ns: HERE, parent: MAIN, monotonic_ns: T0 + day + 10 * MS, flags: 0 };
    let start = Event::Start { realtime_ns: 7 * T0 + 10 * MS, pidfd_inode: 0, max_rss_kib: 0, names };
    run.tree.apply(&origin, &start, T0 + 50 * MS);
    origin.monotonic_ns = T0 + day + 30 * MS;
    let exit = Event::Exit { status: 0, vm_hwm_kib: 0, own: Usage::default(), children: Usage::default() };
    run.tree.apply(&origin, &exit, T0 + 50 * MS);
    assert_eq!(of(&run.end(), 102).wall_ns, 20 * MS);
}

// ---- peaks ----

#[test]
fn a_peak_is_never_the_parents() {
    let big = 2048 * MIB_KIB;
    // A small program that was started by a large one: ru_maxrss is what it inherited.
    let peak_of = |max_kib: u64, vm_hwm_kib: u64| {
        let mut run = Run::new();
        run.start_as(102, MAIN, 0, big, "small");
        let event = Event::Exit { status: 0, vm_hwm_kib, own: used(1, max_kib), children: used(0, 0) };
        run.tell(102, MAIN, FLAG_IMAGE, event);
        let summaries = run.end();
        (of(&summaries, 102).peak_rss_bytes, of(&summaries, 102).peak_quality)
    };
    assert_eq!(peak_of(big, 10), (Some(10 * 1024), Quality::Exact), "VmHWM");
    assert_eq!(peak_of(big, 0), (None, Quality::Unknown));
    assert_eq!(peak_of(big + 1, 0), (Some((big + 1) * 1024), Quality::Exact), "it grew: it is its own");
}

/// The kernel has counted what all threads touched only when they have ended.
#[test]
fn a_reaper_s_word_on_a_peak_is_the_last_if_it_is_no_child_s() {
    let peak_of = |children: u64, reaped: u64| {
        let mut run = Run::new();
        run.start_as(102, MAIN, 0, 50, "threads");
        let event = Event::Exit { status: 0, vm_hwm_kib: 10, own: used(1, 60), children: used(0, children) };
        run.tell(102, MAIN, FLAG_IMAGE, event);
        run.reaped_with(MAIN, 102, 0, 0, used(1, reaped));
        let summaries = run.end();
        (of(&summaries, 102).peak_rss_bytes, of(&summaries, 102).peak_quality)
    };
    assert_eq!(peak_of(0, 90), (Some(90 * 1024), Quality::Exact));
    assert_eq!(peak_of(80, 90), (Some(90 * 1024), Quality::Exact));
    assert_eq!(peak_of(90, 90), (Some(60 * 1024), Quality::Exact), "it may be its child's");
    assert_eq!(peak_of(0, 40), (Some(60 * 1024), Quality::Exact));
}

#[test]
fn what_a_reaper_says_of_a_peak_counts_only_above_all_that_may_have_caused_it() {
    let peak_of = |of_child: u64, max_kib: u64| {
        let mut run = Run::new();
        run.start_as(102, MAIN, 0, 50, "killed").start_as(103, 102, 0, 50, "child");
        run.reaped_with(102, 103, 0, 0, used(1, of_child));
        run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(1, max_kib));
        let summaries = run.end();
        (of(&summaries, 102).peak_rss_bytes, of(&summaries, 102).peak_quality)
    };
    assert_eq!(peak_of(70, 90), (Some(90 * 1024), Quality::Exact));
    assert_eq!(peak_of(90, 90), (None, Quality::Unknown), "its child's");
    assert_eq!(peak_of(10, 50), (None, Quality::Unknown), "inherited over exec");
}

#[test]
fn a_silent_childs_peak_is_exact_only_above_its_parents() {
    let peak_of = |max_kib| {
        let mut run = Run::new();
        // The reaper says that it had 1 MiB itself.
        run.reaped_with(MAIN, 102, 0, 0, used(1, max_kib));
        of(&run.end(), 102).peak_rss_bytes
    };
    assert_eq!(peak_of(MIB_KIB + 1), Some((MIB_KIB + 1) * 1024));
    assert_eq!(peak_of(MIB_KIB), None);
}

#[test]
fn a_fork_child_of_a_large_process_that_runs_a_silent_program_adds_nothing_of_its_parents() {
    let mut run = Run::new();
    run.made(102, MAIN)
        .fork(102, MAIN, 400 * MIB_KIB)
        .sampled(102, 1, 400 * MIB, MIB)
        .execs(102)
        .over(102, 0);
    assert!(
        run.tree.take_intervals(u64::MAX).iter().all(|life| life.bytes <= MIB),
        "only what it did not share"
    );
    let usage = used(1, 400 * MIB_KIB);
    run.tell(MAIN, 0, 0, Event::Reaped { child: 102, status: 0, reaper_max_rss_kib: 400 * MIB_KIB, usage });
    assert_eq!(of(&run.end(), 102).peak_rss_bytes, None);
}

#[test]
fn the_kernel_s_word_on_the_command_may_come_before_the_launcher_s() {
    let exec = |pid| KernelEvent { at_ns: T0 + MS, pid, what: What::Exec };
    let mut tree = Tree::new(frame());
    for pid in [MAIN - 1, MAIN] {
        tree.apply_kernel(&exec(pid), T0 + 2 * MS);
    }
    tree.set_main(MAIN, T0, "static");
    let main = tree.alive()[0];
    assert_eq!((tree.alive().len(), unreported_execs(&tree)), (1, vec![main]));
    assert_eq!(unread(&tree, u64::MAX), [main], "it will be looked at");
    assert!(tree.get(main).unwrap().ancestry.is_watched);
    // It has spoken before the launcher's word is read.
    let mut run = Run { tree: Tree::new(frame()), now_ns: T0 + 2 * MS, pid_ns: HERE };
    run.tree.apply_kernel(&exec(MAIN), run.now_ns);
    run.start(MAIN, LAUNCHER);
    run.tree.set_main(MAIN, T0, "dynamic");
    assert_eq!((unreported_execs(&run.tree), unread(&run.tree, u64::MAX)), (vec![], vec![]));
    assert!(run.tree.get(run.id(MAIN)).unwrap().ancestry.is_watched);
}

#[test]
fn memory_that_only_the_reaper_knows_of_counts_though_the_end_was_told_before() {
    let mut run = Run::new();
    run.start(102, MAIN).sampled(102, 1, 5 * MIB, 5 * MIB).over(102, 0);
    let bytes = |run: &mut Run| run.tree.take_intervals(u64::MAX).iter().map(|life| life.bytes).sum::<u64>();
    assert_eq!(bytes(&mut run), 5 * MIB);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(1, 9 * MIB_KIB));
    assert_eq!(bytes(&mut run), 4 * MIB);
    assert_eq!(of(&run.end(), 102).peak_rss_bytes, Some(9 * MIB));
}

#[test]
fn a_fork_child_that_was_killed_had_no_more_than_its_reaper_says() {
    let mut run = Run::new();
    run.fork(102, MAIN, 50 * MIB_KIB).reaped_with(MAIN, 102, 0, libc::SIGKILL, used(1, 50 * MIB_KIB));
    let summaries = run.end();
    assert_eq!(
        (of(&summaries, 102).peak_rss_bytes, of(&summaries, 102).peak_quality),
        (Some(50 * MIB), Quality::Bound)
    );
}

#[test]
fn an_orphan_inherits_from_who_made_it_and_not_from_its_reaper() {
    // A process of 400 MiB spawns a static program and ends; the launcher, which is small, reaps that.
    let mut run = Run::new();
    run.start(102, MAIN).made(103, 102).execs(103).exit(102, 1, 0).reaped(MAIN, 102, 1);
    run.over(103, 0).reaped_with(LAUNCHER, 103, 0, 0, used(1, 400 * MIB_KIB));
    assert_eq!(of(&run.end(), 103).peak_rss_bytes, None);
}

#[test]
fn where_events_were_lost_no_peak_is_exact_for_want_of_children() {
    let mut run = Run::new();
    run.made(102, MAIN).execs(102);
    run.tree.forget_watched();
    let summaries = run.reaped_with(MAIN, 102, 0, 0, used(1, 9 * MIB_KIB)).end();
    assert_eq!(of(&summaries, 102).peak_quality, Quality::Bound);
}

#[test]
fn a_maximum_over_children_that_nobody_told_of_is_no_exact_peak() {
    let quality_of = |run: &mut Run, status| {
        let summaries = run.reaped_with(MAIN, 102, 0, status, used(1, 9 * MIB_KIB)).end();
        (of(&summaries, 102).peak_rss_bytes.map(|peak| peak / MIB), of(&summaries, 102).peak_quality)
    };
    // It speaks, and ends by a system call of its own (Go): it may have waited so, too.
    assert_eq!(quality_of(Run::new().start(102, MAIN), 0), (Some(9), Quality::Bound));
    assert_eq!(
        quality_of(Run::new().start(102, MAIN).sampled(102, 1, 5 * MIB, MIB), 0),
        (Some(5), Quality::Sampled)
    );
    assert_eq!(quality_of(Run::new().start(102, MAIN), libc::SIGKILL), (Some(9), Quality::Exact));
    assert_eq!(quality_of(Run::new().start(102, MAIN).start(103, 102), 0), (None, Quality::Unknown));
    // The kernel told that it had none, or one.
    assert_eq!(quality_of(Run::new().made(102, MAIN).execs(102), 0), (Some(9), Quality::Exact));
    assert_eq!(quality_of(Run::new().made(102, MAIN).execs(102).made(103, 102), 0), (None, Quality::Unknown));
}

#[test]
fn a_raw_wait_for_a_child_spoils_the_maximum_of_who_is_killed() {
    // 102 waited for 103 by a system call of its own: REAPED's maximum may be the child's.
    let mut run = Run::new();
    run.start(102, MAIN).made(103, 102).execs(103).over(103, 0).later(500).finalize(&[103]);
    run.sampled(102, 1, 2 * MIB, MIB).reaped_with(MAIN, 102, 0, libc::SIGKILL, used(1, 9 * MIB_KIB));
    let summaries = run.end();
    assert_eq!(
        (of(&summaries, 102).peak_rss_bytes, of(&summaries, 102).peak_quality),
        (Some(2 * MIB), Quality::Sampled)
    );
}

#[test]
fn what_was_seen_before_an_exec_is_no_peak_of_the_program_behind_it() {
    let peak_of = |run: &mut Run| {
        let summaries = run.over(102, 0).later(500).finalize(&[102]).end();
        (of(&summaries, 102).peak_rss_bytes.map(|peak| peak / MIB), of(&summaries, 102).peak_quality)
    };
    // A spawned child, which shared its parent's memory until then.
    let mut run = Run::new();
    run.made(102, MAIN).sampled(102, 1, 90 * MIB, MIB).execs(102);
    assert_eq!(peak_of(&mut run), (None, Quality::Unknown));
    // /proc shows the new program before the kernel's word of it is read.
    let mut run = Run::new();
    run.made(102, MAIN).sampled(102, 1, 90 * MIB, MIB);
    let id = run.id(102);
    run.tree.set_unreported_image(id, UnreportedMemory::Own, run.now_ns);
    assert_eq!(peak_of(run.execs(102)), (None, Quality::Unknown));
    // The sample beside whose peak the old program's may still be is read after the exec, which is told late.
    let mut run = Run::new();
    run.made(102, MAIN).sampled(102, 1, 90 * MIB, MIB).sampled(102, 1, 3 * MIB, MIB);
    let observed = run.tree.get(run.id(102)).unwrap().observed;
    assert_eq!((observed.peak_rss_bytes, observed.rss_bytes), (90 * MIB, 3 * MIB));
    let (at_ns, now_ns) = (observed.at_ns - 1, run.now_ns);
    run.tree.apply_kernel(&KernelEvent { at_ns, pid: 102, what: What::Exec }, now_ns);
    assert_eq!(peak_of(&mut run), (Some(3), Quality::Sampled));
    // The same where nobody but the program itself tells, and the kernel's maximum at its end is lower than a sample was.
    let mut run = Run::new();
    run.fork(102, MAIN, 90 * MIB_KIB).sampled(102, 1, 90 * MIB, MIB).sampled(102, 1, 3 * MIB, MIB);
    run.now_ns -= MS + 1;
    run.start(102, MAIN).later(2).exit(102, 10, 0).reaped(MAIN, 102, 10);
    let summaries = run.later(500).finalize(&[102]).end();
    assert_eq!(
        (of(&summaries, 102).peak_rss_bytes, of(&summaries, 102).peak_quality),
        (Some(3 * MIB), Quality::Exact)
    );
}

#[test]
fn a_silent_program_that_becomes_one_that_speaks_leaves_what_was_seen_of_its_peak() {
    let peak_of = |inherited_kib: u64| {
        let mut run = Run::new();
        run.made(102, MAIN).execs(102);
        let id = run.id(102);
        run.tree.confirm_uninstrumented(id);
        run.later(1).sampled(102, 1, 30 * MIB, MIB).execs(102);
        run.start_as(102, MAIN, 0, inherited_kib, "is_instrumented");
        let event =
            Event::Exit { status: 0, vm_hwm_kib: 10, own: used(1, 50 * MIB_KIB), children: used(0, 0) };
        run.tell(102, MAIN, FLAG_IMAGE, event);
        let summaries = run.end();
        (of(&summaries, 102).peak_rss_bytes.map(|peak| peak / MIB), of(&summaries, 102).peak_quality)
    };
    // It had up to 50 MiB: more than any sample saw.
    assert_eq!(peak_of(50 * MIB_KIB), (Some(30), Quality::Sampled));
    // Nothing that it ever had was more than what the last program has.
    assert_eq!(peak_of(40 * MIB_KIB), (Some(50), Quality::Exact));
}

#[test]
fn a_program_that_was_slow_to_speak_is_no_silent_one_before_itself() {
    let mut run = Run::new();
    run.made(102, MAIN).fork(102, MAIN, 50 * MIB_KIB).execs(102);
    let id = run.id(102);
    run.tree.confirm_uninstrumented(id);
    run.later(1).sampled(102, 1, 5 * MIB, MIB).speaks_late(102);
    let summaries = run.end();
    assert_eq!(
        (of(&summaries, 102).peak_rss_bytes, of(&summaries, 102).peak_quality),
        (Some(9 * MIB), Quality::Exact)
    );
}

#[test]
fn a_program_that_was_looked_at_while_it_was_loaded_is_no_silent_one_before_itself() {
    let seen = |command: &str, path: Option<&str>| Program {
        command: Some(command.into()),
        static_executable: path.map(str::to_owned),
        ..Program::default()
    };
    let quality_of = |program: Program, is_fork: bool| {
        let mut run = Run::new();
        if is_fork {
            run.fork(102, MAIN, 50 * MIB_KIB);
        } else {
            run.scan(102, MAIN);
        }
        let id = run.id(102);
        run.tree.set_unreported_image(id, UnreportedMemory::Own, run.now_ns);
        run.tree.set_program(id, program);
        run.later(1).sampled(102, 1, 5 * MIB, MIB).speaks_late(102);
        let summaries = run.end();
        assert_eq!(of(&summaries, 102).peak_rss_bytes, Some(9 * MIB));
        of(&summaries, 102).peak_quality
    };
    for is_fork in [false, true] {
        assert_eq!(quality_of(seen("slow", None), is_fork), Quality::Exact);
        // Another program, and one that can't have spoken.
        assert_eq!(quality_of(seen("other", None), is_fork), Quality::Sampled);
        assert_eq!(quality_of(seen("slow", Some("/bin/slow")), is_fork), Quality::Sampled);
    }
    // It was another one at an earlier look.
    let mut run = Run::new();
    let id = run.scan(102, MAIN).id(102);
    run.tree.set_unreported_image(id, UnreportedMemory::Own, run.now_ns);
    for name in ["static", "slow"] {
        let args = Some(vec![name.to_owned()]);
        run.tree.set_program(id, Program { args, ..seen(name, None) });
    }
    run.later(1).sampled(102, 1, 5 * MIB, MIB).speaks_late(102);
    assert_eq!(of(&run.end(), 102).peak_quality, Quality::Sampled);
}

#[test]
fn an_exec_that_only_a_sample_shows_is_one_of_a_program_that_has_not_spoken() {
    let program = Program {
        command: Some("busybox".into()),
        static_executable: Some("/bin/busybox".into()),
        ..Program::default()
    };
    for is_fork in [false, true] {
        let mut run = Run::new();
        if is_fork {
            run.fork(102, MAIN, 50 * MIB_KIB);
        } else {
            run.start_as(102, MAIN, 0, 50 * MIB_KIB, "sh");
        }
        let id = run.id(102);
        // The sampler tells of it before what it read of the new program counts.
        run.later(1).sampled(102, 1, 90 * MIB, 7 * MIB);
        let at_ns = run.later(1).now_ns;
        run.tree.observe_exec(id, at_ns - 1);
        assert_eq!(unread(&run.tree, at_ns), [id], "it will be looked at");
        run.tree.get_mut(id).unwrap().observed =
            Observed { at_ns, rss_bytes: MIB, peak_rss_bytes: MIB, ..Observed::default() };
        run.tree.set_program(id, program.clone());
        run.tree.confirm_uninstrumented(id);
        let process = run.tree.get(id).unwrap();
        assert_eq!((process.program.image, &*process.name.command), (Image::Uninstrumented, "busybox"));
        assert_eq!(process.observed.peak_rss_bytes, MIB);
        let summaries = run.reaped_with(MAIN, 102, 0, 0, used(1, 100 * MIB_KIB)).end();
        // Of a fork child what it had of its parent's memory is not its own.
        let peak = if is_fork { 40 * MIB } else { 90 * MIB };
        assert_eq!(
            (of(&summaries, 102).peak_rss_bytes, of(&summaries, 102).peak_quality),
            (Some(peak), Quality::Sampled)
        );
        assert_eq!(of(&summaries, 102).static_executable.as_deref(), Some("/bin/busybox"));
    }
}

#[test]
fn an_earlier_images_peak_alone_is_at_least_something() {
    // Its last program ended by a system call of its own, and had no more than the one before.
    let mut run = Run::new();
    run.start_as(102, MAIN, 0, 1, "a").start_as(102, MAIN, 0, 9 * MIB_KIB, "b");
    run.reaped_with(MAIN, 102, 0, 0, used(1, 9 * MIB_KIB));
    let summaries = run.end();
    assert_eq!(
        (of(&summaries, 102).peak_rss_bytes, of(&summaries, 102).peak_quality),
        (Some(9 * MIB), Quality::Sampled)
    );
}

#[test]
fn a_fork_childs_growth_before_its_exec_is_its_own_peak_and_its_parents_memory_is_not() {
    let peak_of = |grown_kib: u64| {
        let mut run = Run::new();
        run.fork(102, MAIN, 100 * MIB_KIB).start_as(102, MAIN, 0, 100 * MIB_KIB + grown_kib, "true");
        run.tell(
            102,
            MAIN,
            FLAG_IMAGE,
            Event::Exit { status: 0, vm_hwm_kib: 10, own: used(1, 0), children: used(0, 0) },
        );
        of(&run.end(), 102).peak_rss_bytes
    };
    assert_eq!(peak_of(2 * MIB_KIB), Some(10 * 1024), "pages of files that it read in again");
    assert_eq!(peak_of(50 * MIB_KIB), Some(50 * MIB));
}

#[test]
fn a_scan_between_an_exec_and_its_first_word_does_not_make_its_parents_memory_its_own() {
    let mut run = Run::new();
    run.fork(102, MAIN, 100 * MIB_KIB).sampled(102, 1000, 100 * MIB, 0);
    run.tell(102, MAIN, 0, Event::Exec { vm_hwm_kib: 103 * MIB_KIB });
    let (id, now_ns) = (run.id(102), run.now_ns);
    run.tree.set_unreported_image(id, UnreportedMemory::Own, now_ns);
    run.start_as(102, MAIN, 0, 103 * MIB_KIB, "true").exit(102, 1, 0).reaped(MAIN, 102, 2);
    let summaries = run.end();
    assert_eq!((of(&summaries, 102).peak_rss_bytes, &*of(&summaries, 102).command), (Some(3 * MIB), "true"));
}

#[test]
fn a_killed_fork_child_may_have_been_about_to_run_another_program() {
    let peak_of = |run: &mut Run| {
        let (usage, reaper_max_rss_kib) = (used(1, 108 * MIB_KIB), 100 * MIB_KIB);
        run.tell(MAIN, 0, 0, Event::Reaped { child: 102, status: libc::SIGKILL, reaper_max_rss_kib, usage });
        let summaries = run.end();
        (of(&summaries, 102).peak_rss_bytes, of(&summaries, 102).peak_quality)
    };
    // Nobody would have told of an exec.
    assert_eq!(peak_of(Run::new().fork(102, MAIN, 100 * MIB_KIB)), (Some(108 * MIB), Quality::Bound));
    let mut run = Run::new();
    run.made(102, MAIN).fork(102, MAIN, 100 * MIB_KIB);
    assert_eq!(peak_of(&mut run), (Some(108 * MIB), Quality::Exact));
    // It runs a static program by now: what it had before is in the kernel's figure.
    let mut run = Run::new();
    run.made(102, MAIN).fork(102, MAIN, 100 * MIB_KIB);
    run.tell(102, MAIN, 0, Event::Exec { vm_hwm_kib: 108 * MIB_KIB }).execs(102);
    let id = run.id(102);
    run.tree.confirm_uninstrumented(id);
    assert_eq!(peak_of(&mut run), (Some(8 * MIB), Quality::Sampled));
}

#[test]
fn the_kernels_word_on_a_parent_is_better_than_that_of_a_raw_clone() {
    // 102 was made by a raw clone: its child takes 101 for its parent.
    let mut run = Run::new();
    run.made(102, MAIN).made(103, 102).fork(103, MAIN, MIB_KIB);
    assert_eq!(run.tree.get(run.id(103)).unwrap().ancestry.parent, Parent::Known(run.id(102)));
}

#[test]
fn a_fork_child_that_became_a_static_program_does_not_have_its_parents_peak() {
    // ru_maxrss survives exec: it is what the fork child had of its parent's, and says nothing of the program.
    let mut run = Run::new();
    run.fork(102, MAIN, 400 * MIB_KIB).reaped_with(MAIN, 102, 0, 0, used(1, 400 * MIB_KIB));
    assert_eq!(of(&run.end(), 102).peak_quality, Quality::Unknown);
}

#[test]
fn an_earlier_image_keeps_its_peak() {
    // 300 MB in the first image: ru_maxrss grew until the next START.
    let mut run = Run::new();
    run.start_as(102, MAIN, 0, 50, "first").start_as(102, MAIN, 0, 300 * MIB_KIB, "second");
    run.exit_with(102, MAIN, FLAG_IMAGE, used(1, 300 * MIB_KIB), used(0, 0));
    assert_eq!(of(&run.end(), 102).peak_rss_bytes, Some(300 * MIB));
    // From a larger parent it is told before the exec.
    let mut run = Run::new();
    run.start_as(102, MAIN, 0, 900 * MIB_KIB, "first");
    run.tell(102, MAIN, 0, Event::Exec { vm_hwm_kib: 300 * MIB_KIB });
    run.start_as(102, MAIN, 0, 900 * MIB_KIB, "second");
    assert_eq!(of(&run.end(), 102).peak_rss_bytes, Some(300 * MIB));
    // A fork child that execs had its parent's memory only.
    let mut run = Run::new();
    run.fork(102, MAIN, 400 * MIB_KIB).start_as(102, MAIN, 0, 400 * MIB_KIB, "cc");
    assert_eq!(of(&run.end(), 102).peak_rss_bytes, None);
}

#[test]
fn a_fork_childs_part_in_the_trees_ram_is_what_it_touched_or_grew_by() {
    assert_eq!(fork_share(400, 400, 0), 0);
    assert_eq!(fork_share(400, 400, 30), 30);
    assert_eq!(fork_share(450, 400, 30), 50, "a huge page is one fault");
    assert_eq!(fork_share(20, 400, 30), 20, "never more than it has");
    let mut run = Run::new();
    run.fork(102, MAIN, 400 * MIB_KIB);
    let own = Usage { minor_faults: 256, max_rss_kib: 400 * MIB_KIB, ..Usage::default() };
    run.exit_with(102, MAIN, 0, own, used(0, 0));
    let bytes: Vec<_> =
        run.tree.take_intervals(u64::MAX).iter().map(|life| (life.is_process, life.bytes)).collect();
    assert_eq!(bytes, [(true, 0), (false, MIB)]);
}

#[test]
fn an_ended_life_has_what_no_sample_saw() {
    let mut run = Run::new();
    run.start_as(102, MAIN, 0, MIB_KIB, "a").sampled(102, 3_000_000, 100 * MIB, 60 * MIB).later(9);
    let sampled_at = run.tree.get(run.id(102)).unwrap().observed.at_ns;
    run.exit_with(102, MAIN, FLAG_IMAGE, used(5000, 300 * MIB_KIB), used(0, 0));
    let lives = run.tree.take_intervals(u64::MAX);
    let (process, memory) = (&lives[0], &lives[1]);
    // 40 of its 100 MiB are others' too; what it grew by is its own.
    assert_eq!((memory.bytes, memory.start_ns), (260 * MIB, sampled_at));
    assert_eq!((process.is_process, process.threads, process.start_ns), (true, 2, sampled_at));
    assert_eq!(process.end_ns, sampled_at + 10 * MS);
    assert_eq!(process.cpu_ns, 5_000_000, "no window had any of it");
}

// ---- garbage ----

/// xorshift64*: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// Small, or as large as a hostile record can make it.
    fn number(&mut self, hostile: bool) -> u64 {
        if !hostile {
            return self.below(100_000);
        }
        let extremes = [0, 1, u64::from(u32::MAX), u64::MAX / 1024, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        extremes[self.below(7) as usize]
    }
    fn usage(&mut self, hostile: bool) -> Usage {
        let mut number = || self.number(hostile);
        Usage {
            user_us: number(),
            system_us: number(),
            max_rss_kib: number(),
            minor_faults: number(),
            major_faults: number(),
            voluntary_switches: number(),
            involuntary_switches: number(),
            input_blocks: number(),
            output_blocks: number(),
        }
    }
    fn event(&mut self, hostile: bool) -> Event {
        let status = self.next() as i32;
        match self.below(8) {
            0 | 1 => Event::Start {
                realtime_ns: self.number(hostile),
                pidfd_inode: self.below(3),
                max_rss_kib: self.number(hostile),
                names: [self.next() as u8; NAME_BYTES],
            },
            2 => Event::Fork {
                realtime_ns: self.number(hostile),
                pidfd_inode: self.below(3),
                max_rss_kib: self.number(hostile),
                parent_pid_ns: HERE + self.below(2) as u32,
            },
            3 => Event::Exec { vm_hwm_kib: self.number(hostile) },
            4 | 5 => Event::Exit {
                status,
                vm_hwm_kib: self.number(hostile),
                own: self.usage(hostile),
                children: self.usage(hostile),
            },
            6 => Event::Reaped {
                child: self.below(40) as u32,
                status,
                reaper_max_rss_kib: self.number(hostile),
                usage: self.usage(hostile),
            },
            _ => Event::SpawnFailed { error: status },
        }
    }
}

/// Random records over few pids, with scans, ends and settlings in between. Returns what was settled.
fn garbage(seed: u64, hostile: bool) -> Vec<ProcessSummary> {
    let mut random = Random(seed);
    let mut tree = Tree::new(frame());
    let mut summaries = Vec::new();
    let mut now_ns = T0;
    for step in 0..20_000 {
        now_ns += random.below(40) * MS;
        let origin = Origin {
            pid: random.below(40) as u32,
            pid_ns: HERE + random.below(2) as u32,
            parent: [random.below(40) as u32, LAUNCHER][random.below(8) as usize / 7],
            monotonic_ns: if hostile { random.number(true) } else { now_ns },
            flags: random.next() as u8,
        };
        let event = random.event(hostile);
        tree.apply(&origin, &event, now_ns);
        if step % 7 == 0 {
            let pick = random.below(tree.alive().len().max(1) as u64) as usize;
            if let Some(id) = tree.alive().get(pick).copied() {
                match random.below(4) {
                    0 => tree.observe_end(id, now_ns, (random.below(2) == 0).then_some(now_ns)),
                    1 => tree.set_host_pid(id, random.below(40) as u32),
                    2 => tree.set_unreported_image(id, UnreportedMemory::Own, now_ns),
                    _ => {
                        let key = Key { pid_ns: HERE, pid: random.below(40) as u32 };
                        let (host_pid, start_ns) = (key.pid, now_ns);
                        tree.found_in_proc(&ChildSeen {
                            key,
                            host_pid,
                            parent: id,
                            start_ns,
                            pidfd_inode: 1,
                        });
                    }
                }
            }
        }
        if step % 50 == 0 {
            finalize(&mut tree, now_ns, now_ns, |pid| pid % 2 == 0);
            let _ = tree.counted_cpu_ns();
            tree.take_intervals(u64::MAX);
            summaries.extend(tree.take_summaries());
        }
        // 40 pids in two namespaces and their outside names: more can't be unsettled for long.
        assert!(tree.alive().len() <= 40 * 4, "{} alive", tree.alive().len());
        assert!(tree.recently_finalized.len() <= Tolerance::FINALIZED_KEPT);
    }
    tree.finalize_all(now_ns);
    summaries.extend(tree.take_summaries());
    assert!(tree.processes.is_empty() && tree.lists.index.is_empty() && tree.groups.is_empty());
    assert_eq!(tree.counts().created, summaries.len() as u64 + tree.counts().failed_spawns);
    summaries
}

#[test]
fn garbage_in_any_order_is_counted_and_bounded() {
    for seed in 1..=4 {
        assert!(garbage(seed, false).len() > 1000);
    }
}

#[test]
fn numbers_of_any_size_saturate() {
    for seed in 1..=4 {
        assert!(garbage(seed, true).len() > 1000);
    }
}
