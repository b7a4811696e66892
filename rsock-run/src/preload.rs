//! What is loaded into programs: the functions of the C library that name an address of a TCP socket.
//!
//! ```text
//!   bind, listen, connect          socket    what the launcher is told, and what the kernel is given in place of the program's address
//!   getsockname, getpeername       name      the addresses that a program is told
//!   accept, accept4                  "
//!                                  ask       a request to the launcher and its answer
//!                                  address   the program's addresses, read and written
//! ```
//!
//! What is not about a TCP socket is passed on as it came; without a launcher in the environment, or one that is gone, all of it. A
//! program that makes system calls by itself, or is linked statically, is not met.
#![expect(unsafe_code, reason = "stands in for functions of the C library, whose arguments are raw")]

mod address;
mod ask;
mod name;
mod socket;
