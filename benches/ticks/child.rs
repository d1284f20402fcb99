//! What runs in a process of its own: a worker, bare timers, or the other scheduler. It notes how late each run begins.

use std::{
    io::{BufRead, Write},
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use watchkeeper::{
    Job, JobError, Outcome, Run, Spec, Worker, clock::Clock, config::LoadOptions,
    job::Coordination, schedule::Schedule,
};

/// How the parent says what a child is to do: the argument that follows.
pub(crate) const FLAG: &str = "--child";

/// A period of five seconds, where none is given: a thousand jobs are two hundred ticks a second.
pub(crate) const PERIOD: Duration = Duration::from_secs(5);

/// Who runs the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Who {
    /// A worker of ours whose jobs each have a leader.
    Led,
    /// A worker of ours whose jobs run everywhere, without locks.
    Everywhere,
    /// A task with a sleeping timer for each job, and nothing else.
    Timers,
    /// tokio-cron-scheduler.
    Peer,
}

/// When the jobs are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum When {
    /// Every five seconds, each job at instants of its own.
    Spread,
    /// The same, every so many milliseconds.
    SpreadOver(u64),
    /// Every five seconds at whole seconds, a fifth of the jobs at each.
    Seconds,
    /// Every five seconds, all at once; the second of them at which they are.
    AtOnce(i64),
    /// So seldom that nothing is due while anybody looks.
    Rest,
}

/// From the start of one replica of a process to that of the next.
const BETWEEN_STARTS: Duration = Duration::from_millis(800);

/// With more replicas than this a process waits longer for its nodes: they share two processors, on which each waits for the others.
const MANY: usize = 8;

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) who: Who,
    pub(crate) when: When,
    pub(crate) jobs: usize,
    /// Replicas in this process, each with connections and a keeper of its own.
    pub(crate) replicas: usize,
    /// The servers' addresses; none for who needs none.
    pub(crate) nodes: Vec<String>,
    /// Where the configuration is written.
    pub(crate) folder: std::path::PathBuf,
    /// Where its page is to be had. Then it notes what is left of a lease at each of its renewals, and not how late runs are.
    pub(crate) page: Option<SocketAddr>,
}

/// The lateness of every run since the parent has said `begin`, in microseconds.
#[derive(Clone, Default)]
struct Delays(Arc<Mutex<Vec<u64>>>);

/// Where runs are written down as they begin, for who asks after the process was killed.
type Begun = Arc<Mutex<std::fs::File>>;

/// A job that does nothing but note how late it is.
struct Note {
    delays: Delays,
    begun: Option<Begun>,
    clock: Clock,
    schedule: Schedule,
}

/// A job that notes what is left of its lease whenever that is extended.
struct Watch {
    left: Delays,
    clock: Clock,
}

// === impl Task ===

impl Task {
    /// Does it until the parent has gone.
    pub(crate) fn run(self) {
        let delays = Delays::default();
        let listening = delays.clone();
        std::thread::spawn(move || listening.listen());
        // As `#[tokio::main]` has it.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            match self.who {
                Who::Led | Who::Everywhere => self.work(delays).await,
                Who::Timers => self.sleep(&delays).await,
                Who::Peer => self.peer(&delays).await,
            }
        });
    }

    fn name(job: usize) -> String {
        format!("job-{job:04}")
    }

    /// Cron, for whoever has no other way to say it.
    fn cron(&self, job: usize) -> String {
        let at = |first: usize| {
            let seconds = (0..60).skip(first).step_by(5);
            let seconds: Vec<String> = seconds.map(|s| s.to_string()).collect();
            format!("{} * * * * *", seconds.join(","))
        };
        match self.when {
            When::Spread | When::SpreadOver(_) | When::Rest => "0 0 0 1 1 *".to_owned(),
            When::Seconds => at(job % 5),
            When::AtOnce(second) => at(usize::try_from(second).unwrap_or(0)),
        }
    }

    fn spec(&self, job: usize) -> Spec {
        let spec = match self.when {
            When::Spread => Self::spread(PERIOD),
            When::SpreadOver(ms) => Self::spread(Duration::from_millis(ms)),
            When::Seconds | When::AtOnce(_) => Spec::cron(self.cron(job)),
            When::Rest => Spec::cron("@yearly"),
        };
        match self.who {
            Who::Everywhere => spec.coordination(Coordination::Everywhere),
            _ => spec,
        }
    }

    fn spread(period: Duration) -> Spec {
        Spec::every(period).jitter(period * 49 / 50)
    }

    /// The last instant up to now at which the job was due, for those who are not told.
    fn due(&self, job: usize, now: Timestamp) -> Timestamp {
        let offset = match self.when {
            When::AtOnce(second) => second,
            _ => i64::try_from(job % 5).unwrap_or(0),
        };
        let second = (now.as_second() - offset).div_euclid(5) * 5 + offset;
        Timestamp::from_second(second).unwrap()
    }

    async fn work(&self, delays: Delays) {
        let mut replicas = tokio::task::JoinSet::new();
        for replica in 0..self.replicas {
            if replica > 0 {
                // As machines come up, and not all on the processors of one at once.
                Clock::system().sleep(BETWEEN_STARTS).await;
            }
            replicas.spawn(self.worker(replica, &delays).run());
        }
        while let Some(ended) = replicas.join_next().await {
            ended.unwrap().unwrap();
        }
    }

    fn worker(&self, replica: usize, delays: &Delays) -> Worker {
        let name = format!("{:?}-{}-{replica}", self.who, std::process::id());
        let patience = (self.replicas > MANY).then_some("node_timeout = \"500ms\"\n");
        let listen = self.page.map(|page| page.to_string());
        let options = options(
            &self.folder,
            (&name, listen.as_deref()),
            &self.nodes,
            patience.unwrap_or_default(),
        );
        let begun = (self.replicas > 1).then(|| {
            let file = self
                .folder
                .join(format!("{}-{replica}.runs", std::process::id()));
            Arc::new(Mutex::new(std::fs::File::create(file).unwrap()))
        });
        let mut worker = Worker::with(options);
        let mut noted = delays.clone();
        if self.page.is_some() {
            let watch = Watch {
                left: std::mem::take(&mut noted),
                clock: Clock::system(),
            };
            worker = worker.job("watch", watch, Spec::continuous());
        }
        for job in 0..self.jobs {
            let (name, spec) = (Self::name(job), self.spec(job));
            let note = Note {
                delays: noted.clone(),
                begun: begun.clone(),
                clock: Clock::system(),
                schedule: spec.schedule_of(&name).unwrap(),
            };
            worker = worker.job(&name, note, spec);
        }
        worker
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "what is compared with are these very functions"
    )]
    async fn sleep(&self, delays: &Delays) {
        let clock = Clock::system();
        for job in 0..self.jobs {
            let (delays, clock, task) = (delays.clone(), clock.clone(), self.clone());
            tokio::spawn(async move {
                let now = clock.wall();
                let mut due = task.due(job, now) + PERIOD;
                let mut at = tokio::time::Instant::now() + between(now, due);
                loop {
                    tokio::time::sleep_until(at).await;
                    delays.note(clock.wall(), due);
                    (at, due) = (at + PERIOD, due + PERIOD);
                }
            });
        }
        std::future::pending().await
    }

    async fn peer(&self, delays: &Delays) {
        use tokio_cron_scheduler::{Job, JobScheduler};

        let clock = Clock::system();
        let scheduler = JobScheduler::new().await.unwrap();
        for job in 0..self.jobs {
            let (delays, clock, task) = (delays.clone(), clock.clone(), self.clone());
            let job = Job::new_async(self.cron(job), move |_, _| {
                let now = clock.wall();
                delays.note(now, task.due(job, now));
                Box::pin(async {})
            });
            scheduler.add(job.unwrap()).await.unwrap();
        }
        scheduler.start().await.unwrap();
        std::future::pending().await
    }
}

/// A configuration of this name, with its page there, over these servers, with `more` settings of them, or over a store in memory
/// where there are none.
pub(crate) fn options(
    folder: &Path,
    (name, listen): (&str, Option<&str>),
    nodes: &[String],
    more: &str,
) -> LoadOptions {
    let listen = listen.unwrap_or("127.0.0.1:0");
    let backend = if nodes.is_empty() {
        "backend = \"memory\"\n".to_owned()
    } else {
        let nodes = serde_json::to_string(nodes).unwrap();
        format!("backend = \"redis\"\n[locks.redis]\nnodes = {nodes}\n{more}")
    };
    let config =
        format!("[admin]\nlisten = \"{listen}\"\n[worker]\nname = \"{name}\"\n[locks]\n{backend}");
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, config).unwrap();
    LoadOptions {
        file: Some(file),
        root: folder.to_owned(),
        ..LoadOptions::default()
    }
}

// === impl Delays ===

impl Delays {
    fn note(&self, now: Timestamp, due: Timestamp) {
        let late = u64::try_from(between(due, now).as_micros()).unwrap_or(u64::MAX);
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(late);
    }

    /// Obeys the parent; ends the process when he has gone.
    fn listen(&self) {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let noted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            if line == "end" {
                let mut out = std::io::stdout().lock();
                writeln!(out, "{}", serde_json::to_string(&noted).unwrap()).unwrap();
                out.flush().unwrap();
            }
        }
        std::process::exit(0);
    }
}

/// Zero when it is not ahead: clocks of servers count in milliseconds.
fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

// === impl Note ===

#[async_trait]
impl Job for Note {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        self.delays
            .note(self.clock.wall(), self.schedule.starts(run.tick()));
        if let Some(begun) = &self.begun {
            let line = format!("{} {}\n", run.job(), run.tick());
            let mut file = begun.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(line.as_bytes()).unwrap();
        }
        Ok(Outcome::Done)
    }
}

// === impl Watch ===

#[async_trait]
impl Job for Watch {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        let lease = run.lease().expect("it has a leader");
        let mut before = lease.remaining();
        while run.check().is_ok() {
            self.clock.sleep(Duration::from_millis(2)).await;
            let left = lease.remaining();
            if left > before {
                let micros = u64::try_from(before.as_micros()).unwrap_or(u64::MAX);
                let mut all = self.left.0.lock().unwrap_or_else(PoisonError::into_inner);
                all.push(micros);
            }
            before = left;
        }
        Ok(Outcome::Done)
    }
}
