//! The names of Nextflow's tasks: Nextflow writes them into the first lines of `.command.run` in each task's work directory.

use std::io::Read;
use std::path::Path;
use std::time::Instant;

use super::task_names::{Names, beginning, directory_of, in_time};
use crate::sys::given_file;

/// Where work directories are unless the command says so, in Nextflow's launch directory.
const WORK: &str = "work";
/// The options of `nextflow run` that name another place.
const WORK_OPTIONS: [&str; 2] = ["-w", "-work-dir"];
/// The script that runs a task.
const SCRIPT: &str = ".command.run";
/// Maximum number of bytes of a script. Those of tasks with many input files have some hundred kilobytes.
const MOST_OF_SCRIPT: u64 = 16 << 20;
/// How many bytes of it are read. The name is in the second or third line.
const HEAD_BYTES: u64 = 4096;
/// What comes before the name, and after it: since Nextflow 23.12, and before.
const AROUND_NAME: [(&str, &str); 2] = [("### name: '", "'"), ("# NEXTFLOW TASK: ", "")];
/// Maximum number of bytes of a name.
const MOST_OF_NAME: usize = 120;

/// Reads the names of tasks, as many as can be read in time. `tasks`: the hash of the mark of each, and its work directory (`4f/0123...`).
/// `command`: the command of the run. `directory`: where it ran.
pub(crate) fn names(directory: &Path, command: &[String], tasks: Vec<(u32, String)>) -> Names {
    let work = directory_of(directory, command, &WORK_OPTIONS).unwrap_or_else(|| directory.join(WORK));
    in_time(move |deadline| read_names(&work, tasks, deadline))
}

/// Reads the names of these tasks from the files below `work`, until the deadline.
fn read_names(work: &Path, tasks: Vec<(u32, String)>, deadline: Instant) -> Names {
    let in_time = tasks.into_iter().take_while(|_| Instant::now() < deadline);
    // A process chooses the value of the variable that names the directory.
    let of_nextflow = in_time.filter(|(_, directory)| is_work_directory(directory));
    let name =
        |(hash, directory): (u32, String)| Some((hash, name_in(&head(&work.join(directory).join(SCRIPT))?)?));
    of_nextflow.filter_map(name).collect()
}

/// Whether a path is that of a work directory as Nextflow makes them: 2 and 30 digits of a hash.
fn is_work_directory(path: &str) -> bool {
    let is_hash =
        |part: &str, digits| part.len() == digits && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    path.split_once('/').is_some_and(|(first, rest)| is_hash(first, 2) && is_hash(rest, 30))
}

/// The first bytes of a script. `None`: it can't be read.
fn head(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    given_file::open(path, MOST_OF_SCRIPT).ok()?.take(HEAD_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The name in the first lines of a script, which are comments. `None`: it has none.
fn name_in(head: &str) -> Option<String> {
    let comments = head.lines().take_while(|line| line.starts_with('#'));
    let name = |line: &str| {
        AROUND_NAME
            .iter()
            .find_map(|(before, after)| Some(line.strip_prefix(before)?.strip_suffix(after)?.to_owned()))
    };
    let name = comments.filter_map(name).find(|name| !name.is_empty())?;
    Some(beginning(&name, MOST_OF_NAME).to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    const FIRST: &str = "4f/0123456789abcdef0123456789abcd";
    const SECOND: &str = "a0/fedcba9876543210fedcba98765432";

    fn script(directory: &Path, task: &str, text: &str) {
        let task = directory.join(task);
        fs::create_dir_all(&task).unwrap();
        fs::write(task.join(SCRIPT), text).unwrap();
    }

    // Requirement: TASK-12
    #[test]
    fn name_is_in_the_head_of_a_script_of_any_version() {
        let directory = tempfile::tempdir().unwrap();
        let name = format!("F:G:LONG (a'b \u{1b}[2J{})", "\u{e4}".repeat(100));
        script(
            &directory.path().join(WORK),
            FIRST,
            &format!("#!/bin/bash\n### ---\n### name: '{name}'\n### ---\nset -e\n"),
        );
        script(
            &directory.path().join("else where"),
            SECOND,
            "#!/bin/bash\n# NEXTFLOW TASK: hello (1)\nset -e\n",
        );
        let tasks = || vec![(7, FIRST.to_owned()), (8, SECOND.to_owned())];
        let shown = beginning(&name, MOST_OF_NAME).to_owned();
        assert!((MOST_OF_NAME - 1..=MOST_OF_NAME).contains(&shown.len()));
        assert_eq!(names(directory.path(), &[], tasks()), [(7, shown)]);
        let command = ["nextflow", "run", "x", "-work-dir", "else where", "-w", "z"].map(str::to_owned);
        assert_eq!(names(directory.path(), &command, tasks()), [(8, "hello (1)".to_owned())]);
        assert_eq!(read_names(&directory.path().join(WORK), tasks(), Instant::now()), []);
    }

    // Requirement: TASK-12
    #[test]
    fn other_paths_and_files_give_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let work = directory.path().join(WORK);
        let outside = "../0123456789abcdef0123456789abcd";
        let named = "#!/bin/bash\n### name: 'x'\n";
        for path in [outside, "4f/x", "/etc"] {
            assert!(!is_work_directory(path), "{path}");
        }
        script(&work, outside, named);
        // A later line is the task's, and no comment of Nextflow's.
        script(&work, FIRST, "#!/bin/bash\nset -e\n### name: 'x'\n");
        // A pipe without a writer would wait.
        fs::create_dir_all(work.join(SECOND)).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            work.join(SECOND).join(SCRIPT),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        let tasks: Vec<_> = [outside, FIRST, SECOND].into_iter().map(|path| (7, path.to_owned())).collect();
        let later = Instant::now() + Duration::from_secs(3600);
        assert_eq!(read_names(&work, tasks, later), []);
    }
}
