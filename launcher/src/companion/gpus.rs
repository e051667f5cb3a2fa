//! `gpu-track gpus`: what the GPUs of this machine show now, in our forms or by nvidia-smi's options.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use gpu_track_collector::model::gpu::listing::{Driver, GpuNow, Listed, Listing};
use gpu_track_collector::model::gpu::{Device, Figure, GpuConfig, Missing, select};
use gpu_track_collector::model::gpu_query::{Query, whole};
use gpu_track_collector::model::gpu_trace::CsvStyle;
use gpu_track_collector::report::format;

use crate::cli::{self, GpuArgs, Time, UsageError, gpu_query};
use crate::companion::gpu_list;
use crate::{console, nvml_lib};

/// nvidia-smi's exit statuses for a driver that can't be used, and for a machine without GPUs.
const NO_DRIVER: u8 = 9;
const NO_GPU: u8 = 6;
/// Time between two listings of which only the second is shown: that of nvidia-smi's pmon.
const BETWEEN_LISTINGS: Duration = Duration::from_secs(1);

/// The arguments of `gpu-track gpus`.
#[derive(Debug, Args)]
pub(super) struct GpusArguments {
    /// Show them again every TIME, until Ctrl-C
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = cli::interval)]
    every: Option<Duration>,

    /// Format: text, line (one a GPU), json (an object a line), openmetrics, gpustat (the keys of gpustat --json), dmon or pmon (the columns of
    /// nvidia-smi), list (-L). Of a query: csv[,noheader][,nounits]
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<String>,

    /// Write a line for each GPU, as nvidia-smi does. Of its fields that are not read here, the value is [N/A]
    #[arg(long, value_name = "FIELD,FIELD", value_parser = gpu_query::gpus, conflicts_with = "query_compute_apps")]
    query_gpu: Option<Query>,

    /// Write a line for each process that computes: pid, process_name, used_memory, gpu_uuid, gpu_name, gpu_bus_id, gpu_serial, timestamp
    #[arg(long, value_name = "FIELD,FIELD", value_parser = gpu_query::compute_apps)]
    query_compute_apps: Option<Query>,

    /// Write a line for each GPU and MIG instance with its UUID, as nvidia-smi does
    #[arg(short = 'L', long = "list-gpus", conflicts_with_all = ["format", "query_gpu", "query_compute_apps"])]
    is_list: bool,

    /// Only these GPUs: indices, UUIDs or PCI addresses
    #[arg(short = 'i', long = "id", value_name = "ID,ID", value_delimiter = ',')]
    ids: Vec<String>,

    /// As --every, as nvidia-smi has it: 5 seconds if no number is given
    #[arg(short = 'l', long = "loop", value_name = "SECONDS", num_args = 0..=1, default_missing_value = "5",
          conflicts_with_all = ["every", "loop_ms"], value_parser = |given: &str| Time::Interval.parse(given))]
    seconds: Option<Duration>,

    /// The same in milliseconds; also -lms
    #[arg(long, value_name = "MS", conflicts_with = "every",
          value_parser = |given: &str| Time::Interval.parse(&format!("{given}ms")))]
    loop_ms: Option<Duration>,

    #[command(flatten)]
    gpu: GpuArgs,
}

/// What is written.
enum Form {
    /// One of our forms, by its name.
    Named(String),
    /// The answer to a query.
    Csv(Query, CsvStyle),
}

impl Form {
    /// Whether the form has a place for drivers that could not be read, and for warnings.
    fn has_problems(&self) -> bool {
        matches!(self, Self::Named(name) if !format::FORMS_OF_OTHERS.contains(&name.as_str()))
    }

    /// Whether the form is a list of processes, which is empty if they are not known.
    fn lists_processes(&self) -> bool {
        match self {
            Self::Named(name) => name == format::PMON_NAME,
            Self::Csv(query, _) => matches!(query, Query::ComputeApps(_)),
        }
    }

    /// The exit status for a listing: in nvidia-smi's forms that of nvidia-smi.
    fn status(&self, listing: &Listing) -> ExitCode {
        match listing.count {
            None if self.has_problems() => ExitCode::FAILURE,
            None => NO_DRIVER.into(),
            Some(_) if listing.gpus.is_empty() && !self.has_problems() => NO_GPU.into(),
            Some(_) => ExitCode::SUCCESS,
        }
    }

    /// Renders a listing. `count`: how many GPUs the machine has; `None`: not known. `is_first`: it is the first one that is shown.
    fn render(&self, listing: &Listing, count: Option<usize>, is_first: bool) -> String {
        match self {
            Self::Named(name) => {
                let shown = format::Shown { is_first, console: console::of_stdout() };
                format::render_gpus_now(listing, name, shown)
            }
            Self::Csv(query, style) => {
                let head = (is_first && !style.no_header).then(|| query.header());
                let lines = head.into_iter().chain(query.lines(listing, count, *style));
                lines.map(|line| line + "\n").collect()
            }
        }
    }
}

/// Turns nvidia-smi's `-lms`, which is no short option for clap, into `--loop-ms`, among the words of `gpu-track gpus`.
pub(super) fn with_long_options(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_none_or(|word| word != "gpus") {
        return args;
    }
    for word in &mut args[2..] {
        if let Some(rest) = word.to_str().and_then(|text| text.strip_prefix("-lms")) {
            *word = format!("--loop-ms{rest}").into();
        }
    }
    args
}

/// Shows the GPUs. The status is 1 if they can't be listed, or a driver can't be read, so that their number is unknown. In nvidia-smi's
/// forms it is then 9, and 6 without a GPU, as that of nvidia-smi.
///
/// # Errors
/// If the format does not belong to what is asked for.
pub(super) fn serve(arguments: GpusArguments) -> Result<ExitCode, UsageError> {
    let form = form(&arguments)?;
    let mut warnings = Vec::new();
    let config = nvml_lib::with_environment(&arguments.gpu.into(), &mut warnings);
    warnings.extend(gpu_list::check_selected(&config)?);
    if let Form::Csv(query, _) = &form {
        warnings.extend(query.warning());
    }
    warnings.iter().for_each(console::message);
    let every = arguments.every.or(arguments.seconds).or(arguments.loop_ms);
    Ok(show(&config, &form, &arguments.ids, every))
}

/// Finds the form that is asked for.
fn form(arguments: &GpusArguments) -> Result<Form, UsageError> {
    let refused = |problem: &dyn std::fmt::Display| UsageError::of_option("--format", problem);
    let given = arguments.format.as_deref();
    if let Some(query) = arguments.query_gpu.clone().or_else(|| arguments.query_compute_apps.clone()) {
        let style = gpu_query::csv_style(given.unwrap_or("csv")).map_err(|error| refused(&error))?;
        return Ok(Form::Csv(query, style));
    }
    let given = given.unwrap_or(if arguments.is_list { format::LIST_NAME } else { format::TEXT_NAME });
    if given.split(',').any(|word| word == "csv") {
        return Err(refused(&"csv is the form of --query-gpu and --query-compute-apps: give one of them"));
    }
    let names: Vec<&str> = format::names_of_gpus_now().collect();
    if !names.contains(&given) {
        return Err(refused(&format_args!("\"{given}\" is not allowed: one of {}", names.join(", "))));
    }
    Ok(Form::Named(given.to_owned()))
}

/// Shows the GPUs in this form, once or again and again. `ids`: only these; empty: all.
fn show(config: &GpuConfig, form: &Form, ids: &[String], every: Option<Duration>) -> ExitCode {
    let mut status = ExitCode::FAILURE;
    // A process's utilization is known from the second listing on.
    let needs_two = matches!(form, Form::Named(name) if name == format::PMON_NAME);
    let (mut unshown, mut is_first) = (u32::from(needs_two), true);
    let mut told = Vec::new();
    let asked_every = every.or(needs_two.then_some(BETWEEN_LISTINGS));
    let listed = gpu_list::watch(config, asked_every, |mut listing| {
        if unshown > 0 {
            unshown -= 1;
            return ControlFlow::Continue(());
        }
        if !form.has_problems() {
            tell(problems(&listing), &mut told);
        }
        let has_gpus = !listing.gpus.is_empty();
        // All GPUs of the machine count, whichever are shown.
        let count = listing.count.map(|_| whole(&listing).len());
        if let Some(problem) = keep_chosen(&mut listing, config, ids) {
            // Without its driver, a GPU may be there and not be listed.
            if count.is_some() {
                let failed = console::failure(problem);
                return ControlFlow::Break(if form.has_problems() { failed } else { NO_GPU.into() });
            }
            listing.gpus.clear();
        }
        status = form.status(&listing);
        if has_gpus && listing.gpus.is_empty() {
            tell(vec!["the options and the environment choose none of the GPUs".to_owned()], &mut told);
        }
        if form.lists_processes() {
            tell(unlisted(&listing), &mut told);
        }
        let text = form.render(&listing, count, is_first);
        is_first = false;
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) if every.is_none() && needs_two => ControlFlow::Break(status),
            Ok(()) => ControlFlow::Continue(()),
            // The reader has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ControlFlow::Break(status),
            Err(error) => {
                ControlFlow::Break(console::failure(format_args!("cannot write to stdout: {error}")))
            }
        }
    });
    match listed {
        Err(error) => gpu_list::cannot_list(&error),
        Ok(ControlFlow::Break(status)) => status,
        Ok(ControlFlow::Continue(())) => status,
    }
}

/// Says these problems on stderr, each once. `told`: what was said before.
fn tell(problems: Vec<String>, told: &mut Vec<String>) {
    for problem in problems {
        if !told.contains(&problem) {
            console::message(&problem);
            told.push(problem);
        }
    }
}

/// Which drivers could not be read, and what else is wrong.
fn problems(listing: &Listing) -> Vec<String> {
    let drivers = listing.drivers.iter().map(Driver::to_string);
    let none = (listing.count == Some(0)).then(|| "no GPU was found".to_owned());
    drivers.chain(listing.warnings.iter().cloned()).chain(none).collect()
}

/// A line for each GPU whose processes are not known, with the reason. Processes of a divided GPU are on its instances.
fn unlisted(listing: &Listing) -> Vec<String> {
    let is_whole = |gpu: &&Listed| gpu.device.is_divided != Some(true);
    let line = |gpu: &Listed| {
        let name = gpu.device.index.map_or_else(|| gpu.device.id.clone(), |index| index.to_string());
        let figure = gpu.figures.iter().find(|known| known.figure == Figure::ProcessMemory.name());
        let reason = figure.and_then(|figure| figure.reason.as_deref());
        let reason = reason.filter(|_| gpu.now.processes.is_none())?;
        // A figure that was not read yet counts as not supported. If the driver hangs, nothing was read, and that problem was told.
        if gpu.now == GpuNow::default() && reason == Missing::NotSupported.to_string() {
            return None;
        }
        Some(format!("the processes on GPU {name} are not known: {reason}"))
    };
    listing.gpus.iter().filter(is_whole).filter_map(line).collect()
}

/// Keeps the GPUs of a listing that `--guuids`, `--visible` and `-i` choose. `ids`: the names of `-i`. Returns what is wrong if one of
/// the names means no GPU.
fn keep_chosen(listing: &mut Listing, config: &GpuConfig, ids: &[String]) -> Option<String> {
    let devices: Vec<Device> = listing.gpus.iter().map(|gpu| gpu.device.clone()).collect();
    let problem = |option: &str, name: &String| format!("{option}: no GPU is called \"{name}\"");
    if let Some(unknown) = config.uuids.as_ref().and_then(|uuids| select::unknown(uuids, &devices)) {
        return Some(problem("--guuids", unknown));
    }
    listing.gpus.retain(|gpu| gpu.tracked);
    keep(listing, ids).map(|unknown| problem("-i", unknown))
}

/// Keeps the GPUs of a listing that have one of these names, and their instances; all if there is no name. Returns a name that no GPU
/// has.
fn keep<'a>(listing: &mut Listing, ids: &'a [String]) -> Option<&'a String> {
    if ids.is_empty() {
        return None;
    }
    let is_unknown = |id: &&String| !listing.gpus.iter().any(|gpu| select::is_called(id, &gpu.device));
    if let Some(missing) = ids.iter().find(is_unknown) {
        return Some(missing);
    }
    let devices = listing.gpus.iter().map(|gpu| &gpu.device);
    let named = devices.filter(|device| ids.iter().any(|name| select::is_called(name, device)));
    let named: Vec<String> = named.map(|device| device.id.clone()).collect();
    listing.gpus.retain(|gpu| {
        [Some(&gpu.device.id), gpu.device.parent.as_ref()].into_iter().flatten().any(|id| named.contains(id))
    });
    None
}

#[cfg(test)]
mod tests {
    use gpu_track_collector::model::gpu::listing::Capability;

    use super::*;

    /// A GPU of which the processes are known if there is no reason why they are not.
    fn gpu(device: Device, reason: Option<&str>) -> Listed {
        let capability = Capability {
            figure: Figure::ProcessMemory.name().to_owned(),
            available: reason.is_none(),
            reason: reason.map(str::to_owned),
        };
        let now = GpuNow { processes: reason.is_none().then(Vec::new), ..GpuNow::default() };
        Listed { device, tracked: true, visible: None, figures: vec![capability], now }
    }

    // Requirement: GPU-9
    #[test]
    fn only_gpus_that_are_chosen_are_shown() {
        let gpu = |id: &str, tracked| {
            let device = Device { id: id.into(), ..Device::default() };
            Listed { tracked, ..gpu(device, None) }
        };
        let listed = |uuids: Option<&str>, ids: &[&str]| {
            let config = GpuConfig { uuids: uuids.map(|uuid| vec![uuid.into()]), ..GpuConfig::default() };
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            let gpus = vec![gpu("GPU-aa", false), gpu("GPU-bb", true)];
            let mut listing = Listing { count: Some(2), gpus, ..Listing::default() };
            let problem = keep_chosen(&mut listing, &config, &ids);
            problem.map_or_else(|| Ok((listing.gpus[0].device.id.clone(), listing.gpus.len())), Err)
        };
        let chosen = Ok(("GPU-bb".to_owned(), 1));
        assert_eq!(listed(Some("GPU-b"), &[]), chosen);
        assert_eq!(listed(None, &["GPU-bb"]), chosen, "--visible");
        assert_eq!(listed(Some("GPU-c"), &[]), Err("--guuids: no GPU is called \"GPU-c\"".into()));
        assert_eq!(listed(None, &["GPU-aa"]), Err("-i: no GPU is called \"GPU-aa\"".into()));
    }

    // Requirement: GPU-80, GPU-81
    #[test]
    fn gpus_whose_processes_are_not_known_are_told() {
        let device = |index| Device { id: "GPU-a".into(), index, ..Device::default() };
        let divided = Device { is_divided: Some(true), ..device(Some(2)) };
        let refused = Some("no permission");
        let gpus = vec![
            gpu(device(Some(0)), None),
            gpu(device(Some(1)), refused),
            gpu(divided, refused),
            gpu(Device { id: "MIG-b".into(), ..device(None) }, refused),
            gpu(device(Some(4)), Some("not supported by this device")),
        ];
        let told = unlisted(&Listing { gpus, ..Listing::default() });
        assert_eq!(
            told,
            [
                "the processes on GPU 1 are not known: no permission",
                "the processes on GPU MIG-b are not known: no permission"
            ]
        );
    }
}
