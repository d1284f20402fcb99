//! Who may vote: the admission marker, nominations, and what is merged in before a node is admitted.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Body, LAST, Rows, Turn, later};
use crate::node::{
    Admission, Answer, Card, Eligibility, Record, Token,
    guard::{INC, closed_since, marker},
};

/// What lies in a node's data for its guard; gone with it when the memory is lost.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Gate {
    marker: Option<Marker>,
    nomination: Option<Nomination>,
    /// The nonce of the first nomination; empty before that.
    id: String,
    /// Who the nodes of the fleet are, or are to be.
    roster: String,
}

/// In the place of an incarnation: of the marker of before, while another incarnation is watched. No server is called so.
const NOMINATED: &str = "(nominated)";

/// Which incarnation may vote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    /// Empty for a fleet without a guard.
    incarnation: String,
    /// The nonce of the admission: what is written from then on carries it. Empty for a fleet without a guard.
    inc: String,
    /// That and the stamp of the roster: what votes are compared with.
    text: Arc<str>,
    config: String,
    memory_loss: Option<i64>,
}

/// Which incarnation is watched, and by which fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Nomination {
    incarnation: String,
    nonce: String,
    config: String,
}

/// A node whose callers compare what their fleet has in common, as one call meets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarded<'a> {
    /// The present incarnation; empty for a caller without the guard.
    pub(crate) incarnation: &'a str,
    /// The configuration of the caller's fleet.
    pub(crate) config: &'a str,
}

// === impl Gate ===

impl Gate {
    /// As it was written; one that makes no sense is none.
    #[cfg(any(feature = "postgres", feature = "etcd"))]
    pub(crate) fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// As text.
    #[cfg(any(feature = "postgres", feature = "etcd"))]
    pub(crate) fn written(&self) -> String {
        // Texts and numbers only: nothing that cannot be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn admitted(&self, incarnation: &str) -> Option<&Marker> {
        let marker = self.marker.as_ref();
        marker.filter(|marker| marker.incarnation == incarnation)
    }

    fn standing_nonce(&self, incarnation: &str) -> Option<&str> {
        let nomination = self.nomination.as_ref();
        let current = nomination.filter(|n| n.incarnation == incarnation);
        current.map(|n| n.nonce.as_str())
    }

    fn nominated_for(&self, incarnation: &str) -> Option<&str> {
        let nomination = self.nomination.as_ref();
        let current = |n: &&Nomination| n.incarnation == incarnation || incarnation.is_empty();
        nomination.filter(current).map(|n| n.config.as_str())
    }

    pub(super) fn eligibility(&self, guarded: Guarded<'_>) -> Eligibility {
        let unguarded = guarded.incarnation.is_empty();
        let Some(marker) = &self.marker else {
            let rival = self.nomination.as_ref().map(|n| &n.config);
            return match rival.filter(|config| *config != guarded.config) {
                _ if !unguarded => Eligibility::Unadmitted,
                // A fleet that guards its nodes is about to admit this one.
                Some(theirs) => Eligibility::Configured(theirs.clone()),
                None => Eligibility::Unguarded,
            };
        };
        // Programs that guard their nodes and programs that do not name each other, whatever was lost meanwhile.
        let apart = unguarded || marker.incarnation.is_empty();
        let is_present = marker.incarnation == guarded.incarnation;
        if !is_present && !apart {
            Eligibility::Unadmitted
        } else if marker.config != guarded.config {
            Eligibility::Configured(marker.config.clone())
        } else if is_present {
            Eligibility::Admitted(marker.text.clone())
        } else {
            Eligibility::Unadmitted
        }
    }

    /// Without the guard nothing is waited for: the first vote of such a fleet marks the node as its own.
    pub(super) fn mark(&mut self, guarded: Guarded<'_>) {
        if self.eligibility(guarded) == Eligibility::Unguarded {
            self.marker = Some(Marker {
                incarnation: String::new(),
                inc: String::new(),
                text: marker("", "").into(),
                config: guarded.config.to_owned(),
                memory_loss: None,
            });
        }
    }
}

// === impl Turn ===

impl<R: Rows> Turn<'_, R> {
    /// G1: what is not admitted does not vote.
    pub(super) fn may_vote(&self) -> bool {
        self.guarded.is_none() || matches!(self.eligibility(), Eligibility::Admitted(_))
    }

    pub(super) fn eligibility(&self) -> Eligibility {
        self.guarded.map_or(Eligibility::Unguarded, |guarded| {
            self.gate.eligibility(guarded)
        })
    }

    /// The incarnation of what is written now; `None` while no records count.
    pub(super) fn inc(&self) -> Option<&str> {
        match self.guarded {
            None => Some(""),
            Some(guarded) => Some(&self.gate.admitted(guarded.incarnation)?.inc),
        }
    }

    /// Whether what carries this incarnation names its owner: that of another one does not.
    pub(super) fn names(&self, inc: &str) -> bool {
        self.inc() == Some(inc)
    }

    pub(super) fn admission(&mut self) -> Result<Answer, R::Error> {
        let counter = self.rows.forgotten()?;
        let Some(Guarded { incarnation, .. }) = self.guarded else {
            return Ok(Answer::Admission(Admission {
                admitted: true,
                counter,
                ..Admission::default()
            }));
        };
        let marker = self.gate.marker.as_ref();
        Ok(Answer::Admission(Admission {
            incarnation: incarnation.to_owned(),
            nonce: self.gate.standing_nonce(incarnation).map(str::to_owned),
            nominated_for: self.gate.nominated_for(incarnation).map(str::to_owned),
            admitted: self.gate.admitted(incarnation).is_some(),
            inc: marker.map(|m| m.inc.clone()).unwrap_or_default(),
            marker: marker.map(|m| m.text.to_string()).unwrap_or_default(),
            id: self.gate.id.clone(),
            roster: self.gate.roster.clone(),
            config: marker.map(|m| m.config.clone()),
            counter,
            memory_loss: marker.and_then(|m| m.memory_loss),
        }))
    }

    pub(super) fn nominate(&mut self, nonce: &str, over: Option<&str>) -> Result<Answer, R::Error> {
        if let Some(Guarded {
            incarnation,
            config,
        }) = self.guarded
            && !self.may_vote()
            && self
                .gate
                .standing_nonce(incarnation)
                .is_none_or(|stands| Some(stands) == over)
        {
            self.gate.nomination = Some(Nomination {
                incarnation: incarnation.to_owned(),
                nonce: nonce.to_owned(),
                config: config.to_owned(),
            });
            if self.gate.id.is_empty() {
                nonce.clone_into(&mut self.gate.id);
            }
            // A caller that does not ask for incarnations would go on to vote by the marker of before; and where the memory comes
            // back to the server of before, it may not count either.
            if let Some(marker) = &mut self.gate.marker
                && !incarnation.is_empty()
                && !marker.incarnation.is_empty()
                && marker.incarnation != incarnation
            {
                nonce.clone_into(&mut marker.inc);
                NOMINATED.clone_into(&mut marker.incarnation);
                let stamp = marker.text.get(INC..).unwrap_or_default();
                marker.text = self::marker(nonce, stamp).into();
            }
        }
        self.admission()
    }

    /// Whether exactly this stands here.
    fn shows(&self, was: &Card) -> bool {
        let Some(Guarded { incarnation, .. }) = self.guarded else {
            return false;
        };
        let nonce = self.gate.standing_nonce(incarnation).unwrap_or_default();
        let marker = self.gate.marker.as_ref().map_or("", |m| &m.text);
        let Gate { id, roster, .. } = &*self.gate;
        (marker, nonce, id, roster) == (&*was.marker, &*was.nonce, &was.id, &was.roster)
    }

    pub(super) fn enrol(&mut self, was: &Card, roster: &str) -> Answer {
        let Some(guarded) = self.guarded.filter(|_| self.shows(was)) else {
            return Answer::Unadmitted;
        };
        let is_nominated = self.is_nominated(&was.nonce);
        match &mut self.gate.marker {
            Some(member) if member.config == guarded.config => {
                member.text = marker(&member.inc, roster).into();
            }
            Some(other) if closed_since(&other.config).is_none() => return Answer::Unadmitted,
            _ if !is_nominated => return Answer::Unadmitted,
            _ => {}
        }
        roster.clone_into(&mut self.gate.roster);
        Answer::Done
    }

    pub(super) fn close(&mut self, was: &Card, nonce: &str, config: &str, forgets: bool) -> Answer {
        if !self.shows(was) {
            return Answer::Unadmitted;
        }
        let before = self.gate.marker.take();
        self.gate.marker = Some(Marker {
            // What a node that has lost its memory was admitted as stays unknown.
            incarnation: before.as_ref().filter(|_| !forgets).map_or_else(
                || "(closed)".to_owned(),
                |marker| marker.incarnation.clone(),
            ),
            inc: nonce.to_owned(),
            text: marker(nonce, "").into(),
            config: config.to_owned(),
            memory_loss: before.and_then(|marker| marker.memory_loss),
        });
        self.gate.nomination = None;
        self.gate.id.clear();
        self.gate.roster.clear();
        Answer::Done
    }

    /// Only the fleet that has nominated a node may admit it.
    fn is_nominated(&self, nonce: &str) -> bool {
        self.guarded.is_some_and(|guarded| {
            let nomination = self.gate.nomination.as_ref();
            nomination.is_some_and(|n| {
                (n.incarnation.as_str(), n.nonce.as_str()) == (guarded.incarnation, nonce)
                    && n.config == guarded.config
            })
        })
    }

    /// The body by the larger version; rows stay as they are.
    pub(super) fn merge(
        &mut self,
        nonce: &str,
        key: &str,
        record: &Record,
        retention: Duration,
    ) -> Result<Answer, R::Error> {
        if !self.is_nominated(nonce) {
            return Ok(Answer::Unadmitted);
        }
        let stood = self.body(key)?;
        let version = stood.as_ref().map(|body| body.record.version);
        if record.version > version.unwrap_or_default() {
            let until = match stood {
                Some(body) => body.until,
                None => Some(later(self.now, retention)),
            };
            let record = record.clone();
            let damaged = false;
            let body = Body {
                record,
                until,
                damaged,
            };
            self.rows.put_body(key, &body)?;
        }
        Ok(Answer::Done)
    }

    pub(super) fn admit(
        &mut self,
        nonce: &str,
        (config, roster): (&str, &str),
        counter: Token,
        memory_loss: Option<i64>,
    ) -> Result<Answer, R::Error> {
        let Some(Guarded { incarnation, .. }) = self.guarded else {
            return Ok(Answer::Unadmitted);
        };
        // Sent again, or by another who watched the same nomination.
        let unguarded = incarnation.is_empty();
        let inc = if unguarded { "" } else { nonce };
        let before = self.gate.admitted(incarnation);
        let again = before.is_some_and(|m| m.inc == inc && (!unguarded || m.config == config));
        if !again {
            if !self.is_nominated(nonce) || self.gate.roster != roster {
                return Ok(Answer::Unadmitted);
            }
            self.gate.nomination = None;
            self.gate.marker = Some(Marker {
                incarnation: incarnation.to_owned(),
                inc: inc.to_owned(),
                text: marker(inc, roster).into(),
                config: config.to_owned(),
                memory_loss,
            });
            // What others know is in it: a counter that is none of ours is written over.
            if self.rows.forgotten()? > LAST {
                self.rows.set_forgotten(counter)?;
            }
        }
        self.raise(counter)?;
        Ok(Answer::Done)
    }
}
