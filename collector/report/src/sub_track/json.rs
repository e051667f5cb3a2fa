//! JSON as Python's `json.dumps(value, indent=1)` writes it, byte for byte, except that null stands for NaN.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};

use super::python;
use crate::json::pretty::as_pretty;

/// Formats a value without a newline at its end.
pub fn json(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let formatter = PythonFormatter(PrettyFormatter::with_indent(b" "));
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Neither can fail: it is written to memory, and what is written is ASCII.
    let _infallible = value.serialize(&mut serializer);
    String::from_utf8(bytes).unwrap_or_default()
}

/// Writes numbers and characters that are not ASCII in Python's way, and leaves all else to [`PrettyFormatter`].
struct PythonFormatter(PrettyFormatter<'static>);

impl Formatter for PythonFormatter {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(python::number(value).as_bytes())
    }

    /// Writes characters that are not ASCII as Python does, by their UTF-16 units.
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        for c in fragment.chars() {
            if matches!(c, ' '..='~') {
                writer.write_all(&[c as u8])?;
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }

    as_pretty!(0: begin_array(), begin_array_value(first), end_array_value(), end_array());
    as_pretty!(0: begin_object(), begin_object_key(first), begin_object_value(), end_object_value(), end_object());
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-41
    #[test]
    fn form_is_that_of_json_dumps() {
        let value =
            serde_json::json!({"a": [1, 2.0, 1e-7, null], "b": {}, "c": [], "d": "é\u{7f}\n\"😀\u{1}"});
        let expected = "{\n \"a\": [\n  1,\n  2.0,\n  1e-07,\n  null\n ],\n \"b\": {},\n \"c\": [],\n \"d\": \
                        \"\\u00e9\\u007f\\n\\\"\\ud83d\\ude00\\u0001\"\n}";
        assert_eq!(json(&value), expected);
    }
}
