//! A tree that attacks the session: the collector stays up and small, the command ends as it does, and the report says
//! what happened. The attacker is the test itself: it may do what any process of the tree may.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::Ordering;

use gpu_track_abi::record::{Event, NAME_BYTES, Origin, Usage};
use gpu_track_collector::segment::Segment;

use crate::kills::collector;
use crate::support::run::Running;
use crate::support::{Run, leftovers, tracked, wait_until};
use crate::{Random, rounds};

/// More than the collector ever needs for a handful of processes; an attack that bloats it needs little to pass it.
const MOST_KIB: u64 = 64 * 1024;

/// The segment's file.
fn segment_path(running: &Running) -> PathBuf {
    let names = leftovers::segments(running.pid());
    let name = names.into_iter().find(|name| !name.ends_with(".state")).expect("the run has a segment");
    PathBuf::from("/dev/shm").join(name)
}

fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// A run under attack: it has had three children before, and has two more after.
fn attacked(attack: impl FnOnce(&Running)) -> Run {
    let script = "/bin/true; /bin/true; /bin/true; echo ready; read x; /bin/true; /bin/true; exit 5";
    let mut running = tracked(["sh", "-c", script]).with(|command| command.stdin(Stdio::piped())).start();
    running.wait_for_output("ready");
    wait_until("a collector", || collector(&running).is_some());
    let pid = collector(&running).unwrap();
    let segment = {
        let file = File::options().read(true).write(true).open(segment_path(&running)).unwrap();
        Segment::from_file(&segment_path(&running), file.into()).unwrap()
    };
    // What is drained is safe: a sample that counts the command comes after that.
    wait_until("the first records are read", || is_drained(&segment));
    drop(segment);
    attack(&running);
    let kib = peak_kib(pid);
    assert!((1..MOST_KIB).contains(&kib), "the collector's peak is {kib} KiB (0: it has ended)");
    running.stdin().write_all(b"go\n").unwrap();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(5), "{} {}", run.status, run.stderr);
    assert_eq!(run.report().at("exit.code"), 5);
    assert!(run.report().u64("processes.total") >= 4, "what was drained before stands");
    run
}

/// Whether the collector has read all that was written.
pub fn is_drained(segment: &Segment) -> bool {
    let header = segment.header();
    header.head.0.load(Ordering::Acquire) == header.tail.0.load(Ordering::Acquire)
}

fn open_segment(running: &Running) -> File {
    File::options().read(true).write(true).open(segment_path(running)).unwrap()
}

#[test]
fn random_bytes_all_over_the_segment() {
    for seed in 1..=u64::from(rounds(3)) {
        let run = attacked(|running| {
            let mut random = Random(seed);
            let mut file = open_segment(running);
            let length = file.metadata().unwrap().len();
            let bytes: Vec<u8> = (0..length / 8).flat_map(|_| random.next().to_ne_bytes()).collect();
            file.write_all(&bytes).unwrap();
        });
        assert!(!run.report().array("warnings").is_empty(), "what happened is said");
    }
}

#[test]
fn random_bytes_in_the_ring_only() {
    for seed in 1..=u64::from(rounds(3)) {
        let run = attacked(|running| {
            let mut random = Random(seed);
            let file = open_segment(running);
            let bytes: Vec<u8> = (0..65_536 / 8).flat_map(|_| random.next().to_ne_bytes()).collect();
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 4096).unwrap();
        });
        assert!(!run.report().array("warnings").is_empty(), "what happened is said");
    }
}

#[test]
fn a_segment_that_is_cut_to_nothing_with_a_writer_at_work() {
    // Processes that touch it get SIGBUS, so none may come after: the shell that waits ends by one.
    let script = "/bin/true; echo ready; read x; exit 5";
    let mut running = tracked(["sh", "-c", script]).with(|command| command.stdin(Stdio::piped())).start();
    running.wait_for_output("ready");
    wait_until("a collector", || collector(&running).is_some());
    open_segment(&running).set_len(0).unwrap();
    running.stdin().write_all(b"go\n").unwrap();
    let run = running.wait();
    assert!(run.report().warnings().contains("truncated"), "{}", run.report().warnings());
}

/// Records that a process of the tree could have written, of whatever processes.
fn forged(random: &mut Random, pids: &[u32], pid_ns: u32) -> (Origin, Event) {
    let mut any = || random.next();
    let pid = if any() % 2 == 0 { pids[any() as usize % pids.len()] } else { any() as u32 };
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
        },
        1 => Event::Fork {
            realtime_ns: any(),
            pidfd_inode: any() % 3,
            max_rss_kib: any(),
            parent_pid_ns: any() as u32,
        },
        2 => Event::Exec { vm_hwm_kib: any() },
        3 => Event::Exit { status: any() as i32, vm_hwm_kib: any(), own: usage, children: usage },
        4 => Event::Reaped { child: any() as u32, status: any() as i32, reaper_max_rss_kib: any(), usage },
        _ => Event::SpawnFailed { error: any() as i32 },
    };
    (origin, event)
}

#[test]
fn forged_records_at_full_speed() {
    use std::os::unix::fs::MetadataExt;
    let count = u64::from(rounds(6_000));
    let pid_ns = u32::try_from(std::fs::metadata("/proc/self/ns/pid").unwrap().ino()).unwrap();
    attacked(|running| {
        let segment = Segment::from_file(&segment_path(running), open_segment(running).into()).unwrap();
        let mut random = Random(77);
        let mut pids = vec![1, std::process::id(), running.pid()];
        pids.extend(leftovers::processes(running.mark()).into_iter().map(|(pid, _)| pid));
        for _ in 0..count {
            let (origin, event) = forged(&mut random, &pids, pid_ns);
            segment.push_event(&origin, &event);
        }
        wait_until("the collector's end of reading", || is_drained(&segment));
    });
}
