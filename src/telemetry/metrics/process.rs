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
        if let Some(bytes) = resident_bytes() {
            let gauge = ConstGauge::new(bytes);
            let help = "Resident memory.";
            let encoder = encoder.encode_descriptor(
                "process_resident_memory",
                help,
                Some(&Unit::Bytes),
                gauge.metric_type(),
            )?;
            gauge.encode(encoder)?;
        }
        if let Some(files) = open_files() {
            let gauge = ConstGauge::new(files);
            let help = "Open file descriptors.";
            let encoder =
                encoder.encode_descriptor("process_open_fds", help, None, gauge.metric_type())?;
            gauge.encode(encoder)?;
        }
        let Some((cpu, started)) = cpu_and_start() else {
            return Ok(());
        };
        let counter = ConstCounter::new(cpu);
        let cpu_encoder = encoder.encode_descriptor(
            "process_cpu",
            "Processor time, user and system.",
            Some(&Unit::Seconds),
            counter.metric_type(),
        )?;
        counter.encode(cpu_encoder)?;
        let gauge = ConstGauge::new(started);
        let start_encoder = encoder.encode_descriptor(
            "process_start_time",
            "When the process started, as Unix time.",
            Some(&Unit::Seconds),
            gauge.metric_type(),
        )?;
        gauge.encode(start_encoder)
    }
}

fn resident_bytes() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
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
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses and may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |n: usize| fields.get(n - 3)?.parse::<f64>().ok();
    let cpu = (field(14)? + field(15)?) / TICKS;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let boot = machine.lines().find_map(|l| l.strip_prefix("btime "))?;
    let boot: f64 = boot.trim().parse().ok()?;
    Some((cpu, boot + field(22)? / TICKS))
}
