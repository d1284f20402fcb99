//! Sends items to a web service: one POST each, a JSON object.
//!
//! Headers: `Idempotency-Key`, by which the service knows a repeat, and `Watchkeeper-Token`, which grows with every
//! holder of the batch. The service answers 2xx once it has the item; it should answer the same to a repeat.
//!
//! | answer | meaning |
//! | --- | --- |
//! | 2xx | sent |
//! | 408, 425, 429, 5xx | later; `Retry-After` in seconds is honoured |
//! | 3xx | later: the address has changed and somebody must say so |
//! | other 4xx | dead |
//! | no connection | later |
//! | connection but no answer | in doubt |

use std::{sync::Once, time::Duration};

use async_trait::async_trait;
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{CONTENT_TYPE, RETRY_AFTER},
    redirect,
};
use watchkeeper::node::Token;

use super::{delivery::Answer, params::shown, sink::Sink, source::Item};

/// The sink.
pub struct Webhook {
    client: Client,
    url: Url,
}

/// The client could not be made.
#[derive(Debug, thiserror::Error)]
#[error("no web client: {0}")]
pub struct NoClient(String);

/// Bytes of an answer that are read so that the connection can be used again.
const ANSWER_READ: usize = 64 * 1024;

// === impl Webhook ===

impl Webhook {
    /// Posts to `url`, which may hold credentials, within `timeout` each.
    ///
    /// # Errors
    /// [`NoClient`], for instance when the system has no root certificates.
    pub fn new(url: Url, timeout: Duration) -> Result<Self, NoClient> {
        install_crypto();
        let mut client = Client::builder()
            .timeout(timeout)
            // Shorter than the whole, so that "could not connect" is told from "no answer".
            .connect_timeout(timeout / 2)
            // A redirected POST could arrive twice.
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .user_agent(concat!("watchkeeper/", env!("CARGO_PKG_VERSION")));
        if is_local(&url) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|e| NoClient(plain(e)))?;
        Ok(Self { client, url })
    }
}

#[async_trait]
impl Sink for Webhook {
    fn name(&self) -> String {
        shown(&self.url)
    }

    async fn send(&self, item: &Item, token: Token) -> Answer {
        let body = match serde_json::to_vec(&item.body) {
            Ok(body) => body,
            Err(e) => return Answer::Refused { why: e.to_string() },
        };
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", &item.key)
            .header("watchkeeper-token", token.0)
            .body(body);
        match request.send().await {
            Ok(response) => {
                let answer = of_status(response.status(), retry_after(&response));
                drain(response).await;
                answer
            }
            Err(error) => of_error(error),
        }
    }
}

/// What a status says about the item.
fn of_status(status: StatusCode, after: Option<Duration>) -> Answer {
    let why = format!("answered {}", status.as_u16());
    match status.as_u16() {
        200..=299 => Answer::Accepted,
        408 | 425 | 429 | 500..=599 => Answer::Later { why, after },
        300..=399 => Answer::Later {
            why: format!("{why}, a redirection: name the new address as `sink`"),
            after: None,
        },
        400..=499 => Answer::Refused { why },
        // Nothing that HTTP knows; the request was read by somebody.
        _ => Answer::Unknown { why },
    }
}

/// What a failure says about the item.
fn of_error(error: reqwest::Error) -> Answer {
    if error.is_builder() {
        return Answer::Refused { why: plain(error) };
    }
    // Order matters: a connect timeout is both, and nothing has left then.
    if error.is_connect() {
        return Answer::Later {
            why: format!("no connection: {}", plain(error)),
            after: None,
        };
    }
    let what = if error.is_timeout() {
        "no answer in time"
    } else {
        "the connection broke before an answer"
    };
    Answer::Unknown {
        why: format!("{what}: {}", plain(error)),
    }
}

/// The error and its causes, without the address.
fn plain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn retry_after(response: &Response) -> Option<Duration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// Reads the rest of an answer; whatever comes of that changes nothing.
async fn drain(mut response: Response) {
    let mut left = ANSWER_READ;
    while let Ok(Some(chunk)) = response.chunk().await {
        left = left.saturating_sub(chunk.len());
        if left == 0 {
            return;
        }
    }
}

/// Proxies are for the world outside.
fn is_local(url: &Url) -> bool {
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
fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error says that there is a provider, which is all we want.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notifications::cell::ItemId;

    fn item() -> Item {
        Item {
            id: ItemId::Int(1),
            key: "d/t/1".to_owned(),
            body: serde_json::Map::new(),
            prior: None,
        }
    }

    fn hook(url: &str, timeout: Duration) -> Webhook {
        Webhook::new(Url::parse(url).unwrap(), timeout).unwrap()
    }

    #[test]
    fn statuses_mean_what_the_table_says() {
        let of = |status: u16| of_status(StatusCode::from_u16(status).unwrap(), None);
        assert_eq!(of(204), Answer::Accepted);
        for status in [302, 408, 425, 429, 500, 503] {
            assert!(matches!(of(status), Answer::Later { .. }), "{status}");
        }
        for status in [400, 401, 404, 410, 422] {
            assert!(matches!(of(status), Answer::Refused { .. }), "{status}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_is_no_doubt_and_tells_no_secret() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let url = format!("http://user:hunter2@127.0.0.1:{port}/hook?key=s3cret");
        let hook = hook(&url, Duration::from_secs(5));
        let answer = hook.send(&item(), Token(1)).await;
        assert!(matches!(answer, Answer::Later { .. }), "{answer:?}");
        let text = format!("{answer:?} {}", hook.name());
        assert!(
            !text.contains("hunter2") && !text.contains("s3cret"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_connection_that_breaks_after_the_request_is_doubt() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = async {
            use tokio::io::AsyncReadExt;
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 1024]).await;
        };
        let hook = hook(&url, Duration::from_secs(5));
        let item = item();
        let (answer, ()) = tokio::join!(hook.send(&item, Token(1)), server);
        assert!(matches!(answer, Answer::Unknown { .. }), "{answer:?}");
    }

    #[tokio::test]
    async fn no_answer_in_time_is_doubt() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let hook = hook(&url, Duration::from_millis(50));
        let answer = hook.send(&item(), Token(1)).await;
        assert!(matches!(answer, Answer::Unknown { .. }), "{answer:?}");
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
