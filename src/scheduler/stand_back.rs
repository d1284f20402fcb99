//! When a candidate stands back for another replica, and a leader leaves its term to one: because another definition of the
//! job counts, or because an operator or the fleet's own balance asks for it.
//!
//! # When things fail
//! A replica that was to lead and does not take the job keeps it from the others for one ttl.

use std::time::Duration;

use super::{
    Shared,
    definitions::{PeerDefinition, Stance, newest, refuse},
    engine::Engine,
    term::{TermEnd, TermLoop},
};
use crate::{
    fleet::presence::INTERVAL,
    intent::Resign,
    job::Disagreement,
    ledger::{Decided, Ledger},
    lock::tally::majority,
    run::Pass,
};

/// Time between two looks of a candidate that stands back for another one.
const LOOK_AT_LEADER: Duration = Duration::from_millis(200);

impl Engine {
    /// What this replica tells of the job.
    fn own_definition(&self) -> PeerDefinition {
        PeerDefinition {
            replica: self.ctx.replica.clone(),
            name: String::new(),
            definition: self.print.whole.clone(),
            loaded: self.loaded,
            could_lead: true,
            leads: None,
        }
    }

    /// As the ledger remembers it.
    pub(super) fn decided(&self) -> Decided {
        Decided {
            ticks: self.print.ticks.clone(),
            whole: self.print.whole.clone(),
        }
    }

    /// Whether this replica, which leads the job, is to leave it to one with a newer definition. Known at once: it costs
    /// nothing to ask.
    pub(super) fn is_outdated(&self) -> bool {
        if self.spec.definition == Disagreement::Refuse {
            return false;
        }
        let others = self.ctx.peers.definitions.of(&self.name);
        newest(&self.own_definition(), &others) != Stance::Counts
    }

    /// Whether a term may begin, or go on, under this definition, when the ledger says under which one it was decided.
    pub(super) fn may_lead_after(&self, ledger: &Ledger) -> bool {
        if self.ctx.peers.failover || self.spec.definition == Disagreement::Newest {
            return true;
        }
        // A peer that said to lead does so no more: this replica holds the lock.
        let mut others = self.ctx.peers.definitions.of(&self.name);
        others.iter_mut().for_each(|peer| peer.leads = None);
        refuse(&self.own_definition(), &others, &ledger.decided_by().whole) == Stance::Counts
    }

    /// Whether this replica may be a candidate.
    async fn stance(&self) -> Stance {
        let ctx = &self.ctx;
        if ctx.peers.failover {
            // The replica lock decides; all jobs are where it is.
            return Stance::Counts;
        }
        let definitions = &ctx.peers.definitions;
        if self.spec.definition == Disagreement::Newest {
            return newest(&self.own_definition(), &definitions.of(&self.name));
        }
        if definitions.seen() == 0 {
            definitions.changed(0).await;
        }
        let others = definitions.of(&self.name);
        let me = self.own_definition();
        if others.iter().any(|peer| peer.leads.is_some()) {
            return refuse(&me, &others, "");
        }
        if others
            .iter()
            .all(|peer| peer.definition == me.definition || peer.definition.is_empty())
        {
            return Stance::Counts;
        }
        match self.led_last().await {
            Some(last) => refuse(&me, &others, &last),
            None => Stance::StandBack(
                "the replicas disagree on the definition, and too few lock nodes tell under which one it was led last"
                    .to_owned(),
            ),
        }
    }

    /// Under which definition the job was led last: empty when it never was, nothing when too few nodes answer.
    async fn led_last(&self) -> Option<String> {
        let seen = self.elector().look().await.ok()?;
        let answers = seen.nodes.iter().filter(|node| node.is_ok()).count();
        let ledger = Ledger::from_body(&seen.record().body).unwrap_or_default();
        (answers >= majority(seen.nodes.len())).then(|| ledger.decided_by().whole.clone())
    }

    /// Completes when another definition than this replica's counts, or there is a new one here.
    pub(super) async fn outvoted(&self) {
        let definitions = &self.ctx.peers.definitions;
        loop {
            let seen = definitions.seen();
            tokio::select! {
                biased;
                () = self.next_definition.there() => return,
                stance = self.stance() => if stance != Stance::Counts { return },
            }
            tokio::select! {
                biased;
                () = self.next_definition.there() => return,
                () = definitions.changed(seen) => {}
            }
        }
    }

    /// Stands back while another definition counts; says whether it did.
    pub(super) async fn stand_back_for_definition(&self, pass: &Pass) -> bool {
        let ctx = &self.ctx;
        let mut said = None;
        while !pass.is_over() && !self.next_definition.is_there() {
            let seen = ctx.peers.definitions.seen();
            let stance = tokio::select! {
                biased;
                () = pass.over() => break,
                () = self.next_definition.there() => break,
                stance = self.stance() => stance,
            };
            let Stance::StandBack(why) = stance else {
                break;
            };
            if said.as_ref() != Some(&why) {
                tracing::warn!(
                    job = self.name,
                    definition = self.print.whole,
                    why,
                    "stands back: another definition of the job counts"
                );
                ctx.local_status.stands_back(&self.name, Some(why.clone()));
                said = Some(why);
            }
            tokio::select! {
                biased;
                () = pass.over() => {}
                () = self.next_definition.there() => {}
                () = ctx.peers.definitions.changed(seen) => {}
                // The nodes say under which definition the job was led last.
                () = ctx.clock.sleep(INTERVAL) => {}
            }
        }
        if said.is_some() {
            ctx.local_status.stands_back(&self.name, None);
        }
        said.is_some()
    }

    /// Completes with an intent that another replica than this one leads next, unless it is `done` with already.
    pub(super) async fn stands_back(&self, done: Option<&Resign>) -> Resign {
        let intents = &self.ctx.intents;
        let mut seen = intents.seen();
        loop {
            let asked = intents.resign(&self.name);
            if let Some(asked) = asked
                && asked.to.as_ref().is_some_and(|to| *to != self.ctx.replica)
                && done != Some(&asked)
            {
                return asked;
            }
            intents.changed(&mut seen).await;
        }
    }

    /// Lets the one that is to lead go first: until a peer leads in a later term, or the job was without a leader for a ttl.
    pub(super) async fn stand_back(&self, asked: &Resign, pass: &Pass) {
        let Shared { clock, locks, .. } = &*self.ctx;
        let ttl = self.spec.ttl.unwrap_or(locks.timing().ttl);
        let mut free = None;
        while !pass.is_over() {
            if self.ctx.intents.resign(&self.name).as_ref() != Some(asked) {
                // The intent was taken back, or is another one.
                return;
            }
            let peers = &self.ctx.peers;
            match peers
                .leader(&self.name, locks, &self.ctx.local_status)
                .await
            {
                Some(token) if token > asked.token => return,
                Some(_) => free = None,
                None if clock.now().since(*free.get_or_insert(clock.now())) >= ttl => return,
                None => {}
            }
            tokio::select! {
                biased;
                () = pass.over() => {}
                () = clock.sleep(LOOK_AT_LEADER) => {}
            }
        }
    }
}

impl TermLoop<'_> {
    /// Why this term is to end, or to go on under another definition, as soon as nothing runs; nothing new starts until
    /// then.
    pub(super) fn leaving(&self) -> Option<TermEnd> {
        if self.engine.next_definition.is_there() {
            return Some(TermEnd::Changed);
        }
        // Without a lock every replica follows its own; in failover mode all jobs are where the replica lock is.
        let elected = self.lease.is_some() && self.pass.lease().is_none();
        (elected && self.engine.is_outdated()).then_some(TermEnd::Outdated)
    }

    /// Completes when [`TermLoop::leaving`] has something to say.
    pub(super) async fn to_leave(&self) {
        let definitions = &self.engine.ctx.peers.definitions;
        loop {
            let seen = definitions.seen();
            if self.leaving().is_some() {
                return;
            }
            tokio::select! {
                biased;
                () = self.engine.next_definition.there() => return,
                () = definitions.changed(seen) => {}
            }
        }
    }
}
