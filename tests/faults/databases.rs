//! Databases that another user made, or put files beside. Readers change nothing, and a writer uses only files of its own.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::rows::Database;
use crate::support::run::become_user;
use crate::support::{is_root, or_skip, skip, tracked, wait_until};

const USER: u32 = 64_001;
const ATTACKER: u32 = 64_002;
const NEEDS_ROOT: &str = "needs root, to become other users";
/// Each command that reads a database. FILE stands for it, and NEW for a new file.
const READERS: [&[&str]; 9] = [
    &["report", "FILE"],
    &["report", "FILE", "--every", "1"],
    &["report", "FILE", "--list-events"],
    &["report", "FILE", "-f", "csv"],
    &["sub-track", "analyze", "--tf", "FILE", "--stf", "FILE"],
    &["sub-track", "calls", "--stf", "FILE"],
    &["sub-track", "combine", "--stf", "NEW", "-p", "FILE"],
    &["sub-track", "samples", "--tf", "FILE"],
    &["watch", "--replay", "FILE"],
];
/// How a journal begins and ends.
const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// A directory where all users may write, and only owners may remove files, and its path without links.
fn shared() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

/// The users that run a test: this one, and an ordinary one if it is root.
fn users() -> Vec<Option<u32>> {
    if is_root() { vec![None, Some(USER)] } else { vec![None] }
}

/// Makes this the user's file, if it is root that makes it.
fn give(path: &Path, user: Option<u32>) {
    if let Some(user) = user {
        chown(path, Some(user), Some(user)).unwrap();
    }
}

/// Runs gpu-track as a user, for a minute at most.
fn gpu_track(user: Option<u32>, arguments: &[&str]) -> Output {
    let mut words: Vec<String> = user.map(|user| become_user(user).to_vec()).unwrap_or_default();
    words.extend(["timeout", "60", env!("CARGO_BIN_EXE_gpu-track")].map(str::to_owned));
    Command::new(&words[0]).args(&words[1..]).args(arguments).output().unwrap()
}

/// A journal that SQLite plays back into the database, and which has it delete the file `victim`.
fn journal_naming(database: &Path, victim: &Path) -> Vec<u8> {
    const PAGE: u32 = 4096;
    let numbers =
        |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    let pages = (database.metadata().unwrap().len() / u64::from(PAGE)) as u32;
    // No pages, a seed of checksums, the size of the database, of a sector, and of a page (sqlite.org/fileformat2.html).
    let mut bytes = [MAGIC.to_vec(), numbers(&[0, 1, pages, 512, PAGE])].concat();
    bytes.resize(512, 0);
    let name = victim.as_os_str().as_bytes();
    let sum = name.iter().map(|byte| u32::from(*byte)).sum();
    [bytes, numbers(&[1]), name.to_vec(), numbers(&[name.len() as u32, sum]), MAGIC.to_vec()].concat()
}

/// What is in a directory: the name of each file, and what tells whether it was changed or replaced.
fn state(directory: &Path) -> Vec<(OsString, u64, u64, i64, i64)> {
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let found = fs::symlink_metadata(entry.path()).unwrap();
        (entry.file_name(), found.ino(), found.len(), found.ctime(), found.ctime_nsec())
    };
    let mut all: Vec<_> = fs::read_dir(directory).unwrap().map(file).collect();
    all.sort();
    all
}

/// A tracking file in the directory.
fn tracking_file(directory: &Path) -> PathBuf {
    let path = directory.join("t.sqlite");
    assert_eq!(tracked(["/bin/true"]).options(&["--tf", path.to_str().unwrap()]).run().stderr, "");
    path
}

// Requirement: SQL-1
#[test]
fn no_reader_does_what_a_journal_says() {
    for user in users() {
        let (_directory, shared) = shared();
        let path = tracking_file(&shared);
        let [victim, journal, new] =
            ["victim", "t.sqlite-journal", "new.sqlite"].map(|name| shared.join(name));
        fs::write(&victim, "precious").unwrap();
        for file in [&path, &victim] {
            give(file, user);
        }
        let makers = if is_root() { vec![user, Some(ATTACKER)] } else { vec![user] };
        for (maker, is_pipe) in makers.iter().flat_map(|maker| [(*maker, false), (*maker, true)]) {
            match is_pipe {
                true => assert!(Command::new("mkfifo").arg(&journal).status().unwrap().success()),
                false => fs::write(&journal, journal_naming(&path, &victim)).unwrap(),
            }
            fs::set_permissions(&journal, Permissions::from_mode(0o666)).unwrap();
            give(&journal, maker);
            let before = state(&shared);
            for reader in READERS {
                let words: Vec<&str> = reader
                    .iter()
                    .map(|word| match *word {
                        "FILE" => path.to_str().unwrap(),
                        "NEW" => new.to_str().unwrap(),
                        word => word,
                    })
                    .collect();
                let done = gpu_track(user, &words);
                let message = String::from_utf8(done.stderr).unwrap();
                assert_eq!(done.status.code(), Some(2), "{reader:?}, {user:?}, {maker:?}: {message}");
                assert!(message.contains("t.sqlite-journal is beside it"), "{message}");
                assert_eq!(state(&shared), before, "{reader:?}");
            }
            fs::remove_file(&journal).unwrap();
        }
        // Without it, the same file is read.
        let done = gpu_track(user, &["report", path.to_str().unwrap(), "--list-events"]);
        assert!(String::from_utf8(done.stdout).unwrap().contains("start"));
    }
}

// Requirement: SQL-2
#[test]
fn view_without_an_end_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.sqlite");
    let make = "import sqlite3, sys; base = sqlite3.connect(sys.argv[1])
base.execute('CREATE TABLE static_data(ram_unit, gpu_ram_unit, system_gpu_count)')
base.execute(\"INSERT INTO static_data VALUES ('bytes', 'bytes', 0)\")
base.execute('CREATE VIEW data AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS timestamp FROM c')
base.commit()";
    if !Command::new("python3").args(["-c", make]).arg(&path).status().is_ok_and(|status| status.success()) {
        skip!("needs python3");
    }
    for words in [["report", "FILE", "-f", "csv"], ["sub-track", "calls", "--stf", "FILE"]] {
        let done =
            gpu_track(None, &words.map(|word| if word == "FILE" { path.to_str().unwrap() } else { word }));
        let message = String::from_utf8(done.stderr).unwrap();
        assert!(message.contains("has a view \"data\", and only tables are read"), "{message}");
    }
}

// Requirement: SQL-3
#[test]
fn file_that_another_user_has_put_in_place_of_the_journal_is_refused_before_the_command() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    for user in users() {
        for make in ["touch $1", "echo x >$1", "mkfifo $1", "ln -s victim $1", "mkdir $1"] {
            let (_directory, shared) = shared();
            let [path, victim, journal] =
                ["t.sqlite", "victim", "t.sqlite-journal"].map(|name| shared.join(name));
            fs::write(&victim, "precious").unwrap();
            let script = format!("{make} && chmod 777 $1");
            let [program, options @ ..] = become_user(ATTACKER);
            let made =
                Command::new(program).args(options).args(["sh", "-c", &script, "sh"]).arg(&journal).status();
            // The mode of a link's target is not the attacker's to change.
            assert!(made.unwrap().success() || journal.is_symlink());
            let before = state(&shared);
            let run = tracked(["echo", "started"]).options(&["--tf", path.to_str().unwrap()]);
            let run = if user.is_some() { or_skip!(run.by_user(USER)) } else { run }.run();
            assert_eq!((run.status.code(), run.stdout.as_str()), (Some(2), ""), "{make}: {}", run.stderr);
            assert!(run.stderr.contains(&format!("is there, of user {ATTACKER} ")), "{}", run.stderr);
            assert_eq!(state(&shared), before, "{make}");
        }
    }
}

// Requirement: SQL-3, SQL-51
#[test]
fn another_user_can_neither_read_nor_replace_what_is_beside_the_database_of_a_run() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    for user in users() {
        let (_directory, shared) = shared();
        let [path, journal, log] =
            ["t.sqlite", "t.sqlite-journal", "t.sqlite-wal"].map(|name| shared.join(name));
        let run = tracked(["sh", "-c", "echo ready; read x"]).piped_stdin();
        let run = run.options(&["--st", "0.02", "--tf", path.to_str().unwrap()]);
        let mut running = if user.is_some() { or_skip!(run.by_user(USER)) } else { run }.start();
        wait_until("a transaction", || journal.metadata().is_ok_and(|journal| journal.len() > 0));
        let found = journal.metadata().unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (user.unwrap_or(0), 0o600));
        let attack = "cd $1; ! cat t.sqlite-journal && ! (echo x >>t.sqlite-journal) && ! rm -f t.sqlite-journal && \
                      ! mv t.sqlite-journal x && ! (echo x >>t.sqlite) && echo log >t.sqlite-wal && chmod 666 t.sqlite-wal";
        let [program, options @ ..] = become_user(ATTACKER);
        let done = Command::new(program).args(options).args(["sh", "-c", attack, "sh"]).arg(&shared).output();
        assert!(done.unwrap().status.success());
        // The attacker may read the database, but not what can be a part of it. In a transaction that is not needed.
        wait_until("a refusal", || {
            let done = gpu_track(Some(ATTACKER), &["report", path.to_str().unwrap(), "--list-events"]);
            let message = String::from_utf8(done.stderr).unwrap();
            message.contains("t.sqlite-journal is beside it, which cannot be read (Permission denied")
        });
        running.replace_collector();
        std::io::Write::write_all(&mut running.stdin(), b"go\n").unwrap();
        let run = running.wait();
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
        assert_eq!(fs::read(&log).unwrap(), b"log\n");
        fs::remove_file(&log).unwrap();
        assert_eq!(state(&shared).len(), 1, "only the database stays");
        assert_eq!(Database::read(&path).processes().len(), 1, "{}", run.stderr);
    }
}
