//! The files for TLS: whether they are needed, and whether they can be used.

use super::{RedisSettings, TlsSettings};
use crate::finding::Findings;

/// Adds what is wrong with `[locks.redis.tls]`. Keys are relative to `[locks]`.
pub(super) fn check(settings: &RedisSettings, found: &mut Findings) {
    let schemes = ["rediss:", "sentinels:", "clusters:"];
    let encrypted = |url: &str| schemes.iter().any(|scheme| url.starts_with(scheme));
    let nodes = &settings.nodes;
    if !nodes.iter().any(|url| encrypted(url.expose())) {
        if let Some(file) = first_set(&settings.tls) {
            found.error(
                &[&format!("redis.tls.{file}"), "redis.nodes"],
                "it is set, but no node is asked with TLS",
                "write rediss:// in place of redis:// (sentinels:// of sentinel://, clusters:// of cluster://), or leave it out",
            );
        }
        return;
    }
    for (i, url) in nodes.iter().enumerate() {
        if url.expose().starts_with("redis:") {
            found.warn(
                &[&format!("redis.nodes[{i}]")],
                "it is asked without TLS, others are with",
                "write rediss://",
            );
        }
    }
    look_at_files(&settings.tls, found);
}

/// The first of the files that is named.
pub(super) fn first_set(tls: &TlsSettings) -> Option<&'static str> {
    let files = [("ca", &tls.ca), ("cert", &tls.cert), ("key", &tls.key)];
    let set = files.into_iter().find(|(_, file)| file.is_some());
    set.map(|(key, _)| key)
}

#[cfg(feature = "redis-tls")]
fn look_at_files(tls: &TlsSettings, found: &mut Findings) {
    use crate::node::redis::{TlsFiles, tls};
    let files = TlsFiles {
        ca: tls.ca.clone(),
        cert: tls.cert.clone(),
        key: tls.key.clone(),
    };
    if let Some(fault) = tls::check(&files) {
        let key = format!("redis.tls.{}", fault.file.key());
        found.error(&[&key], fault.message, fault.remedy);
    }
}

/// Without TLS the addresses are refused already.
#[cfg(not(feature = "redis-tls"))]
fn look_at_files(_: &TlsSettings, _: &mut Findings) {}
