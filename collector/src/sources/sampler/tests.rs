//! Readings of a made-up /proc: which processes are alive, dead or others by now, and where their memory shows.

use std::path::Path;

use super::*;
use crate::model::ids::{Identity, Target};
use crate::model::policy::BudgetPolicy;

const S: u64 = 1_000_000_000;
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const TICK_US: u64 = 10_000;
/// Above the kernel's largest pid (PID_MAX_LIMIT): no real process is ever asked.
const PID: u32 = 5_000_001;

struct Proc {
    dir: tempfile::TempDir,
    sampler: Sampler,
    identity: Identity,
    seconds: u64,
}

impl Proc {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sampler = Sampler::new(ProcRoot::new(dir.path()), PAGE, TICK_US);
        let identity =
            Identity { pidfd_inode: 0, latest_start_ns: S, is_start_rough: false, is_pid_held: false };
        Self { dir, sampler, identity, seconds: 1 }
    }

    fn write(&self, pid: u32, file: &str, text: &str) {
        let dir = self.dir.path().join(pid.to_string());
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(file), text).unwrap();
    }

    /// A process or thread with `rss` MiB that started `start_ns` nanoseconds after boot's monotonic zero.
    fn is(&self, pid: u32, state: char, flags: u32, threads: u32, rss: u64, start_ns: u64) {
        let start = (i128::from(start_ns) + clock::boot_offset_ns()) / 10_000_000;
        let stat = format!(
            "7 (x) {state} 1 1 1 0 -1 {flags} 9 0 0 0 5 6 0 0 20 0 {threads} 0 {start} 1 1 1 1 1 77\n"
        );
        self.write(pid, "stat", &stat);
        self.write(pid, "statm", &format!("{} {} 0 1 0 1 0\n", rss * 256 + 100, rss * 256));
    }

    fn has_no_memory(&self, pid: u32) {
        self.write(pid, "statm", "0 0 0 0 0 0 0\n");
    }

    fn read(&mut self) -> Option<ReadingState> {
        let target = Target { id: ProcessId(1), pid: PID, identity: self.identity };
        self.seconds += 1;
        let target = SampleTarget { target, wants_args: false, is_alone: true };
        self.sampler.read(&[target], self.seconds * S).pop().map(|reading| reading.state)
    }

    fn rss(&mut self) -> Option<u64> {
        match self.read()? {
            ReadingState::Alive(_, size) => Some(size?.rss_bytes / MIB),
            _ => None,
        }
    }
}

#[test]
fn live_process_has_vitals_and_size() {
    let mut proc = Proc::new();
    proc.is(PID, 'R', 0, 3, 30, S);
    let Some(ReadingState::Alive(vitals, Some(size))) = proc.read() else { panic!("it is alive") };
    let counts = vitals.counts;
    assert_eq!((vitals.threads, counts.minor_faults, counts.user_ticks, counts.system_ticks), (3, 9, 5, 6));
    assert_eq!((vitals.start_stack, vitals.cpu_ns), (77, None));
    assert_eq!((size.rss_bytes, size.shared_bytes), (30 * MIB, 0));
}

#[test]
fn later_process_of_the_same_pid_is_not_read() {
    // Records tell a start that is never before the true one, which /proc rounds down to 10 ms.
    for (start_ns, is_it) in [(S - 20_000_000, true), (S, true), (S + 20_000_000, false)] {
        let mut proc = Proc::new();
        proc.is(PID, 'R', 0, 1, 50, start_ns);
        assert_eq!(proc.rss(), is_it.then_some(50));
        let mut proc = Proc::new();
        proc.identity.is_pid_held = true;
        proc.is(PID, 'R', 0, 1, 50, start_ns);
        assert_eq!(proc.rss(), Some(50), "the launcher keeps the first process's pid");
    }
}

#[test]
fn process_without_memory_is_ending_only_if_its_flags_say_so() {
    let mut proc = Proc::new();
    proc.is(PID, 'R', 0, 1, 10, S);
    // In the middle of an exec.
    proc.has_no_memory(PID);
    assert!(matches!(proc.read(), Some(ReadingState::Alive(_, None))));
    // PF_EXITING.
    proc.is(PID, 'R', 4, 1, 10, S);
    proc.has_no_memory(PID);
    assert!(matches!(proc.read(), Some(ReadingState::Ending(..))));
}

#[test]
fn process_without_stat_is_gone() {
    let mut proc = Proc::new();
    proc.is(PID, 'R', 0, 1, 10, S);
    assert_eq!(proc.rss(), Some(10));
    // Its held stat says nothing any more, as after reaping.
    proc.write(PID, "stat", "");
    assert!(matches!(proc.read(), Some(ReadingState::Gone(_))));
    assert_eq!(proc.sampler.handles.len(), 1);
    proc.sampler.retain(|_| false);
    assert!(proc.sampler.handles.is_empty());
}

// Requirement: RAM-8
#[test]
fn memory_is_read_from_another_thread_after_the_first_ended() {
    let mut proc = Proc::new();
    proc.is(PID, 'R', 0, 1, 10, S);
    assert_eq!(proc.rss(), Some(10));
    // As the kernel shows it: the first thread has no memory any more.
    proc.is(PID, 'Z', 0, 3, 0, S);
    proc.has_no_memory(PID);
    for thread in [PID, PID + 1, PID + 2] {
        let dir = proc.dir.path().join(PID.to_string());
        std::fs::create_dir_all(Path::new(&dir).join("task").join(thread.to_string())).unwrap();
    }
    proc.is(PID + 1, 'R', 0, 3, 30, S);
    proc.is(PID + 2, 'R', 0, 3, 30, S);
    assert_eq!(proc.rss(), Some(30));
    // The one that was read ends, and then the other.
    proc.has_no_memory(PID + 1);
    proc.is(PID + 2, 'R', 0, 3, 40, S);
    assert_eq!(proc.rss(), Some(40));
    proc.has_no_memory(PID + 2);
    assert!(matches!(proc.read(), Some(ReadingState::Ending(..) | ReadingState::Gone(_))));
}

#[test]
fn resident_size_of_zero_is_no_end_while_there_is_an_address_space() {
    // The kernel's counters are batched per CPU: up to 31 pages of each kind may not show yet.
    let mut proc = Proc::new();
    proc.is(PID, 'R', 0, 1, 0, S);
    assert_eq!(proc.rss(), Some(0));
}

#[test]
fn process_that_rested_is_not_read_again_for_a_second() {
    let mut proc = Proc::new();
    let own = std::process::id();
    let target = Target { id: ProcessId(1), pid: own, identity: proc.identity };
    proc.identity.is_pid_held = true;
    let identity = Identity { is_pid_held: true, ..target.identity };
    proc.is(own, 'R', 0, 1, 10, S);
    let target = SampleTarget { target: Target { identity, ..target }, wants_args: false, is_alone: false };
    let mut read = |now_ns| proc.sampler.read(&[target], now_ns).pop().unwrap().state;
    let cpu_ns = |state| match state {
        ReadingState::Alive(vitals, _) => vitals.cpu_ns.unwrap(),
        state => panic!("{state:?}"),
    };
    // This process's clock grows: it never rests.
    let first = cpu_ns(read(S));
    while crate::sys::pidfd::cpu_clock_ns(own).unwrap() < first + 1_000_000 {}
    assert!(cpu_ns(read(S + 1)) > first);
}

// Requirement: RAM-38
#[test]
fn large_process_is_counted_page_by_page_and_not_at_all_where_that_costs_too_much() {
    let mut proc = Proc::new();
    proc.is(PID, 'R', 0, 1, 1, S);
    proc.read();
    // There is no smaps, and no smaps_rollup.
    proc.write(PID, "maps", "10000000-10100000 rw-p 00000000 00:00 0 [heap]\n");
    const OWN: u64 = 1 << 63 | 1 << 56;
    let page_map = std::fs::File::create(proc.dir.path().join(PID.to_string()).join("pagemap")).unwrap();
    let entries: Vec<u8> = [OWN; 256].iter().flat_map(|entry| entry.to_ne_bytes()).collect();
    std::os::unix::fs::FileExt::write_all_at(&page_map, &entries, 0x10000 * 8).unwrap();
    let id = ProcessId(1);
    let mut budget = Budget::new(BudgetPolicy::default(), S);
    let mut read = |bytes| {
        let source = SharingSource::Pages { bytes, with_anonymous: true };
        proc.sampler.read_sharing(&[id], &[SharingTarget { id, source }], &mut budget, 0)
    };
    let [affordable, expensive] = [48 << 30, 480 << 30].map(&mut read);
    let [(_, SharingReading::Read { rollup, .. })] = affordable.read.as_slice() else {
        panic!("{affordable:?}")
    };
    assert_eq!((rollup.private_bytes, rollup.pss_anon_bytes), (MIB, MIB));
    assert!(expensive.read.is_empty() && expensive.with_files);
    // A thousand mappings of 1 GiB have a pagemap of 2 GiB.
    let sparse = |at: u64| format!("{:x}-{:x} rw-p 00000000 00:00 0\n", at << 30, (at + 1) << 30);
    proc.write(PID, "maps", &(1..1000).map(sparse).collect::<String>());
    let source = SharingSource::Pages { bytes: MIB, with_anonymous: true };
    let sparse = proc.sampler.read_sharing(&[id], &[SharingTarget { id, source }], &mut budget, 0);
    assert!(sparse.read.is_empty());
}
