//! Reads a command line as docopt 0.6.2 reads it with the usage of gpu_tracker 5.0.1.
//!
//! In docopt, a long option can be shortened to any prefix that no other option has. Short options can stand together
//! (`-vh`), a value can follow its letter (`-etrue`), and options can stand after words. A line that fits no form of the usage is refused.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;

/// An option of gpu_tracker. Its forms have their hyphens. One form can be missing: it is empty then.
#[derive(Debug, Clone, Copy)]
struct Known {
    short: &'static str,
    long: &'static str,
    takes_value: bool,
}

impl Known {
    const fn new(short: &'static str, long: &'static str, takes_value: bool) -> Self {
        Self { short, long, takes_value }
    }

    /// The name by which forms of the usage have the option: its long form, or its only one.
    fn name(&self) -> &'static str {
        if self.long.is_empty() { self.short } else { self.long }
    }
}

/// All options. The message about an ambiguous prefix lists them in this order, which is that of gpu_tracker's help.
const OPTIONS: [Known; 21] = [
    Known::new("-h", "--help", false),
    Known::new("-v", "--version", false),
    Known::new("-e", "--execute", true),
    Known::new("-o", "--output", true),
    Known::new("-f", "--format", true),
    Known::new("", "--tconfig", true),
    Known::new("", "--st", true),
    Known::new("", "--ru", true),
    Known::new("", "--gru", true),
    Known::new("", "--tu", true),
    Known::new("", "--nec", true),
    Known::new("", "--guuids", true),
    Known::new("", "--disable-logs", false),
    Known::new("", "--gb", true),
    Known::new("", "--tf", true),
    Known::new("", "--overwrite", false),
    Known::new("", "--stf", true),
    Known::new("-p", "", true),
    Known::new("", "--cconfig", true),
    Known::new("-m", "", true),
    Known::new("", "--stat", true),
];

/// A form of the usage.
struct Form {
    words: &'static [&'static str],
    /// The options that it takes, and how often each can stand in it.
    options: &'static [(&'static str, RangeInclusive<usize>)],
}

const TRACKING: Form = Form {
    words: &[],
    options: &[
        ("--execute", 1..=1),
        ("--output", 0..=1),
        ("--format", 0..=1),
        ("--tconfig", 0..=1),
        ("--st", 0..=1),
        ("--ru", 0..=1),
        ("--gru", 0..=1),
        ("--tu", 0..=1),
        ("--nec", 0..=1),
        ("--guuids", 0..=1),
        ("--disable-logs", 0..=1),
        ("--gb", 0..=1),
        ("--tf", 0..=1),
        ("--overwrite", 0..=1),
    ],
};
const SUB_TRACKING: [Form; 3] = [
    Form { words: &["sub-track", "combine"], options: &[("--stf", 1..=1), ("-p", 1..=usize::MAX)] },
    Form {
        words: &["sub-track", "analyze"],
        options: &[("--tf", 1..=1), ("--stf", 1..=1), ("--output", 0..=1), ("--format", 0..=1)],
    },
    Form {
        words: &["sub-track", "compare"],
        options: &[
            ("--output", 0..=1),
            ("--format", 0..=1),
            ("--cconfig", 0..=1),
            ("--stat", 0..=1),
            ("-m", 0..=usize::MAX),
        ],
    },
];

/// Options by the names that forms of the usage have for them, and their values.
pub(super) type Options = Vec<(&'static str, Option<OsString>)>;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Help,
    Version,
    Track(Options),
    /// The command of `sub-track`, and its options.
    SubTrack(&'static str, Options),
}

/// A command line that docopt refuses, by the first line of docopt's message. The line can be empty. The usage follows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) String);

/// A piece of a command line: an option with its value, or a word.
enum Piece {
    Option(Known, Option<OsString>),
    UnknownOption,
    Word(OsString),
}

/// Reads the words after the program's name. `--help` and `--version` go before everything else.
///
/// # Errors
/// If docopt refuses them.
pub(super) fn read(args: &[OsString]) -> Result<Asked, Refused> {
    let pieces = pieces(args)?;
    let has = |wanted: &str| {
        pieces.iter().any(|piece| matches!(piece, Piece::Option(known, _) if known.name() == wanted))
    };
    if has("--help") {
        return Ok(Asked::Help);
    }
    if has("--version") {
        return Ok(Asked::Version);
    }
    let form = SUB_TRACKING.iter().find(|form| form.fits(&pieces));
    if form.is_none() && !TRACKING.fits(&pieces) {
        return Err(Refused(String::new()));
    }
    let option = |piece| match piece {
        Piece::Option(known, value) => Some((known.name(), value)),
        _ => None,
    };
    let options = pieces.into_iter().filter_map(option).collect();
    Ok(match form {
        Some(form) => Asked::SubTrack(form.words[1], options),
        None => Asked::Track(options),
    })
}

impl Form {
    /// Whether these words and options are what the form takes.
    fn fits(&self, pieces: &[Piece]) -> bool {
        let words = pieces.iter().filter_map(|piece| match piece {
            Piece::Word(word) => Some(word.as_os_str()),
            _ => None,
        });
        let count = |option: &str| {
            pieces
                .iter()
                .filter(|piece| matches!(piece, Piece::Option(known, _) if known.name() == option))
                .count()
        };
        let is_in_form = |piece: &Piece| match piece {
            Piece::Option(known, _) => self.options.iter().any(|(option, _)| *option == known.name()),
            Piece::UnknownOption => false,
            Piece::Word(_) => true,
        };
        words.eq(self.words.iter().map(OsStr::new))
            && pieces.iter().all(is_in_form)
            && self.options.iter().all(|(option, times)| times.contains(&count(option)))
    }
}

/// Splits arguments into words, and options with their values.
///
/// # Errors
/// If an option lacks its value, has one that it does not take, or is an ambiguous prefix.
fn pieces(args: &[OsString]) -> Result<Vec<Piece>, Refused> {
    let mut args = args.iter();
    let mut pieces = Vec::new();
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        match bytes {
            b"--" => {
                // docopt keeps the hyphens as a word.
                pieces.push(Piece::Word(arg.clone()));
                pieces.extend(args.by_ref().cloned().map(Piece::Word));
            }
            [b'-', b'-', ..] => pieces.push(long(bytes, &mut args)?),
            [b'-', letters @ ..] if !letters.is_empty() => shorts(letters, &mut args, &mut pieces)?,
            _ => pieces.push(Piece::Word(arg.clone())),
        }
    }
    Ok(pieces)
}

/// Reads `--NAME` or `--NAME=VALUE` in `bytes`, where NAME can be a prefix of an option's name. A missing value is taken from `rest`.
fn long<'a>(bytes: &[u8], rest: &mut impl Iterator<Item = &'a OsString>) -> Result<Piece, Refused> {
    let mut parts = bytes.splitn(2, |byte| *byte == b'=');
    let given = parts.next().unwrap_or_default();
    let value = parts.next().map(|value| OsStr::from_bytes(value).to_owned());
    // A whole name stands for its option, even if the names of others begin with it.
    let exact = OPTIONS.iter().filter(|known| known.long.as_bytes() == given).collect::<Vec<_>>();
    let similar = match exact[..] {
        [] => OPTIONS.iter().filter(|known| known.long.as_bytes().starts_with(given)).collect(),
        _ => exact,
    };
    let refused = |problem: String| Err(Refused(problem));
    match (&similar[..], value) {
        ([], _) => Ok(Piece::UnknownOption),
        ([known], value) if known.takes_value => match value.or_else(|| rest.next().cloned()) {
            None => refused(format!("{} requires argument", known.long)),
            value => Ok(Piece::Option(**known, value)),
        },
        ([known], Some(_)) => refused(format!("{} must not have an argument", known.long)),
        ([known], None) => Ok(Piece::Option(**known, None)),
        (several, _) => {
            let names: Vec<&str> = several.iter().map(|known| known.long).collect();
            let given = String::from_utf8_lossy(given);
            refused(format!("{given} is not a unique prefix: {}?", names.join(", ")))
        }
    }
}

/// Reads letters after one hyphen, each an option, and adds them to `pieces`. The first one that takes a value takes the letters after
/// it. Without such letters, it takes the next word of `rest`.
fn shorts<'a>(
    mut letters: &[u8],
    rest: &mut impl Iterator<Item = &'a OsString>,
    pieces: &mut Vec<Piece>,
) -> Result<(), Refused> {
    while let [letter, following @ ..] = letters {
        letters = following;
        pieces.push(match OPTIONS.iter().find(|known| known.short.as_bytes() == [b'-', *letter]) {
            None => Piece::UnknownOption,
            Some(known) if !known.takes_value => Piece::Option(*known, None),
            Some(known) => {
                let value = match following {
                    [] => rest.next().cloned(),
                    _ => Some(OsStr::from_bytes(std::mem::take(&mut letters)).to_owned()),
                };
                if value.is_none() {
                    return Err(Refused(format!("{} requires argument", known.short)));
                }
                Piece::Option(*known, value)
            }
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Result<Asked, Refused> {
        read(&line.iter().map(Into::into).collect::<Vec<_>>())
    }

    fn tracked(line: &[&str]) -> Vec<(&'static str, Option<String>)> {
        match parsed(line) {
            Ok(Asked::Track(options)) => options
                .into_iter()
                .map(|(name, value)| (name, value.map(|value| value.into_string().unwrap())))
                .collect(),
            other => panic!("{line:?}: {other:?}"),
        }
    }

    // Requirement: CMD-16
    #[test]
    fn an_option_has_every_form_that_docopt_takes() {
        let right = [("--execute", Some("ls -l".to_owned())), ("--overwrite", None)];
        for line in [
            &["--execute=ls -l", "--overwrite"][..],
            &["--exec", "ls -l", "--over"],
            &["--e=ls -l", "--ov"],
            &["-els -l", "--overwrite"],
            &["-e", "ls -l", "--overw"],
        ] {
            assert_eq!(tracked(line), right, "{line:?}");
        }
        // --st is an option, and a prefix of others.
        assert_eq!(
            tracked(&["--st=1", "-e="]),
            [("--st", Some("1".into())), ("--execute", Some("=".into()))]
        );
        assert_eq!(tracked(&["-e", "--st=1"]), [("--execute", Some("--st=1".into()))]);
        assert_eq!(tracked(&["--execute="]), [("--execute", Some(String::new()))]);
    }

    // Requirement: CMD-16
    #[test]
    fn what_docopt_refuses_is_refused_in_its_words() {
        for (line, problem) in [
            (&["--o=x", "-e", "ls"][..], "--o is not a unique prefix: --output, --overwrite?"),
            (&["--t", "1"], "--t is not a unique prefix: --tconfig, --tu, --tf?"),
            (&["--disable-logs=1"], "--disable-logs must not have an argument"),
            (&["--exec"], "--execute requires argument"),
            (&["-e"], "-e requires argument"),
            (&[], ""),
            (&["-e", "ls", "-e", "ls"], ""),
            (&["-e", "ls", "extra"], ""),
            (&["-e", "ls", "--full"], ""),
            (&["-e", "ls", "-q"], ""),
            (&["--", "-e", "ls"], ""),
            (&["-e", "ls", "--stf=x"], ""),
            (&["sub-track", "analyze", "--tf=x"], ""),
            (&["sub-track", "combine", "--stf=x"], ""),
            (&["sub-track"], ""),
        ] {
            assert_eq!(parsed(line), Err(Refused(problem.to_owned())), "{line:?}");
        }
    }

    // Requirement: CMD-16
    #[test]
    fn help_and_version_win_over_what_else_is_wrong() {
        for line in [&["-h"][..], &["--he"], &["--foo", "x", "-vh"], &["sub-track", "--help"]] {
            assert_eq!(parsed(line), Ok(Asked::Help), "{line:?}");
        }
        for line in [&["-v"][..], &["--vers"], &["-e", "ls", "-v"]] {
            assert_eq!(parsed(line), Ok(Asked::Version), "{line:?}");
        }
    }

    // Requirement: CMD-16
    #[test]
    fn forms_of_sub_track_are_known() {
        for (line, command, last) in [
            (
                &["sub-track", "analyze", "--tf=x", "--stf=y", "-o", "z"][..],
                "analyze",
                Some(("--output", "z")),
            ),
            (&["sub-track", "combine", "--stf", "c", "-p", "a", "-pb"], "combine", Some(("-p", "b"))),
            (
                &["--stat=max", "sub-track", "compare", "-m", "A=a", "-m", "B=b"],
                "compare",
                Some(("-m", "B=b")),
            ),
            (&["sub-track", "compare"], "compare", None),
        ] {
            let Ok(Asked::SubTrack(asked, options)) = parsed(line) else { panic!("{line:?}") };
            assert_eq!(asked, command, "{line:?}");
            let found =
                options.last().map(|(name, value)| (*name, value.as_ref().unwrap().to_str().unwrap()));
            assert_eq!(found, last, "{line:?}");
        }
    }
}
