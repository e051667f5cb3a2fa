//! `--limit` and `--signal-at`: what the run may not exceed, and what happens when it does.

use std::time::Duration;

use clap::{ArgAction, Args};
use gpu_track_collector::{LimitAction, Quantity, RunLimit, RunLimits, Threshold, signal_number};

use super::values::{ValueError, named};

/// More limits than anybody means.
pub(super) const MOST: usize = 64;
/// A century.
const LONGEST_S: f64 = 100.0 * 365.0 * 86_400.0;
/// The largest number of bytes or processes that is told apart from its neighbours.
const LARGEST: f64 = 9.0e15;
/// Highest number of a signal.
const LAST_SIGNAL: i32 = 64;

/// What the run may not exceed.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArgs {
    /// End all processes when a limit is exceeded: ram and gpu_ram (8G, 500M, 80%), wall and cpu (90s, 10m, 2h), processes (500), stall
    /// and gpu_idle (10m: no CPU, I/O and GPU use, or no GPU use). NAME=VALUE:SIGNAL only signals COMMAND. Exit status: 124, or 137 where SIGKILL was needed
    #[arg(long = "limit", value_name = "NAME=VALUE,...", action = ArgAction::Append, value_parser = limits)]
    limits: Vec<List>,

    /// Send COMMAND a signal once, when a limit is exceeded: --signal-at 'ram>95%=USR1'
    #[arg(long = "signal-at", value_name = "NAME>VALUE=SIGNAL", action = ArgAction::Append, value_parser = signal_at)]
    signals: Vec<RunLimit>,

    /// At a limit: the time from SIGTERM to SIGKILL
    #[arg(long, value_name = "TIME", default_value = "10s", allow_negative_numbers = true, value_parser = kill_after)]
    kill_after: Duration,
}

/// A list in one value. For a bare `Vec`, clap would expect the option several times.
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
    if parts.len() > MOST {
        return Err(ValueError::TooManyLimits);
    }
    parts.into_iter().map(limit).collect()
}

/// Parses `NAME=VALUE` or `NAME=VALUE:SIGNAL`.
fn limit(given: &str) -> Result<RunLimit, ValueError> {
    let (name, rest) = given.split_once('=').ok_or_else(|| ValueError::Limit(given.to_owned()))?;
    let (value, signal) = match rest.split_once(':') {
        Some((value, signal)) => (value, Some(signal)),
        None => (rest, None),
    };
    let quantity = quantity(name)?;
    Ok(RunLimit {
        words: given.to_owned(),
        quantity,
        threshold: threshold(quantity, value)?,
        action: match signal {
            Some(name) => LimitAction::Signal(signal_of(name)?),
            None => LimitAction::End,
        },
    })
}

/// Parses `NAME>VALUE=SIGNAL`.
fn signal_at(given: &str) -> Result<RunLimit, ValueError> {
    let parts = given.split_once('>').and_then(|(name, rest)| Some((name, rest.rsplit_once('=')?)));
    let (name, (value, signal)) = parts.ok_or_else(|| ValueError::SignalAt(given.to_owned()))?;
    let quantity = quantity(name)?;
    Ok(RunLimit {
        words: given.to_owned(),
        quantity,
        threshold: threshold(quantity, value)?,
        action: LimitAction::Signal(signal_of(signal)?),
    })
}

fn quantity(name: &str) -> Result<Quantity, ValueError> {
    named(name, &Quantity::ALL, Quantity::name)
}

/// Parses how much is too much.
fn threshold(quantity: Quantity, given: &str) -> Result<Threshold, ValueError> {
    match quantity {
        Quantity::Ram | Quantity::GpuRam => match given.strip_suffix('%') {
            Some(percent) => match percent.parse() {
                Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Threshold::Percent(percent)),
                _ => Err(ValueError::Bytes(given.to_owned())),
            },
            None => bytes(given).map(Threshold::Amount),
        },
        Quantity::Processes => match given.parse() {
            Ok(count) if count > 0 && count as f64 <= LARGEST => Ok(Threshold::Amount(count)),
            _ => Err(ValueError::Count(given.to_owned())),
        },
        Quantity::Cpu | Quantity::Wall | Quantity::Stall | Quantity::GpuIdle => match time(given) {
            Some(time) if !time.is_zero() => Ok(Threshold::Amount(nanoseconds(time))),
            _ => Err(ValueError::Time(given.to_owned())),
        },
    }
}

/// Parses bytes. K, M, G and T are binary, as for Slurm and ulimit; with B they are decimal, as in reports.
pub(super) fn bytes(given: &str) -> Result<u64, ValueError> {
    const UNITS: [(&str, f64); 13] = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("K", 1024.0),
        ("M", 1_048_576.0),
        ("G", 1_073_741_824.0),
        ("T", 1_099_511_627_776.0),
        ("B", 1.0),
    ];
    let unit = UNITS.into_iter().find_map(|(unit, factor)| Some((given.strip_suffix(unit)?, factor)));
    let (number, factor) = unit.unwrap_or((given, 1.0));
    match number.parse::<f64>().map(|number| number * factor) {
        Ok(bytes) if (1.0..=LARGEST).contains(&bytes) => Ok(bytes as u64),
        _ => Err(ValueError::Bytes(given.to_owned())),
    }
}

/// Parses the time from SIGTERM to SIGKILL, which can be 0.
fn kill_after(given: &str) -> Result<Duration, ValueError> {
    time(given).ok_or_else(|| ValueError::Time(given.to_owned()))
}

/// Parses a time: a number of seconds, or one with a unit. `None`: it is none, or longer than a century.
pub(super) fn time(given: &str) -> Option<Duration> {
    // ms stands first, because it ends with s, too.
    const UNITS: [(&str, f64); 5] = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];
    let unit = UNITS.into_iter().find_map(|(unit, s)| Some((given.strip_suffix(unit)?, s)));
    let (number, unit_s) = unit.unwrap_or((given, 1.0));
    let seconds = number.parse::<f64>().ok()? * unit_s;
    (0.0..=LONGEST_S).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses the name or number of a signal: `USR1`, `SIGUSR1`, `10`.
fn signal_of(given: &str) -> Result<i32, ValueError> {
    if let Ok(number) = given.parse() {
        let is_signal = (1..=LAST_SIGNAL).contains(&number);
        return is_signal.then_some(number).ok_or_else(|| ValueError::Signal(given.to_owned()));
    }
    let name = given.to_ascii_uppercase();
    signal_number(name.strip_prefix("SIG").unwrap_or(&name))
        .ok_or_else(|| ValueError::Signal(given.to_owned()))
}

#[cfg(test)]
mod tests {
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
            parsed("ram=80%,stall=10m:USR1,gpu_idle=500ms:12"),
            [
                (Quantity::Ram, Percent(80.0), End),
                (Quantity::Stall, Amount(600_000_000_000), Signal(libc::SIGUSR1)),
                (Quantity::GpuIdle, Amount(500_000_000), Signal(12)),
            ]
        );
        let at = signal_at("ram>95%=sigterm").unwrap();
        assert_eq!((at.threshold, at.action), (Percent(95.0), Signal(libc::SIGTERM)));
        assert_eq!(at.words, "ram>95%=sigterm");
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
            "ram=8G:NOSUCH",
            "ram=8G:0",
            "ram=8G:99",
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
        ] {
            let error = limits(wrong).unwrap_err().to_string();
            assert!(!error.contains('\n') && error.len() < 300, "{wrong}: {error}");
        }
        for wrong in ["", "ram", "ram>1G", "ram=1G", "ram>1G=", "ram>=USR1", ">1G=USR1"] {
            assert!(signal_at(wrong).is_err(), "{wrong}");
        }
        assert!(limits(&vec!["ram=1G"; MOST + 1].join(",")).is_err());
        assert!(kill_after("0").is_ok() && kill_after("-1").is_err() && kill_after("x").is_err());
    }
}
