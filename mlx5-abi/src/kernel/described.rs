//! Structures that say what they copy: their name in C, and each field with its place.

/// A structure by its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name in C.
    pub name: &'static str,
    /// Name, offset and size of each field, in order.
    pub fields: &'static [(&'static str, usize, usize)],
}

/// Declares a structure with its name in C, and its [`Part`].
macro_rules! described {
    (no default: $(#[$doc:meta])* $name:ident = $c:literal { $($body:tt)* }) => {
        $crate::kernel::described::described!(@item [] $(#[$doc])* $name = $c { $($body)* });
    };
    (@item [$($derive:ident)?] $(#[$doc:meta])* $name:ident = $c:literal {
        $($(#[$inner:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(
            Clone, Copy, Debug, $($derive,)? PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
        )]
        pub struct $name {
            $($(#[$inner])* pub $field: $type,)*
        }

        impl $name {
            /// Its name in C and its fields.
            pub const PART: $crate::kernel::described::Part = $crate::kernel::described::Part {
                name: $c,
                fields: &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$type>()),)*],
            };
        }
    };
    ($(#[$doc:meta])* $name:ident = $c:literal { $($body:tt)* }) => {
        $crate::kernel::described::described!(@item [Default] $(#[$doc])* $name = $c { $($body)* });
    };
}

pub(crate) use described;
