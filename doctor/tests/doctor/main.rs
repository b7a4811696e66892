//! `doctor` on made-up machines: what it prints, its status, and that nothing in a tree of files harms it; and on device models.

mod golden;
mod hostile;
mod program;
mod show;
mod survey;
mod tree;
