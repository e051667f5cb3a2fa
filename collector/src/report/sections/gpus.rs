//! The GPUs, and the processes on them.

use crate::model::report::GpuDevice;
use crate::report::document::{Column, Section, Table};
use crate::report::figures::number;
use crate::report::units::Units;

/// A section for each GPU.
pub(super) fn gpus(gpus: &[GpuDevice], units: Units) -> Section {
    Section::new("GPUs").sections(gpus.iter().map(|gpu| device(gpu, units)))
}

fn device(gpu: &GpuDevice, units: Units) -> Section {
    let (ram, time) = (units.gpu_ram, units.time);
    let states = Option::zip(gpu.pstate.fastest, gpu.pstate.slowest);
    let xid_errors = gpu.errors.xid.as_ref().map(|xids| xids.iter().map(|xid| xid.count).sum::<u64>());
    Section::new(&gpu.id)
        .text("Name", gpu.name.clone())
        .text("PCI address", gpu.pci_address.clone())
        .text("Part of", gpu.parent.clone())
        .text("Driver", gpu.driver_version.clone())
        .text("Runtime", gpu.runtime_version.clone())
        .text("Lost", gpu.lost_at_s.map(|at_s| units.after_the_start(at_s)))
        .section(memory(gpu, units))
        .section(utilization(gpu))
        .seconds("Active", gpu.utilization.active_s, time)
        .section(power(gpu, units))
        .number("Max temperature", gpu.max_temperature_c, "C")
        .number("Max SM clock", gpu.clocks.max_sm_mhz, "MHz")
        .number("Max memory clock", gpu.clocks.max_memory_mhz, "MHz")
        .text("Performance states", states.map(|(fastest, slowest)| format!("P{fastest} to P{slowest}")))
        .section(throttled(gpu, units))
        .bytes("PCIe sent", gpu.pcie.tx_bytes, ram)
        .bytes("PCIe received", gpu.pcie.rx_bytes, ram)
        .count("ECC errors corrected", gpu.errors.ecc_corrected)
        .count("ECC errors uncorrected", gpu.errors.ecc_uncorrected)
        .count("XID errors", xid_errors)
        .section(processes(gpu, units))
}

fn memory(gpu: &GpuDevice, units: Units) -> Section {
    let (memory, unit) = (&gpu.memory, units.gpu_ram);
    Section::new("Memory")
        .bytes("Total", memory.total_bytes, unit)
        .bytes("Max used by anybody", memory.max_used_bytes, unit)
        .bytes("Max main", memory.max_main_bytes, unit)
        .bytes("Max descendants", memory.max_descendants_bytes, unit)
        .bytes("Max combined", memory.max_combined_bytes, unit)
}

fn utilization(gpu: &GpuDevice) -> Section {
    Section::new("Utilization")
        .number("Max", gpu.utilization.max_percent, "%")
        .number("Mean", gpu.utilization.mean_percent, "%")
        .number("Max of the memory controller", gpu.utilization.max_memory_percent, "%")
        .number("Mean of the memory controller", gpu.utilization.mean_memory_percent, "%")
}

fn power(gpu: &GpuDevice, units: Units) -> Section {
    Section::new("Power")
        .number("Max", gpu.power.max_w, "W")
        .number("Mean", gpu.power.mean_w, "W")
        .seconds("Time of the mean", gpu.power.mean_span_s, units.time)
        .number("Energy", gpu.power.energy_j, "J")
        .number("Energy by integrated power", gpu.power.integrated_energy_j, "J")
}

fn throttled(gpu: &GpuDevice, units: Units) -> Section {
    let reasons = gpu.throttle.iter().flatten();
    reasons.fold(Section::new("Throttled"), |section, throttle| {
        section.seconds(&throttle.reason, Some(throttle.time_s), units.time)
    })
}

fn processes(gpu: &GpuDevice, units: Units) -> Section {
    let ram = Column::number("Peak RAM", units.gpu_ram.symbol());
    let [max, mean] = ["Max SM", "Mean SM"].map(|name| Column::number(name, "%"));
    let rows = gpu.processes.iter().map(|of| {
        let [max, mean] = [of.max_sm_percent, of.mean_sm_percent].map(number);
        [of.pid.to_string(), units.gpu_ram_cell(of.peak_bytes), max, mean, of.command.clone()]
    });
    let head = [Column::count("PID"), ram, max, mean, Column::text("Command")];
    Section::new("Processes").table(Table::new(head, rows))
}
