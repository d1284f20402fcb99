//! Addresses that said they are no more.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use reqwest::Url;
use sha2::{Digest, Sha256};
use watchkeeper::clock::Moment;

/// Addresses and until when they are off, by their hashes: they may be secret.
#[derive(Debug, Default)]
pub(super) struct Gone(Mutex<BTreeMap<[u8; 32], Moment>>);

/// So many at a time.
const MOST: usize = 10_000;

// === impl Gone ===

impl Gone {
    /// Remembers one.
    pub(super) fn add(&self, url: &Url, until: Moment, now: Moment) {
        let mut gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.len() >= MOST {
            gone.retain(|_, until| *until > now);
        }
        // One that is not remembered is asked again, which does no harm.
        if gone.len() < MOST {
            gone.insert(hash(url), until);
        }
    }

    /// Until when it is off, if it is.
    pub(super) fn until(&self, url: &Url, now: Moment) -> Option<Moment> {
        let gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.is_empty() {
            return None;
        }
        gone.get(&hash(url)).copied().filter(|until| now < *until)
    }
}

fn hash(url: &Url) -> [u8; 32] {
    Sha256::digest(url.as_str().as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_is_off_for_its_time_and_others_are_not() {
        let at = |secs| Moment::from_boot(Duration::from_secs(secs));
        let url = |path: &str| Url::parse(&format!("https://h.example/{path}")).unwrap();
        let gone = Gone::default();
        gone.add(&url("a"), at(10), at(0));
        let until = |path, now| gone.until(&url(path), at(now));
        assert_eq!((until("a", 9), until("a", 10)), (Some(at(10)), None));
        assert_eq!(until("b", 0), None);
    }
}
