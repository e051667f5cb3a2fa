//! JSON as Go reads it: keys in any case, and of those that come twice, objects are merged. What comes back of such a body would be another
//! one, so it is not read.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads a body. `None`: it is no JSON, or a key comes twice.
pub(super) fn parse(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Unique>(bytes).ok().map(|unique| unique.0)
}

/// A key as Go compares it, with its Unicode letters that stand for `k` and `s`.
pub(super) fn folded(key: &str) -> String {
    key.to_uppercase().to_lowercase()
}

/// A value without keys that come twice.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(UniqueVisitor)
    }
}

struct UniqueVisitor;

/// Reads values that are neither lists nor objects.
macro_rules! scalars {
    ($($visit:ident: $kind:ty),+) => {
        $(fn $visit<E>(self, value: $kind) -> Result<Unique, E> {
            Ok(Unique(value.into()))
        })+
    };
}

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique(Value::Null))
    }

    scalars!(visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Unique, A::Error> {
        let mut all = Vec::new();
        while let Some(Unique(value)) = list.next_element()? {
            all.push(value);
        }
        Ok(Unique(all.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Unique, A::Error> {
        let (mut all, mut known) = (Map::new(), BTreeSet::new());
        while let Some((key, Unique(value))) = object.next_entry::<String, Unique>()? {
            if !known.insert(folded(&key)) {
                return Err(A::Error::custom("a key comes twice"));
            }
            all.insert(key, value);
        }
        Ok(Unique(all.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: SEE-139
    #[test]
    fn body_with_a_key_twice_is_not_read() {
        let text = r#"{"a": [1, -2, 0.5, "x", true, null, {"A": {}}], "b": 12345678901234567}"#;
        assert_eq!(parse(text.as_bytes()), serde_json::from_str(text).ok());
        for bad in [
            r#"{"HostConfig": {"Memory": 1}, "HostConfig": {}}"#,
            r#"{"HostConfig": {"Memory": 1, "memory": 2}}"#,
            r#"[{"HostConfig": {}, "Ho\u017ftConfig": {}}]"#,
            r#"{"a": 1} x"#,
            "",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
