//! What the check finds.

use super::*;
use serde_json::json;

fn found(params: &Value) -> Vec<(String, String)> {
    let found = (crate::kinds::http::KIND.check)(params).into_iter();
    found
        .map(|mut f| (f.keys.swap_remove(0), f.message))
        .collect()
}

fn keys(params: &Value) -> Vec<String> {
    found(params).into_iter().map(|(key, _)| key).collect()
}

fn read(params: Value) -> HttpParams {
    serde_json::from_value(params).unwrap()
}

#[test]
fn good_parameters_have_no_findings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "Bearer abc\n").unwrap();
    for params in [
        json!({"url": "http://h"}),
        json!({"url": "HTTPS://u:p@[::1]:8/a/${job}?t=${tick}#x", "method": "delete", "expect": 404}),
        json!({"url": "http://h", "body": "{\"token\": ${token}, \"by\": \"${replica}\"}"}),
        json!({"url": "http://h", "body": "job=${job}", "expect": [200, "3xx"], "timeout": "1s"}),
        json!({"url": "http://h", "body": "{ok", "headers": {"content-type": "text/x"}}),
        json!({"url": "http://h", "body": "", "method": "POST"}),
        json!({"url": "http://h", "headers": {"X-A": "$${job}", "Host": "x"}, "header_files": {"X-B": file}}),
    ] {
        assert_eq!(found(&params), [], "{params}");
    }
}

#[test]
fn every_finding_is_told_at_once_with_its_key() {
    let params = json!({
        "url": "ftp://h",
        "method": "FETCH",
        "headers": {
            "X A": "x", "X-B": "gr\u{fc}n", "X-C": "${name}", "Content-Length": "1", "x-d": "1", "X-D": "2",
        },
        "header_files": {"X-E": "/nowhere/at/all", "x-d": "/dev/null"},
        "body": "${jobb}",
        "expect": "ok",
        "timeout": "0s",
    });
    let expected = [
        "url",
        "method",
        "headers.Content-Length",
        "headers.X A",
        "headers.X-B",
        "headers.X-C",
        "headers.x-d",
        "header_files.x-d",
        "body",
        "expect",
        "timeout",
        "header_files.X-E",
        "header_files.x-d",
    ];
    assert_eq!(keys(&params), expected);
    let texts: Vec<String> = found(&params).into_iter().map(|(_, text)| text).collect();
    assert!(texts[0].contains("https://"), "{}", texts[0]);
    assert!(texts[1].contains("PATCH"), "{}", texts[1]);
    assert!(texts[5].contains("${run_id}"), "{}", texts[5]);
    assert!(texts[11].contains("/nowhere/at/all"), "{}", texts[11]);
}

#[test]
fn keys_that_do_not_fit_are_named_without_their_values() {
    let params = json!({"url": 271_828, "headers": {"Authorization": 271_828}, "boddy": "x", "timeout": "soon"});
    assert_eq!(
        keys(&params),
        ["boddy", "headers.Authorization", "timeout", "url"]
    );
    let text = format!("{:?}", found(&params));
    assert!(!text.contains("271828"), "{text}");
}

#[test]
fn addresses_that_cannot_be_called_are_refused_without_repeating_them() {
    for url in [
        "",
        "h/path",
        "mailto:me@h",
        "http://",
        "http:///s3cret",
        "http://u:s3cret/x@h/",
        "http://h:99999/s3cret",
        "http://${job}/s3cret",
        "http://h${job}/",
        "http://u:${token}@h/",
        "http://h/a b",
        "http://\t/${job}",
        "http:\\\\h\\${job}",
        "http://h/${nobody}",
    ] {
        let found = found(&json!({ "url": url }));
        assert_eq!(found.len(), 1, "{url}");
        assert_eq!(found[0].0, "url");
        assert!(!found[0].1.contains("s3cret"), "{found:?}");
    }
}

#[test]
fn credentials_are_given_in_one_place() {
    let params = json!({"url": "http://u:p@h/", "headers": {"authorization": "Bearer x"}});
    assert_eq!(keys(&params), ["url"]);
}

#[test]
fn a_body_that_should_be_json_is_json() {
    for (body, content_type, right) in [
        ("{\"a\": \"${job}\"}", None, true),
        ("{\"a\": ${job}}", None, false),
        ("{\"a\": 1", None, false),
        ("\"${job}\"", Some("application/json; charset=utf-8"), true),
        ("${job}", Some("application/vnd.x+json"), false),
        ("{}\n{}", Some("application/x-ndjson"), true),
        ("{", Some("text/plain"), true),
    ] {
        let mut params = json!({"url": "http://h", "body": body});
        if let Some(content_type) = content_type {
            params["headers"] = json!({"Content-Type": content_type});
        }
        assert_eq!(found(&params).is_empty(), right, "{params}");
    }
}

#[test]
fn debug_shows_no_secret() {
    let text = format!(
        "{:?}",
        read(json!({
            "url": "http://u:hunter2@h/hunter2", "headers": {"X-Api-Key": "hunter2"}, "body": "hunter2",
        }))
    );
    assert!(!text.contains("hunter2"), "{text}");
}
