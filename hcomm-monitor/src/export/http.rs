//! A small HTTP server (RFC 9112): one thread for all clients, none of which can hold up another. It answers one request a connection,
//! and keeps nothing of what it cannot use: requests have a length and a time, clients a number.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Clients at a time; one more takes the place of the one that has been there for longest.
const CLIENTS: usize = 64;
/// Bytes of a request's head.
const HEAD: usize = 8192;
/// How long a client may take for its request, and then for its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to leave a listener alone that cannot accept (no more open files).
const PAUSE: Duration = Duration::from_millis(100);

/// What is at a path.
pub struct Page {
    /// Media type.
    pub kind: &'static str,
    /// Content.
    pub body: String,
}

/// Serves in a thread of its own, as long as the program runs. `page` gives what is at a path.
///
/// # Errors
/// The listener or a thread cannot be had.
pub fn serve(listener: TcpListener, page: impl Fn(&str) -> Option<Page> + Send + 'static) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let run = move || {
        let mut clients = Vec::new();
        loop {
            turn(&listener, &mut clients, &page);
        }
    };
    std::thread::Builder::new().name("metrics".into()).spawn(run).map(drop)
}

struct Client {
    stream: TcpStream,
    until: Instant,
    request: Vec<u8>,
    answer: Option<(Vec<u8>, usize)>,
}

/// Waits for something to happen, and does it.
fn turn(listener: &TcpListener, clients: &mut Vec<Client>, page: &impl Fn(&str) -> Option<Page>) {
    let mut watched = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    watched.extend(clients.iter().map(|client| {
        let wanted = if client.answer.is_some() { PollFlags::POLLOUT } else { PollFlags::POLLIN };
        PollFd::new(client.stream.as_fd(), wanted)
    }));
    let now = Instant::now();
    let next = clients.iter().map(|client| client.until.saturating_duration_since(now)).min();
    let timeout = next.map_or(PollTimeout::NONE, |next| {
        PollTimeout::try_from(next.as_millis() as i32 + 1).unwrap_or(PollTimeout::MAX)
    });
    // Interrupted by a signal: all is asked again.
    let _ = poll(&mut watched, timeout);
    let ready: Vec<bool> = watched.iter().map(|fd| fd.revents().is_some_and(|events| !events.is_empty())).collect();
    let now = Instant::now();
    let mut ready = ready.into_iter();
    let accepts = ready.next() == Some(true);
    clients.retain_mut(|client| {
        let stays = if ready.next() == Some(true) { client.go_on(page) } else { true };
        stays && client.until > now
    });
    if accepts {
        accept(listener, clients);
    }
}

fn accept(listener: &TcpListener, clients: &mut Vec<Client>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                if clients.len() == CLIENTS {
                    clients.remove(0);
                }
                clients.push(Client { stream, until: Instant::now() + PATIENCE, request: Vec::new(), answer: None });
            }
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => return,
            // The client has gone already.
            Err(cause) if matches!(cause.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(_) => {
                std::thread::sleep(PAUSE);
                return;
            }
        }
    }
}

impl Client {
    /// Reads or writes what can be; whether there is more to do.
    fn go_on(&mut self, page: &impl Fn(&str) -> Option<Page>) -> bool {
        match self.try_to_go_on(page) {
            Ok(more) => more,
            Err(cause) => matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn try_to_go_on(&mut self, page: &impl Fn(&str) -> Option<Page>) -> io::Result<bool> {
        while self.answer.is_none() {
            let mut part = [0; 4096];
            let length = self.stream.read(&mut part)?;
            if length == 0 {
                return Ok(false);
            }
            self.request.extend_from_slice(&part[..length]);
            if let Some(answer) = answer(&self.request, page) {
                self.answer = Some((answer, 0));
                self.until = Instant::now() + PATIENCE;
            }
        }
        let Some((answer, sent)) = &mut self.answer else { return Ok(true) };
        while *sent < answer.len() {
            *sent += self.stream.write(&answer[*sent..])?;
        }
        // What the client still sends is not waited for.
        Ok(false)
    }
}

/// The answer to a request; `None` as long as its head is not complete.
fn answer(request: &[u8], page: &impl Fn(&str) -> Option<Page>) -> Option<Vec<u8>> {
    let ends = |end: &[u8]| request.windows(end.len()).any(|part| part == end);
    if !ends(b"\r\n\r\n") && !ends(b"\n\n") {
        return (request.len() > HEAD).then(|| response("431 Request Header Fields Too Large", None, "", true));
    }
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let words: Vec<&str> = std::str::from_utf8(line).unwrap_or_default().trim_end().split(' ').collect();
    let [method, target, version] = words[..] else {
        return Some(response("400 Bad Request", None, "", true));
    };
    if !version.starts_with("HTTP/1.") {
        return Some(response("400 Bad Request", None, "", true));
    }
    let content = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return Some(response("405 Method Not Allowed", None, "Allow: GET, HEAD\r\n", true)),
    };
    let path = target.split('?').next().unwrap_or_default();
    Some(match page(path) {
        Some(page) => response("200 OK", Some(page), "", content),
        None => response("404 Not Found", None, "", content),
    })
}

fn response(status: &str, page: Option<Page>, more: &str, content: bool) -> Vec<u8> {
    let page = page.unwrap_or_else(|| Page { kind: "text/plain; charset=utf-8", body: format!("{status}\n") });
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{more}Connection: close\r\n\r\n",
        page.kind,
        page.body.len()
    );
    let mut bytes = head.into_bytes();
    if content {
        bytes.extend_from_slice(page.body.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &[u8]) -> Option<String> {
        let page = |path: &str| (path == "/metrics").then(|| Page { kind: "text/plain", body: "figures".into() });
        let answer = String::from_utf8(answer(request, &page)?).unwrap();
        Some(answer.lines().next().unwrap().to_owned() + if answer.ends_with("figures") { " +" } else { "" })
    }

    #[test]
    fn requests_are_answered_when_they_are_complete() {
        let said = |request: &str| status(request.as_bytes());
        assert_eq!(said("GET /metrics HTTP/1.1\r\nHost: a\r\n"), None);
        assert_eq!(said("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(), "HTTP/1.1 200 OK +");
        assert_eq!(said("GET /metrics?name[]=a HTTP/1.0\n\n").unwrap(), "HTTP/1.1 200 OK +");
        assert_eq!(said("HEAD /metrics HTTP/1.1\r\n\r\n").unwrap(), "HTTP/1.1 200 OK");
        assert_eq!(said("GET / HTTP/1.1\r\n\r\n").unwrap(), "HTTP/1.1 404 Not Found");
        assert_eq!(said("POST /metrics HTTP/1.1\r\n\r\n").unwrap(), "HTTP/1.1 405 Method Not Allowed");
        for garbage in ["\r\n\r\n", "GET /metrics\r\n\r\n", "GET /metrics FTP/1\r\n\r\n", "a b c d\n\n"] {
            assert_eq!(said(garbage).unwrap(), "HTTP/1.1 400 Bad Request", "{garbage:?}");
        }
        assert_eq!(status(b"\xff\xfe \x00\n\n").unwrap(), "HTTP/1.1 400 Bad Request");
        assert_eq!(status(&[b'a'; HEAD]), None);
        assert!(status(&[b'a'; HEAD + 1]).unwrap().contains("431"));
    }
}
