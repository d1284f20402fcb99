//! Who has asked for what, when and why: what still stands, and the orders that were given over HTTP.

use super::{
    super::html::Html,
    address::{Address, MOST_ROWS, Takes},
    block::{Block, Live, Page, Part, cell},
    layout::{choices, pager},
    view::View,
};
use crate::fleet::audit::{AuditEntry, InForce};

/// What can be chosen among orders.
pub(in crate::admin) const TAKES: Takes = Takes {
    states: &[
        "pause",
        "resume",
        "trigger",
        "resign",
        "drain",
        "withdraw",
        "break",
        "retry",
        "park",
        "discard",
        "pause_all",
        "resume_all",
    ],
    sorts: &["when", "who", "order", "of"],
    texts: &[],
    labels: &[
        ("trigger", "run now"),
        ("resign", "hand over"),
        ("break", "end by force"),
        ("retry", "send again"),
        ("park", "put aside"),
        ("pause_all", "pause all jobs"),
        ("resume_all", "resume all jobs"),
    ],
};

const FIELDS: [(&str, &str); 1] = [("q", "Search")];

const ORDERS: &str = "When | Who | Order | Of | Why | Result | Through";
const STANDS: &str = "Since | By | Order | Of | Why";

/// The page.
pub(in crate::admin) fn page(
    view: &View<'_>,
    told: &Result<(Vec<InForce>, Vec<AuditEntry>), String>,
) -> Page {
    let mut blocks = vec![Block::Plain(choices(view.address, &TAKES, &FIELDS))];
    match told {
        Ok((stands, orders)) => {
            blocks.push(Block::Rows(in_force(view, stands)));
            blocks.push(Block::Rows(given(view, orders)));
        }
        Err(why) => {
            let mut h = Html::default();
            h.markup("<p class=\"bad\">").text(why).markup("</p>\n");
            blocks.push(Block::Plain(h));
        }
    }
    Page {
        title: "Audit".to_owned(),
        live: Live::Poll,
        blocks,
    }
}

/// Whether any of these texts has what is looked for, and the order is of the kind that is chosen.
fn fits(address: &Address, order: &str, texts: &[&str]) -> bool {
    let kind = address.get("state");
    (kind.is_empty() || kind == order) && texts.iter().any(|text| address.finds(text))
}

fn in_force(view: &View<'_>, stands: &[InForce]) -> Part {
    let wanted = |one: &&InForce| {
        fits(
            view.address,
            one.order,
            &[one.by.as_str(), one.of.as_str(), one.reason.as_str()],
        )
    };
    let all = stands.iter().filter(wanted).count();
    let shown = stands.iter().filter(wanted).take(MOST_ROWS);
    let note = match all > MOST_ROWS {
        true => format!("the first {MOST_ROWS} of {all}, by whichever way they were asked for"),
        false => "by whichever way it was asked for".to_owned(),
    };
    let key = |one: &&InForce| format!("{}/{}/{}/{}", one.order, one.of, one.at, one.id);
    Part::of(
        ("stands", "Standing orders"),
        STANDS,
        shown,
        key,
        |h, one| {
            cell(h, "Since");
            view.times.moment(h, Some(one.at));
            cell(h, "By");
            match view.fleet.replica(&one.by) {
                Some(replica) => h.text(&replica.name).small("by itself"),
                None => h.text(&one.by),
            };
            cell(h, "Order").text(TAKES.label(one.order));
            if view.orders && !one.id.is_empty() {
                let path = view
                    .address
                    .to("/orders/withdraw", &[("id", one.id.as_str())]);
                h.markup("<small>")
                    .link(&path, "withdraw")
                    .markup("</small>");
            }
            cell(h, "Of").text(&one.of);
            cell(h, "Why").text(dash(&one.reason));
        },
    )
    .noted(note)
}

fn given(view: &View<'_>, orders: &[AuditEntry]) -> Part {
    let address = view.address;
    let wanted = |one: &&AuditEntry| {
        fits(
            address,
            &one.order,
            &[
                one.who.as_str(),
                one.of.as_str(),
                one.items.as_str(),
                one.owner.as_str(),
                one.to.as_str(),
                one.reason.as_str(),
                one.result.as_str(),
            ],
        )
    };
    let mut chosen: Vec<&AuditEntry> = orders.iter().filter(wanted).collect();
    // They come with the latest first, which stays where nothing else decides.
    match address.sort() {
        ("who", _) => chosen.sort_by(|a, b| a.who.cmp(&b.who)),
        ("order", _) => chosen.sort_by(|a, b| a.order.cmp(&b.order)),
        ("of", _) => chosen.sort_by(|a, b| a.of.cmp(&b.of)),
        _ => {}
    }
    if let (_, true) = address.sort() {
        chosen.reverse();
    }
    let (first, shown) = address.part(&chosen);
    let key = |one: &&&AuditEntry| one.id.clone();
    Part::of(
        ("orders", "Orders over HTTP"),
        ORDERS,
        shown,
        key,
        |h, one| {
            cell(h, "When");
            view.times.moment(h, Some(one.at));
            cell(h, "Who").text(&one.who);
            cell(h, "Order").text(TAKES.label(&one.order));
            cell(h, "Of").text(&one.of);
            if !one.items.is_empty() {
                h.small(&one.items);
            }
            if !one.owner.is_empty() {
                h.small(format_args!("of {}", one.owner));
            }
            if !one.to.is_empty() {
                h.small(format_args!("to {}", one.to));
            }
            cell(h, "Why").text(dash(&one.reason));
            cell(h, "Result").text(match one.result.as_str() {
                "" => "not known",
                result => result,
            });
            cell(h, "Through").text(&one.by);
        },
    )
    .noted("the last 200, and all of the last day up to 2,000; for 30 days")
    .footed(pager(address, (first, shown.len(), chosen.len())))
}

fn dash(text: &str) -> &str {
    match text {
        "" => "–",
        text => text,
    }
}
