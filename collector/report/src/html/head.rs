//! What stands around a page's content: its policy, its style and its script.

use super::escape::escape;

/// Colours, columns and sizes. Like [`SCRIPT`], it has no `<` and no `&`: HTML takes them here as they are, XML does not.
pub(super) const STYLE: &str = include_str!("page.css");
/// Sorts tables, and shows the values under the pointer.
pub(super) const SCRIPT: &str = include_str!("page.js");

/// SHA-256 of [`STYLE`] in base64. The policy allows this style alone.
const STYLE_SHA256: &str = "A3qfJLCv9lid+66cTAgciZuc3nS0r6FmBiO19S+6eoA=";
/// SHA-256 of [`SCRIPT`] in base64. The policy allows this script alone.
const SCRIPT_SHA256: &str = "YEXvVeha6dcXyDrHkfZmY6VdskwGUGMqpmeTbmBBsns=";

/// Renders a page. `title` is text, `body` is HTML. The page's policy forbids loading anything from elsewhere.
pub(super) fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{STYLE_SHA256}'; \
         script-src 'sha256-{SCRIPT_SHA256}'; base-uri 'none'; form-action 'none'\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{body}<script>{SCRIPT}</script>\n</body>\n</html>\n",
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// Writes bytes in base64, with padding.
    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let group = |bytes: &[u8]| -> String {
            let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(bytes.get(at).copied().unwrap_or(0)));
            let digit = |at: usize| char::from(DIGITS[(bits >> (18 - 6 * at)) as usize & 63]);
            (0..4).map(|at| if at <= bytes.len() { digit(at) } else { '=' }).collect()
        };
        bytes.chunks(3).map(group).collect()
    }

    // Requirement: OUT-34
    #[test]
    fn policy_allows_the_style_and_the_script_of_the_page() {
        assert_eq!([&b"ab"[..], b"abc", b"a"].map(base64), ["YWI=", "YWJj", "YQ=="]);
        for (text, hash) in [(STYLE, STYLE_SHA256), (SCRIPT, SCRIPT_SHA256)] {
            assert_eq!(base64(&Sha256::digest(text)), hash, "{}", &text[..60]);
            assert!(!text.contains(['<', '&']), "the page is XML, too");
        }
        assert!(SCRIPT.len() <= 5_000, "{}", SCRIPT.len());
    }
}
