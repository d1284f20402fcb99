//! A child as its parent sees it: what it reports, and what the system says that it uses.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use watchkeeper::clock::{Clock, Moment};

use crate::child::{FLAG, Task};

/// A running child. Killed and reaped on drop.
pub(crate) struct Process {
    child: Child,
    answers: BufReader<ChildStdout>,
    clock: Clock,
    begun: Option<(Moment, Duration)>,
}

/// What a child did between two moments.
pub(crate) struct Done {
    /// How late each run began.
    pub(crate) delays: Vec<Duration>,
    /// How long it was watched.
    pub(crate) time: Duration,
    /// Processor time of all its threads.
    pub(crate) cpu: Duration,
    /// Resident memory at the end, in MB of 1,000,000 bytes.
    pub(crate) memory: f64,
}

// === impl Process ===

impl Process {
    pub(crate) fn start(task: &Task) -> Self {
        let task = serde_json::to_string(task).unwrap();
        let log = std::env::var("WATCHKEEPER_BENCH_LOG").is_ok();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([FLAG, &task])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(if log { Stdio::inherit() } else { Stdio::null() })
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            answers,
            clock: Clock::system(),
            begun: None,
        }
    }

    pub(crate) fn must_live(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("a child ended with {status}: WATCHKEEPER_BENCH_LOG=1 shows what it says");
        }
    }

    pub(crate) fn begin(&mut self) {
        self.say("begin");
        self.begun = Some((self.clock.now(), self.cpu()));
    }

    pub(crate) fn end(&mut self) -> Done {
        let (began, cpu) = self.begun.take().expect("begun before");
        self.say("end");
        let (time, cpu) = (self.clock.now().since(began), self.cpu() - cpu);
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let delays: Vec<u64> = serde_json::from_str(&line).expect("the child lives");
        Done {
            delays: delays.into_iter().map(Duration::from_micros).collect(),
            time,
            cpu,
            memory: self.memory(),
        }
    }

    fn say(&mut self, word: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{word}").unwrap();
    }

    fn cpu(&self) -> Duration {
        cpu_of(self.child.id())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.unwrap().split_whitespace().next().unwrap();
        kib.parse::<u64>().unwrap() as f64 * 1024.0 / 1e6
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// User and system time of a process, from `/proc/PID/stat`.
pub(crate) fn cpu_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // A hundredth of a second each, on every Linux.
    Duration::from_millis(ticks * 10)
}

// === impl Done ===

impl Done {
    /// Of one processor, in percent.
    pub(crate) fn cpu_percent(&self) -> f64 {
        self.cpu.as_secs_f64() / self.time.as_secs_f64() * 100.0
    }

    /// Runs a second.
    pub(crate) fn rate(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let runs = self.delays.len() as f64;
        runs / self.time.as_secs_f64()
    }
}
