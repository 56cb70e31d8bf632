//! `hcomm-stat`: see the library.

fn main() -> std::process::ExitCode {
    hcomm_stat::main()
}
