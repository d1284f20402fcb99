//! What needs no server; the rest is in `tests/redis`.

use super::*;

fn settings(url: &str) -> RedisNodeSettings {
    RedisNodeSettings {
        url: url.into(),
        username: None,
        password: None,
        tls: TlsFiles::default(),
        node_timeout: Duration::from_millis(50),
        namespace: "app".to_owned(),
        raw_keys: false,
        guard: GuardSettings::default(),
    }
}

fn node(settings: &RedisNodeSettings) -> Result<RedisNode, SetupError> {
    RedisNode::new(settings, Clock::system(), Spawn::system())
}

#[test]
fn names_show_the_place_and_no_credentials() {
    for (url, name) in [
        ("redis://user:s3cret@10.0.0.7", "10.0.0.7:6379"),
        ("redis://:s3cret@db.example:7000/3", "db.example:7000"),
        ("redis://[::1]:6380", "[::1]:6380"),
        ("unix:///run/redis.sock?db=2&pass=s3cret", "/run/redis.sock"),
        ("redis+unix:///run/redis.sock", "/run/redis.sock"),
    ] {
        let node = node(&settings(url)).unwrap();
        assert_eq!(node.name(), name);
        assert!(!format!("{node:?} {:?}", settings(url)).contains("s3cret"));
    }
}

#[test]
fn a_wrong_address_is_explained_without_its_secrets() {
    for url in [
        "s3cret",
        "http://user:s3cret@host",
        "redis://user:s3cret@host:port",
        "redis://user:s3cret@host/s3cret",
        "redis://user:s3cret@",
        "unix://s3cret",
    ] {
        let error = node(&settings(url)).unwrap_err();
        assert!(matches!(error, SetupError::Url(_)), "{url}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}

#[test]
fn tls_is_verified_or_refused_never_left_out() {
    let made = |url: &str| node(&settings(url)).map(|node| node.name().to_owned());
    if cfg!(feature = "redis-tls") {
        for url in ["rediss://host#insecure", "rediss://host/0#any"] {
            assert_eq!(made(url), Err(SetupError::Insecure));
        }
        let mut settings = settings("rediss://[::1]");
        settings.tls.ca = Some("/no/such/ca.pem".into());
        let error = node(&settings).unwrap_err().to_string();
        assert!(
            error.contains("locks.redis.tls.ca: /no/such/ca.pem cannot be read"),
            "{error}"
        );
    } else {
        assert_eq!(made("rediss://host"), Err(SetupError::Tls));
    }
}

#[test]
fn own_credentials_override_those_of_the_address() {
    let mut settings = settings("redis://a:b@host/4");
    settings.username = Some("user".to_owned());
    settings.password = Some("word".into());
    let info = address(&settings).unwrap();
    let redis = info.redis_settings();
    assert_eq!(
        (redis.username(), redis.password(), redis.db()),
        (Some("user"), Some("word"), 4)
    );
}

#[test]
fn a_namespace_that_would_spoil_the_hash_tag_is_refused() {
    for namespace in ["", "a}b", "{a", "a b"] {
        let mut settings = settings("redis://host");
        settings.namespace = namespace.to_owned();
        assert!(
            matches!(node(&settings), Err(SetupError::Namespace(_))),
            "{namespace:?}"
        );
    }
}

#[tokio::test]
async fn a_call_of_too_many_operations_is_refused_unsent() {
    let node = node(&settings("redis://127.0.0.1:1")).unwrap();
    let ops = vec![crate::node::Op::Read { key: "k".into() }; MAX_OPS + 1];
    let refused = node
        .call(Call {
            not_after: None,
            ops,
        })
        .await;
    assert!(matches!(refused, Err(NodeError::Protocol(_))));
}

#[tokio::test]
async fn a_closed_port_is_unreachable_at_once() {
    let node = node(&settings("redis://127.0.0.1:1")).unwrap();
    let call = || Call {
        not_after: None,
        ops: vec![crate::node::Op::Read { key: "k".into() }],
    };
    for _ in 0..3 {
        assert!(matches!(
            node.call(call()).await,
            Err(NodeError::Unreachable(_))
        ));
    }
}
