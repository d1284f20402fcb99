//! Certificates for a server and for a client, made for the occasion.

use std::{fs, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// A CA, a certificate for a server at this host, and one for a client, in files.
pub(crate) struct Papers {
    dir: TempDir,
}

impl Papers {
    pub(crate) fn new(host: &str) -> Self {
        let papers = Self {
            dir: TempDir::with_prefix("wk-tls-").unwrap(),
        };
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        // Names of their own: who is named like his issuer counts as signed by himself.
        authority
            .distinguished_name
            .push(DnType::CommonName, "tests");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        papers.write("ca.crt", &authority.pem());
        for (name, host) in [("server", host), ("client", "worker")] {
            let key = KeyPair::generate().unwrap();
            let mut certificate = CertificateParams::new(vec![host.to_owned()]).unwrap();
            certificate
                .distinguished_name
                .push(DnType::CommonName, name);
            let certificate = certificate.signed_by(&key, &authority).unwrap();
            papers.write(&format!("{name}.crt"), &certificate.pem());
            papers.write(&format!("{name}.key"), &key.serialize_pem());
        }
        papers
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The options of a server that shows them.
    pub(crate) fn options(&self) -> Vec<String> {
        let path = |name: &str| self.path(name).display().to_string();
        let (certificate, key) = (path("server.crt"), path("server.key"));
        ["--cert-file", &certificate, "--key-file", &key]
            .map(str::to_owned)
            .to_vec()
    }

    /// The options of one that wants to see others', too.
    pub(crate) fn demanding_options(&self) -> Vec<String> {
        let mut options = self.options();
        let authority = self.path("ca.crt").display().to_string();
        options.extend(["--client-cert-auth", "--trusted-ca-file", &authority].map(str::to_owned));
        options
    }
}
