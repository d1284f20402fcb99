//! A node's rows in the tables of the file, within one transaction.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::node::{
    Announcement, NodeMs, Record, Token, Version,
    rules::{Body, Claim, DocName, Entry, Row as NodeRow, Rows, State, Stored, Waiter, ceil_ms},
};

/// Documents, and releases, that are removed at a time.
const CLEANED: u32 = 1_000;

/// The rows as one transaction sees them.
pub(super) struct SqlRows<'c> {
    conn: &'c Connection,
    now: NodeMs,
}

// === impl SqlRows ===

impl<'c> SqlRows<'c> {
    pub(super) fn new(conn: &'c Connection, now: NodeMs) -> Self {
        Self { conn, now }
    }

    /// The boot in which the file's times count, and how often the file was changed.
    pub(super) fn boot_and_changes(&self) -> rusqlite::Result<(String, u64)> {
        self.conn
            .prepare_cached("SELECT boot, changes FROM wk_node")?
            .query_row([], |row| Ok((row.get(0)?, number(row, 1)?)))
    }

    /// The file was changed now.
    pub(super) fn changed(&self, changes: u64) -> rusqlite::Result<()> {
        let now = int(self.now.0);
        self.run(
            "UPDATE wk_node SET seen = ?1, changes = ?2",
            (now, int(changes)),
        )
    }

    /// Removes documents and places in queues that have ended, and releases from before `old`: some of them. Whether there
    /// may be more.
    pub(super) fn clean(&mut self, old: NodeMs) -> rusqlite::Result<bool> {
        let now = int(self.now.0);
        self.run("DELETE FROM wk_line WHERE until <= ?1", [now])?;
        let docs = "DELETE FROM wk_doc
            WHERE name IN (SELECT name FROM wk_doc WHERE until <= ?1 LIMIT ?2)";
        let docs = self.conn.prepare_cached(docs)?.execute((now, CLEANED))?;
        // Their numbers are in the order of their times: no more than those few are looked at.
        let releases = "DELETE FROM wk_release
            WHERE id < (SELECT min(id) FROM wk_release) + ?2 AND at < ?1";
        let mut releases = self.conn.prepare_cached(releases)?;
        let releases = releases.execute((int(old.0), CLEANED))?;
        let most = usize::try_from(CLEANED).unwrap_or(usize::MAX);
        Ok(docs.max(releases) >= most)
    }

    fn run(&self, sql: &str, params: impl Params) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute(params).map(|_| ())
    }

    fn keep(&self, key: &str, until: NodeMs) -> rusqlite::Result<()> {
        let kept = until.0.saturating_sub(self.now.0);
        self.run(
            "INSERT OR REPLACE INTO wk_kept VALUES (?1, ?2, ?3)",
            params![key, int(until.0), int(kept)],
        )
    }

    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.conn
            .prepare_cached(sql)?
            .query_row(params, read)
            .optional()
    }
}

impl Rows for SqlRows<'_> {
    type Error = rusqlite::Error;

    fn forgotten(&mut self) -> rusqlite::Result<Token> {
        let mut select = self.conn.prepare_cached("SELECT forgotten FROM wk_node")?;
        select.query_row([], |row| Ok(Token(number(row, 0)?)))
    }

    fn set_forgotten(&mut self, counter: Token) -> rusqlite::Result<()> {
        self.run("UPDATE wk_node SET forgotten = ?1", [int(counter.0)])
    }

    fn row(&mut self, key: &str) -> rusqlite::Result<Option<NodeRow>> {
        let select =
            "SELECT state, owner, granted, inc, until, seq, ttl, counter, token, rev, waits
            FROM wk_lease WHERE key = ?1";
        self.one(select, [key], |row| {
            let owner = row.get(1)?;
            let grant = Token(number(row, 2)?);
            let inc = row.get(3)?;
            let until = NodeMs(number(row, 4)?);
            let state = match row.get::<_, String>(0)?.as_str() {
                "C" => {
                    return Ok(NodeRow::Claim(Claim {
                        owner,
                        grant,
                        inc,
                        until,
                    }));
                }
                "R" => State::Released,
                "B" => State::Broken,
                _ => State::Held,
            };
            Ok(NodeRow::Record(Entry {
                state,
                owner,
                seq: number(row, 5)?,
                ttl: Duration::from_millis(number(row, 6)?),
                grant,
                counter: Token(number(row, 7)?),
                inc,
                version: Version {
                    token: Token(number(row, 8)?),
                    rev: number(row, 9)?,
                },
                until,
                waits: NodeMs(number(row, 10)?),
            }))
        })
    }

    fn put_row(&mut self, key: &str, row: &NodeRow) -> rusqlite::Result<()> {
        let (letter, entry) = match row {
            NodeRow::Record(entry) => match entry.state {
                State::Held => ("H", entry.clone()),
                State::Released => ("R", entry.clone()),
                State::Broken => ("B", entry.clone()),
            },
            NodeRow::Claim(claim) => {
                let entry = Entry {
                    owner: claim.owner.clone(),
                    grant: claim.grant,
                    inc: claim.inc.clone(),
                    until: claim.until,
                    ..Entry::default()
                };
                ("C", entry)
            }
        };
        self.run(
            "INSERT OR REPLACE INTO wk_lease
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            params![
                key,
                letter,
                entry.owner,
                int(entry.grant.0),
                entry.inc,
                int(entry.until.0),
                int(entry.seq),
                int(ceil_ms(entry.ttl)),
                int(entry.counter.0),
                int(entry.version.token.0),
                int(entry.version.rev),
                int(entry.waits.0),
            ],
        )
    }

    fn drop_row(&mut self, key: &str) -> rusqlite::Result<()> {
        self.run("DELETE FROM wk_lease WHERE key = ?1", [key])
    }

    fn body(&mut self, key: &str) -> rusqlite::Result<Option<Body>> {
        let select = "SELECT token, rev, body, until FROM wk_body LEFT JOIN wk_kept USING (key)
            WHERE wk_body.key = ?1";
        self.one(select, [key], |row| {
            let version = Version {
                token: Token(number(row, 0)?),
                rev: number(row, 1)?,
            };
            let body = row.get(2)?;
            Ok(Body {
                record: Record { version, body },
                until: moment(row, 3)?,
            })
        })
    }

    fn put_body(&mut self, key: &str, body: &Body) -> rusqlite::Result<()> {
        let Record {
            version,
            body: text,
        } = &body.record;
        self.run(
            "INSERT OR REPLACE INTO wk_body VALUES (?1, ?2, ?3, ?4)",
            params![key, int(version.token.0), int(version.rev), text],
        )?;
        match body.until {
            None => self.run("DELETE FROM wk_kept WHERE key = ?1", [key]),
            Some(until) => self.keep(key, until),
        }
    }

    fn keep_body(&mut self, key: &str, now: NodeMs, until: Option<NodeMs>) -> rusqlite::Result<()> {
        let ended = "SELECT 1 FROM wk_kept WHERE key = ?1 AND until <= ?2";
        let stands = "SELECT 1 FROM wk_body WHERE key = ?1";
        let has_ended = self.one(ended, params![key, int(now.0)], |_| Ok(()))?;
        if has_ended.is_some() || self.one(stands, [key], |_| Ok(()))?.is_none() {
            return Ok(());
        }
        match until {
            None => self.run("DELETE FROM wk_kept WHERE key = ?1", [key]),
            Some(until) => self.keep(key, until),
        }
    }

    fn drop_body(&mut self, key: &str) -> rusqlite::Result<()> {
        self.run("DELETE FROM wk_body WHERE key = ?1", [key])?;
        self.run("DELETE FROM wk_kept WHERE key = ?1", [key])
    }

    fn names(&mut self, prefix: &str, from: &str, count: usize) -> rusqlite::Result<Vec<String>> {
        let select = "SELECT key FROM wk_lease WHERE key >= ?1
            UNION SELECT key FROM wk_body WHERE key >= ?1 ORDER BY key LIMIT ?2";
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let mut select = self.conn.prepare_cached(select)?;
        let names = select.query_map(params![from.max(prefix), count], |row| row.get(0))?;
        let names: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
        let starts = |name: &String| name.starts_with(prefix);
        Ok(names.into_iter().take_while(starts).collect())
    }

    fn doc(&mut self, name: &str) -> rusqlite::Result<Option<Stored>> {
        let select = "SELECT name, rev, ttl, until, body FROM wk_doc WHERE name = ?1";
        self.one(select, [name], stored)
    }

    fn put_doc(&mut self, name: &str, row: &Stored) -> rusqlite::Result<()> {
        self.run(
            "INSERT OR REPLACE INTO wk_doc VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                name,
                int(row.rev),
                int(ceil_ms(row.ttl)),
                int(row.until.0),
                row.body
            ],
        )
    }

    fn drop_doc(&mut self, name: &str) -> rusqlite::Result<()> {
        self.run("DELETE FROM wk_doc WHERE name = ?1", [name])
    }

    fn doc_names(
        &mut self,
        prefix: &str,
        from: &str,
        count: usize,
    ) -> rusqlite::Result<Vec<DocName>> {
        let select = "SELECT name, rev, until FROM wk_doc WHERE name >= ?1 ORDER BY name LIMIT ?2";
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let mut select = self.conn.prepare_cached(select)?;
        let names = select.query_map(params![from.max(prefix), count], |row| {
            Ok(DocName {
                name: row.get(0)?,
                rev: number(row, 1)?,
                until: NodeMs(number(row, 2)?),
            })
        })?;
        let names: Vec<DocName> = names.collect::<rusqlite::Result<_>>()?;
        let starts = |doc: &DocName| doc.name.starts_with(prefix);
        Ok(names.into_iter().take_while(starts).collect())
    }

    fn waiters(&mut self, key: &str) -> rusqlite::Result<Vec<Waiter>> {
        let select = "SELECT waiters FROM wk_line WHERE key = ?1";
        let queue: Option<String> = self.one(select, [key], |row| row.get(0))?;
        let queue = queue.unwrap_or_default();
        Ok(queue.lines().filter_map(waiter).collect())
    }

    fn put_waiters(&mut self, key: &str, queue: &[Waiter]) -> rusqlite::Result<()> {
        let Some(until) = queue.iter().map(|waiter| waiter.until).max() else {
            return self.run("DELETE FROM wk_line WHERE key = ?1", [key]);
        };
        let text = |waiter: &Waiter| format!("{} {}\n", waiter.until.0, waiter.ticket);
        let waiters: String = queue.iter().map(text).collect();
        self.run(
            "INSERT OR REPLACE INTO wk_line VALUES (?1, ?2, ?3)",
            params![key, waiters, int(until.0)],
        )
    }

    fn announce(&mut self, news: Announcement) -> rusqlite::Result<()> {
        self.run(
            "INSERT INTO wk_release (key, owner, at, next) VALUES (?1, ?2, ?3, ?4)",
            params![news.key, news.owner, int(self.now.0), news.next],
        )
    }
}

/// The text of a queue is ours: whatever does not read so is left out.
fn waiter(line: &str) -> Option<Waiter> {
    let (until, ticket) = line.split_once(' ')?;
    Some(Waiter {
        ticket: ticket.to_owned(),
        until: NodeMs(until.parse().ok()?),
    })
}

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok(Stored {
        rev: number(row, 1)?,
        ttl: Duration::from_millis(number(row, 2)?),
        until: NodeMs(number(row, 3)?),
        body: row.get(4)?,
    })
}

/// The rules keep every number below 2^63.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What is below nothing was written by something else: it is out of range, not small.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(u64::MAX))
}

fn moment(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<NodeMs>> {
    let until: Option<i64> = row.get(column)?;
    Ok(until.map(|until| NodeMs(u64::try_from(until).unwrap_or(0))))
}
