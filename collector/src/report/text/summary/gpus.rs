//! GPUs: a line for each that was used, as far as there is room.

use super::super::look::{Tone, left};
use super::context::{Context, FIGURE, LABEL};
use crate::model::report::GpuDevice;
use crate::report::figures::short;
use crate::report::quote;

/// Most lines of used GPUs.
const MOST: usize = 4;

pub(super) fn gpus(context: &Context) -> Vec<String> {
    let gpus = &context.report.gpus;
    let used: Vec<&GpuDevice> =
        gpus.iter().filter(|gpu| gpu.used == Some(true) || gpu.lost_at_s.is_some()).collect();
    let shown = if used.len() > MOST { MOST - 1 } else { used.len() };
    let (single, others) = used.split_at(shown);
    let mut lines: Vec<_> = single.iter().map(|gpu| one(context, gpu)).collect();
    if !others.is_empty() {
        lines.push(context.row(&format!("{} more GPUs", others.len()), &several(context, others)));
    }
    lines.extend(idle(context));
    lines
}

fn one(context: &Context, gpu: &GpuDevice) -> String {
    let Context { units, look, .. } = context;
    let mut facts = vec![memory(context, &[gpu])];
    facts.push(gpu.power.mean_w.map(|watts| power(context, watts, &[gpu])));
    facts.push(gpu.power.energy_j.map(energy));
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    let text = left(&busy(gpu.utilization.mean_percent), FIGURE) + &facts.join(", ");
    let Some(at_s) = gpu.lost_at_s else { return context.row(&label(context, gpu), &text) };
    let lost = left(&format!("lost at {} ", units.seconds(at_s)), FIGURE);
    let rest = quote::cut(&text, context.room().saturating_sub(lost.len()));
    context.painted_row(&label(context, gpu), &(look.paint(Tone::Bad, &lost) + &rest))
}

/// Of several, the mean of their use and the sums of their memory and energy.
fn several(context: &Context, gpus: &[&GpuDevice]) -> String {
    let sum = |of: fn(&GpuDevice) -> Option<f64>| gpus.iter().map(|gpu| of(gpu)).sum::<Option<f64>>();
    let mean = sum(|gpu| gpu.utilization.mean_percent).map(|sum| sum / gpus.len() as f64);
    let watts = sum(|gpu| gpu.power.mean_w).map(|watts| power(context, watts, gpus));
    let facts = [memory(context, gpus), watts, sum(|gpu| gpu.power.energy_j).map(energy)];
    left(&busy(mean), FIGURE) + &facts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn busy(percent: Option<f64>) -> String {
    percent.map(|percent| format!("{percent:.0} % busy")).unwrap_or_default()
}

/// Memory that the command held, of what there is; where the driver does not tell processes apart, that of all users.
fn memory(context: &Context, gpus: &[&GpuDevice]) -> Option<String> {
    let unit = context.units.gpu_ram;
    let amount = |bytes: u64| short(unit.convert(bytes as f64));
    let sum = |of: fn(&GpuDevice) -> Option<u64>| gpus.iter().map(|gpu| of(gpu)).sum::<Option<u64>>();
    let own = sum(|gpu| gpu.memory.max_combined_bytes);
    let (held, whose) = match own {
        Some(own) => (own, ""),
        None => (sum(|gpu| gpu.memory.max_used_bytes)?, " by all users"),
    };
    let of = sum(|gpu| gpu.memory.total_bytes).map(|total| format!(" of {}", amount(total)));
    Some(format!("{}{} {}{whose}", amount(held), of.unwrap_or_default(), unit.symbol()))
}

/// Mean power, with its time where that is not the time of the energy: the readings may be few.
fn power(context: &Context, watts: f64, gpus: &[&GpuDevice]) -> String {
    let mean = format!("{} W mean", short(watts));
    let is_counted = |gpu: &&&GpuDevice| gpu.power.mean_span_s == gpu.power.energy_span_s;
    let others = gpus.iter().filter(|gpu| !is_counted(gpu));
    match others.filter_map(|gpu| gpu.power.mean_span_s).reduce(f64::min) {
        Some(span_s) => format!("{mean} of {}", context.units.seconds(span_s)),
        None => mean,
    }
}

fn energy(joules: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e6, "MJ"), (1e3, "kJ"), (1.0, "J")];
    let (size, symbol) = UNITS.into_iter().find(|(size, _)| joules >= *size).unwrap_or((1.0, "J"));
    format!("{} {symbol}", short(joules / size))
}

/// `GPU 0 H100`
fn label(context: &Context, gpu: &GpuDevice) -> String {
    let number = gpu.index.map_or_else(|| gpu.id.clone(), |index| index.to_string());
    let name = gpu.name.as_deref().map(model).unwrap_or_default();
    quote::cut(&context.look.text(format!("GPU {number} {name}").trim()), LABEL - 1)
}

/// The model in a product name: "NVIDIA A100-SXM4-80GB" is an A100.
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

/// GPUs that the command may use and did not.
fn idle(context: &Context) -> Option<String> {
    let given = || context.report.gpus.iter().filter(|gpu| gpu.visible == Some(true));
    let idle = given().filter(|gpu| gpu.used == Some(false) && gpu.lost_at_s.is_none()).count();
    (idle > 0).then(|| {
        let text = format!("{idle} of {} that the command may use", given().count());
        let text = quote::cut(&text, context.room());
        context.painted_row("GPUs not used", &context.look.paint(Tone::Caution, &text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn energy_has_a_unit_that_fits() {
        assert_eq!([0.0, 12.0, 38_100.0, 3_046_065.0].map(energy), ["0 J", "12.0 J", "38.1 kJ", "3.05 MJ"]);
    }
}
