//! Object pools over pinned memory with per-lcore caches, and mbufs.
