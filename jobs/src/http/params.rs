//! What to call and what to expect, as the configuration says it. Nothing here shows a secret.

use std::{collections::BTreeMap, ops::RangeInclusive, path::PathBuf, time::Duration};

use reqwest::{
    Method, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue},
};
use serde::Deserialize;
use serde_json::Value;
use watchkeeper::secret::Secret;

use super::template::{Facts, Place, Template};
use crate::{kinds::Finding, span::Span};

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
    pub(super) place: Place,
    /// The `Content-Type`, unless the headers have one.
    pub(super) content_type: Option<&'static str>,
}

/// Statuses that mean done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected(Vec<RangeInclusive<u16>>);

/// Methods that make sense here; `CONNECT` asks for a tunnel.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
];
/// Headers that belong to the connection: a wrong one would garble the request.
const OF_THE_CONNECTION: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// More than any header needs; a service would refuse it anyway.
pub(super) const MAX_SECRET: u64 = 16 * 1024;

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
            timeout: Span::millis(30_000),
        }
    }
}

impl HttpParams {
    /// What is wrong with these parameters, files of headers included; calls nobody.
    #[must_use]
    pub fn check(&self) -> Vec<Finding> {
        let mut found = self.plan().err().unwrap_or_default();
        for (name, path) in &self.header_files {
            if let Err(text) = read_header(path) {
                found.push(Finding::new(&format!("header_files.{name}"), &text));
            }
        }
        found
    }

    /// The parameters, read. Does not look at files, which may change.
    pub(super) fn plan(&self) -> Result<Plan, Vec<Finding>> {
        let mut found = Findings::default();
        let url = found.take("url", url(self.url.expose()));
        let method = found.take("method", self.method());
        let headers = self.headers(&mut found);
        let header_files = self.header_files(&mut found);
        let content_type = headers.iter().find(|(name, _)| name == CONTENT_TYPE);
        let content_type = match content_type {
            Some((_, value)) => Content::named(&value.fill(&Facts::sample(), Place::Header)),
            None if header_files.iter().any(|file| file.name == CONTENT_TYPE) => Content::Other,
            None => Content::Unnamed,
        };
        let body = self.body.as_ref();
        let body = body.and_then(|text| found.take("body", body_of(text.expose(), content_type)));
        if method == Some(Method::TRACE) && self.body.is_some() {
            found.say(
                "body",
                "cannot be sent with TRACE; leave it out, or take another method",
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
                found.say(
                    "url",
                    "holds credentials beside an Authorization header; keep one of them",
                );
            }
        }
        let expected = found.take("expect", Expected::read(&self.expect));
        if self.timeout.0.is_zero() {
            found.say("timeout", "must be longer than nothing");
        }
        match (url, method, expected) {
            (Some((url, origin)), Some(method), Some(expected)) if found.0.is_empty() => Ok(Plan {
                method,
                origin,
                url,
                headers,
                header_files,
                body,
                expected,
                timeout: self.timeout.0,
            }),
            _ => Err(found.0),
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
            let value = found.take(&key, header_template(value.expose()));
            let taken = |new: &HeaderName| headers.iter().any(|(name, _)| name == new);
            if let (Some(name), Some(value)) = (found.take(&key, header_name(name, taken)), value) {
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
            if let Some(name) = found.take(&key, header_name(name, taken)) {
                let path = path.clone();
                files.push(HeaderFile { name, path });
            }
        }
        files
    }
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn say(&mut self, key: &str, text: &str) {
        self.0.push(Finding::new(key, text));
    }

    fn take<T>(&mut self, key: &str, read: Result<T, String>) -> Option<T> {
        read.map_err(|text| self.say(key, &text)).ok()
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
    let url = Url::parse(&template.fill(&Facts::sample(), Place::Url))
        .map_err(|error| format!("is not a valid address: {error}"))?;
    Ok((template, url))
}

fn header_name(name: &str, taken: impl Fn(&HeaderName) -> bool) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "is no name of a header; write letters, digits and `-`")?;
    if OF_THE_CONNECTION.contains(&name.as_str()) {
        return Err("belongs to the connection, which sets it itself; leave it out".to_owned());
    }
    if taken(&name) {
        return Err("stands there twice: upper and lower case are the same; keep one".to_owned());
    }
    Ok(name)
}

fn header_template(text: &str) -> Result<Template, String> {
    let template = Template::parse(text)?;
    header_value(&template.fill(&Facts::sample(), Place::Header))
        .ok_or("holds what a header cannot carry; use ASCII letters, digits and signs")?;
    Ok(template)
}

/// ASCII without control characters; the type itself takes other bytes, which services read in different ways.
fn header_value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok().filter(|_| text.is_ascii())
}

/// The value of a header that stands in a file. The error names the file and never what it holds.
pub(super) fn read_header(path: &std::path::Path) -> Result<HeaderValue, String> {
    use std::io::Read;
    let shown = path.display();
    let cannot = |error: std::io::Error| format!("cannot read {shown}: {error}");
    // Looked at before it is opened: opening a pipe would wait for somebody who writes.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(format!(
            "{shown} is not a file; name one that holds the value"
        ));
    }
    let mut text = Vec::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(MAX_SECRET + 1)
        .read_to_end(&mut text)
        .map_err(cannot)?;
    if text.len() as u64 > MAX_SECRET {
        return Err(format!("{shown} is longer than a header can be"));
    }
    let text = String::from_utf8(text).unwrap_or_default();
    let text = text.trim();
    if text.is_empty() {
        return Err(format!(
            "{shown} holds no text; write the value of the header into it"
        ));
    }
    let mut value = header_value(text).ok_or_else(|| {
        format!("{shown} holds what a header cannot carry; one line of ASCII is wanted")
    })?;
    value.set_sensitive(true);
    Ok(value)
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
        let sample = template.fill(&Facts::sample(), Place::Json);
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
        place: if is_json || content == Content::WithJson {
            Place::Json
        } else {
            Place::Text
        },
        content_type: match content {
            Content::Unnamed if is_json => Some("application/json"),
            Content::Unnamed if !text.is_empty() => Some("text/plain; charset=utf-8"),
            _ => None,
        },
    })
}

// === impl Expected ===

impl Expected {
    fn read(value: &Value) -> Result<Self, String> {
        const FORMS: &str =
            "write a status like 200, a list like [200, 202], or a class like \"2xx\"";
        let one = |value: &Value| match value {
            Value::Number(number) => {
                let status = number.as_u64().and_then(|n| u16::try_from(n).ok());
                let status = status.filter(|n| (200..=599).contains(n));
                status
                    .map(|n| n..=n)
                    .ok_or("no answer has this status; statuses are 200 to 599")
            }
            Value::String(class) => match class.as_bytes() {
                [n @ b'2'..=b'5', b'x' | b'X', b'x' | b'X'] => {
                    let first = u16::from(n - b'0') * 100;
                    Ok(first..=first + 99)
                }
                _ => Err(FORMS),
            },
            _ => Err(FORMS),
        };
        let ranges: Result<Vec<_>, &str> = match value {
            Value::Null => Ok(vec![200..=299]),
            Value::Array(list) if list.is_empty() => Err(FORMS),
            Value::Array(list) => list.iter().map(one).collect(),
            value => one(value).map(|range| vec![range]),
        };
        ranges.map(Self).map_err(str::to_owned)
    }

    pub(super) fn holds(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            if range.start() == range.end() {
                write!(f, "{comma}{}", range.start())?;
            } else {
                write!(f, "{comma}{}xx", range.start() / 100)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check_params;
    use serde_json::json;

    fn found(params: &Value) -> Vec<(String, String)> {
        check_params("http", params)
    }

    fn keys(params: &Value) -> Vec<String> {
        found(params).into_iter().map(|(key, _)| key).collect()
    }

    fn read(params: Value) -> HttpParams {
        serde_json::from_value(params).unwrap()
    }

    #[test]
    fn good_parameters_have_no_findings() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "Bearer abc\n").unwrap();
        for params in [
            json!({"url": "http://h"}),
            json!({"url": "HTTPS://u:p@[::1]:8/a/${job}?t=${tick}#x", "method": "delete", "expect": 404}),
            json!({"url": "http://h", "body": "{\"token\": ${token}, \"by\": \"${replica}\"}"}),
            json!({"url": "http://h", "body": "job=${job}", "expect": [200, "3xx"], "timeout": "1s"}),
            json!({"url": "http://h", "body": "{ok", "headers": {"content-type": "text/x"}}),
            json!({"url": "http://h", "body": "", "method": "POST"}),
            json!({"url": "http://h", "headers": {"X-A": "$${job}", "Host": "x"}, "header_files": {"X-B": file}}),
        ] {
            assert_eq!(found(&params), [], "{params}");
        }
    }

    #[test]
    fn every_finding_is_told_at_once_with_its_key() {
        let params = json!({
            "url": "ftp://h",
            "method": "FETCH",
            "headers": {
                "X A": "x", "X-B": "gr\u{fc}n", "X-C": "${name}", "Content-Length": "1", "x-d": "1", "X-D": "2",
            },
            "header_files": {"X-E": "/nowhere/at/all", "x-d": "/dev/null"},
            "body": "${jobb}",
            "expect": "ok",
            "timeout": "0s",
        });
        let expected = [
            "url",
            "method",
            "headers.Content-Length",
            "headers.X A",
            "headers.X-B",
            "headers.X-C",
            "headers.x-d",
            "header_files.x-d",
            "body",
            "expect",
            "timeout",
            "header_files.X-E",
            "header_files.x-d",
        ];
        assert_eq!(keys(&params), expected);
        let texts: Vec<String> = found(&params).into_iter().map(|(_, text)| text).collect();
        assert!(texts[0].contains("https://"), "{}", texts[0]);
        assert!(texts[1].contains("PATCH"), "{}", texts[1]);
        assert!(texts[5].contains("${run_id}"), "{}", texts[5]);
        assert!(texts[11].contains("/nowhere/at/all"), "{}", texts[11]);
    }

    #[test]
    fn keys_that_do_not_fit_are_named_without_their_values() {
        let params = json!({"url": 271_828, "headers": {"Authorization": 271_828}, "boddy": "x", "timeout": "soon"});
        assert_eq!(
            keys(&params),
            ["boddy", "headers.Authorization", "timeout", "url"]
        );
        let text = format!("{:?}", found(&params));
        assert!(!text.contains("271828"), "{text}");
    }

    #[test]
    fn addresses_that_cannot_be_called_are_refused_without_repeating_them() {
        for url in [
            "",
            "h/path",
            "mailto:me@h",
            "http://",
            "http:///s3cret",
            "http://u:s3cret/x@h/",
            "http://h:99999/s3cret",
            "http://${job}/s3cret",
            "http://h${job}/",
            "http://u:${token}@h/",
            "http://h/a b",
            "http://\t/${job}",
            "http:\\\\h\\${job}",
            "http://h/${nobody}",
        ] {
            let found = found(&json!({ "url": url }));
            assert_eq!(found.len(), 1, "{url}");
            assert_eq!(found[0].0, "url");
            assert!(!found[0].1.contains("s3cret"), "{found:?}");
        }
    }

    #[test]
    fn credentials_are_given_in_one_place() {
        let params = json!({"url": "http://u:p@h/", "headers": {"authorization": "Bearer x"}});
        assert_eq!(keys(&params), ["url"]);
    }

    #[test]
    fn a_body_that_should_be_json_is_json() {
        for (body, content_type, right) in [
            ("{\"a\": \"${job}\"}", None, true),
            ("{\"a\": ${job}}", None, false),
            ("{\"a\": 1", None, false),
            ("\"${job}\"", Some("application/json; charset=utf-8"), true),
            ("${job}", Some("application/vnd.x+json"), false),
            ("{}\n{}", Some("application/x-ndjson"), true),
            ("{", Some("text/plain"), true),
        ] {
            let mut params = json!({"url": "http://h", "body": body});
            if let Some(content_type) = content_type {
                params["headers"] = json!({"Content-Type": content_type});
            }
            assert_eq!(found(&params).is_empty(), right, "{params}");
        }
    }

    #[test]
    fn expected_statuses_are_read_in_three_forms() {
        let read = |value: Value| Expected::read(&value);
        let all: [(Value, &str, u16, u16); 4] = [
            (Value::Null, "2xx", 204, 304),
            (json!(200), "200", 200, 201),
            (json!([200, 202]), "200, 202", 202, 201),
            (json!("4xx"), "4xx", 404, 200),
        ];
        for (value, shown, inside, outside) in all {
            let expected = read(value).unwrap();
            assert_eq!(expected.to_string(), shown);
            assert!(
                expected.holds(inside) && !expected.holds(outside),
                "{shown}"
            );
        }
        for wrong in [
            json!(99),
            json!(101),
            json!(600),
            json!([]),
            json!("200"),
            json!("1xx"),
            json!({}),
            json!(2.5),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_a_header_is_told_without_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("value");
        for wrong in [
            "",
            " \n",
            "hunter2\nhunter2",
            "hunter\u{fc}",
            &"hunter2".repeat(5000),
        ] {
            std::fs::write(&file, wrong).unwrap();
            let text = read_header(&file).unwrap_err();
            assert!(text.contains("value") && !text.contains("hunter"), "{text}");
        }
        assert!(
            read_header(folder.path())
                .unwrap_err()
                .contains("not a file")
        );
        std::fs::write(&file, "\n hunter2 \n").unwrap();
        let value = read_header(&file).unwrap();
        assert_eq!(value, "hunter2");
        assert!(value.is_sensitive());
    }

    #[test]
    fn debug_shows_no_secret() {
        let text = format!(
            "{:?}",
            read(json!({
                "url": "http://u:hunter2@h/hunter2", "headers": {"X-Api-Key": "hunter2"}, "body": "hunter2",
            }))
        );
        assert!(!text.contains("hunter2"), "{text}");
    }
}
