//! `--alert`, `--events` and `--on-alert`: the alerts that the user sets, the file of events, and the command that runs at an alert.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueHint};
use gpu_track_collector::{Alert, AlertQuantity, Alerts, Threshold};

use super::values::{MOST_LIMITS, ValueError, allowed_time, bytes, memory, named, percent};

/// An alert of more bytes is refused: an order that repeats it has to fit a line.
const LONGEST: usize = 64;
/// The alerts that `default` stands for.
const DEFAULT: [&str; 4] = ["ram>80%", "ram>95%", "gpu_ram>80%", "gpu_ram>95%"];

/// The options of alerts and events.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Alerts")]
pub(super) struct AlertArgs {
    /// Say on stderr when a figure is too large for 1 s, and when it is not any more: ram>80% and gpu_ram>80% (or 8G), cpu>90%, disk<10G
    /// (free), gpu_idle>5m, growth (memory that rises all the time). "default": 80% and 95% of RAM and GPU RAM. The command is not ended
    #[arg(long = "alert", value_name = "NAME>VALUE,...", action = ArgAction::Append, value_parser = alerts)]
    alerts: Vec<List>,

    /// Write what happens in the run to FILE, a line of JSON for each event: start, alerts on and off, limits, steps of memory, RAM peak,
    /// errors of --on-alert, stop
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    events: Option<PathBuf>,

    /// Run CMD (/bin/sh -c) when an alert goes on or off: one at a time, for 30 s at most, beside the tracked processes. GPU_TRACK_EVENT,
    /// GPU_TRACK_ALERT, GPU_TRACK_MESSAGE and others in its environment say what happened
    #[arg(long, value_name = "CMD", requires = "alerts", value_hint = ValueHint::CommandString)]
    on_alert: Option<OsString>,
}

/// The alerts of one value. clap's derive sees `Vec<List>`; it treats a field that is written as a `Vec` of `Vec` in another way.
type List = Vec<Alert>;

impl From<AlertArgs> for (Alerts, Option<PathBuf>, Option<OsString>) {
    /// Gives the alerts, the file of `--events`, and CMD. An alert that is given twice counts once.
    fn from(args: AlertArgs) -> Self {
        let mut list = List::new();
        for alert in args.alerts.into_iter().flatten() {
            if !list.contains(&alert) {
                list.push(alert);
            }
        }
        let run_a_command = args.on_alert.is_some();
        // `make_tracking_files` sets `events_file` when it has made the file.
        (Alerts { list, events_file: None, run_a_command }, args.events, args.on_alert)
    }
}

/// Parses a list of alerts with commas between them. `default` stands for several.
fn alerts(given: &str) -> Result<List, ValueError> {
    let parts: Vec<&str> = given.split(',').map(str::trim).collect();
    if parts.len() > MOST_LIMITS {
        return Err(ValueError::TooManyLimits);
    }
    let mut list = List::new();
    for part in parts {
        if part == "default" {
            for words in DEFAULT {
                list.push(alert(words)?);
            }
        } else {
            list.push(alert(part)?);
        }
    }
    Ok(list)
}

/// Parses `NAME>VALUE`, `disk<VALUE` or `growth`.
fn alert(given: &str) -> Result<Alert, ValueError> {
    let problem = || ValueError::Alert(given.to_owned());
    if given.len() > LONGEST {
        return Err(problem());
    }
    let begin = given.find(['>', '<']).unwrap_or(given.len());
    let (name, rest) = given.split_at(begin);
    let quantity = named(name, &AlertQuantity::ALL, AlertQuantity::name).map_err(|_| problem())?;
    let sign = if quantity.warns_below() { '<' } else { '>' };
    // Growth has no sign and no value.
    let value = match quantity {
        AlertQuantity::Growth => rest.is_empty().then_some(rest),
        _ => rest.strip_prefix(sign),
    };
    let value = value.ok_or_else(problem)?;
    let threshold = match quantity {
        AlertQuantity::Growth => None,
        AlertQuantity::Ram | AlertQuantity::GpuRam => Some(memory(value)?),
        AlertQuantity::Disk => Some(Threshold::Amount(bytes(value)?)),
        AlertQuantity::GpuIdle => Some(allowed_time(value)?),
        AlertQuantity::Cpu => {
            let percent = value.strip_suffix('%').and_then(percent);
            let percent = percent.ok_or_else(|| ValueError::PartOfCores(value.to_owned()))?;
            Some(Threshold::Percent(percent))
        }
    };
    Ok(Alert { words: given.to_owned(), quantity, threshold })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: ALERT-1
    #[test]
    fn alerts_are_read_in_the_units_of_limits() {
        use AlertQuantity::{Cpu, Disk, GpuIdle, GpuRam, Growth, Ram};
        use Threshold::{Amount, Percent};
        let list = alerts("ram>80%, gpu_ram>8G,cpu>90%,disk<10GB,gpu_idle>5m,growth").unwrap();
        let parsed: Vec<_> = list.into_iter().map(|alert| (alert.quantity, alert.threshold)).collect();
        assert_eq!(
            parsed,
            [
                (Ram, Some(Percent(80.0))),
                (GpuRam, Some(Amount(8 << 30))),
                (Cpu, Some(Percent(90.0))),
                (Disk, Some(Amount(10_000_000_000))),
                (GpuIdle, Some(Amount(300_000_000_000))),
                (Growth, None),
            ]
        );
        let words: Vec<_> = alerts("default").unwrap().into_iter().map(|alert| alert.words).collect();
        assert_eq!(words, DEFAULT);
        let given = vec![alerts("default,ram>80%").unwrap()];
        let given = AlertArgs { alerts: given, events: None, on_alert: Some("mail me".into()) };
        let (alerts, _, on_alert) = given.into();
        assert_eq!(alerts.list.len(), 4, "one that is given twice counts once");
        assert_eq!((alerts.run_a_command, on_alert), (true, Some("mail me".into())));
    }

    // Requirement: ALERT-1
    #[test]
    fn what_is_no_alert_is_refused_in_one_line() {
        let long = format!("ram>{}80%", "0".repeat(LONGEST));
        for wrong in [
            "",
            "ram",
            "ram>",
            "ram=80%",
            "ram<80%",
            "ram>101%",
            "ram>0%",
            "ram>-1G",
            "ram>nan%",
            "disk>1G",
            "disk<10%",
            "cpu>2",
            "cpu>90",
            "cpu>200%",
            "gpu_idle>0",
            "gpu_idle>80%",
            "growth>1M",
            "speed>1",
            "ram>80%,",
            "ram>80%;cpu>90%",
            ">80%",
            &long,
        ] {
            let error = alerts(wrong).unwrap_err().to_string();
            assert!(!error.contains('\n') && error.len() < 300, "{wrong}: {error}");
        }
        assert!(alerts(&vec!["growth"; MOST_LIMITS + 1].join(",")).is_err());
    }
}
