//! What all pages have: head, strip, the ways to the others, and the frame around what differs.

use super::{
    super::{
        assets::{ICON, SCRIPT, STYLE},
        html::Html,
        pattern::values,
    },
    address::{Address, LONGEST, Takes},
    block::{Block, Live, Page, Piece},
    view::View,
};
use crate::fleet::status::FleetStatus;

/// The views, in the order in which they are offered.
pub(in crate::admin) const VIEWS: [(&str, &str); 7] = [
    ("/", "Fleet"),
    ("/runs", "Runs"),
    ("/batches", "Batches"),
    ("/replicas", "Replicas"),
    ("/nodes", "Nodes"),
    ("/locks", "Locks"),
    ("/audit", "Audit"),
];

const HEAD: &str = "<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
";

/// A page as HTML.
pub(in crate::admin) fn render(view: &View<'_>, page: &Page) -> String {
    let mut h = Html::default();
    begin(&mut h, view.address, &page.title, page.live);
    h.append(&strip(view).html);
    h.markup("</header>\n<main id=\"main\">\n");
    if page.title != TITLE_OF_FLEET {
        above(&mut h, view.address);
        title(&mut h, &page.title);
    }
    for block in &page.blocks {
        match block {
            Block::Rows(part) => part.write(&mut h),
            Block::Piece(piece) => _ = h.append(&piece.html),
            Block::Plain(html) => _ = h.append(html),
        }
    }
    h.markup("</main>\n<footer><p>Times in ")
        .text(zone_of(view.address))
        .markup(". ");
    h.markup("<a href=\"/metrics\">metrics</a> · <a href=\"/api/v1/fleet\">JSON</a></p>");
    h.markup("</footer></body></html>\n");
    h.into_string()
}

/// Why there is no page, for a person at a browser: nothing of the fleet is told.
pub(in crate::admin) fn refusal(of: &'static str, detail: &str, remedy: &str) -> String {
    let mut h = Html::default();
    begin(&mut h, &Address::default(), of, Live::Off);
    h.markup("</header>\n<main id=\"main\">\n");
    title(&mut h, of);
    h.markup("<section><p class=\"bad\">").text(detail);
    h.markup("</p><p>").text(remedy).markup("</p>");
    h.markup(
        "<p class=\"orders\"><a href=\"/\">to the fleet</a> <a href=\"/login\">sign in</a></p>",
    );
    h.markup("</section></main></body></html>\n");
    h.into_string()
}

fn title(h: &mut Html, title: &str) {
    h.markup("<h2 class=\"title\">").text(title);
    h.markup("</h2>\n");
}

/// The page that this one is a part of, where there is one.
fn above(h: &mut Html, address: &Address) {
    if !is_of_job(address) {
        return;
    }
    h.markup("<p class=\"above\">");
    h.link(&address.to("/", &[]), TITLE_OF_FLEET);
    let job = values("/jobs/{job}", address.path()).and_then(|mut job| job.pop());
    if let Some(job) = job.filter(|_| !address.get("run").is_empty()) {
        h.markup(" › ").link(&address.to_job(&job), job);
    }
    h.markup(" ›</p>\n");
}

/// Whether the page is about one job alone.
pub(super) fn is_of_job(address: &Address) -> bool {
    address.path().starts_with("/jobs/")
}

/// All up to the end of the head of the page, which is left open.
fn begin(h: &mut Html, address: &Address, title: &str, live: Live) {
    h.markup("<!doctype html>\n<html lang=\"en\" data-live=\"");
    h.markup(match live {
        Live::Stream => "stream",
        Live::Poll => "poll",
        Live::Off => "off",
    });
    h.markup("\"><head>").markup(HEAD);
    if live != Live::Off {
        h.markup("<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n");
    }
    h.markup("<title>").text(title);
    h.markup(" · Watchkeeper</title><link rel=\"icon\" type=\"image/svg+xml\" href=\"");
    h.text(&ICON.address)
        .markup("\"><link rel=\"stylesheet\" href=\"");
    h.text(&STYLE.address).markup("\"><script src=\"");
    h.text(&SCRIPT.address)
        .markup("\" type=\"module\"></script></head><body>\n");
    h.markup("<a class=\"skip\" href=\"#main\">Skip to the content</a>\n");
    h.markup("<header><div class=\"top\"><h1>");
    h.link(&address.to("/", &[]), "Watchkeeper");
    h.markup("</h1>");
    ways(h, address);
    h.markup("<div class=\"tools\"><span id=\"live\" role=\"status\" aria-live=\"polite\"></span></div></div>\n");
}

/// The page that needs no title of its own.
pub(super) const TITLE_OF_FLEET: &str = "Fleet";

/// The zone in which times are written.
pub(super) fn zone_of(address: &Address) -> &str {
    match address.get("tz") {
        "" => "UTC",
        zone => zone,
    }
}

/// Which replica answers, and how the fleet does.
pub(in crate::admin) fn strip(view: &View<'_>) -> Piece {
    let mut h = Html::default();
    h.markup("<div id=\"strip\" data-piece=\"strip\"><p>");
    match view.fleet.replica(view.replica) {
        Some(me) => {
            h.markup("seen by <b>").text(&me.name);
            h.markup("</b><span class=\"more\">, version ")
                .text(&me.version);
            h.markup(", up ");
            view.times.since(&mut h, me.started);
            h.markup("</span>");
        }
        None => {
            h.markup("seen by <b>").text(view.replica).markup("</b>");
        }
    }
    h.markup("</p><p>");
    match &view.ready {
        Ok(()) => h.markup("<span class=\"good\">ready</span>"),
        Err(why) => h
            .markup("<span class=\"bad\">not ready: ")
            .text(why)
            .markup("</span>"),
    };
    margin(&mut h, view.fleet);
    h.markup(
        "<span class=\"more\"> · </span><span class=\"fade more\"><time class=\"now\" datetime=\"",
    );
    h.text(view.times.now).markup("\">");
    h.text(view.times.at(view.times.now));
    h.markup("</time></span>");
    if !view.orders {
        h.markup(" · orders are not taken here");
    }
    if !view.signed_in {
        h.markup(" · <a href=\"/login\">sign in</a>");
    }
    h.markup("</p></div>");
    Piece {
        name: "strip",
        html: h,
    }
}

/// How many nodes there are, and how many more may fail.
pub(super) fn margin(h: &mut Html, fleet: &FleetStatus) {
    let Some(margin) = fleet.node_margin() else {
        return;
    };
    let up = fleet.nodes.iter().filter(|node| node.up).count();
    let mute = fleet.nodes.iter().filter(|node| node.up && !node.votes);
    let mute = mute.count();
    h.markup(" · ").text(up).markup(" of ");
    h.text(fleet.nodes.len()).markup(" nodes up, ");
    if mute > 0 {
        h.text(mute).markup(" without a vote yet, ");
    }
    match margin {
        m if m < 0 => h.markup("<strong class=\"bad\">no majority</strong>"),
        // Of one there is never one to spare.
        0 if fleet.nodes.len() > 1 => h.markup("<strong class=\"warn\">may lose none</strong>"),
        0 => h.markup("may lose none"),
        m => h.markup("may lose ").text(m),
    };
}

fn ways(h: &mut Html, address: &Address) {
    h.markup("<nav aria-label=\"Views\"><ul>");
    for (path, name) in VIEWS {
        h.markup("<li><a href=\"").text(address.to(path, &[]));
        h.markup("\"");
        if address.path() == path {
            h.markup(" aria-current=\"page\"");
        } else if path == "/" && is_of_job(address) {
            h.markup(" aria-current=\"true\"");
        }
        h.markup(">").markup(name).markup("</a></li>");
    }
    h.markup("</ul></nav>");
}

/// What is chosen on a page, to be chosen otherwise: `texts` are its fields beside the words that it takes. What is wanted seldom is
/// folded away until something of it is chosen.
pub(super) fn choices(
    address: &Address,
    takes: &Takes,
    texts: &[(&'static str, &'static str)],
) -> Html {
    let mut h = Html::default();
    h.markup("<form class=\"choices\" role=\"search\" method=\"get\" action=\"");
    h.text(address.path()).markup("\">");
    let (first, others) = texts.split_at(texts.len().min(1));
    fields(&mut h, address, first);
    words(&mut h, address, "state", ("State", "all"), takes);
    h.markup("<button>Show</button>");
    if address.is_chosen() {
        h.markup("<a href=\"").text(address.to(address.path(), &[]));
        h.markup("\">show all</a>");
    }
    let seldom = ["sort", "tz"].into_iter();
    let seldom = seldom.chain(others.iter().map(|(name, _)| *name));
    h.markup("<details");
    if seldom.clone().any(|name| !address.get(name).is_empty()) {
        h.markup(" open");
    }
    h.markup("><summary>");
    h.markup(match others.is_empty() {
        true => "Order and zone",
        false => "More filters",
    });
    h.markup("</summary><div>");
    fields(&mut h, address, others);
    words(&mut h, address, "sort", ("Order", "as usual"), takes);
    h.markup("<label>Zone <input name=\"tz\" maxlength=\"64\" placeholder=\"UTC\" value=\"");
    h.text(address.get("tz"))
        .markup("\"></label><button>Show</button></div></details>");
    // What is chosen anew begins with its first rows.
    let mut shown = vec!["after", "sort", "tz"];
    shown.extend(texts.iter().map(|(name, _)| *name));
    if !takes.states.is_empty() {
        shown.push("state");
    }
    for (name, said) in address.kept(&shown) {
        h.markup("<input type=\"hidden\" name=\"").markup(name);
        h.markup("\" value=\"").text(said).markup("\">");
    }
    h.markup("</form>\n");
    h
}

fn fields(h: &mut Html, address: &Address, texts: &[(&'static str, &'static str)]) {
    for (name, label) in texts.iter().copied() {
        h.markup("<label>")
            .markup(label)
            .markup(" <input type=\"search\" name=\"");
        h.markup(name).markup("\" maxlength=\"").text(LONGEST);
        h.markup("\" value=\"");
        h.text(address.get(name)).markup("\"></label>");
    }
}

fn words(
    h: &mut Html,
    address: &Address,
    name: &'static str,
    (label, none): (&'static str, &'static str),
    takes: &Takes,
) {
    let words = match name {
        "state" => takes.states,
        _ => takes.sorts,
    };
    if words.is_empty() {
        return;
    }
    h.markup("<label>").markup(label).markup(" <select name=\"");
    h.markup(name).markup("\"><option value=\"\">");
    h.markup(none);
    h.markup("</option>");
    for word in words.iter().copied() {
        option(h, word, takes.label(word), address.get(name));
        if name == "sort" {
            let (value, shown) = (format!("-{word}"), format!("{word}, the other way round"));
            option(h, &value, &shown, address.get(name));
        }
    }
    h.markup("</select></label>");
}

fn option(h: &mut Html, value: &str, shown: &str, chosen: &str) {
    h.markup("<option value=\"").text(value).markup("\"");
    if value == chosen {
        h.markup(" selected");
    }
    h.markup(">").text(shown).markup("</option>");
}

/// Which part of all is shown, and the ways to the others; nothing where that is all.
pub(super) fn pager(address: &Address, part: (usize, usize, usize)) -> Html {
    ways_to_others(address, part, " of ")
}

/// The same of things of which there are more than were counted.
pub(super) fn pager_of_a_part(address: &Address, part: (usize, usize, usize)) -> Html {
    ways_to_others(address, part, " of at least ")
}

fn ways_to_others(
    address: &Address,
    (first, shown, total): (usize, usize, usize),
    of: &'static str,
) -> Html {
    let mut h = Html::default();
    if shown == total {
        return h;
    }
    h.markup("<p class=\"pager\">");
    match shown {
        0 => h.markup("none of ").text(total),
        _ => h
            .text(first)
            .markup("–")
            .text(first + shown - 1)
            .markup(of)
            .text(total),
    };
    if address.page() > 1 {
        let page = (address.page() - 1).to_string();
        h.markup(" · <a rel=\"prev\" href=\"")
            .text(address.with(&[("page", page.as_str())]));
        h.markup("\">previous page</a>");
    }
    if address.has_more(total) {
        let page = (address.page() + 1).to_string();
        h.markup(" · <a rel=\"next\" href=\"")
            .text(address.with(&[("page", page.as_str())]));
        h.markup("\">next page</a>");
    }
    h.markup("</p>");
    h
}
