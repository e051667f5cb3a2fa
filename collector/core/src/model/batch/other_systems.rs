//! What PBS, LSF and Flux tell a job: by environment variables, and by a file of PBS or LSF that one of them names.
//!
//! Sources: `src/resmom/start_exec.c` of OpenPBS and Torque; "Environment variables set for job execution" of IBM Spectrum LSF 10.1;
//! flux-environment(7). None of them tells when the job began, and only Torque tells a time limit. Flux tells no names of nodes.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use super::{HostFile, Variable};
use crate::model::sorting::InOrder;

/// The variables that reports have, besides [`HOSTS`] and the job's id. NCPUS of PBS is not among them: it is the number of threads of
/// a process.
const VARIABLES: [&str; 8] =
    ["PBS_QUEUE", "PBS_NUM_NODES", TORQUE_SLOTS, LIMIT, "LSB_JOBINDEX", "LSB_QUEUE", FLUX_NODES, FLUX_RANK];
/// Slots of the whole job. Only Torque sets it: where it is missing, the lines of PBS's node file stand for MPI processes.
pub(super) const TORQUE_SLOTS: &str = "PBS_NP";
/// Torque's time limit, seconds.
pub(super) const LIMIT: &str = "PBS_WALLTIME";
/// Nodes that host tasks of the Flux job.
pub(super) const FLUX_NODES: &str = "FLUX_JOB_NNODES";
pub(super) const FLUX_RANK: &str = "FLUX_TASK_RANK";

/// How a variable tells hosts.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// `n1 4 n2 4`: hosts and their slots.
    Counted,
    /// `n1 n1 n2`: the host of each slot.
    Slots,
    /// The path of a file with the host of each slot, one a line.
    File,
}

/// The variables with hosts, of which the first that is set counts. LSF does not set LSB_HOSTS if it would be too long.
const HOSTS: [(&str, Form); 4] = [
    ("PBS_NODEFILE", Form::File),
    ("LSB_MCPU_HOSTS", Form::Counted),
    ("LSB_HOSTS", Form::Slots),
    ("LSB_DJOB_HOSTFILE", Form::File),
];
/// Maximum number of hosts of a job. It bounds the memory that a file of other content takes.
const MOST_HOSTS: usize = 16_384;
/// Maximum number of hosts that a list in a report names.
const MOST_LISTED: usize = 1000;
/// Stands for the hosts that a list does not name; their number follows.
pub(super) const MORE: &str = "...";
/// Maximum number of bytes of a host's name (gethostname(2)).
const MOST_BYTES: usize = 255;

/// Reads the variables that describe a job of this batch system; there are none of any other system than PBS, LSF and Flux.
/// A variable in [`HOSTS`] has hosts and their slots in the result, whatever its form, or `unknown: ` and the reason.
pub fn read(system: Option<&str>, variable: Variable, file: HostFile) -> BTreeMap<String, String> {
    let prefix = match system {
        Some("pbs") => "PBS",
        Some("lsf") => "LSB",
        Some("flux") => "FLUX",
        _ => return BTreeMap::new(),
    };
    let text = |name: &str| Some((name.to_owned(), variable(name)?.into_string().ok()?));
    let own = super::job_ids().chain(VARIABLES).filter(|name| name.starts_with(prefix));
    let mut variables = own.filter_map(text).ordered_map();
    let mut hosts = HOSTS.into_iter().filter(|(name, _)| name.starts_with(prefix));
    let set =
        hosts.find_map(|(name, form)| Some((name, form, variable(name).filter(|set| !set.is_empty())?)));
    if let Some((name, form, value)) = set {
        let list = hosts_in(&value, form, file).unwrap_or_else(|reason| format!("unknown: {reason}"));
        variables.insert(name.to_owned(), list);
    }
    variables
}

/// Lists the hosts that the value of a variable tells, with their slots.
fn hosts_in(value: &OsStr, form: Form, file: HostFile) -> Result<String, String> {
    let read;
    let text = match form {
        Form::File => {
            read = file(value).map_err(|problem| format!("the file {problem}"))?;
            &read
        }
        Form::Counted | Form::Slots => value.to_str().ok_or("it is no text")?,
    };
    let mut words = text.split_ascii_whitespace();
    counted(std::iter::from_fn(|| {
        let host = words.next()?;
        let slots = match form {
            Form::Counted => words.next().and_then(|slots| slots.parse().ok()),
            Form::Slots | Form::File => Some(1),
        };
        Some((host, slots))
    }))
}

/// Lists hosts and their slots, each host once, in the order in which they come. A number of slots is `None` if it is no number.
fn counted<'a>(slots: impl Iterator<Item = (&'a str, Option<u64>)>) -> Result<String, String> {
    let mut hosts: Vec<(&str, u64)> = Vec::new();
    let mut places = BTreeMap::new();
    for (host, slots) in slots {
        let slots = slots.filter(|_| is_host(host)).ok_or("it lists what is no host")?;
        let place = *places.entry(host).or_insert(hosts.len());
        match hosts.get_mut(place) {
            Some((_, all)) => *all = all.saturating_add(slots),
            None if place < MOST_HOSTS => hosts.push((host, slots)),
            None => return Err(format!("it lists more than {MOST_HOSTS} hosts")),
        }
    }
    let more = hosts.len().saturating_sub(MOST_LISTED);
    let rest = (more > 0).then_some((MORE, more as u64));
    let listed = hosts.iter().copied().take(MOST_LISTED).chain(rest);
    Ok(listed.map(|(host, slots)| format!("{host} {slots}")).collect::<Vec<_>>().join(" "))
}

/// Whether a text can be the name of a host. What is printed or taken for a name has no other characters.
fn is_host(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() <= MOST_BYTES
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(is_fit)
}

/// The hosts of a job with their slots, by its variables as [`read`] returns them. If not all are listed, the last one is [`MORE`] with
/// the number of the others.
pub(super) fn hosts(variables: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, u64)> {
    let list = HOSTS.into_iter().find_map(|(name, _)| variables.get(name)).map_or("", String::as_str);
    let mut words = list.split(' ');
    std::iter::from_fn(move || {
        let host = words.next().filter(|name| *name == MORE || is_host(name))?;
        Some((host, words.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::model::batch::Job;

    fn variables(system: &str, set: &[(&str, &str)], file: Result<&str, &str>) -> BTreeMap<String, String> {
        let variable =
            |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        read(Some(system), &variable, &|_| file.map(str::to_owned).map_err(str::to_owned))
    }

    // Requirement: JOB-1, JOB-51
    #[test]
    fn node_file_of_pbs_lists_hosts_and_their_slots() {
        let set = [("PBS_JOBID", "7.server"), ("PBS_NODEFILE", "/f"), ("LSB_HOSTS", "x"), ("NCPUS", "3")];
        let read = variables("pbs", &set, Ok("n1\nn1\nn2.site\nn1\n"));
        assert_eq!(read["PBS_NODEFILE"], "n1 3 n2.site 1");
        let job = Job(&read);
        assert_eq!(
            (job.id(), job.node_count(), job.nodes(1)),
            (Some("7.server"), Some(2), vec!["n1".into()])
        );
        assert_eq!((job.nodes(9), job.step_nodes(9)), (vec!["n1".into(), "n2.site".into()], vec![]));
        assert_eq!((job.cpus_here(), job.limit_s(), job.end_s()), (None, None, None), "OpenPBS tells none");
        let torque = [("PBS_NODEFILE", "/f"), ("PBS_NP", "4"), ("PBS_WALLTIME", "3600")];
        for (file, cpus) in [("n1\nn1\nn2\nn2\n", Some(2)), ("n1\nn2\nn2\nn2\n", None)] {
            let read = variables("pbs", &torque, Ok(file));
            assert_eq!((Job(&read).cpus_here(), Job(&read).limit_s()), (cpus, Some(3600)), "{file}");
        }
    }

    // Requirement: JOB-1
    #[test]
    fn first_variable_of_lsf_that_tells_hosts_counts() {
        let all = [
            ("LSB_JOBID", "7"),
            ("LSB_MCPU_HOSTS", "n1 4 n2 4 "),
            ("LSB_HOSTS", "m1 m1"),
            ("LSB_DJOB_HOSTFILE", "/f"),
        ];
        for (from, hosts, cpus) in [(1, "n1 4 n2 4", Some(4)), (2, "m1 2", Some(2)), (3, "f1 1 f2 2", None)] {
            let set: Vec<_> = [all[0]].into_iter().chain(all[from..].iter().copied()).collect();
            let read = variables("lsf", &set, Ok("f1\nf2\nf2"));
            assert_eq!(read[all[from].0], hosts);
            assert_eq!((read.len(), Job(&read).cpus_here()), (2, cpus), "{hosts}");
        }
    }

    // Requirement: JOB-1
    #[test]
    fn flux_tells_numbers_of_nodes_but_no_names() {
        let set = [("FLUX_JOB_ID", "ƒ3E"), ("FLUX_ENCLOSING_ID", "ƒ1"), ("FLUX_JOB_NNODES", "2")];
        let read = variables("flux", &set, Err("is not asked for"));
        let job = Job(&read);
        assert_eq!((job.id(), job.node_count(), job.nodes(9)), (Some("ƒ3E"), Some(2), vec![]));
        assert_eq!(job.step_node_count(), None, "it is no task");
        let task = [set[0], set[2], ("FLUX_TASK_RANK", "0")];
        assert_eq!(Job(&variables("flux", &task, Ok(""))).step_node_count(), Some(2));
        let script = variables("flux", &set[1..2], Ok(""));
        assert_eq!(Job(&script).id(), Some("ƒ1"));
        assert!(variables("sge", &set, Ok("")).is_empty());
    }

    // Requirement: JOB-2
    #[test]
    fn lists_of_hosts_that_are_none_are_unknown_with_a_reason() {
        let set = [("PBS_JOBID", "7"), ("PBS_NODEFILE", "/f"), ("PBS_NUM_NODES", "3")];
        let many: String = (0..100_000).map(|i| format!("n{i}\n")).collect();
        for (file, reason) in [
            (Ok("n1\n\u{1b}[2J\n"), "it lists what is no host"),
            (Ok("n1 root:x:0:0\n"), "it lists what is no host"),
            (Ok(&*"x".repeat(256)), "it lists what is no host"),
            (Ok(&*many), "it lists more than 16384 hosts"),
            (Err("is a pipe, and no file"), "the file is a pipe, and no file"),
        ] {
            let read = variables("pbs", &set, file);
            assert_eq!(read["PBS_NODEFILE"], format!("unknown: {reason}"));
            let job = Job(&read);
            assert_eq!((job.nodes(9), job.node_count()), (vec![], Some(3)), "{reason}");
        }
        for counted in ["n1", "n1 x", "n1 4 n2", "n1 -1"] {
            let read = variables("lsf", &[("LSB_MCPU_HOSTS", counted)], Ok(""));
            assert_eq!(read["LSB_MCPU_HOSTS"], "unknown: it lists what is no host", "{counted}");
        }
    }

    // Requirement: JOB-2
    #[test]
    fn long_lists_of_hosts_are_cut_and_counted() {
        let slots = |i: usize| format!("n{}\n", i % 5000);
        let file: String = (0..100_000).map(slots).collect();
        let read = variables("pbs", &[("PBS_NP", "1"), ("PBS_NODEFILE", "/f")], Ok(&file));
        assert!(read["PBS_NODEFILE"].starts_with("n0 20 n1 20 "));
        assert!(read["PBS_NODEFILE"].ends_with(" n999 20 ... 4000"));
        let job = Job(&read);
        assert_eq!((job.nodes(9000).len(), job.node_count(), job.cpus_here()), (1000, Some(5000), None));
    }
}
