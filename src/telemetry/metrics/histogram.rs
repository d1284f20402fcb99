//! A histogram with fixed bounds, as small as can be: a fleet of jobs has several for each of them.

use std::fmt;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

/// Lies in the table of its samples.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
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
        Self {
            bounds,
            counts,
            sum,
        }
    }

    pub(super) fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
            self.sum += value;
        }
    }

    pub(super) fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.counts.iter().copied()).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum, count, &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{
        encoding::{EncodeMetric, text::encode},
        metrics::MetricType,
        registry::Registry,
    };

    use super::*;

    /// Without labels.
    #[derive(Clone, Debug)]
    struct Alone(Histogram);

    impl EncodeMetric for Alone {
        fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
            self.0.encode(encoder)
        }

        fn metric_type(&self) -> MetricType {
            MetricType::Histogram
        }
    }

    #[test]
    fn it_shows_what_the_usual_one_shows() {
        const BOUNDS: &[f64] = &[0.01, 0.5, 10.0];
        let usual = prometheus_client::metrics::histogram::Histogram::new(BOUNDS.iter().copied());
        let mut small = Histogram::new(BOUNDS);
        for value in [0.0, 0.01, 0.011, 0.5, 9.0, 10.0, 10.5, 86_400.0] {
            usual.observe(value);
            small.observe(value);
        }
        let small = Alone(small);
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
