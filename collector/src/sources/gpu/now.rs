//! What a device shows now, and which processes have memory on it.

use std::collections::HashMap;
use std::sync::Arc;

use super::pid_facts::has_own_pid_ns;
use crate::model::gpu::gpu_figure::ByGpuFigure;
use crate::model::gpu::listing::{GpuNow, ListedProcess, Listing};
use crate::model::gpu::{Busy, Device, DeviceSample, Figure, Reading};
use crate::model::sorting::{InOrder, Sorting};
use crate::model::tree_sample::GpuSample;
use crate::sources::program;
use crate::sys::proc_fs::{ProcRoot, Statm};
use crate::sys::user;

/// What the last reading of a device shows. `processes` describes the processes that have memory on the device.
pub(super) fn now(device: &Device, sample: &DeviceSample, processes: &mut Processes) -> GpuNow {
    let known = |(figure, value): &(Figure, Reading<f64>)| Some((*figure, value.as_ref().ok().copied()?));
    // The first reading of performance counters has no values.
    let counted = sample.activity.iter().flatten().flat_map(|activity| &activity.values);
    let gauges = sample.values.iter().chain(counted).filter_map(known).ordered_map();
    let busy_percent = match &sample.rate_percent {
        Some(Ok(percent)) => Some(*percent),
        _ => utilization(sample),
    };
    let used_bytes = gauges.get(&Figure::MemoryUsed).map(|bytes| *bytes as u64);
    let shown = GpuSample {
        device: Arc::new(device.clone()),
        used_bytes,
        busy_percent,
        gauges,
        ..GpuSample::default()
    };
    let listed = sample.processes.as_ref().and_then(|processes| processes.as_ref().ok());
    GpuNow {
        figures: ByGpuFigure::from(&shown),
        throttle_bits: sample.throttle_bits,
        processes: listed.map(|listed| {
            let mut on_gpu: Vec<ListedProcess> = listed
                .iter()
                .map(|one| ListedProcess {
                    memory_bytes: one.bytes.as_ref().ok().copied().filter(|bytes| device.may_be_used(*bytes)),
                    work: one.work,
                    utilization_percent: utilization_of(one.pid, sample),
                    ..processes.named(one.pid)
                })
                .collect();
            on_gpu.order_by_key(|process| (std::cmp::Reverse(process.memory_bytes), process.pid));
            on_gpu
        }),
    }
}

/// The utilisation of a device over the time of a reading, percent. `None`: the driver does not tell it.
fn utilization(sample: &DeviceSample) -> Option<f64> {
    mean_percent(sample.busy.as_ref()?.as_ref().ok()?)
}

/// Averages the utilisation over stretches of time, weighted by their lengths, percent. `None`: they have no length.
fn mean_percent(busy: &[Busy]) -> Option<f64> {
    let us: u64 = busy.iter().map(|stretch| stretch.us).sum();
    let sum: f64 = busy.iter().map(|stretch| stretch.us as f64 * stretch.percent).sum();
    (us > 0).then(|| sum / us as f64)
}

/// The utilisation of the device by a process over the time of a reading, percent. `None`: the driver does not tell it.
fn utilization_of(pid: u32, sample: &DeviceSample) -> Option<f64> {
    let busy = sample.process_busy.as_ref()?.as_ref().ok()?;
    let of_process: Vec<Busy> =
        busy.iter().filter(|busy| busy.pid == pid && !busy.is_from_start).map(|busy| busy.busy).collect();
    mean_percent(&of_process)
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

    /// Describes the process with this pid, with its user, command and RSS as far as /proc shows them.
    fn named(&mut self, pid: u32) -> ListedProcess {
        if self.are_foreign {
            return ListedProcess { pid, ..ListedProcess::default() };
        }
        // A process that has ended has no memory.
        let statm = self.root.read(pid, "statm").and_then(|text| Statm::parse(&text));
        let resident = statm.map(|statm| statm.resident).filter(|pages| *pages > 0);
        let rss_bytes = resident.map(|pages| pages * rustix::param::page_size() as u64);
        let user = self.root.status(pid).and_then(|status| status.user).map(|uid| {
            let name = || user::name(uid).unwrap_or_else(|| uid.to_string());
            self.users.entry(uid).or_insert_with(name).clone()
        });
        let (command, arguments) = (self.root.comm(pid), program::args(&self.root, pid));
        ListedProcess { pid, user, command, arguments, rss_bytes, ..ListedProcess::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::gpu_figure::GpuFigure;
    use crate::model::gpu::{Activity, Missing, ProcessBusy, ProcessMemory, Work};

    #[test]
    fn unknown_figures_are_none_and_processes_have_their_names() {
        let device = Device { memory_bytes: Some(100), ..Device::default() };
        let own = std::process::id();
        let bytes = |bytes| ProcessMemory { pid: own, bytes, work: Work::Compute };
        let sample = DeviceSample {
            values: vec![(Figure::MemoryUsed, Ok(30.0)), (Figure::Power, Err(Missing::NotSupported))],
            busy: Some(Ok(vec![Busy { us: 3, percent: 100.0 }, Busy { us: 1, percent: 0.0 }])),
            process_busy: Some(Ok(vec![ProcessBusy {
                pid: own,
                busy: Busy { us: 9, percent: 40.0 },
                is_from_start: false,
            }])),
            activity: Some(Ok(Activity { us: 9, values: vec![(Figure::SmActive, Ok(18.0))] })),
            processes: Some(Ok(vec![bytes(Err(Missing::NotReported)), bytes(Ok(20))])),
            ..DeviceSample::default()
        };
        let mut processes = Processes { are_foreign: false, ..Processes::new() };
        let seen = now(&device, &sample, &mut processes);
        use GpuFigure::{MemoryFree, MemoryUsed, Power, Pstate, Utilization};
        let figures = [MemoryUsed, MemoryFree, Utilization, Power, Pstate].map(|figure| seen.figures[figure]);
        assert_eq!(figures, [Some(30.0), Some(70.0), Some(75.0), None, None]);
        assert_eq!(seen.figures[GpuFigure::SmActive], Some(18.0));
        // In the short time of a listing, a driver may take no sample of its own.
        let unsampled =
            DeviceSample { busy: Some(Ok(Vec::new())), rate_percent: Some(Ok(40.0)), ..sample.clone() };
        assert_eq!(now(&device, &unsampled, &mut processes).figures[Utilization], Some(40.0));
        let listed = seen.processes.unwrap();
        assert_eq!([listed[0].memory_bytes, listed[1].memory_bytes], [Some(20), None]);
        assert_eq!(listed[0].command, ProcRoot::default().comm(own));
        assert!(listed[0].user.is_some() && listed[0].rss_bytes.is_some_and(|bytes| bytes > 0));
        assert_eq!((listed[0].work, listed[0].utilization_percent), (Work::Compute, Some(40.0)));
        let program = std::env::args().next();
        assert_eq!(listed[0].arguments.as_ref().and_then(|words| words.first()).cloned(), program);
        processes.are_foreign = true;
        let foreign = now(&device, &sample, &mut processes).processes.unwrap();
        assert_eq!((foreign[0].pid, &foreign[0].user, &foreign[0].command), (own, &None, &None));
        assert_eq!(now(&device, &DeviceSample::default(), &mut processes), GpuNow::default());
    }
}
