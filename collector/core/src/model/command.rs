//! Command names: the base name of argv\[0\], with the script's behind it for an interpreter.

use gpu_track_abi::record::NAME_BYTES;
use gpu_track_abi::script::{Found, Search};

/// Joins the names of program and script. An empty `script`: the program runs none.
fn joined(name: &str, script: &str) -> String {
    if script.is_empty() { name.to_owned() } else { format!("{name} {script}") }
}

/// Gives the part of a path behind its last slash.
fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Gives the command name in a START record, which has the names of program and script with a NUL between them.
#[must_use]
pub fn command_of_record(names: &[u8; NAME_BYTES]) -> String {
    let mut parts = names.split(|b| *b == 0).map(String::from_utf8_lossy);
    let program = parts.next().unwrap_or_default();
    let script = parts.next().unwrap_or_default();
    joined(&program, &script)
}

/// Gives the name that a command line gives, as the shim forms it. `None`: there is no name in it.
#[must_use]
pub fn command_of_args<S: AsRef<str>>(args: &[S]) -> Option<String> {
    let (program, rest) = args.split_first()?;
    let name = base_name(program.as_ref());
    if name.is_empty() {
        return None;
    }
    let mut search = Search::of_program(name.as_bytes());
    let text = |bytes| String::from_utf8_lossy(bytes);
    for argument in rest {
        match search.add(argument.as_ref().as_bytes()) {
            Found::NotYet => {}
            Found::Nothing => break,
            Found::Script(script) => return Some(joined(name, base_name(&text(script)))),
            Found::Module(module) => return Some(joined(name, &format!("-m {}", text(module)))),
        }
    }
    Some(name.to_owned())
}

/// Whether the command of this name is a process of gpu-track itself that runs no command of the user's, as `gpu-track run` does. It
/// shows something, or starts a tracker for the Python module (`_attached.py`).
#[must_use]
pub fn is_helper(command: &str) -> bool {
    match command.split_once(' ') {
        Some(("gpu-track", subcommand)) => matches!(
            subcommand,
            "compare" | "gpus" | "merge" | "metrics" | "record" | "report" | "sub-track" | "watch"
        ),
        Some(("sh", script)) => script == "gpu-track-background",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: SEE-13
    #[test]
    fn interpreters_are_named_with_their_scripts() {
        let named = |args: &[&str]| command_of_args(args).unwrap();
        assert_eq!(
            named(&["/usr/bin/python3.11", "-u", "/home/x/train.py", "--lr", "1"]),
            "python3.11 train.py"
        );
        assert_eq!(named(&["python3", "-m", "http.server"]), "python3 -m http.server");
        assert_eq!(named(&["/bin/sh", "-c", "x"]), "sh");
        assert_eq!(named(&["php", "-r", "echo 1/2;"]), "php");
        assert_eq!(named(&["/usr/lib/R/bin/exec/R", "--no-echo", "--file=/a/foo.R"]), "R foo.R");
        assert_eq!(named(&["java", "-Xmx1g", "-jar", "/opt/x.jar"]), "java x.jar");
        assert_eq!(named(&["java", "-cp", "a.jar:b.jar", "com.example.Main"]), "java com.example.Main");
        assert_eq!(named(&["-bash", "configure"]), "-bash configure");
        assert_eq!(named(&["gcc", "-c", "a.c"]), "gcc");
        assert_eq!(named(&["/opt/bin/gpu-track", "report", "run.json"]), "gpu-track report");
        assert_eq!(named(&["cat", "file"]), "cat");
        assert_eq!(command_of_args::<&str>(&[]), None);
        let mut names = [0; NAME_BYTES];
        names[..12].copy_from_slice(b"perl\0run.pl\0");
        assert_eq!(command_of_record(&names), "perl run.pl");
    }
}
