//! Whether the store's file can be made and used where the configuration wants it.

use std::path::Path;

use super::LockSettings;
use crate::finding::Findings;

/// The file of the embedded store, from the root of the file system: its reader may stand elsewhere.
pub(crate) fn shown(locks: &LockSettings) -> String {
    let path = &locks.embedded.path;
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    whole.display().to_string()
}

/// Adds an error when another user could have made or could change the file at `path`.
pub(super) fn check_owner(key: &str, path: &Path, root: &Path, found: &mut Findings) {
    if let Err(stranger) = crate::owned::store(&root.join(path)) {
        let text = stranger.to_string();
        let (message, remedy) = text.split_once("; ").unwrap_or((&text, ""));
        found.error(&[key], message, remedy);
    }
}

/// Adds an error when no file can be made at `path`, without making anything.
pub(super) fn check_writable(key: &str, path: &Path, root: &Path, found: &mut Findings) {
    let file = root.join(path);
    let shown = path.display();
    if path.as_os_str().is_empty() {
        found.error(
            &[key],
            "the path is empty",
            "name a file, or leave the key out",
        );
        return;
    }
    if file.is_dir() {
        found.error(
            &[key],
            format!("{shown} is a directory"),
            "name a file in it",
        );
        return;
    }
    if file.exists() && !file.is_file() {
        found.error(
            &[key],
            format!("{shown} is a pipe, a socket or a device"),
            "name a file",
        );
        return;
    }
    let mut nearest = file.as_path();
    while !nearest.exists() {
        let Some(above) = nearest
            .parent()
            .filter(|above| !above.as_os_str().is_empty())
        else {
            break;
        };
        nearest = above;
    }
    let nearest = if nearest.as_os_str().is_empty() {
        Path::new(".")
    } else {
        nearest
    };
    if nearest != file && nearest.exists() && !nearest.is_dir() {
        let message = format!(
            "{shown} cannot be made: {} is no directory",
            nearest.display()
        );
        found.error(&[key], message, "use another path");
        return;
    }
    // A store writes files beside its own, too.
    let beside = nearest.parent().filter(|_| nearest == file);
    for place in [Some(nearest), beside].into_iter().flatten() {
        if let Err(cause) = rustix::fs::access(place, rustix::fs::Access::WRITE_OK) {
            let message = format!("{shown} cannot be written: {}: {cause}", place.display());
            found.error(
                &[key],
                message,
                "use another path, or let this user write there",
            );
            return;
        }
    }
}
