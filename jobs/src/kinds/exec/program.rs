//! Finds a program before it is needed, the way execvp(3) will.

use std::{
    env,
    ffi::OsStr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Where `name` would be found in `path` (when it has no slash) or from `cwd`; else what is wrong and what would help.
pub(super) fn find(name: &str, path: &OsStr, cwd: Option<&Path>) -> Result<PathBuf, String> {
    let from = cwd.unwrap_or(Path::new("."));
    if name.contains('/') {
        // Without what `./` in both says twice.
        let file: PathBuf = from.join(name).components().collect();
        return match state(&file) {
            State::Runs => Ok(file),
            State::CannotRun => Err(format!(
                "{} is not an executable file; chmod +x it, or name the interpreter first",
                file.display()
            )),
            State::Missing => Err(format!("there is no program {}", file.display())),
        };
    }
    let mut blocked = None;
    for folder in env::split_paths(path) {
        let file = from.join(folder).join(name);
        match state(&file) {
            State::Runs => return Ok(file),
            State::CannotRun => blocked = Some(file),
            State::Missing => {}
        }
    }
    Err(match blocked {
        Some(file) => format!("{} is not an executable file; chmod +x it", file.display()),
        None => format!(
            "there is no program {name} in PATH ({}); install it or write its whole path",
            path.to_string_lossy()
        ),
    })
}

enum State {
    Runs,
    CannotRun,
    Missing,
}

fn state(file: &Path) -> State {
    match file.metadata() {
        Ok(about) if about.is_file() && about.permissions().mode() & 0o111 != 0 => State::Runs,
        Ok(_) => State::CannotRun,
        Err(_) => State::Missing,
    }
}
