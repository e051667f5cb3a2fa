//! What `gpu-tracker -h` prints, and the usage after a refusal.

/// The forms of the command line. docopt prints them after every refusal.
pub(super) const USAGE: &str = "\
Usage:
    gpu-tracker -h | --help
    gpu-tracker -v | --version
    gpu-tracker --execute=<command> [--output=<output>] [--format=<format>] [--tconfig=<config-file>] [--st=<sleep-time>] \
[--ru=<ram-unit>] [--gru=<gpu-ram-unit>] [--tu=<time-unit>] [--nec=<num-cores>] [--guuids=<gpu-uuids>] [--disable-logs] \
[--gb=<gpu-brand>] [--tf=<tracking-file>] [--overwrite]
    gpu-tracker sub-track combine --stf=<sub-track-file> -p <file-path>...
    gpu-tracker sub-track analyze --tf=<tracking-file> --stf=<sub-track-file> [--output=<output>] [--format=<format>]
    gpu-tracker sub-track compare [--output=<output>] [--format=<format>] [--cconfig=<config-file>] [-m \
<name>=<file-path>...] [--stat=<statistic>]
";

/// What stands after the usage.
pub(super) const OPTIONS: &str = "\
Options:
    -h --help               Print this.
    -v --version            Print the version of gpu_tracker whose command line this is.
    -e --execute=<command>  The command with its arguments, split at blanks; required.
    -o --output=<output>    Write the report to this file instead of stdout.
    -f --format=<format>    text (the default) or json. pickle: by python3 -m gpu_track.
    --tconfig=<config-file> A JSON file with gpu_tracker's keywords; options override them.
    --st=<sleep-time>       Seconds between two samples; 1 by default, 0.001 at least.
    --ru=<ram-unit>         bytes, kilobytes, megabytes, gigabytes (the default) or terabytes.
    --gru=<gpu-ram-unit>    The same for GPU RAM.
    --tu=<time-unit>        seconds, minutes, hours (the default) or days.
    --nec=<num-cores>       How many cores the command should use; all of the machine by default.
    --guuids=<gpu-uuids>    UUIDs of the GPUs to track, separated by commas; all of the machine by default.
    --disable-logs          Write no warnings to stderr.
    --gb=<gpu-brand>        Track only the GPUs of nvidia, amd or intel.
    --tf=<tracking-file>    Write the run over time to this file, which ends in .csv, .sqlite, .jsonl or .pftrace.
    --overwrite             Replace the file of --tf if it exists.
    sub-track combine       Join sub-tracking files to the one of --stf, which must not exist.
    -p <file-path>          A file to join, of the same ending; a single directory: all files in it.
    sub-track analyze       Show what each code block of --stf used, by the samples of --tf.
    --stf=<sub-track-file>  A file in .csv or .sqlite with the starts and stops of code blocks.
    sub-track compare       Compare analyses that were written with -f json. Pickles can't be read.
    -m <name>=<file-path>   An analysis, and a name for it.
    --cconfig=<config-file> A JSON file with file_path_map and statistic; options add to it.
    --stat=<statistic>      min, max, mean (the default) or std.
";
