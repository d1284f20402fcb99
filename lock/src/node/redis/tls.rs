//! Certificates and keys for `rediss://`: read once, judged before anything starts.
//!
//! Certificates are always verified, and against the name in the address. What cannot be verified is signed by a CA of
//! one's own, not waved through.

use std::{
    fmt,
    path::Path,
    sync::{Arc, OnceLock},
};

use deadpool_redis::redis::{ClientTlsConfig, TlsCertificates};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::TlsFiles;
use crate::files;

/// Which of the files is meant; its `Display` is the key in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The CAs that sign servers.
    Ca,
    /// The client's certificate.
    Cert,
    /// The client's private key.
    Key,
}

/// What is wrong with a file. Never shows what stands in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {message}; {remedy}")]
pub struct TlsFault {
    /// Which one.
    pub file: TlsFile,
    /// What is wrong, with its path.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

/// Reads the files and looks whether a connection can be made with them.
///
/// # Errors
/// The first fault found.
pub(super) fn read(files: &TlsFiles) -> Result<TlsCertificates, TlsFault> {
    let root_cert = match &files.ca {
        Some(path) => Some(ca(path)?),
        None => Some(system_roots()?),
    };
    let client_tls = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => Some(client(cert, key)?),
        (None, None) => None,
        (Some(_), None) => {
            let message = "a certificate without its key".to_owned();
            return fault(TlsFile::Key, message, "name the file of its private key");
        }
        (None, Some(_)) => {
            let message = "a key without its certificate".to_owned();
            return fault(TlsFile::Cert, message, "name the file of its certificate");
        }
    };
    Ok(TlsCertificates {
        client_tls,
        root_cert,
    })
}

/// What is wrong with the files, without connecting to a server.
#[must_use]
pub fn check(files: &TlsFiles) -> Option<TlsFault> {
    read(files).err()
}

/// The client asks for the provider of the process. One that was installed before stays.
pub(super) fn provide() {
    if CryptoProvider::get_default().is_none() {
        // Fails only when another thread was quicker.
        _ = ring::default_provider().install_default();
    }
}

// === the files ===

fn ca(path: &Path) -> Result<Vec<u8>, TlsFault> {
    let pem = contents(TlsFile::Ca, path)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(TlsFile::Ca, path, &pem)? {
        if roots.add(certificate).is_err() {
            let message = format!("{} holds a certificate that is none", path.display());
            return fault(
                TlsFile::Ca,
                message,
                "give the certificate of the CA as PEM",
            );
        }
    }
    Ok(pem)
}

fn client(cert: &Path, key: &Path) -> Result<ClientTlsConfig, TlsFault> {
    let client_cert = contents(TlsFile::Cert, cert)?;
    let chain = certificates(TlsFile::Cert, cert, &client_cert)?;
    let client_key = contents(TlsFile::Key, key)?;
    let Ok(private) = PrivateKeyDer::from_pem_slice(&client_key) else {
        let shown = key.display();
        let has = |word: &[u8]| client_key.windows(word.len()).any(|found| found == word);
        let (message, remedy) = if has(b"ENCRYPTED") {
            (
                format!("the key in {shown} is encrypted"),
                "decrypt it with `openssl pkey`, and let only the worker's user read it",
            )
        } else if has(b"BEGIN CERTIFICATE") {
            (
                format!("{shown} holds a certificate and no private key"),
                "cert and key may have been exchanged",
            )
        } else {
            (
                format!("{shown} holds no private key in PEM"),
                "it begins with -----BEGIN PRIVATE KEY-----",
            )
        };
        return fault(TlsFile::Key, message, remedy);
    };
    // As the client will do it at each connection.
    let fits = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map(|with| with.with_root_certificates(RootCertStore::empty()))
        .and_then(|with| with.with_client_auth_cert(chain, private));
    if fits.is_err() {
        let message = format!(
            "{} is not the key of the certificate in {}",
            key.display(),
            cert.display()
        );
        return fault(
            TlsFile::Key,
            message,
            "give the two that were made together",
        );
    }
    Ok(ClientTlsConfig {
        client_cert,
        client_key,
    })
}

fn contents(file: TlsFile, path: &Path) -> Result<Vec<u8>, TlsFault> {
    files::read(path).or_else(|why| {
        let message = format!("{} cannot be read: {why}", path.display());
        fault(file, message, "name a PEM file that this user may read")
    })
}

/// At least one certificate.
fn certificates(
    file: TlsFile,
    path: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .unwrap_or_default();
    if found.is_empty() {
        let message = format!("{} holds no certificate in PEM", path.display());
        return fault(file, message, "it begins with -----BEGIN CERTIFICATE-----");
    }
    Ok(found)
}

/// The CAs of the system, read once per process: they are many.
fn system_roots() -> Result<Vec<u8>, TlsFault> {
    static PEM: OnceLock<Vec<u8>> = OnceLock::new();
    let pem = PEM.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        // Single ones that cannot be read or make no sense are no fault of the configuration.
        let found = rustls_native_certs::load_native_certs().certs;
        let good = found
            .into_iter()
            .filter(|certificate| roots.add(certificate.clone()).is_ok());
        good.flat_map(|certificate| as_pem(&certificate).into_bytes())
            .collect()
    });
    if pem.is_empty() {
        let message = "this system trusts no CA".to_owned();
        let remedy = "install its ca-certificates, or name the file of the CA";
        return fault(TlsFile::Ca, message, remedy);
    }
    Ok(pem.clone())
}

/// The client takes certificates in this form only.
fn as_pem(der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----");
    for (i, three) in der.chunks(3).enumerate() {
        if i % 16 == 0 {
            text.push('\n');
        }
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for letter in 0..4 {
            if letter <= three.len() {
                let index = (bits >> (18 - 6 * letter)) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text + "\n-----END CERTIFICATE-----\n"
}

fn fault<T>(file: TlsFile, message: String, remedy: &str) -> Result<T, TlsFault> {
    Err(TlsFault {
        file,
        message,
        remedy: remedy.to_owned(),
    })
}

// === impl TlsFile ===

impl TlsFile {
    /// The key in `[locks.redis.tls]`.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Ca => "ca",
            Self::Cert => "cert",
            Self::Key => "key",
        }
    }
}

impl fmt::Display for TlsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "locks.redis.tls.{}", self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::PathBuf};

    /// A CA and what it signs, in files.
    struct Files {
        dir: tempfile::TempDir,
    }

    impl Files {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let files = Self { dir };
            for name in ["one", "other"] {
                let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
                files.write(&format!("{name}.crt"), &made.cert.pem());
                files.write(&format!("{name}.key"), &made.signing_key.serialize_pem());
            }
            files
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).unwrap();
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn fault(&self, ca: &str, cert: &str, key: &str) -> Option<String> {
            let file = |name: &str| (!name.is_empty()).then(|| self.path(name));
            let files = TlsFiles {
                ca: file(ca),
                cert: file(cert),
                key: file(key),
            };
            check(&files).map(|fault| fault.to_string())
        }
    }

    #[test]
    fn good_files_are_taken() {
        let files = Files::new();
        assert_eq!(files.fault("one.crt", "one.crt", "one.key"), None);
        assert_eq!(files.fault("one.crt", "", ""), None);
    }

    #[test]
    fn each_fault_names_its_key_its_file_and_the_remedy() {
        let files = Files::new();
        files.write("empty", "");
        files.write(
            "broken",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        );
        files.write(
            "locked",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        );
        for (ca, cert, key, said) in [
            ("none", "", "", ["tls.ca", "none cannot be read"]),
            ("empty", "", "", ["tls.ca", "BEGIN CERTIFICATE"]),
            ("broken", "", "", ["tls.ca", "that is none"]),
            ("one.key", "", "", ["tls.ca", "no certificate"]),
            (
                "one.crt",
                "one.crt",
                "",
                ["tls.key", "name the file of its private key"],
            ),
            (
                "one.crt",
                "",
                "one.key",
                ["tls.cert", "name the file of its certificate"],
            ),
            (
                "one.crt",
                "one.crt",
                "one.crt",
                ["tls.key", "may have been exchanged"],
            ),
            (
                "one.crt",
                "one.crt",
                "locked",
                ["tls.key", "is encrypted; decrypt"],
            ),
            (
                "one.crt",
                "one.crt",
                "empty",
                ["tls.key", "no private key in PEM"],
            ),
            (
                "one.crt",
                "one.crt",
                "other.key",
                ["tls.key", "is not the key of the certificate"],
            ),
        ] {
            let fault = files.fault(ca, cert, key).unwrap_or_default();
            for words in said {
                assert!(
                    fault.contains(words),
                    "{ca} {cert} {key}: {fault:?}, not {words:?}"
                );
            }
        }
    }

    #[test]
    fn certificates_survive_the_change_of_form() {
        for length in [1, 2, 3, 47, 48, 49, 500] {
            let der: Vec<u8> = (0..length).map(|i: u32| (i * 7 % 256) as u8).collect();
            let back = CertificateDer::from_pem_slice(as_pem(&der).as_bytes()).unwrap();
            assert_eq!(back.as_ref(), der.as_slice());
        }
    }
}
