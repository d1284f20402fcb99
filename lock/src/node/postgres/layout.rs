//! The tables in which locks lie, and what makes them.

/// Raised whenever the tables change in a way that an older program would not understand.
pub(super) const LAYOUT: i32 = 1;

/// Shows the rights on the tables of the schema `$1` that a user does not have, as `INSERT on queue`; of those that are there.
pub(super) const LACKING: &str = "SELECT string_agg(asked || ' on ' || relname, ', ' ORDER BY relname, asked) \
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS asked \
    WHERE nspname = $1 AND relname IN ('node', 'lease', 'body', 'queue', 'document') AND relkind IN ('r', 'p') \
        AND NOT has_table_privilege(c.oid, asked)";

/// What makes the schema with its tables: once for all namespaces, by any user with the right to. To be executed as a whole, also
/// where some of it stands.
#[doc(hidden)] // for the commands
#[must_use]
pub fn ddl(schema: &str) -> String {
    let s = quoted(schema);
    format!(
        "CREATE SCHEMA IF NOT EXISTS {s};
CREATE TABLE IF NOT EXISTS {s}.node (
    namespace text COLLATE \"C\" PRIMARY KEY,
    layout    int NOT NULL,
    forgotten bigint NOT NULL,
    gate      text NOT NULL
);
CREATE TABLE IF NOT EXISTS {s}.lease (
    namespace text COLLATE \"C\" NOT NULL,
    key       bytea NOT NULL,
    state     text NOT NULL,
    owner     bytea NOT NULL,
    granted   bigint NOT NULL,
    inc       text NOT NULL,
    until     bigint NOT NULL,
    seq       bigint NOT NULL,
    ttl       bigint NOT NULL,
    counter   bigint NOT NULL,
    token     bigint NOT NULL,
    rev       bigint NOT NULL,
    waits     bigint NOT NULL,
    PRIMARY KEY (namespace, key)
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS {s}.body (
    namespace text COLLATE \"C\" NOT NULL,
    key       bytea NOT NULL,
    token     bigint NOT NULL,
    rev       bigint NOT NULL,
    until     bigint,
    body      bytea NOT NULL,
    PRIMARY KEY (namespace, key)
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS {s}.queue (
    namespace text COLLATE \"C\" NOT NULL,
    key       bytea NOT NULL,
    until     bigint NOT NULL,
    waiters   bytea NOT NULL,
    PRIMARY KEY (namespace, key)
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS {s}.document (
    namespace text COLLATE \"C\" NOT NULL,
    name      bytea NOT NULL,
    rev       bigint NOT NULL,
    ttl       bigint NOT NULL,
    until     bigint NOT NULL,
    body      bytea NOT NULL,
    PRIMARY KEY (namespace, name)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS queue_until ON {s}.queue (namespace, until);
CREATE INDEX IF NOT EXISTS document_until ON {s}.document (namespace, until);
CREATE OR REPLACE VIEW {s}.locks AS
    SELECT namespace,
        encode(key, 'escape') AS lock,
        CASE state WHEN 'H' THEN 'held' WHEN 'R' THEN 'released' WHEN 'B' THEN 'broken' WHEN 'C' THEN 'claimed' ELSE '?' END
            AS state,
        encode(owner, 'escape') AS owner,
        CASE state WHEN 'C' THEN granted ELSE counter END AS token,
        CASE WHEN until BETWEEN 0 AND 253402300799999 THEN to_timestamp(until / 1000.0) END AS until
    FROM {s}.lease;
"
    )
}

/// What a namespace has before its first call.
pub(super) fn first_row(schema: &str) -> String {
    format!(
        "INSERT INTO {}.node VALUES ($1, {LAYOUT}, 0, '') ON CONFLICT (namespace) DO NOTHING",
        quoted(schema)
    )
}

/// A name of the database, whatever it holds.
#[doc(hidden)] // for the stock jobs
#[must_use]
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
