//! Programs that nobody here wrote, and small ones of Python, over RDMA between two device models; and `rsock-run` itself.

mod bed;

mod kernel;
mod launcher;
mod real;
mod small;
