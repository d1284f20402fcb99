//! Signatures of [Standard Webhooks](https://www.standardwebhooks.com): what a receiver needs to know that a message is
//! ours, whole, and not an old one.
//!
//! # Invariants
//! - S1 The id depends on the item's key alone, and has no dot: the signed text is `ID.TIME.BODY`.
//!   (`the_id_is_that_of_the_key_and_has_no_dot`)
//! - S2 There is one signature for each secret, so that a secret can be replaced while both are known.
//!   (`a_receiver_with_any_of_the_secrets_is_content`)
//! - S3 No secret is in an error.                                 (`what_is_no_secret_is_told_without_it`)

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Secrets that sign.
#[derive(Clone, Default)]
pub(crate) struct Keys(Vec<Vec<u8>>);

const PREFIX: &str = "whsec_";
/// Bytes of a secret.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Secrets at a time: the new one, the old one, and some for slow rotations.
const MOST: usize = 8;

// === impl Keys ===

impl Keys {
    /// Reads secrets, each `whsec_` and base64; blanks and line breaks separate them.
    ///
    /// # Errors
    /// A sentence without the text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let keys: Result<Vec<_>, String> = text.split_whitespace().map(key).collect();
        Self::default().and(Self(keys?))
    }

    /// These and those.
    ///
    /// # Errors
    /// When they are too many.
    pub(crate) fn and(mut self, others: Self) -> Result<Self, String> {
        self.0.extend(others.0);
        if self.0.len() > MOST {
            return Err(format!(
                "more than {MOST} secrets; remove those that no receiver knows"
            ));
        }
        Ok(self)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of `webhook-signature`.
    pub(crate) fn sign(&self, id: &str, seconds: i64, body: &[u8]) -> String {
        let signatures = self.0.iter().filter_map(|key| {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
            mac.update(format!("{id}.{seconds}.").as_bytes());
            mac.update(body);
            Some(format!(
                "v1,{}",
                STANDARD.encode(mac.finalize().into_bytes())
            ))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// The id of a message: the same each time the item is sent. Letters, digits, `-` and `_`.
pub(crate) fn message_id(key: &str) -> String {
    let hash = Sha256::digest(key.as_bytes());
    format!("wk_{}", URL_SAFE_NO_PAD.encode(&hash[..16]))
}

fn key(text: &str) -> Result<Vec<u8>, String> {
    const FORM: &str = "write whsec_ and 24 to 64 bytes in base64, such as `echo whsec_$(openssl rand -base64 32)` prints";
    let encoded = text.strip_prefix(PREFIX);
    let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
    bytes
        .filter(|bytes| BYTES.contains(&bytes.len()))
        .ok_or_else(|| format!("is no secret that can sign; {FORM}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDxxxxxxxxxxxx";

    #[test]
    fn the_id_is_that_of_the_key_and_has_no_dot() {
        let id = message_id("d.b/t.sent/1.5");
        assert_eq!(id, message_id("d.b/t.sent/1.5"));
        assert_ne!(id, message_id("d.b/t.sent/1.6"));
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        assert!(
            id.starts_with("wk_") && id.len() == 25 && id.chars().all(fits),
            "{id}"
        );
    }

    /// The example of the standard's own documents.
    #[test]
    fn a_signature_is_that_of_the_standard() {
        let keys = Keys::parse(OLD).unwrap();
        let signed = keys.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_receiver_with_any_of_the_secrets_is_content() {
        #[allow(
            clippy::disallowed_methods,
            reason = "the other implementation looks at the clock itself"
        )]
        let now = jiff::Timestamp::now().as_second();
        let (id, body) = (message_id("d/t/1"), br#"{"id":1}"#);
        let signed = Keys::parse(&format!("{NEW}\n{OLD}"))
            .unwrap()
            .sign(&id, now, body);
        for secret in [OLD, NEW] {
            let theirs = standardwebhooks::Webhook::new(secret).unwrap();
            let headers = [
                ("webhook-id", id.clone()),
                ("webhook-timestamp", now.to_string()),
                ("webhook-signature", signed.clone()),
            ];
            let headers: reqwest::header::HeaderMap = headers
                .into_iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            theirs.verify(body, &headers).unwrap();
            assert!(theirs.verify(b"{}", &headers).is_err());
        }
    }

    #[test]
    fn what_is_no_secret_is_told_without_it() {
        for wrong in [
            "hunter2",
            "whsec_aHVudGVyMg==",
            "whsec_hunter2!",
            &format!("whsec_{}", "A".repeat(88)),
        ] {
            let error = Keys::parse(wrong).unwrap_err();
            assert!(
                error.contains("openssl rand") && !error.contains("hunter2"),
                "{error}"
            );
            assert!(!error.contains("aHVudGVyMg"), "{error}");
        }
        assert!(Keys::parse(&[OLD; 9].join(" ")).is_err());
        assert!(Keys::parse(" \n").unwrap().is_empty());
        assert!(!format!("{:?}", Keys::parse(OLD).unwrap()).contains("MfKQ"));
    }
}
