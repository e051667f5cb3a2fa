//! The reports that the goldens are made from.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use crate::model::quality::Quality;
use crate::model::report::*;

fn rss(total: u64, private: u64, shared: u64) -> Rss {
    Rss { total_bytes: Some(total), private_bytes: Some(private), shared_bytes: Some(shared) }
}

fn percent(max: f64, mean: f64) -> Percent {
    Percent { max_sum: Some(max), mean_sum: Some(mean) }
}

fn limits() -> Limits {
    let of = |soft, hard| SoftHard { soft, hard };
    Limits {
        memory_bytes: Limit::Known(16_000_000_000),
        cpu_millicores: Limit::Unlimited,
        tasks: Limit::Known(4096),
        cgroup: Some("/slurm/job_17".into()),
        oom_kills: Some(0),
        cpus: Some(vec![0, 1, 4]),
        ulimits: BTreeMap::from([
            ("core_bytes".to_owned(), of(Limit::Known(0), Limit::Unlimited)),
            ("cpu_s".to_owned(), of(Limit::Known(3600), Limit::Known(7200))),
            ("open_files".to_owned(), of(Limit::Known(1024), Limit::Known(1_048_576))),
            ("stack_bytes".to_owned(), of(Limit::Known(8_388_608), Limit::Unlimited)),
        ]),
        slurm: BTreeMap::from([("SLURM_JOB_ID".to_owned(), "17".to_owned())]),
    }
}

fn cgroup() -> Cgroup {
    Cgroup {
        path: Some("/sys/fs/cgroup/slurm/job_17/gpu-track.7.1".into()),
        memory_peak_bytes: None,
        oom_kills: Some(0),
        cpu_usage_s: Some(12.5),
        cpu_user_s: Some(10.0),
        cpu_system_s: Some(2.5),
        io_read_bytes: Some(4096),
        io_write_bytes: Some(0),
        reason: Some("memory.peak needs Linux 5.19".into()),
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
            is_serial: false,
        }),
        gpus: None,
    }
}

/// RAM that rises to its peak in the middle of the run, and falls.
pub(super) fn over_time(wall_s: f64, peak_bytes: u64) -> Vec<RamSpan> {
    const SPANS: u64 = 40;
    let at = |i: u64| wall_s * i as f64 / SPANS as f64;
    let bytes = |i: u64| peak_bytes / (SPANS / 2) * (i + 1).min(SPANS - i);
    let span = |i| RamSpan {
        start_s: at(i),
        end_s: at(i + 1),
        min_bytes: bytes(i),
        mean_bytes: Some(bytes(i) as f64),
        max_bytes: bytes(i),
    };
    (0..SPANS).map(span).collect()
}

/// A build on a machine without a GPU. Every figure is known.
pub(in crate::report) fn full() -> Report {
    let ended = Exit { code: Some(0), signal: None };
    Report {
        stage: Stage::Over,
        command: ["make", "-j4", "CFLAGS=-O2 -g"].map(str::to_owned).to_vec(),
        started_at: UNIX_EPOCH + Duration::from_millis(1_760_000_000_123),
        wall_s: 83.25,
        host: Host {
            hostname: Some("node17".into()),
            kernel: Some("6.18.0".into()),
            cores: 8,
            ram_bytes: Some(25_276_502_016),
        },
        exit: ended,
        cause: None,
        usable: usable(),
        hints: hints(),
        max_ram: MaxRam {
            system_capacity_bytes: Some(25_276_502_016),
            system_bytes: Some(1_391_843_840),
            main: rss(3_211_264, 1_200_128, 2_011_136),
            descendants: rss(201_326_592, 180_355_072, 31_457_280),
            combined: rss(204_472_320, 181_403_648, 33_554_432),
        },
        mean_ram: MeanRam {
            main_bytes: Some(3_100_000.5),
            descendants_bytes: Some(92_000_000.25),
            combined_bytes: Some(95_100_000.75),
        },
        max_ram_proportional: MaxProportionalRam {
            main_bytes: Some(1_700_000),
            descendants_bytes: Some(195_000_000),
            combined_bytes: Some(196_100_000),
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
        io: Io { read_bytes: Some(4096), write_bytes: Some(52_428_800) },
        faults: Faults { minor: Some(12_345_678), major: Some(9) },
        context_switches: ContextSwitches { voluntary: Some(45_678), involuntary: Some(1234) },
        processes: Processes {
            total: 2021,
            max_concurrent: 14,
            still_running: 1,
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
            heaviest: vec![
                ProcessUsage {
                    pid: 4242,
                    ppid: Some(4241),
                    command: "cc1".into(),
                    args: Some(["cc1", "-quiet", "main program.c"].map(str::to_owned).to_vec()),
                    cpu_s: Some(12.5),
                    cpu_quality: Quality::Exact,
                    peak_rss_bytes: Some(88_080_384),
                    peak_quality: Quality::Exact,
                    wall_s: 12.75,
                    exit: ended,
                    gpu: None,
                },
                ProcessUsage {
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
            ],
            max_sm_percent: None,
        },
        peak: Some(Peak {
            at_s: 41.5,
            combined_rss_bytes: 204_472_320,
            processes: vec![
                Holder { pid: 4242, command: "cc1".into(), rss_bytes: 80_000_000, private_bytes: Some(61_000_000), added_bytes: 80_000_000 },
                Holder { pid: 4250, command: "cc1".into(), rss_bytes: 70_000_000, private_bytes: Some(51_000_000), added_bytes: 52_000_000 },
            ],
        }),
        ram_over_time: over_time(83.25, 204_472_320),
        cgroup: None,
        limits: limits(),
        coverage: Coverage {
            processes: 2021,
            exact: 2019,
            sampled: 2,
            unknown: 0,
            joined: 1,
            failed_spawns: 3,
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
            nodes: None,
            ranks: None,
        },
        warnings: vec![Warning::new(
            Topic::Command,
            "1 process outlived the command: its figures are those of the last sample, taken 0.04 s before the end."
                .into(),
        )],
    }
}

/// An interim report in which no figure could be read.
pub(super) fn unknown() -> Report {
    let nothing = Percent::default();
    Report {
        stage: Stage::SoFar,
        command: vec!["./app".into()],
        wall_s: 7384.4,
        host: Host { hostname: None, kernel: None, cores: 8, ram_bytes: None },
        limits: Limits::default(),
        exit: Exit::default(),
        usable: Usable {
            cores: UsableCores { count: 8.0, source: CoresSource::Machine },
            memory: UsableMemory::default(),
            gpus: UsableGpus::default(),
        },
        hints: Hints { withheld: Some("the run is not over".into()), ..Hints::default() },
        max_ram: MaxRam {
            system_capacity_bytes: None,
            system_bytes: None,
            main: Rss::default(),
            descendants: Rss::default(),
            combined: Rss::default(),
        },
        mean_ram: MeanRam { main_bytes: None, descendants_bytes: None, combined_bytes: None },
        max_ram_proportional: MaxProportionalRam {
            reason: Some("at no sample was known how all of their memory is shared".into()),
            ..MaxProportionalRam::default()
        },
        max_gpu_ram: MaxGpuRam {
            system_capacity_bytes: None,
            system_bytes: None,
            main_bytes: None,
            descendants_bytes: None,
            combined_bytes: None,
        },
        cpu: Cpu {
            system: nothing,
            main: nothing,
            descendants: nothing,
            combined: nothing,
            main_threads: None,
            descendants_threads: None,
            combined_threads: None,
            ..full().cpu
        },
        gpu: Gpu { system_gpu_count: Some(2), expected_gpus: Some(1), percent: nothing },
        cpu_time: CpuTime {
            user_s: None,
            system_s: None,
            total_s: None,
            usable_percent: None,
            kernel_s: None,
            kernel_s_reason: Some("a process still runs".into()),
            unattributed_s: None,
        },
        io: Io { read_bytes: None, write_bytes: None },
        faults: Faults { minor: None, major: None },
        context_switches: ContextSwitches { voluntary: None, involuntary: None },
        processes: Processes {
            total: 1,
            max_concurrent: 1,
            still_running: 1,
            still_running_processes: vec![],
            by_command: vec![CommandUsage {
                command: "app".into(),
                count: 1,
                cpu_s: None,
                peak_rss_bytes: None,
                wall_s: 7384.4,
                gpu: None,
            }],
            heaviest: vec![ProcessUsage {
                pid: 77,
                ppid: None,
                command: "app".into(),
                args: None,
                cpu_s: None,
                cpu_quality: Quality::Unknown,
                peak_rss_bytes: None,
                peak_quality: Quality::Unknown,
                wall_s: 7384.4,
                exit: Exit::default(),
                gpu: None,
            }],
            max_sm_percent: None,
        },
        peak: None,
        ram_over_time: vec![],
        coverage: Coverage { processes: 1, unknown: 1, ..Coverage::default() },
        warnings: vec![
            Warning::new(
                Topic::Figures,
                "The CPU time of 1 process is unknown: it is unattributed, as far as the sums of the processes that reaped them have it."
                    .into(),
            ),
            Warning::new(
                Topic::Figures,
                "The RAM of 1 process is unknown and missing from the RAM figures: no sample saw it, and no record has it. A \
                 smaller --st sees more."
                    .into(),
            ),
        ],
        ..full()
    }
}

/// A GPU of which every figure is known.
fn used_gpu() -> GpuDevice {
    GpuDevice {
        id: "GPU-8f6c2d1e-0000-1111-2222-333344445555".into(),
        index: Some(1),
        pci_address: Some("0000:3b:00.0".into()),
        name: Some("NVIDIA H100 80GB HBM3".into()),
        vendor: Some("nvidia"),
        parent: None,
        source: "nvml".into(),
        driver_version: Some("550.54.15".into()),
        runtime_version: Some("12.4".into()),
        visible: Some(true),
        used: true,
        lost_at_s: None,
        reading: GpuReading { count: 73_401, mean_interval_s: Some(0.1), max_interval_s: Some(0.25) },
        memory: GpuMemory {
            total_bytes: Some(85_899_345_920),
            max_used_bytes: Some(12_345_678_901),
            max_main_bytes: Some(12_000_000_000),
            max_descendants_bytes: Some(0),
            max_combined_bytes: Some(12_000_000_000),
        },
        utilization: GpuUtilization {
            mean_percent: Some(75.125),
            max_percent: Some(100.0),
            active_s: Some(5500.25),
            measured_s: Some(7321.5),
            mean_memory_percent: Some(20.5),
            max_memory_percent: Some(61.0),
        },
        power: GpuPower {
            mean_w: Some(412.5),
            max_w: Some(699.25),
            energy_j: Some(3_046_065.125),
            energy_span_s: Some(7321.75),
            integrated_energy_j: Some(3_046_000.5),
        },
        max_temperature_c: Some(71.0),
        clocks: GpuClocks {
            mean_sm_mhz: Some(1801.5),
            max_sm_mhz: Some(1980.0),
            mean_memory_mhz: Some(2619.0),
            max_memory_mhz: Some(2619.0),
        },
        pstate: GpuPstate { fastest: Some(0), slowest: Some(2) },
        throttle: Some(vec![GpuThrottle { reason: "software power cap".into(), time_s: 12.25 }]),
        pcie: GpuPcie { tx_bytes: Some(5_000_000_000), rx_bytes: Some(90_000_000_000) },
        errors: GpuErrors {
            ecc_corrected: Some(2),
            ecc_uncorrected: Some(0),
            xid: Some(vec![GpuXid { xid: 13, count: 2 }]),
        },
        processes: vec![GpuProcess {
            pid: 4242,
            driver_pid: 4242,
            command: "python3 train.py".into(),
            is_main: true,
            peak_bytes: Some(12_000_000_000),
            mean_sm_percent: Some(74.5),
            max_sm_percent: Some(97.0),
            accounted: false,
        }],
        missing: vec![],
        gaps: vec![GpuGap {
            figure: "memory by process".into(),
            reason: "NVML error 999: unknown error".into(),
            time_s: 2.5,
        }],
    }
}

/// A part of a GPU that gave no figure and was lost.
fn lost_gpu() -> GpuDevice {
    GpuDevice {
        parent: Some("0000:82:00.0".into()),
        lost_at_s: Some(12.25),
        missing: vec![GpuMissing { figure: "power".into(), reason: "no permission".into() }],
        ..GpuDevice::default()
    }
}

/// Killed by the out-of-memory killer, with a GPU.
pub(super) fn killed() -> Report {
    let killed = Exit { code: None, signal: Some(9) };
    let mut report = full();
    report.command = ["python3", "train.py", "--epochs", "10"].map(str::to_owned).to_vec();
    report.cgroup = Some(cgroup());
    report.coverage.nodes = Some(Nodes { unseen: 1, unseen_names: vec!["node18".into()] });
    report.coverage.ranks = Some(UnseenRanks { unseen: 2, expected: 4 });
    report.exit = killed;
    report.wall_s = 7384.4;
    report.cause = Some(Cause::OutOfMemory(OutOfMemory {
        process: Some(DeadProcess {
            pid: 4242,
            command: "python3 train.py".into(),
            args: Some(["python3", "train.py", "--epochs", "10"].map(str::to_owned).to_vec()),
            is_main: true,
            exit: killed,
            at_s: 7384.25,
            peak_rss_bytes: Some(15_900_000_000),
            cpu_s: Some(7001.5),
        }),
        is_certain: true,
        oom_kills: 1,
        cgroup: Some("/slurm/job_17".into()),
        limit_bytes: Some(16_000_000_000),
        peak_bytes: Some(16_000_000_000),
    }));
    report.usable.gpus = UsableGpus { count: Some(1), source: Some(GpusSource::Environment) };
    report.hints = Hints {
        memory: Some(MemoryHint {
            bytes: 24_696_061_952,
            is_lower_bound: true,
            basis: MemoryBasis::OutOfMemoryLimit,
            basis_bytes: 16_000_000_000,
            given_bytes: Some(16_000_000_000),
            is_fitting: false,
        }),
        time: None,
        cpus: None,
        ..hints()
    };
    report.max_ram.combined = rss(21_000_000_000, 20_900_000_000, 120_000_000);
    report.max_gpu_ram = MaxGpuRam {
        system_capacity_bytes: Some(85_899_345_920),
        system_bytes: Some(12_345_678_901),
        main_bytes: Some(12_000_000_000),
        descendants_bytes: Some(0),
        combined_bytes: Some(12_000_000_000),
    };
    report.gpu = Gpu { system_gpu_count: Some(4), expected_gpus: Some(2), percent: percent(187.5, 150.25) };
    report.gpus =
        vec![used_gpu(), GpuDevice { id: "0000:83:00.0".into(), source: "kfd".into(), ..lost_gpu() }];
    report.processes.max_sm_percent = Some(GroupPercent { main: 97.0, descendants: 0.0, combined: 97.0 });
    report.processes.by_command.truncate(1);
    report.processes.heaviest.truncate(1);
    report.processes.heaviest[0].exit = killed;
    report.processes.by_command[0].gpu =
        Some(CommandGpu { count: 3, peak_ram_bytes: Some(12_000_000_000), max_sm_percent: None });
    report.processes.heaviest[0].gpu =
        Some(ProcessGpu { peak_ram_bytes: Some(12_000_000_000), max_sm_percent: Some(97.0) });
    report.processes.still_running = 0;
    report.processes.still_running_processes.clear();
    report.warnings.clear();
    report
}

/// The kinds of causes that no other report has.
pub(super) fn causes() -> Vec<(Exit, Cause)> {
    let failed = Exit { code: Some(1), signal: None };
    let killed = Exit { code: None, signal: Some(24) };
    let process = |exit| DeadProcess {
        pid: 4243,
        command: "solve".into(),
        args: None,
        is_main: false,
        exit,
        at_s: 83.125,
        peak_rss_bytes: Some(900_000_000),
        cpu_s: Some(60.25),
    };
    vec![
        (
            failed,
            Cause::AddressSpaceLimit(AddressSpaceLimit {
                process: process(Exit { code: None, signal: Some(6) }),
                limit_bytes: 1_000_000_000,
                peak_bytes: 990_000_000,
            }),
        ),
        (killed, Cause::CpuTimeLimit(CpuTimeLimit { process: process(killed), limit_s: Some(60) })),
        (
            Exit { code: None, signal: Some(15) },
            Cause::TimeLimit(TimeLimit {
                process: None,
                signal: 15,
                signal_name: "SIGTERM".into(),
                set_by: TimeLimitSource::Slurm,
                limit_s: Some(3600.0),
            }),
        ),
        (
            failed,
            Cause::DiskFull(DiskFull {
                path: "/scratch/me".into(),
                role: DiskRole::Working,
                available_bytes: 0,
            }),
        ),
    ]
}

/// Names that contain control characters, or are too long for a table.
pub(super) fn hostile() -> Report {
    let evil = "evil\x1b]0;title\x07\r\n\u{202e}gpj\u{9b}2J";
    let mut report = full();
    report.command = vec![
        evil.into(),
        String::new(),
        "it's".into(),
        "x".repeat(100_000),
        "\u{fffd}not utf-8".into(),
        "last".into(),
    ];
    report.host.hostname = Some("node\x1b[31m".into());
    report.processes.still_running_processes[0].command = evil.into();
    report.processes.by_command.truncate(2);
    report.processes.by_command[0].command = evil.into();
    report.processes.by_command[1].command = "数据 \"quoted\" ".repeat(12);
    report.processes.heaviest[0].args = Some(vec![evil.into(), "tab\there".into(), "y".repeat(300)]);
    report.processes.heaviest[1].command = evil.into();
    report.coverage.static_executables = vec!["/tmp/new\nline: 7".into(), "/z".repeat(80)];
    report.coverage.records_untrusted = Some(format!("told of {evil}"));
    report.warnings =
        vec![Warning::new(Topic::Tracking, evil.into()), Warning::new(Topic::Figures, "word ".repeat(60))];
    report.peak.as_mut().unwrap().processes[0].command = evil.into();
    report.cpu_time.kernel_s = None;
    report.cpu_time.kernel_s_reason = Some(evil.into());
    report.hints.gpus =
        Some(GpusHint { count: 1, given: 2, is_fitting: false, held_idle: vec![evil.into()] });
    report.exit = Exit { code: None, signal: Some(11) };
    report.cause = Some(Cause::Signal(FatalSignal {
        process: DeadProcess {
            pid: 4242,
            command: evil.into(),
            args: Some(vec![evil.into(), "y".repeat(300)]),
            is_main: true,
            exit: report.exit,
            at_s: 83.25,
            peak_rss_bytes: None,
            cpu_s: None,
        },
        signal: 11,
        signal_name: "SIGSEGV".into(),
        sender: Some(Sender { pid: 7, uid: 0, command: Some(evil.into()) }),
    }));
    report
}
