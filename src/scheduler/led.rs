//! Runs a job in one replica at a time: campaigns for its lock, holds terms, hands over.

use std::time::Duration;

use super::{
    ahead::Ahead,
    engine::Engine,
    ledger_store::LedgerStore,
    term::{TermEnd, TermLoop},
};
use crate::{
    election::{Elected, Elector},
    event::Event,
    intent::Resign,
    lease::{LeaseView, Loss, StopPolicy, Unstoppable},
    lock::LockError,
    run::Pass,
    status::JobStanding,
    term::Term,
};

/// How it ended that a replica stood for election.
enum Stood {
    Elected(Result<Elected, LockError>),
    /// It lets the replica go first that is to lead next.
    Back(Resign),
}

impl Engine {
    /// Runs the job in one replica at a time, until the worker drains.
    pub(crate) async fn run_led(&mut self) {
        let ctx = &self.ctx.clone();
        // Whatever keeps this replica from being a candidate now: when it becomes one, the leader may be dead already.
        let mut watching = Some(self.keep_watching());
        let mut stood_back = None;
        while let Some(pass) = ctx.gate.pass().await {
            // Boxed, here and below: a leader needs no room for a campaign.
            let Some(elected) = Box::pin(self.elected(&pass, &mut stood_back)).await else {
                continue;
            };
            // A leader has nothing to see.
            drop(watching.take());
            let (why, ended) = Box::pin(self.lead(elected, &pass)).await;
            watching = Some(self.keep_watching());
            if Self::lets_others_go_first(&why, ended) {
                drop(pass);
                let ttl = ctx.locks.timing().ttl;
                let pause = match ended {
                    TermEnd::Unread => ttl,
                    _ => ttl / 2,
                };
                self.pause(pause).await;
            }
        }
        ctx.local_status.stands(&self.name, JobStanding::Off);
    }

    /// Lets others go first for so long, unless this engine is to end.
    pub(super) async fn pause(&self, pause: Duration) {
        tokio::select! {
            biased;
            () = self.ctx.gate.drain().cancelled() => {}
            () = self.ctx.clock.sleep(pause) => {}
        }
    }

    /// Stands by until this replica leads; nothing where it is to begin anew.
    async fn elected(&mut self, pass: &Pass, stood_back: &mut Option<Resign>) -> Option<Elected> {
        self.take_up();
        let ctx = &self.ctx;
        let elector = self.elector();
        let elector = elector.hesitating(ctx.hesitation(&self.name, self.spec.ttl));
        ctx.local_status.stands(&self.name, JobStanding::Standby);
        tokio::select! {
            biased;
            () = pass.over() => return None,
            () = Box::pin(self.wait_until_fit(pass)) => {}
        }
        if Box::pin(self.stand_back_for_definition(pass)).await {
            return None;
        }
        let stand = Box::pin(self.stand(elector, stood_back.as_ref()));
        let stood = tokio::select! {
            biased;
            () = pass.over() => return None,
            () = self.outvoted() => return None,
            stood = stand => stood,
        };
        match stood {
            Stood::Elected(Ok(elected)) => Some(elected),
            Stood::Back(asked) => {
                Box::pin(self.stand_back(&asked, pass)).await;
                *stood_back = Some(asked);
                None
            }
            Stood::Elected(Err(error)) => {
                tracing::error!(job = self.name, %error, "cannot stand for election");
                ctx.clock.sleep(Duration::from_secs(1)).await;
                None
            }
        }
    }

    /// Campaigns while this replica does not rest, unless it is to stand back: one that rests lets others go first as it is.
    async fn stand(&self, elector: Elector, done: Option<&Resign>) -> Stood {
        let campaign = async {
            match self.ctx.peers.failover {
                // The replica lock decides, and it was campaigned for.
                true => elector.campaign_timed().await,
                false => {
                    let watcher = self.watcher();
                    watcher.campaign(&watcher.candidate(elector)).await
                }
            }
        };
        let stands_back = async {
            let watcher = self.watcher();
            loop {
                watcher.rests_no_more().await;
                tokio::select! {
                    biased;
                    asked = self.stands_back(done) => return asked,
                    () = watcher.rests() => {}
                }
            }
        };
        tokio::select! {
            biased;
            asked = stands_back => Stood::Back(asked),
            elected = campaign => Stood::Elected(elected),
        }
    }

    /// A leader that has just shown to be unfit, has led for long, was told to go, or cannot read the job's ledger.
    pub(super) fn lets_others_go_first(why: &Loss, ended: TermEnd) -> bool {
        matches!(why, Loss::Unfit(_) | Loss::MaxTerm)
            || matches!(ended, TermEnd::Resigned | TermEnd::Unread)
    }

    async fn lead(&mut self, elected: Elected, pass: &Pass) -> (Loss, TermEnd) {
        let Elected { term, leaderless } = elected;
        // Others may have led since it was seen.
        *self.ahead.get_mut().unwrap_or_else(|e| e.into_inner()) = Ahead::default();
        let (job, token) = (self.name.clone(), term.lease().token());
        let told = self.ctx.history.term_began(&self.name, token, leaderless);
        self.ctx.events.tell(Event::Leading {
            job,
            token,
            leaderless,
        });
        let (why, ended) = self.hold_term(term, pass, false).await;
        let (word, detail) = why_ended(&why, ended, pass.is_draining());
        told.ended(word, detail);
        (why, ended)
    }

    /// A term for the work that is due. It is told by its runs alone: a change of leadership with every tick would be
    /// no news.
    pub(super) async fn lead_by_tick(&mut self, term: Term, pass: &Pass) -> (Loss, TermEnd) {
        self.hold_term(term, pass, true).await
    }

    async fn hold_term(&mut self, term: Term, pass: &Pass, brief: bool) -> (Loss, TermEnd) {
        let ctx = &self.ctx.clone();
        let lease = term.lease().clone();
        ctx.local_status
            .leads(&self.name, lease.clone(), ctx.locks.wall());
        let store = LedgerStore::under(ctx, &self.name, lease.clone(), &term.record().body);
        // Once for each definition under which this term is held.
        let mut is_first = true;
        let ended = loop {
            lease.set_stop_policy(StopPolicy {
                grace: Some(self.spec.grace),
                unstoppable: self.spec.unstoppable,
            });
            let first = ctx.clock.now() + ctx.health_every();
            let asking = ctx.health.ask(self.job.clone(), lease.clone(), first);
            let term_loop = TermLoop {
                engine: self,
                store: &store,
                lease: Some(lease.clone()),
                pass,
                brief,
                is_first,
                unfit: None,
            };
            is_first = false;
            // Boxed: a standby of a thousand jobs needs no room for leading them.
            let ended = Box::pin(term_loop.run()).await;
            drop(asking);
            if ended != TermEnd::Changed || !self.keeps_term(&lease, &store) {
                break ended;
            }
        };
        if self.spec.unstoppable == Unstoppable::Hold {
            // The run was dropped, and part of it goes on: no other replica may start beside it.
            while lease.work_in_flight() > 0 && lease.is_held() {
                lease.work_changed().await;
            }
        }
        let why = match (lease.loss(), lease.cordoned(), ended) {
            (Some(loss), _, _) => loss,
            (None, Some(why), _) => Loss::Unfit(why),
            (None, None, TermEnd::MaxTerm) => Loss::MaxTerm,
            (None, None, _) => Loss::Released,
        };
        ctx.local_status.stands(&self.name, JobStanding::Standby);
        if brief {
            if why != Loss::Released {
                tracing::warn!(
                    job = self.name,
                    ?why,
                    "the lock was lost in the middle of a tick's work"
                );
            }
        } else {
            ctx.events.tell(Event::StandingBy {
                job: self.name.clone(),
                why: why.clone(),
            });
        }
        term.resign().await;
        (why, ended)
    }

    /// Takes up the next definition of the job, and says whether this term goes on under it.
    fn keeps_term(&mut self, lease: &LeaseView, store: &LedgerStore) -> bool {
        self.take_up();
        let ttl = self.spec.ttl.unwrap_or(self.ctx.locks.timing().ttl);
        let may = store
            .found()
            .is_ok_and(|ledger| self.may_lead_after(&ledger));
        // A lease keeps the ttl that it was granted with.
        ttl == lease.ttl() && may
    }
}

/// Why a term has ended, in a word and in the words of a check, where one has said so.
fn why_ended(why: &Loss, ended: TermEnd, draining: bool) -> (&'static str, String) {
    let word = match (why, ended) {
        (Loss::Expired, _) => "expired",
        (Loss::Taken, _) => "taken",
        (Loss::Unfit(said), _) => return ("unfit", said.clone()),
        (Loss::MaxTerm, _) => "max_term",
        (Loss::Released, TermEnd::Resigned) => "resigned",
        (Loss::Released, TermEnd::Changed) => "changed",
        (Loss::Released, TermEnd::Outdated) => "outdated",
        (Loss::Released, _) if draining => "drained",
        (Loss::Released, _) => "released",
        _ => "other",
    };
    (word, String::new())
}
