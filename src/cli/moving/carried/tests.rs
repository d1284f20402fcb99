use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::{
    intent::{Intent, Pause, Trigger},
    ledger::Ledger,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Two jobs, one of them with a run that is open; a pause, and a trigger whose parameter has what JSON escapes.
fn left() -> Left {
    let mut records = BTreeMap::new();
    for (key, tick) in [("job/a", None), ("job/b", Some(at(110)))] {
        let mut ledger = Ledger::default();
        ledger.first_sight(at(100)).unwrap();
        if let Some(tick) = tick {
            ledger.start_tick(tick, Token(7)).unwrap();
        }
        let record = Record {
            version: Version {
                token: Token(7),
                rev: 3,
            },
            body: ledger.to_body(),
        };
        records.insert(key.to_owned(), record);
    }
    let pause = Intent::Pause(Pause {
        job: "a".to_owned(),
        paused: true,
        reason: "\"\n\u{1b}[2J ü".to_owned(),
        ..Pause::default()
    });
    let trigger = Intent::Trigger(Trigger {
        job: "b".to_owned(),
        id: "t1".to_owned(),
        ..Trigger::default()
    });
    let docs = [pause, trigger].map(|intent| {
        let doc = intent.to_doc(65_536);
        (doc.name.clone(), doc)
    });
    Left::of(records, docs.into(), Token(9)).unwrap()
}

fn text(left: &Left) -> Vec<u8> {
    let mut text = Vec::new();
    let size = write_to(&mut text, left, "the file locks.db", at(1_000)).unwrap();
    assert_eq!(size, text.len() as u64);
    text
}

fn refusal(text: &[u8]) -> String {
    read_from(text).unwrap_err().to_string()
}

#[test]
fn what_was_left_is_read_back_as_it_was() {
    let left = left();
    let (head, back) = read_from(&*text(&left)).unwrap();
    assert_eq!(back, left);
    assert_eq!((left.open(), left.intents_by_kind()), (1, (1, 1)));
    assert_eq!(
        (head.from.as_str(), head.written),
        ("the file locks.db", at(1_000))
    );
    assert_eq!(head.program, env!("CARGO_PKG_VERSION"));
    let empty = Left::default();
    assert_eq!(read_from(&*text(&empty)).unwrap().1, empty);
}

/// As it is described, for those who read it otherwise.
#[test]
fn the_lines_are_those_of_the_book() {
    let text = String::from_utf8(text(&left())).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 6);
    assert!(text.starts_with("{\"watchkeeper_move\":1,\"program\":"));
    assert_eq!(lines[0]["ledgers"], 2);
    assert_eq!(lines[0]["intents"], 2);
    assert_eq!(lines[1]["ledger"]["key"], "job/a");
    assert_eq!(lines[1]["ledger"]["version"]["rev"], 3);
    assert_eq!(lines[3]["intent"]["name"], "intent/pause.a");
    assert_eq!(lines[5]["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn what_was_cut_or_damaged_is_refused_as_a_whole() {
    let whole = text(&left());
    for end in 0..whole.len() {
        assert!(read_from(&whole[..end]).is_err(), "cut at {end}");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        assert!(read_from(&*damaged).is_err(), "changed at {at}");
    }
    let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let cut = refusal(&whole[..second]);
    assert!(
        cut.contains("cut or damaged") && cut.contains("move --out"),
        "{cut}"
    );
    for more in ["\n", "{}\n", "x"] {
        let more = [&*whole, more.as_bytes()].concat();
        assert!(refusal(&more).contains("cut or damaged"));
    }
    // Two files one after the other.
    assert!(refusal(&[&*whole, &*whole].concat()).contains("cut or damaged"));
}

/// With the hash that belongs to it.
fn sealed(lines: &[&str]) -> Vec<u8> {
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let hash = shown(Sha256::new_with_prefix(&text));
    text += &format!("{{\"sha256\":\"{hash}\"}}\n");
    text.into_bytes()
}

#[test]
fn what_is_of_a_later_version_or_of_something_else_is_refused() {
    let later = refusal(b"{\"watchkeeper_move\":2,\"all\":\"else\"}\n\0\0");
    assert!(
        later.contains("format 2") && later.contains("format 1"),
        "{later}"
    );
    for foreign in [
        &b""[..],
        b"\n",
        b"SQLite format 3\0",
        b"{}\n",
        b"[locks]\nbackend = \"redis\"\n",
        b"{\"watchkeeper_move\":0}\n",
        b"{\"watchkeeper_move\":\"1\"}\n",
        b"\xff\xfe\n",
    ] {
        let said = refusal(foreign);
        assert!(said.contains("no file that"), "{foreign:?}: {said}");
    }
    let head = |ledgers: usize, token: u64| {
        format!(
            "{{\"watchkeeper_move\":1,\"program\":\"9\",\"written\":\"2026-01-01T00:00:00Z\",\"from\":\"x\",\"ledgers\":{ledgers},\
             \"intents\":0,\"token\":{token},\"more\":true}}"
        )
    };
    let ledger = |key: &str, v: u32| {
        format!(
            "{{\"ledger\":{{\"key\":\"{key}\",\"version\":{{\"token\":1,\"rev\":1}},\"body\":\"{{\\\"v\\\":{v}}}\"}}}}"
        )
    };
    let newer = refusal(&sealed(&[&head(1, 5), &ledger("job/a", 99)]));
    assert!(
        newer.contains("job/a") && newer.contains("version 99"),
        "{newer}"
    );
    for wrong in [
        sealed(&[&head(2, 5)]),
        sealed(&[&head(0, DOUBTED.0)]),
        sealed(&[&head(1, 5), &ledger("other/a", 1)]),
        sealed(&[&head(0, 5), "{\"something\":{}}"]),
        sealed(&["{\"watchkeeper_move\":1}"]),
    ] {
        assert!(refusal(&wrong).contains("cut or damaged"));
    }
    assert!(
        read_from(&*sealed(&[&head(0, 5)])).is_ok(),
        "a new field is nothing wrong"
    );
}

#[test]
fn what_is_too_large_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("left.json");
    // As a hole it takes no room.
    let file = File::create(&path).unwrap();
    file.set_len(MOST + 1).unwrap();
    let said = read(&path).err().unwrap().text();
    assert!(said.contains("left.json: it is larger than"), "{said}");
    assert!(said.ends_with("nothing was moved"), "{said}");
    // A line without an end is read no further than the longest one.
    let mut endless = io::repeat(b'x').take(LONGEST * 4);
    let read = read_from(BufReader::new(&mut endless)).unwrap_err();
    assert!(matches!(read, Fault::Foreign));
    assert!(endless.limit() > LONGEST * 2);
    // Nothing is waited for.
    let said = super::read(Path::new("/dev/zero")).err().unwrap().text();
    assert!(said.contains("it is a device, and not a file"), "{said}");
}

#[test]
fn a_file_is_whole_or_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("left.json");
    let names = || {
        let entries = fs::read_dir(folder.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name())
            .collect::<Vec<_>>()
    };
    let draft = |left: &Left| Draft::write(&path, left, "here", at(1)).ok().unwrap();
    let left = left();
    let first = draft(&left);
    assert!(!path.exists() && names().len() == 1);
    drop(first);
    assert!(names().is_empty(), "what is not kept goes");
    draft(&left).keep().ok().unwrap();
    assert_eq!(names(), ["left.json"]);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(read(&path).ok().unwrap().1, left);
    let taken = refuse_taken(&path).err().unwrap().text();
    assert!(taken.contains("left.json is there already"), "{taken}");
    let other = draft(&Left::default());
    assert!(other.keep().is_err(), "made meanwhile");
    assert_eq!(names(), ["left.json"]);
    assert_eq!(read(&path).ok().unwrap().1, left, "what was there stays");
    let nowhere = folder.path().join("none/left.json");
    let said = Draft::write(&nowhere, &left, "here", at(1))
        .err()
        .unwrap()
        .text();
    assert!(said.contains("none/left.json cannot be written"), "{said}");
}
