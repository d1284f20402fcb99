//! What of a table is the same in every database: its names in SQL and elsewhere, and what is sent of a row.

use serde_json::{Map, Value};
use watchkeeper::hash::fnv1a;

use crate::notifications::cell::ItemId;

/// What is sent of a row.
#[derive(Clone, Debug)]
pub(super) enum Payload {
    /// One column with JSON or text.
    Column(String),
    /// These columns, as fields.
    Fields(Vec<String>),
}

/// Bytes of bodies that are read for one batch: more rows of the cell wait for the next one. The first row counts whatever
/// it has, so that the cell moves on.
pub(super) const BATCH_BYTES: u64 = 8 << 20;
/// Bytes of the largest body that is sent. A row with more is dead.
pub(super) const BODY_BYTES: u64 = 64 << 20;

/// Why a row is dead whose body has so many bytes.
pub(super) fn too_large(bytes: u64) -> String {
    format!(
        "its body has {} MiB; at most {} MiB are sent",
        bytes.div_ceil(1 << 20),
        BODY_BYTES >> 20
    )
}

/// A name as an SQL identifier, whatever it contains.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Names as a person reads them.
pub(super) fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

/// The rows that are ours, under an alias in a `FROM`: the table, or what `filter` leaves of it, and the condition that they are due.
/// The filter is the configuration's own SQL. It stands on lines of its own, so that a comment in it ends there.
pub(super) fn rows_of(
    sql_name: &str,
    filter: Option<&str>,
    due: Option<&str>,
    alias: &str,
) -> String {
    let filter = filter.map(|filter| format!("(\n{filter}\n)"));
    let conditions: Vec<String> = filter.into_iter().chain(due.map(str::to_owned)).collect();
    match &conditions[..] {
        [] => format!("{sql_name} AS {alias}"),
        all => format!(
            "(SELECT * FROM {sql_name} WHERE {}) AS {alias}",
            all.join(" AND ")
        ),
    }
}

/// The name of a delivery in side tables, batches and keys. Two filters of one table are two deliveries, with cells and keys
/// of their own.
pub(super) fn source_name(name: String, filter: Option<&str>) -> String {
    match filter {
        None => name,
        Some(filter) => format!("{name}?{:016x}", fnv1a(filter.bytes())),
    }
}

/// What is sent: the payload, then `id` and `table`, which win over columns of these names. `values` are those of the
/// payload's columns.
pub(super) fn body(
    payload: &Payload,
    values: Vec<Value>,
    table: &str,
    id: &ItemId,
) -> Map<String, Value> {
    let mut body = Map::new();
    match payload {
        Payload::Fields(names) => body.extend(names.iter().cloned().zip(values)),
        Payload::Column(_) => match values.into_iter().next().unwrap_or_default() {
            Value::Object(fields) => body.extend(fields),
            Value::String(text) => match serde_json::from_str(&text) {
                Ok(Value::Object(fields)) => body.extend(fields),
                _ => {
                    body.insert("payload".to_owned(), Value::String(text));
                }
            },
            value => {
                body.insert("payload".to_owned(), value);
            }
        },
    }
    let id = match id {
        ItemId::Int(id) => Value::from(*id),
        ItemId::Text(id) => Value::from(id.as_str()),
    };
    body.insert("id".to_owned(), id);
    body.insert("table".to_owned(), Value::from(table));
    body
}

/// Bytes as hexadecimal text.
pub(super) fn hexadecimal(bytes: &[u8]) -> Value {
    Value::from(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quotes_in_names_are_doubled() {
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }

    #[test]
    fn a_comment_in_a_filter_hides_nothing_behind_it() {
        let rows = rows_of("t", Some("a = 1 -- mine"), None, "n");
        assert_eq!(rows, "(SELECT * FROM t WHERE (\na = 1 -- mine\n)) AS n");
        let due = rows_of("t", Some("a = 1 -- mine"), Some("b < 2"), "n");
        assert_eq!(
            due,
            "(SELECT * FROM t WHERE (\na = 1 -- mine\n) AND b < 2) AS n"
        );
        assert_eq!(rows_of("t", None, None, "m"), "t AS m");
    }

    #[test]
    fn two_filters_are_two_deliveries() {
        let of = |filter| source_name("t".to_owned(), filter);
        assert_eq!(of(None), "t");
        assert_eq!(of(Some("a = 1")), of(Some("a = 1")));
        assert_ne!(of(Some("a = 1")), of(Some("a = 2")));
    }

    #[test]
    fn a_payload_of_json_or_text_becomes_fields_and_forges_no_id() {
        let column = Payload::Column("body".to_owned());
        let of = |value| Value::from(body(&column, vec![value], "t", &ItemId::Int(7)));
        let sent = json!({"a": 1, "id": 7, "table": "t"});
        assert_eq!(of(json!({"a": 1, "id": "forged"})), sent);
        assert_eq!(of(json!("{\"a\": 1, \"table\": 3}")), sent);
        for other in [json!("text"), json!(3), json!([1]), Value::Null] {
            let sent = json!({"payload": other, "id": 7, "table": "t"});
            assert_eq!(of(other), sent);
        }
    }
}
