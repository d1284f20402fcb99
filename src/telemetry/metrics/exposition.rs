//! The two text formats of metrics.
//!
//! The registry speaks OpenMetrics. The older Prometheus format differs in what its comments say: the type line of a
//! counter carries the `_total` of its samples, an info is a gauge, and there is neither `# UNIT` nor `# EOF`.

use prometheus_client::{encoding::text, registry::Registry};

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus 0.0.4: for people, and for scrapers that do not ask for more.
    Prometheus,
}

// === impl Exposition ===

impl Exposition {
    /// The format to answer a request with, by its `Accept` header.
    #[must_use]
    pub(crate) fn for_accept(accept: &str) -> Self {
        let wanted = accept.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let refused = parts.any(|p| matches!(p, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
            name.eq_ignore_ascii_case("application/openmetrics-text") && !refused
        });
        if wanted {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The `Content-Type` of the answer.
    #[must_use]
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    pub(super) fn render(self, registry: &Registry) -> String {
        let mut open = String::new();
        // Writing to a string does not fail; a metric that refuses to be written ends the page early, and the
        // missing end marker tells the scraper.
        if text::encode_registry(&mut open, registry).is_ok() {
            open.push_str("# EOF\n");
        }
        match self {
            Self::OpenMetrics => open,
            Self::Prometheus => to_prometheus(&open),
        }
    }
}

/// Rewrites the comments; every sample stays as it is.
fn to_prometheus(open: &str) -> String {
    let mut out = String::with_capacity(open.len());
    // The help line stands before the type line that says what its name must be.
    let mut help = None;
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some((_, help)) = help.take() {
                out.push_str(&format!("# HELP {name}{suffix} {help}\n"));
            }
            out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}
