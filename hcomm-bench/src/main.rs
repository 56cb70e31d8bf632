//! `hcomm-bench`: see the library.

fn main() -> std::process::ExitCode {
    hcomm_bench::main()
}
