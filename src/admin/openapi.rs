//! The API described as OpenAPI 3.1 has it, made of the table of routes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    problem::{Kind, PROBLEM},
    rights::Want,
    route::{Answer, Content, Handler, Route, Verb},
    schema::Schema,
};

/// What every operation with a token can be asked with.
const BEARER: &str = "token";
const BASIC: &str = "sign-in";

/// The whole description.
pub(super) fn description(routes: &[&Route]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    let mut schemas = BTreeMap::new();
    PROBLEM.collect(&mut schemas);
    for route in routes.iter().filter(|route| !route.answers.is_empty()) {
        let at = paths.entry(route.path).or_insert_with(|| json!({}));
        at[route.method.name().to_ascii_lowercase()] = operation(route);
        for answer in route.answers {
            if let Content::Json(schema) | Content::Events(schema) = answer.content {
                schema.collect(&mut schemas);
            }
        }
        if let Some(body) = route.body {
            body.collect(&mut schemas);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Watchkeeper",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
        },
        "servers": [{"url": "/", "description": "The worker that answers this."}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                BEARER: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "admin.token, or what `watchkeeper token` prints.",
                },
                BASIC: {
                    "type": "http",
                    "scheme": "basic",
                    "description": "The token as the password, under any name: for looking alone.",
                },
            },
        },
    })
}

const ABOUT: &str = "A fleet of workers as one of them sees it, and what can be asked of it. \
     Lists come in pages: `limit` says how long, and `next`, as the link of that name, where the next one begins. \
     Documents have a strong ETag. Whatever is refused is an application/problem+json with a remedy.";

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": id(route),
        "summary": route.about,
        "security": security(route.want),
        "responses": responses(route),
    });
    let parameters = route.parameters.iter().map(|known| known.to_json());
    let parameters: Vec<Value> = parameters.collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = route.body {
        let schema = json!({"application/json": {"schema": Schema::Named(body).to_json()}});
        operation["requestBody"] = json!({"required": body.is_needed(), "content": schema});
    }
    operation
}

/// `get_jobs_job`: what stays the same as long as method and path do.
fn id(route: &Route) -> String {
    let path = route.path.trim_start_matches("/api/v1");
    let words = path.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let verb = route.method.name().to_ascii_lowercase();
    let all: Vec<&str> = std::iter::once(verb.as_str()).chain(words).collect();
    all.join("_")
}

/// Any of these will do; an empty one is none.
fn security(want: Want) -> Value {
    match want {
        Want::Health => json!([]),
        // From the machine itself without, from elsewhere with the token.
        Want::Lists => json!([{}, {BEARER: []}, {BASIC: []}]),
        Want::Outputs => json!([{BEARER: []}, {BASIC: []}]),
        Want::Change | Want::Form => json!([{BEARER: []}]),
    }
}

fn responses(route: &Route) -> Value {
    let mut all: Map<String, Value> = Map::new();
    for answer in route.answers {
        all.insert(answer.status.to_string(), response(answer, route));
    }
    let mut answers = route.answers.iter();
    let is_document = answers.any(|answer| matches!(answer.content, Content::Json(_)));
    if is_document && matches!(route.handler, Handler::Api(_)) && route.method == Verb::Get {
        let about = "The client has the document already, as its If-None-Match says.";
        all.insert("304".to_owned(), json!({"description": about}));
    }
    let mut titles: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for facts in route.refusals().into_iter().map(Kind::facts) {
        let of_status = titles.entry(facts.status.as_u16()).or_default();
        of_status.push(facts.title);
    }
    for (status, titles) in titles {
        let problem = json!({
            "description": format!("{}.", titles.join(", or: ")),
            "content": {"application/problem+json": {"schema": Schema::Named(&PROBLEM).to_json()}},
        });
        // Health says why in a line of text.
        let known = all.entry(status.to_string());
        let known = known.or_insert_with(|| json!({"description": problem["description"]}));
        let content = problem["content"].as_object().into_iter().flatten();
        for (kind, schema) in content {
            known["content"][kind.as_str()] = schema.clone();
        }
    }
    all.into()
}

fn response(answer: &Answer, route: &Route) -> Value {
    let mut response = json!({"description": answer.about});
    match answer.content {
        Content::Json(schema) => {
            let json = json!({"schema": schema.to_json()});
            response["content"] = json!({"application/json": json});
            if route.method == Verb::Get {
                response["headers"] = headers(schema);
            }
        }
        Content::Text(kind) => {
            response["content"] = json!({kind: {"schema": {"type": "string"}}});
        }
        // OpenAPI 3.1 has no word for the events of a stream: the extension names the schema of each.
        Content::Events(schema) => {
            let stream = json!({"schema": {"type": "string"}, "x-event": schema.to_json()});
            response["content"] = json!({"text/event-stream": stream});
        }
    }
    response
}

fn headers(schema: Schema) -> Value {
    let text = json!({"type": "string"});
    let mut headers = json!({
        "ETag": {"description": "A strong tag of the document.", "schema": text},
    });
    if let Schema::Page(_) | Schema::PageOfSome(_) = schema {
        let about = "The address of the next page, with rel=\"next\"; absent on the last page.";
        headers["Link"] = json!({"description": about, "schema": text});
    }
    headers
}
