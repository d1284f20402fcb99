//! Certificates and keys in PEM files, for connections that are always verified.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::files;

/// Files, and what each is called where it was named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pem<'f> {
    /// CAs one of which has signed the server's certificate; those of the system when `None`.
    pub(crate) ca: (&'static str, Option<&'f PathBuf>),
    /// Our certificate.
    pub(crate) cert: (&'static str, Option<&'f PathBuf>),
    /// Its private key.
    pub(crate) key: (&'static str, Option<&'f PathBuf>),
}

/// What is wrong with a file: what it is called, and a sentence that shows nothing of what stands in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) message: String,
}

impl Pem<'_> {
    /// What connects with them.
    pub(crate) fn client(self) -> Result<ClientConfig, Fault> {
        let mut roots = RootCertStore::empty();
        match self.ca {
            (name, Some(path)) => {
                for certificate in certificates(name, path)? {
                    let added = roots.add(certificate);
                    added.map_err(|_| fault(name, format!("{} holds no CA", path.display())))?;
                }
            }
            (_, None) => {
                // Single ones that cannot be read are no fault of the configuration.
                for certificate in rustls_native_certs::load_native_certs().certs {
                    _ = roots.add(certificate);
                }
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| fault(self.ca.0, error.to_string()))?
            .with_root_certificates(roots);
        let ((cert_name, cert), (key_name, key)) = (self.cert, self.key);
        match (cert, key) {
            (Some(cert), Some(key)) => {
                let chain = certificates(cert_name, cert)?;
                let pem = contents(key_name, key)?;
                let private = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
                    let message = format!("{} holds no private key in PEM", key.display());
                    fault(key_name, message)
                })?;
                let both = config.with_client_auth_cert(chain, private);
                both.map_err(|_| {
                    let message = format!("{} is not the key of `{cert_name}`", key.display());
                    fault(key_name, message)
                })
            }
            (Some(_), None) => Err(fault(key_name, "a certificate without its key".to_owned())),
            (None, Some(_)) => Err(fault(cert_name, "a key without its certificate".to_owned())),
            (None, None) => Ok(config.with_no_client_auth()),
        }
    }
}

fn certificates(name: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let pem = contents(name, path)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .unwrap_or_default();
    match found.is_empty() {
        true => {
            let message = format!("{} holds no certificate in PEM", path.display());
            Err(fault(name, message))
        }
        false => Ok(found),
    }
}

fn contents(name: &'static str, path: &Path) -> Result<Vec<u8>, Fault> {
    files::read(path).map_err(|why| {
        let message = format!("{} cannot be read: {why}", path.display());
        fault(name, message)
    })
}

fn fault(name: &'static str, message: String) -> Fault {
    Fault { name, message }
}
