//! Records that no honest process writes.

use super::*;

/// xorshift64*: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// Small, or as large as a hostile record can make it.
    fn number(&mut self, hostile: bool) -> u64 {
        if !hostile {
            return self.below(100_000);
        }
        let extremes = [0, 1, u64::from(u32::MAX), u64::MAX / 1024, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        extremes[self.below(7) as usize]
    }
    fn usage(&mut self, hostile: bool) -> Usage {
        let mut number = || self.number(hostile);
        Usage {
            user_us: number(),
            system_us: number(),
            max_rss_kib: number(),
            minor_faults: number(),
            major_faults: number(),
            voluntary_switches: number(),
            involuntary_switches: number(),
            input_blocks: number(),
            output_blocks: number(),
        }
    }
    fn event(&mut self, hostile: bool) -> Event {
        let status = self.next() as i32;
        match self.below(8) {
            0 | 1 => Event::Start {
                realtime_ns: self.number(hostile),
                pidfd_inode: self.below(3),
                max_rss_kib: self.number(hostile),
                names: [self.next() as u8; NAME_BYTES],
                rank: Rank::default(),
                task: TaskKeys {
                    hashes: std::array::from_fn(|_| self.below(4) as u32),
                    text: std::array::from_fn(|_| self.next() as u8),
                },
            },
            2 => Event::Fork {
                realtime_ns: self.number(hostile),
                pidfd_inode: self.below(3),
                max_rss_kib: self.number(hostile),
                parent_pid_ns: HERE + self.below(2) as u32,
            },
            3 => Event::Exec { vm_hwm_kib: self.number(hostile) },
            4 | 5 => Event::Exit {
                status,
                vm_hwm_kib: self.number(hostile),
                own: self.usage(hostile),
                children: self.usage(hostile),
            },
            6 => Event::Reaped {
                child: self.below(40) as u32,
                status,
                reaper_max_rss_kib: self.number(hostile),
                usage: self.usage(hostile),
                clock_ns: self.number(hostile),
            },
            _ => Event::SpawnFailed { error: status },
        }
    }
}

/// Random records over few pids, with scans, ends and finalizing in between. Returns all summaries.
fn garbage(seed: u64, hostile: bool) -> Vec<ProcessSummary> {
    let mut random = Random(seed);
    let mut tree = Tree::new(context());
    let mut summaries = Vec::new();
    let mut now_ns = T0;
    for step in 0..20_000 {
        now_ns += random.below(40) * MS;
        let origin = Origin {
            pid: random.below(40) as u32,
            pid_ns: HERE + random.below(2) as u32,
            parent: [random.below(40) as u32, LAUNCHER][random.below(8) as usize / 7],
            monotonic_ns: if hostile { random.number(true) } else { now_ns },
            flags: random.next() as u8,
        };
        let event = random.event(hostile);
        tree.apply(&origin, &event, now_ns);
        if step % 7 == 0 {
            let pick = random.below(tree.alive().len().max(1) as u64) as usize;
            if let Some(id) = tree.alive().get(pick).copied() {
                match random.below(4) {
                    0 => tree.observe_end(id, now_ns, (random.below(2) == 0).then_some(now_ns)),
                    1 => tree.set_host_pid(id, random.below(40) as u32),
                    2 => tree.set_unreported_image(id, UnreportedMemory::Own, now_ns),
                    _ => {
                        let key = Key { pid_ns: HERE, pid: random.below(40) as u32 };
                        let (host_pid, start_ns) = (key.pid, now_ns);
                        tree.found_in_proc(&ChildSeen {
                            key,
                            host_pid,
                            parent: if random.below(4) == 0 { Parent::Launcher } else { Parent::Known(id) },
                            earliest_start_ns: start_ns.saturating_sub(random.below(30) * MS),
                            start_ns,
                            pidfd_inode: 1,
                            seen_ns: now_ns,
                            before: None,
                        });
                    }
                }
            }
        }
        if step % 50 == 0 {
            finalize(&mut tree, now_ns, now_ns, |pid| pid % 2 == 0);
            let _ = tree.counted_cpu_ns();
            tree.take_intervals(u64::MAX);
            summaries.extend(tree.take_summaries());
        }
        // 40 pids in two namespaces and their host pids: no more processes can be alive.
        assert!(tree.alive().len() <= 40 * 4, "{} alive", tree.alive().len());
        assert!(tree.recently_finalized.len() <= Tolerance::FINALIZED_KEPT);
    }
    tree.finalize_all(now_ns);
    summaries.extend(tree.take_summaries());
    assert!(tree.processes.is_empty() && tree.by_state.by_pid.is_empty() && tree.groups.is_empty());
    assert_eq!(tree.counts().created, summaries.len() as u64 + tree.counts().failed_spawns);
    summaries
}

// Requirement: FAULT-86
#[test]
fn random_records_are_counted_and_bounded() {
    for seed in 1..=2 {
        assert!(garbage(seed, false).len() > 1000);
    }
}

#[test]
fn extreme_numbers_saturate() {
    for seed in 1..=2 {
        assert!(garbage(seed, true).len() > 1000);
    }
}
