//! `explain` over the records of real ranks: this program started again as each of them.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use hcomm_core::control::StoreServer;
use hcomm_core::{Communicator, ReduceOp};
use nix::sys::signal::{Signal, raise};
use serde_json::{Value, json};
use tempfile::TempDir;

const ACT: &str = "MONITOR_TEST_ACT";
/// The rank that is different.
const ODD: usize = 1;

/// No test, but what each rank does when it is started as one.
#[test]
fn rank() {
    let Ok(act) = std::env::var(ACT) else { return };
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).unwrap();
    let mut communicator = Communicator::init().unwrap();
    let odd = communicator.rank() == ODD;
    let mut data = [1_f32; 4];
    communicator.all_reduce_in_place(&mut data, ReduceOp::Sum).unwrap();
    let failed = match act.as_str() {
        "diverged" if odd => communicator.broadcast(&mut data, 2).is_err(),
        "stopped" if odd => raise(Signal::SIGSTOP).is_err(),
        "killed" if odd => raise(Signal::SIGKILL).is_err(),
        "behind" if odd => communicator.receive(&mut data, 0).is_err(),
        _ => communicator.all_reduce_in_place(&mut data, ReduceOp::Sum).is_err(),
    };
    std::process::exit(if failed { 0 } else { 3 });
}

/// The records of three ranks of which one did as `act` says.
fn records(act: &str) -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreServer::start((Ipv4Addr::LOCALHOST, 0).into(), act).unwrap();
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let inherited = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("HCOMM_"));
        inherited.for_each(|name| _ = command.env_remove(name));
        command
            .args(["--exact", "rank", "--nocapture"])
            .env(ACT, act)
            .env("HCOMM_RANK", rank.to_string())
            .env("HCOMM_WORLD_SIZE", "3")
            .env("HCOMM_JOB_ID", act)
            .env("HCOMM_STORE", format!("tcp://{}", store.address()))
            .env("HCOMM_STORE_SERVED", "1")
            .env("HCOMM_TIMEOUT", "2s")
            .env("HCOMM_TELEMETRY", folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    };
    let mut ranks: Vec<Child> = (0..3).map(start).collect();
    let mut odd = ranks.remove(ODD);
    for rank in &mut ranks {
        assert_eq!(rank.wait().unwrap().code(), Some(0), "{act}: it failed, as it must");
    }
    if act == "stopped" {
        odd.kill().unwrap();
    }
    odd.wait().unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.to_str().unwrap().ends_with(".flight.jsonl")).collect();
    files.sort();
    (folder, files)
}

/// Exit code, stdout, stderr.
fn explain(arguments: &[&str], files: &[PathBuf]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("hcomm-monitor").unwrap();
    let output = command.arg("explain").args(arguments).args(files).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(!stderr.contains("panicked"), "{stderr}");
    (output.status.code().unwrap(), stdout, stderr)
}

fn explained(files: &[PathBuf]) -> Value {
    let (code, stdout, stderr) = explain(&["--json"], files);
    assert_eq!((code, stdout.lines().count()), (0, 1), "{stderr}");
    let value: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(value["schema"], "hcomm-explain/1");
    value
}

#[test]
fn ranks_without_a_record_for_which_others_wait_are_named() {
    for act in ["stopped", "killed"] {
        let (_folder, files) = records(act);
        assert_eq!(files.len(), 2, "{files:?}");
        let value = explained(&files);
        assert_eq!(
            (&value["job"], &value["world_size"], &value["missing_ranks"]),
            (&json!(act), &json!(3), &json!([1]))
        );
        let finding = &value["findings"][0];
        assert_eq!((&finding["finding"], &finding["ranks"]), (&json!("silent"), &json!([1])), "{act}: {value:#}");
        assert_eq!((&finding["number"], &finding["operation"]), (&json!(2), &json!("all_reduce")));
        let (code, text, _) = explain(&[], &files);
        assert_eq!(code, 0);
        for words in
            ["records of ranks 0, 2, none of rank 1", "Rank 1 left no record, and ", "all_reduce #2", "[HC-E00"]
        {
            assert!(text.contains(words), "{words:?} is not in {text}");
        }
        // Of one alone the same follows, as long as it is one that waits.
        let waiting: Vec<PathBuf> = finding["waiting_ranks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rank| {
                files.iter().find(|path| path.to_str().unwrap().contains(&format!("{act}.{rank}."))).unwrap().clone()
            })
            .collect();
        let alone = explained(&waiting[..1]);
        assert_eq!(alone["missing_ranks"].as_array().unwrap().len(), 2);
        assert!(alone["findings"][0]["ranks"].as_array().unwrap().contains(&json!(1)), "{alone:#}");
    }
}

#[test]
fn the_first_call_that_differs_is_named() {
    let (_folder, files) = records("diverged");
    assert_eq!(files.len(), 3, "{files:?}");
    let value = explained(&files);
    let finding = &value["findings"][0];
    assert_eq!((&finding["finding"], &finding["number"]), (&json!("diverged"), &json!(2)), "{value:#}");
    let calls = json!([
        { "ranks": [0, 2], "call": "all_reduce(4 x f32, sum)" },
        { "ranks": [1], "call": "broadcast(4 x f32, root 2)" },
    ]);
    assert_eq!(finding["calls"], calls);
    let (_, text, _) = explain(&[], &files);
    assert!(text.contains("Ranks diverged at call #2: none can go on.\n  ranks 0, 2 called all_reduce(4 x f32, sum)\n  rank 1 called broadcast(4 x f32, root 2)\n"), "{text}");
}

/// It waits for a message that nobody sends.
#[test]
fn a_rank_that_is_behind_is_named() {
    let (_folder, files) = records("behind");
    assert_eq!(files.len(), 3, "{files:?}");
    let value = explained(&files);
    let finding = &value["findings"][0];
    assert_eq!((&finding["finding"], &finding["number"]), (&json!("behind"), &json!(2)), "{value:#}");
    assert_eq!((&finding["operation"], &finding["waiting_ranks"]), (&json!("all_reduce"), &json!([0, 2])));
    let late = &finding["ranks"][0];
    assert_eq!((&late["rank"], &late["begun"], &late["inside"]), (&json!(1), &json!(1), &json!(false)));
    let text = explain(&[], &files).1;
    assert!(text.contains("Rank 1 is behind: ranks 0, 2 wait in all_reduce #2.\n"), "{text}");
    let line = text.lines().find(|line| line.starts_with("  rank 1 has ended #1, all_reduce(4 x f32, sum)")).unwrap();
    assert!(line.contains("it is in receive #1"), "{line}");
}

#[test]
fn files_that_are_of_no_use_are_named() {
    let (folder, files) = records("killed");
    let whole = std::fs::read_to_string(&files[0]).unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let later = whole.replace("\"written_unix_ns\":", "\"written_unix_ns\":1");
    let bad = [
        (file("empty", ""), "it is empty"),
        (file("words", "words\n"), "it is no flight record"),
        (file("other-json", "{\"schema\":\"hcomm-monitor/1\"}\n"), "it is no flight record"),
        (file("begun", &whole[..40]), "it is cut short within its first line"),
        (file("version", &whole.replace("hcomm-flight/1", "hcomm-flight/7")), "it has the form hcomm-flight/7"),
        (file("damaged", &whole.replacen("\"begun\":", "\"begun\":-", 1)), "is damaged"),
        (
            file("job", &whole.replace("\"job\":\"killed\"", "\"job\":\"mine\"")),
            "it is of job mine with 3 ranks, not of job killed",
        ),
        (file("size", &whole.replace("\"world_size\":3", "\"world_size\":30")), "it is of job killed with 30 ranks"),
        (file("rank", &whole.replace("\"rank\":0", "\"rank\":3")), "it says that it is of rank 3 of 3"),
        (folder.path().to_owned(), "it is a directory"),
        (folder.path().join("missing"), "No such file"),
    ];
    for (path, words) in &bad {
        let mut all = files.clone();
        all.push(path.clone());
        let (code, stdout, stderr) = explain(&[], &all);
        let named =
            stderr.lines().find(|line| line.contains(&format!("skipped {}", path.display()))).unwrap_or_default();
        assert!(code == 1 && named.contains(words), "{words:?} is not in {stderr}");
        assert!(stdout.contains("Rank 1 left no record"), "the rest is explained: {stdout}");
        if path.ends_with("job") || path.ends_with("size") || path.ends_with("rank") {
            continue;
        }
        let (code, stdout, stderr) = explain(&[], std::slice::from_ref(path));
        assert_eq!((code, stdout.as_str()), (1, ""));
        assert!(stderr.contains("no flight record among") && stderr.contains("hint"), "{stderr}");
    }
    // Two of a rank: the later one counts. An earlier run of the same name is none of this.
    let (code, _, stderr) = explain(&[], &[files[0].clone(), file("again", &whole)]);
    assert!(code == 1 && stderr.contains("there is a later record of rank 0"), "{stderr}");
    let later = later.replace("\"started_unix_ns\":", "\"started_unix_ns\":1").replace("\"rank\":0", "\"rank\":2");
    let (code, _, stderr) = explain(&[], &[files[0].clone(), file("later", &later)]);
    assert!(code == 1 && stderr.contains("it was written before rank 2 of the latest run began"), "{stderr}");
    // Cut short, but not too short.
    let lane = whole.lines().position(|line| line.starts_with("{\"line\":\"lane\"")).unwrap();
    let kept: String = whole.split_inclusive('\n').take(lane + 1).collect();
    let cut = file("cut", &whole[..kept.len() + 20]);
    let (code, stdout, stderr) = explain(&[], &[cut.clone(), files[1].clone()]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains(&format!("{} is cut short", cut.display())) && stdout.contains("Rank 1 left"), "{stdout}");
}

#[test]
fn without_files_it_says_what_it_needs() {
    let (code, stdout, stderr) = explain(&[], &[]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("FILE"), "{stderr}");
}
