//! TLS to a server: verified always, with the CAs of the system or those of a file.

use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::TlsFiles;
use crate::node::certificates::Pem;

/// What makes a connection secure.
///
/// # Errors
/// A sentence that names the file at fault, and nothing that stands in it.
pub fn connector(files: &TlsFiles) -> Result<MakeRustlsConnect, String> {
    let pem = Pem {
        ca: ("sslrootcert", files.root.as_ref()),
        cert: ("sslcert", files.cert.as_ref()),
        key: ("sslkey", files.key.as_ref()),
    };
    let config = pem.client();
    let config = config.map_err(|fault| format!("{}: {}", fault.name, fault.message))?;
    Ok(MakeRustlsConnect::new(config))
}
