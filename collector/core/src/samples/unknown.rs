//! A report without figures.

use super::full;
use crate::model::groups::Groups;
use crate::model::quality::Quality;
use crate::model::report::*;
use crate::model::report::{Ending, Report};

/// Makes an interim report in which no figure could be read.
pub fn unknown() -> Report {
    let nothing = Percent::default();
    Report {
        stage: Stage::SoFar,
        command: vec!["./app".into()],
        wall_s: 7384.4,
        host: Host { hostname: None, kernel: None, cores: 8, ram_bytes: None, boot_id: None },
        limits: Limits::default(),
        ending: Ending::default(),
        usable: Usable {
            cores: UsableCores { count: 8.0, source: CoresSource::Machine },
            memory: UsableMemory::default(),
            gpus: UsableGpus::default(),
        },
        hints: Hints {
            withheld: Some("the run is not over".into()),
            gpu_memory_reason: Some("a GPU driver failed".into()),
            ..Hints::default()
        },
        max_ram: MaxRam {
            system_capacity_bytes: None,
            system_bytes: None,
            main: SetRam::default(),
            descendants: SetRam::default(),
            combined: SetRam::default(),
        },
        mean_ram_bytes: Groups::default(),
        max_ram_at_most: Groups::default(),
        max_ram_proportional: MaxProportionalRam {
            reason: Some("no sample knew how all of their memory was shared".into()),
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
        contention: Contention {
            reason: Some("/proc/stat does not have the cores".into()),
            ..Contention::default()
        },
        io: Io {
            read_bytes: None,
            write_bytes: None,
            cancelled_write_bytes: None,
            reason: Some("the usage of no process is exactly known".into()),
        },
        faults: Faults { minor: None, major: None },
        context_switches: ContextSwitches { voluntary: None, involuntary: None },
        processes: processes(),
        peak: None,
        series: Series::default(),
        coverage: Coverage {
            processes: 1,
            unknown: 1,
            peaks: Peaks { unknown: 1, ..Peaks::default() },
            ..Coverage::default()
        },
        warnings: warnings(),
        ..full()
    }
}

fn processes() -> Processes {
    Processes {
        total: 1,
        max_concurrent: Some(1),
        still_running: Some(1),
        still_running_processes: vec![],
        by_command: vec![CommandUsage {
            command: "app".into(),
            count: 1,
            cpu_s: None,
            peak_rss_bytes: None,
            wall_s: 7384.4,
            gpu: None,
        }],
        heaviest: vec![HeavyProcess {
            start_s: None,
            node: None,
            usage: ProcessUsage {
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
            },
        }],
        max_sm_percent: None,
    }
}

fn warnings() -> Vec<Warning> {
    vec![
        Warning::new(
            Topic::Figures,
            "The CPU time of 1 process is unknown. The total has it only if another process of the tree waited for it."
                .into(),
        ),
        Warning::new(
            Topic::Figures,
            "The RAM of 1 process is unknown and missing from the RAM figures, because no sample saw it, and no record has it: \
             a smaller --st shows more."
                .into(),
        ),
    ]
}
