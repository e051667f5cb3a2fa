//! Text in a record: bytes that are cut to the room there is.

/// Takes the place of what was cut out.
const MARK: &[u8] = b"...";

/// Text of at most `N` bytes, padded with NULs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedText<const N: usize> {
    /// The bytes, and NULs after them.
    pub bytes: [u8; N],
    /// How many of them are written.
    used: usize,
}

impl<const N: usize> Default for FixedText<N> {
    fn default() -> Self {
        Self { bytes: [0; N], used: 0 }
    }
}

impl<const N: usize> FixedText<N> {
    /// How many bytes more there is room for.
    pub fn room(&self) -> usize {
        N.saturating_sub(self.used)
    }

    /// Leaves one byte as NUL, which ends a part of the text.
    pub fn end_part(&mut self) {
        self.used += 1;
    }

    /// Adds the parts of a name, one after another, at most `most` bytes and as far as there is room. If they are too long, `...`
    /// takes the place of their middle, because names often differ at their ends.
    pub fn put(&mut self, parts: &[&[u8]], most: usize) {
        let room = most.min(self.room());
        let length = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.len()));
        let bytes = || parts.iter().flat_map(|part| part.iter());
        if length <= room || room <= MARK.len() {
            self.append(bytes().take(room));
            return;
        }
        let end = (room - MARK.len()) / 2;
        let (start, mut before) = (room - MARK.len() - end, length - end);
        // No part of a character of UTF-8 is left, which has up to three bytes of this form after its first.
        let is_within = |at| bytes().nth(at).is_some_and(|byte| byte & 0xc0 == 0x80);
        let start = (0..=start.min(3)).map(|less| start - less).find(|at| !is_within(*at)).unwrap_or(start);
        before = (0..=3).map(|more| before + more).find(|at| !is_within(*at)).unwrap_or(before);
        self.append(bytes().take(start));
        self.append(MARK.iter());
        // The end may be in any of the parts.
        for part in parts {
            self.append(part.iter().skip(before));
            before = before.saturating_sub(part.len());
        }
    }

    /// Adds bytes, as far as there is room.
    fn append<'a>(&mut self, bytes: impl Iterator<Item = &'a u8>) {
        let free = self.bytes.get_mut(self.used..).unwrap_or_default();
        for (to, from) in free.iter_mut().zip(bytes) {
            *to = *from;
            self.used += 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn middle_of_a_long_name_is_cut() {
        let put = |parts: &[&[u8]], most| {
            let mut text = FixedText::<12>::default();
            text.put(parts, most);
            text
        };
        assert_eq!(&put(&[b"ab", b"", b"cdef"], 12).bytes, b"abcdef\0\0\0\0\0\0");
        assert_eq!(&put(&[b"0123456789", b"abcdef"], 12).bytes, b"01234...cdef");
        assert_eq!(&put(&[b"0123456789", b"ab"], 7).bytes, b"01...ab\0\0\0\0\0");
        assert_eq!(&put(&[b"0123456789ab", b"", b"c"], 99).bytes, b"01234...9abc");
        assert_eq!(put(&[b"0123"], 3).room(), 9);
        let umlauts = "\u{e4}\u{e4}\u{e4}x\u{e4}\u{e4}\u{e4}".as_bytes();
        assert_eq!(
            &put(&[umlauts], 12).bytes,
            "\u{e4}\u{e4}...\u{e4}\u{e4}\0".as_bytes(),
            "whole characters"
        );
        assert_eq!(&put(&[&[0x80; 20]], 12).bytes, b"\x80\x80\x80\x80\x80...\x80\x80\x80\x80", "no UTF-8");
    }
}
