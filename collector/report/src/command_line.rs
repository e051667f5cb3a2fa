//! Command lines in a few columns: their first words, and what tells a command from others of its kind.

use super::quote::{MARK, cut, escape, width, word};

/// Longest word of a command that is shown whole, in columns, unless there is room for much more.
const WORD_WIDTH: usize = 60;
/// The first word that does not fit is shown cut if at least this many columns are left for it, and else left out.
const LEAST_CUT: usize = 16;
/// With fewer columns than this, a command is cut anywhere, and no operand is looked for.
const LEAST_WORDS: usize = 24;
/// What stands for words that were left out, before the next one or their count.
const GAP: &str = " ... ";
/// The extensions of files that a compiler or an interpreter takes.
const SOURCES: [&str; 34] = [
    "c", "cc", "cpp", "cxx", "c++", "cu", "m", "mm", "i", "ii", "s", "S", "f", "for", "f90", "f95", "f03",
    "f08", "F", "F90", "rs", "go", "d", "java", "kt", "swift", "hs", "ml", "tex", "py", "R", "r", "jl", "pl",
];

/// Renders a command in about `max_width` columns. Of a longer one, it shows the first words and the word that tells what the command
/// works on ([`operand`]). Long words are cut, and those left out are counted.
pub(crate) fn command<S: AsRef<str>>(words: &[S], max_width: usize) -> String {
    // Where there is much room, a long word gets a half of it.
    let word_width = WORD_WIDTH.max(max_width / 2);
    let shown: Vec<String> = words.iter().map(|full| word(&cut(full.as_ref(), word_width))).collect();
    let whole = shown.join(" ");
    if shown.len() < 2 || width(&whole) <= max_width {
        return whole;
    }
    if max_width < LEAST_WORDS {
        return cut(&whole, max_width);
    }
    // The last columns are for the count of the words that are left out.
    let for_words = max_width.saturating_sub(" ... 1000 more".len());
    let fitting = count_fitting(&shown, for_words);
    // An operand among the first words is shown with them.
    let place = operand(words).filter(|at| *at >= fitting);
    // It gets at most two thirds of the columns, so that first words keep some.
    let with_end = |at: usize| Some((at, end_of_path(words[at].as_ref(), for_words * 2 / 3)?));
    let Some((at, operand)) = place.and_then(with_end) else { return cut_words(&shown, fitting, max_width) };
    let room = for_words.saturating_sub(width(&operand) + GAP.len());
    let kept = count_fitting(&shown, room);
    let (gap, others) = (if at == kept { " " } else { GAP }, shown.len() - kept - 1);
    let count = if others > 0 { format!("{GAP}{others} more") } else { String::new() };
    // The first word may alone be longer than what is left for it.
    let first = if kept == 1 { cut(&shown[0], room) } else { shown[..kept].join(" ") };
    format!("{first}{gap}{operand}{count}")
}

/// Counts the words that fit into so many columns; the first one always does.
fn count_fitting(words: &[String], columns: usize) -> usize {
    let ends = words.iter().scan(0, |end, word| {
        *end += width(word) + 1;
        Some(*end - 1)
    });
    ends.take_while(|end| *end <= columns).count().max(1)
}

/// Renders the first `kept` of a command's words in about `max_width` columns, and the beginning of the next one if there is room.
fn cut_words(words: &[String], kept: usize, max_width: usize) -> String {
    let mut text = match kept {
        1 => cut(&words[0], max_width.saturating_sub(" ... 1000 more".len())),
        _ => words[..kept].join(" "),
    };
    let (next, others) = (&words[kept], words.len() - kept - 1);
    let count = if others > 0 { format!("{GAP}{others} more") } else { String::new() };
    let room = max_width.saturating_sub(width(&text) + 1 + width(&count));
    if room >= LEAST_CUT {
        return format!("{text} {}{count}", cut(next, room));
    }
    // If the last word was cut, it ends with "..." already.
    text += if text.ends_with(MARK) { " " } else { GAP };
    format!("{text}{} more", others + 1)
}

/// Finds the place of the argument that tells a command from others of its kind. That is its last source file, else its output
/// (`-o`), else its last path.
fn operand<S: AsRef<str>>(words: &[S]) -> Option<usize> {
    let word = |at: usize| words[at].as_ref();
    let is_name = |at: &usize| !word(*at).starts_with('-') && !word(*at).contains(char::is_whitespace);
    let is_output = |at: &usize| word(at - 1) == "-o";
    let is_source = |at: &usize| {
        let extension = word(*at).rsplit('/').next().and_then(|name| name.rsplit_once('.'));
        let is_of_source = |(stem, extension): (&str, &str)| !stem.is_empty() && SOURCES.contains(&extension);
        !is_output(at) && extension.is_some_and(is_of_source)
    };
    let is_path = |at: &usize| word(*at).contains(['/', '.']);
    let last = |is: &dyn Fn(&usize) -> bool| (1..words.len()).rev().filter(is_name).find(|at| is(at));
    // A compiler can be given the name of its source file and the whole path. The path tells more.
    let source = last(&is_source);
    let longest = source.and_then(|source| {
        let is_same = |at: &usize| is_source(at) && word(*at).ends_with(word(source));
        (1..words.len()).filter(is_name).filter(is_same).max_by_key(|at| word(*at).len())
    });
    longest.or_else(|| last(&is_output)).or_else(|| last(&is_path))
}

/// As many of a path's last names as fit in `max_width` columns. `None`: its last name alone is wider.
fn end_of_path(path: &str, max_width: usize) -> Option<String> {
    /// Only so many bytes for each column are looked at. They can be several, because combining characters have bytes but no width.
    const MAX_BYTES: usize = 16;
    let least = path.len().saturating_sub(max_width * MAX_BYTES);
    let first = (least..=path.len()).find(|at| path.is_char_boundary(*at))?;
    let starts = path[first..].match_indices('/').map(|(at, _)| first + at + 1);
    // The whole path is the longest candidate, unless its beginning was left out.
    let whole = (first == 0).then_some(0);
    let ends = whole.into_iter().chain(starts).filter(|at| *at < path.len()).map(|at| word(&path[at..]));
    ends.into_iter().find(|end| width(end) <= max_width)
}

/// Renders a process's command in about `max_width` columns, without the directory of its program. If the arguments are not
/// known, renders its `name`.
pub(crate) fn process(args: Option<&[String]>, name: &str, max_width: usize) -> String {
    let Some([first, rest @ ..]) = args else { return cut(&escape(name), max_width) };
    let mut words: Vec<&str> = vec![first];
    // A process can overwrite its arguments in memory with any text. Text with white space is not taken for a path.
    if !first.contains(char::is_whitespace) {
        words[0] = first.rsplit('/').next().unwrap_or(first);
    }
    words.extend(rest.iter().map(String::as_str));
    command(&words, max_width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_shown_without_the_directory_of_its_program() {
        let shown = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            process(Some(&args), "name", 40)
        };
        assert_eq!(shown(&["/usr/bin/python3", "/work/train.py"]), "python3 /work/train.py");
        assert_eq!(shown(&["-bash"]), "-bash");
        assert_eq!(
            shown(&["nginx: master process /usr/sbin/nginx"]),
            "'nginx: master process /usr/sbin/nginx'"
        );
        assert_eq!(shown(&[]), "name");
        assert_eq!(process(None, "na\x07me", 40), r"na\x07me");
    }

    // Requirement: OUT-25
    #[test]
    fn long_command_keeps_what_tells_it_from_others() {
        let shown = |line: &str| command(&line.split(' ').collect::<Vec<_>>(), 48);
        let includes = "-I /usr/include -I /usr/local/include -D A";
        for (line, expected) in [
            (
                format!("cc1 -quiet {includes} lib/parse/lexer.c -dumpbase lexer.c -o /tmp/cc1.s"),
                "cc1 -quiet ... lib/parse/lexer.c ... 10 more",
            ),
            (
                format!("cc1 -quiet {includes} /home/anna/work/project/lib/parse/lexer.c -o /tmp/cc1.s"),
                "cc1 -quiet ... lib/parse/lexer.c ... 8 more",
            ),
            (
                format!("ld {includes} a.o b.o c.o d.o e.o -o bin/tool -lm -lz"),
                "ld -I /usr/include -I ... bin/tool ... 11 more",
            ),
            (
                "bwa mem -t 8 -R @RG -K 100000000 ref/hg38.fa s1_R1.fq.gz s1_R2.fq.gz".into(),
                "bwa mem -t 8 -R ... s1_R2.fq.gz ... 5 more",
            ),
            (
                "seq 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20".into(),
                "seq 1 2 3 4 5 6 7 8 9 10 11 12 13 ... 7 more",
            ),
        ] {
            assert_eq!(shown(&line), expected);
            assert!(width(&shown(&line)) <= 48);
        }
    }

    #[test]
    fn long_command_is_cut() {
        assert_eq!(command(&["make", "-j4"], 80), "make -j4");
        assert_eq!(command::<&str>(&[], 80), "");
        let many: Vec<String> = (0..1000).map(|i| format!("file{i}")).collect();
        assert_eq!(command(&many, 36), "file0 file1 file2 ... 997 more");
        assert_eq!(
            command(&["sh", "-c", "for f in *.c; do cc -c $f; done; make -j2 all", "x"], 40),
            "sh -c 'for f in *.c; do cc... ... 1 more"
        );
        assert_eq!(
            command(&["sh", "-c", "for f in *.c; do cc -c $f; done"], 26),
            "sh -c 'for f in *.c; do..."
        );
        // However long a word is, the text keeps its width and takes no time.
        let path = "d/".repeat(500_000) + "x";
        for (words, most) in
            [(["make", "-y", &path], 40), ([&path, "-y", "in.c"], 40), ([&path, &path, &path], 30)]
        {
            assert!(width(&command(&words, most)) <= most, "{}", command(&words, most));
        }
        let long = ["x".repeat(1 << 20), "y".into()];
        assert_eq!(command(&long, 30), format!("{}... 1 more", "x".repeat(13)));
        assert_eq!(command(&["sh", "-c", "for f in *.c; do cc -c $f; done"], 15), "sh -c 'for f...");
    }
}
