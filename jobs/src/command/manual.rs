//! `man`: the pages of the manual, made from the help of the commands.

use std::{fs, io, path::PathBuf, process::ExitCode};

use clap::Args;
use clap_mangen::{Man, generate_to};
use watchkeeper::terminal;

/// Print the page of the manual; with --dir write one for each command, too
///
/// `watchkeeper man | man -l -` shows it. Asks nothing and reads no configuration.
#[derive(Clone, Debug, Args)]
pub(crate) struct ManArgs {
    /// Write all pages into this folder: watchkeeper.1, watchkeeper-run.1 and so on
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints or writes what is to be read of `command`.
pub(crate) fn write(command: clap::Command, args: &ManArgs) -> ExitCode {
    let (done, place) = match &args.dir {
        Some(dir) => {
            let made = fs::create_dir_all(dir);
            let written = made.and_then(|()| generate_to(command, dir));
            (written, dir.display().to_string())
        }
        None => (print(command), "standard output".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let why = format!("error: {place}: {error}");
            terminal::err(&terminal::sentence(&why));
            ExitCode::FAILURE
        }
    }
}

fn print(command: clap::Command) -> io::Result<()> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    terminal::out(&String::from_utf8_lossy(&page));
    Ok(())
}
