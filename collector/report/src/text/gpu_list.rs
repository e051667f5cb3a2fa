//! The output of `--gpus` as text.

use std::fmt::Write as _;

use crate::model::gpu::listing::Listing;
use crate::quote;

/// The GPUs and their figures, with a newline at the end.
pub(crate) fn gpu_list(listing: &Listing) -> String {
    let mut text = String::new();
    let mut line = |level: usize, label: &str, value: &str| {
        let line = format!("{:indent$}{label}: {}", "", quote::escape(value), indent = level * 3);
        let _infallible = writeln!(text, "{}", line.trim_end());
    };
    let why: Vec<String> =
        listing.drivers.iter().map(|driver| format!("{}: {}", driver.name, driver.reason)).collect();
    let count = match (listing.count, listing.gpus.len()) {
        (Some(count), _) => count.to_string(),
        (None, 0) => format!("not known ({})", why.join("; ")),
        (None, known) => format!("{known} and perhaps more ({})", why.join("; ")),
    };
    line(0, "GPUs", &count);
    for warning in &listing.warnings {
        line(1, "Warning", warning);
    }
    for gpu in &listing.gpus {
        let device = &gpu.device;
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "n/a".into());
        line(0, &device.id, &known(&device.name));
        if let Some(parent) = &device.parent {
            line(1, "Part of", parent);
        }
        line(1, "PCI address", &known(&device.pci_address));
        let gigabytes = device.memory_bytes.map(|bytes| format!("{:.3} gigabytes", bytes as f64 / 1e9));
        line(1, "Memory", &known(&gigabytes));
        line(1, "Driver", &known(&device.driver_version));
        line(1, "Runtime", &known(&device.runtime_version));
        line(1, "Source", &device.source);
        line(1, "Tracked", if gpu.tracked { "yes" } else { "no (left out by the options)" });
        let visible = match gpu.visible {
            Some(true) => "yes",
            Some(false) => "no",
            None => "the environment names no GPUs",
        };
        line(1, "Visible to a command", visible);
        line(1, "Figures", "");
        for figure in &gpu.figures {
            let answer = match &figure.reason {
                Some(reason) => format!("n/a ({reason})"),
                None => "yes".to_owned(),
            };
            line(2, &figure.figure, &answer);
        }
    }
    text
}
