//! What a processor is called, as `/proc/cpuinfo` tells it in each architecture's own words.

/// Names and numbers of a model; `None` where the kernel does not tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub name: Option<String>,
    pub vendor: Option<String>,
    pub family: Option<u32>,
    pub number: Option<u32>,
}

impl Model {
    /// Of the first processor in the text of `/proc/cpuinfo`, as `lscpu` shows it. Without a name are s390, some RISC-V, and ARM
    /// whose numbers are not in our table.
    pub(super) fn of(cpuinfo: &str) -> Model {
        let field = |names: &[&str]| {
            names.iter().find_map(|name| {
                let values = cpuinfo.lines().filter_map(|line| line.split_once(':'));
                let mut named = values.filter(|(key, _)| key.trim() == *name).map(|(_, value)| value.trim());
                named.find(|value| !value.is_empty() && !value.eq_ignore_ascii_case("unknown"))
            })
        };
        let number = |names| field(names)?.parse().ok();
        let hex = |name| u32::from_str_radix(field(&[name])?.strip_prefix("0x")?, 16).ok();
        if let Some(implementer) = hex("CPU implementer") {
            // 32-bit kernels write "ARMv7 Processor rev 4 (v7l)" as a name, which names none.
            let name = hex("CPU part").and_then(|part| arm(implementer, part)).map(str::to_owned);
            return Model { name, vendor: arm_vendor(implementer).map(str::to_owned), ..Model::default() };
        }
        Model {
            // x86, ia64; LoongArch; RISC-V; MIPS; POWER, SPARC.
            name: field(&["model name", "Model Name", "uarch", "cpu model", "cpu"]).map(str::to_owned),
            // x86, s390; ia64; RISC-V.
            vendor: field(&["vendor_id", "vendor", "mvendorid"]).map(str::to_owned),
            family: number(&["cpu family", "family"]),
            number: number(&["model"]),
        }
    }
}

/// The implementer's byte of the main identification register (Arm Architecture Reference Manual, `MIDR_EL1`).
fn arm_vendor(implementer: u32) -> Option<&'static str> {
    Some(match implementer {
        0x41 => "ARM",
        0x42 => "Broadcom",
        0x43 => "Cavium",
        0x46 => "FUJITSU",
        0x48 => "HiSilicon",
        0x4e => "NVIDIA",
        0x51 => "Qualcomm",
        0x61 => "Apple",
        0x70 => "Phytium",
        0xc0 => "Ampere",
        _ => return None,
    })
}

/// Main identification register of ARM processors: implementer and part number (Arm's technical reference manuals of each core,
/// and `arch/arm64/include/asm/cputype.h` of Linux).
fn arm(implementer: u32, part: u32) -> Option<&'static str> {
    Some(match (implementer, part) {
        (0x41, 0xb76) => "ARM1176",
        (0x41, 0xc05) => "Cortex-A5",
        (0x41, 0xc07) => "Cortex-A7",
        (0x41, 0xc08) => "Cortex-A8",
        (0x41, 0xc09) => "Cortex-A9",
        (0x41, 0xc0d | 0xc0e) => "Cortex-A17",
        (0x41, 0xc0f) => "Cortex-A15",
        (0x41, 0xd01) => "Cortex-A32",
        (0x41, 0xd03) => "Cortex-A53",
        (0x41, 0xd04) => "Cortex-A35",
        (0x41, 0xd05) => "Cortex-A55",
        (0x41, 0xd06) => "Cortex-A65",
        (0x41, 0xd07) => "Cortex-A57",
        (0x41, 0xd08) => "Cortex-A72",
        (0x41, 0xd09) => "Cortex-A73",
        (0x41, 0xd0a) => "Cortex-A75",
        (0x41, 0xd0b) => "Cortex-A76",
        (0x41, 0xd0c) => "Neoverse-N1",
        (0x41, 0xd0d) => "Cortex-A77",
        (0x41, 0xd0e) => "Cortex-A76AE",
        (0x41, 0xd40) => "Neoverse-V1",
        (0x41, 0xd41) => "Cortex-A78",
        (0x41, 0xd42) => "Cortex-A78AE",
        (0x41, 0xd44) => "Cortex-X1",
        (0x41, 0xd46) => "Cortex-A510",
        (0x41, 0xd47) => "Cortex-A710",
        (0x41, 0xd48) => "Cortex-X2",
        (0x41, 0xd49) => "Neoverse-N2",
        (0x41, 0xd4a) => "Neoverse-E1",
        (0x41, 0xd4b) => "Cortex-A78C",
        (0x41, 0xd4c) => "Cortex-X1C",
        (0x41, 0xd4d) => "Cortex-A715",
        (0x41, 0xd4e) => "Cortex-X3",
        (0x41, 0xd4f) => "Neoverse-V2",
        (0x41, 0xd80) => "Cortex-A520",
        (0x41, 0xd81) => "Cortex-A720",
        (0x41, 0xd82) => "Cortex-X4",
        (0x41, 0xd84) => "Neoverse-V3",
        (0x41, 0xd85) => "Cortex-X925",
        (0x41, 0xd87) => "Cortex-A725",
        (0x41, 0xd8e) => "Neoverse-N3",
        (0x43, 0x0a1) => "ThunderX-88XX",
        (0x43, 0x0af) => "ThunderX2-99xx",
        (0x42, 0x516) => "ThunderX2",
        (0x46, 0x001) => "A64FX",
        (0x48, 0xd01) => "TaiShan-v110",
        (0x48, 0xd02) => "TaiShan-v120",
        (0x4e, 0x004) => "Carmel",
        (0x61, 0x022) => "Icestorm-M1",
        (0x61, 0x023) => "Firestorm-M1",
        (0x70, 0x662) => "FTC662",
        (0x70, 0x663) => "FTC663",
        (0x70, 0x862) => "FTC862",
        (0xc0, 0xac3) => "Ampere-1",
        (0xc0, 0xac4) => "Ampere-1a",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_architecture_has_its_own_words() {
        let name = |text| Model::of(text).name;
        assert_eq!(
            name("vendor_id\t: X\nmodel\t\t: 58\nmodel name\t:   Some  CPU @ 1.7GHz \n").unwrap(),
            "Some  CPU @ 1.7GHz"
        );
        assert_eq!(name("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n").unwrap(), "POWER9, altivec supported");
        assert_eq!(name("CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n").unwrap(), "Neoverse-V2");
        assert_eq!(name("model name\t: ARMv7 Processor rev 1\nCPU implementer : 0x99\nCPU part : 0x001\n"), None);
        assert_eq!(name("hart\t: 1\nmvendorid\t: 0x5b7\n"), None);
        assert_eq!(name("processor 0: version = 00,  identification = 4729E7,  machine = 2964\n"), None);
        assert_eq!(name("model name\t: unknown\n"), None);
        assert_eq!(Model::of(""), Model::default());
    }

    #[test]
    fn makers_and_numbers() {
        let epyc =
            Model::of("vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7451\n");
        assert_eq!((epyc.vendor.as_deref(), epyc.family, epyc.number), (Some("AuthenticAMD"), Some(23), Some(1)));
        let cell = Model::of("cpu\t\t: Cell Broadband Engine\nmodel\t\t: SonyPS3\n");
        assert_eq!((cell.vendor, cell.family, cell.number), (None, None, None));
        assert_eq!(Model::of("CPU implementer\t: 0x48\nCPU part\t: 0xd01\n").vendor.as_deref(), Some("HiSilicon"));
    }
}
