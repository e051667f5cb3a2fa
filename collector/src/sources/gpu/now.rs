//! What a device shows now, and which processes have memory on it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::Arc;

use super::pid_facts::has_own_pid_ns;
use crate::model::gpu::gpu_figure::ByGpuFigure;
use crate::model::gpu::listing::{GpuNow, ListedProcess, Listing};
use crate::model::gpu::{Device, DeviceSample, Figure, Reading};
use crate::model::tree_sample::GpuSample;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::user;

/// What the last reading of a device shows. `processes` describes the processes that have memory on the device.
pub(super) fn now(device: &Device, sample: &DeviceSample, processes: &mut Processes) -> GpuNow {
    let known = |(figure, value): &(Figure, Reading<f64>)| Some((*figure, value.as_ref().ok().copied()?));
    let gauges: BTreeMap<Figure, f64> = sample.values.iter().filter_map(known).collect();
    let busy_percent = match &sample.rate_percent {
        Some(Ok(percent)) => Some(*percent),
        _ => utilization(sample),
    };
    let used_bytes = gauges.get(&Figure::MemoryUsed).map(|bytes| *bytes as u64);
    let device = Arc::new(device.clone());
    let shown = GpuSample { device, used_bytes, busy_percent, gauges, ..GpuSample::default() };
    let listed = sample.processes.as_ref().and_then(|processes| processes.as_ref().ok());
    GpuNow {
        figures: ByGpuFigure::from(&shown),
        processes: listed.map(|listed| {
            let mut on_gpu: Vec<ListedProcess> =
                listed.iter().map(|one| processes.named(one.pid, one.bytes.as_ref().ok().copied())).collect();
            on_gpu.sort_by_key(|process| (std::cmp::Reverse(process.memory_bytes), process.pid));
            on_gpu
        }),
    }
}

/// Averages the utilisation over the stretches of a reading, weighted by their lengths, percent. `None`: the driver has no such
/// figure, it could not be read, or its stretches have no length.
fn utilization(sample: &DeviceSample) -> Option<f64> {
    let busy = sample.busy.as_ref()?.as_ref().ok()?;
    let us: u64 = busy.iter().map(|stretch| stretch.us).sum();
    let sum: f64 = busy.iter().map(|stretch| stretch.us as f64 * stretch.percent).sum();
    (us > 0).then(|| sum / us as f64)
}

/// Names the processes that have memory on devices.
#[derive(Debug)]
pub(super) struct Processes {
    root: ProcRoot,
    /// Drivers may name processes by pids of another pid namespace. This namespace's /proc would show other processes for those pids.
    are_foreign: bool,
    /// Names of users by their numbers: to ask for one can cost a query to a directory service.
    users: HashMap<u32, String>,
}

impl Processes {
    /// Prepares to name processes by /proc.
    pub(super) fn new() -> Self {
        let root = ProcRoot::default();
        Self { are_foreign: has_own_pid_ns(&root), root, users: HashMap::new() }
    }

    /// A warning if processes are listed that can't be named.
    pub(super) fn warning(&self, listing: &Listing) -> Option<String> {
        let mut listed = listing.gpus.iter().filter_map(|gpu| gpu.now.processes.as_ref());
        (self.are_foreign && listed.any(|listed| !listed.is_empty())).then(|| {
            "Pids on GPUs may be those of another pid namespace, so their users and commands are not known here.".into()
        })
    }

    /// Describes the process with this pid and this memory, with its user and command as far as /proc shows them.
    fn named(&mut self, pid: u32, memory_bytes: Option<u64>) -> ListedProcess {
        if self.are_foreign {
            return ListedProcess { pid, memory_bytes, ..ListedProcess::default() };
        }
        let uid = fs::read_to_string(self.root.path(pid, "status")).ok().and_then(|status| uid_of(&status));
        let user = uid.map(|uid| {
            let name = || user::name(uid).unwrap_or_else(|| uid.to_string());
            self.users.entry(uid).or_insert_with(name).clone()
        });
        ListedProcess { pid, user, command: self.root.comm(pid), memory_bytes }
    }
}

/// The effective user in the text of /proc/PID/status: the second of the four numbers.
fn uid_of(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::gpu_figure::GpuFigure;
    use crate::model::gpu::{Busy, Missing, ProcessMemory};

    #[test]
    fn unknown_figures_are_none_and_processes_have_their_names() {
        let device = Device { memory_bytes: Some(100), ..Device::default() };
        let own = std::process::id();
        let bytes = |bytes| ProcessMemory { pid: own, bytes };
        let sample = DeviceSample {
            values: vec![(Figure::MemoryUsed, Ok(30.0)), (Figure::Power, Err(Missing::NotSupported))],
            busy: Some(Ok(vec![Busy { us: 3, percent: 100.0 }, Busy { us: 1, percent: 0.0 }])),
            processes: Some(Ok(vec![bytes(Err(Missing::NotReported)), bytes(Ok(20))])),
            ..DeviceSample::default()
        };
        let mut processes = Processes { are_foreign: false, ..Processes::new() };
        let seen = now(&device, &sample, &mut processes);
        use GpuFigure::{MemoryFree, MemoryUsed, Power, Pstate, Utilization};
        let figures = [MemoryUsed, MemoryFree, Utilization, Power, Pstate].map(|figure| seen.figures[figure]);
        assert_eq!(figures, [Some(30.0), Some(70.0), Some(75.0), None, None]);
        // In the short time of a listing, a driver may take no sample of its own.
        let unsampled =
            DeviceSample { busy: Some(Ok(Vec::new())), rate_percent: Some(Ok(40.0)), ..sample.clone() };
        assert_eq!(now(&device, &unsampled, &mut processes).figures[Utilization], Some(40.0));
        let listed = seen.processes.unwrap();
        assert_eq!([listed[0].memory_bytes, listed[1].memory_bytes], [Some(20), None]);
        assert_eq!(listed[0].command, ProcRoot::default().comm(own));
        assert!(listed[0].user.is_some());
        processes.are_foreign = true;
        let foreign = now(&device, &sample, &mut processes).processes.unwrap();
        assert_eq!((foreign[0].pid, &foreign[0].user, &foreign[0].command), (own, &None, &None));
        assert_eq!(now(&device, &DeviceSample::default(), &mut processes), GpuNow::default());
    }

    #[test]
    fn user_is_the_effective_one() {
        assert_eq!(uid_of("Name:\ta\nUid:\t1\t2\t3\t4\nGid:\t5\t5\t5\t5\n"), Some(2));
        assert_eq!(uid_of("Name:\ta\n"), None);
    }
}
