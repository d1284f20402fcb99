//! Masters that are far away: whatever is asked of them arrives a while later.

use std::{
    io::{Read, Write, copy},
    os::unix::net::{UnixListener, UnixStream},
    thread,
    time::Duration,
};

use crate::{scene::Scene, server::RedisServer, store::Store, wait::pause};

/// The way to a master: longer than a worker waits for its answer, as long as the way to another continent.
const AWAY: Duration = Duration::from_millis(80);

/// The addresses of the scene's masters, as seen from far away.
fn addresses(scene: &Scene) -> Vec<String> {
    let servers = scene.store.servers().iter().enumerate();
    let relay = |(n, server): (usize, &RedisServer)| {
        let here = scene.file(&format!("far-{n}.sock"));
        let listener = UnixListener::bind(&here).expect("a socket in our own folder");
        let there = server.socket();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // A server that is gone takes its connections with it.
                if let Ok(far) = UnixStream::connect(&there) {
                    relay(near, far);
                }
            }
        });
        format!("unix://{}", here.display())
    };
    servers.map(relay).collect()
}

/// Carries what is asked, late, and what is answered.
fn relay(mut near: UnixStream, mut far: UnixStream) {
    let (Ok(mut asked), Ok(mut answered)) = (near.try_clone(), far.try_clone()) else {
        return;
    };
    thread::spawn(move || copy(&mut answered, &mut near));
    thread::spawn(move || {
        let mut chunk = [0; 65_536];
        while let Ok(length @ 1..) = asked.read(&mut chunk) {
            pause(AWAY);
            if far.write_all(&chunk[..length]).is_err() {
                return;
            }
        }
    });
}

/// Whoever takes no lock has time: from afar the fleet is seen, and told.
pub(crate) fn a_fleet_far_away_answers_commands(store: Store) {
    let scene = Scene::new(store);
    let _holder = scene.holder("lock k");
    let nodes = addresses(&scene);
    let config = format!(
        "[locks]\nbackend = \"redis\"\nrestart_guard = \"off\"\nredis.nodes = {nodes:?}\n\
         [jobs.report]\nkind = \"heartbeat\"\nschedule = \"@daily\"\n"
    );
    scene.write("far.toml", &config);
    let file = scene.file("far.toml").display().to_string();
    let ask = |words: &[&str]| scene.run_bare(&[words, &["--config", &file]].concat());
    let shown = ask(&["locks"]).with(0);
    assert!(shown.out.contains("lock/k"), "{shown:?}");
    ask(&["pause", "report"]).with(0);
    let told = ask(&["explain", "report"]).with(0);
    assert!(told.out.contains("paused"), "{told:?}");
    ask(&["status"]).with(0);
}
