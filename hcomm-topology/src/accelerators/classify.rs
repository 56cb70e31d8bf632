//! Which PCI functions are accelerators, and which models they are.

use crate::{AcceleratorKind, PciFunction, Vendor};

/// Vendors whose display controllers compute: NVIDIA, AMD, Intel, Hygon, Moore Threads, Innosilicon, MetaX, Iluvatar, Biren. Others (ASPEED,
/// Matrox, Cirrus, those of virtual machines) only drive a screen.
const GPU_VENDORS: [u16; 9] = [0x10de, 0x1002, 0x8086, 0x1d94, 0x1ed5, 0x1ec8, 0x9999, 0x1e3e, 0x1ee0];
/// Vendors of virtual displays: Red Hat (virtio, QXL), VMware, Microsoft, VirtualBox, Bochs.
const VIRTUAL_VENDORS: [u16; 6] = [0x1af4, 0x1b36, 0x15ad, 0x1414, 0x80ee, 0x1234];
/// Rage XL, RV100 and ES1000: chips on boards of old servers, for their consoles.
const CONSOLE_CHIPS: [u16; 5] = [0x4752, 0x4750, 0x5159, 0x515e, 0x5969];
/// Vendors whose processing accelerators (class 0x1200) are made for neural networks: Habana, Cambricon, Enflame, Groq, Graphcore,
/// Tenstorrent, FuriosaAI, Rebellions, Google, Lynxi.
const NPU_VENDORS: [u16; 10] = [0x1da3, 0xcabc, 0x1e36, 0x1de0, 0x1d95, 0x1e52, 0x1ed2, 0x1eff, 0x1ae0, 0x1e9f];

/// What kind of accelerator a PCI function is; `None` if it is none. By class (PCI Code and ID Assignment Specification), and by vendor
/// where the class alone says too little: consoles of management processors are display controllers too, and compression engines are
/// "processing accelerators".
pub fn accelerator_kind(class: u32, vendor: Option<u16>, device: Option<u16>) -> Option<AcceleratorKind> {
    use AcceleratorKind::{Gpu, Npu, Other};
    let is_gpu_vendor = vendor.is_some_and(|vendor| GPU_VENDORS.contains(&vendor));
    match (class >> 8, vendor, device) {
        (0x0300 | 0x0301 | 0x0380, Some(0x1002), Some(device)) if CONSOLE_CHIPS.contains(&device) => None,
        (0x0300 | 0x0301 | 0x0380, ..) => is_gpu_vendor.then_some(Gpu),
        (0x0302, Some(vendor), _) => (!VIRTUAL_VENDORS.contains(&vendor)).then_some(Gpu),
        (0x0302, None, _) => Some(Gpu),
        // Huawei's compression and RAID engines (a2xx) have the class too.
        (0x1200, Some(0x19e5), Some(device)) => (device >> 12 == 0xd).then_some(Npu),
        (0x1200, Some(0x8086), _) => Some(Other),
        (0x1200, Some(vendor), _) if NPU_VENDORS.contains(&vendor) => Some(Npu),
        (0x1200, ..) => Some(if is_gpu_vendor { Gpu } else { Other }),
        // Xeon Phi; Intel's QuickAssist is a co-processor as well.
        (0x0b40, Some(0x8086), Some(0x2250..=0x226f)) => Some(Other),
        // AWS Inferentia and Trainium are "system peripherals".
        (0x0880, Some(0x1d0f), Some(0x7064 | 0x7164 | 0x7264 | 0x7364 | 0x7564 | 0x7565)) => Some(Npu),
        _ => None,
    }
}

/// Who made it, by PCI vendor number.
pub fn vendor_of(number: u16) -> Vendor {
    match number {
        0x10de => Vendor::Nvidia,
        0x1002 => Vendor::Amd,
        0x8086 => Vendor::Intel,
        0x19e5 => Vendor::Huawei,
        0x1da3 => Vendor::Habana,
        other => Vendor::Other(other),
    }
}

/// Model of a function: by the table here, else by the name that the system's table gives it (`GH100 [H100 SXM5 80GB]`: what is in the
/// brackets at its end).
pub(crate) fn model_of(function: &PciFunction) -> Option<String> {
    let known = || {
        let key = (function.vendor?, function.device?);
        MODELS.iter().find(|(vendor, device, _)| (*vendor, *device) == key).map(|(_, _, model)| (*model).to_owned())
    };
    let named = || {
        let name = function.name.as_deref()?;
        let inner = name.strip_suffix(']').and_then(|name| name.rsplit_once('[')).map(|(_, inner)| inner);
        Some(inner.unwrap_or(name).to_owned())
    };
    known().or_else(named)
}

/// Accelerators that train, by vendor and device: so that they have names where no `pci.ids` is installed, or an old one. Numbers as in
/// `pci.ids`; Huawei's, which it lacks, as in Huawei's own driver scripts; Habana's as in Linux (`habanalabs_drv.c`).
const MODELS: &[(u16, u16, &str)] = &[
    (0x19e5, 0xd100, "Ascend 310"),
    (0x19e5, 0xd500, "Ascend 310P"),
    (0x19e5, 0xd801, "Ascend 910"),
    (0x19e5, 0xd802, "Ascend 910B"),
    (0x19e5, 0xd803, "Ascend 910C"),
    (0x1da3, 0x0001, "Goya"),
    (0x1da3, 0x0030, "Greco"),
    (0x1da3, 0x1000, "Gaudi"),
    (0x1da3, 0x1010, "Gaudi"),
    (0x1da3, 0x1020, "Gaudi2"),
    (0x1da3, 0x1060, "Gaudi3"),
    (0x1da3, 0x1063, "Gaudi3"),
    (0x10de, 0x15f8, "Tesla P100 PCIe 16GB"),
    (0x10de, 0x15f9, "Tesla P100 SXM2 16GB"),
    (0x10de, 0x1db1, "Tesla V100 SXM2 16GB"),
    (0x10de, 0x1db4, "Tesla V100 PCIe 16GB"),
    (0x10de, 0x1db5, "Tesla V100 SXM2 32GB"),
    (0x10de, 0x1db6, "Tesla V100 PCIe 32GB"),
    (0x10de, 0x1db8, "Tesla V100 SXM3 32GB"),
    (0x10de, 0x1eb8, "Tesla T4"),
    (0x10de, 0x20b0, "A100 SXM4 40GB"),
    (0x10de, 0x20b2, "A100 SXM4 80GB"),
    (0x10de, 0x20b5, "A100 PCIe 80GB"),
    (0x10de, 0x20b7, "A30 PCIe"),
    (0x10de, 0x20bd, "A800 SXM4 40GB"),
    (0x10de, 0x20f1, "A100 PCIe 40GB"),
    (0x10de, 0x20f3, "A800 SXM4 80GB"),
    (0x10de, 0x20f5, "A800 PCIe 80GB"),
    (0x10de, 0x2235, "A40"),
    (0x10de, 0x2236, "A10"),
    (0x10de, 0x2322, "H800 PCIe"),
    (0x10de, 0x2324, "H800"),
    (0x10de, 0x2329, "H20"),
    (0x10de, 0x2330, "H100 SXM5 80GB"),
    (0x10de, 0x2331, "H100 PCIe"),
    (0x10de, 0x2335, "H200 SXM 141GB"),
    (0x10de, 0x233b, "H200 NVL"),
    (0x10de, 0x2342, "GH200 120GB / 480GB"),
    (0x10de, 0x26b5, "L40"),
    (0x10de, 0x26b9, "L40S"),
    (0x10de, 0x27b8, "L4"),
    (0x10de, 0x2901, "B200"),
    (0x10de, 0x2941, "GB200"),
    (0x10de, 0x2e12, "GB10"),
    (0x10de, 0x3182, "B300 SXM6"),
    (0x1002, 0x66a1, "Instinct MI50"),
    (0x1002, 0x738c, "Instinct MI100"),
    (0x1002, 0x7408, "Instinct MI250X"),
    (0x1002, 0x740c, "Instinct MI250X/MI250"),
    (0x1002, 0x740f, "Instinct MI210"),
    (0x1002, 0x74a0, "Instinct MI300A"),
    (0x1002, 0x74a1, "Instinct MI300X"),
    (0x1002, 0x74a2, "Instinct MI308X"),
    (0x1002, 0x74a5, "Instinct MI325X"),
    (0x1002, 0x74b5, "Instinct MI300X VF"),
    (0x1002, 0x75a0, "Instinct MI350X"),
    (0x1002, 0x75a3, "Instinct MI355X"),
    (0x8086, 0x0bd5, "Data Center GPU Max 1550"),
    (0x8086, 0x0bd6, "Data Center GPU Max 1550"),
    (0x8086, 0x0bda, "Data Center GPU Max 1100"),
    (0x8086, 0x56c0, "Data Center GPU Flex 170"),
    (0x8086, 0x56c1, "Data Center GPU Flex 140"),
    (0x8086, 0x2250, "Xeon Phi 5100"),
    (0x8086, 0x225c, "Xeon Phi SE10/7120"),
    (0x8086, 0x225d, "Xeon Phi 3120"),
    (0x1d0f, 0x7064, "Inferentia"),
    (0x1d0f, 0x7164, "Trainium"),
    (0x1d0f, 0x7264, "Inferentia2"),
    (0x1d0f, 0x7364, "Trainium2"),
    (0x1d0f, 0x7564, "Trainium3"),
    (0x1d0f, 0x7565, "Trainium3"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use AcceleratorKind::{Gpu, Npu, Other};

    #[test]
    fn by_class_and_vendor() {
        let cases = [
            (0x030200, 0x10de, 0x2330, Some(Gpu), "H100"),
            (0x030000, 0x10de, 0x1b81, Some(Gpu), "a card with a screen"),
            (0x068000, 0x10de, 0x22a3, None, "NVSwitch"),
            (0x040300, 0x10de, 0x10f0, None, "sound of a graphics card"),
            (0x038000, 0x1002, 0x740c, Some(Gpu), "MI250X"),
            (0x120000, 0x1002, 0x74a1, Some(Gpu), "MI300X"),
            (0x030000, 0x1002, 0x515e, None, "ES1000"),
            (0x030000, 0x1a03, 0x2000, None, "ASPEED"),
            (0x030000, 0x102b, 0x0532, None, "Matrox"),
            (0x038000, 0x1af4, 0x1050, None, "virtio"),
            (0x030000, 0x8086, 0x46a6, Some(Gpu), "Intel's in a laptop"),
            (0x120000, 0x19e5, 0xd802, Some(Npu), "Ascend 910B"),
            (0x120000, 0x19e5, 0xa250, None, "compression engine"),
            (0x120000, 0x1da3, 0x1020, Some(Npu), "Gaudi2"),
            (0x120000, 0x10ee, 0x5000, Some(Other), "FPGA"),
            (0x0b4000, 0x8086, 0x225d, Some(Other), "Xeon Phi"),
            (0x0b4000, 0x8086, 0x37c8, None, "QuickAssist"),
            (0x088000, 0x1d0f, 0x7364, Some(Npu), "Trainium2"),
            (0x020000, 0x15b3, 0x1021, None, "network"),
        ];
        for (class, vendor, device, expected, what) in cases {
            assert_eq!(accelerator_kind(class, Some(vendor), Some(device)), expected, "{what}");
        }
        assert_eq!(accelerator_kind(0x030200, None, None), Some(Gpu));
        assert_eq!(accelerator_kind(0x030000, None, None), None);
    }

    #[test]
    fn models() {
        let model = |vendor, device, name: Option<&str>| {
            let address = "0000:01:00.0".parse().unwrap();
            let name = name.map(str::to_owned);
            let function = PciFunction { vendor, device, name, ..PciFunction::unknown(address) };
            model_of(&function)
        };
        assert_eq!(model(Some(0x19e5), Some(0xd802), None).as_deref(), Some("Ascend 910B"));
        let vega = "Advanced Micro Devices, Inc. [AMD/ATI] Vega 20";
        assert_eq!(model(Some(0x1002), Some(0x66a2), Some(vega)).as_deref(), Some(vega));
        let l20 = "NVIDIA Corporation AD102GL [L20]";
        assert_eq!(model(Some(0x10de), Some(0x26ba), Some(l20)).as_deref(), Some("L20"));
        assert_eq!(model(Some(0x10de), Some(0xffff), None), None);
        assert_eq!(model(Some(0x10de), None, None), None);
    }

    #[test]
    fn no_model_is_listed_twice() {
        let mut keys: Vec<_> = MODELS.iter().map(|(vendor, device, _)| (vendor, device)).collect();
        keys.sort();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
