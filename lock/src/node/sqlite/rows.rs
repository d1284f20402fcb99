//! A node's rows in the tables of the file, within one transaction.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Params, Row, ffi, params, types::ValueRef};

use crate::node::{
    Announcement, NodeMs, Record, Token, Version,
    columns::{Columns, columns_of, int, queue_of, queue_text, ttl_ms},
    rules::{Body, DocName, LIMIT, LONGEST_TTL_MS, Row as NodeRow, Rows, Stored, Waiter, ceil_ms},
};

/// Documents, and releases, that are removed at a time.
const CLEANED: u32 = 1_000;

/// No body of ours is longer.
const LARGEST_BODY: i64 = 64 * 1024 * 1024;

/// The rows as one transaction sees them.
pub(super) struct SqlRows<'c> {
    conn: &'c Connection,
    now: NodeMs,
    /// What was found that is none of ours, and counts as absent.
    pub(super) misfits: Vec<String>,
}

// === impl SqlRows ===

impl<'c> SqlRows<'c> {
    pub(super) fn new(conn: &'c Connection, now: NodeMs) -> Self {
        let misfits = Vec::new();
        Self { conn, now, misfits }
    }

    /// The boot in which the file's times count, and how often the file was changed.
    pub(super) fn boot_and_changes(&self) -> rusqlite::Result<(String, u64)> {
        self.conn
            .prepare_cached("SELECT boot, changes FROM wk_node")?
            .query_row([], |row| Ok((boot_of(row, 0)?, number(row, 1)?)))
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
        // Their numbers are in the order of their times: no more than those few are looked at. One of another time would be in
        // the way of all after it.
        let releases = "DELETE FROM wk_release
            WHERE id < (SELECT min(id) FROM wk_release) + ?2 AND NOT coalesce(at BETWEEN ?1 AND ?3, 0)";
        let mut releases = self.conn.prepare_cached(releases)?;
        let releases = releases.execute((int(old.0), CLEANED, now))?;
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

    fn longest_granted(&mut self) -> rusqlite::Result<Option<Duration>> {
        noted(self.conn)
    }

    fn forgotten(&mut self) -> rusqlite::Result<Token> {
        let mut select = self.conn.prepare_cached("SELECT forgotten FROM wk_node")?;
        select.query_row([], |row| Ok(Token(number(row, 0)?)))
    }

    fn set_forgotten(&mut self, counter: Token) -> rusqlite::Result<()> {
        self.run("UPDATE wk_node SET forgotten = ?1", [int(counter.0)])
    }

    fn row(&mut self, key: &str) -> rusqlite::Result<Option<NodeRow>> {
        // What is far too long is not even read.
        let select = "SELECT state, CASE WHEN octet_length(owner) <= 4096 THEN owner END, granted,
            CASE WHEN octet_length(inc) <= 4096 THEN inc END, until, seq, ttl, counter, token, rev, waits
            FROM wk_lease WHERE key = ?1";
        self.one(select, [key], |row| {
            let number = |column| readable(row, column, u64::MAX);
            let columns = Columns {
                state: text(row, 0)?,
                owner: text(row, 1)?,
                granted: number(2)?,
                inc: text(row, 3)?,
                until: number(4)?,
                seq: number(5)?,
                ttl: number(6)?,
                counter: number(7)?,
                token: number(8)?,
                rev: number(9)?,
                waits: number(10)?,
            };
            Ok(columns.row())
        })
    }

    fn put_row(&mut self, key: &str, row: &NodeRow) -> rusqlite::Result<()> {
        let Some((letter, entry)) = columns_of(row) else {
            return Ok(());
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
                int(ttl_ms(entry.ttl)),
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
        let select = "SELECT token, rev, CASE WHEN octet_length(body) <= ?2 THEN body END, until
            FROM wk_body LEFT JOIN wk_kept USING (key) WHERE wk_body.key = ?1";
        self.one(select, params![key, LARGEST_BODY], |row| {
            let token = readable(row, 0, LIMIT - 1)?;
            let rev = readable(row, 1, LIMIT - 1)?;
            // An end that makes no sense is none: it is kept until a sweep gives it another.
            let until = readable(row, 3, u64::MAX)?.map(NodeMs);
            let record = match (token, rev, text(row, 2)?) {
                (Some(token), Some(rev), Some(body)) => {
                    let token = Token(token);
                    let version = Version { token, rev };
                    Some(Record { version, body })
                }
                _ => None,
            };
            Ok(Body {
                damaged: record.is_none(),
                record: record.unwrap_or_default(),
                until,
            })
        })
    }

    fn put_body(&mut self, key: &str, body: &Body) -> rusqlite::Result<()> {
        let Record {
            version,
            body: text,
        } = &body.record;
        fits(text)?;
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
        let ended = "SELECT 1 FROM wk_kept WHERE key = ?1 AND until BETWEEN 0 AND ?2";
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
            UNION SELECT key FROM wk_body WHERE key >= ?1 ORDER BY key";
        let mut select = self.conn.prepare_cached(select)?;
        let mut found = select.query([from.max(prefix)])?;
        let mut names = Vec::new();
        while names.len() < count
            && let Some(row) = found.next()?
        {
            match text(row, 0)? {
                Some(name) if name.starts_with(prefix) => names.push(name),
                Some(_) => break,
                None => self.misfits.push(shown(row, "a lock")?),
            }
        }
        Ok(names)
    }

    fn doc(&mut self, name: &str) -> rusqlite::Result<Option<Stored>> {
        let select =
            "SELECT name, rev, ttl, until, CASE WHEN octet_length(body) <= ?2 THEN body END
            FROM wk_doc WHERE name = ?1";
        let found = self.one(select, params![name, LARGEST_BODY], stored)?;
        if let Some(None) = found {
            self.misfits.push(format!("the document `{name}`"));
        }
        Ok(found.flatten())
    }

    fn put_doc(&mut self, name: &str, row: &Stored) -> rusqlite::Result<()> {
        fits(&row.body)?;
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
        let select = "SELECT name, rev, until FROM wk_doc WHERE name >= ?1 ORDER BY name";
        let mut select = self.conn.prepare_cached(select)?;
        let mut found = select.query([from.max(prefix)])?;
        let mut names = Vec::new();
        while names.len() < count
            && let Some(row) = found.next()?
        {
            let (rev, until) = (readable(row, 1, LIMIT - 1)?, readable(row, 2, u64::MAX)?);
            match (text(row, 0)?, rev, until.map(NodeMs)) {
                (Some(name), ..) if !name.starts_with(prefix) => break,
                (Some(name), Some(rev), Some(until)) => names.push(DocName { name, rev, until }),
                _ => self.misfits.push(shown(row, "the document")?),
            }
        }
        Ok(names)
    }

    fn waiters(&mut self, key: &str) -> rusqlite::Result<Vec<Waiter>> {
        let select = "SELECT CASE WHEN octet_length(waiters) <= 1048576 THEN waiters END
            FROM wk_line WHERE key = ?1";
        let queue = self.one(select, [key], |row| text(row, 0))?;
        let queue = queue.flatten().unwrap_or_default();
        Ok(queue_of(&queue))
    }

    fn put_waiters(&mut self, key: &str, queue: &[Waiter]) -> rusqlite::Result<()> {
        let Some(until) = queue.iter().map(|waiter| waiter.until).max() else {
            return self.run("DELETE FROM wk_line WHERE key = ?1", [key]);
        };
        let waiters = queue_text(queue);
        self.run(
            "INSERT OR REPLACE INTO wk_line VALUES (?1, ?2, ?3)",
            params![key, waiters, int(until.0)],
        )
    }

    fn announce(&mut self, news: Announcement) -> rusqlite::Result<()> {
        // Where their numbers are at an end nothing is announced: that only saves waiting.
        self.run(
            "INSERT INTO wk_release (key, owner, at, next) SELECT ?1, ?2, ?3, ?4
             WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'wk_release' AND seq > 1 << 62)",
            params![news.key, news.owner, int(self.now.0), news.next],
        )
    }
}

/// A release as it was announced.
pub(super) fn release(row: &Row<'_>) -> Option<Announcement> {
    let text = |column| text(row, column).ok()?;
    Some(Announcement {
        key: text(1)?,
        owner: text(2)?,
        next: text(3),
    })
}

fn stored(row: &Row<'_>) -> rusqlite::Result<Option<Stored>> {
    let number = |column, most| readable(row, column, most);
    let (Some(rev), Some(ttl), Some(until), Some(body)) = (
        number(1, LIMIT - 1)?,
        number(2, u64::MAX)?,
        number(3, u64::MAX)?,
        text(row, 4)?,
    ) else {
        return Ok(None);
    };
    Ok(Some(Stored {
        rev,
        ttl: Duration::from_millis(ttl),
        until: NodeMs(until),
        body,
    }))
}

/// A number of ours up to `most`. The tables keep their types, but something else may have changed them.
fn readable(row: &Row<'_>, column: usize, most: u64) -> rusqlite::Result<Option<u64>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => u64::try_from(number).ok().filter(|n| *n <= most),
        _ => None,
    })
}

/// What is none was written by something else: it is out of range, not small.
pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(readable(row, column, u64::MAX)?.unwrap_or(u64::MAX))
}

/// A text of ours.
fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(text) => std::str::from_utf8(text).ok().map(str::to_owned),
        _ => None,
    })
}

/// What is longer could not be read again.
fn fits(body: &str) -> rusqlite::Result<()> {
    if body.len() <= usize::try_from(LARGEST_BODY).unwrap_or(usize::MAX) {
        return Ok(());
    }
    let too_big = ffi::Error::new(ffi::SQLITE_TOOBIG);
    let said = format!("a body of {} bytes", body.len());
    Err(rusqlite::Error::SqliteFailure(too_big, Some(said)))
}

/// What stands in its place is another boot.
pub(super) fn boot_of(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(text(row, column)?.unwrap_or_default())
}

/// How a row is called whose name may be anything.
pub(super) fn shown(row: &Row<'_>, what: &str) -> rusqlite::Result<String> {
    let name = match row.get_ref(0)? {
        ValueRef::Text(name) | ValueRef::Blob(name) => {
            String::from_utf8_lossy(&name[..name.len().min(100)]).into_owned()
        }
        _ => "?".to_owned(),
    };
    Ok(format!("{what} `{name}`"))
}

/// The longest lease that was granted in the file's boot; `None` where that is not noted, or makes no sense.
pub(super) fn noted(conn: &Connection) -> rusqlite::Result<Option<Duration>> {
    let noted = "SELECT (SELECT value FROM wk_meta WHERE name = 'longest'),
        (SELECT value FROM wk_meta WHERE name = 'longest again')";
    conn.query_row(noted, [], |row| {
        let (one, again) = (row.get_ref(0)?, row.get_ref(1)?);
        let (ValueRef::Integer(one), ValueRef::Integer(again)) = (one, again) else {
            return Ok(None);
        };
        // Zeros say nothing: what is nulled on a disk is alike, too.
        let ms = u64::try_from(one)
            .ok()
            .filter(|ms| (1..=LONGEST_TTL_MS).contains(ms));
        let alike = again.checked_neg() == Some(one);
        Ok(ms.filter(|_| alike).map(Duration::from_millis))
    })
}
