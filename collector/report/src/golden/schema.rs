//! The JSON Schema of the report, docs/report.schema.json. All texts in it are doc comments of the types.
//! `BLESS=1 cargo test -p gpu-track-report golden` writes it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::json;
use super::compare;

/// What an enum or object is called in docs/REPORT.md and in the schema: without the digits that schemars appends to tell the types of
/// one generic type apart.
pub(super) fn type_name(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or_default().trim_end_matches(|c: char| c.is_ascii_digit())
}

/// Makes the schema as a user sees it: texts in a line each, null or no key where Rust has `None`, and JSON's types of numbers.
fn cleaned(schema: Value) -> Value {
    let Value::Object(mut entries) = schema else {
        return match schema {
            Value::Array(list) => list.into_iter().map(cleaned).collect(),
            other => other,
        };
    };
    let required = entries.get("required").cloned().unwrap_or_default();
    if let Some(Value::Object(properties)) = entries.remove("properties") {
        let property = |(key, property): (String, Value)| {
            let is_required = required.as_array().is_some_and(|keys| keys.contains(&key.as_str().into()));
            let mut property = property;
            if let (Some(text), false) = (property["description"].as_str(), is_required) {
                property["description"] = text.replace("`None`", "absent").into();
            }
            (key, cleaned(property))
        };
        entries.insert("properties".into(), Value::Object(properties.into_iter().map(property).collect()));
    }
    if let Some(Value::String(text)) = entries.get_mut("description") {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        *text = line.replace(". `None`", ". Null").replace("`None`", "null");
    }
    let is_of_json = |key: &str| !matches!(key, "default" | "format");
    let clean = |(key, value): (String, Value)| {
        let value = if key == "properties" { value } else { cleaned(value) };
        (key, value)
    };
    entries.into_iter().filter(|(key, _)| is_of_json(key)).map(clean).collect()
}

/// A form that a value can have.
pub(super) enum Form<'a> {
    Null,
    Word(&'a str),
    Number,
    Text,
    Boolean,
    List(&'a Value),
    ByName(&'a Value),
    /// An enum: its name, and its values.
    OneOf(&'a str, &'a [Value]),
    /// One of the objects, each with its `kind`.
    Kinds(&'a [Value]),
    /// An object: its name, empty for the report itself, and its schema.
    Object(&'a str, &'a Value),
}

/// The schema of the report.
pub(super) struct Schema {
    /// The schema of the whole, with those that it refers to.
    pub(super) root: Value,
}

impl Schema {
    pub(super) fn new() -> Self {
        Self { root: cleaned(json::schema()) }
    }

    /// All forms that a value of `schema` can have.
    pub(super) fn forms<'a>(&'a self, schema: &'a Value) -> Vec<Form<'a>> {
        if let Some(reference) = schema["$ref"].as_str() {
            let target = self.target(schema);
            let values = target["oneOf"].as_array();
            return match values {
                Some(values) if values[0].get("const").is_some() => {
                    vec![Form::OneOf(type_name(reference), values)]
                }
                Some(kinds) => vec![Form::Kinds(kinds)],
                None if target.get("properties").is_some() => {
                    vec![Form::Object(type_name(reference), target)]
                }
                None => self.forms(target),
            };
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            return choices.iter().flat_map(|choice| self.forms(choice)).collect();
        }
        if let Some(word) = schema["const"].as_str() {
            return vec![Form::Word(word)];
        }
        let names = match &schema["type"] {
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            name => vec![name.as_str().unwrap()],
        };
        let form = |name: &str| match name {
            "null" => Form::Null,
            "number" | "integer" => Form::Number,
            "string" => Form::Text,
            "boolean" => Form::Boolean,
            "array" => Form::List(&schema["items"]),
            _ if schema.get("properties").is_some() => Form::Object("", schema),
            _ => Form::ByName(&schema["additionalProperties"]),
        };
        names.into_iter().map(form).collect()
    }

    /// What `$ref` of a schema refers to.
    pub(super) fn target(&self, schema: &Value) -> &Value {
        self.root.pointer(&schema["$ref"].as_str().unwrap()[1..]).unwrap()
    }

    /// Checks that `value` is of one of the forms of `schema`. `seen` gets the objects' types and keys.
    fn check(&self, path: &str, value: &Value, schema: &Value, seen: &mut BTreeSet<(String, String)>) {
        let forms = self.forms(schema);
        let form = forms.iter().find(|form| match form {
            Form::Null => value.is_null(),
            Form::Word(word) => value == word,
            Form::Number => value.is_number(),
            Form::Text => value.is_string(),
            Form::Boolean => value.is_boolean(),
            Form::List(_) => value.is_array(),
            Form::OneOf(_, values) => values.iter().any(|one| one["const"] == *value),
            Form::Kinds(_) | Form::Object(..) | Form::ByName(_) => value.is_object(),
        });
        match form {
            Some(Form::List(items)) => {
                for item in value.as_array().into_iter().flatten() {
                    self.check(&format!("{path}[]"), item, items, seen);
                }
            }
            Some(Form::ByName(values)) => {
                for (key, inner) in value.as_object().into_iter().flatten() {
                    self.check(&format!("{path}.{key}"), inner, values, seen);
                }
            }
            Some(Form::Object(name, object)) => self.check_object(path, value, (name, object), seen),
            Some(Form::Kinds(kinds)) => {
                let mut value = value.as_object().unwrap().clone();
                let kind = value.remove("kind").unwrap();
                let kind = kinds.iter().find(|one| one["properties"]["kind"]["const"] == kind).unwrap();
                let name = type_name(kind["$ref"].as_str().unwrap());
                self.check_object(path, &value.into(), (name, self.target(kind)), seen);
            }
            Some(_) => {}
            None => panic!("{path}: {value} is none of {schema}"),
        }
    }

    fn check_object(
        &self,
        path: &str,
        value: &Value,
        of: (&str, &Value),
        seen: &mut BTreeSet<(String, String)>,
    ) {
        let (name, object) = of;
        for (key, inner) in value.as_object().into_iter().flatten() {
            let property =
                object["properties"].get(key).unwrap_or_else(|| panic!("{path}.{key}: no such key"));
            seen.insert((name.to_owned(), key.clone()));
            self.check(&format!("{path}.{key}"), inner, property, seen);
        }
        // Some goldens are of a part of the report.
        if !name.is_empty() || value.get("schema_version").is_some() {
            let missing =
                in_order(object).find(|(key, _)| is_required(object, key) && value.get(key).is_none());
            assert!(missing.is_none(), "{path} lacks {missing:?}");
        }
    }
}

/// The keys of an object with their schemas: those that are always there in the order of the report, then the others.
pub(super) fn in_order(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let properties: &Map<String, Value> = object["properties"].as_object().unwrap();
    let required = object["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let others = properties.keys().map(String::as_str).filter(|key| !is_required(object, key));
    required.chain(others).map(|key| (key, &properties[key]))
}

/// Whether a key is always there.
pub(super) fn is_required(object: &Value, key: &str) -> bool {
    object["required"].as_array().is_some_and(|required| required.iter().any(|one| one == key))
}

// Requirement: OUT-62
#[test]
fn golden_schema_is_that_of_the_types() {
    let schema = serde_json::to_string_pretty(&Schema::new().root).unwrap() + "\n";
    compare(&schema, "../../docs/report.schema.json", include_str!("../../../../docs/report.schema.json"));
}

// Requirement: OUT-62
#[expect(clippy::disallowed_methods, reason = "the goldens are files")]
#[test]
fn golden_reports_are_of_the_schema_and_have_all_of_its_keys() {
    let schema = Schema::new();
    let mut seen = BTreeSet::new();
    let goldens = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    for file in std::fs::read_dir(goldens).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_some_and(|end| end == "json") {
            let report = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            schema.check(&file.to_string_lossy(), &report, &schema.root, &mut seen);
        }
    }
    let definitions = schema.root["$defs"].as_object().unwrap().iter();
    let objects = definitions.filter(|(_, object)| object.get("properties").is_some());
    for (name, object) in objects.map(|(name, object)| (type_name(name), object)).chain([("", &schema.root)])
    {
        for (key, _) in in_order(object) {
            assert!(seen.contains(&(name.to_owned(), key.to_owned())), "no golden has {name}.{key}");
        }
    }
}
