//! The arguments of coreutils' `timeout`: `timeout [OPTION]... DURATION COMMAND [ARG]...`.

use crate::model::signal::signal_number;
use crate::run::elsewhere::arguments::{Options, Value};

/// The time limit that the arguments set, seconds. `None`: they have no duration that can be parsed, or it is 0, which sets
/// no limit.
pub(super) fn limit_s(args: &[String]) -> Option<f64> {
    seconds(parse(args).operands.first()?).filter(|limit_s| *limit_s > 0.0)
}

/// The number of the signal that `timeout` sends at its limit: SIGTERM unless an option names another. `None`: the name
/// is unknown.
pub(super) fn signal(args: &[String]) -> Option<i32> {
    // A letter, and what getopt takes for `--signal`.
    let names = ["s", "si", "sig", "sign", "signa", "signal"];
    let Some(name) = parse(args).value(&names) else { return Some(libc::SIGTERM) };
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let name = name.to_ascii_uppercase();
    signal_number(name.strip_prefix("SIG").unwrap_or(&name))
}

/// The options of `timeout`, and the words after them: the duration, and the command.
fn parse(args: &[String]) -> Options<'_> {
    Options::parse(args.get(1..).unwrap_or_default(), |name| {
        // `name` is a letter or a long name. getopt lets a long name be shortened as long as it begins no other name.
        let has_value = ["kill-after", "signal"].iter().any(|long| long.starts_with(name));
        if has_value { Value::Next } else { Value::None }
    })
}

/// Parses a number with a unit, s (the default), m, h or d, into seconds. `None`: it is no such number, or not a finite one.
fn seconds(duration: &str) -> Option<f64> {
    let units = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86_400.0)];
    let with_unit = units.iter().find_map(|(unit, unit_s)| Some((duration.strip_suffix(*unit)?, *unit_s)));
    let (number, unit_s) = with_unit.unwrap_or((duration, 1.0));
    Some(number.parse::<f64>().ok().filter(|number| number.is_finite())? * unit_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: WHY-5
    #[test]
    fn limit_and_signal_are_read_as_timeout_reads_them() {
        let cases = [
            ("timeout 1 sleep 9", Some(1.0), Some(libc::SIGTERM)),
            ("/usr/bin/timeout 1.5m make -k 7", Some(90.0), Some(libc::SIGTERM)),
            ("timeout -k 5 2h x", Some(7200.0), Some(libc::SIGTERM)),
            ("timeout -k5 --foreground 2 x", Some(2.0), Some(libc::SIGTERM)),
            ("timeout --kill-after=5 -s INT 1d x", Some(86_400.0), Some(libc::SIGINT)),
            ("timeout -sKILL 3s x", Some(3.0), Some(libc::SIGKILL)),
            ("timeout -vk 5 60 x", Some(60.0), Some(libc::SIGTERM)),
            ("timeout -pvk5 -fs INT 60 x", Some(60.0), Some(libc::SIGINT)),
            ("timeout -vsKILL -v 60 x", Some(60.0), Some(libc::SIGKILL)),
            ("timeout --signal=sigusr1 3 x", Some(3.0), Some(libc::SIGUSR1)),
            ("timeout --kill 5 --sig KILL --fore 60 x", Some(60.0), Some(libc::SIGKILL)),
            ("timeout --k=5 --s=INT 60 x", Some(60.0), Some(libc::SIGINT)),
            ("timeout --signal 12 -- 3 x", Some(3.0), Some(12)),
            ("timeout -s WINCH 3 x", Some(3.0), Some(libc::SIGWINCH)),
            ("timeout -s RTMIN 3 x", Some(3.0), None),
            ("timeout 0 x", None, Some(libc::SIGTERM)),
            ("timeout soon x", None, Some(libc::SIGTERM)),
            ("timeout", None, Some(libc::SIGTERM)),
        ];
        for (line, limit, of_signal) in cases {
            let args: Vec<_> = line.split(' ').map(str::to_owned).collect();
            assert_eq!((limit_s(&args), signal(&args)), (limit, of_signal), "{line}");
        }
    }
}
