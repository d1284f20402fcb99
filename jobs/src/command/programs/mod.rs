//! `lock` and `elect`: any program under a lease, from a shell.
//!
//! ```text
//! watchkeeper lock  KEY -- CMD…    wait for the lock, run CMD, release, exit with CMD's status
//! watchkeeper elect KEY -- CMD…    the same, but stand by again when the lease was lost (or, on request, when CMD ends)
//! ```
//!
//! # Promised
//! - CMD runs only while the lock is held: a guard process ends it, with all that it started, before the lease ends,
//!   also when this process is killed or frozen. See [`crate::guard`].
//! - The exit status is CMD's, 128 + n when signal n ended it; ours are those of [`exit`].
//! - Standard output belongs to CMD.
//! - The lock is released when CMD and all that it started is gone, and not before.
//!
//! # Not promised
//! That what CMD did elsewhere is undone when it is stopped: pass `WATCHKEEPER_TOKEN` to whatever can compare it.
//!
//! In reading order: [`args`] (the command line), [`store`] (where the lock lives), [`wait`] (until it is ours), [`run`]
//! (while it is), [`release`] (when it is over), [`lock`] and [`elect`] (what comes when), [`signals`],
//! [`trouble`] (what is said of the store).

mod args;
mod elect;
pub(crate) mod exit;
mod lock;
mod release;
mod run;
mod scene;
mod signals;
mod store;
mod trouble;
mod voice;
mod wait;

use std::{process::ExitCode, time::Duration};

use watchkeeper::{cli::Global, clock::Clock};

use args::Common;
pub(crate) use args::{ElectArgs, LockArgs, usage};
use run::Program;
use scene::Scene;
use signals::{Heard, Signals};
use voice::Voice;

/// `watchkeeper lock`.
pub(crate) fn lock(global: &Global, args: LockArgs) -> ExitCode {
    play(
        global,
        args.common,
        Heard::exit_code,
        async |scene, common| lock::lock(scene, common).await,
    )
}

/// `watchkeeper elect`.
pub(crate) fn elect(global: &Global, args: ElectArgs) -> ExitCode {
    let restart = args.restart;
    play(
        global,
        args.common,
        elect::standing_by,
        async |scene, common| elect::elect(scene, common, restart).await,
    )
}

/// Sets the scene, plays, and clears up. `told` is the exit status of an end by signal before it could begin.
fn play(
    global: &Global,
    common: Common,
    told: fn(Heard) -> u8,
    play: impl AsyncFnOnce(&mut Scene, &Common) -> u8,
) -> ExitCode {
    let quiet = common.quiet;
    let voice = Voice { quiet };
    let status = play_within(global, common, voice, told, play);
    ExitCode::from(status.unwrap_or_else(|why| voice.fail(&why)))
}

fn play_within(
    global: &Global,
    common: Common,
    voice: Voice,
    told: fn(Heard) -> u8,
    play: impl AsyncFnOnce(&mut Scene, &Common) -> u8,
) -> Result<u8, String> {
    let settings = store::settings(global, &common)?;
    // Kept until the end: it writes the last lines.
    let _flush = settings.log(&common)?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build();
    let runtime = runtime.map_err(|why| why.to_string())?;
    let status = runtime.block_on(async {
        // Signals first: one that comes while the store is opened must leave nothing behind.
        let signals = Signals::listen();
        let mut signals = signals.map_err(|why| format!("no signals can be received: {why}"))?;
        let (clock, mut common) = (Clock::system(), common);
        let start = clock.now();
        let opened = tokio::select! {
            biased;
            heard = signals.next() => return Ok(told(heard)),
            opened = settings.open(&common, voice) => opened,
        };
        let open = opened?;
        // A limit is for all of it; without any wait the lock would be asked for in another way.
        let left = |wait: Duration| match wait.is_zero() {
            true => wait,
            false => wait
                .saturating_sub(clock.now().since(start))
                .max(wait::BRIEFLY),
        };
        common.wait = common.wait.map(left);
        let traces = open.traces.as_ref();
        let tracer = traces.map(|traces| traces.tracer().clone());
        let program = Program::new(&common, &open.nonce, tracer.unwrap_or_default());
        let mut scene = Scene {
            open,
            signals,
            program,
            voice,
        };
        let status = play(&mut scene, &common).await;
        scene.open.settle().await;
        Ok(status)
    });
    // A name that is still being looked up must not keep us.
    runtime.shutdown_background();
    status
}
