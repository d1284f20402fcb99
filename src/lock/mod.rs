//! The lock: named resources, leases, fencing tokens.
pub mod settings;
pub use settings::LockSettings;
