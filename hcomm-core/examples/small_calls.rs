//! A rank that does so many 8-byte all_reduces, and says how long one takes: what `scripts/telemetry-cost` measures.

use std::time::Instant;

use hcomm_core::Communicator;
use hcomm_core::reduce::ReduceOp;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let calls: u32 = std::env::args().nth(1).ok_or("small_calls CALLS")?.parse()?;
    let mut communicator = Communicator::init()?;
    let mut values = [1.0_f32; 2];
    // Plans are made, links are connected, and short calls are known to be short.
    for _ in 0..1000 {
        communicator.all_reduce_in_place(&mut values, ReduceOp::Max)?;
    }
    let start = Instant::now();
    for _ in 0..calls {
        communicator.all_reduce_in_place(&mut values, ReduceOp::Max)?;
    }
    let nanoseconds = start.elapsed().as_nanos() as f64 / f64::from(calls.max(1));
    communicator.barrier()?;
    println!("{nanoseconds:.1}");
    Ok(())
}
