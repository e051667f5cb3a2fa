//! GPUs of AMD and Intel: figures from fdinfo and sysfs, read from a directory of files that the test makes.

use crate::support::gpu::FakeGpus;
use crate::support::gpu_files::{AMD, AMD_CLIENT, amd_root, child, clients, i915_root, list, root, run};

// Requirement: GPU-16, GPU-60
#[test]
fn amd_gpu_figures_are_read_from_fdinfo_and_sysfs() {
    let root = amd_root();
    let kfd = format!("{}/sys/class/kfd/kfd/proc/$$", root.path().display());
    let of_fdinfo = clients(root.path(), &[AMD_CLIENT]);
    let of_kfd = format!("mkdir -p {kfd}; echo 5000000 >{kfd}/vram_41000");
    for (script, bytes) in [(of_fdinfo.clone(), 1 << 20), (format!("{of_kfd}; {of_fdinfo}"), 5_000_000)] {
        let report = run(root.path(), &script, &[], &[]);
        assert_eq!(report.gpu_ram(), [Some(bytes), Some(0), Some(bytes)], "{script}");
        let gpu = report.gpu(AMD);
        assert_eq!((gpu.at("vendor"), gpu.u64("memory.max_used_bytes")), (&"amd".into(), 900_000_000));
        assert_eq!((gpu.f64("power.max_w"), gpu.f64("utilization.max_percent")), (125.0, 42.0));
        assert_eq!(gpu.f64("utilization.max_memory_percent"), 17.0);
        assert_eq!(gpu.f64("max_temperature_c"), 61.0);
        assert_eq!((gpu.f64("clocks.max_sm_mhz"), gpu.f64("clocks.max_memory_mhz")), (1700.0, 1600.0));
        assert!(gpu.at("power.energy_j").is_null());
    }
}

// Requirement: GPU-10
#[test]
fn amd_gpu_visibility_follows_the_variables_of_rocm() {
    let root = amd_root();
    let script = clients(root.path(), &[AMD_CLIENT]);
    for (variables, is_visible) in [
        (&[("ROCR_VISIBLE_DEVICES", "0")][..], true),
        (&[("ROCR_VISIBLE_DEVICES", "GPU-00000000000000aa")], true),
        (&[("ROCR_VISIBLE_DEVICES", "GPU-00000000000000ab")], false),
        (&[("ROCR_VISIBLE_DEVICES", "1"), ("CUDA_VISIBLE_DEVICES", "0")], false),
        (&[("HIP_VISIBLE_DEVICES", "0"), ("CUDA_VISIBLE_DEVICES", "1")], true),
        (&[("HIP_VISIBLE_DEVICES", ""), ("CUDA_VISIBLE_DEVICES", "1")], false),
        (&[("HIP_VISIBLE_DEVICES", "1"), ("ROCR_VISIBLE_DEVICES", "0")], false),
        (&[("GPU_DEVICE_ORDINAL", "1")], false),
        (&[("GPU_DEVICE_ORDINAL", "0")], true),
    ] {
        let report = run(root.path(), &script, &["--gb", "amd"], variables);
        assert_eq!(report.gpu(AMD).at("visible"), is_visible, "{variables:?}");
        assert_eq!(report.gpu_ram()[0], Some(1 << 20));
    }
    // On a machine with an NVIDIA driver, CUDA's variable is not for HIP.
    let root_of_both = amd_root();
    std::fs::create_dir_all(root_of_both.path().join("proc/driver/nvidia")).unwrap();
    std::fs::write(root_of_both.path().join("proc/driver/nvidia/version"), "").unwrap();
    for (root, is_visible) in
        [(&root, serde_json::Value::Bool(false)), (&root_of_both, serde_json::Value::Null)]
    {
        let listing = list(root.path(), &["--gb", "amd"], &[("CUDA_VISIBLE_DEVICES", "1")]);
        let of_amd = listing["gpus"].as_array().unwrap().iter().find(|gpu| gpu["id"] == AMD).unwrap();
        assert_eq!(of_amd["visible"], is_visible);
    }
    let listing = list(root.path(), &["--visible"], &[("ROCR_VISIBLE_DEVICES", "1")]);
    assert_eq!((&listing["gpus"][0]["id"], &listing["gpus"][0]["tracked"]), (&AMD.into(), &false.into()));
}

/// The xe driver reports cycles, so the utilization is exact at whatever time the files are read.
// Requirement: GPU-16, GPU-60
#[test]
fn xe_gpu_figures_are_read_from_fdinfo_and_sysfs() {
    let device = "sys/class/drm/card1/device";
    let root = root(&[
        (&format!("{device}/uevent"), "DRIVER=xe\nPCI_ID=8086:56A0\nPCI_SLOT_NAME=0000:04:00.0\n"),
        (&format!("{device}/hwmon/hwmon1/energy1_input"), "5000000\n"),
        (&format!("{device}/tile0/gt0/freq0/act_freq"), "2400\n"),
    ]);
    let client = |cycles: u32, total: u32| {
        format!(
            "drm-driver: xe\ndrm-client-id: 3\ndrm-pdev: 0000:04:00.0\ndrm-resident-vram0: 2 MiB\n\
             drm-cycles-ccs: {cycles}\ndrm-total-cycles-ccs: {total}\ndrm-engine-capacity-ccs: 2\n"
        )
    };
    let script = clients(root.path(), &[&client(1000, 10_000), &client(2000, 12_000)]);
    let report = run(root.path(), &script, &["--gb", "intel"], &[]);
    assert_eq!(report.gpu_ram(), [Some(2 << 20), Some(0), Some(2 << 20)]);
    let gpu = report.gpu("0000:04:00.0");
    assert_eq!((gpu.at("vendor"), gpu.at("source")), (&"intel".into(), &"xe".into()));
    assert_eq!(gpu.f64("processes.0.max_sm_percent"), 25.0);
    assert_eq!(gpu.f64("clocks.max_sm_mhz"), 2400.0);
    assert_eq!(gpu.f64("power.energy_j"), 0.0, "the counter stands still");
    assert!(gpu.at("memory.total_bytes").is_null() && gpu.at("utilization.max_percent").is_null());
    for (maker, count) in [("intel", 1), ("amd", 0)] {
        let listing = list(root.path(), &["--gb", maker], &[]);
        assert_eq!(listing["gpus"].as_array().unwrap().len(), count, "{maker}");
    }
}

fn i915_client(id: u32, local_kib: u32, render_s: u32) -> String {
    format!(
        "drm-driver:\ti915\ndrm-client-id:\t{id}\ndrm-pdev:\t0000:03:00.0\ndrm-total-system0:\t64 MiB\n\
         drm-resident-system0:\t64 MiB\ndrm-total-local0:\t90 MiB\ndrm-resident-local0:\t{local_kib} KiB\n\
         drm-engine-render:\t{render_s}000000000 ns\ndrm-engine-video:\t0 ns\n\
         drm-engine-capacity-video:\t2\n"
    )
}

/// i915 reports nanoseconds, so its utilization is exact only for an engine that was always idle or always busy.
// Requirement: GPU-16
#[test]
fn i915_gpu_figures_are_read_from_fdinfo_and_sysfs() {
    // More seconds of work than any run takes, and a counter that goes backwards and recovers.
    for (busy, percent) in
        [([1000, 500, 1000], 0.0), ([1000, 500, 2_000_000], 100.0), ([1000, 1000, 1000], 0.0)]
    {
        let root = i915_root();
        let counter =
            format!("{}/sys/class/drm/card0/device/hwmon/hwmon2/energy1_input", root.path().display());
        let first: Vec<String> = busy.iter().map(|s| i915_client(11, 8192, *s)).collect();
        let first: Vec<&str> = first.iter().map(String::as_str).collect();
        let second = i915_client(12, 9216, 7);
        let script = format!(
            "{}; echo 12500000 >{counter}.new; mv {counter}.new {counter}; {}",
            child(root.path(), &first),
            clients(root.path(), &[&second, &second])
        );
        let report = run(root.path(), &script, &[], &[]);
        let id = "0000:03:00.0";
        let gpu = report.gpu(id);
        assert_eq!((gpu.at("vendor"), gpu.at("source")), (&"intel".into(), &"i915".into()));
        assert_eq!((gpu.at("name"), gpu.at("pci_address")), (&"i915 8086:56A0".into(), &id.into()));
        // First the child is the client; then the shell becomes the second client.
        assert_eq!(report.gpu_ram(), [Some(9216 << 10), Some(8192 << 10), Some(9216 << 10)]);
        assert_eq!(
            (gpu.f64("processes.1.max_sm_percent"), gpu.f64("processes.0.max_sm_percent")),
            (percent, 0.0)
        );
        assert_eq!(report.f64("processes.max_sm_percent.descendants"), percent);
        assert_eq!(gpu.f64("power.energy_j"), 7.5);
        assert_eq!((gpu.f64("clocks.max_sm_mhz"), gpu.f64("clocks.mean_sm_mhz")), (1900.0, 1900.0));
        // rm and mv may run between two readings, which adds another warning.
        assert_eq!(
            report.warnings().lines().last().unwrap(),
            format!(
                "GPU figures that are missing (not supported by this device): memory, utilization, memory utilization, \
                 encoder utilization, decoder utilization, power, temperature, memory clock, performance state, throttle reasons, PCIe bytes sent, PCIe bytes \
                 received, ECC errors corrected, ECC errors uncorrected, XID errors of {id}."
            )
        );
        assert_eq!(gpu.array("missing").len(), 17, "and accounting, and performance counters");
    }
}

/// The kernel's documentation has no temp1 for xe: temp2 is the package's. A device of several GTs has several directories
/// of sensors.
// Requirement: GPU-16
#[test]
fn intel_gpu_sensors_are_found_by_label_and_name() {
    let (xe, i915) = ("sys/class/drm/card0/device", "sys/class/drm/card1/device");
    let (package, gt) = (format!("{i915}/hwmon/hwmon9"), format!("{i915}/hwmon/hwmon10"));
    let root = root(&[
        (&format!("{xe}/uevent"), "DRIVER=xe\nPCI_ID=8086:56A0\nPCI_SLOT_NAME=0000:04:00.0\n"),
        (&format!("{xe}/hwmon/hwmon1/temp2_input"), "51000\n"),
        (&format!("{xe}/hwmon/hwmon1/temp2_label"), "pkg\n"),
        (&format!("{xe}/hwmon/hwmon1/temp3_input"), "77000\n"),
        (&format!("{xe}/hwmon/hwmon1/temp3_label"), "vram\n"),
        (&format!("{i915}/uevent"), "DRIVER=i915\nPCI_ID=8086:56A1\nPCI_SLOT_NAME=0000:05:00.0\n"),
        (&format!("{gt}/name"), "i915_gt0\n"),
        (&format!("{gt}/energy1_input"), "0\n"),
        (&format!("{package}/name"), "i915\n"),
        (&format!("{package}/energy1_input"), "0\n"),
    ]);
    let client = "drm-driver: i915\ndrm-client-id: 7\ndrm-pdev: 0000:05:00.0\n";
    let raise = |directory: &str, uj: u32| {
        let file = root.path().join(directory).join("energy1_input");
        format!("echo {uj} >{0}.new; mv {0}.new {0}; ", file.display())
    };
    let script = child(root.path(), &[client])
        + "; "
        + &raise(&gt, 19_000)
        + &raise(&package, 19_000_000)
        + &clients(root.path(), &[client]);
    let report = run(root.path(), &script, &["--gb", "intel"], &[]);
    assert_eq!(report.gpu("0000:05:00.0").f64("power.energy_j"), 19.0);
    assert_eq!(report.gpu("0000:04:00.0").f64("max_temperature_c"), 51.0);
}

/// An MI300 in a mode with several partitions: one PCI address, one DRM device, and a KFD node and render node for each.
// Requirement: GPU-16
#[test]
fn partitions_of_an_amd_gpu_are_devices_of_their_own() {
    let root = amd_root();
    let nodes = root.path().join("sys/class/kfd/kfd/topology/nodes");
    for part in 0..3_u32 {
        let node = nodes.join((part + 1).to_string());
        std::fs::create_dir_all(node.join("mem_banks/0")).unwrap();
        std::fs::write(node.join("gpu_id"), format!("{}\n", 41_000 + part)).unwrap();
        let location = 768 | part << 28;
        let properties = format!("location_id {location}\ndomain 0\ndrm_render_minor {}\n", 128 + part);
        std::fs::write(node.join("properties"), properties).unwrap();
        std::fs::write(node.join("mem_banks/0/properties"), "size_in_bytes 22900899840\n").unwrap();
    }
    let kfd = format!("{}/sys/class/kfd/kfd/proc/$$", root.path().display());
    let opened = clients(root.path(), &[&format!("{AMD_CLIENT}drm-engine-compute: @50:5 ns\n")]);
    let script =
        format!("mkdir -p {kfd}; echo 5000000 >{kfd}/vram_41001; FDINFO_NODE=/dev/dri/renderD130 {opened}");
    let report = run(root.path(), &script, &[], &[("ROCR_VISIBLE_DEVICES", "2")]);
    let ids: Vec<_> = report.array("gpus").iter().map(|gpu| gpu["id"].clone()).collect();
    assert_eq!(ids, [AMD, "0000:03:00.0/0", "0000:03:00.0/1", "0000:03:00.0/2"]);
    let part = |number: u32| report.gpu(&format!("{AMD}/{number}"));
    assert_eq!((part(1).at("parent"), part(1).u64("index")), (&AMD.into(), 1));
    let held = |number| part(number).u64("memory.max_main_bytes");
    assert_eq!([held(0), held(1), held(2)], [0, 5_000_000, 1 << 20]);
    assert_eq!(report.gpu_ram()[2], Some(5_000_000 + (1 << 20)));
    assert!(part(2).f64("processes.0.max_sm_percent") > 0.0);
    assert_eq!((part(2).at("visible"), part(1).at("visible")), (&true.into(), &false.into()));
    // The sensors are those of the whole device, whose memory counts once.
    let whole = report.gpu(AMD);
    assert_eq!((whole.f64("power.max_w"), whole.u64("memory.max_used_bytes")), (125.0, 900_000_000));
    assert!(whole.at("memory.max_main_bytes").is_null());
    assert_eq!(report.f64("max_gpu_ram.system"), 900_000_000.0);
    assert_eq!(report.u64("gpu_utilization.system_gpu_count"), 1);
    assert!(!report.warnings().contains("partitions"), "{}", report.warnings());
}

// Requirement: GPU-9
#[test]
fn vendor_without_a_gpu_is_in_the_warnings() {
    let root = i915_root();
    // NVIDIA's driver is not looked for where there is none, so nothing is read.
    let sampled = clients(root.path(), &[&i915_client(7, 0, 0)]);
    for (vendor, script, has_warning) in
        [("amd", sampled.as_str(), true), ("nvidia", "true", true), ("intel", &sampled, false)]
    {
        let report = run(root.path(), script, &["--gb", vendor], &[]);
        assert_eq!(report.gpu_ram(), [Some(0); 3], "{vendor}");
        let warning = format!("--gb {vendor}: there is no GPU of this vendor, so all GPU figures are 0.");
        assert_eq!(report.warnings().contains(&warning), has_warning, "{}", report.warnings());
    }
}

/// The older file name of the power, an energy counter that does not reset, and the older memory keys.
#[test]
fn amd_gpu_figures_are_found_under_alternative_names() {
    let root = amd_root();
    let device = root.path().join("sys/class/drm/card0/device");
    std::fs::rename(device.join("hwmon/hwmon0/power1_average"), device.join("hwmon/hwmon0/power1_input"))
        .unwrap();
    let counter = device.join("hwmon/hwmon0/energy1_input");
    std::fs::write(&counter, "1000000\n").unwrap();
    std::fs::write(device.join("product_name"), "Instinct MI250X\n").unwrap();
    std::fs::create_dir_all(root.path().join("sys/module/amdgpu")).unwrap();
    std::fs::write(root.path().join("sys/module/amdgpu/version"), "6.8.5\n").unwrap();
    let client = |kind: &str| {
        format!(
            "drm-driver: amdgpu\ndrm-client-id: 7\ndrm-pdev: {AMD}\ndrm-{kind}-vram: 3 MiB\ndrm-{kind}-gtt: 9 MiB\n"
        )
    };
    for kind in ["total", "memory", "resident"] {
        std::fs::write(&counter, "1000000\n").unwrap();
        let counter = counter.display();
        let script = format!(
            "{}; echo 3500000 >{counter}.new; mv {counter}.new {counter}; {}",
            child(root.path(), &[&client(kind)]),
            clients(root.path(), &[&client(kind)])
        );
        let report = run(root.path(), &script, &[], &[]);
        assert_eq!(report.gpu_ram(), [Some(3 << 20); 3], "{kind}");
        let gpu = report.gpu(AMD);
        assert_eq!((gpu.at("name"), gpu.at("driver_version")), (&"Instinct MI250X".into(), &"6.8.5".into()));
        assert_eq!(gpu.u64("memory.total_bytes"), 68_702_699_520);
        // On a busy machine the run is long enough for the mean to be that of the counter.
        let by_counter = 2.5 / gpu.f64("power.energy_span_s");
        let mean_w = gpu.f64("power.mean_w");
        assert!(mean_w == 125.0 || mean_w == by_counter, "{mean_w} W, {by_counter} W by the counter");
        assert_eq!(gpu.f64("power.max_w"), 125.0);
        assert_eq!(gpu.f64("power.energy_j"), 2.5);
        assert_eq!(
            (gpu.f64("utilization.mean_percent"), gpu.f64("utilization.mean_memory_percent")),
            (42.0, 17.0)
        );
        // Utilization and power are integrated separately over the same readings. The utilization is in whole microseconds,
        // which rounds down once per reading, that is every 20 ms.
        let sampled_s = gpu.f64("utilization.active_s") / 0.42;
        let rounded_off_s = gpu.f64("power.integrated_energy_j") / 125.0 - sampled_s;
        assert!(
            (-1e-9..2e-6 + sampled_s * 1e-6 / 0.02).contains(&rounded_off_s),
            "{rounded_off_s} s of {sampled_s}"
        );
    }
}

/// A container can have KFD without DRM nodes.
// Requirement: GPU-16
#[test]
fn gpu_known_only_to_kfd_has_process_memory() {
    let root = amd_root();
    let node = root.path().join("sys/class/kfd/kfd/topology/nodes/2");
    std::fs::create_dir_all(node.join("mem_banks/0")).unwrap();
    for (file, text) in [
        ("gpu_id", "52000\n"),
        ("name", "aldebaran\n"),
        ("properties", "location_id 33544\ndomain 1\nunique_id 187\n"),
        ("mem_banks/0/properties", "heap_type 1\nsize_in_bytes 68702699520\n"),
    ] {
        std::fs::write(node.join(file), text).unwrap();
    }
    let kfd = format!("{}/sys/class/kfd/kfd/proc/$$", root.path().display());
    let script =
        format!("mkdir -p {kfd}; echo 7000000 >{kfd}/vram_52000; {}", clients(root.path(), &[AMD_CLIENT]));
    let report = run(root.path(), &script, &[], &[]);
    let id = "0001:83:01.0";
    let gpu = report.gpu(id);
    assert_eq!((gpu.at("source"), gpu.at("name"), gpu.u64("index")), (&"kfd".into(), &"aldebaran".into(), 1));
    assert_eq!(gpu.u64("memory.total_bytes"), 68_702_699_520);
    assert_eq!(gpu.u64("memory.max_main_bytes"), 7_000_000);
    assert_eq!(report.gpu(AMD).u64("memory.max_main_bytes"), 1 << 20);
    assert_eq!(report.gpu_ram()[2], Some(7_000_000 + (1 << 20)));
    assert_eq!(report.u64("processes.heaviest.0.gpu.peak_ram_bytes"), 7_000_000 + (1 << 20));
    let listing = list(root.path(), &[], &[]);
    assert_eq!(
        (&listing["gpus"][1]["id"], &listing["gpus"][1]["uuid"]),
        (&id.into(), &"GPU-00000000000000bb".into())
    );
}

/// A machine with a GPU of each vendor.
// Requirement: GPU-9
#[test]
fn gpu_vendor_option_selects_one_vendor() {
    let gpus = FakeGpus::new(1, "");
    let intel = "0000:00:02.0";
    let root = amd_root();
    let device = root.path().join("sys/class/drm/card1/device");
    std::fs::create_dir_all(&device).unwrap();
    std::fs::write(device.join("uevent"), "DRIVER=i915\nPCI_ID=8086:56A0\nPCI_SLOT_NAME=0000:00:02.0\n")
        .unwrap();
    let of_intel =
        format!("drm-driver: i915\ndrm-client-id: 7\ndrm-pdev: {intel}\ndrm-resident-local0: 3 MiB\n");
    let nvidia = gpus.line(&["hold:0:500,c", "sampled"]);
    let drm = clients(root.path(), &[AMD_CLIENT, &of_intel]);
    let root = root.path().to_str().unwrap();
    for (maker, script, id, bytes) in
        [("nvidia", &nvidia, "GPU-fake-0", 500), ("amd", &drm, AMD, 1 << 20), ("intel", &drm, intel, 3 << 20)]
    {
        let options = ["--gpu-root", root, "--gb", maker];
        let run = gpus.tracked(["sh", "-c", &format!("({script})")]).options(&options).run();
        let report = run.assert_clean(0);
        let ids: Vec<_> = report.array("gpus").iter().map(|gpu| gpu["id"].clone()).collect();
        assert_eq!(ids, [id]);
        assert_eq!(report.gpu_ram(), [Some(0), Some(bytes), Some(bytes)], "{maker}");
        assert_eq!(report.u64("gpu_utilization.n_expected_gpus"), 1);
    }
    let run = gpus.list(&["-f", "json", "--gpu-root", root]);
    let listing: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let ids: Vec<_> = listing["gpus"].as_array().unwrap().iter().map(|gpu| gpu["id"].clone()).collect();
    assert_eq!(ids, ["GPU-fake-0", AMD, intel]);
}

/// If one driver fails, the figures of another driver are not the whole sum.
// Requirement: GPU-5
#[test]
fn gpu_sums_are_null_if_another_vendors_driver_fails() {
    let gpus = FakeGpus::new(1, "init 4");
    let root = amd_root();
    let path = root.path().to_str().unwrap();
    let drm = clients(root.path(), &[AMD_CLIENT]);
    let run = gpus.tracked(["sh", "-c", &drm]).options(&["--gpu-root", path]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [None; 3]);
    assert_eq!(report.gpu(AMD).u64("memory.max_main_bytes"), 1 << 20);
    assert!(report.at("gpu_utilization.system_gpu_count").is_null());
    assert!(report.warnings().contains("NVIDIA GPUs: no permission; whether there are any is not known."));
}

/// The figures of a removed device end at its removal; those of other devices continue.
#[test]
fn unplugged_amd_gpu_is_reported_as_lost() {
    let root = amd_root();
    let gone = "0000:43:00.0";
    let device = root.path().join("sys/class/drm/card1/device");
    std::fs::create_dir_all(&device).unwrap();
    std::fs::write(device.join("uevent"), format!("DRIVER=amdgpu\nPCI_SLOT_NAME={gone}\n")).unwrap();
    std::fs::write(device.join("mem_info_vram_used"), "77000\n").unwrap();
    let of_gone = AMD_CLIENT.replace(AMD, gone);
    let script = format!(
        "{}; rm -r {}; {}",
        child(root.path(), &[&of_gone]),
        root.path().join("sys/class/drm/card1").display(),
        clients(root.path(), &[AMD_CLIENT])
    );
    let report = run(root.path(), &script, &[], &[]);
    assert_eq!(report.gpu_ram(), [Some(1 << 20); 3]);
    let lost = report.gpu(gone);
    assert_eq!(
        (lost.u64("memory.max_used_bytes"), lost.u64("memory.max_descendants_bytes")),
        (77_000, 1 << 20)
    );
    let lost_at = format!("GPU lost at {:.1} s: {gone}; its figures end there.", lost.f64("lost_at_s"));
    assert_eq!(report.warnings().lines().next(), Some(lost_at.as_str()));
    assert!(report.gpu(AMD).at("lost_at_s").is_null());
}
