//! How many rows may go in a second, as the configuration says it.

use serde::Deserialize;
use serde_json::Value;
use watchkeeper::{config::Findings, human::Span};

use crate::kinds::notifications::text::{Form, Text};

/// One limit.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    /// Under which other jobs may share it.
    pub(crate) name: Option<String>,
    pub(crate) per_second: f64,
    pub(crate) by: By,
    /// So many values at a time have a limit of their own.
    pub(crate) most: usize,
}

/// What a limit is for.
#[derive(Clone, Debug)]
pub(crate) enum By {
    /// All rows.
    All,
    /// Each receiver.
    Host,
    /// Each value of this text over the row's columns, which stands beside it as it was written.
    Columns(Text, String),
}

/// A limit as a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitParams {
    limit: f64,
    per: Option<Span>,
    by: Option<String>,
    name: Option<String>,
    most: Option<usize>,
}

/// Values that have a limit of their own at a time, unless the configuration says another number: each is a lease.
const MOST: usize = 1000;

/// Reads a number, or a list of tables; notes what is wrong.
pub(crate) fn read(rate: &Value, found: &mut Findings) -> Vec<Limit> {
    let all = |per_second: f64| Limit {
        name: None,
        per_second,
        by: By::All,
        most: MOST,
    };
    match rate {
        Value::Null => Vec::new(),
        Value::Array(tables) => {
            let mut limits = Vec::new();
            for (n, table) in tables.iter().enumerate() {
                match of_table(table) {
                    Ok(limit) => limits.push(limit),
                    Err((key, why)) => found.error(&[&format!("rate[{n}]{key}")], why, ""),
                }
            }
            limits
        }
        Value::Number(number) if number.as_f64().is_some_and(is_rate) => {
            number.as_f64().map(all).into_iter().collect()
        }
        // The environment gives texts.
        Value::String(text) if text.parse().is_ok_and(is_rate) => {
            text.parse().map(all).into_iter().collect()
        }
        _ => {
            let why = "must be rows a second, at least 0.001, or a list of limits such as { limit = 10, by = \"${tenant}\" }";
            found.error(&["rate"], why.to_owned(), "");
            Vec::new()
        }
    }
}

fn of_table(table: &Value) -> Result<Limit, (&'static str, String)> {
    let params = LimitParams::deserialize(table).map_err(|error| {
        (
            "",
            format!("is no limit: {error}; write {{ limit = 10, per = \"1s\" }}"),
        )
    })?;
    let per = params.per.map_or(1.0, |span| span.0.as_secs_f64());
    let per_second = params.limit / per;
    if !is_rate(per_second) {
        return Err((
            ".limit",
            "must come to at least 0.001 rows a second".to_owned(),
        ));
    }
    if params
        .name
        .as_deref()
        .is_some_and(|name| name.is_empty() || name.len() > 100)
    {
        return Err((".name", "must have from 1 to 100 bytes".to_owned()));
    }
    let most = params.most.unwrap_or(MOST);
    if !(1..=10_000).contains(&most) {
        return Err((".most", "must be from 1 to 10000".to_owned()));
    }
    let by = match params.by.as_deref() {
        None => By::All,
        Some("host") => By::Host,
        Some(text) => {
            let read = Text::parse(text, Form::Plain).map_err(|why| (".by", why))?;
            if read.columns().next().is_none() {
                let why = "names no column: write ${COLUMN}, or host for each receiver";
                return Err((".by", why.to_owned()));
            }
            By::Columns(read, text.to_owned())
        }
    };
    Ok(Limit {
        name: params.name,
        per_second,
        by,
        most,
    })
}

fn is_rate(per_second: f64) -> bool {
    per_second.is_finite() && per_second >= 0.001
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limits(rate: &Value) -> Vec<Limit> {
        let mut found = Findings::default();
        let limits = read(rate, &mut found);
        assert!(found.is_empty(), "{found:?}");
        limits
    }

    #[test]
    fn a_number_is_a_limit_of_all_rows() {
        for rate in [json!(200), json!(200.0), json!("200")] {
            let [limit] = &limits(&rate)[..] else {
                panic!("{rate}")
            };
            assert!(matches!(limit.by, By::All), "{limit:?}");
            assert!((limit.per_second - 200.0).abs() < f64::EPSILON);
        }
        assert!(limits(&Value::Null).is_empty());
    }

    #[test]
    fn a_list_has_limits_of_all_kinds() {
        let rate = json!([
            { "limit": 14, "name": "ses" },
            { "limit": 600, "per": "1m", "by": "${tenant}", "most": 50 },
            { "limit": 5, "by": "host" },
        ]);
        let [account, tenant, host] = &limits(&rate)[..] else {
            panic!()
        };
        assert_eq!(account.name.as_deref(), Some("ses"));
        assert!((tenant.per_second - 10.0).abs() < 1e-9);
        assert!(matches!(&tenant.by, By::Columns(_, text) if text == "${tenant}"));
        assert_eq!((tenant.most, host.most), (50, MOST));
        assert!(matches!(host.by, By::Host));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_key() {
        for (rate, key) in [
            (json!(0), "rate"),
            (json!("fast"), "rate"),
            (json!({ "limit": 3 }), "rate"),
            (json!([{ "limit": 0 }]), "rate[0].limit"),
            (
                json!([{ "limit": 1 }, { "limit": 1, "by": "tenant" }]),
                "rate[1].by",
            ),
            (json!([{ "limit": 1, "by": "${}" }]), "rate[0].by"),
            (json!([{ "limit": 1, "most": 0 }]), "rate[0].most"),
            (json!([{ "limit": 1, "name": "" }]), "rate[0].name"),
            (json!([{ "limit": 1, "pre": "1s" }]), "rate[0]"),
            (json!([{ "limit": 1, "per": "0s" }]), "rate[0].limit"),
        ] {
            let mut found = Findings::default();
            read(&rate, &mut found);
            let keys: Vec<_> = found.iter().flat_map(|f| f.keys.clone()).collect();
            assert_eq!(keys, [key], "{rate}");
        }
    }
}
