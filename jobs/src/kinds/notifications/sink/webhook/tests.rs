use super::*;
use crate::notifications::cell::ItemId;
use serde_json::{Map, json};
use watchkeeper::config::Findings;

fn item() -> Item {
    Item {
        id: ItemId::Int(1),
        key: "d/t/1".to_owned(),
        body: Map::new(),
        columns: Map::new(),
        prior: None,
        is_repeat: false,
        members: Vec::new(),
        digest: None,
    }
}

fn with(columns: &Value) -> Item {
    Item {
        columns: columns.as_object().unwrap().clone(),
        ..item()
    }
}

/// Made of these parameters.
fn made(params: &Value, timeout: Duration) -> Webhook {
    let params = serde_json::from_value(params.clone()).unwrap();
    let mut found = Findings::default();
    let Some(super::super::Plan::Web(plan)) = super::super::Plan::read(&params, &mut found) else {
        panic!("no webhook: {found:?}");
    };
    Webhook::new(*plan, timeout, Clock::system()).unwrap()
}

fn hook(url: &str, timeout: Duration) -> Webhook {
    made(&json!({ "sink": url }), timeout)
}

#[test]
fn statuses_mean_what_the_table_says() {
    let of = |status: u16| of_status(StatusCode::from_u16(status).unwrap(), None);
    assert_eq!(of(204), Answer::Accepted);
    for status in [302, 408, 425, 429, 500, 503] {
        assert!(matches!(of(status), Answer::Later { .. }), "{status}");
    }
    for status in [400, 401, 404, 410, 422] {
        assert!(matches!(of(status), Answer::Refused { .. }), "{status}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_no_doubt_and_tells_no_secret() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let url = format!("http://user:hunter2@127.0.0.1:{port}/hook?key=s3cret");
    let hook = hook(&url, Duration::from_secs(5));
    let answer = hook.send(&item(), Token(1)).await;
    assert!(matches!(answer, Answer::Later { .. }), "{answer:?}");
    let text = format!("{answer:?} {}", hook.name());
    assert!(
        !text.contains("hunter2") && !text.contains("s3cret"),
        "{text}"
    );
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_request_is_doubt() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = async {
        use tokio::io::AsyncReadExt;
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 1024]).await;
    };
    let hook = hook(&url, Duration::from_secs(5));
    let item = item();
    let (answer, ()) = tokio::join!(hook.send(&item, Token(1)), server);
    assert!(matches!(answer, Answer::Unknown { .. }), "{answer:?}");
}

#[tokio::test]
async fn no_answer_in_time_is_doubt() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let hook = hook(&url, Duration::from_millis(50));
    let answer = hook.send(&item(), Token(1)).await;
    assert!(matches!(answer, Answer::Unknown { .. }), "{answer:?}");
}

#[test]
fn what_is_too_much_for_a_receiver_slows_down() {
    let of = |status: u16| heard(StatusCode::from_u16(status).unwrap(), None);
    for status in [429, 502, 503, 504] {
        assert_eq!(of(status), Heard::Busy(None), "{status}");
    }
    // A failure of one item says nothing of the others.
    for status in [200, 400, 408, 410, 425, 500, 501] {
        assert_eq!(of(status), Heard::Well, "{status}");
    }
}

/// Posts one item to a listener that answers nothing; the head and the body that it was sent.
async fn sent(params: Value, item: &Item, token: u64) -> (String, String) {
    use tokio::io::AsyncReadExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut params = params;
    params["sink"] = format!("http://{}/", listener.local_addr().unwrap()).into();
    let hook = made(&params, Duration::from_secs(5));
    let server = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"}") {
            assert!(socket.read_buf(&mut text).await.unwrap() > 0);
        }
        String::from_utf8(text).unwrap()
    };
    let (_, text) = tokio::join!(hook.send(item, Token(token)), server);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

#[tokio::test]
async fn what_is_signed_is_what_is_sent() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let value = |head: &str, name: &str| {
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in {head}"))
    };
    let item = with(&json!({"name": "\"Zoë\""}));
    let params = json!({"secrets": [secret], "body": "{\"hello\": \"${name}\"}"});
    let mut ids = Vec::new();
    for token in [1, 2] {
        let (head, body) = sent(params.clone(), &item, token).await;
        assert_eq!(body, r#"{"hello": "\"Zoë\""}"#);
        let seconds = value(&head, "webhook-timestamp").parse().unwrap();
        let keys = signature::Keys::parse(secret).unwrap();
        let signed = keys.sign(&message_id(&item.key), seconds, body.as_bytes());
        assert_eq!(
            value(&head, "webhook-signature"),
            signed.to_ascii_lowercase()
        );
        assert_eq!(value(&head, "content-type"), "application/json");
        assert_eq!(value(&head, "watchkeeper-token"), token.to_string());
        assert_eq!(value(&head, "idempotency-key"), "d/t/1");
        ids.push(value(&head, "webhook-id"));
    }
    assert_eq!(ids[0], ids[1]);
    let (head, _) = sent(json!({}), &item, 1).await;
    assert!(!head.contains("webhook-"), "nothing to sign with: {head}");
}

#[tokio::test]
async fn an_address_of_the_own_machine_is_refused_with_the_reason() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let hook = made(&json!({"columns": {"url": "url"}}), Duration::from_secs(5));
    for (url, why) in [
        (
            format!("http://127.0.0.1:{port}/s3cret"),
            "leads to an address of this machine",
        ),
        (
            format!("http://localhost:{port}/s3cret"),
            "leads to an address of this machine",
        ),
        (
            format!("http://0x7f.1:{port}/s3cret"),
            "leads to an address of this machine",
        ),
        (
            "http://[::ffff:169.254.169.254]/s3cret".to_owned(),
            "link-local",
        ),
        (
            "ftp://example.org/s3cret".to_owned(),
            "neither http:// nor https://",
        ),
        (
            "file:///etc/s3cret".to_owned(),
            "neither http:// nor https://",
        ),
        ("s3cret".to_owned(), "is not valid"),
        (String::new(), "names no address"),
    ] {
        let answer = hook.send(&with(&json!({ "url": url })), Token(1)).await;
        let Answer::Refused { why: told } = answer else {
            panic!("{url}: {answer:?}");
        };
        assert!(
            told.contains(why) && !told.contains("s3cret"),
            "{url}: {told}"
        );
    }
    let untouched = Clock::system()
        .timeout(Duration::from_millis(20), listener.accept())
        .await;
    assert!(untouched.is_err(), "somebody called");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_dead() {
    let hook = made(
        &json!({"sink": "http://127.0.0.1:1/", "body": "${text}"}),
        Duration::from_secs(1),
    );
    let answer = hook
        .send(&with(&json!({"text": "x".repeat(MOST + 1)})), Token(1))
        .await;
    let Answer::Refused { why } = answer else {
        panic!("{answer:?}");
    };
    assert!(why.contains("1000001 bytes"), "{why}");
}

#[tokio::test]
async fn an_item_that_cannot_be_signed_is_not_sent() {
    let params = json!({"sink": "http://127.0.0.1:1/", "columns": {"secret": "secret"}});
    let hook = made(&params, Duration::from_secs(1));
    for secret in [json!(null), json!("hunter2")] {
        let answer = hook
            .send(&with(&json!({ "secret": secret })), Token(1))
            .await;
        let Answer::Refused { why } = answer else {
            panic!("{answer:?}");
        };
        assert!(
            why.contains("column `secret`") && !why.contains("hunter2"),
            "{why}"
        );
    }
    // A file that is gone is no fault of the item.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let hook = made(
        &json!({"sink": "http://127.0.0.1:1/", "secret_files": [file]}),
        Duration::from_secs(1),
    );
    std::fs::remove_file(file).unwrap();
    let answer = hook.send(&item(), Token(1)).await;
    assert!(matches!(answer, Answer::Waits { .. }), "{answer:?}");
}
