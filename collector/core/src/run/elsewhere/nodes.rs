//! Other machines on which MPI launchers and Slurm started processes. The arguments of two programs of the tree name them: ssh (or
//! rsh), if it starts an MPI launcher's daemon, and srun.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::arguments::{Options, Value, is_one_of};
use super::{is_tracked, words};
use crate::model::batch::{Job, node_list};
use crate::model::command::base_name;
use crate::model::host_name::short;
use crate::model::mpi_daemons::is_daemon;
use crate::model::report::{ElsewhereKind, Nodes, StartedElsewhere};
use crate::model::sorting::InOrder;
use crate::model::ssh::host_at;

/// Maximum number of hosts of daemons, listed nodes and sruns that are kept.
const MOST_NAMES: usize = 1000;

/// The machines that the arguments of the tree's processes named.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteStarts {
    /// Daemons of MPI launchers, by their hosts.
    daemons: BTreeMap<String, Daemon>,
    /// Nodes of `srun --nodelist`.
    listed: BTreeSet<String>,
    /// The sruns without `--nodelist`. Which of them ran on most nodes depends on the nodes of the job.
    sruns: BTreeSet<Srun>,
}

/// A daemon of an MPI launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Daemon {
    /// Its program.
    program: String,
    /// It was to be started by an agent of gpu-track-run.
    is_tracked: bool,
}

/// What an srun without a list of nodes asked for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Srun {
    /// `--nodes`; of a range, the most.
    nodes: Option<u64>,
    /// `--ntasks`.
    tasks: Option<u64>,
}

impl Srun {
    /// Reads the arguments of an srun, without the program.
    fn parse(args: &[String]) -> Self {
        // `--nodes` can be a range, `2-4`: the most counts.
        let options = Options::parse(args, srun_option);
        let number = |short, long| options.value(&[short, long])?.split('-').next_back()?.parse().ok();
        Self { nodes: number("N", "nodes"), tasks: number("n", "ntasks") }
    }

    /// The largest number of nodes on which it can run. That is what it asks for, or else all nodes of the job (`allocated`; 1 outside
    /// of a job). It is no more than the number of tasks.
    fn most_nodes(&self, allocated: &[String]) -> u64 {
        let asked_for = self.nodes.unwrap_or(allocated.len().max(1) as u64);
        asked_for.min(self.tasks.unwrap_or(u64::MAX))
    }
}

/// What is known of this machine.
pub(crate) struct Here<'a> {
    pub(crate) hostname: &'a str,
    /// The Slurm job, to whose nodes srun refers.
    pub(crate) job: Job<'a>,
    /// Processes that joined the run without being descendants, as tasks of srun on this machine do.
    pub(crate) joined: u64,
    /// Other nodes are tracked, too, and this is the launcher's.
    pub(crate) has_agents: bool,
}

impl Here<'_> {
    /// Whether this is a name of this machine. Names are compared without their domains.
    fn is_named(&self, name: &str) -> bool {
        let name_in_job = self.job.this_node().unwrap_or_default();
        [self.hostname, name_in_job, "localhost"].iter().any(|own| short(own) == short(name))
    }
}

impl RemoteStarts {
    /// Keeps the machines that the call of a client names. Returns whether the call starts processes on nodes: it is an srun, or an
    /// ssh that starts a daemon. `args`: the arguments after the program. `starter`: the program that started it; empty: unknown.
    pub(super) fn add(&mut self, program: &str, args: &[String], starter: &str) -> bool {
        match program {
            "ssh" | "rsh" => {
                let Some((host, daemon)) = daemon_host(args, starter) else { return false };
                if self.daemons.len() < MOST_NAMES {
                    self.daemons.insert(host, daemon);
                }
                true
            }
            "srun" => {
                self.add_srun(args);
                true
            }
            _ => false,
        }
    }

    /// Stores the nodes that the arguments of an srun ask for. It may have started tasks on each of them.
    fn add_srun(&mut self, args: &[String]) {
        match Options::parse(args, srun_option).value(&["w", "nodelist"]) {
            Some(list) => self.listed.extend(node_list::expanded(list, MOST_NAMES - self.listed.len())),
            None if self.sruns.len() < MOST_NAMES => {
                self.sruns.insert(Srun::parse(args));
            }
            None => {}
        }
    }

    /// The machines on which the sruns without `--nodelist` ran: names, and a number of machines besides this one. If one of them ran
    /// on all nodes of the job, the names are those of the nodes, and the number is 0. Otherwise no name is known, and the number
    /// is that of the srun on most nodes.
    fn nodes_of_sruns(&self, here: &Here) -> (Vec<String>, u64) {
        let allocated = here.job.nodes(MOST_NAMES);
        let nodes = self.sruns.iter().map(|srun| srun.most_nodes(&allocated)).max().unwrap_or(0);
        if !allocated.is_empty() && nodes >= allocated.len() as u64 {
            return (allocated, 0);
        }
        // One of the nodes is this machine, if tasks of an srun have joined the run here.
        (Vec::new(), nodes.saturating_sub(u64::from(here.joined > 0)))
    }

    /// The machines besides this one on which processes were started: how many, and the names that are known. `None`:
    /// nothing was started elsewhere.
    pub(crate) fn unseen(&self, here: &Here) -> Option<Nodes> {
        let mut names = self.daemons.keys().chain(&self.listed).cloned().ordered_set();
        let (named_by_job, unnamed) = self.nodes_of_sruns(here);
        names.extend(named_by_job);
        names.retain(|name| !here.is_named(name));
        // The unnamed machines can be the named ones, so the two are not added up.
        let unseen = (names.len() as u64).max(unnamed);
        (unseen > 0).then(|| Nodes { unseen, unseen_names: names.into_iter().collect() })
    }

    /// Lists the machines of [`Self::unseen`], with what was started there. Those without a name share an entry.
    pub(super) fn list(&self, here: &Here) -> Vec<StartedElsewhere> {
        let Some(Nodes { unseen, unseen_names }) = self.unseen(here) else { return Vec::new() };
        let unnamed = unseen.saturating_sub(unseen_names.len() as u64);
        let entry = |name: Option<String>, count| {
            let daemon = name.as_ref().and_then(|name| self.daemons.get(name));
            StartedElsewhere {
                kind: ElsewhereKind::Node,
                program: daemon.map_or("srun", |daemon| &daemon.program).to_owned(),
                target: name,
                count,
                followed: 0,
                reason: None,
                in_tree: 0,
                is_tracked: daemon.is_some_and(|daemon| daemon.is_tracked),
            }
        };
        let named = unseen_names.into_iter().map(|name| entry(Some(name), 1));
        named.chain((unnamed > 0).then(|| entry(None, unnamed))).collect()
    }
}

/// The host on which ssh starts an MPI daemon, and the daemon. `args`: ssh's options, the host, and the command there. `starter`: the
/// program that started ssh. `None`: ssh starts something else.
fn daemon_host(args: &[String], starter: &str) -> Option<(String, Daemon)> {
    /// An ssh that one of these starts is taken to start a daemon even if the end of its arguments is not known.
    const LAUNCHERS: [&str; 4] = ["mpirun", "mpiexec", "orterun", "prterun"];
    let (host, command) = args.get(host_at(args)?..)?.split_first()?;
    let daemon = words(command).find(|word| is_daemon(word)).map(base_name);
    let program = daemon.or_else(|| LAUNCHERS.into_iter().find(|name| starter.starts_with(name)))?;
    let daemon = Daemon { program: program.to_owned(), is_tracked: is_tracked(command) };
    Some((host.rsplit('@').next().unwrap_or_default().to_owned(), daemon))
}

/// Options of srun that are a letter and have no value.
const SHORT_FLAGS: &str = "EHOQVXZhjlsuv";
/// Options of srun whose value is the rest of the word, if there is one: `-K1`, `-I5`.
const SHORT_OPTIONAL: &str = "IKk";
/// Options with long names whose value is never in the next word: those without a value, and those whose value is optional.
const LONG_FLAGS: &str = "bcast compress contiguous debugger-test disable-status exact exclusive get-user-env help hold \
                          immediate interactive join kill-on-bad-exit label launch-cmd multi-prog nice no-allocate no-kill \
                          overcommit overlap oversubscribe preserve-env propagate pty quiet quit-on-interrupt reboot \
                          resv-ports send-libs share spread-job test-only unbuffered use-min-nodes verbose version \
                          wait-for-children whole x11";

/// Where the value of an option of srun is: in the next word, unless the lists above say otherwise.
fn srun_option(name: &str) -> Value {
    match name.chars().count() {
        1 if SHORT_FLAGS.contains(name) => Value::None,
        1 if SHORT_OPTIONAL.contains(name) => Value::Rest,
        _ if is_one_of(name, LONG_FLAGS) => Value::None,
        _ => Value::Next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unseen(commands: &[&[&str]], slurm: &[(&str, &str)], joined: u64) -> Option<Nodes> {
        let mut starts = RemoteStarts::default();
        for command in commands {
            let words: Vec<_> = command.iter().map(|word| (*word).to_owned()).collect();
            let Some((program, args)) = words.split_first() else { continue };
            starts.add(base_name(program), args, "");
        }
        let slurm = slurm.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        starts.unseen(&Here { hostname: "n1.example.org", job: Job(&slurm), joined, has_agents: false })
    }

    fn named(names: &[&str]) -> Option<Nodes> {
        let unseen_names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        Some(Nodes { unseen: unseen_names.len() as u64, unseen_names })
    }

    // Requirement: SEE-20
    #[test]
    fn ssh_with_an_mpi_daemon_names_its_host() {
        let orted = "PATH=/opt/bin:$PATH ; export PATH ;   /opt/bin/orted -mca ess \"env\"";
        let open_mpi = &["/usr/bin/ssh", "-q", "-o", "BatchMode=yes", "-xp22", "n2", orted][..];
        let hydra = &["ssh", "-x", "user@n3.example.org", "\"/usr/bin/hydra_pmi_proxy\"", "--pgid", "0"][..];
        assert_eq!(unseen(&[open_mpi, hydra, open_mpi], &[], 0), named(&["n2", "n3.example.org"]));
        assert_eq!(unseen(&[&["ssh", "n1", "prted"]], &[], 0), None, "this machine");
        let by_address = [("SLURMD_NODENAME", "10.0.0.1")];
        let others = &[&["ssh", "10.0.0.1", "prted"][..], &["ssh", "10.0.0.2", "prted"]];
        assert_eq!(unseen(others, &by_address, 0), named(&["10.0.0.2"]));
        assert_eq!(unseen(&[&["ssh", "git@github.com", "git-upload-pack 'x'"]], &[], 0), None);
        assert_eq!(unseen(&[&["ssh", "-l", "orted", "n2", "make"], &["ssh"], &["ssh", "n2"]], &[], 0), None);
    }

    // Requirement: SEE-20
    #[test]
    fn srun_in_an_allocation_names_its_nodes() {
        let job = [("SLURM_JOB_NODELIST", "n[1-3]"), ("SLURMD_NODENAME", "n1")];
        assert_eq!(unseen(&[&["srun", "./app", "-N1"]], &job, 1), named(&["n2", "n3"]));
        assert_eq!(unseen(&[&["srun", "-n", "1", "./app"]], &job, 1), None);
        assert_eq!(
            unseen(&[&["/usr/bin/srun", "-N", "3", "--mpi=pmix", "./app"]], &job, 2),
            named(&["n2", "n3"])
        );
        let two = Some(Nodes { unseen: 1, unseen_names: vec![] });
        assert_eq!(unseen(&[&["srun", "--nodes=1-2", "--time", "5", "./app"]], &job, 1), two);
        let of_mpirun = ["srun", "--ntasks-per-node=1", "--nodelist=n2,n3", "--ntasks=2", "orted"];
        assert_eq!(unseen(&[&of_mpirun], &job, 0), named(&["n2", "n3"]));
    }

    // Requirement: SEE-20
    #[test]
    fn srun_on_most_nodes_of_the_job_counts() {
        let job = [("SLURM_JOB_NODELIST", "n[1-3]")];
        let whole_job = &["srun", "./app"][..];
        let one_node = &["srun", "-N", "1", "hostname"][..];
        assert_eq!(unseen(&[whole_job, one_node], &job, 1), named(&["n2", "n3"]));
        assert_eq!(unseen(&[one_node, whole_job], &job, 1), named(&["n2", "n3"]));
        let one_task = &["srun", "-n1", "hostname"][..];
        let two_nodes = &["srun", "-N2", "./app"][..];
        assert_eq!(unseen(&[one_task, two_nodes], &job, 1), Some(Nodes { unseen: 1, unseen_names: vec![] }));
    }

    // Requirement: SEE-20
    #[test]
    fn options_of_the_command_are_not_those_of_srun() {
        let two = Some(Nodes { unseen: 1, unseen_names: vec![] });
        for options in [
            "-N2",
            "-lN2",
            "--nodes=2",
            "-N2 -u",
            "-N2 --exclusive",
            "-N2 -K",
            "-N 2 --",
            "-N2 -p x",
            "-N2 -K1",
            "-N2 -I5",
            "-N2 -lk",
            "-N2 -lK1",
        ] {
            let words = format!("srun {options} ./app -n 1 -N 7 --nodelist=n9");
            assert_eq!(unseen(&[&words.split(' ').collect::<Vec<_>>()], &[], 1), two, "{options}");
        }
    }

    // Requirement: SEE-20
    #[test]
    fn nodes_that_sruns_list_are_bounded() {
        let all: Vec<[String; 3]> =
            (0..3).map(|i| ["srun".into(), "-w".into(), format!("m[{i}001-{i}999]")]).collect();
        let commands: Vec<Vec<&str>> =
            all.iter().map(|words| words.iter().map(String::as_str).collect()).collect();
        let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
        assert_eq!(unseen(&commands, &[], 1).map(|nodes| nodes.unseen), Some(MOST_NAMES as u64));
    }

    // Requirement: SEE-20
    #[test]
    fn srun_outside_an_allocation_counts_its_nodes() {
        let counted = |unseen| Some(Nodes { unseen, unseen_names: vec![] });
        assert_eq!(unseen(&[&["srun", "-N2", "./app"]], &[], 0), counted(2));
        assert_eq!(unseen(&[&["srun", "-N2", "./app"]], &[], 4), counted(1));
        assert_eq!(unseen(&[&["srun", "./app"]], &[], 0), counted(1));
        assert_eq!(unseen(&[&["srun", "./app"]], &[], 1), None);
        assert_eq!(unseen(&[&["make", "-N2"], &[]], &[], 0), None);
    }
}
