//! The samples of one name, as small as can be: ten thousand jobs have a dozen for each of them.
//!
//! A sample lies in the table itself, and the values of its labels are numbers of words that all other samples share.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

use super::histogram::Histogram;

/// The samples of one name: one for each set of values of its labels. Cheap to clone.
pub(super) struct Series<const N: usize, M> {
    labels: [&'static str; N],
    new: fn() -> M,
    words: Words,
    samples: Arc<Mutex<Samples<N, M>>>,
}

type Samples<const N: usize, M> = HashMap<[Word; N], M>;

/// The values of all labels, once each. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Words(Arc<Mutex<Known>>);

/// Stands for a value of a label.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Word(u32);

#[derive(Default)]
struct Known {
    words: HashMap<Arc<str>, Word>,
    /// By number.
    all: Vec<Arc<str>>,
}

/// What a sample has to be.
pub(super) trait Sample: Send + 'static {
    const TYPE: MetricType;

    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result;
}

#[derive(Default)]
pub(super) struct Counter(u64);

#[derive(Default)]
pub(super) struct Gauge(i64);

#[derive(Default)]
pub(super) struct Seconds(f64);

// === impl Words ===

impl Words {
    fn shared(&self, word: &str) -> Word {
        let mut known = self.known();
        if let Some(word) = known.words.get(word) {
            return *word;
        }
        // More than four billion do not fit into any memory.
        let new = Word(u32::try_from(known.all.len()).unwrap_or(u32::MAX));
        let word: Arc<str> = word.into();
        known.all.push(word.clone());
        known.words.insert(word, new);
        new
    }

    fn all(&self) -> Vec<Arc<str>> {
        self.known().all.clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Every change is complete before the lock is given back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Word ===

impl Word {
    fn of(self, words: &[Arc<str>]) -> &str {
        let number = usize::try_from(self.0).ok();
        number
            .and_then(|number| words.get(number))
            .map_or("", |word| word)
    }
}

// === impl Series ===

impl<const N: usize, M: Sample> Series<N, M> {
    pub(super) fn new(labels: [&'static str; N], new: fn() -> M, words: Words) -> Self {
        let samples = Arc::default();
        Self {
            labels,
            new,
            words,
            samples,
        }
    }

    /// Shows the sample with these values of the labels from now on. Whether it was not shown before.
    pub(super) fn show(&self, values: [&str; N]) -> bool {
        self.change(values, |_| {})
    }

    pub(super) fn has(&self, values: [&str; N]) -> bool {
        let values = self.shared(values);
        self.samples().contains_key(&values)
    }

    /// Shows it no more.
    pub(super) fn remove(&self, values: [&str; N]) {
        let values = self.shared(values);
        self.samples().remove(&values);
    }

    /// Whether it was not shown before.
    fn change(&self, values: [&str; N], change: impl FnOnce(&mut M)) -> bool {
        let values = self.shared(values);
        let mut samples = self.samples();
        let known = samples.len();
        change(samples.entry(values).or_insert_with(self.new));
        samples.len() > known
    }

    fn shared(&self, values: [&str; N]) -> [Word; N] {
        values.map(|value| self.words.shared(value))
    }

    fn samples(&self) -> MutexGuard<'_, Samples<N, M>> {
        // Every change is complete before the lock is given back.
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const N: usize, M> Clone for Series<N, M> {
    fn clone(&self) -> Self {
        Self {
            labels: self.labels,
            new: self.new,
            words: self.words.clone(),
            samples: self.samples.clone(),
        }
    }
}

impl<const N: usize> Series<N, Counter> {
    pub(super) fn add(&self, values: [&str; N], count: u64) {
        self.change(values, |sample| sample.0 = sample.0.wrapping_add(count));
    }
}

impl<const N: usize> Series<N, Gauge> {
    pub(super) fn set(&self, values: [&str; N], number: impl TryInto<i64>) {
        let number = number.try_into().unwrap_or(i64::MAX);
        self.change(values, |sample| sample.0 = number);
    }
}

impl<const N: usize> Series<N, Seconds> {
    pub(super) fn set(&self, values: [&str; N], seconds: f64) {
        self.change(values, |sample| sample.0 = seconds);
    }
}

impl Series<1, Gauge> {
    /// Of these and no others.
    pub(super) fn only(&self, jobs: &[(String, bool)]) {
        self.samples().clear();
        jobs.iter().for_each(|(job, is)| self.set([job], *is));
    }
}

impl Series<1, Seconds> {
    /// Of these and no others.
    pub(super) fn only(&self, jobs: &[(String, Duration)]) {
        self.samples().clear();
        for (job, time) in jobs {
            self.set([job], time.as_secs_f64());
        }
    }
}

impl<const N: usize> Series<N, Histogram> {
    /// Whether it was not shown before.
    pub(super) fn took(&self, values: [&str; N], time: Duration) -> bool {
        self.change(values, |sample| sample.observe(time.as_secs_f64()))
    }
}

impl<const N: usize, M: Sample> EncodeMetric for Series<N, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let samples = self.samples();
        // A copy: other samples change meanwhile.
        let words = self.words.all();
        for (values, sample) in &*samples {
            let labels: [(&str, &str); N] =
                std::array::from_fn(|n| (self.labels[n], values[n].of(&words)));
            sample.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }
}

impl<const N: usize, M> fmt::Debug for Series<N, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Series").field(&self.labels).finish()
    }
}

// === impl Sample ===

impl Sample for Counter {
    const TYPE: MetricType = MetricType::Counter;

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_counter::<NoLabelSet, _, u64>(&self.0, None)
    }
}

impl Sample for Gauge {
    const TYPE: MetricType = MetricType::Gauge;

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.0)
    }
}

impl Sample for Seconds {
    const TYPE: MetricType = MetricType::Gauge;

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.0)
    }
}

impl Sample for Histogram {
    const TYPE: MetricType = MetricType::Histogram;

    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        Histogram::encode(self, encoder)
    }
}
