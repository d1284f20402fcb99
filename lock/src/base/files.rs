//! Files that a user named: read and appended to without ever waiting for another process at the other end.
//!
//! A pipe is opened when another process opens its other end, which may be never; a device may have no end. What is
//! named in a configuration is meant to be a file, so that anything else is refused by its kind.
//!
//! # Invariants
//! - F1 Nothing here waits for another process.   (what_is_no_file_is_refused_at_once)
//! - F2 No more than the limit is read, whatever the file says of its size.   (a_file_that_is_too_long_is_refused)

use std::{
    fs::{self, File, FileType, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::OFlags;

/// More than any configuration, certificate or secret needs: 16 MiB.
pub const MOST: u64 = 16 << 20;

/// What stands in a regular file of [`MOST`] bytes at most. Links are followed.
///
/// # Errors
/// When it cannot be read, is of another kind (a pipe, a device, a directory, a socket), or is longer.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_upto(path, MOST)
}

/// The same as text.
///
/// # Errors
/// As [`read`], and when it is no UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"))
}

/// Opens a regular file for reading; nothing is read.
///
/// # Errors
/// As [`read`].
pub fn open(path: &Path) -> io::Result<File> {
    // Before it is opened: opening a device may do something.
    regular(fs::metadata(path)?.file_type())?;
    let file = waiting_for_nobody().read(true).open(path)?;
    // And after it, because what stands there may have changed.
    regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// Opens a file for appending, and makes it when it is missing. `/dev/null` and `/dev/stderr` are let through, and a
/// pipe with a reader: what finds no room in it is an error at once.
///
/// # Errors
/// When it cannot be opened, or is a socket, a directory, a block device or a pipe without a reader.
pub fn append(path: &Path) -> io::Result<File> {
    let kind = |kind: FileType| match kind.is_char_device() || kind.is_fifo() {
        true => Ok(()),
        false => regular(kind),
    };
    match fs::metadata(path) {
        Ok(about) => kind(about.file_type())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = waiting_for_nobody().append(true).create(true).open(path)?;
    kind(file.metadata()?.file_type())?;
    Ok(file)
}

fn read_upto(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    open(path)?.take(most + 1).read_to_end(&mut found)?;
    if found.len() as u64 > most {
        let text = format!("it is longer than {most} bytes, which is the most that is read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(found)
}

fn waiting_for_nobody() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    options.custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
    options
}

fn regular(kind: FileType) -> io::Result<()> {
    let what = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    let text = format!("it is {what}, and not a file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FileType as Kind, Mode};

    use super::*;

    /// What stands in a folder and is no file: a pipe without a writer, a folder, a socket, a device.
    fn odd(folder: &Path) -> [(std::path::PathBuf, &'static str); 4] {
        let (pipe, socket) = (folder.join("pipe"), folder.join("socket"));
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, Kind::Fifo, mode, 0).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        [
            (pipe, "a pipe"),
            (folder.to_owned(), "a directory"),
            (socket, "a socket"),
            ("/dev/zero".into(), "a device"),
        ]
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for (path, what) in odd(folder.path()) {
            let why = read(&path).unwrap_err().to_string();
            assert_eq!(why, format!("it is {what}, and not a file"));
            let appended = append(&path);
            assert_eq!(appended.is_ok(), what == "a device", "{what}");
            // As they are opened for appending, with a reader at the other end.
            if what == "a pipe" {
                let _reader = waiting_for_nobody().read(true).open(&path).unwrap();
                assert!(append(&path).is_ok());
            }
        }
        let missing = read(&folder.path().join("none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_is_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "12345678").unwrap();
        assert_eq!(read_upto(&path, 8).unwrap(), b"12345678");
        let why = read_upto(&path, 7).unwrap_err().to_string();
        assert!(why.contains("longer than 7 bytes"), "{why}");
        // As a hole it takes no room, and no time to refuse.
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(MOST + 1)
            .unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn what_is_no_text_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [0xff, 0xfe]).unwrap();
        let why = read_to_string(&path).unwrap_err().to_string();
        assert_eq!(why, "it is no text in UTF-8");
    }

    #[test]
    fn a_file_is_appended_to_through_its_link() {
        use std::io::Write;
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for word in ["one", "two"] {
            append(&link).unwrap().write_all(word.as_bytes()).unwrap();
        }
        assert_eq!(read_to_string(&link).unwrap(), "onetwo");
    }
}
