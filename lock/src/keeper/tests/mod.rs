//! The keeper over nodes in memory, by what happens to it.

mod broken;
mod crowd;
mod ends;
mod margin;
mod returns;
mod silent;
