//! A SQLite file as a node.
