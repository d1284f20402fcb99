//! Releases as a text: what stores tell their listeners in one message.

use serde::{Deserialize, Serialize};

use super::Announcement;

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
        return vec![interrupted()];
    };
    let news = |News(key, owner, next)| Announcement { key, owner, next };
    all.into_iter().map(news).collect()
}

/// Some may not have been heard.
pub(crate) fn interrupted() -> Announcement {
    Announcement {
        key: String::new(),
        owner: String::new(),
        next: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_they_were_written_and_anything_else_means_to_look() {
        let one = |key: &str, next: Option<&str>| Announcement {
            key: key.to_owned(),
            owner: "o\0\"".to_owned(),
            next: next.map(str::to_owned),
        };
        let all = vec![one("a", None), one("b", Some("t"))];
        assert_eq!(read(&written(&all)), all);
        assert_eq!(read("nonsense"), [interrupted()]);
        assert_eq!(read(""), [interrupted()]);
    }
}
