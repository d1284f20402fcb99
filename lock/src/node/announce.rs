//! Releases as a text: what stores tell their listeners in one message. And of which trouble with listening a person is told.

use serde::{Deserialize, Serialize};

use super::{Announcement, NodeError};

/// A release as it is announced.
#[derive(Serialize, Deserialize)]
struct News(String, String, Option<String>);

/// One text for all releases of a call.
pub(crate) fn written(news: &[Announcement]) -> String {
    let all: Vec<News> = (news.iter())
        .map(|news| News(news.key.clone(), news.owner.clone(), news.next.clone()))
        .collect();
    // Texts only: nothing that cannot be written.
    serde_json::to_string(&all).unwrap_or_default()
}

/// What was told; anything that does not read so means to look everywhere.
pub(crate) fn read(text: &str) -> Vec<Announcement> {
    let Ok(all) = serde_json::from_str::<Vec<News>>(text) else {
        return vec![Announcement::gap()];
    };
    let news = |News(key, owner, next)| Announcement { key, owner, next };
    all.into_iter().map(news).collect()
}

/// For which causes it was said that nothing is heard. Nothing else would show it: locks work without, only slower.
#[derive(Default)]
pub(crate) struct Told(Vec<&'static str>);

// === impl Told ===

impl Told {
    /// Whether a person is to be told: of what does not pass by itself, once for each cause.
    pub(crate) fn is_news(&mut self, why: &NodeError) -> bool {
        let lasts = match why {
            NodeError::Auth(_) | NodeError::Tls(_) => true,
            NodeError::Refused { refusal, .. } => refusal.needs_a_person(),
            _ => false,
        };
        let news = lasts && !self.0.contains(&why.cause());
        if news {
            self.0.push(why.cause());
        }
        news
    }

    /// Something is heard: what comes next is new.
    pub(crate) fn heard(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Refusal;

    #[test]
    fn a_person_is_told_once_for_each_cause_until_something_is_heard() {
        let mut told = Told::default();
        let password = NodeError::Auth("a: password".to_owned());
        let another = NodeError::Auth("b: password".to_owned());
        let paper = NodeError::Tls("expired".to_owned());
        let away = NodeError::Unreachable("away".to_owned());
        let starting = NodeError::Refused {
            refusal: Refusal::Loading,
            said: "the database system is starting up".to_owned(),
        };
        assert!(!told.is_news(&starting), "it passes by itself");
        let news: Vec<bool> = [&away, &password, &another, &paper, &away, &password, &paper]
            .map(|why| told.is_news(why))
            .into();
        assert_eq!(news, [false, true, false, true, false, false, false]);
        told.heard();
        assert!(told.is_news(&password));
    }

    #[test]
    fn releases_are_read_as_they_were_written_and_anything_else_means_to_look() {
        let one = |key: &str, next: Option<&str>| Announcement {
            key: key.to_owned(),
            owner: "o\0\"".to_owned(),
            next: next.map(str::to_owned),
        };
        let all = vec![one("a", None), one("b", Some("t"))];
        assert_eq!(read(&written(&all)), all);
        assert_eq!(read("nonsense"), [Announcement::gap()]);
        assert_eq!(read(""), [Announcement::gap()]);
    }
}
