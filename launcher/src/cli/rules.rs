//! `--limit`, `--signal-at` and `--alert`: the ways to write a rule. With them `--events` and `--on-alert`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueHint};
use gpu_track_collector::model::alert::Alerts;
use gpu_track_collector::model::rule::{Quantity, Response, Row, Rule, Threshold, Unit};
use gpu_track_collector::model::run_limit::RunLimits;
use gpu_track_collector::model::signal::signal_number;

use super::values::{LARGEST, MOST_LIMITS, Time, ValueError, allowed_time, bytes, memory, named, percent};

/// Longest text of a limit, bytes: the order to obey the limit has it, and has to fit into a line of its pipe.
const LONGEST_TEXT_BYTES: usize = 100;
/// Longest text of an alert, bytes. Its order has an event, too.
const LONGEST_ALERT_BYTES: usize = 64;
/// Highest number of a signal.
const LAST_SIGNAL: i32 = 64;
/// The alerts that `default` stands for.
const DEFAULT: [&str; 4] = ["ram>80%", "ram>95%", "gpu_ram>80%", "gpu_ram>95%"];

/// What the run may not exceed.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArgs {
    /// End all processes when a limit is exceeded: ram and gpu_ram (8G, 500M, 80%), wall and cpu (90s, 10m, 2h), processes (500), stall
    /// and gpu_idle (10m: no CPU, I/O and GPU use, or no GPU use). As for Slurm, 01:30 is minutes and seconds, 01:30:00 has hours.
    /// Exit status: 124, or 137 where SIGKILL was needed
    #[arg(long = "limit", value_name = "NAME=VALUE,...", action = ArgAction::Append, value_parser = limits)]
    limits: Vec<List>,

    /// Send COMMAND a signal once, when a limit is exceeded: --signal-at 'ram>95%=USR1'
    #[arg(long = "signal-at", value_name = "NAME>VALUE=SIGNAL", action = ArgAction::Append, value_parser = signal_at)]
    signals: Vec<Rule>,

    /// At a limit: the time from SIGTERM to SIGKILL
    #[arg(long, value_name = "TIME", default_value = "10s", allow_negative_numbers = true, value_parser = |given: &str| Time::Any.parse(given))]
    kill_after: Duration,
}

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

/// The rules of one value. With `Vec` in place of this name, clap would take each value for a single rule.
type List = Vec<Rule>;

impl From<LimitArgs> for RunLimits {
    fn from(args: LimitArgs) -> Self {
        let LimitArgs { limits, signals, kill_after } = args;
        Self { list: limits.into_iter().flatten().chain(signals).collect(), kill_after }
    }
}

impl From<AlertArgs> for (Alerts, Option<PathBuf>, Option<OsString>) {
    /// The alerts, the file of `--events`, and CMD. An alert that is given twice counts once.
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

/// Splits a list with commas between its parts.
fn parts(given: &str) -> Result<Vec<&str>, ValueError> {
    let parts: Vec<&str> = given.split(',').map(str::trim).collect();
    if parts.len() > MOST_LIMITS {
        return Err(ValueError(format!("more than {MOST_LIMITS} in one value")));
    }
    Ok(parts)
}

/// Parses a list of limits.
fn limits(given: &str) -> Result<List, ValueError> {
    parts(given)?.into_iter().map(limit).collect()
}

/// Parses `NAME=VALUE`.
fn limit(given: &str) -> Result<Rule, ValueError> {
    let refused =
        |given: &str| ValueError::new(given, "NAME=VALUE, such as ram=8G, wall=1h or processes=500");
    if given.len() > LONGEST_TEXT_BYTES {
        return Err(refused(&shortened(given)));
    }
    let (name, value) = given.split_once('=').ok_or_else(|| refused(given))?;
    rule(given, quantity(name, |row| row.is_limited)?, value, Response::End)
}

/// Parses `NAME>VALUE=SIGNAL`.
fn signal_at(given: &str) -> Result<Rule, ValueError> {
    let refused = |given: &str| ValueError::new(given, "NAME>VALUE=SIGNAL, such as ram>95%=USR1");
    if given.len() > LONGEST_TEXT_BYTES {
        return Err(refused(&shortened(given)));
    }
    let (name, rest) = given.split_once('>').ok_or_else(|| refused(given))?;
    let (value, signal) = rest.rsplit_once('=').ok_or_else(|| refused(given))?;
    rule(given, quantity(name, |row| row.is_limited)?, value, Response::Signal(signal_of(signal)?))
}

/// Parses a list of alerts. `default` stands for several.
fn alerts(given: &str) -> Result<List, ValueError> {
    let mut words = Vec::new();
    for part in parts(given)? {
        if part == "default" { words.extend(DEFAULT) } else { words.push(part) }
    }
    words.into_iter().map(alert).collect()
}

/// Parses `NAME>VALUE`, `disk<VALUE` or `growth`.
fn alert(given: &str) -> Result<Rule, ValueError> {
    let allowed = "ram>80%, gpu_ram>80%, cpu>90%, disk<10G, gpu_idle>5m, growth, or default";
    let refused = || ValueError::new(given, allowed);
    if given.len() > LONGEST_ALERT_BYTES {
        return Err(refused());
    }
    let (name, rest) = given.split_at(given.find(['>', '<']).unwrap_or(given.len()));
    let quantity = self::quantity(name, |row| row.is_alerted).map_err(|_| refused())?;
    let value = match quantity {
        // Growth has no sign and no value.
        Quantity::Growth => rest.is_empty().then_some(rest),
        _ => rest.strip_prefix(if quantity.row().acts_below { '<' } else { '>' }),
    };
    rule(given, quantity, value.ok_or_else(refused)?, Response::Tell)
}

/// Finds the quantity of this name, among those whose row of properties `fits`.
fn quantity(name: &str, fits: fn(Row) -> bool) -> Result<Quantity, ValueError> {
    let all: Vec<_> = Quantity::ALL.into_iter().filter(|quantity| fits(quantity.row())).collect();
    named(name, &all, Quantity::name)
}

/// Makes a rule. `value`: the text of its threshold.
fn rule(given: &str, quantity: Quantity, value: &str, response: Response) -> Result<Rule, ValueError> {
    // An alert of CPU is a percentage, a limit of CPU a time.
    let is_percent = quantity == Quantity::Cpu && response == Response::Tell;
    let threshold = match if is_percent { Unit::Percent } else { quantity.row().unit } {
        _ if quantity == Quantity::Growth => Threshold::Rise,
        // Free space can't be a percentage: the whole is not known.
        Unit::Bytes if quantity.row().acts_below => Threshold::Amount(bytes(value)?),
        Unit::Bytes => memory(value)?,
        Unit::Percent => percent_of_cores(value)?,
        Unit::Seconds => allowed_time(value)?,
        Unit::Processes => match value.parse() {
            // Above LARGEST, an f64, in which figures are compared, can't hold every whole number.
            Ok(count) if count > 0 && count as f64 <= LARGEST => Threshold::Amount(count),
            _ => return Err(ValueError::new(value, "a whole number, at least 1")),
        },
    };
    Ok(Rule { words: given.to_owned(), quantity, threshold, response })
}

/// Parses a percentage of the cores that the run may use.
fn percent_of_cores(value: &str) -> Result<Threshold, ValueError> {
    let allowed = "a percentage of the cores that the run may use, such as 90%";
    let percent = value.strip_suffix('%').and_then(percent);
    percent.map(Threshold::Percent).ok_or_else(|| ValueError::new(value, allowed))
}

/// The option that a rule was given by.
pub(super) fn option_of(rule: &Rule) -> &'static str {
    match rule.response {
        Response::End => "--limit",
        Response::Signal(_) => "--signal-at",
        Response::Tell => "--alert",
    }
}

/// The beginning of a text that is longer than [`LONGEST_TEXT_BYTES`], for a message.
fn shortened(given: &str) -> String {
    format!("{}...", given.chars().take(LONGEST_TEXT_BYTES).collect::<String>())
}

/// Parses the name or number of a signal: `USR1`, `SIGUSR1`, `10`.
fn signal_of(given: &str) -> Result<i32, ValueError> {
    let signal = match given.parse() {
        Ok(number) => Some(number).filter(|number| (1..=LAST_SIGNAL).contains(number)),
        Err(_) => signal_named(given),
    };
    signal.ok_or_else(|| ValueError::new(given, "the name or number of a signal, such as USR1"))
}

/// Parses the name of a signal: `USR1`, `SIGUSR1`. `None`: no signal has it.
fn signal_named(given: &str) -> Option<i32> {
    let name = given.to_ascii_uppercase();
    signal_number(name.strip_prefix("SIG").unwrap_or(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(given: &str) -> Vec<(Quantity, Threshold, Response)> {
        let limits = limits(given).unwrap();
        limits.into_iter().map(|limit| (limit.quantity, limit.threshold, limit.response)).collect()
    }

    // Requirement: LIMIT-1
    #[test]
    fn limits_are_read_in_the_units_of_batch_systems() {
        use Response::{End, Signal};
        use Threshold::{Amount, Percent};
        assert_eq!(
            parsed("ram=8G, gpu_ram=1.5GB,wall=1h,cpu=90s,processes=500"),
            [
                (Quantity::Ram, Amount(8 << 30), End),
                (Quantity::GpuRam, Amount(1_500_000_000), End),
                (Quantity::Wall, Amount(3_600_000_000_000), End),
                (Quantity::Cpu, Amount(90_000_000_000), End),
                (Quantity::Processes, Amount(500), End),
            ]
        );
        assert_eq!(
            parsed("ram=80%,stall=10m,gpu_idle=500ms"),
            [
                (Quantity::Ram, Percent(80.0), End),
                (Quantity::Stall, Amount(600_000_000_000), End),
                (Quantity::GpuIdle, Amount(500_000_000), End),
            ]
        );
        assert_eq!(
            parsed("wall=01:30:00,cpu=1h30m,ram=8g,gpu_ram=8Gi,cpu=01:30,wall=90:00"),
            [
                (Quantity::Wall, Amount(5_400_000_000_000), End),
                (Quantity::Cpu, Amount(5_400_000_000_000), End),
                (Quantity::Ram, Amount(8 << 30), End),
                (Quantity::GpuRam, Amount(8 << 30), End),
                (Quantity::Cpu, Amount(90_000_000_000), End),
                (Quantity::Wall, Amount(5_400_000_000_000), End),
            ]
        );
        assert_eq!(signal_at("ram>1G=12").unwrap().response, Signal(libc::SIGUSR2));
        let at = signal_at("ram>95%=sigterm").unwrap();
        assert_eq!((at.threshold, at.response), (Percent(95.0), Signal(libc::SIGTERM)));
        assert_eq!(at.words, "ram>95%=sigterm");
        let stall = signal_at("stall>10m=USR1").unwrap();
        assert_eq!((stall.threshold, stall.response), (Amount(600_000_000_000), Signal(libc::SIGUSR1)));
        assert_eq!(bytes("1KiB").unwrap() + bytes("1KB").unwrap() + bytes("7").unwrap(), 2031);
    }

    // Requirement: LIMIT-1
    #[test]
    fn what_is_no_limit_is_refused_in_one_line() {
        for wrong in [
            "",
            "ram",
            "ram=",
            "ram=-1",
            "ram=0",
            "ram=8X",
            "ram=1e300",
            "ram=nan",
            "ram=inf",
            "ram=101%",
            "ram=0%",
            "ram=8G:USR1",
            "ram=01:30",
            "processes=01:30",
            "wall=10m:12",
            "wall=1:62",
            "wall=00:10:00:12",
            "wall=1:",
            "wall=0",
            "wall=1e99h",
            "wall=-1s",
            "processes=1.5",
            "processes=0",
            "processes=99999999999999999999",
            "speed=1",
            "\"ram\"=8G",
            "ram=8G,",
            "cpu=80%",
            "ram=8G;wall=1h",
            "wall=1h30",
            "wall=1:99:00",
            &format!("ram={}8G", "0".repeat(200)),
        ] {
            let error = limits(wrong).unwrap_err().to_string();
            assert!(!error.contains('\n') && error.len() < 300, "{wrong}: {error}");
        }
        for wrong in ["", "ram", "ram>1G", "ram=1G", "ram>1G=", "ram>=USR1", ">1G=USR1"] {
            assert!(signal_at(wrong).is_err(), "{wrong}");
        }
        let said = |given: &str| limits(given).unwrap_err().to_string();
        assert!(said("ram=101%").contains("or a percentage up to 100%"));
        assert!(said("wall=10m:USR1").contains("1h30m or 01:30:00"));
        assert!(limits(&vec!["ram=1G"; MOST_LIMITS + 1].join(",")).is_err());
    }

    // Requirement: ALERT-1
    #[test]
    fn alerts_are_read_in_the_units_of_limits() {
        use Quantity::{Cpu, Disk, GpuIdle, GpuRam, Growth, Ram};
        use Threshold::{Amount, Percent, Rise};
        let list = alerts("ram>80%, gpu_ram>8G,cpu>90%,disk<10GB,gpu_idle>5m,growth").unwrap();
        let parsed: Vec<_> = list.into_iter().map(|alert| (alert.quantity, alert.threshold)).collect();
        assert_eq!(
            parsed,
            [
                (Ram, Percent(80.0)),
                (GpuRam, Amount(8 << 30)),
                (Cpu, Percent(90.0)),
                (Disk, Amount(10_000_000_000)),
                (GpuIdle, Amount(300_000_000_000)),
                (Growth, Rise),
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
        let long = format!("ram>{}80%", "0".repeat(LONGEST_ALERT_BYTES));
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
