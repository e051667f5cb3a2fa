//! The GPUs, and the processes on them.

use super::usage::gauge;
use crate::document::{Block, Cell, Column, Section, Table, Tone};
use crate::figures::{energy, number, short};
use crate::model::report::{GpuDevice, GpuFindingKind, GpuProcess, Report, are_of_one_time};
use crate::model::sorting::Sorting;
use crate::units::Units;

/// Maximum number of rows of used GPUs in the summary.
const MAX_ROWS: usize = 4;
/// Maximum number of findings about GPUs in the summary. All are in the full text.
const MOST_FINDINGS: usize = 2;

/// Makes a section for each GPU.
pub(super) fn gpus(gpus: &[GpuDevice], units: Units) -> Section {
    gpus.iter().fold(Section::new("GPUs"), |section, gpu| section.section(device(gpu, units)))
}

/// Makes the section of a GPU.
fn device(gpu: &GpuDevice, units: Units) -> Section {
    let (ram, time) = (units.gpu_ram, units.time);
    let states = Option::zip(gpu.pstate.fastest, gpu.pstate.slowest);
    let xids = gpu.errors.xid.as_ref();
    let xid_errors = xids.map(|xids| xids.iter().fold(0, |sum: u64, xid| sum.saturating_add(xid.count)));
    Section::new(&gpu.id)
        .text("Name", gpu.name.clone())
        .text("PCI address", gpu.pci_address.clone())
        .text("Part of", gpu.parent.clone())
        .text("Driver", gpu.driver_version.clone())
        .text("Runtime", gpu.runtime_version.clone())
        .section(findings(gpu))
        .text("Lost", gpu.lost_at_s.map(|at_s| units.after_the_start(at_s)))
        .section(memory(gpu, units))
        .section(utilization(gpu))
        .seconds("Active", gpu.utilization.active_s, time)
        .section(activity(gpu, units))
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
        .section(torch(gpu, units))
}

/// Makes the part about what a GPU's figures mean.
fn findings(gpu: &GpuDevice) -> Section {
    let rows = gpu.findings.iter().flatten().map(|finding| (name_of(finding.kind), finding.text.clone()));
    rows.fold(Section::new("Findings"), |section, (name, text)| section.text(name, text))
}

/// What a finding is called.
fn name_of(kind: GpuFindingKind) -> &'static str {
    match kind {
        GpuFindingKind::SmsIdle => "SMs idle",
        GpuFindingKind::TensorUnused => "Tensor cores not used",
        GpuFindingKind::BandwidthBound => "Bound by memory",
        GpuFindingKind::PcieBound => "Bound by PCIe",
        GpuFindingKind::Throttled => "Throttled",
        GpuFindingKind::PowerCapped => "Power-capped",
        GpuFindingKind::Unbalanced => "Uneven",
        GpuFindingKind::Fragmented => "Fragmented",
    }
}

/// Makes the summary's lines of what the figures of GPUs mean, and after those of all GPUs what PyTorch had there, `most` at most.
pub(super) fn finding_rows(report: &Report, units: Units, most: usize) -> Vec<Block> {
    let texts =
        |gpu: &GpuDevice| gpu.findings.iter().flatten().map(|one| one.text.clone()).collect::<Vec<_>>();
    let findings = report.gpus.iter().flat_map(|gpu| texts(gpu).into_iter().map(move |text| (gpu, text)));
    let torch = report.gpus.iter().filter_map(|gpu| Some((gpu, torch_text(gpu, units)?)));
    let all = findings.chain(torch).take(most.min(MOST_FINDINGS));
    all.map(|(gpu, text)| Block::text("", format!("GPU {}: {text}", gpu.number()))).collect()
}

/// Says what PyTorch had on a GPU, in all processes. `None`: none told.
fn torch_text(gpu: &GpuDevice, units: Units) -> Option<String> {
    let mut told = gpu.processes.iter().filter_map(|process| process.torch.as_ref()).peekable();
    told.peek()?;
    let (mut reserved, mut live, mut context) = (0_u64, Some(0_u64), 0_u64);
    for torch in told {
        reserved = reserved.saturating_add(torch.reserved_bytes);
        live = live.zip(torch.live_bytes).map(|(a, b)| a.saturating_add(b));
        context = context.saturating_add(torch.most_context_bytes);
    }
    let live = live.map(|live| format!(", {} live at most", units.gpu_bytes(live))).unwrap_or_default();
    let [reserved, context] = [reserved, context].map(|bytes| units.gpu_bytes(bytes));
    Some(format!("PyTorch reserved {reserved}{live}; CUDA context {context} at most"))
}

/// Makes the part about a GPU's memory.
fn memory(gpu: &GpuDevice, units: Units) -> Section {
    let (memory, unit) = (&gpu.memory, units.gpu_ram);
    Section::new("Memory")
        .bytes("Total", memory.total_bytes, unit)
        .bytes("Max used by anybody", memory.max_used_bytes, unit)
        .bytes("Max main", memory.max_main_bytes, unit)
        .bytes("Max descendants", memory.max_descendants_bytes, unit)
        .bytes("Max combined", memory.max_combined_bytes, unit)
}

/// Makes the part about how busy a GPU and its memory controller were.
fn utilization(gpu: &GpuDevice) -> Section {
    Section::new("Utilization")
        .number("Max", gpu.utilization.max_percent, "%")
        .number("Mean", gpu.utilization.mean_percent, "%")
        .number("Max of the memory controller", gpu.utilization.max_memory_percent, "%")
        .number("Mean of the memory controller", gpu.utilization.mean_memory_percent, "%")
}

/// Makes the part about what a GPU's performance counters showed. A GPU without them has no such part.
fn activity(gpu: &GpuDevice, units: Units) -> Section {
    let activity = &gpu.activity;
    Section::new("Activity")
        .number("Mean SMs active", activity.mean_sm_percent, "%")
        .number("Max SMs active", activity.max_sm_percent, "%")
        .number("Mean SM occupancy", activity.mean_occupancy_percent, "%")
        .number("Max SM occupancy", activity.max_occupancy_percent, "%")
        .number("Mean tensor cores", activity.mean_tensor_percent, "%")
        .number("Max tensor cores", activity.max_tensor_percent, "%")
        .number("Mean memory bandwidth", activity.mean_memory_bandwidth_percent, "%")
        .number("Max memory bandwidth", activity.max_memory_bandwidth_percent, "%")
        .number("Mean FP64", activity.mean_fp64_percent, "%")
        .number("Mean FP32", activity.mean_fp32_percent, "%")
        .number("Mean FP16", activity.mean_fp16_percent, "%")
        .bytes("NVLink sent", activity.nvlink_tx_bytes, units.gpu_ram)
        .bytes("NVLink received", activity.nvlink_rx_bytes, units.gpu_ram)
        .seconds("Time covered", activity.measured_s, units.time)
}

/// Makes the part about a GPU's power and energy.
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

/// Makes the table of the processes of the run that used a GPU.
fn processes(gpu: &GpuDevice, units: Units) -> Section {
    let ram = Column::number("Peak RAM", units.gpu_ram.symbol());
    let [max, mean] = ["Max SM", "Mean SM"].map(|name| Column::number(name, "%"));
    let rows = gpu.processes.iter().map(|process| {
        let [max, mean] = [process.max_sm_percent, process.mean_sm_percent].map(number);
        [process.pid.to_string(), units.gpu_ram_cell(process.peak_bytes), max, mean, process.command.clone()]
    });
    let head = [Column::count("PID"), ram, max, mean, Column::text("Command")];
    Section::new("Processes").table(Table::new(head, rows))
}

/// Makes the table of what PyTorch had on a GPU, with what the driver counts beside it. Without PyTorch there is no such part.
fn torch(gpu: &GpuDevice, units: Units) -> Section {
    let row = |process: &GpuProcess| {
        let torch = process.torch.as_ref()?;
        let bytes = [
            torch.live_bytes,
            Some(torch.reserved_bytes),
            torch.fragmented_bytes,
            Some(torch.most_context_bytes),
        ];
        let [live, reserved, fragmented, context] = bytes.map(|bytes| units.gpu_ram_cell(bytes));
        Some([process.pid.to_string(), live, reserved, fragmented, context])
    };
    let rows: Vec<_> = gpu.processes.iter().filter_map(row).collect();
    if rows.is_empty() {
        return Section::new("PyTorch");
    }
    let [live, reserved, fragmented, context] = ["Live", "Reserved", "Fragmented", "Context, at most"]
        .map(|name| Column::number(name, units.gpu_ram.symbol()));
    let head = [Column::count("PID"), live, reserved, fragmented, context];
    Section::new("PyTorch").table(Table::new(head, rows))
}

/// Makes the summary's rows. Each GPU that was used or lost has one; if these are more than [`MAX_ROWS`], the last row sums up the
/// rest. One more row counts the GPUs that were not used.
pub(super) fn rows(report: &Report, units: Units) -> Vec<Block> {
    let is_shown = |gpu: &&GpuDevice| gpu.used == Some(true) || gpu.lost_at_s.is_some();
    let mut used: Vec<&GpuDevice> = report.gpus.iter().filter(is_shown).collect();
    let mut shown = used.len();
    if shown > MAX_ROWS {
        shown = MAX_ROWS - 1;
        // The row of several GPUs does not say that one was lost.
        used.order_by_key(|gpu| gpu.lost_at_s.is_none());
    }
    let (single, others) = used.split_at(shown);
    let mut rows: Vec<_> = single.iter().map(|gpu| row(gpu, units)).collect();
    if !others.is_empty() {
        rows.push(Block::Row(format!("{} more GPUs", others.len()), figure_cells(others, units)));
    }
    rows.extend(unused_row(&report.gpus));
    rows
}

/// Makes a row of the memory of all GPUs, for a page. `None`: there is none, or it is not known what the command held.
pub(super) fn memory_row(report: &Report, units: Units) -> Option<Block> {
    let held = report.max_gpu_ram.combined_bytes?;
    let whole = report.max_gpu_ram.system_capacity_bytes.filter(|whole| *whole > 0)?;
    let note = if report.gpus.len() > 1 { "all GPUs" } else { "" };
    let part = held as f64 / whole as f64;
    let [held, whole] = [held, whole].map(|bytes| units.gpu_bytes(bytes));
    Some(gauge("GPU memory", held, Some(whole), Some(part), note.to_owned()))
}

/// Makes the summary's row of a GPU: when it was lost, if it was, and its figures.
fn row(gpu: &GpuDevice, units: Units) -> Block {
    let number = gpu.number();
    let name = gpu.name.as_deref().map(model).unwrap_or_default();
    let comma = if gpu.utilization.mean_percent.is_some() { "," } else { "" };
    let lost = |at_s| Cell::Figure(Tone::Bad, format!("lost at {}{comma}", units.seconds(at_s)));
    let cells = gpu.lost_at_s.map(lost).into_iter().chain(figure_cells(&[gpu], units)).collect();
    Block::Row(format!("GPU {number} {name}").trim().to_owned(), cells)
}

/// Makes the cells of a row about GPUs: the mean of their use, and the sums of their memory, power and energy. Means of several GPUs are
/// left out if they are of other times.
fn figure_cells(gpus: &[&GpuDevice], units: Units) -> Vec<Cell> {
    let sum = |figure: fn(&GpuDevice) -> Option<f64>| gpus.iter().map(|gpu| figure(gpu)).sum::<Option<f64>>();
    let is_one_time = |span_s: fn(&GpuDevice) -> Option<f64>| {
        are_of_one_time(&gpus.iter().filter_map(|gpu| span_s(gpu)).collect::<Vec<_>>())
    };
    let busy = sum(|gpu| gpu.utilization.mean_percent).map(|sum| sum / gpus.len() as f64);
    let busy = busy.filter(|_| is_one_time(|gpu| gpu.utilization.measured_s));
    let busy = busy.map(|percent| format!("{percent:.0} % busy")).unwrap_or_default();
    let watts = sum(|gpu| gpu.power.mean_w).filter(|_| is_one_time(|gpu| gpu.power.mean_span_s));
    let watts = watts.map(|watts| mean_power(watts, gpus, units));
    let sums = [held_memory(gpus, units), watts, sum(|gpu| gpu.power.energy_j).map(energy)];
    let known_sums: Vec<_> = sums.into_iter().flatten().collect();
    vec![Cell::Figure(Tone::Plain, busy), Cell::Text(Tone::Plain, known_sums.join(", "))]
}

/// Formats the memory that the command held, and how much there is: `34.1 of 36.0 GB`. If the driver does not tell processes
/// apart, writes the memory that all users held. `None`: neither is known of all these GPUs.
fn held_memory(gpus: &[&GpuDevice], units: Units) -> Option<String> {
    let amount = |bytes: u64| short(units.gpu_ram.convert(bytes as f64));
    let sum = |figure: fn(&GpuDevice) -> Option<u64>| {
        gpus.iter().try_fold(0, |sum: u64, gpu| Some(sum.saturating_add(figure(gpu)?)))
    };
    let (held, whose) = match sum(|gpu| gpu.memory.max_combined_bytes) {
        Some(own) => (own, ""),
        None => (sum(|gpu| gpu.memory.max_used_bytes)?, " by all users"),
    };
    let total = sum(|gpu| gpu.memory.total_bytes).map(|total| format!(" of {}", amount(total)));
    Some(format!("{}{} {}{whose}", amount(held), total.unwrap_or_default(), units.gpu_ram.symbol()))
}

/// Formats the sum `watts` of the mean powers of GPUs. Power may have been read for a shorter time than energy. Then the text has the
/// time of the mean, too; of several such GPUs, the shortest.
fn mean_power(watts: f64, gpus: &[&GpuDevice], units: Units) -> String {
    let of_other_time = gpus.iter().filter(|gpu| gpu.power.mean_span_s != gpu.power.energy_span_s);
    let span = of_other_time.filter_map(|gpu| gpu.power.mean_span_s).reduce(f64::min);
    let span = span.map(|span_s| format!(" of {}", units.seconds(span_s))).unwrap_or_default();
    format!("{} W mean{span}", short(watts))
}

/// Finds the model in a product name: "NVIDIA A100-SXM4-80GB" is an A100.
fn model(name: &str) -> String {
    const MAKERS: [&str; 9] =
        ["NVIDIA", "AMD", "Intel", "Intel(R)", "Tesla", "GeForce", "Quadro", "Instinct", "Corporation"];
    let mut words = name.split_whitespace().filter(|word| !MAKERS.contains(word));
    let first = words.next().unwrap_or_default();
    if first.contains(|c: char| c.is_ascii_digit()) {
        first.split('-').next().unwrap_or_default().to_owned()
    } else {
        // "RTX 4090", "Arc A770"
        format!("{first} {}", words.next().unwrap_or_default())
    }
}

/// Makes the row about GPUs that the command may use and did not. `None`: there are none.
fn unused_row(gpus: &[GpuDevice]) -> Option<Block> {
    let given = || gpus.iter().filter(|gpu| gpu.visible == Some(true));
    let unused = given().filter(|gpu| gpu.used == Some(false) && gpu.lost_at_s.is_none()).count();
    let text = format!("{unused} of {} that the command may use", given().count());
    (unused > 0).then(|| Block::Row("GPUs not used".to_owned(), vec![Cell::Text(Tone::Caution, text)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: GPU-32
    #[test]
    fn lost_gpu_has_a_row_of_its_own_and_means_of_other_times_are_in_no_sum() {
        let gpu = |index: u32, measured_s: f64| {
            let mut gpu = GpuDevice { index: Some(index), used: Some(true), ..GpuDevice::default() };
            (gpu.utilization.mean_percent, gpu.utilization.measured_s) = (Some(40.0), Some(measured_s));
            (gpu.power.mean_w, gpu.power.mean_span_s) = (Some(100.0), Some(measured_s));
            gpu
        };
        let texts = |gpus: Vec<GpuDevice>| {
            let report = Report { gpus, ..gpu_track_core::fixtures::unknown() };
            let units = Units::choose(&report, &crate::model::style::Style::default());
            let text = |row: &Block| {
                let Block::Row(label, cells) = row else { panic!() };
                let cells = cells.iter().map(|cell| match cell {
                    Cell::Figure(_, text) | Cell::Text(_, text) => text.as_str(),
                    _ => "",
                });
                std::iter::once(label.as_str()).chain(cells).collect::<Vec<_>>().join(" ")
            };
            rows(&report, units).iter().map(text).collect::<Vec<_>>()
        };
        let mut gpus: Vec<GpuDevice> = (0..6).map(|index| gpu(index, 6.0)).collect();
        let all = texts(gpus.clone());
        assert!(all[3].contains("3 more GPUs") && all[3].contains("40 % busy"), "{all:?}");
        assert!(all[3].contains("300 W mean"), "{all:?}");
        (gpus[5].lost_at_s, gpus[4].utilization.measured_s) = (Some(2.0), Some(3.0));
        gpus[4].power.mean_span_s = Some(3.0);
        let all = texts(gpus);
        assert!(all[0].contains("GPU 5") && all[0].contains("lost at 0.033 min, 40 % busy"), "{all:?}");
        assert!(!all[3].contains("busy") && !all[3].contains("mean"), "{all:?}");
    }

    #[test]
    fn model_is_what_people_call_a_gpu() {
        for (name, short) in [
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA A100-SXM4-80GB", "A100"),
            ("Tesla V100-SXM2-16GB", "V100"),
            ("NVIDIA GeForce RTX 4090", "RTX 4090"),
            ("AMD Instinct MI300X", "MI300X"),
            ("Intel(R) Arc A770", "Arc A770"),
            ("", " "),
        ] {
            assert_eq!(model(name), short);
        }
    }
}
