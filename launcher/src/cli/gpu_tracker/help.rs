//! What `gpu-tracker -h` prints, and the usage behind a refusal.

/// The forms of the command line. docopt prints them behind every refusal.
pub(super) const USAGE: &str = "\
Usage:
    gpu-tracker -h | --help
    gpu-tracker -v | --version
    gpu-tracker --execute=<command> [--output=<output>] [--format=<format>] [--tconfig=<config-file>] [--st=<sleep-time>] \
[--ru=<ram-unit>] [--gru=<gpu-ram-unit>] [--tu=<time-unit>] [--nec=<num-cores>] [--guuids=<gpu-uuids>] [--disable-logs] \
[--gb=<gpu-brand>] [--tf=<tracking-file>] [--overwrite]
";

/// What stands behind the usage.
pub(super) const OPTIONS: &str = "\
Options:
    -h --help               Print this.
    -v --version            Print the version of gpu_tracker whose command line this is.
    -e --execute=<command>  The command with its arguments, split at blanks; required.
    -o --output=<output>    Write the report to this file instead of stdout.
    -f --format=<format>    text (the default) or json. pickle can't be written.
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

sub-track is not there: gpu_tracker's own program reads the files of --tf.
";
