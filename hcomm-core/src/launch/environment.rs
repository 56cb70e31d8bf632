//! Reads the variables that launchers set.
//!
//! Launchers nest (torchrun under srun, mpirun in a Slurm allocation, whose daemons are Slurm tasks themselves), so the
//! innermost must win: the order below goes from those that start ranks directly to those that start other launchers.
//! A set that is begun but not complete is an error that names the missing variable: to guess on would make a job of one
//! rank out of each process, which runs, and measures nothing.

use super::Place;
use super::nodelist::first_host;
use crate::error::{Error, Result};

/// Variables are looked up through this, so that tests need no process environment.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Ports of stores that no setting names, below those that the kernel gives out.
const FIRST_PORT: u64 = 20000;
const PORTS: u64 = 10000;

/// The place of this process in the job that started it; `None` when no launcher did.
///
/// # Errors
/// [`Error::Setting`] for a variable with a value that cannot be, or that is missing from a set: the rest of what a launcher
/// sets, or the address of a store.
pub fn detect(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Place>> {
    let env: Lookup<'_> = &|name| env(name).filter(|value| !value.trim().is_empty());
    let has = |name: &str| env(name).is_some();
    let mut place = if has("HCOMM_RANK") {
        own(env)?
    } else if has("RANK") && has("WORLD_SIZE") && (has("MASTER_ADDR") || has("TORCHELASTIC_RUN_ID")) {
        torchrun(env)?
    } else if has("OMPI_COMM_WORLD_RANK") {
        open_mpi(env)?
    } else if has("PMI_RANK") && (has("MPI_LOCALRANKID") || !is_slurm_step(env)) {
        pmi(env)?
    } else if is_slurm_step(env) && !has("SLURM_PTY_PORT") {
        // With a pseudo terminal it is a shell that someone types in, not a rank.
        slurm(env)?
    } else if has("PMIX_RANK") {
        pmix(env)?
    } else if has("JOB_COMPLETION_INDEX") && (has("HCOMM_WORLD_SIZE") || has("WORLD_SIZE")) {
        kubernetes(env)?
    } else {
        return Ok(None);
    };
    check(&place)?;
    place.serve_store = place.store_rank == Some(place.rank);
    Ok(Some(place))
}

/// A batch script has `SLURM_PROCID=0` too; only what srun started has a step.
fn is_slurm_step(env: Lookup<'_>) -> bool {
    env("SLURM_PROCID").is_some() && (env("SLURM_STEP_ID").is_some() || env("SLURM_STEPID").is_some())
}

fn own(env: Lookup<'_>) -> Result<Place> {
    let size = required(env, "HCOMM_WORLD_SIZE", "HCOMM_RANK")?;
    let url = match env("HCOMM_STORE") {
        Some(url) => url,
        None if size == 1 => loopback("hcomm", &std::process::id().to_string()),
        None => return Err(missing("HCOMM_STORE", "HCOMM_RANK")),
    };
    Ok(Place {
        rank: required(env, "HCOMM_RANK", "HCOMM_RANK")?,
        size,
        local_rank: number(env, "HCOMM_LOCAL_RANK")?,
        local_size: number(env, "HCOMM_LOCAL_SIZE")?,
        ..place(env, "hcomm", url, "default")
    })
}

fn torchrun(env: Lookup<'_>) -> Result<Place> {
    let run = env("TORCHELASTIC_RUN_ID").unwrap_or_else(|| "torch".into());
    let restart = env("TORCHELASTIC_RESTART_COUNT").unwrap_or_else(|| "0".into());
    let url = match env("HCOMM_STORE") {
        Some(url) => url,
        None => {
            let host = env("MASTER_ADDR").ok_or_else(|| missing("MASTER_ADDR", "RANK"))?;
            let port: u16 = required(env, "MASTER_PORT", "MASTER_ADDR")?;
            // On MASTER_PORT itself torch's own store listens.
            let port = port.checked_add(1).ok_or_else(|| bad("MASTER_PORT", &port.to_string(), "at most 65534"))?;
            tcp(&host, port)
        }
    };
    Ok(Place {
        rank: required(env, "RANK", "WORLD_SIZE")?,
        size: required(env, "WORLD_SIZE", "RANK")?,
        local_rank: number(env, "LOCAL_RANK")?,
        local_size: number(env, "LOCAL_WORLD_SIZE")?,
        ..place(env, "torchrun", url, &format!("{run}-{restart}"))
    })
}

fn open_mpi(env: Lookup<'_>) -> Result<Place> {
    let size = required(env, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")?;
    let local_size = number(env, "OMPI_COMM_WORLD_LOCAL_SIZE")?;
    let job = env("PMIX_NAMESPACE").or_else(|| env("OMPI_MCA_ess_base_jobid"));
    let job = job.ok_or_else(|| missing("PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK"))?;
    let url = store_on_one_host(env, "Open MPI", size, local_size, &job)?;
    Ok(Place {
        rank: required(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")?,
        size,
        local_rank: number(env, "OMPI_COMM_WORLD_LOCAL_RANK")?,
        local_size,
        ..place(env, "open mpi", url, &job)
    })
}

fn pmi(env: Lookup<'_>) -> Result<Place> {
    let size = required(env, "PMI_SIZE", "PMI_RANK")?;
    let local_size = number(env, "MPI_LOCALNRANKS")?;
    // Hydra names its jobs nowhere in the environment; but all ranks of a host are children of one proxy.
    let job = env("PMI_JOBID").unwrap_or_else(|| format!("pmi-{}", std::os::unix::process::parent_id()));
    let url = store_on_one_host(env, "PMI", size, local_size, &job)?;
    // Over several hosts the proxies differ, and the store's address must tell the jobs apart.
    let job = if local_size == Some(size) { job } else { env("PMI_JOBID").unwrap_or_else(|| "pmi".into()) };
    Ok(Place {
        rank: required(env, "PMI_RANK", "PMI_SIZE")?,
        size,
        local_rank: number(env, "MPI_LOCALRANKID")?,
        local_size,
        ..place(env, "pmi", url, &job)
    })
}

fn pmix(env: Lookup<'_>) -> Result<Place> {
    let job = env("PMIX_NAMESPACE").ok_or_else(|| missing("PMIX_NAMESPACE", "PMIX_RANK"))?;
    // PMIx itself tells the size only through its library.
    let size = required(env, "HCOMM_WORLD_SIZE", "PMIX_RANK")?;
    let local_size = number(env, "HCOMM_LOCAL_SIZE")?;
    let url = store_on_one_host(env, "PMIx", size, local_size, &job)?;
    Ok(Place {
        rank: required(env, "PMIX_RANK", "PMIX_NAMESPACE")?,
        size,
        local_rank: number(env, "HCOMM_LOCAL_RANK")?,
        local_size,
        ..place(env, "pmix", url, &job)
    })
}

fn slurm(env: Lookup<'_>) -> Result<Place> {
    let step = env("SLURM_STEP_ID").or_else(|| env("SLURM_STEPID")).unwrap_or_default();
    let job = env("SLURM_JOB_ID").or_else(|| env("SLURM_JOBID"));
    let job = format!("{}.{step}", job.ok_or_else(|| missing("SLURM_JOB_ID", "SLURM_PROCID"))?);
    let url = match env("HCOMM_STORE") {
        Some(url) => url,
        None => {
            let name = if env("SLURM_STEP_NODELIST").is_some() { "SLURM_STEP_NODELIST" } else { "SLURM_NODELIST" };
            let list = env(name).ok_or_else(|| missing("SLURM_STEP_NODELIST", "SLURM_PROCID"))?;
            let host = first_host(&list).ok_or_else(|| bad(name, &list, "a list of hosts such as n[01-03,7]"))?;
            // All ranks must find the same port, and other steps on that host another one.
            tcp(&host, port_for(&job))
        }
    };
    // SLURM_NTASKS is the job's; the step's, where it is set, is what runs here.
    let size = number(env, "SLURM_STEP_NUM_TASKS")?;
    let size = size.map_or_else(|| required(env, "SLURM_NTASKS", "SLURM_PROCID"), Ok)?;
    Ok(Place {
        rank: required(env, "SLURM_PROCID", "SLURM_NTASKS")?,
        size,
        local_rank: number(env, "SLURM_LOCALID")?,
        local_size: None,
        ..place(env, "slurm", url, &job)
    })
}

fn kubernetes(env: Lookup<'_>) -> Result<Place> {
    let name = if env("HCOMM_WORLD_SIZE").is_some() { "HCOMM_WORLD_SIZE" } else { "WORLD_SIZE" };
    let rank = required(env, "JOB_COMPLETION_INDEX", name)?;
    let url = env("HCOMM_STORE").ok_or_else(|| {
        unset(
            "HCOMM_STORE",
            "Kubernetes indexed job (JOB_COMPLETION_INDEX): set it to tcp://HOST:PORT, where HOST is the name of the pod \
             with index 0 in the job's headless service",
        )
    })?;
    Ok(Place {
        rank,
        size: required(env, name, "JOB_COMPLETION_INDEX")?,
        ..place(env, "kubernetes", url, "kubernetes")
    })
}

/// What is the same for all: rank 0 serves a store that has an address, unless a launcher does.
fn place(env: Lookup<'_>, source: &'static str, store_url: String, job: &str) -> Place {
    let job_id = env("HCOMM_JOB_ID").unwrap_or_else(|| clean(job));
    let store_rank = (store_url.starts_with("tcp://") && env("HCOMM_STORE_SERVED").is_none()).then_some(0);
    Place {
        rank: 0,
        size: 1,
        local_rank: None,
        local_size: None,
        store_url,
        job_id,
        host_id: env("HCOMM_HOST_ID"),
        store_rank,
        serve_store: false,
        source,
    }
}

/// For launchers that tell no address: `HCOMM_STORE`, or this host when all ranks are on it.
fn store_on_one_host(
    env: Lookup<'_>,
    launcher: &str,
    size: usize,
    local_size: Option<usize>,
    job: &str,
) -> Result<String> {
    match env("HCOMM_STORE") {
        Some(url) => Ok(url),
        None if size == 1 || local_size == Some(size) => Ok(loopback(launcher, job)),
        None => Err(unset(
            "HCOMM_STORE",
            &format!(
                "{launcher} does not say where rank 0 runs, and not all ranks are on this host: set it to \
                 tcp://HOST:PORT, where HOST is that of rank 0, or to file:///DIRECTORY, which all hosts share"
            ),
        )),
    }
}

fn loopback(launcher: &str, job: &str) -> String {
    let user = nix::unistd::getuid();
    tcp("127.0.0.1", port_for(&format!("{launcher} {user} {job}")))
}

fn tcp(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        return format!("tcp://[{host}]:{port}");
    }
    format!("tcp://{host}:{port}")
}

/// The same port for the same text on every host and in every build: FNV-1a, which no library may change under us.
fn port_for(text: &str) -> u16 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (FIRST_PORT + (hash ^ (hash >> 32)) % PORTS) as u16
}

/// Job names of other launchers hold characters that ours must not.
fn clean(job: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    let job: String = job.chars().map(|c| if fits(c) { c } else { '-' }).take(120).collect();
    if job.is_empty() || job.starts_with('.') { format!("job{job}") } else { job }
}

fn check(place: &Place) -> Result<()> {
    let contradiction = |what: String| {
        let name = format!("the environment of {}", place.source);
        Err(Error::Setting { name, value: what, allowed: "ranks must be below their number".into() })
    };
    if place.size == 0 || place.rank >= place.size {
        return contradiction(format!("rank {} of {} ranks", place.rank, place.size));
    }
    match (place.local_rank, place.local_size) {
        (Some(rank), Some(size)) if rank >= size => contradiction(format!("rank {rank} of {size} ranks on this host")),
        (_, Some(size)) if size > place.size => {
            contradiction(format!("{size} ranks on this host of {} in all", place.size))
        }
        _ => Ok(()),
    }
}

fn number<T: std::str::FromStr>(env: Lookup<'_>, name: &str) -> Result<Option<T>> {
    let Some(text) = env(name) else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| bad(name, &text, "a number, 0 or greater"))
}

fn required<T: std::str::FromStr>(env: Lookup<'_>, name: &str, because: &str) -> Result<T> {
    number(env, name)?.ok_or_else(|| missing(name, because))
}

fn bad(name: &str, value: &str, allowed: &str) -> Error {
    Error::Setting { name: name.into(), value: value.into(), allowed: allowed.into() }
}

fn missing(name: &str, because: &str) -> Error {
    unset(name, &format!("{because} is set, so set it too, or unset {because} to run as a job of one rank"))
}

fn unset(name: &str, allowed: &str) -> Error {
    bad(name, "(not set)", allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> Result<Option<Place>> {
        let pairs: Vec<(&str, &str)> = text.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
        detect(&|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    fn place_of(text: &str) -> Place {
        from(text).unwrap().unwrap()
    }

    fn summary(place: &Place) -> (usize, usize, Option<usize>, Option<usize>, &str, &str, bool) {
        let Place { rank, size, local_rank, local_size, store_url, source, serve_store, .. } = place;
        (*rank, *size, *local_rank, *local_size, store_url, source, *serve_store)
    }

    #[test]
    fn nothing_set_is_nobody() {
        assert_eq!(from("PATH=/bin HOME=/root RANK= SLURM_PROCID=0 SLURM_NTASKS=4").unwrap(), None);
    }

    #[test]
    fn hcomms_own() {
        let place = place_of(
            "HCOMM_RANK=2 HCOMM_WORLD_SIZE=4 HCOMM_LOCAL_RANK=0 HCOMM_LOCAL_SIZE=2 HCOMM_STORE=tcp://10.0.0.1:29500 \
             HCOMM_JOB_ID=j7 HCOMM_HOST_ID=rack3 RANK=9 WORLD_SIZE=10 MASTER_ADDR=x",
        );
        assert_eq!(summary(&place), (2, 4, Some(0), Some(2), "tcp://10.0.0.1:29500", "hcomm", false));
        assert_eq!((place.job_id.as_str(), place.host_id.as_deref()), ("j7", Some("rack3")));
        assert!(place_of("HCOMM_RANK=0 HCOMM_WORLD_SIZE=2 HCOMM_STORE=tcp://a:1").serve_store);
        assert!(!place_of("HCOMM_RANK=0 HCOMM_WORLD_SIZE=2 HCOMM_STORE=file:///a").serve_store);
        assert!(!place_of("HCOMM_RANK=0 HCOMM_WORLD_SIZE=2 HCOMM_STORE=tcp://a:1 HCOMM_STORE_SERVED=1").serve_store);
    }

    #[test]
    fn torchrun_sets() {
        let place = place_of(
            "RANK=0 WORLD_SIZE=16 LOCAL_RANK=0 LOCAL_WORLD_SIZE=8 GROUP_RANK=0 ROLE_RANK=0 MASTER_ADDR=node-3 \
             MASTER_PORT=29400 TORCHELASTIC_RUN_ID=run/a TORCHELASTIC_RESTART_COUNT=2 SLURM_PROCID=0 SLURM_STEP_ID=0",
        );
        assert_eq!(summary(&place), (0, 16, Some(0), Some(8), "tcp://node-3:29401", "torchrun", true));
        assert_eq!(place.job_id, "run-a-2");
        let ipv6 = place_of("RANK=1 WORLD_SIZE=2 MASTER_ADDR=fd00::2 MASTER_PORT=1");
        assert_eq!(ipv6.store_url, "tcp://[fd00::2]:2");
    }

    const SLURM: &str = "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_ID=0 SLURM_JOB_ID=4711 \
                         SLURM_NODELIST=n[01-09] SLURM_STEP_NODELIST=n[07-08] SLURM_STEP_NUM_TASKS=6 ";

    #[test]
    fn slurm_sets() {
        let place = place_of(SLURM);
        let url = place.store_url.clone();
        assert_eq!(summary(&place), (5, 6, Some(1), None, url.as_str(), "slurm", false));
        assert!(url.starts_with("tcp://n07:2"), "{url}");
        assert_eq!(place.job_id, "4711.0");
        assert_eq!(place_of(&SLURM.replace("PROCID=5", "PROCID=1")).store_url, url);
        assert_ne!(place_of(&SLURM.replace("STEP_ID=0", "STEP_ID=1")).store_url, url);
        assert_eq!(from(&format!("{SLURM} SLURM_PTY_PORT=33333")).unwrap(), None);
    }

    // What Open MPI 4.1 sets, shortened to what could be mistaken for something.
    const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
        OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_MCA_ess_base_jobid=1460797441 OMPI_UNIVERSE_SIZE=2 PMIX_RANK=1 \
        PMIX_NAMESPACE=1460797441 PMIX_HOSTNAME=vm ";

    #[test]
    fn open_mpi_sets() {
        let place = place_of(OPEN_MPI);
        let url = place.store_url.clone();
        assert_eq!(summary(&place), (1, 2, Some(1), Some(2), url.as_str(), "open mpi", false));
        assert!(url.starts_with("tcp://127.0.0.1:2"), "{url}");
        // mpirun's daemons on other hosts are Slurm tasks.
        assert_eq!(place_of(&format!("{OPEN_MPI} {SLURM}")), place);
        let hosts = OPEN_MPI.replace("LOCAL_SIZE=2", "LOCAL_SIZE=1").replace("LOCAL_RANK=1", "LOCAL_RANK=0");
        assert!(from(&hosts).unwrap_err().to_string().contains("HCOMM_STORE"));
        assert_eq!(place_of(&format!("{hosts} HCOMM_STORE=file:///nfs")).store_url, "file:///nfs");
    }

    #[test]
    fn hydra_and_other_pmi_set() {
        let hydra = "PMI_RANK=1 PMI_SIZE=2 PMI_FD=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 HYDI_CONTROL_FD=7 ";
        let place = place_of(hydra);
        let url = place.store_url.clone();
        assert_eq!(summary(&place), (1, 2, Some(1), Some(2), url.as_str(), "pmi", false));
        assert_eq!(place_of(&hydra.replace("RANK=1", "RANK=0")).store_url, url);
        assert_eq!(place_of(&format!("{hydra} {SLURM}")).source, "pmi");
        // srun --mpi=pmi2 sets PMI_RANK too, and Slurm knows where rank 0 is.
        assert_eq!(place_of(&format!("PMI_RANK=5 PMI_SIZE=6 PMI_FD=3 {SLURM}")).source, "slurm");
        let hosts = place_of("PMI_RANK=0 PMI_SIZE=9 PMI_JOBID=77 HCOMM_STORE=tcp://a:1");
        assert_eq!((hosts.job_id.as_str(), hosts.serve_store), ("77", true));
    }

    #[test]
    fn pmix_alone_sets() {
        let text = "PMIX_RANK=3 PMIX_NAMESPACE=prun.1@0 ";
        assert!(from(text).unwrap_err().to_string().contains("HCOMM_WORLD_SIZE"));
        let place = place_of(&format!("{text} HCOMM_WORLD_SIZE=4 HCOMM_STORE=tcp://a:1"));
        assert_eq!(summary(&place), (3, 4, None, None, "tcp://a:1", "pmix", false));
        assert_eq!(place.job_id, "prun.1-0");
    }

    #[test]
    fn kubernetes_sets() {
        let place = place_of("JOB_COMPLETION_INDEX=0 HCOMM_WORLD_SIZE=3 HCOMM_STORE=tcp://train-0.train:29500");
        assert_eq!(summary(&place), (0, 3, None, None, "tcp://train-0.train:29500", "kubernetes", true));
        assert!(from("JOB_COMPLETION_INDEX=0 WORLD_SIZE=3").unwrap_err().to_string().contains("headless"));
        assert_eq!(from("JOB_COMPLETION_INDEX=0").unwrap(), None);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let cases = [
            ("HCOMM_RANK=1", "HCOMM_WORLD_SIZE"),
            ("HCOMM_RANK=1 HCOMM_WORLD_SIZE=2", "HCOMM_STORE"),
            ("HCOMM_RANK=x HCOMM_WORLD_SIZE=2 HCOMM_STORE=file:///a", "HCOMM_RANK=x"),
            ("HCOMM_RANK=-1 HCOMM_WORLD_SIZE=2 HCOMM_STORE=file:///a", "HCOMM_RANK=-1"),
            ("HCOMM_RANK=2 HCOMM_WORLD_SIZE=2 HCOMM_STORE=file:///a", "rank 2 of 2"),
            ("HCOMM_RANK=0 HCOMM_WORLD_SIZE=0 HCOMM_STORE=file:///a", "rank 0 of 0"),
            ("HCOMM_RANK=1 HCOMM_WORLD_SIZE=2 HCOMM_STORE=file:///a HCOMM_LOCAL_RANK=1 HCOMM_LOCAL_SIZE=1", "1 of 1"),
            ("HCOMM_RANK=1 HCOMM_WORLD_SIZE=2 HCOMM_STORE=file:///a HCOMM_LOCAL_SIZE=3", "3 ranks on this host"),
            ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", "MASTER_PORT"),
            ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65535", "65534"),
            ("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE"),
            ("PMI_RANK=0", "PMI_SIZE"),
            ("SLURM_PROCID=0 SLURM_STEP_ID=0", "SLURM_JOB_ID"),
            ("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_JOB_ID=1 SLURM_NTASKS=1", "SLURM_STEP_NODELIST"),
            ("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_JOB_ID=1 SLURM_NTASKS=1 SLURM_NODELIST=n[", "SLURM_NODELIST=n["),
        ];
        for (text, named) in cases {
            let error = from(text).unwrap_err();
            assert!(matches!(error, Error::Setting { .. }), "{text}: a mistake of who set it, not a failure: {error}");
            assert!(error.to_string().contains(named), "{text}: {error}");
        }
    }
}
