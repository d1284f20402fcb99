//! As what this program was started, and whether it can be started so.

use std::{
    io,
    os::unix::net::UnixStream,
    sync::atomic::{AtomicBool, Ordering},
};

/// This program, also when its file was replaced since.
pub(super) const PROGRAM: &str = "/proc/self/exe";
/// The guard's name for itself; other than the program's, so that a `pkill` by name does not hit both.
pub(super) const GUARD: &str = "wk-guard";
pub(super) const SHIM: &str = "wk-shim";

/// Whether this program can be a guard.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Notes that this program can be a guard.
pub(super) fn serves() {
    SERVES.store(true, Ordering::Relaxed);
}

pub(super) fn can_serve() -> bool {
    SERVES.load(Ordering::Relaxed)
}

/// The socket that a guard or a shim is started with, as its input.
pub(super) fn control() -> io::Result<UnixStream> {
    let socket = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    Ok(UnixStream::from(socket))
}
