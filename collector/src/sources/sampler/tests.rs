//! Samples over a made /proc as examples: whose memory counts how much, who is dead, and what a sample may cost.

use std::path::Path;

use gpu_track_abi::record::{Event, NAME_BYTES, Origin, Usage};

use super::*;
use crate::run::tree::{FoundInProc, Frame, Key, SilentMemory};
use crate::run::usage::RamUsage;

const S: u64 = 1_000_000_000;
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Above the kernel's largest pid (PID_MAX_LIMIT): no real process is ever asked.
const MAIN: u32 = 5_000_001;
const CHILD: u32 = 5_000_002;

/// What a made process says of itself; sizes in MiB.
#[derive(Clone, Copy)]
struct Made {
    state: char,
    rss: u64,
    shared: u64,
    faults: u64,
    threads: u64,
    hwm: u64,
    pss: u64,
    private: u64,
    hugetlb: u64,
}

impl Made {
    fn with(rss: u64) -> Self {
        Self {
            state: 'R',
            rss,
            shared: 0,
            faults: 0,
            threads: 1,
            hwm: rss,
            pss: rss,
            private: rss,
            hugetlb: 0,
        }
    }
}

struct Run {
    proc: tempfile::TempDir,
    tree: Tree,
    sampler: Sampler,
    ram: RamUsage,
    now_ns: u64,
}

fn write(dir: &Path, made: &Made) {
    let Made { state, rss, shared, faults, threads, hwm, pss, private, hugetlb } = *made;
    std::fs::create_dir_all(dir).unwrap();
    let put = |name: &str, text: String| std::fs::write(dir.join(name), text).unwrap();
    put("stat", format!("7 (x) {state} 1 1 1 0 -1 0 {faults} 0 0 0 0 0 0 0 20 0 {threads} 0 100 1 1\n"));
    put("statm", format!("{} {} {} 1 0 1 0\n", rss * 256 + 100, rss * 256, shared * 256));
    put("status", format!("VmHWM:\t{} kB\nHugetlbPages:\t{} kB\n", hwm * 1024, hugetlb * 1024));
    let anon = (rss - shared).min(private);
    let kb = |mib: u64| mib * 1024;
    put(
        "smaps_rollup",
        format!(
            "Rss: {} kB\nPss: {} kB\nPss_Anon: {} kB\nPrivate_Clean: 0 kB\nPrivate_Dirty: {} kB\n",
            kb(rss),
            kb(pss),
            kb(anon),
            kb(private)
        ),
    );
}

impl Run {
    /// A first process with this much memory, started at second 1.
    fn new(main: Made) -> Self {
        let frame = Frame {
            launcher_pid: 100,
            pid_ns: 1,
            session_monotonic_ns: S,
            session_realtime_ns: S,
            page: PAGE,
            tick_us: 10_000,
        };
        let proc = tempfile::tempdir().unwrap();
        let sampler = Sampler::new(ProcRoot::new(proc.path()), S);
        let mut run = Self { proc, tree: Tree::new(frame), sampler, ram: RamUsage::default(), now_ns: S };
        run.tree.set_main(MAIN, S, "main");
        run.start(MAIN);
        run.is(MAIN, main);
        run
    }

    fn tell(&mut self, pid: u32, event: Event) {
        let origin = Origin { pid, pid_ns: 1, parent: MAIN, monotonic_ns: self.now_ns, flags: 0 };
        self.tree.apply(&origin, &event, self.now_ns);
    }

    fn start(&mut self, pid: u32) {
        let (realtime_ns, names) = (self.now_ns, [0; NAME_BYTES]);
        self.tell(pid, Event::Start { realtime_ns, pidfd_inode: 0, max_rss_kib: 0, names });
    }

    fn fork(&mut self, pid: u32, rss: u64) {
        let (realtime_ns, max_rss_kib) = (self.now_ns, rss * 1024);
        self.tell(pid, Event::Fork { realtime_ns, pidfd_inode: 0, max_rss_kib, parent_pid_ns: 1 });
    }

    /// The child of the first process with this pid was found by looking.
    fn found(&mut self, pid: u32) -> ProcessId {
        let parent = self.tree.alive()[0];
        let key = Key { pid_ns: 1, pid };
        let start_ns = self.now_ns;
        self.tree.found_in_proc(&FoundInProc { key, host_pid: pid, parent, start_ns, pidfd_inode: 0 })
    }

    fn is(&mut self, pid: u32, made: Made) {
        write(&self.proc.path().join(pid.to_string()), &made);
    }

    /// A sample some seconds later.
    fn sample(&mut self, seconds: u64) -> Sample {
        self.now_ns += seconds * S;
        let record = self.ram.record();
        let mut sample = self
            .sampler
            .sample(&mut self.tree, self.now_ns, record, None, |_, _| ())
            .expect("nobody puts it off");
        sample.complete(&mut self.tree);
        self.ram.add(&self.tree, &sample);
        sample
    }

    /// From now on there is no time for expensive readings.
    fn broke(&mut self) {
        self.sampler.budget = Budget { nanoseconds: i64::MIN / 2, refilled_ns: 0 };
    }

    fn settle(&mut self) {
        // What a sample finds dead is dated by the true clock.
        self.tree.settle(self.now_ns, u64::MAX, true, |_| None);
    }
}

#[test]
fn memory_of_its_own_needs_no_expensive_reading() {
    let mut run = Run::new(Made { threads: 5, ..Made::with(100) });
    run.start(CHILD);
    run.is(CHILD, Made::with(50));
    run.broke();
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.descendants), (100 * MIB, 50 * MIB));
    assert_eq!((sample.now.main_threads, sample.now.descendants_threads, sample.verified), (5, 1, true));
    assert_eq!(sample.holders.iter().map(|held| held.now / MIB).max(), Some(100));
}

#[test]
fn who_came_to_a_pid_later_is_not_who_spoke_under_it() {
    // Records tell a start that is never before the true one, which /proc rounds down to 10 ms.
    for (later_ns, is_it) in [(0, true), (15_000_000, true), (40_000_000, false)] {
        let mut run = Run::new(Made::with(100));
        run.start(CHILD);
        run.is(CHILD, Made::with(50));
        let since_boot = i128::from(S + later_ns) + crate::sys::clock::boot_offset_ns();
        let stat = format!("7 (x) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {} 1 1\n", since_boot / 10_000_000);
        std::fs::write(run.proc.path().join(CHILD.to_string()).join("stat"), stat).unwrap();
        let sample = run.sample(1);
        assert_eq!((sample.now.descendants, sample.dead_ns == 0), (if is_it { 50 * MIB } else { 0 }, is_it));
    }
}

#[test]
fn the_first_process_may_begin_long_after_the_time_that_is_told_of_it() {
    let mut run = Run::new(Made::with(100));
    let since_boot = i128::from(3 * S) + crate::sys::clock::boot_offset_ns();
    let stat = format!("7 (x) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {} 1 1\n", since_boot / 10_000_000);
    std::fs::write(run.proc.path().join(MAIN.to_string()).join("stat"), stat).unwrap();
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.dead_ns), (100 * MIB, 0));
}

/// A fork child that runs another program between the two: half of its parent's memory would be its own.
#[test]
fn a_rollup_and_a_size_of_two_programs_are_no_reading() {
    let mut run = Run::new(Made { shared: 20, ..Made::with(500) });
    run.fork(CHILD, 500);
    run.is(CHILD, Made { shared: 1, faults: 10, ..Made::with(2) });
    let copy =
        "Rss: 512000 kB\nPss: 256000 kB\nPss_Anon: 246000 kB\nPrivate_Clean: 0 kB\nPrivate_Dirty: 0 kB\n";
    std::fs::write(run.proc.path().join(CHILD.to_string()).join("smaps_rollup"), copy).unwrap();
    let sample = run.sample(1);
    assert!(sample.now.combined() <= 502 * MIB, "{:?}", sample.now);
    assert!(run.ram.combined.total <= 502 * MIB, "{:?}", run.ram.combined);
}

#[test]
fn memory_of_files_counts_with_its_proportional_part_once_that_is_read() {
    let files = Made { shared: 60, pss: 55, private: 40, ..Made::with(100) };
    let mut run = Run::new(files);
    run.broke();
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.uncertain, sample.verified), (100 * MIB, 60 * MIB, false));
    assert_eq!(run.ram.combined.total, 40 * MIB, "what is nobody else's counts all the same");
    let mut run = Run::new(files);
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.uncertain, sample.verified), (55 * MIB, 0, true));
}

#[test]
fn what_was_its_own_alone_is_read_again_when_others_may_have_mapped_it_too() {
    let shared = |pss| Made { shared: 100, pss, private: 0, ..Made::with(100) };
    let mut run = Run::new(shared(100));
    assert_eq!(run.sample(1).now.main, 100 * MIB);
    run.is(MAIN, shared(50));
    run.start(CHILD);
    run.is(CHILD, shared(50));
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.descendants, sample.verified), (50 * MIB, 50 * MIB, true));
    assert_eq!(run.ram.combined.total, 100 * MIB);
    // Without the time for that.
    run.broke();
    run.start(CHILD + 1);
    run.is(CHILD + 1, shared(33));
    assert!(!run.sample(1).verified);
    assert_eq!(run.ram.combined.total, 100 * MIB);
    // What is let go of by others is not known to have come to it.
    run.is(CHILD, Made { shared: 0, pss: 0, ..Made::with(0) });
    run.is(CHILD + 1, Made { shared: 0, pss: 0, ..Made::with(0) });
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.uncertain), (50 * MIB, 0));
}

#[test]
fn a_fork_child_counts_what_it_touched_and_its_parent_the_rest() {
    let mut run = Run::new(Made::with(400));
    run.sample(1);
    run.fork(CHILD, 400);
    run.is(CHILD, Made { faults: 256, ..Made::with(400) });
    run.broke();
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.descendants), (400 * MIB, MIB));
    // What it grew by is certain, what it touched may be its parent's old page.
    run.is(CHILD, Made { faults: 256, ..Made::with(450) });
    let sample = run.sample(1);
    assert_eq!((sample.now.descendants, sample.now.descendants_uncertain), (50 * MIB, 0));
}

#[test]
fn an_image_group_that_was_read_counts_with_its_proportional_sizes() {
    let mut run = Run::new(Made { pss: 200, private: 0, ..Made::with(400) });
    run.fork(CHILD, 400);
    run.is(CHILD, Made { pss: 230, private: 30, faults: 51_200, ..Made::with(430) });
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.descendants, sample.verified), (200 * MIB, 230 * MIB, true));
    assert_eq!(sample.now.descendants_private, 30 * MIB);
    // Carried forward by what statm says, without another reading.
    run.broke();
    run.is(CHILD, Made { faults: 51_200, ..Made::with(440) });
    assert_eq!(run.sample(1).now.descendants, 240 * MIB);
    // A new member: the proportional sizes are those of another group.
    run.fork(CHILD + 1, 440);
    run.is(CHILD + 1, Made::with(440));
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.descendants), (400 * MIB, 200 * MIB));
}

#[test]
fn a_process_in_its_parents_memory_counts_nothing() {
    let mut run = Run::new(Made::with(400));
    let id = run.found(CHILD);
    run.tree.set_silent_image(id, SilentMemory::Parents, run.now_ns);
    run.is(CHILD, Made::with(400));
    let sample = run.sample(1);
    assert_eq!((sample.now.combined(), sample.now.processes), (400 * MIB, 2));
    run.tree.set_silent_image(id, SilentMemory::Own, run.now_ns);
    run.is(CHILD, Made::with(3));
    assert_eq!(run.sample(1).now.combined(), 403 * MIB);
}

#[test]
fn a_fork_child_that_was_sampled_before_it_spoke_has_its_own_peak() {
    let mut run = Run::new(Made::with(10));
    run.found(CHILD);
    run.is(CHILD, Made { faults: 15 * 256, ..Made::with(25) });
    run.broke();
    // It may all be its parent's.
    assert_eq!(run.sample(1).now.uncertain, 25 * MIB);
    run.fork(CHILD, 10);
    run.now_ns += S / 2;
    let own = Usage { minor_faults: 50 * 256, max_rss_kib: 60 * 1024, ..Usage::default() };
    run.tell(CHILD, Event::Exit { status: 0, vm_hwm_kib: 60 * 1024, own, children: Usage::default() });
    run.sample(1);
    assert_eq!(run.ram.descendants.total, 50 * MIB);
}

#[test]
fn who_was_seen_after_his_last_word_counts_once() {
    let mut run = Run::new(Made::with(10));
    run.start(CHILD);
    run.is(CHILD, Made::with(200));
    run.sample(1);
    run.sample(1);
    // It was written before the sample, and read after it.
    run.now_ns -= S / 1000;
    let own = Usage { max_rss_kib: 200 * 1024, ..Usage::default() };
    run.tell(CHILD, Event::Exit { status: 0, vm_hwm_kib: 200 * 1024, own, children: Usage::default() });
    run.settle();
    run.sample(1);
    assert_eq!((run.ram.descendants.total, run.ram.max_processes), (200 * MIB, 2));
}

#[test]
fn what_a_process_in_shared_memory_grows_by_is_not_its_own() {
    let mut run = Run::new(Made { shared: 400, ..Made::with(400) });
    for pid in [CHILD, CHILD + 1] {
        run.fork(pid, 1);
        run.is(pid, Made { shared: 300, faults: 300 * 256, ..Made::with(300) });
    }
    run.broke();
    run.sample(1);
    let own = Usage { minor_faults: 400 * 256, max_rss_kib: 400 * 1024, ..Usage::default() };
    for pid in [CHILD, CHILD + 1] {
        run.tell(pid, Event::Exit { status: 0, vm_hwm_kib: 400 * 1024, own, children: Usage::default() });
    }
    run.settle();
    run.sample(1);
    assert_eq!(run.ram.descendants.total, 0);
}

#[test]
fn what_a_process_grows_by_is_its_own_where_nobody_shares_as_much() {
    let mut run = Run::new(Made { shared: 100, ..Made::with(101) });
    run.fork(CHILD, 1);
    run.is(CHILD, Made { shared: 30, faults: 30 * 256, ..Made::with(31) });
    run.broke();
    run.sample(1);
    let own = Usage { max_rss_kib: 1101 * 1024, ..Usage::default() };
    run.tell(MAIN, Event::Exit { status: 0, vm_hwm_kib: 1101 * 1024, own, children: Usage::default() });
    run.settle();
    run.sample(1);
    // 1 MiB was certain; 30 of the 1,000 that it grew by may be the child's.
    assert_eq!(run.ram.main.total, 971 * MIB);
}

#[test]
fn a_sample_amid_the_ends_of_the_large_is_put_off() {
    let mut run = Run::new(Made::with(400));
    for pid in [CHILD, CHILD + 1] {
        run.start(pid);
        run.is(pid, Made::with(10));
    }
    run.sample(1);
    run.is(CHILD, Made { state: 'Z', ..Made::with(0) });
    let mut sample = |notable_end| {
        let now_ns = run.now_ns + S;
        run.sampler.sample(&mut run.tree, now_ns, Record::default(), notable_end, |_, _| ()).is_some()
    };
    assert!(!sample(Some(10 * MIB)));
    assert!(sample(Some(11 * MIB)));
}

#[test]
fn huge_pages_count_on_top() {
    let mut run = Run::new(Made { hugetlb: 64, ..Made::with(10) });
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.main_rss), (74 * MIB, 74 * MIB));
}

#[test]
fn a_process_without_memory_is_over_only_if_it_is_ending() {
    let mut run = Run::new(Made::with(10));
    let dir = run.proc.path().join(MAIN.to_string());
    // In the middle of an exec.
    std::fs::write(dir.join("statm"), "0 0 0 0 0 0 0\n").unwrap();
    run.sample(1);
    run.settle();
    assert_eq!(run.tree.alive().len(), 1);
    let stat = std::fs::read_to_string(dir.join("stat")).unwrap();
    std::fs::write(dir.join("stat"), stat.replacen("-1 0 ", "-1 4 ", 1)).unwrap();
    run.sample(1);
    run.settle();
    assert!(run.tree.alive().is_empty());
}

#[test]
fn a_zombie_and_a_process_without_files_are_over() {
    let mut run = Run::new(Made::with(400));
    for pid in [CHILD, CHILD + 1, CHILD + 2] {
        run.start(pid);
    }
    run.is(CHILD, Made { state: 'Z', ..Made::with(0) });
    run.is(CHILD + 1, Made::with(10));
    assert_eq!(run.sample(1).now.processes, 2);
    run.settle();
    assert_eq!(run.tree.alive().len(), 2);
    // Its held stat says nothing any more, as after reaping.
    std::fs::write(run.proc.path().join((CHILD + 1).to_string()).join("stat"), "").unwrap();
    run.sample(1);
    run.settle();
    assert_eq!(run.tree.alive().len(), 1);
    assert_eq!(run.sampler.handles.len(), 2, "until the next sample");
    run.sample(1);
    assert_eq!(run.sampler.handles.len(), 1);
}

#[test]
fn a_process_whose_first_thread_has_ended_is_what_its_others_show() {
    let mut run = Run::new(Made::with(10));
    run.sample(1);
    // As the kernel shows it: the first thread has no memory any more.
    let dir = run.proc.path().join(MAIN.to_string());
    let empty = |dir: &Path| std::fs::write(dir.join("statm"), "0 0 0 0 0 0 0\n").unwrap();
    run.is(MAIN, Made { state: 'Z', threads: 3, ..Made::with(0) });
    empty(&dir);
    for thread in [MAIN, MAIN + 1, MAIN + 2] {
        std::fs::create_dir_all(dir.join("task").join(thread.to_string())).unwrap();
    }
    run.is(MAIN + 1, Made::with(30));
    run.is(MAIN + 2, Made::with(30));
    assert_eq!(run.sample(1).now.main, 30 * MIB);
    // The one that was read ends, and then the other.
    let others = [MAIN + 1, MAIN + 2].map(|thread| run.proc.path().join(thread.to_string()));
    empty(&others[0]);
    run.is(MAIN + 2, Made::with(40));
    assert_eq!(run.sample(1).now.main, 40 * MIB);
    empty(&others[1]);
    run.sample(1);
    run.settle();
    assert!(run.tree.alive().is_empty());
}

#[test]
fn a_resident_size_of_nothing_is_no_end_while_there_is_an_address_space() {
    // The kernel's counters are batched per CPU: up to 31 pages of each kind may not show yet.
    let mut run = Run::new(Made::with(0));
    run.sample(1);
    run.settle();
    assert_eq!(run.tree.alive().len(), 1);
}

#[test]
fn the_first_sample_of_a_process_is_a_life_from_its_start_and_later_ones_are_steady() {
    let mut run = Run::new(Made::with(100));
    let first = run.sample(10);
    let main: Vec<_> = first.lives.iter().filter(|life| life.is_process || life.bytes > 0).collect();
    assert_eq!((main.len(), main[0].is_process, main[0].start_ns), (2, true, S));
    assert_eq!((main[1].start_ns, main[1].bytes), (S, 100 * MIB));
    assert_eq!(first.steady, Sums::default());
    run.is(MAIN, Made::with(300));
    let second = run.sample(10);
    assert!(second.lives.is_empty());
    assert_eq!(
        (second.steady.main, second.steady_mean.main, second.now.main),
        (100 * MIB, 200 * MIB, 300 * MIB)
    );
    // 100 MiB for ten seconds, then 200 in the mean.
    let (main, ..) = run.ram.means(20.0).unwrap();
    assert_eq!(main, 150.0 * MIB as f64);
}

#[test]
fn a_peak_between_two_samples_is_seen() {
    let mut run = Run::new(Made::with(100));
    run.sample(10);
    run.is(MAIN, Made { hwm: 900, faults: 9, ..Made::with(100) });
    run.sample(10);
    assert_eq!(run.ram.combined.total, 900 * MIB);
}

#[test]
fn an_exec_counts_once_in_the_mean() {
    let mut run = Run::new(Made::with(100));
    run.sample(10);
    run.now_ns += S;
    run.start(MAIN);
    run.sample(9);
    let (main, ..) = run.ram.means(20.0).unwrap();
    assert_eq!(main, 100.0 * MIB as f64);
}

#[test]
fn a_sample_in_debt_reads_nothing_expensive_and_counts_only_what_is_certain() {
    let mut run = Run::new(Made::with(400));
    run.fork(CHILD, 400);
    run.is(CHILD, Made { faults: 25_600, ..Made::with(400) });
    run.broke();
    let sample = run.sample(1);
    assert!(run.sampler.handles.values().all(|handle| handle.sharing.is_none() && handle.hwm.is_none()));
    assert_eq!((sample.verified, sample.now.uncertain), (false, 100 * MIB));
    assert_eq!((run.ram.combined.total, run.ram.descendants.total), (400 * MIB, 0));
}

#[test]
fn the_budget_is_a_hundredth_of_the_time_saved_up_to_a_limit() {
    let mut budget = Budget { nanoseconds: -5_000_000, refilled_ns: 10 * S };
    budget.refill(11 * S);
    assert_eq!(budget.nanoseconds, 5_000_000);
    budget.refill(10 * S);
    assert_eq!(budget.nanoseconds, 5_000_000, "time never goes back");
    budget.refill(1000 * S);
    assert_eq!(budget.nanoseconds, BUDGET_SAVED_NS);
    let before = clock::thread_cpu_ns();
    budget.spend(|| while clock::thread_cpu_ns() < before + 30_000_000 {});
    assert!(!budget.is_left() && budget.has_credit(BUDGET_CREDIT_NS));
}

#[test]
fn the_cpu_clock_counts_by_what_it_grew() {
    // The one real process that may be asked is this one.
    let mut run = Run::new(Made::with(10));
    let pid = std::process::id();
    run.start(pid);
    run.is(pid, Made::with(10));
    let first = run.sample(1).descendants_cpu_ns;
    let before = crate::sys::pidfd::cpu_clock_ns(pid).unwrap();
    while crate::sys::pidfd::cpu_clock_ns(pid).unwrap() < before + 5_000_000 {}
    let second = run.sample(1).descendants_cpu_ns;
    assert!(second >= 5_000_000);
    assert_eq!(run.tree.counted_cpu_ns(), first + second);
}
