//! Enums whose values have names in options, files and reports. One list gives the type, all of its values, and their names.

/// Makes an enum whose values have names. A value's form in JSON is its name.
#[macro_export]
macro_rules! named {
    (
        $(#[$about:meta])*
        pub enum $Kind:ident {
            $($(#[$doc:meta])* $Variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$about])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize,
        )]
        pub enum $Kind {
            $($(#[$doc])* #[serde(rename = $name)] $Variant,)+
        }

        impl $Kind {
            /// All values.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            /// The value's name in options, files and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::model::alert::EventKind;
    use crate::model::rule::{Quantity, Unit};

    #[test]
    fn kinds_are_written_by_their_names() {
        let written = |kind: Result<serde_json::Value, _>| kind.unwrap().as_str().unwrap().to_owned();
        assert!(EventKind::ALL.iter().all(|kind| written(serde_json::to_value(kind)) == kind.name()));
        assert!(Quantity::ALL.iter().all(|kind| written(serde_json::to_value(kind)) == kind.name()));
        assert!(Unit::ALL.iter().all(|kind| written(serde_json::to_value(kind)) == kind.name()));
    }
}
