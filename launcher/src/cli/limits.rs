//! `--limit` and `--signal-at`: what the run may not exceed, and what happens when it does.

use std::time::Duration;

use clap::{ArgAction, Args};
use gpu_track_collector::{LimitAction, Quantity, RunLimit, RunLimits, Threshold, signal_number};

use super::values::{LARGEST, MOST_LIMITS, Time, ValueError, allowed_time, memory, named};

/// Longest text of a limit, bytes: the order to obey the limit has it, and has to fit into a line of its pipe.
const LONGEST_TEXT_BYTES: usize = 100;
/// Highest number of a signal.
const LAST_SIGNAL: i32 = 64;

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
    signals: Vec<RunLimit>,

    /// At a limit: the time from SIGTERM to SIGKILL
    #[arg(long, value_name = "TIME", default_value = "10s", allow_negative_numbers = true, value_parser = |given: &str| Time::Any.parse(given))]
    kill_after: Duration,
}

/// The limits of one value. With `Vec` in place of this name, clap would take each value for a single limit.
type List = Vec<RunLimit>;

impl From<LimitArgs> for RunLimits {
    fn from(args: LimitArgs) -> Self {
        let LimitArgs { limits, signals, kill_after } = args;
        Self { list: limits.into_iter().flatten().chain(signals).collect(), kill_after }
    }
}

/// Parses a list of limits.
fn limits(given: &str) -> Result<List, ValueError> {
    let parts: Vec<&str> = given.split(',').map(str::trim).collect();
    if parts.len() > MOST_LIMITS {
        return Err(ValueError::TooManyLimits);
    }
    parts.into_iter().map(limit).collect()
}

/// Parses `NAME=VALUE`.
fn limit(given: &str) -> Result<RunLimit, ValueError> {
    if given.len() > LONGEST_TEXT_BYTES {
        return Err(ValueError::Limit(shortened(given)));
    }
    let (name, value) = given.split_once('=').ok_or_else(|| ValueError::Limit(given.to_owned()))?;
    let quantity = quantity(name)?;
    let threshold = threshold(quantity, value)?;
    Ok(RunLimit { words: given.to_owned(), quantity, threshold, action: LimitAction::End })
}

/// Parses `NAME>VALUE=SIGNAL`.
fn signal_at(given: &str) -> Result<RunLimit, ValueError> {
    if given.len() > LONGEST_TEXT_BYTES {
        return Err(ValueError::SignalAt(shortened(given)));
    }
    let refused = || ValueError::SignalAt(given.to_owned());
    let (name, rest) = given.split_once('>').ok_or_else(refused)?;
    let (value, signal) = rest.rsplit_once('=').ok_or_else(refused)?;
    let quantity = quantity(name)?;
    Ok(RunLimit {
        words: given.to_owned(),
        quantity,
        threshold: threshold(quantity, value)?,
        action: LimitAction::Signal(signal_of(signal)?),
    })
}

/// Gives the option that a limit was given by. `--signal-at` alone has `>` in its value.
pub(super) fn option_of(limit: &RunLimit) -> &'static str {
    if limit.words.contains('>') { "--signal-at" } else { "--limit" }
}

/// Gives the beginning of a text that is too long for a limit.
fn shortened(given: &str) -> String {
    format!("{}...", given.chars().take(LONGEST_TEXT_BYTES).collect::<String>())
}

/// Parses the name of a quantity.
fn quantity(name: &str) -> Result<Quantity, ValueError> {
    named(name, &Quantity::ALL, Quantity::name)
}

/// Parses the threshold of a limit of this quantity.
fn threshold(quantity: Quantity, given: &str) -> Result<Threshold, ValueError> {
    match quantity {
        Quantity::Ram | Quantity::GpuRam => memory(given),
        Quantity::Processes => match given.parse() {
            Ok(count) if count > 0 && count as f64 <= LARGEST => Ok(Threshold::Amount(count)),
            _ => Err(ValueError::Count(given.to_owned())),
        },
        Quantity::Cpu | Quantity::Wall | Quantity::Stall | Quantity::GpuIdle => allowed_time(given),
    }
}

/// Parses the name or number of a signal: `USR1`, `SIGUSR1`, `10`.
fn signal_of(given: &str) -> Result<i32, ValueError> {
    if let Ok(number) = given.parse() {
        let is_signal = (1..=LAST_SIGNAL).contains(&number);
        return is_signal.then_some(number).ok_or_else(|| ValueError::Signal(given.to_owned()));
    }
    signal_named(given).ok_or_else(|| ValueError::Signal(given.to_owned()))
}

/// Parses the name of a signal: `USR1`, `SIGUSR1`. `None`: no signal has it.
fn signal_named(given: &str) -> Option<i32> {
    let name = given.to_ascii_uppercase();
    signal_number(name.strip_prefix("SIG").unwrap_or(&name))
}

#[cfg(test)]
mod tests {
    use super::super::values::bytes;
    use super::*;

    fn parsed(given: &str) -> Vec<(Quantity, Threshold, LimitAction)> {
        let limits = limits(given).unwrap();
        limits.into_iter().map(|limit| (limit.quantity, limit.threshold, limit.action)).collect()
    }

    // Requirement: LIMIT-1
    #[test]
    fn limits_are_read_in_the_units_of_batch_systems() {
        use LimitAction::{End, Signal};
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
        assert_eq!(signal_at("ram>1G=12").unwrap().action, Signal(libc::SIGUSR2));
        let at = signal_at("ram>95%=sigterm").unwrap();
        assert_eq!((at.threshold, at.action), (Percent(95.0), Signal(libc::SIGTERM)));
        assert_eq!(at.words, "ram>95%=sigterm");
        let stall = signal_at("stall>10m=USR1").unwrap();
        assert_eq!((stall.threshold, stall.action), (Amount(600_000_000_000), Signal(libc::SIGUSR1)));
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
}
