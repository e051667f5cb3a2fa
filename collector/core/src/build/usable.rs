//! What the command may use: what is known at its start, and the GPUs.

use super::inputs::Inputs;
use crate::model::report::{GpuDevice, GpusSource, Usable, UsableGpus};
use crate::run::usable_at_start::usable_at_start;

/// What the command may use. `gpus` are the tracked ones; `None`: a driver failed, so their number is unknown.
pub(super) fn usable(inputs: &Inputs, gpus: Option<&[GpuDevice]>) -> Usable {
    let gpus = gpus.map_or_else(UsableGpus::default, usable_gpus);
    Usable { gpus, ..usable_at_start(inputs.config, inputs.host_info) }
}

/// Counts the GPUs that the command's environment names. If it names none, counts all.
fn usable_gpus(gpus: &[GpuDevice]) -> UsableGpus {
    let is_any_named = gpus.iter().any(|gpu| gpu.visible.is_some());
    let count = usable_devices(gpus).count();
    let source = if is_any_named { GpusSource::Environment } else { GpusSource::Tracked };
    UsableGpus { count: u32::try_from(count).ok(), source: Some(source) }
}

/// The GPUs that the run could use. A part (MIG) is left out if its whole device is tracked, too.
pub(super) fn usable_devices(gpus: &[GpuDevice]) -> impl Iterator<Item = &GpuDevice> {
    GpuDevice::whole(gpus).filter(|gpu| gpu.visible != Some(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: GPU-12
    #[test]
    fn part_of_a_gpu_counts_unless_its_whole_device_does() {
        let gpu = |id: &str, parent: Option<&str>| GpuDevice {
            id: id.into(),
            parent: parent.map(Into::into),
            ..GpuDevice::default()
        };
        let gpus = [gpu("a", None), gpu("m", Some("a")), gpu("n", Some("b"))];
        let counted: Vec<&str> = GpuDevice::whole(&gpus).map(|gpu| gpu.id.as_str()).collect();
        assert_eq!(counted, ["a", "n"]);
    }

    // Requirement: USE-1
    #[test]
    fn visible_gpus_are_those_that_the_environment_names() {
        let gpus = |visible: &[Option<bool>]| {
            let gpu = |visible: &Option<bool>| GpuDevice { visible: *visible, ..GpuDevice::default() };
            let result = usable_gpus(&visible.iter().map(gpu).collect::<Vec<_>>());
            (result.count, result.source)
        };
        assert_eq!(gpus(&[]), (Some(0), Some(GpusSource::Tracked)));
        assert_eq!(gpus(&[None, None]), (Some(2), Some(GpusSource::Tracked)));
        assert_eq!(gpus(&[Some(true), Some(false)]), (Some(1), Some(GpusSource::Environment)));
    }
}
