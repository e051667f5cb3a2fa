//! Memory that moves between devices at random, which are read in a random order. The sums are never larger than what was
//! held at one time.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::tests::{Bench, gpu, listed, memory};
use crate::model::gpu::{DeviceSample, Figure};
use crate::model::groups::Groups;
use crate::random_seed::seeded;

/// The pids of the main process and of a descendant, as the bench has them, and their ids.
const PROCESSES: [(u32, u64); 2] = [(10, 1), (20, 2)];

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A process gives back memory of a device.
    Free { device: usize, process: usize, bytes: u64 },
    /// It takes all that it gave back, on a device.
    Take { device: usize, process: usize },
    /// A device is read.
    Read { device: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        (0..3, 0..8_usize, 0..2_usize, 1..9_u64).prop_map(|(kind, device, process, bytes)| match kind {
            0 => Step::Free { device, process, bytes },
            1 => Step::Take { device, process },
            _ => Step::Read { device },
        });
    proptest::collection::vec(step, 1..250)
}

/// Devices and what processes have on them.
struct Machine {
    bench: Bench,
    now_ns: u64,
    /// Bytes by device and process.
    held: Vec<[u64; 2]>,
    /// Bytes that each process gave back and did not take yet.
    free: [u64; 2],
    /// Whether a device gained memory since its last reading, or lost some: no reading can show both.
    has_gained: Vec<Option<bool>>,
    /// The most that was really held at one time.
    most: Groups<u64>,
    /// The largest reading of each device.
    largest: Vec<Groups<u64>>,
}

impl Machine {
    fn new(held: Vec<[u64; 2]>) -> Self {
        let devices: Vec<_> = (0..held.len()).map(|device| gpu(&device.to_string())).collect();
        let count = held.len();
        let mut machine = Self {
            bench: Bench::new(&devices),
            now_ns: 2_000_000_000,
            held,
            free: [0; 2],
            has_gained: vec![None; count],
            most: Groups::default(),
            largest: vec![Groups::default(); count],
        };
        machine.most = machine.total();
        machine
    }

    fn groups([main, descendants]: [u64; 2]) -> Groups<u64> {
        Groups { main, descendants, combined: main + descendants }
    }

    fn total(&self) -> Groups<u64> {
        let all = self.held.iter().map(|held| Self::groups(*held));
        all.fold(Groups::default(), |a, b| a.with(b, |a, b| a + b))
    }

    fn step(&mut self, step: Step) {
        let count = self.held.len();
        self.now_ns += 1_000_000;
        match step {
            Step::Free { device, process, bytes } => {
                let device = device % count;
                if self.has_gained[device] != Some(true) {
                    let bytes = bytes.min(self.held[device][process]);
                    self.held[device][process] -= bytes;
                    self.free[process] += bytes;
                    self.has_gained[device] = Some(false);
                }
            }
            Step::Take { device, process } => {
                let device = device % count;
                if self.has_gained[device] != Some(false) {
                    self.held[device][process] += std::mem::take(&mut self.free[process]);
                    self.has_gained[device] = Some(true);
                    self.most = self.most.with(self.total(), u64::max);
                }
            }
            Step::Read { device } => self.read(device % count),
        }
    }

    fn read(&mut self, device: usize) {
        let held = self.held[device];
        let has_any = |(_, bytes): &(&(u32, u64), u64)| *bytes > 0;
        let list = PROCESSES.iter().zip(held).filter(has_any).map(|((pid, _), bytes)| listed(*pid, bytes));
        let sample = DeviceSample {
            values: vec![(Figure::MemoryUsed, Ok((held[0] + held[1]) as f64))],
            listed_ns: self.now_ns,
            ..memory(&device.to_string(), list.collect())
        };
        self.bench.at_ns(self.now_ns, vec![sample]);
        self.has_gained[device] = None;
        self.largest[device] = self.largest[device].with(Self::groups(held), u64::max);
    }

    /// The sums so far are those of one time.
    fn check(&self) -> TestCaseResult {
        let usage = &self.bench.usage;
        let Some(sums) = usage.max.memory else { return Ok(()) };
        let most = self.most.values();
        let one = self.largest.iter().fold(Groups::default(), |a, b| a.with(*b, u64::max)).values();
        let all = self.largest.iter().fold(Groups::default(), |a, b| a.with(*b, |a, b| a + b)).values();
        for (group, sum) in sums.values().into_iter().enumerate() {
            prop_assert!(one[group] <= sum && sum <= all[group], "{one:?} <= {sums:?} <= {all:?}");
            prop_assert!(sum <= most[group], "{sums:?}, really {most:?}");
        }
        prop_assert_eq!(usage.max.used_bytes, Some(sums.combined));
        for ((_, id), sum) in PROCESSES.iter().zip([sums.main, sums.descendants]) {
            let peak = usage.processes.by_id.get(id).and_then(|process| process.peak_bytes);
            prop_assert_eq!(peak.unwrap_or(0), sum);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(seeded())]

    // Requirement: GPU-1
    #[test]
    fn moved_memory_is_never_counted_twice(
        held in proptest::collection::vec([0..20_u64, 0..20_u64], 2..=8),
        steps in steps(),
        last in Just([0, 1, 2, 3, 4, 5, 6, 7]).prop_shuffle(),
    ) {
        let mut machine = Machine::new(held);
        let restart = steps.len() / 2;
        for (number, step) in steps.into_iter().enumerate() {
            machine.step(step);
            machine.check()?;
            if number == restart {
                let state = postcard::to_stdvec(&machine.bench.usage).unwrap();
                machine.bench.usage = postcard::from_bytes(&state).unwrap();
            }
        }
        // What is held for two rounds is found exactly.
        let count = machine.held.len();
        for device in last.into_iter().chain(last).filter(|device| *device < count) {
            machine.now_ns += 1_000_000;
            machine.read(device);
        }
        machine.check()?;
        let (held, found) = (machine.total().values(), machine.bench.usage.max.memory.unwrap().values());
        prop_assert!(held.iter().zip(found).all(|(held, found)| *held <= found), "{held:?}, found {found:?}");
    }
}
