//! Ascend.
