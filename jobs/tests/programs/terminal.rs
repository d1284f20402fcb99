//! At a terminal: it can be read from, Ctrl-C and Ctrl-Z mean the command, and when it closes nothing is left.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

use crate::{process::Running, scene::Scene, store::Store, wait::until};

/// A terminal of our own, and the process that leads its session.
struct Terminal {
    keyboard: Option<File>,
    screen: Arc<Mutex<String>>,
    closed: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    process: Running,
}

impl Terminal {
    /// `watchkeeper lock k --ttl TTL -- sh -c SCRIPT` as the leader of a new terminal's session.
    fn with(scene: &Scene, ttl: &str, script: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master = master.expect("a terminal");
        grantpt(&master).expect("a terminal of ours");
        unlockpt(&master).expect("a terminal of ours");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let side = || {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            let side: OwnedFd = rustix::fs::open(&name, flags, Mode::empty()).expect("its side");
            Stdio::from(side)
        };
        let plain = scene.command(&format!("lock k --ttl {ttl}"), script);
        let mut command = Command::new("setsid");
        command.arg("--ctty");
        command.arg(plain.get_program()).args(plain.get_args());
        command.env("F", scene.file(""));
        command.current_dir(scene.file(""));
        command.stdin(side()).stdout(side()).stderr(side());
        let process = Running::start(command);
        let keyboard = File::from(master);
        let output = keyboard.try_clone().expect("one more");
        let (screen, closed) = (Arc::default(), Arc::default());
        let reader = read_along(output, Arc::clone(&screen), Arc::clone(&closed));
        Self {
            keyboard: Some(keyboard),
            screen,
            closed,
            reader: Some(reader),
            process,
        }
    }

    /// Closes the window.
    fn close(&mut self) {
        self.keyboard = None;
        self.closed.store(true, Ordering::Relaxed);
        let reader = self.reader.take().expect("it is open");
        reader.join().expect("the reader");
    }

    fn types(&mut self, text: &str) {
        let keyboard = self.keyboard.as_mut().expect("it is open");
        keyboard.write_all(text.as_bytes()).expect("it is open");
    }

    fn shows(&self, text: &str) {
        let shown = until(|| self.screen.lock().unwrap().contains(text));
        assert!(shown, "no {text:?} in {:?}", self.screen.lock().unwrap());
    }
}

/// Collects what is shown until the terminal is closed from either side.
fn read_along(
    mut output: File,
    screen: Arc<Mutex<String>>,
    closed: Arc<AtomicBool>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut bytes = [0; 1024];
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        while !closed.load(Ordering::Relaxed) {
            let mut fds = [PollFd::new(&output, PollFlags::IN)];
            if poll(&mut fds, Some(&moment)).unwrap_or(0) == 0 {
                continue;
            }
            // An error is the end of a terminal.
            let Ok(n) = output.read(&mut bytes) else {
                return;
            };
            let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
            screen.lock().unwrap().push_str(&text);
        }
    })
}

/// The command reads what is typed, and Ctrl-C is for it to answer.
pub(crate) fn a_command_has_the_terminal_to_itself(store: Store) {
    let scene = Scene::new(store);
    let script = r#"trap 'echo interrupted' INT; echo ready; read line; echo "got $line"
        echo again; until read line; do :; done; echo "got $line"; exit 4"#;
    // Longer than a busy machine lets it wait: the lock is no part of this.
    let mut terminal = Terminal::with(&scene, "30s", script);
    terminal.shows("ready");
    terminal.types("one\n");
    terminal.shows("got one");
    terminal.shows("again");
    terminal.types("\u{3}");
    terminal.shows("interrupted");
    terminal.types("two\n");
    terminal.shows("got two");
    let done = terminal.process.done();
    assert_eq!(done.code, Some(4), "{:?}", terminal.screen.lock().unwrap());
}

/// Whoever is stopped at the terminal does not renew: the command is ended before the lock is somebody else's.
pub(crate) fn a_stopped_holder_loses_the_lock_and_its_command(store: Store) {
    let scene = Scene::new(store);
    let script = "echo ready; while :; do echo held >> $F/log; sleep 0.02; done";
    let mut terminal = Terminal::with(&scene, "2s", script);
    terminal.shows("ready");
    terminal.types("\u{1a}");
    // The command is stopped with it; it must not go on when the other one has begun.
    let other = scene.run(
        "lock k --ttl 2s",
        "echo other >> $F/log; sleep 0.2; echo other >> $F/log",
    );
    other.with(0);
    let last = scene.lines("log");
    assert_eq!(last[last.len() - 2..], ["other", "other"]);
    terminal.process.signal(Signal::CONT);
    terminal.shows("the command was stopped");
    terminal.process.done().with(125);
    assert_eq!(scene.lines("log"), last);
}

/// A closed terminal is an order to end: the command is told, nothing is left, the lock is free at once.
pub(crate) fn a_closed_terminal_ends_the_command_and_frees_the_lock(store: Store) {
    let scene = Scene::new(store);
    let script = r#"trap 'sleep 0.2; echo told >> $F/log; exit' TERM HUP; echo ready
        (trap '' HUP; trap - TERM; while :; do echo alive >> $F/alive; sleep 0.02; done) >/dev/null 2>&1 &
        while :; do sleep 0.02; done"#;
    let mut terminal = Terminal::with(&scene, "10s", script);
    terminal.shows("ready");
    terminal.close();
    let done = scene
        .run("lock k --ttl 10s --wait 20s", "wc -l < $F/alive")
        .with(0);
    assert_eq!(scene.lines("log"), ["told"]);
    let before: usize = done.out.trim().parse().expect("a number");
    assert_eq!(
        scene.lines("alive").len(),
        before,
        "what it left behind lives on"
    );
    assert!(done.undisturbed < Duration::from_secs(2), "{done:?}");
}
