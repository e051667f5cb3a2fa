//! The live file, read by programs of other make: the crate `shared_memory`, which maps it by its name, and the reader in C,
//! docs/examples/live.c.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::Ordering;

use gpu_track_abi::live::{GPUS, LIVE_SIZE, LiveHeader, PROCESSES, SUMMARY};
use gpu_track_abi::sample::{Sample, SampleSlot};
use gpu_track_abi::table::{HEAD_WORDS, ProcessEntry, ProcessTable};
use gpu_track_abi::words::Words;
use serde_json::{Value, json};
use shared_memory::{Shmem, ShmemConf};

use crate::support::gpu::{FakeGpus, GPU0};
use crate::support::{WATCHDOG, kill, pidfd, program, tracked, wait_until};

/// Samples that are compared.
const SAMPLES: u64 = 5;

fn header(mapping: &Shmem) -> &LiveHeader {
    // SAFETY: a page-aligned mapping that is as long as a live file and lives as long as the result. What the collector
    // changes in it is atomic.
    unsafe { &*mapping.as_ptr().cast::<LiveHeader>() }
}

/// The slot or table at this place, which gpu_track_abi.h says.
fn at<T>(mapping: &Shmem, offset: usize) -> &T {
    assert!(offset + size_of::<T>() <= mapping.len() && offset.is_multiple_of(align_of::<T>()));
    // SAFETY: inside the mapping and aligned, as asserted. All of it is atomic.
    unsafe { &*mapping.as_ptr().add(offset).cast::<T>() }
}

/// The sample of this number.
fn sample(mapping: &Shmem, number: u64) -> Option<Sample> {
    let [ring, ..] = header(mapping).sections;
    let slot = number % u64::from(ring.capacity);
    at::<SampleSlot>(mapping, ring.offset as usize + slot as usize * size_of::<SampleSlot>()).read()
}

/// The live processes, with the time of their sample before them.
fn processes(mapping: &Shmem) -> Option<(u64, Vec<ProcessEntry>)> {
    let [_, _, table, _] = header(mapping).sections;
    let mut words = vec![0; table.size as usize / 8 - 1];
    at::<ProcessTable>(mapping, table.offset as usize).read_words(&mut words).ok()?;
    let entries = words[HEAD_WORDS..].chunks_exact(ProcessEntry::WORDS).take(words[1] as usize);
    Some((words[0], entries.map(ProcessEntry::of_words).collect()))
}

// Requirement: TIME-6
#[test]
fn another_crate_that_maps_it_by_name_reads_the_same_samples_and_leaves_it_in_place() {
    let mut running = tracked(["sh", "-c", "read line"]).piped_stdin().start();
    let ours = running.live();
    let name = ours.named().path().file_name().unwrap().to_str().unwrap();
    let mapping = ShmemConf::new().os_id(format!("/{name}")).open().unwrap();
    assert_eq!((mapping.len(), mapping.is_owner()), (LIVE_SIZE, false));
    assert!(header(&mapping).is_compatible());
    let count = || header(&mapping).samples.0.load(Ordering::Acquire);
    wait_until("samples of the shell", || {
        let oldest = count().checked_sub(SAMPLES).and_then(|first| sample(&mapping, first));
        oldest.is_some_and(|sample| sample.processes == 1 && sample.combined_bytes > 0)
    });
    let end = count();
    let read: Vec<_> = (end - SAMPLES..end).map(|number| sample(&mapping, number).unwrap()).collect();
    let by_us: Vec<_> = (end - SAMPLES..end).map(|number| ours.sample(number).unwrap()).collect();
    assert_eq!(read, by_us);
    wait_until("the same processes", || {
        let by_us = ours.processes().unwrap();
        processes(&mapping)
            .is_some_and(|read| read == (by_us.at_ns, by_us.entries.clone()) && read.1.len() == 1)
    });
    drop(mapping);
    assert!(ours.named().path().exists(), "it was removed with the mapping");
    wait_until("a sample after that", || ours.count() > end);
    drop(running.stdin());
    let run = running.wait();
    let peak_bytes = run.report().u64("max_ram_bytes.combined.total_rss");
    let largest_bytes = read.iter().map(|sample| sample.combined_bytes).max().unwrap();
    assert!((1..=peak_bytes).contains(&largest_bytes), "{largest_bytes} in the file, {peak_bytes} reported");
}

/// The reader in C.
struct Reader {
    directory: tempfile::TempDir,
}

/// What the reader printed: the fields of the lines that begin with each word.
#[derive(Debug)]
struct Printed {
    tree: [u64; 2],
    gpus: Vec<Vec<String>>,
    /// By command: pid, parent, RSS, CPU time, GPU memory.
    processes: Vec<(String, [i64; 5])>,
    summary: Value,
}

impl Reader {
    fn build() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let output = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(root.join("include"))
            .arg("-o")
            .arg(directory.path().join("live"))
            .arg(root.join("docs/examples/live.c"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, file: &Path) -> Output {
        Command::new(self.path("live")).arg(file).output().unwrap()
    }

    /// What it reads. `None`: nothing yet, or a table was being written for too long.
    fn read(&self, file: &Path) -> Option<Printed> {
        let output = self.run(file);
        if !output.status.success() {
            assert_eq!(output.status.code(), Some(3), "{output:?}");
            return None;
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let of = |kind: &str| -> Vec<Vec<String>> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
            lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
        };
        let process = |words: &Vec<String>| {
            let numbers = words[..5].iter().map(|word| word.parse().unwrap()).collect::<Vec<i64>>();
            (words[5..].join(" "), numbers.try_into().unwrap())
        };
        let tree: Vec<u64> = of("tree")[0].iter().map(|word| word.parse().unwrap()).collect();
        Some(Printed {
            tree: tree.try_into().unwrap(),
            gpus: of("gpu"),
            processes: of("process").iter().map(process).collect(),
            summary: serde_json::from_str(text.lines().last().unwrap()).unwrap(),
        })
    }
}

impl Printed {
    fn named(&self, command: &str) -> Vec<[i64; 5]> {
        self.processes.iter().filter(|(name, _)| name == command).map(|(_, process)| *process).collect()
    }
}

/// Fields of /proc/PID/stat after the command: parent, and CPU time in clock ticks.
fn proc_stat(pid: i64) -> (i64, i64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<i64> =
        stat.rsplit_once(')').unwrap().1.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    (fields[1], fields[11] + fields[12])
}

fn rss_bytes(pid: i64) -> i64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    let pages: i64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as i64
}

// Requirement: TIME-6, TIME-8
#[test]
fn reader_in_c_shows_what_proc_the_driver_and_the_report_say() {
    const MIB: i64 = 1 << 20;
    const TICK_NS: i64 = 10_000_000;
    let (reader, gpus) = (Reader::build(), FakeGpus::new(2, "0.samples now:30\n1.power na"));
    let stop = reader.path("stop");
    let holder = gpus.line(&["hold:0:7654321,c", &format!("wait:{}", stop.display())]);
    let line = format!("/bin/true; /bin/true; {holder} & exec {} exec 64 2", program("pages"));
    let mut running = gpus.tracked(["sh", "-c", &line]).piped_stdin().start();
    let file = running.live().named().path().to_owned();
    let mut shown = None;
    wait_until("all processes and figures", || {
        shown = reader.read(&file).filter(|shown| {
            let [_, processes] = shown.tree;
            let large = shown.named("pages").iter().filter(|process| process[2] > 64 * MIB).count();
            let holds = shown.named("gpu").iter().any(|process| process[4] == 7_654_321);
            // A sample can be from before the last page was touched.
            let is_now = || {
                shown.processes.iter().all(|(_, [pid, _, rss, cpu_ns, _])| {
                    (rss - rss_bytes(*pid)).abs() <= MIB
                        && (cpu_ns - proc_stat(*pid).1 * TICK_NS).abs() <= 5 * TICK_NS
                })
            };
            processes == 4 && large == 2 && holds && shown.summary["ended"]["count"] == 2 && is_now()
        });
        shown.is_some()
    });
    let shown = shown.unwrap();
    assert_eq!(shown.processes.len(), 4);
    for (command, [pid, parent, .., gpu_bytes]) in &shown.processes {
        let expected = (proc_stat(*pid).0, if command == "gpu" { 7_654_321 } else { 0 });
        assert_eq!((*parent, *gpu_bytes), expected, "{command}");
    }
    // index, memory in use, of the run, capacity, utilization, power, temperature, clock, id
    let first = ["0", "1000000000", "7654321", "85899345920", "30", "100", "41", "1410", GPU0];
    assert_eq!(shown.gpus[0], first);
    assert_eq!(shown.gpus[1][..6], ["1", "1000000000", "0", "85899345920", "0", "nan"]);
    let summary = &shown.summary;
    assert_eq!(summary["command"], json!(["sh", "-c", line]));
    assert_eq!(summary["ended"]["by_command"][0]["command"], "true");
    assert_eq!(summary["coverage"]["exact"], 2);
    assert_eq!((&summary["live_version"], &summary["restarts"]), (&json!(2), &json!(0)));

    // A file of another version is refused.
    let mut other = std::fs::read(&file).unwrap();
    other[8] += 1;
    std::fs::write(reader.path("other"), other).unwrap();
    assert_eq!(reader.run(&reader.path("other")).status.code(), Some(2));

    std::fs::write(&stop, "").unwrap();
    drop(running.stdin());
    let run = running.wait();
    let report = run.assert_clean(0);
    let peak = report.u64("max_ram_bytes.combined.total_rss");
    assert!(shown.tree[0] <= peak && shown.tree[0] as f64 >= 0.97 * peak as f64, "{shown:?} {peak}");
    assert_eq!(report.gpu_ram()[2], Some(7_654_321));
    assert_eq!(report.gpu(GPU0).u64("memory.max_used_bytes"), 1_000_000_000);
    assert_eq!(report.at("started_at"), &summary["started_at"]);
}

// Requirement: TIME-8
#[test]
fn tables_of_a_collector_killed_in_the_middle_are_written_anew_by_its_successor() {
    let reader = Reader::build();
    let mut running = tracked(["sh", "-c", "read line"]).options(&["--st", "0.02"]).piped_stdin().start();
    let live = running.live();
    let file = live.named().path().to_owned();
    wait_until("the first tables", || reader.read(&file).is_some());
    let collector = running.wait_for_collector();
    let process = pidfd::open(collector).unwrap();
    // The next collector must not write before the tables are as a killed one leaves them.
    kill(running.pid(), libc::SIGSTOP);
    kill(collector, libc::SIGKILL);
    assert!(pidfd::ends_within(&process, WATCHDOG));
    let writable = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    for section in [GPUS, PROCESSES, SUMMARY] {
        writable.write_all_at(&7_u64.to_ne_bytes(), u64::from(section.offset)).unwrap();
    }
    assert!(reader.read(&file).is_none(), "half-written tables were read");
    kill(running.pid(), libc::SIGCONT);
    wait_until("the tables of the next collector", || {
        reader.read(&file).is_some_and(|shown| shown.named("sh").len() == 1 && shown.summary["restarts"] == 1)
    });
    drop(running.stdin());
    running.wait();
}
