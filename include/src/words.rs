//! What the live file stores as 64-bit words: the figures of a sample or of a table's entry, one after the other.

/// The word of a whole number that is not known.
pub const UNKNOWN: u64 = u64::MAX;

/// A value of one or more words.
pub trait Words: Sized {
    /// How many words it has.
    const WORDS: usize;

    /// Its [`Self::WORDS`] words.
    fn words(&self) -> impl Iterator<Item = u64>;

    /// Makes a value of the next words. Figures whose words are missing are not known, or 0 if they always have a number.
    fn take(words: &mut core::slice::Iter<'_, u64>) -> Self;

    /// Makes a value of its words, as [`Self::take`] does.
    fn of_words(words: &[u64]) -> Self {
        Self::take(&mut words.iter())
    }
}

impl Words for u64 {
    const WORDS: usize = 1;

    fn words(&self) -> impl Iterator<Item = u64> {
        core::iter::once(*self)
    }

    fn take(words: &mut core::slice::Iter<'_, u64>) -> Self {
        words.next().copied().unwrap_or(0)
    }
}

impl Words for Option<u64> {
    const WORDS: usize = 1;

    fn words(&self) -> impl Iterator<Item = u64> {
        core::iter::once(self.unwrap_or(UNKNOWN))
    }

    fn take(words: &mut core::slice::Iter<'_, u64>) -> Self {
        words.next().copied().filter(|value| *value != UNKNOWN)
    }
}

/// Its word has the number's bits, or those of NaN.
impl Words for Option<f64> {
    const WORDS: usize = 1;

    fn words(&self) -> impl Iterator<Item = u64> {
        core::iter::once(self.unwrap_or(f64::NAN).to_bits())
    }

    fn take(words: &mut core::slice::Iter<'_, u64>) -> Self {
        words.next().map(|bits| f64::from_bits(*bits)).filter(|value| !value.is_nan())
    }
}

/// Declares a struct whose words are those of its fields, in this order.
macro_rules! struct_of_words {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }

        impl crate::words::Words for $name {
            const WORDS: usize = 0 $(+ <$type as crate::words::Words>::WORDS)*;

            fn words(&self) -> impl Iterator<Item = u64> {
                core::iter::empty()$(.chain(self.$field.words()))*
            }

            fn take(words: &mut core::slice::Iter<'_, u64>) -> Self {
                Self { $($field: crate::words::Words::take(words)),* }
            }
        }
    };
}
pub(crate) use struct_of_words;
