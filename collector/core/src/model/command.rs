//! Command names of processes: the base name of argv\[0\], and after it the base name of an interpreter's script, or the subcommand of
//! some programs.

use gpu_track_abi::client;
use gpu_track_abi::record::NAME_BYTES;
use gpu_track_abi::script::{Found, Search};

/// Makes a command name of the names of program and script. An empty `script`: the program runs none.
fn command_name(program: &str, script: &str) -> String {
    if script.is_empty() { program.to_owned() } else { format!("{program} {script}") }
}

/// The part of a path after its last slash.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The command name in a START record, which has the names of program and script with a NUL between them.
pub fn command_of_record(names: &[u8; NAME_BYTES]) -> String {
    let mut parts = names.split(|b| *b == 0).map(String::from_utf8_lossy);
    let program = parts.next().unwrap_or_default();
    let script = parts.next().unwrap_or_default();
    command_name(&program, &script)
}

/// The command name by a command line, the same as the shim writes into a START record. `None`: argv\[0\] has no name.
pub fn command_of_args<S: AsRef<str>>(args: &[S]) -> Option<String> {
    let (program, rest) = args.split_first()?;
    let name = base_name(program.as_ref());
    if name.is_empty() {
        return None;
    }
    let text = |bytes| String::from_utf8_lossy(bytes);
    Some(match found(name, rest) {
        Some((_, Found::Script(script) | Found::Subcommand(script))) => {
            command_name(name, base_name(&text(script)))
        }
        Some((_, Found::Module(module))) => command_name(name, &format!("-m {}", text(module))),
        _ => name.to_owned(),
    })
}

/// Finds what the interpreter called `name` runs (a script, a module or nothing), with the index of the argument that decides it.
/// `None`: no argument does.
pub(crate) fn found<'a, S: AsRef<str>>(name: &str, args: &'a [S]) -> Option<(usize, Found<'a>)> {
    let mut search = Search::of_program(name.as_bytes());
    let mut answers = args.iter().map(|argument| search.add(argument.as_ref().as_bytes())).enumerate();
    answers.find(|(_, answer)| !matches!(answer, Found::NotYet))
}

/// Whether a process has written a title over its arguments, as servers and browsers do (setproctitle). Then its arguments are one
/// string, which is not the program's name. `line`: /proc/PID/cmdline, or its first bytes. `executable` looks up the path of the
/// program's file, if that is known. `area_bytes`: how long the arguments were when the program started (0: not known).
///
/// After a title there are zero bytes of the old arguments, or it extends into the environment, and the kernel shows it all
/// (`get_mm_cmdline`). Perl fills up with blanks. A name by `exec -a`, or that of a login shell, is no title.
pub fn is_title(
    line: &[u8],
    executable: impl FnOnce() -> Option<String>,
    area_bytes: impl FnOnce() -> u64,
) -> bool {
    let length = line.iter().position(|byte| *byte == 0).unwrap_or(line.len());
    let (text, rest) = line.split_at(length);
    let is_one_string = rest.iter().all(|byte| matches!(byte, 0 | b' '));
    if text.is_empty() || !is_one_string {
        return false;
    }
    let name = text.rsplit(|byte| *byte == b'/').next();
    if executable().is_some_and(|path| Some(base_name(&path).as_bytes()) == name) {
        return false;
    }
    // One zero byte ends an argument, and a second one can be an empty argument.
    let is_padded = rest.len() > 2;
    is_padded
        || match area_bytes() {
            // A name with a blank in it is rarer than a title with one.
            0 => text.contains(&b' '),
            bytes => bytes != line.len() as u64,
        }
}

/// Whether a command, given by its arguments, is an MPI launcher.
pub fn is_mpi_launcher(args: &[String]) -> bool {
    args.first().is_some_and(|program| client::is_mpi_launcher(base_name(program).as_bytes()))
}

/// Whether a command name is that of a helper: a process of gpu-track itself that, unlike `gpu-track run`, runs no command of the
/// user's. A helper shows something, or starts a tracker for the Python module (`_attached.py`).
pub fn is_helper(command: &str) -> bool {
    match command.split_once(' ') {
        Some(("gpu-track", subcommand)) => matches!(
            subcommand,
            "compare" | "export" | "gpus" | "merge" | "metrics" | "record" | "report" | "sub-track" | "watch"
        ),
        Some(("sh", script)) => script == "gpu-track-background",
        // What podman asks with `--containers`.
        _ => command == "gpu-track-container",
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
        assert_eq!(named(&["/opt/bin/samtools", "sort", "-"]), "samtools sort");
        assert_eq!(named(&["samtools", "--version"]), "samtools");
        assert_eq!(named(&["/opt/bin/gpu-track", "report", "run.json"]), "gpu-track report");
        assert_eq!(named(&["cat", "file"]), "cat");
        assert_eq!(command_of_args::<&str>(&[]), None);
        let mut names = [0; NAME_BYTES];
        names[..12].copy_from_slice(b"perl\0run.pl\0");
        assert_eq!(command_of_record(&names), "perl run.pl");
    }

    // Requirement: SEE-13
    #[test]
    fn titles_are_told_from_arguments() {
        let is_title = |line: &str, executable: &str, area_bytes: usize| {
            let path = || Some(executable.to_owned()).filter(|path| !path.is_empty());
            is_title(line.as_bytes(), path, || area_bytes as u64)
        };
        let browser = "/opt/browser/browser --type=renderer --data=/srv/profiles/p7 --client=0";
        for (line, executable, area_bytes) in [
            // Zero bytes, or Perl's blanks, in the place of what was there.
            (format!("{browser}\0\0\0\0"), "/opt/browser/browser", browser.len() + 4),
            ("ray::IDLE\0\0\0\0".into(), "/usr/bin/python3.12", 13),
            ("worker\0     ".into(), "/usr/bin/perl", 12),
            // Beyond the arguments, into the environment.
            (format!("{browser}\0"), "/opt/browser/browser", 20),
            ("ray::train\0".into(), "/usr/bin/python3.12", 9),
            // Other users' processes.
            ("postgres: walwriter \0".into(), "", 0),
            ("nginx: worker process\0".into(), "", 0),
            ("sshd: root@pts/0\0\0\0".into(), "", 0),
        ] {
            assert!(is_title(&line, executable, area_bytes), "{line:?}");
        }
        for (line, executable) in [
            ("bash\0", "/usr/bin/bash"),
            ("-bash\0", "/usr/bin/bash"),
            ("ls\0-l\0", "/bin/busybox"),
            ("ls\0", "/bin/busybox"),
            ("NAME\0", "/usr/bin/sleep"),
            ("two words\0one\0", "/usr/bin/sleep"),
            ("grep\0\0", "/usr/bin/ugrep"),
            ("grep\0\0\0", "/usr/bin/grep"),
            ("/opt/My Program/run me\0", "/opt/My Program/run me"),
            ("./run me\0", "/opt/My Program/run me"),
            ("java\0-cp\0a b.jar:c.jar\0Main\0", "/usr/lib/jvm/bin/java"),
            ("python3\0-m\0http.server\0", "/usr/bin/python3.12"),
            ("/usr/bin/perl\0/home/x/a b.pl\0", "/usr/bin/perl"),
            ("", ""),
        ] {
            assert!(!is_title(line, executable, line.len()), "{line:?}");
            assert!(!is_title(line, executable, 0), "{line:?}");
        }
        let linked = "/srv/My Programs/bin/python\0";
        assert!(!is_title(linked, "/usr/bin/python3.12", linked.len()));
    }
}
