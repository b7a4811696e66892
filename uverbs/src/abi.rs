//! Numbers and layouts of the ABI, as Linux exports them to user space. All of it is in the byte order of the host, except
//! fields that are typed big-endian.
//!
//! Source: rdma-core `kernel-headers/rdma/` at 691953d, the same files that Debian ships in `linux-libc-dev`; a test compares
//! these layouts with what a C compiler makes of the latter (`golden/layout.txt`).

pub mod connection;
pub mod device;
pub mod flags;
pub mod flow;
pub mod form;
pub mod frame;
pub mod id;
pub mod ioctl_verbs;
pub mod memory;
pub mod object;
pub mod queue;
pub mod queue_pair;
pub mod write;

/// A layout that says what it copies: the C struct, its size, and each field with offset and size.
pub trait Described {
    /// Name of the C struct.
    const NAME: &'static str;
    /// `size_of`.
    const BYTES: usize;
    /// Name, offset and size of each field; names are C's.
    const FIELDS: &'static [(&'static str, usize, usize)];
}

/// The name of a field in C, which may be a word of Rust's.
pub(crate) const fn c_name(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', name @ ..] => match std::str::from_utf8(name) {
            Ok(name) => name,
            Err(_) => field,
        },
        _ => field,
    }
}

/// Declares a layout with each field's offset, checked by the compiler.
macro_rules! layout {
    ($(
        $(#[$outer:meta])*
        $name:ident = $c:literal, $size:literal {
            $($(#[$inner:meta])* $field:ident: $type:ty = $offset:literal),* $(,)?
        }
    )*) => { $(
        $(#[$outer])*
        #[doc = concat!("\n\n`struct ", $c, "`, ", stringify!($size), " bytes.")]
        #[repr(C)]
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
        )]
        pub struct $name {
            $($(#[$inner])* pub $field: $type,)*
        }

        // Not derived: arrays of more than 32 have none.
        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        const _: () = assert!(
            size_of::<$name>() == $size $(&& std::mem::offset_of!($name, $field) == $offset)*
        );

        impl crate::abi::Described for $name {
            const NAME: &'static str = $c;
            const BYTES: usize = $size;
            const FIELDS: &'static [(&'static str, usize, usize)] = &[
                $((crate::abi::c_name(stringify!($field)), $offset, size_of::<$type>()),)*
            ];
        }
    )* };
}
pub(crate) use layout;
