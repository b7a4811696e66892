//! `doctor` on made-up machines: what it prints, its status, and that nothing in a tree of files harms it.

mod golden;
mod hostile;
mod program;
mod tree;
