//! The reference in the book is the table of routes.
//!
//! The test that fails says which command writes the page anew.

use crate::admin::{
    parameter::Location,
    problem::Kind,
    rights::Want,
    route::{Handler, Route},
    routes::routes,
};

#[path = "../../../tests/it/page.rs"]
#[allow(dead_code, reason = "shared with the tests over whole crates")]
mod page;

use page::{made, read, table};

const COMMAND: &str = "cargo test --lib reference";

const PAGE: &str = "reference/endpoints.md";

#[test]
fn the_reference_of_endpoints_is_the_table() {
    let routes = routes();
    let who = |route: &Route| match route.want {
        Want::Health => "open to all",
        Want::Lists => "this machine; token from elsewhere",
        Want::Outputs => "token",
        Want::Change | Want::Form => "token, as `Bearer`",
    };
    let rows: Vec<Vec<String>> = routes
        .iter()
        .map(|route| {
            let path = format!("`{}`", route.path);
            let method = route.method.name().to_owned();
            vec![method, path, who(route).to_owned(), route.about.to_owned()]
        })
        .collect();
    let header = ["Method", "Path", "Who may ask", "What it is"];
    made(PAGE, "endpoints", &table(&header, &rows), COMMAND);

    let of_api = routes
        .iter()
        .filter(|route| matches!(route.handler, Handler::Api(_)));
    let parameters = of_api.flat_map(|route| {
        let of_query = route
            .parameters
            .iter()
            .filter(|known| known.location == Location::Query);
        of_query.map(move |known| {
            let needed = if known.needed { "; needed" } else { "" };
            let takes = format!("{}{needed}", known.takes.in_words());
            vec![
                format!("`{}`", route.path),
                format!("`{}`", known.name),
                takes,
                known.about.to_owned(),
            ]
        })
    });
    let rows: Vec<Vec<String>> = parameters.collect();
    let header = ["Path", "Parameter", "Takes", "Meaning"];
    made(PAGE, "parameters", &table(&header, &rows), COMMAND);

    let rows = Kind::ALL.map(|kind| {
        let facts = kind.facts();
        vec![
            facts.status.as_u16().to_string(),
            format!("`{}`", facts.name),
            facts.title.to_owned(),
            facts.remedy.to_owned(),
        ]
    });
    let header = ["Status", "End of `type`", "Title", "Remedy"];
    made(PAGE, "problems", &table(&header, &rows), COMMAND);

    let by_hand = read(PAGE);
    for route in routes {
        let told = format!("### `{} {}`", route.method.name(), route.path);
        assert!(by_hand.contains(&told), "the page has no {told}");
    }
}
