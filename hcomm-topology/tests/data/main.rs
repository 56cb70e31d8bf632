//! What discovery says of real machines, against what their `expected.json` says. The data lies beside the repository, in
//! `../shared/data`; without it these tests say so and pass.

mod ascend;
mod cpus;
mod hwloc;
mod matrix;
mod net;
mod pci;
mod placement;
mod relations;
mod support;
mod xml;
