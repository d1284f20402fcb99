//! An address of PostgreSQL servers: `postgres://USER:PASSWORD@HOST:PORT,HOST/DATABASE?sslmode=verify-full`.
//!
//! What is wrong with one is said here; its key and its remedy in `lock/src/settings/postgres.rs`.
//!
//! # Invariants
//! - P1 Nothing secret of an address is shown, not even of one that cannot be read.   (no_secret_of_an_address_is_shown)
//! - P2 A server that is reached over a network with TLS is always verified, against the name in the address. Who trusts a
//!   CA of their own names its file.                                     (every_mode_with_tls_is_verified)

use std::{
    fmt, fs,
    net::IpAddr,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::history::Used;
use crate::DurationExt;
use percent_encoding::percent_decode_str;
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

/// Where the database is, and how it is reached.
#[derive(Clone)]
pub struct PgAddress {
    config: Box<Config>,
    /// None when the address does not say.
    ssl_mode: Option<SslMode>,
    /// What the server is verified with.
    pub tls: TlsFiles,
    password_file: Option<PathBuf>,
    /// A pooler was found to stand there although it passes greetings on; known to all copies.
    is_shared: Arc<AtomicBool>,
    /// What is known of its servers; to all copies.
    used: Arc<Used>,
    /// Its servers are asked again and again; known to all copies.
    is_watched: Arc<AtomicBool>,
}

/// Held by the one task that asks the servers of an address again and again.
#[derive(Debug)]
pub(super) struct Turn(Arc<AtomicBool>);

/// Files that the address names.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// The CAs that sign servers; those of the system otherwise.
    pub root: Option<PathBuf>,
    /// The client's certificate.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

/// One of the servers.
#[derive(Clone)]
pub struct Server {
    /// Without anything secret.
    pub name: String,
    /// How it is reached.
    pub config: Config,
    /// Whether with TLS, at least where the server has it.
    pub tls: bool,
}

/// How an address is written.
const FORM: &str = "postgres://USER@HOST:PORT/DATABASE";
/// Options that are taken as they are, beside those of TLS.
const TAKEN: [&str; 15] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "options",
    "password",
    "port",
    "tcp_user_timeout",
    "user",
];
/// Options of PostgreSQL's own clients that have no effect here, so that they can be named: of any other word it is not known
/// whether it is part of a password.
const UNTAKEN_OPTIONS: [&str; 21] = [
    "client_encoding",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "keepalives_count",
    "krbsrvname",
    "load_balance_hosts",
    "passfile",
    "replication",
    "require_auth",
    "requirepeer",
    "service",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslnegotiation",
    "sslpassword",
    "sslsni",
];
/// One address of a name that does not answer is given up after this: less than half of what all of them may take.
const CONNECT: Duration = Duration::from_secs(2);
/// What was sent and not taken for so long breaks the connection.
const UNTAKEN: Duration = Duration::from_secs(10);
/// So often the other end of a connection that is silent is probed, once it was silent for longer.
const PROBED: Duration = Duration::from_secs(10);

// === impl PgAddress ===

impl PgAddress {
    /// Reads an address.
    ///
    /// # Errors
    /// A sentence that repeats nothing of the address but names of options.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The other form, of keys and values, has its own.
        if text.contains("://") && !is_encoded(text) {
            return Err(
                "has a % that begins no byte: write %XX, its two hexadecimal digits, and %25 for the % itself"
                    .to_owned(),
            );
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut rest = Vec::new();
        let mut tls = TlsFiles::default();
        let mut ssl_mode = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            let path = || Some(PathBuf::from(&value));
            match key {
                "sslmode" => ssl_mode = Some(mode(&value)?),
                "sslrootcert" if value == "system" => tls.root = None,
                "sslrootcert" => tls.root = path(),
                "sslcert" => tls.cert = path(),
                "sslkey" => tls.key = path(),
                // The first that takes writes is used in any case.
                "target_session_attrs" => takes_writes(&value)?,
                key if TAKEN.contains(&key) => rest.push(pair),
                key => return Err(untaken(key)),
            }
        }
        if tls.cert.is_some() != tls.key.is_some() {
            return Err("needs `sslcert` and `sslkey` together".to_owned());
        }
        let joined = match rest.is_empty() {
            true => base.to_owned(),
            false => format!("{base}?{}", rest.join("&")),
        };
        let Ok(config) = Config::from_str(&joined) else {
            // What is wrong with it could be a part of the password.
            return Err(format!(
                "is not a valid address of PostgreSQL; write {FORM}, with %XX for special characters of a password"
            ));
        };
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
        let ports = config.get_ports().len();
        if hosts == 0 {
            return Err(format!("names no host; write {FORM}"));
        }
        if ports > 1 && ports != hosts {
            return Err("has other numbers of hosts and ports".to_owned());
        }
        if config.get_user().is_none_or(str::is_empty) {
            return Err(format!("names no user; write {FORM}"));
        }
        Ok(Self {
            config: Box::new(config),
            ssl_mode,
            tls,
            password_file: None,
            is_shared: Arc::default(),
            used: Arc::default(),
            is_watched: Arc::default(),
        })
    }

    /// How many servers it names.
    pub(crate) fn hosts(&self) -> usize {
        let config = &self.config;
        config.get_hosts().len().max(config.get_hostaddrs().len())
    }

    /// For the task that is to ask its servers again and again, where there are several and no other task does.
    pub(super) fn watched(&self) -> Option<Turn> {
        let begins = self.hosts() > 1 && !self.is_watched.swap(true, Ordering::Relaxed);
        begins.then(|| Turn(Arc::clone(&self.is_watched)))
    }

    /// Whether there is another copy of it.
    pub(super) fn is_used_elsewhere(&self) -> bool {
        Arc::strong_count(&self.used) > 1
    }

    /// A connection was found to have been given to others.
    pub fn set_shared(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Whether one was.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// What is known of its servers.
    #[must_use]
    pub fn used(&self) -> &Used {
        &self.used
    }

    /// The same with a password, where the address has none.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        if self.config.get_password().is_none() {
            self.config.password(password);
        }
        self
    }

    /// The same with the password in a file.
    ///
    /// # Errors
    /// A sentence, where the address has a password as well.
    pub fn with_password_file(mut self, path: PathBuf) -> Result<Self, String> {
        if self.config.get_password().is_some() {
            return Err("is given beside a password in the address: keep one".to_owned());
        }
        self.password_file = Some(path);
        Ok(self)
    }

    /// The servers, in the order in which they are tried. Reads the password's file, so that a new password holds from the
    /// next connection on.
    ///
    /// # Errors
    /// A sentence, where that file cannot be read.
    pub fn servers(&self) -> Result<Vec<Server>, String> {
        let password = match &self.password_file {
            None => self.config.get_password().map(<[u8]>::to_vec),
            Some(path) => Some(password_in(path)?),
        };
        Ok((0..self.hosts())
            .map(|i| self.server(i, password.as_deref()))
            .collect())
    }

    fn server(&self, i: usize, password: Option<&[u8]>) -> Server {
        let from = &self.config;
        let mut config = Config::new();
        config.user(from.get_user().unwrap_or_default());
        if let Some(password) = password {
            config.password(password);
        }
        if let Some(name) = from.get_dbname() {
            config.dbname(name);
        }
        if let Some(options) = from.get_options() {
            config.options(options);
        }
        if let Some(name) = from.get_application_name() {
            config.application_name(name);
        }
        let host = from.get_hosts().get(i);
        match host {
            Some(Host::Tcp(name)) => _ = config.host(name.clone()),
            Some(Host::Unix(path)) => _ = config.host_path(path),
            None => {}
        }
        let address = from.get_hostaddrs().get(i).copied();
        if let Some(address) = address {
            config.hostaddr(address);
        }
        let ports = from.get_ports();
        let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
        config.port(port);
        let is_here = match (host, address) {
            (Some(Host::Unix(_)), _) => true,
            (_, Some(address)) => address.is_loopback(),
            (Some(Host::Tcp(name)), None) => {
                name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
            (None, None) => false,
        };
        // Nothing of what stays on this machine goes over a wire.
        let by_default = match is_here {
            true => SslMode::Disable,
            false => SslMode::Prefer,
        };
        let ssl_mode = match host {
            Some(Host::Unix(_)) => SslMode::Disable,
            _ => self.ssl_mode.unwrap_or(by_default),
        };
        config.ssl_mode(ssl_mode);
        config.connect_timeout(from.get_connect_timeout().copied().unwrap_or(CONNECT));
        config.tcp_user_timeout(from.get_tcp_user_timeout().copied().unwrap_or(UNTAKEN));
        config.keepalives(from.get_keepalives());
        config.keepalives_idle(from.get_keepalives_idle().min(30.secs()));
        config.keepalives_interval(from.get_keepalives_interval().unwrap_or(PROBED));
        if let Some(most) = from.get_keepalives_retries() {
            config.keepalives_retries(most);
        }
        config.channel_binding(from.get_channel_binding());
        Server {
            name: format!("postgres://{}/{}", place(host, address, port), self.name()),
            tls: ssl_mode != SslMode::Disable,
            config,
        }
    }

    /// The name of the database.
    fn name(&self) -> &str {
        let name = self.config.get_dbname().or(self.config.get_user());
        name.unwrap_or_default()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl fmt::Display for PgAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
        let places = (0..hosts.len().max(addresses.len())).map(|i| {
            let ports = config.get_ports();
            let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
            place(hosts.get(i), addresses.get(i).copied(), port)
        });
        let places: Vec<String> = places.collect();
        write!(f, "postgres://{}/{}", places.join(","), self.name())
    }
}

impl fmt::Debug for PgAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn place(host: Option<&Host>, address: Option<IpAddr>, port: u16) -> String {
    let name = match (host, address) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        (Some(Host::Unix(path)), _) => path.display().to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => String::new(),
    };
    match port {
        5432 => name,
        port => format!("{name}:{port}"),
    }
}

/// There is no mode that encrypts and does not verify: it would protect from no program that can read along.
fn mode(word: &str) -> Result<SslMode, String> {
    match word {
        "disable" => Ok(SslMode::Disable),
        "allow" | "prefer" => Ok(SslMode::Prefer),
        "require" | "verify-ca" | "verify-full" => Ok(SslMode::Require),
        _ => {
            Err("has an `sslmode` that is none of disable, prefer, require, verify-full".to_owned())
        }
    }
}

/// Whether servers are wanted that locks can be written on.
fn takes_writes(word: &str) -> Result<(), String> {
    match word {
        "any" | "read-write" | "primary" => Ok(()),
        _ => Err(
            "has `target_session_attrs` other than any, read-write and primary: only a server that takes writes is of use; \
             leave it out"
                .to_owned(),
        ),
    }
}

/// Why an option is refused: it would have no effect. Names none that could be part of a secret.
fn untaken(key: &str) -> String {
    let known = TAKEN.join(", ");
    match UNTAKEN_OPTIONS.iter().find(|option| **option == key) {
        Some(option) => format!("has the option `{option}`, which has no effect here: take it out"),
        None => format!(
            "has an option that is none of sslmode, sslrootcert, sslcert, sslkey, target_session_attrs, {known}; a `?` of a \
             password is written %3F"
        ),
    }
}

fn password_in(path: &Path) -> Result<Vec<u8>, String> {
    let mut password = fs::read(path)
        .map_err(|why| format!("the password in {} cannot be read: {why}", path.display()))?;
    while password.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        password.pop();
    }
    Ok(password)
}

/// Whether each `%` begins a byte in two hexadecimal digits, and none of them ends a text as zero does in C.
fn is_encoded(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|two| two != b"00" && two.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(text: &str) -> Vec<Server> {
        PgAddress::parse(text).unwrap().servers().unwrap()
    }

    #[test]
    fn a_silent_address_of_a_name_leaves_time_for_the_next() {
        let config = |text| servers(text).remove(0).config;
        let usual = config("postgres://me@db/app");
        let limit = *usual.get_connect_timeout().unwrap();
        assert!(limit * 2 < super::super::session::LEAST_CONNECT_LIMIT);
        let own = config("postgres://me@db/app?connect_timeout=7&application_name=shop");
        assert_eq!(own.get_connect_timeout(), Some(&Duration::from_secs(7)));
        assert_eq!(own.get_application_name(), Some("shop"));
    }

    #[test]
    fn no_secret_of_an_address_is_shown() {
        let secret = "postgres://me:hunter2@db.example:5433,other/app?application_name=s3cret";
        let address = PgAddress::parse(secret).unwrap();
        assert_eq!(address.to_string(), "postgres://db.example:5433,other/app");
        for broken in [
            "postgres://me:hunter2",
            "postgres://me:hun?ter2=x@db/app",
            "postgres://me:hunter2@db:port/app",
            "postgres://me:hunter2@db/app?sslmode=hunter2",
            "postgres://:hunter2@db/app",
            "postgres://me:hunter2@db:1,b:2,c:3/app?hunter2=hunter2",
            "postgres://me:hunter2@/app",
        ] {
            let told = match PgAddress::parse(broken) {
                Ok(address) => format!("{address} {address:?}"),
                Err(why) => why,
            };
            assert!(!told.contains("hun") && !told.contains("ter2"), "{told}");
        }
        let text = format!("{address:?}");
        assert!(!text.contains("hunter2") && !text.contains("s3cret"));
    }

    #[test]
    fn what_is_not_encoded_as_a_byte_is_refused() {
        let parse = |text: &str| PgAddress::parse(text).err();
        for broken in [
            "postgres://me:p%w@db/app",
            "postgres://me@%ZZ/app",
            "postgres://me@db%00/app",
            "postgres://me@db/app?sslrootcert=%+1",
            "postgres://me@db/app?sslrootcert=%",
        ] {
            let why = parse(broken).unwrap_or_default();
            assert!(why.contains("write %XX"), "{broken}: {why}");
        }
        assert_eq!(parse("postgres://me:p%25w@%2Frun/app"), None);
    }

    #[test]
    fn an_option_without_effect_is_refused_by_its_name() {
        let refused = |query: &str| {
            let address = format!("postgres://me@a,b/app?{query}");
            PgAddress::parse(&address).err().unwrap_or_default()
        };
        for word in ["any", "read-write", "primary"] {
            assert_eq!(refused(&format!("target_session_attrs={word}")), "");
        }
        assert!(refused("target_session_attrs=standby").contains("`target_session_attrs`"));
        assert!(refused("passfile=/etc/pw").contains("`passfile`, which has no effect"));
        assert!(refused("sslmod=require").contains("none of sslmode, "));
        assert_eq!(
            refused("connect_timeout=2&keepalives=0&options=-c%20a=b"),
            ""
        );
    }

    #[test]
    fn every_mode_with_tls_is_verified() {
        for (mode, tls) in [
            ("disable", SslMode::Disable),
            ("prefer", SslMode::Prefer),
            ("require", SslMode::Require),
            ("verify-full", SslMode::Require),
        ] {
            let server = &servers(&format!("postgres://me@db/app?sslmode={mode}"))[0];
            assert_eq!(server.config.get_ssl_mode(), tls, "{mode}");
            assert_eq!(server.tls, tls != SslMode::Disable);
        }
        // Without a word: what leaves the machine is encrypted where the server can do it.
        for (host, tls) in [("db", true), ("127.0.0.1", false), ("localhost", false)] {
            assert_eq!(servers(&format!("postgres://me@{host}/app"))[0].tls, tls);
        }
        let socket = servers("postgres://me@%2Frun%2Fpg/app?sslmode=require");
        assert!(!socket[0].tls, "a socket is no wire");
    }

    #[test]
    fn each_server_is_tried_by_itself() {
        let both = servers("postgres://me:pw@a:1,b/app?hostaddr=10.0.0.1,10.0.0.2");
        assert_eq!(both.len(), 2);
        let names: Vec<_> = both.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["postgres://a:1/app", "postgres://b/app"]);
        assert_eq!(both[1].config.get_hostaddrs().len(), 1);
        assert_eq!(both[1].config.get_password(), Some(&b"pw"[..]));
    }

    #[test]
    fn a_password_in_a_file_is_read_at_each_connection() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("word");
        let address = PgAddress::parse("postgres://me@db/app").unwrap();
        let address = address.with_password_file(file.clone()).unwrap();
        assert!(address.servers().is_err());
        for word in ["old", "new"] {
            fs::write(&file, format!("{word}\n")).unwrap();
            let servers = address.servers().unwrap();
            assert_eq!(servers[0].config.get_password(), Some(word.as_bytes()));
        }
    }
}
