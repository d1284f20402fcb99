//! The table of notifications of the demonstration, in a file or on a server.

use std::path::PathBuf;

use crate::demo_table;

/// The table.
#[derive(Clone, Debug)]
pub(crate) enum Table {
    /// In a file of SQLite.
    Sqlite(PathBuf),
    /// In the database at this address.
    #[cfg(feature = "postgres")]
    Postgres(String),
}

#[cfg(feature = "postgres")]
const ON_A_SERVER: &str = "
CREATE TABLE notifications (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recipient  text NOT NULL,
    body       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    sent_at    timestamptz
);
CREATE INDEX notifications_unsent ON notifications (id) WHERE sent_at IS NULL;
";

// === impl Table ===

impl Table {
    /// Makes it, with so many rows that are not sent.
    pub(crate) async fn make(&self, rows: u32) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(path) => {
                let (path, rows) = (path.clone(), usize::try_from(rows)?);
                let make = move || demo_table::create_demo_table(&path, rows);
                Ok(tokio::task::spawn_blocking(make).await??)
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => {
                let rows = format!(
                    "{ON_A_SERVER} INSERT INTO notifications (recipient, body)
                     SELECT 'user' || i || '@example.org', 'Notification ' || i FROM generate_series(1, {rows}) AS i"
                );
                Ok(connect(url).await?.batch_execute(&rows).await?)
            }
        }
    }

    /// The address of its database.
    pub(crate) fn source(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite://{}", path.display()),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => url.clone(),
        }
    }

    /// How many rows are not sent.
    pub(crate) async fn unsent(&self) -> anyhow::Result<u64> {
        match self {
            Self::Sqlite(path) => {
                let path = path.clone();
                Ok(tokio::task::spawn_blocking(move || demo_table::unsent(&path)).await??)
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => {
                let count = "SELECT count(*) FROM notifications WHERE sent_at IS NULL";
                let row = connect(url).await?.query_one(count, &[]).await?;
                Ok(row.get::<_, i64>(0).unsigned_abs())
            }
        }
    }
}

#[cfg(feature = "postgres")]
async fn connect(url: &str) -> anyhow::Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    watchkeeper::spawn::Spawn::system().spawn(async { drop(connection.await) });
    Ok(client)
}
