//! Where a value stands in a block of big-endian bytes, as a constant whose bounds the compiler checks.
//!
//! The programming manual of the adapters gives a place as dword, highest bit and lowest bit; so do these types. They
//! are declared as `const` items, so a place outside its block does not compile.

/// A MAC as the number that fields of 48 bits hold: its first byte is the highest.
///
/// ```
/// assert_eq!(pollux_mlx5_abi::field::mac_value([2, 0, 0, 0, 1, 3]), 0x0200_0000_0103);
/// ```
#[must_use]
pub const fn mac_value([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// A value of at most 32 bits inside one dword of a block of `LEN` bytes.
///
/// ```
/// use pollux_mlx5_abi::field::Field;
///
/// const LOG_SIZE: Field<64> = Field::new(0x0c, 28, 24);
/// let mut context = [0; 64];
/// LOG_SIZE.set(&mut context, 10);
/// assert_eq!(context[0x0c], 10);
/// assert_eq!(LOG_SIZE.get(&context), 10);
/// ```
///
/// A place that the block does not have is refused by the compiler:
///
/// ```compile_fail
/// use pollux_mlx5_abi::field::Field;
///
/// const BEYOND: Field<64> = Field::new(0x40, 31, 0);
/// # println!("{BEYOND:?}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<const LEN: usize> {
    offset: u16,
    hi: u8,
    lo: u8,
}

impl<const LEN: usize> Field<LEN> {
    /// Bits `hi` to `lo` of the dword at byte `offset`.
    ///
    /// # Panics
    /// Where `offset` is not a dword of the block or the bits are not in order; a compile error in a `const` item.
    #[must_use]
    pub const fn new(offset: usize, hi: u8, lo: u8) -> Self {
        assert!(offset.is_multiple_of(4), "a dword stands at a multiple of 4");
        assert!(LEN <= u16::MAX as usize && offset + 4 <= LEN, "the dword is outside the block");
        assert!(hi < 32 && lo <= hi, "bits run from hi down to lo, 31 at most");
        Self { offset: offset as u16, hi, lo }
    }

    /// The value.
    #[must_use]
    #[inline]
    pub const fn get(self, block: &[u8; LEN]) -> u32 {
        (self.dword(block) >> self.lo) & self.max()
    }

    /// Whether the one bit, or any of the bits, is set.
    #[must_use]
    #[inline]
    pub const fn is_set(self, block: &[u8; LEN]) -> bool {
        self.get(block) != 0
    }

    /// Writes the value and leaves all other bits as they are.
    ///
    /// # Panics
    /// Where `value` needs more bits than the field has: the caller asks [`fits`](Self::fits) of what it did not make
    /// itself.
    #[inline]
    pub const fn set(self, block: &mut [u8; LEN], value: u32) {
        assert!(self.fits(value), "the value needs more bits than the field has");
        let kept = self.dword(block) & !(self.max() << self.lo);
        let bytes = (kept | value << self.lo).to_be_bytes();
        let at = self.offset as usize;
        (block[at], block[at + 1], block[at + 2], block[at + 3]) = (bytes[0], bytes[1], bytes[2], bytes[3]);
    }

    /// Whether `value` can be written here.
    #[must_use]
    pub const fn fits(self, value: u32) -> bool {
        value <= self.max()
    }

    /// The largest value: all bits set.
    #[must_use]
    pub const fn max(self) -> u32 {
        u32::MAX >> (31 - (self.hi - self.lo))
    }

    /// The first bit, counted from the block's most significant one, as the manual's C headers count.
    #[must_use]
    pub const fn bit(self) -> u32 {
        self.offset as u32 * 8 + 31 - self.hi as u32
    }

    /// How many bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        (self.hi - self.lo + 1) as u32
    }

    const fn dword(self, block: &[u8; LEN]) -> u32 {
        let at = self.offset as usize;
        u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
    }
}

/// A value that spans two dwords: addresses, lengths, counters, masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wide<const LEN: usize> {
    offset: u16,
    hi: u8,
    lo: u8,
}

impl<const LEN: usize> Wide<LEN> {
    /// Bits `hi` to `lo` of the 64 bits that begin with the dword at byte `offset`.
    ///
    /// # Panics
    /// Where the 64 bits are not all in the block or the bits are not in order; a compile error in a `const` item.
    #[must_use]
    pub const fn new(offset: usize, hi: u8, lo: u8) -> Self {
        assert!(offset.is_multiple_of(4), "a dword stands at a multiple of 4");
        assert!(LEN <= u16::MAX as usize && offset + 8 <= LEN, "the two dwords are not both in the block");
        assert!(hi < 64 && lo <= hi, "bits run from hi down to lo, 63 at most");
        Self { offset: offset as u16, hi, lo }
    }

    /// The value.
    #[must_use]
    #[inline]
    pub const fn get(self, block: &[u8; LEN]) -> u64 {
        (self.qword(block) >> self.lo) & self.max()
    }

    /// Writes the value and leaves all other bits as they are.
    ///
    /// # Panics
    /// Where `value` needs more bits than the field has.
    #[inline]
    pub const fn set(self, block: &mut [u8; LEN], value: u64) {
        assert!(self.fits(value), "the value needs more bits than the field has");
        let kept = self.qword(block) & !(self.max() << self.lo);
        let bytes = (kept | value << self.lo).to_be_bytes();
        let mut byte = 0;
        while byte < 8 {
            block[self.offset as usize + byte] = bytes[byte];
            byte += 1;
        }
    }

    /// Whether `value` can be written here.
    #[must_use]
    pub const fn fits(self, value: u64) -> bool {
        value <= self.max()
    }

    /// The largest value: all bits set.
    #[must_use]
    pub const fn max(self) -> u64 {
        u64::MAX >> (63 - (self.hi - self.lo))
    }

    /// The first bit, counted from the block's most significant one.
    #[must_use]
    pub const fn bit(self) -> u32 {
        self.offset as u32 * 8 + 63 - self.hi as u32
    }

    /// How many bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        (self.hi - self.lo + 1) as u32
    }

    const fn qword(self, block: &[u8; LEN]) -> u64 {
        let mut bytes = [0; 8];
        let mut byte = 0;
        while byte < 8 {
            bytes[byte] = block[self.offset as usize + byte];
            byte += 1;
        }
        u64::from_be_bytes(bytes)
    }
}

/// `N` bytes in a row: a MAC or IP address, a hash key, a context inside a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<const LEN: usize, const N: usize> {
    offset: u16,
}

impl<const LEN: usize, const N: usize> Run<LEN, N> {
    /// The bytes from `offset` on.
    ///
    /// # Panics
    /// Where the block ends before them; a compile error in a `const` item.
    #[must_use]
    pub const fn new(offset: usize) -> Self {
        assert!(LEN <= u16::MAX as usize && N > 0 && offset + N <= LEN, "the bytes are outside the block");
        Self { offset: offset as u16 }
    }

    /// The bytes, to read.
    #[must_use]
    #[inline]
    #[expect(clippy::missing_panics_doc, reason = "new() has found the bytes in the block")]
    pub fn of(self, block: &[u8; LEN]) -> &[u8; N] {
        block[self.offset as usize..].first_chunk().expect("new() found the bytes in the block")
    }

    /// The bytes, to write.
    #[must_use]
    #[inline]
    #[expect(clippy::missing_panics_doc, reason = "new() has found the bytes in the block")]
    pub fn of_mut(self, block: &mut [u8; LEN]) -> &mut [u8; N] {
        block[self.offset as usize..].first_chunk_mut().expect("new() found the bytes in the block")
    }

    /// A copy of the bytes.
    #[must_use]
    #[inline]
    pub fn get(self, block: &[u8; LEN]) -> [u8; N] {
        *self.of(block)
    }

    /// Writes the bytes.
    #[inline]
    pub fn set(self, block: &mut [u8; LEN], value: [u8; N]) {
        *self.of_mut(block) = value;
    }

    /// The first bit, counted from the block's most significant one.
    #[must_use]
    pub const fn bit(self) -> u32 {
        self.offset as u32 * 8
    }

    /// How many bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        N as u32 * 8
    }

    /// Where the bytes begin.
    #[must_use]
    pub const fn offset(self) -> usize {
        self.offset as usize
    }
}

#[cfg(test)]
mod tests;
