//! Orders that are given on a page: a form that says what would happen, and what becomes of it when it is sent.
//!
//! # Invariants
//! - F4 Nothing is ordered by a form without the token, of another origin, or without a seal of ours.
//!   (an_order_wants_the_token_our_origin_and_a_seal)
//! - F5 With `admin.read_only` there is neither form nor order.   (a_server_that_changes_nothing_has_no_forms)
//! - F6 What was begun is carried out although its client has gone, and a form that has got no turn can be sent again.
//!   (an_order_goes_on_without_its_client_and_one_without_a_turn_can_be_sent_again)

use std::collections::BTreeMap;

use axum::{
    Extension,
    body::Bytes,
    extract::{
        Query, State,
        rejection::{BytesRejection, QueryRejection},
    },
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::Response,
};
use serde_json::{Map, Value};

use super::{
    page::{
        address::{Address, Takes},
        form::{Form, Kind, answer, page},
    },
    problem::{Kind as Trouble, Problem},
    rights::{Asker, Seen},
    seal::{About, Broken, cookie, session},
    shared::Shared,
    snapshot::{Named, Shows, Snapshot, misfit, named},
    source::{ALL_JOBS, Asked, Done, Order, OrderError, What},
};
use crate::{
    fleet::{
        TriggerParams,
        intent::MOST_REASON,
        items::{ItemOrder, ItemState, WhichItems},
    },
    secret::Secret,
};

/// What a form is opened with.
const TAKES: Takes = Takes {
    states: &[],
    sorts: &[],
    texts: &["after", "all", "id", "job", "key", "owner", "replica", "to"],
    labels: &[],
};

type Said = Result<Query<BTreeMap<String, String>>, QueryRejection>;

/// A form, to be filled in.
pub(super) async fn form(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    Extension(asker): Extension<Asker>,
    order: Named,
    headers: HeaderMap,
    said: Said,
) -> Result<Response, Problem> {
    let (kind, token) = (kind(&named(order)?)?, token(&shared)?);
    let Query(said) = said.map_err(|error| Problem::parameter("query", &error.body_text()))?;
    let of = said.get(kind.field()).map_or("", |of| of.trim()).to_owned();
    if of.is_empty() {
        return Err(Problem::parameter(kind.field(), "what the order is about"));
    }
    if kind.is_of_all() && of != ALL_JOBS {
        return Err(Problem::parameter(kind.field(), "it is about all jobs"));
    }
    if let Some(order) = item_order(kind) {
        which(order, &said).map_err(|why| Problem::parameter("id", &why))?;
    }
    let blank = Blank {
        kind,
        of: &of,
        said: &said,
        trouble: None,
    };
    blank
        .show(&shared, seen, &asker, token, &headers, StatusCode::OK)
        .await
}

/// A form that was filled in.
pub(super) async fn give(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    Extension(asker): Extension<Asker>,
    order: Named,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let (kind, token) = (kind(&named(order)?)?, token(&shared)?);
    let said = fields(&headers, body)?;
    // Whatever can be refused is refused before anything is ordered.
    let address = address(kind, &said)?;
    let field = |name: &str| said.get(name).map_or("", String::as_str);
    let of = field(kind.field()).to_owned();
    let thing = thing(kind, &of, &said);
    let about = About {
        session: session(&headers).unwrap_or_default(),
        order: kind.word(),
        of: &thing,
    };
    // Before the seal is spent: what gets no turn is sent again as it is.
    let turn = shared.turn(item_order(kind).is_some()).await?;
    let now = shared.admin.clock.wall().as_second();
    let sealed = match about.session {
        "" => Err(Broken::Foreign),
        _ => shared.seals.take(token, about, field("seal"), now),
    };
    let trouble = match sealed {
        Ok(()) => None,
        Err(Broken::Used) => Some((StatusCode::CONFLICT, Broken::Used.words().to_owned())),
        Err(broken) => Some((StatusCode::FORBIDDEN, broken.words().to_owned())),
    };
    let meant = match trouble {
        Some(trouble) => Err(trouble),
        None => meant(kind, &of, &said).map_err(|why| (StatusCode::BAD_REQUEST, why)),
    };
    let what = match meant {
        Ok(what) => what,
        Err((status, why)) => {
            drop(turn);
            let blank = Blank {
                kind,
                of: &of,
                said: &said,
                trouble: Some(&why),
            };
            return blank
                .show(&shared, seen, &asker, token, &headers, status)
                .await;
        }
    };
    let asked = Asked {
        who: asker.who.clone(),
        reason: field("reason").trim().to_owned(),
        what,
    };
    let given = shared.give(turn, asked).await;
    let done = given.as_ref().ok();
    let next = done.and_then(|done| done.answer["next"].as_str().map(str::to_owned));
    let (status, told) = told(kind, &of, given);
    let snapshot = Snapshot::of(&shared, seen, &address, Shows::Job(&of)).await;
    let rest = next.as_deref().map(|next| (field("all").trim(), next));
    Ok(snapshot.answer(status, &address, |view| {
        answer(view, (kind, &of), &told, rest)
    }))
}

/// A form that is given out.
struct Blank<'a> {
    kind: Kind,
    of: &'a str,
    said: &'a BTreeMap<String, String>,
    trouble: Option<&'a str>,
}

// === impl Blank ===

impl Blank<'_> {
    async fn show(
        &self,
        shared: &Shared,
        seen: Seen,
        asker: &Asker,
        token: &Secret,
        headers: &HeaderMap,
        status: StatusCode,
    ) -> Result<Response, Problem> {
        let address = address(self.kind, self.said)?;
        let (session, is_new) = shared.seals.session(headers);
        let thing = thing(self.kind, self.of, self.said);
        let about = About {
            session: &session,
            order: self.kind.word(),
            of: &thing,
        };
        let now = shared.admin.clock.wall().as_second();
        let seal = shared.seals.seal(token, about, now);
        let form = Form {
            kind: self.kind,
            of: self.of,
            seal: &seal,
            who: &asker.who,
            said: self.said,
            trouble: self.trouble,
        };
        let snapshot = Snapshot::of(shared, seen, &address, Shows::Job(self.of)).await;
        let mut answer = snapshot.answer(status, &address, |view| page(view, &form));
        if is_new && let Ok(cookie) = HeaderValue::try_from(cookie(&session, asker.secure)) {
            answer.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        Ok(answer)
    }
}

// === helpers ===

fn kind(word: &str) -> Result<Kind, Problem> {
    Kind::of(word).ok_or_else(|| Problem::new(Trouble::NoSuchPath, "there is no such order"))
}

/// What forms are sealed with; none are given out where nothing can be ordered.
fn token(shared: &Shared) -> Result<&Secret, Problem> {
    if shared.rules.read_only {
        let why = "this server changes nothing (admin.read_only)";
        return Err(Problem::new(Trouble::ReadOnly, why));
    }
    let none = || Problem::new(Trouble::NoToken, "orders need a token, and there is none");
    shared.rules.token.as_ref().ok_or_else(none)
}

fn address(kind: Kind, said: &BTreeMap<String, String>) -> Result<Address, Problem> {
    let path = format!("/orders/{}", kind.word());
    Address::read(path, &TAKES, said).map_err(|wrong| misfit(&wrong))
}

/// The fields of a form, as browsers send them.
fn fields(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<BTreeMap<String, String>, Problem> {
    let bad = |why: &str| Problem::new(Trouble::BadBody, format!("the form: {why}"));
    let body = body.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(Trouble::TooLarge, error.body_text()),
        _ => bad(&error.body_text()),
    })?;
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(bad("it comes as application/x-www-form-urlencoded"));
    }
    let text = std::str::from_utf8(&body).map_err(|_| bad("it is no text"))?;
    // It is written as the query of an address is, and is no longer than one may be.
    let uri: Uri = format!("/?{text}")
        .parse()
        .map_err(|_| bad("it cannot be read"))?;
    let Query(fields) = Query::try_from_uri(&uri).map_err(|error| bad(&error.body_text()))?;
    Ok(fields)
}

/// What is ordered.
///
/// # Errors
/// What is missing, or does not fit.
fn meant(kind: Kind, of: &str, said: &BTreeMap<String, String>) -> Result<What, String> {
    let field = |name: &str| said.get(name).map_or("", |said| said.trim());
    let reason = field("reason");
    if reason.is_empty() {
        return Err("say why: it is shown to all who ask later".to_owned());
    }
    if reason.len() > MOST_REASON {
        return Err(format!("a reason has {MOST_REASON} bytes at most"));
    }
    if kind.is_final() && field("sure") != "yes" {
        return Err("say that it is meant: it cannot be taken back".to_owned());
    }
    if kind.is_of_all() && of != ALL_JOBS {
        return Err("it is about all jobs".to_owned());
    }
    let of = of.to_owned();
    Ok(match kind {
        Kind::Trigger => {
            let given = params(field("params"))?;
            What::Job(of, Order::Trigger { given })
        }
        Kind::Pause => {
            let reason = reason.to_owned();
            What::Job(of, Order::Pause { reason })
        }
        Kind::Resume => What::Job(of, Order::Resume),
        Kind::Resign => {
            let to = Some(field("to").to_owned()).filter(|to| !to.is_empty());
            What::Job(of, Order::Resign { to })
        }
        Kind::PauseAll => {
            let reason = reason.to_owned();
            What::PauseAll { reason }
        }
        Kind::ResumeAll => What::ResumeAll,
        Kind::Drain => What::Drain(of),
        Kind::Withdraw => What::Withdraw(of),
        Kind::Break => {
            // The form that promises to touch nobody else's says whose it is.
            let owner = field("owner").to_owned();
            if owner.is_empty() {
                return Err("whose lease it is: begin at the page of the lock".to_owned());
            }
            What::Break {
                key: of,
                owner: Some(owner),
            }
        }
        Kind::Retry => of_items(of, ItemOrder::Retry, said)?,
        Kind::Park => of_items(of, ItemOrder::Park, said)?,
        Kind::Discard => of_items(of, ItemOrder::Discard, said)?,
    })
}

fn of_items(
    job: String,
    order: ItemOrder,
    said: &BTreeMap<String, String>,
) -> Result<What, String> {
    let which = which(order, said)?;
    Ok(What::Items { job, order, which })
}

/// What the seal of a form is about, as a text: of an order about items also which they are.
fn thing(kind: Kind, of: &str, said: &BTreeMap<String, String>) -> String {
    let field = |name: &str| said.get(name).map_or("", |said| said.trim());
    match item_order(kind) {
        // None of them has such a character in it.
        Some(_) => {
            let which = [field("id"), field("all"), field("after")];
            format!("{of}\n{}", which.join("\n"))
        }
        None if kind == Kind::Break => format!("{of}\n{}", field("owner")),
        None => of.to_owned(),
    }
}

/// The order about items that a form is for, if it is for one.
fn item_order(kind: Kind) -> Option<ItemOrder> {
    match kind {
        Kind::Retry => Some(ItemOrder::Retry),
        Kind::Park => Some(ItemOrder::Park),
        Kind::Discard => Some(ItemOrder::Discard),
        _ => None,
    }
}

/// Which items: one, or all in a state, from the first behind another one on.
///
/// # Errors
/// What is missing.
fn which(order: ItemOrder, said: &BTreeMap<String, String>) -> Result<WhichItems, String> {
    let field = |name: &str| said.get(name).map_or("", |said| said.trim());
    let after = Some(field("after").to_owned()).filter(|after| !after.is_empty());
    if after.is_some() && field("all").is_empty() {
        return Err("after goes with all, and not with one item".to_owned());
    }
    match (field("id"), field("all"), order) {
        ("", "", _) => Err("which item".to_owned()),
        (id, "", _) => Ok(WhichItems::Named(vec![id.to_owned()])),
        ("", _, ItemOrder::Park) => Err("items are put aside one by one".to_owned()),
        ("", state, ItemOrder::Retry | ItemOrder::Discard) => match ItemState::of(state) {
            Some(state) => Ok(WhichItems::All { state, after }),
            None => Err("all is retry, dead, in_doubt, parked or discarded".to_owned()),
        },
        _ => Err("one item, or all in a state: not both".to_owned()),
    }
}

fn params(text: &str) -> Result<TriggerParams, String> {
    let params: Map<String, Value> = match text {
        "" => Map::new(),
        text => serde_json::from_str(text)
            .map_err(|error| format!("the parameters are no JSON object: {error}"))?,
    };
    TriggerParams::new(params).map_err(|error| error.to_string())
}

/// What came of it, in a sentence.
fn told(
    kind: Kind,
    of: &str,
    given: Result<Done, OrderError>,
) -> (StatusCode, Result<String, String>) {
    let refused = |status, why| (status, Err(why));
    match given {
        Ok(done) if done.heard => (StatusCode::OK, Ok(done_words(kind, of, &done.answer))),
        // It says itself who has not heard of it.
        Ok(done) if kind.is_of_all() => {
            (StatusCode::ACCEPTED, Ok(done_words(kind, of, &done.answer)))
        }
        Ok(_) => {
            let text = format!(
                "{} of {of} is written, and not every replica that it concerns has heard of it yet: they find it.",
                kind.word()
            );
            (StatusCode::ACCEPTED, Ok(text))
        }
        Err(OrderError::Unknown(why)) => refused(StatusCode::NOT_FOUND, why),
        Err(OrderError::Misfit(why)) => refused(StatusCode::BAD_REQUEST, why),
        Err(OrderError::NotPossible(why)) => refused(StatusCode::CONFLICT, why),
        Err(OrderError::TooMany(why)) => refused(StatusCode::TOO_MANY_REQUESTS, why),
        Err(
            OrderError::Unavailable(why) | OrderError::NoItems(why) | OrderError::NotKnown(why),
        ) => refused(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

fn done_words(kind: Kind, of: &str, answer: &Value) -> String {
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    let names = |name: &str| {
        let all = answer[name].as_array().into_iter().flatten();
        all.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    let heard = || match names("heard_by") {
        none if none.is_empty() => "no replica has it now".to_owned(),
        names => format!("heard by {names}"),
    };
    match kind {
        Kind::Trigger => format!("{of} runs: trigger {} is {}.", text("id"), text("state")),
        Kind::Pause => format!("{of} is paused: {}.", heard()),
        Kind::Resume => format!("{of} goes on: {}.", heard()),
        Kind::Resign => format!("{} leads {of} now.", text("leader")),
        Kind::Drain if answer["gone"] == true => format!("{} has gone.", text("name")),
        Kind::Drain => format!("{} drains.", text("name")),
        Kind::Withdraw => format!("Trigger {of} is withdrawn."),
        Kind::Break => text("said"),
        Kind::PauseAll | Kind::ResumeAll => format!("All jobs: {}.", text("said")),
        Kind::Retry | Kind::Park | Kind::Discard => format!("Items of {of}: {}.", text("said")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, said)| ((*name).to_owned(), (*said).to_owned()))
            .collect()
    }

    #[test]
    fn an_order_says_why_and_one_for_good_that_it_is_meant() {
        let meant = |kind, pairs: &[(&str, &str)]| meant(kind, "x", &said(pairs));
        assert!(meant(Kind::Pause, &[]).unwrap_err().contains("say why"));
        assert!(meant(Kind::Pause, &[("reason", "  ")]).is_err());
        let why = ("reason", " it moves ");
        let pause = Order::Pause {
            reason: "it moves".to_owned(),
        };
        assert_eq!(
            meant(Kind::Pause, &[why]),
            Ok(What::Job("x".to_owned(), pause))
        );
        assert!(meant(Kind::Drain, &[why]).unwrap_err().contains("meant"));
        assert_eq!(
            meant(Kind::Drain, &[why, ("sure", "yes")]),
            Ok(What::Drain("x".to_owned()))
        );
        let most = "é".repeat(MOST_REASON / 2);
        assert!(meant(Kind::Pause, &[("reason", most.as_str())]).is_ok());
        let long = format!("{most}é");
        assert!(meant(Kind::Pause, &[("reason", long.as_str())]).is_err());
        for bad in ["[]", "{", "7"] {
            let refused = meant(Kind::Trigger, &[why, ("params", bad)]);
            assert!(refused.unwrap_err().contains("JSON"), "{bad}");
        }
        assert!(meant(Kind::Trigger, &[why, ("params", "{\"pages\": 3}")]).is_ok());
    }

    #[test]
    fn an_order_about_items_says_which() {
        let why = ("reason", "it is mended");
        let meant = |kind, pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs
                .iter()
                .copied()
                .chain([why, ("sure", "yes")])
                .collect();
            meant(kind, "mail", &said(&pairs))
        };
        let items = |order, which| {
            let job = "mail".to_owned();
            Ok(What::Items { job, order, which })
        };
        let named = || WhichItems::Named(vec!["17".to_owned()]);
        let id = ("id", " 17 ");
        assert_eq!(meant(Kind::Retry, &[id]), items(ItemOrder::Retry, named()));
        assert_eq!(meant(Kind::Park, &[id]), items(ItemOrder::Park, named()));
        assert_eq!(
            meant(Kind::Discard, &[id]),
            items(ItemOrder::Discard, named())
        );
        let in_doubt = |after: Option<&str>| WhichItems::All {
            state: ItemState::InDoubt,
            after: after.map(str::to_owned),
        };
        let all = ("all", "in_doubt");
        assert_eq!(
            meant(Kind::Retry, &[all]),
            items(ItemOrder::Retry, in_doubt(None))
        );
        assert_eq!(
            meant(Kind::Retry, &[all, ("after", " 149")]),
            items(ItemOrder::Retry, in_doubt(Some("149")))
        );
        assert_eq!(
            meant(Kind::Discard, &[all]),
            items(ItemOrder::Discard, in_doubt(None))
        );
        for (kind, pairs) in [
            (Kind::Retry, &[][..]),
            (Kind::Discard, &[][..]),
            (Kind::Discard, &[id, ("all", "dead")][..]),
            (Kind::Retry, &[("all", "sent")][..]),
            (Kind::Retry, &[id, ("all", "dead")][..]),
            (Kind::Retry, &[id, ("after", "16")][..]),
            (Kind::Park, &[("all", "dead")][..]),
        ] {
            assert!(meant(kind, pairs).is_err(), "{kind:?} {pairs:?}");
        }
        // What is sent cannot be taken back, nor what goes in its place; what is put aside can.
        assert!(Kind::Retry.is_final() && Kind::Discard.is_final() && !Kind::Park.is_final());
    }

    #[test]
    fn a_form_is_read_as_browsers_send_it() {
        let sent = |kind: &str, body: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            fields(&headers, Ok(Bytes::from_static(body.as_bytes())))
        };
        let form = "application/x-www-form-urlencoded";
        let read = sent(form, "reason=a+b%26%C3%A9%0A&job=x").unwrap();
        assert_eq!(read["reason"], "a b&é\n");
        assert!(sent("text/plain", "reason=x").is_err());
        assert!(sent(form, "reason=\u{1}").is_err());
        assert_eq!(sent(form, "").unwrap(), BTreeMap::new());
    }
}
