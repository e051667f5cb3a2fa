//! What the kernel says of memory at the end of a run, and the variables that change how programs use memory, cores and GPUs.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::MissingFile;
use crate::model::config::Config;
use crate::model::sorting::InOrder;

/// Maximum number of bytes that are read of a file.
const MOST_BYTES: u64 = 256 * 1024;

/// Files of the whole machine.
const MACHINE: [&str; 7] = [
    "/proc/meminfo",
    "/proc/vmstat",
    "/proc/loadavg",
    "/proc/pressure/memory",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
    "/proc/swaps",
];
/// Files of a cgroup: first those of cgroup v2, then those of v1.
const CGROUP: [&str; 13] = [
    "memory.max",
    "memory.high",
    "memory.current",
    "memory.peak",
    "memory.swap.current",
    "memory.events",
    "memory.stat",
    "memory.pressure",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "memory.max_usage_in_bytes",
    "memory.failcnt",
    "memory.oom_control",
];
/// Variables whose values a bundle has.
const VARIABLES: [&str; 14] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "MALLOC_ARENA_MAX",
    "TMPDIR",
];
/// Beginnings of the names of further such variables. Names that contain a word of [`SECRET`] are left out.
const PREFIXES: [&str; 7] = ["OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "NUMEXPR_", "SLURM_"];
/// Words in the names of variables whose values may be secret.
const SECRET: [&str; 5] = ["TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL"];

/// A file of a bundle: its name, and its text or why the bundle lacks it.
pub(super) type Content = (&'static str, Result<String, MissingFile>);

/// The file of variables.
pub(super) const ENVIRONMENT: &str = "environment.json";

/// Makes the files with what the kernel says of the machine and of the cgroups.
pub(super) fn of_kernel(config: &Config) -> [Content; 2] {
    [("machine.txt", Ok(files(MACHINE.iter().map(Path::new)))), cgroups(config)]
}

/// The memory files of the command's own cgroup, and of each cgroup with a limit in which that lies.
fn cgroups(config: &Config) -> Content {
    const NAME: &str = "cgroups.txt";
    let groups = &config.cgroups;
    let own = groups.own.iter().filter_map(|own| own.as_ref().ok()).map(|own| own.dir.as_path());
    let directories: Vec<&Path> =
        own.chain(groups.memory_limits.iter().map(|limit| limit.dir.as_path())).collect();
    if directories.is_empty() {
        let reason = "no cgroup with a limit of memory can be read".to_owned();
        return (NAME, Err(MissingFile { name: NAME, reason }));
    }
    let paths: Vec<_> = directories.iter().flat_map(|dir| CGROUP.map(|name| dir.join(name))).collect();
    (NAME, Ok(files(paths.iter().map(|path| path.as_path()))))
}

/// The contents of these files as one text, each below its path. A file that can't be read is left out.
fn files<'a>(paths: impl Iterator<Item = &'a Path>) -> String {
    let read = |path: &Path| {
        let mut text = Vec::new();
        File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut text).ok()?;
        Some(format!("== {}\n{}\n", path.display(), String::from_utf8_lossy(&text).trim_end()))
    };
    paths.filter_map(read).collect()
}

/// Makes the file of those of these variables that a bundle may have, as JSON.
pub(super) fn environment(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Content {
    let named = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .filter(|(name, _)| is_told(name))
        .ordered_map();
    (ENVIRONMENT, Ok(serde_json::to_string_pretty(&named).unwrap_or_default()))
}

/// Whether a bundle may have the value of this variable.
fn is_told(name: &str) -> bool {
    VARIABLES.contains(&name)
        || (PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            && !SECRET.iter().any(|word| name.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: RECORD-3
    #[test]
    fn variables_that_are_not_listed_are_not_written_down() {
        let told = ["OMP_NUM_THREADS", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES"];
        let kept = ["HOME", "AWS_SECRET_ACCESS_KEY", "SLURM_JWT_TOKEN", "MY_OMP_X", "PATH", "OMP_API_KEY"];
        assert!(told.into_iter().all(is_told));
        assert!(!kept.into_iter().any(is_told));
    }
}
