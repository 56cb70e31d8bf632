//! What both XML readers share: bounded parsing, and errors that name file and line.

use std::str::FromStr;

use roxmltree::{Document, Node, ParsingOptions};

use super::FormatError;

/// Elements, texts and attributes in the largest file known are 10,000.
const MOST_NODES: u32 = 1_000_000;
/// PCI has 256 buses a domain, and real machines nest 10 bridges; hwloc's deepest export has 20 levels.
const MOST_LEVELS: usize = 200;
/// hwloc's PCI bridges have 20.
const MOST_ATTRIBUTES: usize = 4096;

/// A text to parse, and the name of its file.
pub(super) struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Source<'a> {
        Source { file, text }
    }

    /// Parses the text.
    pub(super) fn parse(&self) -> Result<Document<'a>, FormatError> {
        let at = |line: u32, problem: String| FormatError { file: self.file.into(), line: Some(line), problem };
        if self.text.trim().is_empty() {
            return Err(at(1, "expected XML, found nothing".into()));
        }
        if let Some((line, what)) = self.forbidden() {
            return Err(at(line, format!("expected a topology, found {what}")));
        }
        let options = ParsingOptions { allow_dtd: true, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
        let document = Document::parse_with_options(self.text, options).map_err(|e| {
            let row = if ends_early(&e) { self.lines() } else { e.pos().row };
            at(row, format!("expected well-formed XML, found this: {e}"))
        })?;
        // Depth is counted while walking in document order: a node is one deeper than its parent.
        let mut depth = vec![0_usize; 0];
        for node in document.descendants() {
            let level = node.parent().and_then(|up| depth.get(up.id().get_usize())).map_or(0, |up| up + 1);
            if level > MOST_LEVELS {
                return Err(self.error(node, format!("expected at most {MOST_LEVELS} levels of elements, found more")));
            }
            depth.push(level);
        }
        Ok(document)
    }

    /// The number of the last line that has something in it.
    fn lines(&self) -> u32 {
        1 + self.text.trim_end().bytes().filter(|byte| *byte == b'\n').count() as u32
    }

    /// What no tool writes, and what would take the parser time or memory that grows with the square of the text: entities
    /// that the file declares for itself, namespaces, thousands of attributes on one element. With its line.
    fn forbidden(&self) -> Option<(u32, &'static str)> {
        let line = |bytes: usize| 1 + self.text.as_bytes()[..bytes].iter().filter(|b| **b == b'\n').count() as u32;
        if let Some(at) = self.text.find("<!ENTITY") {
            return Some((line(at), "a declaration of entities"));
        }
        if let Some(at) = self.text.find("xmlns") {
            return Some((line(at), "an XML namespace"));
        }
        let mut attributes = 0;
        for (at, byte) in self.text.bytes().enumerate() {
            attributes = if byte == b'<' { 0 } else { attributes + usize::from(byte == b'=') };
            if attributes > MOST_ATTRIBUTES {
                return Some((line(at), "an element with thousands of attributes"));
            }
        }
        None
    }

    /// An error at `node`.
    pub(super) fn error(&self, node: Node, problem: impl Into<String>) -> FormatError {
        let line = node.document().text_pos_at(node.range().start).row;
        FormatError { file: self.file.into(), line: Some(line), problem: problem.into() }
    }

    /// An attribute that must read as `T` when it is there.
    pub(super) fn attribute<T: FromStr>(&self, node: Node, name: &str, what: &str) -> Result<Option<T>, FormatError> {
        let Some(text) = node.attribute(name) else { return Ok(None) };
        let value = text.trim().parse().map_err(|_| self.error(node, expected(node, name, what, text)))?;
        Ok(Some(value))
    }

    /// An attribute that must be there and read as `T`.
    pub(super) fn required<T: FromStr>(&self, node: Node, name: &str, what: &str) -> Result<T, FormatError> {
        self.attribute(node, name, what)?.ok_or_else(|| {
            let tag = node.tag_name().name();
            self.error(node, format!("expected {name}={what} in <{tag}>, found no such attribute"))
        })
    }
}

/// Errors that are only seen at the end of the text; the parser gives them no place.
fn ends_early(error: &roxmltree::Error) -> bool {
    use roxmltree::Error::{NoRootNode, NodesLimitReached, UnclosedRootNode, UnexpectedEndOfStream};
    matches!(error, NoRootNode | NodesLimitReached | UnclosedRootNode | UnexpectedEndOfStream)
}

/// The sentence for an attribute of the wrong form.
pub(super) fn expected(node: Node, name: &str, what: &str, found: &str) -> String {
    let found: String = found.chars().take(60).collect();
    format!("expected {name}={what} in <{}>, found {found:?}", node.tag_name().name())
}

/// A number with `0x` before it or without, in hexadecimal digits.
pub(super) fn hex(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    u64::from_str_radix(digits, 16).ok()
}
