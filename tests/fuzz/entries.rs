//! The fuzzing targets as plain functions of bytes: each passes them to code that reads input from outside, and panics on
//! failure. The fault suite runs them over the corpus and its mutations, and cargo-fuzz (`targets/`) without a limit.

#![allow(dead_code, reason = "each target uses one of them")]

use gpu_track_abi::record::{Event, RECORD_WORDS};
use gpu_track_collector::StateFile;
use gpu_track_collector::hostile_input::{
    Client, CpuUsage, ENTRY_WORDS, Finding, Journal, KernelEvent, Members, Observation, ReadUpTo, RunContext,
    RunState, Stat, Statm, Status, Tree, Trust, command_of_args, parse_busy_ticks, parse_core_ticks,
    parse_event, parse_rollup,
};
use serde::ser::{Serialize, SerializeTuple, Serializer};

/// A target: its name in cargo-fuzz and in the corpus, and the function.
pub type Entry = (&'static str, fn(&[u8]));

/// All targets.
pub const ENTRIES: [Entry; 5] = [
    ("records", records),
    ("proc_files", proc_files),
    ("fdinfo", fdinfo),
    ("kernel_events", kernel_events),
    ("state", state),
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
