//! `completions`: what a shell reads to complete the words of this command.

use std::process::ExitCode;

use clap::Args;
use clap_complete::{Shell, generate};
use watchkeeper::terminal;

/// Print what a shell needs to complete the words of this command
///
/// For bash into a file such as /etc/bash_completion.d/watchkeeper, for zsh into a file _watchkeeper in a folder of $fpath, for
/// fish into ~/.config/fish/completions/watchkeeper.fish. Asks nothing and reads no configuration.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints it, for all that `command` is made of.
pub(crate) fn print(mut command: clap::Command, args: &CompletionsArgs) -> ExitCode {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(args.shell, &mut command, name, &mut script);
    terminal::out(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
