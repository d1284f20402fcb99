//! One line of the table of routes: what it takes, what it answers, who may ask, and what answers.
//!
//! The router, the decision who may ask, the description of the API and the reference in the book are all made of such lines: none
//! of them can tell of something that the others do not know.

use axum::{response::Response, routing::MethodRouter};
use futures_util::future::BoxFuture;

use super::{
    ask::Ask,
    parameter::Parameter,
    problem::{Kind, Problem},
    rights::Want,
    schema::{Named, Schema},
    shared::Shared,
};

/// What becomes of a request to the API.
pub(super) type Answering = BoxFuture<'static, Result<Response, Problem>>;

/// One method of one path.
pub(super) struct Route {
    pub(super) method: Verb,
    /// With `{names}` in the places of values.
    pub(super) path: &'static str,
    pub(super) want: Want,
    /// In a sentence, without a full stop.
    pub(super) about: &'static str,
    pub(super) parameters: &'static [Parameter],
    /// What the body may say; it may be left out where nothing in it is needed.
    pub(super) body: Option<&'static Named>,
    pub(super) answers: &'static [Answer],
    /// Why it may be refused, besides what its method, its parameters and its body bring with them.
    pub(super) problems: &'static [Kind],
    pub(super) handler: Handler,
}

/// The methods that there are. What takes GET takes HEAD, and all take OPTIONS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
}

/// One way in which it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) about: &'static str,
    pub(super) content: Content,
}

/// What comes with an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Json(Schema),
    /// Text of this kind.
    Text(&'static str),
    /// Server-sent events, each with such a document.
    Events(Schema),
}

/// What answers.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// By itself, whatever the method.
    Page(fn() -> MethodRouter<Shared>),
    /// With a request whose parameters were checked.
    Api(fn(Ask) -> Answering),
}

// === impl Route ===

impl Route {
    /// A page, or what belongs to one: without parameters that are checked, and no part of the API.
    pub(super) const fn page(
        path: &'static str,
        want: Want,
        about: &'static str,
        answers: &'static [Answer],
        handler: fn() -> MethodRouter<Shared>,
    ) -> Self {
        Self {
            method: Verb::Get,
            path,
            want,
            about,
            parameters: &[],
            body: None,
            answers,
            problems: &[],
            handler: Handler::Page(handler),
        }
    }

    /// Every kind of problem with which it may be answered.
    pub(super) fn refusals(&self) -> Vec<Kind> {
        let mut kinds = vec![Kind::WrongHost, Kind::ForeignOrigin, Kind::Late];
        if self.want != Want::Health {
            kinds.extend([Kind::TokenNeeded, Kind::NoToken]);
        }
        if self.want == Want::Change {
            kinds.push(Kind::ReadOnly);
        }
        if let Handler::Api(_) = self.handler {
            kinds.push(Kind::BadParameter);
        }
        if self.body.is_some() {
            kinds.extend([Kind::BadBody, Kind::TooLarge]);
        }
        kinds.extend(self.problems);
        // In the order in which all of them are listed.
        let all = Kind::ALL.into_iter();
        all.filter(|kind| kinds.contains(kind)).collect()
    }
}

// === impl Verb ===

impl Verb {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

// === impl Answer ===

impl Answer {
    /// 200 with this document.
    pub(super) const fn json(about: &'static str, schema: Schema) -> Self {
        Self {
            status: 200,
            about,
            content: Content::Json(schema),
        }
    }

    /// Text of a kind.
    pub(super) const fn text(status: u16, about: &'static str, kind: &'static str) -> Self {
        Self {
            status,
            about,
            content: Content::Text(kind),
        }
    }
}
