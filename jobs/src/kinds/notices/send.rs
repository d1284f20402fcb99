//! What all receivers have in common: where addresses and secrets come from, how a web service is asked, and what a notice says.

use std::{path::Path, time::Duration};

use reqwest::{Client, RequestBuilder, Url};
use serde_json::{Value, json};
use watchkeeper::{
    clock::Clock,
    config::Findings,
    notice::{Notice, NoticeSettings, Unsent},
    secret::Secret,
};

use crate::{
    kinds::kind::take,
    web::{self, Meaning, plain, read_secret},
};

/// How long a receiver may take to answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The key by which the address was given.
pub(super) fn url_key(settings: &NoticeSettings) -> &'static str {
    match settings.url {
        Some(_) => "url",
        None => "url_file",
    }
}

/// The address, as it is written or as its file holds it.
pub(super) fn address(settings: &NoticeSettings) -> Result<String, String> {
    one_of(settings.url.as_ref(), settings.url_file.as_deref())
        .map(|address| address.unwrap_or_default())
}

/// What is written, or what the file holds.
pub(super) fn one_of(
    written: Option<&Secret>,
    file: Option<&Path>,
) -> Result<Option<String>, String> {
    match (written, file) {
        (Some(written), _) => Ok(Some(written.expose().trim().to_owned())),
        (None, Some(file)) => read_secret(file).map(Some),
        (None, None) => Ok(None),
    }
}

/// The address of a web service. One that is far away and not encrypted is told: anything on the way can read it, and say the
/// same.
pub(super) fn web_address(text: &str, key: &str, found: &mut Findings) -> Option<Url> {
    let url = Url::parse(text).map_err(|error| format!("is not a valid address: {error}"));
    let url = url.and_then(|url| match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err("is none of https://… and http://…".to_owned()),
    });
    let url = take(found, key, url)?;
    if url.scheme() == "http" && !web::is_local(&url) {
        found.warn(
            &[key],
            "is not encrypted: anything on the way can read the address and what is sent",
            "write https://…",
        );
    }
    Some(url)
}

/// A client for this address alone.
pub(super) fn client(url: &Url) -> Result<Client, String> {
    web::client(url, TIMEOUT).map_err(|error| error.to_string())
}

/// Sends a request; what its answer means.
pub(super) async fn ask(request: RequestBuilder, clock: &Clock) -> Result<(), Unsent> {
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) if error.is_builder() => return Err(Unsent::never(plain(error))),
        Err(error) => return Err(Unsent::later(plain(error))),
    };
    let status = response.status().as_u16();
    let after = web::retry_after(response.headers(), clock.wall());
    web::read(response, 0).await;
    let why = format!("answered {status}");
    match web::meaning(status) {
        Meaning::Good => Ok(()),
        Meaning::Later | Meaning::Unknown => Err(Unsent {
            after,
            ..Unsent::later(why)
        }),
        Meaning::Moved => Err(Unsent::never(format!(
            "{why}, a redirection: name the new address"
        ))),
        Meaning::Refused => Err(Unsent::never(why)),
    }
}

/// What a program reads of a notice.
pub(super) fn as_json(notice: &Notice) -> Value {
    json!({
        "type": format!("watchkeeper.job.{}", notice.what),
        "timestamp": notice.at,
        "text": notice.title(),
        "data": {
            "job": notice.job,
            "namespace": notice.namespace,
            "event": notice.what.as_str(),
            "outcome": notice.outcome,
            "detail": notice.detail,
            "tick": notice.tick,
            "last_tick": notice.last,
            "count": notice.count,
            "run_id": notice.run,
            "attempt": notice.attempt,
            "since": notice.since,
            "replica": notice.replica,
        },
    })
}

/// What a person reads of it.
#[cfg(feature = "smtp")]
pub(super) fn as_text(notice: &Notice) -> String {
    use std::fmt::Write;

    use watchkeeper::notice::What;

    let mut text = format!("{}.\n\n", notice.title());
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name:<10} {value}");
    };
    line("Job", &notice.job);
    match notice.what {
        What::Missed => {
            line("From", &notice.tick);
            line("To", &notice.last.unwrap_or(notice.tick));
            line("Rule", &notice.outcome);
        }
        _ => {
            line("Tick", &notice.tick);
            line("Attempt", &notice.attempt);
            line("Outcome", &notice.outcome);
            if !notice.run.is_empty() {
                line("Run", &notice.run);
            }
        }
    }
    if notice.what == What::Recovered {
        line("Broken", &format_args!("since {}", notice.since));
    }
    line("Told by", &notice.replica);
    if !notice.detail.is_empty() {
        let _ = write!(text, "\n{}\n", notice.detail);
    }
    text
}
