//! The ledger: which ticks are decided.
