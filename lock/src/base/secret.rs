//! Passwords and addresses that may hold one: shown as `***`, read out on purpose only.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A secret text. `Debug` and `Serialize` write `***`; the memory is wiped when it is dropped.
#[derive(Clone)]
pub struct Secret(SecretString);

/// A URL that may hold a password. `Display`, `Debug` and `Serialize` write `***` in its place.
#[derive(Clone)]
pub struct SecretUrl(SecretString);

// === impl Secret ===

impl Secret {
    /// Takes a text into custody.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(SecretString::from(text.into()))
    }

    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Text).map(Self::new)
    }
}

/// Reads a text and never repeats in an error what it found instead.
struct Text;

impl serde::de::Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<String, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<String, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<String, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<String, E> {
        Err(E::custom(NO_TEXT))
    }
}

const NO_TEXT: &str = "this is not a text; write it in quotes";

// === impl SecretUrl ===

impl SecretUrl {
    /// Takes a URL into custody.
    #[doc(hidden)] // for the command
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self(SecretString::from(url.into()))
    }

    /// The URL itself, password and all.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<&str> for SecretUrl {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl From<String> for SecretUrl {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(self.expose()))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SecretUrl {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Text).map(Self::new)
    }
}

/// `url` with its password, and what looks like one in its query, replaced by `***`. Also for texts that are no proper
/// URLs: whatever stands before the last `@` and after its first `:` is taken for a password. Rather too much is hidden
/// than too little.
#[must_use]
pub fn redact(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = url.split_at(start);
    // The last `@`: a password that was not percent-encoded may hold one itself, and a `/` too.
    let Some(at) = rest.rfind('@') else {
        return redact_query(url);
    };
    let (before, host) = rest.split_at(at);
    let user = before.split_once(':').map_or(before, |(name, _)| name);
    let mask = if before.contains(':') { ":***" } else { "" };
    // That `@` may stand in the query: what is behind it may be anything.
    let host = match before.contains(':') && before.contains('?') {
        true => "@***",
        false => host,
    };
    redact_query(&format!("{scheme}{user}{mask}{host}"))
}

/// `url` with the values of telling names after its `?` replaced by `***`: `redis+unix:///n.sock?pass=…`.
fn redact_query(url: &str) -> String {
    let Some((before, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if tells(name) => format!("{name}=***"),
        // What follows a password that holds a & is a part of it.
        _ if query.contains("sentinel_password") && !pair.starts_with("db=") => "***".to_owned(),
        _ => pair.to_owned(),
    });
    format!("{before}?{}", pairs.collect::<Vec<_>>().join("&"))
}

/// Whether something of this name is likely to be a secret.
#[must_use]
pub fn tells(name: &str) -> bool {
    let name = name.to_lowercase().replace('-', "_");
    let words = [
        "pass",
        "secret",
        "token",
        "api_key",
        "apikey",
        "access_key",
        "auth_key",
        "private_key",
        "subscription_key",
        "signature",
        "credential",
        // Headers.
        "authorization",
        "cookie",
        "x_auth",
    ];
    name == "key" || name == "sig" || words.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_headers_that_hold_secrets_are_known() {
        for name in [
            "Authorization",
            "proxy-authorization",
            "Cookie",
            "Set-Cookie",
            "X-Api-Key",
            "apikey",
            "X-Auth",
            "X-Auth-Key",
            "X-Access-Key",
            "Ocp-Apim-Subscription-Key",
            "X-Vault-Token",
            "X-Hub-Signature-256",
        ] {
            assert!(tells(name), "{name}");
        }
        for name in [
            "Idempotency-Key",
            "Content-Type",
            "User-Agent",
            "author",
            "table",
        ] {
            assert!(!tells(name), "{name}");
        }
    }

    #[test]
    fn a_secret_is_never_written() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn a_url_is_written_without_its_password() {
        for (url, shown) in [
            ("redis://a:6379/0", "redis://a:6379/0"),
            ("redis://:pw@a:6379", "redis://:***@a:6379"),
            ("redis://me:p:w@a", "redis://me:***@a"),
            ("redis://me:p/w@x@a", "redis://me:***@a"),
            ("redis://me@a", "redis://me@a"),
            ("me:pw@a", "me:***@a"),
            (
                "redis+unix:///n.sock?db=1&pass=pw",
                "redis+unix:///n.sock?db=1&pass=***",
            ),
            (
                "https://gw:8443/hook?to=ops@example.com&token=pw",
                "https://gw:***@***",
            ),
            (
                "https://me:pw@h/x?to=a@b.c&api_key=pw",
                "https://me:***@***",
            ),
            (
                "postgres://db:5432/app?user=me@db&password=pw",
                "postgres://db:***@***",
            ),
            (
                "sentinel://:pw@h1:26379/m?sentinel_password=p@ss",
                "sentinel://:***@***",
            ),
            (
                "https://h/hook?to=ops@example.com&token=pw",
                "https://h/hook?to=ops@example.com&token=***",
            ),
            (
                "https://:pw@h/?a=1&api_token=pw",
                "https://:***@h/?a=1&api_token=***",
            ),
        ] {
            assert_eq!(SecretUrl::new(url).to_string(), shown);
        }
    }
}
