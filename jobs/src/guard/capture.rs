//! Output of any length in bounded memory: its beginning and its end.

use std::collections::VecDeque;

/// What was written so far.
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    head_room: usize,
    tail: VecDeque<u8>,
    tail_room: usize,
    written: u64,
}

impl Capture {
    /// Keeps at most `limit` bytes: a quarter of them from the beginning.
    pub(super) fn new(limit: usize) -> Self {
        let head_room = limit / 4;
        Self {
            head: Vec::new(),
            head_room,
            tail: VecDeque::new(),
            tail_room: limit - head_room,
            written: 0,
        }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_room - self.head.len()));
        self.head.extend_from_slice(first);
        let kept = &rest[rest.len().saturating_sub(self.tail_room)..];
        let too_many = (self.tail.len() + kept.len()).saturating_sub(self.tail_room);
        self.tail.drain(..too_many);
        self.tail.extend(kept);
    }

    /// Bytes taken in all.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The last line that is not empty, also one that has no end yet; where a program writes one line over and over, what it shows.
    pub(super) fn last_line(&self) -> Option<String> {
        let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let kept: Vec<u8> = self.head.iter().chain(&self.tail).copied().collect();
        let mut lines = kept.rsplit(is_end).map(String::from_utf8_lossy);
        let line = lines.find(|line| !line.trim().is_empty())?;
        Some(line.trim().to_owned())
    }

    /// The text, with a line about what was left out.
    pub(super) fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let left_out = self.written - (self.head.len() + tail.len()) as u64;
        if left_out == 0 {
            return String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned();
        }
        let head = String::from_utf8_lossy(&self.head);
        let tail = String::from_utf8_lossy(&tail);
        format!("{head}\n... {left_out} bytes left out ...\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_kept_whole() {
        let mut capture = Capture::new(16);
        for part in ["gr", "üß", "e", "!\n"] {
            capture.take(part.as_bytes());
        }
        assert_eq!(capture.text(), "grüße!\n");
    }

    #[test]
    fn of_long_output_the_beginning_and_the_end_are_kept() {
        let mut capture = Capture::new(16);
        capture.take(b"begin");
        for _ in 0..1000 {
            capture.take(&[b'x'; 100]);
        }
        capture.take(b"the end.");
        assert_eq!(capture.written(), 100_013);
        let text = capture.text();
        assert_eq!(text, "begi\n... 99997 bytes left out ...\nxxxxthe end.");
        assert!(capture.tail.capacity() <= 64);
    }

    #[test]
    fn the_last_line_is_what_a_person_would_see_last() {
        let last = |written: &[&str]| {
            let mut capture = Capture::new(64);
            for part in written {
                capture.take(part.as_bytes());
            }
            capture.last_line()
        };
        assert_eq!(last(&[]), None);
        assert_eq!(last(&["\n \r\n"]), None);
        assert_eq!(last(&["one\ntwo\n\n"]).unwrap(), "two");
        assert_eq!(last(&["one\nhalf a l", "ine"]).unwrap(), "half a line");
        assert_eq!(last(&["10 %\r20 %\r"]).unwrap(), "20 %");
        let long = "x".repeat(1000);
        assert!(last(&["one\n", &long]).unwrap().len() <= 64);
    }

    #[test]
    fn one_write_longer_than_all_room_is_cut_the_same() {
        let (mut at_once, mut slowly) = (Capture::new(10), Capture::new(10));
        let bytes: Vec<u8> = (b'a'..=b'z').collect();
        at_once.take(&bytes);
        bytes.iter().for_each(|byte| slowly.take(&[*byte]));
        assert_eq!(at_once.text(), slowly.text());
    }
}
