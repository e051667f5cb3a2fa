//! Quoting of untrusted text (commands, paths, arguments) for a terminal. Nothing in the result can move the cursor, break
//! a line or change the writing direction, and a command can be pasted into a shell.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Longest word of a command that is shown whole, in columns, unless there is room for much more.
const WORD_WIDTH: usize = 60;
/// A word that does not fit is cut if it still has so many columns.
const LEAST_CUT: usize = 16;
/// A command that has fewer columns is cut as a text.
const LEAST_WORDS: usize = 24;
/// What stands for words that were left out, before the next one or their count.
const GAP: &str = " ... ";
/// The extensions of files that a compiler or an interpreter takes.
const SOURCES: [&str; 34] = [
    "c", "cc", "cpp", "cxx", "c++", "cu", "m", "mm", "i", "ii", "s", "S", "f", "for", "f90", "f95", "f03",
    "f08", "F", "F90", "rs", "go", "d", "java", "kt", "swift", "hs", "ml", "tex", "py", "R", "r", "jl", "pl",
];

/// Whether a terminal would act on the character instead of showing it.
pub(super) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Appends the character as a shell's `$'...'` writes it.
fn push_escaped(out: &mut String, c: char) {
    let code = u32::from(c);
    let _infallible = match c {
        '\n' => out.write_str("\\n"),
        '\t' => out.write_str("\\t"),
        '\r' => out.write_str("\\r"),
        _ if code < 0x80 => write!(out, "\\x{code:02x}"),
        _ if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// Escapes every hidden character of `text`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { push_escaped(&mut out, c) } else { out.push(c) }
    }
    out
}

/// Whether [`is_hidden`] leaves this format character alone in text, since it has a shape (Unicode 16, category Cf).
fn is_visible_format(c: char) -> bool {
    matches!(c,
        '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
}

/// Writes a value as a line of JSON, with its line break and no hidden characters. Gives an empty text if JSON can't have the
/// value.
pub fn json_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).map_or(String::new(), |line| escape_json(&line) + "\n")
}

/// Puts `\uXXXX` in place of control and format characters (Unicode's Cc and Cf). JSON itself escapes U+0000 to U+001F only.
/// Of these characters, only line feeds stand outside of strings.
pub fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !(is_hidden(c) || is_visible_format(c)) {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _infallible = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

/// Writes a text as a cell of CSV (RFC 4180), without hidden characters.
pub(super) fn csv_cell(text: &str) -> String {
    format!("\"{}\"", escape(text).replace('"', "\"\""))
}

/// Escapes what Markdown would act on. A backslash before any of ASCII's punctuation makes it that character.
pub(crate) fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in escape(text).chars() {
        if r"\`*_{}[]<>|~&$#!@:".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Quotes a word for a shell, if it needs to be.
pub(crate) fn word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "%+,-./:=@_^".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else if word.contains(is_hidden) {
        let mut out = String::from("$'");
        for c in word.chars() {
            match c {
                '\\' | '\'' => out.extend(['\\', c]),
                _ if is_hidden(c) => push_escaped(&mut out, c),
                _ => out.push(c),
            }
        }
        out + "'"
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Renders a whole command, which can be pasted into a shell.
pub fn words<S: AsRef<str>>(words: &[S]) -> String {
    words.iter().map(|one| word(one.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Renders a command in about `max_width` columns. If it is longer, it is its first words, and what it works on ([`operand`]); long
/// words are cut, and the others counted.
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
    let left = max_width.saturating_sub(" ... 1000 more".len());
    let fitting = first_words(&shown, left);
    let operand = operand(words).filter(|at| *at >= fitting);
    let end = |at: usize| Some((at, end_of_path(words[at].as_ref(), left * 2 / 3)?));
    let Some((at, operand)) = operand.and_then(end) else { return first_ones(&shown, fitting, max_width) };
    let room = left.saturating_sub(width(&operand) + GAP.len());
    let kept = first_words(&shown, room);
    let (gap, others) = (if at == kept { " " } else { GAP }, shown.len() - kept - 1);
    let count = if others > 0 { format!("{GAP}{others} more") } else { String::new() };
    // The first word may alone be longer than what is left for it.
    let first = if kept == 1 { cut(&shown[0], room) } else { shown[..kept].join(" ") };
    format!("{first}{gap}{operand}{count}")
}

/// Counts the words that fit into so many columns; the first one always does.
fn first_words(words: &[String], columns: usize) -> usize {
    let ends = words.iter().scan(0, |end, word| {
        *end += width(word) + 1;
        Some(*end - 1)
    });
    ends.take_while(|end| *end <= columns).count().max(1)
}

/// Renders the first `kept` of a command's words in about `max_width` columns, with the begin of the next one if there is room for it.
fn first_ones(words: &[String], kept: usize, max_width: usize) -> String {
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
    // A word that was cut ends with the mark already.
    text += if text.ends_with(MARK) { " " } else { GAP };
    format!("{text}{} more", others + 1)
}

/// Finds the argument that tells a command from others of its kind: its source file, what it makes (`-o`), or its last path.
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
    // A source file that is named twice has its directory in the longer one.
    let source = last(&is_source);
    let longest = source.and_then(|source| {
        let is_same = |at: &usize| is_source(at) && word(*at).ends_with(word(source));
        (1..words.len()).filter(is_name).filter(is_same).max_by_key(|at| word(*at).len())
    });
    longest.or_else(|| last(&is_output)).or_else(|| last(&is_path))
}

/// Gives the end of a path, whole names of it, in at most `max_width` columns. `None`: its last name is wider.
fn end_of_path(path: &str, max_width: usize) -> Option<String> {
    /// Most bytes for a column, those of characters without a width included. What is before them is not looked at.
    const BYTES: usize = 16;
    let least = path.len().saturating_sub(max_width * BYTES);
    let first = (least..=path.len()).find(|at| path.is_char_boundary(*at))?;
    let starts = path[first..].match_indices('/').map(|(at, _)| first + at + 1);
    let whole = (first == 0).then_some(0);
    let ends = whole.into_iter().chain(starts).filter(|at| *at < path.len()).map(|at| word(&path[at..]));
    ends.into_iter().find(|end| width(end) <= max_width)
}

/// Renders a process's command in about `max_width` columns, without the directory of its program. If the arguments are not
/// known, renders its `name`.
pub(crate) fn process(args: Option<&[String]>, name: &str, max_width: usize) -> String {
    let Some([first, rest @ ..]) = args else { return cut(&escape(name), max_width) };
    let mut words: Vec<&str> = vec![first];
    // A process can write any text there. Text with white space is not taken for a path.
    if !first.contains(char::is_whitespace) {
        words[0] = first.rsplit('/').next().unwrap_or(first);
    }
    words.extend(rest.iter().map(String::as_str));
    command(&words, max_width)
}

/// Counts the columns that `text` takes on a terminal.
pub fn width(text: &str) -> usize {
    text.width()
}

/// What stands for text that was left out.
const MARK: &str = "...";

/// Cuts `text` to `max_width` columns.
pub fn cut(text: &str, max_width: usize) -> String {
    if fits(text, max_width) {
        return text.to_owned();
    }
    beginning(text, max_width.saturating_sub(MARK.len())).to_owned() + &MARK[..MARK.len().min(max_width)]
}

/// Cuts `text`, which can be a list, to `max_width` columns: behind a whole entry, if one fits.
pub fn cut_list(text: &str, max_width: usize) -> String {
    const LEFT_OUT: &str = ", ...";
    if fits(text, max_width) {
        return text.to_owned();
    }
    let begin = beginning(text, max_width.saturating_sub(LEFT_OUT.len()));
    // The entry that ends just where the text is cut is whole.
    let is_whole = text[begin.len()..].starts_with(", ");
    let end = if is_whole { Some(begin.len()) } else { begin.rfind(", ") };
    end.filter(|end| *end > 0).map_or_else(|| cut(text, max_width), |end| begin[..end].to_owned() + LEFT_OUT)
}

/// Cuts `text` to `max_width` columns: what is too much is left out of its middle, since names often differ at their ends.
pub fn cut_middle(text: &str, max_width: usize) -> String {
    if fits(text, max_width) || max_width <= MARK.len() {
        return cut(text, max_width);
    }
    let left = max_width - MARK.len();
    let first = beginning(text, left.div_ceil(2));
    format!("{first}{MARK}{}", end(text, left - width(first)))
}

/// Cuts texts to `max_width` columns each. Different texts that would then read alike are cut so that the places show where they
/// differ.
pub(crate) fn shorten(texts: &[&str], max_width: usize) -> Vec<String> {
    /// Each round tells some of the texts apart that still read alike.
    const ROUNDS: usize = 8;
    let mut shown: Vec<String> = texts.iter().map(|text| cut_middle(text, max_width)).collect();
    for _ in 0..ROUNDS {
        // The groups of different texts that read alike. Equal texts need not be told apart.
        let mut alike: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, shown) in shown.iter().enumerate() {
            alike.entry(shown).or_default().push(i);
        }
        let differs = |group: &Vec<usize>| group.iter().any(|i| texts[*i] != texts[group[0]]);
        let groups: Vec<Vec<usize>> = alike.into_values().filter(differs).collect();
        if groups.is_empty() {
            break;
        }
        for group in groups {
            // What the whole group begins with tells none of them apart.
            let same = group.iter().map(|i| common_bytes(texts[*i], texts[group[0]])).min().unwrap_or(0);
            for i in group {
                shown[i] = cut_around(texts[i], same, max_width);
            }
        }
    }
    shown
}

/// Cuts `text` to `max_width` columns: its first ones, and what stands behind its first `same` bytes.
fn cut_around(text: &str, same: usize, max_width: usize) -> String {
    let first = beginning(&text[..same], max_width / 3);
    let rest = max_width.saturating_sub(width(first) + MARK.len());
    format!("{first}{MARK}{}", cut_middle(&text[same..], rest))
}

/// Gives how many bytes at the beginning of both are the same characters.
fn common_bytes(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum()
}

/// Whether `text` takes at most these columns.
fn fits(text: &str, max_width: usize) -> bool {
    // No character takes more columns than bytes.
    text.len() <= max_width || width(text) <= max_width
}

/// Gives as much of the beginning of `text` as fits into these columns.
fn beginning(text: &str, max_width: usize) -> &str {
    &text[..bytes_within(text.chars(), max_width)]
}

/// Gives as much of the end of `text` as fits into these columns.
fn end(text: &str, max_width: usize) -> &str {
    &text[text.len() - bytes_within(text.chars().rev(), max_width)..]
}

/// Counts the bytes of the first characters that fit into these columns.
fn bytes_within(chars: impl Iterator<Item = char>, max_width: usize) -> usize {
    let (mut columns, mut bytes) = (0, 0);
    for c in chars {
        columns += c.width().unwrap_or(1);
        if columns > max_width {
            break;
        }
        bytes += c.len_utf8();
    }
    bytes
}

/// Breaks words into lines of at most `width` columns. A longer word has a line of its own. Without
/// words, gives one empty line.
pub fn wrap<W: AsRef<str>>(words: impl Iterator<Item = W>, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in words {
        let word = word.as_ref();
        if !line.is_empty() && self::width(&line) + 1 + self::width(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines.push(line);
    lines
}

/// Escapes every character of `text` that is not ASCII, for a terminal that shows only ASCII. `text` must be escaped or quoted
/// already: control characters of ASCII stay as they are.
pub fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() { out.push(c) } else { push_escaped(&mut out, c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: OUT-9
    #[test]
    fn control_and_format_characters_are_escaped_in_json_and_read_back() {
        let name = "a\x1b\x7f\u{9b}31m\u{202e}\u{200b}\u{feff}\u{600}\u{e0041}é数\"\\\n";
        let text = escape_json(&serde_json::to_string_pretty(&[name]).unwrap());
        assert_eq!(
            text,
            "[\n  \"a\\u001b\\u007f\\u009b31m\\u202e\\u200b\\ufeff\\u0600\\udb40\\udc41é数\\\"\\\\\\n\"\n]"
        );
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [name]);
    }

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

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(word("--mode=fast"), "--mode=fast");
        assert_eq!(word("Ünïcode.txt"), "Ünïcode.txt");
        assert_eq!(word(""), "''");
        assert_eq!(word("two words"), "'two words'");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word("$HOME;~"), "'$HOME;~'");
        assert_eq!(word("a\n'\x1b[31m"), r"$'a\n\'\x1b[31m'");
        assert_eq!(word("x\u{202e}y"), r"$'x\u202ey'");
    }

    // Requirement: OUT-9
    #[test]
    fn control_and_direction_characters_are_escaped() {
        assert_eq!(
            escape("a\x1b]0;x\x07\u{9b}\u{2066}\u{e0041}\t é"),
            r"a\x1b]0;x\x07\u009b\u2066\U000e0041\t é"
        );
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(width("数据 e\u{301}"), 6);
        assert_eq!(cut("数据数据", 8), "数据数据");
        assert_eq!(cut("数据数据", 7), "数据...");
        assert_eq!(cut("数据数据", 6), "数...");
        assert_eq!([cut("abcd", 2), cut("", 0)], ["..", ""]);
        assert_eq!(ascii("数 ok é"), r"\u6570 ok \u00e9");
    }

    #[test]
    fn list_is_cut_behind_an_entry() {
        let list = "at 2 s: cc1 34.4 MB, sh 1.81 MB, cc 1.38 MB";
        assert_eq!(cut_list(list, 43), list);
        assert_eq!(cut_list(list, 42), "at 2 s: cc1 34.4 MB, sh 1.81 MB, ...");
        assert_eq!(cut_list(list, 36), "at 2 s: cc1 34.4 MB, sh 1.81 MB, ...");
        assert_eq!(cut_list(list, 35), "at 2 s: cc1 34.4 MB, ...");
        assert_eq!(cut_list(list, 12), "at 2 s: c...");
    }

    #[test]
    fn middle_of_a_wide_name_is_left_out() {
        assert_eq!(cut_middle("bash align_reads.sh", 19), "bash align_reads.sh");
        assert_eq!(cut_middle("bash align_reads_of_all.sh", 19), "bash ali...f_all.sh");
        assert_eq!(cut_middle("数据数据数据", 9), "数...数据");
        assert_eq!([cut_middle("abcdef", 3), cut_middle("abcdef", 0)], ["...", ""]);
    }

    // Requirement: OUT-25
    #[test]
    fn names_that_would_read_alike_are_told_apart() {
        let names = [
            "python3 process_of_region_1_of_the_first_sample.py",
            "python3 process_of_region_2_of_the_first_sample.py",
            "python3 process_of_region_2_of_the_third_sample.py",
            "python3 process_of_region_2_of_the_third_sample.py",
            "python3 process",
        ];
        for width in 12..=50 {
            let shown = shorten(&names, width);
            assert!(shown.iter().all(|name| super::width(name) <= width), "{shown:?}");
            let parted: std::collections::BTreeSet<_> = shown.iter().collect();
            assert_eq!(parted.len(), 4, "{width}: {shown:?}");
        }
        let shown = shorten(&names[..2], 24);
        assert_eq!(shown, ["python3 ...1_of_...le.py", "python3 ...2_of_...le.py"]);
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
