//! What the tree's processes started outside the tree. MPI launchers and Slurm start it on other nodes. Clients are programs that have
//! a daemon or another host do the work (docker, ssh). No figure includes that work, so the report must name it, as far as arguments of
//! processes show it.

pub(super) mod arguments;
mod clients;
pub(crate) mod containers;
mod nodes;

use std::collections::BTreeMap;

use gpu_track_abi::client::is_client;
use gpu_track_abi::record::ARGUMENT_BYTES;
use gpu_track_abi::script::Found;
use serde::{Deserialize, Serialize};

use crate::model::command::{base_name, found};
use crate::model::report::{ElsewhereKind, StartedElsewhere};
use arguments::is_one_of;
use clients::Started;
use containers::ContainerCall;
pub(crate) use nodes::Here;
use nodes::RemoteStarts;

/// Maximum number of entries for calls of clients, beyond which the target of a call is dropped.
const MOST_ENTRIES: usize = 1000;
/// Maximum number of characters of a target.
const MOST_TARGET: usize = 100;
/// The program that tracks what it starts elsewhere, so that the work is in a report of its own.
const TRACKER: &str = "gpu-track-run";
/// Its option where it is an agent of this run, whose report becomes a part of this one.
const AGENT: &str = "--agent";

/// The call of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientCall {
    /// Its arguments, the program or an interpreter first.
    pub(crate) args: Vec<String>,
    /// The arguments of the process that started it, or else that process's name; empty: unknown.
    pub(crate) started_by: Vec<String>,
}

/// What the calls of clients started elsewhere.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Elsewhere {
    pub(crate) nodes: RemoteStarts,
    /// How many calls each entry stands for.
    clients: BTreeMap<ClientEntry, u64>,
    /// Entries for which those of ssh stand: pdsh starts an ssh for each host, with an agent behind it.
    by_ssh: Vec<ClientEntry>,
    /// The program whose daemon is a process of the tree, so that its work is in the figures.
    own_daemon: Option<String>,
    /// The calls that have a daemon run containers, the first [`MOST_ENTRIES`] of them.
    containers: Vec<(ClientEntry, ContainerCall)>,
}

/// What calls have in common that count as one entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct ClientEntry {
    kind: ElsewhereKind,
    program: String,
    target: Option<String>,
    is_tracked: bool,
    /// It is tracked by an agent of this run.
    has_agent: bool,
}

impl ClientEntry {
    fn new(program: &str, args: &[String], started: &Started) -> Self {
        let target = started.target.as_deref().filter(|target| *target != CUT);
        let is_tracked = is_tracked(args);
        Self {
            kind: started.kind,
            program: program.to_owned(),
            target: target.map(|target| target.chars().take(MOST_TARGET).collect()),
            is_tracked,
            has_agent: is_tracked && words(args).any(|word| word == AGENT),
        }
    }

    /// Whether both can be of one call. pdsh cuts the list of hosts in its own arguments at the commas, so /proc shows the first alone.
    fn is_of_same_call(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|entry| entry.target.as_deref().unwrap_or_default());
        let is_same = (self.kind, &self.program) == (other.kind, &other.program);
        is_same && (own.starts_with(others) || others.starts_with(own))
    }
}

/// Where the figures of a call's containers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContainerPlace {
    /// They are not known: why.
    Unseen(String),
    /// In lines of their own.
    Listed,
    /// In lines of their own, and in the figures of the tree, to which their processes belong.
    InTree,
}

impl Elsewhere {
    /// Counts what the call of a client started elsewhere, if it started something, and no other client's call stands for it.
    /// `lifetime`: when the client started, and when it had ended, CLOCK_MONOTONIC nanoseconds; `None`: it still runs.
    pub(crate) fn add(&mut self, call: &ClientCall, lifetime: (u64, Option<u64>)) {
        let Some((program, args)) = client(&call.args) else { return };
        let starter = call.started_by.first().map_or("", |program| base_name(program));
        if self.nodes.add(program, args, starter) {
            return;
        }
        if clients::is_daemon(program, args) {
            self.own_daemon = Some(program.to_owned());
        }
        // Some arguments had no room in the record. If the others tell nothing, the program tells what is likely.
        let is_cut = args.last().is_some_and(|last| last == CUT);
        let started = clients::started(program, args).or_else(|| clients::likely(program).filter(|_| is_cut));
        let Some(started) = started else { return };
        let entry = ClientEntry::new(program, args, &started);
        if entry.has_agent {
            let other = entry_of_other(call).filter(|other| !self.by_ssh.contains(other));
            self.by_ssh.extend(other.filter(|_| self.by_ssh.len() < MOST_ENTRIES));
        } else if is_part_of_other(call) {
            return;
        }
        let has_room = self.clients.len() < MOST_ENTRIES || self.clients.contains_key(&entry);
        let entry = if has_room { entry } else { ClientEntry { target: None, ..entry } };
        *self.clients.entry(entry.clone()).or_default() += 1;
        if let Some(call) = containers::call(program, args)
            && self.containers.len() < MOST_ENTRIES
        {
            let (start_ns, end_ns) = lifetime;
            self.containers.push((entry, ContainerCall { start_ns, end_ns, ..call }));
        }
    }

    /// The calls that have a daemon run containers.
    pub(crate) fn container_calls(&self) -> impl Iterator<Item = &ContainerCall> {
        self.containers.iter().map(|(_, call)| call)
    }

    /// Lists all that was started elsewhere. `places` has the place for each of [`Self::container_calls`].
    pub(crate) fn list(&self, here: &Here, places: &[ContainerPlace]) -> Vec<StartedElsewhere> {
        let calls_of = |entry| {
            let calls = self.containers.iter().zip(places).filter(move |((of, _), _)| of == entry);
            calls.map(|(_, place)| place)
        };
        let reason_of = |place: &ContainerPlace| match place {
            ContainerPlace::Unseen(reason) => Some(reason.clone()),
            ContainerPlace::Listed | ContainerPlace::InTree => None,
        };
        let has_agent = |entry: &ClientEntry| entry.has_agent && here.has_agents;
        let of_agents = |entry, count: u64| if has_agent(entry) { count } else { 0 };
        // LSF carries the environment, and with it the session, to the agents of a job.
        let of_lsf = |entry: &ClientEntry, count: u64| {
            if here.has_agents && entry.program == "blaunch" { count } else { 0 }
        };
        let own = self
            .clients
            .iter()
            .filter(|(entry, _)| !self.by_ssh.iter().any(|other| other.is_of_same_call(entry)))
            .filter(|(entry, _)| self.own_daemon.as_ref() != Some(&entry.program));
        let of_clients = own.map(|(entry, count)| StartedElsewhere {
            kind: entry.kind,
            program: entry.program.clone(),
            target: entry.target.clone(),
            count: *count,
            followed: calls_of(entry).filter(|place| reason_of(place).is_none()).count() as u64
                + of_agents(entry, *count)
                + of_lsf(entry, *count),
            in_tree: calls_of(entry).filter(|place| **place == ContainerPlace::InTree).count() as u64
                + of_agents(entry, *count),
            reason: calls_of(entry).find_map(reason_of),
            is_tracked: entry.is_tracked,
        });
        of_clients.chain(self.nodes.list(here)).collect()
    }
}

/// Splits the arguments of a process into its program, if that is a client, and the arguments after it. `None`: it is no client.
pub(crate) fn client(args: &[String]) -> Option<(&str, &[String])> {
    program(args).filter(|(program, _)| is_client(program.as_bytes()))
}

/// Splits the arguments of a process into the name of its program and the arguments after it. The program is the script if an
/// interpreter runs one. `None`: there are no arguments.
fn program(args: &[String]) -> Option<(&str, &[String])> {
    let (program, rest) = args.split_first()?;
    match found(base_name(program), rest) {
        Some((at, Found::Script(_))) => {
            let (script, rest) = rest.get(at..)?.split_first()?;
            Some((base_name(script), rest))
        }
        _ => Some((base_name(program), rest)),
    }
}

/// Stands in place of the arguments that had no room in a PROGRAM record. No argument is the same, as none can contain a NUL.
const CUT: &str = "\0";

/// The arguments in a PROGRAM record, [`CUT`] the last if there were more. Empty: it has none.
pub(crate) fn recorded_arguments(arguments: &[u8; ARGUMENT_BYTES]) -> Vec<String> {
    let end = arguments.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let Some(used) = arguments.get(..end).filter(|used| !used.is_empty()) else { return Vec::new() };
    let mut arguments: Vec<_> =
        used.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    // No NUL follows the last one, so it may be cut itself.
    if used.len() == ARGUMENT_BYTES {
        arguments.pop();
        arguments.push(CUT.to_owned());
    }
    arguments
}

/// Whether the program that started a client stands for the client's call: it copies files, or is a client itself, such as pdsh or
/// docker, which can use ssh.
fn is_part_of_other(call: &ClientCall) -> bool {
    let copies = program(&call.started_by).is_some_and(|(program, _)| is_one_of(program, clients::COPIES));
    copies || entry_of_other(call).is_some()
}

/// The entry of the client that started this one. `None`: it was started by another program.
fn entry_of_other(call: &ClientCall) -> Option<ClientEntry> {
    let (program, args) = program(&call.started_by)?;
    Some(ClientEntry::new(program, args, &clients::started(program, args)?))
}

/// Whether these arguments start gpu-track-run elsewhere, whose report has what runs there.
fn is_tracked(args: &[String]) -> bool {
    words(args).any(|word| base_name(word) == TRACKER)
}

/// The words of these arguments. One of them can be a line for a shell.
fn words(args: &[String]) -> impl Iterator<Item = &str> {
    let separators = |c: char| c.is_whitespace() || ";&|()'\"`".contains(c);
    args.iter().flat_map(move |argument| argument.split(separators))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::batch::Job;

    fn words_of(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// What these calls started, each with the command line of its parent, as `program target count`.
    fn listed(calls: &[(&str, &str)]) -> Vec<String> {
        let mut elsewhere = Elsewhere::default();
        for (args, started_by) in calls {
            elsewhere.add(&ClientCall { args: words_of(args), started_by: words_of(started_by) }, (0, None));
        }
        let here = Here { hostname: "n1", job: Job(&BTreeMap::new()), joined: 0, has_agents: true };
        let shown = |row: &StartedElsewhere| {
            let target = row.target.as_deref().unwrap_or("-");
            let tracked = if row.is_tracked { " tracked" } else { "" };
            let in_tree = if row.in_tree == row.count { " by an agent" } else { "" };
            format!("{} {target} {}{tracked}{in_tree}", row.program, row.count)
        };
        elsewhere.list(&here, &[]).iter().map(shown).collect()
    }

    // Requirement: SEE-35
    #[test]
    fn calls_are_counted_by_program_and_target() {
        let calls = [
            ("/usr/bin/docker run alpine", ""),
            ("docker run alpine", "bash"),
            ("sh /opt/docker exec web ls", ""),
            ("ssh n2 /opt/bin/gpu-track-run -- make", ""),
            ("bash -c docker", ""),
            ("ssh n3 orted", ""),
            ("ssh n4 PATH=/and/so", "/usr/bin/mpirun.openmpi -n 4"),
        ];
        let all = ["docker alpine 2", "docker web 1", "ssh n2 1 tracked", "orted n3 1", "mpirun n4 1"];
        assert_eq!(listed(&calls), all);
    }

    // Requirement: SEE-35
    #[test]
    fn client_that_serves_another_program_is_not_told_of() {
        for parent in
            ["git fetch", "/usr/bin/rsync -a x n2:", "perl /usr/bin/parallel -S n2 gzip", "pdsh -w n2 ls"]
        {
            assert_eq!(listed(&[("ssh n2 x", parent)]), [] as [&str; 0], "{parent}");
        }
        for parent in ["", "bash", "make git", "perl /usr/bin/parallel ssh", "perl parallel", "docker ps"] {
            assert_eq!(listed(&[("ssh n2 x", parent)]), ["ssh n2 1"], "{parent}");
        }
    }

    // Requirement: SEE-35
    #[test]
    fn daemon_of_the_tree_works_in_it() {
        let compiles = ("/usr/bin/sccache gcc -c a.c", "make");
        assert_eq!(listed(&[compiles, compiles]), ["sccache gcc 2"]);
        assert_eq!(listed(&[compiles, ("/usr/bin/sccache", "sccache")]), [] as [&str; 0]);
    }

    // Requirement: NODE-43
    #[test]
    fn call_with_an_agent_stands_for_the_client_that_started_it() {
        let with_agent = |host: &str| format!("ssh -x {host} : gpu-track-run --agent; exec sh");
        let (first, second) = (with_agent("me@n2"), with_agent("n3"));
        let pdsh = "pdsh -w n2,n3 ./app";
        let calls =
            [(pdsh, "bash"), (first.as_str(), pdsh), (second.as_str(), pdsh), (second.as_str(), "sh")];
        assert_eq!(listed(&calls), ["ssh n2 1 tracked by an agent", "ssh n3 2 tracked by an agent"]);
        // pdsh has changed its arguments when the second one is read.
        let calls = [("pdsh -w n2 n3 ./app", "bash"), (first.as_str(), pdsh)];
        assert_eq!(listed(&calls), ["ssh n2 1 tracked by an agent"]);
        // A pdsh whose ssh has no agent, and a gpu-track-run of the user's.
        let calls = [(pdsh, "bash"), ("ssh n2 ./app", pdsh), ("ssh n4 gpu-track-run -- ./app", "")];
        assert_eq!(listed(&calls), ["pdsh n2,n3 1", "ssh n4 1 tracked"]);
    }

    // Requirement: SEE-35
    #[test]
    fn hostile_arguments_are_bounded() {
        let long = "x".repeat(5000);
        let calls: Vec<String> = (0..2 * MOST_ENTRIES)
            .map(|i| format!("ssh {i}{long}"))
            .chain(["ssh".to_owned(), String::new()])
            .collect();
        let calls: Vec<(&str, &str)> = calls.iter().map(|call| (call.as_str(), "")).collect();
        let listed = listed(&calls);
        assert_eq!((listed.len(), listed[0].as_str()), (MOST_ENTRIES + 1, "ssh - 1000"));
        assert!(listed.iter().all(|row| row.chars().count() < MOST_TARGET + 20));
    }

    // Requirement: SEE-35
    #[test]
    fn arguments_of_a_record_are_those_that_were_written() {
        let mut bytes = [0; ARGUMENT_BYTES];
        assert_eq!(recorded_arguments(&bytes), [] as [&str; 0]);
        bytes[..11].copy_from_slice(b"ssh\0\0n2\0\xff x");
        assert_eq!(recorded_arguments(&bytes), ["ssh", "", "n2", "\u{fffd} x"]);
        assert_eq!(recorded_arguments(&[b'a'; ARGUMENT_BYTES]), [CUT]);
    }
}
