//! Garbage as input: no parser may panic, hang or accept an impossible value.

use std::fs;

use gpu_track_abi::record::{Event, RECORD_WORDS};
use gpu_track_collector::ProcRoot;
use gpu_track_collector::hostile_input::{
    Stat, Statm, Status, parse_busy_ticks, parse_core_ticks, parse_rollup,
};

use crate::{Random, rounds};

// Requirement: FAULT-5
#[test]
fn decoded_random_records_encode_to_the_same_record() {
    let mut random = Random(1);
    let mut decoded = 0u32;
    for _ in 0..rounds(200_000) {
        let mut words: [u32; RECORD_WORDS] = std::array::from_fn(|_| random.next() as u32);
        // In half of the records the kind, flags and other bytes of the first word are small, so that it is accepted.
        if random.below(2) == 0 {
            words[0] &= 0x0101_0107;
        }
        if let Some((origin, event)) = Event::decode(&words) {
            decoded += 1;
            let (again, same) = Event::decode(&event.encode(&origin)).expect("what was decoded is a record");
            assert_eq!((again, same), (origin, event));
        }
    }
    assert!(decoded > 100, "too few random records were accepted: {decoded}");
}

/// A changed copy of a real file: bytes are replaced, inserted, removed or repeated.
pub fn mutated(random: &mut Random, text: &[u8]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_within(at..),
            2 => bytes.insert(at, b" \n():09\0\xff-"[random.below(10) as usize]),
            3 => bytes.splice(at..at, *b"99999999999999999999999").for_each(drop),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
        }
        bytes.truncate(65_536);
    }
    bytes
}

// Requirement: FAULT-9
#[test]
fn parsers_survive_mutated_proc_files() {
    let mut random = Random(2);
    let names = ["self/stat", "self/statm", "self/smaps_rollup", "self/status", "stat"];
    let real = names.map(|name| fs::read(format!("/proc/{name}")).unwrap());
    for round in 0..rounds(40_000) {
        let text = mutated(&mut random, &real[round as usize % real.len()]);
        // Every parser gets every file.
        let stat = Stat::parse(&text);
        if let Some(stat) = stat {
            assert!(text.contains(&b')'), "{stat:?} out of {text:?}");
        }
        let _ = (Statm::parse(&text), parse_rollup(&text), Status::parse(&text), parse_busy_ticks(&text));
        let _ = parse_core_ticks(&text, &[0, 1]);
    }
    assert!(
        Stat::parse(&real[0]).is_some() && Statm::parse(&real[1]).is_some(),
        "the unchanged files are accepted"
    );
}

// Requirement: FAULT-9
#[test]
fn proc_reader_survives_a_garbage_proc() {
    let directory = tempfile::tempdir().unwrap();
    let process = directory.path().join("7");
    fs::create_dir_all(process.join("task/7")).unwrap();
    let root = ProcRoot::new(directory.path());
    let mut random = Random(3);
    let of_process = ["stat", "statm", "status", "smaps_rollup", "cmdline", "comm", "io", "task/7/children"];
    let files: Vec<_> = of_process
        .map(|name| process.join(name))
        .into_iter()
        .chain(["stat", "meminfo"].map(|name| directory.path().join(name)))
        .collect();
    // More rounds would mostly test the disk.
    for _ in 0..rounds(300).min(10_000) {
        for file in &files {
            let length = random.below(300);
            let bytes: Vec<u8> =
                (0..length).map(|_| b"0123456789 \n:()kBabc\0\xff"[random.below(22) as usize]).collect();
            fs::write(file, &bytes).unwrap();
        }
        let _ = (root.stat(7), root.status(7), root.rollup(7).ok(), root.comm(7), root.io(7));
        let _ = (root.machine_stat(), root.system_memory(), root.executable(7), root.pid_ns(7));
        assert!(root.args(7, 10).is_none_or(|line| line.into_args().len() <= 300));
        assert!(root.children(7, 1).len() <= 300);
    }
}
