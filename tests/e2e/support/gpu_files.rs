//! A machine with GPUs of AMD and Intel: a directory with files as their drivers show them in /proc and /sys.

use std::path::Path;

use tempfile::TempDir;

use super::gpu::VISIBILITY;
use super::program;
use super::report::Report;
use super::run::{Run, Tracked, tracked};

/// A directory with these files.
pub fn root(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

/// A shell command that becomes a process whose DRM fdinfo has each of these contents, one after another.
pub fn clients(root: &Path, files: &[&str]) -> String {
    let files: String = files.iter().map(|file| format!(" '{file}'")).collect();
    format!("exec {} {}{files}", program("fdinfo"), root.display())
}

/// A shell command that has such a process ([`clients`]) as its child, and removes the child's files when it has ended.
pub fn child(root: &Path, files: &[&str]) -> String {
    format!("({}); rm -r {}/proc", clients(root, files), root.display())
}

/// Names and values of environment variables.
pub type Variables = &'static [(&'static str, &'static str)];

/// Runs with these GPU visibility variables and no others.
pub fn with(run: Tracked, variables: Variables) -> Run {
    let run = run.with(|command| {
        for name in VISIBILITY {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied())
    });
    run.run()
}

/// The report of a shell script with these files.
pub fn run(root: &Path, script: &str, options: &[&str], variables: Variables) -> Report {
    let options = [&["--st", "0.02", "--gpu-root", root.to_str().unwrap()], options].concat();
    with(tracked(["sh", "-c", script]).options(&options), variables).assert_clean(0).clone()
}

/// The output of `--gpus` with these files.
pub fn list(root: &Path, options: &[&str], variables: Variables) -> serde_json::Value {
    let options = [&["--gpus", "-f", "json", "--gpu-root", root.to_str().unwrap()], options].concat();
    let none: [&str; 0] = [];
    let run = with(tracked(none).only_options(&options), variables);
    serde_json::from_str(&run.stdout).unwrap()
}

/// The PCI address of [`amd_root`]'s GPU.
pub const AMD: &str = "0000:03:00.0";
/// A DRM client on it.
pub const AMD_CLIENT: &str = "drm-driver:\tamdgpu\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\n\
                          drm-memory-vram:\t1024 KiB\n";

/// A directory with an AMD GPU.
pub fn amd_root() -> TempDir {
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

/// A directory with an Intel Arc GPU under i915.
pub fn i915_root() -> TempDir {
    let card = "sys/class/drm/card0";
    root(&[
        (&format!("{card}/device/uevent"), "DRIVER=i915\nPCI_ID=8086:56A0\nPCI_SLOT_NAME=0000:03:00.0\n"),
        (&format!("{card}/device/hwmon/hwmon2/energy1_input"), "5000000\n"),
        (&format!("{card}/gt/gt0/rps_act_freq_mhz"), "1900\n"),
    ])
}
