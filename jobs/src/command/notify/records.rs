//! Watches CSV while it is read: a record must have an end, and not fill the memory. A quote that is not closed would otherwise
//! make all that is behind it one field, of one row.

use std::io::{self, Read};

/// Passes CSV on as it is, up to a record that is too long or has no end.
#[derive(Debug)]
pub(super) struct Records<R> {
    from: R,
    longest: usize,
    state: CsvState,
    /// Bytes of this record so far.
    length: usize,
    line: u64,
    /// The line in which the last quoted field begins.
    quoted_in: u64,
}

/// Where in a record, as [RFC 4180](https://www.rfc-editor.org/rfc/rfc4180) and its reader see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CsvState {
    FieldBegins,
    Plain,
    Quoted,
    /// Behind a quote within quotes: the end of the field, or the first of two that stand for one.
    Quote,
}

/// What some programs begin a file with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

// === impl Records ===

impl<R: Read> Records<R> {
    pub(super) const fn new(from: R, longest: usize) -> Self {
        Self {
            from,
            longest,
            state: CsvState::FieldBegins,
            length: 0,
            line: 1,
            quoted_in: 0,
        }
    }

    /// Whether the record is too long with this byte.
    fn pass(&mut self, byte: u8) -> bool {
        self.length += 1;
        // It is a part of no field.
        let is_mark = self.line == 1
            && self.state == CsvState::FieldBegins
            && BYTE_ORDER_MARK.get(self.length - 1) == Some(&byte);
        self.line += u64::from(byte == b'\n');
        self.state = match (self.state, byte) {
            _ if is_mark => CsvState::FieldBegins,
            (CsvState::FieldBegins, b'"') => {
                self.quoted_in = self.line;
                CsvState::Quoted
            }
            (CsvState::Quoted, b'"') => CsvState::Quote,
            (CsvState::Quoted, _) | (CsvState::Quote, b'"') => CsvState::Quoted,
            (_, b'\n' | b'\r') => {
                self.length = 0;
                CsvState::FieldBegins
            }
            (_, b',') => CsvState::FieldBegins,
            _ => CsvState::Plain,
        };
        self.length > self.longest
    }
}

impl<R: Read> Read for Records<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        if read == 0 && !buffer.is_empty() && self.state == CsvState::Quoted {
            return Err(wrong(
                self.quoted_in,
                "the quote that opens there is never closed",
            ));
        }
        for byte in buffer.iter().take(read) {
            if self.pass(*byte) {
                return Err(wrong(self.line, "the record is longer than 64 MiB"));
            }
        }
        Ok(read)
    }
}

fn wrong(line: u64, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("line {line}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, longest: usize) -> Result<String, String> {
        let mut passed = String::new();
        let mut records = Records::new(text.as_bytes(), longest);
        let read = records.read_to_string(&mut passed);
        read.map(|_| passed).map_err(|why| why.to_string())
    }

    #[test]
    fn a_quote_that_is_never_closed_is_named_by_its_line() {
        for good in [
            "a,b\n1,\"x\n\"\"y\"\"\"\n",
            "a\n\"x\"",
            "a\nx\"y\n",
            "a\n\"x\"y,\"z\"\n",
            "\u{feff}\"a\",b\n1,2\n",
            "\"\"\"\"",
            "",
        ] {
            assert_eq!(read(good, 99).as_deref(), Ok(good));
        }
        for (bad, line) in [
            ("a,b\n1,\"x\n2,y\n", 2),
            ("a\n\"x\n\"\n\"y", 4),
            ("\u{feff}\"a\n", 1),
            ("a\n\"x\"\"", 2),
        ] {
            let why = read(bad, 99).unwrap_err();
            assert!(why.starts_with(&format!("line {line}: ")), "{bad:?}: {why}");
        }
    }

    #[test]
    fn a_record_has_so_many_bytes_at_most() {
        assert!(read("aaaa\nbb\"b\n\"c\nc\"\n", 5).is_ok());
        assert!(read("aaaaa\n", 5).is_ok());
        let why = read("a\n\"b\nbbb\"\n", 5).unwrap_err();
        assert!(why.starts_with("line 3: "), "{why}");
    }
}
