//! The `watchkeeper` command: the stock jobs, ready to be configured.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    watchkeeper_jobs::command()
}
