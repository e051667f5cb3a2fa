//! The arguments of ssh(1): which host a call reaches, and which command it starts there.

use super::command::base_name;

/// Letters of options that take a value.
const VALUE_OPTIONS: &str = "BbcDEeFIiJLlmOopQRSWw";
/// Letters of options with which a call starts no command: it forwards, queries or controls the client itself, or asks for a subsystem.
pub const STARTING_NOTHING: [&str; 7] = ["N", "W", "O", "Q", "G", "V", "s"];

/// Letters of options that take no value, with which a call starts its command as without them.
const FLAGS: &str = "1246AaCfgKkMnqTtvXxYy";

/// Whether an option, a letter, takes a value.
pub(crate) fn takes_value(letter: &str) -> bool {
    !letter.is_empty() && VALUE_OPTIONS.contains(letter)
}

/// The index of the host: options with their values come before it, and the command after it. `None`: there is no host.
pub fn host_at<S: AsRef<str>>(args: &[S]) -> Option<usize> {
    let at = after_options(args, |_| {});
    (at < args.len()).then_some(at)
}

/// The indices of the host and of the first word of the command that the call starts there. `None`: it starts none, or has an option
/// that is not known here.
pub fn command_at<S: AsRef<str>>(args: &[S]) -> Option<(usize, usize)> {
    let mut starts_it = true;
    let mut check = |letter: char| {
        let is_nothing = STARTING_NOTHING.iter().any(|other| other.starts_with(letter));
        starts_it &= !is_nothing && (FLAGS.contains(letter) || VALUE_OPTIONS.contains(letter));
    };
    let host = after_options(args, &mut check);
    let is_over = host.checked_sub(1).is_some_and(|at| args.get(at).is_some_and(|arg| arg.as_ref() == "--"));
    let rest = args.get(host + 1..)?;
    // Options can follow the host, too.
    let command = host + 1 + if is_over { 0 } else { after_options(rest, &mut check) };
    (starts_it && command < args.len()).then_some((host, command))
}

/// The index after the options at the beginning, by getopt's rules. It can be larger than the number of arguments. `each` gets the
/// letters.
fn after_options<S: AsRef<str>>(args: &[S], mut each: impl FnMut(char)) -> usize {
    let mut at = 0;
    while let Some(letters) = args.get(at).and_then(|arg| arg.as_ref().strip_prefix('-')) {
        match letters {
            "" => break,
            "-" => return at + 1,
            // Several letters can share a hyphen. The first letter that takes a value is the last. The rest of the word is its value,
            // or the next word if there is no rest.
            _ => {
                let with_value = letters.find(|letter| VALUE_OPTIONS.contains(letter));
                letters.chars().take(with_value.map_or(usize::MAX, |at| at + 1)).for_each(&mut each);
                let takes_next_word = with_value.is_some_and(|letter| letter + 1 == letters.len());
                at += if takes_next_word { 2 } else { 1 };
            }
        }
    }
    at
}

/// The name in an argument that names a host: `n2` in `me@n2` and `ssh://me@n2:22`.
pub fn host_name(host: &str) -> &str {
    let of_uri = host.strip_prefix("ssh://");
    let name = of_uri.unwrap_or(host).rsplit('@').next().unwrap_or_default();
    of_uri.map_or(name, |_| name.split([':', '/']).next().unwrap_or_default())
}

/// Whether a remote command is the server side of a program that copies files.
pub fn is_file_server<S: AsRef<str>>(command: &[S]) -> bool {
    let words = || command.iter().flat_map(|word| word.as_ref().split_whitespace());
    let has = |wanted: &[&str]| words().any(|word| wanted.contains(&base_name(word)));
    // `docker system dial-stdio` connects a local docker with the daemon of the other host.
    has(&["git-upload-pack", "git-receive-pack", "git-upload-archive"])
        || has(&["git-lfs-authenticate", "git-lfs-transfer", "sftp-server", "svnserve", "dial-stdio"])
        || (has(&["rsync"]) && has(&["--server"]))
        || (has(&["scp"]) && has(&["-t", "-f"]))
        || (has(&["hg", "borg", "unison", "rdiff-backup"])
            && has(&["serve", "-server", "server", "--server"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_command_follow_the_options_and_their_values() {
        for (line, host, command) in [
            ("n2 make", Some(0), Some(1)),
            ("-x -p 22 n2 make -j 4", Some(3), Some(4)),
            ("-xp22 n2", Some(1), None),
            ("-xp 22 n2 ls", Some(2), Some(3)),
            ("-q -o BatchMode=yes n2 ls", Some(3), Some(4)),
            ("n2 -t -p 22 make", Some(0), Some(4)),
            ("n2 -- -x", Some(0), Some(2)),
            ("-- n2 -x", Some(1), Some(2)),
            ("n2 -t", Some(0), None),
            ("n2 -", Some(0), Some(1)),
            ("-é n2 ls", Some(1), None),
            ("-xP n2 ls", Some(1), None),
            ("-fN n2 ls", Some(1), None),
            ("n2 -s sftp", Some(0), None),
            ("-x", None, None),
            ("-p", None, None),
            ("-p n2", None, None),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let found = command_at(&words);
            assert_eq!((host_at(&words), found.map(|(_, command)| command)), (host, command), "{line}");
            assert!(found.is_none_or(|(at, _)| Some(at) == host), "{line}");
        }
        assert_eq!(host_at::<&str>(&[]), None);
    }

    #[test]
    fn name_of_a_host_is_without_user_and_port() {
        let forms = ["n2", "me@n2", "me@x@n2", "ssh://me@n2:22", "ssh://n2/"];
        assert!(forms.iter().all(|form| host_name(form) == "n2"));
        assert_eq!((host_name("fe80::1"), host_name("")), ("fe80::1", ""));
    }
}
