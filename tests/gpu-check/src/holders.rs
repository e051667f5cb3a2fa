//! Processes that hold a known amount of GPU memory, started one after another by a part of this program.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::nvml::Nvml;
use crate::process;

/// By how a process allocates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Planned {
    /// How much.
    pub bytes: u64,
    /// The process's name in the output: `context` (nothing but a context), `plain`, `pool`, `managed`, or a program's.
    pub kind: String,
    /// A command to start with the size as its last argument; `None`: a part of this program.
    pub program: Option<Vec<String>>,
}

/// What is known of a process that held memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub pid: u32,
    /// By how much the device's free memory fell; `None`: the process failed.
    pub fallen_bytes: Option<u64>,
    /// What nvidia-smi says; `None`: it does not list the process.
    pub smi_bytes: Option<u64>,
    /// What NVML's list of compute processes says by this pid.
    pub nvml_bytes: Option<u64>,
}

/// What was seen while all processes held their memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AllHeld {
    pub processes: Vec<Held>,
    /// nvidia-smi is installed.
    pub has_smi: bool,
    /// Memory in use on the first device by NVML's `MemoryInfo`.
    pub used_bytes: Option<u64>,
}

/// A program that does what the part `hold` does, by CUDA's runtime.
const CUDA_C: &str = r#"
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#define MUST(call) do { cudaError_t code = (call); \
    if (code) { fprintf(stderr, "%s returned %d\n", #call, code); return 1; } } while (0)
int main(int argc, char **argv) {
    size_t before, after, total;
    void *place;
    if (argc < 2) return 2;
    MUST(cudaMemGetInfo(&before, &total));
    MUST(cudaMalloc(&place, strtoull(argv[1], NULL, 10)));
    MUST(cudaMemGetInfo(&after, &total));
    printf("held %lld\n", (long long)before - (long long)after);
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
"#;

const TORCH: &str = "
import sys, torch
torch.cuda.synchronize()
before = torch.cuda.mem_get_info()[0]
held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device='cuda:0')
torch.cuda.synchronize()
print('held', before - torch.cuda.mem_get_info()[0], flush=True)
sys.stdin.read()
";

const CUPY: &str = "
import sys, cupy
cupy.cuda.runtime.free(0)
before = cupy.cuda.runtime.memGetInfo()[0]
held = cupy.zeros(int(sys.argv[1]), dtype=cupy.uint8)
cupy.cuda.runtime.deviceSynchronize()
print('held', before - cupy.cuda.runtime.memGetInfo()[0], flush=True)
sys.stdin.read()
";

/// Programs that allocate by other means, where they are installed; the others with the reason. The first import of a Python
/// module can take longer than all the rest, so it is made here, within a time limit.
pub(crate) fn installed(directory: &Path) -> Vec<(&'static str, Result<Vec<String>, String>)> {
    let python = |name: &'static str, source: &str| {
        let import = ["-c".into(), format!("import {name}")];
        let program = ["python3", "-c", source].map(str::to_owned).to_vec();
        match process::output_within("python3", &import, IMPORT_AT_MOST) {
            Some(output) if output.status.success() => (name, Ok(program)),
            Some(_) => (name, Err("not installed".to_owned())),
            None => (name, Err("no python3, or its import takes too long".to_owned())),
        }
    };
    vec![("CUDA C", compiled(directory)), python("torch", TORCH), python("cupy", CUPY)]
}

const IMPORT_AT_MOST: Duration = Duration::from_secs(60);

fn compiled(directory: &Path) -> Result<Vec<String>, String> {
    let (source, program) = (directory.join("holder.cu"), directory.join("holder"));
    std::fs::write(&source, CUDA_C).map_err(|error| error.to_string())?;
    let arguments = ["-o".into(), program.display().to_string(), source.display().to_string()];
    let compilers = ["nvcc", "/usr/local/cuda/bin/nvcc"];
    let output = compilers.iter().find_map(|nvcc| process::output_within(nvcc, &arguments, IMPORT_AT_MOST));
    match output {
        Some(output) if output.status.success() => Ok(vec![program.display().to_string()]),
        Some(output) => {
            Err(format!("nvcc can't build it: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
        None => Err("no nvcc".into()),
    }
}

/// The part `hold_all`: starts the holders as children, asks the drivers after `held`, writes the answers to a file, and ends
/// the holders.
pub(crate) fn hold_all(plan: &str, path: &str, held: Duration) -> Result<(), String> {
    let plan: Vec<Planned> = serde_json::from_str(plan).map_err(|error| error.to_string())?;
    let mut children: Vec<(Child, Option<u64>)> = Vec::new();
    for planned in &plan {
        let hold = || process::part("hold", std::slice::from_ref(&planned.kind));
        let words = planned.program.clone().unwrap_or_else(hold);
        let (program, arguments) = words.split_first().ok_or("an empty command")?;
        let mut command = Command::new(program);
        command.args(arguments).arg(planned.bytes.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        children.push((child, fallen(&line)));
    }
    std::thread::sleep(held);
    let listed =
        |pids: &[(u32, u64)], pid| pids.iter().find(|(listed, _)| *listed == pid).map(|(_, bytes)| *bytes);
    let by_smi = smi();
    let nvml = Nvml::start().ok();
    let by_nvml = nvml.as_ref().map(Nvml::compute_processes).unwrap_or_default();
    let of_child = |(child, fallen_bytes): &(Child, Option<u64>)| Held {
        pid: child.id(),
        fallen_bytes: *fallen_bytes,
        smi_bytes: by_smi.as_ref().and_then(|list| listed(list, child.id())),
        nvml_bytes: listed(&by_nvml, child.id()),
    };
    let all = AllHeld {
        processes: children.iter().map(of_child).collect(),
        has_smi: by_smi.is_some(),
        used_bytes: nvml.and_then(|nvml| nvml.used_bytes()),
    };
    let text = serde_json::to_string(&all).map_err(|error| error.to_string())?;
    std::fs::write(path, text).map_err(|error| format!("{path}: {error}"))?;
    for (mut child, _) in children {
        drop(child.stdin.take());
        let _ = child.wait();
    }
    Ok(())
}

/// What a holder printed; `None`: it failed before.
fn fallen(line: &str) -> Option<u64> {
    line.strip_prefix("held ")?.trim().parse().ok()
}

/// What nvidia-smi says that processes use; `None` where it is not installed.
fn smi() -> Option<Vec<(u32, u64)>> {
    let query = ["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"].map(str::to_owned);
    let output = process::output_within("nvidia-smi", &query, Duration::from_secs(20));
    output.map(|output| compute_apps(&String::from_utf8_lossy(&output.stdout)))
}

/// A line of nvidia-smi has pid and MiB. A process whose memory is not known is left out.
fn compute_apps(text: &str) -> Vec<(u32, u64)> {
    let row = |line: &str| {
        let (pid, mib) = line.split_once(',')?;
        Some((pid.trim().parse().ok()?, mib.trim().parse::<u64>().ok()? << 20))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidia_smi_prints_whole_mebibytes() {
        let text = "1234, 500\n1235, [N/A]\nNo running processes found\n\n";
        assert_eq!(compute_apps(text), [(1234, 500 << 20)]);
    }

    #[test]
    fn failed_holder_prints_no_size() {
        assert_eq!(fallen("held 314572800\n"), Some(314_572_800));
        assert_eq!((fallen(""), fallen("cuInit returned 100\n")), (None, None));
    }
}
