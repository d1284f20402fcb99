//! Lines of the log as a terminal may have them: what others said in them commands nothing.

use std::io::{self, Write};

use tracing_subscriber::{
    field::MakeExt,
    fmt::{FormatFields, MakeWriter, format},
};

use crate::terminal;

/// Fields of a line of text. Their values are written out here: once they are coloured a reader cannot tell the log's own colours
/// from theirs.
pub(super) fn fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    let fields = format::debug_fn(|to, field, value| {
        let value = format!("{value:?}");
        let value = terminal::line(&value);
        match field.name() {
            "message" => write!(to, "{value}"),
            // Of programs that log with another crate: said in the line already.
            name if name.starts_with("log.") => Ok(()),
            name if to.has_ansi_escapes() => {
                write!(to, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m{value}")
            }
            name => write!(to, "{name}={value}"),
        }
    });
    fields.delimited(" ")
}

/// Writers whose lines are shown, not obeyed.
pub(super) struct Shown<M> {
    pub(super) to: M,
    /// The log colours its lines.
    pub(super) colours: bool,
}

/// One of them.
pub(super) struct LineWriter<W> {
    to: W,
    colours: bool,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Shown<M> {
    type Writer = LineWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter {
            to: self.to.make_writer(),
            colours: self.colours,
        }
    }
}

impl<W: Write> Write for LineWriter<W> {
    /// Takes one whole line: the log writes each in a single call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let shown = terminal::log_line(&text, self.colours);
        self.to.write_all(shown.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
