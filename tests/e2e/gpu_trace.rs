//! `--trace-gpu`: the log of GPUs in nvidia-smi's form.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use crate::support::gpu::FakeGpus;
use crate::support::{is_root, kill, skip, tracked, wait_until};

/// The lines of a log, each with its cells. The first one is the header.
fn lines(text: &str) -> Vec<Vec<&str>> {
    assert!(text.ends_with('\n'), "its last line is torn: {text}");
    text.lines().map(|line| line.split(", ").collect()).collect()
}

fn local_minute() -> String {
    let date = Command::new("date").env("TZ", "Asia/Kathmandu").arg("+%Y/%m/%d %H:%M").output().unwrap();
    String::from_utf8(date.stdout).unwrap().trim_end().to_owned()
}

// Requirement: TIME-21
#[test]
fn each_gpu_and_interval_has_a_line_with_the_drivers_figures() {
    // GPU 1 has no power meter, and its temperature sensor fails.
    let script = "1.memory_used 3000000000\n1.memory_reserved 700000000\n1.pstate 8\n1.power !3\n1.temperature !999\n*.samples ring 100 20000 37";
    let gpus = FakeGpus::new(2, script);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gpus.csv");
    let fields = "timestamp,index,uuid,name,pci.bus_id,pstate,temperature.gpu,utilization.gpu,utilization.memory,\
                  utilization.encoder,utilization.decoder,memory.total,memory.free,memory.used,power.draw,clocks.sm,clocks.mem";
    let option = format!("{},every=100ms,fields={fields}", path.display());
    let before = local_minute();
    let run = gpus
        .tracked(gpus.words(&["sampled", "sampled", "sampled"]))
        .options(&["--trace-gpu", &option])
        .with(|command| command.env("TZ", "Asia/Kathmandu"))
        .run();
    let after = local_minute();
    run.assert_clean(0);
    let text = std::fs::read_to_string(&path).unwrap();
    let all = lines(&text);
    let [header, rows @ ..] = &all[..] else { panic!("{text}") };
    assert_eq!(
        header.join(", "),
        "timestamp, index, uuid, name, pci.bus_id, pstate, temperature.gpu, utilization.gpu [%], utilization.memory [%], \
         utilization.encoder [%], utilization.decoder [%], memory.total [MiB], memory.free [MiB], memory.used [MiB], power.draw [W], clocks.current.sm [MHz], \
         clocks.current.memory [MHz]"
    );
    let figures = |gpu: usize| {
        let changing = [
            ["P0", "41", "80966 MiB", "953 MiB", "100.00 W"],
            ["P8", "[N/A]", "78391 MiB", "2861 MiB", "[N/A]"],
        ];
        let [pstate, temperature, free, used, power] = changing[gpu];
        let known = [
            pstate,
            temperature,
            "37 %",
            "7 %",
            "12 %",
            "3 %",
            "81920 MiB",
            free,
            used,
            power,
            "1410 MHz",
            "1593 MHz",
        ];
        let device = ["Fake A100", "00000000:3B:00.0"];
        let named = [gpu.to_string(), format!("GPU-fake-{gpu}")];
        named.into_iter().chain(device.into_iter().chain(known).map(str::to_owned)).collect::<Vec<_>>()
    };
    for gpu in 0..2 {
        let of_gpu: Vec<_> = rows.iter().filter(|row| row[2] == format!("GPU-fake-{gpu}")).collect();
        let expected = figures(gpu);
        for row in &of_gpu {
            assert!(row[0] >= before.as_str() && row[0][..16] <= after[..] && row[0].len() == 23, "{row:?}");
            assert_eq!(row[1..], expected[..], "{text}");
        }
        assert!(!of_gpu.is_empty(), "{text}");
        let times: BTreeSet<_> = of_gpu.iter().map(|row| row[0]).collect();
        assert_eq!(times.len(), of_gpu.len(), "one line of a GPU at a time: {text}");
    }
}

// Requirement: TIME-21
#[test]
fn run_shorter_than_the_interval_has_a_line_with_each_figure_and_all_gpus_of_the_machine_count() {
    let gpus = FakeGpus::new(2, "*.process_times !3\n*.samples ring 100 20000 37");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gpus.csv");
    let option = format!("{},every=1h,noheader,fields=index,count,utilization.gpu", path.display());
    let run = gpus
        .tracked(gpus.words(&["sampled", "sampled", "sampled"]))
        .options(&["--guuids", "GPU-fake-1", "--trace-gpu", &option])
        .run();
    run.assert_clean(0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "1, 2, 37 %\n");
}

// Requirement: TIME-21
#[test]
fn log_goes_on_after_a_killed_collector_without_a_torn_or_double_line() {
    let gpus = FakeGpus::new(2, "");
    let directory = tempfile::tempdir().unwrap();
    let (path, stop) = (directory.path().join("gpus.csv"), directory.path().join("stop"));
    let option = format!("{},every=0.1", path.display());
    let until_stop = "while [ ! -e \"$0\" ]; do sleep 0.01; done";
    let running = gpus
        .tracked(["sh", "-c", until_stop, stop.to_str().unwrap()])
        .options(&["--trace-gpu", &option])
        .start();
    let count = || std::fs::read_to_string(&path).unwrap_or_default().lines().count();
    for _ in 0..2 {
        let before = count();
        wait_until("lines", || count() >= before + 4);
        // What a killed writer can leave.
        kill(running.wait_for_collector(), libc::SIGSTOP);
        let torn = std::fs::read_to_string(&path).unwrap() + "2026/11/25 12:0";
        std::fs::write(&path, torn).unwrap();
        running.replace_collector();
    }
    let before = count();
    wait_until("lines of the last collector", || count() >= before + 4);
    std::fs::write(&stop, "").unwrap();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let text = std::fs::read_to_string(&path).unwrap();
    let all = lines(&text);
    assert!(all.iter().all(|row| row.len() == 10), "{text}");
    assert_eq!(all.iter().filter(|row| row[0] == "timestamp").count(), 1, "{text}");
    let keys: Vec<_> = all[1..].iter().map(|row| (row[0], row[9])).collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "{text}");
}

// Requirement: TIME-21
#[test]
fn lines_go_to_stdout_as_they_come_and_a_reader_that_leaves_ends_nothing_else() {
    let gpus = FakeGpus::new(1, "");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let stop = gpus.path("stop");
    let running = gpus
        .tracked(gpus.words(&[&format!("wait:{stop}"), "sampled", "sampled"]))
        .options(&["--trace-gpu", "-,every=0.1,fields=utilization.memory,uuid"])
        .with(move |command| command.stdout(writer))
        .start();
    let mut text = Vec::new();
    while text.iter().filter(|byte| **byte == b'\n').count() < 3 {
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        text.extend(byte);
    }
    let text = String::from_utf8(text).unwrap();
    let all = lines(&text);
    assert_eq!(all[0], ["utilization.memory [%]", "uuid"]);
    assert!(all[1..].iter().all(|row| row[1] == "GPU-fake-0"), "{text}");
    drop(reader);
    std::fs::write(stop, "").unwrap();
    let run = running.wait();
    let warnings = run.assert_clean(0).warnings();
    assert!(!warnings.contains("GPU log"), "{warnings}");
}

// Requirement: TIME-21
#[test]
fn log_of_a_machine_without_a_gpu_has_its_first_line_and_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gpus.csv");
    let root = directory.path().to_str().unwrap();
    let run = tracked(["true"])
        .options(&["--gb", "amd", "--gpu-root", root, "--trace-gpu", path.to_str().unwrap()])
        .run();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("timestamp, pstate, ") && text.lines().count() == 1, "{text}");
    let warnings = run.report().warnings();
    assert!(warnings.contains("--trace-gpu: no GPU was read"), "{warnings}");
}

// Requirement: TIME-21
#[test]
fn full_disk_costs_lines_and_is_said() {
    if !is_root() {
        skip!("needs root, to mount a file system");
    }
    let gpus = FakeGpus::new(1, "");
    let disk = gpus.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let option = format!("{disk}/gpus.csv,every=0.1");
    let fill = format!("mount -t tmpfs -o size=16k none {disk}; cat /dev/zero > {disk}/x 2>/dev/null");
    let run = gpus
        .tracked(gpus.words(&["sampled", "sampled"]))
        .options(&["--trace-gpu", &option])
        .with_mounts(&fill)
        .run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let warnings = run.report().warnings();
    assert!(warnings.contains("gpus.csv lacks") && warnings.contains("No space left"), "{warnings}");
}

// Requirement: TIME-21
#[test]
fn log_that_can_not_be_written_is_refused_before_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let old = path("old.csv");
    std::fs::write(&old, "old").unwrap();
    let refused = |options: &[&str]| {
        let run = tracked(["touch", &path("mark")]).options(options).run();
        assert_eq!((run.status.code(), run.stderr.lines().count()), (Some(2), 1), "{}", run.stderr);
        assert!(!Path::new(&path("mark")).exists(), "the command was started");
        run.stderr.clone()
    };
    assert!(refused(&["--trace-gpu", &old]).contains("exists: give --overwrite"));
    assert!(refused(&["--trace-gpu", "/dev/stderr"]).contains("or - for stdout"));
    let unknown = refused(&["--trace-gpu", &format!("{},fields=fan.failure", path("g.csv"))]);
    assert!(unknown.contains("\"fan.failure\"") && unknown.contains("utilization.gpu, "), "{unknown}");
    let tf = path("a.csv");
    assert!(refused(&["--tf", &tf, "--trace-gpu", &tf]).contains("file of --tf"));
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "old");

    let run = tracked(["/no/such/command"]).options(&["--trace-gpu", &path("g.csv")]).run();
    assert_eq!(run.status.code(), Some(127));
    assert!(!Path::new(&path("g.csv")).exists(), "a run that did not begin leaves no log");
}

// Requirement: TIME-21
#[test]
fn divided_gpu_has_lines_and_its_instances_none_and_each_figure_is_known_from_the_first_line_on() {
    let script = "0.mig 1\n0.mig_most 2\n0m0.uuid MIG-fake-a\n0m1.uuid MIG-fake-b\n*.process_times !3\n\
                  *.samples ring 100 20000 37";
    let gpus = FakeGpus::new(2, script);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gpus.csv");
    let fields =
        "noheader,nounits,fields=uuid,temperature.gpu,power.draw,fan.speed,power.limit,clocks.gr,count";
    let option = format!("{},every=100ms,{fields}", path.display());
    let run =
        gpus.tracked(gpus.words(&["sampled", "sampled", "sampled"])).options(&["--trace-gpu", &option]).run();
    run.assert_clean(0);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.is_empty());
    for row in lines(&text) {
        assert!(["GPU-fake-0", "GPU-fake-1"].contains(&row[0]), "{text}");
        assert_eq!(row[1..], ["41", "100.00", "30", "400.00", "1425", "2"], "{text}");
    }
}
