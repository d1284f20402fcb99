//! A Redis master as a node.
