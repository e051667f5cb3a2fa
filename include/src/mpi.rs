//! Which environment variables MPI launchers get, so that they start agents on other nodes: see [`is_wanted`]. They never stand in the
//! segment: any process of the tree can write it, also one that has dropped its privileges.

use crate::path::file_name;

/// The variable that tells the stand-in for ssh the command line of an agent.
pub const AGENT: &str = "GPU_TRACK_AGENT";

/// Variables that batch systems set in each of their jobs, with commas between. Launchers of MPI can use any batch system to start
/// daemons, and not all of these run a command line.
const OF_BATCH_JOBS: &str = "SLURM_JOB_ID,PBS_JOBID,LSB_JOBID,SGE_TASK_ID,_CONDOR_SLOT,FLUX_JOB_ID,FLUX_ENCLOSING_ID,\
                             OAR_JOB_ID,COBALT_JOBID,PJM_JOBID,LOADL_STEP_ID";
/// Where one of these variables has another value than ssh, Hydra (MPICH) and Intel MPI reach nodes by another program.
const OTHER_LAUNCHERS: &str = "HYDRA_LAUNCHER,HYDRA_BOOTSTRAP,I_MPI_HYDRA_BOOTSTRAP";

/// Whether a program of this name or path is an MPI launcher, which starts ranks also on other nodes.
pub fn is_mpi_launcher(program: &[u8]) -> bool {
    // Debian's names have the library after a dot.
    let name = file_name(program).split(|byte| *byte == b'.').next();
    matches!(name, Some(b"mpirun" | b"mpiexec" | b"orterun" | b"prterun"))
}

/// Whether an MPI launcher is to get the variable `name`. `arguments` gives the launcher's, and `value` the value of a variable of its
/// environment. What the user has set stays, and with it the user's own way of starting daemons.
pub fn is_wanted<'a, A: Iterator<Item = &'a [u8]>>(
    name: &[u8],
    arguments: impl Fn() -> A,
    value: impl Fn(&[u8]) -> Option<&'a [u8]>,
) -> bool {
    let is_set = |name: &[u8]| value(name).is_some_and(|value| !value.is_empty());
    if value(name).is_some() || OF_BATCH_JOBS.as_bytes().split(|byte| *byte == b',').any(is_set) {
        return false;
    }
    let is_of_open_mpi = name.starts_with(b"OMPI_") || name.starts_with(b"PRTE_");
    is_of_open_mpi || (value(AGENT.as_bytes()).is_none() && other_way(arguments(), value).is_none())
}

/// What says that Hydra reaches nodes by another program than ssh, or by an ssh of the user's: the name of a variable, or an option.
/// `None`: nothing does. `arguments`: those of the launcher. `value` gives the value of a variable.
pub fn other_way<'a>(
    arguments: impl Iterator<Item = &'a [u8]>,
    value: impl Fn(&[u8]) -> Option<&'a [u8]>,
) -> Option<OtherWay<'a>> {
    let is_other = |value: &[u8]| value != b"ssh";
    let mut variables = OTHER_LAUNCHERS.split(',');
    if let Some(name) = variables.find(|name| value(name.as_bytes()).is_some_and(is_other)) {
        return Some(OtherWay::Variable(name));
    }
    let mut option = None;
    for argument in arguments {
        match option {
            Some(option) if is_other(argument) => return Some(OtherWay::Option(option)),
            _ => option = None,
        }
        match argument {
            b"-launcher" | b"--launcher" | b"-bootstrap" | b"--bootstrap" => option = Some(argument),
            b"-launcher-exec" | b"--launcher-exec" | b"-bootstrap-exec" | b"--bootstrap-exec" => {
                return Some(OtherWay::Option(argument));
            }
            _ => {}
        }
    }
    option.map(OtherWay::Option)
}

/// See [`other_way`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherWay<'a> {
    /// This variable is set.
    Variable(&'static str),
    /// This option is given.
    Option(&'a [u8]),
}

/// Whether a variable of this name is set in each job of a batch system.
pub fn is_of_batch_jobs(name: &str) -> bool {
    OF_BATCH_JOBS.split(',').any(|known| known == name)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words(line: &str) -> impl Iterator<Item = &[u8]> {
        line.split(' ').map(str::as_bytes)
    }

    // Requirement: NODE-66
    #[test]
    fn launchers_are_known_by_their_names() {
        for name in ["mpirun", "/opt/bin/mpiexec.hydra", "mpirun.openmpi", "orterun", "./prterun"] {
            assert!(is_mpi_launcher(name.as_bytes()), "{name}");
        }
        for name in ["", "/opt/mpirun/app", "app", "srun", "mpicc", "mpirun_rsh", "mpirun-submit.sh"] {
            assert!(!is_mpi_launcher(name.as_bytes()), "{name}");
        }
    }

    // Requirement: NODE-66
    #[test]
    fn variables_are_for_launchers_that_start_daemons_by_a_shell() {
        let wanted = |line: &'static str, environment: &'static [(&str, &str)]| {
            let value = |name: &[u8]| {
                let found = environment.iter().find(|(known, _)| known.as_bytes() == name);
                found.map(|(_, value)| value.as_bytes())
            };
            ["OMPI_MCA_orte_launch_agent", "HYDRA_LAUNCHER_EXEC", AGENT]
                .map(|name| is_wanted(name.as_bytes(), || words(line), value))
        };
        assert_eq!(wanted("mpirun -n 2 ./app", &[]), [true; 3]);
        assert_eq!(wanted("mpirun -launcher ssh ./app", &[("HYDRA_LAUNCHER", "ssh")]), [true; 3]);
        assert_eq!(wanted("mpirun", &[("SLURM_JOB_ID", "7")]), [false; 3]);
        assert_eq!(wanted("mpirun", &[("OAR_JOB_ID", "7"), ("PBS_JOBID", "")]), [false; 3]);
        assert_eq!(wanted("mpirun", &[("HYDRA_LAUNCHER", "rsh")]), [true, false, false]);
        assert_eq!(wanted("mpirun", &[("HYDRA_LAUNCHER_EXEC", "/x")]), [true, false, true]);
        assert_eq!(wanted("mpirun", &[("OMPI_MCA_orte_launch_agent", "")]), [false, true, true]);
        assert_eq!(wanted("mpirun", &[(AGENT, "of a run around")]), [true, false, false]);
        for line in
            ["mpirun -launcher rsh ./app", "mpirun --bootstrap", "mpirun -launcher ssh -launcher-exec /x a"]
        {
            assert_eq!(wanted(line, &[]), [true, false, false], "{line}");
        }
    }
}
