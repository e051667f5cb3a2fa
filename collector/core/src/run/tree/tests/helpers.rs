//! Processes of gpu-track itself are in no figure, with what they start. Runs within the run are.

use super::*;

const HELPER: u32 = 102;

impl Run {
    fn assert_left_out(&mut self, helpers: u64, pids: &[u32]) {
        let summaries = self.end();
        let mut counted: Vec<u32> = summaries.iter().map(|process| process.ids.pid()).collect();
        counted.sort_unstable();
        assert_eq!(counted, pids);
        let counts = self.tree.counts();
        assert_eq!((counts.created, counts.helpers), (pids.len() as u64, helpers));
        assert!(self.tree.take_intervals(u64::MAX).iter().all(|interval| interval.cpu_ns == 0));
    }
}

// Requirement: SEE-37, SEE-123
#[test]
fn helper_is_left_out_and_its_parents_sums_are_right() {
    let mut run = Run::new();
    run.kernel_fork(HELPER, MAIN).execs(HELPER);
    assert_eq!(run.tree.alive().len(), 2);
    run.start_as(HELPER, MAIN, 0, MIB_KIB, "gpu-track\0record").sampled(HELPER, 40 * MS, 20 * MIB, 20 * MIB);
    assert_eq!(run.tree.alive().len(), 1);
    run.exit(HELPER, 40_000, 0).over(HELPER, 0).reaped(MAIN, HELPER, 40_000);
    run.exit(MAIN, 0, 40_000).reaped(LAUNCHER, MAIN, 40_000).finalize(&[]);
    let main = &run.tree.summaries[0];
    assert_eq!((main.own_usage.usage.cpu_us(), main.own_usage.unattributed_us), (0, 0));
    assert_eq!(run.tree.counts().helpers_reaped_cpu_us, 40_000);
    run.assert_left_out(1, &[MAIN]);
}

// Requirement: SEE-37
#[test]
fn what_a_helper_starts_is_left_out_whoever_reports_it() {
    let mut run = Run::new();
    run.fork(HELPER, MAIN, MIB_KIB).start_as(HELPER, MAIN, 0, MIB_KIB, "sh\0gpu-track-background");
    run.kernel_fork(103, HELPER).scan(104, HELPER).fork(105, HELPER, MIB_KIB).reaped(HELPER, 106, 5);
    run.start_as(105, HELPER, 0, MIB_KIB, "gpu-track-run").fork(107, 105, MIB_KIB);
    assert_eq!(run.tree.alive().len(), 1);
    // The shell is finalized before the record of its last child is read.
    run.exit(HELPER, 1, 0).reaped(MAIN, HELPER, 1).finalize(&[]).fork(108, HELPER, MIB_KIB);
    run.assert_left_out(7, &[MAIN]);
}

// Requirement: SEE-37
#[test]
fn another_process_can_have_the_pid_of_a_helper_that_ended_without_a_record() {
    let mut run = Run::new();
    run.start_as(HELPER, MAIN, 0, MIB_KIB, "sh\0gpu-track-background").fork(103, HELPER, MIB_KIB);
    run.finalize(&[HELPER, 103]).later(1).finalize(&[]).start(103, MAIN);
    run.assert_left_out(2, &[MAIN, 103]);
}

// Requirement: SEE-37
#[test]
fn helper_is_known_by_what_proc_shows_before_its_record() {
    let mut run = Run::new();
    let id = run.kernel_fork(HELPER, MAIN).execs(HELPER).id(HELPER);
    run.tree.set_program(id, Program { command: Some("gpu-track gpus".into()), ..Program::default() });
    assert_eq!(run.tree.alive().len(), 1);
    run.start_as(HELPER, MAIN, 0, MIB_KIB, "gpu-track\0gpus").assert_left_out(1, &[MAIN]);
}

// Requirement: SEE-37
#[test]
fn rss_of_a_helper_is_none_that_a_process_of_the_run_had() {
    let mut run = Run::new();
    let most = used(1, 90 * MIB_KIB);
    run.fork(102, MAIN, MIB_KIB).fork(103, 102, MIB_KIB).start_as(103, 102, 0, MIB_KIB, "gpu-track\0report");
    run.reaped_with(102, 103, 0, 0, most).exit_with(102, MAIN, FLAG_IMAGE, used(1, MIB_KIB), most);
    run.reaped_with(MAIN, 102, 0, 0, most).exit_with(MAIN, LAUNCHER, FLAG_IMAGE, used(1, MIB_KIB), most);
    run.reaped_with(LAUNCHER, MAIN, 0, 0, most);
    for process in run.end() {
        let KnownRss { below_bytes, either_bytes, .. } = process.memory.known_rss;
        assert_eq!((below_bytes, either_bytes), (0, 0), "{}", process.ids.pid());
    }
}

// Requirement: SEE-14, SEE-37
#[test]
fn run_within_the_run_and_a_command_that_is_a_helper_count() {
    let mut run = Run::new();
    run.start_as(MAIN, LAUNCHER, 0, MIB_KIB, "gpu-track\0watch").fork(102, MAIN, MIB_KIB);
    for (pid, name) in
        (103..).zip(["gpu-track\0run", "gpu-track\0study", "gpu-track-run", "gpu-track", "sh\0x"])
    {
        run.start_as(pid, MAIN, 0, MIB_KIB, name);
    }
    run.assert_left_out(0, &[MAIN, 102, 103, 104, 105, 106, 107]);
}
