//! The files in `config/`, and what `config` prints.

use std::fs;

use super::*;

fn shipped(name: &str) -> String {
    fs::read_to_string(repository().join("config").join(name)).unwrap()
}

#[cfg(feature = "sqlite")]
#[test]
fn the_default_file_equals_the_defaults_in_code() {
    let setup = Setup::file(&shipped("default.toml"));
    assert_eq!(
        render::render(&setup.loaded().config, None),
        render::render(&Config::default(), None)
    );
}

#[test]
fn the_default_file_names_every_key() {
    let text = shipped("default.toml");
    let mut section = String::new();
    let mut named = Vec::new();
    for line in text.lines().map(|line| line.trim_start_matches(['#', ' '])) {
        if let Some(header) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = header.replace("NAME", "*");
        } else if let Some((key, _)) = line.split_once(" = ") {
            named.push(format!("{section}.{key}"));
        }
    }
    let retry = ["attempts", "backoff", "max_backoff"].map(|key| format!("jobs.*.retry.{key}"));
    for key in schema::keys() {
        let key = key.join(".");
        assert!(
            named.contains(&key) || retry.contains(&key),
            "{key} is missing"
        );
    }
}

#[cfg(all(feature = "sqlite", feature = "otel"))]
#[test]
fn the_keys_in_comments_are_as_good_as_the_others() {
    // Only lines that look like keys or sections: sentences stay comments.
    let bare = |line: &str| {
        let inner = line.trim_start_matches(['#', ' ']);
        let looks = inner
            .split_once(" = ")
            .is_some_and(|(key, _)| !key.contains(' '));
        let text = if looks || inner.starts_with('[') {
            inner
        } else {
            ""
        };
        text.replace("NAME", "any").replace("\"\u{2026}\"", "\"x\"")
    };
    let text: Vec<String> = shipped("default.toml").lines().map(bare).collect();
    let mut setup = Setup::file(&text.join("\n"));
    // Keys of several kinds stand in one table there.
    setup.options.check_notice = Some(Arc::new(|_| Findings::default()));
    assert_eq!(setup.lines(), [""; 0]);
}

#[cfg(all(feature = "sqlite", feature = "redis"))]
#[test]
fn the_examples_are_without_fault() {
    for name in ["local.toml", "redlock.toml"] {
        let loaded = Setup::file(&shipped(name)).loaded();
        assert!(loaded.problems.is_empty(), "{}", loaded.problems);
        assert_eq!(
            loaded.config.jobs["heartbeat"].kind.as_deref(),
            Some("heartbeat")
        );
    }
}

#[test]
fn what_is_printed_can_be_loaded_again() {
    let file = "[worker]\nname = \"w\"\n[jobs.a]\nkind = \"heartbeat\"\nschedule = \"@daily\"\nretry = 7\n\
                timeout = \"5m\"\nparams = { list = [1, 2], inner = { x = \"a = b\" } }";
    let first = Setup::file(file).loaded();
    for text in [first.render(false), first.render(true)] {
        let again = Setup::file(&text).loaded();
        assert_eq!(again.render(false), first.render(false));
        assert_eq!(again.config.jobs, first.config.jobs);
    }
}

#[test]
fn what_is_printed_says_where_it_comes_from() {
    let file = "[jobs.a]\nkind = \"heartbeat\"\nschedule = \"@daily\"\nparams.file = \"x\"";
    let setup = Setup::file(file)
        .env("LOCKS__TTL", "5s")
        .env("LOCKS__REDIS__PASSWORD", "x");
    let text = setup.loaded().render(true);
    for (line, origin) in [
        ("ttl = \"5s\"", "WATCHKEEPER_LOCKS__TTL"),
        ("max_ttl = \"30s\"", "default"),
        ("password = \"***\"", "WATCHKEEPER_LOCKS__REDIS__PASSWORD"),
        ("schedule = \"@daily\"", "watchkeeper.toml:3:12"),
        ("file = \"x\"", "watchkeeper.toml:4:15"),
        ("attempts = 3", "default"),
    ] {
        let found = text
            .lines()
            .any(|l| l.starts_with(line) && l.ends_with(&format!("  # {origin}")));
        assert!(found, "{line}: {text}");
    }
}
