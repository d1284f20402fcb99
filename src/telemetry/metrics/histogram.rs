//! A histogram with fixed bounds, as small as can be: a fleet of jobs has several for each of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Histogram(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    /// The largest value of each bucket but the last, which takes the rest.
    bounds: &'static [f64],
    counts: Box<[u64]>,
    sum: f64,
}

// === impl Histogram ===

impl Histogram {
    /// An empty one with these upper bounds, in rising order.
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let counts = vec![0; bounds.len() + 1].into_boxed_slice();
        let sum = 0.0;
        Self(Arc::new(Mutex::new(Inner {
            bounds,
            counts,
            sum,
        })))
    }

    pub(super) fn observe(&self, value: f64) {
        let mut inner = self.inner();
        let bucket = inner.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = inner.counts.get_mut(bucket) {
            *count += 1;
            inner.sum += value;
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change is complete before the lock is given back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (sum, buckets) = {
            let inner = self.inner();
            let bounds = inner.bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(inner.counts.iter().copied()).collect();
            (inner.sum, buckets)
        };
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;

    #[test]
    fn it_shows_what_the_usual_one_shows() {
        const BOUNDS: &[f64] = &[0.01, 0.5, 10.0];
        let usual = prometheus_client::metrics::histogram::Histogram::new(BOUNDS.iter().copied());
        let small = Histogram::new(BOUNDS);
        for value in [0.0, 0.01, 0.011, 0.5, 9.0, 10.0, 10.5, 86_400.0] {
            usual.observe(value);
            small.observe(value);
        }
        let text = |register: &dyn Fn(&mut Registry)| {
            let mut registry = Registry::default();
            register(&mut registry);
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        assert_eq!(
            text(&|registry| registry.register("a", "A", small.clone())),
            text(&|registry| registry.register("a", "A", usual.clone()))
        );
    }
}
