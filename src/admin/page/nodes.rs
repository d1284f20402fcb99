//! Lock nodes: which answer and vote, and how many more may fail.

use super::{
    super::{
        html::Html,
        round_trips::{Spread, Spreads},
    },
    address::Takes,
    block::{Block, Live, Page, Part, Piece, cell},
    plot::{Cell, row},
    times::{fading, or_dash, span},
    view::View,
};
use crate::fleet::status::{FleetStatus, NodeStatus};

/// Nothing but the zone can be chosen among nodes.
pub(in crate::admin) const TAKES: Takes = Takes {
    states: &[],
    sorts: &[],
    texts: &[],
    labels: &[],
};

/// How broad a node is drawn, of a thousand.
const MOST_OF_A_NODE: u64 = 120;

const COLUMNS: &str = "Node | State | Round trip | Clock";

/// The page.
pub(in crate::admin) fn page(view: &View<'_>) -> Page {
    let blocks = vec![
        Block::Piece(margin(view.fleet)),
        Block::Rows(part(view.fleet, view.spreads)),
    ];
    Page {
        title: "Nodes".to_owned(),
        live: Live::Stream,
        blocks,
    }
}

/// What the loss of further nodes would do, in a sentence.
fn margin(fleet: &FleetStatus) -> Piece {
    let name = "margin";
    let html = spare(fleet);
    Piece { name, html }
}

fn spare(fleet: &FleetStatus) -> Html {
    let mut h = Html::default();
    let nodes = fleet.nodes.len();
    let needed = nodes / 2 + 1;
    let Some(margin) = fleet.node_margin() else {
        h.markup("<p data-piece=\"margin\">No lock node is known.</p>\n");
        return h;
    };
    h.markup("<div data-piece=\"margin\"><p>A lock needs ")
        .text(needed)
        .markup(" of ");
    h.text(nodes).markup(" nodes: ");
    match margin {
        m if m < 0 => h.markup(
            "<strong class=\"bad\">too few vote now, and no lock can be taken or extended</strong>",
        ),
        0 => h.markup("<strong class=\"warn\">none more may fail</strong>"),
        1 => h.markup("1 more may fail"),
        m => h.text(m).markup(" more may fail"),
    };
    h.markup(".</p>\n");
    if nodes > 1 {
        drawing(&mut h, fleet, needed);
    }
    h.markup("</div>\n");
    h
}

/// The nodes in a row, those that vote first, and an edge behind as many as a lock needs.
fn drawing(h: &mut Html, fleet: &FleetStatus, needed: usize) {
    let cell = |node: &NodeStatus| match (node.up, node.votes) {
        (true, true) => (0, "good", "votes"),
        (true, false) => (1, "warn", "up, no vote"),
        (false, _) => (2, "bad", "down"),
    };
    let mut nodes: Vec<_> = fleet.nodes.iter().map(|node| (cell(node), node)).collect();
    // Stable: nodes in one state stay in the order of the configuration.
    nodes.sort_by_key(|((place, _, _), _)| *place);
    let vote = nodes.iter().filter(|((place, ..), _)| *place == 0).count();
    let cells = nodes.iter().map(|((_, class, word), node)| Cell {
        label: format!("{}: {word}", node.name),
        class: Some(*class),
    });
    let cells: Vec<Cell> = cells.collect();
    let said = format!(
        "{vote} of {} nodes vote, a lock needs {needed}",
        cells.len()
    );
    h.markup("<figure class=\"row\"><figcaption>").text(&said);
    h.markup(": those to the left of the edge</figcaption>");
    row(h, &said, &cells, needed, MOST_OF_A_NODE);
    h.markup("</figure>\n");
}

/// The nodes as a table, in the order of the configuration.
pub(super) fn part(fleet: &FleetStatus, spreads: &Spreads) -> Part {
    let nodes = fleet.nodes.iter().enumerate();
    Part::of(
        ("nodes", "Lock nodes"),
        COLUMNS,
        nodes,
        key,
        |h, (place, node)| {
            cell(h, "Node").text(&node.name);
            cell(h, "State");
            h.markup(match (node.up, node.votes) {
                (true, true) => "<span class=\"good\">up</span>",
                (true, false) => "<strong class=\"warn\">up, no vote</strong>",
                (false, _) => "<strong class=\"bad\">down</strong>",
            });
            if let Some(why) = node.error.as_ref().or(node.cause.as_ref()) {
                h.small(why);
            }
            if let Some(left) = node.votes_in_ms {
                h.markup("<small>votes in ");
                fading(h, span(left));
                h.markup(" at most</small>");
            }
            cell(h, "Round trip");
            fading(h, or_dash(node.rtt_us.map(round_trip)));
            if let Some(Some(lately)) = spreads.get(*place) {
                h.markup("<small>");
                fading(h, of_lately(*lately));
                h.markup("</small>");
            }
            cell(h, "Clock");
            fading(h, or_dash(node.offset_ms.map(|ms| format!("{ms:+} ms"))));
        },
    )
}

fn round_trip(us: u64) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        _ => format!("{}.{} ms", us / 1000, us % 1000 / 100),
    }
}

fn of_lately(Spread { p50, p99, of }: Spread) -> String {
    let (p50, p99) = (round_trip(p50), round_trip(p99));
    format!("p50 {p50}, p99 {p99} of the last {of}")
}

/// Two nodes may have one name.
fn key((place, node): &(usize, &NodeStatus)) -> String {
    format!("{place}/{}", node.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_shown_with_what_its_answers_took() {
        let node = NodeStatus {
            name: "redis-1".to_owned(),
            up: true,
            votes: true,
            rtt_us: Some(240),
            ..NodeStatus::default()
        };
        let fleet = FleetStatus {
            nodes: vec![node.clone(), node],
            ..FleetStatus::default()
        };
        let spread = Spread {
            p50: 180,
            p99: 12_340,
            of: 77,
        };
        let mut h = Html::default();
        part(&fleet, &vec![None, Some(spread)]).write(&mut h);
        let page = h.into_string();
        assert_eq!(page.matches("240 µs").count(), 2, "{page}");
        assert_eq!(
            page.matches("p50 180 µs, p99 12.3 ms of the last 77")
                .count(),
            1
        );
    }
}
