//! Where the members of a cluster are.

use std::{path::PathBuf, sync::Arc};

use rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::node::certificates::Pem;

/// PEM files for `https://` endpoints, read when a node is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // made from the settings
pub struct EtcdTlsFiles {
    /// The CAs one of which has signed the members' certificates; those of the system when `None`.
    pub ca: Option<PathBuf>,
    /// The client's certificate, for members that want one.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

/// Why this is no endpoint. Never shows a password.
///
/// # Errors
/// A clause that goes on after "the endpoint".
#[doc(hidden)] // for the settings
pub fn check_endpoint(endpoint: &str) -> Result<(), String> {
    origin(endpoint).map(drop)
}

/// What is wrong with the files: which of them (`ca`, `cert` or `key`), a sentence, and what to do about it.
///
/// # Errors
/// The first fault.
#[doc(hidden)] // for the settings
pub fn check_tls(files: &EtcdTlsFiles) -> Result<(), (&'static str, String, String)> {
    let config = client_config(files);
    config.map(drop).map_err(|(name, message)| {
        let remedy = "name PEM files that this user may read, certificate and key as they were made together";
        (name, message, remedy.to_owned())
    })
}

pub(super) fn client_config(files: &EtcdTlsFiles) -> Result<ClientConfig, (&'static str, String)> {
    let pem = Pem {
        ca: ("ca", files.ca.as_ref()),
        cert: ("cert", files.cert.as_ref()),
        key: ("key", files.key.as_ref()),
    };
    pem.client().map_err(|fault| (fault.name, fault.message))
}

/// For members without TLS: it trusts no certificate.
pub(super) fn no_tls() -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions();
    let builder = builder.map_err(|why| why.to_string())?;
    Ok(builder
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

/// The endpoint without what is behind its port.
pub(super) fn origin(endpoint: &str) -> Result<String, String> {
    let example = "write one such as \"http://etcd-a:2379\"";
    let Ok(url) = reqwest::Url::parse(endpoint.trim()) else {
        return Err(format!("is no URL; {example}"));
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "does not begin with http:// or https://; {example}"
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "holds a user or a password; they belong into username and password".to_owned(),
        );
    }
    if url.host_str().unwrap_or_default().is_empty() {
        return Err(format!("names no host; {example}"));
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(format!("has something behind its port; {example}"));
    }
    Ok(url.origin().ascii_serialization())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_scheme_a_host_and_a_port() {
        for (good, origin_of) in [
            ("http://a:2379", "http://a:2379"),
            ("https://a:2379/", "https://a:2379"),
            (" http://[::1]:2379 ", "http://[::1]:2379"),
            ("http://a", "http://a"),
        ] {
            assert_eq!(origin(good).as_deref(), Ok(origin_of));
        }
        for (bad, said) in [
            ("a:2379", "http:// or https://"),
            ("", "no URL"),
            ("ftp://a", "http:// or https://"),
            ("http://me:hunter2@a:2379", "username and password"),
            ("http://a:2379/v3", "behind its port"),
            ("http://a:2379?x=1", "behind its port"),
            ("http://a:99999", "no URL"),
        ] {
            let why = check_endpoint(bad).unwrap_err();
            assert!(why.contains(said), "{bad}: {why}");
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
