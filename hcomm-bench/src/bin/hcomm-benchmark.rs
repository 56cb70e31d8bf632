//! `hcomm-benchmark`: the same program as `hcomm-bench`, under its second name.

fn main() -> std::process::ExitCode {
    hcomm_bench::main()
}
