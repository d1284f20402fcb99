//! What others wrote, and files that are none.

use std::{
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{Ran, folder_with, watchkeeper};

/// An escape sequence, a title, a C1 control, a direction mark, and a line break of its own.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;name\u{7}\u{9b}31m\u{202e}gone";

fn assert_tame(ran: &Ran, what: &str) {
    for text in [&ran.out, &ran.err] {
        let commands = |c: char| {
            c.is_control() && c != '\n'
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        };
        assert!(!text.contains(commands), "{what}: {text:?}");
    }
}

/// A server that answers every command with the same error, for as long as the test lives.
fn hostile_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut bytes = [0; 65_536];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    // Each command is an array.
                    let commands = bytes[..read].iter().filter(|byte| **byte == b'*').count();
                    let answer = format!("-ERR {HOSTILE}\r\n").repeat(commands);
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("redis://{address}")
}

#[test]
fn the_errors_of_a_hostile_server_command_no_terminal() {
    let folder = folder_with("");
    let server = hostile_server();
    let mut asked = Vec::new();
    for words in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["locks"],
        &["locks", "show", "job/x"],
        &["lock", "k", "--wait", "1s"],
    ] {
        let mut command = watchkeeper(folder.path());
        command.args(words).args(["--nodes", &server]);
        if words[0] == "lock" {
            command.args(["--", "true"]);
        }
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        asked.push((words, command.spawn().unwrap()));
    }
    let mut shown = 0;
    for (words, child) in asked {
        let ran: Ran = child.wait_with_output().unwrap().into();
        assert_ne!(ran.code, Some(101), "{words:?}: {}", ran.err);
        assert_tame(&ran, &words.join(" "));
        shown += usize::from(format!("{}{}", ran.out, ran.err).contains("\\u001b[2J"));
    }
    assert!(shown >= 3, "only {shown} of them show what the server said");
}

#[test]
fn a_hostile_configuration_is_shown_and_not_obeyed() {
    let value = serde_json::to_string(&format!("{HOSTILE}\n{HOSTILE}")).unwrap();
    let folder = folder_with(&format!(
        "[worker]\nname = {value}\n[jobs.{value}]\nkind = {value}\nschedule = {value}\nzone = {value}\n"
    ));
    for words in [
        &["check"][..],
        &["check", "--json"],
        &["status"],
        &["config"],
    ] {
        let ran = super::run(folder.path(), words);
        assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.err);
        assert_tame(&ran, &words.join(" "));
        let text = format!("{}{}", ran.out, ran.err);
        assert!(
            text.contains("\\u001b[2J") && text.contains("\\u202e"),
            "{words:?}: {text}"
        );
    }
}

/// With a limit of the test's own: where a command waits it would wait for ever.
fn run_limited(folder: &Path, words: &[&str], variable: (&str, &Path)) -> Ran {
    let plain = watchkeeper(folder);
    let mut command = Command::new("timeout");
    command.arg("60").arg(plain.get_program()).args(words);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let command = command.current_dir(folder).stdin(Stdio::null());
    command.env(variable.0, variable.1).output().unwrap().into()
}

#[test]
fn no_kind_of_file_makes_a_command_wait() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let hole = folder.path().join("hole");
    let file = std::fs::File::create(&hole).unwrap();
    file.set_len(1 << 40).unwrap();
    for (path, why) in [
        (&*pipe, "it is a pipe"),
        (Path::new("/dev/zero"), "it is a device"),
        (folder.path(), "it is a directory"),
        (&hole, "it is longer than"),
    ] {
        for name in [
            "WATCHKEEPER_CONFIG",
            "WATCHKEEPER_ADMIN__TOKEN_FILE",
            "WATCHKEEPER_LOCKS__REDIS__PASSWORD_FILE",
        ] {
            let ran = run_limited(folder.path(), &["check"], (name, path));
            assert_eq!(ran.code, Some(2), "{name}, {path:?}: {}", ran.err);
            assert!(ran.out.contains(why), "{name}, {path:?}: {}", ran.out);
        }
    }
    // Files of TLS are looked at when there is a server to speak to.
    let nodes = ["status", "--config", "redis.toml"];
    std::fs::write(
        folder.path().join("redis.toml"),
        "[locks]\nbackend = \"redis\"\nredis.nodes = [\"rediss://127.0.0.1:1\"]\n",
    )
    .unwrap();
    let ca = "WATCHKEEPER_LOCKS__REDIS__TLS__CA";
    let ran = run_limited(folder.path(), &nodes, (ca, &pipe));
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("it is a pipe"), "{}", ran.err);
    // The store.
    let path = "WATCHKEEPER_LOCKS__EMBEDDED__PATH";
    for words in ["check", "status", "locks", "doctor"] {
        let ran = run_limited(folder.path(), &[words], (path, &pipe));
        assert_ne!(ran.code, Some(124), "{words} waits");
        assert_ne!(ran.code, Some(0), "{words}: {}", ran.out);
        let text = format!("{}{}", ran.out, ran.err);
        assert!(
            text.contains("is a pipe, a socket or a device"),
            "{words}: {text}"
        );
    }
}
