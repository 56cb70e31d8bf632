//! hwloc.
use super::FormatError;
use super::xml::Source;
use crate::Machine;
use roxmltree::Node;
pub(super) fn read(source: &Source, topology: Node) -> Result<Machine, FormatError> {
    Err(source.error(topology, "not yet"))
}
