//! Texts with facts of a run in them: `${job}`, `${tick}` and so on; `$${` stands for `${`.

use percent_encoding::{CONTROLS, utf8_percent_encode};
use watchkeeper::job::Run;

use crate::{
    kinds::template::{self, Part},
    web::RESERVED,
};

/// A text with places for facts.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Template(template::Template<Fact>);

/// What a place is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// The job's name.
    Job,
    /// The tick, as RFC 3339 in UTC.
    Tick,
    /// 1 for the first attempt.
    Attempt,
    /// The fencing token.
    Token,
    /// The id of the run.
    RunId,
    /// The replica that runs it.
    Replica,
    /// Which shard of the job it is, from 0.
    Shard,
    /// How many shards the job has; 1 without shards.
    Shards,
}

/// The facts of one run, as texts.
#[derive(Clone, Debug)]
pub(super) struct Facts([String; 8]);

/// Where a text goes, and what a fact must not do there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// An address: facts are percent-encoded, so that none is a separator.
    Url,
    /// A header: what a header cannot carry is percent-encoded.
    Header,
    /// Within the quotes of a JSON text: quotes, backslashes and control characters are escaped.
    Json,
    /// Anything else: facts as they are.
    Text,
}

/// Each fact, the name of its place, and the header it is sent as.
pub(super) const FACTS: [(Fact, &str, &str); 8] = [
    (Fact::Job, "job", "watchkeeper-job"),
    (Fact::Tick, "tick", "watchkeeper-tick"),
    (Fact::Attempt, "attempt", "watchkeeper-attempt"),
    (Fact::Token, "token", "watchkeeper-token"),
    (Fact::RunId, "run_id", "watchkeeper-run-id"),
    (Fact::Replica, "replica", "watchkeeper-replica"),
    (Fact::Shard, "shard", "watchkeeper-shard"),
    (Fact::Shards, "shards", "watchkeeper-shards"),
];

// === impl Template ===

impl Template {
    /// Reads a text.
    ///
    /// # Errors
    /// A sentence for the reader of the configuration, about a place that is unknown or not closed.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fact = |name: &str, _: &str| {
            let found = FACTS.into_iter().find(|(_, known, _)| *known == name);
            found.map(|(fact, ..)| fact)
        };
        let known = FACTS.map(|(_, name, _)| format!("${{{name}}}")).join(", ");
        template::Template::parse(text, &format!("there are {known}"), fact).map(Self)
    }

    /// The text with the facts in their places.
    pub(super) fn fill(&self, facts: &Facts, destination: Destination) -> String {
        let texts = self.0.parts().iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Placeholder(fact) => escaped(facts.get(*fact), destination),
        });
        texts.collect()
    }
}

/// A fact as it may stand there.
pub(super) fn escaped(fact: &str, destination: Destination) -> String {
    match destination {
        Destination::Url => utf8_percent_encode(fact, RESERVED).to_string(),
        Destination::Header => utf8_percent_encode(fact, CONTROLS).to_string(),
        Destination::Json => {
            let quoted = serde_json::Value::from(fact).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        }
        Destination::Text => fact.to_owned(),
    }
}

// === impl Facts ===

impl Facts {
    /// Those of a run.
    pub(super) fn of(run: &Run) -> Self {
        Self([
            run.job().to_owned(),
            run.tick().to_string(),
            run.attempt().to_string(),
            run.token().to_string(),
            run.id().to_owned(),
            run.facts().replica.clone(),
            run.facts().shard.to_string(),
            run.facts().shards.to_string(),
        ])
    }

    /// Some that could be, to look at a template before there is a run.
    pub(super) fn sample() -> Self {
        let facts = [
            "job",
            "2026-01-02T03:04:05Z",
            "1",
            "1",
            "run",
            "replica",
            "0",
            "1",
        ];
        Self(facts.map(str::to_owned))
    }

    /// One of them.
    pub(super) fn get(&self, fact: Fact) -> &str {
        &self.0[fact as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, destination: Destination) -> String {
        let mut facts = Facts::sample();
        facts.0[Fact::Replica as usize] = "a \"b\"/\\\nü".to_owned();
        Template::parse(text).unwrap().fill(&facts, destination)
    }

    #[test]
    fn every_fact_has_its_place() {
        let names = FACTS.map(|(_, name, _)| format!("${{{name}}}")).join(" ");
        let text = Template::parse(&names).unwrap();
        assert_eq!(
            text.fill(&Facts::sample(), Destination::Text),
            "job 2026-01-02T03:04:05Z 1 1 run replica 0 1"
        );
    }

    #[test]
    fn two_dollars_stand_for_one() {
        assert_eq!(
            filled("$${job} ${job} $ {} $5 $$", Destination::Text),
            "${job} job $ {} $5 $$"
        );
    }

    #[test]
    fn a_fact_cannot_leave_its_place() {
        let encoded = "a%20%22b%22%2F%5C%0A%C3%BC";
        assert_eq!(
            filled("/${replica}", Destination::Url),
            format!("/{encoded}")
        );
        assert_eq!(
            filled("${tick}", Destination::Url),
            "2026-01-02T03%3A04%3A05Z"
        );
        assert_eq!(
            filled("${replica}", Destination::Header),
            "a \"b\"/\\%0A%C3%BC"
        );
        let json = filled("{\"by\": \"${replica}\"}", Destination::Json);
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["by"], "a \"b\"/\\\nü");
        assert_eq!(filled("${replica}", Destination::Text), "a \"b\"/\\\nü");
    }

    #[test]
    fn an_unknown_or_open_place_lists_the_known_ones() {
        for wrong in ["${name}", "a ${job", "${}", "${ job }", "${$${job}"] {
            let text = Template::parse(wrong).err().unwrap();
            assert!(text.contains("${run_id}") && text.contains("$${"), "{text}");
        }
    }
}
