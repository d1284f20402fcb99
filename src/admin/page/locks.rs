//! Locks: which are held by whom for how long, and one of them node by node.

use super::{
    super::html::Html,
    address::{Address, Takes},
    block::{Block, Live, Page, Part, cell},
    layout::{choices, pager},
    times::{fading, left, or_dash, span},
    view::View,
};
use crate::fleet::status::{LockDetail, LockState, LockStatus, NodeLock};

/// What can be chosen among locks.
pub(in crate::admin) const TAKES: Takes = Takes {
    states: &["held", "left", "released"],
    sorts: &["key", "remaining"],
    texts: &["key"],
    labels: &[("left", "not released")],
};

const FIELDS: [(&str, &str); 1] = [("q", "Search")];

const COLUMNS: &str = "Lock | Held by | Token | Remaining | Nodes | State";
const BY_NODE: &str = "Node | Value in the key | Remaining | Owner in the record | Token | Record";

/// The page. `one`: the lock that the address names, in full.
pub(in crate::admin) fn page(
    view: &View<'_>,
    locks: &Result<Vec<LockStatus>, String>,
    one: Option<&Result<LockDetail, String>>,
) -> Page {
    let mut blocks = Vec::new();
    match one {
        Some(Ok(lock)) => {
            blocks.push(Block::Plain(summary(view, lock)));
            blocks.push(Block::Rows(by_node(lock)));
        }
        Some(Err(why)) => blocks.push(Block::Plain(trouble(why))),
        None => {}
    }
    blocks.push(Block::Plain(choices(view.address, &TAKES, &FIELDS)));
    match locks {
        Ok(locks) => blocks.push(Block::Rows(list(view, locks))),
        Err(why) => blocks.push(Block::Plain(trouble(why))),
    }
    Page {
        title: "Locks".to_owned(),
        live: Live::Poll,
        blocks,
    }
}

fn trouble(why: &str) -> Html {
    let mut h = Html::default();
    h.markup("<p class=\"bad\">").text(why).markup("</p>\n");
    h
}

fn chosen<'a>(locks: &'a [LockStatus], address: &Address) -> Vec<&'a LockStatus> {
    let state = address.get("state");
    let wanted = |lock: &&LockStatus| {
        let fits = match state {
            "held" => lock.held,
            "released" => lock.released,
            "left" => !lock.held && !lock.released,
            _ => true,
        };
        let holder = lock.holder.as_ref();
        fits && (address.finds(&lock.key)
            || address.finds(&lock.owner)
            || holder.is_some_and(|holder| address.finds(&holder.to_string())))
    };
    let mut chosen: Vec<&LockStatus> = locks.iter().filter(wanted).collect();
    match address.sort() {
        ("remaining", _) => {
            chosen.sort_by_key(|lock| (lock.remaining_ms.is_none(), lock.remaining_ms))
        }
        _ => chosen.sort_by(|a, b| a.key.cmp(&b.key)),
    }
    if let (_, true) = address.sort() {
        chosen.reverse();
    }
    chosen
}

fn list(view: &View<'_>, locks: &[LockStatus]) -> Part {
    let address = view.address;
    let chosen = chosen(locks, address);
    let (first, shown) = address.part(&chosen);
    let key = |lock: &&&LockStatus| lock.key.clone();
    Part::of(("locks", "Locks"), COLUMNS, shown, key, |h, lock| {
        let one = address.with(&[("key", lock.key.as_str())]);
        cell(h, "Lock").link(&one, &lock.key);
        cell(h, "Held by");
        match &lock.holder {
            Some(holder) => h.text(holder),
            None if lock.held => h.markup("a process that does not tell"),
            None => h.markup("–"),
        };
        cell(h, "Token").text(lock.token);
        cell(h, "Remaining");
        match lock.remaining_ms {
            Some(ms) => left(h, ms),
            None => _ = h.markup("–"),
        }
        cell(h, "Nodes").text(lock.nodes);
        cell(h, "State").markup(match (lock.held, lock.released) {
            (true, _) => "<span class=\"good\">held</span>",
            (false, true) => "released",
            (false, false) => "<span class=\"warn\">not released</span>",
        });
    })
    .or_none("no lock is known, or none fits")
    .footed(pager(address, (first, shown.len(), chosen.len())))
}

fn summary(view: &View<'_>, lock: &LockDetail) -> Html {
    let mut h = Html::default();
    h.markup("<section aria-labelledby=\"title-lock\"><h2 id=\"title-lock\">Lock ");
    h.text(&lock.key).markup("</h2><dl>");
    let job = lock.key.strip_prefix("job/").and_then(|job| view.job(job));
    if let Some(job) = job {
        h.markup("<dt>Job</dt><dd>");
        h.link(&view.address.to_job(&job.name), &job.name)
            .markup("</dd>");
    }
    let rows = [
        ("State", words(lock.state).to_owned()),
        ("Holder", or_dash(lock.holder.as_ref())),
        ("Owner", or_dash(lock.owner.as_ref())),
        ("Token", lock.token.to_string()),
        (
            "Nodes",
            format!(
                "{} of {}, {} needed",
                lock.nodes, lock.configured, lock.needed
            ),
        ),
        ("Nodes to spare", or_dash(lock.margin)),
    ];
    for (name, value) in rows {
        h.markup("<dt>").markup(name).markup("</dt><dd>");
        h.text(value).markup("</dd>");
    }
    if let Some(ledger) = &lock.ledger {
        h.markup("<dt>Ledger</dt><dd>");
        match &ledger.error {
            Some(why) => h.bad(why),
            None => {
                let upto = or_dash(ledger.decided_upto.map(|at| view.times.at(at)));
                h.markup("decided up to ").text(upto);
                h.markup(", ").text(ledger.open).markup(" open, ");
                h.text(ledger.waiting).markup(" waiting")
            }
        };
        h.markup("</dd>");
    }
    h.markup("</dl>");
    let owner = lock.owner.as_deref().filter(|_| lock.nodes > 0);
    if let Some(owner) = owner.filter(|_| view.orders && lock.state != LockState::Foreign) {
        let path = view.address.to(
            "/orders/break",
            &[("key", lock.key.as_str()), ("owner", owner)],
        );
        h.markup("<p class=\"orders\">");
        h.link(&path, "end this lease by force").markup("</p>");
    }
    h.markup("</section>\n");
    h
}

fn words(state: LockState) -> &'static str {
    match state {
        LockState::Held => "held",
        LockState::Orphaned => "held by records alone: its keys have run out",
        LockState::Broken => "ended by force: it runs out",
        LockState::Foreign => "held by a client of another kind",
        LockState::Minority => "on too few nodes to be held",
        LockState::Released => "free, released",
        LockState::Unreleased => "free, never released",
        LockState::Unknown => "not known to any node",
    }
}

fn by_node(lock: &LockDetail) -> Part {
    let key = |(place, node): &(usize, &NodeLock)| format!("{place}/{}", node.node);
    let nodes = lock.by_node.iter().enumerate();
    Part::of(
        ("by-node", "The lock on each node"),
        BY_NODE,
        nodes,
        key,
        |h, (_, node)| {
            cell(h, "Node").text(&node.node);
            if let Some(why) = &node.error {
                h.bad(why);
            }
            cell(h, "Value in the key").text(or_dash(node.holder.as_ref()));
            if node.foreign {
                h.bad("none of ours");
            }
            cell(h, "Remaining");
            match node.endless {
                true => _ = h.markup("<span class=\"warn\">without an end</span>"),
                false => fading(h, or_dash(node.life_ms().map(span))),
            }
            cell(h, "Owner in the record").text(or_dash(node.owner.as_ref()));
            cell(h, "Token").text(node.token);
            cell(h, "Record").text(format_args!("revision {}", node.rev));
        },
    )
}
