//! What is known of a program before it runs, by a PROGRAM record of the process that started it. These are the arguments of a client
//! of a daemon or of another host (docker, ssh: see [`crate::run::elsewhere`]), and another user. The record can come before any other
//! source reports the process.

use serde::{Deserialize, Serialize};

use super::process::Image;
use super::tolerance::Tolerance;
use super::{Key, Parent, Process, Tree};
use crate::model::command::base_name;
use crate::run::elsewhere::{ClientCall, client};

/// Maximum number of announcements that are kept. Only those of live processes are needed.
const MAX_ANNOUNCED: usize = 4096;
/// Maximum number of shells between a client and the program that had it started.
const MAX_SHELLS: usize = 3;
/// Shells that are passed over in the search for that program. A shell with a script is not, since its name is then `sh SCRIPT`.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];

/// A program that was about to be exec'd, or was spawned.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Announced {
    /// When, CLOCK_MONOTONIC nanoseconds.
    at_ns: u64,
    /// The arguments of a client; empty: it is none.
    args: Vec<String>,
    /// The user, if it is another one than that of the program before.
    user: Option<u32>,
    /// Arguments or name of the program that had the client started, by then; `None`: the process was not known then.
    started_by: Option<Vec<String>>,
}

impl Announced {
    /// Whether it is about this process. One from long before the process's start is about an earlier process of that pid.
    fn is_of(&self, process: &Process) -> bool {
        self.at_ns.saturating_add(Tolerance::ANNOUNCED_EARLY_NS) >= process.lifetime.earliest_start_ns
    }

    /// Whether the process has exec'd the announced program, and runs or ran it last. Either its last START names that program, or the
    /// program carries no shim. Then no START came since, and no EXIT, which the old program writes if the exec fails.
    fn has_run(&self, process: &Process) -> bool {
        let is_reported = matches!(process.program.image, Image::Loaded { .. });
        let is_named = || {
            let name = self.args.first();
            process.name.command.split(' ').any(|word| name.is_some_and(|name| name == word))
        };
        let is_replaced = is_reported && process.program.image_start_ns >= self.at_ns;
        (is_reported && is_named()) || (process.end.exit.is_none() && !is_replaced)
    }
}

impl Tree {
    /// Notes the command and its arguments if it is a client: the launcher carries no shim, which would write a PROGRAM record.
    pub(crate) fn expect_command(&mut self, command: &[String]) {
        if client(command).is_some() {
            self.command = command.to_vec();
        }
    }

    /// Announces the command as the program of the process with this pid, which began at `at_ns`, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn announce_command(&mut self, key: Key, at_ns: u64) {
        let mut args = std::mem::take(&mut self.command);
        self.wanted_containers.note(&args);
        if let Some(program) = args.first_mut() {
            *program = base_name(program).to_owned();
            self.announced.insert(key, Announced { at_ns, args, user: None, started_by: None });
        }
    }

    /// Applies a PROGRAM, written at `at_ns` (CLOCK_MONOTONIC nanoseconds), about the process `key`.
    pub(super) fn announce(&mut self, key: Key, args: Vec<String>, user: Option<u32>, at_ns: u64) {
        self.wanted_containers.note(&args);
        if self.announced.len() < MAX_ANNOUNCED || self.announced.contains_key(&key) {
            // Asked now, since the starter may exec another program before this process leaves the tree.
            let process = self.youngest_alive(key).and_then(|id| self.processes.get(&id));
            let started_by = process.map(|process| self.starter(process));
            self.announced.insert(key, Announced { at_ns, args, user, started_by });
        }
    }

    /// Finds out for a process that leaves the tree whether its last program was the call of a client. Also finds out as which user an
    /// uninstrumented one ran, if that is not the launcher's. Either is known by its PROGRAM record, which is dropped, or by /proc.
    pub(super) fn take_announced(&mut self, process: &Process) -> (Option<ClientCall>, Option<u32>) {
        let announced = self.announced.remove(&process.ids.key).filter(|announced| announced.is_of(process));
        let user = process.program.other_user.or_else(|| announced.as_ref()?.user);
        let seen = process.name.args.as_deref();
        let told = announced.as_ref().filter(|announced| announced.has_run(process));
        let told = told.map(|announced| announced.args.as_slice());
        // A fork copy of a client, such as that of `ssh -f`, is no call of its own.
        if told.is_none() && matches!(process.program.image, Image::Forked { .. }) {
            return (None, user);
        }
        let program = |args: &[String]| client(args).map(|(program, _)| program.to_owned());
        // /proc shows all arguments, a record has room for few. /proc counts, unless it showed another program than the record's.
        let args = match (seen, told) {
            (Some(seen), Some(told)) if program(seen) != program(told) => told,
            (Some(args), _) | (None, Some(args)) => args,
            (None, None) => return (None, user),
        };
        if client(args).is_none() {
            return (None, user);
        }
        let started_by = announced.as_ref().and_then(|announced| announced.started_by.clone());
        let started_by = started_by.unwrap_or_else(|| self.starter(process));
        (Some(ClientCall { args: args.to_vec(), started_by }), user)
    }

    /// The arguments, or else the name, of the program that had a client started. That is the parent, or the nearest ancestor that is
    /// no shell. Of a finalized one, only the name is known. Empty: unknown.
    fn starter(&self, process: &Process) -> Vec<String> {
        let mut parent = process.ancestry.parent;
        for _ in 0..=MAX_SHELLS {
            let Parent::Known(id) = parent else { break };
            let Some(ancestor) = self.processes.get(&id) else {
                let ended = self.finalized(id).filter(|ended| !SHELLS.contains(&&*ended.command));
                return ended.map(|ended| words(&ended.command)).unwrap_or_default();
            };
            if !SHELLS.contains(&&*ancestor.name.command) {
                let announced = self.announced.get(&ancestor.ids.key);
                let announced =
                    announced.filter(|announced| announced.is_of(ancestor) && announced.has_run(ancestor));
                let told = announced.map(|announced| &announced.args).filter(|args| !args.is_empty());
                let args = ancestor.name.args.as_ref().or(told);
                return args.cloned().unwrap_or_else(|| words(&ancestor.name.command));
            }
            parent = ancestor.ancestry.parent;
        }
        Vec::new()
    }
}

/// The words of a command name: a program, and its script.
fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}
