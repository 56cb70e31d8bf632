//! The element types and operations of the public interface.

use std::fmt;

use half::{bf16, f16};

/// Type of one element of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DataType {
    /// IEEE 754 double precision.
    F64,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision: 5 bits of exponent, 10 of fraction.
    F16,
    /// The upper half of an f32: 8 bits of exponent, 7 of fraction.
    Bf16,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits.
    U64,
}

impl DataType {
    /// Every type, in the order of nccl-tests' `-d all`.
    pub const ALL: [DataType; 10] = [
        DataType::I8,
        DataType::U8,
        DataType::I32,
        DataType::U32,
        DataType::I64,
        DataType::U64,
        DataType::F16,
        DataType::F32,
        DataType::F64,
        DataType::Bf16,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DataType::I8 | DataType::U8 => 1,
            DataType::F16 | DataType::Bf16 => 2,
            DataType::F32 | DataType::I32 | DataType::U32 => 4,
            DataType::F64 | DataType::I64 | DataType::U64 => 8,
        }
    }

    /// Rust's name: `f32`, `bf16`, ...
    pub const fn name(self) -> &'static str {
        match self {
            DataType::F64 => "f64",
            DataType::F32 => "f32",
            DataType::F16 => "f16",
            DataType::Bf16 => "bf16",
            DataType::I8 => "i8",
            DataType::U8 => "u8",
            DataType::I32 => "i32",
            DataType::U32 => "u32",
            DataType::I64 => "i64",
            DataType::U64 => "u64",
        }
    }

    /// The name that nccl-tests prints and takes: `float`, `bfloat16`, ...
    pub const fn nccl_name(self) -> &'static str {
        match self {
            DataType::F64 => "double",
            DataType::F32 => "float",
            DataType::F16 => "half",
            DataType::Bf16 => "bfloat16",
            DataType::I8 => "int8",
            DataType::U8 => "uint8",
            DataType::I32 => "int32",
            DataType::U32 => "uint32",
            DataType::I64 => "int64",
            DataType::U64 => "uint64",
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How two elements become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum; integers wrap.
    Sum,
    /// Product; integers wrap.
    Prod,
    /// The lesser; NaN loses against a number.
    Min,
    /// The greater; NaN loses against a number.
    Max,
    /// Sum divided by the number of ranks; integers round towards zero.
    Avg,
}

impl ReduceOp {
    /// Every operation, in the order of nccl-tests' `-o all`.
    pub const ALL: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];

    /// Name as in nccl-tests: `sum`, `prod`, `min`, `max`, `avg`.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Avg => "avg",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that can travel: plain old data, any bit pattern valid.
pub trait Element: Copy + Default + Send + Sync + PartialEq + fmt::Debug + sealed::Sealed + 'static {
    /// Its run-time name.
    const TYPE: DataType;
}

macro_rules! element {
    ($($rust:ty => $name:ident),*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const TYPE: DataType = DataType::$name;
        }
    )*};
}
element!(f64 => F64, f32 => F32, f16 => F16, bf16 => Bf16, i8 => I8, u8 => U8, i32 => I32, u32 => U32, i64 => I64, u64 => U64);
