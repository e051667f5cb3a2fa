//! A child of posix_spawn that could not exec is counted once. The parent's record, connector events and /proc can be read
//! in any order.

use super::*;

const FAILED: Event = Event::SpawnFailed { error: libc::ENOENT };
const COULD_NOT_EXEC: i32 = 127 << 8;
const SPAWNED: u32 = 102;

impl Run {
    fn spawn_fails(&mut self) -> &mut Self {
        self.record(MAIN, LAUNCHER, 0, FAILED)
    }

    /// An event of the connector that is read this much later than it happened.
    fn late_kernel(&mut self, late_ms: u64, pid: u32, what: What) -> &mut Self {
        let at_ns = self.now_ns - late_ms * MS;
        self.tree.apply_kernel(&KernelEvent { at_ns, pid, what }, self.now_ns);
        self.later(1)
    }

    /// A sample finds that /proc no longer has the child.
    fn found_gone(&mut self) -> &mut Self {
        let (id, now_ns) = (self.id(SPAWNED), self.now_ns);
        self.tree.observe_end(id, now_ns, Some(now_ns));
        self.later(1).finalize(&[])
    }

    /// A restarted collector goes on.
    fn restored(&mut self) -> &mut Self {
        self.tree = postcard::from_bytes(&postcard::to_stdvec(&self.tree).unwrap()).unwrap();
        self
    }

    fn assert_counted_once(&mut self) {
        assert_eq!((self.tree.counts().created, self.tree.counts().failed_spawns), (2, 1));
        let summaries = self.end();
        assert_eq!(summaries.iter().map(|process| process.ids.pid()).collect::<Vec<_>>(), [MAIN]);
        assert_eq!((self.tree.counts().created, self.tree.counts().failed_spawns), (2, 1));
    }
}

// Requirement: SEE-10
#[test]
fn record_after_the_childs_events() {
    let mut run = Run::new();
    run.kernel_fork(SPAWNED, MAIN).over(SPAWNED, COULD_NOT_EXEC).spawn_fails().assert_counted_once();
}

// Requirement: SEE-10
#[test]
fn record_between_the_childs_fork_and_exit_event() {
    let mut run = Run::new();
    run.kernel_fork(SPAWNED, MAIN).spawn_fails().restored();
    run.kernel(SPAWNED, What::Exit { status: COULD_NOT_EXEC }).assert_counted_once();
}

// Requirement: SEE-10
#[test]
fn record_before_the_childs_events() {
    let mut run = Run::new();
    run.spawn_fails().late_kernel(2, SPAWNED, What::Fork { parent: MAIN });
    run.kernel(SPAWNED, What::Exit { status: COULD_NOT_EXEC }).assert_counted_once();
}

// Requirement: SEE-10
#[test]
fn child_found_gone_before_its_exit_event() {
    for is_gone_first in [false, true] {
        let mut run = Run::new();
        run.kernel_fork(SPAWNED, MAIN);
        match is_gone_first {
            true => run.found_gone().spawn_fails(),
            false => run.spawn_fails().found_gone(),
        };
        run.kernel(SPAWNED, What::Exit { status: COULD_NOT_EXEC }).later(500).finalize(&[]);
        run.assert_counted_once();
    }
}

// Requirement: SEE-10
#[test]
fn child_whose_exit_event_is_never_read() {
    let mut run = Run::new();
    run.kernel_fork(SPAWNED, MAIN).spawn_fails().end();
    assert_eq!((run.tree.counts().created, run.tree.counts().failed_spawns), (2, 1));
}

// Requirement: SEE-10
#[test]
fn child_that_proc_showed() {
    let mut run = Run::new();
    run.scan(SPAWNED, MAIN).spawn_fails().found_gone().later(500).finalize(&[]).assert_counted_once();
    // Where the connector reports all processes, what /proc shows waits for its events.
    let mut run = Run::new();
    run.kernel_fork(SPAWNED, MAIN);
    let child = ChildSeen::of_test(Key { pid_ns: HERE, pid: SPAWNED }, run.id(MAIN), run.now_ns);
    run.tree.found_ahead(child);
    run.kernel(SPAWNED, What::Exit { status: COULD_NOT_EXEC }).spawn_fails().later(1).finalize(&[]);
    run.assert_counted_once();
}

// Requirement: SEE-10
#[test]
fn other_children_stay() {
    let mut run = Run::new();
    // One had a record, one exec'd, one ended otherwise, one lived on, and one came later.
    run.fork(103, MAIN, MIB_KIB);
    run.kernel_fork(104, MAIN).execs(104);
    run.kernel_fork(105, MAIN);
    run.kernel_fork(106, MAIN);
    run.spawn_fails();
    run.sampled(106, 0, MIB, MIB).kernel_fork(107, MAIN);
    for (pid, status) in
        [(103, COULD_NOT_EXEC), (104, COULD_NOT_EXEC), (105, 9), (106, COULD_NOT_EXEC), (107, COULD_NOT_EXEC)]
    {
        run.kernel(pid, What::Exit { status });
    }
    assert_eq!(run.end().len(), 6);
}
