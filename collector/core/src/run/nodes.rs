//! Other machines on which the tree started processes. They are in no figure, so the report must name them.
//!
//! The arguments of two programs of the tree tell: of ssh that starts an MPI launcher's daemon, and of srun.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::mpi_daemons::{host_at, is_daemon};
use crate::model::node_list;
use crate::model::report::Nodes;

/// Most names that are kept.
const MOST_NAMES: usize = 1000;

/// What the processes' arguments told.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteStarts {
    /// Hosts of daemons.
    daemons: BTreeSet<String>,
    /// Nodes of `srun --nodelist`.
    listed: BTreeSet<String>,
    /// The largest srun without such a list.
    srun: Option<Srun>,
}

/// What an srun without a list of nodes asked for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Srun {
    nodes: Option<u64>,
    tasks: Option<u64>,
}

impl Srun {
    /// Gives on how many nodes it runs at most: as many as it asks for, or all that the job has, and no more than it has tasks.
    fn most_nodes(&self, allocated: &[String]) -> u64 {
        let asked_for = self.nodes.unwrap_or(allocated.len().max(1) as u64);
        asked_for.min(self.tasks.unwrap_or(u64::MAX))
    }
}

/// What is known of this machine.
pub(crate) struct Here<'a> {
    pub(crate) hostname: &'a str,
    /// Slurm's variables.
    pub(crate) slurm: &'a BTreeMap<String, String>,
    /// Processes that joined the run without being descendants, as tasks of srun on this machine do.
    pub(crate) joined: u64,
}

impl RemoteStarts {
    /// Takes in the arguments of one process.
    pub(crate) fn add(&mut self, args: &[String]) {
        let Some((program, rest)) = args.split_first() else { return };
        match program.rsplit('/').next().unwrap_or_default() {
            "ssh" | "rsh" => {
                if let Some(host) = daemon_host(rest).filter(|_| self.daemons.len() < MOST_NAMES) {
                    self.daemons.insert(host);
                }
            }
            "srun" => self.add_srun(rest),
            _ => {}
        }
    }

    /// Takes in the arguments of an srun: the nodes that it asks for. It may have started tasks on each of them.
    fn add_srun(&mut self, args: &[String]) {
        // `--nodes` can be a range, `2-4`: the most counts.
        let number = |short, long| value(args, short, long)?.split('-').next_back()?.parse().ok();
        match value(args, 'w', "nodelist") {
            Some(list) => self.listed.extend(expanded(list)),
            None => {
                let srun = Srun { nodes: number('N', "nodes"), tasks: number('n', "ntasks") };
                self.srun = self.srun.max(Some(srun));
            }
        }
    }

    /// Gives the machines besides this one on which processes were started, by name as far as names are known. `None`: nothing
    /// was started elsewhere.
    pub(crate) fn unseen(&self, here: &Here) -> Option<Nodes> {
        let mut names: BTreeSet<String> = self.daemons.union(&self.listed).cloned().collect();
        let mut unnamed = 0;
        if let Some(srun) = self.srun {
            let allocated =
                here.slurm.get("SLURM_JOB_NODELIST").map(|list| expanded(list)).unwrap_or_default();
            let nodes = srun.most_nodes(&allocated);
            if !allocated.is_empty() && nodes >= allocated.len() as u64 {
                names.extend(allocated);
            } else {
                // Which ones it took is not known. One is this machine, if tasks of it have joined the run here.
                unnamed = nodes.saturating_sub(u64::from(here.joined > 0));
            }
        }
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let own = [here.hostname, here.slurm.get("SLURMD_NODENAME").map_or("", String::as_str), "localhost"]
            .map(short);
        names.retain(|name| !own.contains(&short(name)));
        // The unnamed ones can be those that other arguments named.
        let unseen = (names.len() as u64).max(unnamed);
        (unseen > 0).then(|| Nodes { unseen, unseen_names: names.into_iter().collect() })
    }
}

/// Expands Slurm's list of nodes to at most [`MOST_NAMES`] names.
fn expanded(list: &str) -> Vec<String> {
    node_list::expanded(list, MOST_NAMES)
}

/// Gives the host on which ssh starts an MPI daemon, by ssh's arguments: options, the host, and the command there. `None`: it
/// starts something else.
fn daemon_host(args: &[String]) -> Option<String> {
    let (host, command) = args.get(host_at(args)?..)?.split_first()?;
    let separators = |c: char| c.is_whitespace() || ";&|()'\"`".contains(c);
    let mut words = command.iter().flat_map(|word| word.split(separators));
    words.any(is_daemon).then(|| host.rsplit('@').next().unwrap_or_default().to_owned())
}

/// Finds the last value of an option before the command, in any of its forms: `-N2`, `-N 2`, `--nodes=2` and `--nodes 2`.
fn value<'a>(args: &'a [String], short: char, long: &str) -> Option<&'a str> {
    let mut found = None;
    let mut args = args.iter().map(String::as_str).peekable();
    while let Some(arg) = args.next_if(|arg| arg.starts_with('-')) {
        // What follows the option's name in this word.
        let after_short =
            arg.strip_prefix('-').and_then(|arg| arg.strip_prefix(short)).filter(|_| !arg.starts_with("--"));
        let after_long = arg.strip_prefix("--").and_then(|arg| arg.strip_prefix(long));
        // An option that is not known here may have its value in the next word, too.
        let next = args.next_if(|next| !next.starts_with('-') && !arg.contains('=') && arg != "--");
        if after_short == Some("") || after_long == Some("") {
            found = next;
        } else {
            // A longer name can begin alike: `--ntasks-per-node`, if `--ntasks` is looked for.
            let in_word = after_short.or_else(|| after_long?.strip_prefix('='));
            found = in_word.or(found);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unseen(commands: &[&[&str]], slurm: &[(&str, &str)], joined: u64) -> Option<Nodes> {
        let mut starts = RemoteStarts::default();
        for command in commands {
            starts.add(&command.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        }
        let slurm = slurm.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        starts.unseen(&Here { hostname: "n1.example.org", slurm: &slurm, joined })
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
    fn srun_outside_an_allocation_counts_its_nodes() {
        let counted = |unseen| Some(Nodes { unseen, unseen_names: vec![] });
        assert_eq!(unseen(&[&["srun", "-N2", "./app"]], &[], 0), counted(2));
        assert_eq!(unseen(&[&["srun", "-N2", "./app"]], &[], 4), counted(1));
        assert_eq!(unseen(&[&["srun", "./app"]], &[], 0), counted(1));
        assert_eq!(unseen(&[&["srun", "./app"]], &[], 1), None);
        assert_eq!(unseen(&[&["make", "-N2"], &[]], &[], 0), None);
    }
}
