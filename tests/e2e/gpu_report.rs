//! How GPU figures are presented: the columns of commands and processes, the text report, and `--gpus`.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;

use crate::support::gpu::{FakeGpus, GPU0, GPU1};
use crate::support::program;
use crate::support::report::{Report, SLOW_GPU_READINGS, UNREAD_GPUS};

/// The fake driver's answers once all processes hold their memory.
const BUSY: &str = "*.process_times 2500001\n*.samples 500001:0 1500001:40 2500001:80\n*.pcie_tx 4001000\n*.pcie_rx 1502000\n\
                    *.energy 5010000\n*.ecc_corrected 6\n*.xids 13 31 13\n*.pstate 2\n";

/// A shell script that runs three processes at the same time. Two are of a program `trainer` (2.5 GB on two GPUs, 60%
/// and 20%; 1.5 GB, 30%), one is of another program (0.5 GB). `keep` leaves their entries, from which the test takes
/// their pids.
fn trainers(gpus: &FakeGpus, changes: &str) -> String {
    let trainer = gpus.path("trainer");
    symlink(program("gpu"), &trainer).unwrap();
    let busy = gpus.script("busy", &format!("{BUSY}{changes}"));
    let [first, second, done] = ["first", "second", "done"].map(|name| gpus.path(name));
    format!(
        "{trainer} keep hold:0:2000000000,c,60 hold:1:500000000,c,20 touch:{first} wait:{done} & \
         {trainer} keep hold:0:1500000000,c,30 touch:{second} wait:{done} & \
         {}; wait",
        gpus.line(&[
            "keep",
            "hold:0:500000000,g",
            &format!("wait:{first}"),
            &format!("wait:{second}"),
            "sampled",
            &format!("script:{busy}"),
            "sampled",
            &format!("touch:{done}"),
        ])
    )
}

/// The pids of these three processes, in the same order.
fn holders(gpus: &FakeGpus) -> [u64; 3] {
    let held = std::fs::read_dir(gpus.path("held")).unwrap().map(|entry| entry.unwrap().path());
    let held: Vec<PathBuf> = held.filter(|path| path.extension().is_some_and(|gpu| gpu == "0")).collect();
    ["2000000000 c 60", "1500000000 c 30", "500000000 g"].map(|words| {
        let path = held.iter().find(|path| std::fs::read_to_string(path).unwrap() == words).unwrap();
        path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
    })
}

#[test]
fn gpu_columns_of_commands_and_processes_are_exact() {
    let idle = "*.samples 500000:0\n*.process_times";
    let (gpus, run) =
        FakeGpus::with_these_samples(2, idle, |gpus| gpus.tracked(["sh", "-c", &trainers(gpus, "")]).run());
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(0), Some(4_500_000_000), Some(4_500_000_000)]);
    assert_eq!(report.f64("processes.max_sm_percent.main"), 0.0);
    assert_eq!(report.f64("processes.max_sm_percent.descendants"), 110.0);
    assert_eq!(report.f64("processes.max_sm_percent.combined"), 110.0);
    let of_command = |name| report.command(name).unwrap()["gpu"].to_string();
    assert_eq!(of_command("trainer"), r#"{"count":2,"max_sm_percent":60.0,"peak_ram_bytes":2500000000}"#);
    assert_eq!(of_command("gpu"), r#"{"count":1,"max_sm_percent":null,"peak_ram_bytes":500000000}"#);
    assert_eq!(of_command("sh"), "null");
    let of_pid = |pid| {
        let mut heaviest = report.array("processes.heaviest").iter();
        heaviest.find(|process| process["pid"] == pid).unwrap()["gpu"].to_string()
    };
    let [first, second, third] = holders(&gpus);
    assert_eq!(of_pid(first), r#"{"max_sm_percent":60.0,"peak_ram_bytes":2500000000}"#);
    assert_eq!(of_pid(second), r#"{"max_sm_percent":30.0,"peak_ram_bytes":1500000000}"#);
    assert_eq!(of_pid(third), r#"{"max_sm_percent":null,"peak_ram_bytes":500000000}"#);
    let on = |gpu: &Report, place: usize| {
        let process = &gpu.array("processes")[place];
        assert_eq!(process["mean_sm_percent"], process["max_sm_percent"], "there is one sample");
        (
            process["pid"].as_u64().unwrap(),
            process["peak_bytes"].as_u64(),
            process["mean_sm_percent"].as_f64(),
        )
    };
    let (gpu0, gpu1) = (report.gpu(GPU0), report.gpu(GPU1));
    assert_eq!(on(&gpu0, 0), (first, Some(2_000_000_000), Some(60.0)));
    assert_eq!(on(&gpu0, 1), (second, Some(1_500_000_000), Some(30.0)));
    assert_eq!(on(&gpu0, 2), (third, Some(500_000_000), None));
    assert_eq!((on(&gpu1, 0), gpu1.array("processes").len()), ((first, Some(500_000_000), Some(20.0)), 1));
}

/// The lines without their indentation and with single spaces.
fn plain(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The line with this title and the deeper indented lines after it.
fn section(page: &str, title: &str) -> Vec<String> {
    let depth = |line: &&str| line.len() - line.trim_start().len();
    let mut lines = page.lines().skip_while(|line| line.trim_start() != title);
    let first = lines.next().unwrap_or_else(|| panic!("no {title} in {page}"));
    let rest: Vec<&str> = lines.take_while(|line| depth(line) > depth(&first)).collect();
    plain(&format!("{first}\n{}", rest.join("\n")))
}

/// The mean power is that of the energy counter in a run of a second or more, and its time depends on the machine.
const MEAN_SPAN: &str = "Time of the mean:";

fn is_mean_power(line: &str) -> bool {
    line.starts_with("Mean:") && line.ends_with(" W")
}

/// Removes the number from the end of the line that starts with this label and ends with this unit.
fn take_number(lines: &mut [String], label: &str, unit: &str) -> f64 {
    let line = lines.iter_mut().find(|line| line.starts_with(label)).unwrap();
    let number = line.split_off(label.len());
    number.strip_suffix(unit).unwrap().trim().parse().unwrap()
}

/// A device's section of the full text report, by the values in which the two devices differ. Unknown figures and zeros
/// have no lines.
struct DeviceSection {
    id: &'static str,
    address: &'static str,
    memory_of_descendants: &'static str,
    power: &'static str,
    temperature: &'static str,
    throttled: &'static str,
}

impl DeviceSection {
    fn lines(&self, processes: &[String]) -> Vec<String> {
        let Self { id, address, memory_of_descendants, power, temperature, throttled } = self;
        let lines = plain(&format!(
            "{id}:
                Name: Fake A100
                PCI address: {address}
                Driver: 550.54.15
                Runtime: 12.4
                Memory:
                   Total: 85.899 GB
                   Max used by anybody: 4.000 GB
                   Max descendants: {memory_of_descendants} GB
                   Max combined: {memory_of_descendants} GB
                Utilization:
                   Max: 80.000 %
                   Mean: 60.000 %
                   Max of the memory controller: 7.000 %
                   Mean of the memory controller: 7.000 %
                Active: 1.200 s
                Power:
                   {power}
                {temperature}
                Max SM clock: 1410.000 MHz
                Max memory clock: 1593.000 MHz
                Performance states: P0 to P2
                {throttled}
                PCIe sent: 0.004 GB
                PCIe received: 0.002 GB
                ECC errors corrected: 2
                XID errors: 3
                Processes:
                   PID  Peak RAM [GB]  Max SM [%]  Mean SM [%]  Command
                   {}",
            processes.join("\n")
        ));
        lines.into_iter().filter(|line| !line.is_empty()).collect()
    }
}

/// Asserts the sections of the text report that sum over both devices.
fn assert_sums(page: &str) {
    assert_eq!(
        section(page, "Max GPU RAM:"),
        plain(
            "Max GPU RAM:
                System capacity: 171.799 GB
                System: 8.000 GB
                Descendants: 4.500 GB
                Combined: 4.500 GB"
        )
    );
    assert_eq!(
        section(page, "GPU utilization:"),
        plain(
            "GPU utilization:
                System GPU count: 2
                Number of expected GPUs: 2
                GPU percentages:
                   Max sum percent: 160.000
                   Max hardware percent: 80.000
                   Mean sum percent: 120.000
                   Mean hardware percent: 60.000"
        )
    );
    assert_eq!(
        section(page, "By command on GPUs:"),
        plain(
            "By command on GPUs:
                Count  Peak GPU RAM [GB]  Max SM [%]  Command
                    2              2.500      60.000  trainer
                    1              0.500         n/a  gpu"
        )
    );
}

#[test]
fn gpu_sections_of_the_text_report_are_exact() {
    let changes = "*.energy 5000000\n*.memory_used 4000000000\n0.throttle 4\n1.bus 177\n1.power !4\n1.temperature !3\n1.ecc_uncorrected !3";
    let gpus = FakeGpus::new(2, &format!("*.samples 500000:0\n*.process_times\n{changes}"));
    let page = gpus.path("page");
    let library = gpus.library_path().to_str().unwrap();
    let options = ["-f", "text", "--tu", "seconds", "--st", "0.02", "--nvml-lib", library, "-o", &page];
    let run = gpus.tracked(["sh", "-c", &trainers(&gpus, changes)]).only_options(&options).run();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    let page = std::fs::read_to_string(page).unwrap();
    let [first, second, third] = holders(&gpus);
    assert_sums(&page);
    let heaviest = section(&page, "Heaviest on GPUs:");
    let rows = [
        format!("{first} 2.500 60.000 trainer"),
        format!("{second} 1.500 30.000 trainer"),
        format!("{third} 0.500 n/a gpu"),
    ];
    assert_eq!(heaviest[1], "PID Peak GPU RAM [GB] Max SM [%] Command");
    assert_eq!(heaviest[2..], rows);
    let mut gpu0 = section(&page, "GPU-fake-0:");
    assert!(
        gpu0.iter().any(|line| is_mean_power(line)) && gpu0.iter().any(|line| line.starts_with(MEAN_SPAN)),
        "{gpu0:?}"
    );
    gpu0.retain(|line| !is_mean_power(line) && !line.starts_with(MEAN_SPAN));
    // Two figures depend on time: the energy is the power times the time in the only throttle reason. Both are rounded.
    let joules = take_number(&mut gpu0, "Energy by integrated power:", "J");
    let seconds = take_number(&mut gpu0, "software power cap:", "s");
    assert!((joules - 100.0 * seconds).abs() < 0.051, "{joules} J, {seconds} s");
    let processes = [
        format!("{first} 2.000 60.000 60.000 trainer"),
        format!("{second} 1.500 30.000 30.000 trainer"),
        format!("{third} 0.500 n/a n/a gpu"),
    ];
    let expected = DeviceSection {
        id: GPU0,
        address: "0000:3b:00.0",
        memory_of_descendants: "4.000",
        power: "Max: 100.000 W\nEnergy: 10.000 J\nEnergy by integrated power:",
        temperature: "Max temperature: 41.000 C",
        throttled: "Throttled:\nsoftware power cap:",
    };
    assert_eq!(gpu0, expected.lines(&processes));
    let expected = DeviceSection {
        id: GPU1,
        address: "0000:b1:00.0",
        memory_of_descendants: "0.500",
        power: "Energy: 10.000 J",
        temperature: "",
        throttled: "",
    };
    let processes = [format!("{first} 0.500 20.000 20.000 trainer")];
    let mut gpu1 = section(&page, "GPU-fake-1:");
    gpu1.retain(|line| !is_mean_power(line) && !line.starts_with(MEAN_SPAN));
    assert_eq!(gpu1, expected.lines(&processes));
    // On a busy machine the fake driver is slow, and a warning says so.
    let is_late =
        |warning: &&str| [SLOW_GPU_READINGS, UNREAD_GPUS].iter().any(|late| warning.starts_with(late));
    let warnings = section(&page, "Warnings:").join(" ");
    let warnings: Vec<_> = warnings.split(" - ").filter(|warning| !is_late(warning)).collect();
    assert_eq!(
        warnings.join(" - "),
        "Warnings: - GPU-fake-0 reported XID error 13 (2 times). - GPU-fake-0 reported XID error 31 (once). \
         - GPU-fake-1 reported XID error 13 (2 times). - GPU-fake-1 reported XID error 31 (once). \
         - GPU figures that are missing (no permission): power of GPU-fake-1. \
         - GPU figures that are missing (not supported by this device): temperature, ECC errors uncorrected of \
         GPU-fake-1."
    );
}

/// The lines of `--gpus` about a device's figures, with the reasons for those that are missing.
fn figures(reasons: &[(&str, &str)]) -> Vec<String> {
    let figures = [
        "memory",
        "utilization",
        "memory utilization",
        "encoder utilization",
        "decoder utilization",
        "power",
        "energy counter",
        "temperature",
        "SM clock",
        "memory clock",
        "performance state",
        "throttle reasons",
        "PCIe bytes sent",
        "PCIe bytes received",
        "ECC errors corrected",
        "ECC errors uncorrected",
        "XID errors",
        "memory by process",
        "utilization by process",
        "accounting",
        "activity",
    ];
    let answer = |figure: &str| {
        let reason = reasons.iter().find(|(missing, _)| *missing == figure);
        reason.map_or("yes".to_owned(), |(_, reason)| format!("n/a ({reason})"))
    };
    figures.map(|figure| format!("{figure}: {}", answer(figure))).to_vec()
}

const DIVIDED: &str = "0.mig 1\n0.mig_most 2\n0m0.uuid MIG-fake-a\n0m0.name Fake A100 MIG 1g.10gb\n\
                       0m0.memory_total 9728000000\n0m0.process_times !3\n0m0.samples !3\n0m0.utilization !3\n\
                       0m0.power !3\n1.bus 177\n1.energy !3\n1.processes !4\n1.accounting 1\n1.xids !3";

/// The figures that are missing on the devices of [`DIVIDED`], with their reasons.
const REASONS: [&[(&str, &str)]; 3] = [
    &[
        ("utilization", "reported by its MIG instances only"),
        ("memory by process", "reported by its MIG instances only"),
        ("utilization by process", "reported by its MIG instances only"),
        ("accounting", "accounting mode is off"),
        ("activity", "reported by its MIG instances only"),
    ],
    &[
        ("utilization", "not supported by this device"),
        ("memory utilization", "not supported by this device"),
        ("encoder utilization", "not supported by this device"),
        ("decoder utilization", "not supported by this device"),
        ("power", "not supported by this device"),
        ("XID errors", "not supported by this device"),
        ("utilization by process", "not supported by this device"),
        ("accounting", "accounting mode is off"),
        ("activity", "not supported by this device"),
    ],
    &[
        ("energy counter", "not supported by this device"),
        ("XID errors", "not supported by this device"),
        ("memory by process", "no permission"),
        ("activity", "not supported by this device"),
    ],
];

// Requirement: GPU-17
#[test]
fn gpu_list_as_text_is_exact() {
    let gpus = FakeGpus::new(2, DIVIDED);
    let run = gpus.list_with(&["--guuids", "MIG-fake-a"], &[("CUDA_VISIBLE_DEVICES", "1")]);
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    let head = |id: &str,
                name: &str,
                part_of: &str,
                address: &str,
                memory: &str,
                tracked: &str,
                visible: &str| {
        plain(&format!(
            "{id}: {name}\n{part_of}PCI address: {address}\nMemory: {memory} gigabytes\nDriver: 550.54.15\nRuntime: 12.4\n\
             Source: nvml\nTracked: {tracked}\nVisible to a command: {visible}\nFigures:"
        ))
    };
    let out = "no (left out by the options)";
    let part_of = "Part of: GPU-fake-0\n";
    let [whole, part, other] = REASONS.map(figures);
    let expected = [
        plain("GPUs: 2"),
        head(GPU0, "Fake A100", "", "0000:3b:00.0", "85.899", out, "no"),
        whole,
        head("MIG-fake-a", "Fake A100 MIG 1g.10gb", part_of, "0000:3b:00.0", "9.728", "yes", "no"),
        part,
        head(GPU1, "Fake A100", "", "0000:b1:00.0", "85.899", out, "yes"),
        other,
    ];
    assert_eq!(plain(&run.stdout), expected.concat());
}

// Requirement: GPU-17
#[test]
fn gpu_list_as_json_is_exact() {
    let gpus = FakeGpus::new(2, DIVIDED);
    let run = gpus.list_with(&["-f", "json", "--guuids", "MIG-fake-a"], &[("CUDA_VISIBLE_DEVICES", "1")]);
    let mut listing: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let [host, time] = ["hostname", "timestamp"].map(|key| listing[key].take().as_str().unwrap().len());
    assert!(host > 0 && time == 23);
    let figures_json = |reasons: &[(&str, &str)]| -> Vec<serde_json::Value> {
        let lines = figures(&[]);
        let names = lines.iter().map(|line| line.strip_suffix(": yes").unwrap());
        let figure_json = |name: &str| {
            let reason = reasons.iter().find(|(missing, _)| *missing == name).map(|(_, reason)| *reason);
            json!({ "figure": name, "available": reason.is_none(), "reason": reason })
        };
        names.map(figure_json).collect()
    };
    let now = |free_bytes: u64, utilization_percent: Option<f64>, processes: &serde_json::Value| {
        json!({
            "memory_used_bytes": 1_000_000_000, "memory_free_bytes": free_bytes, "utilization_percent": utilization_percent,
            "memory_utilization_percent": 7.0, "temperature_c": 41.0, "power_w": 100.0, "sm_clock_mhz": 1410.0,
            "pstate": 0, "processes": processes, "encoder_utilization_percent": 12.0, "decoder_utilization_percent": 3.0,
            "memory_clock_mhz": 1593.0, "fan_speed_percent": 30.0, "power_limit_w": 400.0,
            "enforced_power_limit_w": 350.0, "graphics_clock_mhz": 1425.0, "throttle_bits": 0,
            "memory_temperature_c": null, "pcie_generation": null, "pcie_width": null, "ecc_corrected": 4, "ecc_uncorrected": 0,
            "sm_active_percent": null, "sm_occupancy_percent": null, "tensor_active_percent": null,
            "memory_bandwidth_percent": null, "fp64_active_percent": null, "fp32_active_percent": null,
            "fp16_active_percent": null, "pcie_tx_bytes_per_s": null, "pcie_rx_bytes_per_s": null,
            "nvlink_tx_bytes_per_s": null, "nvlink_rx_bytes_per_s": null,
        })
    };
    let facts = |accounting: &str, pending_mig: &str| {
        json!({
            "pcie.link.gen.max": "1", "pcie.link.width.max": "1", "accounting.mode": accounting, "mig.mode.pending": pending_mig,
        })
    };
    let no_process_list = serde_json::Value::Null;
    let mut of_instance = now(8_728_000_000, None, &json!([]));
    for figure in [
        "memory_utilization_percent",
        "power_w",
        "encoder_utilization_percent",
        "decoder_utilization_percent",
    ] {
        of_instance[figure] = json!(null);
    }
    let expected = json!({
        "count": 2,
        "drivers": [],
        "warnings": [],
        "hostname": null,
        "timestamp": null,
        "gpus": [
            {
                "id": GPU0, "uuid": GPU0, "index": 0, "minor": null, "pci_address": "0000:3b:00.0",
                "name": "Fake A100", "vendor": "nvidia", "parent": null, "memory_bytes": 85_899_345_920_u64,
                "reserved_bytes": 0, "driver_version": "550.54.15", "runtime_version": "12.4", "source": "nvml",
                "facts": facts("Disabled", "Enabled"), "tracked": false, "visible": false, "is_divided": true, "figures": figures_json(REASONS[0]),
                "now": now(84_899_345_920, None, &no_process_list),
            },
            {
                "id": "MIG-fake-a", "uuid": "MIG-fake-a", "index": null, "minor": null,
                "pci_address": "0000:3b:00.0", "name": "Fake A100 MIG 1g.10gb", "vendor": "nvidia", "parent": GPU0,
                "memory_bytes": 9_728_000_000_u64, "reserved_bytes": 0, "driver_version": "550.54.15", "runtime_version": "12.4",
                "source": "nvml", "facts": facts("Disabled", "Disabled"), "tracked": true, "visible": false, "is_divided": null, "figures": figures_json(REASONS[1]), "now": of_instance,
            },
            {
                "id": GPU1, "uuid": GPU1, "index": 1, "minor": null, "pci_address": "0000:b1:00.0",
                "name": "Fake A100", "vendor": "nvidia", "parent": null, "memory_bytes": 85_899_345_920_u64,
                "reserved_bytes": 0, "driver_version": "550.54.15", "runtime_version": "12.4", "source": "nvml",
                "facts": facts("Enabled", "Disabled"), "tracked": false, "visible": true, "is_divided": false, "figures": figures_json(REASONS[2]),
                "now": now(84_899_345_920, Some(30.0), &no_process_list),
            },
        ],
    });
    assert_eq!(listing, expected);
}
