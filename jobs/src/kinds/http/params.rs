//! What to call and what to expect, as the configuration says it. Nothing here shows a secret.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use reqwest::{
    Method, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName},
};
use serde::Deserialize;
use serde_json::Value;
use watchkeeper::{DurationExt, config::Findings, human::Span, secret::Secret};

use super::{
    expected::Expected,
    header::{header_name, header_template, read_header},
    template::{Destination, Facts, Template},
};
use crate::kinds::kind::take;

/// Parameters of a job of kind `http`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpParams {
    /// Where to call: `http(s)://…`, with placeholders in path and query.
    pub url: Secret,
    /// The method; without it `POST` with a body, else `GET`.
    pub method: Option<String>,
    /// Headers by name, with placeholders.
    pub headers: BTreeMap<String, Secret>,
    /// Headers by name whose values stand in files, read at each run.
    pub header_files: BTreeMap<String, PathBuf>,
    /// What to send, with placeholders.
    pub body: Option<Secret>,
    /// The status that means done: `200`, `[200, 202]` or `"2xx"`; without it any 2xx.
    pub expect: Value,
    /// How long one request may take, answer included.
    pub timeout: Span,
}

/// The same, read and found right.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) method: Method,
    /// The address with a sample of facts: its origin and credentials are those of every run.
    pub(super) origin: Url,
    pub(super) url: Template,
    pub(super) headers: Vec<(HeaderName, Template)>,
    pub(super) header_files: Vec<HeaderFile>,
    pub(super) body: Option<Body>,
    pub(super) expected: Expected,
    pub(super) timeout: Duration,
}

/// A header whose value stands in a file.
#[derive(Clone)]
pub(super) struct HeaderFile {
    pub(super) name: HeaderName,
    pub(super) path: PathBuf,
}

/// What is sent.
#[derive(Clone)]
pub(super) struct Body {
    pub(super) text: Template,
    /// Whether facts are escaped for JSON.
    pub(super) destination: Destination,
    /// The `Content-Type`, unless the headers have one.
    pub(super) content_type: Option<&'static str>,
}

/// Methods that make sense here; `CONNECT` asks for a tunnel.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
];

// === impl HttpParams ===

impl Default for HttpParams {
    fn default() -> Self {
        Self {
            url: Secret::new(""),
            method: None,
            headers: BTreeMap::new(),
            header_files: BTreeMap::new(),
            body: None,
            expect: Value::Null,
            timeout: Span(30.secs()),
        }
    }
}

impl HttpParams {
    /// What is wrong with these parameters, files of headers included; sends no request.
    #[must_use]
    pub(crate) fn check(&self) -> Findings {
        let mut found = self.plan().err().unwrap_or_default();
        for (name, path) in &self.header_files {
            take(
                &mut found,
                &format!("header_files.{name}"),
                read_header(path),
            );
        }
        found
    }

    /// The parameters, read. Does not look at files, which may change.
    pub(super) fn plan(&self) -> Result<Plan, Findings> {
        let mut found = Findings::default();
        let url = take(&mut found, "url", url(self.url.expose()));
        let method = take(&mut found, "method", self.method());
        let headers = self.headers(&mut found);
        let header_files = self.header_files(&mut found);
        let content_type = headers.iter().find(|(name, _)| name == CONTENT_TYPE);
        let content_type = match content_type {
            Some((_, value)) => Content::named(&value.fill(&Facts::sample(), Destination::Header)),
            None if header_files.iter().any(|file| file.name == CONTENT_TYPE) => Content::Other,
            None => Content::Unnamed,
        };
        let body = self.body.as_ref();
        let body =
            body.and_then(|text| take(&mut found, "body", body_of(text.expose(), content_type)));
        if method == Some(Method::TRACE) && self.body.is_some() {
            found.error(
                &["body"],
                "cannot be sent with TRACE; leave it out, or take another method",
                "",
            );
        }
        if let Some((_, url)) = &url
            && (!url.username().is_empty() || url.password().is_some())
        {
            let names = self.headers.keys().chain(self.header_files.keys());
            if names
                .into_iter()
                .any(|name| name.eq_ignore_ascii_case(AUTHORIZATION.as_str()))
            {
                found.error(
                    &["url"],
                    "holds credentials beside an Authorization header; keep one of them",
                    "",
                );
            }
        }
        let expected = take(&mut found, "expect", Expected::read(&self.expect));
        if self.timeout.0.is_zero() {
            found.error(&["timeout"], "must be longer than nothing", "");
        }
        match (url, method, expected) {
            (Some((url, origin)), Some(method), Some(expected)) if found.is_empty() => Ok(Plan {
                method,
                origin,
                url,
                headers,
                header_files,
                body,
                expected,
                timeout: self.timeout.0,
            }),
            _ => Err(found),
        }
    }

    fn method(&self) -> Result<Method, String> {
        let Some(name) = &self.method else {
            let method = if self.body.is_some() {
                Method::POST
            } else {
                Method::GET
            };
            return Ok(method);
        };
        let upper = name.to_ascii_uppercase();
        let known = METHODS.contains(&upper.as_str());
        let method = Method::from_bytes(upper.as_bytes()).ok().filter(|_| known);
        method.ok_or_else(|| {
            format!(
                "is no method that can be sent; write one of {}",
                METHODS.join(", ")
            )
        })
    }

    fn headers(&self, found: &mut Findings) -> Vec<(HeaderName, Template)> {
        let mut headers: Vec<(HeaderName, Template)> = Vec::new();
        for (name, value) in &self.headers {
            let key = format!("headers.{name}");
            let value = take(found, &key, header_template(value.expose()));
            let taken = |new: &HeaderName| headers.iter().any(|(name, _)| name == new);
            if let (Some(name), Some(value)) = (take(found, &key, header_name(name, taken)), value)
            {
                headers.push((name, value));
            }
        }
        headers
    }

    fn header_files(&self, found: &mut Findings) -> Vec<HeaderFile> {
        let mut files: Vec<HeaderFile> = Vec::new();
        for (name, path) in &self.header_files {
            let taken = |new: &HeaderName| {
                files.iter().any(|file| file.name == new)
                    || self
                        .headers
                        .keys()
                        .any(|name| name.eq_ignore_ascii_case(new.as_str()))
            };
            let key = format!("header_files.{name}");
            if let Some(name) = take(found, &key, header_name(name, taken)) {
                let path = path.clone();
                files.push(HeaderFile { name, path });
            }
        }
        files
    }
}

// === reading

fn url(text: &str) -> Result<(Template, Url), String> {
    const FORMS: &str = "http://… or https://…";
    if text.is_empty() {
        return Err(format!("is missing; write {FORMS}"));
    }
    let rest = match text.split_once("://") {
        Some((scheme, rest))
            if ["http", "https"]
                .iter()
                .any(|s| scheme.eq_ignore_ascii_case(s)) =>
        {
            rest
        }
        _ => return Err(format!("must be {FORMS}")),
    };
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("holds white space; write %20 for a space".to_owned());
    }
    // An address reads `\` as `/`.
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Err("names no host".to_owned());
    }
    if authority.contains("${") {
        return Err(
            "placeholders may stand in path and query alone; write the host out".to_owned(),
        );
    }
    let template = Template::parse(text)?;
    let url = Url::parse(&template.fill(&Facts::sample(), Destination::Url))
        .map_err(|error| format!("is not a valid address: {error}"))?;
    Ok((template, url))
}

/// What a body is, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// JSON, and nothing else.
    Json,
    /// Something with JSON in it, such as a sequence of it.
    WithJson,
    /// No JSON.
    Other,
    /// No header says it.
    Unnamed,
}

impl Content {
    fn named(content_type: &str) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        if essence == "application/json" || essence.ends_with("+json") {
            Self::Json
        } else if essence.contains("json") {
            Self::WithJson
        } else {
            Self::Other
        }
    }
}

fn body_of(text: &str, content: Content) -> Result<Body, String> {
    let template = Template::parse(text)?;
    let like_json = text.trim_start().starts_with(['{', '[']);
    let is_json = content == Content::Json || (content == Content::Unnamed && like_json);
    if is_json {
        let sample = template.fill(&Facts::sample(), Destination::Json);
        serde_json::from_str::<serde::de::IgnoredAny>(&sample).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!(
                "is not valid JSON at line {line}, column {column} (placeholders filled in); texts need quotes around \
                 their placeholder; a body of another kind needs a Content-Type in `headers`"
            )
        })?;
    }
    Ok(Body {
        text: template,
        destination: if is_json || content == Content::WithJson {
            Destination::Json
        } else {
            Destination::Text
        },
        content_type: match content {
            Content::Unnamed if is_json => Some("application/json"),
            Content::Unnamed if !text.is_empty() => Some("text/plain; charset=utf-8"),
            _ => None,
        },
    })
}

#[cfg(test)]
mod tests;
