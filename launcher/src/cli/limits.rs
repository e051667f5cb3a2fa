//! `--limit` and `--signal-at`: what the run may not exceed, and what happens when it does.

use std::time::Duration;

use clap::{ArgAction, Args};
use gpu_track_collector::{LimitAction, Quantity, RunLimit, RunLimits, Threshold, signal_number};

use super::values::{MOST_LIMITS, ValueError, named};

/// Longest time of a limit: a century.
const LONGEST_S: f64 = 100.0 * 365.0 * 86_400.0;
/// Most bytes or processes of a limit. Above 2^53, which is a little more, an f64 has not every whole number.
const LARGEST: f64 = 9.0e15;
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
    /// NAME=VALUE:SIGNAL, with the name of a signal (USR1), only signals COMMAND. Exit status: 124, or 137 where SIGKILL was needed
    #[arg(long = "limit", value_name = "NAME=VALUE,...", action = ArgAction::Append, value_parser = limits)]
    limits: Vec<List>,

    /// Send COMMAND a signal once, when a limit is exceeded: --signal-at 'ram>95%=USR1'
    #[arg(long = "signal-at", value_name = "NAME>VALUE=SIGNAL", action = ArgAction::Append, value_parser = signal_at)]
    signals: Vec<RunLimit>,

    /// At a limit: the time from SIGTERM to SIGKILL
    #[arg(long, value_name = "TIME", default_value = "10s", allow_negative_numbers = true, value_parser = kill_after)]
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

/// Parses `NAME=VALUE` or `NAME=VALUE:SIGNAL`.
fn limit(given: &str) -> Result<RunLimit, ValueError> {
    let (name, rest) = given.split_once('=').ok_or_else(|| ValueError::Limit(given.to_owned()))?;
    if given.len() > LONGEST_TEXT_BYTES {
        return Err(ValueError::Limit(shortened(given)));
    }
    let quantity = quantity(name)?;
    // A colon is a part of a time such as 01:30:00, or has the name of a signal after it.
    let (value, signal) = match rest.rsplit_once(':') {
        Some((value, signal)) if clock_time(rest).is_none() => (value, Some(signal)),
        _ => (rest, None),
    };
    Ok(RunLimit {
        words: given.to_owned(),
        quantity,
        threshold: threshold(quantity, value)?,
        action: match signal {
            Some(name) => LimitAction::Signal(
                signal_named(name).ok_or_else(|| ValueError::AfterColon(name.to_owned()))?,
            ),
            None => LimitAction::End,
        },
    })
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
        Quantity::Cpu | Quantity::Wall | Quantity::Stall | Quantity::GpuIdle => {
            duration(given).map(Threshold::Amount)
        }
    }
}

/// Parses bytes, or a percentage of what the run may use.
pub(super) fn memory(given: &str) -> Result<Threshold, ValueError> {
    let threshold = match given.strip_suffix('%') {
        Some(number) => percent(number).map(Threshold::Percent),
        None => bytes(given).ok().map(Threshold::Amount),
    };
    threshold.ok_or_else(|| ValueError::Memory(given.to_owned()))
}

/// Parses the number of a percentage. `None`: it is no number above 0 and up to 100.
pub(super) fn percent(number: &str) -> Option<f64> {
    number.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0)
}

/// Parses a time above 0. Gives it in nanoseconds.
pub(super) fn duration(given: &str) -> Result<u64, ValueError> {
    match clock_time(given).or_else(|| time(given)) {
        Some(time) if !time.is_zero() => Ok(nanoseconds(time)),
        _ => Err(ValueError::Time(given.to_owned())),
    }
}

/// Parses a time as Slurm writes it: hours:minutes:seconds, or minutes:seconds. `None`: it has another form, or a part is too large.
/// The first part may be above 59.
fn clock_time(given: &str) -> Option<Duration> {
    const MOST_HOURS: u64 = 876_000;
    let number = |text: &str, below: u64| text.parse::<u64>().ok().filter(|number| *number < below);
    let (before, seconds) = given.rsplit_once(':')?;
    let minutes = match before.split_once(':') {
        Some((hours, minutes)) => number(hours, MOST_HOURS)? * 60 + number(minutes, 60)?,
        None => number(before, MOST_HOURS * 60)?,
    };
    Some(Duration::from_secs(minutes * 60 + number(seconds, 60)?))
}

/// Parses bytes. K, M, G and T alone, or with i, are binary, as for Slurm and ulimit. With B alone they are decimal, as in reports.
pub(super) fn bytes(given: &str) -> Result<u64, ValueError> {
    // "B" stands last, because other units end with it, too.
    const UNITS: [(&str, f64); 17] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
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
    let number_before = |unit: &str| {
        let at = given.len().checked_sub(unit.len())?;
        let (number, end) = (given.get(..at)?, given.get(at..)?);
        end.eq_ignore_ascii_case(unit).then_some(number)
    };
    let unit = UNITS.into_iter().find_map(|(unit, factor)| Some((number_before(unit)?, factor)));
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

/// Parses a time: a number of seconds, or numbers with units, such as 1h30m. `None`: it has another form, or is longer than a century.
pub(super) fn time(given: &str) -> Option<Duration> {
    if let Ok(seconds) = given.parse::<f64>() {
        return (0.0..=LONGEST_S).contains(&seconds).then(|| Duration::from_secs_f64(seconds));
    }
    let (mut rest, mut seconds) = (given, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let letters = rest.get(digits..)?;
        let length = letters.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(letters.len());
        let (unit, next) = letters.split_at(length);
        let unit_s = match unit {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        seconds += rest.get(..digits)?.parse::<f64>().ok()? * unit_s;
        rest = next;
    }
    (!given.is_empty() && (0.0..=LONGEST_S).contains(&seconds)).then(|| Duration::from_secs_f64(seconds))
}

/// Converts a time to nanoseconds, at most `u64::MAX`.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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
            parsed("ram=80%,stall=10m:USR1,gpu_idle=500ms:sigusr2"),
            [
                (Quantity::Ram, Percent(80.0), End),
                (Quantity::Stall, Amount(600_000_000_000), Signal(libc::SIGUSR1)),
                (Quantity::GpuIdle, Amount(500_000_000), Signal(libc::SIGUSR2)),
            ]
        );
        assert_eq!(
            parsed("wall=01:30:00,cpu=1h30m,ram=8g,gpu_ram=8Gi,wall=00:10:00:USR2,cpu=01:30,wall=90:00:USR1"),
            [
                (Quantity::Wall, Amount(5_400_000_000_000), End),
                (Quantity::Cpu, Amount(5_400_000_000_000), End),
                (Quantity::Ram, Amount(8 << 30), End),
                (Quantity::GpuRam, Amount(8 << 30), End),
                (Quantity::Wall, Amount(600_000_000_000), Signal(libc::SIGUSR2)),
                (Quantity::Cpu, Amount(90_000_000_000), End),
                (Quantity::Wall, Amount(5_400_000_000_000), Signal(libc::SIGUSR1)),
            ]
        );
        assert_eq!(signal_at("ram>1G=12").unwrap().action, Signal(libc::SIGUSR2));
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
            "ram=8G:10",
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
        assert!(!bytes("80%").unwrap_err().to_string().contains("percentage"));
        assert!(said("wall=10m:12").contains("the name of a signal"));
        assert!(limits(&vec!["ram=1G"; MOST_LIMITS + 1].join(",")).is_err());
        assert!(kill_after("0").is_ok() && kill_after("-1").is_err() && kill_after("x").is_err());
    }
}
