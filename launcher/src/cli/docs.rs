//! The man page and the shell completions, generated from the options.

use clap::builder::Resettable;
use clap::{Arg, Command};
use clap_complete::Shell;
use clap_mangen::Man;

/// A completion script for `shell`.
pub(super) fn completions(mut command: Command, shell: Shell) -> String {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The man page, as roff.
pub(super) fn man(command: Command) -> String {
    let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let command = command.after_help(Resettable::Reset).mut_args(with_aliases);
    let mut page = Vec::new();
    // Writing to memory cannot fail.
    let _ = Man::new(command).render(&mut page);
    let mut page = String::from_utf8_lossy(&page).into_owned();
    for block in after_help.split("\n\n") {
        let (heading, lines) = block.split_once(":\n").unwrap_or(("notes", block));
        page += &format!(".SH {}\n.nf\n{}\n.fi\n", heading.to_uppercase(), literal(lines));
    }
    page
}

/// Adds an option's aliases to its help. `--help` shows them, but clap_mangen does not.
fn with_aliases(arg: Arg) -> Arg {
    let names = arg.get_visible_aliases().unwrap_or_default().join(", --");
    match arg.get_help().map(ToString::to_string) {
        Some(help) if !names.is_empty() => arg.help(format!("{help} [alias: --{names}]")),
        _ => arg,
    }
}

/// Text that roff shows unchanged, with ASCII hyphens and quotes, so that an example can be copied.
fn literal(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn man_page_has_aliases_and_literal_examples() {
        let command = Command::new("prog")
            .about("does it")
            .arg(Arg::new("st").long("st").visible_alias("sleep-time").help("Interval"))
            .after_help("Examples:\n  prog -e 'it'\n\nExit status:\n  0");
        let page = man(command);
        assert!(page.contains("Interval [alias: \\-\\-sleep\\-time]\n"), "{page}");
        let end = ".SH EXAMPLES\n.nf\n  prog \\-e \\(aqit\\(aq\n.fi\n.SH EXIT STATUS\n.nf\n  0\n.fi\n";
        assert!(page.ends_with(end), "{page}");
        assert!(!page.contains("EXTRA"), "{page}");
    }
}
