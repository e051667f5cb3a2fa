//! How JSON is laid out: indented, with an entry a line. A list of numbers and nulls is on one line, since it can have thousands.

use std::io::{self, Write};

use serde_json::ser::{Formatter, PrettyFormatter};

use super::pretty::as_pretty;

/// Lays JSON out.
pub(super) struct Layout<'a> {
    pretty: PrettyFormatter<'a>,
    /// For each list that is being written, the outermost first: whether its entries stand on lines of their own.
    lists: Vec<bool>,
    /// The next value is the first entry of the innermost list.
    is_first: bool,
}

impl<'a> Layout<'a> {
    /// Makes a layout that indents by this text.
    pub(super) fn new(indent: &'a str) -> Self {
        let pretty = PrettyFormatter::with_indent(indent.as_bytes());
        Self { pretty, lists: Vec::new(), is_first: false }
    }

    /// Begins a string, list or object. If it is the first entry of a list, each entry of that list gets a line of its own. Keys
    /// of objects come here, too, but never while `is_first` is set.
    fn begin_text_or_nested<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if std::mem::take(&mut self.is_first) {
            if let Some(has_lines) = self.lists.last_mut() {
                *has_lines = true;
            }
            self.pretty.begin_array_value(writer, true)?;
        }
        Ok(())
    }

    /// Whether the entries of the innermost list stand on lines of their own.
    fn has_lines(&self) -> bool {
        self.lists.last() == Some(&true)
    }
}

impl Formatter for Layout<'_> {
    fn begin_string<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin_text_or_nested(writer)?;
        self.pretty.begin_string(writer)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin_text_or_nested(writer)?;
        // One line, until the first entry turns out to be a text, list or object.
        self.lists.push(false);
        self.pretty.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        // `is_first` is still set if the only entry is a number or null. The next key would be taken for a first entry.
        self.is_first = false;
        self.lists.pop();
        self.pretty.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.is_first = first;
        // What stands before the first entry depends on its kind: `begin_text_or_nested` writes it.
        match (first, self.has_lines()) {
            (true, _) => Ok(()),
            (false, true) => self.pretty.begin_array_value(writer, false),
            (false, false) => writer.write_all(b", "),
        }
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.has_lines() { self.pretty.end_array_value(writer) } else { Ok(()) }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin_text_or_nested(writer)?;
        self.pretty.begin_object(writer)
    }

    // `end_object_value` notes that the object is not empty; the trait's default does nothing.
    as_pretty!(pretty: end_object(), begin_object_key(first), begin_object_value(), end_object_value());
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_share_a_line_and_other_entries_have_one_each() {
        let mut bytes = Vec::new();
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Layout::new(" "));
        let value =
            json!({"a": [1, 2.5, null], "b": ["x", "y"], "c": [], "d": [{"e": [3]}, {}], "f": [[4, 5], [6]]});
        value.serialize(&mut serializer).unwrap();
        let expected = r#"{
 "a": [1, 2.5, null],
 "b": [
  "x",
  "y"
 ],
 "c": [],
 "d": [
  {
   "e": [3]
  },
  {}
 ],
 "f": [
  [4, 5],
  [6]
 ]
}"#;
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}
