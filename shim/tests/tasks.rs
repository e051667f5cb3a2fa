//! The marks of tasks in START records.

mod common;
use common::*;

use std::os::unix::process::CommandExt;
use std::sync::atomic::Ordering::Relaxed;

use gpu_track_abi::record::{Event, Origin};
use gpu_track_abi::task::{TaskKeys, TaskKind};

/// The marks in the START records of a command's processes, with their names.
fn marks(events: &[(Origin, Event)]) -> Vec<(TaskKind, String)> {
    let task = |(_, event): &(Origin, Event)| match event {
        Event::Start { task, .. } => Some(*task),
        _ => None,
    };
    let named = |keys: &TaskKeys| -> Vec<(TaskKind, String)> {
        keys.iter().map(|(kind, _, name)| (kind, String::from_utf8_lossy(name).into_owned())).collect()
    };
    events.iter().filter_map(task).flat_map(|keys| named(&keys)).collect()
}

/// The marks of `true` with these variables.
fn of_true(session: &Session, variables: &[(&str, &str)]) -> Vec<(TaskKind, String)> {
    assert_clean(&run(session.command("true").envs(variables.iter().copied()).process_group(0)));
    marks(&session.events())
}

// Requirement: TASK-1, TASK-63
#[test]
fn start_has_the_marks_of_environment_and_arguments() {
    let session = Session::new();
    assert_eq!(of_true(&session, &[("PARALLEL_PID", "7"), ("PARALLE", "1"), ("PYTEST", "x")]), []);
    let job = [("PARALLEL_SEQ", "12")];
    assert_eq!(of_true(&session, &job), [(TaskKind::Parallel, "12".to_owned())]);
    // What parallel runs itself is in its own process group.
    assert_clean(&run(session.command("true").envs(job)));
    assert_eq!(marks(&session.events()), []);
    let step = [
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_PROCID_", "9"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "3"),
        ("SLURM_JOB_ID", "7"),
    ];
    assert_eq!(of_true(&session, &step), [(TaskKind::SlurmStep, "7.0.3".to_owned())]);
    let shell = ["-c", "set -euo pipefail;  true; true"];
    assert_clean(&run(session.command("bash").args(shell)));
    assert_eq!(marks(&session.events()), [(TaskKind::Snakemake, "true; true".to_owned())]);
}

// Requirement: TASK-2
#[test]
fn each_session_names_its_own_variables() {
    let session = Session::new();
    let names = &session.header().task_names;
    names.iter().zip(b"SAMPLE\0A\0").for_each(|(to, from)| to.store(*from, Relaxed));
    let other = Session::new();
    let both = format!("{}:{}", session.path.display(), other.path.display());
    let variables = [("SAMPLE", "x"), (gpu_track_abi::ENV_SESSION, &both)];
    assert_eq!(of_true(&session, &variables), [(TaskKind::Env, "SAMPLE=x".to_owned())]);
    assert_eq!((count(&other.events(), 'S'), marks(&other.events())), (1, vec![]));
}

// Requirement: TASK-3
#[test]
fn marks_that_the_launcher_inherited_are_left_out() {
    let mut session = Session::new();
    let job = [("PARALLEL_PID", "7"), ("PARALLEL_SEQ", "12")];
    assert_clean(&run(session.command("true").envs(job).process_group(0)));
    let Event::Start { task, .. } = session.events()[0].1 else { panic!() };
    session.header_mut().task_baseline = task.hashes;
    assert_eq!(of_true(&session, &job), []);
    let next = [job[0], ("PARALLEL_SEQ", "13")];
    assert_eq!(of_true(&session, &next), [(TaskKind::Parallel, "13".to_owned())]);
}
