//! The token of the status page, when none is configured: a file for this user alone.
//!
//! The workers of one user that share a store share the file; the first one makes it, whole or not at all, and it stays. To
//! have another one, remove it and start the workers again.
//!
//! # Where
//! Beside the embedded store, as `STORE.token`. For other stores `NAMESPACE.token` in the first of these that is there and
//! ours: `/run/watchkeeper` (which systemd makes), `$XDG_RUNTIME_DIR/watchkeeper`, `/run/user/UID/watchkeeper`, and else
//! `watchkeeper-UID` in the folder for temporary files.
//!
//! # Invariants
//! - No other user could have made the file or can read it: it is refused otherwise. (a_token_of_somebody_else_is_refused)
//! - Workers that start at the same instant have one token.                        (all_who_start_at_once_share_one_token)

use std::{
    env, fs, io,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use crate::{
    config::{Backend, Config},
    owned::{self, Stranger},
    secret::Secret,
};

/// Fewer characters are no token of ours, and could be guessed.
const SHORTEST: usize = 32;
/// More are no token either.
const LONGEST: u64 = 256;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// No worker has made one.
    #[error("{} is not there: no worker of this user has served the status page of this store here", .0.display())]
    Missing(PathBuf),
    /// Another user could know it.
    #[error(transparent)]
    Stranger(#[from] Stranger),
    /// It cannot be one.
    #[error("{} holds no token; remove it, and start the workers again", .0.display())]
    NoToken(PathBuf),
    /// The system does not let us.
    #[error("{} cannot be used: {source}", path.display())]
    System { path: PathBuf, source: io::Error },
}

/// What a folder for files that live as long as the machine runs is chosen by.
struct Places {
    user: u32,
    runtime: Option<PathBuf>,
    temporary: PathBuf,
}

/// The token of this configuration's workers, and its file.
///
/// # Errors
/// [`TokenError`]
#[cfg(feature = "cli")]
pub(crate) fn find(config: &Config) -> Result<(Secret, PathBuf), TokenError> {
    let path = place(config, &Places::here(), false)?;
    Ok((read(&path)?, path))
}

/// The same; made when it is missing.
///
/// # Errors
/// [`TokenError`]; but nothing is missing.
#[cfg(feature = "admin")]
pub(crate) fn obtain(
    config: &Config,
    chance: &crate::chance::Chance,
) -> Result<(Secret, PathBuf), TokenError> {
    let path = place(config, &Places::here(), true)?;
    let token = obtain_at(&path, chance)?;
    Ok((token, path))
}

#[cfg(feature = "admin")]
fn obtain_at(path: &Path, chance: &crate::chance::Chance) -> Result<Secret, TokenError> {
    match read(path) {
        Err(TokenError::Missing(_)) => {}
        other => return other,
    }
    let token = format!("{}{}", chance.id(), chance.id());
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", chance.id()));
    let draft = PathBuf::from(draft);
    let made = write(&draft, &token).and_then(|()| match fs::hard_link(&draft, path) {
        // Another worker was first: its token is that of all.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let _ = fs::remove_file(&draft);
    made.map_err(|source| system(path, source))?;
    read(path)
}

#[cfg(feature = "admin")]
fn write(path: &Path, token: &str) -> io::Result<()> {
    use std::io::Write;

    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{token}")?;
    // A file that was cut short by a failure of power would lock all users out.
    file.sync_all()
}

/// Reads a file that no other user can have made, or can read. Never waits, whatever stands there.
fn read(path: &Path) -> Result<Secret, TokenError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(i32::from_ne_bytes(flags.bits().to_ne_bytes()))
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(TokenError::Missing(path.into()));
        }
        Err(source) => {
            // A link and a file of others have a better reason than that it cannot be opened.
            if let Ok(found) = fs::symlink_metadata(path) {
                owned::private(path, &found)?;
            }
            return Err(system(path, source));
        }
    };
    let found = file.metadata().map_err(|source| system(path, source))?;
    owned::private(path, &found)?;
    if !found.is_file() {
        return Err(TokenError::NoToken(path.into()));
    }
    let mut text = String::new();
    let read = file.take(LONGEST + 1).read_to_string(&mut text);
    read.map_err(|_| TokenError::NoToken(path.into()))?;
    let token = text.trim();
    let fits = token.len() >= SHORTEST
        && text.len() as u64 <= LONGEST
        && token.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match fits {
        true => Ok(Secret::new(token)),
        false => Err(TokenError::NoToken(path.into())),
    }
}

/// Where the token lies; with `make` the folder is made that it wants.
fn place(config: &Config, places: &Places, make: bool) -> Result<PathBuf, TokenError> {
    match config.locks.backend {
        Backend::Embedded => {
            let mut path = config.locks.embedded.path.clone().into_os_string();
            path.push(".token");
            Ok(path.into())
        }
        Backend::Memory | Backend::Redis | Backend::Postgres | Backend::Etcd => {
            let name = format!("{}.token", config.worker.namespace);
            Ok(places.folder(make)?.join(name))
        }
    }
}

fn system(path: &Path, source: io::Error) -> TokenError {
    TokenError::System {
        path: path.into(),
        source,
    }
}

// === impl Places ===

impl Places {
    fn here() -> Self {
        Self {
            user: owned::user(),
            runtime: env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
            temporary: env::temp_dir(),
        }
    }

    fn folder(&self, make: bool) -> Result<PathBuf, TokenError> {
        let of_systemd = PathBuf::from("/run/watchkeeper");
        if self.is_ours(&of_systemd) {
            return Ok(of_systemd);
        }
        let of_user = PathBuf::from(format!("/run/user/{}", self.user));
        let runtime = self.runtime.iter().filter(|path| path.is_absolute());
        let mut runtime = runtime.chain([&of_user]).filter(|path| self.is_ours(path));
        let folder = match runtime.next() {
            Some(folder) => folder.join("watchkeeper"),
            // Any user can make this one before us: then it is not ours, and is refused.
            None => self.temporary.join(format!("watchkeeper-{}", self.user)),
        };
        if make {
            use std::os::unix::fs::DirBuilderExt;
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => other.map_err(|source| system(&folder, source))?,
            }
        }
        match fs::symlink_metadata(&folder) {
            Ok(found) => owned::private(&folder, &found)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(system(&folder, source)),
        }
        Ok(folder)
    }

    /// A folder of this user's that no other user can write.
    fn is_ours(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        fs::symlink_metadata(path).is_ok_and(|found| {
            found.is_dir() && found.uid() == self.user && found.mode() & 0o022 == 0
        })
    }
}

#[cfg(all(test, feature = "admin"))]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::chance::Chance;

    fn token_in(folder: &Path) -> Result<Secret, TokenError> {
        obtain_at(&folder.join("store.db.token"), &Chance::system())
    }

    #[test]
    fn a_token_is_for_its_user_alone_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let token = token_in(folder.path()).unwrap();
        assert!(token.expose().len() >= SHORTEST);
        let found = fs::metadata(folder.path().join("store.db.token")).unwrap();
        assert_eq!(found.mode() & 0o777, 0o600);
        assert_eq!(token_in(folder.path()).unwrap().expose(), token.expose());
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 1, "no draft is left");
    }

    #[test]
    fn all_who_start_at_once_share_one_token() {
        let folder = tempfile::tempdir().unwrap();
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let start = || token_in(folder.path()).unwrap().expose().to_owned();
            let all: Vec<_> = (0..16).map(|_| scope.spawn(start)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|token| *token == tokens[0]));
    }

    #[test]
    fn a_token_of_somebody_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db.token");
        let refused = || token_in(folder.path()).unwrap_err();
        token_in(folder.path()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = refused();
        assert!(
            matches!(error, TokenError::Stranger(Stranger::Readable { .. })),
            "{error}"
        );
        assert!(error.to_string().contains("remove it"), "{error}");

        fs::remove_file(&path).unwrap();
        let real = folder.path().join("real");
        fs::write(&real, "0123456789abcdef0123456789abcdef").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&real, &path).unwrap();
        let error = refused();
        assert!(
            matches!(error, TokenError::Stranger(Stranger::Link { .. })),
            "{error}"
        );

        if owned::user() == 0 {
            fs::remove_file(&path).unwrap();
            token_in(folder.path()).unwrap();
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let error = refused();
            assert!(
                matches!(error, TokenError::Stranger(Stranger::Owner { .. })),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_no_token_is_refused_and_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db.token");
        for text in [
            "",
            "short",
            &"x".repeat(1000),
            "0123456789abcdef0123456789abcde\u{1b}",
            "\u{0}",
        ] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let error = token_in(folder.path()).unwrap_err();
            assert!(matches!(error, TokenError::NoToken(_)), "{error}");
            fs::remove_file(&path).unwrap();
        }
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = token_in(folder.path()).unwrap_err();
        assert!(matches!(error, TokenError::NoToken(_)), "{error}");
    }

    #[test]
    fn a_token_lies_beside_the_store_or_where_this_user_keeps_what_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        let places = |runtime: &str| Places {
            // No files are here, but in the folder that the test makes.
            user: owned::user(),
            runtime: Some(folder.path().join(runtime)),
            temporary: folder.path().to_owned(),
        };
        let beside = place(&config, &places("run"), true).unwrap();
        assert_eq!(beside, Path::new(".watchkeeper/store.db.token"));
        config.locks.backend = Backend::Redis;
        fs::create_dir(folder.path().join("run")).unwrap();
        let found = place(&config, &places("run"), true).unwrap();
        if !Path::new("/run/watchkeeper").exists() {
            assert_eq!(
                found,
                folder.path().join("run/watchkeeper/watchkeeper.token")
            );
            let made = fs::metadata(found.parent().unwrap()).unwrap();
            assert_eq!(made.mode() & 0o777, 0o700);
        }
        // One that others can write is none, and neither is a folder that was opened to them.
        let open = fs::Permissions::from_mode(0o777);
        let all = folder.path().join(format!("watchkeeper-{}", owned::user()));
        fs::create_dir(&all).unwrap();
        fs::set_permissions(&all, open).unwrap();
        let nowhere = Places {
            user: owned::user(),
            runtime: None,
            temporary: folder.path().to_owned(),
        };
        let of_user = format!("/run/user/{}", owned::user());
        if !Path::new("/run/watchkeeper").exists() && !Path::new(&of_user).exists() {
            let error = place(&config, &nowhere, true).unwrap_err();
            assert!(error.to_string().contains("other users"), "{error}");
        }
    }
}
