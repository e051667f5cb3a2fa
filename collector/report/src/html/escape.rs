//! Escapes untrusted text: nothing in it becomes markup, hides other text, or changes its direction.

use crate::quote;

/// FIRST STRONG ISOLATE: what is between this and [`POP_ISOLATE`] does not change the order of what is around them.
const ISOLATE: char = '\u{2068}';
/// POP DIRECTIONAL ISOLATE.
const POP_ISOLATE: char = '\u{2069}';

/// Escapes text for an element, or for an attribute in double quotes. Words that are written from right to left are isolated:
/// otherwise a browser would move a number beside them to their other side.
pub(super) fn escape(text: &str) -> String {
    let shown = quote::escape(text);
    let mut out = String::with_capacity(shown.len());
    let mut rest = shown.as_str();
    while let Some(start) = rest.find(is_right_to_left) {
        // What is isolated ends with the last right-to-left character before a letter or digit of the other direction.
        let from_start = &rest[start..];
        let is_left_to_right = |c: char| c.is_alphanumeric() && !is_right_to_left(c);
        let until = from_start.find(is_left_to_right).unwrap_or(from_start.len());
        // Never `None`: `from_start` begins with a right-to-left character.
        let last = from_start[..until].char_indices().rfind(|(_, c)| is_right_to_left(*c));
        let end = start + last.map_or(0, |(at, c)| at + c.len_utf8());
        push(&mut out, &rest[..start]);
        out.push(ISOLATE);
        push(&mut out, &rest[start..end]);
        out.push(POP_ISOLATE);
        rest = &rest[end..];
    }
    push(&mut out, rest);
    out
}

/// Whether a character is in a block of scripts that are written from right to left (Unicode 16, DerivedBidiClass).
fn is_right_to_left(c: char) -> bool {
    matches!(c,
        '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}' | '\u{10800}'..='\u{10fff}'
        | '\u{1e800}'..='\u{1efff}')
}

/// Appends text, and escapes markup.
fn push(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML 1.0 allows neither of them.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
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

    // Requirement: OUT-35
    #[test]
    fn word_from_right_to_left_is_isolated_from_the_numbers_beside_it() {
        assert_eq!(escape("\u{5d0}\u{5d1} <0.01"), "\u{2068}\u{5d0}\u{5d1}\u{2069} &lt;0.01");
        assert_eq!(
            escape("3 of \u{627} \u{628}, 4 of x\u{627}y."),
            "3 of \u{2068}\u{627} \u{628}\u{2069}, 4 of x\u{2068}\u{627}\u{2069}y."
        );
        // A text cannot end the isolation itself.
        assert_eq!(escape("\u{627}\u{2069}\u{628}"), "\u{2068}\u{627}\u{2069}\\u2069\u{2068}\u{628}\u{2069}");
    }
}
