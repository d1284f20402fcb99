//! What is written to the tables: rows, column by column.

use std::{collections::HashMap, error::Error};

use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use tokio_util::bytes::BytesMut;

use crate::node::{
    columns::{columns_of, int, queue_text, ttl_ms},
    rules::{Entry, Row as NodeRow, Waiter, ceil_ms},
    sheet::{Replaced, SheetBody, SheetDoc, Text},
};

/// A statement with its parameters and their types.
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) params: Vec<(Param, Type)>,
    /// So many rows are written by it, or what it was decided by stands no more.
    pub(super) touches: Option<u64>,
}

pub(super) type Param = Box<dyn ToSql + Send + Sync>;

/// Where a row lies in its table, as the server names it (`ctid`). It stands there until it is written or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowAddress([u8; 6]);

/// Where leases lie that were read in this step.
pub(super) type RowAddresses = HashMap<String, RowAddress>;

impl RowAddress {
    /// No row lies there.
    const NONE: Self = Self([u8::MAX; 6]);
}

impl<'r> FromSql<'r> for RowAddress {
    fn from_sql(_: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(TID);
}

impl ToSql for RowAddress {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(TID);
    to_sql_checked!();
}

/// Rows to be written, column by column, and names that go.
pub(super) struct RowsToWrite {
    gone: Vec<Vec<u8>>,
    names: Vec<Vec<u8>>,
    /// Where they lie, if that was read: then no index is asked.
    addresses: Option<Vec<RowAddress>>,
    values: Vec<Values>,
    /// Rows that do not stand are made as well.
    makes: bool,
    /// So many of the last columns are for rows that do not stand; one that stands keeps its own.
    kept: usize,
}

impl RowsToWrite {
    pub(super) fn write(self, schema: &str, table: &str, namespace: &str) -> Vec<Statement> {
        let name = if table == "document" { "name" } else { "key" };
        let ns = || (text(namespace), Type::TEXT);
        let mut all = Vec::new();
        if !self.gone.is_empty() {
            all.push(Statement {
                sql: format!(
                    "DELETE FROM {schema}.{table} WHERE namespace = $1 AND {name} = ANY ($2)"
                ),
                params: vec![ns(), (Box::new(self.gone), Type::BYTEA_ARRAY)],
                touches: None,
            });
        }
        if self.names.is_empty() || self.values.is_empty() {
            return all;
        }
        let columns: Vec<&str> = self.values.iter().map(|(name, ..)| *name).collect();
        let unnested: Vec<String> = (self.values.iter().enumerate())
            .map(|(i, (_, cast, ..))| format!("${}::{cast}[]", i + 3))
            .collect();
        let (list, unnested) = (columns.join(", "), unnested.join(", "));
        let with = |from: &str| {
            let set = columns[..columns.len() - self.kept].iter();
            let set = set.map(|c| format!("{c} = {from}.{c}"));
            set.collect::<Vec<_>>().join(", ")
        };
        let rows = format!("unnest($2::bytea[], {unnested}) AS u ({name}, {list})");
        let sql = match self.makes {
            true => format!(
                "INSERT INTO {schema}.{table} (namespace, {name}, {list}) SELECT $1, u.{name}, {} FROM {rows} \
                 ON CONFLICT (namespace, {name}) DO UPDATE SET {}",
                columns
                    .iter()
                    .map(|c| format!("u.{c}"))
                    .collect::<Vec<_>>()
                    .join(", "),
                with("excluded"),
            ),
            // A place may be that of a row of another partition; compared so, nothing but the place leads to rows, whatever the server
            // knows of the table: see `Sql::new`. The second comparison of places is for a row that another one changes while this
            // waits for it: servers of before the autumn of 2025 do not make the first one again.
            false => {
                let from = match &self.addresses {
                    Some(_) => {
                        let last = columns.len() + 3;
                        format!(
                            "SELECT u.* FROM unnest($2::bytea[], {unnested}, ${last}::tid[]) AS u ({name}, {list}, place)"
                        )
                    }
                    // One look into the index for each name.
                    None => format!(
                        "SELECT l.place, u.* FROM {rows}, LATERAL \
                             (SELECT ctid AS place FROM {schema}.{table} WHERE namespace = $1 AND {name} = u.{name} OFFSET 0) l"
                    ),
                };
                format!(
                    "UPDATE {schema}.{table} AS t SET {} FROM ({from} OFFSET 0) v \
                     WHERE t.ctid = v.place AND t.ctid IS NOT DISTINCT FROM v.place AND t.namespace IS NOT DISTINCT FROM $1 AND t.{name} IS NOT DISTINCT FROM v.{name}",
                    with("v"),
                )
            }
        };
        let touches = u64::try_from(self.names.len()).ok();
        let mut params = vec![ns(), (Box::new(self.names) as Param, Type::BYTEA_ARRAY)];
        params.extend(
            self.values
                .into_iter()
                .map(|(_, _, of, values)| (values, of)),
        );
        if let Some(addresses) = self.addresses.filter(|_| !self.makes) {
            params.push((Box::new(addresses), Type::TID_ARRAY));
        }
        all.push(Statement {
            sql,
            params,
            // A trigger, or a rule, may leave a row out and say nothing.
            touches,
        });
        all
    }
}

/// A column of rows to be written: name, type, values.
type Values = (&'static str, &'static str, Type, Param);

fn numbers(name: &'static str, values: Vec<i64>) -> Values {
    (name, "int8", Type::INT8_ARRAY, Box::new(values))
}

fn bytes(name: &'static str, values: Vec<Vec<u8>>) -> Values {
    (name, "bytea", Type::BYTEA_ARRAY, Box::new(values))
}

fn texts(name: &'static str, values: Vec<String>) -> Values {
    (name, "text", Type::TEXT_ARRAY, Box::new(values))
}

fn names_of<T>(rows: &[(&str, Option<&T>)]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let name = |(name, _): &&(&str, Option<&T>)| name.as_bytes().to_vec();
    let gone = rows.iter().filter(|(_, row)| row.is_none());
    let stand = rows.iter().filter(|(_, row)| row.is_some());
    (
        gone.map(|row| name(&row)).collect(),
        stand.map(|row| name(&row)).collect(),
    )
}

/// A lease as the table has it: its letter, and what a record holds.
type Lease = (&'static str, Entry);

/// One thing of a lease, and how it is written.
enum Column {
    Text(fn(&Lease) -> &str),
    Bytes(fn(&Lease) -> &str),
    Number(fn(&Lease) -> u64),
}

/// All of them.
const COLUMNS: [(&str, Column); 11] = [
    ("state", Column::Text(|(state, _)| state)),
    ("owner", Column::Bytes(|(_, e)| &e.owner)),
    ("granted", Column::Number(|(_, e)| e.grant.0)),
    ("inc", Column::Text(|(_, e)| &e.inc)),
    ("until", Column::Number(|(_, e)| e.until.0)),
    ("seq", Column::Number(|(_, e)| e.seq)),
    ("ttl", Column::Number(|(_, e)| ttl_ms(e.ttl))),
    ("counter", Column::Number(|(_, e)| e.counter.0)),
    ("token", Column::Number(|(_, e)| e.version.token.0)),
    ("rev", Column::Number(|(_, e)| e.version.rev)),
    ("waits", Column::Number(|(_, e)| e.waits.0)),
];

impl Column {
    fn is_same(&self, one: &Lease, other: &Lease) -> bool {
        match self {
            Self::Text(of) | Self::Bytes(of) => of(one) == of(other),
            Self::Number(of) => of(one) == of(other),
        }
    }

    fn values<'l>(&self, name: &'static str, leases: impl Iterator<Item = &'l Lease>) -> Values {
        match self {
            Self::Text(of) => texts(name, leases.map(|l| of(l).to_owned()).collect()),
            Self::Bytes(of) => bytes(name, leases.map(|l| of(l).as_bytes().to_vec()).collect()),
            Self::Number(of) => numbers(name, leases.map(|l| int(of(l))).collect()),
        }
    }
}

/// Leases that may not stand there yet, and those that go.
pub(super) fn leases(rows: &[(&str, Option<&NodeRow>)]) -> RowsToWrite {
    let (gone, names) = names_of(rows);
    let all: Vec<Lease> = rows
        .iter()
        .filter_map(|(_, row)| columns_of((*row)?))
        .collect();
    let values = COLUMNS.iter();
    let values = values.map(|(name, column)| column.values(name, all.iter()));
    RowsToWrite {
        gone,
        names,
        addresses: None,
        values: values.collect(),
        makes: true,
        kept: 0,
    }
}

/// Nothing but these differs when a lease is extended.
const EXTENDED: [&str; 2] = ["until", "seq"];

/// Statements that most calls write with, without rows.
pub(super) fn often() -> [RowsToWrite; 3] {
    let empty = |makes: bool, wanted: &dyn Fn(&str) -> bool| RowsToWrite {
        gone: Vec::new(),
        // One that is empty: no row at all is no statement.
        names: vec![Vec::new()],
        addresses: (!makes).then(Vec::new),
        values: COLUMNS
            .iter()
            .filter(|(name, _)| wanted(name))
            .map(|(name, column)| column.values(name, std::iter::empty()))
            .collect(),
        makes,
        kept: 0,
    };
    [
        empty(true, &|_| true),
        empty(false, &|_| true),
        empty(false, &|name| EXTENDED.contains(&name)),
    ]
}

/// Leases that take the place of others, where those were read: one that something else has changed meanwhile lies elsewhere, and is
/// left as it is. Of one that is extended what differs then, and otherwise all of its columns. So there are
/// two statements, and not one for each set of columns.
pub(super) fn replaced(rows: &[Replaced<'_>], addresses: &RowAddresses) -> RowsToWrite {
    let pairs = rows.iter().filter_map(|row| {
        let is = columns_of(row.is)?;
        // A claim is read by some of its columns, and says nothing of the others; a row that makes no sense, nothing of any.
        let was = columns_of(row.was).filter(|was| (was.0 == "C") == (is.0 == "C"));
        Some((row.key, was, is))
    });
    let pairs: Vec<(&str, Option<Lease>, Lease)> = pairs.collect();
    let differs = |(_, column): &&(&str, Column)| {
        let same = |was: &Lease, is: &Lease| column.is_same(was, is);
        pairs
            .iter()
            .any(|(_, was, is)| was.as_ref().is_none_or(|was| !same(was, is)))
    };
    let extended = |(name, _): &&(&str, Column)| EXTENDED.contains(name);
    let all = COLUMNS
        .iter()
        .filter(differs)
        .any(|column| !extended(&column));
    let same = !all && !COLUMNS.iter().any(|column| differs(&column));
    let wanted = |column: &&(&str, Column)| !same && (all || extended(column));
    let values = COLUMNS.iter().filter(wanted);
    let values = values.map(|(name, column)| column.values(name, pairs.iter().map(|(.., is)| is)));
    let address = |key| addresses.get(key).copied().unwrap_or(RowAddress::NONE);
    RowsToWrite {
        gone: Vec::new(),
        values: values.collect(),
        names: pairs
            .iter()
            .map(|(key, ..)| key.as_bytes().to_vec())
            .collect(),
        addresses: Some(pairs.iter().map(|(key, ..)| address(*key)).collect()),
        makes: false,
        kept: 0,
    }
}

/// What has a new text or goes, and what keeps the text that stands there.
pub(super) type Rows<'r, T> = Vec<(&'r str, Option<&'r T>)>;

pub(super) fn parts<'r, T>(
    rows: &[(&'r str, Option<&'r T>)],
    is_new: impl Fn(&T) -> bool,
) -> (Rows<'r, T>, Rows<'r, T>) {
    rows.iter().partition(|(_, row)| row.is_none_or(&is_new))
}

pub(super) fn bodies(rows: &[(&str, Option<&SheetBody>)], with_texts: bool) -> RowsToWrite {
    let (gone, names) = names_of(rows);
    let all: Vec<&SheetBody> = rows.iter().filter_map(|(_, body)| *body).collect();
    let until: Vec<Option<i64>> = all.iter().map(|b| b.until.map(|u| int(u.0))).collect();
    let mut values = vec![
        numbers(
            "token",
            all.iter().map(|b| int(b.version.token.0)).collect(),
        ),
        numbers("rev", all.iter().map(|b| int(b.version.rev)).collect()),
        ("until", "int8", Type::INT8_ARRAY, Box::new(until) as Param),
    ];
    match with_texts {
        true => values.push(bytes(
            "body",
            all.iter().map(|b| written(&b.text)).collect(),
        )),
        // What stands there may be damaged, and stays as it is.
        false => drop(values.drain(..2)),
    }
    RowsToWrite {
        gone,
        names,
        addresses: None,
        values,
        makes: with_texts,
        kept: 0,
    }
}

pub(super) fn queues(rows: &[(&str, Option<&Vec<Waiter>>)]) -> RowsToWrite {
    let (gone, names) = names_of(rows);
    let all: Vec<&Vec<Waiter>> = rows.iter().filter_map(|(_, queue)| *queue).collect();
    let end = |queue: &&Vec<Waiter>| queue.iter().map(|w| int(w.until.0)).max().unwrap_or(0);
    let text = |queue: &&Vec<Waiter>| queue_text(queue).into_bytes();
    RowsToWrite {
        gone,
        names,
        addresses: None,
        values: vec![
            numbers("until", all.iter().map(end).collect()),
            bytes("waiters", all.iter().map(text).collect()),
        ],
        makes: true,
        kept: 0,
    }
}

pub(super) fn documents(rows: &[(&str, Option<&SheetDoc>)], with_texts: bool) -> RowsToWrite {
    let (gone, names) = names_of(rows);
    let all: Vec<&SheetDoc> = rows.iter().filter_map(|(_, doc)| *doc).collect();
    let mut values = vec![
        numbers("rev", all.iter().map(|d| int(d.rev)).collect()),
        numbers("ttl", all.iter().map(|d| int(ceil_ms(d.ttl))).collect()),
        numbers("until", all.iter().map(|d| int(d.until.0)).collect()),
    ];
    // One that keeps its text is made with it where it was removed meanwhile, because its time was up.
    values.push(bytes(
        "body",
        all.iter().map(|d| written(&d.text)).collect(),
    ));
    RowsToWrite {
        gone,
        names,
        addresses: None,
        values,
        makes: true,
        kept: usize::from(!with_texts),
    }
}

fn written(text: &Text) -> Vec<u8> {
    match text {
        Text::New(text) | Text::Read(text) => text.clone().into_bytes(),
        Text::Unread => Vec::new(),
    }
}

pub(super) fn text(text: &str) -> Param {
    Box::new(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::{NodeMs, Token, rules::Claim};

    fn columns(was: &NodeRow, is: &NodeRow) -> Vec<&'static str> {
        let key = "k";
        let values = replaced(&[Replaced { key, was, is }], &RowAddresses::new()).values;
        values.into_iter().map(|(name, ..)| name).collect()
    }

    fn held() -> Entry {
        Entry {
            owner: "a".to_owned(),
            seq: 1,
            ttl: Duration::from_secs(10),
            grant: Token(5),
            counter: Token(5),
            inc: "n".to_owned(),
            until: NodeMs(9),
            ..Entry::default()
        }
    }

    #[test]
    fn of_an_extension_what_differs_is_written_and_nothing_else() {
        let was = NodeRow::Record(held());
        let extended = NodeRow::Record(Entry {
            seq: 2,
            until: NodeMs(19),
            ..held()
        });
        assert_eq!(columns(&was, &extended), ["until", "seq"]);
        assert_eq!(columns(&was, &was), [""; 0]);
        // One of many that differs in more: then all say everything.
        let taken = NodeRow::Record(Entry {
            owner: "b".to_owned(),
            ..held()
        });
        let rows = [("k", &extended), ("l", &taken)];
        let rows = rows.map(|(key, is)| Replaced { key, was: &was, is });
        let written = replaced(&rows, &RowAddresses::new());
        let names: Vec<&str> = written.values.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, COLUMNS.map(|(name, _)| name));
        assert_eq!(written.names, [b"k".to_vec(), b"l".to_vec()]);
    }

    #[test]
    fn over_a_row_of_another_kind_or_of_none_every_column_is_written() {
        let held = NodeRow::Record(held());
        let claim = NodeRow::Claim(Claim {
            owner: "a".to_owned(),
            grant: Token(5),
            inc: "n".to_owned(),
            until: NodeMs(9),
        });
        let nonsense = NodeRow::Malformed(crate::node::rules::Malformed {
            counter: None,
            ttl: Duration::ZERO,
        });
        for was in [&claim, &nonsense] {
            assert_eq!(columns(was, &held).len(), COLUMNS.len());
        }
        assert_eq!(columns(&held, &claim).len(), COLUMNS.len());
    }

    #[test]
    fn rows_that_are_as_they_stood_are_no_statement() {
        let held = NodeRow::Record(held());
        let (key, was, is) = ("k", &held, &held);
        let written = replaced(&[Replaced { key, was, is }], &RowAddresses::new());
        assert!(written.write("s", "lease", "n").is_empty());
    }
}
