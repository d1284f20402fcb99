//! Tags of documents, by which a client knows whether it has the newest one.

use std::fmt::Write;

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

/// A strong tag: what differs in one byte has another one.
pub(super) fn tag(document: &[u8]) -> String {
    let mut tag = String::with_capacity(34);
    tag.push('"');
    for byte in Sha256::digest(document).iter().take(16) {
        // Writing to a string does not fail.
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    tag
}

/// Whether the client says that it has the document with this tag.
pub(super) fn has(headers: &HeaderMap, tag: &str) -> bool {
    let said = headers.get_all(header::IF_NONE_MATCH).into_iter();
    let said = said.filter_map(|value| value.to_str().ok());
    let mut tags = said.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|said| said == "*" || said.strip_prefix("W/").unwrap_or(said) == tag)
}
