//! Who may see and ask what. Decided from the head of a request, so that nothing of a body is read for a client that may
//! not send one.
//!
//! | what is asked for | from this machine | from elsewhere, or through a proxy |
//! | --- | --- | --- |
//! | health, `/leaderz`, `/metrics`, the style | open | open |
//! | the page, and lists of names and standings | open | token |
//! | outputs of runs, and what runs say of themselves | token | token |
//! | an order by a form of ours | token, our origin and a seal | token, our origin and a seal |
//! | whatever else changes something | token, as `Bearer` | token, as `Bearer` |
//!
//! What comes with headers of a proxy is from elsewhere, whichever program has sent it: a browser on the machine of a proxy may
//! be led by a page of a stranger. Of a proxy that is named the name, the scheme and the person are believed.
//!
//! A browser says the token as the password of a sign-in, which it keeps for this very address, port included, and which
//! is good for looking alone: whatever changes something wants a header that no browser sends by itself, or a form with a seal
//! that only a page of ours can show (`seal`).
//!
//! # Invariants
//! - A4 A page of a stranger cannot read this one through a name of its own.  (a_foreign_host_is_refused_everywhere)
//! - A5 Nothing is changed, and no output shown, without the token.  (what_changes_and_what_shows_outputs_want_the_token)
//! - A6 A page of another origin gets nothing, and cannot ask.       (a_page_of_another_origin_gets_nothing)
//! - A7 What a proxy says counts only where the configuration names it; what comes through another is from elsewhere.
//!   (only_a_named_proxy_is_believed)

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderValue, Method, header, request::Parts};

use super::{pattern, problem::Kind};
use crate::{network::Network, secret::Secret};

/// Where forms of ours are sent to.
const FORMS: &str = "/orders/{order}";

/// Characters of the name of a person.
const LONGEST_NAME: usize = 64;

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
    /// The header in which they say who asks.
    pub(super) user_header: Option<String>,
    /// How much it wants to look at what, by the patterns of paths. Whatever is not named here is shut.
    pub(super) wants: Vec<(&'static str, Want)>,
}

/// What a request that was let in may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// It has said the token: outputs may be shown.
    pub(super) token: bool,
}

/// Who has sent a request, as far as that is known. A name is a word for others to read, and no right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) who: String,
    /// Whether the browser knows us by https.
    pub(super) secure: bool,
}

/// A request that was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) kind: Kind,
    pub(super) why: &'static str,
}

/// What a request wants, in the order of how much that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Whether it lives, and its figures.
    Health,
    /// Names and standings.
    Lists,
    /// What runs have left to read.
    Outputs,
    /// A form of ours that was filled in: its seal stands in its body.
    Form,
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
                Kind::WrongHost,
                "this page answers to the names and addresses of its own machine, and to admin.hosts",
            );
        }
        if of_another_origin(head, &arrival) {
            return refuse(
                Kind::ForeignOrigin,
                "requests of other web pages are refused (behind a proxy: admin.trusted_proxies)",
            );
        }
        let want = self.want(&head.method, head.uri.path());
        if want != Want::Health && self.told_names(&head.headers, peer).len() > 1 {
            return refuse(
                Kind::BadParameter,
                "two names say who asks: the header of admin.user_header comes once, from the proxy alone",
            );
        }
        let seen = Seen {
            token: self.says_the_token(&head.headers, want),
        };
        match want {
            Want::Health => Ok(seen),
            Want::Lists if arrival.local => Ok(seen),
            Want::Change | Want::Form if self.read_only => refuse(
                Kind::ReadOnly,
                "this server changes nothing (admin.read_only)",
            ),
            // Every browser says so with a form; ours is the only one that was let through above.
            Want::Form if !head.headers.contains_key(header::ORIGIN) => refuse(
                Kind::ForeignOrigin,
                "a form says where it comes from (Origin)",
            ),
            _ if seen.token => Ok(seen),
            _ if self.token.is_none() => refuse(
                Kind::NoToken,
                "this needs a token, and there is none: the log says why, or set admin.token",
            ),
            Want::Change => refuse(
                Kind::TokenNeeded,
                "say the token: Authorization: Bearer TOKEN (admin.token, or what `watchkeeper token` prints)",
            ),
            _ => refuse(
                Kind::TokenNeeded,
                "say the token: Authorization: Bearer TOKEN, or as the password in a browser, under any name \
                 (admin.token, or what `watchkeeper token` prints)",
            ),
        }
    }

    /// Whether orders are taken from a client that has the token.
    pub(super) fn takes_orders(&self) -> bool {
        self.token.is_some() && !self.read_only
    }

    /// Who has sent a request with this head: by the word of a proxy that is named, or as the person calls themselves at the
    /// sign-in.
    pub(super) fn asker(&self, head: &Parts, peer: IpAddr) -> Asker {
        let headers = &head.headers;
        let secure = self.arrival(head, peer).scheme == "https";
        let told = self.told_names(headers, peer).into_iter().next();
        let told = told.and_then(|name| name.to_str().ok());
        if let Some(name) = told.map(plain).filter(|name| !name.is_empty()) {
            return Asker { who: name, secure };
        }
        let said = headers.get(header::AUTHORIZATION);
        let said = said.and_then(|said| said.as_bytes().strip_prefix(b"Basic "));
        let name = said.and_then(user).map(|name| plain(&name));
        let who = match name.filter(|name| !name.is_empty()) {
            Some(name) => format!("{name} (by their own word)"),
            None => "a client with the token".to_owned(),
        };
        Asker { who, secure }
    }

    /// In how many headers a proxy that is named says who asks, and what they say.
    fn told_names<'a>(&self, headers: &'a HeaderMap, peer: IpAddr) -> Vec<&'a HeaderValue> {
        match &self.user_header {
            Some(name) if self.is_proxy(peer) => headers.get_all(name).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn want(&self, method: &Method, path: &str) -> Want {
        // Which methods a path takes is as open as what it shows.
        if ![Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
            return match *method == Method::POST && pattern::fits(FORMS, path) {
                true => Want::Form,
                false => Want::Change,
            };
        }
        let mut wants = self.wants.iter();
        let named = wants.find(|(pattern, _)| pattern::fits(pattern, path));
        named.map_or(Want::Outputs, |(_, want)| *want)
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
        arrival.local = false;
        if !self.is_proxy(peer) {
            return arrival;
        }
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

// === helpers ===

fn refuse<T>(kind: Kind, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal { kind, why })
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
        && is_page(head.uri.path())
        && !has_origin
        && says("sec-fetch-mode", "navigate")
        && says("sec-fetch-dest", "document");
    let mut sites = texts(headers, "sec-fetch-site");
    !link && !sites.all(|site| matches!(site, "same-origin" | "none"))
}

/// Whether a person may be led there by a link from elsewhere: it shows something, and asks for nothing.
pub(super) fn is_page(path: &str) -> bool {
    const PAGES: [&str; 7] = [
        "/",
        "/runs",
        "/batches",
        "/replicas",
        "/nodes",
        "/locks",
        "/audit",
    ];
    PAGES.contains(&path) || pattern::fits("/jobs/{job}", path)
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

/// The name of a person as it is shown: one line, and not a long one.
fn plain(name: &str) -> String {
    let shown = name.chars().filter(|c| !c.is_control());
    shown
        .take(LONGEST_NAME)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// What stands before the first colon of `NAME:PASSWORD`, which comes in base 64.
fn user(said: &[u8]) -> Option<String> {
    let text = base64(said.trim_ascii())?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    String::from_utf8(text[..colon].to_vec()).ok()
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
    fn a_name_comes_out_of_its_wrapping() {
        assert_eq!(user(b"bWU6c2VzYW1l").as_deref(), Some("me"));
        assert_eq!(user(b"OnNlc2FtZQ==").as_deref(), Some(""));
        assert_eq!(user(b"bWU="), None);
        assert_eq!(plain(" a\u{7}nn\n "), "ann");
        assert_eq!(plain(&"x".repeat(200)).len(), LONGEST_NAME);
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
