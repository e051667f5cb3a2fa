//! Files that users name can be anything: a fifo that nobody writes, a device or a file without an end, a socket, a directory. Each option
//! that names a file ends by itself then, within bounded memory, with its status for a wrong file and a line that names the file.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::run::cache_home;
use crate::support::{WATCHDOG, skip};

/// What an option does with the file that it names.
enum Use {
    /// It is read: the ends of names, each of which may say another form, then the command line, in which FILE stands for the file. The
    /// last is the exit status.
    Reads(&'static str, &'static str, i32),
    /// It is written, or is a directory that is. Other tests have those.
    Writes,
}
use Use::{Reads, Writes};

/// Each option of `gpu-track` and gpu-track-run that names a file or directory. A test of the launcher fails if one has no row. Files that
/// end in .sqlite are read by SQLite.
const USES: [(&str, Use); 40] = [
    ("gpu-track-run --tconfig", Reads(".json", "gpu-track-run --tconfig FILE -- true", 2)),
    ("gpu-track-run --nvml-lib", Reads(".so", "gpu-track gpus --nvml-lib FILE", 1)),
    ("gpu-track-run --output", Writes),
    ("gpu-track-run --tf", Writes),
    ("gpu-track-run --trace-gpu", Writes),
    ("gpu-track-run --events", Writes),
    ("gpu-track-run --record", Writes),
    ("gpu-track report FILE", Reads(".json .txt .pkl .csv .jsonl .pftrace", "gpu-track report FILE", 2)),
    (
        "gpu-track report --metrics",
        Reads(".csv .json", "gpu-track report --every 1 --metrics FILE POINTS", 2),
    ),
    ("gpu-track report --output", Writes),
    ("gpu-track compare [NAME=]FILE", Reads(".json", "gpu-track compare a=FILE FILE", 2)),
    ("gpu-track study FILE.toml|DIR", Reads(".toml .json", "gpu-track study FILE", 2)),
    ("gpu-track study --output", Writes),
    ("gpu-track watch RUN", Reads(".live .json", "gpu-track watch --once FILE", 2)),
    ("gpu-track watch --replay", Reads(".jsonl .csv", "gpu-track watch --once --replay FILE", 2)),
    ("gpu-track record RUN", Reads(".json", "gpu-track record FILE", 1)),
    ("gpu-track record --to", Writes),
    ("gpu-track sub-track combine -p", Reads(".csv", "gpu-track sub-track combine --stf NEW.csv -p FILE", 2)),
    ("gpu-track sub-track combine --stf", Writes),
    (
        "gpu-track sub-track analyze --tf",
        Reads(".csv", "gpu-track sub-track analyze --tf FILE --stf MARKS", 2),
    ),
    (
        "gpu-track sub-track analyze --stf",
        Reads(".csv", "gpu-track sub-track analyze --tf POINTS --stf FILE", 2),
    ),
    ("gpu-track sub-track analyze --output", Writes),
    ("gpu-track sub-track compare -m", Reads(".json .pkl", "gpu-track sub-track compare -m a=FILE", 2)),
    (
        "gpu-track sub-track compare --cconfig",
        Reads(".json", "gpu-track sub-track compare --cconfig FILE", 2),
    ),
    ("gpu-track sub-track compare --output", Writes),
    // As a database, whatever its name.
    ("gpu-track sub-track samples --tf", Reads(".csv", "gpu-track sub-track samples --tf FILE", 2)),
    ("gpu-track sub-track calls --stf", Reads(".csv", "gpu-track sub-track calls --stf FILE", 2)),
    ("gpu-track sub-track calls --output", Writes),
    ("gpu-track sub-track show FILE", Reads(".json .pkl", "gpu-track sub-track show FILE", 2)),
    ("gpu-track sub-track show --output", Writes),
    ("gpu-track metrics FILE", Reads(".csv .json", "gpu-track metrics FILE", 2)),
    ("gpu-track metrics --output", Writes),
    ("gpu-track export FILE", Reads(".json", "gpu-track export --as snakemake-benchmark FILE", 2)),
    ("gpu-track export --output", Writes),
    ("gpu-track merge DIR|FILE", Reads(".json", "gpu-track merge FILE", 2)),
    ("gpu-track merge --tf", Writes),
    ("gpu-track merge --output", Writes),
    ("gpu-track shell --install", Writes),
    ("gpu-track shell --reports", Writes),
    ("gpu-track gpus --nvml-lib", Reads(".so", "gpu-track-run --gpus --nvml-lib FILE", 1)),
];
/// Further forms of what some of them give.
const MORE: [(&str, Use); 6] = [
    ("report over time", Reads(".json .csv .jsonl .pftrace", "gpu-track report --every 1 FILE", 2)),
    ("report of events", Reads(".json .csv .jsonl .pftrace", "gpu-track report --list-events FILE", 2)),
    ("report as a page", Reads(".json .jsonl", "gpu-track report -f html FILE", 2)),
    ("report as points", Reads(".json .csv .jsonl", "gpu-track report -f csv FILE", 2)),
    ("page with metrics", Reads(".csv", "gpu-track report -f html --metrics FILE REPORT", 2)),
    ("comparison for programs", Reads(".json", "gpu-track compare -f json FILE FILE", 2)),
];

/// Makes a file of a kind with this path.
type Make = fn(&Path);

/// Kinds of files that are none of those that a program would have written.
const KINDS: [(&str, Make); 5] = [
    ("fifo", |path| mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap()),
    ("device", |path| symlink("/dev/zero", path).unwrap()),
    ("socket", |path| drop(UnixListener::bind(path).unwrap())),
    ("directory", |path| fs::create_dir(path).unwrap()),
    ("huge", |path| File::create(path).unwrap().set_len(1 << 40).unwrap()),
];

/// Runs a line with at most 1 GB of address space.
fn run(line: &str, stdin: Stdio) -> Output {
    let program = |name: &str| match name {
        "gpu-track" => env!("CARGO_BIN_EXE_gpu-track").to_owned(),
        "gpu-track-run" => env!("CARGO_BIN_EXE_gpu-track-run").to_owned(),
        word => word.to_owned(),
    };
    let mut command = Command::new("timeout");
    command.args([
        "-k",
        "1",
        &WATCHDOG.as_secs().to_string(),
        "sh",
        "-c",
        "ulimit -v 1000000; exec \"$@\"",
        "sh",
    ]);
    command.args(line.split(' ').map(program)).env("XDG_CACHE_HOME", cache_home()).stdin(stdin);
    command.output().unwrap()
}

/// A report, a tracking file and a file of marks, for options that need one besides the file in question.
struct Sound {
    report: String,
    points: String,
    marks: String,
}

impl Sound {
    fn make(directory: &Path) -> Self {
        let [report, points, marks] = ["report.json", "points.csv", "marks.csv"]
            .map(|name| directory.join(name).to_str().unwrap().to_owned());
        let made = run(&format!("gpu-track-run -q -o {report} --tf {points} -- true"), Stdio::null());
        assert!(made.status.success(), "{made:?}");
        fs::write(&marks, "process_id,code_block_name,position,timestamp\n").unwrap();
        Self { report, points, marks }
    }

    /// The line with the paths of files in the places of words.
    fn filled_in(&self, line: &str, file: &Path) -> String {
        let words = [("REPORT", &*self.report), ("POINTS", &self.points), ("MARKS", &self.marks)];
        let new = file.with_extension("new.csv");
        let all =
            words.into_iter().chain([("FILE", file.to_str().unwrap()), ("NEW.csv", new.to_str().unwrap())]);
        all.fold(line.to_owned(), |line, (word, path)| line.replace(word, path))
    }
}

// Requirement: FAULT-20, CMD-53
#[test]
fn any_kind_of_file_that_a_user_names_is_refused_within_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let sound = Sound::make(directory.path());
    for (row, (name, given)) in USES.iter().chain(&MORE).enumerate() {
        let Reads(extensions, line, status) = given else { continue };
        for (extension, (kind, make)) in
            extensions.split(' ').flat_map(|end| KINDS.iter().map(move |kind| (end, kind)))
        {
            let file = directory.path().join(format!("{row}-{kind}{extension}"));
            make(&file);
            let line = sound.filled_in(line, &file);
            let done = run(&line, Stdio::null());
            let stderr = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(*status), "{name}, {kind}{extension}: {line}: {stderr}");
            let told = format!("{stderr}{}", String::from_utf8_lossy(&done.stdout));
            // Some options take directories, and may miss something else then.
            let is_named = told.contains(file.to_str().unwrap()) || *kind == "directory";
            assert!(is_named, "{name}, {kind}{extension}: {line}: {told}");
        }
    }
}

/// stdin has no end, and the whole of it is never kept.
// Requirement: FAULT-20
#[test]
fn stdin_is_read_up_to_a_bound() {
    let lines = [
        "gpu-track-run --tconfig - -- true",
        "gpu-track report -",
        "gpu-track report /dev/stdin",
        "gpu-track compare - -",
        "gpu-track study -",
        "gpu-track sub-track compare --cconfig -",
        "gpu-track sub-track show -",
        "gpu-track metrics -",
    ];
    for line in lines {
        let done = run(line, File::open("/dev/zero").unwrap().into());
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains("is longer than") || stderr.contains("it has more than"), "{line}: {stderr}");
    }
}

// Requirement: FAULT-20
#[test]
fn stdin_and_pipes_of_a_shell_are_read() {
    if !Path::new("/bin/bash").exists() {
        skip!("needs bash, for <(COMMAND)");
    }
    let directory = tempfile::tempdir().unwrap();
    let report = Sound::make(directory.path()).report;
    let shown = run(&format!("gpu-track report {report}"), Stdio::null()).stdout;
    for arguments in
        ["report <(cat \"$2\")", "report - <\"$2\"", "report /dev/stdin <\"$2\"", "report /dev/fd/5 5<\"$2\""]
    {
        let script = format!("\"$1\" {arguments}");
        let mut bash = Command::new("/bin/bash");
        bash.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_gpu-track"), &report]).stdin(Stdio::null());
        let done = bash.output().unwrap();
        assert_eq!(
            (done.stdout, done.status.code()),
            (shown.clone(), Some(0)),
            "{arguments}: {:?}",
            done.stderr
        );
    }
}
