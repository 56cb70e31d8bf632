//! Compiles the kernels once per instruction set, and picks a set by asking the processor.

use half::{bf16, f16};

use super::isa::Portable;
use super::kernel::{Kernel, Kernels};
use super::lane::{Greater, Lane, Lesser, Operation, Product, Sum};
use super::types::{DataType, ReduceOp};

/// The kernels for this processor, with the name of their instruction set.
pub fn best(dtype: DataType, op: ReduceOp) -> (Kernels, &'static str) {
    available().last().map_or_else(|| (portable(dtype, op), "portable"), |&(name, make)| (make(dtype, op), name))
}

/// The instruction sets that this processor has kernels for, the best last.
pub fn available() -> Vec<(&'static str, fn(DataType, ReduceOp) -> Kernels)> {
    #[allow(unused_mut)]
    let mut sets: Vec<(&'static str, fn(DataType, ReduceOp) -> Kernels)> = vec![("portable", portable)];
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

/// A module of kernels for the instruction set `$isa` with vectors of `$vector` bytes, compiled with `$feature`.
macro_rules! kernels_for {
    ($module:ident, $isa:ty, $vector:literal $(, #[$feature:meta])?) => {
        mod $module {
            use super::*;

            $(#[$feature])?
            unsafe fn pair<E: Lane, O: Operation, const N: usize>(d: *mut u8, a: *const u8, b: *const u8, count: usize) {
                // SAFETY: the caller's promise; this function is only reached where the processor has `$isa`.
                unsafe { Kernel::<$isa, E, O, N>::pair(d, a, b, count) }
            }

            $(#[$feature])?
            unsafe fn many<E: Lane, O: Operation, const N: usize>(d: &[*mut u8], s: &[*const u8], count: usize) {
                // SAFETY: as above.
                unsafe { Kernel::<$isa, E, O, N>::many(d, s, count) }
            }

            $(#[$feature])?
            unsafe fn many_streaming<E: Lane, O: Operation, const N: usize>(d: &[*mut u8], s: &[*const u8], count: usize) {
                // SAFETY: as above.
                unsafe { Kernel::<$isa, E, O, N>::many_streaming(d, s, count) }
            }

            $(#[$feature])?
            unsafe fn divide<E: Lane, const N: usize>(d: *mut u8, count: usize, ranks: u64) {
                // SAFETY: as above.
                unsafe { Kernel::<$isa, E, Sum, N>::divide(d, count, ranks) }
            }

            fn of<E: Lane, O: Operation, const N: usize>() -> Kernels {
                Kernels {
                    pair: pair::<E, O, N>,
                    many: many::<E, O, N>,
                    many_streaming: many_streaming::<E, O, N>,
                    divide: divide::<E, N>,
                }
            }

            fn of_type<E: Lane, const N: usize>(op: ReduceOp) -> Kernels {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => of::<E, Sum, N>(),
                    ReduceOp::Prod => of::<E, Product, N>(),
                    ReduceOp::Min => of::<E, Lesser, N>(),
                    ReduceOp::Max => of::<E, Greater, N>(),
                }
            }

            pub fn kernels(dtype: DataType, op: ReduceOp) -> Kernels {
                match dtype {
                    DataType::F64 => of_type::<f64, { $vector / 8 }>(op),
                    DataType::F32 => of_type::<f32, { $vector / 4 }>(op),
                    DataType::F16 => of_type::<f16, { $vector / 4 }>(op),
                    DataType::Bf16 => of_type::<bf16, { $vector / 4 }>(op),
                    DataType::I8 => of_type::<i8, $vector>(op),
                    DataType::U8 => of_type::<u8, $vector>(op),
                    DataType::I32 => of_type::<i32, { $vector / 4 }>(op),
                    DataType::U32 => of_type::<u32, { $vector / 4 }>(op),
                    DataType::I64 => of_type::<i64, { $vector / 8 }>(op),
                    DataType::U64 => of_type::<u64, { $vector / 8 }>(op),
                }
            }
        }
    };
}

kernels_for!(baseline, Portable, 32);
#[cfg(target_arch = "x86_64")]
kernels_for!(avx2, super::super::isa::F16c, 32, #[target_feature(enable = "avx2,f16c")]);
#[cfg(target_arch = "x86_64")]
kernels_for!(avx512, super::super::isa::F16c, 64, #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]);
