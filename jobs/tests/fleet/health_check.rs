//! The health check of the image, as its file has it. Costs about four seconds.

use std::process::Command;

use crate::{
    fleet::{Fleet, pulse},
    store::Store,
};

const DOCKERFILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/Dockerfile");
/// The port on which the worker of the image listens.
const PORT: &str = "8787";
/// After so long it has failed, as the file says.
const TIMEOUT: &str = "3";

/// A worker that stands still has failed as much as one that has gone; one that turns is well.
pub(crate) fn the_health_check_of_the_image_sees_a_worker_that_stands_still(store: Store) {
    let file = std::fs::read_to_string(DOCKERFILE).expect("a file of the repository");
    let (_, check) = file.split_once("HEALTHCHECK ").expect("it has one");
    assert!(check.contains(&format!("--timeout={TIMEOUT}s ")));
    let (_, words) = check.split_once("CMD ").expect("what it runs");
    let words = words.lines().next().unwrap_or_default();
    let words: Vec<String> = serde_json::from_str(words).expect("a list of words");
    let mut fleet = Fleet::of(1, store, &pulse());
    let page = fleet.page(0);
    let (_, port) = page.rsplit_once(':').expect("an address with a port");
    let port = port.trim_end_matches('/').to_owned();
    let is_well = || {
        let words = words.iter().map(|word| word.replace(PORT, &port));
        let mut command = Command::new("timeout");
        command.arg(TIMEOUT).args(words);
        command
            .status()
            .expect("a program of every Debian")
            .success()
    };
    assert!(is_well());
    fleet.freeze(0);
    assert!(!is_well(), "it stands still");
    fleet.thaw(0);
    assert!(is_well());
    fleet.kill(0);
    assert!(!is_well(), "it has gone");
}
