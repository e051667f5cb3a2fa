//! The arguments of coreutils' `timeout`: `timeout [OPTION]... DURATION COMMAND [ARG]...`.

use crate::model::signal::signal_number;

/// The time limit that the arguments set, seconds. `None`: they have no duration that can be parsed, or it is 0, which sets
/// no limit.
pub(super) fn limit_s(args: &[String]) -> Option<f64> {
    seconds(parse(args).duration?).filter(|limit_s| *limit_s > 0.0)
}

/// The number of the signal that `timeout` sends at its limit: SIGTERM unless an option names another. `None`: the name
/// is unknown.
pub(super) fn signal(args: &[String]) -> Option<i32> {
    let Some(name) = parse(args).signal else { return Some(libc::SIGTERM) };
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let name = name.to_ascii_uppercase();
    signal_number(name.strip_prefix("SIG").unwrap_or(&name))
}

/// The duration and the signal, as they are in the arguments.
#[derive(Default)]
struct Arguments<'a> {
    duration: Option<&'a str>,
    signal: Option<&'a str>,
}

/// Finds the signal and the duration among the arguments, the first of which is the program's name. The duration is the first
/// argument that is no option. It ends the search, since the command follows. Values of other options are passed over.
fn parse(args: &[String]) -> Arguments<'_> {
    let mut parsed = Arguments::default();
    let mut rest = args.iter().skip(1).map(String::as_str);
    while let Some(arg) = rest.next() {
        let (name, value) = arg.split_once('=').map_or((arg, None), |(name, value)| (name, Some(value)));
        // A long name can be cut short, as long as it begins no other one.
        let is_long = |long: &str| name.len() > "--".len() && long.starts_with(name);
        match name {
            // Without `=`, the value is the next argument.
            _ if is_long("--kill-after") && value.is_none() => {
                rest.next();
            }
            _ if is_long("--signal") => parsed.signal = value.or_else(|| rest.next()),
            "--" => {
                parsed.duration = rest.next();
                break;
            }
            // Other long options have their values within the argument, or none.
            _ if arg.starts_with("--") => {}
            _ if arg.starts_with('-') => {
                // Flags may be before the option in one word: `-vk`. Its value is the rest of the word, or the next argument.
                let letters = arg.trim_start_matches(['-', 'f', 'p', 'v']);
                let mut value = || letters.get(1..).filter(|value| !value.is_empty()).or_else(|| rest.next());
                match letters.chars().next() {
                    Some('k') => {
                        value();
                    }
                    Some('s') => parsed.signal = value(),
                    _ => {}
                }
            }
            _ => {
                parsed.duration = Some(arg);
                break;
            }
        }
    }
    parsed
}

/// Parses a number with a unit: s (the default), m, h or d. Gives seconds. `None`: it is no such number, or not a finite one.
fn seconds(duration: &str) -> Option<f64> {
    let (number, unit_s) = match duration.char_indices().next_back()? {
        (at, 's') => (duration.get(..at)?, 1.0),
        (at, 'm') => (duration.get(..at)?, 60.0),
        (at, 'h') => (duration.get(..at)?, 3600.0),
        (at, 'd') => (duration.get(..at)?, 86_400.0),
        _ => (duration, 1.0),
    };
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
