//! Where a field is written: whole bytes of a frame, as few as hold it, of which its own bits change.

use crate::layer::Field;

/// One, two, four or eight bytes of a frame; more than one begin at an even place, as the words of checksums do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Its first byte in the frame.
    pub(crate) at: usize,
    /// Its bytes.
    pub(crate) width: usize,
    /// Bits behind the field.
    pub(crate) shift: u32,
    /// The field's bits in the window.
    pub(crate) mask: u64,
    /// Bits of the field behind those that stand here.
    pub(crate) behind: u32,
}

/// What a window holds: windows of eight bytes need the wider one, the others cost half as much in the narrower one.
pub(crate) trait Value: Copy {
    /// The lower bits.
    fn of(value: u64) -> Self;
    fn wide(self) -> u64;
}

impl Value for u32 {
    #[inline(always)]
    fn of(value: u64) -> Self {
        value as Self
    }

    #[inline(always)]
    fn wide(self) -> u64 {
        self.into()
    }
}

impl Value for u64 {
    #[inline(always)]
    fn of(value: u64) -> Self {
        value
    }

    #[inline(always)]
    fn wide(self) -> u64 {
        self
    }
}

impl Window {
    /// The windows of a field of a header that begins at `at`: one, or two where it has more than 32 bits.
    pub(crate) fn of(field: &Field, at: usize) -> Vec<Self> {
        let parts: &[(usize, usize)] = match field.bits {
            48 => &[(0, 16), (16, 32)],
            128 => &[(0, 64), (64, 64)],
            bits => &[(0, bits)],
        };
        parts
            .iter()
            .map(|&(skip, bits)| Self::one(at, field.bit + skip, bits, field.bits - skip - bits))
            .collect()
    }

    fn one(at: usize, bit: usize, bits: usize, behind: usize) -> Self {
        let (mut first, last) = (bit / 8, (bit + bits - 1) / 8);
        if last > first {
            first &= !1;
        }
        let width = (last - first + 1).next_power_of_two();
        let shift = (8 * (first + width) - bit - bits) as u32;
        Self { at: at + first, width, shift, mask: (u64::MAX >> (64 - bits)) << shift, behind: behind as u32 }
    }

    /// The field's bits that stand here.
    pub(crate) fn part(&self, value: u128) -> u64 {
        (value >> self.behind) as u64 & self.mask >> self.shift
    }

    /// Whether nothing but the field stands here.
    pub(crate) fn is_whole(&self) -> bool {
        self.mask == u64::MAX >> (64 - 8 * self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::put_bits;
    use crate::layer::Layer;

    /// What is written by windows is what is written bit by bit.
    #[test]
    fn windows_hold_their_fields() {
        for layer in Layer::ALL {
            let layer = if layer == Layer::Gre { Layer::GreKey } else { layer };
            for field in layer.fields() {
                let value = 0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe_u128 >> (128 - field.bits);
                let mut bits = vec![0; 14 + layer.bytes().len()];
                put_bits(&mut bits[14..], field.bit, field.bits, value);
                let mut bytes = vec![0; bits.len()];
                for window in Window::of(field, 14) {
                    assert!(window.width == 1 || window.at.is_multiple_of(2), "{layer}.{}", field.name);
                    let all = (window.part(value) << window.shift).to_be_bytes();
                    for (byte, more) in bytes[window.at..].iter_mut().zip(&all[8 - window.width..]) {
                        *byte |= more;
                    }
                }
                assert_eq!(bytes, bits, "{layer}.{}", field.name);
            }
        }
    }
}
