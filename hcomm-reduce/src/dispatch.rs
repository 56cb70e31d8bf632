//! Compiles the kernels once per instruction set, and picks a set by asking the processor.

use half::{bf16, f16};

use super::block::{Block, Lanes};
use super::kernel::{Kernel, Kernels};
use super::lane::{Greater, Lesser, Operation, Product, Sum};
use super::types::{DataType, ReduceOp};
#[cfg(target_arch = "x86_64")]
use super::x86;

/// The kernels of each type and operation.
pub type Set = fn(DataType, ReduceOp) -> Kernels;

/// The kernels for this processor, with the name of their instruction set.
pub fn best(dtype: DataType, op: ReduceOp) -> (Kernels, &'static str) {
    available().last().map_or_else(|| (portable(dtype, op), "portable"), |&(name, make)| (make(dtype, op), name))
}

/// The instruction sets that this processor has kernels for, the best last.
pub fn available() -> Vec<(&'static str, Set)> {
    #[allow(unused_mut)]
    let mut sets: Vec<(&'static str, Set)> = vec![("portable", portable)];
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
        if avx2 {
            sets.push(("avx2", avx2::kernels));
        }
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        if avx2 && avx512 && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl") {
            sets.push(("avx512", avx512::kernels));
        }
    }
    sets
}

/// The kernels that need nothing of the processor.
pub fn portable(dtype: DataType, op: ReduceOp) -> Kernels {
    baseline::kernels(dtype, op)
}

/// A module of kernels compiled with `$feature`, with the block of each type.
macro_rules! kernels_for {
    ($module:ident $(#[$feature:meta])?; $($dtype:ident => $block:ty),* $(,)?) => {
        mod $module {
            use super::*;

            $(#[$feature])?
            unsafe fn pair<B: Block, O: Operation>(d: *mut u8, a: *const u8, b: *const u8, count: usize) {
                // SAFETY: the caller's promise; this function is only reached where the processor has the feature.
                unsafe { Kernel::<B, O>::pair(d, a, b, count) }
            }

            $(#[$feature])?
            unsafe fn many<B: Block, O: Operation>(d: &[*mut u8], s: &[*const u8], count: usize) {
                // SAFETY: as above.
                unsafe { Kernel::<B, O>::many(pair::<B, O>, d, s, count) }
            }

            $(#[$feature])?
            unsafe fn many_streaming<B: Block, O: Operation>(d: &[*mut u8], s: &[*const u8], count: usize) {
                // SAFETY: as above.
                unsafe { Kernel::<B, O>::many_streaming(many::<B, O>, d, s, count) }
            }

            $(#[$feature])?
            unsafe fn divide<B: Block>(d: *mut u8, count: usize, ranks: u64) {
                // SAFETY: as above.
                unsafe { Kernel::<B, Sum>::divide(d, count, ranks) }
            }

            fn of<B: Block, O: Operation>() -> Kernels {
                Kernels {
                    pair: pair::<B, O>,
                    many: many::<B, O>,
                    many_streaming: many_streaming::<B, O>,
                    divide: divide::<B>,
                }
            }

            fn of_type<B: Block>(op: ReduceOp) -> Kernels {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => of::<B, Sum>(),
                    ReduceOp::Prod => of::<B, Product>(),
                    ReduceOp::Min => of::<B, Lesser>(),
                    ReduceOp::Max => of::<B, Greater>(),
                }
            }

            pub fn kernels(dtype: DataType, op: ReduceOp) -> Kernels {
                match dtype {
                    $(DataType::$dtype => of_type::<$block>(op),)*
                }
            }
        }
    };
}

kernels_for!(
    baseline;
    F64 => Lanes<f64, 2>,
    F32 => Lanes<f32, 4>,
    F16 => Lanes<f16, 8>,
    Bf16 => Lanes<bf16, 8>,
    I8 => Lanes<i8, 16>,
    U8 => Lanes<u8, 16>,
    I32 => Lanes<i32, 4>,
    U32 => Lanes<u32, 4>,
    I64 => Lanes<i64, 2>,
    U64 => Lanes<u64, 2>,
);

#[cfg(target_arch = "x86_64")]
kernels_for!(
    avx2 #[target_feature(enable = "avx2,f16c")];
    F64 => x86::F64x4,
    F32 => x86::F32x8,
    F16 => x86::F16x8,
    Bf16 => x86::Bf16x16,
    I8 => x86::I8x32,
    U8 => x86::U8x32,
    I32 => x86::I32x8,
    U32 => x86::U32x8,
    I64 => x86::I64x4,
    U64 => x86::U64x4,
);

#[cfg(target_arch = "x86_64")]
kernels_for!(
    avx512 #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")];
    F64 => x86::F64x8,
    F32 => x86::F32x16,
    F16 => x86::F16x16,
    Bf16 => x86::Bf16x32,
    I8 => x86::I8x64,
    U8 => x86::U8x64,
    I32 => x86::I32x16,
    U32 => x86::U32x16,
    I64 => x86::I64x8,
    U64 => x86::U64x8,
);
