//! Reports of commands that something ended, one of them with GPUs.

use super::{full, hints, percent, set_ram};
use crate::model::alert::{AlertQuantity, EventKind, Events, RunEvent};
use crate::model::gpu::Vendor;
use crate::model::groups::Groups;
use crate::model::report::Report;
use crate::model::report::*;
use crate::model::report::{DiskFull, DiskRole};
use crate::model::run_limit::{LargestProcess, Quantity};
use crate::run::cause::{
    AddressSpaceLimit, Cause, CpuTimeLimit, DeadProcess, FileSizeLimit, OutOfMemory, TimeLimit,
    TimeLimitSource,
};

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

/// Makes a GPU of which every figure is known.
pub(super) fn used_gpu() -> GpuDevice {
    GpuDevice {
        id: "GPU-8f6c2d1e-0000-1111-2222-333344445555".into(),
        index: Some(1),
        pci_address: Some("0000:3b:00.0".into()),
        name: Some("NVIDIA H100 80GB HBM3".into()),
        vendor: Some(Vendor::Nvidia),
        parent: None,
        source: "nvml".into(),
        driver_version: Some("550.54.15".into()),
        runtime_version: Some("12.4".into()),
        visible: Some(true),
        used: Some(true),
        lost_at_s: None,
        reading: GpuReading { count: Some(73_401), mean_interval_s: Some(0.1), max_interval_s: Some(0.25) },
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
            mean_span_s: Some(7321.75),
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

/// Makes a part of a GPU that gave no figure and was lost.
fn lost_gpu() -> GpuDevice {
    GpuDevice {
        parent: Some("0000:82:00.0".into()),
        used: Some(false),
        lost_at_s: Some(12.25),
        reading: GpuReading { count: Some(0), ..GpuReading::default() },
        missing: vec![GpuMissing { figure: "power".into(), reason: "no permission".into() }],
        ..GpuDevice::default()
    }
}

/// Work on another node, and in a container of a hostile name.
fn elsewhere() -> Vec<StartedElsewhere> {
    let entry = |kind, program: &str, target: &str, count| StartedElsewhere {
        kind,
        program: program.into(),
        target: Some(target.into()),
        count,
        is_tracked: false,
    };
    vec![
        entry(ElsewhereKind::Container, "docker", "im\u{1b}[2Jage<b>", 3),
        StartedElsewhere { is_tracked: true, ..entry(ElsewhereKind::Node, "orted", "node18", 1) },
    ]
}

/// Makes the report of a command that the out-of-memory killer ended, on a machine with GPUs.
pub fn killed() -> Report {
    let killed = Exit { code: None, signal: Some(9) };
    let mut report = full();
    report.command = ["python3", "train.py", "--epochs", "10"].map(str::to_owned).to_vec();
    report.cgroup = Some(cgroup());
    report.coverage.nodes = Some(Nodes { unseen: 1, unseen_names: vec!["node18".into()] });
    report.coverage.elsewhere = elsewhere();
    report.coverage.other_users = vec![OtherUser { uid: 65_534, processes: 2 }];
    report.coverage.ranks = Some(UnseenRanks { unseen: 2, expected: 4 });
    report.node_part = Some(NodePart {
        is_agent: true,
        clock_ahead_s: Some(0.002),
        directory: Some("/home/u/r.json.d".into()),
    });
    report.rank = Some(OwnRank { job: 889_213_807, rank: 2, of: 4, pid: Some(4242) });
    report.job_ranks = [0, 1].map(job_rank).into();
    report.ending.exit = killed;
    report.run_limits = run_limits();
    report.alerts = alerts();
    report.events = Some(events());
    let crash = |command: &str, signal, signal_name: &str, count, is_probe| Crash {
        command: Some(command.into()),
        signal,
        signal_name: signal_name.into(),
        count,
        is_probe,
        places: Vec::new(),
    };
    report.crashes = Some(vec![
        crash("python3 worker.py", 11, "SIGSEGV", 3, false),
        crash("conftest", 6, "SIGABRT", 12, true),
    ]);
    report.wall_s = 7384.4;
    report.ending.cause = Some(Cause::OutOfMemory(OutOfMemory {
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
        gpu_memory_reason: Some("a limit of memory ended the run".into()),
        ..hints()
    };
    report.max_ram.combined = set_ram(21_000_000_000, 20_900_000_000, 120_000_000);
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
    report.processes.max_sm_percent = Some(Groups { main: 97.0, descendants: 0.0, combined: 97.0 });
    report.processes.by_command.truncate(1);
    report.processes.heaviest.truncate(1);
    report.processes.heaviest[0].usage.exit = killed;
    report.processes.by_command[0].gpu =
        Some(CommandGpu { count: 3, peak_ram_bytes: Some(12_000_000_000), max_sm_percent: None });
    report.processes.heaviest[0].usage.gpu =
        Some(ProcessGpu { peak_ram_bytes: Some(12_000_000_000), max_sm_percent: Some(97.0) });
    report.processes.still_running = Some(0);
    report.processes.still_running_processes.clear();
    report.warnings.clear();
    report
}

/// Gives the kinds of causes that no other report has, each with how the command ended.
pub fn causes() -> Vec<(Exit, Cause)> {
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
        (Exit { code: Some(0), signal: None }, limit("ram=8G", Quantity::Ram, 8.6e9, 9.1e9)),
        (Exit { code: None, signal: Some(15) }, limit("wall=1h", Quantity::Wall, 3600.0, 3600.0)),
        (killed, limit("processes=500", Quantity::Processes, 500.0, 512.0)),
        (
            failed,
            Cause::GpuMemoryExhausted(GpuMemoryExhausted {
                device: "GPU-8f6c2d1e".into(),
                used_bytes: 84_900_000_000,
                total_bytes: 85_899_345_920,
                at_s: 83.0,
                holders: vec![GpuHolder { pid: 4243, command: "solve".into(), bytes: 80_000_000_000 }],
            }),
        ),
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
            failed,
            Cause::FileSizeLimit(FileSizeLimit {
                process: process(Exit { code: None, signal: Some(25) }),
                limit_bytes: Some(4_096_000),
            }),
        ),
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

/// Makes the cause of a run that one of its limits ended. `words`: the limit as the user wrote it.
fn limit(words: &str, quantity: Quantity, allowed: f64, amount: f64) -> Cause {
    let is_ram = quantity == Quantity::Ram;
    Cause::Limit(LimitExceeded {
        limit: words.into(),
        quantity,
        unit: quantity.unit(),
        allowed,
        amount,
        at_s: Some(83.125),
        enforced_by: if quantity == Quantity::Wall { Enforcer::Timer } else { Enforcer::Samples },
        overshoot_bytes: is_ram.then_some(500_000_000),
        process: Some(LargestProcess {
            pid: Some(4243),
            command: "solve".into(),
            rss_bytes: 900_000_000,
            gpu_ram_bytes: None,
        }),
        was_killed: Some(!is_ram),
        left: Some(u32::from(quantity == Quantity::Processes)),
    })
}

/// Makes four limits of a run. The kernel holds one and not another, one acted, and one is without effect.
fn run_limits() -> Vec<RunLimitUse> {
    let entry = |words: &str, quantity: Quantity, allowed: Option<f64>| RunLimitUse {
        limit: words.into(),
        quantity,
        unit: quantity.unit(),
        allowed,
        action: "end".into(),
        enforced_by: Enforcer::Samples,
        reason: None,
        exceeded_at_s: None,
        amount: None,
    };
    vec![
        RunLimitUse { enforced_by: Enforcer::Kernel, ..entry("ram=16GB", Quantity::Ram, Some(16e9)) },
        RunLimitUse {
            reason: Some("samples held it: /sys/fs/cgroup has no memory controller".into()),
            ..entry("ram=80%", Quantity::Ram, Some(12.8e9))
        },
        RunLimitUse {
            action: "SIGUSR1".into(),
            exceeded_at_s: Some(3600.25),
            amount: Some(3600.25),
            ..entry("wall>1h=USR1", Quantity::Wall, Some(3600.0))
        },
        entry("gpu_ram=90%", Quantity::GpuRam, None),
    ]
}

/// Makes a rank of a job of two that the command started.
fn job_rank(rank: u32) -> JobRank {
    JobRank {
        rank: OwnRank { job: 17, rank, of: 2, pid: Some(4300 + rank) },
        command: "solver".into(),
        processes: 3,
        start_s: 1.5,
        wall_s: 30.25,
        cpu_s: Some(20.0 + f64::from(rank)),
        peak_ram_bytes: Some(200_000_000 + 100_000_000 * u64::from(rank)),
        peak_gpu_ram_bytes: Some(1_000_000_000),
        exit: Exit { code: Some(0), signal: None },
    }
}

/// Makes four alerts of a run. One went on and off, one is on, one is without effect, and one could not go on.
fn alerts() -> Vec<AlertUse> {
    let entry = |words: &str, quantity: AlertQuantity, allowed: Option<f64>| AlertUse {
        alert: words.into(),
        quantity,
        unit: quantity.unit(),
        allowed,
        reason: None,
        times: 0,
        first_at_s: None,
        on_s: 0.0,
        is_on: false,
    };
    vec![
        AlertUse {
            times: 2,
            first_at_s: Some(1.5),
            on_s: 40.25,
            ..entry("ram>80%", AlertQuantity::Ram, Some(12.8e9))
        },
        AlertUse {
            times: 1,
            first_at_s: Some(61.5),
            on_s: 20.5,
            is_on: true,
            ..entry("growth", AlertQuantity::Growth, Some(16e9))
        },
        entry("disk<10G", AlertQuantity::Disk, Some(1e10)),
        AlertUse {
            reason: Some("no GPU told the memory of the run".into()),
            ..entry("gpu_ram>95%", AlertQuantity::GpuRam, None)
        },
    ]
}

/// Makes some events of a run with such alerts.
fn events() -> Events {
    let of_alert = |at_s, kind, words: &str, quantity: AlertQuantity, amount| RunEvent {
        rule: Some(words.into()),
        quantity: Some(quantity),
        unit: Some(quantity.unit()),
        amount: Some(amount),
        allowed: Some(12.8e9),
        since_s: Some(0.25),
        ..RunEvent::new(at_s, kind)
    };
    let growth = RunEvent {
        rate_bytes_per_s: Some(2e6),
        left_s: Some(840.5),
        ..of_alert(61.5, EventKind::Growth, "growth", AlertQuantity::Growth, 1.25e10)
    };
    let step = |at_s, kind, quantity: AlertQuantity, from, amount| RunEvent {
        quantity: Some(quantity),
        unit: Some(quantity.unit()),
        amount: Some(amount),
        from: Some(from),
        since_s: Some(at_s - 0.25),
        ..RunEvent::new(at_s, kind)
    };
    let on_gpu = RunEvent {
        pid: Some(4242),
        command: Some("python3 train.py".into()),
        device: Some("GPU-8f6c2d1e-0000-1111-2222-333344445555".into()),
        ..step(30.25, EventKind::Allocation, AlertQuantity::GpuRam, 0.0, 1.2e10)
    };
    let jump =
        RunEvent { allowed: Some(16e9), ..step(31.0, EventKind::Jump, AlertQuantity::Ram, 1.1e10, 1.25e10) };
    let list = vec![
        RunEvent::new(0.0, EventKind::Start),
        of_alert(1.5, EventKind::Warning, "ram>80%", AlertQuantity::Ram, 1.3e10),
        of_alert(21.5, EventKind::Recovered, "ram>80%", AlertQuantity::Ram, 1.1e10),
        on_gpu,
        jump,
        growth,
        RunEvent::new(83.25, EventKind::Stop),
    ];
    Events { count: 7, by_kind: list.iter().map(|event| (event.kind, 1)).collect(), list }
}
