//! The tasks of a pipeline that processes of the tree belong to.
//!
//! A START record has the marks of its process: a hash for each kind ([`gpu_track_abi::task`]). A mark that the process's task lacks
//! begins a task within that task. So a task is the topmost process with its mark, and all below it that have no other new mark.
//! Equal marks within one task are one task, however often a process begins it: a job that is tried again counts as one. But a command
//! of Snakemake can be that of several jobs, and a file can be compiled several times: see [`TaskEntry::is_tried_again`].
//!
//! A process stays in its task when it execs. A process without a START record is in its parent's task.

use std::sync::Arc;

use gpu_track_abi::task::{KINDS, TaskKeys, TaskKind};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::model::ids::{ProcessId, TaskId};

/// Maximum number of tasks of a run. Further ones are one, [`TaskId::OTHERS`].
const MAX_TASKS: usize = 10_000;
/// Maximum number of tasks around one. A mark that is met deeper begins no task.
const MAX_DEPTH: u32 = 16;

/// What a task is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TaskEntry {
    /// What marks it.
    pub(crate) kind: TaskKind,
    /// Its name, as the program gave it. It can have control characters.
    pub(crate) name: Arc<str>,
    /// The task in which it began.
    pub(crate) parent: TaskId,
    /// Its mark, and those of the tasks around it.
    hashes: [u32; KINDS],
    /// How many tasks are around it.
    depth: u32,
    /// A task began in it.
    pub(crate) has_nested: bool,
    /// When the first process started, or entered it after another program, CLOCK_MONOTONIC nanoseconds.
    pub(crate) start_ns: u64,
    /// The process that began it last.
    begun_by: ProcessId,
    /// The process that began it was finalized, and has failed.
    has_failed: bool,
}

impl TaskEntry {
    /// The mark of this kind; 0: it has none.
    fn hash(&self, kind: TaskKind) -> u32 {
        self.hashes.get(kind as usize).copied().unwrap_or(0)
    }

    /// Whether a process with this mark is a further try of the task, and does not begin another one. `has_failed`: how a process ended
    /// that was not finalized.
    fn is_tried_again(&self, has_failed: impl Fn(ProcessId) -> Option<bool>) -> bool {
        match self.kind {
            TaskKind::Snakemake => has_failed(self.begun_by).unwrap_or(self.has_failed),
            // A configure compiles hundreds of such, one after another.
            TaskKind::Compile => self.name.starts_with("conftest."),
            _ => true,
        }
    }
}

/// That a process begins a task.
#[derive(Clone, Copy)]
struct Begin {
    kind: TaskKind,
    hash: u32,
    by: ProcessId,
    /// CLOCK_MONOTONIC, nanoseconds.
    at_ns: u64,
}

/// The tasks of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct TaskTable {
    /// In the order in which they began: see [`Self::index`].
    entries: Vec<TaskEntry>,
    /// By the task around it, kind and hash; the last one of several.
    ids: FxHashMap<(TaskId, TaskKind, u32), TaskId>,
    /// There were more than [`MAX_TASKS`].
    has_others: bool,
}

impl TaskTable {
    /// Whether no task has begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A task. `None`: it is [`TaskId::WORKFLOW`] or [`TaskId::OTHERS`].
    pub(crate) fn get(&self, id: TaskId) -> Option<&TaskEntry> {
        self.entries.get(Self::index(id)?)
    }

    fn get_mut(&mut self, id: TaskId) -> Option<&mut TaskEntry> {
        self.entries.get_mut(Self::index(id)?)
    }

    /// All tasks, in the order in which they began.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskId, &TaskEntry)> {
        (TaskId::FIRST.0..).map(TaskId).zip(&self.entries)
    }

    /// The tasks that a process of this task is in: the task itself first, then those around it.
    pub(crate) fn with_those_around(&self, id: TaskId) -> impl Iterator<Item = (TaskId, &TaskEntry)> {
        let entry = |id: TaskId| self.get(id).map(|entry| (id, entry));
        std::iter::successors(entry(id), move |(_, task)| entry(task.parent))
    }

    /// The tasks of a kind: the hash of the mark of each, and its name.
    pub(in crate::run) fn of_kind(&self, kind: TaskKind) -> impl Iterator<Item = (u32, &str)> {
        let tasks = self.entries.iter().filter(move |task| task.kind == kind);
        tasks.map(move |task| (task.hash(kind), &*task.name))
    }

    /// Names tasks of a kind, by the hashes of their marks. A rule of Snakemake comes before the job's name, as it has many jobs. Any
    /// other name replaces the task's. Returns the tasks that got another name.
    pub(in crate::run) fn name(&mut self, kind: TaskKind, names: &[(u32, String)]) -> Vec<TaskId> {
        let names: FxHashMap<u32, &String> = names.iter().map(|(hash, name)| (*hash, name)).collect();
        let mut named = Vec::new();
        for (id, task) in (TaskId::FIRST.0..).map(TaskId).zip(&mut self.entries) {
            let Some(name) = names.get(&task.hash(kind)).filter(|_| task.kind == kind) else { continue };
            let start = format!("{name}: ");
            let (is_told, name) = match kind {
                // A resumed collector is told again.
                TaskKind::Snakemake => (task.name.starts_with(&start), start + &task.name),
                _ => (&*task.name == name.as_str(), name.to_string()),
            };
            if !is_told {
                task.name = Arc::from(name);
                named.push(id);
            }
        }
        named
    }

    /// The task of a process `by` of the task `from` that loads an image with these marks. A task of which it is the first process begins
    /// at this time, CLOCK_MONOTONIC nanoseconds. `has_failed`: whether a process has ended and failed; `None`: it was finalized.
    pub(in crate::run) fn enter(
        &mut self,
        (by, from): (ProcessId, TaskId),
        keys: &TaskKeys,
        at_ns: u64,
        has_failed: impl Fn(ProcessId) -> Option<bool>,
    ) -> TaskId {
        keys.iter().fold(from, |task, (kind, hash, name)| {
            let name = || Arc::from(String::from_utf8_lossy(name));
            let begin = Begin { kind, hash, by, at_ns };
            self.enter_one(task, begin, |known| known.is_tried_again(&has_failed), name)
        })
    }

    /// Notes that a process of this task was finalized.
    pub(super) fn note_end(&mut self, task: TaskId, process: ProcessId, has_failed: bool) {
        if let Some(entry) = self.get_mut(task).filter(|entry| entry.begun_by == process) {
            entry.has_failed = has_failed;
        }
    }

    /// The task, when the tasks around it turn out to be in another one: `id` was reached from `from`, and is now reached from `to`.
    /// [`TaskId::OTHERS`] stays, since the marks that led there are not known.
    pub(super) fn moved(&mut self, id: TaskId, from: TaskId, to: TaskId) -> TaskId {
        if id == TaskId::OTHERS {
            return id;
        }
        let within = self.with_those_around(id).take_while(|(task, _)| *task != from);
        let path: Vec<TaskEntry> = within.map(|(_, entry)| entry.clone()).collect();
        path.into_iter().rev().fold(to, |task, entry| {
            let hash = entry.hash(entry.kind);
            let begin = Begin { kind: entry.kind, hash, by: entry.begun_by, at_ns: entry.start_ns };
            self.enter_one(task, begin, |_| true, || entry.name)
        })
    }

    /// Returns the task that a process of the task `from` is in after it got this mark, and makes that task if it is new. The process
    /// stays in `from` if that has the mark already, is [`TaskId::OTHERS`], or is as deep as a task can be. `is_again`: whether it
    /// begins this task again, which has the mark, and not another one.
    fn enter_one(
        &mut self,
        from: TaskId,
        Begin { kind, hash, by, at_ns }: Begin,
        is_again: impl FnOnce(&TaskEntry) -> bool,
        name: impl FnOnce() -> Arc<str>,
    ) -> TaskId {
        let around = self.get(from);
        let mut hashes = around.map_or([0; KINDS], |task| task.hashes);
        let depth = around.map_or(0, |task| task.depth + 1);
        let is_known = around.is_some_and(|task| task.hash(kind) == hash);
        if is_known || from == TaskId::OTHERS || depth > MAX_DEPTH {
            return from;
        }
        let known = self.ids.get(&(from, kind, hash)).copied();
        if let Some(known) = known
            && let Some(entry) = self.get_mut(known).filter(|entry| is_again(entry))
        {
            entry.start_ns = entry.start_ns.min(at_ns);
            (entry.begun_by, entry.has_failed) = (by, false);
            return known;
        }
        if self.entries.len() >= MAX_TASKS {
            self.has_others = true;
            return TaskId::OTHERS;
        }
        let id = TaskId(TaskId::FIRST.0 + self.entries.len() as u32);
        if let Some(own) = hashes.get_mut(kind as usize) {
            *own = hash;
        }
        if let Some(around) = self.get_mut(from) {
            around.has_nested = true;
        }
        self.entries.push(TaskEntry {
            kind,
            name: name(),
            parent: from,
            hashes,
            depth,
            has_nested: false,
            start_ns: at_ns,
            begun_by: by,
            has_failed: false,
        });
        self.ids.insert((from, kind, hash), id);
        id
    }

    /// The place of a task in `entries`.
    fn index(id: TaskId) -> Option<usize> {
        id.0.checked_sub(TaskId::FIRST.0).map(|index| index as usize)
    }
}

#[cfg(test)]
impl TaskTable {
    /// A process that began no task before enters one.
    pub(in crate::run) fn enter_new(&mut self, from: TaskId, keys: &TaskKeys, at_ns: u64) -> TaskId {
        self.enter((ProcessId(0), from), keys, at_ns, |_| None)
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_abi::task::TEXT_BYTES;

    use super::*;

    fn keys(marks: &[(TaskKind, u32, &str)]) -> TaskKeys {
        let mut keys = TaskKeys::NONE;
        let text: Vec<&str> = marks.iter().map(|(_, _, name)| *name).collect();
        let text = text.join("\0");
        keys.text[..text.len()].copy_from_slice(text.as_bytes());
        assert!(text.len() < TEXT_BYTES);
        for (kind, hash, _) in marks {
            keys.hashes[*kind as usize] = *hash;
        }
        keys
    }

    // Requirement: TASK-3
    #[test]
    fn mark_that_the_task_lacks_begins_a_task_within_it() {
        let mut table = TaskTable::default();
        let rule = table.enter_new(TaskId::WORKFLOW, &keys(&[(TaskKind::Snakemake, 7, "sort")]), 5);
        let job = keys(&[(TaskKind::Parallel, 1, "1")]);
        let in_rule = table.enter_new(rule, &job, 6);
        // The shell's children carry the same mark, and those of the rule do not carry the rule's.
        assert_eq!(
            (table.enter_new(in_rule, &job, 7), table.enter_new(in_rule, &TaskKeys::NONE, 7)),
            (in_rule, in_rule)
        );
        // The same mark begins the same task again, and another one elsewhere.
        assert_eq!(table.enter_new(rule, &job, 6), in_rule);
        assert_ne!(table.enter_new(TaskId::WORKFLOW, &job, 8), in_rule);
        assert_eq!(table.get(in_rule).unwrap().start_ns, 6);
        let around: Vec<&str> = table.with_those_around(in_rule).map(|(_, task)| &*task.name).collect();
        assert_eq!(around, ["1", "sort"]);
        assert!(table.get(rule).unwrap().has_nested && !table.get(in_rule).unwrap().has_nested);
    }

    // Requirement: TASK-11
    #[test]
    fn jobs_of_snakemake_get_the_names_of_their_rules() {
        let mut table = TaskTable::default();
        let mark = |hash, name| keys(&[(TaskKind::Snakemake, hash, name)]);
        let [known, other] =
            [mark(7, "sort x"), mark(8, "sort y")].map(|keys| table.enter_new(TaskId::WORKFLOW, &keys, 5));
        for named in [vec![known], Vec::new()] {
            let rules = [(7, "order".into()), (9, "none".into())];
            assert_eq!(table.name(TaskKind::Snakemake, &rules), named);
        }
        assert_eq!(&*table.get(known).unwrap().name, "order: sort x");
        assert_eq!(&*table.get(other).unwrap().name, "sort y");
        assert_eq!(table.name(TaskKind::Nextflow, &[(8, "x".into())]), []);
    }

    // Requirement: TASK-12
    #[test]
    fn tasks_of_nextflow_get_their_names() {
        let mut table = TaskTable::default();
        let task = table.enter_new(TaskId::WORKFLOW, &keys(&[(TaskKind::Nextflow, 7, "4f/01")]), 5);
        assert_eq!(table.of_kind(TaskKind::Nextflow).collect::<Vec<_>>(), [(7, "4f/01")]);
        for named in [vec![task], Vec::new()] {
            assert_eq!(table.name(TaskKind::Nextflow, &[(7, "hello (1)".into())]), named);
        }
        assert_eq!(&*table.get(task).unwrap().name, "hello (1)");
    }

    #[test]
    fn several_new_marks_nest_in_the_order_of_kinds() {
        let mut table = TaskTable::default();
        let both = keys(&[(TaskKind::Nextflow, 1, "ab/cd"), (TaskKind::Compile, 2, "a.c")]);
        let unit = table.enter_new(TaskId::WORKFLOW, &both, 5);
        let kinds: Vec<TaskKind> = table.with_those_around(unit).map(|(_, task)| task.kind).collect();
        assert_eq!(kinds, [TaskKind::Compile, TaskKind::Nextflow]);
    }

    #[test]
    fn task_moves_with_the_tasks_around_it() {
        let mut table = TaskTable::default();
        let marks = [(TaskKind::Parallel, 1, "1"), (TaskKind::Compile, 2, "a.c")];
        let unit = table.enter_new(TaskId::WORKFLOW, &keys(&marks), 3);
        let rule = table.enter_new(TaskId::WORKFLOW, &keys(&[(TaskKind::Snakemake, 7, "sort")]), 5);
        let moved = table.moved(unit, TaskId::WORKFLOW, rule);
        let names: Vec<&str> = table.with_those_around(moved).map(|(_, task)| &*task.name).collect();
        assert_eq!(names, ["a.c", "1", "sort"]);
        let starts = [moved, rule].map(|id| table.get(id).unwrap().start_ns);
        assert_eq!(starts, [3, 5], "when its process entered it");
        // The task to which it moves has its marks: then it was that one.
        let again = table.moved(unit, TaskId::WORKFLOW, moved);
        assert_eq!((again, table.moved(TaskId::WORKFLOW, TaskId::WORKFLOW, rule)), (moved, rule));
    }

    // Requirement: TASK-51
    #[test]
    fn forged_marks_take_bounded_memory() {
        let mut table = TaskTable::default();
        let mut deepest = TaskId::WORKFLOW;
        for hash in 1..2 * MAX_TASKS as u32 {
            let mark = keys(&[(TaskKind::Parallel, hash, "x")]);
            table.enter_new(TaskId::WORKFLOW, &mark, 5);
            deepest = table.enter_new(deepest, &mark, 5);
        }
        assert_eq!((table.entries.len(), table.has_others), (MAX_TASKS, true));
        assert_eq!(table.with_those_around(deepest).count(), MAX_DEPTH as usize + 1);
        let further = keys(&[(TaskKind::Parallel, u32::MAX, "x")]);
        let others = table.enter_new(TaskId::WORKFLOW, &further, 5);
        assert_eq!(
            (others, table.enter_new(others, &keys(&[(TaskKind::Env, 1, "y")]), 5)),
            (TaskId::OTHERS, others)
        );
        assert_eq!(table.moved(others, TaskId::WORKFLOW, TaskId::FIRST), others);
    }
}
