//! Replicas: what each is, whether it is fit, when it was heard of.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    super::html::Html,
    address::{Address, Takes},
    block::{Block, Live, Page, Part, cell},
    layout::{choices, pager},
    times::{fading, span},
    view::View,
};
use crate::fleet::status::{JobStatus, NoticeStatus, ReplicaStatus, Role};

/// What can be chosen among replicas.
pub(in crate::admin) const TAKES: Takes = Takes {
    states: &[
        "leader", "standby", "observer", "unfit", "draining", "silent",
    ],
    sorts: &["name", "started", "seen"],
    texts: &[],
    labels: &[],
};

const FIELDS: [(&str, &str); 1] = [("q", "Search")];

/// Jobs that are named of those that a replica defines in its own way.
const NAMED: usize = 3;

const COLUMNS: &str = "Replica | Role | State | Host | Version | Started | Seen";

/// The page.
pub(in crate::admin) fn page(view: &View<'_>) -> Page {
    let mut blocks = vec![Block::Plain(choices(view.address, &TAKES, &FIELDS))];
    let chosen = chosen(&view.fleet.replicas, view.address);
    let (first, shown) = view.address.part(&chosen);
    let foot = pager(view.address, (first, shown.len(), chosen.len()));
    let part = part(view, shown.iter().copied()).footed(foot);
    blocks.push(Block::Rows(part));
    Page {
        title: "Replicas".to_owned(),
        live: Live::Stream,
        blocks,
    }
}

fn chosen<'a>(replicas: &'a [ReplicaStatus], address: &Address) -> Vec<&'a ReplicaStatus> {
    let state = address.get("state");
    let wanted = |replica: &&ReplicaStatus| {
        (address.finds(&replica.name) || address.finds(&replica.host)) && is(replica, state)
    };
    let mut chosen: Vec<&ReplicaStatus> = replicas.iter().filter(wanted).collect();
    match address.sort() {
        ("started", _) => chosen.sort_by_key(|replica| std::cmp::Reverse(replica.started)),
        ("seen", _) => chosen.sort_by_key(|replica| std::cmp::Reverse(replica.seen_ms_ago)),
        _ => {}
    }
    if let (_, true) = address.sort() {
        chosen.reverse();
    }
    chosen
}

fn is(replica: &ReplicaStatus, state: &str) -> bool {
    match state {
        "leader" => replica.role == Role::Leader,
        "standby" => replica.role == Role::Standby,
        "observer" => replica.role == Role::Observer,
        "unfit" => replica.unfit.is_some(),
        "draining" => replica.draining,
        "silent" => replica.is_silent(),
        _ => true,
    }
}

/// These replicas as a table.
pub(super) fn part<'a>(
    view: &View<'_>,
    replicas: impl IntoIterator<Item = &'a ReplicaStatus>,
) -> Part {
    let key = |replica: &&ReplicaStatus| replica.id.clone();
    let name = ("replicas", "Replicas");
    let odd = odd(&view.all.jobs);
    Part::of(name, COLUMNS, replicas, key, |h, replica| {
        let odd = odd.get(replica.name.as_str());
        cells(h, view, replica, odd.map_or(&[][..], Vec::as_slice));
    })
}

/// The jobs that replicas define otherwise than most do, by the names of the replicas.
fn odd(jobs: &[JobStatus]) -> BTreeMap<&str, Vec<&str>> {
    let mut odd: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for job in jobs {
        let definitions = job.definitions.iter().enumerate();
        // Of equally many the one that leads counts, then the one that was loaded last.
        let most = definitions
            .clone()
            .max_by_key(|(place, of)| (of.replicas.len(), of.leads, Reverse(*place)));
        let Some((most, _)) = most else { continue };
        let others = definitions.filter(|(place, _)| *place != most);
        for replica in others.flat_map(|(_, of)| &of.replicas) {
            odd.entry(replica).or_default().push(&job.name);
        }
    }
    odd
}

fn cells(h: &mut Html, view: &View<'_>, replica: &ReplicaStatus, odd: &[&str]) {
    let named = replica.name.as_str();
    let leads = view.address.to("/", &[("leader", named)]);
    cell(h, "Replica").link(&leads, named);
    if replica.id == view.replica {
        h.markup("<small>this one</small>");
    }
    cell(h, "Role").markup(match replica.role {
        Role::Leader => "<b>leader</b>",
        Role::Standby => "standby",
        Role::Observer => "observer",
    });
    if replica.priority != 0 {
        h.small(format_args!("priority {}", replica.priority));
    }
    let runs = view.address.to("/runs", &[("replica", named)]);
    h.markup("<small>")
        .link(&runs, "its runs")
        .markup("</small>");
    cell(h, "State");
    state(h, replica);
    if !odd.is_empty() {
        h.markup("<small class=\"warn\">defines otherwise than most: ");
        for (place, job) in odd.iter().take(NAMED).enumerate() {
            h.markup(if place > 0 { ", " } else { "" });
            h.link(&view.address.to_job(job), job);
        }
        if let Some(more) = odd.len().checked_sub(NAMED).filter(|more| *more > 0) {
            h.text(format_args!(" and {more} more jobs"));
        }
        h.markup("</small>");
    }
    if view.orders && !replica.draining {
        let path = view
            .address
            .to("/orders/drain", &[("replica", replica.id.as_str())]);
        h.markup("<small>").link(&path, "drain").markup("</small>");
    }
    cell(h, "Host").text(&replica.host);
    h.small(format_args!("pid {}", replica.pid));
    if let Some(admin) = &replica.admin {
        h.small(admin);
    }
    cell(h, "Version").text(&replica.version);
    if !replica.mode.is_empty() && replica.mode != "shared" {
        h.small(&replica.mode);
    }
    cell(h, "Started");
    view.times.moment(h, Some(replica.started));
    cell(h, "Seen");
    let ago = format!("{} ago", span(replica.seen_ms_ago));
    match replica.is_silent() {
        true => {
            _ = h
                .markup("<strong class=\"bad\">")
                .text(ago)
                .markup("</strong>")
        }
        false => fading(h, ago),
    }
}

fn state(h: &mut Html, replica: &ReplicaStatus) {
    match &replica.unfit {
        Some(why) => h.markup("<strong class=\"bad\">unfit</strong>").small(why),
        None if replica.draining => h.markup("<strong class=\"warn\">draining</strong>"),
        None => h.markup("<span class=\"good\">fit</span>"),
    };
    if let Some(reload) = &replica.reload {
        match reload.ok {
            true => h.small(reload),
            false => h.bad(reload),
        };
    }
    for trouble in replica.notices.iter().filter_map(NoticeStatus::trouble) {
        h.bad(trouble);
    }
}
