//! Runs the fuzzing targets of tests/fuzz over the corpus and over mutations of it, which are the same in every run.
//! `BLESS=1` rewrites the seeds.

use std::path::Path;

use gpu_track_abi::rank::Rank;
use gpu_track_abi::record::{Event, NAME_BYTES, Origin, RECORD_WORDS, Usage};
use gpu_track_abi::task::TaskKeys;
use gpu_track_collector::hostile_input::{
    Finding, KernelEvent, Observation, What, parse_event, parse_rollup,
};
use gpu_track_collector::read_recording;
use gpu_track_collector::report::over_time::{self, Detail};

#[path = "../fuzz/entries.rs"]
mod entries;

use crate::garbage::mutated;
use crate::{Random, rounds};
use entries::{ENTRIES, LAUNCHER, MAIN, PID_NS, START_NS};

fn directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fuzz"))
}

/// The records and kernel events of a run with few processes.
fn small_run() -> Vec<u8> {
    const CHILD: u32 = 102;
    let mut bytes = Vec::new();
    let mut now_ns = START_NS;
    let mut record = |pid: u32, parent: u32, event: Event| {
        now_ns += 1_000_000;
        let origin = Origin { pid, pid_ns: PID_NS, parent, monotonic_ns: now_ns, flags: 0 };
        bytes.extend(entries::bytes_of(&event.encode(&origin), false));
    };
    let usage =
        Usage { user_us: 5000, system_us: 700, max_rss_kib: 3000, minor_faults: 90, ..Usage::default() };
    let mut names = [0; NAME_BYTES];
    names[..9].copy_from_slice(b"sh\0run.sh");
    let realtime_ns = 7 * START_NS + 1;
    let start = |pidfd_inode| Event::Start {
        realtime_ns,
        pidfd_inode,
        max_rss_kib: 900,
        names,
        rank: Rank::default(),
        task: TaskKeys::NONE,
    };
    record(MAIN, LAUNCHER, start(77));
    let fork = Event::Fork { realtime_ns, pidfd_inode: 78, max_rss_kib: 900, parent_pid_ns: PID_NS };
    record(CHILD, MAIN, fork);
    record(CHILD, MAIN, Event::Exec { vm_hwm_kib: 1000 });
    record(CHILD, MAIN, start(78));
    record(CHILD, MAIN, Event::Exit { status: 3, vm_hwm_kib: 0, own: usage, children: Usage::default() });
    let reaped = |child| Event::Reaped { child, status: 3 << 8, reaper_max_rss_kib: 900, usage, clock_ns: 0 };
    record(MAIN, LAUNCHER, reaped(CHILD));
    record(MAIN, LAUNCHER, Event::SpawnFailed { error: 2 });
    let uninstrumented = CHILD + 1;
    for what in [What::Fork { parent: MAIN }, What::Exec, What::Exit { status: 127 << 8 }] {
        let event = KernelEvent { at_ns: START_NS + 9_000_000, pid: uninstrumented, what };
        let entry = Finding::Kernel(event).entry(&[0; RECORD_WORDS]);
        bytes.extend(entries::bytes_of(entry.first_chunk().unwrap(), true));
    }
    let inside = Origin { pid: 2, pid_ns: PID_NS + 1, parent: 1, monotonic_ns: START_NS, flags: 0xFF };
    for event in [start(79), fork, reaped(2), reaped(1)] {
        bytes.extend(entries::bytes_of(&event.encode(&inside), false));
    }
    bytes
}

/// Connector messages in the kernel's layout, each preceded by its length.
fn messages() -> Vec<u8> {
    let message = |what: u32, data: [u32; 4]| {
        let words = [0; 9].into_iter().chain([what, 0, 7, 0]).chain(data);
        let message: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
        [vec![message.len() as u8], message].concat()
    };
    let fork = message(1, [MAIN, MAIN, 102, 102]);
    [fork, message(2, [102, 102, 0, 0]), message(0x8000_0000, [102, 102, 9, 17])].concat()
}

/// The saved state of a collector in the middle of [`small_run`].
fn saved_state() -> Vec<u8> {
    let mut run = entries::new_run();
    let findings: Vec<_> = small_run()
        .chunks_exact(entries::RECORD_BYTES)
        .take(4)
        .filter_map(|record| {
            let words: Vec<u32> =
                record.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
            Finding::of_entry(&entries::journal_entry(&words.try_into().unwrap(), 0))
        })
        .collect();
    run.apply(START_NS + 5_000_000, &Observation::Findings(findings));
    postcard::to_stdvec(&run).unwrap()
}

fn seeds(target: &str) -> Vec<(&'static str, Vec<u8>)> {
    let text = |name, text: &str| (name, text.as_bytes().to_vec());
    match target {
        "records" => vec![("life", small_run())],
        "kernel_events" => vec![("fork_exec_exit", messages())],
        "state" => vec![("kept", [saved_state(), small_run()].concat())],
        "proc_files" => vec![
            text(
                "stat",
                "12 (a) b (c) S 7 12 12 0 -1 4194304 101 2 3 4 50 60 7 8 20 0 9 0 555 1000 200 18446744073709551615\n",
            ),
            text("statm", "1310 422 210 9 0 98 0\n"),
            text(
                "smaps_rollup",
                "5581-7ffd ---p 00000000 00:00 0 [rollup]\nRss: 1740 kB\nPss: 200 kB\nPss_Anon: 96 kB\nPrivate_Clean: 4 kB\nPrivate_Dirty: 96 kB\nAnonymous: 96 kB\n",
            ),
            text(
                "status",
                "Name:\tx\nVmHWM:\t    1740 kB\nHugetlbPages:\t       0 kB\nNSpid:\t77\t3\t1\nSigPnd:\t0000000000000100\nShdPnd:\t0\n",
            ),
            text(
                "machine",
                "cpu  1115661 47873 785568 2697743 11672 0 2662 8088 0 0\ncpu0 1 2 3\nbtime 5\nprocesses 4478396\n",
            ),
            text("cmdline", "/usr/bin/python3\0-u\0train.py\0--lr\0\x31\0"),
        ],
        "fdinfo" => vec![
            text(
                "amdgpu",
                "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t48\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t700 KiB\ndrm-engine-gfx:\t1500000000 ns\n",
            ),
            text(
                "xe",
                "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\ndrm-resident-vram0:\t20000 KiB\ndrm-cycles-rcs:\t28257900\ndrm-total-cycles-rcs:\t7655183225\ndrm-engine-capacity-ccs:\t4\n",
            ),
            text(
                "i915",
                "drm-driver: i915\ndrm-client-id: 7\ndrm-pdev: 0000:00:02.0\ndrm-total-local0: 12 MiB\ndrm-engine-render: 123 ns\ndrm-engine-capacity-video: 2\n",
            ),
        ],
        // Only in the corpus: the tables of a run, the same when its writer was killed in a transaction, and so on.
        "database" => vec![],
        "lines" => vec![
            text(
                "csv",
                "ram_unit,gpu_ram_unit,time_unit,n_expected_cores,system_gpu_count\nbytes,bytes,seconds,2,1\n\
                 main_ram,descendants_ram,combined_ram,system_ram,cpu_main_sum_utilization_percent,timestamp\n1,2,3,4,5.5,6\n2,,3,nan,1e300,7\n",
            ),
            text(
                "marks",
                "process_id,code_block_name,position,timestamp\r\n7,\"a, \"\"b\"\"\",0,1.5\r\n7,\"a, \"\"b\"\"\",1,2.5\r\n",
            ),
        ],
        "plan" => vec![text(
            "plan",
            "runs = 3\nprepare = 'sync {m}'\nseed = 7\nshell = true\n[parameters]\nm = [0.5, 1, 'x', true]\n[[variant]]\nname = '{m}'\n\
             command = 'train {m}'\n",
        )],
        other => panic!("no seeds for {other}"),
    }
}

/// The corpus of a target: the seeds and any other files there, such as inputs that once failed.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let corpus = directory().join("corpus").join(target);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(&corpus).unwrap();
        for (name, bytes) in seeds(target) {
            std::fs::write(corpus.join(name), bytes).unwrap();
        }
    }
    let files = std::fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut inputs: Vec<Vec<u8>> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    // The format of the saved state changes with the collector, so the seeds are also generated.
    inputs.extend(seeds(target).into_iter().map(|(_, bytes)| bytes));
    inputs.sort_unstable();
    inputs
}

/// Changes some bytes. Pages of a database that move are no pages any more, so most mutations keep their places.
fn changed(random: &mut Random, input: &[u8]) -> Vec<u8> {
    if random.below(8) == 0 {
        return mutated(random, input);
    }
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(bytes.len() as u64) as usize;
        let by = [random.next() as u8, 0, 1, 0x7f, 0xff, bytes[random.below(bytes.len() as u64) as usize]];
        let length = 1 + random.below(4) as usize;
        let byte = by[random.below(by.len() as u64) as usize];
        bytes.iter_mut().skip(at).take(length).for_each(|place| *place = byte);
    }
    bytes
}

fn drive(target: &str, few: u32) {
    let (_, entry) = ENTRIES.into_iter().find(|(name, _)| *name == target).unwrap();
    let inputs = inputs(target);
    inputs.iter().for_each(|input| entry(input));
    let mut random = Random(4);
    for round in 0..rounds(few) {
        let input = &inputs[round as usize % inputs.len()];
        let bytes =
            if target == "database" { changed(&mut random, input) } else { mutated(&mut random, input) };
        let result = std::panic::catch_unwind(|| entry(&bytes));
        assert!(result.is_ok(), "{target}, round {round}: {bytes:?}");
    }
}

// Requirement: FAULT-9
#[test]
fn fuzzed_records_do_not_panic() {
    drive("records", 4_000);
}

// Requirement: FAULT-9
#[test]
fn fuzzed_proc_files_do_not_panic() {
    drive("proc_files", 20_000);
}

// Requirement: FAULT-9
#[test]
fn fuzzed_fdinfo_does_not_panic() {
    drive("fdinfo", 20_000);
}

// Requirement: FAULT-9
#[test]
fn fuzzed_connector_messages_do_not_panic() {
    drive("kernel_events", 20_000);
}

// Requirement: FAULT-9, FAULT-66
#[test]
fn fuzzed_collector_state_does_not_panic() {
    drive("state", 2_000);
}

// Requirement: SQL-4
#[test]
fn fuzzed_databases_do_not_panic() {
    drive("database", 600);
}

// Requirement: SQL-4
#[test]
fn fuzzed_lines_of_tracking_files_do_not_panic() {
    drive("lines", 1_000);
}

// Requirement: SQL-4
#[test]
fn fuzzed_plans_do_not_panic() {
    drive("plan", 2_000);
}

// Requirement: FAULT-9
#[test]
fn fuzz_seeds_are_accepted_by_the_parsers() {
    use gpu_track_collector::hostile_input::{Client, Stat, Statm, Status, parse_busy_ticks};
    for (name, bytes) in seeds("fdinfo") {
        assert!(Client::parse(str::from_utf8(&bytes).unwrap()).is_some(), "{name}");
    }
    let seed = |wanted| seeds("proc_files").into_iter().find(|(name, _)| *name == wanted).unwrap().1;
    assert!(Stat::parse(&seed("stat")).is_some() && Statm::parse(&seed("statm")).is_some());
    assert!(parse_rollup(&seed("smaps_rollup")).is_some() && parse_busy_ticks(&seed("machine")).is_some());
    assert!(Status::parse(&seed("status")).is_killed);
    assert!(parse_event(&messages()[1..]).is_some());
    assert_eq!(entries::loaded(&saved_state()).map(|run| run.tree.counts().created), Some(2));
    assert_eq!(small_run().len(), 14 * entries::RECORD_BYTES);
    // What is only in the corpus.
    let points = |path: &Path| {
        over_time::csv(&read_recording(path, Detail::Points).unwrap().unwrap().over_time).lines().count()
    };
    for name in ["tracking", "journal", "write_ahead"] {
        let bytes = std::fs::read(directory().join("corpus/database").join(name)).unwrap();
        let (_directory, [path, ..]) = entries::database_files(&bytes).unwrap();
        // A line of names and five points: not those of a transaction that was not completed.
        assert_eq!(points(&path), 6, "{name}");
        assert_eq!(
            read_recording(&path, Detail::Points).unwrap().unwrap().processes.unwrap().len(),
            3,
            "{name}"
        );
    }
}
