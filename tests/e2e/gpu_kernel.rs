//! GPUs of AMD and Intel: what the report says of trees of /proc and /sys files.

use std::path::Path;

use tempfile::TempDir;

use crate::support::gpu::VISIBILITY;
use crate::support::program;
use crate::support::report::Report;
use crate::support::run::{Run, Tracked, tracked};

/// A root with these files.
fn root(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

/// A shell's words that become a process which has each of these as an open DRM file, one after another.
fn clients(root: &Path, files: &[&str]) -> String {
    let files: String = files.iter().map(|file| format!(" '{file}'")).collect();
    format!("exec {} {}{files}", program("fdinfo"), root.display())
}

type Variables = &'static [(&'static str, &'static str)];

/// With these of the variables that say which GPUs a command may see, and no others.
fn with(run: Tracked, variables: Variables) -> Run {
    let run = run.with(|command| {
        for name in VISIBILITY {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied())
    });
    run.run()
}

/// Run a shell with these files.
fn run(root: &Path, script: &str, options: &[&str], variables: Variables) -> Report {
    let options = [&["--st", "0.02", "--gpu-root", root.to_str().unwrap()], options].concat();
    with(tracked(["sh", "-c", script]).options(&options), variables).assert_clean(0).clone()
}

/// `--gpus` with these files.
fn list(root: &Path, options: &[&str], variables: Variables) -> serde_json::Value {
    let options = [&["--gpus", "-f", "json", "--gpu-root", root.to_str().unwrap()], options].concat();
    let none: [&str; 0] = [];
    let run = with(tracked(none).only_options(&options), variables);
    serde_json::from_str(&run.stdout).unwrap()
}

const AMD: &str = "0000:03:00.0";
const AMD_CLIENT: &str = "drm-driver:\tamdgpu\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\n\
                          drm-memory-vram:\t1024 KiB\n";

fn amd_root() -> TempDir {
    let device = "sys/class/drm/card0/device";
    let node = "sys/class/kfd/kfd/topology/nodes/1";
    root(&[
        (&format!("{device}/uevent"), "DRIVER=amdgpu\nPCI_ID=1002:740F\nPCI_SLOT_NAME=0000:03:00.0\n"),
        (&format!("{device}/mem_info_vram_total"), "68702699520\n"),
        (&format!("{device}/mem_info_vram_used"), "900000000\n"),
        (&format!("{device}/mem_busy_percent"), "17\n"),
        (&format!("{device}/gpu_busy_percent"), "42\n"),
        (&format!("{device}/hwmon/hwmon0/power1_average"), "125000000\n"),
        (&format!("{device}/hwmon/hwmon0/temp1_input"), "61000\n"),
        (&format!("{device}/hwmon/hwmon0/freq1_input"), "1700000000\n"),
        (&format!("{device}/hwmon/hwmon0/freq2_input"), "1600000000\n"),
        (&format!("{node}/gpu_id"), "41000\n"),
        (&format!("{node}/properties"), "location_id 768\ndomain 0\nunique_id 170\n"),
    ])
}

#[test]
fn gpu_memory_of_amd_is_read_from_the_kernel_s_files() {
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

#[test]
fn gpus_of_amd_are_visible_by_their_number_or_rocm_s_uuid() {
    let root = amd_root();
    let script = clients(root.path(), &[AMD_CLIENT]);
    for (variables, is_visible) in [
        (&[("ROCR_VISIBLE_DEVICES", "0")][..], true),
        (&[("ROCR_VISIBLE_DEVICES", "GPU-00000000000000aa")], true),
        (&[("ROCR_VISIBLE_DEVICES", "GPU-00000000000000ab")], false),
        (&[("ROCR_VISIBLE_DEVICES", "1"), ("CUDA_VISIBLE_DEVICES", "0")], false),
    ] {
        let report = run(root.path(), &script, &["--gb", "amd"], variables);
        assert_eq!(report.gpu(AMD).at("visible"), is_visible, "{variables:?}");
        assert_eq!(report.gpu_ram()[0], Some(1 << 20));
    }
    let listing = list(root.path(), &["--visible"], &[("ROCR_VISIBLE_DEVICES", "1")]);
    assert_eq!((&listing["gpus"][0]["id"], &listing["gpus"][0]["tracked"]), (&AMD.into(), &false.into()));
}

/// xe tells cycles, so the utilisation is exact whenever the files are read.
#[test]
fn gpu_figures_of_intel_are_read_from_the_kernel_s_files() {
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
