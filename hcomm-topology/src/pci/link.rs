//! PCI Express links: what they run at, and whether that is less than it could be.

use crate::root::Folder;
use crate::{PciFunction, PciLink};

/// The link files of a function. Kernels write `16.0 GT/s PCIe`, older ones `5 GT/s`; `Unknown` or `Unknown speed`, widths 0 and 255
/// mean that it is not known (`drivers/pci/pci-sysfs.c`, `PCIE_LNK_WIDTH_UNKNOWN`).
pub(super) fn read(folder: &Folder<'_>) -> PciLink {
    let speed = |name: &str| folder.text(name).and_then(|text| speed(&text));
    let width = |name: &str| folder.text(name).and_then(|text| width(&text));
    PciLink {
        speed_gt_per_s: speed("current_link_speed"),
        width: width("current_link_width"),
        max_speed_gt_per_s: speed("max_link_speed"),
        max_width: width("max_link_width"),
        gb_per_s: None,
    }
}

/// GT/s of a text such as `2.5 GT/s` or `32.0 GT/s PCIe`.
pub(crate) fn speed(text: &str) -> Option<f32> {
    let (number, unit) = text.trim().split_at_checked(text.trim().find(|c: char| !c.is_ascii_digit() && c != '.')?)?;
    let speed: f32 = number.parse().ok()?;
    (unit.trim_start().starts_with("GT/s") && is_speed(speed)).then_some(speed)
}

/// Whether a number of GT/s can be one. The fastest that is specified (PCI Express 7.0) is 128; a file that says a thousand times as much
/// is damaged.
pub(crate) fn is_speed(gt_per_s: f32) -> bool {
    gt_per_s > 0.0 && gt_per_s <= 1024.0
}

/// Lanes of a text such as `16`. A link has at most 32.
pub(crate) fn width(text: &str) -> Option<u8> {
    text.trim().parse().ok().filter(|lanes| (1..=32).contains(lanes))
}

/// Whether a function's link runs below what this end alone could do: less speed or fewer lanes. `None` where the source does not tell.
/// The other end may be what bounds it: then nothing is wrong; see [`degraded`].
pub fn below_own_best(function: &PciFunction) -> Option<bool> {
    let link = &function.link;
    either(below(link.speed_gt_per_s, link.max_speed_gt_per_s), below(link.width, link.max_width))
}

/// Whether the link of `functions[at]` runs below what both its ends can do. `None` where the source does not tell what an end can do
/// and the link is below the best of the other.
///
/// The link of a card or of the upper port of a switch goes up to its bridge. The link of a port of the root complex, or of a lower
/// port of a switch, goes down to what is plugged in there; with nothing there, there is no link.
pub fn degraded(functions: &[PciFunction], at: usize) -> Option<bool> {
    let function = functions.get(at)?;
    let ends = other_ends(functions, function);
    let link = &function.link;
    let best = |own: Option<f32>, of_end: fn(&PciLink) -> Option<f32>| {
        let end = ends.iter().filter_map(|end| of_end(&end.link)).reduce(f32::max);
        Best { own, end }
    };
    let lanes = |width: Option<u8>| width.map(f32::from);
    either(
        best(link.max_speed_gt_per_s, |link| link.max_speed_gt_per_s).is_above(link.speed_gt_per_s),
        best(lanes(link.max_width), |link| link.max_width.map(f32::from)).is_above(lanes(link.width)),
    )
}

/// GT/s and lanes that the link of `functions[at]` could run at: what both its ends can do. Where only one end tells, what that one can.
/// Which end is the other is said at [`degraded`].
pub fn possible(functions: &[PciFunction], at: usize) -> (Option<f32>, Option<u8>) {
    let Some(function) = functions.get(at) else { return (None, None) };
    let ends = other_ends(functions, function);
    let speed = ends.iter().filter_map(|end| end.link.max_speed_gt_per_s).reduce(f32::max);
    let width = ends.iter().filter_map(|end| end.link.max_width).max();
    let own = (function.link.max_speed_gt_per_s, function.link.max_width);
    (own.0.into_iter().chain(speed).reduce(f32::min), own.1.into_iter().chain(width).min())
}

/// What the two ends of a link can do.
struct Best {
    own: Option<f32>,
    end: Option<f32>,
}

impl Best {
    /// Whether both ends can do more than `now`.
    fn is_above(&self, now: Option<f32>) -> Option<bool> {
        let now = now?;
        match (self.own, self.end) {
            (Some(own), Some(end)) => Some(now < own.min(end)),
            // One end suffices to know that nothing more is possible.
            (Some(one), None) | (None, Some(one)) if now >= one => Some(false),
            _ => None,
        }
    }
}

/// The functions at the other end of the link of `function`: one bridge above, or those of the device below.
fn other_ends<'a>(functions: &'a [PciFunction], function: &PciFunction) -> Vec<&'a PciFunction> {
    let find = |address| functions.iter().find(|function| function.address == address);
    if is_lower_port(function, find) {
        return functions.iter().filter(|below| below.parent == Some(function.address)).collect();
    }
    function.parent.and_then(find).into_iter().collect()
}

/// Whether the link of `function` is the one below it. Ports come in turn: a port of the root complex on a root bus, under it the upper
/// port of a switch, under that the lower ones, and so on.
fn is_lower_port<'a>(function: &PciFunction, find: impl Fn(crate::PciAddress) -> Option<&'a PciFunction>) -> bool {
    let mut lower = function.bridge;
    let mut above = function.parent.and_then(&find);
    // No tree is deeper than its 256 buses; one that loops is damaged.
    for _ in 0..256 {
        let Some(bridge) = above else { break };
        lower = !lower;
        above = bridge.parent.and_then(&find);
    }
    function.bridge && lower
}

fn below<T: PartialOrd>(now: Option<T>, best: Option<T>) -> Option<bool> {
    Some(now? < best?)
}

/// True if one is; false if both are known not to be, or one is and the other says nothing.
fn either(speed: Option<bool>, width: Option<bool>) -> Option<bool> {
    match (speed, width) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (speed, width) => speed.and(width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_kernels() {
        let speeds =
            ["16.0 GT/s PCIe", "5 GT/s", "2.5 GT/s", "64.0 GT/s PCIe", "Unknown speed", "Unknown", "", "16", "-1 GT/s"];
        let read = speeds.map(speed);
        assert_eq!(read, [Some(16.0), Some(5.0), Some(2.5), Some(64.0), None, None, None, None, None]);
        assert_eq!(
            ["16", "1", "0", "255", "x", "", "-1"].map(width),
            [Some(16), Some(1), None, None, None, None, None]
        );
    }

    /// Functions `bus:device` under a parent, with speed and lanes now and possible.
    fn function(address: &str, parent: Option<&str>, bridge: bool, now: (f32, u8), best: (f32, u8)) -> PciFunction {
        let some = |(speed, width): (f32, u8)| ((speed > 0.0).then_some(speed), (width > 0).then_some(width));
        let ((speed_gt_per_s, width), (max_speed_gt_per_s, max_width)) = (some(now), some(best));
        PciFunction {
            link: PciLink { speed_gt_per_s, width, max_speed_gt_per_s, max_width, gb_per_s: None },
            bridge,
            parent: parent.map(|parent| parent.parse().unwrap()),
            ..PciFunction::unknown(address.parse().unwrap())
        }
    }

    #[test]
    fn both_ends_count() {
        let tree = [
            function("00:01.0", None, true, (16.0, 8), (32.0, 16)),
            function("00:02.0", None, true, (2.5, 1), (32.0, 16)),
            function("01:00.0", Some("00:01.0"), true, (16.0, 8), (16.0, 16)),
            function("02:00.0", Some("01:00.0"), true, (8.0, 16), (16.0, 16)),
            function("02:01.0", Some("01:00.0"), true, (16.0, 16), (16.0, 16)),
            function("03:00.0", Some("02:00.0"), false, (8.0, 16), (8.0, 16)),
            function("04:00.0", Some("02:01.0"), false, (8.0, 16), (32.0, 16)),
            function("05:00.0", Some("09:00.0"), false, (8.0, 16), (32.0, 16)),
            function("06:00.0", Some("02:01.0"), false, (0.0, 0), (32.0, 16)),
        ];
        let flags: Vec<_> = (0..tree.len()).map(|at| degraded(&tree, at)).collect();
        let expected = [
            Some(true),  // half the lanes that the switch and the port have
            None,        // nothing is plugged in
            Some(true),  // the same link, seen from the switch
            Some(false), // the card below can do no more
            Some(false),
            Some(false),
            Some(true), // the switch and the card can do 16
            None,       // the bridge above is not known
            None,       // no link is told
        ];
        assert_eq!(flags, expected);
        let best: Vec<_> = [0, 1, 3, 6, 7].iter().map(|at| possible(&tree, *at)).collect();
        let both = |speed, width| (Some(speed), Some(width));
        let expected = [both(16.0, 16), both(32.0, 16), both(8.0, 16), both(16.0, 16), both(32.0, 16)];
        assert_eq!(best, expected);
        assert_eq!(below_own_best(&tree[3]), Some(true));
        assert_eq!(below_own_best(&tree[5]), Some(false));
        assert_eq!(below_own_best(&tree[8]), None);
        assert_eq!(degraded(&tree, 99), None);
    }
}
