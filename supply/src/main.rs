//! `cargo run --package watchkeeper-supply -- check | notices | bom TARGET [TIME] | api [write]`

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use watchkeeper_supply::{Api, Metadata, Rules, bom, notices, unlisted};

/// The package whose command is shipped.
const SHIPPED: &str = "watchkeeper-jobs";

/// That command.
const COMMAND: &str = "watchkeeper";

/// The crates that programs of users name.
const SHOWN: [&str; 3] = ["watchkeeper-lock", "watchkeeper", "watchkeeper-jobs"];

/// Where their interfaces are recorded, a file each.
const RECORDS: &str = "tests/api";

/// Items of all of them together, and modules at the top of each: more than a reader of the documentation takes in.
const MOST: (usize, usize) = (450, 12);

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let done = match asked[..] {
        ["check"] => check(),
        ["notices"] => metadata().and_then(|found| notices(&found.shipped_with(SHIPPED))),
        ["bom", target] => bill(target, None),
        ["bom", target, time] => bill(target, Some(time)),
        ["api"] => api(false),
        ["api", "write"] => api(true),
        _ => Err(
            "usage: watchkeeper-supply check | notices | bom TARGET [TIME] | api [write]"
                .to_owned(),
        ),
    };
    match done {
        Ok(text) => match io::stdout().lock().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(why) => {
            let _ = writeln!(io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn metadata() -> Result<Metadata, String> {
    Metadata::read(root())
}

fn check() -> Result<String, String> {
    let found = metadata()?;
    let crates = found.foreign();
    let mut broken = Rules::read(root())?.broken_by(&crates);
    broken.extend(unlisted(root(), &SHOWN)?);
    match broken.is_empty() {
        true => Ok(format!(
            "{} crates, {} of them shipped: licences and sources are allowed by deny.toml\n{} crates of ours say what a registry \
             wants to know\n",
            crates.len(),
            found.shipped_with(SHIPPED).len(),
            SHOWN.len()
        )),
        false => Err(broken.join("\n")),
    }
}

/// The bill of materials of the command for this target.
fn bill(target: &str, time: Option<&str>) -> Result<String, String> {
    let found = Metadata::read_for(root(), target)?;
    bom(&found, root(), (COMMAND, SHIPPED), time)
}

/// Compares the public interface of each crate with what is recorded of it, or records it.
fn api(write: bool) -> Result<String, String> {
    let target = metadata()?.target().to_owned();
    let shown = Api::of_crates(root(), &target, &SHOWN)?;
    let (mut said, mut broken, mut items) = (String::new(), Vec::new(), 0);
    for (name, api) in SHOWN.iter().zip(&shown) {
        items += api.items;
        said += &format!(
            "{name}: {} items, {} modules at its top\n",
            api.items, api.modules
        );
        if api.modules > MOST.1 {
            broken.push(format!(
                "{name}: {} modules at its top, more than {}",
                api.modules, MOST.1
            ));
        }
        let record = root().join(RECORDS).join(name).with_extension("txt");
        if write {
            let done = fs::write(&record, api.to_string());
            done.map_err(|why| format!("{}: {why}", record.display()))?;
            continue;
        }
        let changes = api.differs_from(&fs::read_to_string(&record).unwrap_or_default());
        if !changes.is_empty() {
            broken.push(format!(
                "the public interface of {name} is not that of {RECORDS}/{name}.txt:\n{}\n\
                 If that is meant: cargo run --package watchkeeper-supply -- api write",
                changes.join("\n")
            ));
        }
    }
    said += &format!("{items} public items in all\n");
    if items > MOST.0 {
        broken.push(format!("{items} public items, more than {}", MOST.0));
    }
    match broken.is_empty() {
        true => Ok(said),
        false => Err(format!("{said}{}", broken.join("\n"))),
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
