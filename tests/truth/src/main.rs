//! `gpu-track-truth` runs a command and writes the kernel's own figures of its process tree as JSON.
//!
//! The processes and their exits are from the process connector, peak RSS is from taskstats, and CPU time from a cgroup
//! made for the run. Shares no code with gpu-track. Needs root and the initial pid and user namespaces.
//!
//! In the command, the word `@` stands before the part that is counted. `gpu-track-truth record -o truth.json --
//! gpu-track-run -o ours.json -- @ make` counts make and its descendants. gpu-track-run itself is neither in the counted
//! tree nor in its cgroup.
#![allow(clippy::print_stderr, reason = "a command-line program")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use gpu_track_truth::{enter, record};

const USAGE: &str = "usage: gpu-track-truth record -o FILE [--grace SECONDS] -- COMMAND [ARG]...";

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [mode, address, command @ ..] = words.as_slice()
        && mode == enter::MODE
    {
        let error = enter::enter(address, command);
        eprintln!("gpu-track-truth: {error}");
        return ExitCode::from(127);
    }
    let Some(options) = options(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let result = record::record(&options.command, options.grace).and_then(|record| {
        let json = serde_json::to_vec_pretty(&record).map_err(|error| error.to_string())?;
        std::fs::write(&options.output, json)
            .map_err(|error| format!("{}: {error}", options.output.display()))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu-track-truth: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    output: PathBuf,
    /// How long processes may outlive the command before they are killed.
    grace: Duration,
    command: Vec<OsString>,
}

fn options(words: &[OsString]) -> Option<Options> {
    let [mode, flag, output, rest @ ..] = words else { return None };
    let (grace, rest) = match rest {
        [flag, seconds, rest @ ..] if flag == "--grace" => (seconds.to_str()?.parse().ok()?, rest),
        rest => (60, rest),
    };
    let [separator, command @ ..] = rest else { return None };
    (mode == "record" && flag == "-o" && separator == "--" && !command.is_empty()).then(|| Options {
        output: output.into(),
        grace: Duration::from_secs(grace),
        command: command.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Options> {
        options(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn command_follows_the_separator() {
        let options = parsed("record -o file --grace 3 -- sh -c true").unwrap();
        assert_eq!(options.command, ["sh", "-c", "true"]);
        assert_eq!(options.grace, Duration::from_secs(3));
        assert_eq!(parsed("record -o file -- --").unwrap().command, ["--"]);
    }

    #[test]
    fn incomplete_command_line_is_refused() {
        for line in ["", "record", "record -o file", "record -o file --", "record -o file --grace x -- true"]
        {
            assert!(parsed(line).is_none(), "{line}");
        }
    }
}
