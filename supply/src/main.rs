//! `cargo run --package watchkeeper-supply -- check | notices`

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use watchkeeper_supply::{Metadata, Rules, notices};

/// The package whose command is shipped.
const SHIPPED: &str = "watchkeeper-jobs";

fn main() -> ExitCode {
    let asked = std::env::args().nth(1);
    let done = match asked.as_deref() {
        Some("check") => check(),
        Some("notices") => metadata().and_then(|found| notices(&found.shipped_with(SHIPPED))),
        _ => Err("usage: watchkeeper-supply check | notices".to_owned()),
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
    let broken = Rules::read(root())?.broken_by(&crates);
    match broken.is_empty() {
        true => Ok(format!(
            "{} crates, {} of them shipped: licences and sources are allowed by deny.toml\n",
            crates.len(),
            found.shipped_with(SHIPPED).len()
        )),
        false => Err(broken.join("\n")),
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
