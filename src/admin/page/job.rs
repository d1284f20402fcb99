//! One job: who leads it and who has, its schedule in words, its ticks with what became of each, its runs.

use jiff::Timestamp;

use super::{
    super::html::Html,
    address::Takes,
    block::{Block, Live, Page, Part, Piece, cell},
    flying, jobs,
    layout::{choices, zone_of},
    plot::{BROADEST, Bar, Cell, Stretch, bars, is_whole, line, row},
    runs,
    terms::{End, Term, terms},
    times::{measured, millis, or_dash, span},
    view::View,
};
use crate::{
    fleet::{
        JobFacts, JobTicks, TickStatus,
        history::{RUNNING, RunRecord},
        status::JobStatus,
    },
    telemetry::TRACE_ID,
};

/// What can be chosen on the page of a job.
pub(in crate::admin) const TAKES: Takes = Takes {
    states: runs::TAKES.states,
    sorts: runs::TAKES.sorts,
    texts: &["replica", "run"],
    labels: &[],
};

const FIELDS: [(&str, &str); 1] = [("replica", "Replica")];

/// Runs that are drawn.
const DRAWN: usize = 50;
/// What is known of a tick that is not due yet.
const FUTURE: &str = "future";

/// What is known of a job besides its status.
pub(in crate::admin) struct JobData<'a> {
    pub(in crate::admin) name: &'a str,
    /// What the store tells; why it does not.
    pub(in crate::admin) facts: Result<&'a JobFacts, &'a str>,
    /// Who hears of it when it breaks.
    pub(in crate::admin) notices: Vec<String>,
    /// What decides on its ticks and runs, key by key, as the replica that answers has it.
    pub(in crate::admin) rules: Vec<(String, String)>,
    /// Where a person finds the trace of a run: an address with a place for its id.
    pub(in crate::admin) trace_link: Option<String>,
    /// The run that is shown in full.
    pub(in crate::admin) run: Option<&'a RunRecord>,
}

/// The page.
pub(in crate::admin) fn page(view: &View<'_>, data: &JobData<'_>) -> Page {
    if let Some(run) = data.run {
        return of_run(view, data, run);
    }
    let status = view.job(data.name);
    let mut blocks = Vec::new();
    if let Some(job) = status
        && view.orders
    {
        let orders = orders(view, job);
        blocks.push(Block::Piece(Piece::around("orders", &orders)));
    }
    if !data.notices.is_empty() {
        let mut h = Html::default();
        h.markup("<p>Notices of it go to ")
            .text(data.notices.join(", "))
            .markup(".</p>\n");
        blocks.push(Block::Plain(h));
    }
    if let Ok(facts) = data.facts {
        let trouble = trouble(view, &facts.runs);
        blocks.push(Block::Piece(Piece::around("trouble", &trouble)));
    }
    blocks.extend(parts(view, data.name).into_iter().map(Block::Rows));
    match data.facts {
        Ok(facts) => told(&mut blocks, view, status, facts),
        Err(why) => {
            let mut h = Html::default();
            h.markup("<p class=\"bad\">").text(why).markup("</p>\n");
            blocks.push(Block::Plain(h));
        }
    }
    if !data.rules.is_empty() {
        blocks.push(Block::Plain(rules(&data.rules)));
    }
    Page {
        title: data.name.to_owned(),
        live: match view.address.get("run") {
            "" => Live::Stream,
            // It is not known, and will not be.
            _ => Live::Off,
        },
        blocks,
    }
}

/// What decides on its ticks and runs.
fn rules(rules: &[(String, String)]) -> Html {
    let mut h = Html::default();
    h.markup("<section aria-labelledby=\"title-rules\"><details class=\"folds\" open><summary>");
    h.markup("<h2 id=\"title-rules\">Rules <span class=\"note\">as the replica that answers has them</span></h2>");
    h.markup("</summary><dl class=\"facts\">");
    for (key, value) in rules {
        h.markup("<div><dt>").text(key).markup("</dt><dd>");
        h.text(value).markup("</dd></div>");
    }
    h.markup("</dl></details></section>\n");
    h
}

/// The page of one run, with the other attempts of its tick.
fn of_run(view: &View<'_>, data: &JobData<'_>, run: &RunRecord) -> Page {
    let full = in_full(view, run, data.trace_link.as_deref());
    let mut blocks = vec![Block::Piece(Piece::around("run", &full))];
    if let Ok(facts) = data.facts {
        let attempts = attempts_of(&facts.runs, run.tick);
        let line = attempt_line(view, attempts.clone());
        blocks.push(Block::Piece(Piece::around("attempt-line", &line)));
        let part = runs::part_of(view, ("runs", "Attempts of this tick"), attempts);
        blocks.push(Block::Rows(part));
    }
    let attempt = match run.attempt {
        0 => String::new(),
        attempt => format!(", attempt {attempt}"),
    };
    Page {
        title: format!("{}: {}{attempt}", data.name, view.times.at(run.tick)),
        live: match run.outcome == RUNNING {
            true => Live::Poll,
            // A person reads what one run has left, which may be much, and which does not change.
            false => Live::Off,
        },
        blocks,
    }
}

/// The runs of a tick, the first attempt first.
fn attempts_of(runs: &[RunRecord], tick: Timestamp) -> impl Iterator<Item = &RunRecord> + Clone {
    let of_tick = move |run: &&RunRecord| run.tick == tick && !run.is_of_replica();
    runs.iter().filter(of_tick)
}

/// What is wrong with its last run: since when, how often, why, and where to read on; nothing where it went well.
fn trouble(view: &View<'_>, runs: &[RunRecord]) -> Html {
    let mut h = Html::default();
    let is_bad = |run: &&RunRecord| matches!(runs::class(&run.outcome), "bad" | "warn");
    let ended = || runs.iter().rev().filter(|run| run.outcome != RUNNING);
    let Some(last) = ended().next().filter(is_bad) else {
        return h;
    };
    let bad = ended().take_while(is_bad);
    let (count, first) = (bad.clone().count(), bad.last().unwrap_or(last));
    h.markup("<div class=\"trouble\"><p><strong>");
    h.text(&last.outcome).markup("</strong> ");
    view.times.relative(&mut h, last.ended.unwrap_or(last.tick));
    if count > 1 {
        let more = if count < ended().count() {
            ""
        } else {
            " or more"
        };
        h.text(format_args!(" · {count}{more} runs in a row, for "));
        view.times
            .since(&mut h, first.started.unwrap_or(first.tick));
    }
    if !last.run_id.is_empty() {
        let run = view
            .address
            .to(view.address.path(), &[("run", last.run_id.as_str())]);
        h.markup(" · ").link(&run, "this run");
    }
    h.markup("</p>");
    match (last.detail.as_str(), view.signed_in) {
        ("", _) => {}
        (detail, true) => _ = h.markup("<p>").text(detail).markup("</p>"),
        (_, false) => _ = h.markup("<p>Sign in to see why.</p>"),
    }
    h.markup("</div>\n");
    h
}

/// The same as long as nothing but time has passed in what the status tells of it: what the store tells of it is read anew when this
/// has changed.
pub(in crate::admin) fn print(view: &View<'_>, name: &str) -> Vec<u64> {
    let parts = parts(view, name).into_iter();
    // How far runs are is told all the time.
    let parts = parts.filter(|part| part.id != flying::PART);
    let rows = parts.flat_map(|part| part.rows);
    rows.map(|row| row.digest()).collect()
}

/// What the status tells of it: its line, its shards and what runs.
fn parts(view: &View<'_>, name: &str) -> Vec<Part> {
    let Some(job) = view.job(name) else {
        return Vec::new();
    };
    let mut parts = vec![jobs::part(view, ("jobs", "Status"), [job])];
    if !job.by_shard.is_empty() {
        let shown = job.by_shard.iter().take(super::address::MOST_ROWS);
        let part = jobs::part(view, ("shards", "Shards"), shown);
        parts.push(part.noted(format!("{} in all", job.by_shard.len())));
    }
    let running = flying::of([job]).take(super::address::MOST_ROWS);
    parts.push(flying::part(view, running));
    parts
}

/// What can be asked of it.
fn orders(view: &View<'_>, job: &JobStatus) -> Html {
    let mut h = Html::default();
    h.markup("<p class=\"orders\">");
    let led = !matches!(job.coordination.as_str(), "batch" | "everywhere");
    let all = [
        ("/orders/trigger", "run now", led),
        ("/orders/pause", "pause", !job.paused),
        (
            "/orders/resume",
            "resume",
            job.paused || job.shards_paused > 0,
        ),
        ("/orders/resign", "hand over", led && job.leader.is_some()),
    ];
    for (path, word, _) in all.iter().filter(|(_, _, fits)| *fits) {
        h.link(&view.address.to(path, &[("job", job.name.as_str())]), word);
        h.markup(" ");
    }
    h.markup("</p>\n");
    h
}

fn told(blocks: &mut Vec<Block>, view: &View<'_>, status: Option<&JobStatus>, facts: &JobFacts) {
    match &facts.ticks {
        Some(Ok(ticks)) => {
            let schedule = schedule(view, facts, ticks);
            blocks.push(Block::Piece(Piece::around("schedule", &schedule)));
            let line = tick_line(view, ticks);
            blocks.push(Block::Piece(Piece::around("tick-line", &line)));
        }
        Some(Err(why)) => {
            let mut h = Html::default();
            h.markup("<p class=\"bad\">Its ticks cannot be told: ")
                .text(why);
            h.markup("</p>\n");
            blocks.push(Block::Piece(Piece::around("schedule", &h)));
        }
        None => {}
    }
    let drawings = drawings(view, &facts.runs);
    blocks.push(Block::Piece(Piece::around("drawings", &drawings)));
    let has_terms = status.is_none_or(|job| job.coordination == "leader" && job.shards.is_none());
    let terms = has_terms.then(|| {
        let leader = status.and_then(|job| job.leader.as_ref());
        terms(&facts.runs, &facts.terms, leader, view.times.now)
    });
    if let Some(terms) = &terms {
        let line = term_line(view, terms);
        blocks.push(Block::Piece(Piece::around("term-line", &line)));
    }
    // Tables come after all that is drawn: that is taken in at a glance. Runs are what most look for.
    blocks.push(Block::Plain(choices(view.address, &TAKES, &FIELDS)));
    blocks.push(Block::Rows(runs::part(view, &facts.runs)));
    if let Some(Ok(ticks)) = &facts.ticks {
        if !ticks.last.is_empty() {
            let part = tick_part(view, ("last", "Last ticks"), ticks, &facts.runs);
            blocks.push(Block::Rows(part));
        }
        if !ticks.next.is_empty() {
            let part = tick_part(view, ("next", "Next ticks"), ticks, &facts.runs);
            blocks.push(Block::Rows(part));
        }
    }
    if let Some(terms) = &terms {
        blocks.push(Block::Rows(term_part(view, terms)));
    }
}

fn schedule(view: &View<'_>, facts: &JobFacts, ticks: &JobTicks) -> Html {
    let mut h = Html::default();
    h.markup("<p>Runs ").text(&ticks.words);
    if let Some(zone) = &ticks.zone {
        h.markup(" (").text(zone).markup(")");
    }
    h.markup(".");
    if let Some(shard) = &facts.shard {
        h.markup(" The ticks are those of ").text(shard).markup(".");
    }
    if let Some(upto) = ticks.decided_upto {
        h.markup(" Decided up to ")
            .text(view.times.at(upto))
            .markup(".");
    }
    h.markup("</p>\n");
    for change in &ticks.changes {
        h.markup("<p class=\"warn\">").text(change).markup("</p>\n");
    }
    h
}

/// The last ticks and the next ones in a row, and the present moment between them.
fn tick_line(view: &View<'_>, ticks: &JobTicks) -> Html {
    let mut h = Html::default();
    let cell = |tick: &TickStatus| {
        let is_future = tick.verdict == FUTURE;
        let word = if is_future {
            "to come"
        } else {
            tick.verdict.as_str()
        };
        Cell {
            label: format!("{}: {word}", view.times.at(tick.at)),
            class: (!is_future).then(|| runs::class(&tick.verdict)),
        }
    };
    let cells: Vec<Cell> = ticks.last.iter().chain(&ticks.next).map(cell).collect();
    if cells.is_empty() {
        return h;
    }
    let of = |class: &str| {
        cells
            .iter()
            .filter(|cell| cell.class == Some(class))
            .count()
    };
    let said = format!(
        "The last {} ticks and the next {}, in their order: {} done, {} in trouble",
        ticks.last.len(),
        ticks.next.len(),
        of("good"),
        of("bad")
    );
    h.markup("<figure class=\"row\"><figcaption>").text(&said);
    h.markup("</figcaption>");
    row(&mut h, &said, &cells, ticks.last.len(), BROADEST);
    let mut times = ticks.last.iter().chain(&ticks.next).map(|tick| tick.at);
    let first = times.next();
    let last = times.next_back().filter(|_| is_whole(cells.len()));
    axis(&mut h, view, [first, last]);
    h.markup("</figure>\n");
    h
}

/// The last ticks, the latest first, or the next ones.
fn tick_part(
    view: &View<'_>,
    name: (&'static str, &'static str),
    ticks: &JobTicks,
    runs: &[RunRecord],
) -> Part {
    let is_past = name.0 == "last";
    let mut shown: Vec<&TickStatus> = match is_past {
        true => ticks.last.iter().rev().collect(),
        false => ticks.next.iter().collect(),
    };
    shown.dedup_by_key(|tick| tick.at);
    let zone = ticks.zone.as_deref().unwrap_or("UTC");
    let is_local = zone == zone_of(view.address);
    let columns = match is_past {
        true => "Tick | Outcome | What is known",
        false => "Tick | Outcome",
    };
    let key = |tick: &&TickStatus| tick.at.to_string();
    Part::of(name, columns, shown, key, |h, tick| {
        cell(h, "Tick");
        view.times.moment(h, Some(tick.at));
        if !is_local {
            h.small(&tick.local);
        }
        if let Some(odd) = &tick.oddity {
            h.bad(odd);
        }
        cell(h, "Outcome");
        match tick.verdict.as_str() {
            FUTURE => _ = h.markup("to come"),
            verdict => runs::outcome(h, verdict),
        }
        if is_past {
            cell(h, "What is known");
            known(h, view, tick, runs);
        }
    })
    .folded()
}

/// What has become of a tick: its attempts, what they said, once for all that said the same, and what else is known.
fn known(h: &mut Html, view: &View<'_>, tick: &TickStatus, runs: &[RunRecord]) {
    let attempts = attempts_of(runs, tick.at);
    let mut said: Vec<&str> = Vec::new();
    for run in attempts.clone() {
        h.markup("<span class=\"attempt\">");
        let words = format!("attempt {}", run.attempt);
        match run.run_id.is_empty() {
            true => h.text(words),
            false => {
                let run = [("run", run.run_id.as_str())];
                h.link(&view.address.to(view.address.path(), &run), words)
            }
        };
        if !run.replica_name.is_empty() {
            h.markup(" on ").text(&run.replica_name);
        }
        if let Some(ms) = run.took_ms {
            h.markup(", ").text(measured(ms));
        }
        if run.outcome != tick.verdict {
            h.markup(", ").text(&run.outcome);
        }
        h.markup("</span> ");
        if !run.detail.is_empty() && !said.contains(&run.detail.as_str()) {
            said.push(&run.detail);
        }
    }
    // Those about its attempts say what stands above.
    let is_told = |sentence: &&String| {
        attempts.clone().any(|run| {
            let begin = format!("Attempt {} was started by ", run.attempt);
            sentence.starts_with(&begin) && run.resumed.is_none() && run.params.is_empty()
        })
    };
    let others: Vec<&String> = tick.sentences.iter().filter(|s| !is_told(s)).collect();
    // Both quote what runs have said.
    if !view.signed_in {
        if !said.is_empty() || !others.is_empty() {
            h.small("sign in to see why");
        }
        return;
    }
    let is_alike = said.len() == 1
        && attempts
            .clone()
            .all(|run| said.contains(&run.detail.as_str()));
    let each = match is_alike && attempts.count() > 1 {
        true => "each: ",
        false => "",
    };
    for detail in said {
        h.small(format_args!("{each}{detail}"));
    }
    for sentence in others {
        h.small(view.times.told(sentence));
    }
}

/// How long the last runs took, and how late they began.
fn drawings(view: &View<'_>, all: &[RunRecord]) -> Html {
    let mut h = Html::default();
    let begin = all.len().saturating_sub(DRAWN);
    let last = all.get(begin..).unwrap_or_default();
    let took: Vec<Bar> = last
        .iter()
        .map(|run| Bar {
            label: format!(
                "{}: {}, {}",
                view.times.at(run.tick),
                or_dash(run.took_ms.map(measured)),
                run.outcome
            ),
            value: run.took_ms,
            class: runs::class(&run.outcome),
        })
        .collect();
    let late: Vec<Bar> = last
        .iter()
        .map(|run| (run, runs::late_ms(run)))
        .map(|(run, ms)| Bar {
            label: format!(
                "{}: {} late",
                view.times.at(run.tick),
                or_dash(ms.map(measured))
            ),
            value: ms,
            class: if ms > Some(1000) { "warn" } else { "soft" },
        })
        .collect();
    h.markup("<div class=\"figures\">");
    for (title, drawn) in [("Durations", took), ("Lateness", late)] {
        let known = drawn.iter().filter_map(|bar| bar.value);
        let Some(most) = known.clone().max() else {
            continue;
        };
        let most = measured(most);
        let said = match known.count() {
            1 => format!("{title} of the last run: {most}"),
            count => format!("{title} of the last {count} runs, {most} at most"),
        };
        h.markup("<figure><figcaption>").text(&said);
        h.markup("</figcaption>");
        bars(&mut h, &said, &drawn);
        let is_whole = is_whole(drawn.len());
        let first = last.first().filter(|_| is_whole);
        axis(
            &mut h,
            view,
            [first, last.last()].map(|run| run.map(|run| run.tick)),
        );
        h.markup("</figure>\n");
    }
    h.markup("</div>\n");
    h
}

/// The attempts of one tick on one line, with the time before each; from when it was due, which a batch is not.
fn attempt_line<'a>(view: &View<'_>, runs: impl Iterator<Item = &'a RunRecord>) -> Html {
    let mut h = Html::default();
    let times = |run: &'a RunRecord| {
        let started = run.started?;
        // Of one that runs; and where nothing else is known, of one that could not tell.
        let ended = run.ended.unwrap_or(view.times.now);
        Some((run, started, ended.max(started)))
    };
    let mut attempts: Vec<_> = runs.filter_map(times).collect();
    attempts.sort_by_key(|(_, started, _)| *started);
    let (Some((first, started, _)), Some(end)) = (
        attempts.first().copied(),
        attempts.iter().map(|(.., ended)| *ended).max(),
    ) else {
        return h;
    };
    let is_due = runs::late_ms(first).is_some();
    let begin = match is_due {
        true => first.tick.min(started),
        false => started,
    };
    let mut stretches = Vec::new();
    let mut upto = begin;
    for (run, started, ended) in &attempts {
        if *started > upto {
            stretches.push(Stretch {
                label: format!("waited {}", measured(millis(upto, *started))),
                from: millis(begin, upto),
                to: millis(begin, *started),
                class: "notch",
            });
        }
        let took = measured(millis(*started, *ended));
        stretches.push(Stretch {
            label: match run.attempt {
                0 => format!("{}, {took}", run.outcome),
                attempt => format!("attempt {attempt}: {}, {took}", run.outcome),
            },
            from: millis(begin, *started),
            to: millis(begin, *ended),
            class: match run.outcome.as_str() {
                RUNNING => "now",
                outcome => runs::class(outcome),
            },
        });
        upto = upto.max(*ended);
    }
    let whole = millis(begin, end);
    let since = match is_due {
        true => " since it was due",
        false => "",
    };
    let said = match attempts.len() {
        1 => format!("One attempt in {}{since}", measured(whole)),
        count => format!(
            "{count} attempts in {}{since}, and the time before each",
            measured(whole)
        ),
    };
    h.markup("<figure class=\"line\"><figcaption>").text(&said);
    h.markup("</figcaption>");
    line(&mut h, &said, &stretches, whole);
    axis(&mut h, view, [Some(begin), Some(end)]);
    h.markup("</figure>\n");
    h
}

/// From when to when something is drawn.
fn axis(h: &mut Html, view: &View<'_>, times: [Option<Timestamp>; 2]) {
    h.markup("<p class=\"axis\">");
    for at in times {
        h.markup("<span>");
        h.text(at.map_or_else(String::new, |at| view.times.short(at)));
        h.markup("</span> ");
    }
    h.markup("</p>");
}

/// The terms on one line, and the time between them in which no replica led.
fn term_line(view: &View<'_>, terms: &[Term]) -> Html {
    let mut h = Html::default();
    let Some(begin) = terms.first().map(|term| term.first) else {
        return h;
    };
    let term = |term: &Term| Stretch {
        label: format!("{}, token {}", term.replica, term.token),
        from: millis(begin, term.first),
        to: millis(begin, term.last),
        class: if term.end == End::Leads {
            "good"
        } else {
            "soft"
        },
    };
    // Of a time of which no run is known it is not known whether any replica led.
    let gap = |(before, term): (&Term, &Term)| {
        let gap = term.gap.filter(|gap| gap.is_exact && gap.ms > 0)?;
        let to = millis(begin, term.first);
        Some(Stretch {
            label: format!("no leader for {}: {}", measured(gap.ms), before.end.words()),
            from: to.saturating_sub(gap.ms),
            to,
            class: if before.end.is_trouble() {
                "bad"
            } else {
                "warn"
            },
        })
    };
    let gaps = terms.iter().zip(terms.iter().skip(1)).filter_map(gap);
    // Gaps last: a short one is not hidden by the terms beside it.
    let stretches: Vec<Stretch> = terms.iter().map(term).chain(gaps).collect();
    let whole = millis(begin, view.times.now);
    let said = match terms.len() {
        1 => format!("One term in {}", span(whole)),
        count => format!(
            "{count} terms in {}, and between them the time without a leader",
            span(whole)
        ),
    };
    h.markup("<figure class=\"line\"><figcaption>").text(&said);
    h.markup("</figcaption>");
    line(&mut h, &said, &stretches, whole);
    axis(&mut h, view, [Some(begin), Some(view.times.now)]);
    h.markup("</figure>\n");
    h
}

fn term_part(view: &View<'_>, terms: &[Term]) -> Part {
    let columns = "Token | Replica | From | Until | Runs | Without a leader before | End";
    let key = |term: &&Term| term.token.to_string();
    let name = ("terms", "Leaders");
    let latest_first = terms.iter().rev().take(super::address::MOST_ROWS);
    Part::of(name, columns, latest_first, key, |h, term| {
        cell(h, "Token").text(term.token);
        cell(h, "Replica").text(match term.replica.as_str() {
            "" => "a replica that died before it could tell",
            name => name,
        });
        cell(h, "From");
        view.times.moment(h, Some(term.first));
        if !term.told {
            h.small("at the latest: seen by its runs");
        }
        cell(h, "Until");
        match term.end {
            End::Leads => _ = h.markup("now"),
            End::Told { .. } => view.times.moment(h, Some(term.last)),
            _ => {
                view.times.moment(h, Some(term.last));
                h.small("at the earliest");
            }
        }
        cell(h, "Runs").text(term.runs);
        cell(h, "Without a leader before");
        match term.gap {
            Some(gap) if gap.is_exact => h.text(measured(gap.ms)),
            Some(gap) => h.markup("at most ").text(measured(gap.ms)),
            None => h.markup("–"),
        };
        cell(h, "End").markup(match term.end.is_trouble() {
            true => "<span class=\"bad\">",
            false => "<span>",
        });
        h.markup(term.end.words()).markup("</span>");
        match (&term.end, view.signed_in) {
            (End::Told { detail, .. }, true) if !detail.is_empty() => _ = h.small(detail),
            // It quotes a check, or a panic.
            (End::Told { detail, .. }, false) if !detail.is_empty() => {
                h.small("sign in to see why");
            }
            _ => {}
        }
    })
    .folded()
    .noted("the last 20 as their leaders have told, and others as far as the runs that are remembered tell")
}

fn is_trace_id(text: &str) -> bool {
    let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.len() == 32 && text.bytes().all(digit)
}

/// One run with everything that is known of it.
fn in_full(view: &View<'_>, run: &RunRecord, trace_link: Option<&str>) -> Html {
    let mut h = Html::default();
    h.markup("<section aria-labelledby=\"title-run\"><h2 id=\"title-run\">Run ");
    h.text(&run.run_id).markup("</h2><dl class=\"facts\">");
    let words = |text: String| or_dash(Some(text).filter(|text| !text.is_empty()));
    let at = |at: Option<Timestamp>| or_dash(at.map(|at| view.times.at(at)));
    let params = match view.signed_in {
        true => words(run.params.join(", ")),
        false if run.params.is_empty() => words(String::new()),
        false => "sign in to see them".to_owned(),
    };
    h.markup("<div><dt>Outcome</dt><dd>");
    runs::outcome(&mut h, &run.outcome);
    h.markup("</dd></div>");
    let rows = [
        ("Attempt", run.attempt.to_string()),
        ("Due", at(Some(run.tick))),
        ("Waited", or_dash(runs::late_ms(run).map(measured))),
        ("Started", at(run.started)),
        ("Took", or_dash(run.took_ms.map(measured))),
        ("Ended", at(run.ended)),
        ("Replica", format!("{} ({})", run.replica_name, run.replica)),
        ("Token", or_dash(run.token)),
        ("Parameters", params),
        ("Batches", words(run.batch_words())),
    ];
    for (name, value) in rows.into_iter().filter(|(_, value)| value != "–") {
        h.markup("<div><dt>").markup(name).markup("</dt><dd>");
        h.text(value).markup("</dd></div>");
    }
    // It comes from the store: what is no id leads nowhere.
    if let Some(id) = run.trace_id.as_deref().filter(|id| is_trace_id(id)) {
        h.markup("<div><dt>Trace</dt><dd>");
        match trace_link {
            Some(link) => h
                .markup("<a rel=\"noreferrer\" href=\"")
                .text(link.replace(TRACE_ID, id))
                .markup("\">")
                .text(id)
                .markup("</a>"),
            None => h.text(id),
        };
        h.markup("</dd></div>");
    }
    if let Some(resumed) = &run.resumed {
        h.markup("<div><dt>Resumed</dt><dd>from a checkpoint of ")
            .text(resumed.bytes);
        h.markup(" bytes</dd></div>");
    }
    h.markup("</dl>");
    if !view.signed_in {
        h.markup("<p>Sign in to see what it said and left to read.</p>");
    } else {
        if !run.detail.is_empty() {
            h.markup("<p>").text(&run.detail).markup("</p>");
        }
        match &run.output {
            Some(output) => h
                .markup("<pre tabindex=\"0\">")
                .text(output)
                .markup("</pre>"),
            None if run.output_bytes > 0 => h.markup("<p>Its output is not kept any more.</p>"),
            None => h.markup("<p>It has left nothing to read.</p>"),
        };
    }
    h.markup("</section>\n");
    h
}
