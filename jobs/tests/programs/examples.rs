//! The examples of the guide "Run programs in any language", executed as it stands: only places and schedules are others.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{process::Running, scene::Scene, store::Store, wait::until};

/// The first block of this language after this heading.
fn block(heading: &str, language: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/programs.md");
    let guide = fs::read_to_string(path).expect("the guide");
    let (_, section) = guide.split_once(&format!("## {heading}\n")).expect(heading);
    let (_, block) = section
        .split_once(&format!("```{language}\n"))
        .expect(language);
    let (block, _) = block.split_once("```").expect("its end");
    block.to_owned()
}

/// The guide's three masters, replaced by the scene's store.
fn on_our_store(text: &str, scene: &Scene) -> String {
    let nodes = ["a", "b", "c"].map(|name| format!("redis://lock-{name}:6379"));
    let option = format!("--nodes {}", nodes.join(","));
    let table = format!("[locks]\nbackend = \"redis\"\n\n[locks.redis]\nnodes = {nodes:?}\n");
    assert!(text.contains(&option) || text.contains(&table), "{text}");
    let Store::Masters(servers) = &scene.store else {
        let text = text.replace(&option, &scene.options().join(" "));
        return text.replace(&table, &format!("[locks]\n{}", scene.settings()));
    };
    let ours = nodes.iter().zip(servers.iter());
    ours.fold(text.to_owned(), |text, (named, server)| {
        text.replace(named, &server.url())
    })
}

/// A replica with the configuration `wk.toml`, and these variables besides.
fn replica(scene: &Scene, variables: &[(&str, &str)]) -> Running {
    let mut command = scene.bare(&["run", "--config", "wk.toml", "--listen", "off"]);
    command.envs(variables.iter().copied());
    let replica = Running::start(command);
    replica.wait_for_line("worker started");
    replica
}

/// Each tick once, also when the replica that leads is killed, and the archives can be read.
pub(crate) fn a_nightly_backup_is_made_once_in_the_fleet(store: Store) {
    let scene = Scene::new(store);
    fs::create_dir_all(scene.file("lib/app")).expect("a folder");
    fs::create_dir(scene.file("backups")).expect("a folder");
    scene.write("lib/app/data", "precious");
    let text = on_our_store(
        &block("A nightly backup, once in the fleet", "toml"),
        &scene,
    );
    let text = text
        .replace("/var/backups", &scene.file("backups").display().to_string())
        .replace("/var/lib", &scene.file("lib").display().to_string());
    scene.write("wk.toml", &text);
    let often = [
        ("WATCHKEEPER_JOBS__BACKUP__SCHEDULE", "@every 1s"),
        ("WATCHKEEPER_LOCKS__TTL", "2s"),
    ];
    let replicas = [replica(&scene, &often), replica(&scene, &often)];
    let archives = || {
        let files = fs::read_dir(scene.file("backups")).expect("the folder");
        let whole = |file: &fs::DirEntry| file.path().extension().is_some_and(|end| end == "gz");
        files.flatten().filter(whole).count()
    };
    assert!(until(|| archives() >= 3), "{} archives", archives());
    let [one, other] = replicas;
    let leads = until(|| one.has_said("leading") || other.has_said("leading"));
    assert!(leads, "nobody leads");
    let (leader, survivor) = if one.has_said("leading") {
        (one, other)
    } else {
        (other, one)
    };
    leader.kill();
    survivor.wait_for_line("leading");
    let before = archives();
    assert!(
        until(|| archives() >= before + 2),
        "{} archives",
        archives()
    );
    survivor.signal(Signal::TERM);
    survivor.done().with(0);
    let history = scene
        .run_bare(&[
            "history", "backup", "--limit", "1000", "--json", "--config", "wk.toml",
        ])
        .with(0);
    let history: Vec<Value> = serde_json::from_str(&history.out).expect("JSON");
    let done: Vec<&Value> = history
        .iter()
        .filter(|run| run["outcome"] == "done")
        .collect();
    let ticks: BTreeSet<&str> = done.iter().filter_map(|run| run["tick"].as_str()).collect();
    assert_eq!(
        ticks.len(),
        done.len(),
        "a tick was done twice: {history:#?}"
    );
    // A run that was killed, or ended at the stop, may have made its archive before.
    let most = history.len();
    assert!(
        (ticks.len()..=most).contains(&archives()),
        "{} archives: {history:#?}",
        archives()
    );
    for archive in fs::read_dir(scene.file("backups"))
        .expect("the folder")
        .flatten()
    {
        if archive.path().extension().is_none_or(|end| end != "gz") {
            continue;
        }
        let mut list = std::process::Command::new("tar");
        let listed = list.arg("-tzf").arg(archive.path()).output().expect("tar");
        let listed = String::from_utf8(listed.stdout).expect("text");
        assert!(listed.contains("app/data"), "{listed}");
    }
}

/// The unit's command line on two machines: one daemon, on the other machine when this one is stopped or dies.
pub(crate) fn a_daemon_has_a_hot_standby(store: Store) {
    let scene = Scene::new(store);
    let unit = block("A hot standby for a daemon", "ini");
    let (_, start) = unit.split_once("ExecStart=").expect("a command line");
    let mut line = String::new();
    for part in start.lines() {
        line += part.trim_end_matches('\\').trim();
        line.push(' ');
        if !part.ends_with('\\') {
            break;
        }
    }
    let line = on_our_store(&line, &scene);
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[0], "/usr/local/bin/watchkeeper");
    assert_eq!(
        words[words.len() - 2..],
        ["/usr/sbin/ledgerd", "--foreground"]
    );
    scene.write(
        "ledgerd",
        "trap 'echo end >> $F/log; exit 0' TERM\necho begin $1 >> $F/log\nwhile :; do sleep 0.02; done\n",
    );
    let daemon = scene.file("ledgerd").display().to_string();
    let machine = || {
        let mut words = words[1..].to_vec();
        let at = words.len() - 2;
        words.splice(at..=at, ["sh", &daemon]);
        let mut command = scene.bare(&words);
        command.env("F", scene.file(""));
        Running::start(command)
    };
    let first = machine();
    scene.wait_for_lines("log", 1);
    let second = machine();
    second.wait_for_line("standing by for ledgerd");
    // As systemd stops a unit with KillMode=mixed.
    first.signal(Signal::TERM);
    assert_eq!(
        scene.wait_for_lines("log", 3)[1..],
        ["end", "begin --foreground"]
    );
    first.done().with(0);
    let first = machine();
    first.wait_for_line("standing by for ledgerd");
    second.kill();
    // The killed machine's daemon is told to end, and has ended before the next one begins.
    assert_eq!(
        scene.wait_for_lines("log", 5)[3..],
        ["end", "begin --foreground"]
    );
    first.signal(Signal::TERM);
    first.done().with(0);
}

/// One call per tick, with what the guide promises in it.
pub(crate) fn a_web_service_is_called_once_a_tick(store: Store) {
    let scene = Scene::new(store);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let calls: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let taken = calls.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            taken.lock().unwrap().push(answer(stream));
        }
    });
    let text = block("A web service, every minute", "toml");
    let text = text.replace("https://example.org", &format!("http://{address}"));
    scene.write(
        "wk.toml",
        &format!("[locks]\nttl = \"2s\"\n{}\n{text}", scene.settings()),
    );
    let often = [("WATCHKEEPER_JOBS__SYNC__SCHEDULE", "@every 1s")];
    let replicas = [replica(&scene, &often), replica(&scene, &often)];
    let enough = until(|| calls.lock().unwrap().len() >= 4);
    assert!(enough, "{:?}", calls.lock().unwrap());
    for replica in replicas {
        replica.signal(Signal::TERM);
        replica.done().with(0);
    }
    let calls = calls.lock().unwrap().clone();
    let of = |call: &[String], name: &str| {
        let header = call
            .iter()
            .find_map(|line| line.strip_prefix(&format!("{name}: ")));
        header
            .unwrap_or_else(|| panic!("no {name} in {call:?}"))
            .to_owned()
    };
    let mut ticks = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for call in &calls {
        let tick = of(call, "watchkeeper-tick");
        let encoded = tick.replace(':', "%3A");
        assert!(
            call[0].starts_with("POST /sync?since=")
                && (call[0].contains(&encoded) || call[0].contains(&tick)),
            "{call:?}"
        );
        assert_eq!(of(call, "x-team"), "billing");
        let body: Value = serde_json::from_str(call.last().expect("a body")).expect("JSON");
        assert_eq!(body["token"].to_string(), of(call, "watchkeeper-token"));
        assert_eq!(body["attempt"], 1);
        ticks.insert(tick);
        keys.insert(of(call, "idempotency-key"));
    }
    assert_eq!(
        (ticks.len(), keys.len()),
        (calls.len(), calls.len()),
        "{calls:?}"
    );
}

/// Reads one request: its lines, names of headers in lower case, and its body as the last; answers 204.
fn answer(mut stream: TcpStream) -> Vec<String> {
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a limit");
    let mut reader = BufReader::new(stream.try_clone().expect("one more"));
    let mut lines = Vec::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        let line = match line.trim().split_once(": ") {
            Some((name, value)) => format!("{}: {value}", name.to_lowercase()),
            None => line.trim().to_owned(),
        };
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().expect("a length");
        }
        lines.push(line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    lines.push(String::from_utf8(body).expect("text"));
    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    lines
}
