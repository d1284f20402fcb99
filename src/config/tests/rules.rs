//! Every fault, with its place and its remedy.

use super::*;

#[test]
fn a_key_that_has_gone_is_a_warning_with_its_remedy() {
    let line = problem("[locks.redis]\npool_size = 4");
    assert!(
        line.contains("locks.redis.pool_size: has no effect: one connection for each node carries all calls; remove it"),
        "{line}"
    );
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
    assert_eq!(
        problem("[locks]\n  tll = \"5s\""),
        "watchkeeper.toml:2:3: locks.tll: there is no such key; did you mean \"ttl\"?"
    );
    assert_eq!(
        problem("[lock]\nttl = \"5s\""),
        "watchkeeper.toml:1:2: lock: there is no such key; did you mean \"locks\"?"
    );
    assert_eq!(
        problem("[locks]\nnodes = []"),
        "watchkeeper.toml:2:1: locks.nodes: there is no such key; did you mean locks.redis.nodes?"
    );
    assert_eq!(
        problem("[telemetry]\nxyzzy = 1"),
        "watchkeeper.toml:2:1: telemetry.xyzzy: there is no such key"
    );
    let job = "[jobs.a]\nkind = \"heartbeat\"\nschedule = \"@daily\"\n";
    assert_eq!(
        problem(&format!("{job}misfires = \"all\"")),
        "watchkeeper.toml:4:1: jobs.a.misfires: there is no such key; did you mean \"misfire\"?"
    );
    assert!(problem(&format!("{job}retry = {{ attempt = 3 }}")).contains("\"attempts\""));
}

#[test]
fn keys_of_later_versions_do_not_exist() {
    let line = problem("telemetry.otlp_logs = \"x\"");
    assert!(line.contains("there is no such key"), "{line}");
}

#[test]
fn a_wrong_type_is_an_error() {
    for (file, expected) in [
        (
            "locks.ttl = 10",
            "1:13: locks.ttl: a duration needs a unit; write 10s",
        ),
        (
            "locks.ttl = \"soon\"",
            "locks.ttl: \"soon\" is not a duration such as \"10s\"",
        ),
        (
            "locks.drift = \"1%\"",
            "locks.drift: string \"1%\" is not a number",
        ),
        ("worker.threads = 1.5", "is not a whole number"),
        ("locks = [\"redis\"]", "1:9: locks: this must be a table"),
        ("jobs.a.retry = [3]", "jobs.a.retry: "),
        ("locks = 5", "1:9: locks: this must be a table"),
        ("locks.redis.nodes = \"redis://a\"", "this must be a list"),
        (
            "locks.backend = \"embeded\"",
            "\"embeded\" is not one of embedded, memory, redis, postgres, etcd; did you mean \"embedded\"?",
        ),
        ("telemetry.format = \"jsn\"", "did you mean \"json\"?"),
    ] {
        let line = problem(file);
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn every_fault_is_told_at_once() {
    let file = r#"
[worker]
drain_timeout = 30
threads = "two"
moed = "shared"

[locks]
ttl = "40s"

[jobs.Nightly]
kind = "hartbeat"
schedule = "61 * * * *"
"#;
    let setup = Setup::file(file).env("ADMIN__LISTEN", "8787");
    let lines = setup.lines();
    let starts = [
        "watchkeeper.toml:3:17: worker.drain_timeout: ",
        "watchkeeper.toml:4:11: worker.threads: ",
        "watchkeeper.toml:5:1: worker.moed: ",
        "watchkeeper.toml:8:7: locks.ttl: 40s is longer than max_ttl (30s); lower ttl or raise max_ttl",
        "watchkeeper.toml:10:7: jobs.Nightly: the name of a job has no upper case letters; write nightly",
        "watchkeeper.toml:11:8: jobs.Nightly.kind: there is no kind \"hartbeat\"; did you mean \"heartbeat\"?",
        "watchkeeper.toml:12:12: jobs.Nightly.schedule: minute \"61\"",
        "WATCHKEEPER_ADMIN__LISTEN: admin.listen: ",
    ];
    assert_eq!(lines.len(), starts.len(), "{lines:#?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\n{start}");
    }
}

#[test]
fn a_syntax_error_has_its_place_and_shows_no_value() {
    let line = problem("[locks]\nredis.password = \"hunter2\n");
    assert!(line.starts_with("watchkeeper.toml:2:"), "{line}");
    assert!(
        line.contains("redis.password = …") && !line.contains("hunter2"),
        "{line}"
    );
    let line = problem("[locks.redis]\nnodes = [\n  \"redis://:hunter2@a,\n]");
    assert!(!line.contains("hunter2"), "{line}");
    assert!(problem("locks.ttl = 10s").contains("`locks.ttl = 10s`"));
    assert!(problem("[locks\nttl = \"5s\"").starts_with("watchkeeper.toml:1:"));
    assert!(problem("a = 1\na = 2").contains("duplicate key"));
}

#[test]
fn a_rule_between_two_keys_is_shown_where_it_was_broken() {
    assert_eq!(
        problem("[locks]\nmax_ttl = \"5s\""),
        "watchkeeper.toml:2:11: locks.ttl: 10s is longer than max_ttl (5s); lower ttl or raise max_ttl"
    );
}

#[test]
fn a_rule_is_silent_about_a_value_that_could_not_be_read() {
    let line = problem("[locks]\nttl = 3\nmax_ttl = \"5s\"");
    assert!(line.contains("write 3s"), "{line}");
}

#[cfg(feature = "redis-tls")]
#[test]
fn files_for_tls_are_looked_at_by_the_check() {
    let file = |scheme: &str| {
        format!(
            "[locks]\nbackend = \"redis\"\n[locks.redis]\nnodes = [\"{scheme}://me:hunter2@a\"]\ntls.ca = \"/no/ca.pem\""
        )
    };
    let line = problem(&file("rediss"));
    assert!(
        line.contains("locks.redis.tls.ca: /no/ca.pem cannot be read"),
        "{line}"
    );
    assert!(!line.contains("hunter2"), "{line}");
    let line = problem(&file("redis"));
    assert!(line.contains("write rediss://"), "{line}");
}

#[cfg(feature = "redis")]
#[test]
fn a_ttl_leaves_the_nodes_time_to_answer() {
    let redis = "[locks]\nttl = \"900ms\"\nbackend = \"redis\"\nredis.nodes = [\"redis://a\"]";
    assert_eq!(
        problem(redis),
        "watchkeeper.toml:2:7: locks.ttl: 900ms is shorter than 20 times node_timeout (50ms); \
         raise ttl to 1s or lower node_timeout"
    );
    assert_eq!(Setup::file("locks.ttl = \"900ms\"").lines(), [""; 0]);
}

#[test]
fn a_fresh_lease_leaves_time_to_stop_its_work() {
    assert_eq!(
        problem("locks.min_validity = \"3s\""),
        "watchkeeper.toml:1:22: locks.min_validity: min_validity (3s) must exceed ttl/4 + the abort margin (3s), \
         or a fresh lease is over before its work is stopped; raise min_validity"
    );
    assert!(problem("locks.min_validity = \"10s\"").contains("is not shorter than ttl (10s)"));
    assert!(problem("locks.ttl = \"400ms\"").contains("raise ttl above 400ms"));
    assert_eq!(Setup::file("locks.ttl = \"2s\"").lines(), [""; 0]);
    assert!(problem("locks.ttl = \"0s\"").contains("no length"));
}

#[test]
fn a_job_s_own_ttl_keeps_the_same_rules() {
    let line = Setup::file("jobs.a.ttl = \"40s\"")
        .code("a", Spec::cron("@daily"))
        .problem();
    assert_eq!(
        line,
        "watchkeeper.toml:1:14: jobs.a.ttl: 40s is longer than max_ttl (30s); lower ttl or raise max_ttl"
    );
}

#[test]
fn numbers_out_of_range_are_errors() {
    for (file, expected) in [
        ("locks.drift = 0.5", "locks.drift: 0.5 is not a share"),
        ("locks.drift = nan", "locks.drift"),
        (
            "locks.max_ttl = \"116d\"\nlocks.retention = \"200d\"",
            "locks.max_ttl: 2784h is longer than a store keeps a lease (115 days); lower max_ttl to 2760h",
        ),
        (
            "locks.retention = \"20s\"",
            "locks.retention: 20s is shorter than max_ttl (30s)",
        ),
        (
            "worker.threads = 0",
            "worker.threads: no job could run on 0 threads",
        ),
        (
            "worker.namespace = \"a b\"",
            "worker.namespace: \"a b\" cannot begin",
        ),
        ("worker.name = \"\"", "worker.name: the name is empty"),
        (
            "worker.namespace = \"a\\nerror: b\"",
            "worker.namespace: \"a\\nerror: b\" cannot begin",
        ),
        (
            "worker.name = \"a\\nb\"",
            "worker.name: \"a\\nb\" holds what a terminal would obey",
        ),
        #[cfg(feature = "log")]
        (
            "telemetry.log = \"inof\"",
            "telemetry.log: \"inof\" is no level: write error, warn, info, debug, trace or off, or TARGET=LEVEL",
        ),
        #[cfg(feature = "log")]
        ("telemetry.log = \"info,=x=y\"", "telemetry.log"),
    ] {
        let line = problem(file);
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn names_have_a_hundred_characters_at_most() {
    for key in ["name", "namespace"] {
        let file = |length| format!("worker.{key} = \"{}\"", "a".repeat(length));
        Setup::file(&file(100)).loaded();
        let line = problem(&file(101));
        assert!(line.contains("101 characters are more than 100"), "{line}");
    }
}

#[cfg(all(feature = "sqlite", feature = "redis"))]
#[test]
fn nodes_that_nothing_says_to_use_are_refused() {
    let told = "locks.redis.nodes: nodes are named, but nothing says that they are to be used: each machine would have a store \
                of its own; set locks.backend = \"redis\" (WATCHKEEPER_LOCKS__BACKEND=redis), or leave the nodes out";
    let file = "[locks.redis]\nnodes = [\"redis://a\"]";
    assert_eq!(problem(file), format!("watchkeeper.toml:2:9: {told}"));
    let by_variable = Setup::empty().env("LOCKS__REDIS__NODES", "redis://a");
    let said = by_variable.problem();
    assert_eq!(said, format!("WATCHKEEPER_LOCKS__REDIS__NODES: {told}"));
    assert!(load_without_jobs(&by_variable.options).is_err());
    // A store that code chooses was not chosen by the variable that names nodes.
    let mut by_code = by_variable;
    by_code.options.code.locks = Some(LockSettings::default());
    assert_eq!(by_code.problem(), said);
    for chosen in ["redis", "embedded"] {
        Setup::file(file).env("LOCKS__BACKEND", chosen).loaded();
    }
    assert_eq!(Setup::file("locks.redis.nodes = []").lines(), [""; 0]);
    let etcd = Setup::file("locks.etcd.endpoints = [\"http://a:2379\"]").problem();
    assert!(
        etcd.contains("locks.etcd.endpoints: a cluster is named, but nothing says"),
        "{etcd}"
    );
    // The one fault, where the backend is misspelt.
    let line = Setup::file(file).env("LOCKS__BACKEND", "reddis").problem();
    assert!(line.contains("locks.backend"), "{line}");
}

#[cfg(feature = "redis")]
#[test]
fn what_cannot_be_had_behind_sentinel_is_refused_with_the_remedy() {
    let with = |nodes: &str, more: &str| {
        format!("locks.backend = \"redis\"\nlocks.redis.nodes = [{nodes}]\n{more}")
    };
    let sentinel = "\"sentinel://:hunter2@a,b,c/orders\"";
    let fleet = Setup::file(&with(sentinel, ""))
        .loaded()
        .config
        .locks
        .fleet();
    assert!(fleet.is_some_and(|fleet| fleet.failover && fleet.nodes == 1));
    for (file, part) in [
        (
            with(&format!("{sentinel}, \"redis://d\", \"redis://e\""), ""),
            "is one node, and the only one",
        ),
        (
            with(sentinel, "locks.restart_guard = \"off\""),
            "locks.restart_guard: a promoted server has not got all",
        ),
        (
            with("\"cluster://a,b,c\"", "locks.raw_keys = true"),
            "locks.raw_keys: other clients take locks",
        ),
        (
            with("\"sentinel://a,b,c\"", ""),
            "the name of the master is missing",
        ),
        (
            with(
                "\"sentinels://a,b,c/m\"",
                "locks.redis.tls.ca = \"none.pem\"",
            ),
            match cfg!(feature = "redis-tls") {
                true => "none.pem",
                false => "wants the feature \"redis-tls\"",
            },
        ),
        (
            with(sentinel, "locks.redis.tls.ca = \"none.pem\""),
            "no node is asked with TLS",
        ),
    ] {
        let lines = Setup::file(&file).lines();
        let errors = lines.join("\n");
        assert!(errors.contains(part), "{file}: {errors}");
        assert!(!errors.contains("hunter2"), "{errors}");
    }
}

#[test]
fn parameters_do_not_matter_to_commands_that_only_ask() {
    let file = "[jobs.a]\nkind = \"heartbeat\"\nschedule = \"@daily\"\nparams.cwd = \"./nope\"";
    let setup = Setup::file(file).params(|_, _| {
        let mut found = Findings::default();
        found.error(&["cwd"], "./nope is no directory", "");
        found
    });
    assert!(setup.problem().contains("./nope is no directory"));
    let asked = load::load_to_ask(&setup.options).unwrap();
    assert_eq!(asked.config.jobs.len(), 1);
    // What is wrong with the job itself is wrong everywhere.
    setup.write("watchkeeper.toml", &file.replace("@daily", "@dayly"));
    assert!(load::load_to_ask(&setup.options).is_err());
}

#[cfg(feature = "redis")]
fn nodes(list: &str) -> String {
    format!("[locks]\nbackend = \"redis\"\n[locks.redis]\nnodes = [{list}]")
}

#[cfg(feature = "redis")]
#[test]
fn an_even_number_of_nodes_is_a_warning() {
    let setup = Setup::file(&nodes(
        "\"redis://a\", \"redis://b\", \"redis://c\", \"redis://d\"",
    ));
    assert_eq!(
        setup.problem(),
        "watchkeeper.toml:4:9: warning: locks.redis.nodes: 4 nodes survive the loss of 1, as 3 would; use an odd number"
    );
    assert_eq!(setup.loaded().problems.iter().len(), 1);
}

#[cfg(feature = "redis")]
#[test]
fn what_gives_up_a_promise_is_a_warning() {
    let text = nodes("\"redis://a\"");
    assert_eq!(Setup::file(&text).lines(), [""; 0]);
    let guard = Setup::file(&text).env("LOCKS__RESTART_GUARD", "off");
    assert_eq!(
        guard.problem(),
        "WATCHKEEPER_LOCKS__RESTART_GUARD: warning: locks.restart_guard: a server that has lost its memory votes at \
         once: two may hold one lock; set restart_guard = \"call\", unless no server can lose its memory"
    );
    guard.loaded();
    let expiry = Setup::file(&text).env("LOCKS__EXPIRY", "server");
    let problem = expiry.problem();
    assert!(
        problem.contains("warning: locks.expiry: leases end by the wall clocks")
            && problem.contains("leave expiry out"),
        "{problem}"
    );
    expiry.loaded();
    // Other stores forget nothing, and count on a clock that does not jump.
    let embedded = Setup::file("[locks]\nrestart_guard = \"off\"\nexpiry = \"server\"");
    assert_eq!(embedded.lines(), [""; 0]);
}

#[cfg(feature = "redis")]
#[test]
fn the_same_node_twice_is_an_error() {
    assert_eq!(
        problem(&nodes(
            "\"redis://a\", \"redis://b\", \"redis://:pw@A:6379/2\""
        )),
        "watchkeeper.toml:4:36: locks.redis.nodes[2]: \"redis://:***@A:6379/2\" is the same server as nodes[0], \
         which would vote twice; name each server once; databases of one server fail together"
    );
}

#[cfg(feature = "redis")]
#[test]
fn a_bad_address_is_told_without_its_password() {
    let line = problem(&nodes("\"redis://me:hunter2@a:port\""));
    assert!(
        line.contains("\"redis://me:***@a:port\" is no address of a Redis node: the port"),
        "{line}"
    );
    assert!(!line.contains("hunter2"));
    assert!(problem(&nodes("")).contains("no node is named"));
}

#[cfg(feature = "redis")]
#[test]
fn secrets_are_in_no_message_and_no_listing() {
    let file = nodes("\"redis://me:hunter2@a\"")
        + "\nusername = \"me\"\npassword = \"hunter2\"\n[jobs.n]\nkind = \"notifications\"\n\
           schedule = \"continuous\"\ncoordination = \"batch\"\nparams.sink = \"https://u:hunter2@x/y\"\n\
           params.api_token = \"hunter2\"\nparams.list = [\"smtp://u:hunter2@h\"]";
    let loaded = Setup::file(&file).loaded();
    for shown in [
        loaded.render(false),
        loaded.render(true),
        format!("{:?}", loaded.config.locks),
    ] {
        assert!(
            !shown.contains("hunter2") && shown.contains("***"),
            "{shown}"
        );
    }
    // What does not fit is not repeated either.
    for wrong in [
        "password = 271828",
        "nodes = [271828]",
        "password = [271828]",
        "nodes = 271828",
    ] {
        let line = problem(&format!("[locks.redis]\n{wrong}"));
        assert!(!line.contains("271828"), "{line}");
    }
}

#[test]
fn a_secret_on_a_line_of_its_own_is_in_no_message() {
    let broken = [
        "[locks.redis]\npassword =\nhunter2",
        "[locks.redis]\npassword =\n\"hunter2",
        "[locks.redis]\npassword = \"\"\"\nhunter2\n",
        "[locks.redis]\npassword = \"\"\"\n\\hunter2\n\"\"\"",
        "[locks.redis]\nnodes = [\n  \"redis://a\"\n  \"hunter2\"\n]",
        "[locks.redis]\nnodes = [\n  [hunter2",
        "[jobs.a.params]\ncommand = [\n  \"x\",\n  \"hunter2\" \"y\",\n]",
        "hunter2",
        "hunter2==",
        "hunter2 = = 1",
        "\"hunter2\" = = 1",
        "[hunter2",
        "[locks.hunter2",
        "password = hunter2",
        "[admin]\ntoken = 'hunter2",
        "[admin]\ntoken = \"a\"\ntoken = \"hunter2\"",
        "name = \"redis://:hunter2@h",
        "\u{1b}]0;hunter2",
    ];
    for file in broken {
        let line = problem(file);
        assert!(!line.contains("hunter2"), "{file}: {line}");
        assert!(line.starts_with("watchkeeper.toml:"), "{file}: {line}");
    }
    let line = problem("[locks]\nttl = 10s");
    assert!(line.contains("in the line `ttl = 10s`"), "{line}");
    assert!(problem("[locks").contains("in the line `[locks`"));
}

#[test]
fn a_password_at_a_wrong_place_is_in_no_message() {
    for wrong in [
        "admin.listen = \"redis://:hunter2@h\"",
        "admin.trusted_proxies = [\"http://me:hunter2@h\"]",
        "locks.ttl = \"redis://:hunter2@h\"",
        "locks.backend = \"redis://:hunter2@h\"",
        "worker.threads = \"redis://:hunter2@h\"",
        "locks = \"redis://:hunter2@h\"",
        "jobs.a.schedule = [[\"redis://:hunter2@h\"]]",
        "jobs.a.schedule = [[\"redis://:hunter2@h\", 1], \"@daily\"]",
    ] {
        let line = problem(wrong);
        assert!(!line.contains("hunter2"), "{line}");
        let (path, value) = wrong.split_once(" = ").unwrap();
        let name = path.to_uppercase().replace('.', "__");
        let lines = Setup::empty().env(&name, value).lines().join("\n");
        assert!(!lines.contains("hunter2"), "{lines}");
    }
    // Texts that are none of their kind are quoted where they are told to be none.
    for key in ["schedule", "zone", "starting", "until", "except"] {
        for value in [
            "redis://:hunter2@h",
            "[redis://:hunter2@h",
            "a:hunter2 b@h c d",
        ] {
            let file = match key {
                "schedule" => job(&format!("schedule = \"{value}\"")),
                "except" => job(&format!("schedule = \"@daily\"\nexcept = [\"{value}\"]")),
                _ => job(&format!("schedule = \"@daily\"\n{key} = \"{value}\"")),
            };
            let name = format!("JOBS__A__{}", key.to_uppercase());
            let from_file = Setup::file(&file).lines();
            let plain = Setup::file(&job("schedule = \"@daily\""));
            let from_env = plain.env(&name, value).lines();
            for lines in [from_file, from_env] {
                assert!(!lines.is_empty(), "{key} = {value}");
                let lines = lines.join("\n");
                assert!(!lines.contains("hunter2"), "{lines}");
                assert!(lines.contains(&format!("jobs.a.{key}")), "{lines}");
            }
        }
    }
    // The password in the place of the file that holds it.
    for key in ["LOCKS__REDIS__PASSWORD_FILE", "ADMIN__TOKEN_FILE"] {
        for value in ["hunter2", "hun/hunter2", "hunter2/x"] {
            let line = Setup::empty().env(key, value).problem();
            assert!(!line.contains("hunter2"), "{line}");
        }
        let line = Setup::empty().env(key, "./missing").problem();
        assert!(line.contains("./missing cannot be read"), "{line}");
    }
}

#[test]
fn what_a_program_is_given_is_in_no_listing() {
    let file = "[jobs.e]\nkind = \"heartbeat\"\nschedule = \"@daily\"\n[jobs.e.params]\n\
        command = [\"/usr/bin/pg_dump\", \"--password\", \"hunter2\", \"postgres://u:hunter2@h/d\"]\n\
        env = { PGPASSWORD = \"hunter2\", DSN = \"hunter2\" }\nbody = '{\"k\": \"hunter2\"}'";
    let loaded = Setup::file(file).loaded();
    for shown in [
        loaded.render(false),
        loaded.render(true),
        format!("{:?}", loaded.config),
        format!("{loaded:?}"),
    ] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let shown = loaded.render(false);
    assert!(shown.contains("/usr/bin/pg_dump"), "{shown}");
    assert!(shown.contains("PGPASSWORD = \"***\""), "{shown}");
}

#[test]
fn every_address_that_others_reach_is_told() {
    for (listen, told) in [
        ("127.0.0.1:1", false),
        ("[::1]:1", false),
        ("off", false),
        ("0.0.0.0:1", true),
        ("[::]:1", true),
        ("192.0.2.1:1", true),
    ] {
        let lines = Setup::file(&format!("admin.listen = \"{listen}\"")).lines();
        let open = lines
            .iter()
            .any(|line| line.contains("open to other machines"));
        assert_eq!(open, told && cfg!(feature = "admin"), "{listen}: {lines:?}");
    }
    let line = problem("admin.trusted_proxies = [\"0.0.0.0/0\"]");
    assert!(line.contains("every client counts as a proxy"), "{line}");
    let line = problem("admin.hosts = [\"ok.example\", \"http://x/\"]");
    assert!(
        line.contains("admin.hosts[1]: \"http://x/\" is not the name"),
        "{line}"
    );
    assert!(problem("admin.token = \"short\"").contains("can be guessed"));
}

#[cfg(feature = "sqlite")]
#[test]
fn a_store_that_others_could_change_is_an_error() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let setup = Setup::file("locks.embedded.path = \"state/s.db\"");
    setup.write("state/real.db", "");
    let state = setup.dir.path().join("state");
    symlink("real.db", state.join("s.db")).unwrap();
    let line = setup.problem();
    assert!(
        line.contains("locks.embedded.path: ")
            && line.contains("s.db is a symbolic link; name the file"),
        "{line}"
    );
    fs::remove_file(state.join("s.db")).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
    let line = setup.problem();
    assert!(
        line.contains("can be written by other users (mode 777); take"),
        "{line}"
    );
}

#[test]
fn headers_with_credentials_are_masked_and_names_of_files_are_not() {
    let file = "[jobs.h]\nkind = \"heartbeat\"\nschedule = \"@daily\"\n[jobs.h.params]\n\
        url = \"https://u:hunter2@h/x?api_key=hunter2\"\n\
        headers = { Authorization = \"hunter2\", proxy-authorization = \"hunter2\", Cookie = \"s=hunter2\", \
        X-Api-Key = \"hunter2\", X-Other = \"Bearer hunter2\", Idempotency-Key = \"${tick}\" }\n\
        header_files = { X-Vault-Token = \"/run/secrets/vault\" }\n\
        secrets = [\"hunter2\", \"hunter2\"]";
    let loaded = Setup::file(file).loaded();
    for shown in [loaded.render(false), loaded.render(true)] {
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(shown.matches("\"***\"").count(), 6, "{shown}");
        for kept in [
            "${tick}",
            "/run/secrets/vault",
            "https://u:***@h/x?api_key=***",
        ] {
            assert!(shown.contains(kept), "{shown}");
        }
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn a_path_that_cannot_be_written_is_an_error() {
    let setup = Setup::file("locks.embedded.path = \"plain/store.db\"");
    setup.write("plain", "a file where a directory should be");
    let line = setup.problem();
    assert!(
        line.starts_with("watchkeeper.toml:1:23: locks.embedded.path: /")
            && line.contains("/plain/store.db cannot be made: ")
            && line.ends_with("plain is no directory; use another path"),
        "{line}"
    );
    let setup = Setup::file("locks.embedded.path = \".\"");
    assert!(setup.problem().contains("is a directory"));
    let missing = Setup::file("locks.embedded.path = \"a/b/c/store.db\"");
    assert_eq!(missing.lines(), [""; 0]);
    assert!(
        !missing.dir.path().join("a").exists(),
        "a check makes nothing"
    );
}

fn job(lines: &str) -> String {
    format!("[jobs.a]\nkind = \"heartbeat\"\n{lines}")
}

#[test]
fn a_bad_schedule_names_its_field() {
    for (lines, expected) in [
        (
            "schedule = \"0 25 * * *\"",
            "3:12: jobs.a.schedule: hour \"25\"",
        ),
        ("schedule = \"* * * *\"", "jobs.a.schedule: 4 fields"),
        (
            "schedule = \"0 0 8 * * 1\"",
            "jobs.a.schedule: day of week \"1\": 1 means Monday in crontab, Sunday in quartz",
        ),
        ("schedule = \"@dayly\"", "jobs.a.schedule: unknown schedule"),
        (
            "schedule = \"@daily\"\nzone = \"Europe/Rom\"",
            "4:8: jobs.a.zone: unknown time zone \"Europe/Rom\"",
        ),
        (
            "",
            "1:7: jobs.a.schedule: the job has no schedule; write schedule",
        ),
        (
            "schedule = [\"@daily\", \"0 25 * * *\"]",
            "3:12: jobs.a.schedule: hour \"25\"",
        ),
        (
            "schedule = [\"@daily\", \"continuous\"]",
            "jobs.a.schedule: \"continuous\" has no ticks: it stands alone",
        ),
        ("schedule = []", "jobs.a.schedule: the schedule is empty"),
        (
            "schedule = 5",
            "jobs.a.schedule: integer \"5\" is not a text in quotes or a list of them",
        ),
        (
            "schedule = \"@daily\"\nstarting = \"2027-01-01\"\nuntil = \"2026-12-24\"",
            "5:9: jobs.a.until: \"2026-12-24\" comes before starting (\"2027-01-01\")",
        ),
        (
            "schedule = \"@daily\"\nstarting = \"tomorrow\"",
            "4:12: jobs.a.starting: \"tomorrow\" is no time",
        ),
        (
            "schedule = \"@daily\"\nexcept = [\"Christmas\"]",
            "4:10: jobs.a.except: \"Christmas\" is no day",
        ),
        (
            "schedule = [\"0 8 * * *\", \"10 8 * * Mon\"]\njitter = \"10m\"",
            "4:10: jobs.a.jitter: 10m is not shorter than the shortest interval of the schedule (10m)",
        ),
        (
            "schedule = \"continuous\"\njitter = \"10m\"",
            "4:10: warning: jobs.a.jitter: it has no effect: continuous has no ticks",
        ),
    ] {
        let line = problem(&job(lines));
        assert!(line.contains(expected), "{line}");
    }
    assert_eq!(
        Setup::file(&job("schedule = \"0 0 8 * * 1\"\ndialect = \"quartz\"")).lines(),
        [""; 0]
    );
}

#[test]
fn a_schedule_may_be_a_list_also_in_the_environment() {
    let file = job("schedule = [\"0 8 * * Mon-Fri\", \"0 10 * * Sat,Sun\"]\njitter = \"30m\"");
    let setup = Setup::file(&file).env("JOBS__A__EXCEPT", "12-24, Sun");
    let loaded = setup.loaded();
    let spec = &loaded.config.jobs["a"];
    assert_eq!(spec.schedule.as_ref().map(|s| s.as_slice().len()), Some(2));
    assert_eq!(spec.except, ["12-24", "Sun"]);
    let list = "[\"@daily\", \"0 8,10 * * *\"]";
    let loaded = Setup::file(&file).env("JOBS__A__SCHEDULE", list).loaded();
    let written = loaded.config.jobs["a"].schedule.as_ref().unwrap();
    assert_eq!(written.as_slice(), ["@daily", "0 8,10 * * *"]);
    // A comma belongs to an expression: it makes no list.
    let one = Setup::file(&file).env("JOBS__A__SCHEDULE", "0 8,10 * * *");
    let loaded = one.loaded();
    assert!(
        loaded.config.jobs["a"]
            .schedule
            .as_ref()
            .unwrap()
            .is("0 8,10 * * *")
    );
}

#[test]
fn whoever_has_no_job_is_told_in_whole_sentences() {
    let alone = Setup::empty().loaded().runnable().unwrap_err().to_string();
    let elsewhere = Setup::file("locks.backend = \"redis\"\nlocks.redis.nodes = [\"redis://a\"]");
    let warned = elsewhere.loaded().runnable().unwrap().problems.to_string();
    for said in [alone, warned] {
        assert!(said.contains("there is no job"), "{said}");
        assert!(!said.contains("  "), "{said}");
    }
}

#[test]
fn a_job_needs_a_kind_or_code() {
    assert_eq!(
        problem("[jobs.a]\nschedule = \"@daily\""),
        "watchkeeper.toml:1:7: jobs.a.kind: the job has no kind, and the program has no job of this name; \
         known kinds: heartbeat, notifications"
    );
    assert_eq!(
        problem("[jobs.a]\nkind = \"exec\"\nschedule = \"@daily\""),
        "watchkeeper.toml:2:8: jobs.a.kind: there is no kind \"exec\"; known kinds: heartbeat, notifications"
    );
    let both = Setup::file("jobs.a.kind = \"heartbeat\"").code("a", Spec::cron("@daily"));
    assert!(
        both.problem()
            .contains("the program registers this job itself; leave kind out")
    );
}

#[test]
fn names_of_jobs_fit_keys_and_variables() {
    for name in ["a b", "a__b", "\u{e4}", "a.b"] {
        let line = problem(&format!(
            "[jobs.\"{name}\"]\nkind = \"heartbeat\"\nschedule = \"@daily\""
        ));
        assert!(line.contains("this is no name for a job"), "{line}");
    }
}

#[test]
fn coordination_and_schedule_must_make_sense_together() {
    for (lines, expected) in [
        (
            "schedule = \"@daily\"\ncoordination = \"batch\"",
            "jobs.a.coordination: a batch job looks for work all the time",
        ),
        (
            "schedule = \"@daily\"\ncoordination = \"everywhere\"\nttl = \"5s\"",
            "5:7: warning: jobs.a.ttl: it has no effect",
        ),
        (
            "schedule = \"continuous\"\nmisfire = \"all\"",
            "4:11: warning: jobs.a.misfire: it has no effect",
        ),
        (
            "schedule = \"@daily\"\nmisfire = \"all\"\nmisfire_limit = 0",
            "5:17: jobs.a.misfire_limit: 0 is not from 1 to",
        ),
        (
            "schedule = \"@daily\"\nunstoppable = \"abandon\"",
            "4:15: jobs.a.unstoppable: work that is abandoned goes on beside its successor, and this job does not say \
             that it may; write fenced = true if",
        ),
        (
            "schedule = \"@daily\"\ncoordination = \"everywhere\"\nfenced = true",
            "warning: jobs.a.fenced: it has no effect",
        ),
        (
            "schedule = \"@daily\"\nprogress_deadline = \"0s\"",
            "4:21: jobs.a.progress_deadline: every run would count as stuck",
        ),
        (
            "schedule = \"@daily\"\nmax_term = \"5s\"",
            "4:12: jobs.a.max_term: 5s is shorter than one lease (10s)",
        ),
        (
            "schedule = \"@daily\"\ncoordination = \"everywhere\"\nmax_term = \"1h\"",
            "warning: jobs.a.max_term: it has no effect",
        ),
        (
            "schedule = \"@daily\"\nmin_term = \"2h\"\nmax_term = \"1h\"",
            "4:12: jobs.a.min_term: 2h is longer than max_term (1h); lower min_term or raise max_term",
        ),
        (
            "schedule = \"@daily\"\ncoordination = \"everywhere\"\nmin_term = \"1h\"",
            "warning: jobs.a.min_term: it has no effect",
        ),
        (
            "schedule = \"@daily\"\nretry = 0",
            "4:9: jobs.a.retry.attempts: the job would never run",
        ),
        (
            "schedule = \"@daily\"\nretry.backoff = \"2m\"",
            "4:17: jobs.a.retry.backoff: 2m is longer than max_backoff (1m)",
        ),
        (
            "schedule = \"@daily\"\ngrace = \"1m\"",
            "warning: jobs.a.grace: 1m is longer than worker.drain_timeout (30s)",
        ),
        (
            "schedule = \"@daily\"\ntimeout = \"0s\"",
            "jobs.a.timeout: no run could end in time",
        ),
    ] {
        let line = problem(&job(lines));
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn a_kind_says_what_is_wrong_with_its_parameters() {
    let file = job("schedule = \"@daily\"\n[jobs.a.params]\nfile = 5");
    let setup = Setup::file(&file).params(|kind, params| {
        assert_eq!(kind, "heartbeat");
        assert_eq!(params["file"], 5);
        let mut found = Findings::default();
        found.error(&["file"], "not a text", "");
        found.error(&["table"], "missing", "");
        found
    });
    assert_eq!(
        setup.lines(),
        [
            "watchkeeper.toml:4:1: jobs.a.params.table: missing",
            "watchkeeper.toml:5:8: jobs.a.params.file: not a text",
        ]
    );
}

#[test]
fn a_number_of_shards_that_cannot_be_names_key_and_remedy() {
    let job = |lines: &str| {
        let file = format!("[jobs.a]\n{lines}");
        Setup::file(&file).code("a", Spec::cron("@daily")).problem()
    };
    for (lines, problem, remedy) in [
        (
            "shards = 0",
            "shards: there would be no job",
            "leave shards out",
        ),
        (
            "shards = 10001",
            "shards: 10001 is not from 1 to 10000",
            "some hundred shards",
        ),
        (
            "shards = 9223372036854775807",
            "shards: 9223372036854775807 is not from 1 to 10000",
            "some hundred shards",
        ),
        (
            "shards = 4\ncoordination = \"everywhere\"",
            "shards: each replica would do every part",
            "coordination = \"leader\"",
        ),
    ] {
        let line = job(lines);
        assert!(line.contains(&format!("jobs.a.{problem}")), "{line}");
        assert!(line.contains(remedy), "{line}");
    }
    for lines in [
        "shards = -1",
        "shards = 1.5",
        "shards = \"four\"",
        "shards = [4]",
        "shards = true",
    ] {
        let line = job(lines);
        assert!(line.contains("jobs.a.shards"), "{lines}: {line}");
    }
    for lines in [
        "shards = 1",
        "shards = 10000",
        "shards = 64\ncoordination = \"tick\"",
    ] {
        let file = format!("[jobs.a]\n{lines}");
        let setup = Setup::file(&file).code("a", Spec::cron("@daily"));
        assert_eq!(setup.lines(), [""; 0], "{lines}");
    }
    let by_env = Setup::file("")
        .code("a", Spec::cron("@daily"))
        .env("JOBS__A__SHARDS", "7");
    assert_eq!(by_env.loaded().config.jobs["a"].shards, Some(7));
}

#[test]
fn no_job_can_have_the_name_of_a_shard() {
    // So no clash is possible: neither from a file nor from code.
    let setup = Setup::file("").code("a", Spec::cron("@daily").shards(2));
    let line = setup.code("a.0", Spec::cron("@daily")).problem();
    assert!(line.contains("this is no name for a job"), "{line}");
}

#[test]
fn overlap_and_concurrency_that_cannot_hold_name_key_and_remedy() {
    let job = |lines: &str| {
        let file = format!("[jobs.a]\n{lines}");
        Setup::file(&file).code("a", Spec::cron("@daily")).problem()
    };
    for (lines, key, remedy) in [
        ("concurrency = 0", "concurrency: no run", "enabled = false"),
        (
            "concurrency = 17",
            "concurrency: 17 is not from 1 to 16",
            "\"batch\"",
        ),
        (
            "overlap = \"allow\"\nconcurrency = 1",
            "concurrency: with one run at a time",
            "leave it out for 16",
        ),
        (
            "schedule = \"continuous\"\noverlap = \"queue\"",
            "overlap: a continuous job",
            "leave overlap out",
        ),
        (
            "schedule = \"continuous\"\nconcurrency = 2",
            "concurrency: a continuous job",
            "leave concurrency out",
        ),
        (
            "schedule = \"continuous\"\ncoordination = \"batch\"\nconcurrency = 2",
            "concurrency: a batch job",
            "params.concurrency",
        ),
        (
            "coordination = \"tick\"\nconcurrency = 2",
            "concurrency: with coordination = \"tick\"",
            "\"leader\"",
        ),
        (
            "coordination = \"tick\"\noverlap = \"cancel-previous\"",
            "overlap: with coordination = \"tick\"",
            "\"queue\"",
        ),
        (
            "coordination = \"tick\"\nschedule = \"continuous\"",
            "coordination: a continuous job has no ticks",
            "\"leader\"",
        ),
        (
            "overlap = \"cancel\"",
            "overlap: \"cancel\" is not one of",
            "cancel-previous",
        ),
    ] {
        let line = job(lines);
        assert!(line.contains(&format!("jobs.a.{key}")), "{line}");
        assert!(line.contains(remedy), "{line}");
    }
    let fine = "[jobs.a]\noverlap = \"allow\"\n[jobs.b]\ncoordination = \"tick\"\noverlap = \"queue\"\nconcurrency = 1";
    let setup = Setup::file(fine)
        .code("a", Spec::cron("@daily"))
        .code("b", Spec::cron("@daily"));
    assert_eq!(setup.lines(), [""; 0]);
}

#[test]
fn a_wrong_zone_hides_no_other_fault_of_the_job() {
    let setup = Setup::file(
        "[jobs.a]\nkind = \"heartbeat\"\nschedule = [\"61 25 * * *\", \"@never\"]\nzone = \"Nowhere/At\"\n\
         starting = \"soon\"\nuntil = \"later\"\nexcept = [\"Sonntag\", \"13-41\"]\nttl = \"40s\"\n",
    );
    let lines = setup.lines();
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    for fault in [
        "jobs.a.schedule: minute \"61\"",
        "jobs.a.schedule: hour \"25\"",
        "jobs.a.schedule: unknown schedule \"@never\"",
        "jobs.a.zone: unknown time zone",
        "jobs.a.starting: \"soon\"",
        "jobs.a.until: \"later\"",
        "jobs.a.except: \"Sonntag\"",
        "jobs.a.except: \"13-41\"",
        "jobs.a.ttl: 40s is longer",
    ] {
        assert!(has(fault), "{fault} is missing: {lines:#?}");
    }
    assert_eq!(lines.len(), 9, "{lines:#?}");
}

#[test]
fn two_bounds_in_an_unknown_zone_are_not_compared() {
    let setup = Setup::file(
        "[jobs.a]\nkind = \"heartbeat\"\nschedule = \"@daily\"\nzone = \"Nowhere/At\"\n\
         starting = \"2026-05-04T08:00\"\nuntil = \"2026-05-04T07:00:00Z\"\n",
    );
    assert!(setup.problem().contains("unknown time zone"));
}

/// Faults, lists and texts that are no ASCII among them; some of the jobs come from code.
#[test]
fn loading_grows_with_the_jobs_and_not_with_their_square() {
    let steps = |jobs: usize| {
        let mut text = String::new();
        for n in 0..jobs {
            let zone = ["UTC", "Nowhere", "Europe/Rome"][n % 3];
            text += &format!(
                "[jobs.job-{n:05}]\nkind = \"heartbeat\" # ü\nschedule = [\"{} 3 * * *\", \"@daily\"]\n\
                 zone = \"{zone}\"\nparams = {{ list = [1, 2] }}\n",
                n % 60
            );
        }
        let mut setup = Setup::file(&text);
        for n in 0..jobs {
            setup = setup.code(&format!("job-{n:05}"), Spec::on("@hourly"));
        }
        effort::steps();
        assert!(load(&setup.options).is_err());
        effort::steps()
    };
    let (few, many) = (steps(100), steps(200));
    assert!(few > 100, "nothing was counted: {few}");
    assert!(
        many < few * 5 / 2,
        "twice the jobs cost {many} steps instead of {few}"
    );
}

/// With `jitter` a schedule is walked along for a thousand ticks.
#[test]
fn a_crowd_with_one_schedule_and_jitter_is_walked_along_once() {
    let steps = |jobs: usize| {
        let mut setup = Setup::file("");
        for n in 0..jobs {
            let spec = Spec::on("0 3 * * *").jitter(Duration::from_secs(60));
            setup = setup.code(&format!("job-{n:05}"), spec);
        }
        effort::steps();
        load(&setup.options).unwrap();
        effort::steps()
    };
    let (one, many) = (steps(1), steps(100));
    assert!(one > 1000, "nothing was counted: {one}");
    assert!(many < one + 1000, "{many} steps instead of {one}");
}
