//! The process in numbers, read from `/proc/self` at each scrape. What cannot be read is left out.

use std::fs;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

/// Ticks per second in `/proc/*/stat`; 100 on every Linux that Rust runs on, whatever the kernel's own rate.
const TICKS: f64 = 100.0;

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut show = |name, help, unit, metric: &dyn EncodeMetric| {
            let encoder = encoder.encode_descriptor(name, help, unit, metric.metric_type())?;
            metric.encode(encoder)
        };
        if let Some(bytes) = resident_bytes() {
            let (help, bytes) = ("Resident memory.", ConstGauge::new(bytes));
            show("process_resident_memory", help, Some(&Unit::Bytes), &bytes)?;
        }
        if let Some(files) = open_files() {
            let (help, files) = ("Open file descriptors.", ConstGauge::new(files));
            show("process_open_fds", help, None, &files)?;
        }
        if let Some((cpu, started)) = cpu_and_start() {
            let (cpu, started) = (ConstCounter::new(cpu), ConstGauge::new(started));
            let help = "Processor time, user and system.";
            show("process_cpu", help, Some(&Unit::Seconds), &cpu)?;
            let help = "When the process started, as Unix time.";
            show("process_start_time", help, Some(&Unit::Seconds), &started)?;
        }
        Ok(())
    }
}

/// What stands there; the program's name among it may be cut within a letter.
fn text(path: &str) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn resident_bytes() -> Option<i64> {
    let status = text("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn open_files() -> Option<i64> {
    // The directory that is being read is an open file, too.
    i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count().checked_sub(1)?).ok()
}

/// Processor seconds and the Unix time of the start.
fn cpu_and_start() -> Option<(f64, f64)> {
    let stat = text("/proc/self/stat")?;
    // The second field is the program's name in parentheses and may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |n: usize| fields.get(n - 3)?.parse::<f64>().ok();
    let cpu = (field(14)? + field(15)?) / TICKS;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let boot = machine.lines().find_map(|l| l.strip_prefix("btime "))?;
    let boot: f64 = boot.trim().parse().ok()?;
    Some((cpu, boot + field(22)? / TICKS))
}
