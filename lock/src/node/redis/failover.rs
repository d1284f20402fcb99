//! Addresses of masters that others replace: `sentinel://H1,H2,H3/MASTER` and `cluster://H1,H2,…`.

use deadpool_redis::redis::{ConnectionInfo, IntoConnectionInfo};

/// Who says which server is in charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sentinels, of the master with this name.
    Sentinel(String),
    /// The nodes of a Redis Cluster, of the slot that our keys are in.
    Cluster,
}

/// What such an address says.
pub(crate) struct Failover {
    pub(super) kind: Kind,
    /// Who is asked: `HOST:PORT`, and how to reach it.
    pub(super) seeds: Vec<(String, ConnectionInfo)>,
    /// How the servers of data are reached, but for host and port.
    pub(super) servers: ConnectionInfo,
}

/// Whether a server behind this address is replaced by others.
pub(crate) fn fails_over(url: &str) -> bool {
    scheme(url).is_some()
}

/// Kind, whether it is asked with TLS, and the port that is meant where none is named.
fn scheme(url: &str) -> Option<(bool, bool, u16, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    match scheme {
        "sentinel" => Some((true, false, 26379, rest)),
        "sentinels" => Some((true, true, 26379, rest)),
        "cluster" => Some((false, false, 6379, rest)),
        "clusters" => Some((false, true, 6379, rest)),
        _ => None,
    }
}

// === impl Failover ===

impl Failover {
    /// Reads an address. Without credentials in what it says.
    ///
    /// # Errors
    /// What is wrong with it; never quotes it.
    pub(crate) fn parse(url: &str) -> Result<Self, &'static str> {
        let (is_sentinel, tls, default_port, rest) =
            scheme(url).ok_or("its scheme is neither sentinel nor cluster")?;
        if tls && cfg!(not(feature = "redis-tls")) {
            return Err("TLS is not part of this build, which wants the feature \"redis-tls\"");
        }
        if rest.contains('#') {
            return Err("nothing may stand after a #: certificates are always verified");
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (user, rest),
            None => ("", rest),
        };
        fits(user)?;
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let kind = match (is_sentinel, path) {
            (true, "") => return Err("the name of the master is missing: sentinel://HOSTS/NAME"),
            (true, name) if name.contains(['/', ',']) => {
                return Err("a master has a name without a / and without commas");
            }
            (true, name) => Kind::Sentinel(name.to_owned()),
            (false, "") => Kind::Cluster,
            (false, _) => {
                return Err("a cluster has one database alone: nothing may follow the hosts");
            }
        };
        let asked = Query::read(query, is_sentinel)?;
        let mut seeds: Vec<(String, ConnectionInfo)> = Vec::new();
        let mut servers = None;
        for host in hosts.split(',') {
            let (host, port) = host_and_port(host, default_port)?;
            let shown = format!("{host}:{port}");
            if seeds.iter().any(|(other, _)| *other == shown) {
                return Err("a host is named twice");
            }
            let scheme = if tls { "rediss" } else { "redis" };
            let info = |user: &str, db: u32| {
                let at = if user.is_empty() { "" } else { "@" };
                // The library's own words may quote the address.
                format!("{scheme}://{user}{at}{shown}/{db}")
                    .into_connection_info()
                    .map_err(|_| "the client library cannot read it")
            };
            let data = info(user, asked.db)?;
            let seed = match is_sentinel {
                true => info(&asked.user, 0)?,
                false => data.clone(),
            };
            servers.get_or_insert(data);
            seeds.push((shown, seed));
        }
        let servers = servers.ok_or("it has no host")?;
        Ok(Self {
            kind,
            seeds,
            servers,
        })
    }

    /// Changes how the servers of data are signed in to. The nodes of a cluster are such servers; sentinels are none.
    pub(super) fn sign_in(&mut self, change: impl Fn(ConnectionInfo) -> ConnectionInfo) {
        self.servers = change(self.servers.clone());
        if self.kind == Kind::Cluster {
            for (_, seed) in &mut self.seeds {
                *seed = change(seed.clone());
            }
        }
    }

    /// What the node is called: the same in all programs, whichever of those that are asked they name, and in which order.
    pub(crate) fn name(&self) -> String {
        match &self.kind {
            Kind::Sentinel(master) => format!("sentinel {master}"),
            Kind::Cluster => "cluster".to_owned(),
        }
    }
}

/// What may stand after the `?`.
#[derive(Default)]
struct Query {
    db: u32,
    /// `USER:PASSWORD` of the sentinels, as in an address.
    user: String,
}

impl Query {
    fn read(query: &str, is_sentinel: bool) -> Result<Self, &'static str> {
        let (mut db, mut user, mut password) = (0, "", "");
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("db", number)) if is_sentinel => {
                    db = number.parse().map_err(|_| "the database is not a number")?;
                }
                Some(("sentinel_user", value)) if is_sentinel => user = value,
                Some(("sentinel_password", value)) if is_sentinel => password = value,
                _ if is_sentinel => {
                    return Err(
                        "after the ? only db, sentinel_user and sentinel_password have a meaning",
                    );
                }
                _ => return Err("nothing after a ? has a meaning"),
            }
        }
        if user.contains(':') {
            return Err("a : in sentinel_user must be written as %3A");
        }
        fits(user)?;
        fits(password)?;
        let user = match (user, password) {
            (user, "") => user.to_owned(),
            (user, password) => format!("{user}:{password}"),
        };
        Ok(Self { db, user })
    }
}

/// What would end the user or the password before its end.
fn fits(user: &str) -> Result<(), &'static str> {
    if user.contains('/') {
        return Err("a / in the password must be written as %2F");
    }
    if user.contains('@') {
        return Err("an @ in the password must be written as %40");
    }
    Ok(())
}

fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), &'static str> {
    // In [::1]:6379 the colons within the brackets separate nothing.
    let port_at = text.rfind(']').unwrap_or(0);
    let (host, port) = match text[port_at..].rfind(':') {
        Some(colon) => {
            let port = text[port_at + colon + 1..].parse::<u16>().ok();
            let port = port.filter(|&port| port != 0);
            let port = port.ok_or("a port is not a number from 1 to 65535")?;
            (&text[..port_at + colon], port)
        }
        None => (text, default_port),
    };
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err("a host is missing, or has a space in it");
    }
    Ok((host.to_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(url: &str) -> &'static str {
        match Failover::parse(url) {
            Err(why) => why,
            Ok(_) => panic!("{url} was read"),
        }
    }

    fn shown(read: &Failover) -> Vec<&str> {
        read.seeds.iter().map(|(shown, _)| shown.as_str()).collect()
    }

    #[test]
    fn sentinels_are_asked_with_their_own_password_and_masters_with_theirs() {
        let url = "sentinel://me:p%40w@A:1,b/orders?db=3&sentinel_user=s&sentinel_password=x%2Fy";
        let read = Failover::parse(url).unwrap();
        assert_eq!(read.kind, Kind::Sentinel("orders".to_owned()));
        assert_eq!(shown(&read), ["a:1", "b:26379"]);
        assert_eq!(read.name(), "sentinel orders");
        let data = read.servers.redis_settings();
        assert_eq!(
            (data.username(), data.password(), data.db()),
            (Some("me"), Some("p@w"), 3)
        );
        let seed = read.seeds[1].1.redis_settings();
        assert_eq!(
            (seed.username(), seed.password(), seed.db()),
            (Some("s"), Some("x/y"), 0)
        );
        let alone = Failover::parse("sentinel://:pw@a/m?sentinel_password=x").unwrap();
        let seed = alone.seeds[0].1.redis_settings();
        assert_eq!((seed.username(), seed.password()), (None, Some("x")));
        let open = Failover::parse("sentinel://:pw@a/m").unwrap();
        assert_eq!(open.seeds[0].1.redis_settings().password(), None);
    }

    #[test]
    fn the_nodes_of_a_cluster_are_asked_as_they_are_used() {
        let read = Failover::parse("cluster://:pw@a,[::1]:7001").unwrap();
        assert_eq!(read.kind, Kind::Cluster);
        assert_eq!(shown(&read), ["a:6379", "[::1]:7001"]);
        assert_eq!(read.seeds[1].1.redis_settings().password(), Some("pw"));
    }

    #[test]
    fn what_is_no_address_is_told_why() {
        for (url, part) in [
            ("redis://a", "neither"),
            ("sentinel://a", "name of the master"),
            ("sentinel:///m", "a host is missing"),
            ("sentinel://a,,b/m", "a host is missing"),
            ("sentinel://a,A:26379/m", "twice"),
            ("sentinel://a:0/m", "port"),
            ("sentinel://a/m/n", "without a /"),
            ("sentinel://a/m,b:6379", "without commas"),
            ("sentinel://a/m?db=x", "not a number"),
            ("sentinel://a/m?ttl=3", "have a meaning"),
            ("sentinel://p@w@a/m", "%40"),
            ("sentinel://a/m?sentinel_password=a/b", "%2F"),
            ("sentinel://a/m#insecure", "always verified"),
            ("cluster://a/1", "one database"),
            ("cluster://a?db=1", "nothing after a ?"),
        ] {
            assert!(why(url).contains(part), "{url}: {}", why(url));
        }
    }
}
