//! Programs that nobody here wrote, straight from Debian's packages, on devices of `mlx5-run`; and `mlx5-run` itself.

mod bed;

mod client;
mod connections;
mod daemon;
mod fork;
mod launcher;
mod manager_file;
mod ours;
mod perftest;
mod pingpong;
mod seed;
mod stepped;
mod summary;
mod trace;
mod udpong;
