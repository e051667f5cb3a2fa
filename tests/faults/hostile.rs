//! Attacks on the session by a process of the tree. The collector keeps running and stays small, the command's exit
//! status is unchanged, and the report states what happened. The test itself attacks, since it has the same access.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gpu_track_abi::layout::{HEADER_SIZE, RING_CAPACITY, SLOT_SIZE};
use gpu_track_abi::rank::Rank;
use gpu_track_abi::record::{Event, NAME_BYTES, Origin, Usage};
use gpu_track_abi::task::TaskKeys;
use gpu_track_collector::{ProcRoot, Segment};

use crate::support::programs::program;
use crate::support::run::Running;
use crate::support::{Run, leftovers, tracked, wait_until};
use crate::{Random, rounds};

/// More than the collector needs for a handful of processes; unbounded growth soon exceeds it.
const MAX_PEAK_KIB: u64 = 64 * 1024;

fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// A run under attack: the command has three children before the attack and two after it.
fn attacked(attack: impl FnOnce(&Running)) -> Run {
    let script = "/bin/true; /bin/true; /bin/true; echo ready; read x; /bin/true; /bin/true; exit 5";
    let mut running = tracked(["sh", "-c", script]).piped_stdin().start();
    running.wait_for_output("ready");
    let pid = running.wait_for_collector();
    let segment = {
        let file = File::options().read(true).write(true).open(running.segment()).unwrap();
        Segment::from_file(&running.segment(), file.into()).unwrap()
    };
    // An attack cannot change records that were read before.
    wait_until("the first records to be read", || is_drained(&segment));
    drop(segment);
    attack(&running);
    let kib = peak_kib(pid);
    assert!((1..MAX_PEAK_KIB).contains(&kib), "the collector's peak is {kib} KiB (0: it has ended)");
    running.stdin().write_all(b"go\n").unwrap();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(5), "{} {}", run.status, run.stderr);
    assert_eq!(run.report().at("exit.code"), 5);
    assert!(run.report().u64("processes.total") >= 4, "the processes that were read before the attack");
    run
}

/// Whether the collector has read all records.
pub fn is_drained(segment: &Segment) -> bool {
    let header = segment.header();
    header.head.0.load(Ordering::Acquire) == header.tail.0.load(Ordering::Acquire)
}

fn open_segment(running: &Running) -> File {
    File::options().read(true).write(true).open(running.segment()).unwrap()
}

// Requirement: FAULT-5
#[test]
fn random_bytes_over_the_whole_segment_are_survived() {
    for seed in 1..=u64::from(rounds(3)) {
        let run = attacked(|running| {
            let mut random = Random(seed);
            let mut file = open_segment(running);
            let length = file.metadata().unwrap().len();
            let bytes: Vec<u8> = (0..length / 8).flat_map(|_| random.next().to_ne_bytes()).collect();
            file.write_all(&bytes).unwrap();
        });
        assert!(!run.report().array("warnings").is_empty(), "a warning states what happened");
    }
}

// Requirement: FAULT-5, FAULT-86
#[test]
fn random_bytes_in_the_ring_are_survived() {
    for seed in 1..=u64::from(rounds(3)) {
        let run = attacked(|running| {
            let mut random = Random(seed);
            let file = open_segment(running);
            let bytes: Vec<u8> = (0..65_536 / 8).flat_map(|_| random.next().to_ne_bytes()).collect();
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 4096).unwrap();
        });
        assert!(!run.report().array("warnings").is_empty(), "a warning states what happened");
    }
}

// Requirement: FAULT-99
#[test]
fn word_stored_into_the_ring_stops_no_reading() {
    let run = attacked(|running| {
        let segment = Segment::from_file(&running.segment(), open_segment(running).into()).unwrap();
        let next = segment.header().head.0.load(Ordering::Relaxed) as usize;
        assert!(next < RING_CAPACITY, "the first lap, in which an empty word is 0");
        // A payload without a tag in the word that would publish the next record.
        let at = HEADER_SIZE + (next + 1) * SLOT_SIZE - size_of::<u64>();
        let word = 7u64.to_ne_bytes();
        std::os::unix::fs::FileExt::write_all_at(&open_segment(running), &word, at as u64).unwrap();
    });
    let report = run.report();
    assert_eq!(report.command("true").expect("/bin/true ran")["count"], 5);
    assert_eq!(report.u64("coverage.exact"), 6, "{}", report.at("coverage"));
    assert!(report.warnings().contains("not counted: 1 event record"), "{}", report.warnings());
}

// Requirement: FAULT-5
#[test]
fn enlarged_segment_is_survived() {
    for seed in 1..=u64::from(rounds(3)) {
        let run = attacked(|running| {
            let mut random = Random(seed);
            let bytes: Vec<u8> = (0..65_536 / 8).flat_map(|_| random.next().to_ne_bytes()).collect();
            let end = open_segment(running).metadata().unwrap().len();
            std::os::unix::fs::FileExt::write_all_at(&open_segment(running), &bytes, end).unwrap();
        });
        assert!(!run.report().array("warnings").is_empty(), "a warning states what happened");
    }
    let run = attacked(|running| open_segment(running).set_len(1 << 40).unwrap());
    assert!(!run.report().array("warnings").is_empty(), "a warning states what happened");
}

// Requirement: FAULT-94
#[test]
fn emptied_segment_with_an_active_writer_is_survived() {
    // Every program with the shim that touches the segment gets SIGBUS, so the shell starts none after the attack. The
    // shell itself ends by SIGBUS, when it writes its EXIT record.
    let script = "/bin/true; echo ready; read x; exit 5";
    let mut running = tracked(["sh", "-c", script]).piped_stdin().start();
    running.wait_for_output("ready");
    running.wait_for_collector();
    open_segment(&running).set_len(0).unwrap();
    running.stdin().write_all(b"go\n").unwrap();
    let run = running.wait();
    assert_eq!(run.status.signal(), Some(libc::SIGBUS), "{} {}", run.status, run.stderr);
    assert_eq!(run.report().at("exit.signal").as_i64(), Some(i64::from(libc::SIGBUS)));
    assert!(run.report().warnings().contains("truncated"), "{}", run.report().warnings());
}

/// A record that a process of the tree could write: about any process, also in pid namespaces that do not exist.
fn forged(random: &mut Random, pids: &[u32], pid_ns: u32) -> (Origin, Event) {
    let mut any = || random.next();
    let pid = if any() % 2 == 0 { pids[any() as usize % pids.len()] } else { any() as u32 };
    let pid_ns = if any() % 2 == 0 { pid_ns } else { any() as u32 };
    let origin = Origin {
        pid,
        pid_ns,
        parent: pids[any() as usize % pids.len()],
        monotonic_ns: any() >> (any() % 64),
        flags: any() as u8,
    };
    let usage =
        Usage { user_us: any(), system_us: any() >> (any() % 64), max_rss_kib: any(), ..Usage::default() };
    let event = match any() % 6 {
        0 => Event::Start {
            realtime_ns: any(),
            pidfd_inode: any() % 3,
            max_rss_kib: any(),
            names: std::array::from_fn::<u8, NAME_BYTES, _>(|_| any() as u8),
            rank: Rank { job: any() as u32, rank: any() as u32, count: any() as u32 },
            task: TaskKeys {
                hashes: std::array::from_fn(|_| any() as u32 % 3),
                text: std::array::from_fn(|_| any() as u8),
            },
        },
        1 => Event::Fork {
            realtime_ns: any(),
            pidfd_inode: any() % 3,
            max_rss_kib: any(),
            parent_pid_ns: pid_ns,
        },
        2 => Event::Exec { vm_hwm_kib: any() },
        3 => Event::Exit { status: any() as i32, vm_hwm_kib: any(), own: usage, children: usage },
        4 => Event::Reaped {
            child: any() as u32,
            status: any() as i32,
            reaper_max_rss_kib: any(),
            usage,
            clock_ns: any(),
        },
        _ => Event::SpawnFailed { error: any() as i32 },
    };
    (origin, event)
}

fn own_pid_ns() -> u32 {
    use std::os::unix::fs::MetadataExt;
    u32::try_from(std::fs::metadata("/proc/self/ns/pid").unwrap().ino()).unwrap()
}

/// Whether the collector still reads records. It does so at least every 50 ms; this waits up to 5 s.
fn still_reads(segment: &Segment) -> bool {
    let tail = || segment.header().tail.0.load(Ordering::Acquire);
    let (before, start) = (tail(), Instant::now());
    while tail() == before {
        if start.elapsed() > Duration::from_secs(5) {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Writes records as fast as they are read: `count` of them, then more until the collector stops reading. Panics after
/// twenty times `count`.
fn flood(running: &Running, count: u64, mut record: impl FnMut() -> (Origin, Event)) {
    let segment = Segment::from_file(&running.segment(), open_segment(running).into()).unwrap();
    let header = segment.header();
    let mut is_read = true;
    for number in 0..count * 20 {
        let (origin, event) = record();
        segment.push_event(&origin, &event);
        let waiting = header.head.0.load(Ordering::Relaxed) - header.tail.0.load(Ordering::Relaxed);
        if is_read && waiting >= RING_CAPACITY as u64 {
            is_read = still_reads(&segment);
        }
        if !is_read && number >= count {
            return;
        }
    }
    panic!("the collector still reads after {} forged records", count * 20);
}

/// Asserts that the report calls the records forged and keeps the figures from before the attack.
fn assert_distrusted(run: &Run, why: &str) {
    let report = run.report();
    assert!(report.warnings().contains("forges event records"), "{}", report.warnings());
    let reason = report.at("coverage.records_untrusted").as_str().unwrap_or("none");
    assert!(reason.contains(why), "{reason}");
    assert!(
        report.f64("cpu_time.total_s") < 1e9,
        "impossible figures are left out: {}",
        report.at("cpu_time")
    );
    let before = report.command("true").expect("/bin/true ran");
    assert!(before["count"].as_u64() >= Some(3), "{before}");
}

// Requirement: FAULT-89, FAULT-91
#[test]
fn flood_of_forged_processes_is_distrusted() {
    let run = attacked(|running| {
        let mut random = Random(77);
        let mut pids = vec![1, std::process::id(), running.pid()];
        pids.extend(leftovers::processes(running.mark()).into_iter().map(|(pid, _)| pid));
        flood(running, rounds(100_000).into(), || forged(&mut random, &pids, own_pid_ns()));
    });
    assert_distrusted(&run, "processes");
}

// Requirement: FAULT-89
#[test]
fn flood_of_exec_records_is_distrusted() {
    let run = attacked(|running| {
        let origin =
            Origin { pid: running.pid(), pid_ns: own_pid_ns(), monotonic_ns: 1, ..Origin::default() };
        flood(running, rounds(1_000_000).into(), || (origin, Event::Exec { vm_hwm_kib: 1 }));
    });
    assert_distrusted(&run, "faster");
}

// Requirement: FAULT-12, FAULT-87
#[test]
fn forged_record_does_not_measure_a_foreign_process() {
    let words = ["private", "300000000", "1", "0", "60"];
    let mut foreign = Command::new(program("share")).args(words).process_group(0).spawn().unwrap();
    let proc = ProcRoot::default();
    wait_until("the foreign process's child", || !proc.children(foreign.id(), 1).is_empty());
    let run = attacked(|running| {
        let segment = Segment::from_file(&running.segment(), open_segment(running).into()).unwrap();
        let origin = Origin {
            pid: foreign.id(),
            pid_ns: own_pid_ns(),
            parent: running.pid(),
            monotonic_ns: gpu_track_collector::clock::monotonic_ns(),
            flags: 0,
        };
        let mut names = [0; NAME_BYTES];
        names[..7].copy_from_slice(b"foreign");
        let start = Event::Start {
            realtime_ns: 0,
            pidfd_inode: 0,
            max_rss_kib: 5,
            names,
            rank: Rank::default(),
            task: TaskKeys::NONE,
        };
        segment.push_event(&origin, &start);
        wait_until("the forged record to be read", || is_drained(&segment));
        let live = running.live();
        let seen = live.count();
        wait_until("further samples", || live.count() >= seen + 3);
    });
    // SAFETY: kill(2) takes plain numbers; the process group is the foreign process's own.
    unsafe { libc::kill(-foreign.id().cast_signed(), libc::SIGKILL) };
    foreign.wait().unwrap();
    let report = run.report();
    assert!(report.command("foreign").is_some(), "the forged record was read");
    assert!(report.f64("max_ram.combined.total_rss") < 100e6, "{}", report.at("max_ram"));
    assert!(report.command("share").is_none(), "the foreign process's child is not counted");
}
