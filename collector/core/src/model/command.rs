//! Command names: the base name of argv\[0\], with the script's behind it for an interpreter.

use gpu_track_abi::record::NAME_BYTES;

/// Interpreters, which are named together with their script.
fn is_interpreter(name: &str) -> bool {
    const NAMES: [&str; 19] = [
        "sh", "bash", "dash", "ksh", "zsh", "fish", "busybox", "python", "pypy", "perl", "ruby", "node",
        "nodejs", "Rscript", "R", "julia", "lua", "php", "tclsh",
    ];
    let stem = name.trim_start_matches('-').trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    NAMES.contains(&stem)
}

fn joined(name: &str, script: &str) -> String {
    if script.is_empty() || !is_interpreter(name) { name.to_owned() } else { format!("{name} {script}") }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The name in a START record.
#[must_use]
pub fn command_of_record(names: &[u8; NAME_BYTES]) -> String {
    let mut parts = names.split(|b| *b == 0).map(String::from_utf8_lossy);
    let mut next = || parts.next().unwrap_or_default();
    joined(&next(), &next())
}

/// The name that a command line gives, as the shim forms it.
#[must_use]
pub fn command_of_args<S: AsRef<str>>(args: &[S]) -> Option<String> {
    let (program, rest) = args.split_first()?;
    let name = base_name(program.as_ref());
    if name.is_empty() {
        return None;
    }
    let mut rest = rest.iter().map(AsRef::as_ref).take(8);
    let script = loop {
        match rest.next() {
            None | Some("-c" | "-e") => break String::new(),
            Some("-m") => break rest.next().map(|module| format!("-m {module}")).unwrap_or_default(),
            Some(option) if option.starts_with('-') => {}
            Some(script) => break base_name(script).to_owned(),
        }
    };
    Some(joined(name, &script))
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
        assert_eq!(named(&["-bash", "configure"]), "-bash configure");
        assert_eq!(named(&["gcc", "-c", "a.c"]), "gcc");
        assert_eq!(named(&["cat", "file"]), "cat");
        assert_eq!(command_of_args::<&str>(&[]), None);
        let mut names = [0; NAME_BYTES];
        names[..12].copy_from_slice(b"perl\0run.pl\0");
        assert_eq!(command_of_record(&names), "perl run.pl");
    }
}
