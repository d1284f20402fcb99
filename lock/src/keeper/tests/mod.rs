//! The keeper over nodes in memory, by what happens to it.

mod broken;
mod crowd;
mod ends;
mod fronts;
mod margin;
mod returns;
mod silent;
