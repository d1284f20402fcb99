//! `demo`: three replicas on one machine, a table of notifications, and the death of a leader in the middle.
//!
//! Real processes: this program is started again for each replica, on an embedded store in a temporary folder. Here, in
//! the parent, are the receiver of the notifications and the eyes: it reads the same store as the replicas, so that
//! what it says of leaders is what the locks say.
//!
//! # Promised
//! - It exits with 0 only when nothing was lost, nothing was accepted twice, the dead leader was replaced within
//!   ttl + 1 s, no tick was started twice in one attempt, and every repeated notification had been listed as in doubt.
//! - It leaves nothing behind: replicas die with it, however it ends; the folder goes; the terminal is as it was.
//!
//! In reading order: [`story`] (what happens when), [`scene`] (folder, configuration, table), [`servers`] (where some are asked for), [`fleet`]
//! (the processes), [`scout`] (who leads), [`ticks`] and [`verdict`] (what came of it), [`stage`] and [`keys`] (the
//! terminal).

mod args;
mod fleet;
mod keys;
mod scene;
mod scout;
mod servers;
mod stage;
mod story;
mod table;
mod ticks;
mod verdict;

use std::process::ExitCode;

use watchkeeper::terminal;

pub(crate) use args::DemoArgs;
pub(crate) use fleet::die_with;
pub(crate) use servers::{ServeArgs, serve};
use stage::Stage;
use story::{Interrupted, Story};

/// Runs the demonstration and says how it ended.
pub(crate) fn main(args: &DemoArgs) -> ExitCode {
    // Replicas are started by the main thread, because they die with the thread that started them: the workers of a
    // runtime may come and go.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let told = match runtime {
        Ok(runtime) => {
            let told = runtime.block_on(tell(args));
            // A thread may still be reading the keyboard.
            runtime.shutdown_background();
            told
        }
        Err(error) => Err(error.into()),
    };
    match told {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            terminal::err(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn tell(args: &DemoArgs) -> anyhow::Result<bool> {
    let stage = Stage::new(args.json, u64::from(args.notifications));
    let mut story = Story::begin(args, stage).await?;
    let told = story.tell().await;
    let troubled = match &told {
        Ok(summary) => !summary.problems().is_empty() && !story.was_left(),
        Err(error) => !error.is::<Interrupted>(),
    };
    // In any case: no process and no folder stays behind.
    story.clean_up(troubled).await;
    let summary = told?;
    let problems = summary.problems();
    story.stage.end(&summary, &problems);
    if args.json {
        let line = serde_json::to_string(&summary)?;
        terminal::out(&line);
    }
    Ok(problems.is_empty())
}
