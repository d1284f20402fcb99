//! The keeper over nodes in memory, by what happens to it.

mod broken;
mod crowd;
mod ends;
mod fronts;
mod long_records;
mod margin;
mod returns;
mod silent;
