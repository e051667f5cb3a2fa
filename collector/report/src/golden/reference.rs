//! The tables of docs/REPORT.md, which are made of the JSON Schema of the report. Its markers say where the keys have their rows.
//! `BLESS=1 cargo test -p gpu-track-report golden` writes them, after the schema.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::compare;
use super::schema::{Form, Schema, in_order, is_required, type_name};

/// The unit that the end of a key says.
fn unit(key: &str) -> Option<&'static str> {
    const UNITS: [(&str, &str); 8] = [
        ("_bytes_per_s", "bytes/s"),
        ("bytes", "bytes"),
        ("_s", "s"),
        ("_percent", "%"),
        ("_w", "W"),
        ("_j", "J"),
        ("_mhz", "MHz"),
        ("_c", "°C"),
    ];
    UNITS.into_iter().find(|(end, _)| key.ends_with(end)).map(|(_, unit)| unit)
}

/// The schema, and how often it names each object.
struct Reference {
    schema: Schema,
    uses: BTreeMap<String, usize>,
}

impl Reference {
    fn new() -> Self {
        let schema = Schema::new();
        let mut uses = BTreeMap::new();
        count_references(&schema.root, &mut uses);
        Self { schema, uses }
    }

    /// Whether several keys have objects of this type, so that it has a table of its own.
    fn is_shared(&self, name: &str) -> bool {
        self.uses.get(name).is_some_and(|uses| *uses > 1)
    }

    /// Names the type of a key, in a list of choices.
    fn choices(&self, key: &str, schema: &Value) -> Vec<String> {
        let of_unit = |form: &str| unit(key).map_or_else(|| form.into(), |unit| format!("{form} in {unit}"));
        let choice = |form| match form {
            Form::Null => "null".into(),
            Form::Word(word) => format!("`{word}`"),
            Form::Number => unit(key).unwrap_or("number").into(),
            Form::Text => "text".into(),
            Form::Boolean => "boolean".into(),
            Form::List(items) => match in_words(self.choices(key, items)).as_str() {
                "object" => "list".into(),
                items => format!("list of {}", plural(items)),
            },
            Form::ByName(values) => format!("object of {}", plural(&in_words(self.choices(key, values)))),
            Form::OneOf(name, _) => format!("[{name}](#values)"),
            Form::Object(name, _) if self.is_shared(name) => {
                of_unit(&format!("[{name}](#{})", name.to_lowercase()))
            }
            Form::Kinds(_) | Form::Object(..) => "object".into(),
        };
        let mut choices: Vec<String> = Vec::new();
        for choice in self.schema.forms(schema).into_iter().map(choice) {
            if !choices.contains(&choice) {
                choices.push(choice);
            }
        }
        choices
    }

    /// Writes the rows of the keys of an object, and of the objects in it. Keys of one meaning have one row, if their types are the
    /// same or are explained nowhere else.
    fn write_rows(&self, path: &str, object: &Value, rows: &mut String) {
        let keys: Vec<_> =
            in_order(object).map(|(key, property)| (key, property, self.cells(key, object))).collect();
        for (at, (key, property, (form, meaning))) in keys.iter().enumerate() {
            let alike = |(_, other, (others, means)): &&(&str, &Value, (String, String))| {
                let is_plain = !form.contains('[') && !others.contains('[');
                means == meaning && (others == form || is_plain) && self.object_in(other).is_none()
            };
            if self.object_in(property).is_some() {
                self.write_row(path, key, object, rows);
            } else if keys[..at].iter().find(alike).is_none() {
                let alike = || keys[at..].iter().filter(alike);
                let names: Vec<&str> = alike().map(|(key, ..)| *key).collect();
                let mut forms: Vec<&str> = Vec::new();
                for (.., (form, _)) in alike() {
                    if !forms.contains(&form.as_str()) {
                        forms.push(form);
                    }
                }
                let _ = writeln!(rows, "| `{path}{}` | {} | {meaning} |", folded(&names), forms.join(", "));
            }
        }
    }

    /// Writes the row of a key, and those of the object that it has.
    fn write_row(&self, path: &str, key: &str, object: &Value, rows: &mut String) {
        let (form, meaning) = self.cells(key, object);
        if path.is_empty() || form != "object" {
            let _ = writeln!(rows, "| `{path}{key}` | {form} | {meaning} |");
        }
        let (inner, form) = self.object_in(&object["properties"][key]).unzip();
        let path = format!("{path}{key}{}.", inner.unwrap_or_default());
        match form {
            Some(Form::Object(_, object)) => self.write_rows(&path, object, rows),
            Some(Form::Kinds(kinds)) => {
                for kind in kinds {
                    let name = kind["properties"]["kind"]["const"].as_str().unwrap();
                    let _ = writeln!(
                        rows,
                        "| `{path}kind` | `{name}` | {} |",
                        kind["description"].as_str().unwrap()
                    );
                    self.write_rows(&path, self.schema.target(kind), rows);
                }
            }
            _ => {}
        }
    }

    /// The object of a key that has its rows below the key's, and what the path to it has in between: lists and names.
    fn object_in<'a>(&'a self, property: &'a Value) -> Option<(String, Form<'a>)> {
        let form = self.schema.forms(property).into_iter().find(|form| !matches!(form, Form::Null))?;
        let below = |inner, between: &str| {
            self.object_in(inner).map(|(path, form)| (format!("{between}{path}"), form))
        };
        match form {
            Form::List(items) => below(items, "[]"),
            Form::ByName(values) => below(values, ".*"),
            Form::Object(name, _) if self.is_shared(name) => None,
            Form::Object(..) | Form::Kinds(_) => Some((String::new(), form)),
            _ => None,
        }
    }

    /// The cells of a key's row: its type, and its meaning as far as its type and the page's beginning do not have it.
    fn cells(&self, key: &str, object: &Value) -> (String, String) {
        let property = &object["properties"][key];
        let mut choices = self.choices(key, property);
        if !is_required(object, key) {
            choices.retain(|choice| choice != "null");
            choices.push("absent".into());
        }
        let meaning = property["description"].as_str().unwrap_or_else(|| panic!("{key} has no doc comment"));
        let units = UNITS_IN_WORDS.iter().filter(|_| unit(key).is_some());
        let ends = units.flat_map(|unit| [".", ";", ":"].map(|end| (format!("{unit}{end}"), end)));
        let meaning = SAID_ABOVE.iter().fold(meaning.to_owned(), |meaning, said| meaning.replace(said, ""));
        let meaning = ends.fold(meaning, |meaning, (unit, end)| meaning.replace(&unit, end));
        assert!(meaning.chars().count() <= 200, "a cell of more than 200 characters: {meaning}");
        (in_words(choices), meaning)
    }

    /// Writes a table for each object that several keys have. Of a generic type it has the forms of all.
    fn shared(&self) -> String {
        let mut objects: BTreeMap<&str, Value> = BTreeMap::new();
        let definitions = self.schema.root["$defs"].as_object().unwrap();
        let shared = definitions.iter().map(|(name, object)| (type_name(name), object));
        let shared =
            shared.filter(|(name, object)| self.is_shared(name) && object.get("properties").is_some());
        for (name, object) in shared {
            let all = objects.entry(name).or_insert_with(|| object.clone());
            for (key, property) in in_order(object) {
                let any = json!([all["properties"][key], property]);
                all["properties"][key] = json!({ "anyOf": any, "description": property["description"] });
            }
        }
        let mut tables = String::new();
        for (name, object) in &objects {
            let mut rows = String::new();
            self.write_rows("", object, &mut rows);
            let about = object["description"].as_str().unwrap();
            let _ = write!(tables, "### {name}\n\n{}\n{HEAD}{rows}\n", wrapped(about));
        }
        tables
    }

    /// Lists the values of each enum.
    fn values(&self) -> String {
        let mut list = String::new();
        for (name, definition) in self.schema.root["$defs"].as_object().unwrap() {
            let values = definition["oneOf"].as_array().into_iter().flatten();
            let values = values.filter(|value| value.get("const").is_some());
            // A description that only repeats the value says nothing.
            let said = values.map(|value| {
                let (value, meaning) =
                    (value["const"].as_str().unwrap(), value["description"].as_str().unwrap());
                let is_repeated = meaning.trim_end_matches('.').eq_ignore_ascii_case(value);
                if is_repeated { format!("`{value}`.") } else { format!("`{value}`: {meaning}") }
            });
            let said = said.collect::<Vec<_>>().join(" ");
            if !said.is_empty() {
                list += &wrapped(&format!("- **{name}**: {said}"));
            }
        }
        list
    }

    /// Fills what stands between the markers of a page. A marker names keys of the report, all of which the page must have.
    fn filled(&self, page: &str) -> String {
        let mut left: BTreeSet<&str> = in_order(&self.schema.root).map(|(key, _)| key).collect();
        let mut parts = page.split(BEGIN);
        let mut filled = parts.next().unwrap().to_owned();
        for part in parts {
            let (keys, rest) = part.split_once(" -->").unwrap();
            let after = rest.split_once(END).unwrap().1;
            let _ = write!(filled, "{BEGIN}{keys} -->\n\n");
            match keys {
                "shared" => filled += &self.shared(),
                "values" => filled = filled + &self.values() + "\n",
                _ => {
                    filled += HEAD;
                    for key in keys.split(' ') {
                        assert!(left.remove(key), "{key} is no key, or has two places");
                        self.write_row("", key, &self.schema.root, &mut filled);
                    }
                    filled.push('\n');
                }
            }
            filled = filled + END + after;
        }
        assert!(left.is_empty(), "docs/REPORT.md has no place for {left:?}");
        filled
    }
}

/// What the page says of all keys.
const SAID_ABOVE: [&str; 4] = [
    ", as the launcher sees it",
    ", seconds after the command's start",
    ", seconds after the first start",
    ": RFC 3339 in UTC",
];
/// What the type of a figure says.
const UNITS_IN_WORDS: [&str; 8] = [
    ", bytes a second",
    ", bytes",
    ", seconds",
    ", percent",
    ", watts",
    ", joules",
    ", MHz",
    ", degrees Celsius",
];
const BEGIN: &str = "<!-- keys: ";
const END: &str = "<!-- end of keys -->";
const HEAD: &str = "| key | type | meaning |\n|---|---|---|\n";

/// Adds the references to each object and enum, by its name in the page.
fn count_references(schema: &Value, uses: &mut BTreeMap<String, usize>) {
    let inner: Box<dyn Iterator<Item = &Value>> = match schema {
        Value::Object(entries) => Box::new(entries.values()),
        Value::Array(list) => Box::new(list.iter()),
        _ => return,
    };
    if let Some(reference) = schema["$ref"].as_str() {
        *uses.entry(type_name(reference).to_owned()).or_default() += 1;
    }
    inner.for_each(|inner| count_references(inner, uses));
}

/// Writes several keys as one: `{min,max}_at`.
fn folded(keys: &[&str]) -> String {
    let [first, others @ ..] = keys else { return String::new() };
    if others.is_empty() {
        return (*first).to_owned();
    }
    let start = |key: &&str| first.bytes().zip(key.bytes()).take_while(|(a, b)| a == b).count();
    let start = others.iter().map(start).min().unwrap();
    let start = first[..start].rfind('_').map_or(0, |at| at + 1);
    let end = |key: &&str| {
        first[start..].bytes().rev().zip(key[start..].bytes().rev()).take_while(|(a, b)| a == b).count()
    };
    let end = first.len() - others.iter().map(end).min().unwrap();
    let end = first[end..].find('_').map_or(first.len(), |at| end + at);
    let (before, after) = (&first[..start], &first[end..]);
    let parts: Vec<_> = keys.iter().map(|key| &key[start..key.len() - after.len()]).collect();
    format!("{before}{{{}}}{after}", parts.join(","))
}

/// Writes the types that a key can have: `text?` is a text or null. In `list of text or null`, the list can be null.
fn in_words(mut choices: Vec<String>) -> String {
    let last = choices.pop().unwrap_or_default();
    match choices.as_slice() {
        [] => last,
        [one] if last == "null" && !one.contains(" of ") => format!("{one}?"),
        others => format!("{} or {last}", others.join(", ")),
    }
}

/// Makes a plural of the words that have one.
fn plural(form: &str) -> String {
    match form.strip_prefix("number").or_else(|| form.strip_prefix("object")) {
        Some(rest) => format!("{}s{rest}", &form[..6]),
        None => form.to_owned(),
    }
}

/// Breaks a paragraph into lines of at most 120 characters. Those of a list item are indented.
fn wrapped(paragraph: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in paragraph.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > 120 {
            let indent = if paragraph.starts_with("- ") { "\n  " } else { "\n" };
            text += indent;
            column = indent.len() - 1;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += width;
    }
    text + "\n"
}

// Requirement: OUT-62
#[test]
fn golden_schema_and_reference_are_those_of_the_types() {
    let page = include_str!("../../../../docs/REPORT.md");
    compare(&Reference::new().filled(page), "../../docs/REPORT.md", page);
}
