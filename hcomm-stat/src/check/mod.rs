//! What one goes through by hand when a network is slow: states, counters and settings, each judged, with what mends it.

mod counters;
mod links;
mod placement;
mod rdma;
pub mod show;
mod system;

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use hcomm_topology::net::Ethtool;
use hcomm_topology::{NumaNode, PciFunction, Root, read_numa, read_pci};
use serde::Serialize;

use crate::links::{self as all_links, Link};
use crate::sample::{Growth, Sample};
use crate::ways::Ways;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Works, and could be better.
    Warn,
    /// Broken, or far from what the hardware does.
    Fail,
    /// The system does not tell.
    Unknown,
}

/// One judgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable name of what was looked at: `mtu`.
    pub check: &'static str,
    /// The link, or `system`.
    pub subject: String,
    pub verdict: Verdict,
    /// What was found.
    pub reason: String,
    /// The command that mends it; empty where nothing needs to be mended.
    pub fix: String,
}

/// What checks look at. Only files below the root, and this machine's own answers only if the root is this machine.
struct Context<'a> {
    root: &'a Root,
    links: Vec<Link>,
    sample: Sample,
    /// While the counters were watched.
    growth: Option<Growth>,
    /// Pause frames by interface and name, first before and then after the counters were watched.
    pauses: BTreeMap<String, [BTreeMap<String, u64>; 2]>,
    ways: Ways,
    pci: Vec<PciFunction>,
    numa: Vec<NumaNode>,
    ethtool: Option<Ethtool>,
    findings: Vec<Finding>,
}

/// Runs all checks; counters are watched for so long.
pub fn run(root: &Root, watch: Option<Duration>) -> Vec<Finding> {
    let links = all_links::read(root);
    let ethtool = Ethtool::open(root);
    let before = Sample::take(root, &links);
    let pauses_before = counters::pause_frames(ethtool.as_ref(), &links);
    if let Some(watch) = watch {
        thread::sleep(watch);
    }
    let sample = Sample::take(root, &links);
    let mut pauses_after = counters::pause_frames(ethtool.as_ref(), &links);
    let both = |(name, before): (String, _)| {
        let after = pauses_after.remove(&name)?;
        Some((name, [before, after]))
    };
    let mut context = Context {
        root,
        growth: watch.map(|_| Growth::between(&before, &sample)),
        pauses: pauses_before.into_iter().filter_map(both).collect(),
        ways: Ways::read(root, &links),
        links,
        sample,
        pci: read_pci(root),
        numa: read_numa(root, &mut Vec::new()),
        ethtool,
        findings: Vec::new(),
    };
    for check in [links::run, rdma::run, counters::run, placement::run, system::run] {
        check(&mut context);
    }
    context.findings
}

impl Context<'_> {
    fn add(&mut self, verdict: Verdict, check: &'static str, subject: &str, reason: String, fix: String) {
        self.findings.push(Finding { check, subject: subject.to_owned(), verdict, reason, fix });
    }

    fn ok(&mut self, check: &'static str, subject: &str, reason: impl Into<String>) {
        self.add(Verdict::Ok, check, subject, reason.into(), String::new());
    }

    fn warn(&mut self, check: &'static str, subject: &str, reason: impl Into<String>, fix: impl Into<String>) {
        self.add(Verdict::Warn, check, subject, reason.into(), fix.into());
    }

    fn fail(&mut self, check: &'static str, subject: &str, reason: impl Into<String>, fix: impl Into<String>) {
        self.add(Verdict::Fail, check, subject, reason.into(), fix.into());
    }

    fn unknown(&mut self, check: &'static str, subject: &str, reason: impl Into<String>) {
        self.add(Verdict::Unknown, check, subject, reason.into(), String::new());
    }

    /// A setting in `/proc/sys`, by its name for sysctl(8).
    fn sysctl(&self, name: &str) -> Option<String> {
        self.root.text(format!("proc/sys/{}", name.replace('.', "/")))
    }

    /// The fastest link that is well, Gbit/s.
    fn fastest(&self) -> Option<f64> {
        let speeds = self.links.iter().filter(|link| link.health == all_links::Health::Well).filter_map(Link::speed);
        speeds.max_by(f64::total_cmp)
    }
}
