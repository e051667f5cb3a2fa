//! The file of a task's report, by the task's name.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process;

/// Maximum number of bytes of a name, so that a number, the extension and the name of a lock fit beside it (255 bytes).
const MOST_BYTES: usize = 150;
/// How many names are tried. The first two have a chance, since the second one has the pid.
const MOST_TRIED: u32 = 1000;
/// Characters besides letters and digits that stay in names.
const PLAIN: &str = ".-_=+,@";

/// Creates an empty file for the report of a task, and returns its path. No other task gets the same one: the name is that of the task,
/// or else has the pid, and a number. Only a file that was not there is created, and no link is followed.
///
/// # Errors
/// If no file can be created. The error is a text for the user.
pub(super) fn create(directory: &Path, task: &str) -> Result<PathBuf, String> {
    let name = file_name(task);
    let pid = process::id();
    let mut path = directory.join(format!("{name}.json"));
    for number in 1..=MOST_TRIED {
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("cannot create \"{}\": {error}", path.display())),
        }
        path = directory.join(match number {
            1 => format!("{name}.{pid}.json"),
            _ => format!("{name}.{pid}.{number}.json"),
        });
    }
    Err(format!("\"{}\" has {MOST_TRIED} reports of {name}", directory.display()))
}

/// The name of a file for a task of this name. What is neither a letter, a digit nor plain becomes `_`, once for several in a row. It does
/// not begin as a hidden file or an option does.
fn file_name(task: &str) -> String {
    let mut name = String::new();
    for character in task.chars() {
        let is_plain = character.is_alphanumeric() || PLAIN.contains(character);
        let character = if is_plain { character } else { '_' };
        if character == '_' && name.ends_with('_') {
            continue;
        }
        if name.len() + character.len_utf8() > MOST_BYTES {
            break;
        }
        name.push(character);
    }
    match name.trim_start_matches(['.', '-', '_']).trim_end_matches('_') {
        "" => "task".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    // Requirement: TASK-14
    #[test]
    fn name_stays_in_its_directory_and_can_be_typed() {
        for (task, name) in [
            ("a.o", "a.o"),
            ("../../x", "x"),
            ("/etc/passwd", "etc_passwd"),
            ("x/../y z", "x_.._y_z"),
            ("hello (1)", "hello_1"),
            ("a\n\u{1b}[31mb\0", "a_31mb"),
            ("probe=ä,日", "probe=ä,日"),
            ("-rf", "rf"),
            ("..", "task"),
            ("", "task"),
        ] {
            assert_eq!(file_name(task), name, "{task:?}");
        }
        assert_eq!(file_name(&"ä".repeat(200)).len(), MOST_BYTES);
    }

    // Requirement: TASK-16
    #[test]
    fn tasks_of_one_name_have_files_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let create = || create(directory.path(), "all").unwrap();
        assert!(create().ends_with("all.json"));
        symlink("/dev/null", directory.path().join(format!("all.{}.2.json", process::id()))).unwrap();
        let paths: BTreeSet<PathBuf> = (0..8).map(|_| create()).collect();
        assert_eq!(paths.len(), 8);
        assert!(paths.iter().all(|path| fs::symlink_metadata(path).unwrap().is_file()));
        let problem = super::create(&directory.path().join("none"), "all").unwrap_err();
        assert!(problem.starts_with("cannot create \"") && problem.contains("No such file"), "{problem}");
    }
}
