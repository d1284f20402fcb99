//! One process of a scene: its lines, its signals, its end.

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use rustix::process::Signal;
use watchkeeper::clock::{Clock, Moment};

use crate::wait::{signal_child, undisturbed, until};

/// A process under way. Killed on drop.
pub(crate) struct Running {
    child: Child,
    /// Lines of standard output and standard error, as they come.
    lines: Arc<Mutex<Vec<(Pipe, String)>>>,
    readers: Vec<JoinHandle<()>>,
    started: Moment,
}

/// Where a line was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipe {
    Out,
    Err,
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// The exit status; none when a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
    /// Of which it had no need to wait for a processor: what limits are for.
    pub(crate) undisturbed: Duration,
}

// === impl Running ===

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let started = Clock::system().now();
        let mut child = command.spawn().expect("the program starts");
        let lines = Arc::default();
        let out = child.stdout.take().map(|p| follow(p, Pipe::Out, &lines));
        let err = child.stderr.take().map(|p| follow(p, Pipe::Err, &lines));
        let readers = out.into_iter().chain(err).collect();
        Self {
            child,
            lines,
            readers,
            started,
        }
    }

    /// Waits for a line that contains `text`.
    pub(crate) fn wait_for_line(&self, text: &str) -> String {
        let mut found = None;
        until(|| {
            let lines = self.lines.lock().unwrap();
            // A warning that nothing was acquired says `held_back`.
            let says = |line: &str| line.replace("held_back", "").contains(text);
            let line = lines.iter().find(|(_, line)| says(line));
            found = line.map(|(_, line)| line.clone());
            found.is_some()
        });
        found.unwrap_or_else(|| panic!("no {text} in {:?}", self.lines.lock().unwrap()))
    }

    /// Whether it has written a line that contains `text`.
    pub(crate) fn has_said(&self, text: &str) -> bool {
        let lines = self.lines.lock().unwrap();
        lines.iter().any(|(_, line)| line.contains(text))
    }

    /// How many lines it has written that contain all of these.
    pub(crate) fn count(&self, texts: &[&str]) -> usize {
        let lines = self.lines.lock().unwrap();
        let says = |line: &str| texts.iter().all(|text| line.contains(text));
        lines.iter().filter(|(_, line)| says(line)).count()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_child(&self.child, signal);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_some()
    }

    /// Waits for its end.
    pub(crate) fn done(mut self) -> Done {
        let mut status = None;
        let ended = until(|| {
            status = self.child.try_wait().expect("our own child");
            status.is_some()
        });
        let now = Clock::system().now();
        let took = now.since(self.started);
        let undisturbed = undisturbed(self.started, now);
        assert!(ended, "it goes on: {:?}", self.lines.lock().unwrap());
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader");
        }
        let of = |pipe| {
            let lines = self.lines.lock().unwrap();
            let lines = lines.iter().filter(|(from, _)| *from == pipe);
            lines.fold(String::new(), |all, (_, line)| all + line + "\n")
        };
        let status = status.expect("it has ended");
        assert_eq!(status.signal(), None, "{}", of(Pipe::Err));
        Done {
            code: status.code(),
            out: of(Pipe::Out),
            err: of(Pipe::Err),
            took,
            undisturbed,
        }
    }

    /// Kills it as the kernel does; says when.
    pub(crate) fn kill(mut self) -> Moment {
        let at = Clock::system().now();
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
        at
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn follow(
    pipe: impl Read + Send + 'static,
    from: Pipe,
    lines: &Arc<Mutex<Vec<(Pipe, String)>>>,
) -> JoinHandle<()> {
    let lines = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            lines.lock().unwrap().push((from, line));
        }
    })
}

// === impl Done ===

impl Done {
    /// Checks the exit status.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Checks that standard error says all of these.
    #[track_caller]
    pub(crate) fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.err.contains(text), "no {text:?} in {}", self.err);
        }
        self
    }
}
