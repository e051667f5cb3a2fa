//! Formatters of JSON that leave most to serde_json's `PrettyFormatter`.

/// Methods of [`Formatter`](serde_json::ser::Formatter) that a type leaves to the `PrettyFormatter` in one of its fields. `first` is the
/// argument that some of them have.
macro_rules! as_pretty {
    ($field:tt: $($method:ident($($first:ident)?)),+) => {
        $(fn $method<W: ?Sized + Write>(&mut self, writer: &mut W $(, $first: bool)?) -> io::Result<()> {
            self.$field.$method(writer $(, $first)?)
        })+
    };
}

pub(crate) use as_pretty;
