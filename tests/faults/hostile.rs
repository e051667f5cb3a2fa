//! A tree that attacks the session: the collector stays up and small, the command ends as it does, and the report says
//! what happened. The attacker is the test itself: it may do what any process of the tree may.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gpu_track_abi::layout::RING_CAPACITY;
use gpu_track_abi::record::{Event, NAME_BYTES, Origin, Usage};
use gpu_track_collector::sys::proc_fs::ProcRoot;
use gpu_track_collector::sys::segment::Segment;

use crate::kills::collector;
use crate::support::programs::program;
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
fn random_bytes_over_the_whole_segment_are_survived() {
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
fn random_bytes_in_the_ring_are_survived() {
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
fn enlarged_segment_is_survived() {
    for seed in 1..=u64::from(rounds(3)) {
        let run = attacked(|running| {
            let mut random = Random(seed);
            let bytes: Vec<u8> = (0..65_536 / 8).flat_map(|_| random.next().to_ne_bytes()).collect();
            let end = open_segment(running).metadata().unwrap().len();
            std::os::unix::fs::FileExt::write_all_at(&open_segment(running), &bytes, end).unwrap();
        });
        assert!(!run.report().array("warnings").is_empty(), "what happened is said");
    }
    let run = attacked(|running| open_segment(running).set_len(1 << 40).unwrap());
    assert!(!run.report().array("warnings").is_empty(), "what happened is said");
}

#[test]
fn emptied_segment_with_an_active_writer_is_survived() {
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

/// Records that a process of the tree could have written, of whatever processes, also of pid namespaces that never were.
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
        },
        1 => Event::Fork {
            realtime_ns: any(),
            pidfd_inode: any() % 3,
            max_rss_kib: any(),
            parent_pid_ns: pid_ns,
        },
        2 => Event::Exec { vm_hwm_kib: any() },
        3 => Event::Exit { status: any() as i32, vm_hwm_kib: any(), own: usage, children: usage },
        4 => Event::Reaped { child: any() as u32, status: any() as i32, reaper_max_rss_kib: any(), usage },
        _ => Event::SpawnFailed { error: any() as i32 },
    };
    (origin, event)
}

fn own_pid_ns() -> u32 {
    use std::os::unix::fs::MetadataExt;
    u32::try_from(std::fs::metadata("/proc/self/ns/pid").unwrap().ino()).unwrap()
}

/// Whether the collector reads on within a time that is long for one that does.
fn makes_room(segment: &Segment) -> bool {
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

/// Write records as fast as they are read: `count`, and then more until they are not read any longer. At most twenty
/// times `count` in all.
fn flood(running: &Running, count: u64, mut record: impl FnMut() -> (Origin, Event)) {
    let segment = Segment::from_file(&segment_path(running), open_segment(running).into()).unwrap();
    let header = segment.header();
    let mut is_read = true;
    for number in 0..count * 20 {
        let (origin, event) = record();
        segment.push_event(&origin, &event);
        let waiting = header.head.0.load(Ordering::Relaxed) - header.tail.0.load(Ordering::Relaxed);
        if is_read && waiting >= RING_CAPACITY as u64 {
            is_read = makes_room(&segment);
        }
        if !is_read && number >= count {
            return;
        }
    }
    panic!("{} records that nobody can have caused were read", count * 20);
}

/// What the report of a run with forged records says.
fn assert_distrusted(run: &Run, why: &str) {
    let report = run.report();
    assert!(report.warnings().contains("forges event records"), "{}", report.warnings());
    let reason = report.at("coverage.records_untrusted").as_str().unwrap_or("none");
    assert!(reason.contains(why), "{reason}");
    assert!(report.f64("cpu_time.total_s") < 1e9, "what can't be is left out: {}", report.at("cpu_time"));
    let settled_before = report.command("true").expect("/bin/true ran");
    assert!(settled_before["count"].as_u64() >= Some(3), "{settled_before}");
}

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

#[test]
fn flood_of_exec_records_is_distrusted() {
    let run = attacked(|running| {
        let origin =
            Origin { pid: running.pid(), pid_ns: own_pid_ns(), monotonic_ns: 1, ..Origin::default() };
        flood(running, rounds(1_000_000).into(), || (origin, Event::Exec { vm_hwm_kib: 1 }));
    });
    assert_distrusted(&run, "faster");
}

#[test]
fn forged_record_does_not_measure_a_foreign_process() {
    let words = ["private", "300000000", "1", "0", "60"];
    let mut stranger = Command::new(program("share")).args(words).process_group(0).spawn().unwrap();
    let proc = ProcRoot::default();
    wait_until("the stranger's child", || !proc.children(stranger.id(), 1).is_empty());
    let run = attacked(|running| {
        let segment = Segment::from_file(&segment_path(running), open_segment(running).into()).unwrap();
        let origin = Origin {
            pid: stranger.id(),
            pid_ns: own_pid_ns(),
            parent: running.pid(),
            monotonic_ns: gpu_track_collector::sys::clock::monotonic_ns(),
            flags: 0,
        };
        let mut names = [0; NAME_BYTES];
        names[..8].copy_from_slice(b"stranger");
        let start = Event::Start { realtime_ns: 0, pidfd_inode: 0, max_rss_kib: 5, names };
        segment.push_event(&origin, &start);
        wait_until("the forged record is read", || is_drained(&segment));
        let samples = || segment.header().samples.0.load(Ordering::Acquire);
        let seen = samples();
        wait_until("samples of all that is known", || samples() >= seen + 3);
    });
    // SAFETY: kill(2) takes plain numbers; the group is the stranger's own.
    unsafe { libc::kill(-stranger.id().cast_signed(), libc::SIGKILL) };
    stranger.wait().unwrap();
    let report = run.report();
    assert!(report.command("stranger").is_some(), "the record was taken in");
    assert!(report.f64("max_ram.combined.total_rss") < 100e6, "{}", report.at("max_ram"));
    assert!(report.command("share").is_none(), "a stranger's child is no process of the tree");
}
