//! Header views that never panic, Internet checksum and Toeplitz hash.
