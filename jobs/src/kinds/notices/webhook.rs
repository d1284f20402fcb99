//! A POST with JSON for each change, signed as Standard Webhooks has it where there is a secret.

use async_trait::async_trait;
use reqwest::{Client, Url, header::CONTENT_TYPE};
use watchkeeper::{
    clock::Clock,
    config::Findings,
    notice::{Notice, NoticeSettings, Receiver, Unsent},
};

use super::send::{as_json, ask, client, one_of, url_key, web_address};
use crate::kinds::{kind::take, notifications::sink::Keys};

/// A webhook to be.
pub(super) struct Plan {
    url: Url,
    keys: Keys,
}

/// The receiver.
pub(super) struct Webhook {
    client: Client,
    plan: Plan,
    clock: Clock,
}

/// Reads and checks the settings.
pub(super) fn read(settings: &NoticeSettings, address: &str, found: &mut Findings) -> Option<Plan> {
    let url = web_address(address, url_key(settings), found);
    let key = match settings.secret {
        Some(_) => "secret",
        None => "secret_file",
    };
    let secret = one_of(settings.secret.as_ref(), settings.secret_file.as_deref());
    let keys = secret.and_then(|secret| match secret {
        Some(text) => match Keys::parse(&text)? {
            keys if keys.is_empty() => Err("holds no secret".to_owned()),
            keys => Ok(keys),
        },
        None => Ok(Keys::default()),
    });
    let keys = take(found, key, keys);
    Some(Plan {
        url: url?,
        keys: keys?,
    })
}

impl Webhook {
    pub(super) fn new(plan: Plan, clock: Clock) -> Result<Self, String> {
        Ok(Self {
            client: client(&plan.url)?,
            plan,
            clock,
        })
    }
}

#[async_trait]
impl Receiver for Webhook {
    async fn send(&self, notice: &Notice) -> Result<(), Unsent> {
        let Plan { url, keys } = &self.plan;
        let body = as_json(notice).to_string().into_bytes();
        let mut request = self
            .client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", &notice.id);
        if !keys.is_empty() {
            let seconds = self.clock.wall().as_second();
            request = request
                .header("webhook-id", &notice.id)
                .header("webhook-timestamp", seconds)
                .header("webhook-signature", keys.sign(&notice.id, seconds, &body));
        }
        ask(request.body(body), &self.clock).await
    }
}
