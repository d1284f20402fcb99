//! Why something was not answered: `application/problem+json`, as RFC 9457 has it, with what to do about it; a page that says the same
//! where a browser has asked for one.
//!
//! Each [`Kind`] has one status, one title and one remedy; a [`Problem`] adds what was wrong this time. The kinds are a part of the
//! API: clients compare `type`, and people read `detail` and `remedy`.
//!
//! # Invariants
//! - A13 Whatever is refused says so as a problem, with a kind that is documented.   (every_refusal_is_a_problem)

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{
    page::layout::refusal,
    schema::{Named, Schema, field, maybe},
};

/// When to ask again after trouble that passes, in seconds.
const SOON: &str = "2";

/// What `type` begins with.
const TYPE: &str = "urn:watchkeeper:problem:";

/// Why one request was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    kind: Kind,
    detail: String,
    parameter: Option<String>,
}

/// What kinds of trouble there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    BadParameter,
    BadBody,
    Misfit,
    TokenNeeded,
    NoToken,
    ForeignOrigin,
    ReadOnly,
    NoSuchPath,
    Unknown,
    NoSuchMethod,
    NotPossible,
    TooLarge,
    WrongHost,
    TooMany,
    Unavailable,
    NoItems,
    NotKnown,
    Busy,
    Late,
    TooManyStreams,
}

/// What is the same for all problems of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) status: StatusCode,
    /// The end of `type`.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) remedy: &'static str,
}

/// As it is described.
pub(super) static PROBLEM: Named = Named {
    name: "Problem",
    about: "Why a request was not answered, as RFC 9457 has it.",
    fields: &[
        field(
            "type",
            "What kind of problem it is: an identifier, and no address.",
            Schema::Text,
        ),
        field(
            "title",
            "The same in a sentence, alike for all problems of the kind.",
            Schema::Text,
        ),
        field("status", "The status of the answer.", Schema::Count),
        field("detail", "What was wrong this time.", Schema::Text),
        field("remedy", "What to do about it.", Schema::Text),
        maybe(
            "parameter",
            "The parameter that does not fit.",
            Schema::Text,
        ),
    ],
};

/// As it is sent.
#[derive(Serialize)]
struct Told<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    remedy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<&'a str>,
}

// === impl Kind ===

impl Kind {
    /// All of them, by their statuses.
    pub(super) const ALL: [Self; 20] = [
        Self::BadParameter,
        Self::BadBody,
        Self::Misfit,
        Self::TokenNeeded,
        Self::NoToken,
        Self::ForeignOrigin,
        Self::ReadOnly,
        Self::NoSuchPath,
        Self::Unknown,
        Self::NoSuchMethod,
        Self::NotPossible,
        Self::TooLarge,
        Self::WrongHost,
        Self::TooMany,
        Self::Unavailable,
        Self::NoItems,
        Self::NotKnown,
        Self::Busy,
        Self::Late,
        Self::TooManyStreams,
    ];

    pub(super) fn facts(self) -> Facts {
        let (status, name, title, remedy) = match self {
            Self::BadParameter => (
                StatusCode::BAD_REQUEST,
                "bad-parameter",
                "A parameter of the request does not fit",
                "change what `parameter` names: /api/v1/openapi.json has its type and its bounds",
            ),
            Self::BadBody => (
                StatusCode::BAD_REQUEST,
                "bad-body",
                "The body of the request does not fit",
                "send the object that /api/v1/openapi.json describes, or no body",
            ),
            Self::Misfit => (
                StatusCode::BAD_REQUEST,
                "misfit",
                "The job cannot take these parameters",
                "change the parameters of the trigger as `detail` says",
            ),
            Self::TokenNeeded => (
                StatusCode::UNAUTHORIZED,
                "token-needed",
                "The token is needed",
                "say the token: Authorization: Bearer TOKEN; `watchkeeper token` prints it for the user of the worker",
            ),
            Self::NoToken => (
                StatusCode::FORBIDDEN,
                "no-token",
                "The worker has no token",
                "set admin.token, or make the folder writable that the log of the worker names",
            ),
            Self::ForeignOrigin => (
                StatusCode::FORBIDDEN,
                "foreign-origin",
                "A page of another origin asks",
                "open the page of the worker itself; name a proxy in front of it in admin.trusted_proxies",
            ),
            Self::ReadOnly => (
                StatusCode::FORBIDDEN,
                "read-only",
                "This server changes nothing",
                "ask a worker without admin.read_only, or use the command",
            ),
            Self::NoSuchPath => (
                StatusCode::NOT_FOUND,
                "no-such-path",
                "There is no such path",
                "/api/v1/openapi.json has every path",
            ),
            Self::Unknown => (
                StatusCode::NOT_FOUND,
                "unknown",
                "What the request names is not known",
                "GET /api/v1/jobs, /api/v1/replicas and /api/v1/triggers list what is",
            ),
            Self::NoSuchMethod => (
                StatusCode::METHOD_NOT_ALLOWED,
                "no-such-method",
                "The path does not take this method",
                "use one of the methods in the header Allow",
            ),
            Self::NotPossible => (
                StatusCode::CONFLICT,
                "not-possible",
                "This cannot be asked for, or not now",
                "change what `detail` names, then ask again",
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "too-large",
                "The body of the request is too large",
                "give a name or a path in the place of the contents",
            ),
            Self::WrongHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "wrong-host",
                "The server has no such name",
                "use an address of the machine, or add the name to admin.hosts",
            ),
            Self::TooMany => (
                StatusCode::TOO_MANY_REQUESTS,
                "too-many",
                "As many are outstanding as may be",
                "wait until some have ended, or withdraw some",
            ),
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                "The lock nodes do not answer",
                "ask again after Retry-After; GET /api/v1/nodes says which of them answer",
            ),
            Self::NoItems => (
                StatusCode::SERVICE_UNAVAILABLE,
                "no-items",
                "The database of the job cannot be asked for its items",
                "see `detail`: it is asked by the replica that answers; `watchkeeper notify` asks it from where the command runs",
            ),
            Self::NotKnown => (
                StatusCode::SERVICE_UNAVAILABLE,
                "not-known",
                "Whether the order is carried out is not known",
                "see `detail`: look at what the order is about before you give it again, for it may be done, or be done yet",
            ),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "Too many clients ask at one time",
                "ask again after Retry-After: nothing was asked for",
            ),
            Self::Late => (
                StatusCode::SERVICE_UNAVAILABLE,
                "late",
                "There was no answer in time",
                "look before you ask again: what an order had begun to write may stand",
            ),
            Self::TooManyStreams => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too-many-streams",
                "As many clients follow as may",
                "ask again after Retry-After, or ask another replica",
            ),
        };
        Facts {
            status,
            name,
            title,
            remedy,
        }
    }

    /// The title and the remedy for a person at a browser, where they are others.
    fn for_a_person(self) -> (Option<&'static str>, Option<&'static str>) {
        let (title, remedy) = match self {
            Self::BadParameter => (
                "This address does not fit",
                "Change what is named here, or begin anew with all that there is.",
            ),
            Self::TokenNeeded => (
                "Sign in",
                "Any name will do, and the token is the password: `watchkeeper token` prints it for the user of the worker.",
            ),
            Self::NoSuchPath => (
                "There is no such page",
                "The links at the head lead to all that there are.",
            ),
            Self::Unknown => (
                "Not found",
                "It may be gone, or be written in another way: look for it in the lists.",
            ),
            _ => return (None, None),
        };
        (Some(title), Some(remedy))
    }
}

// === impl Facts ===

impl Facts {
    /// The value of `type`.
    pub(super) fn uri(&self) -> String {
        format!("{TYPE}{}", self.name)
    }
}

// === impl Problem ===

impl Problem {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            parameter: None,
        }
    }

    /// A parameter that does not fit, and what would.
    pub(super) fn parameter(name: &str, wanted: &str) -> Self {
        Self {
            parameter: Some(name.to_owned()),
            ..Self::new(Kind::BadParameter, format!("{name}: {wanted}"))
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let facts = self.kind.facts();
        let told = Told {
            r#type: facts.uri(),
            title: facts.title,
            status: facts.status.as_u16(),
            detail: &self.detail,
            remedy: facts.remedy,
            parameter: self.parameter.as_deref(),
        };
        // Texts and a number: always serializable.
        let body = serde_json::to_vec(&told).unwrap_or_default();
        let mut answer = Response::new(Body::from(body));
        *answer.status_mut() = facts.status;
        let headers = answer.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        if facts.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(SOON));
        }
        answer.extensions_mut().insert(self);
        answer
    }
}

/// An answer as a browser shows it: what was refused is told as a page, with the status and the headers that it has.
pub(super) fn for_a_browser(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("accept"));
    let Some(problem) = answer.extensions_mut().remove::<Problem>() else {
        return answer;
    };
    let facts = problem.kind.facts();
    let (title, remedy) = problem.kind.for_a_person();
    let title = title.unwrap_or(facts.title);
    let page = refusal(title, &problem.detail, remedy.unwrap_or(facts.remedy));
    let headers = answer.headers_mut();
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.remove(header::CONTENT_LENGTH);
    *answer.body_mut() = Body::from(page);
    answer
}

/// Whether a page is asked for: a path of the API has none.
pub(super) fn wants_page(path: &str, headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).into_iter();
    let mut accepts = accepts.filter_map(|accept| accept.to_str().ok());
    !path.starts_with("/api/") && accepts.any(|accept| accept.contains("text/html"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_kind_has_a_name_of_its_own_and_says_what_to_do() {
        let facts = Kind::ALL.map(Kind::facts);
        let names: BTreeSet<&str> = facts.iter().map(|facts| facts.name).collect();
        assert_eq!(names.len(), Kind::ALL.len());
        for facts in facts {
            assert!(facts.status.as_u16() >= 400, "{facts:?}");
            assert!(!facts.title.is_empty() && !facts.remedy.is_empty());
            let plain = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(facts.name.chars().all(plain), "{facts:?}");
        }
        let statuses = facts_by_status(&facts);
        assert!(statuses.is_sorted(), "{statuses:?}");
    }

    fn facts_by_status(facts: &[Facts]) -> Vec<u16> {
        facts.iter().map(|facts| facts.status.as_u16()).collect()
    }
}
