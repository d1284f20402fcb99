//! Work that comes in batches: what is still to be done, how fast it goes, and what waits for a person.

use super::{
    super::html::Html,
    address::{Address, LONGEST, MOST_ROWS, Takes},
    block::{Block, Live, Page, Part, cell},
    flying,
    layout::{choices, pager},
    times::{fading, grouped, or_dash, span},
    view::View,
};
use crate::fleet::{
    items::{HeldItem, ItemPage, ItemState, ItemsAsked},
    status::{HeldItems, JobStatus, Rate},
};

/// What can be chosen among batches.
pub(in crate::admin) const TAKES: Takes = Takes {
    states: &[
        "backlog",
        "retry",
        "doubt",
        "dead",
        "parked",
        "discarded",
        "trouble",
    ],
    sorts: &["name", "backlog", "dead"],
    texts: &["after", "job"],
    labels: &[
        ("retry", "sent again"),
        ("doubt", "in doubt"),
        ("trouble", "source in trouble"),
    ],
};

const FIELDS: [(&str, &str); 2] = [("q", "Search"), ("job", "Job")];

const COLUMNS: &str = "Job | Backlog | Oldest | In flight | Oldest in flight | Rate | Sent again | In doubt | Dead | Parked";

const ITEMS: &str = "Item | State | Tried | Since | Why | Row";

const CHOOSE: &str = "<p class=\"note\">A number leads to the items that it counts, each with its reason. At a terminal \
    <code>watchkeeper notify dead JOB</code> lists them.</p>\n";

/// The states of items that are chosen by a word of the page, and those that are shown without one.
const BY_WORD: [(&str, ItemState); 5] = [
    ("dead", ItemState::Dead),
    ("doubt", ItemState::InDoubt),
    ("parked", ItemState::Parked),
    ("retry", ItemState::Retry),
    ("discarded", ItemState::Discarded),
];
const USUAL: usize = 3;

/// The page, as far as the fleet tells it.
pub(in crate::admin) fn page(view: &View<'_>) -> Page {
    with_items(view, None)
}

/// The page with the items of the job that the address names; why they cannot be listed.
pub(in crate::admin) fn with_items(
    view: &View<'_>,
    items: Option<Result<&ItemPage, &str>>,
) -> Page {
    let mut blocks = vec![Block::Plain(choices(view.address, &TAKES, &FIELDS))];
    blocks.extend(parts(view).into_iter().map(Block::Rows));
    let job = view.address.get("job");
    match items {
        Some(Ok(items)) => {
            blocks.push(Block::Plain(orders(view, job)));
            blocks.push(Block::Rows(item_part(view, job, items)));
        }
        Some(Err(why)) => {
            let mut h = Html::default();
            h.markup("<p class=\"bad\">").text(why).markup("</p>\n");
            blocks.push(Block::Plain(h));
        }
        None => {
            let mut h = Html::default();
            h.markup(match job {
                "" => CHOOSE,
                _ => {
                    "<p class=\"note\">Sign in to see its items, and why they were not sent.</p>\n"
                }
            });
            blocks.push(Block::Plain(h));
        }
    }
    Page {
        title: "Batches".to_owned(),
        live: match job {
            "" => Live::Stream,
            // The database of the job is read, which no stream does.
            _ => Live::Poll,
        },
        blocks,
    }
}

/// What is asked of the job that the address names, if it names one: its name, and which items.
pub(in crate::admin) fn asked(address: &Address) -> Option<(&str, ItemsAsked)> {
    let job = Some(address.get("job")).filter(|job| !job.is_empty())?;
    let word = address.get("state");
    let chosen = BY_WORD.iter().find(|(known, _)| *known == word);
    let mut states: Vec<ItemState> = match chosen {
        Some((_, state)) => vec![*state],
        None => BY_WORD
            .iter()
            .take(USUAL)
            .map(|(_, state)| *state)
            .collect(),
    };
    // As the API asks for them: both are read once.
    states.sort_unstable();
    let after = Some(address.get("after")).filter(|after| !after.is_empty());
    let asked = ItemsAsked {
        states,
        after: after.map(str::to_owned),
        limit: MOST_ROWS,
    };
    Some((job, asked))
}

/// The jobs that are looked for, in the order that is asked for.
pub(in crate::admin) fn chosen(jobs: &[JobStatus], address: &Address) -> Vec<usize> {
    let (state, named) = (address.get("state"), address.get("job"));
    let wanted = |(_, job): &(usize, &JobStatus)| match named {
        // Its items are chosen by their state, and not the job.
        "" => is_of_items(job) && address.finds(&job.name) && (state.is_empty() || is(job, state)),
        named => job.name == named,
    };
    let mut chosen: Vec<(usize, &JobStatus)> = jobs.iter().enumerate().filter(wanted).collect();
    match address.sort() {
        ("backlog", _) => chosen.sort_by_key(|(_, job)| std::cmp::Reverse(job.backlog)),
        ("dead", _) => chosen.sort_by_key(|(_, job)| std::cmp::Reverse(held(job).dead)),
        _ => {}
    }
    if let (_, true) = address.sort() {
        chosen.reverse();
    }
    chosen.into_iter().map(|(place, _)| place).collect()
}

fn parts(view: &View<'_>) -> Vec<Part> {
    let (chosen, shown) = (view.chosen, view.shown());
    let key = |job: &&JobStatus| job.name.clone();
    let name = ("batches", "Batches by job");
    let jobs = shown.iter().copied();
    let part = Part::of(name, COLUMNS, jobs, key, |h, job| cells(h, view, job))
        .or_none("no job works in batches, or none fits")
        .footed(pager(
            view.address,
            (chosen.first, shown.len(), chosen.total),
        ));
    let running = flying::of(shown.iter().copied()).take(MOST_ROWS);
    vec![part, flying::part(view, running)]
}

/// Whether it tells of items: by its nature, or because some are left.
fn is_of_items(job: &JobStatus) -> bool {
    job.coordination == "batch" || job.backlog.is_some() || job.held.is_some()
}

fn held(job: &JobStatus) -> HeldItems {
    job.held.unwrap_or_default()
}

fn is(job: &JobStatus, state: &str) -> bool {
    let held = held(job);
    match state {
        "backlog" => job.backlog.is_some_and(|backlog| backlog > 0),
        "retry" => held.retry > 0,
        "doubt" => held.in_doubt > 0,
        "dead" => held.dead > 0,
        "parked" => held.parked > 0,
        // They are not counted: any job that tells of items may have some.
        "discarded" => true,
        _ => job.trouble.is_some(),
    }
}

fn cells(h: &mut Html, view: &View<'_>, job: &JobStatus) {
    cell(h, "Job").link(&view.address.to_job(&job.name), &job.name);
    cell(h, "Backlog").text(or_dash(job.backlog.map(grouped)));
    let grows = view.growth.get(&job.name).zip(job.backlog);
    if let Some((per_minute, backlog)) = grows {
        h.markup("<small>");
        fading(h, growth(*per_minute, backlog));
        h.markup("</small>");
    }
    if let Some(trouble) = &job.trouble {
        h.bad(trouble);
    }
    cell(h, "Oldest");
    match job.backlog_since {
        Some(since) => view.times.since(h, since),
        None => _ = h.markup("–"),
    }
    cell(h, "In flight").text(job.running.len());
    cell(h, "Oldest in flight");
    match job.running_since() {
        Some(since) => view.times.since(h, since),
        None => _ = h.markup("–"),
    }
    cell(h, "Rate");
    let rates = job.running.iter().filter_map(|run| run.per_second);
    let rate: f64 = rates.map(Rate::per_second).sum();
    match rate > 0.0 {
        true => h.text(Rate::new(rate)),
        false => h.markup("–"),
    };
    let held = held(job);
    for (label, word, count, bad) in [
        ("Sent again", "retry", held.retry, false),
        ("In doubt", "doubt", held.in_doubt, true),
        ("Dead", "dead", held.dead, true),
        ("Parked", "parked", held.parked, true),
    ] {
        cell(h, label);
        let items = [("job", job.name.as_str()), ("state", word)];
        let items = view.address.to("/batches", &items);
        match (count, bad) {
            (0, _) => h.markup("–"),
            (count, false) => h.link(&items, count),
            (count, true) => h
                .markup("<strong class=\"bad\">")
                .link(&items, count)
                .markup("</strong>"),
        };
    }
}

/// How fast a backlog grows, in words.
fn growth(per_minute: i64, backlog: u64) -> String {
    let by = per_minute.unsigned_abs();
    match per_minute {
        0 => "neither grows nor shrinks".to_owned(),
        1.. => format!("grows by {by} a minute"),
        _ => {
            let left = span(backlog.saturating_mul(60_000) / by.max(1));
            format!("shrinks by {by} a minute, done in {left}")
        }
    }
}

// === items ===

/// What can be asked of all of them.
fn orders(view: &View<'_>, job: &str) -> Html {
    let mut h = Html::default();
    let held = view.job(job).map(held).unwrap_or_default();
    let counts = [
        (ItemState::Dead, held.dead),
        (ItemState::Parked, held.parked),
        (ItemState::Retry, held.retry),
    ];
    let some = counts.iter().filter(|(_, count)| *count > 0);
    let some: Vec<_> = some.filter(|_| view.orders).collect();
    if some.is_empty() {
        return h;
    }
    h.markup("<p class=\"orders\">");
    for (state, count) in some {
        let all = [("all", state.word()), ("job", job)];
        let path = view.address.to("/orders/retry", &all);
        let word = format!("send all {count} again that are {}", state.words());
        h.markup(" ").link(&path, word);
        if *state == ItemState::Dead {
            let path = view.address.to("/orders/discard", &all);
            h.markup(" ")
                .link(&path, format!("discard all {count} that are dead"));
        }
    }
    h.markup("</p>\n");
    h
}

fn item_part(view: &View<'_>, job: &str, page: &ItemPage) -> Part {
    let address = view.address;
    // Two that are cut may look alike.
    let key = |(place, item): &(usize, &HeldItem)| match can_be_named(&item.id) {
        true => item.id.clone(),
        false => format!("#{place}"),
    };
    let items = page.items.iter().enumerate();
    let part = Part::of(("items", "Items"), ITEMS, items, key, |h, (_, item)| {
        item_cells(h, view, job, item);
    });
    let last = page.items.last().filter(|_| page.more);
    let mut foot = Html::default();
    if let Some(last) = last.filter(|last| can_be_named(&last.id)) {
        let further = address.with(&[("after", last.id.as_str())]);
        foot.markup("<p class=\"pager\"><a rel=\"next\" href=\"");
        foot.text(further).markup("\">next page</a></p>");
    }
    part.noted(format!("of {job}, by their ids"))
        .or_none("no item is in such a state")
        .footed(foot)
}

/// Whether an address can name it.
pub(super) fn can_be_named(id: &str) -> bool {
    let plain = !id.is_empty() && id.trim() == id && !id.chars().any(char::is_control);
    plain && id.len() <= LONGEST
}

fn item_cells(h: &mut Html, view: &View<'_>, job: &str, item: &HeldItem) {
    cell(h, "Item").text(&item.id);
    if view.orders && can_be_named(&item.id) {
        let this = [("id", item.id.as_str()), ("job", job)];
        h.markup("<small>");
        h.link(&view.address.to("/orders/retry", &this), "send again");
        if !matches!(item.state, ItemState::Parked | ItemState::Discarded) {
            h.markup(" · ");
            h.link(&view.address.to("/orders/park", &this), "put aside");
        }
        if item.state != ItemState::Discarded {
            h.markup(" · ");
            h.link(&view.address.to("/orders/discard", &this), "discard");
        }
        h.markup("</small>");
    }
    cell(h, "State").markup(match item.state {
        ItemState::Retry | ItemState::Discarded => "<span class=\"soft\">",
        ItemState::Dead | ItemState::InDoubt | ItemState::Parked => "<span class=\"bad\">",
    });
    h.text(item.state.words()).markup("</span>");
    cell(h, "Tried").text(item.attempts);
    cell(h, "Since");
    view.times.moment(h, item.since);
    cell(h, "Why").text(match item.reason.as_str() {
        "" => "–",
        why => why,
    });
    h.small(&item.key);
    cell(h, "Row").markup(match item.row.as_str() {
        "sent" => "<span class=\"warn\">sent by another hand</span>",
        "gone" => "<span class=\"warn\">gone</span>",
        _ => "not sent",
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_backlog_goes_is_said_in_words() {
        assert_eq!(growth(0, 7), "neither grows nor shrinks");
        assert_eq!(growth(600, 7), "grows by 600 a minute");
        assert_eq!(
            growth(-120, 1_200),
            "shrinks by 120 a minute, done in 10 min"
        );
        assert!(growth(i64::MIN, u64::MAX).starts_with("shrinks by"));
    }
}
