//! `token`: what opens the status page, for its user.

use super::{ask::load, failure::Failure, output::print};
use crate::{Worker, worker::token};

pub(super) fn token(worker: &Worker) -> Result<(), Failure> {
    let config = load(worker)?.config;
    if config.admin.token.is_some() {
        let why = "admin.token is configured: that is the token, and no file was made for another";
        return Err(Failure::Failed(why.to_owned()));
    }
    let (token, _) = token::find(&config).map_err(Failure::of)?;
    print(token.expose());
    Ok(())
}
