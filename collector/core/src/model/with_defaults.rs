//! Structs whose default values stand beside their fields and the reasons for them.

/// Makes a struct and its `Default`.
#[macro_export]
macro_rules! with_defaults {
    (
        $(#[$about:meta])*
        pub struct $Name:ident {
            $($(#[$doc:meta])* pub $field:ident: $Type:ty = $default:expr,)+
        }
    ) => {
        $(#[$about])*
        pub struct $Name {
            $($(#[$doc])* pub $field: $Type,)+
        }

        impl Default for $Name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }
    };
}
