//! The tracking file when its writers are killed, and when the disk is full.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use gpu_track_collector::segment::live::LiveFile;

use crate::kills::kill_all;
use crate::support::rows::{Database, JsonLines, Rows};
use crate::support::run::Running;
use crate::support::trace::Trace;
use crate::support::{WATCHDOG, kill, pidfd, skip, tracked, wait_until};
use crate::{Random, rounds};

/// Children one after another until the file `$0` is there.
const UNTIL_FILE: &str = "while [ ! -e \"$0\" ]; do sleep 0.005; done";
const INTERVAL: Duration = Duration::from_millis(20);

/// The samples that the live file has shown, by their times.
#[derive(Default)]
struct Seen {
    read: u64,
    all: BTreeSet<u64>,
    /// The last ones of collectors that were killed: they need not have closed.
    open: BTreeSet<u64>,
}

impl Seen {
    /// Takes in what is new. A collector that was killed while it wrote one leaves it out.
    fn look(&mut self, live: &LiveFile) {
        let count = live.count();
        let new = (self.read..count).filter_map(|number| live.sample(number));
        self.all.extend(new.map(|sample| sample.monotonic_ns));
        assert!(count - self.read < 1000, "the ring was overwritten before it was read");
        self.read = count;
    }
}

/// The keys that a file had at some time, of rows and processes.
#[derive(Default)]
struct Written {
    rows: BTreeSet<u64>,
    processes: BTreeSet<(u64, u64)>,
}

impl Written {
    /// Takes in what a file of lines has.
    fn look_at_lines(&mut self, path: &Path) {
        let lines = JsonLines::read(path);
        self.look(&lines.keys(), &lines.processes());
    }

    /// Takes in what a database has.
    fn look_at_tables(&mut self, path: &Path) {
        let tables = Database::read(path);
        self.look(&tables.keys(), &tables.processes());
    }

    /// Takes in what a trace has.
    fn look_at_trace(&mut self, path: &Path) {
        let trace = Trace::read(path);
        self.look(&trace.keys, &trace.processes);
    }

    /// Takes in the keys of a file: none is there twice, and all that were there still are.
    fn look(&mut self, rows: &[u64], processes: &[(u64, u64)]) {
        assert!(rows.is_sorted_by(|a, b| a < b), "a row is there twice: {rows:?}");
        let now =
            Self { rows: rows.iter().copied().collect(), processes: processes.iter().copied().collect() };
        assert_eq!(now.processes.len(), processes.len(), "a process is there twice: {processes:?}");
        assert!(
            now.rows.is_superset(&self.rows) && now.processes.is_superset(&self.processes),
            "rows are gone"
        );
        *self = now;
    }
}

fn started(running: &Running) -> LiveFile {
    let live = running.live();
    wait_until("a sample", || live.count() > 0);
    live
}

// Requirement: TIME-2, TIME-11, TIME-12, TIME-20
#[test]
fn killed_collectors_write_no_row_twice_and_lose_none_that_was_closed() {
    let directory = tempfile::tempdir().unwrap();
    let (stop, path) = (directory.path().join("stop"), directory.path().join("t.csv"));
    let [lines, tables, trace] = ["t.jsonl", "t.sqlite", "t.pftrace"].map(|name| directory.path().join(name));
    let files = [&path, &lines, &tables, &trace].map(|path| path.to_str().unwrap());
    let options = ["--st", "0.02", "--tf", files[0], "--tf", files[1], "--tf", files[2], "--tf", files[3]];
    let running = tracked(["sh", "-c", UNTIL_FILE, stop.to_str().unwrap()])
        .options(&options)
        .watchdog(Duration::from_secs(1200))
        .start();
    let live = started(&running);
    let mut random = Random(0x51ed_270b_9f4a_7c15);
    let (mut seen, kills) = (Seen::default(), rounds(12));
    let [mut in_lines, mut in_tables, mut in_trace] =
        [Written::default(), Written::default(), Written::default()];
    // Files that grow by each row.
    let sizes = || [&lines, &trace].map(|path| path.metadata().unwrap().len());
    let mut sizes_before = sizes();
    for _ in 0..kills {
        let target = live.count() + random.below(6);
        wait_until("further samples", || live.count() > target);
        // Any moment between two samples.
        std::thread::sleep(INTERVAL.mul_f64(random.below(1000) as f64 / 1000.0));
        let collector = running.wait_for_collector();
        let process = pidfd::open(collector).unwrap();
        // The next collector must not show anything before it is known what this one showed.
        kill(running.pid(), libc::SIGSTOP);
        kill(collector, libc::SIGKILL);
        assert!(pidfd::ends_within(&process, WATCHDOG));
        seen.look(&live);
        seen.open.extend(seen.all.last());
        in_lines.look_at_lines(&lines);
        in_tables.look_at_tables(&tables);
        in_trace.look_at_trace(&trace);
        sizes_before = sizes();
        kill(running.pid(), libc::SIGCONT);
    }
    // A collector reads what a killed one has written before it goes on. A run that ends meanwhile lacks its totals, and says so.
    wait_until("the last collector's rows", || {
        sizes().iter().zip(&sizes_before).all(|(now, before)| now > before)
    });
    let target = live.count() + 3;
    wait_until("the last collector's samples", || live.count() > target);
    seen.look(&live);
    seen.open.extend(seen.all.last());
    let end_ns = *seen.all.last().unwrap();
    std::fs::write(&stop, "").unwrap();
    let run = running.wait();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    assert!(run.report().warnings().contains("killed"), "{}", run.report().warnings());
    let rows = Rows::read(&path);
    let keys = rows.keys();
    assert!(keys.is_sorted_by(|a, b| a < b), "a row is there twice: {keys:?}");
    let mut from = 0;
    for (key, samples) in keys.iter().zip(rows.column("n_samples")).filter(|(key, _)| **key <= end_ns) {
        let of_row: Vec<u64> = seen.all.range(from + 1..=*key).copied().collect();
        let open = of_row.iter().filter(|at_ns| seen.open.contains(at_ns)).count();
        let possible = of_row.len() - open..=of_row.len();
        assert!(
            possible.contains(&(samples as usize)),
            "{samples} samples in the row {key} of {of_row:?}; not closed: {:?}, rows: {keys:?}",
            seen.open
        );
        from = *key;
    }
    in_lines.look_at_lines(&lines);
    in_tables.look_at_tables(&tables);
    in_trace.look_at_trace(&trace);
    let (processes, warnings) = (run.report().u64("processes.total"), run.report().warnings());
    // A collector that is killed before it has caught up leaves more and more to the next. What does not fit is said.
    for (path, has) in [(&lines, &in_lines), (&tables, &in_tables), (&trace, &in_trace)] {
        let is_said = warnings.contains(&format!("{} lacks ", path.display()));
        let listed = has.processes.len() as u64;
        assert!(
            listed == processes || (listed < processes && is_said),
            "{listed} of {processes}: {warnings}"
        );
    }
    assert!(Trace::read(&trace).sequences > 1, "each collector has a sequence of packets");
    println!("{kills} kills, {} samples, {} rows, {processes} processes", seen.all.len(), keys.len());
}

// Requirement: TIME-3, TIME-11, TIME-12, TIME-20
#[test]
fn file_of_a_run_that_is_killed_as_a_whole_has_whole_lines() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..rounds(2) {
        let directory = tempfile::tempdir().unwrap();
        let [stop, path, lines, tables, trace] =
            ["stop", "t.csv", "t.jsonl", "t.sqlite", "t.pftrace"].map(|name| directory.path().join(name));
        let shm = tempfile::tempdir_in("/dev/shm").unwrap();
        let running = tracked(["sh", "-c", UNTIL_FILE, stop.to_str().unwrap()])
            .options(&["--session-dir", shm.path().to_str().unwrap()])
            .options(&["--st", "0.001", "--tf", path.to_str().unwrap(), "--tf", lines.to_str().unwrap()])
            .options(&["--tf", tables.to_str().unwrap(), "--tf", trace.to_str().unwrap()])
            .start();
        // Some pages of rows, and a transaction.
        wait_until("rows", || {
            [&path, &tables].iter().all(|path| path.metadata().is_ok_and(|file| file.len() > 20_000))
        });
        // Any moment between two transactions, and within one.
        std::thread::sleep(Duration::from_millis(random.below(1500)));
        kill_all(&running);
        drop(running.wait());
        let keys = Rows::read(&path).keys();
        assert!(keys.len() > 10 && keys.is_sorted_by(|a, b| a < b));
        let [mut in_lines, mut in_tables, mut in_trace] =
            [Written::default(), Written::default(), Written::default()];
        in_lines.look_at_lines(&lines);
        in_tables.look_at_tables(&tables);
        in_trace.look_at_trace(&trace);
        for written in [&in_lines, &in_tables, &in_trace] {
            assert!(written.rows.len() > 10 && !written.processes.is_empty());
        }
        // What the killed one left beside its database does not get into the next one.
        let options = ["--overwrite", "--tf", tables.to_str().unwrap()];
        assert_eq!(tracked(["/bin/true"]).options(&options).run().stderr, "");
        assert_eq!(Database::read(&tables).processes().len(), 1);
    }
}

// Requirement: TIME-4
#[test]
fn full_disk_costs_rows_and_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let disk_name = disk.to_str().unwrap();
    let can_mount = std::process::Command::new("unshare")
        .args(["-m", "mount", "-t", "tmpfs", "none", disk_name])
        .status();
    if !can_mount.is_ok_and(|status| status.success()) {
        skip!("needs root, to mount a file system");
    }
    let stop = directory.path().join("stop");
    let [path, lines, tables, trace] =
        ["t.csv", "t.jsonl", "t.sqlite", "t.pftrace"].map(|name| disk.join(name));
    let running = tracked(["sh", "-c", UNTIL_FILE, stop.to_str().unwrap()])
        .options(&["--st", "0.001", "--tf", path.to_str().unwrap(), "--tf", lines.to_str().unwrap()])
        .options(&["--tf", tables.to_str().unwrap(), "--tf", trace.to_str().unwrap()])
        .with_mounts(&format!("mount -t tmpfs -o size=16k none {disk_name}"))
        .start();
    let live = started(&running);
    // 16 KiB are some fifty rows, and a transaction has those of a second.
    let target = live.count() + 1500;
    wait_until("more rows than the disk holds", || live.count() > target);
    std::fs::write(&stop, "").unwrap();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let warnings = run.report().warnings();
    for (name, why) in [
        ("t.csv", "No space left"),
        ("t.jsonl", "No space left"),
        ("t.sqlite", "disk is full"),
        ("t.pftrace", "No space left"),
    ] {
        let lacks = warnings.find(&format!("{name} lacks")).map(|at| &warnings[at..]);
        assert!(lacks.is_some_and(|lacks| lacks.contains(why)), "{name}: {warnings}");
    }
    // The last rows may be lost after the report was made.
    let said = ["of its last lines are missing", "its last lines can be missing"];
    assert!(run.stderr.lines().all(|line| said.iter().any(|words| line.contains(words))), "{}", run.stderr);
}
