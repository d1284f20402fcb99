//! What `deploy/` names is there: metrics with their labels, endpoints, variables, files, and what a release is made of. Each alert
//! has its texts, its section of the book, and is tried both ways. Reads files alone, but for one worker that is started: a second.
//!
//! Whether the programs understand it for which it is written, `tests/deploy` asks them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use watchkeeper::config::{Listen, SYSTEM_PLACE};

use super::{load_text, load_with, read, root};

const ALERTS: &str = "deploy/prometheus/alerts.yml";
const DEPLOYMENT: &str = "deploy/kubernetes/base/deployment.yaml";

/// Names of metrics begin so, and nothing else in this folder does.
const PREFIXES: [&str; 3] = ["distributed_lock_", "watchkeeper_", "process_"];
/// Labels that the scrape adds.
const OF_THE_SCRAPE: [&str; 2] = ["fleet", "instance"];
/// Labels whose values are fixed words.
const WORDS: [&str; 6] = ["cause", "op", "outcome", "reason", "state", "why"];

// === metrics and alerts

/// A metric as the reference tells of it.
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
}

#[test]
fn every_metric_that_is_named_is_there_with_these_labels() {
    let page = read("docs/reference/metrics.md");
    let metrics = metrics(&page);
    assert!(metrics.len() > 30, "{}", metrics.len());
    let mut tried = 0;
    for (file, text) in files() {
        for (name, behind) in named(&text) {
            let metric =
                known(&metrics, name).unwrap_or_else(|| panic!("{file}: there is no {name}"));
            for (label, value) in selector(behind) {
                let added =
                    OF_THE_SCRAPE.contains(&label) || (label == "le" && name.ends_with("_bucket"));
                assert!(
                    added || metric.labels.contains(label),
                    "{file}: {name} has no label {label}"
                );
                for word in value.split('|').filter(|_| WORDS.contains(&label)) {
                    assert!(
                        page.contains(&format!("`{word}`")),
                        "{file}: {name} has never {label}=\"{word}\""
                    );
                }
            }
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn a_metric_that_is_not_there_is_seen() {
    let page = read("docs/reference/metrics.md");
    let metrics = metrics(&page);
    let text = r#"x(distributed_lock_wait_seconds_bucket{le="1",op!~"a|b"}) / watchkeeper_leader"#;
    let found: Vec<&str> = named(text).iter().map(|(name, _)| *name).collect();
    assert_eq!(
        found,
        ["distributed_lock_wait_seconds_bucket", "watchkeeper_leader"]
    );
    assert_eq!(selector(named(text)[0].1), [("le", "1"), ("op", "a|b")]);
    for name in found {
        assert!(known(&metrics, name).is_some(), "{name}");
    }
    for name in [
        "watchkeeper_leaders",
        // A counter without its ending, a histogram as a whole, a part of what is none.
        "watchkeeper_job_runs",
        "distributed_lock_wait_seconds",
        "watchkeeper_leader_bucket",
    ] {
        assert!(known(&metrics, name).is_none(), "{name}");
    }
}

#[test]
fn every_alert_has_its_texts_and_its_section() {
    let rules = read(ALERTS);
    let alerts = alerts(&rules);
    assert!(alerts.len() > 20, "{}", alerts.len());
    for (name, rule) in &alerts {
        for wanted in ["summary", "description"] {
            let text = field(rule, wanted);
            let long = text.is_some_and(|text| text.len() > 10);
            assert!(long, "{name}: {wanted}");
        }
        let severity = field(rule, "severity");
        assert!(
            matches!(severity, Some("critical" | "warning")),
            "{name}: {severity:?}"
        );
        let section = format!("docs/operations/alerts.md#{}", name.to_lowercase());
        assert_eq!(field(rule, "runbook"), Some(section.as_str()), "{name}");
    }
    let page = read("docs/operations/alerts.md");
    let sections: Vec<(&str, &str)> = page
        .split("\n### ")
        .skip(1)
        .map(|section| section.split_once('\n').unwrap())
        .collect();
    let told = sections.iter().map(|(title, _)| *title);
    assert!(
        told.eq(alerts.iter().map(|(name, _)| *name)),
        "the sections of the page are the alerts, in their order"
    );
    for (title, section) in sections {
        for wanted in ["*Means:* ", "*Do:*"] {
            assert!(section.contains(wanted), "{title}: {wanted}");
        }
    }
}

#[test]
fn every_alert_is_tried_both_ways() {
    let tests = read("deploy/prometheus/alerts.test.yml");
    let cases: Vec<(&str, &str)> = tests
        .split(" alertname: ")
        .skip(1)
        .map(|case| {
            let (name, rest) = case.split_once('\n').unwrap();
            (name, rest.lines().next().unwrap_or_default().trim())
        })
        .collect();
    for (name, _) in alerts(&read(ALERTS)) {
        for expected in ["exp_alerts: []", "exp_alerts:"] {
            assert!(
                cases.contains(&(name, expected)),
                "{name}: no case has {expected}"
            );
        }
    }
}

#[test]
fn each_panel_of_the_dashboard_asks_for_metrics() {
    let text = read("deploy/grafana/watchkeeper.json");
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 20, "{}", panels.len());
    let mut ids = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].is_string(), "{title}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let expr = target["expr"].as_str().unwrap();
            assert!(!named(expr).is_empty(), "{title}: {expr}");
        }
    }
}

fn metrics(page: &str) -> BTreeMap<String, Metric> {
    let (_, made) = page.split_once("<!-- made: metrics -->").unwrap();
    let (table, rest) = made.split_once("<!-- end: metrics -->").unwrap();
    let mut found = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let metric = Metric {
            kind: cells[1].to_owned(),
            labels: quoted(cells[2]).map(str::to_owned).collect(),
        };
        found.insert(quoted(cells[0]).next().unwrap().to_owned(), metric);
    }
    // Those that the table has not: of the program and of the process.
    let (others, _) = rest.split_once("\n## ").unwrap();
    for name in quoted(others).filter(|name| is_metric(name)) {
        let version = (name == "watchkeeper_build_info").then(|| "version".to_owned());
        let metric = Metric {
            kind: "gauge".to_owned(),
            labels: version.into_iter().collect(),
        };
        found.insert(name.to_owned(), metric);
    }
    found
}

fn known<'a>(metrics: &'a BTreeMap<String, Metric>, name: &str) -> Option<&'a Metric> {
    let parts = ["_bucket", "_sum", "_count"];
    let whole = parts.iter().find_map(|part| name.strip_suffix(part));
    let is_histogram = |metric: &&Metric| metric.kind == "histogram";
    match whole.and_then(|whole| metrics.get(whole)) {
        Some(metric) => Some(metric).filter(is_histogram),
        // A histogram as a whole is no series.
        None => metrics.get(name).filter(|metric| !is_histogram(metric)),
    }
}

/// The metrics that a text names, each with all that stands behind it.
fn named(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        let behind = &text[at + word.len()..];
        if is_metric(word) {
            found.push((word, behind));
        }
        // One character stands between two words, and may have several bytes.
        at += word.len() + behind.chars().next().map_or(0, char::len_utf8);
    }
    found
}

fn is_metric(word: &str) -> bool {
    PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

/// What stands in braces behind a metric: labels, and what they are compared with.
fn selector(behind: &str) -> Vec<(&str, &str)> {
    let inner = behind
        .strip_prefix('{')
        .and_then(|rest| rest.split_once('}'));
    let Some((inner, _)) = inner else {
        return Vec::new();
    };
    let pairs = inner.split(',').map(|pair| {
        let end = pair.find(['=', '!']).unwrap_or(pair.len());
        let (label, value) = pair.split_at(end);
        // In JSON a quotation mark has a backslash before it.
        let value = value.trim_start_matches(['=', '!', '~', '"', '\\']);
        (label.trim(), value.trim_end_matches(['"', '\\']))
    });
    pairs.collect()
}

/// The name of each alert, and its rule.
fn alerts(rules: &str) -> Vec<(&str, &str)> {
    let found = rules.split(" - alert: ").skip(1);
    found.map(|rest| rest.split_once('\n').unwrap()).collect()
}

/// What stands behind the first key of this name.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

// === what workers are asked, and how they are configured

#[test]
fn every_endpoint_that_is_asked_is_open_to_all() {
    let page = read("docs/reference/endpoints.md");
    for (file, before) in [
        (DEPLOYMENT, " path: "),
        ("deploy/prometheus/prometheus.yml", " metrics_path: "),
        ("deploy/Dockerfile", "'GET "),
    ] {
        let text = read(file);
        let paths: Vec<&str> = text
            .split(before)
            .skip(1)
            .map(|rest| rest.split([' ', '\n']).next().unwrap())
            .collect();
        assert!(!paths.is_empty(), "{file}");
        for path in paths {
            let open = format!("| GET | `{path}` | open to all |");
            assert!(page.contains(&open), "{file}: {path}");
        }
    }
}

#[test]
fn prometheus_asks_by_names_that_workers_answer_to() {
    let loaded = load_text(&read("deploy/worker.toml")).unwrap();
    let Listen::At(at) = loaded.config.admin.listen else {
        panic!("nothing listens");
    };
    let text = read("deploy/prometheus/prometheus.yml");
    let targets = field(&text, "- targets").unwrap();
    let hosts = &loaded.config.admin.hosts;
    let asked: Vec<String> = targets
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    let answering: Vec<String> = hosts
        .iter()
        .map(|host| format!("{host}:{}", at.port()))
        .collect();
    assert_eq!(asked, answering);
}

#[test]
fn every_variable_that_is_named_sets_a_key() {
    let page = read("docs/reference/configuration.md");
    let mut found = BTreeSet::new();
    for (file, text) in files() {
        let words = text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
        for word in words {
            let Some(rest) = word.strip_prefix("WATCHKEEPER_") else {
                continue;
            };
            let direct = rest.trim_end_matches("_FILE");
            let key = direct.to_lowercase().replace("__", ".");
            assert!(page.contains(&format!("`{key}`")), "{file}: {word}");
            assert!(direct == rest || page.contains(word), "{file}: {word}");
            found.insert(word.to_owned());
        }
    }
    assert!(found.len() > 5, "{found:?}");
}

#[test]
fn each_overlay_gives_the_workers_a_configuration_that_loads() {
    let base = read(DEPLOYMENT);
    for overlay in ["redis", "postgres"] {
        let secrets = tempfile::tempdir().unwrap();
        let patch = read(&format!("deploy/kubernetes/overlays/{overlay}/locks.yaml"));
        let mut env = variables(&base);
        env.extend(variables(&patch));
        for (name, value) in &mut env {
            if name.ends_with("_FILE") {
                let (mounted, file) = value.rsplit_once('/').unwrap();
                let mount = format!("mountPath: {mounted}\n");
                assert!(base.contains(&mount), "{value}");
                let file = secrets.path().join(file);
                fs::write(&file, "a-secret-with-many-characters\n").unwrap();
                *value = file.display().to_string();
            }
        }
        assert!(env.len() > 3, "{env:?}");
        let text = read("deploy/kubernetes/base/worker.toml");
        let loaded =
            load_with(&text, env).unwrap_or_else(|problems| panic!("{overlay}: {problems}"));
        let told: Vec<&str> = loaded
            .problems
            .iter()
            .map(|told| told.key.as_str())
            .collect();
        assert_eq!(told, ["admin.listen"], "{overlay}: {}", loaded.problems);
        let config = loaded.config;
        let backend = format!("{:?}", config.locks.backend).to_lowercase();
        assert_eq!(backend, overlay);
        assert!(config.admin.token.is_some(), "one for all replicas");
        let Listen::At(at) = config.admin.listen else {
            panic!("nothing listens");
        };
        let port = format!("containerPort: {}\n", at.port());
        assert!(base.contains(&port), "{port}");
        assert!(base.contains(&format!("\"--config\", \"{SYSTEM_PLACE}\"")));
        let graces = config.jobs.values().map(|spec| spec.grace);
        let drain = config.worker.drain_timeout + graces.max().unwrap_or_default();
        let grace = drain.as_secs() + 10;
        let grace = format!("terminationGracePeriodSeconds: {grace}\n");
        assert!(base.contains(&grace), "{grace}");
    }
}

/// The variables of a container that have a value.
fn variables(yaml: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = yaml.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter_map(|pair| {
        let name = pair[0].strip_prefix("- name: ")?;
        let value = pair[1].strip_prefix("value: ")?;
        Some((name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

// === files and numbers

#[test]
fn every_file_that_is_named_is_there() {
    let mut named = 0;
    for (file, text) in files() {
        let folder = Path::new(&file).parent().unwrap();
        for line in text.lines().map(str::trim) {
            let Some(item) = line.strip_prefix("- ") else {
                continue;
            };
            // A file of its own, one that is mounted somewhere, or one that is called otherwise there.
            let item = item.strip_prefix("path: ").unwrap_or(item);
            let path = item.split(':').next().unwrap_or_default();
            let path = path.rsplit('=').next().unwrap_or_default();
            let ends = [".yaml", ".yml", ".toml", ".json"];
            if path.starts_with('.') || ends.iter().any(|end| path.ends_with(end)) {
                let there = root().join(folder).join(path);
                assert!(there.exists(), "{file}: {path}");
                named += 1;
            }
        }
    }
    assert!(named > 10, "{named}");
}

#[test]
fn the_pods_run_the_user_and_the_version_of_the_image() {
    let dockerfile = read("deploy/Dockerfile");
    let user = dockerfile.lines().find_map(|l| l.strip_prefix("USER "));
    let (user, group) = user.and_then(|user| user.split_once(':')).unwrap();
    assert!(dockerfile.contains(&format!("useradd --uid {user} --gid {group} ")));
    let deployment = read(DEPLOYMENT);
    for wanted in [
        format!("runAsUser: {user}\n"),
        format!("runAsGroup: {group}\n"),
        format!("fsGroup: {group}\n"),
    ] {
        assert!(deployment.contains(&wanted), "{wanted}");
    }
    let base = read("deploy/kubernetes/base/kustomization.yaml");
    assert_eq!(field(&base, "newTag"), Some(env!("CARGO_PKG_VERSION")));
}

/// Cargo goes by the times of files. Those of a checkout may be older than what another one has left in the cache.
#[test]
fn an_image_is_not_built_of_what_the_cache_has_of_another_checkout() {
    let dockerfile = read("deploy/Dockerfile");
    let touch = dockerfile
        .find("find . -path ./target -prune -o -type f -exec touch {} +")
        .unwrap();
    assert!(dockerfile.find("COPY . .").unwrap() < touch);
    let build = dockerfile.find("cargo build").unwrap();
    let layers = dockerfile[touch..build].matches("RUN ").count();
    assert!(touch < build && layers == 0, "in one layer");
    for mount in dockerfile.split("--mount=").skip(1) {
        assert!(mount.starts_with("type=cache,id=watchkeeper-"), "{mount}");
    }
}

/// Who takes an image or a package cannot build more in.
#[test]
fn an_image_and_a_release_have_every_feature_of_the_command() {
    let cargo = read("jobs/Cargo.toml");
    let (_, features) = cargo.split_once("[features]\n").unwrap();
    let (features, _) = features.split_once("\n[").unwrap();
    let features = features.lines().filter(|line| !line.starts_with('#'));
    let named = features.filter_map(|line| Some(line.split_once(" = ")?.0));
    let default = cargo
        .lines()
        .find(|line| line.starts_with("default = "))
        .unwrap();
    let others =
        named.filter(|name| *name != "default" && !default.contains(&format!("\"{name}\"")));
    let others: Vec<&str> = others.collect();
    assert_eq!(others, ["otel"]);
    for file in ["deploy/Dockerfile", "deploy/release"] {
        let wanted = format!("--package watchkeeper-jobs --features {}", others.join(","));
        assert!(read(file).contains(&wanted), "{file}");
    }
}

// === what a release is made of

/// Where the script finds what it packs, and where it goes: without making anything.
#[test]
fn every_file_of_a_release_is_there_and_goes_where_it_is_looked_for() {
    let told = Command::new("bash")
        .args(["deploy/release", "--plan"])
        .current_dir(root())
        .output()
        .unwrap();
    let plan = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success(), "{plan}");
    let mut places = BTreeSet::new();
    for line in plan.lines() {
        let [mode, source, place] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        assert!(matches!(mode, "644" | "755"), "{line}");
        let made = source.starts_with("made/");
        assert!(made || root().join(source).is_file(), "{line}");
        assert!(places.insert(place), "{line}");
    }
    for wanted in [SYSTEM_PLACE, "/usr/bin/watchkeeper", "/usr/share/man/man1"] {
        let place = wanted.strip_prefix('/').unwrap();
        assert!(places.contains(place), "{wanted}");
    }
    let script = read("deploy/release");
    for named in script.split("deploy/").skip(1) {
        let end = named
            .find([' ', '"', '\n', '$', ';', ':'])
            .unwrap_or(named.len());
        let named = &named[..end];
        assert!(root().join("deploy").join(named).exists(), "deploy/{named}");
    }
    for file in ["control", "postinst", "prerm", "postrm"] {
        assert!(script.contains(file), "{file}");
        assert!(root().join("deploy/debian").join(file).is_file(), "{file}");
    }
    // All that it builds for is looked at for licences and advisories.
    let rules = read("deny.toml");
    let targets = script.lines().find_map(|l| l.strip_prefix("targets=("));
    for target in targets.unwrap().trim_end_matches(')').split(' ') {
        assert!(rules.contains(&format!("\"{target}\"")), "{target}");
    }
}

#[test]
fn the_package_makes_the_user_of_the_unit_and_starts_nothing() {
    let unit = read("deploy/watchkeeper@.service");
    let of = |key: &str| {
        let mut lines = unit.lines();
        lines.find_map(|line| line.strip_prefix(key)).unwrap()
    };
    let (user, home) = (of("User="), of("WorkingDirectory="));
    let made = read("deploy/debian/watchkeeper.sysusers");
    assert!(made.starts_with(&format!("u {user} ")), "{made}");
    assert!(made.contains(&format!(" {home} ")), "{made}");
    let script = read("deploy/debian/postinst");
    let by_hand = format!("useradd --system --home-dir {home} --shell /usr/sbin/nologin {user}\n");
    assert!(script.contains(&by_hand), "{script}");
    // The head of the unit tells the same.
    assert!(unit.contains(&by_hand), "{unit}");
    for file in ["postinst", "prerm", "postrm"] {
        let script = read(&format!("deploy/debian/{file}"));
        let commands: Vec<&str> = script
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("systemctl"))
            .collect();
        for command in commands {
            let harmless = ["daemon-reload", "stop"];
            assert!(
                harmless.iter().any(|word| command.contains(word)),
                "{command}"
            );
        }
    }
}

/// Every file of the folder, by its path from the root.
pub(super) fn files() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec!["deploy".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap().flatten() {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(name);
            } else {
                let text = read(&name);
                found.insert(name, text);
            }
        }
    }
    found
}

// === the service manager

/// Killed where a test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As the unit's `Type=notify` and `WatchdogSec=` want it.
#[test]
fn the_command_tells_its_service_manager_that_it_serves_turns_and_drains() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = "admin.listen = '127.0.0.1:0'\n[jobs.a]\nkind = 'heartbeat'\nschedule = '@hourly'\n";
    fs::write(at("watchkeeper.toml"), text).unwrap();
    let socket = UnixDatagram::bind(at("notify")).unwrap();
    // A limit, and not what it takes.
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let next = || {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).expect("the worker tells nothing");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchkeeper"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WATCHKEEPER_") {
            command.env_remove(name);
        }
    }
    let child = command
        .arg("run")
        .current_dir(folder.path())
        .env("NOTIFY_SOCKET", at("notify"))
        .env("WATCHDOG_USEC", "200000")
        .env_remove("WATCHDOG_PID")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut worker = Running(child);
    assert_eq!(next(), "READY=1");
    assert_eq!(next(), "WATCHDOG=1");
    assert_eq!(next(), "WATCHDOG=1");
    kill_process(Pid::from_child(&worker.0), Signal::TERM).unwrap();
    loop {
        match next().as_str() {
            "STOPPING=1" => break,
            told => assert_eq!(told, "WATCHDOG=1"),
        }
    }
    assert!(worker.0.wait().unwrap().success());
}
