//! Parses the options of a program by getopt's rules, from its arguments.

/// Where the value of an option is found: `-p 80`, `-p80`, `--port=80`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::run) enum Value {
    /// It has none.
    None,
    /// In the same word, if there is one: `-K1`.
    Rest,
    /// In the same word, or else in the next word.
    Next,
}

/// Whether a name is one of these words, which are separated by blanks.
pub(in crate::run) fn is_one_of(name: &str, words: &str) -> bool {
    words.split(' ').any(|word| word == name)
}

/// Where the value of an option is: in the same word or the next, if its name is among these words. Else it has none.
pub(in crate::run) fn value_if_among(name: &str, words: &str) -> Value {
    if is_one_of(name, words) { Value::Next } else { Value::None }
}

/// The opposite of [`value_if_among`]: an option among these words has no value, all others have one.
pub(in crate::run) fn no_value_if_among(name: &str, words: &str) -> Value {
    if is_one_of(name, words) { Value::None } else { Value::Next }
}

/// Tells where the value of an option of a program is. The option is a letter, or a long name without its dashes.
pub(in crate::run) type Syntax = fn(&str) -> Value;

/// The options of a program, and the words after them.
pub(in crate::run) struct Options<'a> {
    /// Letters and long names, each with its value.
    list: Vec<(&'a str, Option<&'a str>)>,
    /// The remaining words, from the first that is no option.
    pub(in crate::run) operands: &'a [String],
}

impl<'a> Options<'a> {
    /// Parses the words up to the first that is no option. `--` also ends the options.
    pub(in crate::run) fn parse(args: &'a [String], syntax: Syntax) -> Self {
        let mut parsed = Self { list: Vec::new(), operands: args };
        while let Some((word, rest)) = parsed.operands.split_first() {
            if word == "--" {
                parsed.operands = rest;
                break;
            }
            let Some(option) = word.strip_prefix('-').filter(|option| !option.is_empty()) else { break };
            parsed.operands = rest;
            let needs_value = match option.strip_prefix('-') {
                Some(long) => parsed.add_long(long, syntax),
                None => parsed.add_letters(option, syntax),
            };
            if needs_value
                && let Some((value, rest)) = parsed.operands.split_first()
                && let Some((_, last)) = parsed.list.last_mut()
            {
                (*last, parsed.operands) = (Some(value.as_str()), rest);
            }
        }
        parsed
    }

    /// Adds the option `name` or `name=value`. Returns whether the next word is its value.
    fn add_long(&mut self, long: &'a str, syntax: Syntax) -> bool {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        self.list.push((name, value));
        value.is_none() && syntax(name) == Value::Next
    }

    /// Adds letters that share a dash. The rest of the word is the value of the first letter that can have one. Returns whether the
    /// next word is that value.
    fn add_letters(&mut self, letters: &'a str, syntax: Syntax) -> bool {
        for (at, letter) in letters.char_indices() {
            let (_, from_letter) = letters.split_at(at);
            let (letter, rest) = from_letter.split_at(letter.len_utf8());
            let value = syntax(letter);
            let has_value = value != Value::None && !rest.is_empty();
            self.list.push((letter, has_value.then_some(rest)));
            if value != Value::None {
                return value == Value::Next && !has_value;
            }
        }
        false
    }

    /// Whether one of these is among the options. `--name=false` does not count, and takes back a `--name` before it.
    pub(in crate::run) fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| {
            self.list.iter().any(|(given, _)| given == name) && self.value(&[name]) != Some("false")
        })
    }

    /// The value of the last option that has one of these names.
    pub(in crate::run) fn value(&self, names: &[&str]) -> Option<&'a str> {
        self.list.iter().rev().find(|(name, _)| names.contains(name)).and_then(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_same_word_or_in_the_next() {
        let syntax = |name: &str| match name {
            "p" | "name" => Value::Next,
            "K" => Value::Rest,
            _ => Value::None,
        };
        for (line, value, operands) in [
            ("-itp80 x -p 9", Some("80"), "x -p 9"),
            ("-p 80 x", Some("80"), "x"),
            ("--name=a -K x", Some("a"), "x"),
            ("--name a -K1 -- -x", Some("a"), "-x"),
            ("-p", None, ""),
            ("-é - x", None, "- x"),
            ("", None, ""),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let options = Options::parse(&words, syntax);
            assert_eq!(options.value(&["p", "name"]), value, "{line}");
            assert_eq!(options.operands.join(" "), operands, "{line}");
        }
        let words = ["--rm", "--rm=false", "-d"].map(str::to_owned);
        let options = Options::parse(&words, |_| Value::None);
        assert!(options.has_any(&["d"]) && !options.has_any(&["rm"]));
    }
}
