//! The addresses of Redis nodes: what they must look like, and whether two are the same.

use super::RedisSettings;
use crate::{finding::Findings, human::Span, secret::redact};

/// Adds what is wrong with `[locks.redis]`. Keys are relative to `[locks]`.
pub(super) fn check(settings: &RedisSettings, found: &mut Findings) {
    let count = settings.nodes.len();
    if count == 0 {
        found.error(
            &["redis.nodes", "backend"],
            "no node is named",
            "write nodes = [\"redis://127.0.0.1:6379\"], or use backend = \"embedded\"",
        );
    } else if count.is_multiple_of(2) {
        found.warn(
            &["redis.nodes"],
            format!(
                "{count} nodes survive the loss of {}, as {} would",
                count.div_ceil(2) - 1,
                count - 1
            ),
            "use an odd number",
        );
    }
    let mut seen: Vec<(String, usize)> = Vec::new();
    for (i, url) in settings.nodes.iter().enumerate() {
        let key = format!("redis.nodes[{i}]");
        let shown = redact(url.expose());
        match server(url.expose()) {
            Err(why) => found.error(
                &[&key],
                format!("\"{shown}\" is no address of a Redis node: {why}"),
                "write redis://[user:password@]host[:port][/db], rediss://…, redis+unix:///path, sentinel://host,host/master or \
                 cluster://host,host",
            ),
            Ok(server) => match seen.iter().find(|(other, _)| *other == server) {
                Some((_, first)) => found.error(
                    &[&key],
                    format!(
                        "\"{shown}\" is the same server as nodes[{first}], which would vote twice"
                    ),
                    "name each server once; databases of one server fail together",
                ),
                None => seen.push((server, i)),
            },
        }
    }
    if settings.node_timeout.is_zero() {
        let message = format!("no node answers within {}", Span(settings.node_timeout));
        found.error(&["redis.node_timeout"], message, "50ms is the default");
    }
}

/// Whether another server takes the place of a node of these.
#[cfg(feature = "redis")]
pub(super) fn fails_over(settings: &RedisSettings) -> bool {
    let mut urls = settings.nodes.iter();
    urls.any(|url| crate::node::redis::failover::fails_over(url.expose()))
}

/// Without it the backend is refused already.
#[cfg(not(feature = "redis"))]
pub(super) fn fails_over(_: &RedisSettings) -> bool {
    false
}

/// Sentinels, or a cluster.
#[cfg(feature = "redis")]
fn failover(url: &str) -> Result<String, &'static str> {
    crate::node::redis::failover::Failover::parse(url).map(|read| read.name())
}

#[cfg(not(feature = "redis"))]
fn failover(_: &str) -> Result<String, &'static str> {
    Err("Redis is not part of this build")
}

/// The server behind a URL, in one spelling per server.
fn server(url: &str) -> Result<String, &'static str> {
    let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
    match scheme {
        "redis+unix" | "unix" => {
            let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
            if !has_effect(query, &["db", "user", "pass", "protocol"]) {
                return Err("behind the ? of a socket only db=, user= and pass= have an effect");
            }
            // A host before the path would be a relative path in disguise.
            path.starts_with('/')
                .then(|| format!("unix:{path}"))
                .ok_or("the path of the socket must begin with /")
        }
        "redis" => tcp(rest),
        "rediss" if cfg!(not(feature = "redis-tls")) => {
            Err("TLS is not part of this build, which wants the feature \"redis-tls\"")
        }
        "rediss" if rest.contains('#') => {
            Err("nothing may stand after a #: certificates are always verified")
        }
        "rediss" => tcp(rest),
        "sentinel" | "sentinels" | "cluster" | "clusters" => failover(url),
        _ => Err("the scheme is neither redis, rediss, redis+unix, sentinel nor cluster"),
    }
}

/// Whether the client goes by all of it. It takes other words as well, and leaves them aside: the database would be another than was meant.
fn has_effect(query: &str, known: &[&str]) -> bool {
    let mut pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.all(|pair| known.contains(&pair.split('=').next().unwrap_or_default()))
}

fn tcp(rest: &str) -> Result<String, &'static str> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !has_effect(query, &["protocol"]) {
        return Err(
            "what stands behind the ? would have no effect: another database is written as redis://HOST:PORT/3, user and password \
             stand before an @, and a ? in a password is written as %3F",
        );
    }
    let host_on = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    if rest
        .split_once('@')
        .is_some_and(|(user, _)| user.contains('/'))
    {
        return Err("a / in the password must be written as %2F");
    }
    if rest.matches('@').count() > 1 {
        return Err("an @ in the password must be written as %40");
    }
    let (address, db) = host_on.split_once('/').unwrap_or((host_on, ""));
    if !db.is_empty() && db.parse::<u32>().is_err() {
        return Err("the database is not a number");
    }
    // In [::1]:6379 the colons within the brackets separate nothing.
    let port_at = address.rfind(']').unwrap_or(0);
    let (host, port) = match address[port_at..].rfind(':') {
        Some(colon) => (&address[..port_at + colon], &address[port_at + colon + 1..]),
        None => (address, "6379"),
    };
    if host.is_empty() {
        return Err("it has no host");
    }
    if host.contains(char::is_whitespace) {
        return Err("a space stands in the host");
    }
    let port = port
        .parse::<u16>()
        .ok()
        .filter(|&port| port != 0)
        .ok_or("the port is not a number from 1 to 65535")?;
    let host = match host.to_lowercase().as_str() {
        "localhost" | "[::1]" => "127.0.0.1".to_owned(),
        other => other.to_owned(),
    };
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_has_one_spelling() {
        for url in [
            "redis://localhost",
            "redis://127.0.0.1:6379/3",
            "redis://me:pw@LOCALHOST:6379?protocol=3",
        ] {
            assert_eq!(server(url).unwrap(), "127.0.0.1:6379", "{url}");
        }
        assert_eq!(server("redis://[fe80::2]:7000").unwrap(), "[fe80::2]:7000");
        assert_eq!(
            server("redis+unix:///run/n.sock?db=1").unwrap(),
            "unix:/run/n.sock"
        );
    }

    #[test]
    fn what_is_no_address_is_told_why() {
        for (url, why) in [
            ("localhost:6379", "no scheme"),
            ("http://a", "neither"),
            #[cfg(not(feature = "redis-tls"))]
            ("rediss://a", "redis-tls"),
            #[cfg(feature = "redis-tls")]
            ("rediss://a#insecure", "always verified"),
            ("redis://", "no host"),
            ("redis://a:0", "port"),
            ("redis://a:b", "port"),
            ("redis://a/x", "database"),
            ("redis://:p/w@a", "%2F"),
            ("redis://:p@w@a", "%40"),
            ("redis://a?db=3", "HOST:PORT/3"),
            ("redis://me@a/3?protocol=3&password=x", "HOST:PORT/3"),
            ("redis+unix://run/n.sock", "begin with /"),
            ("redis+unix:///run/n.sock?database=1", "db="),
        ] {
            assert!(server(url).unwrap_err().contains(why), "{url}");
        }
    }
}
