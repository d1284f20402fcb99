//! Style, script and icon of the pages. Their addresses have a hash of them: a browser keeps what it was sent under one for good, and a page of
//! another version names another one.

use std::sync::LazyLock;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::Response,
};

use super::tag::{has, tag};

pub(super) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::of("/style.css", "text/css", include_str!("style.css")));

pub(super) static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::of("/app.js", "text/javascript", include_str!("app.js")));

/// A page that names none is asked for `/favicon.ico` by browsers, which would be refused without the token, and say so.
pub(super) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::of("/icon.svg", "image/svg+xml", include_str!("icon.svg")));

/// A text that belongs to every page.
pub(super) struct Asset {
    /// Where a page has it from.
    pub(super) address: String,
    kind: &'static str,
    text: &'static str,
    tag: String,
}

// === impl Asset ===

impl Asset {
    fn of(path: &str, kind: &'static str, text: &'static str) -> Self {
        let tag = tag(text.as_bytes());
        Self {
            address: format!("{path}?v={}", tag.trim_matches('"')),
            kind,
            text,
            tag,
        }
    }

    /// The text, unless the client has it.
    pub(super) fn answer(&self, uri: &Uri, headers: &HeaderMap) -> Response {
        let named = uri.path_and_query().map(|at| at.as_str());
        let kept = match named == Some(self.address.as_str()) {
            true => "public, max-age=31536000, immutable",
            // Of another version, or as a person has typed it: it is asked again whether it is still so.
            false => "no-cache",
        };
        let is_known = has(headers, &self.tag);
        let mut answer = match is_known {
            true => Response::new(Body::empty()),
            false => Response::new(Body::from(self.text)),
        };
        if is_known {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let kind = format!("{}; charset=utf-8", self.kind);
        for (name, value) in [
            (header::CONTENT_TYPE, kind.as_str()),
            (header::CACHE_CONTROL, kept),
            (header::ETAG, self.tag.as_str()),
        ] {
            // Letters of ours alone.
            if let Ok(value) = HeaderValue::try_from(value) {
                answer.headers_mut().insert(name, value);
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_hash_in_its_address_is_kept_for_good_and_other_addresses_are_asked_again() {
        let none = HeaderMap::new();
        let kept = |address: &str| {
            let answer = STYLE.answer(&address.parse().unwrap(), &none);
            assert_eq!(answer.status(), StatusCode::OK);
            answer.headers()["cache-control"]
                .to_str()
                .unwrap()
                .to_owned()
        };
        assert!(STYLE.address.starts_with("/style.css?v="));
        assert_ne!(STYLE.tag, SCRIPT.tag);
        assert!(kept(&STYLE.address).contains("immutable"));
        for other in ["/style.css", "/style.css?v=0", "/style.css?v="] {
            assert_eq!(kept(other), "no-cache", "{other}");
        }
        let mut headers = HeaderMap::new();
        let tag = HeaderValue::try_from(&STYLE.tag).unwrap();
        headers.insert(header::IF_NONE_MATCH, tag.clone());
        let answer = STYLE.answer(&"/style.css".parse().unwrap(), &headers);
        assert_eq!(answer.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(answer.headers()["etag"], tag);
    }
}
