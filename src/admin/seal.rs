//! What makes a form one of ours: a seal that only a page of ours can show, for one order about one thing, and for one use.
//!
//! A browser says the token of a sign-in by itself, for whatever page makes it ask. So an order that comes as a form needs more: a
//! seal that was given out with the form, made from the token, from a cookie that goes with requests of the same site alone, and
//! from what the form is about. A page of another origin can neither read it nor make it. Each process takes its own seals alone:
//! which of them were used is known nowhere else.
//!
//! # Invariants
//! - F1 A seal is good for one order about one thing, in one browser, for an hour.
//!   (a_seal_is_good_for_one_thing_in_one_browser_for_an_hour)
//! - F2 A form is taken once, by the process that gave it out.   (a_form_is_taken_once, another_process_takes_no_form_of_ours)
//! - F3 Neither seal nor cookie tells anything of the token, and both mean nothing with another one.
//!   (a_seal_means_nothing_with_another_token)

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, PoisonError},
};

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use crate::{chance::Chance, secret::Secret};

/// Seconds for which a form may be filled in.
const LIFE: i64 = 3600;
/// Seals that were used and are remembered: more than a person gives orders in an hour.
const MOST_USED: usize = 10_000;
/// The cookie. Its name says nothing of the port: replicas of one machine share it.
const COOKIE: &str = "watchkeeper_form";
/// Bytes of a block of the hash.
const BLOCK: usize = 64;

/// Gives out seals, and takes each once.
#[derive(Debug)]
pub(super) struct Seals {
    chance: Chance,
    /// What stands in the seals of this process alone.
    process: String,
    /// By their ids, with the second in which they end.
    used: Mutex<BTreeMap<String, i64>>,
}

/// What a seal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About<'a> {
    /// The value of the browser's cookie.
    pub(super) session: &'a str,
    pub(super) order: &'a str,
    pub(super) of: &'a str,
}

/// Why a seal is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// It is none of ours, or one for something else.
    Foreign,
    /// Its time is over.
    Old,
    /// It was taken before.
    Used,
}

// === impl Seals ===

impl Seals {
    pub(super) fn new(chance: Chance) -> Self {
        Self {
            process: chance.id(),
            chance,
            used: Mutex::default(),
        }
    }

    /// The browser's cookie, or a new one for it: its value, and whether it is new.
    pub(super) fn session(&self, headers: &HeaderMap) -> (String, bool) {
        match session(headers) {
            Some(known) => (known.to_owned(), false),
            None => (self.chance.id(), true),
        }
    }

    /// A seal for a form that is given out at `now`, in seconds.
    pub(super) fn seal(&self, token: &Secret, about: About<'_>, now: i64) -> String {
        let id = self.chance.id();
        let until = now.saturating_add(LIFE);
        let mac = self.mac(token, about, &id, until);
        format!("{until}.{id}.{mac}")
    }

    /// Takes a seal that has come back at `now`.
    ///
    /// # Errors
    /// Why not; it may be taken later where it was not used.
    pub(super) fn take(
        &self,
        token: &Secret,
        about: About<'_>,
        seal: &str,
        now: i64,
    ) -> Result<(), Broken> {
        let mut parts = seal.split('.');
        let (Some(until), Some(id), Some(said), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Broken::Foreign);
        };
        let Ok(until) = until.parse::<i64>() else {
            return Err(Broken::Foreign);
        };
        let expected = self.mac(token, about, id, until);
        if !same(said.as_bytes(), expected.as_bytes()) {
            return Err(Broken::Foreign);
        }
        if until < now {
            return Err(Broken::Old);
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, until| *until >= now);
        // As many orders within an hour are no person's.
        if used.contains_key(id) || used.len() >= MOST_USED {
            return Err(Broken::Used);
        }
        used.insert(id.to_owned(), until);
        Ok(())
    }

    fn mac(&self, token: &Secret, about: About<'_>, id: &str, until: i64) -> String {
        let until = until.to_string();
        let parts = [
            "watchkeeper form 1",
            &self.process,
            &until,
            id,
            about.session,
            about.order,
            about.of,
        ];
        let mut text = Vec::new();
        for part in parts {
            // With their lengths, so that no two lists of parts make one text.
            let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
            text.extend(length.to_be_bytes());
            text.extend(part.as_bytes());
        }
        hex(&hmac(token.expose().as_bytes(), &text))
    }
}

// === impl Broken ===

impl Broken {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Foreign => {
                "this form was not given out by this page, or by another replica or before a restart, or for something else, or the \
                 browser sends no cookie: nothing was ordered. Fill it in again"
            }
            Self::Old => "this form is older than an hour: nothing was ordered. Fill it in again",
            Self::Used => {
                "this form was sent before, and is taken once: see what came of it among the orders"
            }
        }
    }
}

/// What sets the cookie. It goes with requests of this site alone, and no script reads it.
pub(super) fn cookie(session: &str, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{COOKIE}={session}; Path=/orders; HttpOnly; SameSite=Strict{secure}")
}

/// The browser's cookie, if it has one of ours.
pub(super) fn session(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(header::COOKIE).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';'));
    pairs.find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        let ours = value.len() == 32 && value.bytes().all(|b| b.is_ascii_hexdigit());
        (name == COOKIE && ours).then_some(value)
    })
}

/// Takes the same time wherever they differ.
fn same(said: &[u8], expected: &[u8]) -> bool {
    let differs = said
        .iter()
        .zip(expected)
        .fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differs) == 0 && said.len() == expected.len()
}

/// HMAC of RFC 2104 with SHA-256.
fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    match key.len() {
        0..=BLOCK => block[..key.len()].copy_from_slice(key),
        _ => block[..32].copy_from_slice(&Sha256::digest(key)),
    }
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new()
        .chain_update(pad(0x36))
        .chain_update(text)
        .finalize();
    let outer = Sha256::new()
        .chain_update(pad(0x5c))
        .chain_update(inner)
        .finalize();
    outer.into()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn about<'a>(session: &'a str, order: &'a str, of: &'a str) -> About<'a> {
        About { session, order, of }
    }

    fn seals() -> Seals {
        Seals::new(Chance::seeded(7))
    }

    /// The cases 1, 2 and 6 of RFC 4231.
    #[test]
    fn the_hash_with_a_key_is_that_of_the_standard() {
        for (key, text, expected) in [
            (
                &[0x0b; 20][..],
                &b"Hi There"[..],
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                &b"Jefe"[..],
                &b"what do ya want for nothing?"[..],
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131][..],
                &b"Test Using Larger Than Block-Size Key - Hash Key First"[..],
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            assert_eq!(hex(&hmac(key, text)), expected);
        }
    }

    #[test]
    fn a_seal_is_good_for_one_thing_in_one_browser_for_an_hour() {
        let (seals, token) = (seals(), Secret::new("open sesame"));
        let meant = about("s1", "pause", "report");
        let seal = seals.seal(&token, meant, NOW);
        for other in [
            about("s2", "pause", "report"),
            about("s1", "resume", "report"),
            about("s1", "pause", "reports"),
            about("s1pause", "", "report"),
        ] {
            let taken = seals.take(&token, other, &seal, NOW);
            assert_eq!(taken, Err(Broken::Foreign), "{other:?}");
        }
        let late = seals.take(&token, meant, &seal, NOW + LIFE + 1);
        assert_eq!(late, Err(Broken::Old));
        // Its end is a part of what is sealed.
        let longer = seal.replacen(&(NOW + LIFE).to_string(), &(NOW + 2 * LIFE).to_string(), 1);
        assert_eq!(
            seals.take(&token, meant, &longer, NOW),
            Err(Broken::Foreign)
        );
        assert_eq!(seals.take(&token, meant, &seal, NOW + LIFE), Ok(()));
    }

    #[test]
    fn a_form_is_taken_once() {
        let (seals, token) = (seals(), Secret::new("open sesame"));
        let meant = about("s1", "trigger", "report");
        let (first, second) = (
            seals.seal(&token, meant, NOW),
            seals.seal(&token, meant, NOW),
        );
        assert_eq!(seals.take(&token, meant, &first, NOW), Ok(()));
        assert_eq!(
            seals.take(&token, meant, &first, NOW + 5),
            Err(Broken::Used)
        );
        assert_eq!(seals.take(&token, meant, &second, NOW + 5), Ok(()));
        // What is over is forgotten.
        let third = seals.seal(&token, meant, NOW + 2 * LIFE);
        assert_eq!(seals.take(&token, meant, &third, NOW + 2 * LIFE), Ok(()));
        let used = seals.used.lock().unwrap();
        assert_eq!(used.len(), 1);
    }

    /// Replicas of one store have one token, and each knows of itself alone what it has taken.
    #[test]
    fn another_process_takes_no_form_of_ours() {
        let (ours, token) = (seals(), Secret::new("open sesame"));
        let meant = about("s1", "trigger", "report");
        let seal = ours.seal(&token, meant, NOW);
        let other = Seals::new(Chance::seeded(8));
        assert_eq!(other.take(&token, meant, &seal, NOW), Err(Broken::Foreign));
        assert_eq!(ours.take(&token, meant, &seal, NOW), Ok(()));
    }

    #[test]
    fn a_seal_means_nothing_with_another_token() {
        let (seals, token) = (seals(), Secret::new("open sesame"));
        let meant = about("s1", "pause", "report");
        let seal = seals.seal(&token, meant, NOW);
        let other = Secret::new("open sesame ");
        assert_eq!(seals.take(&other, meant, &seal, NOW), Err(Broken::Foreign));
        let longer = format!("{seal}0");
        for made_up in ["", "..", "1.2", "x.y.z", "1.2.3.4", longer.as_str()] {
            let taken = seals.take(&token, meant, made_up, NOW);
            assert_eq!(taken, Err(Broken::Foreign), "{made_up}");
        }
        assert!(!seal.contains("sesame"));
    }

    #[test]
    fn a_cookie_of_ours_is_found_among_others() {
        let seals = seals();
        let (new, is_new) = seals.session(&HeaderMap::new());
        assert!(is_new && new.len() == 32);
        let sent = format!("a=b; {COOKIE}={new}; c=d");
        let headers: HeaderMap = [(header::COOKIE, sent.parse().unwrap())]
            .into_iter()
            .collect();
        assert_eq!(seals.session(&headers), (new.clone(), false));
        let said = cookie(&new, true);
        assert!(said.contains("SameSite=Strict; Secure") && said.contains("HttpOnly"));
        let bad: HeaderMap = [(header::COOKIE, "watchkeeper_form=x".parse().unwrap())]
            .into_iter()
            .collect();
        assert!(session(&bad).is_none());
    }
}
