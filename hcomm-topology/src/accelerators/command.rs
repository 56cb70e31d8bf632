//! Running a vendor's tool, with a limit to its time.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the installer of the Ascend driver puts its tools.
const ASCEND_TOOLS: &str = "/usr/local/Ascend/driver/tools";
/// The most that is read of a tool.
const MOST_BYTES: u64 = 4 << 20;

/// What `program` prints. `Err` says why there is nothing: it is not installed (`None`), or failed, or took longer than `limit` and was
/// ended (a sentence).
pub(super) fn output(program: &str, arguments: &[&str], limit: Duration) -> Result<String, Option<String>> {
    output_of(&find(program).ok_or(None)?, arguments, limit)
}

/// Where a program is: in the folders of `PATH`, else in that of the Ascend driver. Folders that may not be looked into have none: left
/// to itself, the system would complain of them, and not of the missing program.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from(ASCEND_TOOLS)]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// As [`output`], of the program at `file`.
pub(super) fn output_of(file: &Path, arguments: &[&str], limit: Duration) -> Result<String, Option<String>> {
    let program = file.file_name().unwrap_or_default().to_string_lossy();
    let called = || format!("{program} {}", arguments.join(" "));
    let mut child = Command::new(file)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => None,
            _ => Some(format!("{}: {error}", called())),
        })?;
    let pipe = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.map(|pipe| pipe.take(MOST_BYTES).read_to_end(&mut bytes));
        read.is_some_and(|read| read.is_ok()).then_some(bytes)
    });
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => break Err(format!("{} has not ended within {} s", called(), limit.as_secs())),
            Err(error) => break Err(format!("{}: {error}", called())),
        }
    };
    if status.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let status = status?;
    if !status.success() {
        return Err(Some(format!("{} failed: {status}", called())));
    }
    // Something that the tool left behind may hold the pipe; then this waits no longer than it would for the tool.
    while !reader.is_finished() {
        if Instant::now() >= end {
            return Err(Some(format!("{} has not ended its output", called())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    match reader.join() {
        Ok(Some(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        _ => Err(Some(format!("{}: its output cannot be read", called()))),
    }
}
