//! The rules of Snakemake's jobs: after each job, Snakemake writes its rule and its shell command to `.snakemake/metadata`, a file for
//! each output. The command is the one that bash got, without the strict mode before it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, ReadDir};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpu_track_abi::task::{ArgumentMark, KINDS, Marks, STRICT_MODE, TaskKind};
use serde::Deserialize;

use super::task_names::{Names, beginning, directory_of, in_time};
use crate::sys::given_file;

/// Where Snakemake writes, in its working directory.
const METADATA: &str = ".snakemake/metadata";
/// The options of Snakemake that name that directory.
const DIRECTORY_OPTIONS: [&str; 2] = ["-d", "--directory"];
/// Maximum number of files and directories that are looked at. A job has a file for each of its outputs.
const MOST_ENTRIES: usize = 20_000;
/// Maximum number of bytes of a rule's name.
const MOST_OF_RULE: usize = 64;
/// Maximum number of rules of one command that are named.
const MOST_RULES: usize = 3;
/// Maximum number of bytes of a file.
const MOST_BYTES: u64 = 1 << 20;
/// Maximum depth of directories that are looked into. Snakemake divides a file's name that is too long into directories. Linux allows
/// 4096 bytes of a path, and 255 of a name.
const MOST_DEPTH: usize = 24;

/// What is read of a file of [`METADATA`].
#[derive(Deserialize)]
struct Job {
    rule: Option<String>,
    shellcmd: Option<String>,
}

/// The rules of these jobs (hashes of their marks), as far as they ended since `since_ns` (CLOCK_REALTIME, nanoseconds) and can be read
/// in time. `command`: the command of the run. `directory`: where it ran.
pub(crate) fn rules(directory: &Path, command: &[String], since_ns: u64, jobs: HashSet<u32>) -> Names {
    // Times of files can be a tick older than they should be.
    let since = UNIX_EPOCH + Duration::from_nanos(since_ns).saturating_sub(Duration::from_secs(1));
    // The options of another program can have the same names.
    let named = directory_of(directory, command, &DIRECTORY_OPTIONS).map(|named| named.join(METADATA));
    let usual = directory.join(METADATA);
    in_time(move |deadline| {
        let metadata = named.filter(|named| named.is_dir()).unwrap_or(usual);
        read_rules(Files::of(metadata, since, deadline), &jobs)
    })
}

/// Reads the rules of these jobs from the files.
fn read_rules(files: Files, jobs: &HashSet<u32>) -> Names {
    let mut found: HashMap<u32, BTreeSet<String>> = HashMap::new();
    for path in files {
        let Ok(text) = given_file::read_text(&path, MOST_BYTES) else { continue };
        let Ok(Job { rule: Some(rule), shellcmd: Some(command) }) = serde_json::from_str(&text) else {
            continue;
        };
        let hash = hash(&command);
        if jobs.contains(&hash) {
            let rules = found.entry(hash).or_default();
            if rules.len() < MOST_RULES {
                rules.insert(beginning(&rule, MOST_OF_RULE).to_owned());
            }
        }
    }
    // A command can be that of several rules. Which of them a job was, nothing tells.
    let joined = |rules: BTreeSet<String>| rules.into_iter().collect::<Vec<_>>().join(" or ");
    found.into_iter().map(|(hash, rules)| (hash, joined(rules))).collect()
}

/// The hash of the mark of a job with this shell command. Snakemake leaves out what is blank at its end when it runs it.
fn hash(command: &str) -> u32 {
    let command = [STRICT_MODE, command.trim_end().as_bytes()].concat();
    let marks = Marks { argument: ArgumentMark::Snakemake(&command), ..Marks::default() };
    let keys = marks.keys(std::iter::empty(), |_| None, &[0; KINDS]);
    keys.hashes.get(TaskKind::Snakemake as usize).copied().unwrap_or(0)
}

/// The regular files in a directory and those below that were written since a time. It ends at the deadline, and where it has visited
/// [`MOST_ENTRIES`].
struct Files {
    since: SystemTime,
    deadline: Instant,
    /// How many entries may still be visited.
    left: usize,
    /// Directories that are not read yet, with their depth.
    directories: Vec<(PathBuf, usize)>,
    /// The directory that is being read, with its depth.
    open: Option<(ReadDir, usize)>,
}

impl Files {
    fn of(directory: PathBuf, since: SystemTime, deadline: Instant) -> Self {
        Self { since, deadline, left: MOST_ENTRIES, directories: vec![(directory, 0)], open: None }
    }
}

impl Iterator for Files {
    type Item = PathBuf;

    fn next(&mut self) -> Option<PathBuf> {
        loop {
            if Instant::now() >= self.deadline {
                return None;
            }
            let Some((entries, depth)) = &mut self.open else {
                let (directory, depth) = self.directories.pop()?;
                self.open = fs::read_dir(directory).ok().map(|entries| (entries, depth));
                continue;
            };
            let depth = *depth;
            let Some(entry) = entries.next() else {
                self.open = None;
                continue;
            };
            self.left = self.left.checked_sub(1)?;
            // Of the entry itself, not of what a link leads to.
            let Some((entry, metadata)) = entry.ok().and_then(|one| Some((one.path(), one.metadata().ok()?)))
            else {
                continue;
            };
            if metadata.is_dir() && depth < MOST_DEPTH {
                self.directories.push((entry, depth + 1));
            } else if metadata.is_file() && metadata.modified().is_ok_and(|written| written >= self.since) {
                return Some(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: TASK-11
    #[test]
    fn rules_are_found_by_the_hash_of_their_command() {
        let directory = tempfile::tempdir().unwrap();
        let metadata = directory.path().join(METADATA);
        fs::create_dir_all(metadata.join("@long")).unwrap();
        fs::write(metadata.join("a"), r#"{"rule": "sort", "shellcmd": "sort x > y\n    ", "input": []}"#)
            .unwrap();
        fs::write(metadata.join("@long/b"), r#"{"rule": "code", "shellcmd": null}"#).unwrap();
        fs::write(metadata.join("c"), "{").unwrap();
        let other = r#"{"rule": "other", "shellcmd": "rm z"}"#;
        fs::write(metadata.join("d"), other).unwrap();
        let arguments = ["-c", "set -euo pipefail;  sort x > y"].map(str::as_bytes);
        let argument = gpu_track_abi::task::argument_mark(b"bash", arguments.into_iter());
        let keys = Marks { argument, ..Marks::default() }.keys(std::iter::empty(), |_| None, &[0; KINDS]);
        let job = keys.hashes[TaskKind::Snakemake as usize];
        let jobs = || HashSet::from([job]);
        assert_eq!(rules(directory.path(), &[], 0, jobs()), [(job, "sort".to_owned())]);
        let long = format!(r#"{{"rule": "{}\u00e4", "shellcmd": "sort x > y"}}"#, "r".repeat(63));
        fs::write(metadata.join("a"), long).unwrap();
        assert_eq!(rules(directory.path(), &[], 0, jobs()), [(job, "r".repeat(63))]);
        let same = r#"{"rule": "arrange", "shellcmd": "sort x > y"}"#;
        fs::write(metadata.join("a"), same.replace("arrange", "sort")).unwrap();
        fs::write(metadata.join("e"), same).unwrap();
        assert_eq!(rules(directory.path(), &[], 0, jobs()), [(job, "arrange or sort".to_owned())]);
        let later = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(60);
        assert_eq!(rules(directory.path(), &[], later.as_nanos() as u64, jobs()), []);
        let above = directory.path().parent().unwrap();
        let given = |option: &str| {
            let name = directory.path().file_name().unwrap().to_str().unwrap();
            let command = ["snakemake".to_owned(), option.replace("DIR", name), name.to_owned()];
            rules(above, &command, 0, jobs()).len()
        };
        assert_eq!(["-d", "--directory", "--directory=DIR", "-q"].map(given), [1, 1, 1, 0]);
        assert_eq!(rules(Path::new("/nowhere"), &[], 0, jobs()), []);
    }

    // Requirement: TASK-57
    #[test]
    fn files_end_at_their_deadline_and_number() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("below")).unwrap();
        for name in ["a", "below/b", "below/c"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let files = |deadline| Files::of(directory.path().to_owned(), UNIX_EPOCH, deadline);
        let far = Instant::now() + Duration::from_secs(3600);
        assert_eq!((files(far).count(), files(Instant::now()).count()), (3, 0));
        // The directory is an entry, too.
        assert_eq!(Files { left: 3, ..files(far) }.count(), 2);
    }
}
