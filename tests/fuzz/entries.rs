//! The fuzzing targets as plain functions of bytes: each passes them to code that reads input from outside, and panics on
//! failure. The fault suite runs them over the corpus and its mutations, and cargo-fuzz (`targets/`) without a limit.

#![allow(dead_code, reason = "each target uses one of them")]

use std::path::PathBuf;

use gpu_track_abi::record::{Event, RECORD_WORDS};
use gpu_track_collector::hostile_input::{
    Client, CpuUsage, ENTRY_WORDS, Finding, Journal, KernelEvent, Members, Observation, ReadUpTo, RunContext,
    RunState, Stat, Statm, Status, Tree, Trust, command_of_args, parse_busy_ticks, parse_core_ticks,
    parse_event, parse_rollup,
};
use gpu_track_collector::report::events::{self, Filter};
use gpu_track_collector::report::over_time::{self, Detail, Recording};
use gpu_track_collector::report::read::read as read_report;
use gpu_track_collector::report::study::expand::expand;
use gpu_track_collector::{StateFile, analyze_code_blocks, code_blocks, read_recording, samples_of_database};
use serde::ser::{Serialize, SerializeTuple, Serializer};

/// A target: its name in cargo-fuzz and in the corpus, and the function.
pub type Entry = (&'static str, fn(&[u8]));

/// All targets.
pub const ENTRIES: [Entry; 8] = [
    ("records", records),
    ("proc_files", proc_files),
    ("fdinfo", fdinfo),
    ("kernel_events", kernel_events),
    ("state", state),
    ("database", database),
    ("lines", lines),
    ("plan", plan),
];

/// The size of a record.
pub const RECORD_BYTES: usize = RECORD_WORDS * 4;

/// The launcher's pid, its pid namespace and the command's pid in the made-up runs.
pub const LAUNCHER: u32 = 100;
pub const PID_NS: u32 = 10;
pub const MAIN: u32 = 101;

/// CLOCK_MONOTONIC at the start of the made-up runs.
pub const START_NS: u64 = 1 << 40;

const FINALIZE_EVERY: u64 = 16;
const STEP_NS: u64 = 10_000_000;

/// The state of a run that has just begun.
pub fn new_run() -> RunState {
    let context = RunContext {
        launcher_pid: LAUNCHER,
        pid_ns: PID_NS,
        session_monotonic_ns: START_NS,
        session_realtime_ns: 7 * START_NS,
        page: 4096,
        tick_us: 10_000,
        has_main: true,
    };
    let mut run =
        RunState::new(context, CpuUsage::new(STEP_NS, 2, START_NS), Trust::new(START_NS, 2, false), 5);
    run.tree.set_main(MAIN, START_NS, "main");
    run
}

fn words(bytes: &[u8]) -> Option<[u32; RECORD_WORDS]> {
    let mut words = [0; RECORD_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.get(..RECORD_BYTES)?.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

/// The bytes of a journal entry: a record, or (with the highest bit set) a kernel event.
pub fn bytes_of(words: &[u32; RECORD_WORDS], is_kernel: bool) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes[3] |= u8::from(is_kernel) << 7;
    bytes
}

/// Applies records and kernel events to a tree, which finalizes its ended processes from time to time.
pub fn records(bytes: &[u8]) {
    let mut tree = new_run().tree;
    let mut finalized = 0;
    let mut now_ns = START_NS;
    for (number, entry) in (0..).zip(bytes.chunks_exact(RECORD_BYTES)) {
        now_ns += STEP_NS;
        let Some(mut words) = words(entry) else { continue };
        if words[0] >> 31 == 1 {
            words[0] &= u32::MAX >> 1;
            if let Some(event) = KernelEvent::decode(&words) {
                assert_eq!(KernelEvent::decode(&event.encode()), Some(event));
                tree.apply_kernel(&event, now_ns);
            }
        } else if let Some((origin, event)) = Event::decode(&words) {
            assert_eq!(Event::decode(&event.encode(&origin)), Some((origin, event)));
            tree.apply(&origin, &event, now_ns);
        }
        if number % FINALIZE_EVERY == FINALIZE_EVERY - 1 {
            for target in tree.absence_questions(true).into_iter().filter(|target| target.pid % 2 == 0) {
                tree.observe_absence(target.id, now_ns);
            }
            tree.finalize(now_ns, now_ns);
            finalized += take_all(&mut tree);
        }
    }
    let living = tree.alive().len() as u64;
    assert!(
        finalized + living <= tree.counts().created,
        "{finalized} finalized and {living} alive of {}",
        tree.counts().created
    );
    tree.finalize_all(now_ns);
    finalized += take_all(&mut tree);
    assert_eq!(
        finalized + tree.counts().failed_spawns,
        tree.counts().created,
        "each process is finalized once"
    );
    assert!(tree.alive().is_empty());
}

/// Takes what the tree hands to its observers; the number of finalized processes.
fn take_all(tree: &mut Tree) -> u64 {
    for interval in tree.take_intervals(u64::MAX) {
        assert!(interval.start_ns <= interval.end_ns, "{interval:?}");
    }
    tree.tick(u64::MAX);
    tree.take_summaries().len() as u64
}

/// A file of /proc; every parser gets every file.
pub fn proc_files(bytes: &[u8]) {
    if let Some(stat) = Stat::parse(bytes) {
        assert!(bytes.contains(&b')'), "{stat:?}");
    }
    if let Some(read) = parse_rollup(bytes) {
        assert!(read.private_bytes.is_multiple_of(1024) || read.private_bytes == u64::MAX, "{read:?}");
    }
    assert!(Status::parse(bytes).ns_pids.len() <= bytes.len());
    let _ = (Statm::parse(bytes), parse_busy_ticks(bytes), parse_core_ticks(bytes, &[0, 1]));
    let args: Vec<_> = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    assert!(command_of_args(&args).is_none_or(|command| !command.is_empty()));
}

/// The fdinfo of a descriptor.
pub fn fdinfo(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(client) = Client::parse(&text) {
        assert!(!client.pdev.is_empty(), "{client:?}");
        assert!(client.engines.values().all(|engine| engine.capacity > 0), "{client:?}");
    }
}

/// Messages of the process connector, each preceded by its length.
pub fn kernel_events(bytes: &[u8]) {
    let mut members = Members::default();
    members.add(MAIN);
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first() {
        let (message, next) = after.split_at(usize::from(*length).min(after.len()));
        rest = next;
        if let Some(event) = parse_event(message) {
            assert_eq!(KernelEvent::decode(&event.encode()), Some(event));
            members.take(&event);
        }
    }
    assert!(members.len() <= 1 + bytes.len());
}

/// The state that a killed collector left: a snapshot, and the whole records of the second half as the journal.
pub fn state(bytes: &[u8]) {
    let journal = bytes.len() / 2 / RECORD_BYTES * RECORD_BYTES;
    let (snapshot, journal) = bytes.split_at(bytes.len() - journal);
    let (file, _directory) = state_file(snapshot);
    for (number, record) in (0..).zip(journal.chunks_exact(RECORD_BYTES)) {
        let words = words(record).expect("a whole record");
        file.write_findings(number, &[journal_entry(&words, number)]);
    }
    let mut run = file.load::<RunState>().map_or_else(new_run, |(_, run)| run);
    let findings: Vec<_> = file.journal(0).iter().map_while(Finding::of_entry).collect();
    run.apply(START_NS + STEP_NS, &Observation::Findings(findings));
    run.apply(START_NS + 2 * STEP_NS, &Observation::FinalizeAll);
}

/// The journal's entry for a record of `words` at `position`.
pub fn journal_entry(words: &[u32; RECORD_WORDS], position: u64) -> [u32; ENTRY_WORDS] {
    let mut entry = [0; ENTRY_WORDS];
    entry[..RECORD_WORDS].copy_from_slice(words);
    entry[RECORD_WORDS] = position as u32;
    entry
}

/// The run state in such a snapshot.
pub fn loaded(bytes: &[u8]) -> Option<RunState> {
    state_file(bytes).0.load().map(|(_, run)| run)
}

/// Raw bytes as a snapshot, so that its checksum is right whatever the bytes are.
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        self.0.iter().try_for_each(|byte| tuple.serialize_element(byte))?;
        tuple.end()
    }
}

fn state_file(snapshot: &[u8]) -> (StateFile, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = StateFile::create(&directory.path().join("state")).expect("a file");
    file.save(1, &ReadUpTo::default(), &Raw(snapshot)).expect("room");
    (file, directory)
}

/// A new directory with files of these names.
fn files<const N: usize>(files: [(&str, &[u8]); N]) -> (tempfile::TempDir, [PathBuf; N]) {
    let directory = tempfile::tempdir().expect("a directory");
    let paths = files.map(|(name, bytes)| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).expect("room");
        path
    });
    (directory, paths)
}

/// Makes the files of such an input: a database, and after it what its writer left, as a journal and as a write-ahead log. `None`: it
/// does not say where that begins.
pub fn database_files(bytes: &[u8]) -> Option<(tempfile::TempDir, [PathBuf; 3])> {
    let (database, log) = database_and_log(bytes)?;
    Some(files([("t.sqlite", database), ("t.sqlite-journal", log), ("t.sqlite-wal", log)]))
}

/// The two parts of such an input.
fn database_and_log(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (at, bytes) = bytes.split_first_chunk()?;
    bytes.split_at_checked(u32::from_le_bytes(*at) as usize)
}

/// A database, whose tables can be those of a tracking file or a sub-tracking file. Reading changes nothing.
pub fn database(bytes: &[u8]) {
    let Some((_directory, [database_path, journal_path, log_path])) = database_files(bytes) else { return };
    let (database, log) = database_and_log(bytes).expect("there are files");
    if let Some(Ok(recording)) = read_recording(&database_path, Detail::Moments) {
        show(&recording);
    }
    let (_other, [marks]) =
        files([("marks.csv", b"process_id,code_block_name,position,timestamp\n7,b,0,1\n7,b,1,9\n")]);
    let _ = (code_blocks(&database_path), samples_of_database(&database_path));
    let _ = (analyze_code_blocks(&database_path, &marks), analyze_code_blocks(&marks, &database_path));
    for (path, bytes) in [(database_path, database), (journal_path, log), (log_path, log)] {
        assert_eq!(std::fs::read(path).expect("it is still there"), bytes);
    }
}

/// A tracking file of lines: those of `.jsonl`, or of `.csv`.
pub fn lines(bytes: &[u8]) {
    let (_directory, paths) = files([("t.jsonl", bytes), ("t.csv", bytes)]);
    for path in &paths {
        if let Some(Ok(recording)) = read_recording(path, Detail::Moments) {
            show(&recording);
        }
    }
    let _ = (code_blocks(&paths[1]), analyze_code_blocks(&paths[1], &paths[1]));
}

/// Shows all that `gpu-track report` shows of a tracking file.
fn show(recording: &Recording) {
    let report = recording.report.as_deref().and_then(|json| read_report(json).ok()).map(|read| read.report);
    let listed = events::events(recording, report.as_ref(), &Filter { last: Some(9), ..Filter::default() });
    let _ = (events::text(&listed), events::json(&listed), events::csv(&listed));
    for points in [recording.over_time.clone(), recording.over_time.clone().every(0.5)] {
        let _ = (over_time::text(&points), over_time::json(&points), over_time::csv(&points));
    }
}

/// The plan of a study.
pub fn plan(bytes: &[u8]) {
    let (_directory, [path]) = files([("plan.toml", bytes)]);
    if let Ok(plan) = plan_file::read(&path) {
        let _ = expand(&plan.variants, plan.prepare.as_deref(), &plan.parameters);
    }
}

#[path = "../../launcher/src/companion/study/file.rs"]
mod plan_file;

/// What the reader of plans needs of the options of `gpu-track study`. The launcher is no library.
mod given {
    use gpu_track_collector::report::study::expand::{Parameter, Template};
    use gpu_track_collector::report::study::plan::MOST_RUNS;

    #[derive(Debug)]
    pub struct PlanArgs {
        pub variants: Vec<Template>,
        pub parameters: Vec<Parameter>,
        pub runs: Option<usize>,
        pub warmup: Option<usize>,
        pub prepare: Option<String>,
        pub shell: bool,
        pub seed: Option<u64>,
    }

    pub const LEAST_RUNS: usize = 1;

    pub fn number(given: &str, least: usize) -> Result<usize, String> {
        let number = given.parse().ok().filter(|number| (least..=MOST_RUNS).contains(number));
        number
            .ok_or_else(|| format!("\"{given}\" is not allowed: a whole number from {least} to {MOST_RUNS}"))
    }
}
