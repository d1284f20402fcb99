//! One request to the API, checked, and the answers that it can get: documents with a hash, and pages of lists.
//!
//! # Invariants
//! - A14 A walk through a list page by page meets everything once that was there all the while, whatever comes and goes
//!   meanwhile.   (a_walk_through_a_thousand_jobs_meets_each_once)
//! - A15 A document that a client has already is not sent again.   (a_document_that_the_client_has_is_not_sent_again)

use std::fmt::Write;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    listener::Stay,
    parameter::Asked,
    pattern::encoded,
    problem::{Kind, Problem},
    rights::{Seen, Want},
    shared::Shared,
    tag::{has, tag},
};

/// One request.
pub(super) struct Ask {
    pub(super) shared: Shared,
    pub(super) seen: Seen,
    /// What is asked for.
    pub(super) want: Want,
    /// Who asks, as far as that is known.
    pub(super) who: String,
    /// What lets the answer go on.
    pub(super) stay: Stay,
    pub(super) asked: Asked,
    pub(super) headers: HeaderMap,
    /// The path as it was sent.
    pub(super) path: String,
    pub(super) body: Bytes,
}

/// One page of a list.
#[derive(Serialize)]
struct Page<'a, T> {
    items: Vec<&'a T>,
    next: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<usize>,
}

// === impl Ask ===

impl Ask {
    /// What the body says: an object, or nothing.
    ///
    /// # Errors
    /// What does not fit.
    pub(super) fn words<T: DeserializeOwned + Default>(&self) -> Result<T, Problem> {
        let bad = |why: String| Problem::new(Kind::BadBody, format!("the body: {why}"));
        if self.body.is_empty() {
            return Ok(T::default());
        }
        // Serde would also take a list for the words, one by one.
        if !self.body.trim_ascii_start().starts_with(b"{") {
            return Err(bad("this must be an object".to_owned()));
        }
        serde_json::from_slice(&self.body).map_err(|error| bad(error.to_string()))
    }

    /// This document, unless the client has it.
    pub(super) fn document<T: Serialize + ?Sized>(&self, of: &T) -> Response {
        // What is answered is made of texts, numbers and string keys: always serializable.
        self.bytes(serde_json::to_vec(of).unwrap_or_default().into())
    }

    /// The same, written already.
    pub(super) fn bytes(&self, json: Bytes) -> Response {
        let tag = tag(&json);
        let has = has(&self.headers, &tag);
        let mut answer = match has {
            true => Response::new(Body::empty()),
            false => Response::new(Body::from(json)),
        };
        if has {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = answer.headers_mut();
        if !has {
            let kind = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, kind);
        }
        if let Ok(tag) = HeaderValue::try_from(tag) {
            headers.insert(header::ETAG, tag);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(self.kept()));
        headers.insert(header::VARY, HeaderValue::from_static("authorization"));
        answer
    }

    /// How a client may keep it: for itself, asking whether it is still so; what runs have left to read on no disk.
    fn kept(&self) -> &'static str {
        match self.want {
            Want::Outputs => "no-store",
            _ => "private, no-cache",
        }
    }

    /// One page of these, in the order of their keys.
    pub(super) fn page<T: Serialize>(&self, mut rows: Vec<(String, T)>) -> Response {
        if let Some(after) = self.asked.text("after") {
            rows.retain(|(key, _)| key.as_str() > after);
        }
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.first_of(&rows)
    }

    /// The same with the largest key first.
    pub(super) fn page_from_the_end<T: Serialize>(&self, mut rows: Vec<(String, T)>) -> Response {
        if let Some(after) = self.asked.text("after") {
            rows.retain(|(key, _)| key.as_str() < after);
        }
        rows.sort_by(|(a, _), (b, _)| b.cmp(a));
        self.first_of(&rows)
    }

    /// The first of these, and where the next page begins if there are more.
    fn first_of<T: Serialize>(&self, rows: &[(String, T)]) -> Response {
        let limit = self.asked.number("limit").max(1);
        let shown = &rows[..rows.len().min(limit)];
        self.page_as_it_is(shown, shown.len() < rows.len())
    }

    /// A page of the first of these, of which there may be more in so many places that were not read.
    pub(super) fn first_of_some<T: Serialize>(
        &self,
        rows: &[(String, T)],
        unread: usize,
    ) -> Response {
        let limit = self.asked.number("limit").max(1);
        let shown = &rows[..rows.len().min(limit)];
        self.page_with(shown, shown.len() < rows.len(), Some(unread))
    }

    /// A page of all these, and where the next one begins if there are `more`.
    pub(super) fn page_as_it_is<T: Serialize>(
        &self,
        shown: &[(String, T)],
        more: bool,
    ) -> Response {
        self.page_with(shown, more, None)
    }

    fn page_with<T: Serialize>(
        &self,
        shown: &[(String, T)],
        more: bool,
        unread: Option<usize>,
    ) -> Response {
        let last = shown.last().filter(|_| more);
        let next = last.map(|(key, _)| key.as_str());
        let items = shown.iter().map(|(_, item)| item).collect();
        let mut answer = self.document(&Page {
            items,
            next,
            unread,
        });
        let link = next.and_then(|next| HeaderValue::try_from(self.link(next)).ok());
        if let Some(link) = link {
            answer.headers_mut().insert(header::LINK, link);
        }
        answer
    }

    /// Where the next page is, for clients that follow links.
    fn link(&self, next: &str) -> String {
        let mut link = format!("<{}?", self.path);
        for (name, value) in self.asked.query_without("after") {
            // Writing to a string does not fail.
            let _ = write!(link, "{name}={}&", encoded(value));
        }
        let _ = write!(link, "after={}>; rel=\"next\"", encoded(next));
        link
    }
}
