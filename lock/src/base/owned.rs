//! Whose files these are. What another user could put in the place of ours is not trusted: neither a store, which grants
//! locks, nor a token, which lets people in.
//!
//! # What is trusted
//! A file of ours or of root's that no other user can write, in a folder of which the same holds, or where only
//! owners may take files away (`/tmp`). Our own primary group may write: where users have groups of their own that is
//! the default.
//!
//! # Not promised
//! Nothing is said of the folders above that folder.

use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Why a file or a folder is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stranger {
    /// A symbolic link: it could lead anywhere tomorrow.
    #[error("{} is a symbolic link; name the file that it leads to", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// It belongs to another user.
    #[error(
        "{} belongs to user {owner}, and this is user {us}; use a file in a folder of your own, or run as that user",
        path.display()
    )]
    Owner {
        /// The file or the folder.
        path: PathBuf,
        /// The user it belongs to.
        owner: u32,
        /// The user of this process.
        us: u32,
    },
    /// Others can write it.
    #[error(
        "{} can be written by other users (mode {mode:03o}); take that right away with chmod {}, or use a folder of your own",
        path.display(),
        remedy(*mode)
    )]
    Writable {
        /// The file or the folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Others can read what is for us alone.
    #[error("{} can be read by other users (mode {mode:03o}); remove it, and start the workers again", path.display())]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// What the system says of a file, as far as it matters here.
#[derive(Clone, Copy, Debug)]
struct Facts {
    owner: u32,
    group: u32,
    mode: u32,
    folder: bool,
}

/// The user of this process.
#[derive(Clone, Copy, Debug)]
struct Us {
    user: u32,
    group: u32,
}

/// Looks at the folder of a store, its file, and what stands beside it. What is missing belongs to no user.
///
/// # Errors
/// [`Stranger`]: the first of them that is not to be trusted.
pub fn store(path: &Path) -> Result<(), Stranger> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Links among folders are fine (`/var/run`): what they lead to is looked at.
    if let Ok(found) = fs::metadata(folder) {
        judge(folder, facts(&found), us())?;
    }
    for ending in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        file(Path::new(&name))?;
    }
    Ok(())
}

/// Looks at one file; a link is none.
///
/// # Errors
/// [`Stranger`]
pub fn file(path: &Path) -> Result<(), Stranger> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if found.is_symlink() {
        return Err(Stranger::Link { path: path.into() });
    }
    judge(path, facts(&found), us())
}

/// Whether this is something of ours that others can neither read nor write.
///
/// # Errors
/// [`Stranger`]
pub fn private(path: &Path, found: &Metadata) -> Result<(), Stranger> {
    let (facts, us) = (facts(found), us());
    if found.is_symlink() {
        return Err(Stranger::Link { path: path.into() });
    }
    if facts.owner != us.user {
        return Err(Stranger::Owner {
            path: path.into(),
            owner: facts.owner,
            us: us.user,
        });
    }
    match facts.mode & 0o077 {
        0 => Ok(()),
        _ => Err(Stranger::Readable {
            path: path.into(),
            mode: facts.mode & 0o777,
        }),
    }
}

/// The user of this process.
#[must_use]
pub fn user() -> u32 {
    us().user
}

fn judge(path: &Path, facts: Facts, us: Us) -> Result<(), Stranger> {
    const ROOT: u32 = 0;
    const STICKY: u32 = 0o1000;
    if facts.owner != us.user && facts.owner != ROOT {
        return Err(Stranger::Owner {
            path: path.into(),
            owner: facts.owner,
            us: us.user,
        });
    }
    // There every user can add files, and none can take away those of others.
    if facts.folder && facts.mode & STICKY != 0 {
        return Ok(());
    }
    let group = facts.mode & 0o020 != 0 && facts.group != us.group && facts.group != ROOT;
    if group || facts.mode & 0o002 != 0 {
        return Err(Stranger::Writable {
            path: path.into(),
            mode: facts.mode & 0o777,
        });
    }
    Ok(())
}

fn facts(found: &Metadata) -> Facts {
    Facts {
        owner: found.uid(),
        group: found.gid(),
        mode: found.mode() & 0o7777,
        folder: found.is_dir(),
    }
}

fn us() -> Us {
    Us {
        user: rustix::process::geteuid().as_raw(),
        group: rustix::process::getegid().as_raw(),
    }
}

fn remedy(mode: u32) -> &'static str {
    match mode & 0o002 {
        0 => "g-w",
        _ => "go-w",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ME: Us = Us {
        user: 1000,
        group: 1000,
    };

    fn judged(owner: u32, group: u32, mode: u32, folder: bool) -> bool {
        let facts = Facts {
            owner,
            group,
            mode,
            folder,
        };
        judge(Path::new("x"), facts, ME).is_ok()
    }

    #[test]
    fn what_others_could_have_put_there_is_not_trusted() {
        for (owner, group, mode, folder, trusted) in [
            (1000, 1000, 0o600, false, true),
            (1000, 1000, 0o644, false, true),
            (0, 0, 0o755, true, true),
            (1001, 1000, 0o600, false, false),
            (1001, 1001, 0o1777, true, false),
            (1000, 1000, 0o666, false, false),
            (1000, 1000, 0o777, true, false),
            (0, 0, 0o1777, true, true),
            // A group of one's own, and one that is shared.
            (1000, 1000, 0o775, true, true),
            (1000, 50, 0o775, true, false),
            (1000, 50, 0o660, false, false),
        ] {
            let shown = judged(owner, group, mode, folder);
            assert_eq!(shown, trusted, "{owner}:{group} {mode:o} folder: {folder}");
        }
    }

    #[test]
    fn a_link_is_no_file_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(store(&real), Ok(()));
        assert_eq!(store(&link), Err(Stranger::Link { path: link.clone() }));
        // Also beside the file.
        let wal = folder.path().join("real-wal");
        std::os::unix::fs::symlink("/dev/null", &wal).unwrap();
        assert_eq!(store(&real), Err(Stranger::Link { path: wal }));
    }

    #[test]
    fn an_error_says_what_to_do() {
        let open = Stranger::Writable {
            path: "/srv/x".into(),
            mode: 0o777,
        };
        assert_eq!(
            open.to_string(),
            "/srv/x can be written by other users (mode 777); take that right away with chmod go-w, or use a folder \
             of your own"
        );
    }
}
