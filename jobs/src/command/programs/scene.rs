//! What stands ready when one of the commands begins.

use super::{run::Program, signals::Signals, store::Open, voice::Voice};

/// What stands ready when one of the commands begins.
pub(super) struct Scene {
    pub(super) open: Open,
    pub(super) signals: Signals,
    pub(super) program: Program,
    pub(super) voice: Voice,
}
