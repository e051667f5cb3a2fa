//! Quoting of untrusted text (commands, paths, arguments) for a terminal. Nothing in the result can move the cursor, break
//! a line or change the writing direction, and a command can be pasted into a shell.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

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
    escape_where(text, is_hidden)
}

/// Escapes those characters of `text` for which `is_escaped` holds.
fn escape_where(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) { push_escaped(&mut out, c) } else { out.push(c) }
    }
    out
}

/// Whether this is a format character (category Cf, Unicode 16) that [`is_hidden`] lets pass, because it has a visible shape.
fn is_visible_format(c: char) -> bool {
    matches!(c,
        '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
}

/// Formats a value as a line of JSON, with its line break. Hidden characters are escaped. Empty if the value can't be serialized.
pub fn json_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).map_or(String::new(), |line| escape_json(&line) + "\n")
}

/// Formats a value as indented JSON, with a line break at its end. Hidden characters are escaped. An empty line if the value can't be
/// serialized.
pub(crate) fn json_pretty(value: &impl Serialize) -> String {
    escape_json(&serde_json::to_string_pretty(value).unwrap_or_default()) + "\n"
}

/// Puts `\uXXXX` in place of control and format characters (Unicode's Cc and Cf). JSON itself escapes U+0000 to U+001F only.
/// Of these characters, only line feeds stand outside of strings.
pub fn escape_json(json: &str) -> String {
    // Most texts have no such character, and each live file's summary comes through here.
    if json.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)) {
        return json.to_owned();
    }
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

/// Formats a text as a cell of CSV (RFC 4180), without hidden characters.
pub(super) fn csv_cell(text: &str) -> String {
    format!("\"{}\"", escape(text).replace('"', "\"\""))
}

/// Formats a value as a cell of CSV that needs no quotes, such as a number. `None` is an empty cell.
pub(super) fn csv_plain<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Formats a text as a cell of CSV. `None` is an empty cell.
pub(super) fn csv_text(text: Option<&str>) -> String {
    text.map(csv_cell).unwrap_or_default()
}

/// A column of a table in CSV: its name, and the cell of a row.
pub(super) type CsvColumn<T> = (&'static str, fn(&T) -> String);

/// Formats a table as CSV: the names of the columns in the first line, then a line for each row.
pub(super) fn csv_table<T>(columns: &[CsvColumn<T>], rows: &[T]) -> String {
    let line = |cells: Vec<String>| cells.join(",") + "\n";
    let head = line(columns.iter().map(|(name, _)| (*name).to_owned()).collect());
    let row = |row: &T| line(columns.iter().map(|(_, cell)| cell(row)).collect());
    std::iter::once(head).chain(rows.iter().map(row)).collect()
}

/// Escapes the punctuation on which Markdown acts anywhere in a line, in a table too, and with which GitHub makes links (`@`, `#`,
/// `:`). A backslash before it makes it that character. What acts only at the begin of a line, such as `-`, stays as it is.
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
    words.iter().map(|plain| word(plain.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Counts the columns that `text` takes on a terminal.
pub fn width(text: &str) -> usize {
    text.width()
}

/// What stands for text that was left out.
pub(crate) const MARK: &str = "...";

/// Cuts `text` to `max_width` columns.
pub fn cut(text: &str, max_width: usize) -> String {
    if fits(text, max_width) {
        return text.to_owned();
    }
    beginning(text, max_width.saturating_sub(MARK.len())).to_owned() + &MARK[..MARK.len().min(max_width)]
}

/// Cuts `text`, which can be a list, to `max_width` columns: after a whole entry, if one fits.
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

/// Cuts `text` to `max_width` columns. What is left out is its middle, since names often differ at their ends.
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
pub(crate) fn shorten<S: AsRef<str>>(texts: &[S], max_width: usize) -> Vec<String> {
    /// Maximum number of rounds. Each makes some of the texts differ that still read alike.
    const ROUNDS: usize = 8;
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
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

/// Cuts `text` to `max_width` columns: its beginning, and the text after its first `same` bytes.
fn cut_around(text: &str, same: usize, max_width: usize) -> String {
    let first = beginning(&text[..same], max_width / 3);
    let rest = max_width.saturating_sub(width(first) + MARK.len());
    format!("{first}{MARK}{}", cut_middle(&text[same..], rest))
}

/// How many bytes at the beginning of both are the same characters.
fn common_bytes(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum()
}

/// Whether `text` takes at most these columns.
fn fits(text: &str, max_width: usize) -> bool {
    // No character takes more columns than bytes.
    text.len() <= max_width || width(text) <= max_width
}

/// As much of the beginning of `text` as fits into these columns.
fn beginning(text: &str, max_width: usize) -> &str {
    &text[..bytes_within(text.chars(), max_width)]
}

/// As much of the end of `text` as fits into these columns.
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

/// Breaks words into lines of at most `width` columns. A longer word has a line of its own. Without words there is one empty line.
pub fn wrap<W: AsRef<str>>(words: impl Iterator<Item = W>, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words {
        let word = word.as_ref();
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line += word,
            Some(line) if self::width(line) + 1 + self::width(word) <= width => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Escapes every character of `text` that is not ASCII, for a terminal that shows only ASCII. `text` must be escaped or quoted
/// already: control characters of ASCII stay as they are.
pub fn ascii(text: &str) -> String {
    escape_where(text, |c| !c.is_ascii())
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
}
