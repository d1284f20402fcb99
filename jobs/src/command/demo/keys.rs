//! Single keys from the terminal, which is put back as it was when this is dropped.

use std::io::{self, IsTerminal, Read};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Kill,
    Freeze,
    Thaw,
    HandOver,
    Quit,
}

/// Keys as they are pressed; none without a terminal.
#[derive(Debug)]
pub(crate) struct Keys {
    pressed: Option<mpsc::Receiver<Key>>,
    before: Option<Termios>,
}

impl Keys {
    /// Listens, when standard input is a terminal.
    pub(crate) fn listen() -> Self {
        let none = Self {
            pressed: None,
            before: None,
        };
        let stdin = io::stdin();
        let Some(before) = stdin
            .is_terminal()
            .then(|| tcgetattr(&stdin).ok())
            .flatten()
        else {
            return none;
        };
        let mut single = before.clone();
        // Each key at once and unseen. Ctrl-C stays a signal.
        single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        if tcsetattr(&stdin, OptionalActions::Now, &single).is_err() {
            return none;
        }
        let (press, pressed) = mpsc::channel(16);
        // It ends with the process, or with the next key after the receiver is gone.
        std::thread::spawn(move || {
            for byte in io::stdin().lock().bytes() {
                let Ok(byte) = byte else { return };
                if let Some(key) = Key::of(byte)
                    && press.blocking_send(key).is_err()
                {
                    return;
                }
            }
        });
        Self {
            pressed: Some(pressed),
            before: Some(before),
        }
    }

    pub(crate) fn are_read(&self) -> bool {
        self.pressed.is_some()
    }

    /// The next key; never completes without a terminal. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Key {
        match &mut self.pressed {
            Some(pressed) => match pressed.recv().await {
                Some(key) => key,
                None => {
                    self.pressed = None;
                    std::future::pending().await
                }
            },
            None => std::future::pending().await,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // Nothing to be done about a terminal that is gone.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

impl Key {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            b'k' => Some(Self::Kill),
            b'f' => Some(Self::Freeze),
            b'u' => Some(Self::Thaw),
            b'h' => Some(Self::HandOver),
            b'q' => Some(Self::Quit),
            _ => None,
        }
    }
}
