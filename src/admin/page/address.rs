//! The address of a page is its state: what is looked for, in which order, which part of it is shown, in which zone.
//!
//! Everything is chosen on the server, of all that there is; a link carries the whole choice. What does not fit is refused by its
//! name, and what is not known is not repeated in links.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{super::pattern::encoded, times::Zone};

/// Rows that a table shows, at most and unless told otherwise.
pub(in crate::admin) const MOST_ROWS: usize = 100;
const ROWS: usize = 50;
/// The same on the page of one job, where there is much else.
const ROWS_OF_JOB: usize = 20;
/// Pages that can be asked for.
const MOST_PAGES: usize = 100_000;
/// Bytes of a text, and of the name of anything: as many as the API takes.
pub(in crate::admin) const LONGEST: usize = 512;

/// Texts that are times.
const MOMENTS: [&str; 2] = ["since", "until"];

/// Taken by every view.
const COMMON: [&str; 6] = ["page", "q", "size", "sort", "state", "tz"];

/// What a view takes besides.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::admin) struct Takes {
    /// The words of `state`; none where it is not taken.
    pub(in crate::admin) states: &'static [&'static str],
    /// The words of `sort`, each also with a hyphen before it for the other direction.
    pub(in crate::admin) sorts: &'static [&'static str],
    /// Other parameters, which are texts.
    pub(in crate::admin) texts: &'static [&'static str],
    /// What stands in the place of a word of `state` that is none of people's.
    pub(in crate::admin) labels: &'static [(&'static str, &'static str)],
}

/// A page, and what was chosen there.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Address {
    path: String,
    given: BTreeMap<&'static str, String>,
    page: usize,
    size: usize,
    zone: Zone,
}

/// A parameter that does not fit, and what would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::admin) struct Misfit {
    pub(in crate::admin) name: &'static str,
    pub(in crate::admin) wanted: String,
}

// === impl Takes ===

impl Takes {
    /// What a person reads in the place of a word of `state`.
    pub(in crate::admin) fn label<'w>(&self, word: &'w str) -> &'w str {
        let known = self.labels.iter().find(|(known, _)| *known == word);
        known.map_or(word, |(_, label)| label)
    }
}

// === impl Address ===

impl Default for Address {
    /// Of no page: nothing is chosen.
    fn default() -> Self {
        Self {
            path: String::new(),
            given: BTreeMap::new(),
            page: 1,
            size: ROWS,
            zone: Zone::utc(),
        }
    }
}

impl Address {
    /// What was chosen of a view.
    ///
    /// # Errors
    /// The first parameter that does not fit.
    pub(in crate::admin) fn read(
        path: impl Into<String>,
        takes: &Takes,
        query: &BTreeMap<String, String>,
    ) -> Result<Self, Misfit> {
        let mut given = BTreeMap::new();
        for name in COMMON.iter().chain(takes.texts).copied() {
            let said = query.get(name).map(|said| said.trim());
            let Some(said) = said.filter(|said| !said.is_empty()) else {
                continue;
            };
            if said.len() > LONGEST {
                return misfit(name, format!("at most {LONGEST} bytes"));
            }
            if said.chars().any(char::is_control) {
                return misfit(name, "a text of one line");
            }
            given.insert(name, said.to_owned());
        }
        if let Some(state) = given.get("state")
            && !takes.states.contains(&state.as_str())
        {
            return misfit("state", one_of(takes.states));
        }
        if let Some(sort) = given.get("sort")
            && !takes.sorts.contains(&sort.trim_start_matches('-'))
        {
            return misfit("sort", one_of(takes.sorts));
        }
        let path = path.into();
        let rows = match path.starts_with("/jobs/") {
            true => ROWS_OF_JOB,
            false => ROWS,
        };
        let page = number(given.remove("page"), "page", 1, MOST_PAGES)?;
        let size = number(given.get("size").cloned(), "size", rows, MOST_ROWS)?;
        let zone = match given.get("tz") {
            None => Zone::utc(),
            Some(name) => match Zone::named(name) {
                Some(zone) => zone,
                None => return misfit("tz", "the name of a time zone, such as Europe/Rome"),
            },
        };
        for name in MOMENTS {
            if given.get(name).is_some_and(|at| zone.moment(at).is_none()) {
                return misfit(
                    name,
                    "a time, such as 2026-05-04 08:00 in the zone of the page",
                );
            }
        }
        Ok(Self {
            path,
            given,
            page,
            size,
            zone,
        })
    }

    /// What stands there; nothing where it was not given.
    pub(in crate::admin) fn get(&self, name: &str) -> &str {
        self.given.get(name).map_or("", String::as_str)
    }

    /// The time that stands there.
    pub(super) fn moment(&self, name: &str) -> Option<Timestamp> {
        self.zone.moment(self.get(name))
    }

    pub(in crate::admin) fn path(&self) -> &str {
        &self.path
    }

    pub(in crate::admin) fn zone(&self) -> Zone {
        self.zone.clone()
    }

    pub(super) fn page(&self) -> usize {
        self.page
    }

    /// How many rows a page has.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// How many rows are on the pages before this one.
    pub(super) fn shown_before(&self) -> usize {
        (self.page - 1).saturating_mul(self.size)
    }

    /// The order that was asked for, and whether it is the other way round.
    pub(super) fn sort(&self) -> (&str, bool) {
        let sort = self.get("sort");
        (sort.trim_start_matches('-'), sort.starts_with('-'))
    }

    /// Whether a name fits what is looked for, whatever the case of its letters.
    pub(super) fn finds(&self, name: &str) -> bool {
        let sought = self.get("q");
        sought.is_empty() || name.to_lowercase().contains(&sought.to_lowercase())
    }

    /// The part of all these that the page shows; from which of them on, counted from 1.
    pub(super) fn part<'a, T>(&self, all: &'a [T]) -> (usize, &'a [T]) {
        let first = self.shown_before().min(all.len());
        let end = first.saturating_add(self.size).min(all.len());
        (first + 1, all.get(first..end).unwrap_or_default())
    }

    /// Whether there is more behind what is shown.
    pub(super) fn has_more(&self, total: usize) -> bool {
        self.page.saturating_mul(self.size) < total
    }

    /// The same page with other choices; one without a value is taken back. It begins with its first rows.
    pub(in crate::admin) fn with(&self, changes: &[(&'static str, &str)]) -> String {
        let mut given: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, said) in &self.given {
            given.insert(*name, said.as_str());
        }
        for (name, said) in changes.iter().copied() {
            match said.is_empty() {
                true => given.remove(name),
                false => given.insert(name, said),
            };
        }
        written(&self.path, given)
    }

    /// Whether less is shown than there is.
    pub(super) fn is_chosen(&self) -> bool {
        let of_order = ["run", "shards", "size", "sort", "tz"];
        self.given.keys().any(|name| !of_order.contains(name))
    }

    /// All that was chosen, as a text.
    pub(in crate::admin) fn choice(&self) -> String {
        format!("{} {}", self.page, self.with(&[]))
    }

    /// Another page, in the same zone.
    pub(in crate::admin) fn to(&self, path: &str, choices: &[(&str, &str)]) -> String {
        let zone = Some(("tz", self.get("tz"))).filter(|(_, zone)| !zone.is_empty());
        written(path, choices.iter().copied().chain(zone).collect())
    }

    /// The page of a job.
    pub(super) fn to_job(&self, job: &str) -> String {
        self.to(&job_path(job), &[])
    }

    /// What was chosen, but for these: what a form keeps.
    pub(super) fn kept(&self, but: &[&str]) -> impl Iterator<Item = (&'static str, &str)> {
        let given = self.given.iter().map(|(name, said)| (*name, said.as_str()));
        let kept: Vec<_> = given.filter(|(name, _)| !but.contains(name)).collect();
        kept.into_iter()
    }
}

/// The path of the page of a job.
pub(in crate::admin) fn job_path(job: &str) -> String {
    format!("/jobs/{}", encoded(job))
}

fn written(path: &str, choices: BTreeMap<&str, &str>) -> String {
    let mut address = path.to_owned();
    for (n, (name, said)) in choices.into_iter().enumerate() {
        address.push(if n == 0 { '?' } else { '&' });
        address += name;
        address.push('=');
        address += &encoded(said);
    }
    address
}

fn number(
    said: Option<String>,
    name: &'static str,
    usual: usize,
    most: usize,
) -> Result<usize, Misfit> {
    let Some(said) = said else {
        return Ok(usual);
    };
    let plain = said.bytes().all(|byte| byte.is_ascii_digit());
    let number = said
        .parse()
        .ok()
        .filter(|n| plain && (1..=most).contains(n));
    number.map_or_else(|| misfit(name, format!("a number from 1 to {most}")), Ok)
}

fn misfit<T>(name: &'static str, wanted: impl Into<String>) -> Result<T, Misfit> {
    let wanted = wanted.into();
    Err(Misfit { name, wanted })
}

fn one_of(words: &[&str]) -> String {
    match words.is_empty() {
        true => "not taken by this page".to_owned(),
        false => format!("one of {}", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKES: Takes = Takes {
        states: &["paused", "unled"],
        sorts: &["name", "next"],
        texts: &["job", "since"],
        labels: &[("unled", "no leader")],
    };

    fn read(query: &[(&str, &str)]) -> Result<Address, Misfit> {
        let query = query.iter();
        let query = query.map(|(name, said)| ((*name).to_owned(), (*said).to_owned()));
        Address::read("/runs", &TAKES, &query.collect())
    }

    #[test]
    fn a_link_carries_the_whole_choice_and_begins_with_the_first_page() {
        let address = read(&[
            ("q", " a&b "),
            ("state", "paused"),
            ("sort", "-next"),
            ("page", "7"),
            ("job", "x/y"),
            ("evil", "\"><script>"),
        ])
        .unwrap();
        assert_eq!(address.sort(), ("next", true));
        assert_eq!(
            address.with(&[]),
            "/runs?job=x%2Fy&q=a%26b&sort=-next&state=paused"
        );
        assert_eq!(
            address.with(&[("state", ""), ("page", "8")]),
            "/runs?job=x%2Fy&page=8&q=a%26b&sort=-next"
        );
        let rome = read(&[("tz", "Europe/Rome"), ("q", "x")]).unwrap();
        assert_eq!(rome.to_job("a b"), "/jobs/a%20b?tz=Europe%2FRome");
    }

    #[test]
    fn what_does_not_fit_is_refused_by_its_name() {
        let long = "x".repeat(LONGEST + 1);
        for (name, said) in [
            ("page", "0"),
            ("page", "-1"),
            ("page", "+1"),
            ("page", "1e3"),
            ("page", "99999999999999999999"),
            ("size", "101"),
            ("state", "burning"),
            ("sort", "size"),
            ("tz", "Europe/Atlantis"),
            ("tz", "../../etc/passwd"),
            ("since", "three"),
            ("since", "99999-01-01"),
            ("q", long.as_str()),
            ("job", "a\nb"),
            ("q", "\u{0}"),
        ] {
            let error = read(&[(name, said)]).unwrap_err();
            assert_eq!(error.name, name, "{said}: {}", error.wanted);
        }
        assert!(read(&[("q", ""), ("page", " ")]).is_ok(), "as if not given");
        let key = "é".repeat(LONGEST / 2);
        assert!(read(&[("job", key.as_str())]).is_ok());
        let longer = format!("{key}é");
        assert!(read(&[("job", longer.as_str())]).is_err(), "by bytes");
    }

    #[test]
    fn a_time_is_read_in_the_zone_of_the_page() {
        for (said, tz, at) in [
            ("2026-05-04 08:00", "UTC", "2026-05-04T08:00:00Z"),
            ("2026-05-04T08:00", "Europe/Rome", "2026-05-04T06:00:00Z"),
            ("2026-05-04", "Europe/Rome", "2026-05-03T22:00:00Z"),
            (
                "2026-05-04T08:00:00Z",
                "Europe/Rome",
                "2026-05-04T08:00:00Z",
            ),
        ] {
            let address = read(&[("since", said), ("tz", tz)]).unwrap();
            let read = address.moment("since").map(|at| at.to_string());
            assert_eq!(read.as_deref(), Some(at), "{said}");
        }
        assert_eq!(read(&[]).unwrap().moment("since"), None);
    }

    #[test]
    fn a_page_shows_a_part_of_all() {
        let all: Vec<usize> = (1..=120).collect();
        let shown = |page: &str| {
            let address = read(&[("page", page)]).unwrap();
            let (first, part) = address.part(&all);
            (first, part.len(), address.has_more(all.len()))
        };
        assert_eq!(shown("1"), (1, 50, true));
        assert_eq!(shown("3"), (101, 20, false));
        assert_eq!(shown("4"), (121, 0, false));
        assert_eq!(shown("100000"), (121, 0, false));
    }
}
