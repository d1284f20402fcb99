//! The tables as SQL: what is read before a call, and what is written after it.

use std::time::Duration;

use tokio_postgres::{
    Row,
    types::{FromSql, Type},
};

use super::{
    kept::{KEEPING_PROCESS, Often},
    layout::quoted,
    written::{self, Param, RowAddress, RowAddresses, RowsToWrite, Statement, text},
};
use crate::node::{
    NodeMs, Token, Version,
    columns::{Columns, int, queue_of},
    rules::{LIMIT, Row as NodeRow},
    sheet::{Changes, Part, Range, Sheet, SheetBody, SheetDoc, Text, Wanted},
};

/// No body of ours is longer.
const LARGEST: i32 = 64 * 1024 * 1024;
/// No name, owner or queue of ours is.
const LONG: i32 = 1024 * 1024;
/// Letters of documents that one page is read with, about.
const MUCH: i64 = 512 * 1024;
/// Documents that are removed at a time.
const CLEANED: i64 = 1_000;

/// Of the cluster of databases, the same for all its copies, of the database in it, and of its history: another one after every
/// promotion. A process of the server never sees it change.
const LIFE: &str = "(SELECT system_identifier::text FROM pg_control_system()) \
     || '/' || (SELECT oid::text FROM pg_database WHERE datname = current_database()) \
     || ':' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)";

/// What the server says of itself with the first rows.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// Its clock; nothing of a server that was set read-only, and takes no writes of the next transaction.
    pub(super) now: Option<i64>,
    /// [`LIFE`], where it was asked for.
    pub(super) life: Option<String>,
    /// How much of what it has written is on its disk.
    pub(super) flushed: u64,
    /// What stands in the row of the namespace, if there is one.
    pub(super) node: Option<NodeHead>,
    /// The process of the server that has answered.
    pub(super) process: i32,
}

#[derive(Clone, Debug)]
pub(super) struct NodeHead {
    pub(super) layout: i32,
    pub(super) forgotten: Token,
    pub(super) gate: String,
    /// Another number when the table was made again.
    pub(super) made: i64,
}

/// The statements of one schema.
pub(super) struct Sql {
    schema: String,
    /// Takes the row that all writers of a namespace take.
    lock: String,
    locks: String,
    /// The same without their queues, of several and of one.
    looks: String,
    look: String,
    /// What the server says of itself, and no lock.
    head: String,
    /// Of locks the rows alone: within a writer's step, where the rows stay as they are.
    lock_rows: String,
    rows: String,
    bodies: String,
    docs: String,
    /// Nothing but documents.
    docs_alone: String,
    doc_names: String,
    pub(super) first_row: String,
}

/// As the sheet has it: of no use.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) String);

// === impl Sql ===

impl Sql {
    pub(super) fn new(schema: &str) -> Self {
        let s = quoted(schema);
        // A subquery with OFFSET is planned by itself: one look into an index for each lock, however large the tables and however
        // little the server knows of them. The clock is read when the statement begins, which is after the lock was taken.
        let server = "c.now, c.life, pg_backend_pid(), c.flushed, n.layout, n.forgotten, n.made";
        let of_server = format!(
            "(SELECT CASE current_setting('default_transaction_read_only') WHEN 'off' \
                     THEN (extract(epoch FROM clock_timestamp()) * 1000)::int8 END AS now, \
                 {LIFE} AS life, \
                 (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8 AS flushed OFFSET 0) c \
             LEFT JOIN LATERAL (SELECT layout, forgotten, gate, tableoid::int8 AS made FROM {s}.node WHERE namespace = $1 OFFSET 0) n ON true"
        );
        let lease = format!(
            "LEFT JOIN LATERAL (SELECT {LEASE} FROM {s}.lease AS l WHERE namespace = $1 AND key = k.key OFFSET 0) l ON true"
        );
        let range = |column: &str| {
            format!(
                // No text has such a letter: so both ends are places in the index, also where the plan does not know them.
                "namespace = $1 AND {column} >= $2 AND {column} < coalesce($3, '\\xff'::bytea) ORDER BY {column} LIMIT $4"
            )
        };
        let (keys, names) = (range("key"), range("name"));
        let doc =
            format!("rev, ttl, until, CASE WHEN octet_length(body) <= {LARGEST} THEN body END");
        let locks = |keys: &str, shown: &str, joined: &str| {
            format!(
                "SELECT {server}, CASE WHEN k.nth IS NULL OR k.nth = 1 THEN n.gate END, coalesce(k.nth, 1), k.key, {PLAIN}, \
                     b.token, b.rev, b.until, b.body{shown} \
                 FROM {of_server} {keys} \
                 {lease} \
                 LEFT JOIN LATERAL (SELECT token, rev, until, \
                     CASE WHEN k.texts AND octet_length(body) <= {LARGEST} THEN body END AS body \
                     FROM {s}.body WHERE namespace = $1 AND key = k.key OFFSET 0) b ON true{joined}"
            )
        };
        let several = "LEFT JOIN unnest($2::bytea[], $3::bool[]) WITH ORDINALITY AS k (key, texts, nth) ON true";
        // Most programs that wait look at one lock, again and again.
        let one = "CROSS JOIN (SELECT $2::bytea AS key, $3::bool AS texts, 1::int8 AS nth) AS k";
        let queue = format!(
            " LEFT JOIN LATERAL (SELECT waiters FROM {s}.queue \
                 WHERE namespace = $1 AND key = k.key AND octet_length(waiters) <= {LONG} OFFSET 0) q ON true"
        );
        Self {
            schema: s.clone(),
            lock: format!("SELECT FROM {s}.node WHERE namespace = $1 FOR UPDATE"),
            locks: locks(several, ", q.waiters", &queue),
            looks: locks(several, "", ""),
            look: locks(one, "", ""),
            head: format!("SELECT {server}, n.gate, 1::int8 FROM {of_server}"),
            lock_rows: format!("SELECT k.key, {PLAIN} FROM unnest($2::bytea[]) AS k (key) {lease}"),
            rows: format!("SELECT key, {LEASE} FROM {s}.lease AS l WHERE {keys}"),
            bodies: format!(
                "SELECT key, token, rev, until, \
                     CASE WHEN $5 AND octet_length(body) <= {LARGEST} THEN body END FROM {s}.body WHERE {keys}"
            ),
            docs: format!(
                "SELECT name, {doc} FROM {s}.document WHERE namespace = $1 AND name = ANY ($2)"
            ),
            docs_alone: format!(
                "SELECT {server}, CASE WHEN k.nth IS NULL OR k.nth = 1 THEN n.gate END, coalesce(k.nth, 1), \
                     k.name, d.rev, d.ttl, d.until, d.body \
                 FROM {of_server} \
                 LEFT JOIN unnest($2::bytea[]) WITH ORDINALITY AS k (name, nth) ON true \
                 LEFT JOIN LATERAL (SELECT {doc} AS body FROM {s}.document \
                     WHERE namespace = $1 AND name = k.name OFFSET 0) d ON true"
            ),
            // Texts as far as they are for one page.
            doc_names: format!(
                "SELECT name, rev, ttl, until, CASE WHEN $5 AND sum(octet_length(body)) OVER (ORDER BY name) <= {MUCH} THEN body END \
                 FROM (SELECT name, rev, ttl, until, body FROM {s}.document WHERE {names}) d ORDER BY name"
            ),
            first_row: super::layout::first_row(schema),
        }
    }

    /// Takes the row that all writers of this namespace take.
    pub(super) fn take(&self, namespace: &str) -> Statement {
        Statement {
            sql: self.lock.clone(),
            params: vec![(text(namespace), Type::TEXT)],
            touches: None,
        }
    }

    /// Asks how much of which life's log is on the disk.
    pub(super) fn flushed() -> Statement {
        Statement {
            sql: format!("SELECT {LIFE}, (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8"),
            params: Vec::new(),
            touches: None,
        }
    }

    /// What nearly every call is made of, to be prepared: all that looks at locks or documents, and extends or takes locks.
    pub(super) fn often(&self) -> Vec<Often> {
        let of_locks = vec![Type::TEXT, Type::BYTEA_ARRAY, Type::BOOL_ARRAY];
        let mut all = vec![
            (self.lock.clone(), vec![Type::TEXT]),
            (Self::flushed().sql, Vec::new()),
            (self.look.clone(), vec![Type::TEXT, Type::BYTEA, Type::BOOL]),
            (self.looks.clone(), of_locks.clone()),
            (self.locks.clone(), of_locks),
            (self.head.clone(), vec![Type::TEXT]),
            (self.lock_rows.clone(), vec![Type::TEXT, Type::BYTEA_ARRAY]),
            (self.docs.clone(), vec![Type::TEXT, Type::BYTEA_ARRAY]),
            // Every program asks again and again which of them sweeps.
            (self.docs_alone.clone(), vec![Type::TEXT, Type::BYTEA_ARRAY]),
        ];
        for rows in written::often() {
            for statement in rows.write(&self.schema, "lease", "") {
                let types = statement.params.into_iter().map(|(_, of)| of);
                all.push((statement.sql, types.collect()));
            }
        }
        let often = |(asked, types): (String, Vec<Type>)| Often {
            prepared: asked
                .replace(LIFE, "NULL::text")
                .replace("pg_backend_pid()", KEEPING_PROCESS),
            asked,
            types,
        };
        all.into_iter().map(often).collect()
    }

    /// The statements that read what is wanted. The first one tells of the server as well, and reads the locks of which more than
    /// a row is wanted, or the documents where nothing else is: at the same moment.
    pub(super) fn read(&self, namespace: &str, wanted: &Wanted) -> Vec<Statement> {
        let ns = || (text(namespace), Type::TEXT);
        let bytes = |name: &str| -> Param { Box::new(name.as_bytes().to_vec()) };
        let keys: Vec<Vec<u8>> = wanted.locks.keys().map(|k| k.as_bytes().to_vec()).collect();
        let of_names = |names: Vec<Vec<u8>>| -> Vec<(Param, Type)> {
            vec![ns(), (Box::new(names), Type::BYTEA_ARRAY)]
        };
        let docs: Vec<Vec<u8>> = wanted.docs.iter().map(|n| n.as_bytes().to_vec()).collect();
        if wanted.only_docs() {
            return vec![Statement {
                sql: self.docs_alone.clone(),
                params: of_names(docs),
                touches: None,
            }];
        }
        let mut all = Vec::new();
        match wanted.only_rows() {
            true => {
                all.push(Statement {
                    sql: self.head.clone(),
                    params: vec![ns()],
                    touches: None,
                });
                if !keys.is_empty() {
                    all.push(Statement {
                        sql: self.lock_rows.clone(),
                        params: of_names(keys),
                        touches: None,
                    });
                }
            }
            false => {
                let texts = wanted.locks.values().map(|part| *part == Part::Text);
                let texts: Vec<bool> = texts.collect();
                let one = match (wanted.queues, &keys[..], &texts[..]) {
                    (false, [key], [text]) => Some((key.clone(), *text)),
                    _ => None,
                };
                let (sql, [keys, texts]): (_, [(Param, Type); 2]) = match one {
                    Some((key, text)) => (
                        &self.look,
                        [(Box::new(key), Type::BYTEA), (Box::new(text), Type::BOOL)],
                    ),
                    None => (
                        if wanted.queues {
                            &self.locks
                        } else {
                            &self.looks
                        },
                        [
                            (Box::new(keys), Type::BYTEA_ARRAY),
                            (Box::new(texts), Type::BOOL_ARRAY),
                        ],
                    ),
                };
                all.push(Statement {
                    sql: sql.clone(),
                    params: vec![ns(), keys, texts],
                    touches: None,
                });
            }
        }
        let in_range = |range: &Range| {
            let to: Option<Vec<u8>> = range.to.as_ref().map(|to| to.as_bytes().to_vec());
            let count = i64::try_from(range.count).unwrap_or(i64::MAX);
            vec![
                ns(),
                (bytes(&range.from), Type::BYTEA),
                (Box::new(to) as Param, Type::BYTEA),
                (Box::new(count) as Param, Type::INT8),
            ]
        };
        for range in &wanted.names {
            let mut with_texts = in_range(range);
            with_texts.push((Box::new(range.texts), Type::BOOL));
            all.push(Statement {
                sql: self.rows.clone(),
                params: in_range(range),
                touches: None,
            });
            all.push(Statement {
                sql: self.bodies.clone(),
                params: with_texts,
                touches: None,
            });
        }
        if !docs.is_empty() {
            all.push(Statement {
                sql: self.docs.clone(),
                params: of_names(docs),
                touches: None,
            });
        }
        for range in &wanted.doc_names {
            let mut params = in_range(range);
            params.push((Box::new(range.texts), Type::BOOL));
            all.push(Statement {
                sql: self.doc_names.clone(),
                params,
                touches: None,
            });
        }
        all
    }

    /// Puts the answers to [`Sql::read`] into the sheet, and where its leases lie among `addresses`. What the server says of itself.
    pub(super) fn fill(
        (sheet, addresses): (&mut Sheet, &mut RowAddresses),
        wanted: &Wanted,
        answers: &[Vec<Row>],
    ) -> Result<Head, Unreadable> {
        let mut answers = answers.iter();
        let mut next = || {
            answers
                .next()
                .ok_or_else(|| Unreadable("no answer".to_owned()))
        };
        // All that it tells of the server comes with its first row.
        let locks = next()?;
        let mut first = None;
        for row in locks {
            if get::<i64>(row, 8)? == 1 {
                first = Some(head(row)?);
            }
        }
        let head = first.ok_or_else(|| Unreadable("no row".to_owned()))?;
        if wanted.only_docs() {
            for row in locks {
                if let Some(name) = name(row, NAME)? {
                    sheet.add_doc(&name, doc(row, NAME, true)?);
                }
            }
            return Ok(head);
        }
        match wanted.only_rows() {
            true if wanted.locks.is_empty() => {}
            true => {
                for row in next()? {
                    if let Some(key) = name(row, 0)? {
                        sheet.add_row(&key, lease_if_any(row, 1)?);
                        addresses.extend(
                            get::<Option<RowAddress>>(row, 12)?.map(|address| (key, address)),
                        );
                    }
                }
            }
            false => {
                for row in locks {
                    let Some(key) = name(row, NAME)? else {
                        continue;
                    };
                    let lease = lease_if_any(row, 10)?;
                    let body = match get::<Option<i64>>(row, 22)? {
                        Some(_) => {
                            let with_text = wanted.locks.get(&key) == Some(&Part::Text);
                            Some(body(row, 22, with_text)?)
                        }
                        None => None,
                    };
                    if wanted.queues {
                        let waiters: Option<&[u8]> = get(row, 26)?;
                        let waiters = waiters.map(String::from_utf8_lossy);
                        let queue = queue_of(&waiters.unwrap_or_default());
                        sheet.add_lock(&key, lease, body, queue);
                    } else {
                        sheet.add_row(&key, lease);
                        sheet.add_body(&key, body);
                    }
                    addresses
                        .extend(get::<Option<RowAddress>>(row, 21)?.map(|address| (key, address)));
                }
            }
        }
        for range in &wanted.names {
            let (rows, bodies) = (next()?, next()?);
            for row in rows {
                if let Some(key) = name(row, 0)? {
                    sheet.add_row(&key, Some(lease(row, 1)?));
                    addresses.insert(key, get(row, 12)?);
                }
            }
            for row in bodies {
                if let Some(key) = name(row, 0)? {
                    sheet.add_body(&key, Some(body(row, 1, range.texts)?));
                }
            }
            sheet.knows_rows(range, rows.len(), last(rows)?.as_deref());
            sheet.knows_bodies(range, bodies.len(), last(bodies)?.as_deref());
        }
        if !wanted.docs.is_empty() {
            for name in &wanted.docs {
                sheet.add_doc(name, None);
            }
            for row in next()? {
                if let Some(name) = name(row, 0)? {
                    sheet.add_doc(&name, doc(row, 0, true)?);
                }
            }
        }
        for range in &wanted.doc_names {
            let rows = next()?;
            for row in rows {
                if let Some(name) = name(row, 0)? {
                    sheet.add_doc(&name, doc(row, 0, false)?);
                }
            }
            sheet.knows_docs(range, rows.len(), last(rows)?.as_deref());
        }
        Ok(head)
    }

    /// The statements that write what has changed.
    pub(super) fn write(
        &self,
        namespace: &str,
        (changes, addresses): (&Changes<'_>, &RowAddresses),
        gate: Option<String>,
    ) -> Vec<Statement> {
        let mut all = Vec::new();
        let Changes {
            forgotten,
            rows,
            replaced_rows,
            bodies,
            queues,
            docs,
        } = changes;
        if forgotten.is_some() || gate.is_some() {
            let sql = format!(
                "UPDATE {}.node SET forgotten = coalesce($2, forgotten), gate = coalesce($3, gate) WHERE namespace = $1",
                self.schema
            );
            let forgotten: Option<i64> = forgotten.map(|c| int(c.0));
            let params: Vec<(Param, Type)> = vec![
                (text(namespace), Type::TEXT),
                (Box::new(forgotten), Type::INT8),
                (Box::new(gate), Type::TEXT),
            ];
            all.push(Statement {
                sql,
                params,
                touches: None,
            });
        }
        let mut into = |table: &str, columns: RowsToWrite| {
            all.extend(columns.write(&self.schema, table, namespace));
        };
        into("lease", written::leases(rows));
        into("lease", written::replaced(replaced_rows, addresses));
        let new = |b: &SheetBody| matches!(b.text, Text::New(_));
        let (texts, headers) = written::parts(bodies, new);
        into("body", written::bodies(&texts, true));
        into("body", written::bodies(&headers, false));
        into("queue", written::queues(queues));
        let new = |d: &SheetDoc| matches!(d.text, Text::New(_));
        let (texts, headers) = written::parts(docs, new);
        into("document", written::documents(&texts, true));
        into("document", written::documents(&headers, false));
        all
    }

    /// Removes some of what has ended and shows nowhere.
    pub(super) fn clean(&self, namespace: &str, now: NodeMs) -> Vec<Statement> {
        let params = || -> Vec<(Param, Type)> {
            vec![
                (text(namespace), Type::TEXT),
                (Box::new(int(now.0)), Type::INT8),
                (Box::new(CLEANED), Type::INT8),
            ]
        };
        let from = |table: &str, name: &str| {
            let t = format!("{}.{table}", self.schema);
            // Beside writers: what one has in hand is left.
            let sql = format!(
                "DELETE FROM {t} WHERE namespace = $1 AND {name} IN \
                     (SELECT {name} FROM {t} WHERE namespace = $1 AND until <= $2 LIMIT $3 FOR UPDATE SKIP LOCKED)"
            );
            Statement {
                sql,
                params: params(),
                touches: None,
            }
        };
        vec![from("document", "name"), from("queue", "key")]
    }
}

/// The columns of a lease, in this order, and where it lies.
const LEASE: &str = "l.state, CASE WHEN octet_length(l.owner) <= 4096 THEN l.owner END AS owner, l.granted, \
    CASE WHEN octet_length(l.inc) <= 4096 THEN l.inc END AS inc, l.until, l.seq, l.ttl, l.counter, l.token, l.rev, l.waits, l.ctid AS place";

/// The same once they were looked at.
const PLAIN: &str = "l.state, l.owner, l.granted, l.inc, l.until, l.seq, l.ttl, l.counter, l.token, l.rev, l.waits, l.place";

// === what was read ===

/// Where the name of a row stands, behind what the server says of itself.
const NAME: usize = 9;

fn get<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Result<T, Unreadable> {
    row.try_get(at)
        .map_err(|error| Unreadable(error.to_string()))
}

fn head(row: &Row) -> Result<Head, Unreadable> {
    let layout: Option<i32> = get(row, 4)?;
    let node = match layout {
        Some(layout) => Some(NodeHead {
            layout,
            // One that makes no sense is out of range, and told as such.
            forgotten: Token(u64::try_from(get::<i64>(row, 5)?).unwrap_or(LIMIT)),
            gate: get(row, 7)?,
            made: get(row, 6)?,
        }),
        None => None,
    };
    Ok(Head {
        now: get(row, 0)?,
        life: get(row, 1)?,
        process: get(row, 2)?,
        flushed: u64::try_from(get::<i64>(row, 3)?).unwrap_or(0),
        node,
    })
}

/// A name of ours; what is no text is none.
fn name(row: &Row, at: usize) -> Result<Option<String>, Unreadable> {
    let bytes: Option<&[u8]> = get(row, at)?;
    Ok(bytes.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok()))
}

/// The last name of a page, as it is in the order of all.
fn last(rows: &[Row]) -> Result<Option<String>, Unreadable> {
    // Names that are none of ours have no place in that order.
    for row in rows.iter().rev() {
        if let Some(name) = name(row, 0)? {
            return Ok(Some(name));
        }
    }
    match rows.is_empty() {
        true => Ok(None),
        false => Err(Unreadable("a page of names that are no text".to_owned())),
    }
}

fn number(row: &Row, at: usize, most: u64) -> Result<Option<u64>, Unreadable> {
    let number: Option<i64> = get(row, at)?;
    let number = number.and_then(|number| u64::try_from(number).ok());
    Ok(number.filter(|number| *number <= most))
}

/// `None` where a join has found no row.
fn lease_if_any(row: &Row, at: usize) -> Result<Option<NodeRow>, Unreadable> {
    match get::<Option<&str>>(row, at)? {
        Some(_) => lease(row, at).map(Some),
        None => Ok(None),
    }
}

fn lease(row: &Row, at: usize) -> Result<NodeRow, Unreadable> {
    let number = |column| number(row, at + column, u64::MAX);
    let columns = Columns {
        state: get(row, at)?,
        owner: name(row, at + 1)?,
        granted: number(2)?,
        inc: get(row, at + 3)?,
        until: number(4)?,
        seq: number(5)?,
        ttl: number(6)?,
        counter: number(7)?,
        token: number(8)?,
        rev: number(9)?,
        waits: number(10)?,
    };
    Ok(columns.row())
}

fn body(row: &Row, at: usize, with_text: bool) -> Result<SheetBody, Unreadable> {
    let (token, rev) = (number(row, at, LIMIT - 1)?, number(row, at + 1, LIMIT - 1)?);
    // An end that makes no sense is none: it is kept until a sweep gives it another.
    let until = number(row, at + 2, u64::MAX)?.map(NodeMs);
    let text = match with_text {
        true => name(row, at + 3)?.map(Text::Read),
        false => Some(Text::Unread),
    };
    let damaged = token.is_none() || rev.is_none() || text.is_none();
    let version = match damaged {
        true => Version::default(),
        false => Version {
            token: Token(token.unwrap_or_default()),
            rev: rev.unwrap_or_default(),
        },
    };
    Ok(SheetBody {
        version,
        text: text.filter(|_| !damaged).unwrap_or(Text::Unread),
        until,
        damaged,
    })
}

/// A document whose name stands at `at`; `None` where there is none, or something else has changed it: it counts as absent.
fn doc(row: &Row, at: usize, all: bool) -> Result<Option<SheetDoc>, Unreadable> {
    let (rev, ttl, until) = (
        number(row, at + 1, LIMIT - 1)?,
        number(row, at + 2, u64::MAX)?,
        number(row, at + 3, u64::MAX)?,
    );
    let bytes: Option<&[u8]> = get(row, at + 4)?;
    let text = match bytes {
        Some(bytes) => String::from_utf8(bytes.to_vec()).ok().map(Text::Read),
        // Too large for a page, or for anybody.
        None if all => None,
        None => Some(Text::Unread),
    };
    let (Some(rev), Some(ttl), Some(until), Some(text)) = (rev, ttl, until, text) else {
        return Ok(None);
    };
    Ok(Some(SheetDoc {
        rev,
        ttl: Duration::from_millis(ttl),
        until: NodeMs(until),
        text,
    }))
}
