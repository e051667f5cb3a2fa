//! `gpu-track`: executes the `gpu-track-run` beside it under this name. cargo installs programs and makes no links.

use std::env;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use gpu_track_collector::own_program;

/// Becomes `gpu-track-run` under this name, which is its companion command.
fn main() -> ExitCode {
    let program = match env::current_exe() {
        Ok(own) => own.with_file_name("gpu-track-run"),
        Err(error) => return failed("itself", &error),
    };
    // Returns only if it can't be executed.
    let mut command = Command::new(&program);
    own_program::set_name(&mut command, "gpu-track");
    let error = command.args(env::args_os().skip(1)).exec();
    failed(&program.display().to_string(), &error)
}

/// Says that a program can't be executed. Returns the exit status that a shell has then.
fn failed(program: &str, error: &io::Error) -> ExitCode {
    let line =
        format!("gpu-track: cannot execute {program}: {error}; gpu-track-run must be installed beside it\n");
    let _ = io::stderr().write_all(line.as_bytes());
    ExitCode::from(127)
}
