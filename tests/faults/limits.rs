//! A limit acts while launcher, collector or both are killed: the tree ends, and each process gets one SIGTERM.

use std::path::Path;
use std::time::Duration;

use gpu_track_collector::ProcRoot;

use crate::support::run::Running;
use crate::support::{kill, leftovers, tracked, wait_until};
use crate::{Random, rounds};

/// Processes that count their SIGTERMs in files of the directory, and end a little later. One ignores SIGTERM.
const COUNTERS: &str = "\
count() { trap \"echo >>$1/term.$2; sleep 0.1; exit 0\" TERM; echo >>$1/up; while :; do sleep 0.01; done; }
for n in 1 2 3; do (count \"$1\" $n) & done
(trap '' TERM; echo >>\"$1/up\"; while :; do sleep 0.01; done) &
setsid sh -c 'echo >>\"$0/up\"; exec sleep 1000' \"$1\" &
wait; wait; wait; wait; wait";

/// How many lines a file has.
fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// What is killed in a run.
#[derive(Debug, Clone, Copy)]
struct Victims {
    launcher: bool,
    collector: bool,
}

impl Victims {
    fn chosen(random: &mut Random) -> Self {
        let [launcher, collector] = [[true, false], [false, true], [true, true]][random.below(3) as usize];
        Self { launcher, collector }
    }

    fn kill(self, running: &Running) {
        if let Some(collector) = running.collector().filter(|_| self.collector) {
            kill(collector, libc::SIGKILL);
        }
        if self.launcher {
            kill(running.pid(), libc::SIGKILL);
        }
    }
}

// Requirement: LIMIT-6
#[test]
fn tree_ends_once_whoever_is_killed_while_a_limit_acts() {
    let mut random = Random(0x6a09_e667_f3bc_c909);
    for round in 0..rounds(4) {
        let directory = tempfile::tempdir().unwrap();
        let up = directory.path().join("up");
        let words = ["sh", "-c", COUNTERS, "counters", directory.path().to_str().unwrap()];
        let options = ["--limit", "wall=2500ms", "--kill-after", "2s"];
        let running = tracked(words).options(&options).start();
        wait_until("five processes", || lines(&up) == 5);
        let (mark, launcher) = (running.mark().to_owned(), running.pid());
        let victims = Victims::chosen(&mut random);
        let is_being_ended = || (1..4).any(|n| directory.path().join(format!("term.{n}")).exists());
        if victims.launcher && victims.collector {
            // If both are killed before, nobody ends it.
            wait_until("the first SIGTERM", is_being_ended);
        }
        std::thread::sleep(Duration::from_micros(random.below(4_500_000)));
        victims.kill(&running);
        wait_until("the end of the tree", || {
            let left = leftovers::processes(&mark);
            left.iter().all(|(_, command)| command.contains("gpu-track"))
        });
        for n in 1..4 {
            let terms = lines(&directory.path().join(format!("term.{n}")));
            assert_eq!(terms, 1, "round {round}, {victims:?}: process {n} got SIGTERM {terms} times");
        }
        if !victims.launcher {
            let run = running.wait();
            assert_eq!(run.status.code(), Some(137), "{}", run.stderr);
            assert_eq!(run.report().at("exit.cause.kind"), "limit");
            continue;
        }
        wait_until("the end of collector and ender", || leftovers::processes(&mark).is_empty());
        drop(running);
        assert_eq!(leftovers::segments(launcher), [""; 0]);
    }
}

/// Pid of the ender that this process has started.
fn ender_of(parent: u32) -> u32 {
    let root = ProcRoot::default();
    let is_ender = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"gpu-track-ender\0")
    };
    let mut found = None;
    wait_until("an ender", || {
        let threads = root.threads(parent).len() as u64;
        found = root.children(parent, threads).into_iter().find(is_ender);
        found.is_some()
    });
    found.unwrap()
}

// Requirement: LIMIT-4, LIMIT-6
#[test]
fn ender_that_is_stopped_goes_on() {
    for has_launcher in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let go = directory.path().join("go").display().to_string();
        // It ignores SIGTERM, so that the ender is at work for a while.
        let script = format!(
            "trap '' TERM; echo ready; until [ -e {go} ]; do sleep 0.01; done; sleep 1000 & sleep 1000 & while :; do sleep 0.05; done"
        );
        let options = ["--limit", "processes=2", "--kill-after", "2s"];
        let running = tracked(["sh", "-c", &script]).options(&options).start();
        running.wait_for_output("ready");
        let collector = running.wait_for_collector();
        if !has_launcher {
            kill(running.pid(), libc::SIGKILL);
        }
        std::fs::write(go, "").unwrap();
        let ender = ender_of(if has_launcher { running.pid() } else { collector });
        kill(ender, libc::SIGSTOP);
        wait_until("the collector's end", || !Path::new(&format!("/proc/{collector}")).exists());
        let run = running.wait();
        assert_eq!(run.status.code(), has_launcher.then_some(137), "{}", run.stderr);
        assert_eq!(
            (run.report().at("exit.cause.kind"), run.report().u64("exit.cause.left")),
            (&"limit".into(), 0)
        );
    }
}
