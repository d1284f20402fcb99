//! TLS to a server: verified always, with the CAs of the system or those of a file.

use std::{fs, path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::TlsFiles;

/// What makes a connection secure.
///
/// # Errors
/// A sentence that names the file at fault, and nothing that stands in it.
pub fn connector(files: &TlsFiles) -> Result<MakeRustlsConnect, String> {
    let mut roots = RootCertStore::empty();
    match &files.root {
        Some(path) => {
            for certificate in certificates("sslrootcert", path)? {
                let added = roots.add(certificate);
                added.map_err(|_| format!("sslrootcert: {} holds no CA", path.display()))?;
            }
        }
        None => {
            // Single ones that cannot be read are no fault of the configuration.
            for certificate in rustls_native_certs::load_native_certs().certs {
                let _ = roots.add(certificate);
            }
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let config = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates("sslcert", cert)?;
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|_| format!("sslkey: {} holds no private key in PEM", key.display()))?;
            let both = config.with_client_auth_cert(chain, private);
            both.map_err(|_| format!("sslkey: {} is not the key of `sslcert`", key.display()))?
        }
        _ => config.with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem =
        fs::read(path).map_err(|why| format!("{key}: {} cannot be read: {why}", path.display()))?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .unwrap_or_default();
    match found.is_empty() {
        true => Err(format!(
            "{key}: {} holds no certificate in PEM",
            path.display()
        )),
        false => Ok(found),
    }
}
