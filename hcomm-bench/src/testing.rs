//! A group of threads whose collectives are as plain as can be: every rank publishes its whole input, then computes its
//! own output from all of them, element by element, in f64 (the checks' inputs are integers that f64 holds). Faults can be
//! put in, to see that the checks find them.

use std::sync::{Arc, Barrier, Mutex};

use half::{bf16, f16};
use hcomm_core::communicator::{Force, RankInfo, RunInfo};
use hcomm_core::{Algorithm, Call, Collective, DataType, Error, ReduceOp, Result};

use crate::group::{Group, Memory};
use crate::workload::Shape;

/// What goes wrong on rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// One bit of the last output element is flipped.
    WrongElement,
    /// The output is not written.
    Untouched,
    /// The last rank's input is left out of reductions.
    LostContribution,
    /// Calls fail.
    Error,
}

/// One rank.
pub struct ThreadGroup {
    rank: usize,
    infos: Vec<RankInfo>,
    shared: Arc<Shared>,
    fault: Option<Fault>,
    forced: Force,
}

struct Shared {
    published: Mutex<Vec<Vec<u8>>>,
    barrier: Barrier,
}

/// Runs `body` on every rank of a group and returns what they returned, in rank order.
pub fn run_threads<T: Send>(ranks: usize, fault: Option<Fault>, body: impl Fn(&mut ThreadGroup) -> T + Sync) -> Vec<T> {
    let shared = Arc::new(Shared { published: Mutex::new(vec![Vec::new(); ranks]), barrier: Barrier::new(ranks) });
    let info = |rank| RankInfo {
        rank,
        pid: 4711 + rank as u32,
        host: "alpha".to_owned(),
        host_index: 0,
        cpu: Some(rank),
        numa: Some(0),
    };
    let infos: Vec<RankInfo> = (0..ranks).map(info).collect();
    std::thread::scope(|scope| {
        let start = |rank| {
            let mut group = ThreadGroup {
                rank,
                infos: infos.clone(),
                shared: shared.clone(),
                fault: fault.filter(|fault| rank == 0 || *fault == Fault::Error),
                forced: Force::default(),
            };
            let body = &body;
            scope.spawn(move || body(&mut group))
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}

impl ThreadGroup {
    fn exchange(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        self.shared.published.lock().unwrap()[self.rank] = mine.to_vec();
        self.shared.barrier.wait();
        let all = self.shared.published.lock().unwrap().clone();
        self.shared.barrier.wait();
        all
    }

    fn result(&self, call: &Call, inputs: &[Vec<u8>]) -> Vec<u8> {
        let shape = Shape { call: call.clone(), ranks: inputs.len(), bytes: 0, count: 0 };
        let size = call.dtype.size();
        let (rank, root) = (self.rank, call.root);
        let cut = |bytes: &[u8], at: u64, count: u64| bytes[at as usize * size..(at + count) as usize * size].to_vec();
        let own = |bytes: &[u8]| cut(bytes, shape.offset(rank), shape.block(rank));
        match call.collective {
            Collective::AllReduce => self.combine(call, inputs),
            Collective::Reduce if rank == root => self.combine(call, inputs),
            Collective::ReduceScatter => own(&self.combine(call, inputs)),
            Collective::Broadcast => inputs[root].clone(),
            Collective::Scatter => own(&inputs[root]),
            Collective::AllGather => inputs.concat(),
            Collective::Gather if rank == root => inputs.concat(),
            Collective::AllToAll => {
                let mut output = Vec::new();
                for (from, input) in inputs.iter().enumerate() {
                    let at = (0..rank).map(|to| shape.pair(from, to)).sum();
                    output.extend(cut(input, at, shape.pair(from, rank)));
                }
                output
            }
            Collective::SendRecv => inputs[(rank + inputs.len() - 1) % inputs.len()].clone(),
            Collective::Reduce | Collective::Gather | Collective::Barrier => Vec::new(),
        }
    }

    fn combine(&self, call: &Call, inputs: &[Vec<u8>]) -> Vec<u8> {
        let size = call.dtype.size();
        let counted = inputs.len() - usize::from(self.fault == Some(Fault::LostContribution));
        let mut output = Vec::new();
        for at in (0..inputs[0].len()).step_by(size) {
            let values = inputs[..counted].iter().map(|input| decode(call.dtype, &input[at..at + size]));
            let value = match call.op {
                ReduceOp::Sum => values.sum(),
                ReduceOp::Prod => values.product(),
                ReduceOp::Min => values.fold(f64::INFINITY, f64::min),
                ReduceOp::Max => values.fold(f64::NEG_INFINITY, f64::max),
                ReduceOp::Avg => values.sum::<f64>() / inputs.len() as f64,
            };
            output.extend(encode(call.dtype, value));
        }
        output
    }
}

impl Group for ThreadGroup {
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.infos.len()
    }
    fn ranks(&self) -> &[RankInfo] {
        &self.infos
    }
    fn alloc(&self, bytes: usize, _registered: bool) -> Result<Memory> {
        Memory::plain(bytes)
    }
    fn run(&mut self, call: &Call, input: &[u8], output: &mut [u8]) -> Result<()> {
        if self.fault == Some(Fault::Error) {
            return Err(Error::Broken("a test asked for it".to_owned()));
        }
        let inputs = self.exchange(input);
        if self.fault == Some(Fault::Untouched) {
            return Ok(());
        }
        output.copy_from_slice(&self.result(call, &inputs));
        if let (Some(Fault::WrongElement), Some(last)) = (self.fault, output.last_mut()) {
            *last ^= 1;
        }
        Ok(())
    }
    fn run_in_place(&mut self, call: &Call, buffer: &mut [u8]) -> Result<()> {
        let shape = Shape { call: call.clone(), ranks: self.size(), bytes: 0, count: 0 };
        let place = shape.in_place(self.rank);
        let bytes =
            |at: u64, count: u64| (at as usize * call.dtype.size())..((at + count) as usize * call.dtype.size());
        let input = buffer[bytes(place.input_at, shape.input_count(self.rank))].to_vec();
        let output = &mut buffer[bytes(place.output_at, shape.output_count(self.rank))];
        self.run(call, &input, output)
    }
    fn last_run(&self) -> RunInfo {
        RunInfo {
            algorithm: self.forced.algorithm.unwrap_or(Algorithm::Direct),
            chunk_bytes: self.forced.chunk_bytes.unwrap_or(0),
            channels: self.forced.channels.unwrap_or(1),
            transport: "shm",
        }
    }
    fn force(&mut self, force: Force) -> Result<()> {
        self.forced = force;
        Ok(())
    }
    fn supports(&self, call: &Call, algorithm: Algorithm) -> Result<()> {
        if algorithm == Algorithm::Ring && call.collective == Collective::Broadcast {
            let reason = "a ring has no root".to_owned();
            return Err(Error::Unsuited { algorithm: algorithm.name(), collective: call.collective.name(), reason });
        }
        Ok(())
    }
    fn all_gather_bytes(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(self.exchange(mine))
    }
}

fn decode(dtype: DataType, bytes: &[u8]) -> f64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    match dtype {
        DataType::F64 => f64::from_bits(bits),
        DataType::F32 => f64::from(f32::from_bits(bits as u32)),
        DataType::F16 => f16::from_bits(bits as u16).to_f64(),
        DataType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        DataType::I8 => f64::from(bits as i8),
        DataType::U8 => f64::from(bits as u8),
        DataType::I32 => f64::from(bits as i32),
        DataType::U32 => f64::from(bits as u32),
        DataType::I64 => bits as i64 as f64,
        DataType::U64 => bits as f64,
    }
}

fn encode(dtype: DataType, value: f64) -> Vec<u8> {
    match dtype {
        DataType::F64 => value.to_le_bytes().to_vec(),
        DataType::F32 => (value as f32).to_le_bytes().to_vec(),
        DataType::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        DataType::Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        DataType::I8 => (value as i8).to_le_bytes().to_vec(),
        DataType::U8 => (value as u8).to_le_bytes().to_vec(),
        DataType::I32 => (value as i32).to_le_bytes().to_vec(),
        DataType::U32 => (value as u32).to_le_bytes().to_vec(),
        DataType::I64 => (value as i64).to_le_bytes().to_vec(),
        DataType::U64 => (value as u64).to_le_bytes().to_vec(),
    }
}
