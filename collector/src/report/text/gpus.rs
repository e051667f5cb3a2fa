//! The GPUs, and the processes on them.

use super::super::quote;
use super::format::{UNKNOWN, number};
use super::page::Page;
use crate::model::report::{CommandUsage, GpuDevice, ProcessUsage};
use crate::model::style::{RamUnit, TimeUnit};

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
    let known = |text: &Option<String>| text.as_deref().map_or_else(|| UNKNOWN.to_owned(), quote::escape);
    page.heading(1, &quote::escape(&gpu.id));
    page.field(2, "Name", known(&gpu.name));
    page.field(2, "PCI address", known(&gpu.pci_address));
    if let Some(parent) = &gpu.parent {
        page.field(2, "Part of", quote::escape(parent));
    }
    page.field(2, "Driver", known(&gpu.driver_version));
    page.field(2, "Runtime", known(&gpu.runtime_version));
    if let Some(at_s) = gpu.lost_at_s {
        let at = format!("{} {} after the start", number(Some(time.convert(at_s))), time.name());
        page.field(2, "Lost", at);
    }
}

fn usage(page: &mut Page, gpu: &GpuDevice, ram: RamUnit, time: TimeUnit) {
    let seconds = |seconds: Option<f64>| number(seconds.map(|s| time.convert(s)));
    page.heading(2, &format!("Memory [{}]", ram.symbol()));
    page.field(3, "Total", bytes(gpu.memory.total_bytes, ram));
    page.field(3, "Max used by anybody", bytes(gpu.memory.max_used_bytes, ram));
    page.field(3, "Max main", bytes(gpu.memory.max_main_bytes, ram));
    page.field(3, "Max descendants", bytes(gpu.memory.max_descendants_bytes, ram));
    page.field(3, "Max combined", bytes(gpu.memory.max_combined_bytes, ram));
    page.heading(2, "Utilization [%]");
    page.number(3, "Max", gpu.utilization.max_percent);
    page.number(3, "Mean", gpu.utilization.mean_percent);
    page.number(3, "Max of the memory controller", gpu.utilization.max_memory_percent);
    page.number(3, "Mean of the memory controller", gpu.utilization.mean_memory_percent);
    page.field(2, &format!("Active [{}]", time.symbol()), seconds(gpu.utilization.active_s));
    page.heading(2, "Power");
    page.number(3, "Max [W]", gpu.power.max_w);
    page.number(3, "Mean [W]", gpu.power.mean_w);
    page.number(3, "Energy [J]", gpu.power.energy_j);
    page.number(3, "Energy by integrated power [J]", gpu.power.integrated_energy_j);
    page.number(2, "Max temperature [C]", gpu.max_temperature_c);
    page.number(2, "Max SM clock [MHz]", gpu.clocks.max_sm_mhz);
    page.number(2, "Max memory clock [MHz]", gpu.clocks.max_memory_mhz);
    match (gpu.pstate.fastest, gpu.pstate.slowest) {
        (Some(fastest), Some(slowest)) => {
            page.field(2, "Performance states", format_args!("P{fastest} to P{slowest}"))
        }
        _ => page.field(2, "Performance states", UNKNOWN),
    }
    match gpu.throttle.as_deref() {
        None => page.field(2, "Throttled", UNKNOWN),
        Some([]) => page.field(2, "Throttled", "never"),
        Some(reasons) => {
            page.heading(2, &format!("Throttled [{}]", time.symbol()));
            for throttle in reasons {
                page.field(3, &quote::escape(&throttle.reason), seconds(Some(throttle.time_s)));
            }
        }
    }
}

fn errors_and_traffic(page: &mut Page, gpu: &GpuDevice, ram: RamUnit) {
    page.field(2, "PCIe sent", bytes(gpu.pcie.tx_bytes, ram));
    page.field(2, "PCIe received", bytes(gpu.pcie.rx_bytes, ram));
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
            bytes(process.peak_bytes, ram),
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
            let peak = bytes(gpu.peak_ram_bytes, ram);
            Some([gpu.count.to_string(), peak, number(gpu.max_sm_percent), quote::escape(&of.command)])
        })
        .collect();
    table(page, "By command on GPUs", "Count", ram, &rows);
}

/// Heaviest processes that were seen on a GPU.
pub(super) fn heaviest(page: &mut Page, processes: &[ProcessUsage], ram: RamUnit) {
    let rows: Vec<_> = processes
        .iter()
        .filter_map(|of| {
            let gpu = of.gpu.as_ref()?;
            let peak = bytes(gpu.peak_ram_bytes, ram);
            Some([of.pid.to_string(), peak, number(gpu.max_sm_percent), quote::escape(&of.command)])
        })
        .collect();
    table(page, "Heaviest on GPUs", "PID", ram, &rows);
}

fn table(page: &mut Page, title: &str, first: &str, ram: RamUnit, rows: &[[String; 4]]) {
    if rows.is_empty() {
        return;
    }
    page.heading(1, title);
    let head = [first, &format!("Peak GPU RAM [{}]", ram.symbol()), "Max SM [%]", "Command"];
    page.table(2, head, rows, Clone::clone);
}

fn bytes(bytes: Option<u64>, ram: RamUnit) -> String {
    number(bytes.map(|b| ram.convert(b as f64)))
}
