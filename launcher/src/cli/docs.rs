//! Short help and shell completions, generated from the options.

use clap::builder::Resettable;
use clap::{Arg, Command};
use clap_complete::Shell;

use super::args::{AFTER_SHORT_HELP, SHORT_HELP};

const NAME: &str = "gpu-track-run";

/// Renders the options that are used most, on one screen: of each one the first sentence of its help.
pub(super) fn short_help(command: Command) -> String {
    let shortened = |arg: Arg| {
        let Some(place) = SHORT_HELP.iter().position(|id| *id == arg.get_id().as_str()) else {
            return arg.hide(true);
        };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let first = help.split(". ").next().unwrap_or_default().to_owned();
        // clap panics in debug builds if possible values are hidden of an option that takes none.
        let has_values = arg.get_action().takes_values();
        arg.help(first)
            .help_heading("Options")
            .display_order(place)
            .hide_possible_values(has_values)
            .visible_alias(Resettable::Reset)
    };
    command.mut_args(shortened).after_help(AFTER_SHORT_HELP).render_help().to_string()
}

/// Makes a completion script for `shell`: options, then commands, then what the command's own completion offers.
pub(super) fn completions(command: &Command, shell: Shell) -> String {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned();
    // The options include --help and --version, so clap must not add its own.
    let bare = Command::new(NAME).version("").disable_help_flag(true).disable_version_flag(true);
    let mut shown = bare.args(shown);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown, NAME, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    // The word after one of these options is its value, and no command.
    let with_value = shown.get_opts().filter(|arg| arg.get_action().takes_values()).flat_map(names);
    let with_value: Vec<String> = with_value.collect();
    match shell {
        Shell::Bash => bash(&script, &with_value),
        Shell::Zsh => zsh(&script),
        Shell::Fish => fish(&script, &with_value),
        _ => script,
    }
}

/// All names of an option, with hyphens.
fn names(option: &Arg) -> Vec<String> {
    let short = option.get_short().map(|short| format!("-{short}"));
    let long = option.get_long_and_visible_aliases().unwrap_or_default();
    short.into_iter().chain(long.into_iter().map(|long| format!("--{long}"))).collect()
}

/// Adds to clap's script for Bash, whose function completes the options, a function that completes the command after them. There
/// bash-completion's `_command_offset` takes over, which has another name from 2.12 on. Without that package, commands and files are
/// offered. `i` is the word at which the command begins. clap's script ends with its registration, which is changed to our function.
///
/// `with_value`: the names of options that take a value. Bash breaks words at `=`, so `--st=1` is three words.
fn bash(script: &str, with_value: &[String]) -> String {
    let function = r#"
_gpu_track_run_command() {
    local i=1 offset
    while (( i < COMP_CWORD )); do
        case ${COMP_WORDS[i]} in
            --) (( i++ )); break ;;
            @WITH_VALUE@) [[ ${COMP_WORDS[i + 1]} == "=" ]] && (( i++ )); (( i += 2 )) ;;
            -*) (( i++ )) ;;
            *) break ;;
        esac
    done
    if (( i > COMP_CWORD )) || [[ $i -eq $COMP_CWORD && $2 == -* && ${COMP_WORDS[i - 1]} != -- ]]; then
        [[ $3 != "=" ]] || set -- "$1" "$2" "${COMP_WORDS[COMP_CWORD - 2]}"
        _gpu__track__run "$@"
        return
    fi
    for offset in _comp_command_offset _command_offset; do
        if declare -F "$offset" >/dev/null; then
            "$offset" "$i"
            return
        fi
    done
    COMPREPLY=()
    (( i == COMP_CWORD )) && COMPREPLY=( $(compgen -c -- "$2") )
}
"#;
    let function = function.replace("@WITH_VALUE@", &with_value.join("|"));
    let Some(end) = script.rfind("\nif [[") else { return script.to_owned() };
    let (functions, registration) = script.split_at(end);
    let registration =
        registration.replace("-F _gpu__track__run", "-F _gpu_track_run_command").replace(" -o nosort", "");
    format!("{functions}{function}{registration}")
}

/// Changes clap's script for Zsh so that none of our options is offered after the first word that is no option.
fn zsh(script: &str) -> String {
    let is_command = |line: &str| line.starts_with("'*::command -- ");
    let command = "'(-)1:COMMAND:_command_names -e' \\\n'*::ARG:_normal' \\";
    let changed = script.lines().map(|line| if is_command(line) { command } else { line });
    changed.map(|line| line.to_owned() + "\n").collect()
}

/// Changes clap's script for Fish so that our options are offered only while no command stands before the cursor. `with_value`: the
/// names of options that take a value.
fn fish(script: &str, with_value: &[String]) -> String {
    let with_value = with_value.join(" ");
    let function = format!(
        r"function __gpu_track_run_at_options
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]
        switch $words[1]
            case --
                return 1
            case {with_value}
                set -e words[1]
            case '-*'
            case '*'
                return 1
        end
        set -e words[1]
    end
    return 0
end
"
    );
    let ours = "complete -c gpu-track-run";
    let script = script.replace(&format!("{ours} "), &format!("{ours} -n __gpu_track_run_at_options "));
    format!("{function}{script}{ours} -x -a \"(__fish_complete_subcommand {with_value})\"\n")
}
