//! Colours of charts. In dark mode, the page's style replaces the colours that have a CSS class beside them here.

/// Areas of commands, in the order of the report's list. The first six are of the scheme "light" by Paul Tol; the others differ
/// from them for people with any colour vision. Dark text on each is readable.
pub(super) const COMMANDS: [&str; 10] = [
    "#77aadd", "#ee8866", "#eedd88", "#44bb99", "#ffaabb", "#99ddff", "#977df8", "#b1b135", "#be7069",
    "#977d9d",
];
/// Areas of groups of states, in their order. The others get the colour of other commands.
pub(super) const TIME: [&str; 6] = [COMMANDS[0], COMMANDS[1], COMMANDS[2], COMMANDS[3], COMMANDS[4], OTHERS];
/// All other commands.
pub(super) const OTHERS: &str = "#dddddd";
/// Text on an area.
pub(super) const ON_AREA: &str = "#1b1b1b";
/// A line or bar; class `l1`.
pub(super) const FIRST: &str = "#2a6fb0";
/// Another line in the same chart; class `l2`.
pub(super) const SECOND: &str = "#b3500f";
/// Lines of nodes: the CSS class and the colour of each.
pub(super) const PLACES: [(&str, &str); 5] =
    [("n1", FIRST), ("n2", SECOND), ("n3", "#1b7a43"), ("n4", "#8a3ea8"), ("n5", "#6b5b00")];
/// The largest values of a heat map; class `heat`.
pub(super) const HEAT: &str = "#08306b";
/// A limit; classes `lm` and `mc`.
pub(super) const LIMIT: &str = "#b3261e";
/// The mark of an alert that goes on; class `mw`.
pub(super) const WARNING: &str = "#7d4e00";
/// The mark of an alert that is over; class `mr`.
pub(super) const RECOVERED: &str = "#116329";
/// The page itself, and thin edges around areas; class `a`.
pub(super) const PAGE: &str = "#ffffff";

#[cfg(test)]
mod tests {
    use super::super::head::STYLE;
    use super::*;

    /// The relative luminance of a colour (WCAG 2.2).
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    /// The contrast of two colours (WCAG 2.2).
    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    // Requirement: OUT-34
    #[test]
    fn words_and_lines_have_the_contrast_that_wcag_demands() {
        assert!((contrast("#ffffff", "#000000") - 21.0).abs() < 1e-9);
        for area in COMMANDS.iter().chain([&OTHERS]) {
            assert!(contrast(area, ON_AREA) >= 4.5, "{area}");
        }
        for line in [FIRST, SECOND, LIMIT, WARNING, RECOVERED, HEAT]
            .into_iter()
            .chain(PLACES.map(|(_, colour)| colour))
        {
            assert!(contrast(line, PAGE) >= 4.5, "{line}");
        }
    }

    // Requirement: OUT-34
    #[test]
    fn style_has_readable_colours_in_the_light_in_the_dark_and_on_paper() {
        let schemes: Vec<&str> =
            STYLE.split(":root{").skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
        assert_eq!(schemes.len(), 3);
        for scheme in &schemes {
            let colour = |name: &str| {
                let (_, rest) = scheme.split_once(&format!("--{name}:")).unwrap();
                &rest[..7]
            };
            for name in ["ink", "faint", "good", "bad", "caution", "l1", "l2", "l3", "l4", "l5", "heat"] {
                assert!(contrast(colour(name), colour("page")) >= 4.5, "{name}: {scheme}");
            }
        }
        for scheme in [schemes[0], schemes[2]] {
            assert!(
                scheme.contains(&format!("--good:{RECOVERED};--bad:{LIMIT};--caution:{WARNING};")),
                "{scheme}"
            );
            let lines: String =
                PLACES.iter().zip(1..).map(|((_, colour), at)| format!("--l{at}:{colour};")).collect();
            assert!(scheme.ends_with(&format!("{lines}--heat:{HEAT}")), "{scheme}");
        }
    }
}
