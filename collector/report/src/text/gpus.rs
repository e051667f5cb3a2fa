//! The GPUs, and the processes on them.

use std::cmp::Reverse;

use super::format::{number, number_of_bytes};
use super::page::Page;
use crate::model::report::{CommandUsage, GpuDevice, ProcessUsage};
use crate::model::style::{RamUnit, TimeUnit};
use crate::quote;

/// A section for each GPU; nothing where there is no GPU.
pub(super) fn gpus(page: &mut Page, gpus: &[GpuDevice], ram: RamUnit, time: TimeUnit) {
    if gpus.is_empty() {
        return;
    }
    page.heading(0, "GPUs");
    for gpu in gpus {
        identity(page, gpu, time);
        usage(page, gpu, ram, time);
        errors_and_traffic(page, gpu, ram);
        processes(page, gpu, ram);
    }
}

fn identity(page: &mut Page, gpu: &GpuDevice, time: TimeUnit) {
    page.heading(1, &quote::escape(&gpu.id));
    for (label, text) in [
        ("Name", &gpu.name),
        ("PCI address", &gpu.pci_address),
        ("Part of", &gpu.parent),
        ("Driver", &gpu.driver_version),
        ("Runtime", &gpu.runtime_version),
    ] {
        if let Some(text) = text {
            page.field(2, label, quote::escape(text));
        }
    }
    if let Some(at_s) = gpu.lost_at_s {
        let at = format!("{} {} after the start", number(Some(time.convert(at_s))), time.symbol());
        page.field(2, "Lost", at);
    }
}

fn usage(page: &mut Page, gpu: &GpuDevice, ram: RamUnit, time: TimeUnit) {
    page.heading(2, "Memory");
    page.bytes(3, "Total", gpu.memory.total_bytes, ram);
    page.bytes(3, "Max used by anybody", gpu.memory.max_used_bytes, ram);
    page.bytes(3, "Max main", gpu.memory.max_main_bytes, ram);
    page.bytes(3, "Max descendants", gpu.memory.max_descendants_bytes, ram);
    page.bytes(3, "Max combined", gpu.memory.max_combined_bytes, ram);
    page.heading(2, "Utilization");
    page.number(3, "Max", gpu.utilization.max_percent, "%");
    page.number(3, "Mean", gpu.utilization.mean_percent, "%");
    page.number(3, "Max of the memory controller", gpu.utilization.max_memory_percent, "%");
    page.number(3, "Mean of the memory controller", gpu.utilization.mean_memory_percent, "%");
    page.seconds(2, "Active", gpu.utilization.active_s, time);
    page.heading(2, "Power");
    page.number(3, "Max", gpu.power.max_w, "W");
    page.number(3, "Mean", gpu.power.mean_w, "W");
    page.seconds(3, "Time of the mean", gpu.power.mean_span_s, time);
    page.number(3, "Energy", gpu.power.energy_j, "J");
    page.number(3, "Energy by integrated power", gpu.power.integrated_energy_j, "J");
    page.number(2, "Max temperature", gpu.max_temperature_c, "C");
    page.number(2, "Max SM clock", gpu.clocks.max_sm_mhz, "MHz");
    page.number(2, "Max memory clock", gpu.clocks.max_memory_mhz, "MHz");
    if let (Some(fastest), Some(slowest)) = (gpu.pstate.fastest, gpu.pstate.slowest) {
        page.field(2, "Performance states", format_args!("P{fastest} to P{slowest}"));
    }
    page.heading(2, "Throttled");
    for throttle in gpu.throttle.iter().flatten() {
        page.seconds(3, &quote::escape(&throttle.reason), Some(throttle.time_s), time);
    }
}

fn errors_and_traffic(page: &mut Page, gpu: &GpuDevice, ram: RamUnit) {
    page.bytes(2, "PCIe sent", gpu.pcie.tx_bytes, ram);
    page.bytes(2, "PCIe received", gpu.pcie.rx_bytes, ram);
    page.count(2, "ECC errors corrected", gpu.errors.ecc_corrected);
    page.count(2, "ECC errors uncorrected", gpu.errors.ecc_uncorrected);
    page.count(2, "XID errors", gpu.errors.xid.as_ref().map(|xids| xids.iter().map(|xid| xid.count).sum()));
}

fn processes(page: &mut Page, gpu: &GpuDevice, ram: RamUnit) {
    if gpu.processes.is_empty() {
        return;
    }
    page.heading(2, "Processes");
    let head = ["PID", &format!("Peak RAM [{}]", ram.symbol()), "Max SM [%]", "Mean SM [%]", "Command"];
    page.table(3, head, &gpu.processes, |process| {
        [
            process.pid.to_string(),
            number_of_bytes(process.peak_bytes, ram),
            number(process.max_sm_percent),
            number(process.mean_sm_percent),
            quote::escape(&process.command),
        ]
    });
}

/// Command names whose processes were seen on a GPU.
pub(super) fn by_command(page: &mut Page, commands: &[CommandUsage], ram: RamUnit) {
    let rows: Vec<_> = commands
        .iter()
        .filter_map(|of| {
            let gpu = of.gpu.as_ref()?;
            Some((gpu.peak_ram_bytes, gpu.count.to_string(), gpu.max_sm_percent, of.command.as_str()))
        })
        .collect();
    table(page, "By command on GPUs", "Count", ram, rows);
}

/// Heaviest processes that were seen on a GPU.
pub(super) fn heaviest(page: &mut Page, processes: &[ProcessUsage], ram: RamUnit) {
    let rows: Vec<_> = processes
        .iter()
        .filter_map(|of| {
            let gpu = of.gpu.as_ref()?;
            Some((gpu.peak_ram_bytes, of.pid.to_string(), gpu.max_sm_percent, of.command.as_str()))
        })
        .collect();
    table(page, "Heaviest on GPUs", "PID", ram, rows);
}

/// Peak GPU RAM, what the first column has, largest SM percentage and command.
type Row<'a> = (Option<u64>, String, Option<f64>, &'a str);

/// The rows by GPU RAM, the largest first.
fn table(page: &mut Page, title: &str, first: &str, ram: RamUnit, mut rows: Vec<Row<'_>>) {
    if rows.is_empty() {
        return;
    }
    page.heading(1, title);
    let head = [first, &format!("Peak GPU RAM [{}]", ram.symbol()), "Max SM [%]", "Command"];
    rows.sort_by_key(|(peak, ..)| Reverse(*peak));
    page.table(2, head, &rows, |(peak, first, sm, command)| {
        [first.clone(), number_of_bytes(*peak, ram), number(*sm), quote::escape(command)]
    });
}
