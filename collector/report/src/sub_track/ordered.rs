//! A JSON object whose entries keep their order: that of the columns of a file, or of figures by their size.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// Entries by their names. A name that comes again keeps its first place, and gets the later value.
#[derive(Debug, Clone, PartialEq)]
pub struct Ordered<V>(Vec<(String, V)>);

impl<V> Ordered<V> {
    /// The entry of this name.
    pub fn get(&self, name: &str) -> Option<&V> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The entries in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> + Clone {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<V> Default for Ordered<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Keeps the first place and the last value of a name.
impl<V> FromIterator<(String, V)> for Ordered<V> {
    fn from_iter<I: IntoIterator<Item = (String, V)>>(entries: I) -> Self {
        // A map of the places keeps the time linear in the number of entries.
        let mut places = std::collections::HashMap::new();
        let mut all: Vec<(String, V)> = Vec::new();
        for (name, value) in entries {
            match places.get(&name) {
                Some(&at) => all[at] = (name, value),
                None => {
                    places.insert(name.clone(), all.len());
                    all.push((name, value));
                }
            }
        }
        Self(all)
    }
}

impl<V: Serialize> Serialize for Ordered<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Ordered<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Reads the entries of a JSON object.
struct Entries<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
    type Value = Ordered<V>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(entries.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_order_and_the_last_value_of_a_name_counts() {
        let read: Ordered<u8> = serde_json::from_str(r#"{"z": 1, "a": 2, "z": 3}"#).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"{"z":3,"a":2}"#);
        assert_eq!((read.get("a"), read.get("b")), (Some(&2), None));
    }
}
