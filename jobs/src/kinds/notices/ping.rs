//! A request for the end of each run: to the address after one that went well, to `/fail` below it after one that failed for good. So
//! healthchecks.io has it, and others like it. A service that hears nothing for too long raises the alarm by itself, also when no
//! worker is left that could.

use async_trait::async_trait;
use reqwest::{Client, Url};
use watchkeeper::{
    clock::Clock,
    config::Findings,
    notice::{Notice, Receiver, Unsent, What},
};

use super::send::{ask, client, web_address};

/// Stands for the name of the job.
const JOB: &str = "${job}";

/// The receiver.
pub(super) struct Ping {
    client: Client,
    address: String,
    clock: Clock,
}

/// Adds what is wrong with the address.
pub(super) fn check(address: &str, key: &str, found: &mut Findings) {
    let filled = address.replace(JOB, "job");
    if filled.contains("${") {
        found.error(
            &[key],
            "has a placeholder that is none",
            "${job} stands for the name of the job, and there is no other one",
        );
    }
    if let Some(url) = web_address(&filled, key, found) {
        let anyone = Url::parse(&address.replace(JOB, "other"));
        if anyone.is_ok_and(|other| other.origin() != url.origin()) {
            found.error(
                &[key],
                "has the name of the job in its host",
                "write ${job} into the path",
            );
        }
    }
}

impl Ping {
    pub(super) fn new(address: &str, clock: Clock) -> Result<Self, String> {
        let url = at(address, "job", true)?;
        Ok(Self {
            client: client(&url)?,
            address: address.to_owned(),
            clock,
        })
    }
}

#[async_trait]
impl Receiver for Ping {
    fn wants_every_end(&self) -> bool {
        true
    }

    async fn send(&self, notice: &Notice) -> Result<(), Unsent> {
        let well = notice.what != What::Failed;
        let url = at(&self.address, &notice.job, well).map_err(Unsent::never)?;
        ask(self.client.get(url), &self.clock).await
    }
}

/// Where the end of a run of this job is told.
fn at(address: &str, job: &str, well: bool) -> Result<Url, String> {
    let filled = address.replace(JOB, job);
    let mut url = Url::parse(&filled).map_err(|error| format!("not a valid address: {error}"))?;
    if !well {
        let path = format!("{}/fail", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_below_the_address() {
        let told = |address, well| at(address, "report.3", well).unwrap().to_string();
        assert_eq!(told("https://h/ping/", true), "https://h/ping/");
        assert_eq!(told("https://h/ping/", false), "https://h/ping/fail");
        assert_eq!(
            told("https://h/key/${job}?create=1", false),
            "https://h/key/report.3/fail?create=1"
        );
    }
}
