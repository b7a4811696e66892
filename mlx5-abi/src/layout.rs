//! A block of bytes by the names of its fields: what `layouts!` declares.

/// One field of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The field's name as declared, see [`manual_name`](Self::manual_name).
    pub name: &'static str,
    /// Its first bit, counted from the block's most significant one.
    pub bit: u32,
    /// How many bits it has.
    pub bits: u32,
}

impl Place {
    /// The field's name in the manual, as the C headers spell it; a dot leads into a nested block.
    #[must_use]
    pub fn manual_name(&self) -> String {
        let as_it_stands = self.name.contains(|letter: char| letter.is_ascii_lowercase());
        if as_it_stands { self.name.to_owned() } else { self.name.to_ascii_lowercase() }
    }

    /// What the field holds; `None` where the block ends before it, and of a field of more than 64 bits.
    #[must_use]
    pub fn value(&self, block: &[u8]) -> Option<u64> {
        let last = (self.bit + self.bits).div_ceil(8) as usize;
        let fits = self.bits <= 64 && last <= block.len();
        fits.then(|| {
            (self.bit..self.bit + self.bits).fold(0_u64, |value, bit| {
                value << 1 | u64::from(block[bit as usize / 8] >> (7 - bit % 8) & 1)
            })
        })
    }
}

/// A block: its name, its size and its fields.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The block's name in Linux `include/linux/mlx5/mlx5_ifc.h`, without `mlx5_ifc_` and `_bits`.
    pub name: &'static str,
    /// Its fixed part; lists at its end are not counted.
    pub bytes: usize,
    /// Fields in order of declaration.
    pub fields: &'static [Place],
}

/// Declares blocks: for each a type whose constants are its fields, its size, and its [`Layout`].
///
/// `NAME: field(offset, hi, lo)` is a [`Field`](crate::field::Field), `wide` a [`Wide`](crate::field::Wide), and
/// `run(offset, bytes)` a [`Run`](crate::field::Run). A field is named after the manual in capitals; where a nested
/// block or a clash asks for another name, `NAME as "manual.name"` says which one it is. All blocks of a file stand in
/// its `LAYOUTS`, by which the tests compare them with the C headers.
macro_rules! layouts {
    ($(
        $(#[$about:meta])*
        $block:ident = $prm:literal [$len:literal] {
            $($(#[$what:meta])* $field:ident $(as $alias:literal)?: $kind:ident($($place:literal),+),)*
        }
    )+) => {
        $(
            $(#[$about])*
            ///
            #[doc = concat!("Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `", $prm, "`.")]
            #[derive(Clone, Copy, Debug)]
            pub enum $block {}

            impl $block {
                /// Bytes of the fixed part.
                pub const BYTES: usize = $len;
                /// A block with nothing set.
                pub const ZERO: [u8; $len] = [0; $len];
                /// The names and places of the fields.
                pub const LAYOUT: $crate::layout::Layout = $crate::layout::Layout {
                    name: $prm,
                    bytes: $len,
                    fields: &[$($crate::layout::Place {
                        name: $crate::layout::layouts!(@name $field $($alias)?),
                        bit: Self::$field.bit(),
                        bits: Self::$field.bits(),
                    }),*],
                };
                $(
                    $(#[$what])*
                    #[doc = concat!("`", $crate::layout::layouts!(@name $field $($alias)?), "`: ",
                        $crate::layout::layouts!(@doc $kind($($place),+)))]
                    pub const $field: $crate::layout::layouts!(@type $kind $len ($($place),+)) =
                        $crate::layout::layouts!(@new $kind ($($place),+));
                )*
            }
        )+

        /// All blocks of this module.
        pub(crate) const LAYOUTS: &[$crate::layout::Layout] = &[$($block::LAYOUT),+];
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $alias:literal) => { $alias };
    (@type field $len:literal ($($place:literal),+)) => { $crate::field::Field<$len> };
    (@type wide $len:literal ($($place:literal),+)) => { $crate::field::Wide<$len> };
    (@type run $len:literal ($offset:literal, $n:literal)) => { $crate::field::Run<$len, $n> };
    (@new field ($offset:literal, $hi:literal, $lo:literal)) => { $crate::field::Field::new($offset, $hi, $lo) };
    (@new wide ($offset:literal, $hi:literal, $lo:literal)) => { $crate::field::Wide::new($offset, $hi, $lo) };
    (@new run ($offset:literal, $n:literal)) => { $crate::field::Run::new($offset) };
    (@doc field($offset:literal, $hi:literal, $lo:literal)) => {
        concat!("bits ", $hi, " to ", $lo, " of the dword at ", stringify!($offset), ".")
    };
    (@doc wide($offset:literal, $hi:literal, $lo:literal)) => {
        concat!("bits ", $hi, " to ", $lo, " of the two dwords at ", stringify!($offset), ".")
    };
    (@doc run($offset:literal, $n:literal)) => { concat!($n, " bytes at ", stringify!($offset), ".") };
}

pub(crate) use layouts;
