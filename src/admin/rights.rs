//! Who may see and ask what. Decided from the head of a request, so that nothing of a body is read for a client that may
//! not send one.
//!
//! | what is asked for | from this machine | from elsewhere, or through a proxy |
//! | --- | --- | --- |
//! | health, `/leaderz`, `/metrics`, the style | open | open |
//! | the page, and lists of names and standings | open | token |
//! | outputs of runs, and what runs say of themselves | token | token |
//! | whatever changes something | token, as `Bearer` | token, as `Bearer` |
//!
//! A browser says the token as the password of a sign-in, which it keeps for this very address, port included, and which
//! is good for looking alone: whatever changes something wants a header that no browser sends by itself.
//!
//! # Invariants
//! - A4 A page of a stranger cannot read this one through a name of its own.  (a_foreign_host_is_refused_everywhere)
//! - A5 Nothing is changed, and no output shown, without the token.  (what_changes_and_what_shows_outputs_want_the_token)
//! - A6 A page of another origin gets nothing, and cannot ask.       (a_page_of_another_origin_gets_nothing)
//! - A7 What a proxy says counts only where the configuration names it; what comes through another is from elsewhere.
//!   (only_a_named_proxy_is_believed)

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, request::Parts};

use crate::{network::Network, secret::Secret};

/// The rules of one server.
pub(super) struct Rules {
    /// What must be said; without one no client may do what wants it.
    pub(super) token: Option<Secret>,
    /// Nothing can be changed here.
    pub(super) read_only: bool,
    /// Only this machine can reach us.
    pub(super) loopback: bool,
    /// Names by which we may be asked, besides addresses and `localhost`.
    pub(super) hosts: Vec<String>,
    /// Proxies that are believed.
    pub(super) proxies: Vec<Network>,
}

/// What a request that was let in may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// It has said the token: outputs may be shown.
    pub(super) token: bool,
}

/// A request that was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: StatusCode,
    pub(super) why: &'static str,
}

/// What a request wants, in the order of how much that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// Whether it lives, and its figures.
    Health,
    /// Names and standings.
    Lists,
    /// What runs have left to read.
    Outputs,
    Change,
}

/// How a request has arrived, as far as its head and its peer tell.
struct Arrival<'a> {
    /// From this machine, as far as is known.
    local: bool,
    /// The name that it was sent to.
    hosts: Vec<&'a str>,
    scheme: &'static str,
}

// === impl Rules ===

impl Rules {
    /// What may be seen by a request with this head that came from `peer`; nothing of its body is looked at.
    pub(super) fn judge(&self, head: &Parts, peer: IpAddr) -> Result<Seen, Refusal> {
        let arrival = self.arrival(head, peer);
        if !arrival.hosts.iter().all(|host| self.is_ours(host)) {
            return refuse(
                StatusCode::MISDIRECTED_REQUEST,
                "this page answers to the names and addresses of its own machine, and to admin.hosts",
            );
        }
        if of_another_origin(head, &arrival) {
            return refuse(
                StatusCode::FORBIDDEN,
                "requests of other web pages are refused (behind a proxy: admin.trusted_proxies)",
            );
        }
        let want = Want::of(&head.method, &head.uri);
        let seen = Seen {
            token: self.says_the_token(&head.headers, want),
        };
        match want {
            Want::Health => Ok(seen),
            Want::Lists if arrival.local => Ok(seen),
            Want::Change if self.read_only => refuse(
                StatusCode::FORBIDDEN,
                "this server changes nothing (admin.read_only)",
            ),
            _ if seen.token => Ok(seen),
            _ if self.token.is_none() => refuse(
                StatusCode::FORBIDDEN,
                "this needs a token, and there is none: the log says why, or set admin.token",
            ),
            Want::Change => refuse(
                StatusCode::UNAUTHORIZED,
                "say the token: Authorization: Bearer TOKEN (admin.token, or what `watchkeeper token` prints)",
            ),
            _ => refuse(
                StatusCode::UNAUTHORIZED,
                "say the token: Authorization: Bearer TOKEN, or as the password in a browser, under any name \
                 (admin.token, or what `watchkeeper token` prints)",
            ),
        }
    }

    fn arrival<'a>(&self, head: &'a Parts, peer: IpAddr) -> Arrival<'a> {
        let headers = &head.headers;
        let asked = head.uri.authority().map(|authority| authority.as_str());
        let named = texts(headers, header::HOST.as_str());
        let mut arrival = Arrival {
            local: self.loopback,
            hosts: asked.into_iter().chain(named).collect(),
            scheme: "http",
        };
        if !headers.keys().any(|name| is_of_a_proxy(name.as_str())) {
            return arrival;
        }
        if !self.is_proxy(peer) {
            arrival.local = false;
            return arrival;
        }
        // From the near end: what stands before the first one that is no proxy of ours may be made up.
        let through: Vec<&str> = words(headers, "x-forwarded-for").collect();
        let addresses = through.iter().rev().map(|word| address(word));
        let client = addresses
            .into_iter()
            .find(|address| address.is_none_or(|address| !self.is_proxy(address)))
            .flatten();
        arrival.local =
            self.loopback && client.is_some_and(|client| client.to_canonical().is_loopback());
        if let Some(host) = words(headers, "x-forwarded-host").last() {
            arrival.hosts = vec![host];
        }
        if words(headers, "x-forwarded-proto").last() == Some("https") {
            arrival.scheme = "https";
        }
        arrival
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.contains(address))
    }

    /// Whether this name cannot be one that a stranger has pointed at us. Addresses and `localhost` cannot be pointed
    /// elsewhere.
    fn is_ours(&self, host: &str) -> bool {
        let (name, _) = split(host);
        let name = name.to_ascii_lowercase();
        name == "localhost"
            || name.ends_with(".localhost")
            || name.parse::<IpAddr>().is_ok()
            || self
                .hosts
                .iter()
                .any(|ours| ours.eq_ignore_ascii_case(&name))
    }

    fn says_the_token(&self, headers: &HeaderMap, want: Want) -> bool {
        let Some(token) = &self.token else {
            return false;
        };
        let Some(said) = headers
            .get(header::AUTHORIZATION)
            .map(HeaderValue::as_bytes)
        else {
            return false;
        };
        let token = token.expose().as_bytes();
        if let Some(said) = said.strip_prefix(b"Bearer ") {
            return same(said, token);
        }
        // A browser sends this by itself, so that it must not change anything.
        match said
            .strip_prefix(b"Basic ")
            .filter(|_| want != Want::Change)
        {
            Some(said) => password(said).is_some_and(|said| same(&said, token)),
            None => false,
        }
    }
}

// === impl Want ===

impl Want {
    fn of(method: &Method, uri: &Uri) -> Self {
        if method != Method::GET && method != Method::HEAD {
            return Self::Change;
        }
        match uri.path() {
            "/livez" | "/readyz" | "/leaderz" | "/metrics" | "/style.css" => Self::Health,
            "/" | "/api/v1/fleet" | "/api/v1/jobs" | "/api/v1/nodes" | "/api/v1/locks" => {
                Self::Lists
            }
            // Whatever is added later is shut unless it is named here.
            _ => Self::Outputs,
        }
    }
}

// === helpers ===

fn refuse<T>(code: StatusCode, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal { code, why })
}

/// Whether a browser says that a page of another origin has sent this. One that follows a link may see the page: the page
/// that has the link does not.
fn of_another_origin(head: &Parts, arrival: &Arrival<'_>) -> bool {
    let headers = &head.headers;
    let has_origin = headers.contains_key(header::ORIGIN);
    let ours = |origin: &HeaderValue| {
        let origin = origin.to_str().ok();
        let parts = origin.and_then(|origin| origin.split_once("://"));
        parts.is_some_and(|(scheme, authority)| {
            let at = |authority| whole(scheme, authority);
            scheme == arrival.scheme
                && arrival
                    .hosts
                    .first()
                    .is_some_and(|host| at(host) == at(authority))
        })
    };
    if !headers.get_all(header::ORIGIN).iter().all(ours) {
        return true;
    }
    let says = |name: &str, word: &str| texts(headers, name).eq([word]);
    let link = head.method == Method::GET
        && head.uri.path() == "/"
        && !has_origin
        && says("sec-fetch-mode", "navigate")
        && says("sec-fetch-dest", "document");
    let mut sites = texts(headers, "sec-fetch-site");
    !link && !sites.all(|site| matches!(site, "same-origin" | "none"))
}

/// A name in lower case and its port, which the scheme says where it is not written.
fn whole(scheme: &str, authority: &str) -> (String, String) {
    let (name, port) = split(authority);
    let usual = if scheme == "https" { "443" } else { "80" };
    (name.to_ascii_lowercase(), port.unwrap_or(usual).to_owned())
}

/// Name or address, and port.
fn split(authority: &str) -> (&str, Option<&str>) {
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (name, Some(port)),
        _ => (authority, None),
    };
    // The colons of an address without brackets separate no port.
    let (name, port) = match name.contains(':') && !name.starts_with('[') {
        true => (authority, None),
        false => (name, port),
    };
    let name = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    (name.strip_suffix('.').unwrap_or(name), port)
}

/// Whether a proxy adds headers of this name.
fn is_of_a_proxy(name: &str) -> bool {
    const OTHERS: [&str; 6] = [
        "forwarded",
        "via",
        "x-real-ip",
        "x-client-ip",
        "true-client-ip",
        "cf-connecting-ip",
    ];
    name.starts_with("x-forwarded") || name.starts_with("x-envoy-") || OTHERS.contains(&name)
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1` or `[2001:db8::1]:4711`.
fn address(word: &str) -> Option<IpAddr> {
    let (name, _) = split(word);
    name.parse().ok()
}

/// The values of a header. What is no text counts as a text that fits nothing.
fn texts<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    values.map(|value| value.to_str().unwrap_or("?"))
}

/// The same, of lists with commas.
fn words<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let values = texts(headers, name);
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Takes the same time wherever they differ.
fn same(said: &[u8], token: &[u8]) -> bool {
    let differs = said.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differs) == 0 && said.len() == token.len()
}

/// What stands behind the first colon of `NAME:PASSWORD`, which comes in base 64.
fn password(said: &[u8]) -> Option<Vec<u8>> {
    let text = base64(said.trim_ascii())?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    Some(text[colon + 1..].to_vec())
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text
        .strip_suffix(b"==")
        .or(text.strip_suffix(b"="))
        .unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_comes_out_of_its_wrapping() {
        for (said, expected) in [
            ("bWU6c2VzYW1l", Some("sesame")),
            ("OnNlc2FtZQ==", Some("sesame")),
            ("bWU6YTpiYw==", Some("a:bc")),
            ("bWU=", None),
            ("b!", None),
            ("", None),
        ] {
            let found = password(said.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{said}");
        }
    }

    #[test]
    fn a_name_is_told_from_its_port() {
        for (authority, expected) in [
            ("localhost", ("localhost", None)),
            ("localhost:80", ("localhost", Some("80"))),
            ("[::1]:80", ("::1", Some("80"))),
            ("[::1]", ("::1", None)),
            ("2001:db8::1", ("2001:db8::1", None)),
            ("a.example.:443", ("a.example", Some("443"))),
            ("me@evil", ("me@evil", None)),
        ] {
            assert_eq!(split(authority), expected, "{authority}");
        }
    }
}
