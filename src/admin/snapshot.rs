//! The fleet as one client may see it at one moment: what pages and their streams are made from.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use axum::{
    extract::{Path, rejection::PathRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;

use super::{
    backlogs::Growth,
    page::{
        address::{Address, LONGEST, Misfit},
        all::{Choose, Chosen},
        block::Page,
        layout::render,
        times::Times,
        view::View,
    },
    problem::{Kind, Problem},
    readings::Fleet,
    rights::Seen,
    round_trips::Spreads,
    shared::Shared,
};
use crate::fleet::status::{FleetStatus, JobStatus};

/// Which jobs a page shows.
#[derive(Clone, Copy)]
pub(super) enum Shows<'a> {
    /// Those that its address chooses.
    Chosen(Choose),
    /// This one.
    Job(&'a str),
    /// None, or as they were when all were looked at.
    Any,
}

/// For so long a page of many jobs waits for those that it shows: after that it shows them as they were when all were looked at.
const PATIENCE: Duration = Duration::from_millis(100);

/// Jobs, shards counted, that are looked at for one page at most.
const MOST: usize = 200;

/// What pages are made from, besides what was chosen on them.
pub(super) struct Snapshot {
    all: Arc<Fleet>,
    /// All of it, as far as this client may see it.
    fleet: Arc<FleetStatus>,
    /// Of many jobs those that the page shows, with replicas and nodes.
    some: Option<Arc<FleetStatus>>,
    chosen: Arc<Chosen>,
    growth: Arc<Growth>,
    spreads: Arc<Spreads>,
    replica: String,
    ready: Result<(), String>,
    now: Timestamp,
    signed_in: bool,
    orders: bool,
}

/// What a snapshot was made of, to be compared with that of a later one.
#[derive(Default)]
pub(super) struct MadeOf {
    fleet: Weak<FleetStatus>,
    some: Weak<FleetStatus>,
}

// === impl Snapshot ===

impl Snapshot {
    /// For one who looks at this page, and waits for no more than a moment.
    pub(super) async fn of(
        shared: &Shared,
        seen: Seen,
        address: &Address,
        shows: Shows<'_>,
    ) -> Self {
        let all = shared.readings.fleet_now().await;
        let chosen = chosen(&all, address, shows);
        let some = some(shared, &all, &chosen, address, shows);
        let some = shared.admin.clock.timeout(PATIENCE, some).await;
        Self::over(shared, seen, (all, some.unwrap_or_default(), chosen))
    }

    /// For one who follows this page, and is shown nothing older than what was shown already.
    pub(super) async fn for_a_stream(
        shared: &Shared,
        seen: Seen,
        address: &Address,
        shows: Shows<'_>,
    ) -> Self {
        let all = shared.readings.fleet().await;
        let chosen = chosen(&all, address, shows);
        let some = some(shared, &all, &chosen, address, shows).await;
        Self::over(shared, seen, (all, some, chosen))
    }

    fn over(
        shared: &Shared,
        seen: Seen,
        (all, some, chosen): (Arc<Fleet>, Option<Arc<Fleet>>, Arc<Chosen>),
    ) -> Self {
        Self {
            fleet: all.seen_by(seen),
            some: some.map(|some| some.seen_by(seen)),
            all,
            chosen,
            growth: shared.readings.growth(),
            spreads: shared.readings.spreads(),
            replica: shared.admin.source.replica(),
            ready: shared.ready(seen),
            now: shared.admin.source.wall(),
            signed_in: seen.token,
            orders: shared.rules.takes_orders(),
        }
    }

    pub(super) fn made_of(&self) -> MadeOf {
        MadeOf {
            fleet: Arc::downgrade(&self.fleet),
            some: self.some.as_ref().map(Arc::downgrade).unwrap_or_default(),
        }
    }

    pub(super) fn view<'a>(&'a self, address: &'a Address) -> View<'a> {
        View {
            fleet: self.some.as_ref().unwrap_or(&self.fleet),
            all: &self.fleet,
            looked: self.all.looked(),
            is_fresh: self.some.is_some(),
            totals: self.all.totals(),
            chosen: &self.chosen,
            growth: &self.growth,
            spreads: &self.spreads,
            replica: &self.replica,
            signed_in: self.signed_in,
            orders: self.orders,
            ready: self.ready.clone(),
            address,
            times: Times::new(self.now, address.zone()),
        }
    }

    /// A page as it is answered.
    pub(super) fn answer(
        &self,
        status: StatusCode,
        address: &Address,
        make: impl FnOnce(&View<'_>) -> Page,
    ) -> Response {
        let view = self.view(address);
        let page = make(&view);
        let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
        (status, kind, render(&view, &page)).into_response()
    }
}

// === impl MadeOf ===

impl MadeOf {
    /// Whether nothing was looked at between the two.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.fleet.ptr_eq(&other.fleet) && self.some.ptr_eq(&other.some)
    }
}

// === which jobs ===

fn chosen(all: &Fleet, address: &Address, shows: Shows<'_>) -> Arc<Chosen> {
    match shows {
        Shows::Chosen(choose) => all.chosen(choose, address),
        Shows::Job(_) | Shows::Any => Arc::default(),
    }
}

/// The jobs that the page shows, where there are many others, with the replicas and nodes.
async fn some(
    shared: &Shared,
    all: &Fleet,
    chosen: &Chosen,
    address: &Address,
    shows: Shows<'_>,
) -> Option<Arc<Fleet>> {
    if !all.is_large() {
        return None;
    }
    let names = names(all.full(), chosen, address, shows);
    let some = shared.readings.some(&names).await?;
    if is_news(all.full(), chosen, some.full()) {
        shared.readings.has_news();
    }
    Some(some)
}

/// The names of the jobs that a page shows, or of all of their shards. Pure.
fn names(
    all: &FleetStatus,
    chosen: &Chosen,
    address: &Address,
    shows: Shows<'_>,
) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut add = |job: &JobStatus| {
        let shards = job.by_shard.iter().map(|shard| shard.name.clone());
        match job.by_shard.len() {
            0 => _ = names.insert(job.name.clone()),
            many if names.len() + many <= MOST => names.extend(shards),
            // It is told as it was when all were looked at.
            _ => {}
        }
    };
    let places = chosen.places.iter();
    places
        .filter_map(|place| all.jobs.get(*place))
        .for_each(&mut add);
    match shows {
        Shows::Chosen(_) => {
            let with_shards = Some(address.get("shards")).filter(|name| !name.is_empty());
            with_shards
                .and_then(|name| all.job(name))
                .into_iter()
                .for_each(add);
        }
        Shows::Job(name) => match all.job(name) {
            Some(job) => add(job),
            // One that is new, perhaps.
            None => _ = names.insert(name.to_owned()),
        },
        Shows::Any => {}
    }
    names
}

/// Whether what was found of some jobs tells that much is not as it was when all were looked at: another replica is there, or one has
/// gone, or leads what it did not. Pure.
fn is_news(all: &FleetStatus, chosen: &Chosen, some: &FleetStatus) -> bool {
    let ids = |fleet: &FleetStatus| -> BTreeSet<String> {
        let replicas = fleet.replicas.iter();
        replicas.map(|replica| replica.id.clone()).collect()
    };
    let leader = |job: &JobStatus| job.leader.as_ref().map(|leader| leader.replica.clone());
    let places = chosen.places.iter();
    let mut before = places.filter_map(|place| all.jobs.get(*place));
    let is_moved = |before: &JobStatus| {
        let now = some.job(&before.name).filter(|_| before.wants_leader());
        now.is_some_and(|now| leader(now) != leader(before))
    };
    ids(all) != ids(some) || before.any(is_moved)
}

/// What stands in the path of a page.
pub(super) type Named = Result<Path<String>, PathRejection>;

/// The same, where it may be the name of anything.
///
/// # Errors
/// It is no text, or a longer one than names are.
pub(super) fn named(name: Named) -> Result<String, Problem> {
    match name {
        Ok(Path(name)) if name.len() <= LONGEST => Ok(name),
        _ => Err(Problem::new(Kind::NoSuchPath, "there is no such page")),
    }
}

/// A parameter of a page that does not fit.
pub(super) fn misfit(misfit: &Misfit) -> Problem {
    Problem::parameter(misfit.name, &misfit.wanted)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        admin::page::jobs,
        fleet::status::{LeaderStatus, ReplicaStatus},
    };

    fn job(name: &str, shards: usize) -> JobStatus {
        let shard = |n| JobStatus {
            name: format!("{name}.{n}"),
            ..JobStatus::default()
        };
        JobStatus {
            name: name.to_owned(),
            coordination: "leader".to_owned(),
            by_shard: (0..shards).map(shard).collect(),
            leader: Some(LeaderStatus {
                replica: "h-1-x".to_owned(),
                ..LeaderStatus::default()
            }),
            leader_known: true,
            ..JobStatus::default()
        }
    }

    fn fleet(jobs: Vec<JobStatus>) -> FleetStatus {
        let replica = ReplicaStatus {
            id: "h-1-x".to_owned(),
            ..ReplicaStatus::default()
        };
        FleetStatus {
            replicas: vec![replica],
            jobs,
            ..FleetStatus::default()
        }
    }

    fn address(query: &[(&str, &str)]) -> Address {
        let query = query.iter();
        let query: BTreeMap<String, String> = query
            .map(|(name, said)| ((*name).to_owned(), (*said).to_owned()))
            .collect();
        Address::read("/", &jobs::TAKES, &query).unwrap()
    }

    #[test]
    fn a_page_looks_at_its_rows_and_at_so_many_shards() {
        let all = fleet(vec![job("a", 0), job("b", 150), job("c", 0), job("d", 60)]);
        let looked_at = |query: &[(&str, &str)], choose: Choose| {
            let address = address(query);
            let chosen = Chosen::of(&all.jobs, choose, &address);
            names(&all, &chosen, &address, Shows::Chosen(choose))
        };
        // All shards of a job, or none.
        let found = looked_at(&[], jobs::chosen);
        assert_eq!(found.len(), 152);
        assert!(found.contains("a") && found.contains("b.149") && !found.contains("d.0"));
        let found = looked_at(&[("size", "1")], jobs::chosen);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a"]);
        // Those that are shown one by one.
        let found = looked_at(&[("size", "1"), ("shards", "d")], jobs::chosen);
        assert_eq!((found.len(), found.contains("d.59")), (61, true));
        let of = |name| names(&all, &Chosen::default(), &address(&[]), Shows::Job(name));
        assert_eq!(
            (of("b").len(), of("b.7").len(), of("new").len()),
            (150, 1, 1)
        );
        assert!(names(&all, &Chosen::default(), &address(&[]), Shows::Any).is_empty());
    }

    #[test]
    fn a_replica_or_a_leader_that_was_not_there_is_news() {
        let all = fleet(vec![job("a", 0), job("b", 0)]);
        let chosen = Chosen::of(&all.jobs, jobs::chosen, &address(&[]));
        let news = |some: &FleetStatus| is_news(&all, &chosen, some);
        // What else the page knows of a job, and a job that it does not show, are none.
        let mut some = fleet(vec![job("a", 0)]);
        some.jobs[0].last_outcome = Some("failed".to_owned());
        assert!(!news(&some));
        some.jobs[0].leader = None;
        assert!(news(&some));
        let mut some = fleet(vec![job("a", 0)]);
        some.replicas.push(ReplicaStatus::default());
        assert!(news(&some));
        // A lock that is taken for each tick changes hands all the time.
        let mut by_tick = all.clone();
        by_tick.jobs[0].coordination = "tick".to_owned();
        let mut some = fleet(vec![job("a", 0)]);
        some.jobs[0].leader = None;
        assert!(!is_news(&by_tick, &chosen, &some));
    }
}
