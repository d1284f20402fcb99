//! `lock`: wait, run once, release.

use futures_util::future::join;

use super::{args::Common, release::release, run::Whose, scene::Scene, signals::Heard, wait};

/// Plays the whole command and answers with the exit status.
pub(super) async fn lock(scene: &mut Scene, common: &Common) -> u8 {
    let Scene {
        open,
        signals,
        program,
        voice,
    } = scene;
    let key = open.key("lock", &common.key);
    let what = format!("lock {}", common.key);
    let lease = match wait::acquire(&open.locks, &key, &what, common.wait, signals, *voice).await {
        Ok(lease) => lease,
        Err(why) => return why.tell(&what, *voice, common.not_held, Heard::exit_code),
    };
    let told = program.tell(&open.locks);
    let ran = program.run(lease.view(), signals, *voice).await;
    // The command is gone: the next one in line can begin.
    join(release(&open.locks, lease), told.over()).await;
    match ran {
        Err(error) => {
            voice.say(&error);
            error.exit_code()
        }
        Ok(ran) => match ran.end {
            Whose::Its(status) => status,
            Whose::Ours(why) => voice.fail(&format_args!(
                "lost the {what} ({why}); the command was stopped"
            )),
        },
    }
}
