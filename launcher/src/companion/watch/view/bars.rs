//! The title, and bars of what the run uses against what it may use.

use gpu_track_collector::model::gpu::gpu_figure::GpuFigure;
use gpu_track_collector::model::sorting::Sorting;
use gpu_track_collector::model::time_groups::{ByTimeGroup, TimeGroup};
use gpu_track_collector::report::{figures, quote};

use super::canvas::{Canvas, Look};
use super::text::{UNKNOWN, cores, percent, some_bytes};
use crate::companion::watch::frame::{Frame, Stage};
use crate::companion::watch::gpus::gpu_sums;
use crate::companion::watch::model::Model;

/// Columns of a bar's name.
const NAME_WIDTH: usize = 8;
/// Columns of a bar, where its figures leave so many.
const BAR_WIDTH: usize = 24;
/// Columns of a bar at least.
const MIN_BAR_WIDTH: usize = 4;

/// Writes the title: the command, and how far the run is.
pub(super) fn title(model: &Model, canvas: &mut Canvas<'_>) {
    let Frame { at_s, stage, .. } = &model.frame;
    let time = figures::readable(*at_s);
    let (told, look) = match stage {
        Stage::Starting => ("no sample yet".into(), Look::Plain),
        Stage::Running => (format!("runs for {time}"), Look::Plain),
        Stage::Silent(s) => (format!("no sample for {}", figures::readable(*s)), Look::Bad),
        Stage::Ended => (format!("ended after {time}; its report has the final figures"), Look::Bad),
        Stage::Killed => ("killed: gpu-track recover writes its report".into(), Look::Bad),
        Stage::Replayed => {
            let length = figures::readable(model.run.length_s.unwrap_or(0.0));
            (format!("at {time} of {length}"), Look::Plain)
        }
    };
    let mut parts = vec![told];
    if model.is_frozen {
        parts.push("frozen".into());
    }
    match model.run.restarts {
        0 => {}
        1 => parts.push("a collector was killed".into()),
        restarts => parts.push(format!("{restarts} collectors were killed")),
    }
    let told = parts.join(", ");
    let room = canvas.width().saturating_sub(quote::width(&told) + 2);
    let command = match model.run.command.is_empty() {
        true => UNKNOWN.into(),
        false => quote::words(&model.run.command),
    };
    let command = match model.run.launcher_pid {
        Some(pid) => format!("[{pid}] {command}"),
        None => command,
    };
    canvas.pieces(&[(quote::cut(&command, room), Look::Head), ("  ".into(), Look::Plain), (told, look)]);
}

/// A bar of a quantity. All its values have one unit.
struct Bar {
    name: &'static str,
    /// What is used now. `None`: not known.
    now: Option<f64>,
    /// The most that was used. `None`: not known.
    peak: Option<f64>,
    /// What may be used. `None`: not known.
    limit: Option<f64>,
    /// The figures as text.
    told: String,
}

/// Draws the bars, one a line, all as long as the longest figures leave room for.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let has_gpus = !model.frame.gpus.is_empty();
    let of_gpus = has_gpus.then(|| [gpu(model), gpu_memory(model)]).into_iter().flatten();
    let bars: Vec<Bar> = [cpu(model), ram(model)].into_iter().chain(of_gpus).chain([time(model)]).collect();
    let longest = bars.iter().map(|bar| quote::width(&bar.told)).max().unwrap_or(0);
    // The brackets, and the blank after them.
    let room = canvas.width().saturating_sub(NAME_WIDTH + 3 + longest);
    let width = room.clamp(MIN_BAR_WIDTH, BAR_WIDTH);
    for (at, bar) in bars.into_iter().enumerate() {
        // Below CPU stands what the run does beside computing.
        if at == 1 {
            states(model, canvas);
        }
        let drawn = drawn(&bar, width, canvas.is_unicode());
        canvas.pieces(&[
            (format!("{:<NAME_WIDTH$}", bar.name), Look::Head),
            (drawn, Look::Command(0)),
            (format!(" {}", bar.told), Look::Plain),
        ]);
    }
}

/// Writes what the run does, the most frequent first. Nothing, if that is not known.
fn states(model: &Model, canvas: &mut Canvas<'_>) {
    let Some(told) = model.frame.time_percent.as_ref().map(told_states) else { return };
    let room = canvas.width().saturating_sub(NAME_WIDTH);
    canvas
        .pieces(&[(format!("{:<NAME_WIDTH$}", "Doing"), Look::Head), (quote::cut(&told, room), Look::Plain)]);
}

/// Says how the time is spent, such as `computing 62%, storage 30%`.
fn told_states(time_percent: &ByTimeGroup<f64>) -> String {
    /// Smaller parts are not said.
    const LEAST_PERCENT: f64 = 1.0;
    let mut parts: Vec<(f64, TimeGroup)> =
        TimeGroup::ALL.map(|group| (*time_percent.of(group), group)).into();
    parts.retain(|(percent, _)| *percent >= LEAST_PERCENT);
    parts.order_by(|(a, _), (b, _)| b.total_cmp(a));
    let parts: Vec<String> =
        parts.into_iter().map(|(percent, group)| format!("{} {percent:.0}%", group.label())).collect();
    parts.join(", ")
}

/// Makes the text of a bar: filled up to the value now, with a mark at a higher peak. Without a limit the bar is empty.
fn drawn(bar: &Bar, width: usize, is_unicode: bool) -> String {
    // How many cells a bar of this value fills. `None`: the value or the limit is not known.
    let cells = |value: Option<f64>| {
        let part = value? / bar.limit.filter(|limit| *limit > 0.0)?;
        part.is_finite().then(|| (part.clamp(0.0, 1.0) * width as f64).round() as usize)
    };
    let filled = cells(bar.now).unwrap_or(0);
    // The mark is in the last cell that the peak fills.
    let mark_at = cells(bar.peak).map(|cells| cells.saturating_sub(1));
    let (fill, mark) = if is_unicode { ('█', '│') } else { ('#', '|') };
    let cell = |at: usize| {
        if at < filled {
            fill
        } else if Some(at) == mark_at {
            mark
        } else {
            ' '
        }
    };
    format!("[{}]", (0..width).map(cell).collect::<String>())
}

/// Makes the bar of CPU utilization, in cores, against the cores that the command may use.
fn cpu(model: &Model) -> Bar {
    let limit = model.run.usable.as_ref().map(|usable| usable.cores.count).filter(|count| *count > 0.0);
    let (now, peak) = (model.frame.cpu_percent, model.peaks.cpu_percent);
    let usable = limit.map_or(UNKNOWN.into(), figures::short);
    let told = format!("{} of {usable} cores  peak {}{}", cores(now), cores(peak), peak_note(model));
    let in_cores = |percent: Option<f64>| percent.map(|percent| percent / 100.0);
    Bar { name: "CPU", now: in_cores(now), peak: in_cores(peak), limit, told }
}

/// What stands after a peak. In a finished run it is nothing, because the peak is that of the whole run; else the peak is of what
/// this program saw.
fn peak_note(model: &Model) -> &'static str {
    if model.run.length_s.is_some() { "" } else { " seen" }
}

/// Makes the bar of RAM against the memory that the command may use.
fn ram(model: &Model) -> Bar {
    let limit = model.run.usable.as_ref().and_then(|usable| usable.memory.bytes);
    let Frame { ram_bytes, max_ram_bytes, .. } = model.frame;
    let shown = |value| some_bytes(value, model.unit);
    let told = format!("{} of {}  peak {}", shown(ram_bytes), shown(limit), shown(max_ram_bytes));
    let number = |value: Option<u64>| value.map(|bytes| bytes as f64);
    Bar { name: "RAM", now: number(ram_bytes), peak: number(max_ram_bytes), limit: number(limit), told }
}

/// Makes the bar of the GPUs' utilization, percent, against all GPUs.
fn gpu(model: &Model) -> Bar {
    let sums = gpu_sums(&model.frame.gpus);
    let (now, peak) = (sums.figures[GpuFigure::Utilization], model.peaks.gpu_busy_percent);
    let limit = (sums.count > 0).then_some(sums.count as f64 * 100.0);
    let whole = limit.unwrap_or(0.0);
    let told = format!("{} of {whole:.0}%  peak {}{}", percent(now), percent(peak), peak_note(model));
    Bar { name: "GPU", now, peak, limit, told }
}

/// Makes the bar of the run's GPU memory against that of all GPUs.
fn gpu_memory(model: &Model) -> Bar {
    let sums = gpu_sums(&model.frame.gpus);
    let (now, peak, limit) = (sums.run_bytes(), model.peaks.gpu_run_bytes, sums.total_bytes);
    let shown = |value| some_bytes(value, model.unit);
    let told = format!("{} of {}  peak {}{}", shown(now), shown(limit), shown(peak), peak_note(model));
    let number = |value: Option<u64>| value.map(|bytes| bytes as f64);
    Bar { name: "GPU mem", now: number(now), peak: number(peak), limit: number(limit), told }
}

/// Makes the bar of the time so far against the end of the batch job, else against the length of a finished run.
fn time(model: &Model) -> Bar {
    let limit = model.run.job_end_s.or(model.run.length_s);
    let now = figures::readable(model.frame.at_s);
    let told = match (model.run.job_end_s, model.run.length_s) {
        (Some(job_end), _) => format!("{now} of {} (job)", figures::readable(job_end)),
        (None, Some(length)) => format!("{now} of {}", figures::readable(length)),
        (None, None) => format!("{now}, no limit known"),
    };
    Bar { name: "Time", now: Some(model.frame.at_s), peak: None, limit, told }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(now: Option<f64>, peak: Option<f64>, limit: Option<f64>) -> String {
        drawn(&Bar { name: "", now, peak, limit, told: String::new() }, BAR_WIDTH, false)
    }

    // Requirement: SLOW-13
    #[test]
    fn states_are_said_by_their_parts_of_the_time() {
        let time_percent = ByTimeGroup {
            computing: 30.4,
            storage: 62.0,
            network: 0.6,
            other: 7.0,
            ..ByTimeGroup::default()
        };
        assert_eq!(told_states(&time_percent), "storage 62%, computing 30%, other waits 7%");
    }

    #[test]
    fn bar_is_filled_up_to_now_and_its_peak_is_marked() {
        assert_eq!(shown(Some(50.0), Some(75.0), Some(100.0)), "[############     |      ]");
        assert_eq!(shown(Some(75.0), Some(75.0), Some(100.0)), "[##################      ]");
        assert_eq!(shown(Some(900.0), Some(f64::NAN), Some(100.0)), format!("[{}]", "#".repeat(24)));
        let empty = format!("[{}]", " ".repeat(24));
        for (now, limit) in
            [(None, Some(1.0)), (Some(5.0), None), (Some(5.0), Some(0.0)), (Some(-5.0), Some(1.0))]
        {
            assert_eq!(shown(now, None, limit), empty);
        }
    }
}
