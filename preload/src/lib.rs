//! What `mlx5-run` and `rsock-run` share: they run a program of others with a library loaded into it, which stands in for functions of the
//! C library.
//!
//! ```text
//!   in the launcher                          in the library
//!   program      which one, and whether      real    what the C library has under a name that is stood in for
//!                libraries load into it      errno   that of the calling thread
//!   library      which one is loaded
//!   running      its signals and its end
//!   descriptors
//! ```

pub mod descriptors;
pub mod errno;
pub mod library;
pub mod program;
pub mod real;
pub mod running;
