//! Sends items to a web service: one POST each, a JSON object.
//!
//! Headers: `Idempotency-Key`, by which the service knows a repeat, and `Watchkeeper-Token`, which grows with every
//! holder of the batch. The service answers 2xx once it has the item; it should answer the same to a repeat.
//!
//! | answer | meaning |
//! | --- | --- |
//! | 2xx | sent |
//! | 408, 425, 429, 5xx | later; `Retry-After` is honoured |
//! | 3xx | later: the address has changed, and the configuration must follow |
//! | other 4xx | dead |
//! | no connection | later |
//! | connection but no answer | in doubt |

use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Client, StatusCode, Url, header::CONTENT_TYPE};
use watchkeeper::{clock::Clock, node::Token};

use super::Sink;
use crate::{
    notifications::{delivery::Answer, source::Item},
    web::{self, Meaning, NoClient, plain, shown},
};

/// The sink.
pub(crate) struct Webhook {
    client: Client,
    url: Url,
    clock: Clock,
}

// === impl Webhook ===

impl Webhook {
    /// Posts to `url`, which may hold credentials, within `timeout` each.
    ///
    /// # Errors
    /// [`NoClient`], for instance when the system has no root certificates.
    pub(crate) fn new(url: Url, timeout: Duration) -> Result<Self, NoClient> {
        Ok(Self {
            client: web::client(&url, timeout)?,
            url,
            clock: Clock::system(),
        })
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
                let after = web::retry_after(response.headers(), self.clock.wall());
                let answer = of_status(response.status(), after);
                web::read(response, 0).await;
                answer
            }
            Err(error) => of_error(error),
        }
    }
}

/// What a status says about the item.
fn of_status(status: StatusCode, after: Option<Duration>) -> Answer {
    let why = format!("answered {}", status.as_u16());
    match web::meaning(status.as_u16()) {
        Meaning::Good => Answer::Accepted,
        Meaning::Later => Answer::Later { why, after },
        Meaning::Moved => Answer::Later {
            why: format!("{why}, a redirection: name the new address as `sink`"),
            after: None,
        },
        Meaning::Refused => Answer::Refused { why },
        Meaning::Unknown => Answer::Unknown { why },
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
}
