//! Programs that hand work to a daemon or to another host, such as docker and ssh. The processes that do this work are not
//! descendants of such a program, so they write no records. The collector knows which subcommands hand work over.

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
    )
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
}
