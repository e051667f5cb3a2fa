//! The output of `--gpus` as text.

use super::layout::{Arrangement, lay_out};
use super::terminal::Look;
use crate::document::Section;
use crate::figures::UNKNOWN;
use crate::model::gpu::listing::{Listed, Listing};
use crate::model::style::Console;

/// Renders the GPUs and their figures, with a newline at the end.
pub(crate) fn gpu_list(listing: &Listing) -> String {
    let drivers = listing.drivers.iter();
    let why: Vec<_> = drivers.map(|driver| format!("{}: {}", driver.name, driver.reason)).collect();
    let count = match (listing.count, listing.gpus.len()) {
        (Some(count), _) => count.to_string(),
        (None, 0) => format!("not known ({})", why.join("; ")),
        (None, known) => format!("{known} and perhaps more ({})", why.join("; ")),
    };
    let warnings = listing.warnings.iter();
    let warnings = warnings.fold(Section::default(), |all, text| all.text("Warning", text.clone()));
    let mut all = Section::default().text("GPUs", count).section(warnings);
    for gpu in &listing.gpus {
        all = all.text(&gpu.device.id, known(gpu.device.name.as_ref())).section(device(gpu));
    }
    let lines = lay_out(&all.blocks, Look { console: Console::default() }, Arrangement::Outline);
    lines.join("\n") + "\n"
}

/// Makes the rows about a GPU, which stand below the row with its name.
fn device(gpu: &Listed) -> Section {
    let device = &gpu.device;
    let memory = device.memory_bytes.map(|bytes| format!("{:.3} gigabytes", bytes as f64 / 1e9));
    let visible = match gpu.visible {
        Some(true) => "yes",
        Some(false) => "no",
        None => "the environment names no GPUs",
    };
    let figures = gpu.figures.iter().fold(Section::new("Figures"), |section, figure| match &figure.reason {
        None => section.text(&figure.figure, "yes".to_owned()),
        reason => section.unknown(&figure.figure, reason.as_ref()),
    });
    Section::default()
        .text("Part of", device.parent.clone())
        .text("PCI address", known(device.pci_address.as_ref()))
        .text("Memory", known(memory.as_ref()))
        .text("Driver", known(device.driver_version.as_ref()))
        .text("Runtime", known(device.runtime_version.as_ref()))
        .text("Source", device.source.clone())
        .text("Tracked", if gpu.tracked { "yes" } else { "no (left out by the options)" }.to_owned())
        .text("Visible to a command", visible.to_owned())
        .section(figures)
}

fn known(value: Option<&String>) -> String {
    value.cloned().unwrap_or_else(|| UNKNOWN.to_owned())
}
