//! `[telemetry]`: which log lines are written, and how; where traces are sent.

use serde::{Deserialize, Serialize};

#[cfg(feature = "log")]
use super::log::directives::{LogError, filter};
use crate::{finding::Findings, secret::Secret};

/// `[telemetry]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySettings {
    /// Which log lines are written: levels and `target=level` pairs with commas between them, as `info,watchkeeper=debug`. A word
    /// that is no level is refused: as the name of a target it would silence all others.
    pub log: String,
    /// How they are written.
    pub format: LogFormat,
    /// Where the traces of runs are sent: the address of a receiver of OTLP over HTTP, without its path, as
    /// `http://127.0.0.1:4318`. Without it none are.
    pub otlp_endpoint: Option<String>,
    /// Headers of what is sent there, `name=value` with commas between them.
    pub otlp_headers: Option<Secret>,
    /// The share of runs whose traces are kept, from 0 to 1: the same runs on all replicas.
    pub otlp_ratio: f64,
    /// The name of the service that traces are from. Fleets that send to one receiver are told apart by this and their namespace.
    pub otlp_service: String,
    /// Where a person finds the trace of a run: an address with `{trace_id}` in it, as `https://tempo.example.org/trace/{trace_id}`.
    pub trace_link: Option<String>,
}

/// What stands for the id in the address of a trace.
pub(crate) const TRACE_ID: &str = "{trace_id}";

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// One line of text each.
    Text,
    /// One JSON object each.
    Json,
}

// === impl TelemetrySettings ===

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            log: "info".to_owned(),
            format: LogFormat::Auto,
            otlp_endpoint: None,
            otlp_headers: None,
            otlp_ratio: 1.0,
            otlp_service: "watchkeeper".to_owned(),
            trace_link: None,
        }
    }
}

impl TelemetrySettings {
    /// Which log lines are written: a level, or `target=level` pairs with commas between them.
    #[must_use]
    pub fn log(lines: impl Into<String>) -> Self {
        Self {
            log: lines.into(),
            ..Self::default()
        }
    }

    /// How they are written.
    #[must_use]
    pub fn format(mut self, format: LogFormat) -> Self {
        self.format = format;
        self
    }

    /// The traces of runs are sent to this receiver of OTLP over HTTP: `http://127.0.0.1:4318`. Needs the feature `otel`.
    #[must_use]
    pub fn otlp(mut self, endpoint: impl Into<String>) -> Self {
        self.otlp_endpoint = Some(endpoint.into());
        self
    }

    /// With these headers, `name=value` with commas between them.
    #[must_use]
    pub fn otlp_headers(mut self, headers: Secret) -> Self {
        self.otlp_headers = Some(headers);
        self
    }

    /// Names and values of the headers that are sent; none for what is not written as they are.
    pub(crate) fn headers(&self) -> Option<Vec<(&str, &str)>> {
        let text = self.otlp_headers.as_ref().map_or("", Secret::expose);
        let pairs = text.split(',').map(str::trim).filter(|p| !p.is_empty());
        pairs.map(header).collect()
    }

    fn check_otlp(&self, found: &mut Findings) {
        let endpoint = self.otlp_endpoint.as_deref();
        if let Some(endpoint) = endpoint
            && !is_endpoint(endpoint)
        {
            // Not repeated: whatever stands there by mistake may be a secret.
            found.error(
                &["otlp_endpoint"],
                "this is not the address of a receiver",
                "write \"http://127.0.0.1:4318\", without user, password and the path /v1/traces; credentials go to otlp_headers",
            );
        }
        if endpoint.is_some() && !cfg!(feature = "otel") {
            found.error(
                &["otlp_endpoint"],
                "traces are not part of this build",
                "build with the feature \"otel\", or leave the key out",
            );
        }
        if self.headers().is_none() {
            found.error(
                &["otlp_headers"],
                "these are not headers",
                "write \"name=value\", with commas between several",
            );
        }
        if endpoint.is_none() && self.otlp_headers.is_some() {
            found.warn(
                &["otlp_headers"],
                "has no effect: no receiver of traces is named",
                "name one as otlp_endpoint, or leave the key out",
            );
        }
        if !(0.0..=1.0).contains(&self.otlp_ratio) {
            found.error(
                &["otlp_ratio"],
                format!("{} is no share of a whole", self.otlp_ratio),
                "write a number from 0 to 1",
            );
        }
        if let Some(link) = &self.trace_link {
            if !is_trace_link(link) {
                found.error(
                    &["trace_link"],
                    "this is not the address of a trace",
                    "write \"https://tempo.example.org/trace/{trace_id}\": http or https, {trace_id} behind the host, other braces and quotes as %7B, %7D and %22",
                );
            }
            if endpoint.is_none() {
                found.warn(
                    &["trace_link"],
                    "has no effect: no receiver of traces is named",
                    "name one as otlp_endpoint, or leave the key out",
                );
            }
        }
        let service = self.otlp_service.trim();
        if service.is_empty() || service.chars().count() > 100 {
            found.error(
                &["otlp_service"],
                "the name of a service has 1 to 100 characters",
                "\"watchkeeper\" is one",
            );
        }
    }

    /// Adds what is wrong. Keys are relative to `[telemetry]`.
    pub(crate) fn check(&self, found: &mut Findings) {
        #[cfg(feature = "log")]
        match filter(&self.log) {
            Ok(_) => {}
            Err(error @ LogError::Directive(_)) => {
                found.error(
                    &["log"],
                    error.to_string(),
                    "\"info,watchkeeper=debug\" is both",
                );
            }
            Err(error) => found.error(
                &["log"],
                error.to_string(),
                "write a level such as \"info\" or pairs such as \"info,watchkeeper=debug\"",
            ),
        }
        self.check_otlp(found);
    }
}

/// Whether this is scheme and authority alone, with at most a path before the one that is always the same.
fn is_endpoint(text: &str) -> bool {
    let schemes = ["http://", "https://"];
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(*scheme));
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._~:/[]%".contains(c);
    rest.is_some_and(|rest| {
        let host = rest.split('/').next().unwrap_or_default();
        !host.is_empty() && !host.starts_with(':') && rest.chars().all(fits)
    }) && !text.trim_end_matches('/').ends_with("/v1/traces")
}

/// Whether this leads to a page, wherever the id is put into it: to no script and no file, with no password, and to the same host
/// whatever the id is.
fn is_trace_link(text: &str) -> bool {
    let schemes = ["http://", "https://"];
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(*scheme));
    let Some((host, path)) = rest.and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    let of_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    let of_path = |c: char| c.is_ascii_graphic() && !"\"'<>\\^`{|}".contains(c);
    let named = !host.is_empty() && !host.starts_with(':') && host.chars().all(of_host);
    // What is left of it has no brace, so that none is made of the rest of others.
    let around = path.replace(TRACE_ID, "");
    named && around.len() < path.len() && around.chars().all(of_path) && text.len() <= 2_048
}

/// A header as it is written: `name=value`.
fn header(pair: &str) -> Option<(&str, &str)> {
    let (name, value) = pair.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let shown = |c: char| (' '..='~').contains(&c);
    let fits = !name.is_empty() && name.chars().all(token) && value.chars().all(shown);
    fits.then_some((name, value))
}

// === impl LogFormat ===

impl LogFormat {
    /// Whether lines are JSON, where standard error is a terminal or not.
    #[cfg(feature = "log")]
    pub(crate) fn json(self, terminal: bool) -> bool {
        match self {
            Self::Auto => !terminal,
            Self::Text => false,
            Self::Json => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(settings: &TelemetrySettings) -> Vec<String> {
        let mut found = Findings::default();
        settings.check_otlp(&mut found);
        let ours = found.iter().filter(|f| !f.message.contains("this build"));
        ours.map(|f| f.keys[0].clone()).collect()
    }

    fn at(endpoint: &str) -> TelemetrySettings {
        TelemetrySettings::default().otlp(endpoint)
    }

    #[test]
    fn a_receiver_is_named_by_its_address_alone() {
        for good in [
            "http://127.0.0.1:4318",
            "https://otlp.example.org",
            "https://otlp.example.org/otlp/",
            "http://[::1]:4318",
        ] {
            assert!(faults(&at(good)).is_empty(), "{good}");
        }
        for bad in [
            "",
            "x",
            "127.0.0.1:4318",
            "grpc://a:4317",
            "http://",
            "http://:4318",
            "http://me:hunter2@a",
            "http://a/?key=hunter2",
            "http://a/v1/traces",
            "http://a/v1/traces/",
            "http://a b",
        ] {
            assert_eq!(faults(&at(bad)), ["otlp_endpoint"], "{bad}");
        }
    }

    #[test]
    fn a_link_to_a_trace_leads_to_a_page_of_one_host() {
        let linked = |link: &str| TelemetrySettings {
            trace_link: Some(link.to_owned()),
            ..at("http://a")
        };
        for good in [
            "https://tempo.example.org/trace/{trace_id}",
            "http://[::1]:16686/trace/{trace_id}?uiEmbed=v0",
            "https://g/explore?left=%7B%22query%22:%22{trace_id}%22%7D#{trace_id}",
        ] {
            assert!(faults(&linked(good)).is_empty(), "{good}");
        }
        for bad in [
            "",
            "{trace_id}",
            "/trace/{trace_id}",
            "//tempo/trace/{trace_id}",
            "javascript:alert(1)//{trace_id}",
            "data:text/html,{trace_id}",
            "HTTPS://tempo/{trace_id}",
            "https://tempo/trace/",
            "https://{trace_id}/trace",
            "https://{trace_id}.example.org/{trace_id}",
            "https://me:hunter2@tempo/{trace_id}",
            "https:///{trace_id}",
            "https://tempo/{trace_id}\" onclick=\"x",
            "https://tempo/{trace_id}<script>",
            "https://tempo/a b/{trace_id}",
            "https://tempo/{trace{trace_id}_id}",
            "https://tempo/{trace_id}\n",
            "https://tempo/\u{202e}{trace_id}",
        ] {
            assert_eq!(faults(&linked(bad)), ["trace_link"], "{bad}");
        }
        let unsent = TelemetrySettings {
            otlp_endpoint: None,
            ..linked("https://tempo/{trace_id}")
        };
        assert_eq!(faults(&unsent), ["trace_link"]);
    }

    #[test]
    fn headers_are_pairs() {
        let with = |text: &str| at("http://a").otlp_headers(Secret::new(text));
        let of = |text: &str| {
            let settings = with(text);
            let headers = settings.headers()?.into_iter();
            Some(headers.map(|(n, v)| format!("{n}:{v}")).collect::<Vec<_>>())
        };
        assert_eq!(of("").unwrap(), [""; 0]);
        assert_eq!(
            of("authorization=Bearer a==, x-team=ops,").unwrap(),
            ["authorization:Bearer a==", "x-team:ops"]
        );
        for bad in ["hunter2", "=hunter2", "a b=hunter2", "a=hunter2\n"] {
            let text = format!("x=y,{bad}\u{7}");
            assert_eq!(of(&text), None, "{bad}");
            let mut found = Findings::default();
            with(&text).check_otlp(&mut found);
            assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
        }
    }

    #[test]
    fn a_share_is_one_of_a_whole() {
        for (ratio, good) in [(0.0, true), (1.0, true), (1.1, false), (f64::NAN, false)] {
            let faults = faults(&TelemetrySettings {
                otlp_ratio: ratio,
                ..at("http://a")
            });
            assert_eq!(faults.is_empty(), good, "{ratio}: {faults:?}");
        }
    }
}
