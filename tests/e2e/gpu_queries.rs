//! `gpu-track gpus` with nvidia-smi's options: the forms that public scripts use.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::gpu::FakeGpus;
use crate::support::{program, wait_until};

/// The queries of GPUs that 86 public scripts make, in our words: the words after `csv`, and the lists of fields that are asked for
/// in that form.
const FORMS: [(&str, &[&str]); 4] = [
    (
        "noheader,nounits",
        &[
            "memory.used",
            "memory.free",
            "memory.total",
            "utilization.gpu",
            "temperature.gpu",
            "power.draw",
            "name",
            "index",
            "count",
            "uuid",
            "driver_version",
            "clocks.gr",
            "clocks.mem",
            "clocks.sm",
            "pstate",
            "fan.speed",
            "mig.mode.current",
            "memory.used,memory.total",
            "memory.used,memory.free",
            "memory.total,memory.used",
            "memory.total,memory.used,memory.free",
            "memory.free,memory.total",
            "index,memory.free",
            "index,memory.used",
            "index,memory.used,memory.total",
            "index,memory.used,utilization.gpu",
            "index,name,memory.total",
            "index,uuid",
            "index,utilization.gpu,memory.used,memory.total",
            "name,memory.total",
            "name,memory.total,driver_version",
            "name,memory.total,memory.used,utilization.gpu,temperature.gpu",
            "utilization.gpu,memory.used,memory.total",
            "utilization.gpu,utilization.memory",
            "utilization.gpu,memory.used",
            "utilization.gpu,temperature.gpu,memory.used,memory.total,power.draw",
            "temperature.gpu,utilization.gpu,memory.used,memory.total,power.draw,power.limit,fan.speed",
            "timestamp,power.draw",
            "timestamp,utilization.gpu,memory.used",
            "power.draw,clocks.sm,clocks.mem,temperature.gpu",
            "index,utilization.gpu,clocks_throttle_reasons.active",
            "index,name,uuid,utilization.gpu,memory.used,memory.reserved,memory.total",
        ],
    ),
    (
        "noheader",
        &[
            "name",
            "gpu_name",
            "gpu_uuid",
            "driver_version",
            "memory.used",
            "memory.total",
            "memory.free",
            "utilization.gpu",
            "power.draw",
            "temperature.gpu",
            "index,name",
            "index,uuid",
            "index,gpu_uuid,name",
            "name,memory.total",
            "name,driver_version",
            "name,memory.total,driver_version",
            "name,memory.used,memory.total",
            "index,memory.used,memory.total,utilization.gpu",
            "index,memory.used",
            "utilization.gpu,memory.used,memory.total",
            "utilization.gpu,utilization.memory,memory.total,memory.free,memory.used",
            "power.draw,utilization.gpu,temperature.gpu",
            "pci.bus_id,name",
            "index,mig.mode.current",
            "timestamp,name,power.draw",
            "power.draw,utilization.gpu,fan.speed,temperature.gpu,name,index,memory.total,memory.used,\
             clocks_throttle_reasons.active,uuid",
        ],
    ),
    (
        "",
        &[
            "memory.used",
            "memory.used,memory.total",
            "utilization.gpu",
            "utilization.gpu,memory.used",
            "index,name,memory.total,memory.used",
            "name,memory.total,memory.free,memory.used",
            "index,utilization.gpu,utilization.memory",
            "timestamp,utilization.gpu,memory.used",
            "timestamp,index,power.draw",
            "timestamp,name,utilization.gpu,utilization.memory,memory.total,memory.free,memory.used",
            "timestamp,name,pci.bus_id,driver_version,pstate,temperature.gpu,utilization.gpu,utilization.memory,memory.total,\
             memory.free,memory.used",
            "index,power.draw,power.limit,clocks.sm,clocks.gr",
            "index,power.draw,temperature.gpu,clocks.current.sm,clocks.current.memory,fan.speed",
            "uuid,memory.used",
            "temperature.gpu,power.draw,clocks.gr",
            "index,clocks_throttle_reasons.active",
        ],
    ),
    ("nounits", &["utilization.gpu,memory.used", "timestamp,index,utilization.gpu,memory.used,power.draw"]),
];
/// What each field is in the fake driver's script: heading, value without its unit, and unit.
const FIELDS: [(&str, &str, &str, &str); 27] = [
    ("memory.used", "memory.used [MiB]", "953", " MiB"),
    ("memory.free", "memory.free [MiB]", "80394", " MiB"),
    ("memory.total", "memory.total [MiB]", "81920", " MiB"),
    ("memory.reserved", "memory.reserved [MiB]", "572", " MiB"),
    ("utilization.gpu", "utilization.gpu [%]", "30", " %"),
    ("utilization.memory", "utilization.memory [%]", "7", " %"),
    ("temperature.gpu", "temperature.gpu", "41", ""),
    ("power.draw", "power.draw [W]", "100.00", " W"),
    ("power.limit", "power.limit [W]", "400.00", " W"),
    ("name", "name", "Fake A100", ""),
    ("gpu_name", "name", "Fake A100", ""),
    ("index", "index", "0", ""),
    ("count", "count", "1", ""),
    ("uuid", "uuid", "GPU-fake-0", ""),
    ("gpu_uuid", "uuid", "GPU-fake-0", ""),
    ("driver_version", "driver_version", "550.54.15", ""),
    ("clocks.gr", "clocks.current.graphics [MHz]", "1425", " MHz"),
    ("clocks.sm", "clocks.current.sm [MHz]", "1410", " MHz"),
    ("clocks.current.sm", "clocks.current.sm [MHz]", "1410", " MHz"),
    ("clocks.mem", "clocks.current.memory [MHz]", "1593", " MHz"),
    ("clocks.current.memory", "clocks.current.memory [MHz]", "1593", " MHz"),
    ("pstate", "pstate", "P0", ""),
    ("fan.speed", "fan.speed [%]", "30", " %"),
    ("mig.mode.current", "mig.mode.current", "Disabled", ""),
    ("pci.bus_id", "pci.bus_id", "00000000:3B:00.0", ""),
    ("clocks_throttle_reasons.active", "clocks_event_reasons.active", "0x0000000000000004", ""),
    ("timestamp", "timestamp", "", ""),
];

/// What the heading and the value of these fields must be.
fn expected(fields: &str, has_units: bool) -> (String, Vec<String>) {
    let rows = fields.split(',').map(|name| *FIELDS.iter().find(|row| row.0 == name).unwrap());
    let (heads, values) = rows
        .map(|(_, head, value, unit)| (head, format!("{value}{}", if has_units { unit } else { "" })))
        .unzip::<_, _, Vec<_>, Vec<_>>();
    (heads.join(", "), values)
}

fn gpus(fake: &FakeGpus, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-track"));
    command.args(["gpus", "--nvml-lib"]).arg(fake.library_path()).args(options);
    command.env("FAKE_NVML_DIR", fake.directory()).env("TZ", "UTC").stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

const SCRIPT: &str = "*.memory_reserved 600000000\n*.throttle 4";

// Requirement: GPU-80
#[test]
fn each_form_that_public_scripts_use_is_answered_as_nvidia_smi_does() {
    let fake = FakeGpus::new(1, SCRIPT);
    let forms: Vec<(&str, &str)> =
        FORMS.iter().flat_map(|(style, all)| all.iter().map(|fields| (*style, *fields))).collect();
    assert_eq!(forms.len(), 86);
    for (style, fields) in forms {
        let format = if style.is_empty() { "csv".to_owned() } else { format!("csv,{style}") };
        let (query, format) = (format!("--query-gpu={fields}"), format!("--format={format}"));
        let printed = text(&gpus(&fake, &[&query, &format]).output().unwrap());
        let (heads, values) = expected(fields, !style.contains("nounits"));
        let mut lines = printed.lines();
        if !style.contains("noheader") {
            assert_eq!(lines.next(), Some(heads.as_str()), "{query}");
        }
        let cells: Vec<&str> = lines.next().unwrap().split(", ").collect();
        assert_eq!(cells.len(), values.len(), "{query}: {printed}");
        for (cell, (value, field)) in cells.iter().zip(values.iter().zip(fields.split(','))) {
            if field == "timestamp" {
                assert_eq!((cell.len(), &cell[4..5], &cell[10..11], &cell[19..20]), (23, "/", " ", "."));
            } else {
                assert_eq!(cell, value, "{query} {format}");
            }
        }
        assert_eq!(lines.next(), None);
    }
}

/// Fields that installers and monitors ask for beside those of the 86 forms.
// Requirement: GPU-80
#[test]
fn what_a_gpu_is_and_single_reasons_are_answered_and_what_the_driver_does_not_tell_is_unknown() {
    let script = "0.compute_major 9\n0.compute_minor 0\n0.serial 1654922\n0.vbios 96.00.74\n0.pcie_generation 5\n0.pcie_width 16\n\
                  0.pcie_generation_now 4\n0.pcie_width_now 8\n0.graphics_clock_max 1980\n0.sm_clock_max 1980\n\
                  0.memory_clock_max 2619\n0.power_limit_default 700000\n0.power_limit_least 200000\n0.power_limit_most 700000\n\
                  0.ecc_mode 1\n0.ecc_mode_pending 0\n0.display_active 0\n0.display_mode 1\n0.memory_temperature 52\n\
                  0.pci_id 597692638\n0.persistence 0\n0.compute_mode 3\n0.throttle 68\n1.compute_major !999\n1.power_limit_least !4\n\
                  1.compute_mode 77\n1.throttle !4\n1.pcie_generation !3\n1.pcie_width !3\n1.ecc_corrected !3";
    let fake = FakeGpus::new(2, script);
    let rows = [
        ("compute_cap", "compute_cap", "9.0"),
        ("gpu_serial", "serial", "1654922"),
        ("vbios_version", "vbios_version", "96.00.74"),
        ("pcie.link.gen.max", "pcie.link.gen.max", "5"),
        ("pcie.link.gen.current", "pcie.link.gen.current", "4"),
        ("pcie.link.width.max", "pcie.link.width.max", "16"),
        ("pcie.link.width.current", "pcie.link.width.current", "8"),
        ("clocks.max.gr", "clocks.max.graphics [MHz]", "1980 MHz"),
        ("clocks.max.sm", "clocks.max.sm [MHz]", "1980 MHz"),
        ("clocks.max.mem", "clocks.max.memory [MHz]", "2619 MHz"),
        ("power.default_limit", "power.default_limit [W]", "700.00 W"),
        ("power.min_limit", "power.min_limit [W]", "200.00 W"),
        ("power.max_limit", "power.max_limit [W]", "700.00 W"),
        ("ecc.mode.current", "ecc.mode.current", "Enabled"),
        ("ecc.errors.corrected.volatile.total", "ecc.errors.corrected.volatile.total", "4"),
        ("persistence_mode", "persistence_mode", "Disabled"),
        ("compute_mode", "compute_mode", "Exclusive_Process"),
        ("ecc.mode.pending", "ecc.mode.pending", "Disabled"),
        ("display_active", "display_active", "Disabled"),
        ("display_mode", "display_mode", "Enabled"),
        ("display_attached", "display_attached", "Yes"),
        ("temperature.memory", "temperature.memory", "52"),
        ("pci.device_id", "pci.device_id", "0x23A010DE"),
        ("clocks_event_reasons.sw_power_cap", "clocks_event_reasons.sw_power_cap", "Active"),
        ("clocks_throttle_reasons.hw_thermal_slowdown", "clocks_event_reasons.hw_thermal_slowdown", "Active"),
        ("clocks_event_reasons.gpu_idle", "clocks_event_reasons.gpu_idle", "Not Active"),
    ];
    let query = format!("--query-gpu={}", rows.map(|row| row.0).join(","));
    let printed = text(&gpus(&fake, &[&query, "--format=csv"]).output().unwrap());
    let unknown = rows.map(|_| "[N/A]").join(", ");
    let expected = [rows.map(|row| row.1).join(", "), rows.map(|row| row.2).join(", "), unknown];
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    let plain =
        text(&gpus(&fake, &["--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]).output().unwrap());
    assert_eq!(plain, "1980\n[N/A]\n");
    let unread =
        gpus(&fake, &["--query-gpu=index,utilization.ofa", "--format=csv", "-i", "0"]).output().unwrap();
    assert_eq!(unread.stdout, b"index, utilization.ofa [%]\n0, [N/A]\n");
    let told = String::from_utf8(unread.stderr).unwrap();
    assert!(told.contains("not read here, so [N/A]: utilization.ofa") && told.lines().count() == 1, "{told}");
}

/// `nvidia-smi -L`, with the instances of a divided GPU.
// Requirement: GPU-81
#[test]
fn gpus_are_listed_with_their_uuids_and_instances() {
    let mig = "1.mig 1\n1.mig_most 2\n1m0.uuid MIG-fake-a\n1m0.name Fake A100 MIG 1g.5gb";
    let fake = FakeGpus::new(2, mig);
    assert_eq!(
        text(&gpus(&fake, &["-L"]).output().unwrap()),
        "GPU 0: Fake A100 (UUID: GPU-fake-0)\nGPU 1: Fake A100 (UUID: GPU-fake-1)\n  \
         MIG 1g.5gb      Device  0: (UUID: MIG-fake-a)\n"
    );
}

// Requirement: GPU-80
#[test]
fn gpus_are_chosen_by_index_uuid_and_address_and_asked_again_and_again() {
    let fake = FakeGpus::new(3, "1.power !3\n2.bus 94\n");
    let of = |id: &str| {
        text(
            &gpus(&fake, &["--query-gpu=index,power.draw", "--format=csv,noheader", "-i", id])
                .output()
                .unwrap(),
        )
    };
    assert_eq!(of("1"), "1, [N/A]\n", "a figure that the driver does not give is never 0");
    assert_eq!(of("GPU-fake-2"), "2, 100.00 W\n");
    assert_eq!(of("00000000:5E:00.0"), "2, 100.00 W\n");
    assert_eq!(of("0,2"), "0, 100.00 W\n2, 100.00 W\n");
    let unknown = gpus(&fake, &["--query-gpu=index", "-i", "9"]).output().unwrap();
    assert_eq!((unknown.status.code(), unknown.stdout.len()), (Some(6), 0), "that of nvidia-smi");
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("\"9\""));
    assert_eq!(gpus(&fake, &["-i", "9"]).output().unwrap().status.code(), Some(1), "in a form of ours");
    let hidden = gpus(&fake, &["--query-gpu=index", "--visible"]).env("CUDA_VISIBLE_DEVICES", "9").output();
    let hidden = hidden.unwrap();
    assert_eq!((hidden.status.code(), hidden.stdout.as_slice()), (Some(6), &b"index\n"[..]));
    assert!(String::from_utf8_lossy(&hidden.stderr).contains("choose none of the GPUs"), "{hidden:?}");
    assert_eq!(of("5e:00.0"), "2, 100.00 W\n", "nvidia-smi takes it without the domain");
    for again in [["-lms", "50"], ["-l", "0.05"], ["--loop=0.05", "-i0,1,2"], ["-lms=50", "--id=0,1,2"]] {
        let mut command = gpus(&fake, &["--query-gpu=index", "--format=csv"]);
        let mut running = command.args(again).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(running.stdout.take().unwrap()).lines().take(7);
        let lines: Vec<String> = lines.map(Result::unwrap).collect();
        assert_eq!(lines, ["index", "0", "1", "2", "0", "1", "2"], "{again:?}");
        // Its reader has gone: it ends by itself.
        running.wait().unwrap();
    }
}

// Requirement: GPU-80
#[test]
fn processes_that_compute_are_listed_and_those_that_draw_are_not() {
    let fake = FakeGpus::new(2, "");
    let end = fake.path("end");
    let job = fake.tracked(fake.words(&["hold:1:104857600", &format!("wait:{end}")])).start();
    let apps = |format: &str| {
        let query = "--query-compute-apps=pid,process_name,used_memory,gpu_uuid";
        text(&gpus(&fake, &[query, format]).output().unwrap())
    };
    wait_until("its process is listed", || !apps("--format=csv,noheader").is_empty());
    let printed = apps("--format=csv");
    let lines: Vec<Vec<&str>> = printed.lines().map(|line| line.split(", ").collect()).collect();
    assert_eq!(lines[0], ["pid", "process_name", "used_gpu_memory [MiB]", "gpu_uuid"]);
    assert_eq!(lines[1][1..], [program("gpu").as_str(), "100 MiB", "GPU-fake-1"]);
    assert!(apps("--format=csv,noheader,nounits").ends_with(", 100, GPU-fake-1\n"));
    let pid = lines[1][0];

    // What gpustat's and pmon's readers take.
    let stat: Value =
        serde_json::from_str(&text(&gpus(&fake, &["-f", "gpustat"]).output().unwrap())).unwrap();
    let process = &stat["gpus"][1]["processes"][0];
    assert_eq!(
        (process["pid"].to_string(), process["gpu_memory_usage"].as_u64()),
        (pid.to_owned(), Some(100))
    );
    assert_eq!(process["full_command"][0].as_str(), Some(program("gpu").as_str()));
    let monitored = text(&gpus(&fake, &["-f", "pmon"]).output().unwrap());
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<_> = monitored.lines().map(cells).collect();
    assert_eq!((lines[2][..3].join(" "), lines[3][..3].join(" ")), ("0 - -".into(), format!("1 {pid} C")));
    let monitored = text(&gpus(&fake, &["-f", "dmon", "-i", "0"]).output().unwrap());
    let last = cells(monitored.lines().last().unwrap());
    assert_eq!(last, ["0", "100", "41", "-", "30", "7", "12", "3", "-", "-", "1593", "1410"]);

    // A process in the graphics list alone does not compute.
    let held = fake.directory().join("held").join(format!("{pid}.1"));
    std::fs::write(held, "104857600 g").unwrap();
    assert_eq!(apps("--format=csv,noheader"), "");
    std::fs::write(&end, "").unwrap();
    job.wait();
}

/// The number of GPUs is that of the machine, whichever are asked for, as scripts that count by `--id=0` expect.
// Requirement: GPU-80
#[test]
fn all_gpus_count_and_drivers_that_fail_are_told() {
    let fake = FakeGpus::new(2, "");
    let counted = gpus(&fake, &["--query-gpu=count", "--format=csv,noheader", "-i", "1"]).output().unwrap();
    assert_eq!(text(&counted), "2\n");
    for (script, options, status, problem) in [
        ("init 9", &["--query-gpu=name"][..], 9, "NVIDIA: "),
        ("init 9", &["--query-gpu=name", "-i", "0"], 9, "NVIDIA: "),
        ("init 9", &["-f", "dmon"], 9, "NVIDIA: "),
        ("count 0", &["--query-gpu=name"], 6, "no GPU was found"),
    ] {
        let fake = FakeGpus::new(1, script);
        let done = gpus(&fake, options).output().unwrap();
        let stderr = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(status), "{script} {options:?}: {stderr}");
        assert!(stderr.contains(problem) && !stderr.contains("no GPU is called"), "{stderr}");
    }
    // Of a divided GPU, the parts are no further GPUs.
    let divided = FakeGpus::new(2, "1.mig 1\n1.mig_most 2\n1m0.uuid MIG-fake-a\n1m1.uuid MIG-fake-b");
    let json = text(&gpus(&divided, &["-f", "json"]).output().unwrap());
    let listing: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((listing["count"].as_u64(), listing["gpus"].as_array().map(Vec::len)), (Some(2), Some(4)));
    let metrics = text(&gpus(&divided, &["-f", "openmetrics", "-i", "0"]).output().unwrap());
    assert!(metrics.contains("\ngpu_track_gpus 2\n"), "{metrics}");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let done = gpus(&fake, &["--query-gpu=name"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(1) && stderr.contains("cannot write to stdout"), "{stderr}");
}

/// What was read before a GPU was lost, or before its driver hung, is not shown as its figures of now.
// Requirement: GPU-80
#[test]
fn lost_gpu_and_silent_driver_have_no_figures() {
    for later in ["0.lost 15", "power.stall forever"] {
        let fake = FakeGpus::new(1, "");
        let mut command =
            gpus(&fake, &["--query-gpu=power.draw,memory.used", "--format=csv,noheader", "-lms", "50"]);
        let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(running.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.next().as_deref(), Some("100.00 W, 953 MiB"), "{later}");
        fake.script("script", later);
        assert!(lines.any(|line| line == "[N/A], [N/A]"), "{later}");
        drop(lines);
        running.wait().unwrap();
    }
}

// Requirement: GPU-80
#[test]
fn wrong_fields_and_formats_are_refused_with_what_there_is() {
    let fake = FakeGpus::new(1, "");
    for (options, problem) in [
        (&["--query-gpu=index,utilization.tpu"][..], "\"utilization.tpu\" is not allowed: one of"),
        (&["--query-compute-apps=pid,user"], "\"user\" is not allowed: one of"),
        (&["--query-gpu=index", "--format=json"], "--format: \"json\" is not allowed: one of csv"),
        (&["--query-gpu=index", "--format=noheader"], "csv[,noheader][,nounits]"),
        (&["--format=csv"], "give one of them"),
        (&["-f", "xml"], "one of text, line, json, openmetrics, list, gpustat, dmon, pmon"),
        (&["--query-gpu=index", "-l", "0"], "\"0\" is not allowed"),
    ] {
        let refused = gpus(&fake, options).output().unwrap();
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), stderr.lines().count()), (Some(2), 1), "{options:?}: {stderr}");
        assert!(stderr.contains(problem), "{options:?}: {stderr}");
    }
}
