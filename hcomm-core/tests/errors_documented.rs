//! Each error code has its section in `docs/errors.md`, and each section its code.

use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn codes_and_sections_are_the_same() {
    let source = read("src/error.rs");
    let codes: Vec<&str> = source.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let codes: Vec<&str> = codes.into_iter().filter(|code| code.starts_with("HC-E")).collect();
    let page = read("../docs/errors.md");
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert!(!codes.is_empty());
    assert_eq!(codes.len(), codes.iter().collect::<BTreeSet<_>>().len(), "a code is used twice");
    assert_eq!(codes, sections);
}

#[test]
fn every_section_says_why_and_what_to_do() {
    for section in read("../docs/errors.md").split("\n## ").skip(1) {
        let name = section.lines().next().unwrap_or_default();
        for part in ["\n\n**Causes.** ", "\n\n**What to do.** "] {
            assert!(section.contains(part), "{name} lacks {part}");
        }
    }
}
