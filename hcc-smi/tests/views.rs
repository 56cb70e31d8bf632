//! What the program prints for small trees, kept as snapshots.

mod support;

use support::{shown, tree};

/// All views of a tree.
fn views(name: &str) -> String {
    let folder = tree(name);
    let mut all = String::new();
    for arguments in [&[][..], &["-l"], &["topo", "-m"], &["links"], &["rings"]] {
        all += &format!("$ hcc-smi {}\n{}\n", arguments.join(" "), shown(folder.path(), arguments));
    }
    all
}

#[test]
fn a_server_of_npus() {
    insta::assert_snapshot!(views("npu"));
}

#[test]
fn gpus_with_direct_links() {
    insta::assert_snapshot!(views("xgmi"));
}

#[test]
fn no_accelerator() {
    insta::assert_snapshot!(views("plain"));
}

#[test]
fn json_of_all_views() {
    let folder = tree("xgmi");
    let mut all = String::new();
    for arguments in [&["--json"][..], &["topo", "--json"], &["links", "--json"], &["rings", "--json"]] {
        all += &shown(folder.path(), arguments);
    }
    insta::assert_snapshot!(all.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[test]
fn help() {
    let text = support::good(support::smi(&["--help"]).output().unwrap());
    insta::assert_snapshot!(text);
}
