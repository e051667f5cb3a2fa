//! How MPI launchers reach other nodes by ssh: the daemons that they start there, and the arguments of ssh(1).

use super::command::base_name;

/// Daemons of Open MPI 4 and 5, MPICH and Intel MPI, which start the ranks of their node.
pub const DAEMONS: [&str; 4] = ["orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy"];
/// Letters of the options of ssh(1) that take a value.
const SSH_VALUE_OPTIONS: &str = "BbcDEeFIiJLlmOopQRSWw";

/// Whether an option of ssh(1), a letter, takes a value.
pub(crate) fn takes_value(letter: &str) -> bool {
    !letter.is_empty() && SSH_VALUE_OPTIONS.contains(letter)
}

/// The index of the host among the arguments of ssh: options with their values come before it, the command after it. `None`: there
/// is no host.
pub fn host_at<S: AsRef<str>>(args: &[S]) -> Option<usize> {
    let mut at = 0;
    while let Some(letters) = args.get(at)?.as_ref().strip_prefix('-') {
        // Several letters can share a hyphen. The first letter that takes a value is the last. The rest of the word is its value, or
        // the next word if there is no rest.
        let with_value = letters.find(|letter| SSH_VALUE_OPTIONS.contains(letter));
        let takes_next_word = with_value.is_some_and(|letter| letter + 1 == letters.len());
        at += if takes_next_word { 2 } else { 1 };
    }
    Some(at)
}

/// Whether a word of a command line, which can have a directory before it, names a daemon.
pub fn is_daemon(word: &str) -> bool {
    DAEMONS.contains(&base_name(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_follows_the_options_and_their_values() {
        for (line, host) in [
            ("n2 make", Some(0)),
            ("-x -p 22 n2 make -j 4", Some(3)),
            ("-xp22 n2", Some(1)),
            ("-xp 22 n2", Some(2)),
            ("-q -o BatchMode=yes n2", Some(3)),
            ("-é n2", Some(1)),
            ("-x", None),
            ("-p", None),
        ] {
            assert_eq!(host_at(&line.split(' ').collect::<Vec<_>>()), host, "{line}");
        }
        assert_eq!(host_at::<&str>(&[]), None);
    }
}
