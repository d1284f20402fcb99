//! Which addresses of the internet a row may name: public ones, and none of the house.
//!
//! A program that can write a row chooses where we connect to. So the addresses of a name are looked at before a connection is
//! made, and the connection is made to those that were looked at: there is no second look-up that could answer something
//! else.
//!
//! # Invariants
//! - G1 Nothing of the own machine or network, of documents, or for special use can be reached, in whatever spelling.
//!   (`what_is_not_public_is_refused_in_every_spelling`)
//! - G2 A name with a public and a private address is reached by the public one alone.  (`of_several_addresses_the_public_ones_are_kept`)

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// A name or an address that must not be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} leads to {what}; `allow_private = true` would allow it")]
pub(crate) struct Forbidden {
    host: String,
    what: &'static str,
}

/// Looks names up, and keeps the addresses that may be reached.
#[derive(Clone, Copy, Debug)]
struct Public;

/// What looks names up.
pub(crate) fn resolver() -> Arc<dyn Resolve> {
    Arc::new(Public)
}

/// Whether the address of a row may be tried; names are looked at when they are resolved.
///
/// # Errors
/// [`Forbidden`], for an address that is written out.
pub(crate) fn check(url: &Url) -> Result<(), Forbidden> {
    let host = url.host_str().unwrap_or_default();
    // Odd spellings (`0x7f.1`, `2130706433`) are plain addresses by now.
    let Ok(ip) = host.trim_matches(['[', ']']).parse() else {
        return Ok(());
    };
    match not_public(ip) {
        Some(what) => Err(Forbidden {
            host: host.to_owned(),
            what,
        }),
        None => Ok(()),
    }
}

impl Resolve for Public {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            let kept = public(&host, found)?;
            Ok(Box::new(kept.into_iter()) as Addrs)
        })
    }
}

fn public(
    host: &str,
    found: impl Iterator<Item = SocketAddr>,
) -> Result<Vec<SocketAddr>, Forbidden> {
    let mut refused = None;
    let mut kept = Vec::new();
    for address in found {
        match not_public(address.ip()) {
            Some(what) => refused = Some(what),
            None => kept.push(address),
        }
    }
    match refused {
        Some(what) if kept.is_empty() => Err(Forbidden {
            host: host.to_owned(),
            what,
        }),
        _ => Ok(kept),
    }
}

/// Why an address is not public; nothing when it is.
fn not_public(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => not_public_v4(ip),
        IpAddr::V6(ip) => not_public_v6(ip),
    }
}

const PRIVATE: &str = "a private address";
const LOOPBACK: &str = "an address of this machine";
const LINK_LOCAL: &str = "a link-local address, where clouds keep credentials";
const DOCUMENTS: &str = "an address for documentation";
const SPECIAL: &str = "an address for special use";

fn not_public_v4(ip: Ipv4Addr) -> Option<&'static str> {
    match ip.octets() {
        [127, ..] | [0, ..] => Some(LOOPBACK),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some(PRIVATE),
        [169, 254, ..] => Some(LINK_LOCAL),
        // Of providers, between them and their customers.
        [100, 64..=127, ..] => Some("a shared address of a provider"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some(DOCUMENTS),
        [224..=239, ..] => Some("a multicast address"),
        // The way from a virtual machine to its cloud.
        [168, 63, 129, 16] => Some("an address of the cloud's own services"),
        [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] | [240..=255, ..] => Some(SPECIAL),
        _ => None,
    }
}

fn not_public_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let of = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Some(LOOPBACK),
        // IPv4 in other clothes: compatible, mapped, translated, NAT64, 6to4.
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => not_public_v4(of(high, low)),
        [0xfc00..=0xfdff, ..] => Some(PRIVATE),
        [0xfe80..=0xfebf, ..] => Some(LINK_LOCAL),
        [0xfec0..=0xfeff, ..] => Some(PRIVATE),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => Some(DOCUMENTS),
        // Protocols of their own, among them tunnels to IPv4.
        [0x2001, 0..=0x01ff, ..] => Some(SPECIAL),
        // All that is given out to everybody.
        [0x2000..=0x3fff, ..] => None,
        _ => Some(SPECIAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(url: &str) -> Result<(), Forbidden> {
        check(&Url::parse(url).unwrap())
    }

    #[test]
    fn what_is_not_public_is_refused_in_every_spelling() {
        for host in [
            "127.0.0.1",
            "127.1",
            "0x7f.1",
            "0177.0.0.1",
            "2130706433",
            "0x7f000001",
            "127.0.0.1.",
            "0.0.0.0",
            "0",
            "10.0.0.1",
            "10.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "0xa9fea9fe",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "192.0.2.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "168.63.129.16",
            "192.0.0.192",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a00:1]",
            "[::10.0.0.1]",
            "[::ffff:0:10.0.0.1]",
            "[64:ff9b::169.254.169.254]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2002:a9fe:a9fe::1]",
            "[fc00::1]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "[febf::1]",
            "[fec0::1]",
            "[ff02::1]",
            "[2001:db8::1]",
            "[3fff:fff::1]",
            "[2001::1]",
            "[2001:20::1]",
            "[100::1]",
            "[5f00::1]",
            "[4000::1]",
            "[e000::1]",
            "１２７.0.0.1",
            "①②⑦.0.0.1",
        ] {
            let refused = checked(&format!("http://{host}/"));
            assert!(refused.is_err(), "{host}");
        }
        for host in [
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "192.167.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "[2606:4700:4700::1111]",
            "[2001:200::1]",
            "[64:ff9b::1.1.1.1]",
            "[::ffff:1.1.1.1]",
            "[2002:101:101::1]",
            "example.org",
            "localhost",
        ] {
            assert_eq!(checked(&format!("http://{host}/")), Ok(()), "{host}");
        }
    }

    #[test]
    fn of_several_addresses_the_public_ones_are_kept() {
        let found = |ips: &[&str]| {
            let ips = ips.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0));
            public("shop.example", ips.collect::<Vec<_>>().into_iter())
        };
        assert_eq!(found(&["10.0.0.1", "1.1.1.1"]).unwrap().len(), 1);
        let error = found(&["10.0.0.1", "fd00::1"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "shop.example leads to a private address; `allow_private = true` would allow it"
        );
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_refused_when_it_is_resolved() {
        let error = Public
            .resolve("localhost".parse().unwrap())
            .await
            .err()
            .unwrap();
        assert!(error.downcast_ref::<Forbidden>().is_some(), "{error}");
    }
}
