//! What wins, and how texts become values.

use std::time::Duration;

use super::*;
use crate::{
    due::Misfire,
    human::DurationExt,
    job::{Coordination, Retry},
};

#[test]
fn later_layers_win_key_by_key() {
    let setup = Setup::file("[locks]\nttl = \"11s\"\nmax_ttl = \"40s\"\nskew = \"2s\"")
        .env("LOCKS__MAX_TTL", "50s")
        .env("LOCKS__SKEW", "3s")
        .flag("--skew", "locks.skew", "4s");
    let loaded = setup.loaded();
    let locks = &loaded.config.locks;
    assert_eq!(
        [locks.ttl, locks.max_ttl, locks.skew, locks.retention],
        [11.secs(), 50.secs(), 4.secs(), 24.hours()]
    );
    let origin = |key: &str| loaded.provenance.of(key).to_string();
    assert_eq!(origin("locks.ttl"), "watchkeeper.toml:2:7");
    assert_eq!(origin("locks.max_ttl"), "WATCHKEEPER_LOCKS__MAX_TTL");
    assert_eq!(origin("locks.skew"), "--skew");
    assert_eq!(origin("locks.retention"), "default");
}

#[test]
fn without_a_file_the_defaults_hold() {
    let loaded = Setup::empty().loaded();
    assert_eq!(
        render::render(&loaded.config, None),
        render::render(&Config::default(), None)
    );
    assert_eq!(loaded.file, None);
}

#[test]
fn the_file_is_chosen_by_flag_then_variable_then_place() {
    let mut setup = Setup::empty();
    let namespace = |setup: &Setup| setup.loaded().config.worker.namespace;
    setup.write("config/default.toml", "worker.namespace = \"d\"");
    assert_eq!(namespace(&setup), "d");
    setup.write("watchkeeper.toml", "worker.namespace = \"c\"");
    assert_eq!(namespace(&setup), "c");
    setup.write("b.toml", "worker.namespace = \"b\"");
    setup = setup.env("CONFIG", "b.toml");
    assert_eq!(namespace(&setup), "b");
    setup.write("a.toml", "worker.namespace = \"a\"");
    setup.options.file = Some("a.toml".into());
    assert_eq!(namespace(&setup), "a");
}

#[test]
fn the_place_of_the_machine_is_the_last_one_and_what_was_looked_at_is_told() {
    let mut setup = Setup::empty();
    let system = setup.dir.path().join("etc/watchkeeper.toml");
    setup.options.places.push(system.clone());
    let none = setup.loaded();
    assert_eq!(none.looked_at, setup.options.places);
    let said = none.store_by_default().unwrap();
    let looked = format!(
        "./watchkeeper.toml, ./config/default.toml, {}",
        system.display()
    );
    assert!(
        said.starts_with(&format!(
            "no configuration found (looked at {looked}); using "
        )),
        "{said}"
    );
    setup.write("etc/watchkeeper.toml", "worker.namespace = \"machine\"");
    let found = setup.loaded();
    assert_eq!(found.file, Some(system.clone()));
    assert_eq!(found.config.worker.namespace, "machine");
    let said = found.store_by_default().unwrap();
    assert!(
        said.starts_with(&format!("{} names no store; using ", system.display())),
        "{said}"
    );
    setup.write("watchkeeper.toml", "locks.backend = \"memory\"");
    let nearer = setup.loaded();
    assert_eq!(nearer.config.worker.namespace, "watchkeeper");
    assert_eq!(nearer.store_by_default(), None);
    assert!(nearer.looked_at.is_empty());
}

#[test]
fn a_file_that_was_named_must_exist() {
    let line = Setup::empty().env("CONFIG", "no.toml").problem();
    assert!(
        line.starts_with("WATCHKEEPER_CONFIG: the file no.toml cannot be read"),
        "{line}"
    );
    let mut setup = Setup::empty();
    setup.options.file = Some("no.toml".into());
    assert!(setup.problem().starts_with("--config: the file no.toml"));
}

#[test]
fn a_password_of_digits_stays_a_text() {
    for password in [
        "12345",
        "007",
        "true",
        "{a=1}",
        "[a, b]",
        "1,2",
        "\"quoted\"",
        " x ",
        "",
    ] {
        let setup = Setup::empty().env("LOCKS__REDIS__PASSWORD", password);
        let config = setup.loaded().config;
        assert_eq!(config.locks.redis.password.unwrap().expose(), password);
    }
}

#[cfg(feature = "redis")]
#[test]
fn a_text_becomes_what_its_key_wants() {
    let setup = Setup::empty()
        .env("WORKER__THREADS", "4")
        .env("WORKER__NAME", "4")
        .env("LOCKS__DRIFT", "0.02")
        .env("LOCKS__RAW_KEYS", "true")
        .env("LOCKS__BACKEND", "redis")
        .env("LOCKS__REDIS__NODES", "redis://a, redis://b,redis://c")
        .env("ADMIN__LISTEN", "off");
    let config = setup.loaded().config;
    assert_eq!(config.worker.threads, Some(4));
    assert_eq!(config.worker.name.as_deref(), Some("4"));
    assert!((config.locks.drift - 0.02).abs() < 1e-9 && config.locks.raw_keys);
    assert_eq!(config.locks.redis.nodes[1].expose(), "redis://b");
    assert_eq!(config.admin.address(), None);

    let setup = Setup::empty()
        .env("LOCKS__BACKEND", "redis")
        .env("LOCKS__REDIS__NODES", "[\"redis://a\"]");
    assert_eq!(setup.loaded().config.locks.redis.nodes.len(), 1);

    // The commas between hosts of one address separate no items.
    let address = "sentinel://me:pw@a,b:1,c/orders?db=2";
    let setup = Setup::empty()
        .env("LOCKS__BACKEND", "redis")
        .env("LOCKS__REDIS__NODES", address);
    assert_eq!(setup.loaded().config.locks.redis.nodes[0].expose(), address);
}

#[test]
fn a_wrong_text_is_shown_with_its_variable() {
    let setup = Setup::empty()
        .env("WORKER__THREADS", "-1")
        .env("LOCKS__TTL", "10")
        .flag("--listen", "admin.listen", "here");
    let lines = setup.lines();
    assert_eq!(
        lines,
        [
            "WATCHKEEPER_LOCKS__TTL: locks.ttl: a duration needs a unit; write 10s",
            "WATCHKEEPER_WORKER__THREADS: worker.threads: integer \"-1\" is not a whole number",
            "--listen: admin.listen: \"here\" is neither an address such as \"127.0.0.1:8787\" nor \"off\"",
        ]
    );
}

#[test]
fn variables_that_are_no_keys_are_left_alone() {
    let setup = Setup::empty()
        .env("REQUIRE", "redis")
        .env("REDIS_SERVER", "/usr/bin/redis-server")
        .env("JOB", "report")
        .env("PORT", "tcp://10.0.0.1:8787")
        .env("PORT_8787_TCP_ADDR", "10.0.0.1")
        .env("SERVICE_HOST", "10.0.0.1")
        .env("REDIS_SERVICE_PORT_DB", "6379");
    assert_eq!(setup.lines(), [""; 0]);
}

#[test]
fn a_variable_that_is_nearly_a_key_is_an_error() {
    assert_eq!(
        Setup::empty().env("LOCKS_MAX_TTL", "9s").problem(),
        "WATCHKEEPER_LOCKS_MAX_TTL: locks.max_ttl: two underscores stand between the parts of a key; \
         write WATCHKEEPER_LOCKS__MAX_TTL"
    );
    assert_eq!(
        Setup::empty().env("LOCKS__TLT", "9s").problem(),
        "WATCHKEEPER_LOCKS__TLT: locks.tlt: there is no such key; did you mean \"ttl\"?"
    );
}

#[test]
fn a_variable_that_is_no_key_is_refused_with_its_remedy() {
    for (name, said) in [
        (
            "NAMESPACE",
            "WATCHKEEPER_NAMESPACE: namespace: there is no such variable; did you mean WATCHKEEPER_WORKER__NAMESPACE?",
        ),
        (
            "LOCKS",
            "WATCHKEEPER_LOCKS: locks: this is a table, and no value; name a key in it, as WATCHKEEPER_LOCKS__BACKEND",
        ),
        (
            "LOCKS_REDIS",
            "this is a table, and no value; name a key in it",
        ),
        ("LOCKS__REDIS", "locks.redis: this must be a table"),
        ("JOBS", "jobs: this is a table"),
        (
            "CONFG",
            "there is no such variable; did you mean WATCHKEEPER_CONFIG?",
        ),
        (
            "WORKER__NAMESPACES",
            "there is no such key; did you mean \"namespace\"?",
        ),
        (
            "IMAGE",
            "there is no such variable; unset it: names that begin with WATCHKEEPER_ are keys",
        ),
    ] {
        let line = Setup::empty().env(name, "5").problem();
        assert!(line.contains(said), "{name}: {line}");
    }
    let mut setup = Setup::empty();
    setup.options.env = vec![("watchkeeper_locks__ttl".to_owned(), "5s".to_owned())];
    let line = setup.problem();
    assert!(
        line.ends_with("there is no such variable; write WATCHKEEPER_LOCKS__TTL"),
        "{line}"
    );
}

#[test]
fn a_variable_that_is_no_text_is_refused_by_its_name() {
    let mut setup = Setup::empty();
    setup.options.env_no_text = vec!["WATCHKEEPER_LOCKS__TTL".to_owned()];
    assert_eq!(
        setup.problem(),
        "WATCHKEEPER_LOCKS__TTL: locks.ttl: the variable is no text in UTF-8; write it in UTF-8, or unset it"
    );
}

#[test]
fn the_case_of_a_key_in_a_variable_does_not_matter_unless_it_is_given_twice() {
    let setup = Setup::empty().env("locks__ttl", "5s");
    assert_eq!(setup.loaded().config.locks.ttl, 5.secs());
    let line = setup.env("LOCKS__TTL", "6s").problem();
    assert!(
        line.contains("locks.ttl: the value is given twice; unset one"),
        "{line}"
    );
}

#[test]
fn a_relative_path_in_a_file_begins_in_the_folder_of_the_file() {
    let file = "[locks]\nembedded.path = \"a.db\"\nredis.tls.ca = \"ca.pem\"\nredis.tls.key = \"/k.pem\"\n\
                etcd.tls.cert = \"c.pem\"";
    let mut setup = Setup::empty();
    setup.write("conf/w.toml", file);
    let folder = setup.dir.path().join("conf");
    // However it is named: from its own folder, from another one, by its whole path.
    for (root, name) in [
        (setup.dir.path().to_owned(), "conf/w.toml".into()),
        (folder.clone(), "w.toml".into()),
        (setup.dir.path().to_owned(), folder.join("w.toml")),
    ] {
        (setup.options.root, setup.options.file) = (root, Some(name));
        let locks = setup.loaded().config.locks;
        assert_eq!(locks.embedded.path, folder.join("a.db"));
        assert_eq!(locks.redis.tls.ca.unwrap(), folder.join("ca.pem"));
        assert_eq!(locks.redis.tls.key.unwrap(), Path::new("/k.pem"));
        assert_eq!(locks.etcd.tls.cert.unwrap(), folder.join("c.pem"));
    }
    // Elsewhere in the working directory.
    let setup = setup.env("LOCKS__EMBEDDED__PATH", "b.db");
    assert_eq!(setup.loaded().config.locks.embedded.path, Path::new("b.db"));
}

#[test]
fn a_file_that_is_no_text_says_so_with_what_to_do() {
    let setup = Setup::empty();
    fs::write(
        setup.dir.path().join("watchkeeper.toml"),
        b"[locks]\n# \xff\n",
    )
    .unwrap();
    let line = setup.problem();
    assert!(
        line.ends_with("it is no text in UTF-8; save it as UTF-8"),
        "{line}"
    );
}

#[test]
fn a_secret_may_stand_in_a_file() {
    let setup = Setup::empty()
        .env("LOCKS__BACKEND", "redis")
        .env("LOCKS__REDIS__PASSWORD_FILE", "secrets/redis")
        .env("LOCKS__REDIS__NODES_FILE", "secrets/nodes");
    setup.write("secrets/redis", "pass word\n");
    setup.write(
        "secrets/nodes",
        "redis://:x@a\nredis://:x@b\nredis://:x@c\n",
    );
    let redis = setup.loaded().config.locks.redis;
    assert_eq!(redis.password.unwrap().expose(), "pass word");
    assert_eq!(redis.nodes[2].expose(), "redis://:x@c");
}

#[test]
fn an_unreadable_secret_is_an_error() {
    let setup = Setup::empty().env("LOCKS__REDIS__PASSWORD_FILE", "/etc/no-such-secret");
    assert_eq!(
        setup.problem(),
        "WATCHKEEPER_LOCKS__REDIS__PASSWORD_FILE: locks.redis.password: the file /etc/no-such-secret cannot be read: \
         No such file or directory (os error 2); check its path and permissions"
    );
    let twice = setup.env("LOCKS__REDIS__PASSWORD", "x");
    assert!(twice.problem().contains("the value is given twice"));
}

#[test]
fn a_file_overrides_only_the_named_keys_of_a_job_in_code() {
    let spec = Spec::cron("0 8 * * Mon-Fri")
        .zone("Europe/Rome")
        .ttl(8.secs())
        .retry(Retry {
            attempts: 5,
            backoff: 2.secs(),
            max_backoff: 9.secs(),
        });
    let file = "[jobs.report]\nttl = \"6s\"\nretry = 2\nparams = { to = \"me\" }";
    let setup = Setup::file(file)
        .code("report", spec.clone().params(serde_json::json!({"a": 1})))
        .env("JOBS__REPORT__RETRY__BACKOFF", "3s");
    let loaded = setup.loaded();
    let report = &loaded.config.jobs["report"];
    assert_eq!(report.zone, "Europe/Rome");
    assert_eq!(report.schedule, spec.schedule);
    assert_eq!(report.ttl, Some(6.secs()));
    let expected = Retry {
        attempts: 2,
        backoff: 3.secs(),
        max_backoff: 9.secs(),
    };
    assert_eq!(report.retry, expected);
    assert_eq!(report.params, serde_json::json!({"a": 1, "to": "me"}));
    let origin = |key: &str| {
        loaded
            .provenance
            .of(&format!("jobs.report.{key}"))
            .to_string()
    };
    assert_eq!(origin("zone"), "code");
    assert_eq!(origin("retry.attempts"), "watchkeeper.toml:3:9");
    assert_eq!(origin("retry.max_backoff"), "code");
}

#[test]
fn merging_a_spec_is_what_the_file_does() {
    let spec = Spec::every(30.secs()).retry(5);
    let overrides = serde_json::json!({"retry": 2, "misfire": "all", "params": {"x": 1}});
    let merged = spec.merge(overrides.as_object().unwrap()).unwrap();
    assert_eq!(merged.schedule, Some("@every 30s".into()));
    assert_eq!((merged.retry.attempts, merged.misfire), (2, Misfire::All));
    let wrong = serde_json::json!({"tlt": "1s"});
    assert!(spec.merge(wrong.as_object().unwrap()).is_err());
}

#[test]
fn a_spec_reads_like_a_sentence() {
    let spec = Spec::continuous()
        .coordination(Coordination::Batch)
        .timeout(5.mins())
        .grace(200.millis())
        .misfire_window(1.hours())
        .enabled(false);
    assert_eq!(spec.timeout, Some(Duration::from_secs(300)));
    for interval in [100.millis(), 90.secs(), 1500.millis(), 36.hours(), 3.days()] {
        assert!(
            Spec::every(interval).parse_schedule().is_ok(),
            "{interval:?}"
        );
    }
}

#[test]
fn pauses_double_up_to_the_longest() {
    let retry = Retry {
        attempts: 6,
        backoff: 1.secs(),
        max_backoff: 5.secs(),
    };
    let pauses: Vec<_> = (1..=6).map(|attempt| retry.pause_after(attempt)).collect();
    let expected = [Some(1), Some(2), Some(4), Some(5), Some(5), None];
    assert_eq!(pauses, expected.map(|secs| secs.map(Duration::from_secs)));
    let endless = Retry {
        attempts: u32::MAX,
        ..retry
    };
    assert_eq!(endless.pause_after(u32::MAX - 1), Some(5.secs()));
}

#[test]
fn a_kind_decides_what_a_text_among_its_parameters_is() {
    let file = "[jobs.mail]\nkind = \"notifications\"\nschedule = \"continuous\"\ncoordination = \"batch\"";
    let setup = Setup::file(file)
        .env("JOBS__MAIL__PARAMS__BATCH_SIZE", "100")
        .env("JOBS__MAIL__PARAMS__TABLE", "100")
        .env("JOBS__MAIL__PARAMS__COLUMNS__ID", "7")
        .params(|_, params| {
            let fits = params["batch_size"].is_u64() && params["table"].is_string();
            let mut found = Findings::default();
            if !fits {
                found.error(&[""], "wrong", "");
            }
            found
        });
    let params = &setup.loaded().config.jobs["mail"].params;
    let expected = serde_json::json!({"batch_size": 100, "table": "100", "columns": {"id": "7"}});
    assert_eq!(*params, expected);
}

/// However many there are, and although its check tells one problem at a time, as one that reads a type does.
#[test]
fn a_kind_decides_what_each_of_many_texts_is() {
    let file = "[jobs.mail]\nkind = \"notifications\"\nschedule = \"continuous\"\ncoordination = \"batch\"";
    let names = ["A", "B", "C", "D", "E", "F", "G", "H", "I"];
    let setup = names.into_iter().fold(Setup::file(file), |setup, name| {
        setup.env(&format!("JOBS__MAIL__PARAMS__{name}"), "100")
    });
    let texts = ["b", "h"];
    let setup = setup.params(move |_, params| {
        let mut all = params.as_object().unwrap().iter();
        let wrong = all.find(|(name, value)| value.is_string() != texts.contains(&name.as_str()));
        let mut found = Findings::default();
        if let Some((name, _)) = wrong {
            found.error(&[name.as_str()], "wrong", "");
        }
        found
    });
    for (name, value) in setup.loaded().config.jobs["mail"]
        .params
        .as_object()
        .unwrap()
    {
        assert_eq!(value.is_string(), texts.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn a_variable_finds_a_job_with_a_hyphen() {
    let setup = Setup::empty()
        .code("nightly-report", Spec::cron("@daily"))
        .env("JOBS__NIGHTLY_REPORT__TTL", "5s")
        .env("JOBS__NIGHTLY-REPORT__GRACE", "6s");
    let report = &setup.loaded().config.jobs["nightly-report"];
    assert_eq!((report.ttl, report.grace), (Some(5.secs()), 6.secs()));
}

#[test]
fn odd_names_of_variables_are_errors_and_no_more() {
    for name in [
        "LOCKS__",
        "__TTL",
        "____",
        "LOCKS__TTL__MORE",
        "JOBS__",
        "LOCKS__REDIS",
        "JOBS__A__PARAMS",
    ] {
        for line in Setup::empty().env(name, "x").lines() {
            assert!(line.starts_with(&format!("WATCHKEEPER_{name}: ")), "{line}");
        }
    }
    let setup = Setup::empty()
        .code("a", Spec::cron("@daily"))
        .env("JOBS__A__PARAMS__X", "1")
        .env("JOBS__A__PARAMS__X__Y", "2");
    let params = &setup.loaded().config.jobs["a"].params;
    assert_eq!(*params, serde_json::json!({"x": {"y": "2"}}));
}

#[test]
fn faults_of_jobs_do_not_matter_to_who_only_wants_the_locks() {
    let file = "[locks]\nttl = \"8s\"\n[jobs.a]\nkind = \"of another program\"\nschedule = \"never\"\nnonsense = 1";
    let setup = Setup::file(file)
        .env("JOBS__A__TTL", "of no length")
        .code("b", Spec::default());
    assert!(load(&setup.options).is_err());
    let loaded = load_without_jobs(&setup.options).unwrap();
    assert!(loaded.config.jobs.is_empty() && loaded.problems.is_empty());
    assert_eq!(loaded.config.locks.ttl, 8.secs());
    assert_eq!(
        loaded.provenance.of("locks.ttl").to_string(),
        "watchkeeper.toml:2:7"
    );

    let problems =
        load_without_jobs(&Setup::file("[locks]\nttl = \"1h\"\n[jobs.a]\nx = 1").options);
    let problems = problems.unwrap_err();
    assert_eq!(problems.iter().len(), 1, "{problems}");
    let syntax = load_without_jobs(&Setup::file("[jobs.a]\nx = ").options);
    assert!(syntax.is_err(), "the whole file must be readable");
}
