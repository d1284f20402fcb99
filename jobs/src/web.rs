//! What jobs that call a web service have in common: the client, what a status means, how an answer is read.
//!
//! Nothing here repeats an address: paths and credentials of web services are often the secret itself.

use std::{
    io::{self, Read},
    path::Path,
    sync::{Arc, Once},
    time::Duration,
};

use jiff::{Timestamp, fmt::rfc2822};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use reqwest::{
    Client, ClientBuilder, Response, Url,
    dns::Resolve,
    header::{DATE, HeaderMap, HeaderName, RETRY_AFTER},
    redirect,
};
use watchkeeper::files;

/// What is written as `%41` in an address and in a key: all that is not unreserved there.
pub(crate) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The client could not be made.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no web client: {0}")]
pub(crate) struct NoClient(String);

/// What a status says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Done.
    Good,
    /// Not now.
    Later,
    /// Not here: the address has changed, and the configuration must follow.
    Moved,
    /// Never.
    Refused,
    /// Nothing that HTTP knows; a server has read the request.
    Unknown,
}

/// The beginning of an answer's body.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    /// As many bytes as were to be kept, at most.
    pub(crate) bytes: Vec<u8>,
    /// Whether there was more.
    pub(crate) cut: bool,
}

/// Bytes of an answer that are read so that the connection can be used again.
const ANSWER_READ: usize = 64 * 1024;
/// More than any secret needs.
const MAX_SECRET: u64 = 16 * 1024;

/// A client for `url`: each request within `timeout`, answer included, none of them redirected or repeated.
pub(crate) fn client(url: &Url, timeout: Duration) -> Result<Client, NoClient> {
    let mut client = builder(timeout);
    if is_local(url) {
        client = client.no_proxy();
    }
    client.build().map_err(|e| NoClient(plain(e)))
}

/// The same for addresses that come with the work. Names are looked up by `resolver` alone, if there is one: by no proxy
/// either.
pub(crate) fn client_to_anybody(
    timeout: Duration,
    resolver: Option<Arc<dyn Resolve>>,
) -> Result<Client, NoClient> {
    let mut client = builder(timeout)
        .no_proxy()
        // Of many hosts most are called once in a while.
        .pool_max_idle_per_host(4)
        .pool_idle_timeout(Duration::from_secs(30));
    if let Some(resolver) = resolver {
        client = client.dns_resolver(resolver);
    }
    client.build().map_err(|e| NoClient(plain(e)))
}

fn builder(timeout: Duration) -> ClientBuilder {
    install_crypto();
    Client::builder()
        .timeout(timeout)
        // Shorter than the whole, so that "could not connect" is told from "no answer".
        .connect_timeout(timeout / 2)
        // A redirected POST could arrive twice.
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent(concat!("watchkeeper/", env!("CARGO_PKG_VERSION")))
}

/// The meaning that a status has for all services alike.
pub(crate) fn meaning(status: u16) -> Meaning {
    match status {
        200..=299 => Meaning::Good,
        408 | 425 | 429 | 500..=599 => Meaning::Later,
        300..=399 => Meaning::Moved,
        400..=499 => Meaning::Refused,
        _ => Meaning::Unknown,
    }
}

/// How long the service asks to wait, in seconds or until a date. A date is compared with the answer's own `Date`, so
/// that the clocks of both sides need not agree; without one with `now`.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = header(headers, &RETRY_AFTER)?;
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = http_date(text)?;
    let now = header(headers, &DATE).and_then(http_date).unwrap_or(now);
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

/// Reads an answer, so that its connection can be used again, and keeps the beginning. Trouble on the way ends the
/// reading and changes nothing: the status has said what there is to say.
pub(crate) async fn read(mut response: Response, keep: usize) -> Beginning {
    let mut beginning = Beginning::default();
    let mut left = ANSWER_READ;
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = keep - beginning.bytes.len();
        beginning.bytes.extend(chunk.iter().take(room));
        beginning.cut |= chunk.len() > room;
        left = left.saturating_sub(chunk.len());
        if left == 0 {
            break;
        }
    }
    beginning
}

/// The text of a file that holds a secret. The error names the file and never what it holds.
pub(crate) fn read_secret(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            format!("{shown} is not a file; name one that holds the value")
        }
        _ => format!("cannot read {shown}: {error}"),
    };
    let mut text = Vec::new();
    let file = files::open(path).map_err(cannot)?;
    file.take(MAX_SECRET + 1)
        .read_to_end(&mut text)
        .map_err(cannot)?;
    if text.len() as u64 > MAX_SECRET {
        return Err(format!("{shown} is longer than a secret can be"));
    }
    let text = String::from_utf8(text).unwrap_or_default();
    let text = text.trim();
    if text.is_empty() {
        return Err(format!("{shown} holds no text; write the value into it"));
    }
    Ok(text.to_owned())
}

/// The error and its causes, without the address.
pub(crate) fn plain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Scheme, host and port alone: paths of webhooks are often the secret itself.
pub(crate) fn shown(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the form that servers must write.
fn http_date(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

/// Proxies are for the world outside.
pub(crate) fn is_local(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback()),
        None => false,
    }
}

/// The first client of the process brings the cryptography, unless the program has chosen.
pub(crate) fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error says that there is a provider, which is all we want.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(HeaderName, &str)]) -> Option<u64> {
        let pairs = pairs.iter().cloned();
        let headers = pairs.map(|(name, value)| (name, value.parse().unwrap()));
        let now = "1994-11-06T08:49:00Z".parse().unwrap();
        retry_after(&headers.collect(), now).map(|pause| pause.as_secs())
    }

    #[test]
    fn a_pause_is_asked_for_in_seconds_or_as_a_date() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(asked(&[]), None);
        assert_eq!(asked(&[(RETRY_AFTER, " 7 ")]), Some(7));
        assert_eq!(asked(&[(RETRY_AFTER, "soon")]), None);
        assert_eq!(asked(&[(RETRY_AFTER, "-7")]), None);
        assert_eq!(asked(&[(RETRY_AFTER, date)]), Some(37));
        // Their clock is half a minute ahead of ours.
        let theirs = "Sun, 06 Nov 1994 08:49:30 GMT";
        assert_eq!(asked(&[(RETRY_AFTER, date), (DATE, theirs)]), Some(7));
        let past = "Sun, 06 Nov 1994 08:00:00 GMT";
        assert_eq!(asked(&[(RETRY_AFTER, past)]), Some(0));
    }

    #[test]
    fn local_addresses_need_no_proxy() {
        for (url, local) in [
            ("http://127.0.0.1:1/", true),
            ("http://[::1]/", true),
            ("http://localhost/", true),
            ("http://example.org/", false),
        ] {
            assert_eq!(is_local(&Url::parse(url).unwrap()), local, "{url}");
        }
    }
}
