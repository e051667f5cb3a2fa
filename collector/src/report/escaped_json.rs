//! JSON in which no character can control the terminal that shows it.
//!
//! JSON itself escapes U+0000 to U+001F only. Names of processes can also have DEL, C1 control characters (U+009B starts an
//! escape sequence) and characters that change the direction of text or can't be seen.

use std::io::{self, Write};

use serde_json::ser::{Formatter, PrettyFormatter};

use super::quote::is_hidden;

/// Writes indented JSON with `\uXXXX` in place of control and format characters (Unicode's Cc and Cf).
pub(super) struct EscapedFormatter<'a>(PrettyFormatter<'a>);

impl<'a> EscapedFormatter<'a> {
    pub(super) fn new(indent: &'a str) -> Self {
        Self(PrettyFormatter::with_indent(indent.as_bytes()))
    }
}

/// The format characters that [`is_hidden`] leaves alone in text, since they have a shape (Unicode 16, category Cf).
fn is_visible_format(c: char) -> bool {
    matches!(c,
        '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
}

impl Formatter for EscapedFormatter<'_> {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut plain_from = 0;
        for (at, c) in fragment.char_indices() {
            if c.is_ascii_graphic() || !(is_hidden(c) || is_visible_format(c)) {
                continue;
            }
            writer.write_all(&fragment.as_bytes()[plain_from..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            plain_from = at + c.len_utf8();
        }
        writer.write_all(&fragment.as_bytes()[plain_from..])
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::ser::Serializer;

    use super::*;

    fn json(value: &impl Serialize) -> String {
        let mut bytes = Vec::new();
        value.serialize(&mut Serializer::with_formatter(&mut bytes, EscapedFormatter::new(" "))).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    // Requirement: OUT-9
    #[test]
    fn control_and_format_characters_are_escaped_and_read_back() {
        let name = "a\x1b\x7f\u{9b}31m\u{202e}\u{200b}\u{feff}\u{600}\u{e0041}é数\"\\";
        let text = json(&name);
        assert_eq!(text, r#""a\u001b\u007f\u009b31m\u202e\u200b\ufeff\u0600\udb40\udc41é数\"\\""#);
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), name);
    }

    #[test]
    fn form_is_that_of_indented_json() {
        let value = serde_json::json!({"a": [1, null], "b": {}, "c": [], "d": {"e": "f"}});
        let mut bytes = Vec::new();
        let plain = PrettyFormatter::with_indent(b" ");
        value.serialize(&mut Serializer::with_formatter(&mut bytes, plain)).unwrap();
        assert_eq!(json(&value).as_bytes(), bytes);
    }
}
