//! Where the file lies, and whether it is one file for all processes that use it.
//!
//! SQLite excludes by locks of the kernel on three inodes: the file and, found by its name, `-wal` and `-shm` beside it. Two
//! processes that reach one file under two names, or one name on two kernels, have different ones and both hold the same
//! locks. What can be seen of that is judged here, in plain functions of what was read.

use std::{
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use super::error::OpenError;

/// Device and inode.
pub(super) type Inode = (u64, u64);

/// The file and what SQLite keeps beside it.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) main: PathBuf,
    pub(super) wal: PathBuf,
    pub(super) shm: PathBuf,
}

/// What stands under these names now; `None` is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Inodes {
    pub(super) main: Option<Inode>,
    pub(super) wal: Option<Inode>,
    pub(super) shm: Option<Inode>,
    /// Names of the file itself.
    pub(super) links: u64,
}

/// Whether the open file is still what stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Still {
    Ours,
    /// It has another name, under which another process could use it with a log of its own.
    Linked(u64),
    /// What others find there is not what is open here.
    Gone(&'static str),
}

// === impl Inodes ===

impl Inodes {
    /// Whether these are the same three files.
    pub(super) fn are(&self, others: &Self) -> bool {
        (self.main, self.wal, self.shm) == (others.main, others.wal, others.shm)
    }
}

// === impl Names ===

impl Names {
    pub(super) fn of(path: &Path) -> Self {
        Self {
            main: path.to_owned(),
            wal: beside(path, "-wal"),
            shm: beside(path, "-shm"),
        }
    }

    pub(super) fn all(&self) -> [&Path; 3] {
        [&self.main, &self.wal, &self.shm]
    }

    /// One stat(2) of each: a microsecond or two.
    pub(super) fn look(&self) -> io::Result<Inodes> {
        let main = stat(&self.main)?;
        Ok(Inodes {
            main: main.map(|(inode, _)| inode),
            links: main.map_or(0, |(_, links)| links),
            wal: stat(&self.wal)?.map(|(inode, _)| inode),
            shm: stat(&self.shm)?.map(|(inode, _)| inode),
        })
    }
}

pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn stat(path: &Path) -> io::Result<Option<(Inode, u64)>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(((found.dev(), found.ino()), found.nlink()))),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Nothing stands there. Any other error says nothing about what does.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Compares what is open with what stands there.
pub(super) fn still(open: &Inodes, now: &Inodes) -> Still {
    if now.main.is_none() {
        Still::Gone("the file was removed or moved away")
    } else if now.main != open.main {
        Still::Gone("another file was put in its place")
    } else if now.wal != open.wal {
        Still::Gone("its -wal was removed or replaced")
    } else if now.shm != open.shm {
        Still::Gone("its -shm was removed or replaced")
    } else if now.links > 1 {
        Still::Linked(now.links)
    } else {
        Still::Ours
    }
}

/// Refuses a place where others could use the same file unseen. `names` are absolute, and exist or not.
pub(super) fn check(names: &Names) -> Result<(), OpenError> {
    // What cannot be read shows nothing; the file system is asked all the same.
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let folder = names.main.parent().unwrap_or(Path::new("/"));
    // Mounts are listed without links: those among the folders are followed.
    let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let real = |path: &Path| real.join(path.file_name().unwrap_or_default());
    for name in names.all() {
        if is_mount_point(&mounts, &real(name)) {
            return Err(OpenError::Mounted { path: name.into() });
        }
    }
    for place in [folder, &names.main] {
        // What is missing has its folder's, and the next step fails with a better reason than this one.
        let Ok(stat) = rustix::fs::statfs(place) else {
            continue;
        };
        let kind = mount_of(&mounts, &real(&names.main));
        if let Some(kind) = shared_kind(stat.f_type as u64 & 0xffff_ffff, kind) {
            return Err(OpenError::NetworkFileSystem {
                path: names.main.clone(),
                kind,
            });
        }
    }
    match fs::metadata(&names.main) {
        // A folder has a name for each of its own.
        Ok(found) if found.is_file() && found.nlink() > 1 => Err(OpenError::Linked {
            path: names.main.clone(),
            links: found.nlink(),
        }),
        _ => Ok(()),
    }
}

/// Why a file system with this magic number of statfs(2) and this type in mountinfo is refused; `None` for a local one.
pub(super) fn shared_kind(magic: u64, mount: Option<&str>) -> Option<String> {
    let kind = match (magic, mount) {
        (0x6573_5546, Some("fuse.fuse-overlayfs" | "fuseblk")) => {
            // The root of a container, and a disk of this machine: one kernel sees all that is done there.
            return None;
        }
        (0x6573_5546, Some(kind)) if kind != "fuse" => return Some(format!("FUSE, {kind}")),
        (0x6573_5546, _) => "FUSE",
        (0x0102_1997, _) => "9p",
        (0x786f_4256, _) => "vboxsf",
        (0xbacb_acbc, _) => "vmhgfs",
        (magic, _) => network_kind(magic)?,
    };
    Some(kind.to_owned())
}

/// The name of a network file system by its magic number in statfs(2).
fn network_kind(magic: u64) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x517b => Some("SMB"),
        0xff53_4d42 => Some("CIFS"),
        0xfe53_4d42 => Some("SMB 2"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x00c3_6400 => Some("Ceph"),
        0x7375_7245 => Some("Coda"),
        0x564c => Some("NCP"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x2003_0528 => Some("OrangeFS"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        0x4750_4653 => Some("GPFS"),
        0x1983_0326 => Some("BeeGFS"),
        _ => None,
    }
}

/// Whether something is mounted on exactly this.
fn is_mount_point(mountinfo: &[u8], path: &Path) -> bool {
    mounts(mountinfo).any(|(point, _)| point == path.as_os_str().as_bytes())
}

/// The type of the mount on which this lies: of the longest mount point above it the last, which hides the others.
fn mount_of<'a>(mountinfo: &'a [u8], path: &Path) -> Option<&'a str> {
    let above = mounts(mountinfo).filter(|(point, _)| {
        let point = Path::new(std::ffi::OsStr::from_bytes(point));
        path.starts_with(point)
    });
    let nearest = above.max_by_key(|(point, _)| point.len());
    nearest.map(|(_, kind)| kind)
}

/// Mount points and types of mountinfo; see proc_pid_mountinfo(5). Paths stand there in any encoding.
fn mounts(mountinfo: &[u8]) -> impl Iterator<Item = (Vec<u8>, &str)> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(|line| {
        // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
        let mut fields = line.split(|byte| *byte == b' ');
        let point = fields.nth(4)?;
        fields.find(|field| *field == b"-")?;
        let kind = std::str::from_utf8(fields.next()?).ok()?;
        Some((unescape(point), kind))
    })
}

/// Blanks, tabs, line ends and backslashes stand there as `\ooo`.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
    let (mut found, mut i) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(i) {
        let digits = bytes.get(i + 1..i + 4).filter(|_| *byte == b'\\');
        match digits.and_then(octal) {
            Some(escaped) => {
                found.push(escaped);
                i += 4;
            }
            None => {
                found.push(*byte);
                i += 1;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container with a folder and a file of its host, a share and the root of fuse-overlayfs.
    const MOUNTS: &[u8] = b"\
        22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        27 1 0:40 / / rw,relatime - fuse.fuse-overlayfs fuse-overlayfs rw,user_id=0\n\
        30 27 254:0 /srv/data /data rw,relatime shared:1 - ext4 /dev/vda rw\n\
        31 30 254:0 /srv/one.db /data/one.db rw,relatime - ext4 /dev/vda rw\n\
        32 27 0:41 / /mnt/my\\040share rw,relatime - fuse.sshfs host:/ rw\n\
        33 27 254:0 / /twice rw,relatime - ext4 /dev/vda rw\n\
        34 33 0:42 / /twice rw,relatime - virtiofs share rw\n\
        35 27 0:43 / /mnt/B\xfccher rw,relatime - fuse.sshfs host:/B\xfccher rw\n\
        nonsense\n";

    #[test]
    fn a_file_that_is_mounted_alone_is_told_from_a_file_in_a_mounted_folder() {
        let mounted = |path: &str| is_mount_point(MOUNTS, Path::new(path));
        assert!(mounted("/data/one.db"));
        assert!(mounted("/mnt/my share"), "blanks are escaped there");
        assert!(!mounted("/data/two.db") && !mounted("/data/one.db-wal"));
    }

    #[test]
    fn the_nearest_and_last_mount_above_a_file_is_its_own() {
        let of = |path: &str| mount_of(MOUNTS, Path::new(path));
        assert_eq!(of("/var/store.db"), Some("fuse.fuse-overlayfs"));
        assert_eq!(of("/data/store.db"), Some("ext4"));
        assert_eq!(of("/database/store.db"), Some("fuse.fuse-overlayfs"));
        assert_eq!(of("/mnt/my share/a/store.db"), Some("fuse.sshfs"));
        assert_eq!(of("/twice/store.db"), Some("virtiofs"));
        assert_eq!(mount_of(b"", Path::new("/x")), None);
    }

    #[test]
    fn a_mount_point_in_another_encoding_hides_neither_itself_nor_others() {
        let latin = Path::new(std::ffi::OsStr::from_bytes(b"/mnt/B\xfccher"));
        assert!(is_mount_point(MOUNTS, latin));
        let of = |path: &Path| mount_of(MOUNTS, path);
        assert_eq!(of(&latin.join("store.db")), Some("fuse.sshfs"));
        assert_eq!(of(Path::new("/data/store.db")), Some("ext4"));
    }

    #[test]
    fn network_and_fuse_file_systems_are_known_by_name() {
        let kind = |magic, mount| shared_kind(magic, mount);
        assert_eq!(kind(0x6969, Some("nfs4")).as_deref(), Some("NFS"));
        assert_eq!(kind(0xff53_4d42, None).as_deref(), Some("CIFS"));
        assert_eq!(kind(0x0102_1997, Some("9p")).as_deref(), Some("9p"));
        let fuse = 0x6573_5546;
        assert_eq!(kind(fuse, None).as_deref(), Some("FUSE"));
        for (mount, shown) in [
            ("fuse.sshfs", "FUSE, fuse.sshfs"),
            ("virtiofs", "FUSE, virtiofs"),
        ] {
            assert_eq!(kind(fuse, Some(mount)).as_deref(), Some(shown));
        }
        // What a container's root may be made of, and a disk with the file system of another system.
        assert_eq!(kind(fuse, Some("fuse.fuse-overlayfs")), None);
        assert_eq!(kind(fuse, Some("fuseblk")), None);
        let local = [0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630, 0x0102_1994];
        assert!(local.into_iter().all(|magic| kind(magic, None).is_none()));
    }

    #[test]
    fn what_stands_there_is_compared_with_what_is_open() {
        let open = Inodes {
            main: Some((1, 10)),
            wal: Some((1, 11)),
            shm: Some((1, 12)),
            links: 1,
        };
        assert_eq!(still(&open, &open), Still::Ours);
        let gone = |now: Inodes| matches!(still(&open, &now), Still::Gone(_));
        // Removed, replaced, on another disk; then what lies beside it.
        assert!(gone(Inodes { main: None, ..open }));
        assert!(gone(Inodes {
            main: Some((1, 9)),
            ..open
        }));
        assert!(gone(Inodes {
            main: Some((2, 10)),
            ..open
        }));
        assert!(gone(Inodes { wal: None, ..open }));
        assert!(gone(Inodes {
            shm: Some((1, 13)),
            ..open
        }));
        let linked = Inodes { links: 2, ..open };
        assert_eq!(still(&open, &linked), Still::Linked(2));
    }
}
