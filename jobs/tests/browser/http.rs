//! One request over plain HTTP: to a worker, or to the driver of a browser.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use crate::wait::SOON;

/// Longer than anything on a page is waited for, so that it is the page that says what did not come.
const PATIENCE: Duration = Duration::from_secs(SOON.as_secs() * 2);

/// The status and the body that are answered. `headers` are further lines, each with its end.
pub(crate) fn ask(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = BufReader::new(stream);
    let mut line = String::new();
    answer.read_line(&mut line)?;
    let status = line.split_whitespace().nth(1);
    let status: Option<u16> = status.and_then(|status| status.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    let mut length: Option<u64> = None;
    loop {
        line.clear();
        if answer.read_line(&mut line)? == 0 || line.trim_end().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
    let mut body = Vec::new();
    match length {
        // A driver may keep the connection open.
        Some(length) => answer.take(length).read_to_end(&mut body)?,
        None => answer.read_to_end(&mut body)?,
    };
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
