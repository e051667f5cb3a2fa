//! Programs that hand work to a daemon or to another host, such as docker and ssh. The processes that do this work are not
//! descendants of such a program, so they write no records. The collector knows which subcommands hand work over.

use crate::layout::{NODES_BY_LAUNCHER, NODES_BY_SRUN, NODES_BY_SSH};
use crate::path::file_name;

/// Whether a program of this name or path can start work elsewhere. The names are code and not a table, because pointers in a table
/// would have to be relocated in every process that loads the shim.
pub fn is_client(program: &[u8]) -> bool {
    matches!(
        file_name(program),
        b"docker"
            | b"docker-compose"
            | b"nerdctl"
            | b"podman"
            | b"podman-remote"
            | b"ssh"
            | b"rsh"
            | b"slogin"
            | b"pdsh"
            | b"clush"
            | b"pssh"
            | b"parallel-ssh"
            | b"parallel"
            | b"systemd-run"
            | b"run0"
            | b"machinectl"
            | b"kubectl"
            | b"oc"
            | b"srun"
            | b"sbatch"
            | b"qsub"
            | b"bsub"
            | b"condor_submit"
            | b"at"
            | b"blaunch"
            | b"pbsdsh"
            | b"pbs_tmrsh"
            | b"sccache"
    )
}

/// Whether a program of this name is an MPI launcher. Debian's names have the library after a dot.
pub fn is_mpi_launcher(name: &[u8]) -> bool {
    let name = name.split(|byte| *byte == b'.').next();
    matches!(name, Some(b"mpirun" | b"mpiexec" | b"orterun" | b"prterun"))
}

/// Whether a program that is about to start reaches other nodes `by` this way, so that the launcher has to be told: it is srun, it is
/// what starts programs on the nodes of a job of another batch system, or it is to start an agent there (by ssh, or by what the user
/// has in its place). `arguments`: those of the program, with its name or path first.
pub fn reaches_nodes<'a>(by: u32, mut arguments: impl Iterator<Item = &'a [u8]>) -> bool {
    if by == NODES_BY_SSH {
        return arguments.any(starts_agent);
    }
    let Some(name) = arguments.next().map(file_name) else { return false };
    let first = arguments.next().unwrap_or_default();
    match by {
        NODES_BY_SRUN => name == b"srun" && !only_tells(first),
        // Open MPI starts its daemons by a library of PBS or LSF, without a program.
        NODES_BY_LAUNCHER if name == b"flux" => {
            matches!(first, b"run" | b"submit" | b"bulksubmit" | b"exec")
        }
        NODES_BY_LAUNCHER => (is_mpi_launcher(name) || name == b"blaunch") && !only_tells(first),
        _ => false,
    }
}

/// Whether a program with this first argument starts nothing.
fn only_tells(first: &[u8]) -> bool {
    matches!(first, b"-V" | b"--version" | b"-version" | b"--help" | b"-help" | b"--usage")
}

/// Whether an argument, which can be a script for ssh, has the option that makes gpu-track-run an agent.
fn starts_agent(argument: &[u8]) -> bool {
    (0..argument.len()).any(|at| argument.get(at..).is_some_and(|rest| rest.starts_with(b" --agent ")))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    // Requirement: SEE-35
    #[test]
    fn clients_are_known_by_their_names() {
        assert!([&b"docker"[..], b"/usr/bin/ssh", b"./at"].iter().all(|name| is_client(name)));
        assert!(
            ![&b""[..], b"ssh/", b"dockerd", b"sshd", b"/usr/bin/docker/x"]
                .iter()
                .any(|name| is_client(name))
        );
    }

    // Requirement: NODE-66
    #[test]
    fn programs_that_reach_nodes_are_srun_and_what_starts_an_agent() {
        let by = |by, line: &[&str]| reaches_nodes(by, line.iter().map(|word| word.as_bytes()));
        let agent = "printf 'a --agent b' | sh -s orted";
        for line in [&["/usr/bin/srun", "-n", "2", "./app"][..], &["srun", "./app", "--version"]] {
            assert!(by(NODES_BY_SRUN, line) && !by(NODES_BY_SSH, line), "{line:?}");
        }
        for line in [&["ssh", "-x", "n2", agent][..], &["/usr/bin/oarsh", "n2", "sh -c 'exec a --agent b'"]] {
            assert!(by(NODES_BY_SSH, line) && !by(NODES_BY_SRUN, line), "{line:?}");
        }
        for line in [
            &["/usr/bin/mpirun.openmpi", "./app"][..],
            &["mpiexec.hydra"],
            &["blaunch", "n2", "./app"],
            &["flux", "run", "-N2", "./app"],
        ] {
            assert!(by(NODES_BY_LAUNCHER, line) && !by(NODES_BY_SRUN, line), "{line:?}");
        }
        for line in [
            &[][..],
            &["mpirun", "--version"],
            &["mpirun_rsh"],
            &["flux", "jobs"],
            &["flux"],
            &["pbsdsh", "ls"],
        ] {
            assert!(!by(NODES_BY_LAUNCHER, line), "{line:?}");
        }
        for line in [&[][..], &[""], &["ssh"], &["ssh", "n2", "orted"], &["srun", "-V"], &["sbatch", "srun"]]
        {
            assert!(!by(NODES_BY_SRUN, line) && !by(NODES_BY_SSH, line), "{line:?}");
        }
    }
}
