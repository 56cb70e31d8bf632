//! `hcc-smi`: see the library.

fn main() -> std::process::ExitCode {
    hcc_smi::main()
}
