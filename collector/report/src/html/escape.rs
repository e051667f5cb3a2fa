//! Escapes untrusted text: nothing in it becomes markup, hides other text, or changes its direction.

use crate::quote;

/// Escapes text for an element, or for an attribute in double quotes.
pub(super) fn escape(text: &str) -> String {
    let shown = quote::escape(text);
    let mut out = String::with_capacity(shown.len());
    for c in shown.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // They are no characters of XML.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_hidden_characters_are_escaped() {
        assert_eq!(
            escape("</script>]]>\"&'\u{1b}[31m\u{202e}\u{ffff}é"),
            "&lt;/script&gt;]]&gt;&quot;&amp;&#39;\\x1b[31m\\u202e\u{fffd}é"
        );
    }
}
