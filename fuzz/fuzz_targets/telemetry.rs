//! A telemetry file, and a summary out of a store, of anybody's making: it is refused or read, within bounds.

#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use hcomm_telemetry::{Options, Reader, Recorder, read_summary};
use libfuzzer_sys::fuzz_target;

/// The beginning of a good file: header, links, first lane without its ring.
fn good() -> &'static [u8] {
    static GOOD: OnceLock<Vec<u8>> = OnceLock::new();
    GOOD.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options { folder: Some(folder.path()), job: "fuzz", rank: 0, world_size: 2, host: "here" };
        let recorder = Recorder::create(&options).expect("a file");
        let _lane = recorder.lane(0, 0, 2);
        let mut bytes = vec![0; 80_000];
        File::open(recorder.path()).and_then(|file| file.read_exact_at(&mut bytes, 0)).expect("its beginning");
        bytes
    })
}

fn read(bytes: &[u8], length: u64) {
    let file = tempfile::tempfile().expect("a file");
    file.write_all_at(bytes, 0).and_then(|()| file.set_len(length)).expect("written");
    if let Ok(mut reader) = Reader::over(file, Path::new("fuzz")) {
        for _ in 0..2 {
            let _ = reader.snapshot();
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let _ = read_summary(data);
    read(data, data.len() as u64);
    // Words of a good file replaced, the file as long as it should be: offset in words, then the word.
    let mut bytes = good().to_vec();
    for change in data.chunks_exact(10) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) * 8 % (bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&change[2..]);
    }
    read(&bytes, 12 << 20);
});
