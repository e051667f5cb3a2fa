//! Made-up reports with all kinds of figures. The goldens (`tests/golden`) are what the writers make of them.

mod attached;
mod hostile;
mod killed;
mod nodes;
mod unknown;

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use crate::model::groups::Groups;
use crate::model::quality::Quality;
use crate::model::report::*;
pub use attached::attached;
pub use hostile::hostile;
pub use killed::{causes, killed};
pub use nodes::nodes;
pub use unknown::unknown;

/// Gives the reports of single runs, with their names.
#[must_use]
pub fn all() -> [(&'static str, Report); 4] {
    [("full", full()), ("unknown", unknown()), ("killed", killed()), ("hostile", hostile())]
}

fn set_ram(footprint_bytes: u64, private_bytes: u64, shared_bytes: u64) -> SetRam {
    SetRam {
        footprint_bytes: Some(footprint_bytes),
        private_bytes: Some(private_bytes),
        shared_bytes: Some(shared_bytes),
    }
}

fn percent(max: f64, mean: f64) -> Percent {
    Percent { max_sum: Some(max), mean_sum: Some(mean) }
}

fn limits() -> Limits {
    let limit = |soft, hard| SoftHard { soft, hard };
    Limits {
        memory_bytes: Limit::Known(16_000_000_000),
        cpu_millicores: Limit::Unlimited,
        tasks: Limit::Known(4096),
        cgroup: Some("/slurm/job_17".into()),
        oom_kills: Some(0),
        cpus: Some(vec![0, 1, 4]),
        ulimits: BTreeMap::from([
            ("core_bytes".to_owned(), limit(Limit::Known(0), Limit::Unlimited)),
            ("cpu_s".to_owned(), limit(Limit::Known(3600), Limit::Known(7200))),
            ("open_files".to_owned(), limit(Limit::Known(1024), Limit::Known(1_048_576))),
            ("stack_bytes".to_owned(), limit(Limit::Known(8_388_608), Limit::Unlimited)),
        ]),
        batch_system: Some("slurm".into()),
        slurm: BTreeMap::from([("SLURM_JOB_ID".to_owned(), "17".to_owned())]),
    }
}

fn usable() -> Usable {
    Usable {
        cores: UsableCores { count: 3.0, source: CoresSource::Affinity },
        memory: UsableMemory {
            bytes: Some(16_000_000_000),
            source: Some(MemorySource::Cgroup),
            process_address_space_bytes: None,
        },
        gpus: UsableGpus { count: Some(0), source: Some(GpusSource::Tracked) },
    }
}

fn hints() -> Hints {
    Hints {
        withheld: None,
        memory: Some(MemoryHint {
            bytes: 1 << 30,
            is_lower_bound: false,
            basis: MemoryBasis::CombinedRam,
            basis_bytes: 204_472_320,
            given_bytes: Some(16_000_000_000),
            is_fitting: false,
        }),
        time: Some(TimeHint {
            time_s: 600,
            is_lower_bound: false,
            basis: TimeBasis::Wall,
            basis_s: 83.25,
            given_s: None,
            is_fitting: false,
        }),
        cpus: Some(CpusHint {
            count: 4,
            p95_busy_cores: 3.95,
            given: Some(3.0),
            is_fitting: true,
            is_lower_bound: false,
            is_serial: false,
        }),
        gpus: None,
        gpu_memory: None,
        gpu_memory_reason: Some("there is no GPU".into()),
    }
}

/// Makes a series in which all quantities rise to their peak in the middle of the run, and fall. The peak of RAM is `peak_bytes`.
pub fn over_time(wall_s: f64, peak_bytes: u64) -> Series {
    const POINTS: u64 = 40;
    let at = |i: u64| wall_s * i as f64 / POINTS as f64;
    let rising_and_falling = |peak: f64| -> Vec<Option<f64>> {
        (0..POINTS)
            .map(|i| Some((peak / (POINTS / 2) as f64).floor() * (i + 1).min(POINTS - i) as f64))
            .collect()
    };
    let track = |peak: f64| Track {
        min: rising_and_falling(peak * 0.5),
        mean: rising_and_falling(peak * 0.8),
        max: rising_and_falling(peak),
    };
    let peak = peak_bytes as f64;
    let sets = |peak: f64| SetTracks {
        main: track(peak / 4.0),
        descendants: track(peak / 2.0),
        combined: track(peak),
        system: track(peak * 2.0),
    };
    Series {
        start_s: (0..POINTS).map(at).collect(),
        end_s: (0..POINTS).map(|i| at(i + 1)).collect(),
        ram_bytes: sets(peak),
        cpu_percent: sets(400.0),
        processes: track(40.0),
        io_bytes_per_s: IoTracks { read: track(8e6), written: track(2e6) },
        file_systems: vec![FileSystemSeries {
            directories: vec![
                Directory { role: DiskRole::Working, path: "/home/user/project".into() },
                Directory { role: DiskRole::Report, path: "/home/user".into() },
            ],
            free_bytes: track(5e11),
        }],
        gpus: vec![GpuSeries {
            id: "GPU-1".into(),
            utilization_percent: track(100.0),
            memory_used_bytes: track(peak * 3.0),
            memory_run_bytes: track(peak),
            temperature_c: track(80.0),
            power_w: track(300.0),
            sm_clock_mhz: track(1980.0),
        }],
        commands: vec![CommandSeries {
            command: "make".into(),
            ram_bytes: track(peak / 2.0),
            mean_cpu_percent: rising_and_falling(200.0),
        }],
        other_commands: Some(OtherCommandSeries {
            mean_ram_bytes: rising_and_falling(peak / 8.0),
            mean_cpu_percent: rising_and_falling(100.0),
        }),
    }
}

/// Makes the report of a build on a machine without a GPU. Every figure is known.
pub fn full() -> Report {
    let success = Exit { code: Some(0), signal: None };
    Report {
        stage: Stage::Over,
        command: ["make", "-j4", "CFLAGS=-O2 -g"].map(str::to_owned).to_vec(),
        attached: None,
        started_at: UNIX_EPOCH + Duration::from_millis(1_760_000_000_123),
        wall_s: 83.25,
        host: Host {
            hostname: Some("node17".into()),
            kernel: Some("6.18.0".into()),
            cores: 8,
            ram_bytes: Some(25_276_502_016),
            boot_id: Some("0f3c2d4e-5b6a-4789-8a9b-c0d1e2f30415".into()),
        },
        ending: Ending { exit: success, ..Ending::default() },
        crashes: Some(Vec::new()),
        usable: usable(),
        hints: hints(),
        max_ram: MaxRam {
            system_capacity_bytes: Some(25_276_502_016),
            system_bytes: Some(1_391_843_840),
            main: set_ram(3_211_264, 1_200_128, 2_011_136),
            descendants: set_ram(201_326_592, 180_355_072, 31_457_280),
            combined: set_ram(204_472_320, 181_403_648, 33_554_432),
        },
        mean_ram_bytes: Groups {
            main: Some(3_100_000.5),
            descendants: Some(92_000_000.25),
            combined: Some(95_100_000.75),
        },
        max_ram_at_most: Groups { main: Some(3_211_264), descendants: Some(202_326_592), combined: Some(205_472_320) },
        max_ram_proportional: MaxProportionalRam {
            bytes: Groups { main: Some(1_700_000), descendants: Some(195_000_000), combined: Some(196_100_000) },
            reason: None,
        },
        max_gpu_ram: MaxGpuRam {
            system_capacity_bytes: Some(0),
            system_bytes: Some(0),
            main_bytes: Some(0),
            descendants_bytes: Some(0),
            combined_bytes: Some(0),
        },
        cpu: Cpu {
            system_core_count: 8,
            expected_cores: 4,
            system: percent(520.5, 390.25),
            main: percent(3.125, 0.5),
            descendants: percent(398.0, 380.75),
            combined: percent(399.5, 381.25),
            main_threads: Some(1),
            descendants_threads: Some(12),
            combined_threads: Some(13),
        },
        gpu: Gpu { system_gpu_count: Some(0), expected_gpus: Some(0), percent: percent(0.0, 0.0) },
        gpus: Vec::new(),
        cpu_time: CpuTime {
            user_s: Some(280.5),
            system_s: Some(36.890625),
            total_s: Some(317.390625),
            usable_percent: Some(127.083_333_333_333_33),
            kernel_s: Some(317.5),
            kernel_s_reason: None,
            unattributed_s: Some(0.0),
        },
        contention: Contention {
            is_contended: Some(false),
            allowed_cores: Some(3),
            others_cores: Some(0.0625),
            stolen_cores: Some(0.0),
            waiting_threads: Some(1.5),
            reason: None,
        },
        io: Io { read_bytes: Some(4096), write_bytes: Some(52_428_800), cancelled_write_bytes: Some(20_971_520), reason: None },
        faults: Faults { minor: Some(12_345_678), major: Some(9) },
        context_switches: ContextSwitches { voluntary: Some(45_678), involuntary: Some(1234) },
        processes: processes(success),
        peak: Some(Peak {
            at_s: 41.5,
            footprint_bytes: 204_472_320,
            processes: vec![
                Holder { pid: 4242, command: "cc1".into(), rss_bytes: 80_000_000, private_bytes: Some(61_000_000), added_bytes: 80_000_000 },
                Holder { pid: 4250, command: "cc1".into(), rss_bytes: 70_000_000, private_bytes: Some(51_000_000), added_bytes: 52_000_000 },
            ],
            by_command: vec![CommandHolders { command: "cc1".into(), count: 2, added_bytes: 132_000_000 }],
            other_commands: Some(OtherHolders { commands: 7, count: 30, added_bytes: 72_000_000 }),
        }),
        series: over_time(83.25, 204_472_320),
        cgroup: None,
        limits: limits(),
        run_limits: Vec::new(),
        alerts: Vec::new(),
        events: None,
        rank: None,
        job_ranks: Vec::new(),
        node_part: None,
        merged: None,
        nodes: Vec::new(),
        ranks: None,
        coverage: coverage(),
        warnings: vec![Warning::new(
            Topic::Command,
            "1 process outlived the command: its figures are those of the last sample, taken 0.04 s before the end."
                .into(),
        )],
    }
}

/// Makes the report's part on processes. `success`: how those ended that did not fail.
fn processes(success: Exit) -> Processes {
    Processes {
        total: 2021,
        max_concurrent: Some(14),
        still_running: Some(1),
        still_running_processes: vec![Running { pid: 4711, command: "sccache".into() }],
        by_command: (0..17)
            .map(|i| CommandUsage {
                command: if i == 0 { "cc1".into() } else { format!("tool{i}") },
                count: 1700 / (i + 1),
                cpu_s: Some(300.0 / (i + 1) as f64),
                peak_rss_bytes: Some(88_080_384 / (i + 1)),
                wall_s: 310.0 / (i + 1) as f64,
                gpu: None,
            })
            .collect(),
        heaviest: heaviest(success),
        max_sm_percent: None,
    }
}

/// Makes a compiler, which ended with `success`, and a server that still runs.
fn heaviest(success: Exit) -> Vec<HeavyProcess> {
    vec![
        HeavyProcess {
            start_s: Some(35.5),
            node: None,
            usage: ProcessUsage {
                pid: 4242,
                ppid: Some(4241),
                command: "cc1".into(),
                args: Some(["cc1", "-quiet", "main program.c"].map(str::to_owned).to_vec()),
                cpu_s: Some(12.5),
                cpu_quality: Quality::Exact,
                peak_rss_bytes: Some(88_080_384),
                peak_quality: Quality::Exact,
                wall_s: 12.75,
                exit: success,
                gpu: None,
            },
        },
        HeavyProcess {
            start_s: Some(0.25),
            node: None,
            usage: ProcessUsage {
                pid: 4711,
                ppid: Some(1),
                command: "sccache".into(),
                args: None,
                cpu_s: Some(0.5),
                cpu_quality: Quality::Exact,
                peak_rss_bytes: Some(9_000_000),
                peak_quality: Quality::Sampled,
                wall_s: 83.0,
                exit: Exit::default(),
                gpu: None,
            },
        },
    ]
}

fn coverage() -> Coverage {
    Coverage {
        processes: 2021,
        exact: 2019,
        sampled: 2,
        unknown: 0,
        joined: 1,
        failed_spawns: 3,
        helpers: 0,
        untracked_reason: None,
        uncounted_reason: None,
        uninstrumented: 3,
        layers: Layers {
            preload: Some(2018),
            wait: Some(2),
            subreaper: Some(0),
            scan: Some(1),
            connector: None,
        },
        peaks: Peaks { exact: 2018, sampled: 1, bound: 2, unknown: 3 },
        ram_floor_bytes: None,
        private_ram_reason: None,
        static_executables: vec!["/usr/bin/busybox".into()],
        dropped_events: 0,
        records_untrusted: None,
        connector_absent: Some("Operation not permitted (os error 1)".into()),
        connector_overruns: 0,
        elsewhere: Vec::new(),
        other_users: Vec::new(),
        nodes: None,
        left_reports: Vec::new(),
        ranks: None,
    }
}
