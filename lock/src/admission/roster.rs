//! Which nodes a fleet has: what is written on them, and what a program makes of it. Pure.
//!
//! Programs that are told different nodes, or whose addresses lead to different ones, must not both find a majority. So each
//! node keeps an *identity*, which is lost with its memory, and the *roster*: the identities of all nodes of its fleet. Votes count
//! together only of nodes that show one roster, which names them: each vote shows its stamp.
//!
//! The rules were searched before they were built, each with what happens without it: `tests/model/roster.rs`.
//!
//! # What a node shows
//! - *nominated*: it has no vote and no memory. It may carry the roster that is *proposed* for it. One that was another fleet's, in a
//!   life that is over, or that another fleet has closed for itself, is closed first.
//! - *admitted*: it votes, for the roster that it shows.
//! - *returned*: it was admitted, and has come back with its memory, or with an older one. It has no vote until it is admitted
//!   again. Both, returned and admitted, are *members*.
//!
//! # What is decided
//! From one look, in which all was true at one time: two rounds of reading that are alike. *R* is the roster that q different
//! members, which it names, show alike. *T* is what ought to stand:
//! 1. R, with each node that is new in the place of its address, if no address shows what had this place. A change that was begun
//!    is completed first.
//! 2. There is no R, but a roster that some member shows, and q members that it names show it or the one before: that one.
//! 3. Neither, and all nodes answer, and none is of another list: a *founding*. Every member is closed first, and then all their
//!    identities are proposed.
//!
//! Where R was written for another list of addresses, votes count and nothing is written.
//!
//! T is written to new nodes first, as a proposal; then to members that show the roster before it; then, when q members show it,
//! to all. When q members show it, or, while founding, all nodes, each node in it that does not vote is watched (G2), and
//! admitted if T still stands after that. A member that R does not name is closed: it is nominated anew. Others have voted in its
//! place, so that what it knows counts for nothing; the same goes for a member that is closed in a founding and that the latest
//! roster does not name.
//!
//! # Invariants
//! - I1 Votes count together only of nodes that show one roster, which names them, each identity once.
//!   (i1_votes_count_of_one_roster_alone, i1_an_identity_counts_once)
//! - I2 A fleet is founded when all its nodes answer, and none is of another list.
//!   (i2_a_fleet_is_founded_by_all_its_nodes, i2_a_node_of_another_list_is_left_alone)
//! - I2 What is founded stands on all nodes before a watch begins.   (i2_a_founding_is_proposed_before_it_is_watched)
//! - I3 A new node takes the place of its address, if nothing shows what was there.
//!   (i3_a_new_node_takes_the_place_of_a_lost_one, i3_what_is_shown_elsewhere_keeps_its_place)
//! - I3 Only a program of the roster's list writes.                (i3_another_list_writes_nothing)
//! - I3 A change that was begun is completed, before another is.   (i3_a_change_that_was_begun_is_completed)
//! - I4 Members are told of a new node when that carries the proposal.   (i4_members_are_told_after_new_nodes)
//! - I5 No watch begins before the roster stands.                  (i5_a_roster_stands_on_most_members)
//! - I6 A member that the roster does not name is closed, and counts as one that has lost its memory.
//!   (i6_a_member_that_is_not_named_is_closed, i6_what_a_displaced_member_knows_counts_for_nothing)
//! - I1 A server that was made from the data of another one counts for nothing, and is told.
//!   (i1_a_server_with_the_memory_of_another_is_told)
//! - G4 What is left of another fleet on a node that is nominated for this one keeps it from no roster.
//!   (g4_what_another_fleet_has_left_on_a_node_keeps_it_from_nobody)
//! - I1 What a server knows that the roster does not name is told to no node.
//!   (i1_what_a_server_of_another_fleet_knows_is_told_to_no_node)
//! - I2 What is no identity is taken into no roster.                (i2_a_planted_identity_spoils_no_roster)
//! - I3 A program begins two changes at most in the time of a watch: two programs whose addresses differ undo each other's.
//!   (i3_a_change_that_stands_nowhere_yet_begins)

use std::{collections::BTreeSet, fmt, sync::Arc};

use crate::{
    hash::fnv1a,
    node::{
        Admission, Card,
        guard::{INC, closed_since},
        majority,
    },
    settings::FleetConfig,
};

/// The nodes that a program was told, whatever their order there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    /// Stands for their addresses.
    name: String,
    /// Which node has which place: by address.
    order: Vec<usize>,
}

/// The members of a fleet, in the order of their addresses.
///
/// As text: its stamp, the list, the generation, what was before, and the identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Roster {
    list: String,
    /// Rises with each change.
    generation: u64,
    /// The stamp of the one that it replaced; [`NOTHING`] for none.
    before: String,
    ids: Vec<String>,
}

const NOTHING: &str = "0000000000000000";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// It does not answer, or compares nothing.
    Silent,
    /// It is nominated for this fleet, and was one of a fleet that is configured differently in a life that is over, or was closed
    /// by such a fleet for itself.
    Former,
    /// It answers, and is not nominated yet.
    Unnamed,
    /// It has the memory of another node of the list.
    Twin,
    /// It is kept, or about to be, for a fleet that is configured differently, or shows what is no roster.
    Foreign,
    Nominated,
    Returned,
    Admitted,
}

/// What one node shows of itself.
#[derive(Clone, Debug)]
struct Shown {
    kind: Kind,
    card: Card,
    roster: Option<Roster>,
    /// Its fleet has closed it, to be founded anew.
    was_ours: bool,
}

/// What a program makes of one look at all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    list: List,
    /// By place.
    seen: Vec<Shown>,
    /// R: what most members show alike.
    present: Option<Roster>,
    /// T: what ought to stand on all that it names.
    target: Option<Roster>,
    /// It is yet to be founded.
    anew: bool,
}

/// What is to be done about the roster of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing, and it may be watched and admitted.
    Stands,
    /// Nothing yet.
    Wait,
    /// Write this where that stands.
    Enrol(Card, String),
    /// Take its vote and its identity; and its memory counts as lost, where others may have voted in its place.
    Close(Card, bool),
}

// === impl List ===

impl List {
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by_key(|node| names[*node]);
        let sorted = order.iter().map(|node| names[*node]);
        let text: String = sorted.flat_map(|name| [name, "\n"]).collect();
        Self {
            name: hex(&text),
            order,
        }
    }
}

/// What was written there by something else would spoil the rosters of all nodes.
fn is_id(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (1..=INC).contains(&text.len()) && text.bytes().all(letter)
}

fn hex(text: &str) -> String {
    format!("{:016x}", fnv1a(text.bytes()))
}

// === impl Roster ===

impl Roster {
    fn content(&self) -> String {
        let Self {
            list,
            generation,
            before,
            ids,
        } = self;
        format!("{list} {generation} {before} {}", ids.join(","))
    }

    /// What votes are asked with.
    fn stamp(&self) -> String {
        hex(&self.content())
    }

    pub(super) fn names(&self, id: &str) -> bool {
        !id.is_empty() && self.ids.iter().any(|of| of == id)
    }

    /// Whether this, as a node shows it, is the first that its fleet has, as far as its nodes know.
    pub(crate) fn is_first(text: &str, nodes: usize) -> bool {
        Self::read(text, nodes).is_some_and(|roster| roster.generation <= 1)
    }

    fn next(&self, ids: Vec<String>) -> Self {
        Self {
            list: self.list.clone(),
            generation: self.generation.saturating_add(1),
            before: self.stamp(),
            ids,
        }
    }

    /// What a node shows, if it is a roster of so many nodes.
    pub(super) fn read(text: &str, nodes: usize) -> Option<Self> {
        let (stamp, content) = text.split_once(' ')?;
        let mut words = content.split(' ');
        let mut word = || words.next();
        let (list, generation, before, ids) = (word()?, word()?, word()?, word()?);
        let roster = Self {
            list: list.to_owned(),
            generation: generation.parse().ok()?,
            before: before.to_owned(),
            ids: ids.split(',').map(str::to_owned).collect(),
        };
        let different: BTreeSet<&String> = roster.ids.iter().collect();
        let sound = roster.ids.len() == nodes
            && different.len() == nodes
            && roster.ids.iter().all(|id| is_id(id));
        (sound && stamp == roster.stamp() && roster.to_string() == text).then_some(roster)
    }
}

impl fmt::Display for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.stamp(), self.content())
    }
}

// === impl Shown ===

impl Shown {
    const SILENT: Self = Self {
        kind: Kind::Silent,
        card: Card {
            marker: String::new(),
            nonce: String::new(),
            id: String::new(),
            roster: String::new(),
        },
        roster: None,
        was_ours: false,
    };

    fn of(shown: &Admission, ours: &FleetConfig, nodes: usize) -> Self {
        if shown.incarnation.is_empty() {
            return Self::SILENT;
        }
        let mut card = shown.card();
        let theirs = shown.config.as_deref();
        let fresh = theirs.is_none_or(|theirs| closed_since(theirs).is_some());
        let strange = ours.stranger(shown).is_some() || ours.rival(shown).is_some();
        if strange {
            // In what its fleet differs is told by the marker; its roster may be one of another number of nodes.
            card.roster.clear();
        }
        let of_a_life_before =
            !shown.admitted && theirs.is_some_and(|theirs| !fresh && theirs != ours.to_string());
        let former = (of_a_life_before || ours.closed_by_other(shown).is_some())
            && shown.nonce.is_some()
            && shown.nominated_for.as_deref() == Some(&*ours.to_string());
        let roster = Roster::read(&card.roster, nodes).filter(|_| !former);
        let kind = match () {
            () if strange => Kind::Foreign,
            () if former => Kind::Former,
            // A proposal that cannot be read is none: of a fleet of another number of nodes, say, whose nomination was replaced.
            () if !fresh && roster.is_none() && !card.roster.is_empty() => Kind::Foreign,
            () if !card.id.is_empty() && !is_id(&card.id) => Kind::Foreign,
            () if fresh && (card.nonce.is_empty() || card.id.is_empty()) => Kind::Unnamed,
            () if fresh => Kind::Nominated,
            () if theirs != Some(&*ours.to_string()) => Kind::Foreign,
            () if shown.admitted => Kind::Admitted,
            () => Kind::Returned,
        };
        let was_ours = !strange && ours.has_closed(shown);
        Self {
            kind,
            card,
            roster,
            was_ours,
        }
    }

    fn is_member(&self) -> bool {
        self.kind >= Kind::Returned
    }

    fn shows(&self, roster: &Roster) -> bool {
        self.roster.as_ref() == Some(roster)
    }

    /// It shows this roster, which names it.
    fn is_of(&self, roster: &Roster) -> bool {
        self.shows(roster) && roster.names(&self.card.id)
    }
}

// === impl Picture ===

impl Picture {
    /// `looks` are by node; nothing of one that does not answer.
    pub(crate) fn of(looks: &[Option<Admission>], list: &List, ours: &FleetConfig) -> Self {
        let nodes = list.order.len();
        let look = |node: &usize| looks.get(*node).and_then(Option::as_ref);
        let shown = |node: &usize| look(node).map(|shown| Shown::of(shown, ours, nodes));
        let seen = list
            .order
            .iter()
            .map(|node| shown(node).unwrap_or(Shown::SILENT));
        let mut picture = Self {
            list: list.clone(),
            seen: seen.collect(),
            present: None,
            target: None,
            anew: false,
        };
        picture.count_once();
        picture.present = picture.present();
        (picture.target, picture.anew) = picture.target();
        picture
    }

    /// I1: of two addresses with one identity, that which the list's roster has for it counts.
    fn count_once(&mut self) {
        let ids: Vec<String> = self.seen.iter().map(|s| s.card.id.clone()).collect();
        for (place, shown) in self.seen.iter_mut().enumerate() {
            let mut others = ids.iter().enumerate().filter(|(other, _)| *other != place);
            let twin = !ids[place].is_empty() && others.any(|(_, id)| *id == ids[place]);
            let own = shown.roster.as_ref().filter(|r| r.list == self.list.name);
            let right =
                shown.is_member() && own.is_some_and(|r| r.ids.get(place) == Some(&ids[place]));
            if twin && !right {
                *shown = Shown {
                    kind: Kind::Twin,
                    ..Shown::SILENT
                };
            }
        }
    }

    fn quorum(&self) -> usize {
        majority(self.seen.len())
    }

    fn members(&self) -> impl Iterator<Item = &Shown> {
        self.seen.iter().filter(|s| s.is_member())
    }

    fn answers(&self) -> impl Iterator<Item = &Shown> {
        self.seen.iter().filter(|s| s.kind > Kind::Twin)
    }

    /// Whether most members are such, each identity counted once.
    fn most(&self, are: impl Fn(&Shown) -> bool) -> bool {
        let members = self.members().filter(|s| are(s));
        let ids: BTreeSet<&str> = members.map(|s| s.card.id.as_str()).collect();
        ids.len() >= self.quorum()
    }

    fn present(&self) -> Option<Roster> {
        let mut shown = self.members().filter_map(|s| s.roster.as_ref());
        shown.find(|r| self.most(|s| s.is_of(r))).cloned()
    }

    /// The roster of this list that members show, that is such; of several the same for each program.
    fn tip(&self, is: impl Fn(&Roster) -> bool) -> Option<Roster> {
        let own = |r: &&Roster| r.list == self.list.name;
        let shown = self.members().filter_map(|s| s.roster.as_ref()).filter(own);
        let tips = shown.filter(|r| is(r));
        tips.max_by_key(|r| (r.generation, &r.ids, &r.before))
            .cloned()
    }

    /// T, and whether it is yet to be founded.
    fn target(&self) -> (Option<Roster>, bool) {
        let Some(present) = &self.present else {
            // A change that another has begun.
            let completed = |r: &Roster| {
                self.most(|s| {
                    let before = s.roster.as_ref().is_some_and(|of| of.stamp() == r.before);
                    r.names(&s.card.id) && (s.shows(r) || before)
                })
            };
            return match self.tip(completed) {
                Some(tip) => (Some(tip), false),
                None => self.founded(),
            };
        };
        if present.list != self.list.name {
            return (None, false);
        }
        if let Some(tip) = self.tip(|r| r.before == present.stamp()) {
            return (Some(tip), false);
        }
        let mut ids = present.ids.clone();
        for (id, shown) in ids.iter_mut().zip(&self.seen) {
            let gone = !self.seen.iter().any(|s| s.card.id == *id);
            if shown.kind == Kind::Nominated && !present.names(&shown.card.id) && gone {
                shown.card.id.clone_into(id);
            }
        }
        match ids == present.ids {
            true => (Some(present.clone()), false),
            false => (Some(present.next(ids)), false),
        }
    }

    /// It is none of a fleet that is yet to be founded.
    fn is_foreign(&self, shown: &Shown) -> bool {
        let other = |r: &Roster| r.list != self.list.name;
        shown.kind == Kind::Foreign || shown.roster.as_ref().is_some_and(other)
    }

    fn founded(&self) -> (Option<Roster>, bool) {
        if self.answers().count() < self.seen.len() || self.answers().any(|s| self.is_foreign(s)) {
            return (None, false);
        }
        let ids: Vec<String> = self.seen.iter().map(|s| s.card.id.clone()).collect();
        let shown = || self.seen.iter().filter_map(|s| s.roster.as_ref());
        // It stands already: what is left is to admit.
        if let Some(begun) = shown().next()
            && begun.ids == ids
            && self.seen.iter().all(|s| s.shows(begun))
        {
            return (Some(begun.clone()), false);
        }
        let highest = shown().map(|r| r.generation).max().unwrap_or_default();
        let begun =
            shown().filter(|r| r.generation == highest && r.ids == ids && r.before == NOTHING);
        let begun = begun.max_by_key(|r| r.stamp()).cloned();
        let target = begun.unwrap_or_else(|| Roster {
            list: self.list.name.clone(),
            generation: highest.saturating_add(1),
            before: NOTHING.to_owned(),
            ids,
        });
        (Some(target), true)
    }

    /// Whether T stands wherever it has to, so that a watch may begin.
    fn stands(&self, target: &Roster) -> bool {
        let all =
            self.answers().count() == self.seen.len() && self.answers().all(|s| s.is_of(target));
        self.most(|s| s.is_of(target)) || all
    }

    /// It is a member of this list, and the fleet has another in its place.
    fn is_displaced(&self, shown: &Shown) -> bool {
        let own = |r: &Roster| r.list == self.list.name;
        let present = self.present.as_ref().filter(|r| own(r));
        let displaced = present.is_some_and(|r| !r.names(&shown.card.id));
        shown.is_member() && shown.roster.as_ref().is_none_or(own) && displaced
    }

    /// Whether the latest roster that a member shows names this one: what it has missed it has missed as a member.
    fn is_of_the_last(&self, shown: &Shown) -> bool {
        let rosters = self.members().filter_map(|s| s.roster.as_ref());
        let last = rosters.max_by_key(|r| (r.generation, &r.ids, &r.before));
        last.is_none_or(|last| last.names(&shown.card.id))
    }

    /// Whether what is to be done changes a roster that stands, and no node shows it yet.
    pub(crate) fn begins(&self) -> bool {
        let Some(present) = &self.present else {
            return false;
        };
        let anew =
            |target: &Roster| target != present && !self.seen.iter().any(|s| s.shows(target));
        self.target.as_ref().is_some_and(anew) || self.seen.iter().any(|s| self.is_displaced(s))
    }

    fn place(&self, node: usize) -> Option<(usize, &Shown)> {
        let place = self.list.order.iter().position(|of| *of == node)?;
        Some((place, self.seen.get(place)?))
    }

    /// What is to be done about this node.
    pub(crate) fn step(&self, node: usize) -> Step {
        let Some((_, shown)) = self.place(node) else {
            return Step::Wait;
        };
        if shown.kind == Kind::Former {
            return Step::Close(shown.card.clone(), true);
        }
        if shown.kind < Kind::Nominated {
            return Step::Wait;
        }
        let own = shown
            .roster
            .as_ref()
            .is_none_or(|r| r.list == self.list.name);
        // In a founding no member may keep its vote: those of two rosters would be a majority at once.
        if self.is_displaced(shown) {
            return Step::Close(shown.card.clone(), true);
        }
        if shown.is_member() && self.anew {
            return Step::Close(shown.card.clone(), !self.is_of_the_last(shown));
        }
        let Some(target) = &self.target else {
            return Step::Wait;
        };
        if !target.names(&shown.card.id) || self.anew && self.members().next().is_some() {
            return Step::Wait;
        }
        if shown.shows(target) {
            return match self.stands(target) {
                true => Step::Stands,
                false => Step::Wait,
            };
        }
        if shown.is_member()
            && !own
            && self.present.as_ref().map(|r| &r.list) != shown.roster.as_ref().map(|r| &r.list)
        {
            return Step::Wait;
        }
        let new = |s: &&Shown| s.kind == Kind::Nominated && target.names(&s.card.id);
        let proposed = self.seen.iter().filter(new).all(|s| s.shows(target));
        if shown.is_member() && !proposed {
            return Step::Wait;
        }
        // A member leaves a roster only for its successor, or for what has come to be the fleet's.
        let successor = shown
            .roster
            .as_ref()
            .is_some_and(|r| r.stamp() == target.before);
        match successor || !shown.is_member() || self.most(|s| s.is_of(target)) {
            true => Step::Enrol(shown.card.clone(), target.to_string()),
            false => Step::Wait,
        }
    }

    /// Whether the fleet has a roster of this program's list: what it has lost is its own.
    pub(crate) fn is_complete(&self) -> bool {
        self.target.is_some() && !self.anew
    }

    /// Whether a node of the list is of this program's fleet, or was, and is closed for it.
    pub(crate) fn is_known(&self) -> bool {
        self.seen.iter().any(|s| s.is_member() || s.was_ours)
    }

    /// The fleet's votes; `None` while no majority shows one roster.
    pub(crate) fn markers(&self) -> Option<Vec<Option<Arc<str>>>> {
        let present = self.present.as_ref()?;
        let mut markers = vec![None; self.seen.len()];
        for (node, shown) in self.list.order.iter().zip(&self.seen) {
            if shown.kind == Kind::Admitted && shown.is_of(present) {
                markers[*node] = Some(shown.card.marker.as_str().into());
            }
        }
        Some(markers)
    }

    /// Why this node, which was admitted for a fleet that is configured alike, is none of ours.
    pub(crate) fn differs(&self, node: usize) -> Option<String> {
        let (_, shown) = self.place(node)?;
        if shown.kind == Kind::Twin {
            return Some(
                "here lies the memory of another node of the list: empty the server that was made as its copy"
                    .to_owned(),
            );
        }
        if shown.kind < Kind::Nominated {
            return (shown.kind == Kind::Foreign
                && !shown.card.roster.is_empty()
                && shown.roster.is_none())
            .then(|| "what it says of the nodes of its fleet makes no sense".to_owned());
        }
        let theirs = shown.roster.as_ref()?;
        if theirs.list == self.list.name || self.present.as_ref().is_some_and(|r| shown.is_of(r)) {
            return None;
        }
        let ours = self
            .seen
            .iter()
            .filter(|s| theirs.names(&s.card.id))
            .count();
        Some(format!(
            "its fleet has {} nodes, of which {ours} here: redis.nodes is another list there",
            theirs.ids.len()
        ))
    }

    /// Whether this is a member whose roster was written for other addresses: nothing of it can be repaired here.
    pub(crate) fn is_elsewhere(&self, node: usize) -> bool {
        let place = self.place(node).filter(|(_, shown)| shown.is_member());
        let roster = place.and_then(|(_, shown)| shown.roster.as_ref());
        roster.is_some_and(|roster| roster.list != self.list.name)
    }

    /// The nodes that a founding waits for: they do not answer, or are of another fleet. None where there is something to go on.
    pub(crate) fn waits_for(&self) -> Vec<usize> {
        // Where every node that answers has its memory, or none answers, nothing speaks for a founding: the others are out of reach.
        let lost = |s: &Shown| s.kind != Kind::Silent && !s.is_member();
        if self.present.is_some() || self.target.is_some() || !self.seen.iter().any(lost) {
            return Vec::new();
        }
        let seen = self.list.order.iter().zip(&self.seen);
        let absent = |s: &Shown| matches!(s.kind, Kind::Silent | Kind::Twin);
        let missing = seen.filter(|(_, s)| absent(s) || self.is_foreign(s));
        let mut missing: Vec<usize> = missing.map(|(node, _)| *node).collect();
        missing.sort_unstable();
        missing
    }

    /// How often what ought to stand has been changed since the fleet was new.
    pub(crate) fn generation(&self) -> Option<u64> {
        Some(self.target.as_ref()?.generation)
    }

    /// The nodes that have their memory, and in whose place the fleet has others.
    pub(crate) fn displaced(&self) -> Vec<usize> {
        let seen = self.list.order.iter().zip(&self.seen);
        let displaced = seen.filter(|(_, s)| self.is_displaced(s));
        displaced.map(|(node, _)| *node).collect()
    }

    /// Most of its nodes are members of one roster, which was written for other addresses.
    pub(crate) fn is_renamed(&self) -> bool {
        self.present
            .as_ref()
            .is_some_and(|r| r.list != self.list.name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::{Expiry, RestartGuard};

    fn ours() -> FleetConfig {
        FleetConfig {
            layout: 2,
            nodes: 3,
            max_ttl: Duration::from_secs(30),
            expiry: Expiry::Observed,
            generation: 1,
            guard: RestartGuard::Call,
            raw_keys: false,
            drift_ppm: 10_000,
            failover: false,
        }
    }

    /// Three nodes, told in no order.
    fn list() -> List {
        List::of(["b", "a", "c"])
    }

    fn other() -> List {
        List::of(["c", "d", "e"])
    }

    fn roster(of: &List, generation: u64, before: &str, ids: [&str; 3]) -> Roster {
        Roster {
            list: of.name.clone(),
            generation,
            before: before.to_owned(),
            ids: ids.map(str::to_owned).to_vec(),
        }
    }

    /// By address: the first, which is the second that was told.
    fn first() -> Roster {
        roster(&list(), 1, NOTHING, ["ida", "idb", "idc"])
    }

    fn new(id: &str) -> Admission {
        Admission {
            incarnation: "i".into(),
            nonce: Some(format!("n-{id}")),
            nominated_for: Some(ours().to_string()),
            id: id.into(),
            ..Admission::default()
        }
    }

    fn proposed(id: &str, roster: &Roster) -> Admission {
        Admission {
            roster: roster.to_string(),
            ..new(id)
        }
    }

    fn member(id: &str, roster: &Roster) -> Admission {
        Admission {
            admitted: true,
            nonce: None,
            nominated_for: None,
            config: Some(ours().to_string()),
            inc: format!("inc{id}"),
            marker: crate::node::guard::marker(&format!("inc{id}"), &roster.to_string()),
            ..proposed(id, roster)
        }
    }

    fn returned(id: &str, roster: &Roster) -> Admission {
        Admission {
            admitted: false,
            ..member(id, roster)
        }
    }

    /// What the nodes `b`, `a` and `c` show.
    fn picture(b: Option<Admission>, a: Option<Admission>, c: Option<Admission>) -> Picture {
        Picture::of(&[b, a, c], &list(), &ours())
    }

    fn enrolled(step: &Step) -> Option<Roster> {
        match step {
            Step::Enrol(_, text) => Roster::read(text, 3),
            _ => None,
        }
    }

    const B: usize = 0;
    const A: usize = 1;
    const C: usize = 2;

    #[test]
    fn a_roster_is_written_and_read_back() {
        let text = first().to_string();
        assert_eq!(Roster::read(&text, 3), Some(first()));
        assert_eq!(
            text.split(' ').next().map(str::len),
            Some(crate::node::guard::STAMP)
        );
        for broken in [
            String::new(),
            text.replace("idb", "idx"),
            text.replace(' ', "  "),
            format!("{text} more"),
            roster(&list(), 1, NOTHING, ["a", "a", "c"]).to_string(),
            roster(&list(), 1, NOTHING, ["a", "", "c"]).to_string(),
        ] {
            assert_eq!(Roster::read(&broken, 3), None, "{broken}");
        }
        assert_eq!(Roster::read(&text, 5), None, "of another number of nodes");
        assert_eq!(List::of(["c", "b", "a"]).name, list().name, "in any order");
        assert_ne!(other().name, list().name);
    }

    #[test]
    fn i1_votes_count_of_one_roster_alone() {
        let next = first().next(vec!["ida".into(), "idb".into(), "idx".into()]);
        let marker = |shown: &Admission| Some(Arc::from(shown.marker.as_str()));
        let (a, b, c) = (
            member("ida", &first()),
            member("idb", &first()),
            member("idx", &next),
        );
        let p = picture(Some(b.clone()), Some(a.clone()), Some(c.clone()));
        assert_eq!(p.markers(), Some(vec![marker(&b), marker(&a), None]));
        // No majority shows one.
        let moved = member("idb", &next);
        assert_eq!(picture(Some(moved), Some(a.clone()), None).markers(), None);
        // What it does not name, and what has come back, has no vote.
        let strange = member("idz", &first());
        let p = picture(Some(b.clone()), Some(a.clone()), Some(strange));
        assert_eq!(p.markers(), Some(vec![marker(&b), marker(&a), None]));
        let p = picture(Some(b.clone()), Some(returned("ida", &first())), Some(c));
        assert_eq!(p.markers(), Some(vec![marker(&b), None, None]));
    }

    #[test]
    fn i1_an_identity_counts_once() {
        let twice = member("ida", &first());
        let p = picture(Some(twice.clone()), Some(twice.clone()), None);
        assert_eq!(p.markers(), None);
        let c = member("idc", &first());
        let p = picture(Some(twice.clone()), Some(twice), Some(c));
        let votes: Vec<bool> = p.markers().unwrap().iter().map(Option::is_some).collect();
        assert_eq!(votes, [false, true, true], "where its roster has it");
    }

    #[test]
    fn i2_a_fleet_is_founded_by_all_its_nodes() {
        let p = picture(Some(new("idb")), Some(new("ida")), None);
        assert_eq!((p.step(A), p.step(B)), (Step::Wait, Step::Wait));
        assert_eq!(p.waits_for(), [2]);
        let p = picture(Some(new("idb")), Some(new("ida")), Some(new("idc")));
        for node in [A, B, C] {
            assert_eq!(enrolled(&p.step(node)), Some(first()));
        }
        // A majority that has lost its memory: the last member loses its vote first.
        let p = picture(
            Some(new("idx")),
            Some(member("ida", &first())),
            Some(new("idy")),
        );
        assert!(
            matches!(p.step(A), Step::Close(_, false)),
            "{:?}",
            p.step(A)
        );
        assert_eq!((p.step(B), p.step(C)), (Step::Wait, Step::Wait));
        let p = picture(Some(new("idx")), Some(new("idz")), Some(new("idy")));
        let again = roster(&list(), 1, NOTHING, ["idz", "idx", "idy"]);
        assert_eq!(enrolled(&p.step(A)), Some(again));
    }

    #[test]
    fn i2_what_is_new_is_founded_although_it_shows_less_than_a_majority() {
        let p = picture(Some(new("idx")), None, Some(member("idc", &first())));
        assert_eq!((p.step(B), p.step(C)), (Step::Wait, Step::Wait));
    }

    #[test]
    fn i2_what_is_to_be_founded_names_the_nodes_that_it_waits_for() {
        let waits = |b, a, c| picture(b, a, c).waits_for();
        // Nothing is known, or one that has its memory is alone.
        assert!(waits(None, None, None).is_empty());
        assert!(waits(None, Some(member("ida", &first())), None).is_empty());
        assert_eq!(waits(Some(new("b")), None, None), [1, 2]);
        // A member that is alone, beside one that has lost its memory.
        let member = member("idb", &first());
        assert_eq!(waits(Some(member.clone()), Some(new("a")), None), [2]);
        let theirs = proposed("c", &roster(&other(), 1, NOTHING, ["c", "d", "e"]));
        assert_eq!(waits(Some(new("b")), Some(new("a")), Some(theirs)), [2]);
        assert_eq!(
            waits(Some(new("b")), Some(new("a")), Some(new("c"))),
            [0; 0]
        );
        let unnamed = Admission {
            incarnation: "i".into(),
            ..Admission::default()
        };
        assert_eq!(waits(Some(unnamed.clone()), Some(unnamed), None), [2]);
        let another = super::tests::member("ida", &first());
        assert_eq!(
            waits(Some(member), Some(another), None),
            [0; 0],
            "a majority"
        );
    }

    #[test]
    fn i2_a_node_of_another_list_is_left_alone() {
        let theirs = roster(&other(), 1, NOTHING, ["idc", "idd", "ide"]);
        for c in [
            member("idc", &theirs),
            proposed("idc", &theirs),
            returned("idc", &theirs),
        ] {
            let p = picture(Some(new("idb")), Some(new("ida")), Some(c));
            for node in [A, B, C] {
                assert_eq!(p.step(node), Step::Wait);
            }
            assert!(p.differs(C).unwrap().contains("3 nodes, of which 1 here"));
            assert!(!p.is_complete());
        }
        let strange = Admission {
            roster: "nonsense".into(),
            ..member("idc", &first())
        };
        let p = picture(Some(new("idb")), Some(new("ida")), Some(strange));
        assert_eq!(p.step(A), Step::Wait);
        assert!(p.differs(C).is_some());
    }

    #[test]
    fn i2_a_founding_is_proposed_before_it_is_watched() {
        let some = |c| {
            picture(
                Some(proposed("idb", &first())),
                Some(proposed("ida", &first())),
                c,
            )
        };
        let p = some(Some(new("idc")));
        assert_eq!((p.step(A), p.step(B)), (Step::Wait, Step::Wait));
        assert_eq!(enrolled(&p.step(C)), Some(first()));
        assert_eq!(some(None).step(A), Step::Wait);
        let p = some(Some(proposed("idc", &first())));
        for node in [A, B, C] {
            assert_eq!(p.step(node), Step::Stands);
        }
    }

    #[test]
    fn i3_a_new_node_takes_the_place_of_a_lost_one() {
        let (a, b) = (member("ida", &first()), member("idb", &first()));
        let p = picture(Some(b.clone()), Some(a.clone()), Some(new("idx")));
        let next = first().next(vec!["ida".into(), "idb".into(), "idx".into()]);
        assert_eq!(enrolled(&p.step(C)), Some(next.clone()));
        assert!(p.is_complete());
        assert_eq!(p.step(A), Step::Wait, "after the new one");
        // Also from another list, which has begun to take it.
        let theirs = roster(&other(), 1, NOTHING, ["idx", "idd", "ide"]);
        let p = picture(Some(b), Some(a), Some(proposed("idx", &theirs)));
        assert_eq!(enrolled(&p.step(C)), Some(next));
    }

    #[test]
    fn i3_what_is_shown_elsewhere_keeps_its_place() {
        // The address of the last leads to a new node, that of the second to what was the last.
        let p = picture(
            Some(member("idc", &first())),
            Some(member("ida", &first())),
            Some(new("idx")),
        );
        for node in [A, B] {
            assert_eq!(p.step(node), Step::Stands);
        }
        assert_eq!(p.step(C), Step::Wait);
    }

    #[test]
    fn i3_another_list_writes_nothing() {
        let theirs = roster(&other(), 1, NOTHING, ["ida", "idb", "idc"]);
        let p = picture(
            Some(member("idb", &theirs)),
            Some(member("ida", &theirs)),
            Some(new("idx")),
        );
        for node in [A, B, C] {
            assert_eq!(p.step(node), Step::Wait);
        }
        assert!(p.markers().is_some(), "votes count");
        assert!(p.is_renamed() && p.is_elsewhere(A) && p.differs(A).is_none());
    }

    #[test]
    fn i3_a_change_that_was_begun_is_completed() {
        let next = first().next(vec!["ida".into(), "idb".into(), "idx".into()]);
        // By its author before, on one member: another program goes on, also when the new node is gone again.
        for c in [None, Some(proposed("idx", &next)), Some(new("idy"))] {
            let p = picture(Some(member("idb", &first())), Some(member("ida", &next)), c);
            assert_eq!(enrolled(&p.step(B)), Some(next.clone()));
        }
    }

    #[test]
    fn i4_members_are_told_after_new_nodes() {
        let next = first().next(vec!["ida".into(), "idb".into(), "idx".into()]);
        let (a, b) = (member("ida", &first()), member("idb", &first()));
        let p = picture(
            Some(b.clone()),
            Some(member("ida", &next)),
            Some(new("idx")),
        );
        assert_eq!(p.step(B), Step::Wait);
        let p = picture(Some(b), Some(a), Some(proposed("idx", &next)));
        // Nothing tells of it yet but the new node itself, and what follows is the same.
        assert_eq!(enrolled(&p.step(A)), Some(next.clone()));
        assert_eq!(enrolled(&p.step(B)), Some(next));
    }

    #[test]
    fn i5_a_roster_stands_on_most_members() {
        let next = first().next(vec!["ida".into(), "idb".into(), "idx".into()]);
        let new = Some(proposed("idx", &next));
        let p = picture(
            Some(member("idb", &first())),
            Some(member("ida", &next)),
            new.clone(),
        );
        assert_eq!(p.step(C), Step::Wait);
        let p = picture(Some(member("idb", &next)), Some(member("ida", &next)), new);
        assert_eq!(p.step(C), Step::Stands);
        // What has come back with its memory is watched as well.
        let p = picture(
            Some(member("idb", &first())),
            Some(member("ida", &first())),
            Some(returned("idc", &first())),
        );
        assert_eq!(p.step(C), Step::Stands);
        let all = ["idb", "ida", "idc"].map(|id| Some(returned(id, &first())));
        let [b, a, c] = all;
        assert_eq!(
            picture(b.clone(), a.clone(), None).step(A),
            Step::Stands,
            "one is down"
        );
        assert_eq!(picture(b, a, c).step(A), Step::Stands);
    }

    #[test]
    fn i6_what_a_displaced_member_knows_counts_for_nothing() {
        // Others have voted in its place, one of them has lost its memory, and its address is back.
        let next = first().next(vec!["ida".into(), "idb".into(), "idx".into()]);
        let p = picture(
            Some(new("idn")),
            Some(member("ida", &next)),
            Some(member("idc", &first())),
        );
        assert!(
            matches!(p.step(A), Step::Close(_, false)),
            "{:?}",
            p.step(A)
        );
        assert!(matches!(p.step(C), Step::Close(_, true)), "{:?}", p.step(C));
    }

    #[test]
    fn i1_a_server_with_the_memory_of_another_is_told() {
        let p = picture(
            Some(member("idb", &first())),
            Some(member("ida", &first())),
            Some(member("ida", &first())),
        );
        assert!(p.differs(C).unwrap().contains("the memory of another node"));
        assert_eq!((p.differs(A), p.differs(B)), (None, None));
        assert_eq!(p.step(C), Step::Wait);
    }

    #[test]
    fn g4_what_another_fleet_has_left_on_a_node_keeps_it_from_nobody() {
        let theirs = FleetConfig { nodes: 1, ..ours() };
        let alone = Roster {
            ids: vec!["idb".into()],
            ..first()
        };
        // It had begun to found itself on the node, when that was nominated for us.
        let left = Admission {
            roster: alone.to_string(),
            ..new("idb")
        };
        let p = picture(Some(left.clone()), Some(new("ida")), Some(new("idc")));
        let all = enrolled(&p.step(A)).unwrap();
        assert_eq!(all.ids, ["ida", "idb", "idc"]);
        assert!(matches!(p.step(B), Step::Enrol(was, _) if was.roster == left.roster));
        // It had the node in a life that is over.
        let was_theirs = Admission {
            config: Some(theirs.to_string()),
            inc: "inc".into(),
            marker: crate::node::guard::marker("inc", &left.roster),
            ..left
        };
        let p = picture(Some(was_theirs.clone()), Some(new("ida")), Some(new("idc")));
        assert!(matches!(p.step(B), Step::Close(_, true)), "{:?}", p.step(B));
        assert_eq!(
            (p.step(A), p.step(C), p.differs(B)),
            (Step::Wait, Step::Wait, None)
        );
        // It has it still.
        let is_theirs = Admission {
            admitted: true,
            ..was_theirs
        };
        let p = picture(Some(is_theirs), Some(new("ida")), Some(new("idc")));
        assert_eq!((p.step(B), p.step(A)), (Step::Wait, Step::Wait));
    }

    #[test]
    fn i2_a_planted_identity_spoils_no_roster() {
        for planted in ["a,b", "a b", "0123456789abcdefg", "é"] {
            let p = picture(Some(new("idb")), Some(new("ida")), Some(new(planted)));
            for node in [A, B, C] {
                assert_eq!(p.step(node), Step::Wait, "{planted}");
            }
        }
    }

    #[test]
    fn i3_a_change_that_stands_nowhere_yet_begins() {
        let (a, b) = (member("ida", &first()), member("idb", &first()));
        let p = |c| picture(Some(b.clone()), Some(a.clone()), c);
        assert!(!p(Some(member("idc", &first()))).begins());
        assert!(p(Some(new("idx"))).begins());
        let next = first().next(vec!["ida".into(), "idb".into(), "idx".into()]);
        assert!(!p(Some(proposed("idx", &next))).begins(), "completed");
        assert!(!picture(Some(new("idb")), Some(new("ida")), Some(new("idc"))).begins());
    }

    #[test]
    fn i6_a_member_that_is_not_named_is_closed() {
        let next = first().next(vec!["ida".into(), "idb".into(), "idx".into()]);
        let p = picture(
            Some(member("idb", &next)),
            Some(member("ida", &next)),
            Some(member("idc", &first())),
        );
        assert!(matches!(p.step(C), Step::Close(_, true)), "{:?}", p.step(C));
        assert_eq!(p.step(A), Step::Stands);
        assert_eq!(p.displaced(), [2]);
    }
}
