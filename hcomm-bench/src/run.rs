//! The run itself, the same on every rank: for each workload, type, operation, root, algorithm and size one row.
//!
//! All ranks take every decision from the same facts (the command line, and figures that were gathered), so none of them
//! waits for another in a different place. Only rank 0 has a [`Report`].

use std::io;
use std::ops::Range;

use hcomm_cli::{Failure, Result};
use hcomm_core::communicator::{Force, RunInfo};
use hcomm_core::{DataType, ReduceOp};

use crate::args::{Buffers, Effort, Settings};
use crate::check::{self, Check, GUARD, Verdict};
use crate::group::{Group, Memory};
use crate::machine;
use crate::measure::{Measured, Method, measure};
use crate::noise;
use crate::output::Report;
use crate::results::{Cell, Header, Row};
use crate::workload::{Shape, Workload};

/// Page size to which buffers are aligned.
const PAGE: usize = 4096;

/// Complaints about wrong results that a rank prints at most.
const MAX_COMPLAINTS: u32 = 10;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every result was right (or nobody wants to read any more).
    Good,
    /// A result was wrong.
    Wrong,
}

/// Measures everything that `settings` ask for. Every rank of the job calls it.
pub fn run<G: Group>(group: &mut G, settings: &Settings) -> Result<Outcome> {
    let cases = cases(settings, group.size())?;
    check_memory(group, &cases)?;
    group.barrier()?; // also tells which transport there is
    let header = Header {
        ranks: group.ranks().to_vec(),
        transport: group.last_run().transport,
        settings: settings_line(settings),
    };
    // A file that cannot be opened ends all ranks together, or the others would wait for rank 0.
    let report = if group.rank() == 0 { Some(Report::new(header, settings, cases.len() as u64)) } else { None };
    let opened = !matches!(report, Some(Err(_)));
    let all_opened = group.all_gather_u64(u64::from(opened))?.iter().all(|opened| *opened == 1);
    let report = report.transpose()?;
    if !all_opened {
        return Ok(Outcome::Good);
    }
    Bench::new(group, settings, &cases, report)?.run(&cases)
}

/// One row to be.
#[derive(Debug, Clone)]
struct Case {
    workload: Workload,
    shape: Shape,
    force: Force,
}

/// Every row to be, in order.
fn cases(settings: &Settings, ranks: usize) -> Result<Vec<Case>> {
    if let Some(root) = settings.root.filter(|root| *root >= ranks) {
        return Err(Failure::usage(format!("-r {root}: there are {ranks} ranks"), "ranks count from 0"));
    }
    let mut cases = Vec::new();
    for &workload in &settings.workloads {
        for force in forces(settings) {
            for (dtype, op, root) in variants(settings, workload, ranks) {
                let mut shapes: Vec<Shape> =
                    settings.sizes.iter().map(|bytes| Shape::new(workload, dtype, op, root, ranks, *bytes)).collect();
                // Sizes below one element a block, and all of a barrier's, are the same.
                shapes.dedup_by_key(|shape| (shape.bytes, shape.count));
                cases.extend(shapes.into_iter().map(|shape| Case { workload, shape, force }));
            }
        }
    }
    Ok(cases)
}

fn forces(settings: &Settings) -> Vec<Force> {
    let mut forces = Vec::new();
    for &algorithm in &settings.algorithms {
        for &chunk_bytes in &settings.chunk_sizes {
            for &channels in &settings.channels {
                forces.push(Force { algorithm, chunk_bytes, channels });
            }
        }
    }
    forces
}

/// The types, operations and roots that make a difference to a workload.
fn variants(settings: &Settings, workload: Workload, ranks: usize) -> Vec<(DataType, ReduceOp, usize)> {
    let collective = workload.collective;
    let ops = if collective.reduces() { settings.ops.clone() } else { vec![ReduceOp::Sum] };
    let dtypes = if workload.moves_data() { settings.dtypes.clone() } else { vec![DataType::U8] };
    let roots = match settings.root {
        _ if !collective.rooted() => 0..1,
        Some(root) => root..root + 1,
        None => 0..ranks,
    };
    let mut variants = Vec::new();
    for &dtype in &dtypes {
        for &op in &ops {
            variants.extend(roots.clone().map(|root| (dtype, op, root)));
        }
    }
    variants
}

/// `iters 20  warm-up 5  check on  seed 1`
fn settings_line(settings: &Settings) -> String {
    let effort = match settings.effort {
        Effort::Auto => "iters auto".to_owned(),
        Effort::Iterations(iterations) => format!("iters {iterations}"),
        Effort::Time(time) => format!("time {time:?}"),
    };
    let aggregate = if settings.aggregate > 1 { format!("  agg {}", settings.aggregate) } else { String::new() };
    let check = if settings.checks > 0 { "on" } else { "off" };
    format!("{effort}{aggregate}  warm-up {}  check {check}  seed {}", settings.warmup, settings.seed)
}

/// Whether each host can hold the buffers of its ranks; the answer is the same on every rank.
fn check_memory<G: Group>(group: &mut G, cases: &[Case]) -> Result<()> {
    let infos = group.ranks();
    let here = infos[group.rank()].host_index;
    let local: Vec<usize> = infos.iter().filter(|info| info.host_index == here).map(|info| info.rank).collect();
    let needed = memory_needed(cases, &local);
    let mine = machine::check_memory(needed, local.len());
    let fits = group.all_gather_u64(u64::from(mine.is_ok()))?;
    mine?;
    match fits.iter().position(|fits| *fits == 0) {
        None => Ok(()),
        Some(rank) => Err(Failure::usage(
            format!("the host of rank {rank} has too little memory for these sizes"),
            "lower -e/--max-bytes, or start fewer ranks",
        )),
    }
}

/// The same before any rank is started, for ranks that will all be on this host.
pub fn check_local_memory(settings: &Settings, ranks: usize) -> Result<()> {
    let all: Vec<usize> = (0..ranks).collect();
    machine::check_memory(memory_needed(&cases(settings, ranks)?, &all), ranks)
}

/// Bytes of the buffers of `ranks`.
fn memory_needed(cases: &[Case], ranks: &[usize]) -> u128 {
    let rank = |rank: usize| cases.iter().map(|case| case.shape.memory_bytes(rank)).max().unwrap_or(0);
    ranks.iter().map(|r| rank(*r)).sum()
}

/// A buffer with room for canaries, aligned to a page.
struct Guarded {
    memory: Memory,
    start: usize,
}

impl Guarded {
    fn new<G: Group>(group: &G, bytes: u64, registered: bool) -> Result<Guarded> {
        let memory = group.alloc(bytes as usize + 2 * GUARD + PAGE, registered)?;
        let start = memory.as_ptr().align_offset(PAGE) + GUARD;
        Ok(Guarded { memory, start })
    }

    fn range(&self, bytes: usize) -> Range<usize> {
        self.start..self.start + bytes
    }

    fn slice(&self, bytes: usize) -> &[u8] {
        &self.memory[self.range(bytes)]
    }

    fn slice_mut(&mut self, bytes: usize) -> &mut [u8] {
        let range = self.range(bytes);
        &mut self.memory[range]
    }

    fn set_canaries(&mut self, bytes: usize) {
        let range = self.range(bytes);
        check::set_canaries(&mut self.memory, &range);
    }

    fn lost_canaries(&self, bytes: usize) -> u64 {
        check::lost_canaries(&self.memory, &self.range(bytes))
    }
}

/// One rank's part of the run.
struct Bench<'a, G: Group> {
    group: &'a mut G,
    settings: &'a Settings,
    method: Method,
    input: Guarded,
    output: Guarded,
    report: Option<Report>,
    complaints: u32,
    wrong: bool,
}

impl<'a, G: Group> Bench<'a, G> {
    fn new(group: &'a mut G, settings: &'a Settings, cases: &[Case], report: Option<Report>) -> Result<Self> {
        let rank = group.rank();
        let largest = |bytes: &dyn Fn(&Shape) -> usize| cases.iter().map(|case| bytes(&case.shape)).max().unwrap_or(0);
        let registered = settings.buffers == Buffers::Registered;
        let input = Guarded::new(group, largest(&|shape| input_bytes(shape, rank)) as u64, registered)?;
        let output = largest(&|shape| output_bytes(shape, rank).max(in_place_bytes(shape, rank)));
        let output = Guarded::new(group, output as u64, registered)?;
        let method = Method {
            effort: settings.effort,
            warmup: settings.warmup,
            aggregate: settings.aggregate,
            blocking: settings.blocking,
            average: settings.average,
        };
        Ok(Bench { group, settings, method, input, output, report, complaints: 0, wrong: false })
    }

    fn run(mut self, cases: &[Case]) -> Result<Outcome> {
        let mut done = 0;
        let mut skipped: Vec<String> = Vec::new();
        for case in cases {
            if let Some(algorithm) = case.force.algorithm
                && let Err(error) = self.group.supports(&case.shape.call, algorithm)
            {
                let reason = error.to_string();
                if !skipped.contains(&reason) {
                    skipped.push(reason);
                }
                continue;
            }
            let begun = self.report.as_mut().map_or(Ok(()), |report| report.doing(case.workload, case.shape.bytes));
            let row = self.row(case)?;
            done += 1;
            let shown = begun.and_then(|()| self.report.as_mut().map_or(Ok(()), |report| report.row(row)));
            if !self.all_go_on(&shown)? {
                return self.stopped(shown);
            }
        }
        self.finish(done, &skipped)
    }

    fn row(&mut self, case: &Case) -> Result<Row> {
        let shape = &case.shape;
        let collective = case.workload.collective;
        self.group.force(case.force)?;
        let (out_of_place, run) = self.cell(case, false)?;
        let in_place = if case.workload.moves_data() { Some(self.cell(case, true)?.0) } else { None };
        self.group.force(Force::default())?;
        Ok(Row {
            workload: case.workload,
            dtype: shape.call.dtype,
            op: collective.reduces().then_some(shape.call.op),
            root: collective.rooted().then_some(shape.call.root),
            ranks: shape.ranks,
            bytes: shape.bytes,
            count: shape.count,
            run,
            out_of_place,
            in_place,
        })
    }

    /// Times, then checks with fresh data; also how the calls ran.
    fn cell(&mut self, case: &Case, in_place: bool) -> Result<(Cell, RunInfo)> {
        let shape = &case.shape;
        let rank = self.group.rank();
        let sizes = (input_bytes(shape, rank), output_bytes(shape, rank), in_place_bytes(shape, rank));
        if let Some(check) = Check::new(shape, rank, self.settings.seed) {
            let memory = if in_place { self.output.slice_mut(sizes.2) } else { self.input.slice_mut(sizes.0) };
            check.fill(memory, in_place);
        }
        let (input, output) = (&self.input, &mut self.output);
        // One call ahead tells how such calls run: around the measured ones the benchmark makes calls of its own.
        if in_place {
            self.group.run_in_place(&shape.call, output.slice_mut(sizes.2))?;
        } else {
            self.group.run(&shape.call, input.slice(sizes.0), output.slice_mut(sizes.1))?;
        }
        let run = self.group.last_run();
        let Measured { iterations, times, cpu_us, rank_us } = if in_place {
            let buffer = output.slice_mut(sizes.2);
            measure(self.group, &self.method, |group| group.run_in_place(&shape.call, buffer))?
        } else {
            let (input, output) = (input.slice(sizes.0), output.slice_mut(sizes.1));
            measure(self.group, &self.method, |group| group.run(&shape.call, input, output))?
        };
        let (wrong, out_of_bounds) = self.check(case, sizes, in_place)?;
        Ok((Cell { iterations, times, cpu_us, rank_us, wrong, out_of_bounds }, run))
    }

    /// Wrong elements and bytes out of bounds over all ranks and checked runs; `None` when nothing could be checked.
    fn check(&mut self, case: &Case, sizes: (usize, usize, usize), in_place: bool) -> Result<(Option<u64>, u64)> {
        let shape = &case.shape;
        let rank = self.group.rank();
        let mut sums = None;
        let mut out_of_bounds = 0;
        for round in 0..self.settings.checks {
            let seed = self.settings.seed.wrapping_add(1 + u64::from(round));
            let Some(check) = Check::new(shape, rank, seed) else { break };
            if in_place {
                check.prepare_in_place(self.output.slice_mut(sizes.2));
            } else {
                check.prepare(self.input.slice_mut(sizes.0), self.output.slice_mut(sizes.1));
            }
            let output_size = if in_place { sizes.2 } else { sizes.1 };
            self.input.set_canaries(sizes.0);
            self.output.set_canaries(output_size);
            let mut verdict = if in_place {
                self.group.run_in_place(&shape.call, self.output.slice_mut(sizes.2))?;
                check.verify_in_place(self.output.slice(sizes.2))
            } else {
                self.group.run(&shape.call, self.input.slice(sizes.0), self.output.slice_mut(sizes.1))?;
                check.verify(self.input.slice(sizes.0), self.output.slice(sizes.1))
            };
            verdict.out_of_bounds = self.input.lost_canaries(sizes.0) + self.output.lost_canaries(output_size);
            self.complain(case, in_place, &verdict);
            let verdicts = self.group.all_gather_u64s(&[verdict.wrong, verdict.out_of_bounds])?;
            *sums.get_or_insert(0) += verdicts.iter().map(|v| v[0]).sum::<u64>();
            out_of_bounds += verdicts.iter().map(|v| v[1]).sum::<u64>();
        }
        self.wrong |= sums.unwrap_or(0) + out_of_bounds > 0;
        Ok((sums, out_of_bounds))
    }

    /// Says on stderr what this rank found wrong.
    fn complain(&mut self, case: &Case, in_place: bool, verdict: &Verdict) {
        if (verdict.wrong == 0 && verdict.out_of_bounds == 0) || self.complaints >= MAX_COMPLAINTS {
            return;
        }
        self.complaints += 1;
        let call = &case.shape.call;
        let op = if call.collective.reduces() { format!(" {}", call.op) } else { String::new() };
        eprintln!(
            "hcomm-bench: rank {}: {} {}{op} of {} B {}: {} wrong elements, {} bytes out of bounds{}{}",
            self.group.rank(),
            case.workload.name(),
            call.dtype,
            case.shape.bytes,
            if in_place { "in place" } else { "out of place" },
            verdict.wrong,
            verdict.out_of_bounds,
            verdict.first.as_ref().map_or(String::new(), |first| format!("; {first}")),
            if self.complaints == MAX_COMPLAINTS { " (no more are printed)" } else { "" },
        );
    }

    /// Whether rank 0 can still print. When its reader is gone, all ranks stop together instead of losing rank 0.
    fn all_go_on(&mut self, shown: &io::Result<()>) -> Result<bool> {
        Ok(self.group.all_gather_u64(u64::from(shown.is_ok()))?.iter().all(|ok| *ok == 1))
    }

    fn stopped(self, shown: io::Result<()>) -> Result<Outcome> {
        match shown {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::run(format!("cannot write the results: {e}"), "is the disk full?"))
            }
            _ => Ok(self.outcome()),
        }
    }

    fn finish(mut self, done: usize, skipped: &[String]) -> Result<Outcome> {
        if done == 0 {
            return Err(Failure::usage(format!("nothing was run: {}", skipped.join("; ")), "try --algorithm auto"));
        }
        let Some(report) = &mut self.report else { return Ok(self.outcome()) };
        let finished = report.finish();
        for reason in skipped {
            eprintln!("hcomm-bench: left out: {reason}");
        }
        let infos = self.group.ranks();
        let local = infos.iter().filter(|info| info.host_index == infos[0].host_index).count();
        let processors = machine::processors().unwrap_or(local);
        if let Some(advice) = noise::advice(report.rows(), local, processors, machine::load_average()) {
            eprintln!("hcomm-bench: {advice}");
        }
        self.stopped(finished)
    }

    fn outcome(&self) -> Outcome {
        if self.wrong { Outcome::Wrong } else { Outcome::Good }
    }
}

fn input_bytes(shape: &Shape, rank: usize) -> usize {
    shape.input_count(rank) as usize * shape.call.dtype.size()
}

fn output_bytes(shape: &Shape, rank: usize) -> usize {
    shape.output_count(rank) as usize * shape.call.dtype.size()
}

fn in_place_bytes(shape: &Shape, rank: usize) -> usize {
    shape.in_place(rank).count as usize * shape.call.dtype.size()
}

#[cfg(test)]
mod tests;
